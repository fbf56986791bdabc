"""Subscriptions and advertisements. Laws: a change holds from an exact offset on, and is stored with the events around
it; it is confirmed when it is stored, and undone when it is not.
"""

from __future__ import annotations

from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.flight import Flight
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import (
    Accepted,
    Advertise,
    Complete,
    Failed,
    QueueNumber,
    Replace,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from weft.broker.publishing import Publishing
from weft.broker.queue import Queue
from weft.broker.row_options import SHARED, member_row, queue_row
from weft.broker.sessions import AnyQueue, Connection, Session, Subscription
from weft.broker.state import BrokerState
from weft.errors import AccessError, FilterError, LocalProtocolError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.text import parse
from weft.log.base import AdvertRow, DeadRow, Offset, Put, Remove, SeatId, SubRow
from weft.routing.table import ClientId


class Subscribing:
    """Changes subscriptions, each in the draft of the current call."""

    def __init__(self, state: BrokerState, delivery: Delivery, publishing: Publishing) -> None:
        self._state = state
        self._delivery = delivery
        self._publishing = publishing

    def _filter(self, connection: Connection, text: str) -> Filter:
        limit = self._state.limits.filter
        if len(text) > limit or len(text.encode()) > limit:
            raise RequestError("filter", f"a filter has at most {limit:,} bytes")
        wanted = parse(text)
        self._state.rules.of(connection.principal).check_subscribe(wanted)
        return wanted

    # -- subscribe ------------------------------------------------------------------------------------

    def subscribe(self, connection: Connection, message: Subscribe, now: Now) -> None:
        """Add a subscription, and a queue if there is none of its number. Raises RequestError and what filters raise."""
        session = _session(connection)
        state = self._state
        if message.number in session.subs:
            raise RequestError("exists", f"subscription {message.number} already exists; replace or unsubscribe it")
        if len(session.subs) >= state.limits.subscriptions:
            raise RequestError("limit", f"a session has at most {state.limits.subscriptions:,} subscriptions")
        wanted = self._filter(connection, message.filter)
        self._publishing.match(now)
        if message.share:
            self._share(connection, message, wanted, now)
            return
        known = session.queues.get(message.queue)
        queue = self._new_queue(connection, message) if known is None else known
        if known is not None:
            _check_agrees(known, message)
        durable = isinstance(queue, Queue)
        seat = state.new_seat() if durable else None
        slot, tells = state.seats.add(wanted, seat, queue, message.number)
        state.tell(tells)
        sub = Subscription(message.number, message.filter, slot, seat, queue, state.next)
        session.subs[message.number] = sub
        session.queues[message.queue] = queue
        if isinstance(queue, LossyQueue):
            queue.members[sub.number] = sub.start
            state.out.send(connection.id, *_accepted("subscribe", sub.number, sub.start))
            return
        assert seat is not None
        queue.members[seat] = sub.number
        if known is None:
            self._begin(queue, sub, wanted, message)
        state.draft.changes.append(Put(member_row(session.id, sub)))
        self._confirm(connection, session, "subscribe", sub)
        state.draft.rejected.append(lambda reason, now: self._undo_subscribe(connection, session, sub, reason, now))

    def _new_queue(self, connection: Connection, message: Subscribe) -> AnyQueue:
        session, limits = _session(connection), self._state.limits
        if len(session.queues) >= limits.queues:
            raise RequestError("limit", f"a session has at most {limits.queues:,} queues")
        durable = session.durable if message.durable is None else message.durable
        if not durable:
            if message.since is not None or message.since_time is not None:
                raise RequestError("since", "older events need a durable queue; give the session a name")
            return LossyQueue(message.queue, connection, message.lag or limits.held, message.disconnect)
        if not session.durable:
            raise RequestError("durable", "a durable queue needs a session with a name")
        lag = min(message.lag or limits.lag, limits.lag)
        return Queue(
            self._state.new_seat(),
            message.queue,
            cursor=self._state.next,
            ordered=message.ordered,
            session=session.id,
            lag=lag,
            disconnect=message.disconnect,
        )

    def _begin(self, queue: Queue, sub: Subscription, wanted: Filter, message: Subscribe) -> None:
        """A new durable queue begins now, or with older events."""
        state = self._state
        state.queues[queue] = None
        since = message.since
        if message.since_time is not None:
            since = state.log.find(message.since_time)
        replay = None
        if since is not None and since < sub.start:
            first = Offset(max(since, state.log_first))
            if 0 < since < first:
                queue.gap = Offset(since), first
            if first < sub.start:
                assert sub.seat is not None
                queue.cursor, queue.replay_until, replay = first, sub.start, sub.seat
                self._delivery.reader.replays[queue] = sub.seat, wanted
        queue.stored_floor = queue.cursor
        state.draft.changes.append(Put(queue_row(queue, state.end, replay)))

    def _share(self, connection: Connection, message: Subscribe, wanted: Filter, now: Now) -> None:
        """Consume a shared queue, for as long as the connection lasts."""
        session, state = _session(connection), self._state
        if message.queue in session.queues:
            raise RequestError("queue", f"queue {message.queue} exists; a shared queue needs a number of its own")
        if message.since is not None or message.since_time is not None:
            raise RequestError("since", "a shared queue begins with new events")
        if message.durable is False or len(message.share) > state.limits.name:
            raise RequestError(
                "share", f"shared queues are durable and have names of up to {state.limits.name} characters"
            )
        key = session.owner, message.share
        queue = state.shared.get(key)
        if queue is None:
            seat = state.new_seat()
            queue = Queue(
                state.new_seat(), message.queue, cursor=state.next, share=message.share, owner=session.owner,
                lag=min(message.lag or state.limits.lag, state.limits.lag), disconnect=message.disconnect,
            )  # fmt: skip
            slot, tells = state.seats.add(wanted, seat, queue, SubNumber(0))
            state.tell(tells)
            state.shared[key] = queue
            state.queues[queue] = None
            queue.members[seat] = SubNumber(0)
            member = Subscription(SubNumber(0), message.filter, slot, seat, queue, state.next)
            state.shared_members[queue] = member
            state.draft.changes += [Put(queue_row(queue, state.end)), Put(member_row(SHARED, member))]
            made = queue
            state.draft.rejected.append(lambda reason, now: self._forget_shared(made, now))
        else:
            member = state.shared_members[queue]
            if parse(member.text) != wanted:
                raise RequestError("filter", f"the shared queue {message.share!r} has another filter: {member.text}")
        sub = Subscription(message.number, message.filter, member.slot, None, queue, state.next)
        session.subs[message.number] = sub
        session.queues[message.queue] = queue
        state.draft.urgent = True
        self._confirm(connection, session, "subscribe", sub, message.queue)
        state.draft.rejected.append(lambda reason, now: self._undo_subscribe(connection, session, sub, reason, now))

    def _confirm(
        self, connection: Connection, session: Session, about: str, sub: Subscription, queue: QueueNumber | None = None
    ) -> None:
        """When it is stored, the client is told, and a new queue delivers."""
        state = self._state
        state.draft.urgent = True
        offset = state.next
        joined = sub.queue.number if queue is None else queue

        def committed(_: Now) -> None:
            if isinstance(sub.queue, Queue):
                sub.queue.stored = True
            if session.connection != connection.id or connection.id not in state.connections:
                return
            state.out.send(connection.id, *_accepted(about, sub.number, offset))
            if session.subs.get(sub.number) is sub and isinstance(sub.queue, Queue):
                self.attach(connection, sub.queue, joined, sub.number)

        state.draft.committed.append(committed)

    def attach(self, connection: Connection, queue: Queue, number: QueueNumber, sub: SubNumber) -> None:
        """A connection consumes a queue, if it does not already; it is served when the call ends."""
        if number in connection.flights:
            return
        consumer = sub if queue.share else None
        flight = Flight(connection.id, number, connection.window_events, connection.window_bytes, consumer)
        connection.flights[number] = queue, flight
        queue.attach(flight)
        self._state.fresh.append(queue)

    def _undo_subscribe(
        self, connection: Connection, session: Session, sub: Subscription, reason: str, now: Now
    ) -> None:
        self._fail(connection, session, "subscribe", sub.number, reason)
        if session.subs.get(sub.number) is sub:
            self.take_out(session, sub, now)

    # -- replace --------------------------------------------------------------------------------------

    def replace(self, connection: Connection, message: Replace, now: Now) -> None:
        """Give a subscription another filter, from the next event on."""
        session, state = _session(connection), self._state
        sub = _known(session, message.number)
        wanted = self._filter(connection, message.filter)
        queue = sub.queue
        if isinstance(queue, Queue):
            if queue.share:
                raise RequestError("share", "the filter of a shared queue cannot be replaced; use another name")
            if queue.at(state.end) < queue.replay_until:
                raise RequestError("replaying", "older events are still being delivered; replace the filter afterwards")
        self._publishing.match(now)
        state.tell(state.seats.replace(sub.slot, wanted))
        before, sub.text = sub.text, message.filter
        if sub.seat is None:
            state.out.send(connection.id, *_accepted("replace", sub.number, state.next))
            return
        state.draft.changes.append(Put(member_row(session.id, sub)))
        self._confirm(connection, session, "replace", sub)

        def rejected(reason: str, now: Now) -> None:
            if session.subs.get(sub.number) is sub:
                state.tell(state.seats.replace(sub.slot, parse(before)))
                sub.text = before
            self._fail(connection, session, "replace", sub.number, reason)

        state.draft.rejected.append(rejected)

    # -- unsubscribe ----------------------------------------------------------------------------------

    def unsubscribe(self, connection: Connection, message: Unsubscribe, now: Now) -> None:
        """End a subscription; a queue without subscriptions goes with it."""
        session, state = _session(connection), self._state
        sub = _known(session, message.number)
        self._publishing.match(now)
        queue = sub.queue
        at = state.next
        if isinstance(queue, Queue) and queue.share:
            self._leave_share(session, sub, now)
            if not queue.flights and not self._is_consumed(queue):
                self._remove_shared(queue, now)
            state.draft.urgent = True
            self._answer(connection, session, "unsubscribe", message.number, at)
            return
        self.take_out(session, sub, now)
        if sub.seat is None:
            state.out.send(connection.id, Accepted("unsubscribe", message.number, at))
            return
        assert isinstance(queue, Queue)
        state.draft.changes.append(Remove(SubRow, (sub.seat,)))
        if not queue.members:
            self.remove_rows(queue)
        self._answer(connection, session, "unsubscribe", message.number, at)
        state.draft.rejected.append(lambda reason, now: self._undo_unsubscribe(connection, session, sub, reason, now))

    def _answer(self, connection: Connection, session: Session, about: str, number: int, at: Offset) -> None:
        state = self._state
        state.draft.urgent = True

        def committed(_: Now) -> None:
            if session.connection == connection.id and connection.id in state.connections:
                state.out.send(connection.id, Accepted(about, number, at))

        state.draft.committed.append(committed)

    def take_out(self, session: Session, sub: Subscription, now: Now) -> None:
        """Remove a subscription from memory, and its queue if that was the last."""
        state, queue = self._state, sub.queue
        if isinstance(queue, Queue) and queue.share:
            self._leave_share(session, sub, now)
            return
        del session.subs[sub.number]
        state.tell(state.seats.discard(sub.slot))
        queue.changed = state.next
        if isinstance(queue, LossyQueue):
            queue.members.pop(sub.number, None)
            if not queue.members:
                del session.queues[queue.number]
            return
        assert sub.seat is not None
        del queue.members[sub.seat]
        if self._delivery.reader.replays.get(queue, (None, None))[0] == sub.seat:
            queue.cursor, queue.replay_until = max(queue.cursor, queue.replay_until), Offset(0)
            del self._delivery.reader.replays[queue]
        if not queue.members:
            del session.queues[queue.number]
            self.drop_queue(queue)

    def drop_queue(self, queue: Queue) -> None:
        """A queue is gone from memory."""
        state = self._state
        for flight in list(queue.flights):
            state.connections[flight.connection].flights.pop(flight.queue_number, None)
            queue.detach(flight, state.end)
        state.queues.pop(queue, None)
        state.dirty.pop(queue, None)

    def remove_rows(self, queue: Queue) -> None:
        """A queue is gone from the log, with its dead letters."""
        changes = self._state.draft.changes
        changes.append(Remove(SubRow, (queue.seat,)))
        after = Offset(0)
        while letters := self._state.log.dead(queue.seat, after, 1_000):
            changes += [Remove(DeadRow, (letter.seat, letter.offset)) for letter in letters]
            after = letters[-1].offset

    def _undo_unsubscribe(
        self, connection: Connection, session: Session, sub: Subscription, reason: str, now: Now
    ) -> None:
        """The subscription is still there: no event was stored since."""
        state, queue = self._state, sub.queue
        assert isinstance(queue, Queue)
        assert sub.seat is not None
        sub.slot, tells = state.seats.add(parse(sub.text), sub.seat, queue, sub.number)
        state.tell(tells)
        session.subs[sub.number] = sub
        queue.members[sub.seat] = sub.number
        if queue.number not in session.queues:
            session.queues[queue.number] = queue
            state.queues[queue] = None
        here = state.connection_of(session)
        if here is not None:
            self.attach(here, queue, queue.number, sub.number)
        self._fail(connection, session, "unsubscribe", sub.number, reason)

    # -- shared queues --------------------------------------------------------------------------------

    def _leave_share(self, session: Session, sub: Subscription, now: Now) -> None:
        state, queue = self._state, sub.queue
        assert isinstance(queue, Queue)
        del session.subs[sub.number]
        for number in [number for number, each in session.queues.items() if each is queue]:
            del session.queues[number]
            here = state.connection_of(session)
            if here is not None and number in here.flights:
                _, flight = here.flights.pop(number)
                queue.detach(flight, state.end)
        if queue.flights:
            self._state.fresh.append(queue)

    def _is_consumed(self, queue: Queue) -> bool:
        return any(queue in session.queues.values() for session in self._state.sessions.values())

    def _remove_shared(self, queue: Queue, now: Now) -> None:
        member = self._state.shared_members[queue]
        assert member.seat is not None
        self._forget_shared(queue, now)
        self._state.draft.changes.append(Remove(SubRow, (member.seat,)))
        self.remove_rows(queue)

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            state = self._state
            seat = SeatId(member.seat or 0)
            member.slot, tells = state.seats.add(parse(member.text), seat, queue, SubNumber(0))
            state.tell(tells)
            queue.members[seat] = SubNumber(0)
            state.shared[queue.owner, queue.share] = queue
            state.shared_members[queue] = member
            state.queues[queue] = None

        self._state.draft.rejected.append(rejected)

    def _forget_shared(self, queue: Queue, now: Now) -> None:  # noqa: ARG002
        state = self._state
        member = state.shared_members.pop(queue)
        state.tell(state.seats.discard(member.slot))
        queue.members.clear()
        queue.changed = state.next
        del state.shared[queue.owner, queue.share]
        self.drop_queue(queue)

    # -- advertisements -------------------------------------------------------------------------------

    def advertise(self, connection: Connection, message: Advertise, now: Now) -> None:
        """Add an advertisement. Raises LocalProtocolError where the table has none."""
        session, state = _session(connection), self._state
        if message.number in session.adverts:
            raise RequestError("exists", f"advertisement {message.number} already exists")
        if len(session.adverts) >= state.limits.adverts:
            raise RequestError("limit", f"a session has at most {state.limits.adverts:,} advertisements")
        wanted = parse(message.filter)
        self._publishing.match(now)
        client, stored = ClientId(str(session.id)), int(state.new_seat())
        state.tell(state.seats.table.advertise(client, {SubId(stored): wanted}, ()))
        session.adverts[message.number] = stored, message.filter
        if not session.durable:
            state.out.send(connection.id, Accepted("advertise", message.number, state.next))
            return
        state.draft.changes.append(Put(AdvertRow(stored, session.id, message.filter)))
        self._answer(connection, session, "advertise", message.number, state.next)

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            if session.adverts.pop(message.number, None) is not None:
                state.tell(state.seats.table.advertise(client, {}, (SubId(stored),)))
            self._fail(connection, session, "advertise", message.number, reason)

        state.draft.rejected.append(rejected)

    def unadvertise(self, connection: Connection, message: Unadvertise, now: Now) -> None:
        """Remove an advertisement."""
        session, state = _session(connection), self._state
        if message.number not in session.adverts:
            raise RequestError("unknown", f"there is no advertisement {message.number}")
        self._publishing.match(now)
        stored, text = session.adverts.pop(message.number)
        client = ClientId(str(session.id))
        state.tell(state.seats.table.advertise(client, {}, (SubId(stored),)))
        if not session.durable:
            state.out.send(connection.id, Accepted("unadvertise", message.number, state.next))
            return
        state.draft.changes.append(Remove(AdvertRow, (stored,)))
        self._answer(connection, session, "unadvertise", message.number, state.next)

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            state.tell(state.seats.table.advertise(client, {SubId(stored): parse(text)}, ()))
            session.adverts[message.number] = stored, text
            self._fail(connection, session, "unadvertise", message.number, reason)

        state.draft.rejected.append(rejected)

    def _fail(self, connection: Connection, session: Session, about: str, number: int, reason: str) -> None:
        if session.connection == connection.id and connection.id in self._state.connections:
            self._state.out.send(connection.id, Failed(about, number, "full", reason))


class RequestError(Exception):
    """A request that cannot be granted, with a code for it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


REFUSALS = (RequestError, FilterError, AccessError, LocalProtocolError)


def code_of(error: Exception) -> str:
    """The code of a refusal."""
    if isinstance(error, RequestError):
        return error.code
    return "filter" if isinstance(error, FilterError) else "access" if isinstance(error, AccessError) else "table"


def _accepted(about: str, number: SubNumber, offset: Offset) -> tuple[Accepted, Complete]:
    """Without links a subscription is complete when it is accepted."""
    return Accepted(about, number, offset), Complete(number)


def _session(connection: Connection) -> Session:
    assert connection.session is not None
    return connection.session


def _known(session: Session, number: SubNumber) -> Subscription:
    sub = session.subs.get(number)
    if sub is None:
        raise RequestError("unknown", f"there is no subscription {number}")
    return sub


def _check_agrees(queue: AnyQueue, message: Subscribe) -> None:
    """Raise RequestError if a subscription asks of an existing queue what it is not."""
    durable = isinstance(queue, Queue)
    if isinstance(queue, Queue) and queue.share:
        raise RequestError("queue", f"queue {message.queue} is shared; it has one filter only")
    if message.since is not None or message.since_time is not None:
        raise RequestError("since", f"older events need a queue of their own; queue {message.queue} exists")
    if message.durable is not None and message.durable is not durable:
        raise RequestError("queue", f"queue {message.queue} is {'' if durable else 'not '}durable")
