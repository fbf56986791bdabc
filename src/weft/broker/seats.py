"""Who gets an event here: every local subscription in one index. Law: the matches of a batch are those of the filters
at that moment, whatever changes afterwards.

A subscription has a slot: a small number that the index knows it by, used again when the subscription is gone. Columns
by slot say which seat, queue and number it has, so that the matches of a batch are grouped by queue without a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.broker.messages import SubNumber
from weft.index.base import SubId
from weft.index.tree import TreeIndex
from weft.language.ast import Filter
from weft.log.base import SeatId
from weft.routing.table import RoutingTable, Tell

Slot = SubId  # what index and table know a subscription by

_FEW = 24  # matches of a batch that are grouped one by one
_NO_SEATS = np.zeros(0, np.uint32)


class Receiver(Protocol):
    """A queue, as far as matching goes."""

    __hash__: Callable[[], int]


class Frames:
    """The deliveries of a batch, grouped: frame i is event events[i] with numbers[starts[i]:starts[i + 1]].

    `segments` says which frames are a queue's; `seats` runs parallel to `numbers`, with 0 for what is not durable.
    """

    __slots__ = ("events", "numbers", "seats", "segments", "starts")

    def __init__(
        self,
        events: list[int],
        starts: list[int],
        numbers: list[SubNumber],
        seats: Sequence[int] | NDArray[np.int64],
        segments: Mapping[Any, tuple[int, int]],
    ) -> None:
        self.events = events
        self.starts = starts
        self.numbers = numbers
        self.seats = seats
        self.segments = segments


class Matched:
    """Frames, and the seats of each event for the log."""

    __slots__ = ("frames", "seats", "starts")

    def __init__(self, frames: Frames, starts: NDArray[np.uint32], seats: NDArray[np.uint32]) -> None:
        self.frames = frames
        self.starts = starts
        self.seats = seats


class LocalSeats:
    """The local subscriptions of a broker, in an index for delivery and in the routing table for its neighbours."""

    def __init__(self, table: RoutingTable, executor: Executor | None = None) -> None:
        self.table = table
        self._index = TreeIndex(executor=executor)  # without a schema: events conform to it when they come in
        self._free: list[int] = []
        self._used = 0
        self._seat = np.zeros(64, np.int64)  # 0 if it is not durable
        self._queue = np.zeros(64, np.int64)
        self._number = np.zeros(64, np.int64)
        self._queues: list[Any] = []
        self._places: dict[Any, list[int]] = {}  # a queue's place in the list, and how many subscriptions it has
        self._empty_places: list[int] = []

    def __len__(self) -> int:
        return len(self._index)

    # -- changes ------------------------------------------------------------------------------------

    def add(self, filter: Filter, seat: SeatId | None, queue: Any, number: SubNumber) -> tuple[Slot, list[Tell]]:
        """Add a subscription. Raises FilterError or LocalProtocolError; then nothing has changed."""
        slot = self._free[-1] if self._free else self._used
        tells = self.table.change({SubId(slot): filter}, ())
        try:
            self._index.add(slot, filter)
        except Exception:
            self.table.change({}, (SubId(slot),))
            raise
        self._take(slot, seat, queue, number)
        return SubId(slot), tells

    def add_many(
        self, filters: Sequence[Filter], texts: Sequence[str], seats: Sequence[SeatId], queues: Sequence[Any],
        numbers: Sequence[SubNumber],
    ) -> tuple[list[Slot], list[Tell]]:  # fmt: skip
        """Add many at once, when a broker starts."""
        slots = [SubId(self._used + place) for place in range(len(filters))]
        tells: list[Tell] = []
        for start in range(0, len(slots), 256):
            some = range(start, min(start + 256, len(slots)))
            tells += self.table.change({slots[n]: filters[n] for n in some}, ())
        self._index.add_texts(slots, texts)
        for slot, seat, queue, number in zip(slots, seats, queues, numbers, strict=True):
            self._take(slot, seat, queue, number)
        return slots, tells

    def _take(self, slot: int, seat: SeatId | None, queue: Any, number: SubNumber) -> None:
        if self._free and self._free[-1] == slot:
            self._free.pop()
        else:
            self._used += 1
        if slot >= len(self._seat):
            self._seat, self._queue, self._number = (
                np.concatenate([column, np.zeros(len(column), np.int64)])
                for column in (self._seat, self._queue, self._number)
            )
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
        self._seat[slot], self._queue[slot], self._number[slot] = seat or 0, place[0], number

    def replace(self, slot: Slot, filter: Filter) -> list[Tell]:
        """Give a subscription another filter. Raises FilterError or LocalProtocolError; then nothing has changed."""
        old = self._index.filter(slot)
        self._index.replace(slot, filter)
        try:
            return self.table.change({slot: filter}, (slot,))
        except Exception:
            self._index.replace(slot, old)
            raise

    def discard(self, slot: Slot) -> list[Tell]:
        """Remove a subscription."""
        self._index.discard(slot)
        queue = self._queues[self._queue[slot]]
        place = self._places[queue]
        place[1] -= 1
        if not place[1]:
            del self._places[queue]
            self._queues[place[0]] = None
            self._empty_places.append(place[0])
        self._free.append(slot)
        return self.table.change({}, (slot,))

    # -- matching -------------------------------------------------------------------------------------

    def match(self, events: Sequence[Mapping[str, Any]]) -> Matched:
        """Who gets each event. Cost: that of the index, and a few nanoseconds a match."""
        if len(events) == 1:
            slots = self._index.match(events[0])
            offsets = np.array([0, len(slots)], np.int64)
        else:
            found = self._index.match_batch(events)
            slots, offsets = found.ids, found.offsets
        if len(slots) <= _FEW:
            return self._few(offsets.tolist(), slots.tolist())
        return self._many(offsets, slots)

    def _few(self, offsets: list[int], slots: list[int]) -> Matched:
        rows: list[tuple[int, int, int]] = []
        seats: list[int] = []
        starts = [0]
        for event in range(len(offsets) - 1):
            mine = sorted(slots[offsets[event] : offsets[event + 1]])
            rows += [(int(self._queue[slot]), event, slot) for slot in mine]
            seats += [seat for slot in mine if (seat := int(self._seat[slot]))]
            starts.append(len(seats))
        rows.sort()
        events: list[int] = []
        begins: list[int] = []
        segments: dict[Any, tuple[int, int]] = {}
        last: tuple[int, int] | None = None
        for place, (queue, event, _) in enumerate(rows):
            if (queue, event) != last:
                first = segments.get(self._queues[queue], (len(events), 0))[0]
                events.append(event)
                begins.append(place)
                segments[self._queues[queue]] = first, len(events)
                last = queue, event
        begins.append(len(rows))
        frames = Frames(
            events,
            begins,
            [SubNumber(int(self._number[slot])) for _, _, slot in rows],
            [int(self._seat[slot]) for _, _, slot in rows],
            segments,
        )
        return Matched(frames, np.array(starts, np.uint32), np.array(seats, np.uint32) if seats else _NO_SEATS)

    def _many(self, offsets: NDArray[np.int64], slots: NDArray[np.int64]) -> Matched:
        """The same by sorting packed keys: (event, slot) for the log, (queue, event, slot) for the frames."""
        size = len(offsets) - 1
        whose = np.repeat(np.arange(size, dtype=np.int64), np.diff(offsets))
        keys = (whose << 32) | slots
        keys.sort()
        slots = keys & 0xFFFFFFFF
        seats = self._seat[slots]
        if seats.all():
            starts = offsets
        else:
            durable = seats > 0
            starts = np.concatenate([[0], np.cumsum(durable)])[offsets]
            seats = seats[durable]
        queues = self._queue[slots]
        if size < 1 << 16 and len(self._queues) < 1 << 15:
            keys |= queues << 48
            keys.sort()
            slots = keys & 0xFFFFFFFF
            pairs = keys >> 32
            whose, queues = pairs & 0xFFFF, pairs >> 16
        else:
            order = np.argsort(queues, kind="stable")
            slots, whose, queues = slots[order], (keys >> 32)[order], queues[order]
            pairs = queues * size + whose
        cuts = np.flatnonzero(pairs[1:] != pairs[:-1]) + 1
        begins = np.concatenate([[0], cuts, [len(pairs)]])
        firsts = begins[:-1]
        holders = queues[firsts]
        ends = np.concatenate([[0], np.flatnonzero(holders[1:] != holders[:-1]) + 1, [len(holders)]]).tolist()
        segments = {self._queues[holders[a]]: (a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)}
        frames = Frames(
            whose[firsts].tolist(), begins.tolist(), self._number[slots].tolist(), self._seat[slots], segments
        )
        return Matched(frames, starts.astype(np.uint32), seats.astype(np.uint32))

    def check(self, slots: Iterable[int]) -> None:
        """Raise AssertionError if an invariant is broken. `slots` are those of all subscriptions."""
        known = set(slots)
        assert len(known) == len(self._index)
        assert all(slot in self._index for slot in known)
        assert known.isdisjoint(self._free)
        assert len(known) + len(self._free) == self._used
        counts: dict[int, int] = {}
        for slot in known:
            counts[int(self._queue[slot])] = counts.get(int(self._queue[slot]), 0) + 1
        assert counts == {place: number for place, number in self._places.values()}
        assert all(self._queues[place] is queue for queue, (place, _) in self._places.items())
