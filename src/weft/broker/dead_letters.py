"""Events that a subscriber failed to handle too often. Laws: a dead letter is stored with its body before its queue
goes on; one that is tried again stays a dead letter until it is acknowledged.
"""

from __future__ import annotations

import msgspec

from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.flight import Flight, Revived
from weft.broker.messages import (
    Ack,
    DeadDone,
    DeadEvent,
    DeadLetters,
    Deliver,
    DropDead,
    ListDead,
    Nack,
    RetryDead,
    pack,
    unpack,
)
from weft.broker.queue import Queue
from weft.broker.requests import RefusalError
from weft.broker.row_options import floor_change
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.log.base import DeadRow, Offset, Put, Remove, SeatId

_MOST = 100  # letters in one answer
_MOST_BYTES = 1 << 19
_REMEMBERED = 1_000  # dead letters of a connection whose late acknowledgement counts

_encode = msgspec.msgpack.Encoder().encode


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter's event."""

    head: msgspec.Raw
    payload: bytes
    at: int
    seats: list[SeatId]  # the subscriptions that it was for


_bodies = msgspec.msgpack.Decoder(_Body)


class Dead:
    """Negative acknowledgements and dead letters of a broker."""

    def __init__(self, state: BrokerState, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery

    def nack(self, connection: Connection, message: Nack, now: Now) -> None:
        """Deliveries failed: they return after a while, or become dead letters."""
        known = connection.flights.get(message.queue)
        if known is None:
            return
        queue, flight = known
        tried = flight.revived
        revived = [offset for offset, n in message.failed if offset in tried and tried[offset].attempt == n]
        for offset in {*revived}:
            del tried[offset]  # it stays a dead letter
        limits = self._state.limits
        # a dead letter of a queue that is about to go would be left behind: such events are just tried again
        leaving = connection.session is not None and connection.session.leaving
        leaving = leaving or queue.leaving == queue.members.keys()
        again, dead = queue.nack(flight, message.failed, 1 << 62 if leaving else limits.failures)
        if not again and not dead:
            if revived and not queue.live:
                self._state.fresh[queue] = None  # they have left room
            return
        self._state.counts["negative acknowledgements"] += len(again) + len(dead)
        self._state.dirty[queue] = None
        queue.leave(self._state.end)
        for failed in again:
            wait = min(limits.backoff << min(queue.failures[failed] - 1, 32), limits.longest_backoff)
            queue.delay(failed, now.monotonic + wait)
        if dead:
            self._bury(queue, dead, message.reason)
            flight.buried.update({offset: queue.attempt(offset) - 1 for offset in dead})
            for oldest in [*flight.buried][: max(0, len(flight.buried) - _REMEMBERED)]:
                del flight.buried[oldest]
        self._state.fresh[queue] = None
        self._delivery.arm(queue, now)

    def _bury(self, queue: Queue, offsets: list[int], reason: str) -> None:
        state = self._state
        found = self._delivery.reader.find(queue, offsets, state.limits.turn)
        gone = [offset for offset in offsets if offset not in found]
        queue.done(gone)
        for offset, entry in sorted(found.items()):
            numbers = unpack(entry.packed)
            seats = [seat for seat, number in sorted(queue.members.items()) if queue.share or number in numbers]
            body = _encode(_Body(entry.head, entry.payload, entry.at, seats))
            row = DeadRow(queue.seat, Offset(offset), queue.failures[offset], reason[:1000], state.at, body)
            state.draft.changes.append(Put(row))
        if not found:
            return
        queue.holes = True
        change = floor_change(queue, state.end)
        state.draft.changes.append(change)
        state.draft.floors.append((queue, change.floor))
        state.draft.urgent = True
        state.counts["dead letters"] += len(found)
        buried = sorted(found)

        def committed(later: Now) -> None:
            still = [offset for offset in buried if offset in queue.burying]
            queue.done(still)
            if queue in state.queues:
                state.dirty[queue] = None
                self._delivery.pump(queue, later)

        def rejected(reason: str, later: Now) -> None:  # noqa: ARG001
            for offset in buried:
                if offset in queue.burying:
                    queue.burying.discard(offset)
                    queue.failures[offset] -= 1
                    queue.delay(offset, later.monotonic + state.limits.longest_backoff)
            self._delivery.arm(queue, later)

        state.draft.committed.append(committed)
        state.draft.rejected.append(rejected)

    # -- what a client does with them -----------------------------------------------------------------

    def _queue(self, connection: Connection, message: ListDead | RetryDead | DropDead) -> Queue:
        """The queue that is asked about. Raises RequestError and AccessError."""
        session, state = connection.session, self._state
        assert session is not None
        state.rules.of(connection.principal).check("dead-letters")
        if message.share:
            shared = state.shared.get((session.owner, message.share))
            if shared is None:
                raise RefusalError("unknown", f"there is no shared subscription {message.share!r}")
            return shared
        if message.session:
            named = state.names.get(message.session)
            if named is None or named.owner != session.owner:
                raise RefusalError("unknown", f"there is no session {message.session!r} of yours; is the name shared?")
            session = named
        queue = session.queues.get(message.queue)
        if not isinstance(queue, Queue):
            raise RefusalError("unknown", f"there is no durable queue {message.queue}")
        return queue

    def list(self, connection: Connection, message: ListDead) -> None:
        """Some dead letters, by offset."""
        queue = self._queue(connection, message)
        limit = max(1, min(message.limit, _MOST))
        letters: list[DeadEvent] = []
        size, after, more = 0, message.after, True
        while more and not letters:  # pages of which the rules allow nothing are skipped
            rows = self._state.log.dead(queue.seat, after, limit)
            more = len(rows) == limit
            for row in rows:
                body = _bodies.decode(row.body)
                if row.offset in queue.forgotten or not self._delivery.may_read(queue, body.head):
                    continue
                size += len(row.body) + 100
                if letters and size > _MOST_BYTES:
                    more = True
                    break
                letters.append(DeadEvent(row.offset, row.attempts, row.reason, row.at, body.head, body.payload))
            after = rows[-1].offset if rows else after
        self._state.out.send(connection.id, DeadLetters(message.request, tuple(letters), more))

    def retry(self, connection: Connection, message: RetryDead) -> None:
        """Deliver dead letters once more, as far as the window has room."""
        queue = self._queue(connection, message)
        flight = self._consumer(connection, queue)
        tried: list[Offset] = []
        for offset in sorted(set(message.offsets)):
            row = self._row(queue, offset)
            if row is None or flight is None:
                continue
            if not flight.has_room or offset in flight.revived or self._state.connections[flight.connection].paused:
                continue
            body = _bodies.decode(row.body)
            numbers = [queue.members[seat] for seat in body.seats if seat in queue.members]
            if not numbers or not self._delivery.may_read(queue, body.head):
                continue  # nobody wants it any more, or may have it
            if flight.sub_number is not None:
                numbers = [flight.sub_number]
            attempt = max(row.attempts, flight.buried.get(offset, 0)) + 1  # no answer to an earlier one is meant for it
            flight.revived[offset] = Revived(attempt, by_floor=flight.connection == connection.id)
            self._state.out.send(
                flight.connection,
                Deliver(flight.queue_number, offset, attempt, body.at, pack(numbers), body.head, body.payload),
            )
            tried.append(offset)
        self._state.out.send(connection.id, DeadDone(message.request, tuple(tried)))

    def _consumer(self, connection: Connection, queue: Queue) -> Flight | None:
        """Who is sent a dead letter: the one who asks, or else anybody who consumes the queue."""
        mine = [flight for flight in queue.flights if flight.connection == connection.id]
        return next(iter(mine or queue.flights), None)

    def drop(self, connection: Connection, message: DropDead) -> None:
        """Remove dead letters."""
        queue = self._queue(connection, message)
        offsets = tuple(o for o in sorted(set(message.offsets)) if self._row(queue, o) is not None)
        state = self._state
        state.draft.changes += [Remove(DeadRow, (queue.seat, offset)) for offset in offsets]
        answer = DeadDone(message.request, offsets)
        if not offsets:
            state.out.send(connection.id, answer)
            return
        state.draft.urgent = True

        def committed(_: Now) -> None:
            if connection.id in state.connections:
                state.out.send(connection.id, answer)

        state.draft.committed.append(committed)

    def acknowledged(self, connection: Connection, message: Ack) -> None:
        """Dead letters that were tried again and succeeded are removed.

        So are those of which an attempt succeeds that was on its way when an earlier one failed once too often.
        """
        known = connection.flights.get(message.queue)
        if known is None or not (known[1].revived or known[1].buried):
            return
        queue, flight = known
        done = [
            offset
            for offset, letter in flight.revived.items()
            if (offset < message.floor and letter.by_floor) or any(a <= offset < b for a, b in message.ranges)
        ]
        done += [
            offset
            for offset in flight.buried
            if (offset < message.floor and offset in queue.burying) or any(a <= offset < b for a, b in message.ranges)
        ]
        for offset in sorted({*done}):
            flight.revived.pop(offset, None)
            flight.buried.pop(offset, None)
        if done:
            self._forget(queue, {*done})

    def _forget(self, queue: Queue, offsets: set[int]) -> None:
        """Remove dead letters that were acknowledged; from now on nobody sees them, also while that is not stored."""
        draft = self._state.draft
        queue.forgotten |= offsets
        draft.changes += [Remove(DeadRow, (queue.seat, offset)) for offset in sorted(offsets)]

        def committed(_: Now) -> None:
            queue.forgotten -= offsets

        def rejected(_: str, __: Now) -> None:
            self._forget(queue, offsets)

        draft.committed.append(committed)
        draft.rejected.append(rejected)

    def _row(self, queue: Queue, offset: int) -> DeadRow | None:
        if offset in queue.forgotten:
            return None
        rows = self._state.log.dead(queue.seat, Offset(offset - 1), 1)
        return rows[0] if rows and rows[0].offset == offset else None
