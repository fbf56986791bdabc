"""Subscriptions by their ranges, in immutable arrays. Every answer agrees with the range sets themselves.

Answers are pairs, as two arrays: the number of the query, and the row of a live subscription, in no order, each once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.kernels.stabbing import peaks_of, reaching
from weft.space.range_set import Points
from weft.space.range_sets import RangeSets

RowPairs = tuple[Points, Points]


class RangeLayer:
    """Subscriptions with sorted ids. Only which of them are live can change."""

    def __init__(self, ids: Points, sets: RangeSets) -> None:
        order = np.argsort(ids, kind="stable")
        self.ids = ids[order]
        self.sets = sets.taken(order)
        self.live = np.ones(ids.size, np.bool_)
        self.alive = ids.size  # number of live subscriptions
        self._lengths = np.diff(self.sets.offsets)
        order = np.argsort(self.sets.starts, kind="stable")
        self._owners = np.repeat(np.arange(ids.size), self._lengths)[order]
        self._starts, self._ends = self.sets.starts[order], self.sets.ends[order]
        self._peaks, self._bases = peaks_of(self._ends)

    def rows(self, ids: Points) -> Points:
        """The row of each id, or -1 if it is missing or not live."""
        if not self.ids.size:
            return np.full(ids.size, -1)
        place = np.minimum(np.searchsorted(self.ids, ids), self.ids.size - 1)
        return np.where((self.ids[place] == ids) & self.live[place], place, -1)

    def discard(self, ids: Points) -> None:
        """Mark those of these subscriptions that are here as no longer live."""
        rows = self.rows(ids)
        rows = np.unique(rows[rows >= 0])
        self.live[rows] = False
        self.alive -= rows.size

    def at(self, points: Points) -> RowPairs:
        """The subscriptions that contain each point."""
        asked, places = self._reaching(points, points)
        return self._live(asked, self._owners[places])

    def overlapping(self, sets: RangeSets) -> RowPairs:
        """The subscriptions that share a point with each set."""
        ranges, places = self._reaching(sets.ends, sets.starts)
        asked, rows, _ = self._counted(sets, ranges, places)
        return self._live(asked, rows)

    def covering(self, sets: RangeSets) -> RowPairs:
        """The subscriptions that contain each set: each of its ranges lies in one of theirs."""
        ranges, places = self._reaching(sets.starts, sets.ends)
        asked, rows, counts = self._counted(sets, ranges, places)
        lengths = np.diff(sets.offsets)
        whole = counts == lengths[asked]
        free = np.flatnonzero(lengths == 0)  # the empty set is covered by all
        every = np.arange(self.ids.size)
        return self._live(
            np.append(asked[whole], np.repeat(free, every.size)), np.append(rows[whole], np.tile(every, free.size))
        )

    def within(self, sets: RangeSets) -> RowPairs:
        """The subscriptions that lie within each set: each of their ranges lies in one of its ranges."""
        ranges, places = self._reaching(sets.ends, sets.starts)
        inside = (self._starts[places] >= sets.starts[ranges]) & (self._ends[places] <= sets.ends[ranges])
        asked, rows, counts = self._counted(sets, ranges[inside], places[inside])
        whole = counts == self._lengths[rows]
        free = np.flatnonzero(self._lengths == 0)  # an empty subscription is within all
        every = np.arange(len(sets))
        return self._live(
            np.append(asked[whole], np.repeat(every, free.size)), np.append(rows[whole], np.tile(free, every.size))
        )

    def _reaching(self, lows: Points, highs: Points) -> RowPairs:
        """The numbers of the queries and the positions of the ranges found; see `kernels.stabbing.reaching`."""
        offsets = np.zeros(lows.size + 1, np.int64)
        room = np.empty(4 * lows.size + 64, np.int64)
        found: NDArray[np.int64] = reaching(
            self._starts, self._ends, self._peaks, self._bases, lows, highs, room, offsets
        )
        return np.repeat(np.arange(lows.size), np.diff(offsets)), found[: offsets[-1]]

    def _counted(self, sets: RangeSets, ranges: Points, places: Points) -> tuple[Points, Points, Points]:
        """Pairs of a set and a row, each once, and how often they meet."""
        asked = np.searchsorted(sets.offsets, ranges, "right") - 1
        pairs, counts = np.unique(asked * self.ids.size + self._owners[places], return_counts=True)
        return *np.divmod(pairs, max(1, self.ids.size)), counts

    def _live(self, asked: Points, rows: Points) -> RowPairs:
        live = self.live[rows]
        return asked[live], rows[live]
