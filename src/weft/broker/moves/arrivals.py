"""The new broker's side of a move: copies of sessions, what they inherit, and what they collect meanwhile.

Deliveries are numbered by this broker's log. So an inherited event is stored here as a *copy*: only the queues of its
session get it, and its origin has a negative session, by which other readers of the log know that it is none of their
events. Until everything is inherited, new events are collected under consumer ids of their own. Then those that the
old broker did not have are *poured* behind the inherited ones, as copies too; and with the last of them, in the same
group, the subscriptions change to the consumer ids of their queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from weft.broker.advertisements import ClientAdvertisements
from weft.broker.after_commit import CopiesStored, MoveStep, MoveStored
from weft.broker.dead_letters import letter_body
from weft.broker.effects import Now
from weft.broker.event_copies import CopiedEvent, write_copies
from weft.broker.ingest import Ingest
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.moves.departures import Departures, Post, PullPhase
from weft.broker.moves.states import MoveSide, MoveState
from weft.broker.parts import BrokerParts
from weft.broker.profiles.moved_profiles import MovedProfiles, meetings_of
from weft.broker.queue import Queue, member_row, queue_row
from weft.broker.recent import EventBatch
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.broker.subscriptions import ClientSubscriptions
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.log.base import (
    NEVER,
    AdvertRow,
    DeadRow,
    MoveRow,
    Offset,
    Put,
    Remove,
    SeatId,
    SessionId,
    SessionRow,
    State,
    StateChange,
    SubRow,
)
from weft.model.rate import split_rate
from weft.protocol.messages import Hello, QueueNumber, SubNumber, unpack
from weft.protocol.move_messages import (
    InheritedEvent,
    InheritedLetter,
    MoveChunk,
    MoveClaim,
    MovedSession,
    MoveEnd,
    MoveFinish,
    MoveFlush,
    MovePull,
    PublisherPosition,
    ShownChunk,
)

if TYPE_CHECKING:
    from weft.broker.hello import ClientConnections

_POURED = 2_000  # collected events that are looked at for one group
_GIVE_UP = "the session has gone on at another broker; try again"

_encode = msgspec.msgpack.Encoder().encode


class WaitingClient(NamedTuple):
    """A client that is welcome when its session has come."""

    connection: Connection
    hello: Hello


class _ArrivalBody(msgspec.Struct, frozen=True, array_like=True):
    state: str  # of the session
    log_id: str
    version: int
    base: int  # the first of the consumer ids under which it collects, by the numbers of its subscriptions
    phase: int
    seen: tuple[PublisherPosition, ...]
    is_all_seen: bool
    lost: bool  # the old broker's log is lost
    late: tuple[int, int] | None = None  # phase and place from which on the rest comes late
    own: tuple[tuple[int, int, int, int], ...] = ()  # publisher and subscription, epoch and sequence
    noted: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Arrival:
    """A session that comes from another broker."""

    session: Session
    peer: str
    epoch: int  # under which it comes
    log_id: str  # of the old broker
    start: Offset
    version: int
    base: int
    collector: Queue
    state: MoveState = MoveState.ARRIVING
    phase: PullPhase = PullPhase.EVENTS
    got: int = 0  # in its phase
    poured: Offset = field(default=Offset(0))  # what was collected below is done with
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    is_all_seen: bool = True  # False: the old broker has more of that
    lost: bool = False
    client: WaitingClient | None = None  # until it is welcome
    stored: bool = False  # its state is
    busy: bool = False  # something of it is on its way into the log
    removing: bool = False
    late: tuple[int, int] | None = None  # it goes on without the old broker; what that has comes late, from here on
    own: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # see `_note_own`
    noted: Offset = field(default=Offset(0))  # what is stored below is in `own`
    answered: bool = False  # the old broker has given up what is claimed
    delay: int = 0  # microseconds until it repeats what it waits for
    serial: int = 0
    heard: int = 0  # monotonic: the last word of the old broker
    patience: int | None = None  # microseconds without a word after which it goes on without that

    def row(self, **changed: object) -> MoveRow:
        """Its row in the log, with some fields as they will be."""
        state, phase = changed.get("state", self.state), changed.get("phase", self.phase)
        assert isinstance(state, MoveState)
        assert isinstance(phase, PullPhase)
        seen = tuple((publisher, *last) for publisher, last in sorted(self.seen.items()))
        known = self.log_id, self.version, self.base, phase.value, seen, self.is_all_seen, self.lost
        own = tuple((*whose, *first) for whose, first in sorted(self.own.items()))
        late = changed.get("late", self.late), own, int(self.noted)
        body = _ArrivalBody(state.value, *known, *late)  # type: ignore[arg-type]
        poured, got = changed.get("poured", self.poured), changed.get("got", self.got)
        key = self.session.id, MoveSide.ARRIVAL, self.epoch
        return MoveRow(*key, self.peer, self.start, poured, got, _encode(body))  # type: ignore[arg-type]

    @property
    def claims(self) -> bool:
        """Whether it is at home, and what the old broker has is claimed."""
        return self.late is not None and self.state is MoveState.HOME

    def collecting(self) -> Iterator[tuple[ClientSubscription, SeatId]]:
        """Its subscriptions, each with the consumer id under which it collects."""
        for at, (_, sub) in enumerate(sorted(self.session.subs.items())):
            yield sub, SeatId(self.base + at)


def new_collector(session: SessionId, cursor: Offset) -> Queue:
    """A queue that holds what a session collects: nobody consumes it, and it never loses anything."""
    queue = Queue(SeatId(0), QueueNumber(0), cursor=cursor, session=session)
    queue.stored = True
    return queue


class Arrivals:
    """Installs copies of sessions, and fills them."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it hands on to
        self,
        parts: BrokerParts,
        ingest: Ingest,
        links: Links,
        subscriptions: ClientSubscriptions,
        adverts: ClientAdvertisements,
        clients: ClientConnections,
        departures: Departures,
        post: Post,
    ) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._matcher, self._access, self._counts, self._limits = (
            parts.matcher,
            parts.access,
            parts.counts,
            parts.limits,
        )
        self._completion = parts.completion
        self._ingest, self._links, self._subscriptions, self._adverts = ingest, links, subscriptions, adverts
        self._clients, self._departures, self._post = clients, departures, post
        self.finishing: dict[tuple[SessionId, int], Arrival] = {}  # at home; the old broker is to forget them
        self.arriving: dict[SessionId, Arrival] = {}
        self.profiles: MovedProfiles
        self.came: dict[SessionId, int] = {}  # monotonic: when sessions have come, the last time

    # -- the copy ---------------------------------------------------------------------------------------

    def check(self, parts: Sequence[MovedSession]) -> tuple[dict[SubNumber, Filter], dict[int, Filter]]:
        """The filters of a session, if this broker may have it. Raises what `REFUSALS` lists."""
        limits, grant = self._limits, self._access.of(parts[0].owner)
        subs = [sub for part in parts for sub in part.subscriptions]
        adverts = [advert for part in parts for advert in part.adverts]
        queues = [queue for part in parts for queue in part.queues]
        for what, found, most in (
            ("subscriptions", subs, limits.subscriptions),
            ("queues", queues, limits.queues),
            ("advertisements", adverts, limits.adverts),
        ):
            if len(found) > most:
                raise RefusalError("limit", f"a session has at most {most:,} {what} here")
        if not {sub.queue for sub in subs} <= {queue.number for queue in queues}:
            raise RefusalError("queue", "a subscription of the session has no queue")
        wanted = {sub.number: self._subscriptions.check_filter(parts[0].owner, sub.filter) for sub in subs}
        promised: dict[int, Filter] = {}
        for number, text in adverts:
            promised[number] = self._subscriptions.parse(text)
            grant.check_advertise(promised[number])
        self.profiles.check(parts)
        return wanted, promised

    def install(self, parts: Sequence[MovedSession], peer: str, client: WaitingClient | None, now: Now) -> None:
        """Store a copy of a session, which collects events from now on. Raises what `REFUSALS` lists."""
        wanted, promised = self.check(parts)
        self._ingest.match(now)
        told, journal, sessions = parts[0], self._journal, self._sessions
        session = Session(told.session, told.name, told.owner, sessions.bucket_of(told.owner))
        session.epoch, session.keep = told.epoch, told.keep
        sessions.by_id[session.id] = sessions.by_name[session.name] = session
        rows: list[StateChange] = [Put(session.row())]
        for each in (queue for part in parts for queue in part.queues):
            queue = Queue(
                journal.new_consumer(),
                each.number,
                cursor=journal.next,
                ordered=each.ordered,
                session=session.id,
                lag=min(each.lag, self._limits.lag),
                disconnect=each.disconnect,
            )
            queue.recheck = queue.again_below = Offset(NEVER)  # the client may have had what is inherited
            if each.gap:
                queue.gap = journal.next, journal.next
            session.queues[each.number] = queue
            self._queues.all[queue] = None
            rows.append(Put(queue_row(queue, journal.end)))
        collector = new_collector(session.id, journal.next)
        subs = sorted((sub for part in parts for sub in part.subscriptions), key=lambda sub: sub.number)
        meetings = meetings_of(parts)
        for sub in subs:
            queue, meeting = session.queues[sub.queue], meetings.get(sub.number, "")  # type: ignore[assignment]
            seat = journal.new_consumer()
            member = ClientSubscription(sub.number, sub.filter, SubId(0), seat, queue, journal.next, profiles=meeting)
            assert member.consumer_id is not None
            queue.members[member.consumer_id] = sub.number
            session.subs[sub.number] = member
            rows.append(Put(member_row(session.id, member)))
        base = int(journal.new_consumer())
        for _ in subs[1:]:
            journal.new_consumer()
        arrival = Arrival(session, peer, told.epoch, told.log_id, told.start, told.version, base, collector)
        arrival.client, arrival.poured, arrival.busy = client, journal.next, True
        session.arrival = self.arriving[session.id] = arrival
        for member, seat in arrival.collecting():
            collector.members[seat] = member.number
            member.slot, tells = self._matcher.add(wanted[member.number], seat, collector, member.number)
            self._matcher.limit(member.slot, split_rate(member.text)[1], journal.at, full=False)
            self._links.tell(tells)
        for number, text in (advert for part in parts for advert in part.adverts):
            stored = self._adverts.install(session, number, text, promised[number])
            rows.append(Put(AdvertRow(stored, session.id, text)))
        rows += self.profiles.install(session, parts)
        rows.append(Put(arrival.row()))
        self._counts["moves begun"] += 1
        journal.write.require(rows, MoveStored(MoveStep.INSTALLED, arrival))

    def installed(self, arrival: Arrival, now: Now) -> None:
        """The copy is stored: send the marker."""
        for queue in arrival.session.queues.values():
            assert isinstance(queue, Queue)
            queue.stored = True
        arrival.stored, arrival.busy = True, False
        self.profiles.installed(arrival.session)
        self.repeat(arrival, now)

    def repeat(self, arrival: Arrival, now: Now) -> None:
        """Send what an arrival waits for an answer to, unless that is not stored."""
        key = arrival.session.id, arrival.epoch
        if arrival.claims and not arrival.stored and not arrival.busy:
            self._store_claim(arrival)
        if not arrival.stored or arrival.busy or arrival.removing:
            return
        if arrival.claims and not arrival.answered:
            self._note_own(arrival)
            self._post(arrival.peer, MoveClaim(*key), now)
        elif arrival.claims:
            self._post(arrival.peer, MovePull(*key, arrival.phase.value, arrival.got), now)
        elif arrival.state is MoveState.ARRIVING:
            self._post(arrival.peer, MoveFlush(*key, arrival.log_id, arrival.start, arrival.version), now)
        elif arrival.state is MoveState.HOME:
            self._post(arrival.peer, MoveFinish(*key), now)
        elif arrival.phase is PullPhase.NOTHING:
            self.pour(arrival, now)
        else:
            self._post(arrival.peer, MovePull(*key, arrival.phase.value, arrival.got), now)

    def undo_install(self, arrival: Arrival, now: Now) -> None:
        """The log has no room for the copy."""
        self._take_out(arrival, now, "full", "the log is full; try again")

    # -- the copy goes again ----------------------------------------------------------------------------

    def refused(self, arrival: Arrival) -> None:
        """The old broker goes on with the session, or another one has it: remove the copy, once that is stored."""
        if arrival.removing or arrival.busy or not arrival.stored:
            return
        arrival.removing = True
        self._counts["moves given up"] += 1
        session = arrival.session
        changes: list[StateChange] = [Remove(SubRow, (sub.consumer_id,)) for sub in session.subs.values()]
        changes += [Remove(SubRow, (queue.consumer_id,)) for queue in self._queues_of(session)]
        changes += [Remove(AdvertRow, (stored,)) for stored, _ in session.adverts.values()]
        changes += self.profiles.rows(session)
        changes.append(Remove(MoveRow, (session.id, MoveSide.ARRIVAL, arrival.epoch)))
        changes.append(Remove(SessionRow, (session.id,)))
        self._journal.write.require(changes, MoveStored(MoveStep.REMOVED, arrival))

    def removed(self, arrival: Arrival, now: Now) -> None:
        """That is stored."""
        self._take_out(arrival, now, "moving", _GIVE_UP)

    def _take_out(self, arrival: Arrival, now: Now, code: str, reason: str) -> None:
        session = arrival.session
        self._ingest.match(now)
        for sub in session.subs.values():
            self._links.tell(self._matcher.discard(sub.slot))
        for queue in self._queues_of(session):
            self._queues.drop(queue)
        self._adverts.drop_all(session)
        self.profiles.leave(session)
        del self._sessions.by_id[session.id], self._sessions.by_name[session.name], self.arriving[session.id]
        self._completion.forget(session)
        arrival.removing = True
        if arrival.client is not None and self._sessions.is_open(arrival.client.connection):
            self._clients.close(arrival.client.connection, code, reason, now)

    @staticmethod
    def _queues_of(session: Session) -> list[Queue]:
        return [queue for queue in session.queues.values() if isinstance(queue, Queue)]

    # -- the session is this broker's -------------------------------------------------------------------

    def fill(self, arrival: Arrival, message: MoveEnd, now: Now) -> None:
        """The old broker has cut the session off: it is this broker's from now on, once that is stored."""
        if arrival.busy or arrival.removing or not arrival.stored:
            return
        session = arrival.session
        session.pub_epoch, session.pub_received = max(1, message.pub_epoch), message.pub_seq
        arrival.seen = {publisher: (epoch, last) for publisher, epoch, last in message.seen}
        arrival.phase, arrival.got, arrival.is_all_seen = PullPhase.EVENTS, 0, message.is_all_seen
        if not message.waiting:
            arrival.phase = _after(arrival, PullPhase.LETTERS)
        self._take_over(arrival, now)

    def _take_over(self, arrival: Arrival, now: Now) -> None:
        arrival.state, arrival.stored, arrival.busy = MoveState.FILLING, False, True
        session, client = arrival.session, arrival.client
        rows = [Put(session.row()), Put(arrival.row())]
        self._journal.write.require(rows, MoveStored(MoveStep.FILLING, arrival))
        arrival.client = None
        if client is not None and self._sessions.is_open(client.connection):
            self._clients.admit(client.connection, client.hello, session, now)

    def filling(self, arrival: Arrival, now: Now) -> None:
        """That is stored: pull what the session has."""
        arrival.stored, arrival.busy = True, False
        self.repeat(arrival, now)

    def undo_fill(self, arrival: Arrival) -> None:
        """The log is full: the marker is sent again, and answered again."""
        arrival.state, arrival.stored, arrival.busy = MoveState.ARRIVING, True, False

    def keep(self, arrival: Arrival, now: Now) -> None:
        """The old broker's log is lost: the session goes on with what there is, and its client learns of a gap."""
        if arrival.busy or arrival.removing or not arrival.stored:
            return
        arrival.lost = True
        self._go_on(arrival, now)

    def abandon(self, arrival: Arrival, now: Now) -> bool:
        """Go on without the old broker, and claim what it has. False if that must wait for the log."""
        if arrival.busy or arrival.removing or not arrival.stored:
            return False
        if arrival.phase is not PullPhase.NOTHING:
            self._counts["sessions abandoned"] += 1
            arrival.late, arrival.noted = (arrival.phase.value, arrival.got), self._journal.next
            self._go_on(arrival, now)
        return True

    def _go_on(self, arrival: Arrival, now: Now) -> None:
        """Go on with what there is; the client learns of a gap."""
        self._counts["moves with a gap"] += 1
        arrival.phase = PullPhase.NOTHING
        for queue in self._queues_of(arrival.session):
            queue.gap = queue.gap or (self._journal.next, self._journal.next)
            self._journal.moved[queue] = None
        if arrival.state is MoveState.ARRIVING:
            arrival.session.pub_epoch = 0  # nobody knows what its publisher has stored: it begins another epoch
            self._take_over(arrival, now)
        else:
            self.pour(arrival, now)

    # -- what is inherited ------------------------------------------------------------------------------

    def store(self, arrival: Arrival, message: MoveChunk, now: Now) -> None:
        """Store a part of what the old broker has."""
        if arrival.busy or not arrival.stored or (message.phase, message.after) != (arrival.phase.value, arrival.got):
            return
        phase, got = arrival.phase, message.upto
        if message.last:
            phase, got = _after(arrival, phase), 0
        session = self._sessions.by_id.get(arrival.session.id)
        if arrival.claims and (session is None or session.arrival is not None or session.cutting is not None):
            self._nothing_late(arrival, now)
            return
        arrival.seen |= {publisher: (epoch, last) for publisher, epoch, last in message.seen}
        self._ingest.match(now)
        arrival.busy = True
        late = arrival.late if not arrival.claims or phase is not PullPhase.NOTHING else None
        changes: list[StateChange] = [Put(arrival.row(phase=phase, got=got, late=late))]
        subs = arrival.session.subs
        copies: list[CopiedEvent] = []
        if isinstance(message, ShownChunk) and not arrival.claims:
            changes += self.profiles.inherit(arrival.session, message.shown)
        for each in message.events:
            if arrival.claims and each.origin[1:] == (0, 0):
                continue  # a notice about a profile: what is shown here has been compared with nothing
            wanted = [subs[number] for number in _without(arrival.own, each) if number in subs]
            publisher, epoch, sequence = each.origin
            origin = -publisher or -arrival.session.id, epoch, sequence
            copies.append(CopiedEvent(origin, wanted, each.head, each.payload))
        first = self._journal.next
        for at, each in enumerate(message.events):
            for number, failures in each.failures.items():
                queue = arrival.session.queues.get(QueueNumber(number))
                if isinstance(queue, Queue):
                    queue.failures[first + at] = failures
        for letter in message.letters:
            offset = Offset(first + len(copies))
            copies.append(CopiedEvent((-arrival.session.id, 0, 0), (), letter.head, letter.payload))
            changes += self._letter(arrival, letter, offset)
        if copies:
            self._counts["events inherited"] += len(message.events)
            self._copy(copies, CopiesStored(arrival, changes, phase, got, arrival.poured, MoveState.FILLING))
        else:
            done = CopiesStored(arrival, changes, phase, got, arrival.poured, MoveState.FILLING)
            self._journal.write.require(changes, MoveStored(MoveStep.PULLED, done))
        if arrival.claims:
            self._counts["events inherited late"] += len(message.events)
            for queue in self._queues_of(arrival.session):
                self._look_again(queue)

    def _look_again(self, queue: Queue) -> None:
        """The client may have had what is stored up to here, and its rules may not allow it."""
        queue.again_below = self._journal.next
        if not self._access.unchecked:  # otherwise all are looked at again, and then it changes
            queue.recheck = self._journal.next

    def _letter(self, arrival: Arrival, letter: InheritedLetter, offset: Offset) -> list[Put]:
        """A dead letter keeps its body; its offset is that of a copy that no queue gets."""
        queue = arrival.session.queues.get(letter.queue)
        if not isinstance(queue, Queue):
            return []
        numbers = unpack(letter.packed)
        members = [seat for seat, number in sorted(queue.members.items()) if number in numbers]
        body = letter_body(letter.head, letter.payload, letter.stored_at, members)
        return [Put(DeadRow(queue.consumer_id, offset, letter.failures, letter.reason, letter.at, body))]

    def _copy(self, copies: Sequence[CopiedEvent], stored: CopiesStored) -> None:
        """Add copies to the pending write; when they are stored, the arrival goes on."""
        write_copies(self._journal, copies)
        self._journal.write.copies.append(stored)

    def copied(self, stored: CopiesStored, now: Now) -> None:
        """Copies are stored: go on."""
        arrival = stored.arrival
        arrival.phase, arrival.got, arrival.poured = stored.phase, stored.got, stored.poured
        arrival.busy, arrival.delay = False, 0
        if stored.state is MoveState.HOME:
            self.at_home(arrival, now)
        elif arrival.claims and arrival.phase is PullPhase.NOTHING:
            self._nothing_late(arrival, now)
        else:
            self.repeat(arrival, now)

    def undo_copies(self, stored: CopiesStored, now: Now) -> None:
        """The log is full: the same is done again later."""
        arrival = stored.arrival
        arrival.busy = False
        if stored.state is MoveState.HOME:
            self._ingest.match(now)
            for sub, seat in arrival.collecting():
                self._matcher.rebind(sub.slot, seat, arrival.collector, sub.number)
            for queue in self._queues_of(arrival.session):
                queue.recheck = queue.again_below = Offset(NEVER)

    # -- what was collected -----------------------------------------------------------------------------

    def pour(self, arrival: Arrival, now: Now) -> None:
        """Put what was collected behind what was inherited; with the last of it the session is at home."""
        self._ingest.match(now)
        journal = self._journal
        found = [*self._collected(arrival, arrival.poured, journal.end, _POURED)]
        last = len(found) < _POURED
        if last:
            on_their_way = [batch for group in (*journal.groups, journal.write) for batch in group.batches]
            if any(batch.origins is None and arrival.collector in batch.frames.segments for batch in on_their_way):
                return  # it is tried again when they are stored
            found += _in_flight(on_their_way, arrival)
        poured = journal.next if last else Offset(found[-1][0] + 1)
        copies = [copy for _, copy in found if not _is_known(copy, arrival.seen)]
        self._counts["events collected"] += len(copies)
        self._counts["events collected twice"] += len(found) - len(copies)
        arrival.busy = True
        state = MoveState.HOME if last else MoveState.FILLING
        phase, got = arrival.phase, arrival.got
        if last and arrival.late is not None:
            phase, got = PullPhase(arrival.late[0]), arrival.late[1]
        changes: list[StateChange] = [Put(arrival.row(state=state, poured=poured, phase=phase, got=got))]
        if last:
            for sub, _ in arrival.collecting():
                assert isinstance(sub.queue, Queue)
                assert sub.consumer_id is not None
                self._matcher.rebind(sub.slot, sub.consumer_id, sub.queue, sub.number)
            changes.append(Remove(MoveRow, (arrival.session.id, MoveSide.TOMBSTONE, 0)))
        stored = CopiesStored(arrival, changes, phase, got, poured, state)
        if copies:
            self._copy(copies, stored)
        else:
            journal.write.require(changes, MoveStored(MoveStep.PULLED, stored))
        if last:
            for queue in self._queues_of(arrival.session):
                self._look_again(queue)

    def _collected(
        self, arrival: Arrival, first: Offset, end: Offset, most: int
    ) -> Iterator[tuple[Offset, CopiedEvent]]:
        """What the collector has in the log, from an offset on."""
        subs = arrival.session.subs
        members = {seat: subs[number] for seat, number in arrival.collector.members.items() if number in subs}
        return self._stored(members, first, end, most)

    def _stored(
        self, subs: dict[SeatId, ClientSubscription], first: Offset, end: Offset, most: int
    ) -> Iterator[tuple[Offset, CopiedEvent]]:
        """What some subscriptions have in the log, by their consumer ids, from an offset on."""
        seats, log, at = np.array(sorted(subs), np.uint32), self._journal.log, first
        while at < end and len(seats) and most > 0:
            at = log.seek(seats, at, 1 << 16)
            group = next(iter(log.read(at, 512)), None) if at < end else None
            if group is None:
                return
            events = group.events
            for place in range(len(events)):
                mine = events.seats[events.starts[place] : events.starts[place + 1]].tolist()
                wanted = [subs[SeatId(seat)] for seat in mine if seat in subs]
                if wanted and at <= events.first + place < end and most > 0:
                    publisher, epoch, sequence = map(abs, events.origins[place].tolist())
                    most -= 1
                    copy = CopiedEvent(
                        (-publisher, epoch, sequence), wanted, events.heads[place], events.payloads[place]
                    )
                    yield Offset(events.first + place), copy
            at = Offset(events.first + len(events))

    def at_home(self, arrival: Arrival, now: Now) -> None:
        """The session is at home, and that is stored: the old broker may forget it."""
        session = arrival.session
        arrival.state = MoveState.HOME
        session.arrival = None
        del self.arriving[session.id]
        self.finishing[session.id, arrival.epoch] = arrival
        self._departures.tombstones.pop(session.id, None)
        self._counts["moves done"] += 1
        self.came[session.id] = now.monotonic
        self.profiles.go_on(session)
        if not self._access.of(session.owner).reads_all:
            for _, sub in sorted(session.subs.items()):
                self._access.recheck(session, sub)
        self._clients.settled(session, now)
        self.repeat(arrival, now)

    def done(self, session: SessionId, epoch: int) -> None:
        """The old broker has forgotten the session: so is the move, once that is stored."""
        arrival = self.finishing.get((session, epoch))
        if arrival is not None and not arrival.removing:
            arrival.removing = True
            removal = Remove(MoveRow, (session, MoveSide.ARRIVAL, epoch))
            self._journal.write.require([removal], MoveStored(MoveStep.DONE, arrival))

    # -- what comes late --------------------------------------------------------------------------------

    def claim(self, session: SessionId, epoch: int) -> Arrival | None:
        """What is claimed under an epoch, if anything is."""
        found = self.finishing.get((session, epoch))
        return found if found is not None and found.claims else None

    def claims(self, session: SessionId) -> list[Arrival]:
        """What is claimed of a session."""
        return [each for (whose, _), each in self.finishing.items() if whose == session and each.claims]

    def claim_anew(self, session: Session, peer: str, epoch: int, noted: Offset) -> Arrival:
        """A session goes on without what the old broker has: claim that, but not what it gets here from `noted` on."""
        claim = Arrival(session, peer, epoch, "", Offset(0), 0, 0, new_collector(session.id, self._journal.next))
        claim.state, claim.late, claim.noted = MoveState.HOME, (PullPhase.EVENTS.value, 0), noted
        self.finishing[session.id, epoch] = claim
        self._store_claim(claim)
        return claim

    def _store_claim(self, claim: Arrival) -> None:
        claim.busy = True
        self._journal.write.require([Put(claim.row())], MoveStored(MoveStep.CLAIMED, claim))

    def claim_stored(self, claim: Arrival, now: Now) -> None:
        """That is stored: tell the old broker."""
        claim.busy, claim.stored = False, True
        self.repeat(claim, now)

    @staticmethod
    def undo_claim(claim: Arrival) -> None:
        """The log is full: it is stored later."""
        claim.busy = False

    def claim_there(self, claim: Arrival, broker: str, now: Now) -> None:
        """The session has gone from the old broker to another one: that one has what is claimed."""
        if not claim.busy:
            claim.peer, claim.answered, claim.stored = broker, False, False
            self.repeat(claim, now)

    def claimed(self, claim: Arrival, message: MoveEnd, now: Now) -> None:
        """The old broker has given the session up: pull what it has, unless the session has gone on elsewhere."""
        if claim.busy or not claim.stored:
            return
        self._note_own(claim, everything=True)
        claim.answered = True
        session = self._sessions.by_id.get(claim.session.id)
        if session is None or not message.waiting:
            self._nothing_late(claim, now)
            return
        claim.session = session
        self.repeat(claim, now)

    def _note_own(self, claim: Arrival, *, everything: bool = False) -> None:
        """Note the first event of each publisher that each subscription got here, of those stored since the last time.

        It gets all that follow, in their order, and the old broker may have stored them as well.
        """
        session, first = self._sessions.by_id.get(claim.session.id), max(claim.noted, self._journal.first)
        if session is None or session.arrival is not None:
            return
        subs = {sub.consumer_id: sub for sub in session.subs.values() if sub.consumer_id is not None}
        most, before = 1 << 62 if everything else _POURED, len(claim.own)
        for offset, copy in self._stored(subs, Offset(first), self._journal.end, most):
            publisher, epoch, sequence = copy.origin
            for sub in copy.subs:
                claim.own.setdefault((-publisher, sub.number), (epoch, sequence))
            first = Offset(offset + 1)
            most -= 1
        claim.noted = self._journal.end if most > 0 else first
        if len(claim.own) > before:
            self._journal.write.changes.append(Put(claim.row()))

    def _nothing_late(self, claim: Arrival, now: Now) -> None:
        """Nothing more comes late: the old broker may forget it."""
        claim.late = None
        self.repeat(claim, now)

    def drop_claim(self, claim: Arrival) -> None:
        """The old broker has nothing."""
        if not claim.busy and claim.stored:
            self.done(claim.session.id, claim.epoch)

    @property
    def needed(self) -> Offset:
        """The first event that was collected and is not poured, or not noted while something is claimed."""
        claimed = (each.noted for each in self.finishing.values() if each.claims and not each.answered)
        return Offset(min((*(each.poured for each in self.arriving.values()), *claimed), default=NEVER))

    # -- recovery ---------------------------------------------------------------------------------------

    def restore(self, kept: State) -> None:
        """Take back the arrivals of sessions that are restored, without their subscriptions."""
        for row in kept.moves.values():
            if row.side != MoveSide.ARRIVAL:
                continue
            body = msgspec.msgpack.decode(row.body, type=_ArrivalBody)
            session = self._sessions.by_id.get(row.session)
            state = MoveState(body.state)
            if session is None:  # it has moved on, or was removed
                session = Session(row.session, "", "")
            collector = new_collector(row.session, Offset(row.cut))
            arrival = Arrival(
                session, row.peer, row.epoch, body.log_id, Offset(row.start), body.version, body.base, collector
            )
            arrival.state, arrival.phase, arrival.got, arrival.poured = (
                state,
                PullPhase(body.phase),
                row.got,
                Offset(row.cut),
            )
            arrival.seen = {publisher: (epoch, last) for publisher, epoch, last in body.seen}
            arrival.is_all_seen, arrival.lost, arrival.stored = body.is_all_seen, body.lost, True
            arrival.late, arrival.noted = body.late, Offset(body.noted)
            arrival.own = {(publisher, number): (epoch, first) for publisher, number, epoch, first in body.own}
            if state is MoveState.HOME:
                self.finishing[row.session, row.epoch] = arrival
            else:
                session.arrival = self.arriving[row.session] = arrival

    def collecting(self, rows: Sequence[SubRow]) -> Iterator[tuple[int, SeatId, Queue]]:
        """The places of subscriptions that collect, among the rows of all; consumer id and queue of each."""
        places: dict[SessionId, list[int]] = {}
        for at, row in enumerate(rows):
            if row.session in self.arriving:
                places.setdefault(row.session, []).append(at)
        for session, some in places.items():
            arrival = self.arriving[session]
            for number, at in enumerate(sorted(some, key=lambda at: rows[at].number)):
                yield at, SeatId(arrival.base + number), arrival.collector

    def restored(self) -> None:
        """The subscriptions are back, and match for the collectors: only queues are as they were."""
        journal = self._journal
        for arrival in self.arriving.values():
            journal.next_consumer = SeatId(max(journal.next_consumer, arrival.base + len(arrival.session.subs)))
            for queue in self._queues_of(arrival.session):
                queue.recheck = queue.again_below = Offset(NEVER)


