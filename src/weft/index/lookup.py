"""The lookup of events in a version. It finds what the filters mean, as `base` says.

What is found are slots, four bytes each. They become subscriptions when somebody asks for these, in memory that is used
again (see `recycled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.errors import EventError
from weft.index.base import Ids, Matches
from weft.index.dimension import Codes
from weft.index.events import EventColumns
from weft.index.found_slots import FoundPart, FoundSlots, Hits, Offsets, Slots, matches_of
from weft.index.labelled import labelled
from weft.index.piece_search import few_at_once, met, spread
from weft.index.recycled import RESULTS
from weft.index.segment import Segment, settle
from weft.index.single_event import IdMemory, SingleEvents, Take, Taken, copied
from weft.index.version import SegmentView, Version
from weft.kernels import batch_search, search
from weft.model.frame import as_batch
from weft.model.lists import AttributeValue
from weft.model.schema import Schema

_MOST_CODES = 4_000_000  # of one search; larger batches are cut
_FEW = 64  # subscriptions that are compared with the newest dead one by one


class Lookup:
    """Searches versions; one serves all threads of an index."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._single = SingleEvents()
        self._room = 4096  # for what a batch finds
        self._sharing: WeakKeyDictionary[Segment, dict[int, tuple[bool, bool]]] = WeakKeyDictionary()
        self.events = self.matches = self.wanted = 0  # looked up, found, and events that had any; for `stats` only

    def one(self, version: Version, values: Mapping[str, AttributeValue | None], take: Take[Taken]) -> Taken:
        """What `take` makes of the subscriptions of one event."""
        views, tail = version
        if len(views) == 1 and not tail:
            view = views[0]
            if view.single is not None and not view.dead:
                made = self._single.find(view.single, values, take)
                self.events += 1
                if matches := len(made):
                    self.matches += matches
                    self.wanted += 1
                return made
        found = [self._one(view, values) for view in views]
        if tail:
            wanted = [sub for sub, boxes in tail.items() if any(box.admits(values) for box in boxes)]
            found.append(np.array(wanted, np.int64))
        ids = found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int64), *found])
        self._tally(1, len(ids), len(ids) > 0)
        return take(IdMemory.of(ids), len(ids))

    def batch(self, version: Version, batch: Any, out: Ids | None = None, by: Any = None) -> Matches:
        """The subscriptions of each event, or their labels; events that cannot be read are set aside."""
        aside: dict[int, EventError] = {}
        parts = [self._columns(version, piece) for piece in portions(version, batch, self._schema, aside)]
        found = matches_of(parts, out).without(aside)
        ends = found.offsets
        self._tally(len(found), int(ends[-1]), int(np.count_nonzero(ends[1:] != ends[:-1])))
        return found if by is None else labelled(found, by)

    def _tally(self, events: int, matches: int, wanted: int) -> None:
        """Threads may overwrite each other here: these are figures to look at, and no lock is worth them."""
        self.events += events
        self.matches += matches
        self.wanted += wanted

    def counts(self, version: Version, batch: Any, mode: int) -> NDArray[np.int64]:
        """How many subscriptions each event has (COUNT), or at least one if it has any (ANY)."""
        parts = [self._count(version, piece, mode) for piece in portions(version, batch, self._schema)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _one(self, view: SegmentView, values: Mapping[str, AttributeValue | None]) -> Ids:
        single = view.single
        if single is None:
            return self._by_steps(view, values)
        ids = self._single.find(single, values, copied)
        if not view.dead or not len(ids):
            return ids
        if len(ids) <= _FEW:
            return np.array([sub for sub in ids.tolist() if sub not in view.removed], np.int64)
        return ids[~np.isin(ids, list(view.removed))]

    def _by_steps(self, view: SegmentView, values: Mapping[str, AttributeValue | None]) -> Ids:
        """The subscriptions of one event in a segment that no single call searches."""
        segment = view.segment
        offsets, slots = self._slots_of_one(view, values)
        if len(segment.special):
            offsets, slots = settle(segment, offsets, slots, {0: values})
        found = FoundPart.of([FoundSlots.of(view, offsets, slots)], None, 1)
        ids = np.empty(int(found.offsets[-1]), np.int64)
        found.write(ids)
        return ids

    def _slots_of_one(self, view: SegmentView, values: Mapping[str, AttributeValue | None]) -> tuple[Offsets, Slots]:
        rows = view.segment.rows
        codes = rows.encode_one(values)
        if not rows.pieces.pieces:
            offsets, found, _ = self._run(view, codes, search.FIND)
            return offsets, _names(found, offsets)
        pieces = rows.pieces.find_one(values)
        codes_of_all, firsts = spread(view.segment, codes, pieces, 0, 1)
        offsets, found, _ = self._run(view, codes_of_all, search.FIND)
        return met(view.segment, offsets[firsts], _names(found, offsets), pieces)

    def _columns(self, version: Version, events: EventColumns) -> FoundPart:
        found = [self._view(view, events) for view in version.views]
        return FoundPart.of(found, _match_tail(version.tail, events) if version.tail else None, events.size)

    def _view(self, view: SegmentView, events: EventColumns) -> FoundSlots:
        segment = view.segment
        offsets, found, _ = self._search(view, events, search.FIND)
        if len(segment.special):
            offsets, found = settle(segment, offsets, _names(found, offsets), _Attributes(events, segment))
        return FoundSlots.of(view, offsets, found)

    def _search(
        self, view: SegmentView, events: EventColumns, mode: int
    ) -> tuple[Offsets, Slots | Hits, NDArray[np.int64]]:
        """The names found for each event, as offsets and names or hits, and how many others were only counted."""
        segment = view.segment
        codes = segment.rows.encode(events)
        if not len(segment.rows.pieces):
            return self._run(view, codes, mode)
        pieces = segment.rows.pieces.find(events)
        ends, found, counted = [np.zeros(1, np.int64)], [], []
        for first, last in few_at_once(segment, codes, pieces, max(1, _MOST_CODES // codes.shape[1])):
            codes_of_all, firsts = spread(segment, codes, pieces, first, last)
            offsets, some, counts = self._run(view, codes_of_all, mode)
            ends.append(offsets[firsts][1:] + ends[-1][-1])
            found.append(_names(some, offsets))
            counted.append(np.add.reduceat(counts, firsts[:-1]) if len(counts) else counts)
        offsets, names = met(segment, np.concatenate(ends), _joined(found, np.int32), pieces)
        return offsets, names, _joined(counted, np.int64)

    def _run(self, view: SegmentView, codes: Codes, mode: int) -> tuple[Offsets, Slots | Hits, NDArray[np.int64]]:
        """The same for rows of codes."""
        offsets = np.zeros(len(codes) + 1, np.int64)
        counts = np.zeros(len(codes) if mode != search.FIND else 0, np.int64)
        if self._is_together(view, codes, mode):
            hits = RESULTS.array(self._room, np.uint32)
            by_dimension = codes.T.reshape(-1)
            hits, found = batch_search.all_together(view.tree, by_dimension, hits, offsets, counts, mode)
            self._expect(batch_search.HIT * found, mode)
            return offsets, Hits(hits[: batch_search.HIT * found], view.tree.ids), counts
        out = RESULTS.array(self._room, np.int32)
        out, found = search.event_by_event(view.tree, codes, out, offsets, counts, mode)
        self._expect(found, mode)
        return offsets, out[:found], counts

    def _expect(self, found: int, mode: int) -> None:
        """Make room for a little more than was found last, where not only special rows are found."""
        if mode == search.FIND:
            self._room = 4096 + found + found // 4

    def _is_together(self, view: SegmentView, codes: Codes, mode: int) -> bool:
        """Whether events are best searched all together; decided by the first batch of about this size that a segment
        sees. Where events reach many leaves, the search for any match ends sooner together.
        """
        if len(codes) <= 2:
            return False
        known, size = self._sharing.setdefault(view.segment, {}), len(codes).bit_length()
        if size not in known:
            known[size] = batch_search.sharing(view.tree, codes)
        shared, many = known[size]
        return shared or (many and mode == search.ANY)

    def _count(self, version: Version, events: EventColumns, mode: int) -> NDArray[np.int64]:
        total = np.zeros(events.size, np.int64)
        for view in version.views:
            one_each = view.segment.rows.alone and not view.holes
            if view.dead or (mode == search.COUNT and not one_each):
                self._view(view, events).add_counts(total)
                continue
            offsets, found, counts = self._search(view, events, mode)
            if offsets[-1]:  # only special rows are found; the others are counted
                names = _names(found, offsets)
                offsets, _ = settle(view.segment, offsets, names, _Attributes(events, view.segment))
            total += counts + np.diff(offsets)
        if version.tail:
            total += _match_tail(version.tail, events).counts
        return total


def _names(found: Slots | Hits, offsets: Offsets) -> Slots:
    return found.names(offsets) if isinstance(found, Hits) else found


def _joined(parts: Sequence[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def portions(
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


class _Attributes(dict[int, Mapping[str, AttributeValue | None]]):
    """The events of a batch as mappings, made when a box asks."""

    def __init__(self, events: EventColumns, segment: Segment) -> None:
        super().__init__()
        self._events = events
        self._names = segment.rows.names

    def __missing__(self, event: int) -> Mapping[str, AttributeValue | None]:
        events = self._events
        if events.rows is not None:
            return events.rows[event]
        made = self[event] = {name: events.with_lists(name)[event] for name in self._names}
        return made


def _match_tail(tail: Mapping[int, tuple[Box, ...]], events: EventColumns) -> Matches:
    rows: Iterable[Mapping[str, AttributeValue | None]]
    if events.rows is not None:
        rows = events.rows
    else:
        names = {name for boxes in tail.values() for box in boxes for name in box.names}
        columns = {name: events.with_lists(name) for name in names}
        rows = ({name: column[row] for name, column in columns.items()} for row in range(events.size))
    return Matches.of(
        [sub for sub, boxes in tail.items() if any(box.admits(values) for box in boxes)] for values in rows
    )


def _sliced(part: Any, first: int, step: int) -> Any:
    return part.slice(first, step) if hasattr(part, "slice") else part[first : first + step]
