"""The sessions of a broker, their subscriptions and queues, and its connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from weft.broker.delivery_window import DeliveryWindow
from weft.broker.effects import ConnectionId, Now, Outbox, Timers
from weft.broker.identity import Authenticate
from weft.broker.limits import ClientLimits, TokenBucket
from weft.broker.queue import Queue
from weft.broker.transient_queue import TransientQueue
from weft.index.base import SubId
from weft.log.base import NEVER, DeadRow, Offset, Remove, SeatId, SessionId, SessionRow, SubRow
from weft.model.paged_dict import PagedDict
from weft.model.rate import RateAverage
from weft.protocol.messages import REPORTS, VERSION, Bye, Hello, QueueNumber, SubNumber
from weft.routing.table import Link

if TYPE_CHECKING:
    from weft.broker.journal import Journal
    from weft.broker.links.neighbour import Neighbour
    from weft.broker.moves.arrivals import Arrival
    from weft.broker.moves.departures import AskedMove, Departure
    from weft.broker.recent import EventReader

ClientQueue = Queue | TransientQueue

REFUSED = Bye("refused", "the broker refused the connection; check your credentials, or ask the broker's operator")
BUSY = Bye("busy", "the broker is too busy for this connection; try again later")

_MOST_ENDED = 16  # subscriptions of a session whose end is remembered
_RECHECK = 300_000_000  # microseconds between two looks at the clock: a timer keeps its connection in memory


@dataclass(slots=True, eq=False, repr=False)
class ClientSubscription:
    """A client's filter, and the queue that its events go to."""

    number: SubNumber
    text: str
    slot: SubId  # by which index and routing table know it
    consumer_id: SeatId | None  # None if it is not durable
    queue: ClientQueue
    start: Offset  # its filter holds from here on
    version: int = 0  # how often it was put into the table again, with another filter or the same
    profiles: str = ""  # how it meets profiles: "covering", "overlap", or not at all

    def begin_by(self, offset: Offset) -> None:
        """Events from an offset on are its own, and those of a queue that begins with it, if not earlier ones."""
        self.start = Offset(min(self.start, offset))
        queue = self.queue
        if isinstance(queue, Queue) and not queue.stored:
            queue.cursor = queue.stored_below = Offset(min(queue.cursor, offset))
            queue.replay_until = Offset(min(queue.replay_until, offset))


