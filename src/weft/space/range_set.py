"""Sets of curve points as sorted ranges. Operations are exact, and each set has a single form.

Ranges are sorted, disjoint and never adjacent, with both ends included (MICS 3.3), so every contiguous part of a set
lies in one range. A contiguous part is therefore covered by a set if and only if it lies within one of its ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import RangeError
from weft.kernels.curves import close_gaps
from weft.kernels.steps import LAST

Points = NDArray[np.int64]


def as_points(values: ArrayLike) -> Points:
    """Curve points as int64, without loss. Raises RangeError for anything else."""
    array: NDArray[Any] = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise RangeError("curve points are not a flat array of integers; give starts and ends as int64")
    if array.size and (array.min() < 0 or array.max() > LAST):
        raise RangeError(f"a curve point is out of bounds; give points from 0 to {LAST}")
    return array.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class RangeSet:
    """A set of curve points: range i is starts[i] to ends[i], both included.

    >>> wide = RangeSet.of((32, 35), (45, 46), (50, 55))
    >>> 52 in wide, 40 in wide, wide.size
    (True, False, 12)
    >>> wide - RangeSet.of((34, 51))
    RangeSet.of((32, 33), (52, 55))
    """

    starts: Points
    ends: Points

    def __post_init__(self) -> None:
        starts, ends = as_points(self.starts), as_points(self.ends)
        if starts.size != ends.size:
            raise RangeError(f"{starts.size} starts do not fit {ends.size} ends; give one end for each start")
        if (starts > ends).any() or (starts[1:] - 1 <= ends[:-1]).any():
            raise RangeError("ranges are not sorted with gaps between them; RangeSet.union_of accepts any ranges")
        object.__setattr__(self, "starts", _sealed(starts))
        object.__setattr__(self, "ends", _sealed(ends))

    @staticmethod
    def of(*ranges: tuple[int, int]) -> RangeSet:
        """The union of ranges in any order."""
        return RangeSet.union_of([start for start, _ in ranges], [end for _, end in ranges])

    @staticmethod
    def union_of(starts: ArrayLike, ends: ArrayLike, gap: int = 0) -> RangeSet:
        """The union of any ranges, with gaps of up to `gap` points between them closed. Cost: O(n log n)."""
        begin, end = as_points(starts), as_points(ends)
        if begin.size != end.size or (begin > end).any():
            raise RangeError("a range has no end, or ends before it starts; give each start an end at or after it")
        if begin.size == 0:
            return NOTHING
        if begin.size == 1:
            return _proven(begin.copy(), end.copy())
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        apart = np.flatnonzero(begin[1:] - 1 - end[:-1] > gap)
        return _proven(begin[np.append(0, apart + 1)], end[np.append(apart, end.size - 1)])

    @staticmethod
    def union_all(sets: Iterable[RangeSet]) -> RangeSet:
        """The union of many sets."""
        some = list(sets)
        if not some:
            return NOTHING
        return RangeSet.union_of(np.concatenate([s.starts for s in some]), np.concatenate([s.ends for s in some]))

    @property
    def size(self) -> int:
        """The number of points."""
        return int((self.ends - self.starts).astype(np.uint64).sum()) + len(self)

    def closed(self, gap: int) -> RangeSet:
        """The set with gaps of up to `gap` points closed: imperfect merging (MICS 3.6)."""
        return RangeSet.union_of(self.starts, self.ends, gap)

    def capped(self, most: int) -> RangeSet:
        """The set in at most `most` ranges: the smallest gaps are closed first, the last of equal ones first (MICS
        3.6).

        >>> RangeSet.of((0, 2), (4, 5), (9, 9)).capped(2)
        RangeSet.of((0, 5), (9, 9))
        """
        if len(self) <= most:
            return self
        starts, ends = self.starts.copy(), self.ends.copy()
        left = close_gaps(starts, ends, len(starts), most)
        return RangeSet(starts[:left], ends[:left])

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each point is in the set. Cost: O(log n) per point."""
        asked = as_points(points)
        place = np.searchsorted(self.starts, asked, "right") - 1
        if not len(self):
            return np.zeros(asked.size, np.bool_)
        return (place >= 0) & (asked <= self.ends[place])

    def covers(self, other: RangeSet) -> bool:
        """Whether all of the other set is in this one. Cost: O(m log n)."""
        if not len(self):
            return not len(other)
        place = np.searchsorted(self.starts, other.starts, "right") - 1
        return bool(((place >= 0) & (other.ends <= self.ends[place])).all())

    def overlaps(self, other: RangeSet) -> bool:
        """Whether the sets share a point. Cost: O(m log n)."""
        first, last = self._meeting(other)
        return bool((last > first).any())

    def complement(self) -> RangeSet:
        """All other points up to LAST."""
        starts, ends = np.append(0, self.ends), np.append(self.starts, LAST)
        starts[1:] += self.ends < LAST
        ends[:-1] -= 1
        real = starts <= ends
        if len(self) and self.ends[-1] == LAST:
            real[-1] = False
        return RangeSet(starts[real], ends[real])

    def _meeting(self, other: RangeSet) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each range of the other set, the first of ours that it meets, and the one after the last."""
        return np.searchsorted(self.ends, other.starts), np.searchsorted(self.starts, other.ends, "right")

    def __or__(self, other: RangeSet) -> RangeSet:
        return RangeSet.union_all((self, other))

    def __and__(self, other: RangeSet) -> RangeSet:
        first, last = self._meeting(other)
        theirs = np.repeat(np.arange(len(other)), last - first)
        mine = np.arange(theirs.size) + np.repeat(
            first - np.append(0, np.cumsum(last - first)[:-1])[: first.size], last - first
        )
        return RangeSet(
            np.maximum(self.starts[mine], other.starts[theirs]), np.minimum(self.ends[mine], other.ends[theirs])
        )

    def __sub__(self, other: RangeSet) -> RangeSet:
        return self & other.complement()

    def __contains__(self, point: int) -> bool:
        return 0 <= point <= LAST and bool(self.contains([point])[0])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __repr__(self) -> str:
        return f"RangeSet.of({', '.join(map(str, self))})"


def _proven(starts: Points, ends: Points) -> RangeSet:
    """A set of ranges that are known to be sorted, with gaps between them."""
    made = object.__new__(RangeSet)
    object.__setattr__(made, "starts", _sealed(starts))
    object.__setattr__(made, "ends", _sealed(ends))
    return made


def _sealed(array: Points) -> Points:
    """The array as a read-only view. The caller's array stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


NOTHING = RangeSet(np.zeros(0, np.int64), np.zeros(0, np.int64))
EVERYTHING = RangeSet(np.array([0]), np.array([LAST]))
