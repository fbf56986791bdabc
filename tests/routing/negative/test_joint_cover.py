"""What several cover together, and what is covered on a curve, against subtraction and sets of points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies import EVENTS, filters, number_filters, thorough
from weft.algebra.measure import volume
from weft.algebra.normalize import normalize
from weft.algebra.subtract import subtract
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.schema import Schema
from weft.routing.negative.joint_cover import range_cover, subsumption
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 2]} for name in "ab"}})
OPEN = Schema.from_dict({"attributes": {"c": {"type": "float", "bounds": [0, 2]}}})

range_sets = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=3).map(
    lambda some: RangeSet.of(*((start, start + more) for start, more in some))
)


@given(st.lists(filters(4), max_size=7))
@thorough(80)
def test_those_that_stand_for_one_are_kept_and_admit_all_that_it_admits(some: list[Filter]) -> None:
    some = [each for each in some if normalize(each, OPEN)]
    standing = subsumption([normalize(each, OPEN) for each in some], OPEN)
    for each, others in zip(some, standing, strict=True):
        assert all(standing[other] == () for other in others)
        if others:
            wanted = [event for event in EVENTS if matches(each, event)]
            assert all(any(matches(some[other], event) for other in others) for event in wanted)


@given(st.lists(number_filters(3), max_size=7))
@thorough(80)
def test_numbers_that_the_kept_cover_together_are_not_kept(some: list[Filter]) -> None:
    forms = [form for form in (normalize(each, SCHEMA) for each in some) if form]
    standing = subsumption(forms, SCHEMA)
    kept = [form for form, others in zip(forms, standing, strict=True) if not others]
    for form in kept:
        larger = [box for other in kept if volume(other, SCHEMA) > volume(form, SCHEMA) for box in other.boxes]
        assert any(subtract(box, larger, SCHEMA) for box in form.boxes), "larger ones cover it together"
    union = [box for form in kept for box in form.boxes]
    for form in forms:
        assert not any(subtract(box, union, SCHEMA) for box in form.boxes), "the kept admit everything"


@given(st.lists(range_sets, max_size=8))
@thorough(150)
def test_the_ranges_that_are_kept_are_those_that_no_other_has(sets: list[RangeSet]) -> None:
    coverers = range_cover(RangeSets.of(sets)).tolist()
    for at, (mine, coverer) in enumerate(zip(sets, coverers, strict=True)):
        assert sets[coverer].covers(mine)
        assert coverers[coverer] == coverer
        held = any(
            other.covers(mine) and (not mine.covers(other) or place < at)
            for place, other in enumerate(sets)
            if place != at
        )
        assert (coverer != at) == held


def test_many_ranges_are_asked_in_groups() -> None:
    starts = np.arange(1500) * 10
    sets = RangeSets(np.arange(1501), starts, starts + 3)
    assert np.array_equal(range_cover(sets), np.arange(1500))
