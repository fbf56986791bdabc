"""The range table of MICS: how many subscriptions need each point of the curve. What is told always equals what is
needed with gaps closed, as if computed from scratch. Removing is inserting run backwards.

It holds counts, not who needs a point: one table per neighbour, without what came from it (errata, MICS 3 and 4). On
the curve, covering by the union of all is subsumption, so one walk answers both (MICS 3.7). Ranges are examined one by
one, so both are also partial, and so is merging: covered parts are not told, and adjacent parts unite, whichever
subscription they came with. Algorithm 1 forwards the merged range; we tell only the new parts (errata, MICS 1 and 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import RangeError
from weft.kernels import steps
from weft.kernels.steps import LAST
from weft.routing.mics.kernels import ranges as kernel
from weft.space.range_set import NOTHING, Points, RangeSet
from weft.space.range_sets import RangeSets, for_kernels

_SLOTS = 8  # of an empty table


@dataclass(frozen=True, slots=True)
class RangeChange:
    """The effect of a change of the table.

    `parts` has one set per subscription of the change, in order: what is newly needed with it, or no longer needed
    without it. `drop` and `add` are what a neighbour must be told in total.
    """

    parts: RangeSets
    drop: RangeSet
    add: RangeSet

    @property
    def covered(self) -> NDArray[np.bool_]:
        """For each subscription, whether others need (or still need) all of it, so that there is nothing to forward."""
        return np.equal(self.parts.offsets[1:], self.parts.offsets[:-1])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not len(self.drop) and not len(self.add)


class RangeTable:
    """Reference counts of curve points, as steps in sorted blocks of `block_size`.

    Gaps of up to `gap` points between needed ranges are told as well: imperfect merging (MICS 3.6), which saves ranges
    at the cost of points that no subscription needs (`needless`).

    >>> table = RangeTable()
    >>> table.insert(RangeSet.of((10, 19))).add
    RangeSet.of((10, 19))
    >>> table.insert(RangeSet.of((15, 24))).add
    RangeSet.of((20, 24))
    >>> table.remove(RangeSet.of((10, 19))).drop
    RangeSet.of((10, 14))
    """

    def __init__(self, *, gap: int = 0, block_size: int = 192) -> None:
        if not 0 <= gap <= LAST:
            raise RangeError(f"the gap is {gap}; give a number of points from 0 to {LAST}")
        if not 4 <= block_size <= 1 << 16:
            raise RangeError(f"the block size is {block_size}; give 4 to 65536 steps")
        self.gap = gap
        self._blocks = steps.empty(block_size, _SLOTS)
        self._needed = 0
        self._told = 0

    # -- changes -----------------------------------------------------------------------------------

    def insert(self, ranges: RangeSet) -> RangeChange:
        """Add a subscription. Cost: O(log n + k) per range, where k is the number of steps that it meets."""
        return self.insert_batch(RangeSets.of([ranges]))

    def remove(self, ranges: RangeSet) -> RangeChange:
        """Remove a subscription that was added. Cost: as `insert`.

        Raises RangeError, and changes nothing, if some point of it has no count. The caller must know that exactly this
        set was added.
        """
        return self.remove_batch(RangeSets.of([ranges]))

    def insert_batch(self, sets: RangeSets) -> RangeChange:
        """Add subscriptions one after another."""
        parts, told, marks, _ = self._run(1, sets.starts, sets.ends)
        added = RangeSet.union_of(told[:, 0], told[:, 1])
        self._needed += _points(parts)
        self._told += added.size
        return RangeChange(_by_set(parts, marks[sets.offsets]), NOTHING, added)

    def remove_batch(self, sets: RangeSets) -> RangeChange:
        """Remove subscriptions one after another, all or none: see `remove`."""
        parts, told, marks, done = self._run(-1, sets.starts, sets.ends)
        if done < sets.starts.size:
            self._run(1, sets.starts[:done], sets.ends[:done])
            raise RangeError(
                f"[{sets.starts[done]}, {sets.ends[done]}] is not entirely in the table; "
                "remove only what was inserted, and only once"
            )
        dropped = RangeSet.union_of(told[:, 0], told[:, 1])
        self._needed -= _points(parts)
        self._told -= dropped.size
        return RangeChange(_by_set(parts, marks[sets.offsets]), dropped, NOTHING)

    def change(self, drop: RangeSets, add: RangeSets) -> RangeChange:
        """Remove and add as one change, all or none. What is removed must be in the table before the change.

        `parts` has the removed sets, then the added ones. What a neighbour must be told is the difference between
        before and after, so a subscription that moves a little causes little to be told.
        """
        if not len(drop):
            return self.insert_batch(add)
        lost = self.remove_batch(drop)
        if not len(add):
            return lost
        gained = self.insert_batch(add)
        parts = RangeSets.chained([lost.parts, gained.parts])
        return RangeChange(parts, lost.drop - gained.add, gained.add - lost.drop)

    def _run(
        self, change: int, starts: Points, ends: Points
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Points, int]:
        """Add (1) or remove (-1) ranges, allocating slots as needed; returns the parts, what is told, the ends of the
        parts of each range, and how many ranges are done.
        """
        parts, told = np.empty((64, 2), np.int64), np.empty((64, 2), np.int64)
        marks = np.zeros(starts.size + 1, np.int64)
        done, found, said = 0, 0, 0
        while done < starts.size:
            if self._blocks.head[steps.FREE] < kernel.ROOM:
                self._blocks = steps.resized(self._blocks, self._blocks.order.size * 3 // 2)
            done, parts, found, told, said = kernel.count(
                self._blocks, starts, ends, done, change, self.gap, parts, found, told, said, marks
            )
            if done < 0:
                done = -1 - done
                break
        if self._blocks.order.size > max(_SLOTS, 2 * self.blocks):
            self._blocks = steps.resized(self._blocks, max(_SLOTS, self.blocks * 3 // 2))
        parts = parts[:found]
        return parts, told[:said] if self.gap else parts, marks, done

    # -- queries -----------------------------------------------------------------------------------

    def covers(self, ranges: RangeSet) -> bool:
        """Whether all of it is already needed, by one subscription or by several. Cost: O(log n + k) per range."""
        return bool(self.covers_batch(RangeSets.of([ranges]))[0])

    def covers_batch(self, sets: RangeSets) -> NDArray[np.bool_]:
        """Whether all of each set is already needed."""
        out = np.zeros(len(sets), np.bool_)
        kernel.covers(self._blocks, sets.offsets, sets.starts, sets.ends, out)
        return out

    def uncovered(self, ranges: RangeSet) -> RangeSet:
        """What no subscription needs of it: what partial covering leaves to forward. Cost: O(log n + k) per range."""
        return self.uncovered_batch(RangeSets.of([ranges]))[0]

    def uncovered_batch(self, sets: RangeSets) -> RangeSets:
        """What no subscription needs of each set. The table is not changed."""
        marks = np.zeros(sets.starts.size + 1, np.int64)
        parts, found = kernel.uncovered(self._blocks, sets.starts, sets.ends, np.empty((64, 2), np.int64), marks)
        return _by_set(parts[:found], marks[sets.offsets])

    def overlaps(self, ranges: RangeSet) -> bool:
        """Whether a subscription needs a point of it."""
        return self.uncovered(ranges) != ranges

    def within(self, ranges: RangeSet) -> RangeSet:
        """The needed ranges that lie within the given ones: what they would cover (MICS 4.2, step 2)."""
        held = ranges - self.uncovered(ranges)
        open_low = held.starts > 0
        open_low[open_low] = self.match_batch(held.starts[open_low] - 1)
        open_high = held.ends < LAST
        open_high[open_high] = self.match_batch(held.ends[open_high] + 1)
        whole = ~(open_low | open_high)
        return RangeSet(held.starts[whole], held.ends[whole])

    def matches(self, point: int) -> bool:
        """Whether a subscription needs a point. Cost: O(log n), one look-up (MICS 4.3)."""
        return bool(self.match_batch([point])[0])

    def match_batch(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether a subscription needs each point."""
        return self.count_batch(points) > 0

    def count_batch(self, points: ArrayLike) -> Points:
        """How many subscriptions need each point."""
        asked = for_kernels(points)
        out = np.zeros(asked.size, np.int64)
        kernel.needs(self._blocks, asked, out)
        return out

    # -- contents ----------------------------------------------------------------------------------

    def steps(self) -> tuple[Points, Points]:
        """The points where counts change, from point 0 on, and the counts from there on. Cost: O(n)."""
        keys, counts = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        steps.write(self._blocks, keys, counts)
        return keys, counts

    def needed(self) -> RangeSet:
        """Everything that is needed: the perfect merger of all subscriptions. Cost: O(n)."""
        keys, counts = self.steps()
        ends = np.append(keys[1:] - 1, LAST)
        return RangeSet.union_of(keys[counts > 0], ends[counts > 0])

    def told(self) -> RangeSet:
        """Everything that a neighbour must know: what is needed, with gaps closed. Cost: O(n)."""
        return self.needed().closed(self.gap)

    @property
    def needless(self) -> int:
        """How many points are told that no subscription needs: the false positives that imperfect merging allows."""
        return self._told - self._needed

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return int(self._blocks.head[steps.USED])

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return sum(array.nbytes for array in self._blocks)

    def __len__(self) -> int:
        """The number of steps."""
        return int(self._blocks.head[steps.STEPS])

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        t = self._blocks
        used, number, free, size = t.head.tolist()
        slots = t.order[:used]
        assert sorted([*slots.tolist(), *t.free[:free].tolist()]) == list(range(t.order.size)), "a slot is lost"
        assert t.sizes[slots].min() >= 1, "an empty block"
        assert t.sizes[slots].max() <= size, "a block past its size"
        assert t.sizes[slots].sum() == number, "steps are miscounted"
        keys, counts = self.steps()
        begins = np.append(0, np.cumsum(t.sizes[slots])[:-1])
        assert keys[0] == 0, "the first step does not begin at 0"
        assert (keys[1:] > keys[:-1]).all(), "keys are not in order"
        assert np.array_equal(t.firsts[:used], keys[begins]), "the directory is wrong"
        assert (counts >= 0).all(), "a count below 0"
        assert (counts[1:] != counts[:-1]).all(), "neighbouring steps are alike"
        assert np.array_equal(t.lowest[slots], np.minimum.reduceat(counts, begins)), "a lowest count is wrong"
        assert self._needed == self.needed().size, "needed points are miscounted"
        assert self._told == self.told().size, "told points are miscounted"


def _points(parts: NDArray[np.int64]) -> int:
    """The number of points in disjoint parts."""
    return int((parts[:, 1] - parts[:, 0]).astype(np.uint64).sum()) + len(parts)


def _by_set(parts: NDArray[np.int64], offsets: Points) -> RangeSets:
    return RangeSets(offsets, parts[:, 0], parts[:, 1])
