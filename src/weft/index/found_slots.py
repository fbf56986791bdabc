"""The slots that a search found, and how they become subscriptions. Each living subscription of a found slot is written
once, and those of an event are next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.index.base import Ids, Matches
from weft.index.recycled import RESULTS
from weft.index.version import SegmentView
from weft.kernels import batch_search, search
from weft.kernels.groups import copy_members, count_members, write_members

Offsets = NDArray[np.int64]
Slots = NDArray[np.int32]


class Hits(NamedTuple):
    """What a search of a whole batch found (see `batch_search`), and the names of the tree's rows."""

    numbers: NDArray[np.uint32]
    ids: NDArray[np.int32]

    def names(self, offsets: Offsets) -> Slots:
        """The names of the rows, those of an event from its offset on."""
        names = RESULTS.array(int(offsets[-1]), np.int32)
        batch_search.write_names(self.numbers, self.ids, offsets, names)
        return names

    def counted(self, offsets: Offsets, firsts: NDArray[Any]) -> tuple[Slots, NDArray[np.int64]]:
        """The names, which must all be slots, and how many subscriptions they have for each event."""
        names, counts = RESULTS.array(int(offsets[-1]), np.int32), np.zeros(len(offsets) - 1, np.int64)
        batch_search.write_slots(self.numbers, self.ids, firsts, offsets, names, counts)
        return names, counts


class FoundSlots(NamedTuple):
    """What a view has for some events: slots[offsets[e]:offsets[e + 1]], and the living places of the view. Slots that
    stand for one living subscription each may still be hits.
    """

    view: SegmentView
    offsets: Offsets
    slots: Slots | Hits
    alive: NDArray[np.bool_]
    holes: bool
    counts: NDArray[np.int64] | None = None  # subscriptions of each event, if they have been counted

    @staticmethod
    def of(view: SegmentView, offsets: Offsets, slots: Slots | Hits) -> FoundSlots:
        """What a search of a view found."""
        found = FoundSlots(view, offsets, slots, view.living(), view.holes or bool(view.dead))
        if found.plain or not isinstance(slots, Hits):
            return found
        if found.holes:
            return found._replace(slots=slots.names(offsets))
        names, counts = slots.counted(offsets, view.segment.rows.firsts)
        return found._replace(slots=names, counts=counts)

    @property
    def plain(self) -> bool:
        """Whether each slot stands for one living subscription."""
        return self.view.segment.rows.alone and not self.holes

    def add_counts(self, counts: NDArray[np.int64]) -> None:
        """Add the number of subscriptions of each event."""
        if self.counts is not None:
            counts += self.counts
        elif self.plain:
            counts += np.diff(self.offsets)
        else:
            segment = self.view.segment
            held = segment.rows.firsts, segment.singles, self.alive, self.holes
            count_members(self.slots, self.offsets, *held, counts)

    def write(self, free: Offsets, out: Ids) -> None:
        """Write the subscriptions of each event from free[event] on."""
        segment = self.view.segment
        if isinstance(self.slots, Hits):
            batch_search.write_ids(*self.slots, segment.rows.subs, self.offsets, free, out)
            return
        held = segment.rows.firsts, segment.singles, segment.rows.subs, self.alive, self.holes
        write_members(self.slots, self.offsets, *held, free, out)


class FoundPart(NamedTuple):
    """What some events of a batch have: slots of several views, and the subscriptions of the tail."""

    parts: Sequence[FoundSlots]
    tail: Matches | None
    offsets: Offsets

    @staticmethod
    def of(parts: Sequence[FoundSlots], tail: Matches | None, events: int) -> FoundPart:
        """The matches of a number of events in all views."""
        if len(parts) == 1 and tail is None and parts[0].plain:
            return FoundPart(parts, None, parts[0].offsets)
        counts = np.zeros(events, np.int64)
        for part in parts:
            part.add_counts(counts)
        if tail is not None:
            counts += tail.counts
        offsets = np.zeros(events + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return FoundPart(parts, tail, offsets)

    def write(self, out: Ids) -> None:
        """Write the subscriptions, one event after another."""
        slots = self.parts[0].slots if len(self.parts) == 1 else None
        if isinstance(slots, np.ndarray) and self.tail is None and not self.parts[0].holes:  # all, in their order
            rows = self.parts[0].view.segment.rows
            if rows.alone:
                search.take(rows.subs, slots, out)
            else:
                copy_members(slots, rows.firsts, rows.subs, out)
            return
        free = self.offsets[:-1].copy()
        for part in self.parts:
            part.write(free, out)
        if self.tail is not None:
            at = np.repeat(free - self.tail.offsets[:-1], self.tail.counts) + np.arange(len(self.tail.ids))
            out[at] = self.tail.ids


def matches_of(pieces: Sequence[FoundPart], given: Ids | None) -> Matches:
    """The matches of pieces that follow each other; ids are written when they are requested, to `given` if they fit."""
    if len(pieces) == 1:
        ends, offsets = [0, int(pieces[0].offsets[-1])], pieces[0].offsets
    else:
        ends, offsets = _chained(pieces)
    total = ends[-1]

    def write() -> Ids:
        ids: Ids = RESULTS.array(total, np.int64) if given is None or len(given) < total else given[:total]
        for piece, start, end in zip(pieces, ends, ends[1:], strict=False):
            piece.write(ids[start:end])
        return ids

    return Matches(offsets, write if total else np.zeros(0, np.int64))


def _chained(pieces: Sequence[FoundPart]) -> tuple[list[int], Offsets]:
    """Where the matches of each piece end, and where those of each event begin."""
    ends = [*accumulate((int(piece.offsets[-1]) for piece in pieces), initial=0)]
    offsets = np.concatenate(
        [np.zeros(1, np.int64), *(piece.offsets[1:] + end for piece, end in zip(pieces, ends, strict=False))]
    )
    return ends, offsets
