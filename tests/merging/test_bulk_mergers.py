"""Mergers of many filters, against events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, thorough
from weft.algebra.normalize import normalize
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.merging.bulk_mergers import BulkMerger, merge_all
from weft.model.schema import Schema

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 10]} for name in "xy"}})


@given(st.lists(filters(3).filter(lambda each: "is_a" not in str(each)), max_size=7))
@thorough(100)
def test_mergers_admit_exactly_what_their_filters_admit(some: list[Filter]) -> None:
    some = [each for each in some if normalize(each)]
    mergers = merge_all([normalize(each) for each in some])
    assert sorted(at for merger in mergers for at in (*merger.components, *merger.covered)) == list(range(len(some)))
    for merger in mergers:
        told = some[merger.components[0]] if merger.text is None else parse(merger.text)
        for event in EVENTS:
            wanted = any(matches(some[at], event) for at in merger.components)
            assert matches(told, event) == wanted
            assert wanted or not any(matches(some[at], event) for at in merger.covered)


def test_a_budget_makes_fewer_and_wider_mergers() -> None:
    forms = [normalize(parse(f"x BETWEEN {n} AND {n + 1} AND y < 5"), SCHEMA) for n in (0, 2, 4)]
    assert [merger.text for merger in merge_all(forms, SCHEMA)] == [
        "(x BETWEEN 0 AND 1 OR x BETWEEN 2 AND 3 OR x BETWEEN 4 AND 5) AND y < 5"
    ]
    apart = [normalize(parse(f"x BETWEEN {n} AND {n + 1} AND y < {n + 1}"), SCHEMA) for n in (0, 2)]
    assert len(merge_all(apart, SCHEMA)) == 2
    (wide,) = merge_all(apart, SCHEMA, budget=0.5)
    assert wide.components == (0, 1)


def test_nothing_is_merged_from_nothing() -> None:
    assert merge_all([]) == []
    assert merge_all([normalize(parse("x > 1"))]) == [BulkMerger(None, (0,))]
