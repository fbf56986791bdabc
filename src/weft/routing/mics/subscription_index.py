"""Subscriptions found by their ranges on a curve.

Subscriptions by their ranges, in immutable arrays. Every answer agrees with the range sets themselves.

Answers are pairs, as two arrays: the number of the query, and the row of a live subscription, in no order, each once.

Candidates from the curve (MICS 5, subscription indexing). Everything that the exact check would find is a candidate.

The cells of a subscription contain all its points, and those of a covered subscription lie among those of the covering
one. What the cells rule out is therefore excluded, and the caller checks the rest exactly. In terms of cells, every
answer is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import DuplicateIdError, RangeError
from weft.index.base import Ids, Matches, SubId
from weft.routing.mics.kernels.stabbing import peaks_of, reaching
from weft.space.range_set import NOTHING, Points, RangeSet
from weft.space.range_sets import RangeSets, for_kernels

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


class SubscriptionIndex:
    """Subscriptions by their ranges on the curve. Answers are ids in no order, each once.

    Layers grow by a factor of at least `fan`, so a subscription is sorted again O(log n) times.

    >>> index = SubscriptionIndex()
    >>> index.add(SubId(7), RangeSet.of((10, 30)))
    >>> index.add(SubId(8), RangeSet.of((20, 40), (50, 55)))
    >>> sorted(index.at(25).tolist()), index.covering(RangeSet.of((21, 22), (52, 53))).tolist()
    ([7, 8], [8])
    """

    def __init__(self, *, fan: int = 4) -> None:
        self._fan = fan
        self._layers: list[RangeLayer] = []

    # -- changes -----------------------------------------------------------------------------------

    def add(self, sub: SubId, ranges: RangeSet) -> None:
        """Add a subscription. Raises DuplicateIdError if its id already exists. Amortised cost: O(log n) sorts of its
        ranges.
        """
        self.add_batch(np.array([sub], np.int64), RangeSets.of([ranges]))

    def add_batch(self, subs: Ids, sets: RangeSets) -> None:
        """Add many subscriptions, all or none."""
        ids = np.asarray(subs, np.int64)
        if ids.size != len(sets):
            raise RangeError(f"{ids.size} subscriptions do not fit {len(sets)} sets; give one set for each")
        if np.unique(ids).size != ids.size:
            raise DuplicateIdError("duplicate id in one call; add each subscription once")
        for layer in self._layers:
            known = ids[layer.rows(ids) >= 0]
            if known.size:
                raise DuplicateIdError(f"subscription {known[0]} already exists; discard it first", known[0])
        if ids.size:
            self._layers.append(RangeLayer(ids, sets))
            self._settle()

    def discard(self, sub: SubId) -> None:
        """Remove a subscription, if it exists."""
        self.discard_batch(np.array([sub], np.int64))

    def discard_batch(self, subs: Ids) -> None:
        """Remove those of the subscriptions that exist."""
        ids = np.asarray(subs, np.int64)
        for layer in self._layers:
            layer.discard(ids)
        self._settle()

    def _settle(self) -> None:
        """Rebuild layers of which half are dead, and combine layers of similar size."""
        kept: list[RangeLayer] = []
        for layer in self._layers:
            if layer.alive:
                kept.append(layer if 2 * layer.alive >= layer.ids.size else _joined([layer]))
            while len(kept) > 1 and self._fan * kept[-1].ids.size > kept[-2].ids.size:
                kept[-2:] = [_joined(kept[-2:])]
        self._layers = kept

    # -- queries -----------------------------------------------------------------------------------

    def at(self, point: int) -> Ids:
        """The subscriptions that may match an event at this point. Cost: O(log n + k log n) for k answers."""
        return self.at_batch([point])[0]

    def covering(self, ranges: RangeSet) -> Ids:
        """The subscriptions that may cover one with these ranges: they contain all of them."""
        return self.covering_batch(RangeSets.of([ranges]))[0]

    def within(self, ranges: RangeSet) -> Ids:
        """The subscriptions that one with these ranges may cover: all of theirs are among them."""
        return self.within_batch(RangeSets.of([ranges]))[0]

    def overlapping(self, ranges: RangeSet) -> Ids:
        """The subscriptions that may overlap, merge with, or help to subsume one with these ranges."""
        return self.overlapping_batch(RangeSets.of([ranges]))[0]

    def at_batch(self, points: ArrayLike) -> Matches:
        """The subscriptions that may match at each point."""
        asked = for_kernels(points)
        return self._gathered(asked.size, lambda layer: layer.at(asked))

    def covering_batch(self, sets: RangeSets) -> Matches:
        """The subscriptions that may cover each set."""
        return self._gathered(len(sets), lambda layer: layer.covering(sets))

    def within_batch(self, sets: RangeSets) -> Matches:
        """The subscriptions that each set may cover."""
        return self._gathered(len(sets), lambda layer: layer.within(sets))

    def overlapping_batch(self, sets: RangeSets) -> Matches:
        """The subscriptions that may overlap each set."""
        return self._gathered(len(sets), lambda layer: layer.overlapping(sets))

    def _gathered(self, size: int, ask: Callable[[RangeLayer], RowPairs]) -> Matches:
        """The answers of all layers, by query."""
        found = [(asked, layer.ids[rows]) for layer in self._layers for asked, rows in (ask(layer),)]
        none = np.zeros(0, np.int64)
        questions = np.concatenate([none, *(asked for asked, _ in found)])
        ids = np.concatenate([none, *(some for _, some in found)])
        offsets = np.append(0, np.cumsum(np.bincount(questions, minlength=size)))
        return Matches(offsets, ids[np.argsort(questions, kind="stable")])

    # -- contents ----------------------------------------------------------------------------------

    def ranges(self, sub: SubId) -> RangeSet:
        """The ranges of a subscription; empty if it does not exist."""
        for layer in self._layers:
            row = int(layer.rows(np.array([sub], np.int64))[0])
            if row >= 0:
                return layer.sets[row]
        return NOTHING

    def __len__(self) -> int:
        return sum(layer.alive for layer in self._layers)

    def __contains__(self, sub: SubId) -> bool:
        one = np.array([sub], np.int64)
        return any(bool(layer.rows(one)[0] >= 0) for layer in self._layers)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        live = np.concatenate([np.zeros(0, np.int64), *(layer.ids[layer.live] for layer in self._layers)])
        assert np.unique(live).size == live.size, "a subscription is in two layers"
        sizes = [layer.ids.size for layer in self._layers]
        assert all(self._fan * last <= first for first, last in pairwise(sizes)), "layers are alike"
        for layer in self._layers:
            assert layer.alive == int(layer.live.sum()), "the live are miscounted"
            assert 2 * layer.alive >= layer.ids.size > 0, "too many are dead"
            assert (layer.ids[1:] > layer.ids[:-1]).all(), "ids are not in order"


def _joined(layers: list[RangeLayer]) -> RangeLayer:
    """One layer of everything that is live."""
    parts: list[tuple[Points, RangeSets]] = []
    for layer in layers:
        rows = np.flatnonzero(layer.live)
        parts.append((layer.ids[rows], layer.sets.taken(rows)))
    return RangeLayer(np.concatenate([ids for ids, _ in parts]), RangeSets.chained([sets for _, sets in parts]))
