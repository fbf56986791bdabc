"""Events to neighbours: which neighbour must have one, the window of each, and the reader that fills it.

Law: each event that a neighbour must have is sent until the neighbour has stored it, in the order of the log; an event
that it has stored is never sent again.

An event's number is its offset in this log. Which events a neighbour must have is decided when they come in, and stored
with them as the link's consumer id. While a neighbour is unsynced, its interest is unknown: every event that did not
come from it gets the link's unsynced id instead, and is routed when it is read.

A neighbour that stands for others may pass by events that one of those does not have yet. These leave the window, but
`acked_below` stays below them, and they are sent again in the next session.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from weft.broker.admission import Admission, expiry, has_list, read_head
from weft.broker.effects import Outbox
from weft.broker.event_places import BatchPlaces, EventPlaces, PlaceRun
from weft.broker.journal import Journal, TransientEvent
from weft.broker.limits import ClientLimits
from weft.broker.matcher import Matched
from weft.broker.recent import EventBatch, RecentEvents
from weft.broker.sessions import Connection
from weft.log.base import Offset, SeatId
from weft.model.door import PlainEvents
from weft.protocol.link_messages import MOST_EVENTS, LinkEvent, LinkEvents, LinkLoose, PlacedLinkEvents
from weft.routing.table import Link, RoutingTable

if TYPE_CHECKING:
    from weft.broker.links.neighbour import Neighbour

_READ = 256  # events that are read for a neighbour at once
_FRAME_BYTES = 400_000  # of events in one frame, besides the last
_SEEK = 50_000  # stored events whose consumer ids are examined in one turn


class NeighbourEvent(NamedTuple):
    """An event that a neighbour must have, and its origin."""

    offset: int
    origin: Sequence[int]  # session, epoch and sequence of its publisher
    head: bytes
    payload: bytes
    size: int  # bytes of head and payload
    batch_places: BatchPlaces | None = None  # of the events that were matched with it
    at: int = 0  # its position among them


class EventWindow:
    """The events to one neighbour. `cursor` is the first offset that it has not been sent in this session."""

    def __init__(self, link: Link, link_id: SeatId, cursor: Offset, window_events: int, window_bytes: int) -> None:
        self.link, self.link_id, self.unsynced_id = link, link_id, SeatId(link_id + 1)
        self.cursor = self.stored_below = cursor
        self._window_events, self._window_bytes = window_events, window_bytes
        self._in_flight: deque[tuple[int, int]] = deque()  # offsets and sizes of what is sent and not acknowledged
        self._size = 0  # bytes in flight
        self._passed_from: Offset | None = None  # the first event that was passed by and may not be stored
        self._passed_to = 0  # the last event that was passed by

    @property
    def acked_below(self) -> Offset:
        """Everything below is stored by the neighbour, or is not for it."""
        if self._passed_from is not None:
            return self._passed_from
        return Offset(self._in_flight[0][0]) if self._in_flight else self.cursor

    @property
    def in_flight(self) -> int:
        """How many events were sent and not acknowledged."""
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many more events may be sent."""
        return 0 if self._size >= self._window_bytes else max(0, self._window_events - len(self._in_flight))

    def begin_by(self, offset: Offset) -> None:
        """Begin with an offset, if not with an earlier one."""
        self.cursor, self.stored_below = Offset(min(self.cursor, offset)), Offset(min(self.stored_below, offset))

    def resume(self, got: int) -> None:
        """Begin a session with a neighbour that has stored everything up to an offset."""
        self.end()
        self.cursor = Offset(max(self.cursor, got + 1))

    def end(self) -> None:
        """End the session: what was not acknowledged is sent again in the next."""
        self.cursor = self.acked_below
        self._in_flight.clear()
        self._size = 0
        self._passed_from = None

    def add(self, events: list[NeighbourEvent]) -> int:
        """Note that events are sent, as far as they fit, but at least one; returns how many."""
        in_flight, size = self._in_flight, self._size
        for at, event in enumerate(events):
            if at and size >= self._window_bytes:
                break
            in_flight.append((event.offset, event.size))
            size += event.size
        else:
            at = len(events)
        self._size = size
        return at

    def ack(self, got: int) -> bool:
        """The neighbour has stored everything up to an offset; returns whether anything has changed."""
        before = len(self._in_flight), self._passed_from
        if self._passed_from is not None and self._passed_from <= got:
            self._passed_from = Offset(got + 1) if got < self._passed_to else None
        while self._in_flight and self._in_flight[0][0] <= got:
            self._size -= self._in_flight.popleft()[1]
        return (len(self._in_flight), self._passed_from) != before

    def pass_by(self, upto: int) -> bool:
        """The neighbour passes by events up to an offset: they leave the window; returns whether there were any."""
        before = len(self._in_flight)
        while self._in_flight and self._in_flight[0][0] <= upto:
            offset, size = self._in_flight.popleft()
            self._size -= size
            self._passed_from = Offset(offset) if self._passed_from is None else self._passed_from
            self._passed_to = offset
        return len(self._in_flight) < before

    def check(self, end: Offset) -> None:
        """Raise AssertionError if an invariant is broken."""
        offsets = [offset for offset, _ in self._in_flight]
        assert offsets == sorted(set(offsets))
        assert not offsets or offsets[-1] < self.cursor
        assert self._passed_from is None or self._passed_from <= self._passed_to
        assert self._passed_from is None or not offsets or self._passed_to < offsets[0]
        assert self.stored_below <= self.acked_below, "the low watermark of a link went back"
        assert self.cursor <= end
        assert self._size == sum(size for _, size in self._in_flight)
        assert len(self._in_flight) <= self._window_events, "more events are in flight than the window allows"
        assert not self._in_flight or self._size - self._in_flight[-1][1] < self._window_bytes, "and more bytes"


