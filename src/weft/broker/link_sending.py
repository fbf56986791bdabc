"""Events to neighbours: who must have one, and sending it. Law: who must have an event is decided when it comes in, and
stored with it; for a cold neighbour, when it has said what it wants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from weft.broker.link import Neighbour
from weft.broker.link_events import LaneReader, NeighbourEvent
from weft.broker.link_messages import MOST_EVENTS, LinkEvent, LinkEvents, LinkLoose
from weft.broker.seats import Matched
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.broker.tail import EventBatch
from weft.log.base import Offset
from weft.model.door import PlainEvents
from weft.routing.table import Link

_READ = 256  # events that are read for a neighbour at once
_FRAME_BYTES = 400_000  # of events in one frame, besides the last


class LinkSending:
    """The events of one broker on their way to its neighbours."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._table = state.seats.table
        self._reader = LaneReader(state.log, state.tail, self._table, self._count_expired)
        self.behind: dict[Link, None] = {}  # neighbours with more to send

    def _count_expired(self, number: int) -> None:
        if number:
            self._state.counts["expired"] += number

    def route(self, attributes: PlainEvents, foreign: Sequence[tuple[int, int, Link]]) -> dict[int, list[int]]:
        """Which events each neighbour must have, by its seat; by its cold seat if that is not known yet."""
        everything = range(len(attributes))
        sources: dict[Link | None, list[int]] = {}
        at = 0
        for first, end, link in foreign:
            if at < first:
                sources.setdefault(None, []).extend(range(at, first))
            sources.setdefault(link, []).extend(range(first, end))
            at = end
        if at < len(attributes):
            sources.setdefault(None, []).extend(range(at, len(attributes)))
        routes: dict[int, list[int]] = {}
        for source, places in sources.items():
            events = attributes if len(places) == len(attributes) else PlainEvents(attributes[at] for at in places)
            for link, wanted in self._table.route_batch(events, source).items():
                neighbour = self._state.neighbours.get(link)
                if neighbour is not None and neighbour.warm:
                    routes.setdefault(neighbour.seat, []).extend(places[place] for place in wanted.tolist())
        for neighbour in self._state.neighbours.values():
            if not neighbour.warm:
                own = {*sources.get(neighbour.peer, ())}
                routes[neighbour.lane.cold_seat] = [place for place in everything if place not in own]
        return {seat: sorted(places) for seat, places in routes.items() if places}

    def loose(self, events: Sequence[tuple[dict[str, Any], bytes, bytes, Link | None]]) -> None:
        """Send events that are not durable to whoever wants them and is there."""
        for attributes, head, payload, source in events:
            for link in sorted(self._table.route(attributes, source)):
                neighbour = self._state.neighbours.get(link)
                connection = None if neighbour is None else neighbour.connection
                if neighbour is not None and connection is not None and neighbour.warm and not connection.paused:
                    self._state.out.send(connection.id, LinkLoose(Raw(head), payload))
                else:
                    self._state.counts["loose events dropped"] += 1

    def stored(self, batch: EventBatch) -> None:
        """A batch is in the log."""
        routes = batch.routes or {}
        for neighbour in self._state.neighbours.values():
            lane = neighbour.lane
            if lane.seat in routes or lane.cold_seat in routes:
                if neighbour.connection is not None:
                    self.behind[neighbour.peer] = None
            else:
                lane.skip(batch.first, batch.end)
                self._note_floor(neighbour)
            if self._state.end - lane.floor > self._state.limits.link_lag:
                self._state.too_far.append(neighbour.peer)

    def acknowledged(self, neighbour: Neighbour, got: int) -> None:
        """A neighbour has stored our events up to an offset."""
        if neighbour.lane.ack(got):
            self._note_floor(neighbour)
            self.behind[neighbour.peer] = None

    def dealt_with(self, neighbour: Neighbour, upto: int) -> None:
        """A neighbour needs no more of our events up to an offset in this session, but has not stored all of them."""
        if neighbour.lane.pass_by(upto):
            self.behind[neighbour.peer] = None

    def _note_floor(self, neighbour: Neighbour) -> None:
        if neighbour.lane.floor > neighbour.lane.stored_floor:
            self._state.dirty_lanes[neighbour.lane] = None

    def pump(self, neighbour: Neighbour, connection: Connection) -> None:
        """Send stored events, as far as the window allows."""
        lane, barrier = neighbour.lane, neighbour.sender.barrier
        end = self._state.end if barrier is None else min(self._state.end, barrier)
        left = self._state.limits.turn
        while lane.cursor < end and lane.has_room:
            if left <= 0:
                self.behind[neighbour.peer] = None
                break
            if lane.cursor < self._state.log_first:
                self._state.counts["link gaps"] += 1
                lane.cursor = self._state.log_first
                continue
            before = lane.cursor
            events, after = self._reader.read(lane, end, self._state.at, min(_READ, lane.room))
            fits = lane.fitting(events)
            if fits < len(events):
                events, after = events[:fits], Offset(events[fits].offset)
            left -= max(1, len(events))
            lane.cursor = after
            assert after > before
            self._state.counts["link events sent"] += len(events)
            self._send_events(connection, events)
            for event in events:
                lane.sent(event)
        self._note_floor(neighbour)

    def _send_events(self, connection: Connection, events: Sequence[NeighbourEvent]) -> None:
        frame: list[LinkEvent] = []
        size = 0
        for event in events:
            if frame and (size + event.size > _FRAME_BYTES or len(frame) >= MOST_EVENTS):
                self._state.out.send(connection.id, LinkEvents(tuple(frame)))
                frame, size = [], 0
            session, epoch, sequence = event.origin
            frame.append(LinkEvent(Offset(event.offset), session, epoch, sequence, Raw(event.head), event.payload))
            size += event.size
        if frame:
            self._state.out.send(connection.id, LinkEvents(tuple(frame)))


def with_seats(matched: Matched, routes: Mapping[int, Sequence[int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The seats of local subscriptions and of links, as the log stores them."""
    if not routes:
        return matched.starts, matched.seats
    size = len(matched.starts) - 1
    if len(routes) == 1 and not len(matched.seats):
        ((seat, only),) = routes.items()
        counts = np.zeros(size + 1, np.uint32)
        counts[np.asarray(only, np.int64) + 1] = 1
        return counts.cumsum(dtype=np.uint32), np.full(len(only), seat, np.uint32)
    places = np.concatenate([np.asarray(each, np.int64) for each in routes.values()])
    seats = np.repeat(np.array([*routes], np.uint32), [len(each) for each in routes.values()])
    whose = np.concatenate([np.repeat(np.arange(size), matched.starts[1:] - matched.starts[:-1]), places])
    order = np.argsort(whose, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=size))]).astype(np.uint32)
    return starts, np.concatenate([matched.seats, seats])[order].astype(np.uint32)
