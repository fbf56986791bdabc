"""Range sets against roaring bitmaps and portion: every pair of small sets, and random large ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import portion
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from strategies import thorough
from weft.errors import RangeError
from weft.kernels.steps import LAST
from weft.space.range_set import EVERYTHING, NOTHING, RangeSet
from weft.space.range_sets import RangeSets

SMALL = [RangeSet.union_of(m, m) for m in ([n for n in range(6) if bits >> n & 1] for bits in range(64))]
ends = st.sampled_from((0, 1, 2, 5, LAST - 2, LAST - 1, LAST)) | st.integers(0, LAST)
pairs = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))
large = st.lists(pairs, max_size=6).map(lambda some: RangeSet.of(*some))
near = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=8).map(
    lambda some: RangeSet.of(*((a, a + n) for a, n in some))
)


def bitmap(ranges: RangeSet) -> BitMap64:
    found = BitMap64()
    for start, end in ranges:
        found.add_range(start, end + 1)
    return found


def intervals(ranges: RangeSet) -> portion.Interval:
    return portion.Interval(*(portion.closedopen(start, end + 1) for start, end in ranges))


@pytest.mark.parametrize("one", SMALL, ids=str)
def test_every_pair_of_small_sets_as_bitmaps_do(one: RangeSet) -> None:
    a = bitmap(one)
    assert one.size == len(a)
    assert [n for n in range(8) if n in one] == list(a)
    for other in SMALL:
        b = bitmap(other)
        assert bitmap(one | other) == a | b
        assert bitmap(one & other) == a & b
        assert bitmap(one - other) == a - b
        assert one.covers(other) == b.issubset(a)
        assert one.overlaps(other) == a.intersect(b)
        assert (one == other) == (a == b)


@given(near, near)
@thorough()
def test_random_sets_as_bitmaps_do(one: RangeSet, other: RangeSet) -> None:
    a, b = bitmap(one), bitmap(other)
    assert (bitmap(one | other), bitmap(one & other), bitmap(one - other)) == (a | b, a & b, a - b)
    assert (one.covers(other), one.overlaps(other), one.size) == (b.issubset(a), a.intersect(b), len(a))
    assert one.contains(np.arange(80)).tolist() == [n in a for n in range(80)]


@given(large, large)
@thorough()
def test_sets_over_the_whole_curve_as_portion_does(one: RangeSet, other: RangeSet) -> None:
    a, b = intervals(one), intervals(other)
    assert (intervals(one | other), intervals(one & other), intervals(one - other)) == (a | b, a & b, a - b)
    assert (one.covers(other), one.overlaps(other)) == (a.contains(b), a.overlaps(b))
    assert one.complement().complement() == one
    assert one | one.complement() == EVERYTHING
    assert one.size + one.complement().size == 2**63
    assert hash(one) == hash(RangeSet(one.starts.copy(), one.ends.copy()))


@given(near, st.integers(0, 12))
@thorough()
def test_closing_gaps(ranges: RangeSet, gap: int) -> None:
    closed = ranges.closed(gap)
    assert closed.covers(ranges)
    between = [after - before - 1 for before, after in zip(ranges.ends[:-1], ranges.starts[1:], strict=True)]
    assert closed.size - ranges.size == sum(n for n in between if n <= gap)
    assert len(closed) == len(ranges) - sum(n <= gap for n in between)


def test_the_ends_of_the_curve() -> None:
    assert EVERYTHING.complement() == NOTHING
    assert NOTHING.complement() == EVERYTHING
    assert EVERYTHING.size == 2**63
    assert RangeSet.of((0, 0), (LAST, LAST)).complement() == RangeSet.of((1, LAST - 1))
    assert EVERYTHING - RangeSet.of((5, LAST)) == RangeSet.of((0, 4))
    assert -1 not in EVERYTHING
    assert LAST + 1 not in EVERYTHING
    assert RangeSet.of((0, 0), (LAST, LAST)).closed(LAST) == EVERYTHING


def test_values_cannot_be_changed_and_leave_the_givers_alone() -> None:
    mine = np.array([1])
    ranges = RangeSet(mine, np.array([4]))
    with pytest.raises(ValueError, match="read-only"):
        ranges.starts[0] = 3
    assert mine.flags.writeable


@pytest.mark.parametrize(
    ("starts", "stops"),
    [
        ([3], [2]),
        ([1, 3], [2, 4]),
        ([5, 1], [6, 2]),
        ([1], []),
        ([-1], [4]),
        ([1.5], [2.0]),
        ([[1]], [[2]]),
        ([0], [2**63]),
    ],
)
def test_an_invalid_set_is_refused(starts: list[int], stops: list[int]) -> None:
    with pytest.raises(RangeError):
        RangeSet(np.array(starts), np.array(stops))
    if starts not in ([1, 3], [5, 1]):
        with pytest.raises(RangeError):
            RangeSet.union_of(starts, stops)


def test_many_sets() -> None:
    sets = RangeSets.of(SMALL)
    assert list(sets) == SMALL
    assert sets.union() == RangeSet.of((0, 5))
    rows = np.array([5, 5, 0, 63, 1])
    assert list(sets.taken(rows)) == [SMALL[row] for row in rows]
    assert list(sets.taken(np.zeros(0, np.int64))) == []
    assert len(RangeSets.of([])) == 0
    with pytest.raises(IndexError):
        sets[64]


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 1], [0, 3, 2], [0, 2]])
def test_many_sets_are_checked(offsets: list[int]) -> None:
    starts, stops = np.array([1, 3]), np.array([2, 4])  # adjacent: two sets, or none
    with pytest.raises(RangeError):
        RangeSets(np.array(offsets, np.int64), starts, stops)
    assert len(RangeSets(np.array([0, 0, 1, 1, 2, 2]), starts, stops)) == 5


def test_products_of_disjoint_and_nested_sets() -> None:
    nested = [RangeSet.of((a, b)) for a, b in product(range(5), repeat=2) if a <= b]
    for one, other in product(nested, repeat=2):
        assert one.covers(other) == (one & other == other) == (other - one == NOTHING)