@dataclass(slots=True)
class EventForwarding:
    """The events of one broker on their way to its neighbours."""

    _journal: Journal
    _recent: RecentEvents
    _table: RoutingTable
    neighbours: Mapping[Link, Neighbour]
    due: dict[Link, None]  # neighbours to whom something may have to be sent when the turn ends
    _out: Outbox
    _limits: ClientLimits
    _counts: Counter[str]
    _decoder: Admission
    _places: EventPlaces
    _began: Offset  # events below it are older than this process
    behind: dict[Link, None] = field(default_factory=dict)  # neighbours with events to send
    too_far: list[Link] = field(default_factory=list)  # neighbours that are too far behind

    # -- new events -----------------------------------------------------------------------------------

    def route(
        self,
        attributes: PlainEvents,
        foreign: Sequence[tuple[int, int, Link]],
        placed: Sequence[PlaceRun],
        origins: NDArray[np.int64],
    ) -> tuple[dict[int, list[int]], BatchPlaces | None]:
        """Which events each neighbour must have, by its consumer id; by its unsynced id if that is not known yet. And
        the places of the events, if a neighbour wants them.
        """
        size, neighbours = len(attributes), self.neighbours
        if len(neighbours) == 1 and foreign and foreign[0] == (0, size, next(iter(neighbours))):
            return {}, None  # no event goes back to where it came from
        placed_here, travelling = self._places.of_batch(attributes, placed, origins)
        sources: dict[Link | None, list[int]] = {}
        at = 0
        for first, end, link in foreign:
            if at < first:
                sources.setdefault(None, []).extend(range(at, first))
            sources.setdefault(link, []).extend(range(first, end))
            at = end
        if at < size:
            sources.setdefault(None, []).extend(range(at, size))
        routes: dict[int, list[int]] = {}
        for source, places in sources.items():
            events = attributes if len(places) == size else PlainEvents(attributes[at] for at in places)
            known = placed_here
            if known is not None and len(places) < size:
                known = known._replace(keys=known.keys[places])
            for link, wanted in self._table.route_batch(events, source, known).items():
                neighbour = neighbours.get(link)
                if neighbour is not None and neighbour.synced:
                    found = wanted.tolist() if len(places) == size else [places[place] for place in wanted.tolist()]
                    routes.setdefault(neighbour.window.link_id, []).extend(found)
        for neighbour in neighbours.values():
            if not neighbour.synced:
                own = {*sources.get(neighbour.peer, ())}
                if len(own) < size:
                    routes[neighbour.window.unsynced_id] = [place for place in range(size) if place not in own]
        for found in routes.values() if len(sources) > 1 else ():
            found.sort()
        return routes, travelling

    def send_transient(self, events: Sequence[TransientEvent]) -> None:
        """Send events that are not durable to the neighbours that want them and are there."""
        for event in events:
            for link in sorted(self._table.route(event.attributes, event.source)):
                known = self.neighbours.get(link)
                connection = known.connection if known is not None and known.synced else None
                if known is not None and connection is not None and not connection.paused:
                    if not known.needs_lists and list in map(type, event.attributes.values()):
                        self._out.send(connection.id, known.announce_lists())
                    self._out.send(connection.id, LinkLoose(Raw(event.head), event.payload))
                else:
                    self._counts["loose events dropped"] += 1

    def stored(self, batch: EventBatch) -> None:
        """A batch is in the log."""
        routes = batch.routes or {}
        for neighbour in self.neighbours.values():
            window = neighbour.window
            if window.link_id in routes or window.unsynced_id in routes:
                if neighbour.connection is not None:
                    self.behind[neighbour.peer] = None
            else:
                if window.cursor == batch.first:
                    window.cursor = batch.end
                self._note_progress(window)
            if self._journal.end - window.acked_below > self._limits.link_lag:
                self.too_far.append(neighbour.peer)

    def acknowledged(self, neighbour: Neighbour, got: int) -> None:
        """A neighbour has stored our events up to an offset."""
        if neighbour.window.ack(got):
            self._note_progress(neighbour.window)
            self.behind[neighbour.peer] = None

    def _note_progress(self, window: EventWindow) -> None:
        if window.acked_below > window.stored_below:
            self._journal.moved_windows[window] = None

    # -- sending --------------------------------------------------------------------------------------

    def pump(self, neighbour: Neighbour, connection: Connection) -> None:
        """Send stored events, as far as the window allows."""
        journal, window = self._journal, neighbour.window
        barrier = None if neighbour.sender.idle else neighbour.sender.barrier  # a relayed message that waits for events
        end = journal.end if barrier is None else min(journal.end, barrier)
        left = self._limits.turn
        while window.cursor < end and (room := window.room):
            if left <= 0:
                self.behind[neighbour.peer] = None
                break
            if window.cursor < journal.first:
                self._counts["link gaps"] += 1
                window.cursor = journal.first
                continue
            events, after = self._read(window, end, min(_READ, room))
            fits = window.add(events)
            if fits < len(events):
                events, after = events[:fits], Offset(events[fits].offset)
            left -= max(1, len(events))
            assert after > window.cursor
            window.cursor = after
            self._counts["link events sent"] += len(events)
            if not neighbour.needs_lists and self._have_lists(events):
                self._out.send(connection.id, neighbour.announce_lists())
            self._send(neighbour, connection, events)
        self._note_progress(window)

    def _have_lists(self, events: Sequence[NeighbourEvent]) -> bool:
        """Whether any of some events has a list. They are read only if this process, or one before it, has seen one."""
        if not events or (not self._decoder.lists and events[0].offset >= self._began):
            return False
        return any(has_list(event.head) for event in events)

    def _send(self, neighbour: Neighbour, connection: Connection, events: Sequence[NeighbourEvent]) -> None:
        """Send events in frames. All events of a frame have places that the neighbour wants, or none has."""
        wanted = neighbour.places_wanted
        frame: list[NeighbourEvent] = []
        size = 0
        with_places = False
        for event in events:
            placed = event.batch_places
            has_place = placed is not None and placed.space == wanted
            is_full = size + event.size > _FRAME_BYTES or len(frame) >= MOST_EVENTS
            if frame and (is_full or has_place is not with_places):
                self._out.send(connection.id, _frame(frame, with_places))
                frame, size = [], 0
            frame.append(event)
            size += event.size
            with_places = has_place
        if frame:
            self._out.send(connection.id, _frame(frame, with_places))

    # -- reading --------------------------------------------------------------------------------------

    def _read(self, window: EventWindow, end: Offset, most: int) -> tuple[list[NeighbourEvent], Offset]:
        """Up to `most` events from the cursor on, and where to go on. Only stored events are read."""
        if window.cursor >= self._recent.first:
            events, unrouted, after, may_expire = self._from_recent(window, end, most)
        else:
            events, unrouted, after = self._from_log(window, end, most)
            may_expire = True
        if unrouted:
            attributes = [read_head(events[place].head).attributes for place in unrouted]
            wanted = self._table.route_batch(attributes, None).get(window.link, np.zeros(0, np.intp))
            unwanted = {*unrouted} - {unrouted[at] for at in wanted.tolist()}
            events = [event for place, event in enumerate(events) if place not in unwanted]
        if may_expire:
            alive = [event for event in events if expiry(event.head) > self._journal.at]
            if len(alive) < len(events):
                self._counts["expired"] += len(events) - len(alive)
            events = alive
        return events, Offset(min(after, end))

    def _from_recent(
        self, window: EventWindow, end: Offset, most: int
    ) -> tuple[list[NeighbourEvent], list[int], Offset, bool]:
        """Events in memory, which of them are not routed yet, where to go on, and whether any may expire."""
        found: list[NeighbourEvent] = []
        unrouted: list[int] = []
        may_expire = False
        for batch in self._recent.since(window.cursor):
            if batch.routes is None or batch.origins is None:
                continue
            for consumer in (window.link_id, window.unsynced_id):
                places = batch.routes.get(consumer, ())
                if not places:
                    continue
                places = places[
                    bisect_left(places, window.cursor - batch.first) : bisect_left(places, end - batch.first)
                ]
                if not places:
                    continue  # what follows must wait for a relayed message
                after = Offset(batch.first + places[most - len(found)]) if len(found) + len(places) > most else None
                places = places[: most - len(found)]
                if consumer == window.unsynced_id:
                    unrouted += range(len(found), len(found) + len(places))
                may_expire = may_expire or batch.expires is not None
                first, heads, payloads, sizes = batch.first, batch.heads, batch.payloads, batch.sizes
                placed = batch.places
                for at, origin in zip(places, batch.origins[places].tolist(), strict=True):
                    found.append(NeighbourEvent(first + at, origin, heads[at], payloads[at], sizes[at], placed, at))
                if after is not None:
                    return found, unrouted, after, may_expire
        return found, unrouted, end, may_expire

    def _from_log(self, window: EventWindow, end: Offset, most: int) -> tuple[list[NeighbourEvent], list[int], Offset]:
        """The same from the log, which may be ahead of the broker."""
        consumers = np.array([window.link_id, window.unsynced_id], np.uint32)
        at = self._journal.log.seek(consumers, window.cursor, _SEEK)
        found: list[NeighbourEvent] = []
        unrouted: list[int] = []
        if at >= self._recent.first:
            return found, unrouted, at
        after = at
        for group in self._journal.log.read(at, most):
            events = group.events
            mine = np.flatnonzero(np.isin(events.seats, consumers))
            whose = np.searchsorted(events.starts, mine, side="right") - 1
            for place, consumer in zip(whose.tolist(), events.seats[mine].tolist(), strict=True):
                if events.first + place >= end:
                    continue
                if consumer == window.unsynced_id:
                    unrouted.append(len(found))
                head, payload, origin = events.heads[place], events.payloads[place], events.origins[place].tolist()
                found.append(NeighbourEvent(events.first + place, origin, head, payload, len(head) + len(payload)))
            after = Offset(events.first + len(events))
        return found, unrouted, after


