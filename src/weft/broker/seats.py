"""Who gets an event here: every local subscription in one index. Law: the matches of a batch are those of the filters
at that moment, whatever changes afterwards.

A subscription has a slot: a small number that the index knows it by, used again when the subscription is gone. A row
by slot says which queue, number and seat it has, so that the matches of a batch are grouped by queue without a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.relate import as_form
from weft.broker.messages import SubNumber, pack
from weft.index.base import Matches, SubId
from weft.index.events_in_turn import match_events
from weft.index.tree import TreeIndex
from weft.index.weight import check_weight
from weft.kernels.deliveries import group_frames
from weft.language.ast import Filter
from weft.log.base import SeatId
from weft.routing.table import RoutingTable, Tell

Slot = SubId  # what index and table know a subscription by

_BESIDE = 64  # tests of young subscriptions against the events of a batch; with more, they join the index
_MOST_BESIDE = 256  # young subscriptions while no event comes: an event must not wait until very many have joined
_FEW = 64  # matches of a batch that are grouped one by one

_GROWTH = 16  # of the rows by slot, which take no memory until they are used
_KEPT = 1 << 18  # matches of a batch for which memory is kept

_NOBODY: tuple[Any, SubNumber, int] = None, SubNumber(0), 0


class Frames:
    """The deliveries of a batch, grouped: frame i is event events[i] with the numbers packed[starts[i]:starts[i + 1]].

    `segments` says which frames are a queue's. The numbers of a frame are in any order.
    """

    __slots__ = ("_columns", "events", "packed", "segments", "starts")

    def __init__(
        self,
        events: list[int],
        starts: list[int],
        packed: bytes,
        segments: Mapping[Any, tuple[int, int]],
        columns: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        self._columns = columns
        self.events = events
        self.starts = starts
        self.packed = packed
        self.segments = segments

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Events and starts as arrays."""
        if self._columns is None:
            self._columns = np.array(self.events, np.int64), np.array(self.starts, np.int64)
        return self._columns


class Matched:
    """Frames, and the seats of each event for the log: those of event i are seats[starts[i]:starts[i + 1]]."""

    __slots__ = ("frames", "seats", "starts")

    def __init__(self, frames: Frames, starts: NDArray[np.uint32], seats: NDArray[np.uint32]) -> None:
        self.frames = frames
        self.starts = starts
        self.seats = seats


