"""Durable events on their way to one neighbour. Laws: each event that the neighbour must have is sent until it has
stored it, in the order of the log; one that it has stored is never sent again.

A neighbour that stands for others may pass events by that one of those does not have yet: they leave the window, but
the floor stays below them, and they are sent again in the next session.

An event's number is its offset in this log. Which events a neighbour must have is decided when they come in, and stored
with them as the neighbour's seat. While a neighbour is cold, what it wants is unknown: every event that is not its own
gets its cold seat instead, and is routed when it is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from weft.broker.admission import expiry, read_head
from weft.broker.tail import EventBatch, Tail
from weft.log.base import Log, Offset, SeatId
from weft.routing.table import Link, RoutingTable

_SEEK = 50_000  # stored events whose seats are looked at in one turn


class NeighbourEvent(NamedTuple):
    """An event that a neighbour must have, and its origin."""

    offset: int
    origin: Sequence[int]  # session, epoch and sequence of its publisher
    head: bytes
    payload: bytes
    size: int  # bytes of head and payload


class EventLane:
    """The events to one neighbour. `cursor` is the first offset that it has not been sent in this session."""

    def __init__(self, link: Link, seat: SeatId, cursor: Offset, window_events: int, window_bytes: int) -> None:
        self.link = link
        self.seat = seat
        self.cold_seat = SeatId(seat + 1)
        self.cursor = self.stored_floor = cursor
        self._window_events, self._window_bytes = window_events, window_bytes
        self._flight: deque[tuple[int, int]] = deque()  # offsets and sizes of what is sent and not acknowledged
        self._size = 0
        self._kept: Offset | None = None  # the first event that was passed by and may not be stored
        self._passed = 0  # the last event that was passed by

    @property
    def floor(self) -> Offset:
        """Everything below is stored by the neighbour, or is not for it."""
        if self._kept is not None:
            return self._kept
        return Offset(self._flight[0][0]) if self._flight else self.cursor

    @property
    def in_flight(self) -> int:
        """How many events were sent and not acknowledged."""
        return len(self._flight)

    @property
    def has_room(self) -> bool:
        """Whether more may be sent."""
        return len(self._flight) < self._window_events and self._size < self._window_bytes

    @property
    def room(self) -> int:
        """How many more events may be sent."""
        return max(0, self._window_events - len(self._flight))

    def fitting(self, events: list[NeighbourEvent]) -> int:
        """How many of some events fit the window: at least one if there is room, whatever its size."""
        size = self._size
        for at, event in enumerate(events):
            if at and size >= self._window_bytes:
                return at
            size += event.size
        return len(events)

    def resume(self, got: int) -> None:
        """A session begins with a neighbour that has stored everything up to an offset."""
        self.end()
        self.cursor = Offset(max(self.cursor, got + 1))

    def end(self) -> None:
        """There is no session: what was not acknowledged is sent again in the next."""
        self.cursor = self.floor
        self._flight.clear()
        self._size = 0
        self._kept = None

    def sent(self, event: NeighbourEvent) -> None:
        """An event was sent."""
        self._flight.append((event.offset, event.size))
        self._size += event.size

    def ack(self, got: int) -> bool:
        """The neighbour has stored everything up to an offset; whether that is new."""
        before = len(self._flight), self._kept
        if self._kept is not None and self._kept <= got:
            self._kept = Offset(got + 1) if got < self._passed else None
        while self._flight and self._flight[0][0] <= got:
            self._size -= self._flight.popleft()[1]
        return (len(self._flight), self._kept) != before

    def pass_by(self, upto: int) -> bool:
        """Events up to an offset leave the window and are kept; whether there are any."""
        before = len(self._flight)
        while self._flight and self._flight[0][0] <= upto:
            offset, size = self._flight.popleft()
            self._size -= size
            self._kept, self._passed = Offset(offset) if self._kept is None else self._kept, offset
        return len(self._flight) < before

    def skip(self, first: Offset, end: Offset) -> None:
        """Events from `first` to before `end` are not for this neighbour."""
        if self.cursor == first:
            self.cursor = end

    def check(self, end: Offset) -> None:
        """Raise AssertionError if an invariant is broken."""
        offsets = [offset for offset, _ in self._flight]
        assert offsets == sorted(set(offsets))
        assert not offsets or offsets[-1] < self.cursor
        assert self._kept is None or self._kept <= self._passed
        assert self._kept is None or not offsets or self._passed < offsets[0]
        assert self.stored_floor <= self.floor, "the floor of a link went back"
        assert self.cursor <= end
        assert self._size == sum(size for _, size in self._flight)
        assert len(self._flight) <= self._window_events, "more events are on their way than the window allows"
        assert not self._flight or self._size - self._flight[-1][1] < self._window_bytes, "and more bytes"


class LaneReader:
    """Reads the events of lanes, from memory or from the log."""

    def __init__(self, log: Log, tail: Tail, table: RoutingTable, expired: Callable[[int], None]) -> None:
        self._log = log
        self._tail = tail
        self._table = table
        self._expired = expired

    def read(self, lane: EventLane, end: Offset, utc: int, most: int) -> tuple[list[NeighbourEvent], Offset]:
        """Up to `most` events from the cursor on, and where to go on. Only stored events are read."""
        if lane.cursor >= self._tail.first:
            found, after = self._from_tail(lane, end, most)
        else:
            found, after = self._from_log(lane, most)
            found = [each for each in found if each[0].offset < end]  # the log may be ahead of the broker
        events = [event for event, _ in found]
        cold = [place for place, (_, unrouted) in enumerate(found) if unrouted]
        if cold:
            attributes = [read_head(events[place].head).attributes for place in cold]
            wanted = self._table.route_batch(attributes, None).get(lane.link, np.zeros(0, np.intp))
            unwanted = {*cold} - {cold[at] for at in wanted.tolist()}
            events = [event for place, event in enumerate(events) if place not in unwanted]
        alive = [event for event in events if expiry(event.head) > utc]
        self._expired(len(events) - len(alive))
        return alive, Offset(min(after, end))

    def _from_tail(self, lane: EventLane, end: Offset, most: int) -> tuple[list[tuple[NeighbourEvent, bool]], Offset]:
        found: list[tuple[NeighbourEvent, bool]] = []
        for batch in self._tail.since(lane.cursor):
            if batch.routes is None or batch.origins is None:
                continue
            for seat in (lane.seat, lane.cold_seat):
                places = batch.routes.get(seat, ())
                places = places[bisect_left(places, lane.cursor - batch.first) :]
                if len(found) + len(places) > most:
                    after = Offset(batch.first + places[most - len(found)])
                    return found + _neighbour_events(batch, places[: most - len(found)], seat == lane.cold_seat), after
                found += _neighbour_events(batch, places, seat == lane.cold_seat)
        return found, end

    def _from_log(self, lane: EventLane, most: int) -> tuple[list[tuple[NeighbourEvent, bool]], Offset]:
        seats = np.array([lane.seat, lane.cold_seat], np.uint32)
        at = self._log.seek(seats, lane.cursor, _SEEK)
        found: list[tuple[NeighbourEvent, bool]] = []
        after = at
        if at >= self._tail.first:
            return found, at
        for group in self._log.read(at, most):
            events = group.events
            mine = np.flatnonzero(np.isin(events.seats, seats))
            whose = np.searchsorted(events.starts, mine, side="right") - 1
            for place, seat in zip(whose.tolist(), events.seats[mine].tolist(), strict=True):
                origin = events.origins[place].tolist()
                head, payload = events.heads[place], events.payloads[place]
                event = NeighbourEvent(events.first + place, origin, head, payload, len(head) + len(payload))
                found.append((event, seat == lane.cold_seat))
            after = Offset(events.first + len(events))
        return found, after


def _neighbour_events(batch: EventBatch, places: Sequence[int], cold: bool) -> list[tuple[NeighbourEvent, bool]]:
    """Some events of a batch, which knows their origins."""
    if not places or batch.origins is None:
        return []
    first, heads, payloads, sizes = batch.first, batch.heads, batch.payloads, batch.sizes
    origins = batch.origins[places].tolist()
    return [
        (NeighbourEvent(first + at, origin, heads[at], payloads[at], sizes[at]), cold)
        for at, origin in zip(places, origins, strict=True)
    ]
