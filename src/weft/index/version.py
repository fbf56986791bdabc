"""Versions: what an index holds at one moment. A version is never changed; changes make another.

A version has segments, what is dead in each, and a tail of the newest subscriptions as boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.index.base import Ids
from weft.index.coding import rows_of_columns
from weft.index.filter_columns import columns_of_filters
from weft.index.row_join import join_rows
from weft.index.rows import FilterRows
from weft.index.segment import PartitionTree, Segment
from weft.index.single_event import SingleSearch


class SegmentView(NamedTuple):
    """A segment and what is dead in it: for good in the tree and in `alive`, and the newest in `dead`, by places.

    A slot is dead in the tree when all of its subscriptions are.
    """

    segment: Segment
    tree: PartitionTree  # the segment's, with what lives now
    alive: NDArray[np.bool_]
    dead: frozenset[int]
    removed: frozenset[int]  # the subscriptions at the places in `dead`
    born: int  # how many of `alive` are
    holes: bool  # whether a slot that lives in the tree has subscriptions that do not
    single: SingleSearch | None  # how one event is searched for, the newest dead included

    @staticmethod
    def of(segment: Segment, tree: PartitionTree, alive: NDArray[np.bool_], born: int, holes: bool) -> SegmentView:
        """The view of a segment with a number of living subscriptions, none of them newly dead."""
        single = SingleSearch.of(segment, tree, alive, holes)
        return SegmentView(segment, tree, alive, frozenset(), frozenset(), born, holes, single)

    @property
    def size(self) -> int:
        """How many subscriptions live."""
        return self.born - len(self.dead)

    def place(self, sub: int) -> int:
        """The place of a living subscription, or -1."""
        place = self.segment.place(sub)
        return place if place >= 0 and self.alive[place] and place not in self.dead else -1

    def living(self) -> NDArray[np.bool_]:
        """Which places live. Cost: O(places) if any died of late."""
        if not self.dead:
            return self.alive
        alive = self.alive.copy()
        alive[list(self.dead)] = False
        return alive

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(places)."""
        rows = self.segment.rows
        assert len(self.alive) == len(rows.subs)
        assert (np.diff(rows.slots) >= 0).all()
        assert all(self.alive[place] for place in self.dead)
        assert self.removed == {*rows.subs[list(self.dead)].tolist()}
        firsts = rows.firsts.astype(np.int64)
        assert firsts[0] == 0
        assert firsts[-1] == len(rows.subs)
        assert (np.diff(firsts) > 0).all()
        if not self.holes:
            assert (np.diff(np.concatenate([[0], np.cumsum(self.alive)])[firsts]) % np.diff(firsts) == 0).all()
        for at, dimension in enumerate(rows.dimensions):
            here = rows.dims == at
            assert (rows.lows[here] >= 0).all()
            assert (rows.highs[here] < dimension.size).all()
            assert (rows.lows[here] <= rows.highs[here]).all()


