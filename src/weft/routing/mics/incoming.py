"""The ranges that one link told, for looking up events. The points of an event that it wants lie in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.kernels.arrays import Ints
from weft.routing.mics.items import CurveRange
from weft.routing.mics.structure import RangeTable
from weft.routing.table import Item
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets


class RangesHeard:
    """A range table for each curve."""

    def __init__(self, groups: int) -> None:
        self.tables = [RangeTable() for _ in range(groups)]

    def change(self, drop: Iterable[Item], add: Iterable[Item]) -> None:
        """Remove and add ranges. Cost: O(log n) each."""
        old, new = [*drop], [*add]
        for group, table in enumerate(self.tables):
            gone, came = _of_group(old, group), _of_group(new, group)
            if gone or came:
                table.change(_sets(gone), _sets(came))

    def matches(self, points: Ints) -> bool:
        """Whether the link wants an event with these points, one on each curve. Cost: O(log n) per curve."""
        return all(table.matches(point) for table, point in zip(self.tables, points.tolist(), strict=True))

    def match_batch(self, points: Ints) -> NDArray[np.bool_]:
        """Whether it wants each event, with one row of points each."""
        wanted = np.ones(len(points), bool)
        for table, column in zip(self.tables, points.T, strict=True):
            wanted &= table.match_batch(column)
        return wanted

    def check(self, items: Iterable[Item]) -> None:
        """Raise AssertionError unless it has exactly these items."""
        several = [*items]
        for group, table in enumerate(self.tables):
            table.check()
            sets = _sets(_of_group(several, group))
            assert table.needed() == RangeSet.union_of(sets.starts, sets.ends), "another range than was heard"


def _of_group(items: Iterable[Item], group: int) -> list[CurveRange]:
    return [item for item in items if isinstance(item, CurveRange) and item.group == group]


def _sets(ranges: Sequence[CurveRange]) -> RangeSets:
    """One set per range."""
    return RangeSets.of_ranges([each.start for each in ranges], [each.end for each in ranges])
