"""The range table against a counter of every point, on a tiny curve in tiny blocks."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyroaring import BitMap64

from strategies import thorough
from weft.errors import RangeError
from weft.kernels.steps import LAST
from weft.routing.mics.kernels import ranges as kernel
from weft.routing.mics.structure import RangeTable
from weft.space.range_set import EVERYTHING, NOTHING, RangeSet
from weft.space.range_sets import RangeSets

CURVE = np.arange(64)
spans = st.tuples(st.integers(0, 63), st.sampled_from((0, 0, 1, 2, 5, 20, 63)))
sets = st.lists(spans, min_size=1, max_size=4).map(lambda some: RangeSet.of(*((a, min(63, a + n)) for a, n in some)))


def members(counts: np.ndarray) -> RangeSet:
    points = np.flatnonzero(counts)
    return RangeSet.union_of(points, points)


def mask(ranges: RangeSet) -> np.ndarray:
    return ranges.contains(CURVE)


class TableMachine(RuleBasedStateMachine):
    """`counts` is the oracle; what is told is followed only through the changes, as a neighbour would."""

    @initialize(gap=st.sampled_from((0, 0, 1, 2, 3, 7, 63)), size=st.integers(4, 6))
    def start(self, gap: int, size: int) -> None:
        self.table = RangeTable(gap=gap, block_size=size)
        self.counts = np.zeros(64, np.int64)
        self.held: list[RangeSet] = []
        self.heard = NOTHING

    def hear(self, added: RangeSet, dropped: RangeSet) -> None:
        assert not self.heard.overlaps(added), "told twice"
        assert self.heard.covers(dropped), "dropped, but never told"
        self.heard = (self.heard - dropped) | added

    def count(self, some: list[RangeSet], change: int) -> list[RangeSet]:
        """Count sets in or out, one by one; what each made newly needed, or no longer."""
        parts = []
        for ranges in some:
            before = self.counts > 0
            self.counts += change * mask(ranges)
            parts.append(members(before != (self.counts > 0)))
        return parts

    def drawn(self, data: st.DataObject) -> list[RangeSet]:
        size = data.draw(st.integers(1, min(4, len(self.held))))
        return [self.held.pop(data.draw(st.integers(0, len(self.held) - 1))) for _ in range(size)]

    @rule(ranges=sets)
    def insert(self, ranges: RangeSet) -> None:
        known = self.table.uncovered(ranges)
        change = self.table.insert(ranges)
        assert [known] == list(change.parts) == self.count([ranges], 1)
        assert change.drop == NOTHING
        self.hear(change.add, NOTHING)
        self.held.append(ranges)

    @rule(some=st.lists(sets, max_size=6))
    def insert_batch(self, some: list[RangeSet]) -> None:
        change = self.table.insert_batch(RangeSets.of(some))
        parts = self.count(some, 1)
        assert list(change.parts) == parts
        assert change.covered.tolist() == [part == NOTHING for part in parts]
        self.hear(change.add, change.drop)
        self.held += some

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ranges = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        change = self.table.remove(ranges)
        assert list(change.parts) == self.count([ranges], -1)
        assert change.add == NOTHING
        self.hear(NOTHING, change.drop)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), some=st.lists(sets, max_size=3))
    def change(self, data: st.DataObject, some: list[RangeSet]) -> None:
        dropped = self.drawn(data)
        change = self.table.change(RangeSets.of(dropped), RangeSets.of(some))
        assert list(change.parts) == self.count(dropped, -1) + self.count(some, 1)
        assert not change.add.overlaps(change.drop)
        self.hear(change.add, change.drop)
        self.held += some

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove_batch(self, data: st.DataObject) -> None:
        dropped = self.drawn(data)
        change = self.table.remove_batch(RangeSets.of(dropped))
        assert list(change.parts) == self.count(dropped, -1)
        self.hear(change.add, change.drop)

    @rule(some=st.lists(sets, min_size=1, max_size=3))
    def remove_what_is_not_there(self, some: list[RangeSet]) -> None:
        if (self.counts >= sum(mask(ranges).astype(int) for ranges in some)).all():
            return
        before = self.table.steps()
        with pytest.raises(RangeError, match="not entirely in the table"):
            self.table.remove_batch(RangeSets.of(some))
        assert all(map(np.array_equal, before, self.table.steps()))

    @rule(some=st.lists(sets, max_size=4))
    def ask(self, some: list[RangeSet]) -> None:
        needed = members(self.counts)
        batch = RangeSets.of(some)
        assert self.table.covers_batch(batch).tolist() == [needed.covers(ranges) for ranges in some]
        assert list(self.table.uncovered_batch(batch)) == [ranges - needed for ranges in some]
        for ranges in some:
            assert self.table.covers(ranges) == needed.covers(ranges)
            assert self.table.overlaps(ranges) == needed.overlaps(ranges)
            assert list(self.table.within(ranges)) == [r for r in needed if ranges.covers(RangeSet.of(r))]

    @invariant()
    def as_the_counter_says(self) -> None:
        if not hasattr(self, "table"):
            return
        self.table.check()
        assert self.table.count_batch(CURVE).tolist() == self.counts.tolist()
        assert self.table.match_batch(CURVE).tolist() == (self.counts > 0).tolist()
        needed = members(self.counts)
        assert self.table.needed() == needed
        assert self.table.told() == needed.closed(self.table.gap) == self.heard
        assert self.table.needless == self.heard.size - needed.size

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        change = self.table.remove_batch(RangeSets.of(self.held))
        self.hear(change.add, change.drop)
        assert self.heard == NOTHING
        assert (len(self.table), self.table.blocks) == (1, 1)


TestTable = TableMachine.TestCase
TestTable.settings = thorough(30)


@pytest.mark.parametrize("gap", [0, 1, 4])
def test_random_changes_of_a_larger_curve_as_a_bitmap_says(gap: int) -> None:
    draw = np.random.default_rng(gap)
    table = RangeTable(gap=gap, block_size=8)
    held: list[RangeSet] = []
    for _ in range(60):
        if held and draw.random() < 0.4:
            table.remove(held.pop(int(draw.integers(len(held)))))
        else:
            starts = draw.integers(0, 2000, 3)
            held.append(RangeSet.union_of(starts, starts + draw.integers(0, 40, 3)))
            table.insert(held[-1])
    table.check()
    wanted = BitMap64()
    for ranges in held:
        for start, end in ranges:
            wanted.add_range(start, end + 1)
    assert table.match_batch(np.arange(2100)).tolist() == [point in wanted for point in range(2100)]
    assert table.needed().size == len(wanted)
    assert table.told() == RangeSet.union_all(held).closed(gap)


def test_all_orders_of_small_ranges() -> None:
    """Every three ranges of four points in a row: put in, then taken back one by one."""
    small = [RangeSet.of((a, b)) for a, b in product(range(4), repeat=2) if a <= b]
    for some in product(small, repeat=3):
        table = RangeTable(gap=1, block_size=4)
        heard = NOTHING
        for ranges in some:
            heard |= table.insert(ranges).add
        assert heard == RangeSet.union_all(some).closed(1)
        for at, ranges in enumerate(some):
            heard -= table.remove(ranges).drop
            assert heard == RangeSet.union_all(some[at + 1 :]).closed(1) == table.told()


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_nested_ranges_are_needed_until_the_last_goes(order: tuple[int, ...]) -> None:
    table = RangeTable(block_size=4)
    nested = [RangeSet.of((10 - n, 20 + n)) for n in range(4)]
    table.insert_batch(RangeSets.of(nested))
    left = set(range(4))
    for n in order:
        table.remove(nested[n])
        left.discard(n)
        assert table.needed() == (nested[max(left)] if left else NOTHING)
        table.check()


def test_adjacent_ranges_are_one() -> None:
    table = RangeTable(block_size=4)
    table.insert_batch(RangeSets.of([RangeSet.of((n, n)) for n in range(100)]))
    assert table.needed() == RangeSet.of((0, 99))
    assert (len(table), table.blocks) == (2, 1)
    assert table.covers(RangeSet.of((0, 99)))
    assert not table.covers(RangeSet.of((0, 100)))


def test_the_whole_curve_and_its_ends() -> None:
    table = RangeTable(block_size=4)
    edges = RangeSet.of((0, 0), (LAST, LAST))
    assert table.insert(edges).add == edges
    assert table.insert(EVERYTHING).add == RangeSet.of((1, LAST - 1))
    assert table.insert(EVERYTHING).empty
    assert table.remove(EVERYTHING).empty
    assert table.matches(LAST)
    table.check()
    assert table.remove(edges).empty, "everything is needed still"
    assert table.remove(EVERYTHING).drop == EVERYTHING
    table.check()
    assert not table.matches(0)
    assert not table.matches(LAST)


def test_subsumption_is_covering_by_several() -> None:
    """MICS 3.7: neither covers [2, 7] alone."""
    table = RangeTable()
    table.insert_batch(RangeSets.of([RangeSet.of((0, 4)), RangeSet.of((5, 9))]))
    change = table.insert(RangeSet.of((2, 7)))
    assert change.empty
    assert change.covered.tolist() == [True]


def test_the_example_of_the_paper() -> None:
    """MICS 3.3: the augmented subscription, and its three publications."""
    table = RangeTable()
    table.insert(RangeSet.of((32, 35), (45, 46), (50, 55)))
    assert [table.matches(point) for point in (28, 52, 50)] == [False, True, True]


def test_a_moved_subscription_tells_only_the_difference() -> None:
    table = RangeTable()
    table.insert(RangeSet.of((10, 20)))
    moved = table.change(RangeSets.of([RangeSet.of((10, 20))]), RangeSets.of([RangeSet.of((12, 22))]))
    assert (moved.add, moved.drop) == (RangeSet.of((21, 22)), RangeSet.of((10, 11)))


def test_closed_gaps_are_counted() -> None:
    table = RangeTable(gap=3)
    table.insert(RangeSet.of((0, 9), (13, 19), (30, 39)))
    assert table.told() == RangeSet.of((0, 19), (30, 39))
    assert table.needless == 3
    assert table.remove(RangeSet.of((13, 19))).drop == RangeSet.of((10, 19))
    assert table.needless == 0


@pytest.mark.parametrize("size", [4, 192])
def test_memory_shrinks(size: int) -> None:
    table = RangeTable(block_size=size)
    small = table.nbytes
    starts = np.random.default_rng(0).permutation(20_000) * 7
    many = RangeSets(np.arange(20_001), starts, starts + 3)
    table.insert_batch(many)
    table.check()
    large = table.nbytes
    assert large > 20_000 * 24
    table.remove_batch(many.taken(np.arange(15_000)))
    table.check()
    assert table.nbytes < large / 2
    table.remove_batch(many.taken(np.arange(15_000, 20_000)))
    assert table.nbytes == small


@pytest.mark.parametrize("size", [5, 64, 192])
def test_many_ranges_narrow_and_wide_as_a_sum_of_differences_says(size: int) -> None:
    draw = np.random.default_rng(size)
    points = 1 << 15
    starts = draw.integers(0, points, 6000)
    widths = np.where(draw.random(6000) < 0.02, draw.integers(0, points, 6000), draw.integers(0, 4, 6000))
    many = RangeSets(np.arange(6001), starts, np.minimum(starts + widths, points - 1))
    table = RangeTable(block_size=size)
    table.insert_batch(many)
    left = np.arange(6000)
    for _ in range(4):
        table.check()
        changes = np.zeros(points + 1, np.int64)
        np.add.at(changes, many.starts[left], 1)
        np.add.at(changes, many.ends[left] + 1, -1)
        assert np.array_equal(table.count_batch(np.arange(points)), np.cumsum(changes)[:-1])
        gone = draw.random(left.size) < 0.6
        table.remove_batch(many.taken(left[gone]))
        left = left[~gone]


def test_arrays_of_any_kind_are_taken() -> None:
    """Read-only ones, as Arrow gives them, and those with strides or of another type are copied, not compiled for."""
    table = RangeTable()
    fixed = np.array([3, 9])
    fixed.flags.writeable = False
    table.insert_batch(RangeSets(np.array([0, 2]), fixed, fixed.astype(">i4")))

    compiled = len(getattr(kernel.count, "signatures", [()]))
    table.insert_batch(RangeSets(np.array([0, 1, 2]), np.arange(0, 40, 10)[::2], np.array([5, 25], np.uint64)))
    table.insert(RangeSet(fixed, fixed))
    assert len(getattr(kernel.count, "signatures", [()])) == compiled
    assert table.match_batch(np.arange(0, 60, 3)[::-1]).tolist() == [n in table.needed() for n in range(57, -1, -3)]


def test_a_failed_batch_is_undone() -> None:
    table = RangeTable(block_size=4)
    some = [RangeSet.of((10 * n, 10 * n + 3)) for n in range(20)]
    table.insert_batch(RangeSets.of(some))
    before = table.steps()
    with pytest.raises(RangeError, match=r"\[100, 103\]"):
        table.remove_batch(RangeSets.of([*some, some[10]]))
    with pytest.raises(RangeError, match="not entirely in the table"):
        table.change(RangeSets.of([EVERYTHING]), RangeSets.of(some))
    table.check()
    assert all(map(np.array_equal, before, table.steps()))


def test_the_same_changes_give_the_same_arrays() -> None:
    def build() -> RangeTable:
        table = RangeTable(block_size=4, gap=2)
        starts = np.random.default_rng(3).integers(0, 500, 200)
        sets = RangeSets(np.arange(201), starts, starts + 5)
        table.insert_batch(sets)
        table.remove_batch(sets.taken(np.arange(0, 200, 2)))
        return table

    for one, other in zip(build()._blocks, build()._blocks, strict=True):
        assert one.tobytes() == other.tobytes()


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(RangeError, match="gap"):
        RangeTable(gap=-1)
    with pytest.raises(RangeError, match="block"):
        RangeTable(block_size=3)
    with pytest.raises(RangeError, match="points"):
        RangeTable().matches(-1)


def test_nothing_is_covered_and_changes_nothing() -> None:
    table = RangeTable()
    assert table.covers(NOTHING)
    assert not table.overlaps(NOTHING)
    assert table.insert(NOTHING).empty
    assert table.remove(NOTHING).empty
    assert table.match_batch([]).tolist() == []
    assert table.insert_batch(RangeSets.of([])).empty
