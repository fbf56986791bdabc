"""The old broker's side of a move: sessions that others have asked for, that leave, and that have left.

A session that leaves is cut off at an offset: it has what is stored below and not acknowledged. Its rows stay, so that
the new broker can pull that, and the log keeps it. The new broker is also told what this one had of each publisher
since it described the session, because the copy there has collected some of the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.broker.admission import expiry
from weft.broker.advertisements import ClientAdvertisements
from weft.broker.after_commit import MoveStep, MoveStored
from weft.broker.dead_letters import read_letter
from weft.broker.effects import ConnectionId, Now
from weft.broker.ingest import Ingest
from weft.broker.links.links import Links
from weft.broker.moves.states import MoveSide
from weft.broker.parts import BrokerParts
from weft.broker.profiles.moved_profiles import LeftProfile, MovedProfiles
from weft.broker.queue import Position, Queue, QueueOptions, queue_row, read_options
from weft.broker.sessions import Session
from weft.log.base import (
    NEVER,
    AdvertRow,
    DeadRow,
    Log,
    MoveRow,
    Offset,
    Put,
    Remove,
    SeatId,
    SessionId,
    SessionRow,
    ShownRow,
    State,
    StateChange,
    StoredGroup,
    SubRow,
)
from weft.model.paged_dict import PagedDict
from weft.protocol.messages import Bye, QueueNumber, Range, SubNumber, pack
from weft.protocol.move_messages import (
    AnyMove,
    InheritedEvent,
    InheritedLetter,
    MoveChunk,
    MoveClaim,
    MoveDone,
    MovedProfile,
    MovedQueue,
    MovedSession,
    MovedSessionWithProfiles,
    MovedSubscription,
    MoveElsewhere,
    MoveEnd,
    MoveFinish,
    MoveFlush,
    MoveInvite,
    MovePull,
    MoveRefused,
    MoveRequest,
    MoveUnknown,
    PublisherPosition,
    ShownChunk,
    with_token,
)

if TYPE_CHECKING:
    from weft.broker.hello import ClientConnections

Post = Callable[[str, AnyMove, Now], None]  # sends a message to a broker

PART = 256 << 10  # bytes of one part of the description of a session, about
CHUNK = 512 << 10  # bytes of events in one chunk; one event may be longer
_MOST_EVENTS = 2_000  # in one chunk
_LOOKED_AT = 20_000  # stored events that are looked at for one chunk
_LETTERS = 100  # dead letters in one chunk
_SEEN_AT_ONCE = 2_000  # publishers in one message
_SHOWN_AT_ONCE = 1_000  # profiles in one message
_LONGEST = 200_000  # events between the description and the cut; beyond that the session is described again
_REMINDED = 30_000_000  # microseconds after which new brokers are told again
_DAY = 86_400_000_000  # microseconds that a tombstone is kept at least

_encode = msgspec.msgpack.Encoder().encode


class PullPhase(Enum):
    """What a new broker pulls, in this order."""

    EVENTS = 0  # after an offset
    LETTERS = 1  # after so many of them
    SEEN = 2  # after so many publishers
    NOTHING = 3  # it has everything
    SHOWN = 4  # before that, for sessions that were shown profiles: `after` counts these


class AskedMove(NamedTuple):
    """Another broker has been answered: it may have the session under this epoch, while nothing changes."""

    epoch: int
    peer: str
    version: int = 0  # of subscriptions and advertisements since then
    invited: bool = False  # it was not the client that asked
    start: Offset = Offset(0)  # the end of the log then; what came since is looked at when the session is cut off

    def row(self, session: SessionId) -> MoveRow:
        """Its row in the log; a session has one at most."""
        rest = self.epoch, self.version, _encode(self.invited)
        return MoveRow(session, MoveSide.ASKED, 0, self.peer, self.start, *rest)

    @staticmethod
    def of(row: MoveRow) -> AskedMove:
        """The converse."""
        return AskedMove(row.cut, row.peer, row.got, msgspec.msgpack.decode(row.body, type=bool), Offset(row.start))


class Tombstone(NamedTuple):
    """Where a session went from here."""

    epoch: int
    peer: str
    name: str
    owner: str
    until: int  # UTC microseconds

    def row(self, session: SessionId) -> MoveRow:
        """Its row in the log; a session has one at most."""
        body = _encode((self.name, self.owner))
        return MoveRow(session, MoveSide.TOMBSTONE, 0, self.peer, self.until, self.epoch, 0, body)

    @staticmethod
    def of(row: MoveRow) -> Tombstone:
        """The converse."""
        name, owner = msgspec.msgpack.decode(row.body, type=tuple[str, str])
        return Tombstone(row.cut, row.peer, name, owner, row.start)


@dataclass(slots=True)
class LeftQueue:
    """A queue of a session that has left."""

    number: QueueNumber
    seat: SeatId
    position: Position
    options: QueueOptions
    members: dict[SeatId, SubNumber] = field(default_factory=dict)
    filters: dict[SubNumber, str] = field(default_factory=dict)

    def has(self, offset: int) -> bool:
        """Whether an event of its own is not done with."""
        return offset >= self.position.acked_below and not _within(self.position.above, offset)


def _epoch(departure: Departure) -> int:
    return departure.epoch


def _within(ranges: list[Range], offset: int) -> bool:
    return any(first <= offset < end for first, end in ranges)


class _DepartureBody(msgspec.Struct, frozen=True, array_like=True):
    name: str
    owner: str
    pub_epoch: int
    pub_seq: int
    queues: tuple[int, ...]  # the consumer ids of its queues
    seen: tuple[PublisherPosition, ...]
    adverts: tuple[tuple[int, str], ...] = ()
    keep: int = 0
    lost: bool = False  # the new broker has lost its log
    meetings: tuple[tuple[SubNumber, str], ...] = ()
    profiles: tuple[MovedProfile, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Departure:
    """A session that leaves, or has left."""

    id: SessionId
    epoch: int
    peer: str
    start: Offset
    cut: Offset
    session: Session | None = None  # until the cut is stored
    connection: ConnectionId | None = None  # on which the client is told
    address: str = ""  # of the new broker, for a client that has not asked for the move
    body: _DepartureBody = field(default=_DepartureBody("", "", 0, 0, (), ()))
    queues: list[LeftQueue] = field(default_factory=list)
    letters: bool = False  # there are dead letters
    shown: list[LeftProfile] = field(default_factory=list)  # what its subscriptions were shown of profiles
    stored: bool = False
    finishing: bool = False  # it is forgotten as soon as that is stored
    held: bool = False  # it goes to another broker as soon as that is stored

    def row(self) -> MoveRow:
        """Its row in the log."""
        body = _encode(self.body)
        return MoveRow(self.id, MoveSide.DEPARTURE, self.epoch, self.peer, self.start, self.cut, 0, body)

    @property
    def floor(self) -> Offset:
        """The first event that the new broker may still need."""
        return Offset(min((queue.position.acked_below for queue in self.queues), default=self.cut))

    @property
    def seats(self) -> NDArray[np.uint32]:
        """The consumer ids of all its subscriptions."""
        return np.array(sorted(seat for queue in self.queues for seat in queue.members), np.uint32)


class Departures:
    """Describes sessions to brokers that ask for them, cuts them off, and hands over what they have."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it hands on to
        self,
        parts: BrokerParts,
        ingest: Ingest,
        links: Links,
        adverts: ClientAdvertisements,
        clients: ClientConnections,
        post: Post,
    ) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._matcher, self._completion, self._out = parts.matcher, parts.completion, parts.out
        self._reader, self._limits, self._counts, self._access = parts.reader, parts.limits, parts.counts, parts.access
        self._ingest, self._links, self._adverts, self._clients, self._post = ingest, links, adverts, clients, post
        self.left: dict[tuple[SessionId, int], Departure] = {}
        self.tombstones: dict[SessionId, Tombstone] = {}
        self.described: dict[SessionId, Session] = {}  # at least those with `asked`
        self._timers, self._is_reminding = parts.timers, False
        self.profiles: MovedProfiles

    # -- a broker asks ----------------------------------------------------------------------------------

    def answer(self, session: Session, message: MoveRequest, source: str, now: Now) -> None:
        """Describe a session to a broker that asks for it, once its epoch is stored; or refuse."""
        asked, epoch = session.asked, message.epoch
        if session.cutting is not None or session.leaving:
            return  # it asks again
        again = asked is not None and (asked.epoch, asked.peer) == (epoch, source)
        if session.owner != message.owner:
            why = "owner", "the session belongs to another principal"
            self._refuse(message, source, why, session.epoch, now)
        elif epoch <= session.epoch and not again:
            reason = f"epoch {epoch} of session {session.name!r} is not above {session.epoch}, the last one"
            self._refuse(message, source, ("epoch", reason), session.epoch, now)
        elif any(queue in self._reader.replays for queue in session.queues.values()):
            reason = f"session {session.name!r} still reads events older than itself; move it when it has them"
            self._refuse(message, source, ("replaying", reason), session.epoch, now)
        elif asked is not None and again:  # that is stored, or on its way into the log
            self._journal.write.require((), MoveStored(MoveStep.ANSWERED, (session, asked, None)))
        else:
            before, session.epoch = session.epoch, epoch
            session.asked = answered = AskedMove(epoch, source, 0, message.invited, self._journal.end)
            self.described[session.id] = session
            self.watch(now)
            rows = [Put(session.row()), Put(answered.row(session.id))]
            self._journal.write.require(rows, MoveStored(MoveStep.ANSWERED, (session, answered, before)))

    def _refuse(self, message: AnyMove, to: str, why: tuple[str, str], known: int, now: Now) -> None:
        """Tell a broker that it does not get a session: the code and the reason, and the highest epoch here."""
        self._counts["moves refused"] += 1
        self._post(to, MoveRefused(message.session, message.epoch, *why, known), now)

    def describe(self, session: Session, asked: AskedMove, now: Now) -> None:
        """The epoch is stored: describe the session, if nothing has happened since."""
        if session.asked != asked or session.cutting is not None or self._sessions.by_id.get(session.id) is not session:
            return
        queues = [
            MovedQueue(number, queue.ordered, queue.lag, queue.disconnect, queue.gap is not None)
            for number, queue in sorted(session.queues.items())
            if isinstance(queue, Queue) and not queue.share
        ]
        subs = [
            MovedSubscription(number, sub.text, sub.queue.number)
            for number, sub in sorted(session.subs.items())
            if isinstance(sub.queue, Queue) and not sub.queue.share
        ]
        meetings, profiles = self.profiles.described(session)
        adverts = [(number, text) for number, (_, text) in sorted(session.adverts.items())]
        whose = session.id, asked.epoch, session.name, session.owner
        what = _Part(queues, subs, adverts, [*profiles])
        self._describe(asked.peer, whose, (self._journal.end, asked.version, session.keep), what, meetings, now)

    def _describe(  # noqa: PLR0913, PLR0917 - what a description has
        self,
        to: str,
        whose: tuple[SessionId, int, str, str],
        at: tuple[Offset, int, int],
        what: _Part,
        meetings: Mapping[SubNumber, str],
        now: Now,
    ) -> None:
        """Send the description of a session, in parts: whose it is, as of when, and what it has."""
        session, epoch, name, owner = whose
        parts = [*_in_parts(what)]
        for number, part in enumerate(parts):
            has = tuple(part.queues), tuple(part.subs), tuple(part.adverts)
            told = MovedSession(session, epoch, number, len(parts), name, owner, self._journal.log_id, *at, *has)
            if meetings or what.profiles:
                mine = tuple((sub.number, meetings[sub.number]) for sub in part.subs if sub.number in meetings)
                told = MovedSessionWithProfiles(
                    **{field: getattr(told, field) for field in told.__struct_fields__},
                    meetings=mine,
                    profiles=tuple(part.profiles),
                    profile_version=self.profiles.highest,
                )
            self._post(to, told, now)

    @staticmethod
    def undo_answer(session: Session, asked: AskedMove, before: int | None) -> None:
        """The epoch could not be stored: whoever asked asks again. Without `before`, it was stored with another one."""
        if session.asked == asked and before is not None:
            session.asked = None
            if session.epoch == asked.epoch:
                session.epoch = before

    def release(self, session: Session, message: MoveRefused, source: str) -> None:
        """The broker that asked for a session does not take it: it stays, and may be changed."""
        asked = session.asked
        if asked is not None and (asked.epoch, asked.peer) == (message.epoch, source) and session.cutting is None:
            session.asked, session.invited_to = None, ""
            self._counts["moves not taken"] += 1
            self._journal.write.changes.append(Remove(MoveRow, (session.id, MoveSide.ASKED, 0)))

    def changed(self, session: Session) -> None:
        """Something about a session has changed that another broker was told: its marker is void."""
        asked = session.asked
        if asked is not None:
            session.asked = asked._replace(version=asked.version + 1)
            self._journal.write.changes.append(Put(session.asked.row(session.id)))

    # -- the cut ----------------------------------------------------------------------------------------

    def flush(self, session: Session, message: MoveFlush, source: str, now: Now) -> None:
        """The marker has come: the copy at the other broker gets everything from now on. Cut the session off.

        First everything that came before is stored, or refused by a full log; then it is known what the session has.
        """
        asked, journal = session.asked, self._journal
        if session.cutting is not None or session.leaving:
            return
        same_log = message.log_id == journal.log_id
        if asked is None or not same_log or (asked.epoch, asked.peer) != (message.epoch, source):
            code = "epoch" if same_log else "changed"
            reason = f"session {session.name!r} has gone on here since it was asked for"
            self._refuse(message, source, (code, reason), session.epoch, now)
            return
        is_gone = message.start < journal.first or journal.next - message.start > _LONGEST
        if asked.version != message.version or is_gone:
            self._refuse(message, source, ("changed", "the session has changed"), session.epoch, now)
            return
        self._ingest.match(now)
        here = self._sessions.connection_of(session)
        if here is not None:
            self._clients.closed(here, now)  # nothing more that it says counts
        departure = Departure(session.id, asked.epoch, source, message.start, journal.next, session)
        departure.connection = None if here is None else here.id
        departure.address = session.invited_to if asked.invited else ""
        session.cutting = departure
        self._counts["moves cut"] += 1
        journal.write.require((), MoveStored(MoveStep.CUT_READY, departure))

    def give_up(self, session: Session, message: MoveClaim, source: str, now: Now) -> None:
        """Another broker has gone on with the session, without this one: cut it off, as after a marker."""
        asked = session.asked
        if session.cutting is not None or session.leaving:
            return
        if session.epoch == message.epoch and (asked is None or asked.peer != source):
            self.claimed_again(message, source, now)
            return
        self._ingest.match(now)
        here = self._sessions.connection_of(session)
        if here is not None:
            self._clients.closed(here, now)
        end = self._journal.next
        departure = Departure(session.id, message.epoch, source, end, end, session)
        departure.connection = None if here is None else here.id
        session.cutting = departure
        self._counts["sessions given up"] += 1
        self._journal.write.require((), MoveStored(MoveStep.CUT_READY, departure))

    def claimed_again(self, message: MoveClaim, source: str, now: Now) -> None:
        """A claim to a session that is not at home here, or has gone on here."""
        departure, whereabouts = self.left.get((message.session, message.epoch)), self.whereabouts(message.session)
        session = self._sessions.by_id.get(message.session)
        if departure is not None and departure.peer == source:
            self.end(departure, now)
        elif session is not None:
            reason = f"session {session.name!r} has gone on at this broker"
            self._refuse(message, source, ("epoch", reason), session.epoch, now)
        elif whereabouts is not None and whereabouts.peer != source:
            self._post(source, MoveElsewhere(message.session, message.epoch, whereabouts.peer), now)
        else:
            self._post(source, MoveUnknown(message.session, message.epoch), now)

    def cut(self, departure: Departure) -> None:
        """Everything before the cut is stored or refused: store the cut itself."""
        session, journal = departure.session, self._journal
        assert session is not None
        departure.cut = Offset(min(departure.cut, journal.end))
        changes: list[StateChange] = []
        departure.queues = []
        for number, queue in sorted(session.queues.items()):
            assert isinstance(queue, Queue)
            options = QueueOptions(queue.ordered, queue.lag, queue.disconnect, "", "")
            members = dict(queue.members.items())
            filters = {each: session.subs[each].text for each in members.values()}
            position = queue.position(journal.end)
            departure.queues.append(LeftQueue(number, queue.consumer_id, position, options, members, filters))
            changes.append(Put(queue_row(queue, journal.end)))
        departure.letters = any(journal.log.dead(queue.seat, Offset(0), 1) for queue in departure.queues)
        seats = tuple(int(queue.seat) for queue in departure.queues)
        numbers = session.pub_epoch, session.pub_received
        adverts = tuple((number, text) for number, (_, text) in sorted(session.adverts.items()))
        meetings, profiles = self.profiles.described(session)
        departure.body = _DepartureBody(
            session.name,
            session.owner,
            *numbers,
            seats,
            self._seen(departure),
            adverts,
            session.keep,
            meetings=tuple(sorted(meetings.items())),
            profiles=tuple(profiles),
        )
        departure.shown = self.profiles.shown(session)
        changes += [Remove(AdvertRow, (stored,)) for stored, _ in session.adverts.values()]
        changes += self.profiles.rows(session)
        changes += [Remove(MoveRow, (session.id, MoveSide.ASKED, 0)), Remove(SessionRow, (session.id,))]
        changes.append(Put(departure.row()))
        journal.write.require(changes, MoveStored(MoveStep.CUT, departure))

    def _seen(self, departure: Departure) -> tuple[PublisherPosition, ...]:
        """The last event of each publisher that the session was given between its description and the cut."""
        seen: dict[int, tuple[int, int]] = {}
        seats = departure.seats
        for group in _read(self._journal.log, seats, departure.start, departure.cut):
            events = group.events
            whose = np.searchsorted(events.starts, np.flatnonzero(np.isin(events.seats, seats)), side="right") - 1
            for place in {*whose.tolist()}:
                if departure.start <= events.first + place < departure.cut:
                    publisher, epoch, sequence = map(abs, events.origins[place].tolist())
                    seen[publisher] = max((epoch, sequence), seen.get(publisher, (0, 0)))
        return tuple((publisher, *last) for publisher, last in sorted(seen.items()))

    def cut_stored(self, departure: Departure, now: Now) -> None:
        """The session is no longer here: withdraw what it wanted, and tell its client and its new broker."""
        session = departure.session
        assert session is not None
        self._ingest.match(now)
        for sub in session.subs.values():
            self._links.tell(self._matcher.discard(sub.slot))
        for queue in session.queues.values():
            assert isinstance(queue, Queue)
            self._queues.drop(queue)
        self._adverts.drop_all(session)
        self.profiles.leave(session)
        session.subs, session.queues, session.adverts = PagedDict(), {}, {}
        del self._sessions.by_id[session.id]
        del self._sessions.by_name[session.name]
        self._completion.forget(session)
        session.cutting = departure.session = None
        departure.stored = True
        self.left[departure.id, departure.epoch] = departure
        self._close(departure, Bye("moved", departure.address))
        self.end(departure, now)
        self.watch(now)

    def undo_cut(self, departure: Departure, reason: str) -> None:
        """The log is full. The client comes back, and the other broker sends its marker again."""
        session = departure.session
        if session is not None:
            session.cutting = None
            self.profiles.go_on(session)
            for _, sub in sorted(session.subs.items()) if not self._access.of(session.owner).reads_all else ():
                self._access.recheck(session, sub)
        self._close(departure, Bye("full", reason))

    def _close(self, departure: Departure, bye: Bye) -> None:
        if departure.connection is not None:
            self._out.send(departure.connection, bye)
            self._out.close(departure.connection)
            departure.connection = None

    def end(self, departure: Departure, now: Now) -> None:
        """Tell the new broker that the session is its own."""
        body, waiting = departure.body, departure.floor < departure.cut or departure.letters
        numbers = departure.id, departure.epoch, body.pub_epoch, body.pub_seq, int(waiting)
        first = body.seen[:_SEEN_AT_ONCE]
        self._post(departure.peer, MoveEnd(*numbers, first, len(first) == len(body.seen)), now)

    def flush_again(self, message: MoveFlush, source: str, now: Now) -> None:
        """A marker for a session that is not at home here: it has left, or will never be the other's."""
        departure = self.left.get((message.session, message.epoch))
        if departure is not None and departure.peer == source:
            self.end(departure, now)
            return
        known = [epoch for session, epoch in self.left if session == message.session]
        tombstone = self.tombstones.get(message.session)
        if tombstone is not None:
            known.append(tombstone.epoch)
        if tombstone is not None and (message.epoch, source) == (tombstone.epoch, tombstone.peer):
            # it had everything: its log is from a backup
            self._post(source, MoveUnknown(message.session, message.epoch), now)
            return
        if message.epoch in known:
            return  # it has left for another broker
        if not known and message.log_id != self._journal.log_id:
            self._post(source, MoveUnknown(message.session, message.epoch), now)
        else:
            self._refuse(message, source, ("epoch", "the session is no longer here"), max(known, default=0), now)

    # -- handing over -----------------------------------------------------------------------------------

    def pull(self, message: MovePull, source: str, now: Now) -> None:
        """Send some of what a session has."""
        departure = self.left.get((message.session, message.epoch))
        if departure is None or departure.peer != source:
            if departure is None:  # it had everything, and its log is from a backup; or nothing is known here
                self._post(source, MoveUnknown(message.session, message.epoch), now)
            return
        phases = {each.value: each for each in PullPhase}
        phase = phases.get(message.phase, PullPhase.NOTHING)
        if departure.finishing or phase is PullPhase.NOTHING:
            return
        match phase:
            case PullPhase.EVENTS:
                chunk = self._events(departure, message.after)
            case PullPhase.LETTERS:
                chunk = self._letters(departure, message.after)
            case PullPhase.SHOWN:
                upto = message.after + _SHOWN_AT_ONCE
                told, last = departure.shown[message.after : upto], upto >= len(departure.shown)
                place = message.phase, message.after, upto, last
                shown = tuple(each.told for each in told)
                chunk = ShownChunk(message.session, message.epoch, *place, shown=shown)
            case _:
                seen = departure.body.seen
                upto = message.after + _SEEN_AT_ONCE
                some, last = seen[message.after : upto], upto >= len(seen)
                chunk = MoveChunk(message.session, message.epoch, message.phase, message.after, upto, last, seen=some)
        self._post(source, chunk, now)

    def _events(self, departure: Departure, after: int) -> MoveChunk:
        journal, found, size = self._journal, list[InheritedEvent](), 0
        first = Offset(max(after + 1, departure.floor, journal.first))
        upto, looked_at = departure.cut - 1, 0
        for group in _read(journal.log, departure.seats, first, departure.cut):
            for place in range(len(group.events)):
                offset = group.events.first + place
                if not first <= offset < departure.cut:
                    continue
                event = self._event(departure, group, place)
                if event is None:
                    continue
                size += len(event.head) + len(event.payload) + len(event.packed)
                if found and (size > CHUNK or len(found) >= _MOST_EVENTS):
                    upto = offset - 1
                    break
                found.append(event)
            looked_at += len(group.events)
            if looked_at >= _LOOKED_AT and upto == departure.cut - 1:
                upto = min(upto, group.events.first + len(group.events) - 1)
            if upto < departure.cut - 1:
                break
        upto = max(after, upto)
        last = upto >= departure.cut - 1
        return MoveChunk(departure.id, departure.epoch, PullPhase.EVENTS.value, after, upto, last, tuple(found))

    def _event(self, departure: Departure, group: StoredGroup, place: int) -> InheritedEvent | None:
        events = group.events
        offset = Offset(events.first + place)
        numbers: list[SubNumber] = []
        failures: dict[int, int] = {}
        seats = events.seats[events.starts[place] : events.starts[place + 1]].tolist()
        for queue in departure.queues:
            mine = [queue.members[seat] for seat in seats if seat in queue.members]
            if mine and queue.has(offset):
                numbers += mine
                if offset in queue.position.failures:
                    failures[queue.number] = queue.position.failures[offset]
        head = events.heads[place]
        if not numbers or expiry(head) <= self._journal.at:
            return None
        publisher, epoch, sequence = map(abs, events.origins[place].tolist())
        head = with_token(head, self._journal.log_id, offset)
        origin = publisher, epoch, sequence
        return InheritedEvent(offset, origin, pack(sorted(numbers)), head, events.payloads[place], failures)

    def _letters(self, departure: Departure, after: int) -> MoveChunk:
        found: list[InheritedLetter] = []
        at = size = 0
        last = True
        for queue in departure.queues:
            for row in self._dead(queue.seat):
                at += 1
                if at <= after:
                    continue
                size += len(row.body)
                if found and (len(found) >= _LETTERS or size > CHUNK):
                    last = False
                    break
                letter = read_letter(row.body)
                numbers = pack(sorted(queue.members[each] for each in letter.consumers if each in queue.members))
                head = with_token(letter.head, self._journal.log_id, row.offset)
                told = numbers, head, letter.payload, letter.at
                found.append(InheritedLetter(queue.number, row.attempts, row.reason, row.at, *told))
            if not last:
                break
        upto, phase = after + len(found), PullPhase.LETTERS.value
        return MoveChunk(departure.id, departure.epoch, phase, after, upto, last, letters=tuple(found))

    def _dead(self, seat: SeatId) -> Iterator[DeadRow]:
        after = Offset(0)
        while rows := self._journal.log.dead(seat, after, 1_000):
            yield from rows
            after = rows[-1].offset

    # -- the new broker has crashed, or lost its log ----------------------------------------------------

    def watch(self, now: Now) -> None:
        """Remind new brokers while any has not got everything: one may have crashed, or lost its log, and says so."""
        if (self.left or self._with_asked()) and not self._is_reminding:
            self._is_reminding = True
            self._timers.add(now.monotonic + _REMINDED, self._remind)

    def _remind(self, now: Now) -> None:
        self._is_reminding = False
        for departure in self.left.values():
            self.remind(departure, now)
        for session, asked in self._with_asked():
            if session.cutting is None:  # that is stored, or on its way into the log
                self._journal.write.require((), MoveStored(MoveStep.ANSWERED, (session, asked, None)))
        self.watch(now)

    def _with_asked(self) -> list[tuple[Session, AskedMove]]:
        """The sessions that another broker was told of, and may have."""
        here = self._sessions.by_id
        self.described = {key: each for key, each in self.described.items() if each.asked and here.get(key) is each}
        return [(each, each.asked) for each in self.described.values() if each.asked is not None]

    def remind(self, departure: Departure, now: Now) -> None:
        """Tell the new broker again that the session is its own."""
        if not departure.finishing and not departure.held:
            self.end(departure, now)

    def offer(self, departure: Departure, broker: str, now: Now) -> None:
        """Ask another broker to take over what has left: the one for which it left is gone."""
        self._lost(departure)
        body = departure.body
        self._post(broker, MoveInvite(departure.id, departure.epoch + 1, body.name, body.owner), now)

    def returned(self, message: MoveUnknown, source: str) -> None:
        """A broker knows nothing of a session that has left for it: it has lost its log."""
        departure = self.left.get((message.session, message.epoch))
        if departure is not None and departure.peer == source:
            self._lost(departure)

    def _lost(self, departure: Departure) -> None:
        if not departure.body.lost and not departure.finishing and not departure.held:
            self._counts["departures lost"] += 1
            departure.body = msgspec.structs.replace(departure.body, lost=True)
            self._journal.write.changes.append(Put(departure.row()))

    def hand_on(self, message: MoveRequest, source: str, now: Now) -> bool:
        """Describe a session to a broker that asks for it, if the one for which it left has lost it.

        False if that one has not said so. If it asks itself, the session may have gone on from there.
        """
        departure = self.newest(message.session)
        if departure is None or departure.body.owner != message.owner:
            return False
        again = (departure.epoch, departure.peer) == (message.epoch, source) and departure.body.lost
        if not again and (message.epoch <= departure.epoch or not departure.body.lost):
            return False
        if departure.finishing or departure.held:
            return True  # it asks again
        if again:
            self._describe_left(departure, now)
            return True
        self._lost(departure)
        departure.held = True
        row = msgspec.structs.replace(departure.row(), epoch=message.epoch, peer=source)
        before = departure.id, MoveSide.DEPARTURE, departure.epoch
        rows: list[StateChange] = [Remove(MoveRow, before), Put(row)]
        self._journal.write.require(rows, MoveStored(MoveStep.HANDED_ON, (departure, message.epoch, source)))
        return True

    def handed_on(self, departure: Departure, epoch: int, peer: str, now: Now) -> None:
        """That is stored."""
        del self.left[departure.id, departure.epoch]
        departure.epoch, departure.peer, departure.held = epoch, peer, False
        self.left[departure.id, departure.epoch] = departure
        self._describe_left(departure, now)

    def _describe_left(self, departure: Departure, now: Now) -> None:
        """As it was at the cut; what came since then is lost with the other broker, so there is a gap."""
        body = departure.body
        queues = [
            MovedQueue(each.number, each.options.ordered, each.options.lag, each.options.disconnect, gap=True)
            for each in departure.queues
        ]
        subs = sorted((number, text, each.number) for each in departure.queues for number, text in each.filters.items())
        what = _Part(queues, [MovedSubscription(*sub) for sub in subs], [*body.adverts], [*body.profiles])
        whose = departure.id, departure.epoch, body.name, body.owner
        self._describe(departure.peer, whose, (departure.cut, 0, body.keep), what, dict(body.meetings), now)

    def newest(self, session: SessionId) -> Departure | None:
        """The last departure of a session, unless it has gone on to another broker since."""
        found = max((each for each in self.left.values() if each.id == session), key=_epoch, default=None)
        return None if found is None or found.epoch < self._last_epoch(session) else found

    def lacking(self, name: str) -> Departure | None:
        """The last departure of a session of this name whose new broker does not have everything."""
        return max((each for each in self.left.values() if each.body.name == name), key=_epoch, default=None)

    # -- the end ----------------------------------------------------------------------------------------

    def finish(self, message: MoveFinish, source: str, now: Now) -> None:
        """The new broker has everything: forget the session, and remember where it went."""
        departure = self.left.get((message.session, message.epoch))
        if departure is None:
            self._post(source, MoveDone(message.session, message.epoch), now)
            return
        if departure.finishing or departure.held or departure.peer != source:
            return
        departure.finishing = True
        changes: list[StateChange] = [Remove(MoveRow, (departure.id, MoveSide.DEPARTURE, departure.epoch))]
        for queue in departure.queues:
            changes += [Remove(SubRow, (seat,)) for seat in (queue.seat, *queue.members)]
            changes += [Remove(DeadRow, (row.seat, row.offset)) for row in self._dead(queue.seat)]
        changes += [Remove(ShownRow, (each.row.seat, each.row.profile)) for each in departure.shown]
        if departure.id not in self._sessions.by_id and departure.epoch >= self._last_epoch(departure.id):
            changes.append(Put(self._tombstone(departure).row(departure.id)))
        self._journal.write.require(changes, MoveStored(MoveStep.FORGOTTEN, departure))

    def _last_epoch(self, session: SessionId) -> int:
        return 0 if session not in self.tombstones else self.tombstones[session].epoch

    def _tombstone(self, departure: Departure) -> Tombstone:
        expires = self._limits.expires
        until = min(NEVER, self._journal.at + max(_DAY, expires)) if expires else NEVER
        return Tombstone(departure.epoch, departure.peer, departure.body.name, departure.body.owner, until)

    def forgotten(self, departure: Departure, now: Now) -> None:
        """That is stored."""
        del self.left[departure.id, departure.epoch]
        if departure.id not in self._sessions.by_id and departure.epoch >= self._last_epoch(departure.id):
            self.tombstones[departure.id] = self._tombstone(departure)
        at = self._journal.at
        for session in [each for each, tombstone in self.tombstones.items() if tombstone.until <= at]:
            self._journal.write.changes.append(self.bury(session))
        self._post(departure.peer, MoveDone(departure.id, departure.epoch), now)

    def bury(self, session: SessionId) -> Remove:
        """Remove a tombstone: the session is back, or was gone for long. Returns the change of the log."""
        self.tombstones.pop(session, None)
        return Remove(MoveRow, (session, MoveSide.TOMBSTONE, 0))

    # -- what is known ----------------------------------------------------------------------------------

    def whereabouts(self, session: SessionId) -> Tombstone | None:
        """Where a session went from here the last time."""
        found = [
            Tombstone(each.epoch, each.peer, each.body.name, each.body.owner, NEVER)
            for (left, _), each in self.left.items()
            if left == session
        ]
        if session in self.tombstones:
            found.append(self.tombstones[session])
        return max(found, default=None)

    def named(self, name: str, owner: str) -> SessionId | None:
        """A session of a name that has left, the last one."""
        found = [
            (each.epoch, key[0])
            for key, each in self.left.items()
            if (each.body.name, each.body.owner) == (name, owner)
        ]
        found += [
            (each.epoch, session)
            for session, each in self.tombstones.items()
            if (each.name, each.owner) == (name, owner)
        ]
        return max(found)[1] if found else None

    @property
    def needed(self) -> Offset:
        """The first event that a new broker may still pull, or that is looked at when a session is cut off."""
        least = self._journal.next - _LONGEST  # what is older is not looked at, but described again
        starts = (max(asked.start, least) for _, asked in self._with_asked())
        return Offset(min((*starts, *(each.floor for each in self.left.values())), default=NEVER))

    # -- recovery ---------------------------------------------------------------------------------------

    def restore(self, kept: State) -> dict[SeatId, LeftQueue]:
        """Take back what has left. Returns its queues, by consumer id, which belong to no session here."""
        queues: dict[SeatId, LeftQueue] = {}
        for row in kept.moves.values():
            if row.side == MoveSide.TOMBSTONE:
                self.tombstones[row.session] = Tombstone.of(row)
            elif row.side == MoveSide.DEPARTURE:
                body = msgspec.msgpack.decode(row.body, type=_DepartureBody)
                departure = Departure(row.session, row.epoch, row.peer, Offset(row.start), Offset(row.cut), body=body)
                departure.stored = True
                for seat in map(SeatId, body.queues):
                    sub = kept.subs[seat]
                    position = Position.decode(sub.floor, sub.above, sub.attempts)
                    options = read_options(sub)
                    assert isinstance(options, QueueOptions)
                    left = queues[seat] = LeftQueue(QueueNumber(sub.number), seat, position, options)
                    departure.queues.append(left)
                    departure.letters = departure.letters or kept.dead.get(seat, 0) > 0
                self.left[row.session, row.epoch] = departure
        for sub in kept.subs.values() if queues else ():
            options = read_options(sub)
            if not isinstance(options, QueueOptions) and SeatId(options.queue) in queues:
                left = queues[SeatId(options.queue)]
                left.members[sub.seat] = SubNumber(sub.number)
                left.filters[SubNumber(sub.number)] = sub.filter
        for departure in self.left.values() if kept.shown else ():
            numbers = {seat: number for queue in departure.queues for seat, number in queue.members.items()}
            mine = (row for row in kept.shown.values() if row.seat in numbers)
            departure.shown = [LeftProfile(numbers[row.seat], row) for row in mine]
        return queues