class Session:
    """A client, across its connections if it has a name."""

    def __init__(self, id: SessionId, name: str, owner: str, bucket: TokenBucket | None = None) -> None:
        self.id = id
        self.name = name
        self.owner = owner
        self.epoch = 0
        self.connection: ConnectionId | None = None
        self.pub_epoch = 1
        self.pub_received = 0  # the last sequence that was accepted; it is stored when its group is
        self.published = RateAverage()  # what it publishes here
        self.pub_over = False  # an event was refused: nothing more of this epoch is accepted
        self.absent: dict[str, int] = {}  # values that the schema made absent, not yet reported
        self.subs: PagedDict[SubNumber, ClientSubscription] = PagedDict()
        self.queues: dict[QueueNumber, ClientQueue] = {}
        self.adverts: dict[int, tuple[int, str]] = {}  # by the client's number: the stored id, and the filter
        self.bucket = bucket
        self.keep = 0  # microseconds without a connection until it is removed; 0 is for ever
        self.expires = NEVER  # UTC
        self.revoked: dict[SubNumber, str] = {}  # subscriptions that ended without a connection, and why
        self.ended: dict[SubNumber, str] = {}  # subscriptions that the broker has ended, the last ones, and why
        self.leaving = False  # it is forgotten as soon as that is stored
        self.arrival: Arrival | None = None  # while it comes from another broker
        self.asked: AskedMove | None = None  # another broker was told what it is
        self.cutting: Departure | None = None  # it is given up as soon as that is stored
        self.forgetting = False  # its client has asked for its end while it came
        self.is_anew = False  # it has gone on without the broker that had it, and nothing is known of it here
        self.invited_to = ""  # the address of a broker that was invited to take it over

    def accept(self, received: int, events: int, at: int) -> None:
        """Some events have come, up to the last one with a sequence."""
        self.pub_received = received
        self.published.count(events, at // 1_000_000)

    def remember_end(self, number: SubNumber, reason: str) -> None:
        """The broker has ended a subscription."""
        self.ended[number] = reason
        if len(self.ended) > _MOST_ENDED:
            del self.ended[next(iter(self.ended))]

    @property
    def durable(self) -> bool:
        """Whether it outlives its connections."""
        return bool(self.name)

    @property
    def is_moving(self) -> bool:
        """Whether nothing about it may be changed, because it comes or goes."""
        return self.arrival is not None or self.asked is not None or self.cutting is not None

    def row(self) -> SessionRow:
        """Its row in the log."""
        return SessionRow(self.id, self.name, self.owner, self.epoch, self.pub_epoch, self.pub_received, self.expires)


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    """One connection of a client, or of a neighbour."""

    id: ConnectionId
    last_read: int  # monotonic time of the last message
    authenticate: Authenticate | None = None  # None: everybody is welcome, and nobody has a name
    key: str | None = field(init=False, default=None)  # of the credentials that were accepted
    backlog: list[Any] = field(init=False, default_factory=list)  # messages that are handled in later turns
    paused: bool = field(init=False, default=False)
    put_off: Any = field(init=False, default=None)  # a request for history that waits until it is no longer paused
    principal: str = field(init=False, default="")
    requests: TokenBucket | None = field(init=False, default=None)
    session: Session | None = field(init=False, default=None)
    welcomed: bool = field(init=False, default=False)
    hello: Hello | None = field(init=False, default=None)  # until `Whence` comes
    waits: bool = field(init=False, default=False)  # for a session that moves here
    version: int = field(init=False, default=VERSION)  # of the protocol
    wants_space: bool = field(init=False, default=False)  # in which its client may map events
    link: Neighbour | None = field(init=False, default=None)  # the neighbour, if the connection is a link
    dialled: Link | None = field(init=False, default=None)  # the neighbour to whom we have opened it
    window_events: int = field(init=False, default=0)
    window_bytes: int = field(init=False, default=0)
    windows: dict[QueueNumber, tuple[Queue, DeliveryWindow]] = field(init=False, default_factory=dict)

    @property
    def is_link(self) -> bool:
        """Whether it leads to a neighbour, or is meant to."""
        return self.link is not None or self.dialled is not None

    @property
    def unauthenticated(self) -> bool:
        """Whether it must give credentials, and has not given valid ones."""
        return self.session is None and self.authenticate is not None and not self.principal


def session_of(connection: Connection) -> Session:
    """The session of a connection that has said hello."""
    assert connection.session is not None
    return connection.session


CloseConnection = Callable[[Connection, str, str, Now], None]  # with a code and a reason


class Sessions:
    """The sessions and connections of one broker. `draw` returns 63 random bits."""

    def __init__(
        self, draw: Callable[[], int], limits: ClientLimits, out: Outbox, timers: Timers, counts: Counter[str]
    ) -> None:
        self._draw, self._limits, self._out, self._timers, self._counts = draw, limits, out, timers, counts
        self.by_id: dict[SessionId, Session] = {}
        self.by_name: dict[str, Session] = {}
        self.connections: dict[ConnectionId, Connection] = {}
        self.unauthenticated: dict[ConnectionId, Connection] = {}  # those without a hello, the oldest first
        self.logins: Counter[str] = Counter()  # connections with a session, by principal
        self._buckets: WeakValueDictionary[str, TokenBucket] = WeakValueDictionary()

    def add(self, name: str, owner: str) -> Session:
        """A new session."""
        drawn = SessionId(0)
        while not drawn or drawn in self.by_id:
            drawn = SessionId(self._draw() & ((1 << 63) - 1))
        session = Session(drawn, name, owner, self.bucket_of(owner))
        self.by_id[session.id] = session
        if name:
            self.by_name[name] = session
        return session

    def bucket_of(self, owner: str) -> TokenBucket | None:
        """The rate limit of a session: one for all sessions of a principal, or its own if it belongs to nobody."""
        if not self._limits.rate:
            return None
        bucket = self._buckets.get(owner) if owner else None
        if bucket is None:
            bucket = TokenBucket(self._limits.rate, self._limits.burst)
            if owner:
                self._buckets[owner] = bucket
        return bucket

    # -- connections ----------------------------------------------------------------------------------

    def connection_of(self, session: Session) -> Connection | None:
        """The connection of a session, while it has one."""
        return None if session.connection is None else self.connections.get(session.connection)

    def is_open(self, connection: Connection) -> bool:
        """Whether a connection is still there."""
        return self.connections.get(connection.id) is connection

    def holds_session(self, connection: Connection) -> bool:
        """Whether a connection is still there, and still holds its session."""
        return self.is_open(connection) and session_of(connection).connection == connection.id

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        del self.connections[connection.id]
        self.unauthenticated.pop(connection.id, None)

    def say_bye(self, connection: Connection, code: str, reason: str) -> None:
        """Tell a connection why it ends, and close it.

        A connection without valid credentials learns nothing: the answer does not depend on what it said.
        """
        unknown = BUSY if code == "hello" else REFUSED
        self._out.send(connection.id, unknown if connection.unauthenticated else Bye(code, reason))
        self._out.close(connection.id)

    def close_at(self, connection: Connection, until: int, close: CloseConnection, now: Now) -> None:
        """Close a connection when its credentials expire, at a UTC time, however that clock jumps."""
        if until == NEVER:
            return

        def look(later: Now) -> None:
            if not self.is_open(connection):
                return
            if later.utc < until:
                self.close_at(connection, until, close, later)
                return
            self._counts["credentials expired"] += 1
            close(connection, "expired", "the credentials have expired; connect again with new ones", later)

        self._timers.add(now.monotonic + min(max(until - now.utc, 1), _RECHECK), look)


class Queues:
    """Every durable queue of one broker."""

    def __init__(self, journal: Journal, sessions: Sessions, reader: EventReader) -> None:
        self._journal, self._sessions, self._reader = journal, sessions, reader
        self.all: dict[Queue, None] = {}
        self.shared: dict[tuple[str, str], Queue] = {}  # by owner and name
        self.shared_members: dict[Queue, ClientSubscription] = {}
        self.serve_now: dict[Queue, None] = {}  # that have room or a consumer now: served when the turn ends
        self.serve_later: dict[Queue, None] = {}  # that have more to deliver than one turn allows

    def attach(self, connection: Connection, queue: Queue, number: QueueNumber, sub: SubNumber) -> None:
        """Let a connection consume a queue, if it does not already; it is served when the turn ends."""
        if number in connection.windows:
            return
        consumer = sub if queue.share else None
        sizes, reports = (connection.window_events, connection.window_bytes), connection.version >= REPORTS
        window = DeliveryWindow(connection.id, number, *sizes, consumer, reports)
        connection.windows[number] = queue, window
        queue.windows.append(window)
        self.serve_now[queue] = None

    def drop(self, queue: Queue) -> None:
        """Remove a queue from memory."""
        for window in list(queue.windows):
            del self._sessions.connections[window.connection].windows[window.queue_number]
            queue.detach(window, self._journal.end)
        self.all.pop(queue, None)
        self._journal.moved.pop(queue, None)
        self._reader.replays.pop(queue, None)

    def rows_of(self, queue: Queue) -> list[Remove]:
        """The removal of a queue and its dead letters from the log, those on their way into it included."""
        changes = [Remove(SubRow, (queue.consumer_id,))]
        changes += [Remove(DeadRow, (queue.consumer_id, offset)) for offset in sorted(queue.burying)]
        after = Offset(0)
        while letters := self._journal.log.dead(queue.consumer_id, after, 1_000):
            changes += [Remove(DeadRow, (letter.seat, letter.offset)) for letter in letters]
            after = letters[-1].offset
        return changes

    def owner_of(self, queue: ClientQueue) -> str:
        """The principal whose rules decide what a queue may get."""
        if isinstance(queue, TransientQueue):
            return queue.connection.principal
        return queue.owner if queue.session is None else self._sessions.by_id[queue.session].owner


# -- sessions as values -------------------------------------------------------------------------------


class QueueValue(msgspec.Struct, frozen=True):
    """A queue as another broker could go on with it."""

    number: QueueNumber
    ordered: bool
    floor: Offset
    above: bytes
    attempts: bytes


class SubValue(msgspec.Struct, frozen=True):
    """A subscription as another broker could go on with it."""

    number: SubNumber
    filter: str
    queue: QueueNumber
    start: Offset


class SessionValue(msgspec.Struct, frozen=True):
    """A session as another broker could go on with it."""

    id: SessionId
    name: str
    owner: str
    epoch: int
    pub_epoch: int
    pub_seq: int
    queues: tuple[QueueValue, ...]
    subscriptions: tuple[SubValue, ...]
    adverts: tuple[tuple[int, str], ...]


def exported(session: Session, end: Offset) -> SessionValue:
    """The durable part of a session as a value. Consumer ids and slots are this broker's own, and not part of it."""
    queues = {
        number: QueueValue(number, queue.ordered, *queue.position(end).encode())
        for number, queue in sorted(session.queues.items())
        if isinstance(queue, Queue) and not queue.share
    }
    subs = [
        SubValue(number, sub.text, sub.queue.number, sub.start)
        for number, sub in sorted(session.subs.items())
        if sub.queue.number in queues and not sub.queue.share
    ]
    adverts = tuple((number, text) for number, (_, text) in sorted(session.adverts.items()))
    row = session.row()
    publisher = row.epoch, row.pub_epoch, row.pub_seq
    return SessionValue(row.id, row.name, row.owner, *publisher, tuple(queues.values()), tuple(subs), adverts)
