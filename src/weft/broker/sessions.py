"""Sessions, their subscriptions, and connections. Law: a session is a value: another broker that is given it, and the
events of its queues, can go on with it. Seats and slots are this broker's own names for its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from weft.broker.effects import ConnectionId, Now
from weft.broker.flight import Flight
from weft.broker.identity import Authenticate
from weft.broker.limits import TokenBucket
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import QueueNumber, SubNumber
from weft.broker.queue import Queue
from weft.broker.seats import Slot
from weft.log.base import NEVER, Offset, SeatId, SessionId, SessionRow
from weft.model.paged_dict import PagedDict
from weft.routing.table import Link

AnyQueue = Queue | LossyQueue


class ClientSubscription:
    """A client's filter, and where its events go."""

    __slots__ = ("number", "queue", "seat", "slot", "start", "text", "version")

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self, number: SubNumber, text: str, slot: Slot, seat: SeatId | None, queue: AnyQueue, start: Offset
    ) -> None:
        self.number = number
        self.text = text
        self.slot = slot
        self.seat = seat  # None if it is not durable
        self.queue = queue
        self.start = start  # events from here on are its own
        self.version = 0  # how often it was put into the table again, with another filter or the same


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
        self.pub_over = False  # an event was refused: nothing more of this epoch is accepted
        self.absent: dict[str, int] = {}  # values that the schema made absent, not yet reported
        self.subs: PagedDict[SubNumber, ClientSubscription] = PagedDict()
        self.queues: dict[QueueNumber, AnyQueue] = {}
        self.adverts: dict[int, tuple[int, str]] = {}  # by the client's number: the stored id, and the filter
        self.bucket = bucket
        self.keep = 0  # microseconds without a connection until it is removed; 0 is for ever
        self.expires = NEVER  # UTC
        self.revoked: dict[SubNumber, str] = {}  # subscriptions that ended without a connection, and why
        self.leaving = False  # it is forgotten as soon as that is stored

    @property
    def durable(self) -> bool:
        """Whether it outlives its connections."""
        return bool(self.name)

    def row(self) -> SessionRow:
        """As it is stored."""
        return SessionRow(self.id, self.name, self.owner, self.epoch, self.pub_epoch, self.pub_received, self.expires)


class Connection:
    """One connection of a client, or of a neighbour."""

    __slots__ = (
        "authenticate",
        "backlog",
        "dialled",
        "flights",
        "heard",
        "id",
        "key",
        "link",
        "paused",
        "principal",
        "requests",
        "session",
        "welcomed",
        "window_bytes",
        "window_events",
    )

    def __init__(self, id: ConnectionId, heard: int, authenticate: Authenticate | None = None) -> None:
        self.id = id
        self.key: str | None = None  # that let it in
        self.authenticate = authenticate  # None: everybody is welcome, and nobody has a name
        self.heard = heard  # monotonic, of the last message
        self.backlog: list[Any] = []  # messages that are handled in later turns
        self.paused = False
        self.principal = ""
        self.requests: TokenBucket | None = None
        self.session: Session | None = None
        self.welcomed = False
        self.link: Any = None  # the neighbour, if the connection is a link
        self.dialled: Link | None = None  # the neighbour to whom we have opened it
        self.window_events = 0
        self.window_bytes = 0
        self.flights: dict[QueueNumber, tuple[Queue, Flight]] = {}


CloseConnection = Callable[[Connection, str, str, Now], None]  # end a connection, with a code and a reason


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
    """A session's durable part as a value."""
    queues = []
    for number, queue in sorted(session.queues.items()):
        if isinstance(queue, Queue) and not queue.share:
            queues.append(QueueValue(number, queue.ordered, *queue.position(end).encode()))
    subs = [
        SubValue(number, sub.text, sub.queue.number, sub.start)
        for number, sub in sorted(session.subs.items())
        if isinstance(sub.queue, Queue) and not sub.queue.share
    ]
    adverts = tuple((number, text) for number, (_, text) in sorted(session.adverts.items()))
    return SessionValue(
        session.id,
        session.name,
        session.owner,
        session.epoch,
        session.pub_epoch,
        session.pub_received,
        tuple(queues),
        tuple(subs),
        adverts,
    )
