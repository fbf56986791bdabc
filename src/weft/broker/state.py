"""What the parts of a broker share. Law: `end` is the offset after the last stored event, `next` after the last one
that was given out; between the two lie the events of groups on their way into the log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from weft.broker.admission import Admission
from weft.broker.completion import Completion
from weft.broker.drafts import Draft, PendingGroup
from weft.broker.effects import ConnectionId
from weft.broker.limits import ClientLimits, TokenBucket
from weft.broker.lossy_queue import LossyQueue
from weft.broker.outbox import Outbox, Timers
from weft.broker.queue import Queue
from weft.broker.rules import Rules
from weft.broker.seats import LocalSeats
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.broker.tail import Tail
from weft.language.ast import Filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.log.base import NEVER, Log, Offset, SeatId, SessionId, State
from weft.model.schema import Schema
from weft.routing.table import Link, Tell

if TYPE_CHECKING:
    from weft.broker.link import Neighbour
    from weft.broker.link_events import EventLane


class BrokerState:
    """Everything that a broker knows."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a broker
        self,
        log: Log,
        state: State,
        seats: LocalSeats,
        draw: Callable[[], int],
        schema: Schema | None,
        rules: Rules,
        limits: ClientLimits,
        predicates: Predicates = NO_PREDICATES,
    ) -> None:
        self.log = log
        self.log_id, self.incarnation = state.log_id, state.incarnation
        self.log_first = state.first  # the oldest event that the log has
        self.end = self.next = state.next
        self.next_seat = state.next_seat
        self.at = state.at  # UTC, the latest that log or clock have shown: it never goes back; expiry goes by it
        self.seats = seats
        self.draw = draw
        self.schema = schema
        self.rules = rules
        self.limits = limits
        self.predicates = predicates
        self.door = Admission(schema)
        self.tail = Tail(limits.tail, state.next)
        self.sessions: dict[SessionId, Session] = {}
        self.names: dict[str, Session] = {}
        self.shared: dict[tuple[str, str], Queue] = {}  # by owner and name
        self.shared_members: dict[Queue, ClientSubscription] = {}
        self.queues: dict[Queue, None] = {}  # every durable one
        self.connections: dict[ConnectionId, Connection] = {}
        self.strangers: dict[ConnectionId, Connection] = {}  # those that have not said hello, the oldest first
        self.logins: Counter[str] = Counter()  # connections that have, by principal
        self._buckets: WeakValueDictionary[str, TokenBucket] = WeakValueDictionary()
        self.dirty: dict[Queue, None] = {}  # whose floor is to be stored
        self.ready: dict[Queue, None] = {}  # that have more to deliver
        self.fresh: dict[Queue, None] = {}  # that have room now, or consumers: they are served at the end of the call
        self.pending: deque[PendingGroup] = deque()
        self.draft = Draft()
        self.suspects: deque[tuple[Session | None, ClientSubscription]] = (
            deque()
        )  # to be checked; None: of a shared queue
        self.out = Outbox()
        self.timers = Timers()
        self.completion = Completion(seats.table)
        self.neighbours: dict[Link, Neighbour] = {}
        self.dirty_lanes: dict[EventLane, None] = {}  # whose floor is to be stored
        self.too_far: list[Link] = []  # neighbours that are too far behind
        self.tells: Callable[[Sequence[Tell]], None] | None = None
        self.counts: Counter[str] = Counter()  # what happened, for status and tests

    @property
    def upcoming(self) -> Offset:
        """The offset of the next event that comes in, if everything that has come in is stored."""
        return Offset(self.next + len(self.draft.attributes))

    def read(self, text: str) -> Filter:
        """The filter of a text, with the predicates that filters may call here. Raises FilterError."""
        return parse(text, self.predicates)

    def new_seat(self) -> SeatId:
        """A seat that no other subscription, queue or link has ever had."""
        seat = self.next_seat
        self.next_seat = SeatId(seat + 1)
        return seat

    def new_session_id(self) -> SessionId:
        """An id that no session here has."""
        while True:
            drawn = SessionId(self.draw() & ((1 << 63) - 1))
            if drawn and drawn not in self.sessions:
                return drawn

    def bucket_of(self, owner: str) -> TokenBucket | None:
        """What limits the rate of a session: one for all sessions of a principal, or its own if it is nobody's."""
        if not self.limits.rate:
            return None
        bucket = self._buckets.get(owner) if owner else None
        if bucket is None:
            bucket = TokenBucket(self.limits.rate, self.limits.burst)
            if owner:
                self._buckets[owner] = bucket
        return bucket

    def take_back_offsets(self) -> None:
        """Groups were not stored: the next event gets the first of their offsets, which nobody has seen.

        Were they skipped, a broker that restarts would not know, and give them to events that queues do not expect.
        """
        batches = [batch for group in self.pending for batch in group.batches]
        self.next = batches[-1].end if batches else self.end
        for session in self.sessions.values():
            for queue in session.queues.values():
                queue.changed = Offset(min(queue.changed, self.next))
                if isinstance(queue, LossyQueue):
                    queue.members = {number: Offset(min(start, self.next)) for number, start in queue.members.items()}

    def tell(self, tells: list[Tell]) -> None:
        """What the table wants its neighbours to know."""
        if tells:
            assert self.tells is not None, "a table without links tells nobody anything"
            self.tells(tells)

    def connection_of(self, session: Session) -> Connection | None:
        """The session's connection, while it has one."""
        return None if session.connection is None else self.connections.get(session.connection)

    def owner_of(self, queue: Queue | LossyQueue) -> str:
        """The principal whose rules decide what a queue may get."""
        if isinstance(queue, LossyQueue):
            return queue.connection.principal
        return queue.owner if queue.session is None else self.sessions[queue.session].owner

    def suspect(self, session: Session | None, sub: ClientSubscription) -> None:
        """A subscription may not be allowed any more; until that is known, each event for it is checked."""
        self.suspects.append((session, sub))
        sub.queue.recheck = Offset(NEVER)

    def consumers(self, queue: Queue) -> Iterator[Connection]:
        """The connections that consume a queue."""
        return (self.connections[flight.connection] for flight in queue.flights)