def _frame(events: Sequence[NeighbourEvent], with_places: bool) -> LinkEvents:
    """Some events, at least one, as a frame; with their places, all of one space."""
    made: list[LinkEvent] = []
    for event in events:
        session, epoch, sequence = event.origin
        made.append(LinkEvent(Offset(event.offset), session, epoch, sequence, Raw(event.head), event.payload))
    first, last = events[0].batch_places, events[-1].batch_places
    if not with_places or first is None:
        return LinkEvents(tuple(made))
    if first is last and events[-1].at - events[0].at == len(events) - 1:  # one after the other in their batch
        places = first.data[events[0].at * first.width : (events[-1].at + 1) * first.width]
    else:
        places = b"".join([each.batch_places.of(each.at) for each in events if each.batch_places is not None])
    return PlacedLinkEvents(tuple(made), space=first.space, places=places)


def with_links(matched: Matched, routes: Mapping[int, Sequence[int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The consumer ids of local subscriptions and of links, as the log stores them."""
    if not routes:
        return matched.starts, matched.consumers
    size = len(matched.starts) - 1
    if len(routes) == 1 and not len(matched.consumers):
        ((consumer, only),) = routes.items()
        counts = np.zeros(size + 1, np.uint32)
        counts[np.asarray(only, np.int64) + 1] = 1
        return counts.cumsum(dtype=np.uint32), np.full(len(only), consumer, np.uint32)
    places = np.concatenate([np.asarray(each, np.int64) for each in routes.values()])
    links = np.repeat(np.array([*routes], np.uint32), [len(each) for each in routes.values()])
    whose = np.concatenate([np.repeat(np.arange(size), matched.starts[1:] - matched.starts[:-1]), places])
    order = np.argsort(whose, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=size))]).astype(np.uint32)
    return starts, np.concatenate([matched.consumers, links])[order].astype(np.uint32)