class LocalSeats:
    """The local subscriptions of a broker, in an index for delivery and in the routing table for its neighbours."""

    def __init__(self, table: RoutingTable, executor: Executor | None = None) -> None:
        self.table = table
        self._schema = table.schema
        # without a schema, because events conform to it when they come in; what is new is kept beside the index
        self._index = TreeIndex(executor=executor, tail=0, fan=4)
        self._young: dict[Slot, NormalForm] = {}
        self.pours = 0  # how often new ones have joined the index, which takes as long as many additions
        self._free: list[int] = []
        self._used = 0
        self._row = np.zeros((64, 3), np.uint32)  # by slot: the place of its queue, its number, its seat or 0
        self._met = np.full(64, -1, np.int64)  # by place of a queue, for grouping
        self._room = _room(0)
        self._rows: list[tuple[Any, SubNumber, int]] = []  # the same by slot: queue, number and seat
        self._queues: list[Any] = []
        self._places: dict[Any, list[int]] = {}  # a queue's place in the list, and how many subscriptions it has
        self._empty_places: list[int] = []

    def __len__(self) -> int:
        return len(self._index) + len(self._young)

    # -- changes ------------------------------------------------------------------------------------

    def add(self, filter: Filter, seat: SeatId | None, queue: Any, number: SubNumber) -> tuple[Slot, list[Tell]]:
        """Add a subscription. Raises FilterError or LocalProtocolError; then nothing has changed."""
        form = self._form(filter)
        slot = SubId(self._free[-1] if self._free else self._used)
        tells = self.table.change({slot: filter}, ())
        self._take(slot, seat, queue, number)
        self._put(slot, form)
        return slot, tells

    def add_many(
        self, boxes: BoxColumns, seats: Sequence[SeatId], queues: Sequence[Any], numbers: Sequence[SubNumber]
    ) -> list[Slot]:
        """Add many at once, when a broker starts; the table gets them together with what neighbours told.

        `boxes` are those of their filters under the table's schema; owner 0 is the first subscription.
        """
        slots = [SubId(self._used + place) for place in range(len(seats))]
        if slots:
            self._index.add_boxes(slots, boxes)
        for slot, seat, queue, number in zip(slots, seats, queues, numbers, strict=True):
            self._take(slot, seat, queue, number)
        return slots

    def _form(self, filter: Filter) -> NormalForm:
        """A filter as the index takes it, under the schema, as table and access rules have it: it is normalized once.

        Raises FilterTooComplexError.
        """
        form = as_form(filter, self._schema)
        check_weight(form.boxes)
        return form if self._schema is None else NormalForm(form.boxes)

    def _take(self, slot: int, seat: SeatId | None, queue: Any, number: SubNumber) -> None:
        row = queue, number, int(seat or 0)
        if self._free and self._free[-1] == slot:
            self._free.pop()
            self._rows[slot] = row
        else:
            self._used += 1
            self._rows.append(row)
        if slot >= len(self._row):
            rows = np.zeros((_GROWTH * len(self._row), 3), np.uint32)
            rows[: len(self._row)] = self._row
            self._row = rows
        place = self._places.get(queue)
        if place is None:
            if self._empty_places:
                at = self._empty_places.pop()
                self._queues[at] = queue
            else:
                at = len(self._queues)
                self._queues.append(queue)
            place = self._places[queue] = [at, 0]
        place[1] += 1
        self._row[slot] = place[0], number, seat or 0

    def replace(self, slot: Slot, filter: Filter) -> list[Tell]:
        """Give a subscription another filter. Raises FilterError or LocalProtocolError; then nothing has changed."""
        form = self._form(filter)
        tells = self.table.change({slot: filter}, (slot,))
        self._forget(slot)
        self._put(slot, form)
        return tells

    def _put(self, slot: Slot, form: NormalForm) -> None:
        self._young[slot] = form
        if len(self._young) > _MOST_BESIDE:
            self._pour()

    def _pour(self) -> None:
        """Move what is new into the index."""
        self._index.add_forms(self._young, [*self._young.values()])
        self._young = {}
        self.pours += 1

    def _forget(self, slot: Slot) -> None:
        if self._young.pop(slot, None) is None:
            self._index.discard(slot)

    def discard(self, slot: Slot) -> list[Tell]:
        """Remove a subscription."""
        self._forget(slot)
        queue = self._queues[self._row[slot, 0]]
        place = self._places[queue]
        place[1] -= 1
        if not place[1]:
            del self._places[queue]
            self._queues[place[0]] = None
            self._empty_places.append(place[0])
        self._free.append(slot)
        self._rows[slot] = _NOBODY
        return self.table.change({}, (slot,))

    def queues(self) -> Iterator[Any]:
        """Every queue that has subscriptions."""
        return iter(self._places)

    # -- matching -------------------------------------------------------------------------------------

    def match(self, events: Sequence[Mapping[str, Any]]) -> Matched:
        """Who gets each event. Cost: that of the index, and a few nanoseconds a match."""
        if self._young and len(self._young) * len(events) > _BESIDE:
            self._pour()
        found = match_events(self._index, events)
        if self._young:
            found = Matches.merged([found, Matches.of(map(self._young_of, events))], len(events))
        slots, offsets = found.ids, found.offsets
        if len(slots) <= _FEW:
            return self._few(offsets.tolist(), slots.tolist())
        return self._many(offsets, slots)

    def matching(self, event: Mapping[str, Any]) -> list[tuple[Any, SubNumber]]:
        """The queues and numbers of the subscriptions that match an event."""
        slots = sorted([*self._index.match(event).tolist(), *self._young_of(event)])
        return [self._rows[slot][:2] for slot in slots]

    def _young_of(self, event: Mapping[str, Any]) -> list[int]:
        return [slot for slot, form in self._young.items() if any(box.admits(event) for box in form.boxes)]

    def _few(self, offsets: list[int], slots: list[int]) -> Matched:
        """Grouped one by one."""
        held: dict[Any, list[tuple[int, list[SubNumber]]]] = {}  # by queue: events and numbers
        seats: list[int] = []
        starts = [0]
        rows = self._rows
        for event in range(len(offsets) - 1):
            mine: dict[Any, list[SubNumber]] = {}
            for slot in sorted(slots[offsets[event] : offsets[event + 1]]):
                queue, number, seat = rows[slot]
                if seat:
                    seats.append(seat)
                if queue in mine:
                    mine[queue].append(number)
                else:
                    mine[queue] = [number]
            starts.append(len(seats))
            for queue, some in mine.items():
                held.setdefault(queue, []).append((event, some))
        events: list[int] = []
        begins: list[int] = [0]
        numbers: list[SubNumber] = []
        segments: dict[Any, tuple[int, int]] = {}
        for queue, frames in held.items():
            segments[queue] = len(events), len(events) + len(frames)
            for event, some in frames:
                events.append(event)
                numbers += some
                begins.append(4 * len(numbers))
        matched = Frames(events, begins, pack(numbers), segments)
        return Matched(matched, np.array(starts, np.uint32), np.array(seats, np.uint32))

    def _many(self, offsets: NDArray[np.int64], slots: NDArray[np.int64]) -> Matched:
        """The same by counting, in memory that is used again: fresh memory would cost more than the rest."""
        size, most = len(offsets) - 1, len(slots)
        if len(self._met) < len(self._queues):
            self._met = np.full(2 * len(self._queues), -1, np.int64)
        room, drawn, numbers, seats = self._room if most <= _KEPT else _room(most)
        if room.shape[1] <= most:
            room, drawn, numbers, seats = self._room = _room(2 * most)
        firsts = np.empty(size + 1, np.uint32)
        held, frames, many = group_frames(offsets, slots, self._row, self._met, room, drawn, numbers, seats, firsts)
        queues, bounds = room[0, :held].tolist(), pairwise([0, *room[1, :held].tolist()])
        segments = {self._queues[queue]: segment for queue, segment in zip(queues, bounds, strict=True)}
        events, starts = room[2, :frames].copy(), room[3, : frames + 1].copy()
        found = Frames(events.tolist(), starts.tolist(), numbers[:most].tobytes(), segments, (events, starts))
        return Matched(found, firsts, seats[:many].copy())

    def check(self, slots: Iterable[int]) -> None:
        """Raise AssertionError if an invariant is broken. `slots` are those of all subscriptions."""
        known = set(slots)
        assert len(known) == len(self)
        assert all((slot in self._index) != (slot in self._young) for slot in known)
        assert known.isdisjoint(self._free)
        assert len(known) + len(self._free) == self._used
        counts: dict[int, int] = {}
        for slot in known:
            place = int(self._row[slot, 0])
            counts[place] = counts.get(place, 0) + 1
        assert counts == {place: size for place, size in self._places.values()}  # noqa: C416 - lists of two
        assert all(self._queues[place] is queue for queue, (place, _) in self._places.items())
        for slot in known:
            queue, number, seat = self._rows[slot]
            assert queue is self._queues[self._row[slot, 0]]
            assert (number, seat) == (*self._row[slot, 1:].tolist(),)


def _room(most: int) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Memory for grouping so many matches: see `group_frames`."""
    drawn, numbers, seats = np.empty((2, most), np.uint32), np.empty(most, np.uint32), np.empty(most, np.uint32)
    return np.empty((6, most + 1), np.int64), drawn, numbers, seats
