"""The minimal cover of many filters, against covering pair by pair and against events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, PREDICATES, filters, number_tests, one_of, thorough
from weft.algebra.bulk import columns_of_texts
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers
from weft.language.ast import AttributeRef, Filter, conjunction
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Schema
from weft.order.minimal_cover import NOTHING, Cover, forms_of, minimal_cover

SHAPES = [
    {},
    {"small": 0, "leaf": 1},
    {"small": 100},
    {"most_parts": 1, "leaf": 2},
    {"most_parts": 2, "small": 0},
    {"most_axes": 1},
]
INTEGERS = Schema.from_dict({"attributes": {name: {"type": "int"} for name in "ab"}})

boxes = st.lists(one_of([t for name in "abc" for t in number_tests(AttributeRef(name))]), min_size=1, max_size=3).map(
    lambda tests: conjunction(*tests)
)


def reduced(some: list[Filter], schema: Schema | None = None, **shape: int) -> Cover:
    return minimal_cover(columns_of_texts(map(str, some), schema, PREDICATES), len(some), schema, **shape)


def brute(some: list[Filter], schema: Schema | None = None) -> list[int]:
    """The filters that no other covers, of equal ones the first."""
    forms = [normalize(each, schema) for each in some]
    return [
        at
        for at, form in enumerate(forms)
        if form
        and not any(
            covers(wide, form, schema) and (other < at or not covers(form, wide, schema))
            for other, wide in enumerate(forms)
            if other != at and wide
        )
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(st.lists(boxes, max_size=12))
@thorough(60)
def test_of_boxes_it_keeps_the_minimal_cover(shape: dict[str, int], some: list[Filter]) -> None:
    assert reduced(some, **shape).kept.tolist() == brute(some)


@given(st.lists(boxes, max_size=12))
@thorough(100)
def test_under_a_schema_integers_step_by_one(some: list[Filter]) -> None:
    assert reduced(some, INTEGERS).kept.tolist() == brute(some, INTEGERS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@given(st.lists(filters(4), max_size=8))
@thorough(50)
def test_of_any_filters_what_is_kept_admits_what_all_admit(shape: dict[str, int], some: list[Filter]) -> None:
    cover = reduced(some, **shape)
    for at, (each, coverer) in enumerate(zip(some, cover.coverers.tolist(), strict=True)):
        if coverer == NOTHING:
            assert not any(matches(each, event) for event in EVENTS)
        elif coverer != at:
            assert cover.coverers[coverer] == coverer, "it is covered by one that is kept"
            assert all(matches(some[coverer], event) for event in EVENTS if matches(each, event))


@given(st.lists(filters(3), max_size=6))
@thorough(100)
def test_of_any_filters_it_finds_what_covers_finds(some: list[Filter]) -> None:
    kept = reduced(some, tries=10_000).kept.tolist()
    forms = [normalize(each) for each in some]
    for at in kept:
        assert not any(covers(forms[other], forms[at]) for other in kept if other != at)


def test_with_too_many_candidates_it_reports_that_it_is_unsure() -> None:
    texts = [*(f"a LIKE '%{sign}%'" for sign in "bcdefg"), "a LIKE '%f%g%'"]
    columns = columns_of_texts(texts)
    sure, hasty = minimal_cover(columns, len(texts)), minimal_cover(columns, len(texts), tries=1)
    assert (sure.kept.tolist(), sure.unsure) == ([0, 1, 2, 3, 4, 5], 0)
    assert (hasty.kept.tolist(), hasty.unsure) == ([0, 1, 2, 3, 4, 5, 6], 7)


def test_a_filter_that_never_matches_has_no_coverer() -> None:
    cover = minimal_cover(columns_of_texts(["x < 1 AND x > 2", "FALSE"]), 2)
    assert cover.coverers.tolist() == [NOTHING, NOTHING]
    assert minimal_cover(columns_of_texts([]), 0).kept.tolist() == []


def test_the_forms_are_those_of_the_filters() -> None:
    texts = ["x > 1 OR y = 'a'", "FALSE", "s LIKE '%a' AND x < 3"]
    forms = forms_of(columns_of_texts(texts), np.arange(3))
    assert forms == [normalize(parse(text)) for text in texts]
