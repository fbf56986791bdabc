"""Candidates from the curve (MICS 5, subscription indexing). Law: whoever the exact check would find is a candidate.

The cells of a subscription hold all its points, and those of a covered one lie among those of the covering one. So what
the cells rule out is out; what they leave, the caller checks exactly. In terms of cells every answer is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from weft.index.base import Ids, Matches, SubId
from weft.interest.range_layer import RangeLayer, RowPairs
from weft.space.range_set import NOTHING, Points, RangeSet
from weft.space.range_sets import RangeSets, for_kernels


class SubscriptionIndex:
    """Subscriptions by their ranges on the curve; answers are ids in no order, each once.

    Layers grow by a factor of `fan` at least, so a subscription is sorted anew O(log n) times.

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
        """Take in a subscription. Raises KeyError if it is known. Cost: O(log n) sorts of its ranges, amortised."""
        self.add_batch(np.array([sub], np.int64), RangeSets.of([ranges]))

    def add_batch(self, subs: Ids, sets: RangeSets) -> None:
        """Take in many subscriptions, all or none."""
        ids = np.asarray(subs, np.int64)
        if ids.size != len(sets):
            raise ValueError(f"{ids.size} subscriptions for {len(sets)} sets")
        if np.unique(ids).size != ids.size:
            raise KeyError("a subscription comes twice in one call")
        for layer in self._layers:
            known = ids[layer.rows(ids) >= 0]
            if known.size:
                raise KeyError(f"subscription {known[0]} is known: discard it first")
        if ids.size:
            self._layers.append(RangeLayer(ids, sets))
            self._settle()

    def discard(self, sub: SubId) -> None:
        """Forget a subscription, if it is known."""
        self.discard_batch(np.array([sub], np.int64))

    def discard_batch(self, subs: Ids) -> None:
        """Forget those subscriptions that are known."""
        ids = np.asarray(subs, np.int64)
        for layer in self._layers:
            layer.discard(ids)
        self._settle()

    def _settle(self) -> None:
        """Make layers without their dead where these are the half, and one of two that are too much alike in size."""
        kept: list[RangeLayer] = []
        for layer in self._layers:
            if layer.alive:
                kept.append(layer if 2 * layer.alive >= layer.ids.size else _joined([layer]))
            while len(kept) > 1 and self._fan * kept[-1].ids.size > kept[-2].ids.size:
                kept[-2:] = [_joined(kept[-2:])]
        self._layers = kept

    # -- questions ---------------------------------------------------------------------------------

    def at(self, point: int) -> Ids:
        """Who may match an event at this point. Cost: O(log n + k log n), k the answers."""
        return self.at_batch([point])[0]

    def covering(self, ranges: RangeSet) -> Ids:
        """Who may cover a subscription of these ranges: all of them are theirs."""
        return self.covering_batch(RangeSets.of([ranges]))[0]

    def within(self, ranges: RangeSet) -> Ids:
        """Who may be covered by a subscription of these ranges: all of theirs are in them."""
        return self.within_batch(RangeSets.of([ranges]))[0]

    def overlapping(self, ranges: RangeSet) -> Ids:
        """Who may overlap, merge with, or help to subsume a subscription of these ranges."""
        return self.overlapping_batch(RangeSets.of([ranges]))[0]

    def at_batch(self, points: ArrayLike) -> Matches:
        """Who may match at each point."""
        asked = for_kernels(points)
        return self._gathered(asked.size, lambda layer: layer.at(asked))

    def covering_batch(self, sets: RangeSets) -> Matches:
        """Who may cover each set."""
        return self._gathered(len(sets), lambda layer: layer.covering(sets))

    def within_batch(self, sets: RangeSets) -> Matches:
        """Who may be covered by each set."""
        return self._gathered(len(sets), lambda layer: layer.within(sets))

    def overlapping_batch(self, sets: RangeSets) -> Matches:
        """Who may overlap each set."""
        return self._gathered(len(sets), lambda layer: layer.overlapping(sets))

    def _gathered(self, size: int, ask: Callable[[RangeLayer], RowPairs]) -> Matches:
        """The answers of all layers, by question."""
        found = [(asked, layer.ids[rows]) for layer in self._layers for asked, rows in (ask(layer),)]
        none = np.zeros(0, np.int64)
        questions = np.concatenate([none, *(asked for asked, _ in found)])
        ids = np.concatenate([none, *(some for _, some in found)])
        offsets = np.append(0, np.cumsum(np.bincount(questions, minlength=size)))
        return Matches(offsets, ids[np.argsort(questions, kind="stable")])

    # -- what is there -----------------------------------------------------------------------------

    def ranges(self, sub: SubId) -> RangeSet:
        """The ranges of a subscription; none if it is unknown."""
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
    """One layer of all that is live."""
    parts: list[tuple[Points, RangeSets]] = []
    for layer in layers:
        rows = np.flatnonzero(layer.live)
        parts.append((layer.ids[rows], layer.sets.taken(rows)))
    return RangeLayer(np.concatenate([ids for ids, _ in parts]), RangeSets.chained([sets for _, sets in parts]))
