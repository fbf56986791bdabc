"""Delivery: from the log to subscribers, and their acknowledgements.

Law: only stored events are delivered, and each queue gets every event that its members matched, until it is done with
it. No queue waits for another.

A live queue gets the events of a group when the group is stored. Any other reads what it missed, a bounded number of
events at a time, as long as its window has room. A queue with too many events of its own loses its connection or its
oldest events, and its consumers are sent a `Gap`. While nobody consumes it, it loses them in pieces: to find each one
in the log would take longer than to store an event.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Raw

from weft.broker.admission import read_head
from weft.broker.delivery_run import BatchBytes, RecentBytes, first_deliveries
from weft.broker.delivery_window import DeliveryWindow
from weft.broker.effects import Now
from weft.broker.parts import BrokerParts
from weft.broker.queue import Queue
from weft.broker.recent import Entry, EventBatch
from weft.broker.sessions import ClientQueue, Connection
from weft.broker.transient_queue import TransientQueue, narrowed
from weft.log.base import Offset
from weft.protocol.messages import Ack, AcksStored, Deliver, Gap, QueueNumber, pack


class Delivery:
    """Delivers to the queues of a broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._recent, self._reader, self._access, self._out = parts.recent, parts.reader, parts.access, parts.out
        self._backlog = parts.backlog
        self._timers, self._limits, self._counts = parts.timers, parts.limits, parts.counts
        self._bytes = RecentBytes(parts.limits.tail)
        self.too_slow: list[tuple[Connection, str]] = []  # connections to be closed when the turn ends, and why

    # -- new events -----------------------------------------------------------------------------------

    def stored(self, batch: EventBatch, now: Now) -> None:
        """A batch is in the log."""
        journal = self._journal
        self._recent.append(batch)
        journal.end = batch.end
        many = len(batch.frames.events) >= self._limits.run  # a message for each delivery would take longer than runs
        for queue, (low, high) in batch.frames.segments.items():
            if isinstance(queue, Queue):
                if queue.live:
                    self._live(queue, batch, low, high, many, now)
                else:
                    queue.collect(Offset(batch.first + batch.frames.events[low]), high - low)
                    if queue.behind > queue.lag:
                        self.check_lag(queue)
            elif many and _is_plain(queue, batch) and not queue.connection.paused:
                run = self._bytes.of(batch).run(queue.number, low, high)
                self._out.send_all(queue.connection.id, [run])
            else:
                messages = _deliveries(queue.number, batch, low, high, journal.at)
                if batch.first < queue.changed:
                    wanted = [(each, queue.wanted(each.numbers, each.offset)) for each in messages]
                    messages = [narrowed(each, numbers) for each, numbers in wanted if numbers]
                if batch.first < queue.recheck:
                    messages = self._readable(queue, messages)
                self._hold_or_send(queue, messages)

    def _live(  # noqa: PLR0913, PLR0917 - a part of a batch
        self, queue: Queue, batch: EventBatch, low: int, high: int, many: bool, now: Now
    ) -> None:
        """The frames of a batch for a queue that has everything before them."""
        window, first = queue.windows[0], batch.first
        plain = batch.expires is None and first >= queue.changed and first >= queue.recheck
        if queue.share or not plain or self._sessions.connections[window.connection].paused:
            queue.fall_behind(Offset(first + batch.frames.events[low]), high - low)
            if first < queue.changed:
                self._backlog.doubt(queue)
            self.pump(queue, now)
            if not queue.live:
                self.check_lag(queue)
            return
        sent = self._send_frames(window, batch, low, high, many)
        if sent < high - low:
            queue.fall_behind(Offset(first + batch.frames.events[low + sent]), high - low - sent)
            self.check_lag(queue)

    def _send_frames(self, window: DeliveryWindow, batch: EventBatch, low: int, high: int, many: bool) -> int:
        """Send frames of a plain batch for the first time, as far as there is room. Returns how many.

        With `many`, they go out as a run.
        """
        events = batch.frames.events[low:high]
        sizes = [*map(batch.sizes.__getitem__, events)]
        room = window.room_for(sizes)
        if room < len(events):
            del events[room:], sizes[room:]
            if not events:
                return 0
        number, high = window.queue_number, low + len(events)
        if many:
            self._out.send_all(window.connection, [self._bytes.of(batch).run(number, low, high)])
        else:
            self._out.send_all(window.connection, first_deliveries(number, batch, low, high))
        window.add([*map(int(batch.first).__add__, events)], sizes)
        return len(events)

    def transient(self, batch: EventBatch, now: Now) -> None:
        """Deliver events that are not durable: to consumers that have room, at most once."""
        whole = BatchBytes(batch) if len(batch.frames.events) >= self._limits.run else None
        for queue, (low, high) in batch.frames.segments.items():
            if isinstance(queue, TransientQueue):
                connection, number, only = queue.connection, queue.number, None
            else:
                window = queue.windows[queue.turn % len(queue.windows)] if queue.windows else None
                if window is None or self._is_paused(window):
                    self._counts["loose events dropped"] += high - low
                    continue
                connection = self._sessions.connections[window.connection]
                number, only = window.queue_number, window.sub_number
            if whole is not None and only is None and not connection.paused and _is_plain(queue, batch):
                self._out.send_all(connection.id, [whole.run(number, low, high, durable=False)])
                continue
            sent = _deliveries(number, batch, low, high, now.utc, durable=False)
            if batch.first < queue.recheck:
                sent = self._readable(queue, sent)
            if only is not None:
                sent = [narrowed(each, [only]) for each in sent]
            if isinstance(queue, TransientQueue):
                self._hold_or_send(queue, sent)
            else:
                self._out.send_all(connection.id, sent)

    def may_read(self, queue: ClientQueue, head: bytes | Raw) -> bool:
        """Whether the rules of a queue's owner allow an event now."""
        return self._access.of(self._queues.owner_of(queue)).may_read(read_head(head).attributes)

    def _readable(self, queue: ClientQueue, messages: list[Deliver]) -> list[Deliver]:
        kept = [each for each in messages if self.may_read(queue, each.head)]
        self._counts["withheld by rules"] += len(messages) - len(kept)
        return kept

    def _hold_or_send(self, queue: TransientQueue, messages: list[Deliver]) -> None:
        connection = queue.connection
        if not connection.paused:
            self._out.send_all(connection.id, messages)
        elif queue.hold(messages):
            self._counts["closed as too slow"] += 1
            self.too_slow.append((connection, f"queue {queue.number} has more waiting than it may hold"))

    # -- queues that are behind -----------------------------------------------------------------------

    def pump(self, queue: Queue, now: Now) -> None:
        """Deliver what a queue may get now; at the end of the log it becomes live."""
        journal = self._journal
        budget = self._limits.turn
        queue.due(now.monotonic)
        if queue.returned:
            queue.leave(journal.end)
        queue.pass_over(journal.end)
        while budget > 0 and queue.windows and queue.counted and queue.unsent > self._lag_of(queue):
            budget -= self._lose_oldest(queue, budget)
        while not queue.live and queue.windows and not queue.is_held(now.monotonic):
            if budget <= 0:
                self._queues.serve_later[queue] = None
                return
            before = self._reader.read_from_log
            self._send_gap(queue)
            room = self._room(queue)
            if not room:
                return
            if queue.returned:
                self._return_some(queue, room, budget)
            elif queue.cursor >= journal.end:
                if queue.cursor > journal.end:
                    return  # it begins with an event that is not stored yet
                queue.catch_up()
            else:
                if queue.cursor < journal.first:
                    self.lose(queue, journal.first)
                    continue
                looked_at = self._send_recent(queue, budget)
                if looked_at:
                    budget -= looked_at
                    continue
                entries, after = self._reader.read(queue, journal.end, room, budget)
                budget -= len(entries) + 1
                self._send_new(queue, entries, after)
            budget -= self._reader.read_from_log - before
        self._send_gap(queue)
        self.arm(queue, now)

    def _send_recent(self, queue: Queue, budget: int) -> int:
        """Go on with recent batches, whole ones, where nothing about the queue or its events is special.

        Returns how much was done, up to about the budget; 0 if the next event has to be read and looked at.
        """
        recent, window = self._recent, queue.windows[0]
        if queue.share or queue.skip or queue.cursor < max(recent.first, queue.replay_until, queue.again_below):
            return 0
        looked_at = 0
        for batch in recent.since(queue.cursor):
            if looked_at >= budget or not _is_plain(queue, batch):
                break
            looked_at += 1
            low, high = batch.frames.segments.get(queue, (0, 0))
            if batch.first < queue.cursor:
                low = bisect_left(batch.frames.events, queue.cursor - batch.first, low, high)
            sent = self._send_frames(window, batch, low, high, high - low >= self._limits.run_behind)
            looked_at += sent
            queue.unsent -= sent
            if sent < high - low:
                queue.advance(Offset(batch.first + batch.frames.events[low + sent]))
                break
            queue.advance(batch.end)
        return looked_at

    def _room(self, queue: Queue) -> int:
        """How many more events the consumers of a queue may be sent."""
        return sum(each.free for each in queue.windows if each.has_room and not self._is_paused(each))

    def _return_some(self, queue: Queue, room: int, budget: int) -> None:
        offsets = queue.returned[: min(room, 256)]
        found = self._reader.find(queue, offsets, budget)
        entries = [found[each] for each in offsets if each in found and self._is_due(queue, found[each])]
        gone = {*offsets}.difference(entry.offset for entry in entries)
        if gone:
            queue.done(gone)
            self._journal.moved[queue] = None
        for sent, window in self._assign(queue, entries):
            gone_now = {entry.offset for entry in sent}
            queue.returned = [offset for offset in queue.returned if offset not in gone_now]
            self._send(queue, window, sent)

    def _send_new(self, queue: Queue, entries: list[Entry], after: Offset) -> None:
        """New events from the cursor on, as far as there is room."""
        wanted, gone = list[Entry](), list[Entry]()
        for entry in entries:
            if queue.skip and queue.skips(entry.offset):
                continue
            if not self._is_due(queue, entry):
                gone.append(entry)
                queue.failures.pop(entry.offset, None)
                queue.holes = True
                self._journal.moved[queue] = None
                continue
            wanted.append(entry)
        sent = 0
        for some, window in self._assign(queue, wanted):
            sent += len(some)
            self._send(queue, window, some)
        after = wanted[sent].offset if sent < len(wanted) else after
        taken = self._counted(queue, wanted[:sent]) + self._counted(
            queue, [each for each in gone if each.offset < after]
        )
        queue.unsent = max(0, queue.unsent - taken)
        queue.advance(after)

    def _is_due(self, queue: Queue, entry: Entry) -> bool:
        """Whether an event has neither expired nor been forbidden since it was matched."""
        if entry.expires <= self._journal.at:  # not the clock, which may go back: what has expired stays so
            self._counts["expired"] += 1
            return False
        if entry.offset < queue.recheck and not self.may_read(queue, entry.head):
            self._counts["withheld by rules"] += 1
            return False
        return True

    def _assign(self, queue: Queue, entries: list[Entry]) -> list[tuple[list[Entry], DeliveryWindow]]:
        """Which consumer gets which events. Consumers of a shared queue take turns."""
        if not queue.share:
            window = queue.windows[0]
            some = entries[: window.room_for([entry.size for entry in entries])]
            return [(some, window)] if some else []
        assigned: list[tuple[list[Entry], DeliveryWindow]] = []
        used: dict[int, list[int]] = {}
        for entry in entries:
            for _ in queue.windows:
                queue.turn = (queue.turn + 1) % len(queue.windows)
                window = queue.windows[queue.turn]
                sizes = used.setdefault(queue.turn, [])
                if window.room_for([*sizes, entry.size]) > len(sizes) and not self._is_paused(window):
                    sizes.append(entry.size)
                    assigned.append(([entry], window))
                    break
            else:
                break
        return assigned

    def _is_paused(self, window: DeliveryWindow) -> bool:
        return self._sessions.connections[window.connection].paused

    def _send(self, queue: Queue, window: DeliveryWindow, entries: list[Entry]) -> None:
        number, only = window.queue_number, window.sub_number
        messages = []
        for entry in entries:
            packed, attempt = entry.packed if only is None else pack([only]), queue.attempt(entry.offset)
            messages.append(Deliver(number, entry.offset, attempt, entry.at, packed, entry.head, entry.payload))
        self._out.send_all(window.connection, messages)
        queue.sent(window, [entry.offset for entry in entries], [entry.size for entry in entries])

    def arm(self, queue: Queue, now: Now) -> None:
        """Come back when a failed event is due."""
        due = queue.next_due(now.monotonic)
        if due is not None and due != queue.armed and queue.windows:
            queue.armed = due
            self._timers.add(due, lambda later: self._due(queue, later))

    def _due(self, queue: Queue, now: Now) -> None:
        queue.armed = 0
        if queue in self._queues.all and queue.windows:
            self.pump(queue, now)

    # -- queues that are too far behind ---------------------------------------------------------------

    def check_lag(self, queue: Queue) -> None:
        """A queue with more events of its own than it may be behind loses its connection, or the oldest ones.

        With the first policy it may fall further behind while it has no connection, up to the limit of the broker.
        """
        if not queue.counted:
            return
        excess, end = queue.behind - self._lag_of(queue), self._journal.end
        if excess <= 0:
            if queue.disconnect and queue.behind > queue.lag:
                self._counts["closed as too slow"] += len(queue.windows)
                reason = f"queue {queue.number} is more than {queue.lag:,} events behind"
                self.too_slow += [(self._sessions.connections[each.connection], reason) for each in queue.windows]
        elif opened := sorted(queue.unburied()):
            self.lose(queue, Offset(opened[excess]) if excess < len(opened) else end if queue.live else queue.cursor)
        elif queue.windows:
            self._queues.serve_now[queue] = None  # there the oldest are found
        else:
            queue.pass_over(end)
            if queue.mark <= queue.cursor:
                queue.marked = 0  # the next event is marked
            elif queue.unsent - queue.marked <= excess:
                self.lose(queue, queue.mark, queue.marked)

    def _lag_of(self, queue: Queue) -> int:
        """How many events a queue may be behind before it loses some."""
        return self._limits.lag if queue.disconnect else queue.lag

    def _lose_oldest(self, queue: Queue, budget: int) -> int:
        """Drop some of the oldest events of a queue that has too many. Returns how many were looked at."""
        end, before = self._journal.end, self._reader.read_from_log
        entries, after = self._reader.read(queue, end, queue.unsent - self._lag_of(queue), budget)
        lost = [entry for entry in entries if not (queue.skip and queue.skips(entry.offset))]
        self.lose(queue, after, 0 if after >= end else max(0, queue.unsent - self._counted(queue, lost)))
        return len(entries) + 1 + self._reader.read_from_log - before

    def _counted(self, queue: Queue, entries: list[Entry]) -> int:
        """How many of these events are part of the count of a queue."""
        if not self._backlog.queues and (not entries or entries[0].offset >= queue.replay_until):
            return len(entries)
        return sum(self._backlog.is_counted(queue, entry.offset) for entry in entries)

    def pass_over(self, queue: Queue) -> None:
        """Move a queue that nobody consumes to the next event of its own, some events at a time."""
        end = self._journal.end
        if queue.cursor < queue.replay_until:
            _, after = self._reader.read(queue, end, 0, self._limits.turn)
            if after > queue.cursor:
                queue.advance(after)
                self._journal.moved[queue] = None
                self._queues.serve_later[queue] = None
        elif queue.unsent:  # it was on its way there when its consumer left
            self._backlog.doubt(queue)

    def lose(self, queue: Queue, below: Offset, unsent: int | None = None) -> None:
        """Events below an offset are lost to a queue; its consumers get a gap.

        `unsent` of those that it was not sent are left, if that is known.
        """
        if unsent is None and not queue.live and queue.cursor < below:
            self._backlog.doubt(queue)
        known = queue.gap is not None
        if not queue.drop_below(below, self._journal.end, queue.unsent if unsent is None else unsent):
            return
        self._counts["gaps"] += not known
        self._journal.moved[queue] = None
        self._queues.serve_now[queue] = None  # what was lost in flight has made room, and the gap is to be sent

    def _send_gap(self, queue: Queue) -> None:
        """Send once per connection what is lost; a client that may not have received it gets it again on the next."""
        if queue.gap is None:
            return
        for window in queue.windows:
            if window.gap_sent < queue.gap[1]:
                window.gap_sent = queue.gap[1]
                self._out.send(window.connection, Gap(window.queue_number, *queue.gap))

    # -- acknowledgements --------------------------------------------------------------------------------------

    def ack(self, queue: Queue, window: DeliveryWindow, message: Ack) -> None:
        """Deliveries are done with."""
        window.acks += 1
        skipped = queue.skip
        if queue.ack(window, message.floor, message.ranges, self._journal.end):
            self._journal.moved[queue] = None
        if queue.skip is not skipped:  # some that were to be delivered are done with
            self._backlog.doubt(queue)
        if not queue.live:
            self._queues.serve_now[queue] = None  # not at once: more acknowledgements may come in this turn

    def ask_stored(self, queue: Queue, window: DeliveryWindow) -> None:
        """Answer when what was acknowledged on a connection is stored."""
        if window.acks_stored == window.acks:
            self._out.send(window.connection, AcksStored(window.queue_number, window.acks))
        else:
            window.acks_asked = window.acks
            self._journal.moved[queue] = None


def _is_plain(queue: ClientQueue, batch: EventBatch) -> bool:
    """Whether every event of a batch goes to a queue as it was matched: it cannot expire, and is wanted and allowed."""
    return batch.expires is None and batch.first >= queue.changed and batch.first >= queue.recheck


def _deliveries(  # noqa: PLR0913, PLR0917 - a part of a batch
    number: QueueNumber, batch: EventBatch, low: int, high: int, at: int, durable: bool = True
) -> list[Deliver]:
    """Deliveries of a batch that are not acknowledged, without those that have expired."""
    sent, expires = first_deliveries(number, batch, low, high, durable=durable), batch.expires
    if expires is None:
        return sent
    return [each for each, event in zip(sent, batch.frames.events[low:high], strict=True) if expires[event] > at]
