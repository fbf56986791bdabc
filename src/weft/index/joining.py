"""The choice of segments that are joined, and when. What is joined during a change is small, so that no change takes
long. What is joined in the background leaves few segments, little that is dead, and rarely rebuilds the largest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from weft.index.version import SegmentView

_AXIS = 8  # rows that take as long to join as an axis
_MOST_AXES = 96  # of all segments that are joined during a change: each takes some array operations


def joining_cost(views: Sequence[SegmentView]) -> int:
    """What joining these takes, in searches of one event in one segment: a filter may have many rows, and axes of its
    own.
    """
    segments = [view.segment.rows for view in views]
    return sum([len(rows) + _AXIS * len(rows.axes) for rows in segments])


class Joining(NamedTuple):
    """When segments are joined: `fan` of like size; during a change up to `small` rows together; the largest when
    `large` have gathered beside it, or an eighth of it; `tail` is how many may be dead besides.
    """

    tail: int = 128
    fan: int = 8
    large: int = 20_000
    small: int = 512

    def on_the_way(self, views: Sequence[SegmentView], busy: Collection[int]) -> list[SegmentView]:
        """The views to join during a change; none, if there are none that small. `busy` ones are left alone."""
        alike = self._alike([view for view in views if id(view.segment) not in busy])
        return alike if self.is_small(alike) else []

    def is_small(self, views: Sequence[SegmentView]) -> bool:
        """Whether joining these is quick enough to be done during a change."""
        rows, axes = sum(len(view.segment.rows) for view in views), sum(len(v.segment.rows.axes) for v in views)
        return rows <= min(self.small, self.large) and axes <= _MOST_AXES

    def in_background(self, views: Sequence[SegmentView]) -> tuple[SegmentView, ...]:
        """The views to join in the background; none, if all is well."""
        living, total = sum(view.size for view in views), sum(len(view.alive) for view in views)
        most = max((len(view.alive) for view in views), default=0)
        stale = total > 2 * living + self.tail
        gathered = total - most > max(self.large, most // 8)
        if stale or gathered:
            return tuple(views)
        if len(views) <= self.fan:
            return ()
        if alike := self._alike(views):
            return tuple(alike)
        smaller = tuple(view for view in views if len(view.alive) < most)  # the largest can rest
        return smaller if len(smaller) > 1 else tuple(views)

    def _alike(self, views: Sequence[SegmentView]) -> list[SegmentView]:
        """The smallest views, if there are `fan` of like size; else none."""
        least = min((len(view.alive) for view in views), default=0)
        alike = [view for view in views if len(view.alive) <= self.fan * max(1, least)]
        return alike if len(alike) >= self.fan else []