def _after(arrival: Arrival, phase: PullPhase) -> PullPhase:
    """What is pulled next, once everything of a phase has come."""
    left = [PullPhase.LETTERS, PullPhase.SEEN, PullPhase.SHOWN, PullPhase.NOTHING]
    left = left[left.index(phase) + 1 :] if phase in left else left
    if arrival.claims or arrival.is_all_seen:
        left = [each for each in left if each is not PullPhase.SEEN]
    if arrival.claims or not any(sub.profiles for sub in arrival.session.subs.values()):
        left = [each for each in left if each is not PullPhase.SHOWN]
    return left[0]


def corrected_step(value: MoveStored, following: Offset) -> MoveStored:
    """A step without places beyond what is stored: events before it were refused, and others get their offsets."""
    subject = value.subject
    if isinstance(subject, CopiesStored):
        return value._replace(subject=subject._replace(poured=Offset(min(subject.poured, following))))
    if isinstance(subject, Arrival):
        subject.poured = Offset(min(subject.poured, following))
        for sub in subject.session.subs.values():
            sub.begin_by(following)
        for queue in subject.session.queues.values():
            if isinstance(queue, Queue) and queue.gap is not None:
                queue.gap = Offset(min(queue.gap[0], following)), Offset(min(queue.gap[1], following))
    return value


