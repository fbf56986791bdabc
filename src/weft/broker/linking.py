"""A broker among its neighbours. Laws: an event that a neighbour must have is sent until it has stored it; a neighbour
is told what is wanted here; a broker tells nobody anything before it has all that it heard.

Events and answers go at once. What neighbours tell is learnt a few items a turn (`work`), so that nobody waits long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from weft.broker.announcing import Announcing
from weft.broker.completion import Change
from weft.broker.effects import Now, Relayed
from weft.broker.link import Neighbour
from weft.broker.link_events import LaneReader, Outgoing
from weft.broker.link_messages import MOST_EVENTS, MOST_HOPS, LinkEvent, LinkEvents, LinkLoose, LinkReach, LinkRelay
from weft.broker.link_rows import SETTINGS, read_role, removal
from weft.broker.reach import Reach
from weft.broker.seats import Matched
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.broker.tail import EventBatch
from weft.errors import LocalProtocolError
from weft.log.base import Offset, SeatId, SetMeta, State, StateChange
from weft.routing.table import Link, Role, Tell

_READ = 256  # events that are read for a neighbour at once
_FRAMES = 4  # control frames that a neighbour is sent in one turn
_FRAME_BYTES = 400_000  # of events in one frame, besides the last
_RETRY = 1_000_000  # microseconds after which rows are stored again when the log was full


class Linking:
    """The links of one broker, whatever their connections."""

    def __init__(self, state: BrokerState, announcing: Announcing, reach: Reach) -> None:
        self._state = state
        self._table = state.seats.table
        self._announcing = announcing
        self.reach = reach
        self._reader = LaneReader(state.log, state.tail, self._table, self._count_expired)
        self._turn = 0  # whose frames are learnt next
        self._settings = self._table.settings
        self._serial = 0  # of rows on their way into the log
        self.behind: dict[Link, None] = {}  # neighbours with more to send
        state.completion.connect(lambda: state.neighbours, self._mark)
        state.tells = self.tell

    def _count_expired(self, number: int) -> None:
        if number:
            self._state.counts["expired"] += number

    # -- neighbours -----------------------------------------------------------------------------------

    def attach(self, peer: Link, role: Role) -> None:
        """Make a neighbour, from the next event on. Raises LocalProtocolError."""
        state = self._state
        if not self.reach.name:
            raise LocalProtocolError("a broker with neighbours needs a name; give it one")
        if peer in state.neighbours:
            raise LocalProtocolError(f"{peer} is a neighbour already; detach it to attach it anew")
        way = self.reach.path(peer)
        if way:
            raise LocalProtocolError(f"links must form a tree, but {peer} is reached already: {' - '.join(way)}")
        tells = self._table.attach(peer, role)
        seat = state.new_seat()
        state.new_seat()  # the cold one
        neighbour = Neighbour(peer, role, seat, state.next, self._table, state.limits)
        state.neighbours[peer] = neighbour
        self.reach.attach(peer)
        self.tell(tells)
        state.draft.changes.append(neighbour.row())
        state.draft.urgent = True
        state.draft.rejected.append(lambda _, later: self._gone(neighbour, later))
        self._gossip()

    def restore(self, kept: State) -> None:
        """Take the neighbours back, and what they told, which the table has already. Only now is anything told."""
        state = self._state
        for seat, row in kept.links.items():
            peer = Link(row.peer)
            role, warm = read_role(row)
            neighbour = Neighbour(peer, role, seat, row.floor, self._table, state.limits)
            neighbour.warm, neighbour.peer_log = warm, row.peer_log
            neighbour.got = neighbour.received = row.got
            state.neighbours[peer] = neighbour
            state.next_seat = SeatId(max(state.next_seat, seat + 2))
            self.reach.attach(peer)
        for item in kept.heard.values():
            link = kept.links.get(item.link)
            if link is not None:
                state.neighbours[Link(link.peer)].receiver.restore(item.about, item.item, item.body)
        for peer, neighbour in state.neighbours.items():
            self.tell(self._table.attach(peer, neighbour.role))

    def detach(self, peer: Link, close: Callable[[Connection, str, str, Now], None]) -> None:
        """End a neighbour as soon as that is stored. Raises LocalProtocolError."""
        state = self._state
        neighbour = state.neighbours.get(peer)
        if neighbour is None or neighbour.leaving:
            raise LocalProtocolError(f"there is no neighbour {peer} to detach")
        neighbour.leaving = True
        state.draft.changes += removal(neighbour.seat, neighbour.receiver.hashes)
        state.draft.urgent = True

        def committed(now: Now) -> None:
            for connection in (neighbour.connection, neighbour.dialling):
                if connection is not None:
                    close(connection, "detached", f"{self.reach.name} has detached this link", now)
            self._gone(neighbour, now)

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            neighbour.leaving = False

        state.draft.committed.append(committed)
        state.draft.rejected.append(rejected)

    def _gone(self, neighbour: Neighbour, now: Now) -> None:  # noqa: ARG002
        """A neighbour is gone for good: nobody waits for it any more."""
        state = self._state
        if state.neighbours.get(neighbour.peer) is not neighbour:
            return
        del state.neighbours[neighbour.peer]
        state.dirty_lanes.pop(neighbour.lane, None)
        self.behind.pop(neighbour.peer, None)
        for change in neighbour.sender.give_up():
            change.completed(neighbour.peer)
        self.reach.detach(neighbour.peer)
        self.tell(self._table.detach(neighbour.peer))
        self._gossip()
        self._announcing.links_changed()

    def begun(self, neighbour: Neighbour, connection: Connection, peer_log: str, got: int, known: bool) -> None:
        """A session begins. `got` is what the neighbour has of our log, if it knows this log (`known`)."""
        state = self._state
        connection.link = neighbour
        if neighbour.peer_log != peer_log:
            if neighbour.peer_log:
                neighbour.former_logs.add(neighbour.peer_log)
            neighbour.peer_log, neighbour.got, neighbour.received = peer_log, 0, 0
            state.draft.changes.append(neighbour.row())
        neighbour.begin(connection)
        neighbour.lane.resume(got if known else 0)
        self.behind[neighbour.peer] = None
        neighbour.sender.begin()
        for have in neighbour.receiver.begin():
            state.out.send(connection.id, have)
        state.out.send(connection.id, LinkReach(self.reach.brokers(neighbour.peer)))
        self._announcing.links_changed()

    def ended(self, neighbour: Neighbour, reason: str) -> None:
        """A session is over."""
        neighbour.end(reason)
        self.behind.pop(neighbour.peer, None)
        self._announcing.links_changed()

    def _gossip(self, but: Link | None = None) -> None:
        """Tell neighbours which brokers there are."""
        for peer, neighbour in self._state.neighbours.items():
            if peer != but and neighbour.connection is not None:
                self._state.out.send(neighbour.connection.id, LinkReach(self.reach.brokers(peer)))

    def reached(self, neighbour: Neighbour, message: LinkReach) -> None:
        """A neighbour says which brokers are behind it. Raises RemoteProtocolError for a cycle."""
        before = self.reach.names()
        self.reach.learn(neighbour.peer, message.brokers)
        if before != self.reach.names():
            self._gossip(neighbour.peer)

    def relay(self, message: LinkRelay) -> bool:
        """Hand something on to the next broker on its way, or to the driver; whether that was possible."""
        if message.destination == self.reach.name:
            self._state.out.relayed(Relayed(message.source, message.body))
            return True
        hop = self.reach.next_hop(message.destination)
        neighbour = None if hop is None else self._state.neighbours[hop]
        if neighbour is None or neighbour.connection is None or message.hops >= MOST_HOPS:
            self._state.counts["relays dropped"] += 1
            return False
        on = LinkRelay(message.destination, message.source, message.body, message.hops + 1)
        self._state.out.send(neighbour.connection.id, on)
        return True

    # -- what is told ---------------------------------------------------------------------------------

    def tell(self, tells: Sequence[Tell]) -> None:
        """The table wants neighbours to know something."""
        state = self._state
        for tell in tells:
            neighbour = state.neighbours.get(tell.link)
            if neighbour is not None:
                neighbour.sender.tell(tell.update)
                state.completion.told(tell.link)

    def resync(self, neighbour: Neighbour) -> None:
        """Compare everything that a neighbour should know with what it holds."""
        self._state.counts["resyncs"] += 1
        neighbour.sender.resync()
        self.tell(self._table.attach(neighbour.peer, neighbour.role))

    def _mark(self, link: Link, change: Change) -> None:
        self._state.neighbours[link].sender.mark(change)

    # -- a turn of table work -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether there is more to do at once."""
        if not self._state.neighbours:
            return False
        if self._table.pending or any(each.receiver.busy for each in self._state.neighbours.values()):
            return True
        there = (self._state.neighbours[peer].connection for peer in self.behind)
        return any(each is not None and not each.paused for each in there)

    def work(self, steps: int) -> Neighbour | None:
        """Let the table learn a few items and continue what is pending. Returns a neighbour whose frame is learnt.

        Raises RemoteProtocolError, with the neighbour as its second argument.
        """
        neighbours = [each for each in self._state.neighbours.values() if each.receiver.busy]
        if self._table.pending:
            self.tell(self._table.step(steps))
            self._keep_settings()
        if not neighbours:
            return None
        self._turn += 1
        return neighbours[self._turn % len(neighbours)]

    def learn(self, neighbour: Neighbour) -> None:
        """Learn a few items of a neighbour. Raises RemoteProtocolError."""
        learnt = neighbour.receiver.work()
        self.tell(learnt.tells)
        rows, frame = learnt.rows, learnt.frame
        if frame is not None:
            source = neighbour.peer
            if frame.resynced and not neighbour.warm:
                neighbour.warm = True
                rows = [*rows, neighbour.row()]
                self.behind[neighbour.peer] = None

            def completed(_: Now) -> None:
                frame.complete = True
                neighbour.receiver.advance()

            self._state.completion.begin(source, completed, back=frame.back)

            def stored() -> None:
                frame.stored = True
                neighbour.receiver.advance()

            self._store(neighbour, rows, stored)
        elif rows:
            self._store(neighbour, rows, None)
        self._keep_settings()

    def _store(self, neighbour: Neighbour, rows: list[StateChange], done: Callable[[], None] | None) -> None:
        """Store rows; if the log is full, later. They are stored in order."""
        state = self._state
        self._serial += 1
        self._put(neighbour, self._serial, rows, done)
        if done is not None:
            state.draft.urgent = True

    def _put(self, neighbour: Neighbour, serial: int, rows: list[StateChange], done: Callable[[], None] | None) -> None:
        state = self._state
        state.draft.changes += rows

        def rejected(_: str, now: Now) -> None:
            if not neighbour.unstored:
                state.timers.add(now.monotonic + _RETRY, lambda later: self._again(neighbour, later))
            neighbour.unstored[serial] = rows, done

        if done is not None:
            state.draft.committed.append(lambda _: done())
        state.draft.rejected.append(rejected)

    def _again(self, neighbour: Neighbour, now: Now) -> None:  # noqa: ARG002
        unstored, neighbour.unstored = neighbour.unstored, {}
        if self._state.neighbours.get(neighbour.peer) is neighbour:
            for serial, (rows, done) in sorted(unstored.items(), key=lambda pair: pair[0]):
                self._put(neighbour, serial, rows, done)

    def _keep_settings(self) -> None:
        """A table of labels must find its spaces again after a restart."""
        if not self._table.codec.noted:
            return
        settings = self._table.settings
        if settings != self._settings:
            self._settings = settings
            self._state.draft.changes.append(SetMeta(SETTINGS, settings.encode()))
            self._state.draft.urgent = True

    # -- events ---------------------------------------------------------------------------------------

    def route(self, attributes: list[dict[str, Any]], foreign: Sequence[tuple[int, int, Link]]) -> dict[int, list[int]]:
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
            events = attributes if len(places) == len(attributes) else [attributes[place] for place in places]
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

    def _note_floor(self, neighbour: Neighbour) -> None:
        if neighbour.lane.floor > neighbour.lane.stored_floor:
            self._state.dirty_lanes[neighbour.lane] = None

    # -- the end of a call ----------------------------------------------------------------------------

    def flush(self, now: Now) -> None:
        """Send what may be sent."""
        state = self._state
        while True:
            state.completion.settle()
            for neighbour in state.neighbours.values():
                if neighbour.sender.overflown:
                    state.counts["control queues overflown"] += 1
                    self.resync(neighbour)
            if state.completion.finished:
                finished, state.completion.finished = state.completion.finished, []
                for change in finished:
                    change.done(now)
            for neighbour in state.neighbours.values():
                self._send(neighbour, now)
            if not state.completion.finished:
                return

    def _send(self, neighbour: Neighbour, now: Now) -> None:
        connection = neighbour.connection
        if connection is None:
            return
        out = self._state.out
        progress = neighbour.progress()
        if progress is not None:
            out.send(connection.id, progress)
        if connection.paused:
            return
        if neighbour.peer in self.behind:
            del self.behind[neighbour.peer]
            if neighbour.warm:
                self._pump(neighbour, connection, now)
        sent = 0
        for frame in neighbour.sender.frames(not self._table.pending, _FRAMES):
            out.send(connection.id, frame)
            sent += 1
        if sent >= _FRAMES:
            self.behind[neighbour.peer] = None

    def _pump(self, neighbour: Neighbour, connection: Connection, now: Now) -> None:
        """Send stored events, as far as the window allows."""
        lane, end = neighbour.lane, self._state.end
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
            events, after = self._reader.read(lane, end, now.utc, _READ)
            left -= max(1, len(events))
            lane.cursor = after
            assert after > before
            self._send_events(connection, events)
            for event in events:
                lane.sent(event)
        self._note_floor(neighbour)

    def _send_events(self, connection: Connection, events: Sequence[Outgoing]) -> None:
        frame: list[LinkEvent] = []
        size = 0
        for event in events:
            if frame and (size + event.size > _FRAME_BYTES or len(frame) >= MOST_EVENTS):
                self._state.out.send(connection.id, LinkEvents(tuple(frame)))
                frame, size = [], 0
            frame.append(LinkEvent(Offset(event.offset), *event.origin, Raw(event.head), event.payload))
            size += event.size
        if frame:
            self._state.out.send(connection.id, LinkEvents(tuple(frame)))


def with_seats(matched: Matched, routes: Mapping[int, Sequence[int]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The seats of local subscriptions and of links, as the log stores them."""
    if not routes:
        return matched.starts, matched.seats
    size = len(matched.starts) - 1
    places = np.concatenate([np.asarray(each, np.int64) for each in routes.values()])
    seats = np.repeat(np.array([*routes], np.uint32), [len(each) for each in routes.values()])
    whose = np.concatenate([np.repeat(np.arange(size), matched.starts[1:] - matched.starts[:-1]), places])
    order = np.argsort(whose, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=size))]).astype(np.uint32)
    return starts, np.concatenate([matched.seats, seats])[order].astype(np.uint32)
