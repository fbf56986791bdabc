"""Which filters merge, and into what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merging.merging_cases import GRID, SCHEMA, SQUARES, touching
from order.things import Range
from strategies import EVENTS, filters, thorough
from weft.algebra.measure import volume
from weft.algebra.relate import as_form, covers
from weft.algebra.to_filter import to_filter
from weft.errors import FilterError, OptionError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.merging.mergeability import FilterMerging, MergeBudget, Merging, never
from weft.model.schema import Schema
from weft.order import FilterRelation

FLOATS = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 100]}, "y": {"type": "float"}}})


def merged(one: str, other: str, schema: Schema | None = None, merging: FilterMerging | None = None) -> str | None:
    """The merger of two filters, as text."""
    relation, merging = FilterRelation(schema), merging or FilterMerging(schema)
    found = merging.merged(relation.make(parse(one)), relation.make(parse(other)), merging.room(1, 0.0))
    return None if found is None else str(to_filter(as_form(found.thing, schema)))


@pytest.mark.parametrize(
    ("one", "other", "merger"),
    [
        ("x < 10", "x != 7", "x < 0 OR x >= 0"),  # "x is a number", not "x exists" (erratum 10)
        ("x <= 4", "x >= 5", "x <= 4 OR x >= 5"),  # real numbers lie between
        ("x BETWEEN 0 AND 3", "x BETWEEN 2 AND 9", "x BETWEEN 0 AND 9"),
        ("x = 1 AND y = 2", "x = 1 AND y = 3", "x = 1 AND y IN (2, 3)"),
        ("x = 1 AND y = 2", "x = 2 AND y = 3", None),
        ("x = 1 AND y = 2", "x = 1 AND z = 2", None),
        ("type = 'A'", "type = 'B'", "type IN ('A', 'B')"),
    ],
)
def test_perfect_mergers(one: str, other: str, merger: str | None) -> None:
    found = merged(one, other)
    assert (found is None) == (merger is None)
    if merger is not None:
        assert covers(parse(found or ""), parse(merger))
        assert covers(parse(merger), parse(found or ""))


def test_an_existence_test_is_typed() -> None:
    """Erratum 10: a string is neither below 10 nor other than 7; with a schema that fixes the type, it exists."""
    found = parse(merged("a < 10", "a != 7") or "")
    assert {"a": "text"} not in as_form(found)
    assert all(({"a": n} in as_form(found)) for n in (-5, 7, 7.5, 1e9))
    assert str(parse(merged("a < 4", "a != 3", SCHEMA) or "")) == "a IS NOT NULL"


def test_integers_merge_across_the_gap() -> None:
    """Erratum 6, and Theorem A.1 the other way (erratum 7): [0, 2] and [3, 5] cover [0, 5] together."""
    assert merged("a <= 2", "a >= 3", SCHEMA) == "a IS NOT NULL"
    found = parse(merged("a BETWEEN 0 AND 2", "a BETWEEN 3 AND 5", SCHEMA) or "")
    assert covers(found, parse("a BETWEEN 0 AND 5"), SCHEMA)
    assert len(as_form(found, SCHEMA).boxes) == 1


@given(one=filters(), other=filters())
@thorough(150)
def test_a_perfect_merger_matches_what_its_parts_match(one: Filter, other: Filter) -> None:
    relation, merging = FilterRelation(), FilterMerging()
    try:
        a, b = relation.make(one), relation.make(other)
    except FilterError:
        return
    found = merging.merged(a, b, 0.0)
    if found is not None:
        assert found.waste == 0
        assert all((e in as_form(found.thing)) == (e in a.form or e in b.form) for e in EVENTS)


@given(one=st.sampled_from(SQUARES), other=st.sampled_from(SQUARES))
@thorough(150)
def test_what_merges_perfectly_shares_a_signature(one: Filter, other: Filter) -> None:
    """Definition A.2: so looking candidates up by signatures misses none."""
    relation, merging = FilterRelation(SCHEMA), FilterMerging(SCHEMA)
    a, b = relation.make(one), relation.make(other)
    if merging.merged(a, b, 0.0) is not None:
        assert not set(merging.signatures(a)).isdisjoint(merging.signatures(b))


@given(one=st.sampled_from(SQUARES), other=st.sampled_from(SQUARES))
@thorough(150)
def test_an_imperfect_merger_states_what_it_adds(one: Filter, other: Filter) -> None:
    relation, merging = FilterRelation(SCHEMA), FilterMerging(SCHEMA, MergeBudget(0.5))
    a, b = relation.make(one), relation.make(other)
    found = merging.merged(a, b, 0.5)
    if found is None:
        return
    form = as_form(found.thing, SCHEMA)
    assert all(e in form for e in GRID if e in a.form or e in b.form)
    union = as_form(parse(f"({one}) OR ({other})"), SCHEMA)
    assert found.waste == pytest.approx((volume(form, SCHEMA) - volume(union, SCHEMA)) / 36)
    assert found.waste <= 0.5


def test_a_budget_grows_with_the_items() -> None:
    merging = FilterMerging(FLOATS, MergeBudget(0.2, saturation=10))
    assert merging.room(1, 0.0) == pytest.approx(0.02)
    assert merging.room(20, 0.0) == pytest.approx(0.2)
    assert merging.room(20, 0.15) == pytest.approx(0.05)
    assert FilterMerging(FLOATS).room(20, 0.0) == 0


def test_what_the_schema_does_not_measure_merges_perfectly_only() -> None:
    free = FilterMerging(FLOATS, MergeBudget(1.0))
    close = merged("x BETWEEN 0 AND 9 AND y = 1", "x BETWEEN 2 AND 10 AND y = 2", FLOATS, free)
    assert close is None
    assert merged("x < 5 AND z = 1", "x < 6 AND z = 2", None, FilterMerging(None, MergeBudget(1.0))) is None


def test_a_merger_has_few_pieces() -> None:
    few = FilterMerging(pieces=3)
    assert merged("x IN (1, 2)", "x = 3", merging=few) == "x IN (1, 2, 3)"
    assert merged("x IN (1, 2, 3)", "x = 4", merging=few) is None
    assert merged("x IN (1, 2, 3, 4, 5)", "x = 5", merging=few) == "x IN (1, 2, 3, 4, 5)"


def test_too_many_pieces_become_the_box_around_them() -> None:
    few = FilterMerging(SCHEMA, MergeBudget(0.5), pieces=2)
    found = merged("a IN (1, 3) AND b = 1", "a = 5 AND b = 1", SCHEMA, few)
    assert found is not None
    assert covers(parse(found), parse("a BETWEEN 1 AND 5 AND b = 1"), SCHEMA)


def test_any_type_merges() -> None:
    assert Merging(touching).merged(Range(0, 2), Range(3, 4), 0.0).thing == Range(0, 4)  # type: ignore[union-attr]
    assert Merging(touching).merged(Range(0, 1), Range(3, 4), 0.0) is None
    assert not list(never().signatures(Range(0, 1)))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MergeBudget(-0.1),
        lambda: MergeBudget(2),
        lambda: MergeBudget(0.1, -1),
        lambda: Merging(touching, tries=0),
    ],
)
def test_wrong_settings_are_refused(wrong: object) -> None:
    with pytest.raises(OptionError):
        wrong()  # type: ignore[operator]
    with pytest.raises(OptionError, match="'first' or 'widest'"):
        Merging(touching, choice="last")  # type: ignore[arg-type]
