"""From the log to subscribers, and their answers. Laws: only stored events are delivered; each queue gets every event
that its members matched, until it is done with it; no queue waits for another.

A live queue gets the events of a group when the group is stored. Any other reads what it missed, a bounded number of
events at a time, as long as its window has room.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Raw

from weft.broker.admission import read_head
from weft.broker.delivery_run import BatchBytes, RecentBytes, first_deliveries
from weft.broker.effects import Now
from weft.broker.event_reader import EventReader
from weft.broker.flight import Flight
from weft.broker.lossy_queue import LossyQueue, narrowed
from weft.broker.messages import Ack, Deliver, pack
from weft.broker.queue import Queue
from weft.broker.queue_lag import QueueLag
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.broker.tail import Entry, EventBatch
from weft.log.base import Offset


class Delivery:
    """Delivers to the queues of a broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.reader = EventReader(state.log, state.tail)
        self.lag = QueueLag(state)
        self._bytes = RecentBytes(state.limits.tail)

    # -- new events -----------------------------------------------------------------------------------

    def stored(self, batch: EventBatch, now: Now) -> None:
        """A batch is in the log."""
        state = self._state
        state.tail.append(batch)
        state.end = batch.end
        many = self._is_many(batch)
        for queue, (low, high) in batch.frames.segments.items():
            if type(queue) is Queue:
                if queue.live:
                    self._live(queue, batch, low, high, many, now)
                elif state.end - queue.floor(state.end) > queue.lag:
                    self.lag.check(queue)
            elif many and _is_plain(queue, batch) and not queue.connection.paused:
                run = self._bytes.of(batch).run(queue.number, low, high)
                state.out.send_all(queue.connection.id, [run])
            else:
                messages = _deliveries(queue.number, batch, low, high, state.at)
                if batch.first < queue.changed:
                    messages = _still_wanted(queue, messages)
                if batch.first < queue.recheck:
                    messages = self._readable(queue, messages)
                self._lossy(queue, messages)

    def _is_many(self, batch: EventBatch) -> bool:
        """Whether the deliveries of a batch go out as runs: making a message of each would take longer."""
        return len(batch.frames.events) >= self._state.limits.run

    def _live(  # noqa: PLR0913, PLR0917 - a part of a batch
        self, queue: Queue, batch: EventBatch, low: int, high: int, many: bool, now: Now
    ) -> None:
        """The frames of a batch for a queue that has everything before them."""
        if queue.share or not _is_plain(queue, batch) or self._is_paused(queue.flights[0]):
            queue.live, queue.cursor = False, batch.first
            self.pump(queue, now)
            return
        sent = self._send_frames(queue.flights[0], batch, low, high, many)
        if sent < high - low:
            queue.live, queue.cursor = False, Offset(batch.first + batch.frames.events[low + sent])

    def _send_frames(self, flight: Flight, batch: EventBatch, low: int, high: int, many: bool) -> int:
        """Send frames of a plain batch for the first time, as far as there is room. Returns how many.

        With `many`, they go out as a run.
        """
        high = min(high, low + flight.free)
        if high <= low:
            return 0
        events = batch.frames.events[low:high]
        sizes = [batch.sizes[event] for event in events]
        room = flight.room_for(sizes)
        if room < len(events):
            del events[room:], sizes[room:]
            if not events:
                return 0
        number, high = flight.queue_number, low + len(events)
        if many:
            self._state.out.send_all(flight.connection, [self._bytes.of(batch).run(number, low, high)])
        else:
            self._state.out.send_all(flight.connection, first_deliveries(number, batch, low, high))
        first = batch.first
        flight.add([first + event for event in events], sizes)
        return len(events)

    def loose(self, batch: EventBatch, now: Now) -> None:
        """Events that are not durable: to whoever has room, at most once."""
        whole = BatchBytes(batch) if self._is_many(batch) else None
        for queue, (low, high) in batch.frames.segments.items():
            if isinstance(queue, LossyQueue):
                if whole is not None and _is_plain(queue, batch) and not queue.connection.paused:
                    run = whole.run(queue.number, low, high, durable=False)
                    self._state.out.send_all(queue.connection.id, [run])
                    continue
                loose = _deliveries(queue.number, batch, low, high, now.utc, durable=False)
                self._lossy(queue, self._readable(queue, loose) if batch.first < queue.recheck else loose)
                continue
            for flight in queue.flights[queue.turn % len(queue.flights) :][:1] if queue.flights else ():
                connection = self._state.connections[flight.connection]
                special = flight.sub_number is not None or connection.paused or not _is_plain(queue, batch)
                if whole is not None and not special:
                    run = whole.run(flight.queue_number, low, high, durable=False)
                    self._state.out.send_all(flight.connection, [run])
                    break
                if not connection.paused:
                    sent = _deliveries(flight.queue_number, batch, low, high, now.utc, durable=False)
                    if batch.first < queue.recheck:
                        sent = self._readable(queue, sent)
                    if flight.sub_number is not None:
                        sent = [narrowed(each, [flight.sub_number]) for each in sent]
                    self._state.out.send_all(flight.connection, sent)
                    break
            else:
                self._state.counts["loose events dropped"] += high - low

    def may_read(self, queue: Queue | LossyQueue, head: bytes | Raw) -> bool:
        """Whether the rules of a queue's owner allow an event now."""
        return self._state.rules.of(self._state.owner_of(queue)).may_read(read_head(head).attributes)

    def _readable(self, queue: Queue | LossyQueue, messages: list[Deliver]) -> list[Deliver]:
        kept = [each for each in messages if self.may_read(queue, each.head)]
        self._state.counts["withheld by rules"] += len(messages) - len(kept)
        return kept

    def _lossy(self, queue: LossyQueue, messages: list[Deliver]) -> None:
        connection = queue.connection
        if not connection.paused:
            self._state.out.send_all(connection.id, messages)
        elif queue.hold(messages):
            self._state.counts["closed as too slow"] += 1
            self.lag.too_slow.append((connection, f"queue {queue.number} has more waiting than it may hold"))

    # -- queues that are behind -----------------------------------------------------------------------

    def pump(self, queue: Queue, now: Now) -> None:
        """Deliver what a queue may get now; at the end of the log it becomes live."""
        state = self._state
        budget = state.limits.turn
        queue.due(now.monotonic)
        if queue.returned:
            queue.leave(state.end)
        self.lag.tell_gap(queue)
        while not queue.live and queue.flights and not queue.is_held(now.monotonic):
            if budget <= 0:
                state.ready[queue] = None
                return
            room = self._room(queue)
            if not room:
                return
            before = self.reader.read_from_log
            if queue.returned:
                self._return_some(queue, room, budget)
            elif queue.cursor >= state.end:
                if queue.cursor > state.end:
                    return  # it begins with an event that is not stored yet
                queue.live = True
            else:
                if queue.cursor < state.log_first:
                    self.lag.lose(queue, state.log_first)
                    continue
                looked_at = self._send_recent(queue, budget)
                if looked_at:
                    budget -= looked_at
                    continue
                entries, after = self.reader.read(queue, state.end, room, budget)
                budget -= len(entries) + 1
                self._send_new(queue, entries, after)
            budget -= self.reader.read_from_log - before
        self.arm(queue, now)

    def _send_recent(self, queue: Queue, budget: int) -> int:
        """Go on with batches of the tail, whole ones, where nothing about the queue or its events is special.

        Returns how much was done, up to about the budget; 0 if the next event has to be read and looked at.
        """
        tail, flight = self._state.tail, queue.flights[0]
        if queue.share or queue.skip or queue.cursor < max(tail.first, queue.replay_until, queue.again_below):
            return 0
        looked_at = 0
        for batch in tail.since(queue.cursor):
            if looked_at >= budget or not _is_plain(queue, batch):
                break
            looked_at += 1
            low, high = batch.frames.segments.get(queue, (0, 0))
            if batch.first < queue.cursor:
                low = bisect_left(batch.frames.events, queue.cursor - batch.first, low, high)
            sent = self._send_frames(flight, batch, low, high, high - low >= self._state.limits.run_behind)
            looked_at += sent
            if sent < high - low:
                queue.advance(Offset(batch.first + batch.frames.events[low + sent]))
                break
            queue.advance(batch.end)
        return looked_at

    def _room(self, queue: Queue) -> int:
        """How many more events the consumers of a queue may be sent."""
        free = 0
        for flight in queue.flights:
            if flight.has_room and not self._state.connections[flight.connection].paused:
                free += flight.free
        return free

    def _return_some(self, queue: Queue, room: int, budget: int) -> None:
        offsets = queue.returned[: min(room, 256)]
        found = self.reader.find(queue, offsets, budget)
        entries: list[Entry] = []
        gone: list[int] = []
        for offset in offsets:
            if offset in found and self._is_due(queue, found[offset]):
                entries.append(found[offset])
            else:
                gone.append(offset)
        if gone:
            queue.done(gone)
            self._state.dirty[queue] = None
        for sent, flight in self._assign(queue, entries):
            gone_now = {entry.offset for entry in sent}
            queue.returned = [offset for offset in queue.returned if offset not in gone_now]
            self._send(queue, flight, sent)

    def _send_new(self, queue: Queue, entries: list[Entry], after: Offset) -> None:
        """New events from the cursor on, as far as there is room."""
        wanted = []
        for entry in entries:
            if queue.skip and queue.skips(entry.offset):
                continue
            if not self._is_due(queue, entry):
                queue.failures.pop(entry.offset, None)
                queue.holes = True
                self._state.dirty[queue] = None
                continue
            wanted.append(entry)
        sent = 0
        for some, flight in self._assign(queue, wanted):
            sent += len(some)
            self._send(queue, flight, some)
        queue.advance(wanted[sent].offset if sent < len(wanted) else after)

    def _is_due(self, queue: Queue, entry: Entry) -> bool:
        """Whether an event has neither expired nor been forbidden since it was matched."""
        if entry.expires <= self._state.at:  # not the clock, which may go back: what has expired stays so
            self._state.counts["expired"] += 1
            return False
        if entry.offset < queue.recheck and not self.may_read(queue, entry.head):
            self._state.counts["withheld by rules"] += 1
            return False
        return True

    def _assign(self, queue: Queue, entries: list[Entry]) -> list[tuple[list[Entry], Flight]]:
        """Which consumer gets which events. Consumers of a shared queue take turns."""
        if not queue.share:
            flight = queue.flights[0]
            some = entries[: flight.room_for([entry.size for entry in entries])]
            return [(some, flight)] if some else []
        assigned: list[tuple[list[Entry], Flight]] = []
        used: dict[int, list[int]] = {}
        for entry in entries:
            for _ in queue.flights:
                queue.turn = (queue.turn + 1) % len(queue.flights)
                flight = queue.flights[queue.turn]
                sizes = used.setdefault(queue.turn, [])
                if flight.room_for([*sizes, entry.size]) > len(sizes) and not self._is_paused(flight):
                    sizes.append(entry.size)
                    assigned.append(([entry], flight))
                    break
            else:
                break
        return assigned

    def _is_paused(self, flight: Flight) -> bool:
        return self._state.connections[flight.connection].paused

    def _send(self, queue: Queue, flight: Flight, entries: list[Entry]) -> None:
        number, only = flight.queue_number, flight.sub_number
        self._state.out.send_all(
            flight.connection,
            [
                Deliver(
                    number,
                    entry.offset,
                    queue.attempt(entry.offset),
                    entry.at,
                    entry.packed if only is None else pack([only]),
                    entry.head,
                    entry.payload,
                )
                for entry in entries
            ],
        )
        queue.sent(flight, [entry.offset for entry in entries], [entry.size for entry in entries])

    def arm(self, queue: Queue, now: Now) -> None:
        """Come back when a failed event is due."""
        due = queue.next_due(now.monotonic)
        if due is not None and due != queue.armed and queue.flights:
            queue.armed = due
            self._state.timers.add(due, lambda later: self._due(queue, later))

    def _due(self, queue: Queue, now: Now) -> None:
        queue.armed = 0
        if queue in self._state.queues and queue.flights:
            self.pump(queue, now)

    # -- answers --------------------------------------------------------------------------------------

    def ack(self, connection: Connection, message: Ack) -> None:
        """Deliveries are done with."""
        known = connection.flights.get(message.queue)
        if known is None:
            return  # a queue that is gone, or one that needs no acknowledgement
        queue, flight = known
        if queue.ack(flight, message.floor, message.ranges):
            self._state.dirty[queue] = None
        if not queue.live:
            self._state.fresh[queue] = None  # not at once: more acknowledgements may come in this turn


def _is_plain(queue: Queue | LossyQueue, batch: EventBatch) -> bool:
    """Whether every event of a batch goes to a queue as it was matched: it cannot expire, and is wanted and allowed."""
    return batch.expires is None and batch.first >= queue.changed and batch.first >= queue.recheck


def _deliveries(  # noqa: PLR0913, PLR0917 - a part of a batch
    number: int, batch: EventBatch, low: int, high: int, at: int, durable: bool = True
) -> list[Deliver]:
    """Deliveries of a batch that are not acknowledged."""
    frames, first, expires = batch.frames, batch.first, batch.expires
    return [
        Deliver(
            number,  # type: ignore[arg-type]
            Offset(first + event if durable else 0),
            1,
            batch.at,
            frames.packed[frames.starts[frame] : frames.starts[frame + 1]],
            Raw(batch.heads[event]),
            batch.payloads[event],
        )
        for frame, event in enumerate(frames.events[low:high], low)
        if expires is None or expires[event] > at
    ]


def _still_wanted(queue: LossyQueue, messages: list[Deliver]) -> list[Deliver]:
    wanted = [(each, queue.wanted(each.numbers, each.offset)) for each in messages]
    return [narrowed(each, numbers) for each, numbers in wanted if numbers]
