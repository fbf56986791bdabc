"""The subscription index against the range sets themselves, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strategies import thorough
from weft.errors import RangeError
from weft.index.base import SubId
from weft.kernels.steps import LAST
from weft.routing.mics.subscription_index import SubscriptionIndex
from weft.space.range_set import EVERYTHING, NOTHING, RangeSet
from weft.space.range_sets import RangeSets

spans = st.tuples(st.integers(0, 31), st.sampled_from((0, 0, 1, 3, 9, 31)))
sets = st.lists(spans, max_size=3).map(lambda some: RangeSet.of(*((a, min(31, a + n)) for a, n in some)))
subs = st.integers(-3, 40).map(SubId)


class IndexMachine(RuleBasedStateMachine):
    @initialize(fan=st.integers(1, 3))
    def start(self, fan: int) -> None:
        self.index = SubscriptionIndex(fan=fan)
        self.held: dict[SubId, RangeSet] = {}

    @rule(sub=subs, ranges=sets)
    def add(self, sub: SubId, ranges: RangeSet) -> None:
        if sub in self.held:
            with pytest.raises(KeyError, match=str(sub)):
                self.index.add(sub, ranges)
        else:
            self.index.add(sub, ranges)
            self.held[sub] = ranges

    @rule(some=st.dictionaries(subs, sets, max_size=12))
    def add_batch(self, some: dict[SubId, RangeSet]) -> None:
        new = {sub: ranges for sub, ranges in some.items() if sub not in self.held}
        self.index.add_batch(np.array(list(new), np.int64), RangeSets.of(new.values()))
        self.held |= new

    @rule(some=st.lists(subs, max_size=10))
    def discard(self, some: list[SubId]) -> None:
        if len(some) == 1:
            self.index.discard(some[0])
        else:
            self.index.discard_batch(np.array(some, np.int64))
        for sub in some:
            self.held.pop(sub, None)

    @rule(some=st.lists(sets, max_size=3), points=st.lists(st.integers(0, 33), max_size=4))
    def ask(self, some: list[RangeSet], points: list[int]) -> None:
        known = sorted(self.held.items())
        batch = RangeSets.of(some)
        assert [sorted(ids.tolist()) for ids in self.index.at_batch(points)] == [
            [sub for sub, ranges in known if point in ranges] for point in points
        ]
        for found, related in (
            (self.index.covering_batch(batch), lambda held, asked: held.covers(asked)),
            (self.index.within_batch(batch), lambda held, asked: asked.covers(held)),
            (self.index.overlapping_batch(batch), lambda held, asked: held.overlaps(asked)),
        ):
            wanted = [[sub for sub, held in known if related(held, asked)] for asked in some]
            assert [sorted(ids.tolist()) for ids in found] == wanted

    @invariant()
    def holds_what_was_added(self) -> None:
        if hasattr(self, "index"):
            self.index.check()
            assert len(self.index) == len(self.held)
            for sub in map(SubId, range(-3, 41)):
                assert (sub in self.index) == (sub in self.held)
                assert self.index.ranges(sub) == self.held.get(sub, NOTHING)


TestIndex = IndexMachine.TestCase
TestIndex.settings = thorough(30)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 65, 700])
def test_sizes_around_the_groups(size: int) -> None:
    """One wide range first, so that every group must be asked about its highest end."""
    draw = np.random.default_rng(size)
    starts = np.append(0, draw.integers(0, 1000, size - 1))
    ends = np.append(LAST, starts[1:] + draw.integers(0, 30, size - 1))
    index = SubscriptionIndex()
    index.add_batch(np.arange(size), RangeSets(np.arange(size + 1), starts, ends))
    points = np.append(np.arange(0, 1100, 7), LAST)
    for point, found in zip(points, index.at_batch(points), strict=True):
        assert sorted(found.tolist()) == np.flatnonzero((starts <= point) & (point <= ends)).tolist()


def test_single_questions_and_the_ends_of_the_curve() -> None:
    index = SubscriptionIndex()
    index.add(SubId(1), RangeSet.of((0, 0), (LAST, LAST)))
    index.add(SubId(2), EVERYTHING)
    index.add(SubId(3), NOTHING)
    assert sorted(index.at(LAST)) == sorted(index.at(0)) == [1, 2]
    assert index.at(1).tolist() == [2]
    assert index.covering(EVERYTHING).tolist() == [2]
    assert sorted(index.within(EVERYTHING)) == sorted(index.covering(NOTHING)) == [1, 2, 3]
    assert index.within(NOTHING).tolist() == [3]
    assert sorted(index.overlapping(RangeSet.of((5, LAST)))) == [1, 2]
    assert index.overlapping(NOTHING).tolist() == []


def test_bad_batches_change_nothing() -> None:
    index = SubscriptionIndex()
    two = RangeSets.of([RangeSet.of((1, 2)), RangeSet.of((3, 4))])
    with pytest.raises(KeyError, match="duplicate id"):
        index.add_batch(np.array([1, 1]), two)
    with pytest.raises(RangeError, match="1 subscriptions do not fit 2 sets"):
        index.add_batch(np.array([1]), two)
    index.add(SubId(2), NOTHING)
    with pytest.raises(KeyError, match="2 already exists"):
        index.add_batch(np.array([1, 2]), two)
    assert len(index) == 1
    assert SubId(1) not in index