def _is_known(copy: CopiedEvent, seen: dict[int, tuple[int, int]]) -> bool:
    publisher, epoch, sequence = copy.origin
    return (epoch, sequence) <= seen.get(-publisher, (0, 0))


def _without(own: dict[tuple[int, int], tuple[int, int]], event: InheritedEvent) -> list[SubNumber]:
    """The subscriptions that an event is for, without those that have got it here."""
    publisher, epoch, sequence = event.origin
    numbers = unpack(event.packed)
    return [each for each in numbers if (epoch, sequence) < own.get((publisher, each), (NEVER, 0))] if own else numbers


def _in_flight(batches: Iterable[EventBatch], arrival: Arrival) -> Iterator[tuple[Offset, CopiedEvent]]:
    """What the collector has in batches that are not stored yet."""
    subs = arrival.session.subs
    for batch in batches:
        frames = batch.frames
        low, high = frames.segments.get(arrival.collector, (0, 0))
        for frame in range(low, high):
            event = frames.events[frame]
            assert batch.origins is not None
            numbers = unpack(frames.packed[frames.starts[frame] : frames.starts[frame + 1]])
            publisher, epoch, sequence = batch.origins[event].tolist()
            wanted = [subs[number] for number in numbers if number in subs]
            copy = CopiedEvent((-abs(publisher), epoch, sequence), wanted, batch.heads[event], batch.payloads[event])
            yield Offset(batch.first + event), copy
