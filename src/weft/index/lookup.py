"""Looking events up in a version. Law: as `base`: what is found is what the filters mean.

Findings are written to buffers that belong to a thread and are used again: memory that has been used is much faster
than new memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.errors import EventError
from weft.index.base import Ids, Matches
from weft.index.events import EventColumns
from weft.index.segment import Segment, settle
from weft.index.version import SegmentView, Version
from weft.kernels import search
from weft.model.frame import as_batch
from weft.model.schema import Schema
from weft.model.value import Value

_MOST_CODES = 4_000_000  # of one search; larger batches are cut
_MOST_KEPT = 1 << 22  # findings that a thread's buffers may keep room for
_MANY_LEAVES, _MANY_MATCHES = 4, 32  # events that reach many leaves, or match little, are searched all together


class Buffers(threading.local):
    """What a thread writes its findings to, before they are copied out."""

    def __init__(self) -> None:
        self.out, self.whose = np.empty(4096, np.int32), np.empty(4096, np.int32)
        self.offsets, self.counts = np.zeros(2, np.int64), np.zeros(1, np.int64)

    def keep(self, out: NDArray[np.int32], whose: NDArray[np.int32] | None = None) -> None:
        """Keep buffers that have grown, unless they have grown too large."""
        if out.size <= _MOST_KEPT:
            self.out = out
            self.whose = self.whose if whose is None else whose


class Lookup:
    """Searches versions; one serves all threads of an index."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._buffers = Buffers()
        self._together: WeakKeyDictionary[Segment, bool] = WeakKeyDictionary()
        self.events = self.matches = self.wanted = 0  # looked up, found, and events that had any; for `stats` only

    def one(self, version: Version, values: Mapping[str, Value | None]) -> Ids:
        """The subscriptions of one event."""
        found = [self._one(view, values) for view in version.views]
        if version.tail:
            wanted = [sub for sub, boxes in version.tail.items() if any(box.admits(values) for box in boxes)]
            found.append(np.array(wanted, np.int64))
        ids = found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int64), *found])
        self._tally(1, len(ids), len(ids) > 0)
        return ids

    def batch(self, version: Version, batch: Any) -> Matches:
        """The subscriptions of each event; events that cannot be read are set aside, with the reason."""
        aside: dict[int, EventError] = {}
        parts = [self._columns(version, piece) for piece in pieces(version, batch, self._schema, aside)]
        found = Matches.chained(parts).without(aside)
        self._tally(len(found), len(found.ids), int(np.count_nonzero(found.counts)))
        return found

    def _tally(self, events: int, matches: int, wanted: int) -> None:
        """Threads may overwrite each other here: these are figures to look at, and no lock is worth them."""
        self.events += events
        self.matches += matches
        self.wanted += wanted

    def counts(self, version: Version, batch: Any, mode: int) -> NDArray[np.int64]:
        """How many subscriptions each event has (COUNT), or at least one if it has any (ANY)."""
        parts = [self._count(version, piece, mode) for piece in pieces(version, batch, self._schema)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _one(self, view: SegmentView, values: Mapping[str, Value | None]) -> Ids:
        segment, buffers = view.segment, self._buffers
        codes = segment.rows.encode_one(values)
        out, found = search.event_by_event(*view.tree, codes, buffers.out, buffers.offsets, buffers.counts, search.FIND)
        buffers.keep(out)
        ids: NDArray[np.int32] = out[:found]
        if len(segment.special):
            _, ids = settle(segment, buffers.offsets, ids, {0: values})
        if view.dead:
            ids = ids[~np.isin(ids, list(view.dead))]
        return taken(segment.rows.subs, ids)

    def _columns(self, version: Version, events: EventColumns) -> Matches:
        found = [self._view(view, events) for view in version.views]
        if version.tail:
            found.append(_match_tail(version.tail, events))
        return found[0] if len(found) == 1 else Matches.merged(found, events.size)

    def _view(self, view: SegmentView, events: EventColumns) -> Matches:
        segment = view.segment
        offsets, ids, _ = self._search(view, events, search.FIND)
        if len(segment.special):
            offsets, ids = settle(segment, offsets, ids, _Attributes(events, segment))
        if view.dead:
            offsets, ids = _without(offsets, ids, view.dead)
        return Matches(offsets, taken(segment.rows.subs, ids))

    def _search(
        self, view: SegmentView, events: EventColumns, mode: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """The names found for each event, as offsets and ids, and how many others were only counted."""
        buffers, codes = self._buffers, view.segment.rows.encode(events)
        offsets = np.zeros(events.size + 1, np.int64)
        counts = np.zeros(events.size if mode != search.FIND else 0, np.int64)
        if mode == search.ANY or not self._is_together(view.segment, codes):
            out, found = search.event_by_event(*view.tree, codes, buffers.out, offsets, counts, mode)
            buffers.keep(out)
            return offsets, out[:found], counts
        out, whose, found = search.all_together(view.tree, codes, buffers.out, buffers.whose, offsets, counts, mode)
        buffers.keep(out, whose)
        ids = np.empty(found, np.int32)
        search.by_event(out[:found], whose[:found], offsets, ids)
        return offsets, ids, counts

    def _is_together(self, segment: Segment, codes: NDArray[np.int32]) -> bool:
        """Whether batches are best searched all together; decided by the first events that a segment sees."""
        known = self._together.get(segment)
        if known is None and len(codes):
            sample, tree = codes[:64], segment.tree
            counts, offsets = np.zeros(len(sample), np.int64), np.zeros(len(sample) + 1, np.int64)
            search.event_by_event(*tree, sample, np.empty(4096, np.int32), offsets, counts, search.COUNT)
            leaves = search.reach(tree, sample) / len(sample)
            known = self._together[segment] = leaves > _MANY_LEAVES or counts.mean() < _MANY_MATCHES
        return bool(known) and len(codes) > 2

    def _count(self, version: Version, events: EventColumns, mode: int) -> NDArray[np.int64]:
        total = np.zeros(events.size, np.int64)
        for view in version.views:
            if view.dead:
                total += self._view(view, events).counts
                continue
            offsets, ids, counts = self._search(view, events, mode)
            if len(ids):  # only special rows are found; the others are counted
                offsets, _ = settle(view.segment, offsets, ids, _Attributes(events, view.segment))
            total += counts + np.diff(offsets)
        if version.tail:
            total += _match_tail(version.tail, events).counts
        return total


def taken(subs: Ids, slots: NDArray[np.int32]) -> Ids:
    """The subscriptions of slots."""
    ids = np.empty(len(slots), np.int64)
    search.take(subs, slots, ids)
    return ids


def pieces(
    version: Version, batch: Any, schema: Schema | None, aside: dict[int, EventError] | None = None
) -> Iterator[EventColumns]:
    """A batch as columns, cut so that no piece has too many codes; `aside` as in `EventColumns.of`."""
    names = version.names
    widest = max((len(view.segment.rows.dimensions) for view in version.views), default=1)
    step = max(1, _MOST_CODES // max(1, widest))
    whole = as_batch(batch)
    start = 0
    for part in whole.to_batches() if hasattr(whole, "to_batches") else (whole,):
        size = part.num_rows if hasattr(part, "num_rows") else len(part)
        for first in range(0, size, step):
            bad: dict[int, EventError] | None = None if aside is None else {}
            try:
                yield EventColumns.of(part if size <= step else _sliced(part, first, step), names, schema, bad)
            except EventError as error:
                raise error if error.position is None else error.at(start + first + error.position) from None
            if aside is not None and bad:
                aside.update({start + first + row: error for row, error in bad.items()})
        start += size


class _Attributes(dict[int, Mapping[str, Value | None]]):
    """The events of a batch as mappings, made when a box asks."""

    def __init__(self, events: EventColumns, segment: Segment) -> None:
        super().__init__()
        self._events = events
        self._names = segment.rows.names

    def __missing__(self, event: int) -> Mapping[str, Value | None]:
        made = self[event] = {name: self._events.values(name)[event] for name in self._names}
        return made


def _without(
    offsets: NDArray[np.int64], ids: NDArray[np.int32], dead: frozenset[int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keep = ~np.isin(ids, list(dead))
    kept = np.concatenate([[0], np.cumsum(keep)])
    return kept[offsets], ids[keep]


def _match_tail(tail: Mapping[int, tuple[Box, ...]], events: EventColumns) -> Matches:
    names = {name for boxes in tail.values() for box in boxes for name in box.names}
    columns = {name: events.values(name) for name in names}
    rows = ({name: column[row] for name, column in columns.items()} for row in range(events.size))
    return Matches.of(
        [sub for sub, boxes in tail.items() if any(box.admits(values) for box in boxes)] for values in rows
    )


def _sliced(part: Any, first: int, step: int) -> Any:
    return part.slice(first, step) if hasattr(part, "slice") else part[first : first + step]