class Version(NamedTuple):
    """All that a match looks at."""

    views: tuple[SegmentView, ...] = ()
    tail: Mapping[int, tuple[Box, ...]] = {}

    @property
    def size(self) -> int:
        """How many subscriptions live."""
        return sum(view.size for view in self.views) + len(self.tail)

    @property
    def buffered(self) -> int:
        """How many changes each match looks at one by one: the subscriptions in the tail, and the newest dead."""
        buffered = len(self.tail)
        for view in self.views:
            buffered += len(view.dead)
        return buffered

    @property
    def names(self) -> frozenset[str]:
        """The attributes that any filter looks at."""
        if len(self.views) == 1 and not self.tail:
            return self.views[0].segment.rows.names
        tail = {name for boxes in self.tail.values() for box in boxes for name in box.names}
        return frozenset[str]().union(*(view.segment.rows.names for view in self.views), tail)

    def among(self, ordered: Ids) -> list[int]:
        """Those of the given subscriptions, which are in order, that may exist: removed ones are among them."""
        found = [sub for sub in self.tail if _has(ordered, sub)]
        for view in self.views:
            known = view.segment.sorted_subs
            if len(known):
                at = np.minimum(known.searchsorted(ordered), len(known) - 1)
                found += ordered[known[at] == ordered].tolist()
        return found

    def of(self, views: Sequence[SegmentView]) -> tuple[SegmentView, ...]:
        """The views of the same segments as they are now."""
        current = {id(view.segment): view for view in self.views}
        return tuple(current[id(view.segment)] for view in views)

    def without(self, subs: Sequence[int], most: int) -> tuple[tuple[SegmentView, ...], bool]:
        """The views without some subscriptions, and whether a view had more than `most` newly dead: they are buried."""
        views = list(self.views)
        gone: dict[int, dict[int, int]] = {}
        for sub in subs:
            for at, view in enumerate(views):
                place = view.place(sub)
                if place >= 0:
                    gone.setdefault(at, {})[place] = sub
                    break
        buried_some = False
        for at, places in gone.items():
            view = views[at]
            views[at] = view._replace(dead=view.dead | places.keys(), removed=view.removed | {*places.values()})
            if len(views[at].dead) > most:
                views[at], buried_some = buried(views[at]), True
        return tuple(views), buried_some

    def find(self, sub: int) -> tuple[SegmentView, int] | None:
        """The view and place of a subscription that is not in the tail."""
        for view in self.views:
            known = view.segment.known
            if known is not None and sub not in known:  # most are small, and a dictionary is quick to ask
                continue
            place = view.place(sub)
            if place >= 0:
                return view, place
        return None

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: O(size)."""
        seen: set[int] = set(self.tail)
        for view in self.views:
            living = set(view.segment.rows.subs[view.living()].tolist())
            assert seen.isdisjoint(living), "a subscription is there twice"
            seen |= living
            view.check()
        assert len(seen) == self.size


def whole(segment: Segment) -> SegmentView:
    """The view of a segment in which all live."""
    size = len(segment.rows.subs)
    return SegmentView.of(segment, segment.tree, np.ones(size, bool), size, False)


Build = Callable[[FilterRows], Segment]


def view_of_tail(tail: Mapping[int, tuple[Box, ...]], build: Build) -> SegmentView:
    """A tail as a segment of its own."""
    return whole(build(rows_of_columns(columns_of_filters(tail.values()), np.fromiter(tail, np.int64))))


def joined(views: Sequence[SegmentView], build: Build, pause: Callable[[], None] = lambda: None) -> SegmentView:
    """The living of several views in one segment; `pause` as in `join_rows`."""
    return whole(build(join_rows([view.segment.rows for view in views], [view.living() for view in views], pause)))


def buried(view: SegmentView) -> SegmentView:
    """The view with its newest dead taken out of the tree for good."""
    if not view.dead:
        return view
    alive, rows = view.living(), view.segment.rows
    slots = sorted({rows.slot_of(place) for place in view.dead})
    gone = [slot for slot in slots if not alive[rows.firsts[slot] : rows.firsts[slot + 1]].any()]
    tree = view.segment.without(view.tree, gone)
    return SegmentView.of(view.segment, tree, alive, view.size, view.holes or len(gone) < len(slots))


def bury_late(made: SegmentView, before: Sequence[SegmentView], after: Sequence[SegmentView]) -> SegmentView:
    """The joined view without what died in its views between two moments; what died before has been left out."""
    gone: list[int] = []
    for one, other in zip(before, after, strict=True):
        if one is not other:
            died = (set(np.flatnonzero(one.alive & ~other.alive).tolist()) | other.dead) - one.dead
            gone += one.segment.rows.subs[sorted(died)].tolist()
    places = {place: sub for sub in gone if (place := made.segment.place(sub)) >= 0}
    return buried(made._replace(dead=made.dead | places.keys(), removed=made.removed | {*places.values()}))


def _has(ordered: Ids, sub: int) -> bool:
    at = int(ordered.searchsorted(sub))
    return at < len(ordered) and int(ordered[at]) == sub
