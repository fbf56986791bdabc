"""Dead letters: events that a subscriber failed to handle too often.

A dead letter is stored with its body before its queue goes on. One that is tried again stays a dead letter until it is
acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.broker.after_commit import DeadLettersAdded, DeadLettersDropped, DeadLettersRemoved
from weft.broker.delivery import Delivery
from weft.broker.delivery_window import DeliveryWindow, Revived
from weft.broker.effects import Now
from weft.broker.limits import RefusalError
from weft.broker.parts import BrokerParts
from weft.broker.queue import Queue
from weft.broker.sessions import Connection, session_of
from weft.log.base import DeadRow, Offset, Put, Remove, SeatId
from weft.protocol.messages import (
    Ack,
    DeadDone,
    DeadEvent,
    DeadLetters,
    Deliver,
    DropDead,
    ListDead,
    Nack,
    RetryDead,
    Revival,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from weft.broker.hello import ClientConnections

_MOST = 100  # letters in one answer
_MOST_BYTES = 1 << 19
_REMEMBERED = 1_000  # dead letters of a connection whose late acknowledgement counts
_REPEATED = 1_000  # dead letters that are looked at when a client repeats acknowledgements

_encode = msgspec.msgpack.Encoder().encode


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """The event of a dead letter."""

    head: msgspec.Raw
    payload: bytes
    at: int
    consumers: list[SeatId]  # the subscriptions that it was for


_bodies = msgspec.msgpack.Decoder(_Body)


def letter_body(head: bytes, payload: bytes, at: int, consumers: list[SeatId]) -> bytes:
    """The event of a dead letter, as its row has it."""
    return _encode(_Body(msgspec.Raw(head), payload, at, consumers))


class DeadLetterBody(NamedTuple):
    """The event of a dead letter, and the subscriptions that it was for."""

    head: bytes
    payload: bytes
    at: int
    consumers: list[SeatId]


def read_letter(body: bytes) -> DeadLetterBody:
    """The converse of `letter_body`."""
    found = _bodies.decode(body)
    return DeadLetterBody(bytes(found.head), found.payload, found.at, found.consumers)


class FailedDeliveries:
    """Negative acknowledgements and dead letters of a broker."""

    def __init__(self, parts: BrokerParts, delivery: Delivery, clients: ClientConnections) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._reader, self._access, self._out, self._limits = parts.reader, parts.access, parts.out, parts.limits
        self._counts = parts.counts
        self._delivery, self._clients = delivery, clients

    def nack(self, connection: Connection, message: Nack, now: Now) -> None:
        """Deliveries failed: they return after a while, or become dead letters."""
        known = connection.windows.get(message.queue)
        if known is None:
            return
        queue, window = known
        tried = window.revived
        revived = [offset for offset, n in message.failed if offset in tried and tried[offset].attempt == n]
        for offset in {*revived}:
            del tried[offset]  # it stays a dead letter
        limits = self._limits
        # a dead letter of a queue that is about to go would be left behind: such events are just tried again
        leaving = connection.session is not None and connection.session.leaving
        leaving = leaving or queue.leaving == queue.members.keys()
        again, dead = queue.nack(window, message.failed, 1 << 62 if leaving else limits.failures)
        if not again and not dead:
            if revived and not queue.live:
                self._queues.serve_now[queue] = None  # they have left room
            return
        self._counts["negative acknowledgements"] += len(again) + len(dead)
        self._journal.moved[queue] = None
        queue.leave(self._journal.end)
        for failed in again:
            wait = min(limits.backoff << min(queue.failures[failed] - 1, 32), limits.max_backoff)
            queue.delay(failed, now.monotonic + wait)
        if dead:
            self._bury(queue, dead, message.reason)
            window.buried.update({offset: queue.attempt(offset) - 1 for offset in dead})
            for oldest in [*window.buried][: max(0, len(window.buried) - _REMEMBERED)]:
                del window.buried[oldest]
        self._queues.serve_now[queue] = None
        self._delivery.arm(queue, now)

    def _bury(self, queue: Queue, offsets: list[int], reason: str) -> None:
        journal = self._journal
        found = self._reader.find(queue, offsets, self._limits.turn)
        gone = [offset for offset in offsets if offset not in found]
        queue.done(gone)
        write = journal.write
        for offset, entry in sorted(found.items()):
            numbers = unpack(entry.packed)
            members = [each for each, number in sorted(queue.members.items()) if queue.share or number in numbers]
            body = _encode(_Body(entry.head, entry.payload, entry.at, members))
            failures = queue.failures[offset]
            row = DeadRow(queue.consumer_id, Offset(offset), failures, reason[:1000], journal.at, body)
            write.changes.append(Put(row))
        if not found:
            return
        queue.holes = True
        write.move(queue, journal.end)
        self._counts["dead letters"] += len(found)
        write.require((), DeadLettersAdded(queue, sorted(found)))

    def added(self, queue: Queue, offsets: list[int], now: Now) -> None:
        """Dead letters are stored: the queue goes on."""
        queue.done([offset for offset in offsets if offset in queue.burying])
        if queue in self._queues.all:
            self._journal.moved[queue] = None
            self._delivery.pump(queue, now)

    def undo_add(self, queue: Queue, offsets: list[int], now: Now) -> None:
        """Dead letters could not be stored: they are tried again much later."""
        for offset in offsets:
            if offset in queue.burying:
                queue.burying.discard(offset)
                queue.failures[offset] -= 1
                queue.delay(offset, now.monotonic + self._limits.max_backoff)
        self._delivery.arm(queue, now)

    # -- what a client does with them -----------------------------------------------------------------

    def _queue(self, connection: Connection, message: ListDead | RetryDead | DropDead) -> Queue:
        """The queue of a request. Raises RefusalError and AccessError."""
        session = session_of(connection)
        self._access.of(connection.principal).check("dead-letters")
        if message.share:
            shared = self._queues.shared.get((session.owner, message.share))
            if shared is None:
                self._check_home(connection, message.share)
                raise RefusalError("unknown", f"there is no shared subscription {message.share!r}")
            return shared
        if message.session:
            named = self._sessions.by_name.get(message.session)
            if named is None or named.owner != session.owner:
                self._check_home(connection, message.session)
                raise RefusalError("unknown", f"there is no session {message.session!r} of yours; is the name shared?")
            session = named
        queue = session.queues.get(message.queue)
        if not isinstance(queue, Queue):
            raise RefusalError("unknown", f"there is no durable queue {message.queue}")
        return queue

    def _check_home(self, connection: Connection, name: str) -> None:
        """Raise RefusalError if another worker has what this name stands for; the reason ends with its address."""
        elsewhere = self._clients.home_of(connection, name)
        if elsewhere:
            raise RefusalError("moved", f"another worker of this broker has {name!r}; ask {elsewhere}")

    def list(self, connection: Connection, message: ListDead, _: Now) -> None:
        """Some dead letters, by offset."""
        queue = self._queue(connection, message)
        limit = max(1, min(message.limit, _MOST))
        letters: list[DeadEvent] = []
        size, after, more = 0, message.after, True
        while more and not letters:  # pages of which the rules allow nothing are skipped
            rows = self._journal.log.dead(queue.consumer_id, after, limit)
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
        self._out.send(connection.id, DeadLetters(message.request, tuple(letters), more))

    def retry(self, connection: Connection, message: RetryDead, _: Now) -> None:
        """Deliver dead letters once more, as far as the window has room."""
        queue = self._queue(connection, message)
        mine = [window for window in queue.windows if window.connection == connection.id]
        window = next(iter(mine or queue.windows), None)  # of who asked, or else of any consumer of the queue
        tried: list[Offset] = []
        for offset in sorted(set(message.offsets)):
            row = self._row(queue, offset)
            if row is None or window is None:
                continue
            if not window.has_room or offset in window.revived or self._sessions.connections[window.connection].paused:
                continue
            body = _bodies.decode(row.body)
            numbers = [queue.members[each] for each in body.consumers if each in queue.members]
            if not numbers or not self._delivery.may_read(queue, body.head):
                continue  # nobody wants it any more, or may have it
            if window.sub_number is not None:
                numbers = [window.sub_number]
            attempt = max(row.attempts, window.buried.get(offset, 0)) + 1  # no answer to an earlier one is meant for it
            by_floor = window.connection == connection.id and not window.reports
            window.revived[offset] = Revived(attempt, by_floor)
            number, packed = window.queue_number, pack(numbers)
            if window.reports:
                self._out.send(window.connection, Revival(number, offset))
            again = Deliver(number, offset, attempt, body.at, packed, body.head, body.payload)
            self._out.send(window.connection, again)
            tried.append(offset)
        self._out.send(connection.id, DeadDone(message.request, tuple(tried)))

    def drop(self, connection: Connection, message: DropDead, _: Now) -> None:
        """Remove dead letters."""
        queue = self._queue(connection, message)
        offsets = tuple(o for o in sorted(set(message.offsets)) if self._row(queue, o) is not None)
        answer = DeadDone(message.request, offsets)
        if not offsets:
            self._out.send(connection.id, answer)
            return
        changes = [Remove(DeadRow, (queue.consumer_id, offset)) for offset in offsets]
        self._journal.write.require(changes, DeadLettersDropped(connection.id, answer))

    def acknowledged(self, queue: Queue, window: DeliveryWindow, message: Ack) -> None:
        """Dead letters that were tried again and succeeded are removed.

        So are those of which an attempt succeeds that was on its way when an earlier one failed once too often.
        """
        done = {each for each, letter in window.revived.items() if _covers(message, each, letter.by_floor)}
        done |= {each for each in window.buried if _covers(message, each, each in queue.burying)}
        for offset in done:
            window.revived.pop(offset, None)
            window.buried.pop(offset, None)
        self._forget(queue, done)

    def acknowledged_before(self, queue: Queue, message: Ack) -> None:
        """Dead letters that an earlier connection was sent again, and that its client has handled, are removed."""
        rows = self._journal.log.dead(queue.consumer_id, Offset(min(message.ranges)[0] - 1), _REPEATED)
        offsets = {int(row.offset) for row in rows} | {*queue.burying}  # some are on their way into the log
        done = {offset for offset in offsets if _covers(message, offset, False)} - queue.forgotten
        self._forget(queue, done)

    def _forget(self, queue: Queue, done: set[int]) -> None:
        if done:  # from now on nobody sees them, even while that is not stored
            queue.forgotten |= done
            self.remove(queue, done)

    def remove(self, queue: Queue, offsets: set[int]) -> None:
        """Remove acknowledged dead letters from the log; again with the next write, if the log is full."""
        write = self._journal.write
        write.changes += [Remove(DeadRow, (queue.consumer_id, offset)) for offset in sorted(offsets)]
        write.waiting.append(DeadLettersRemoved(queue, offsets))

    def _row(self, queue: Queue, offset: int) -> DeadRow | None:
        if offset in queue.forgotten:
            return None
        rows = self._journal.log.dead(queue.consumer_id, Offset(offset - 1), 1)
        return rows[0] if rows and rows[0].offset == offset else None


def _covers(message: Ack, offset: int, by_floor: bool) -> bool:
    """Whether an acknowledgement is for an offset: by one of its ranges, or by its floor where that counts."""
    return (by_floor and offset < message.floor) or any(a <= offset < b for a, b in message.ranges)