class _Part(NamedTuple):
    """A session as it is described, or one part of that."""

    queues: list[MovedQueue]
    subs: list[MovedSubscription]
    adverts: list[tuple[int, str]]
    profiles: list[MovedProfile]


def _in_parts(whole: _Part) -> Iterator[_Part]:
    """The durable part of a session, in parts: queues first."""
    part, size = _Part(whole.queues, [], [], []), 40 * len(whole.queues)
    for sub in whole.subs:
        if size >= PART:
            yield part
            part, size = _Part([], [], [], []), 0
        part.subs.append(sub)
        size += 20 + len(sub.filter.encode())
    for number, text in whole.adverts:
        if size >= PART:
            yield part
            part, size = _Part([], [], [], []), 0
        part.adverts.append((number, text))
        size += 20 + len(text.encode())
    for profile in whole.profiles:
        if size >= PART:
            yield part
            part, size = _Part([], [], [], []), 0
        part.profiles.append(profile)
        size += 60 + len(profile.name.encode()) + len(profile.region.encode()) + len(profile.payload)
    yield part


def _read(log: Log, seats: NDArray[np.uint32], first: Offset, end: Offset) -> Iterator[StoredGroup]:
    """The stored groups, whole or cut, that have events of these seats in a range of offsets."""
    at = first
    while at < end and len(seats):
        at = log.seek(seats, at, 1 << 16)
        if at >= end:
            return
        for group in log.read(at, 512):
            yield group
            at = Offset(group.events.first + len(group.events))
            break
