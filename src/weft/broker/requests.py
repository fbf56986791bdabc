"""What all requests of clients share. Law: a request is confirmed when it is stored, or else it fails and is undone.

While a request is on its way into the log, its client may be gone, or connected anew: answers go to the connection that
asked, or nowhere.
"""

from __future__ import annotations

from weft.algebra.relate import as_form
from weft.broker.announcing import Announcing, Still
from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.flight import Flight
from weft.broker.messages import Accepted, BrokerMessage, Failed, QueueNumber, SubNumber
from weft.broker.publishing import Publishing
from weft.broker.queue import Queue
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.broker.state import BrokerState
from weft.errors import AccessError, FilterError, LocalProtocolError
from weft.language.ast import Filter
from weft.language.lexer import is_longer
from weft.log.base import DeadRow, Offset, Remove, SubRow
from weft.model.limits import LIMITS


class RefusalError(Exception):
    """A request that cannot be granted, with a code for it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


REFUSALS = (RefusalError, FilterError, AccessError, LocalProtocolError)


def code_of(error: Exception) -> str:
    """The code of a refusal."""
    if isinstance(error, RefusalError):
        return error.code
    return "filter" if isinstance(error, FilterError) else "access" if isinstance(error, AccessError) else "table"


class Requests:
    """Changes that are part of the current draft."""

    def __init__(self, state: BrokerState, delivery: Delivery, publishing: Publishing, announcing: Announcing) -> None:
        self.state = state
        self.announcing = announcing
        self.delivery = delivery
        self.publishing = publishing

    def read_filter(self, connection: Connection, text: str) -> Filter:
        """A filter that the client may subscribe to. Raises RequestError, FilterError or AccessError."""
        limit = self.state.limits.filter
        if limit < LIMITS.text and is_longer(text, limit):  # above that, `parse` decides what is too long
            raise RefusalError("filter", f"a filter has at most {limit:,} bytes")
        wanted = self.state.read(text)
        as_form(wanted, self.state.seats.table.schema)  # as table and index need it: rules then find it normalized
        self.state.rules.of(connection.principal).check_subscribe(wanted)
        return wanted

    # -- answers --------------------------------------------------------------------------------------

    def is_there(self, connection: Connection) -> bool:
        """Whether a connection still holds its session."""
        session = connection.session
        assert session is not None
        return self.state.connections.get(connection.id) is connection and session.connection == connection.id

    def answer(self, connection: Connection, *messages: BrokerMessage) -> None:
        """Answer when the draft is stored."""

        def committed(_: Now) -> None:
            if self.is_there(connection):
                self.state.out.send(connection.id, *messages)

        self.state.draft.urgent = True
        self.state.draft.committed.append(committed)

    def answer_change(self, connection: Connection, done: Accepted, still: Still, stored: bool = True) -> None:
        """Answer a request that has changed the table: now, or when the draft is stored; and when it is complete."""
        announcement = self.announcing.begin(session_of(connection), done.about, done.number, still)
        if not stored:
            self.state.out.send(connection.id, done)
            self.announcing.accepted(announcement)
            return
        self.answer(connection, done)
        self.state.draft.committed.append(lambda _: self.announcing.accepted(announcement))

    def fail(self, connection: Connection, about: str, number: int, reason: str) -> None:
        """A request could not be stored."""
        if self.is_there(connection):
            self.state.out.send(connection.id, Failed(about, number, "full", reason))

    # -- queues ---------------------------------------------------------------------------------------

    def attach_when_stored(self, connection: Connection, sub: ClientSubscription, number: QueueNumber) -> None:
        """The connection consumes the subscription's queue as soon as the draft is stored."""
        session, queue = session_of(connection), sub.queue
        assert isinstance(queue, Queue)

        def committed(_: Now) -> None:
            queue.stored = True
            if self.is_there(connection) and session.queues.get(number) is queue:
                self.attach(connection, queue, number, sub.number)

        self.state.draft.committed.append(committed)

    def attach(self, connection: Connection, queue: Queue, number: QueueNumber, sub: SubNumber) -> None:
        """A connection consumes a queue, if it does not already; it is served when the call ends."""
        if number in connection.flights:
            return
        consumer = sub if queue.share else None
        flight = Flight(connection.id, number, connection.window_events, connection.window_bytes, consumer)
        connection.flights[number] = queue, flight
        queue.attach(flight)
        self.state.fresh[queue] = None

    def drop_queue(self, queue: Queue) -> None:
        """A queue is gone from memory."""
        state = self.state
        for flight in list(queue.flights):
            del state.connections[flight.connection].flights[flight.queue_number]
            queue.detach(flight, state.end)
        state.queues.pop(queue, None)
        state.dirty.pop(queue, None)
        self.delivery.reader.replays.pop(queue, None)

    def remove_rows(self, queue: Queue) -> None:
        """A queue is gone from the log, with its dead letters."""
        self.state.draft.changes += self.rows_of(queue)

    def rows_of(self, queue: Queue) -> list[Remove]:
        """The removal of a queue and its dead letters, those on their way into the log included."""
        changes = [Remove(SubRow, (queue.seat,))]
        changes += [Remove(DeadRow, (queue.seat, offset)) for offset in sorted(queue.burying)]
        after = Offset(0)
        while letters := self.state.log.dead(queue.seat, after, 1_000):
            changes += [Remove(DeadRow, (letter.seat, letter.offset)) for letter in letters]
            after = letters[-1].offset
        return changes


def session_of(connection: Connection) -> Session:
    """The session of a connection that has said hello."""
    assert connection.session is not None
    return connection.session
