"""Many range sets in three arrays, one set per subscription. Row i is the ranges offsets[i] to offsets[i + 1]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import RangeError
from weft.space.range_set import Points, RangeSet, as_points


def for_kernels(values: ArrayLike) -> Points:
    """Curve points as an array of the type that kernels are compiled for: writable and contiguous."""
    return np.require(as_points(values), requirements=["C", "W"])


@dataclass(frozen=True, slots=True, eq=False)
class RangeSets:
    """Range sets in CSR form, each validated like a `RangeSet`.

    >>> some = RangeSets.of([RangeSet.of((1, 3), (7, 7)), RangeSet.of(), RangeSet.of((2, 9))])
    >>> len(some), some[0], some.offsets.tolist()
    (3, RangeSet.of((1, 3), (7, 7)), [0, 2, 2, 3])
    """

    offsets: Points
    starts: Points
    ends: Points

    def __post_init__(self) -> None:
        for name in ("offsets", "starts", "ends"):
            object.__setattr__(self, name, for_kernels(getattr(self, name)))
        offsets, starts, ends = self.offsets, self.starts, self.ends
        if starts.size != ends.size:
            raise RangeError(f"{starts.size} starts do not fit {ends.size} ends; give one end for each start")
        if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != starts.size or (np.diff(offsets) < 0).any():
            raise RangeError("offsets do not ascend from 0 to the number of ranges; give one more than there are sets")
        touching = starts[1:] - 1 <= ends[:-1]
        inner = offsets[(offsets > 0) & (offsets < starts.size)]
        touching[inner - 1] = False  # the last range of a set and the first of the next are independent
        if (starts > ends).any() or touching.any():
            raise RangeError(
                "the ranges of a set are not sorted with gaps between them; unite them with RangeSet.union_of"
            )

    @staticmethod
    def of(sets: Iterable[RangeSet]) -> RangeSets:
        """These sets, in this order."""
        some = list(sets)
        none = np.zeros(0, np.int64)
        return RangeSets(
            np.cumsum([0, *map(len, some)]),
            np.concatenate([none, *(s.starts for s in some)]),
            np.concatenate([none, *(s.ends for s in some)]),
        )

    @staticmethod
    def of_ranges(starts: ArrayLike, ends: ArrayLike) -> RangeSets:
        """One set for each range, in this order.

        >>> list(RangeSets.of_ranges([5, 1], [7, 6]))
        [RangeSet.of((5, 7)), RangeSet.of((1, 6))]
        """
        begin = as_points(starts)
        return RangeSets(np.arange(begin.size + 1), begin, as_points(ends))

    @staticmethod
    def chained(batches: Iterable[RangeSets]) -> RangeSets:
        """The sets of several batches, one batch after another."""
        some = list(batches)
        none = np.zeros(0, np.int64)
        return RangeSets(
            np.cumsum(np.concatenate([[0], *(np.diff(batch.offsets) for batch in some)])),
            np.concatenate([none, *(batch.starts for batch in some)]),
            np.concatenate([none, *(batch.ends for batch in some)]),
        )

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: int) -> RangeSet:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is out of range; there are {len(self)} sets")
        part = slice(self.offsets[row], self.offsets[row + 1])
        return RangeSet(self.starts[part], self.ends[part])

    def __iter__(self) -> Iterator[RangeSet]:
        return (self[row] for row in range(len(self)))

    def union(self) -> RangeSet:
        """The union of all sets."""
        return RangeSet.union_of(self.starts, self.ends)

    def taken(self, rows: Points) -> RangeSets:
        """The sets of these rows, in this order."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.append(0, np.cumsum(lengths))
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return RangeSets(offsets, self.starts[places], self.ends[places])
