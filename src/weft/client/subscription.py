"""One subscription of a session over all its connections, with its acknowledgements.

Requests about a subscription are made one after the other, each until it is answered; after a reconnection the broker
gets whatever it does not know. If the broker already has a subscription of this number, the filter is replaced, which
changes nothing if it is the same. A subscription has a queue of its own, with the same number, or it shares one with
other subscriptions of its session: then one of them, the reader, has the acknowledgements of all.

Law: nothing is acknowledged on the wire that the application did not acknowledge; what it did acknowledge is not shown
to it again, whatever happens to the connection; an ordered queue is shown in order.

When a session moves to another broker, its deliveries are numbered by another log. Here the offsets of the n-th log are
increased by n times `LOG_SPAN`, so that they never mean two events. An event that the client may have had says under
which numbers, so that what was acknowledged is recognized, and acknowledged again instead of shown.

What is acknowledged is remembered until the broker says that it is stored, and until then it is sent again on each new
connection. The broker is asked when a window is remembered, after a reconnection, and with each heartbeat.
Back-pressure bounds that: while the broker has not stored the acknowledgements of many windows, no more are sent, so
that its own window fills up. A broker of version 2 does not say what it has stored: then only the latest
acknowledgements are remembered, and repeated when their events come again.

An acknowledgement has a low watermark, `floor` on the wire: everything below it is done. It covers everything that the
broker has sent, also what is still on its way. So it stays below whatever may yet come back: deliveries that failed,
and dead letters that are delivered again. In a queue that is not ordered anything may come back, and only exact ranges
are acknowledged.

A negative acknowledgement makes an ordered queue take everything behind it back. What was sent before the broker knew
of it is put aside: a `Ping` follows the `Nack`, and what comes before the `Pong` mostly comes again. Not always: the
broker may read the two apart and deliver in between. What it delivers again has a higher attempt, and it delivers in
order, so the next delivery shows which of those that were put aside do not come again. If there is none for long, the
session connects again, and then everything comes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

import msgspec

from weft.client.publisher import FULL, MOVING
from weft.log.base import Offset
from weft.protocol.messages import (
    REPORTS,
    Ack,
    AskStored,
    Deliver,
    Nack,
    Ping,
    QueueNumber,
    Replace,
    SubNumber,
    Subscribe,
    SubscribeProfiles,
    Unsubscribe,
)
from weft.protocol.move_messages import Token, tokens_of

_MOST_RANGES = 1_000  # in one acknowledgement
_MOST_UNSTORED = 32  # windows of acknowledged events that the broker may not have stored
_REMEMBERED = 4  # windows of them that are remembered if it does not say
LOG_SPAN = 1 << 62  # of offsets of one log
_OVERDUE = 10_000_000  # microseconds: longer than a broker holds a failed event back by default

AckMessage = Ack | Nack | Ping | AskStored
SubscriptionMessage = Subscribe | SubscribeProfiles | Replace | Unsubscribe


class SubscriptionRequest(msgspec.Struct):
    """A request about a subscription: subscribe, replace or unsubscribe. `waiter` comes back with the answer."""

    about: str
    filter: str = ""
    waiter: object = None
    internal: bool = False  # nobody waits for the answer


class SubscriptionOptions(msgspec.Struct, frozen=True):
    """What a subscription is besides its filter; see `Subscribe`."""

    durable: bool = False
    ordered: bool = True
    share: str = ""
    since: int | None = None
    since_time: int | None = None
    lag: int = 0
    disconnect: bool = False
    expires: int = 0  # seconds that its session is kept without a connection; 0: as the client says
    profiles: str = ""  # how it meets profiles: "covering", "overlap", or not at all


class SubscriptionState:
    """A subscription over all connections of its session."""

    def __init__(
        self,
        number: SubNumber,
        options: SubscriptionOptions,
        *,
        window: int,
        token: Callable[[], int],
        queue: QueueNumber | None = None,
    ) -> None:
        self.number, self.options = number, options
        self.queue = QueueNumber(number) if queue is None else queue
        self.durable, self.share = options.durable, options.share
        ordered = options.ordered and not options.share
        self.book = AckBook(self.queue, ordered=ordered, window=window, token=token) if options.durable else None
        self.filter = ""  # as the broker has it
        self.asks: deque[SubscriptionRequest] = deque()
        self.was_here = False  # whether the broker has ever had it
        self.is_complete = False
        self.ended = False
        self._in_flight = ""  # what was asked last: subscribe, replace or unsubscribe; empty if nothing
        self._was_complete = False  # the broker has said so since, of what it had before
        self._there = False  # whether the broker has it, on this connection
        self._begun = False
        self.is_waiting = False  # the broker had no room

    # -- requests -------------------------------------------------------------------------------------------

    @property
    def is_asking(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._in_flight) or self.is_waiting

    def begin(
        self, *, there: bool, version: int, log_id: str = "", inherits: bool = False
    ) -> SubscriptionRequest | None:
        """A connection begins, and the broker has the subscription or not. Returns a request that this settles.

        `inherits` if the session may have been at another broker before.
        """
        self._begun, self._there, self._in_flight = True, there, ""
        self.was_here = self.was_here or there
        if self.book is not None:
            self.book.begin(reports=version >= REPORTS, log_id=log_id, inherits=inherits)
        if self.asks and self.asks[0].about == "unsubscribe" and not there and self.was_here and not self.share:
            self.ended = True
            return self.asks.popleft()
        if self.asks and self.asks[0].about == "subscribe":
            return None
        if not there:
            self.is_complete = False
            self.asks.appendleft(SubscriptionRequest("subscribe", self.filter, internal=True))
        elif not self.is_complete:
            self.asks.appendleft(SubscriptionRequest("replace", self.filter, internal=True))
        return None

    def answered(self, about: str, code: str) -> SubscriptionRequest | None:
        """The broker has answered. Returns the request, if it is one and somebody waits for it."""
        if about != self._in_flight or not self.asks:
            return None
        self._in_flight = ""
        ours = self.asks[0].internal or (self.asks[0].about == "subscribe" and self._there)
        if code == MOVING or (code == FULL and ours):  # the broker goes on with the subscription as it is
            self.is_waiting = True
            return None
        ask = self.asks.popleft()
        if code:
            self.ended = ask.about == "subscribe" or ask.internal
            if self._was_complete and not self.ended:  # is it still? the broker says so again
                self.asks.appendleft(SubscriptionRequest("replace", self.filter, internal=True))
            return None if ask.internal else ask
        if ask.about == "unsubscribe":
            self.ended = True
        else:
            self._there = self.was_here = True
            self.is_complete = False
            self.filter = ask.filter
        return None if ask.internal else ask

    def completed(self) -> bool:
        """It is active on every path; whether that is news."""
        news = not self.is_complete and not self._in_flight
        self.is_complete = self.is_complete or news
        self._was_complete = not self.is_complete
        return news

    def take(self, *, last: bool = False) -> list[AckMessage | SubscriptionMessage]:
        """The messages to send now; with `last`, without regard to how much is not stored."""
        messages: list[AckMessage | SubscriptionMessage] = []
        book = self.book
        if book is not None and (book._acked or book._decided) and self._there:
            messages += book.take(last=last)
            if book.base:
                messages = [*map(book.as_numbered, messages)]  # type: ignore[arg-type]
        if self.asks and self._begun and not self._in_flight and not self.is_waiting:
            message, self._was_complete = self._message(self.asks[0]), False
            self._in_flight = "subscribe" if type(message) is SubscribeProfiles else type(message).__name__.lower()
            messages.append(message)
        return messages

    def _message(self, ask: SubscriptionRequest) -> SubscriptionMessage:
        if ask.about == "unsubscribe":
            return Unsubscribe(self.number)
        if self._there:
            return Replace(self.number, ask.filter)
        options, first = self.options, not self.was_here  # older events are wanted once
        subscribe = Subscribe(
            self.number,
            ask.filter,
            self.queue,
            durable=None if options.share else options.durable,
            ordered=options.ordered,
            share=options.share,
            since=Offset(options.since) if first and options.since is not None else None,
            since_time=options.since_time if first else None,
            lag=options.lag,
            disconnect=options.disconnect,
        )
        return SubscribeProfiles(subscribe, options.profiles) if options.profiles else subscribe  # type: ignore[arg-type]

    # -- deliveries -----------------------------------------------------------------------------------------

    def delivered(self, messages: Sequence[Deliver]) -> list[Deliver]:
        """Deliveries; returns those to be shown to the application."""
        if self.book is None:
            return list(messages)
        if self.book.inherits:
            messages = self.book.renumbered(messages)
        if messages[0].offset and messages[-1].offset:
            return self.book.delivered(messages)
        shown: list[Deliver] = []
        for message in messages:  # events that are not durable among others
            shown += self.book.delivered([message]) if message.offset else [message]
        return shown

    # -- connections ----------------------------------------------------------------------------------------

    def end_there(self) -> None:
        """The broker has it from an earlier client of this name, and is to end it."""
        self.was_here = self.is_complete = True
        self.asks.append(SubscriptionRequest("unsubscribe", internal=True))

    def lost(self) -> None:
        """The connection is gone."""
        self._begun, self._in_flight, self.is_waiting = False, "", False
        if self.asks and self.asks[0].internal:
            self.asks.popleft()
        if self.book is not None:
            self.book.lost()

    def forget(self) -> None:
        """Offsets mean other events from now on."""
        if self.book is not None:
            self.book.forget()

    def moved(self, log_id: str) -> None:
        """The session goes on at another broker; until now a log of this id numbered the deliveries."""
        if self.book is not None:
            self.book.moved(log_id)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self._in_flight or (self.asks and self._begun)
        if self.book is not None:
            self.book.check()


class AckBook:
    """The deliveries of one durable queue. `token` returns a new number for a `Ping`.

    >>> book = AckBook(QueueNumber(1), ordered=True, window=10, token=lambda: 7)
    >>> shown = book.delivered([Deliver(1, offset, 1, 0, b"", b"", b"") for offset in (3, 5, 8)])
    >>> book.ack([3, 8])
    [3, 8]
    >>> book.take()
    [Ack(queue=1, floor=5, ranges=((8, 9),))]
    """

    def __init__(self, queue: QueueNumber, *, ordered: bool, window: int, token: Callable[[], int]) -> None:
        self.queue = queue
        self._ordered = ordered
        self._token = token
        self._open: dict[int, Deliver] = {}  # shown, and waiting for an answer
        self._heap: list[int] = []  # at least those of `_open`
        self._back: dict[int, tuple[Deliver, int]] = {}  # given back and not delivered again; behind which `Ping`
        self._next = 0  # after the highest offset of this connection
        self._acked: list[int] = []  # not yet sent
        self._decided: list[AckMessage] = []  # earlier decisions that are not yet sent, in order
        self._window = window
        self._reports = False  # the broker says which acknowledgements are stored
        self._young: list[int] = []  # acknowledged by the application since the last `Ack`
        self._sent: deque[list[int]] = deque()  # what was so with each `Ack` that is not known to be stored
        self._sent_size = 0  # how many these are
        self._stored = 0  # messages `Ack` of this connection that are stored
        self._awaits_stored = False  # the broker is asked
        self._settled: set[int] = set()  # acknowledged, and perhaps delivered again
        self._fences: dict[int, int] = {}  # tokens of each `Ping` behind a `Nack`, and the offset that was refused
        self._aside: dict[int, Deliver] = {}  # not shown: it comes again, or the next delivery shows that it does not
        self._waits_since = 0  # when a heartbeat first saw that nothing shows it
        self.is_doubtful = False  # nobody knows whether the broker takes back what is behind a failed event
        self._asked: set[int] = set()  # dead letters that are about to be tried again
        self._revived: set[int] = set()  # and those that are
        self._exact: list[int] = []  # acknowledged ones of these: the low watermark does not count for them
        self.inherits = False  # events may come that were delivered under other numbers: the session may have moved
        self.base = 0  # by which the offsets of the broker's log are increased
        self._log_id = ""  # of the broker's log
        self._logs: list[str] = []  # the ids of earlier logs
        self._carried: dict[Token, None] = {}  # acknowledged under numbers of other logs, and perhaps delivered again
        self._renamed: dict[Token, int] = {}  # under which numbers of other logs the client may have had an event

    # -- what the broker sends --------------------------------------------------------------------------

    def delivered(self, messages: Sequence[Deliver]) -> list[Deliver]:
        """Deliveries; returns those to be shown to the application."""
        shown: list[Deliver] = []
        opened, heap = self._open, self._heap
        for message in messages:
            offset = message.offset
            if offset in self._asked:
                self._revived.add(offset)
                if self._reports:
                    self._asked.discard(offset)  # each one is announced
            elif self.is_doubtful or (self._fences and not self._is_redelivery(message)):
                if offset in self._settled:
                    self._acked.append(offset)
                else:
                    self._aside[offset] = message  # instead of an earlier attempt
                continue
            elif offset < self._next and self._is_revived(offset):
                self._revived.add(offset)  # somebody else asked for a dead letter
            elif self._aside:
                self._fences.clear()
                for each in [*self._take_aside(offset), message]:
                    shown += self.delivered([each])
                continue
            elif self._back:
                self._came_back(offset)
            if offset >= self._next:
                self._next = offset + 1
            if offset in self._settled:
                self._acked.append(offset)
                if offset in self._revived:
                    self._revived.discard(offset)
                    self._exact.append(offset)
                continue
            if offset not in opened:
                heappush(heap, offset)
            opened[offset] = message
            shown.append(message)
        return shown

    def renumbered(self, messages: Sequence[Deliver]) -> list[Deliver]:
        """Deliveries after a move, with offsets of their own. What was acknowledged under other numbers is settled."""
        found: list[Deliver] = []
        for message in messages:
            if message.offset:
                if self.base:
                    message = msgspec.structs.replace(message, offset=Offset(message.offset + self.base))  # noqa: PLW2901
                tokens = tokens_of(message.head) if message.attempt > 1 else ()
                if any(token in self._carried for token in tokens):
                    for token in tokens:
                        self._carried.pop(token, None)
                    self._settled.add(message.offset)
                    self._young.append(message.offset)
                for token in tokens:
                    self._renamed[token] = message.offset
            found.append(message)
        return found

    def _came_back(self, offset: int) -> None:
        if self._ordered:  # what was below it is dead or expired
            self._back = {each: given for each, given in self._back.items() if each > offset}
        else:
            self._back.pop(offset, None)

    def _is_revived(self, offset: int) -> bool:
        """Whether an event below others is delivered again, and was not given back: only dead letters are."""
        known = offset in self._open or offset in self._back or offset in self._aside
        return self._ordered and not known

    def _is_redelivery(self, message: Deliver) -> bool:
        """Whether the broker has sent this after it knew of every `Nack` that gives it back."""
        before, token = self._back.get(message.offset, (message, 0))
        later = (refused for each, refused in self._fences.items() if each > token)
        return message.attempt > before.attempt and all(refused > message.offset for refused in later)

    def _take_aside(self, below: int) -> list[Deliver]:
        """The broker delivers in order: what was put aside and is below this does not come again, the rest does."""
        aside, self._aside, self._waits_since = self._aside, {}, 0
        self._back |= {offset: (each, 0) for offset, each in aside.items() if offset >= below}
        return [aside[offset] for offset in sorted(aside) if offset < below]

    def pong(self, token: int) -> None:
        """The broker knows of every `Nack` up to this `Ping`."""
        if token in self._fences:
            self._fences = {each: refused for each, refused in self._fences.items() if each > token}

    def is_overdue(self, now: int) -> bool:
        """Whether nobody knows, and nothing has shown for long, what comes again. It is called at each heartbeat."""
        if not self._aside or self._fences:
            self._waits_since = 0
            return self.is_doubtful
        self._waits_since = self._waits_since or now
        return self.is_doubtful or now - self._waits_since >= _OVERDUE

    def gap(self, first: int, end: int) -> None:
        """Events from `first` to before `end` are lost.

        The broker may have lost one of them before it knew that it failed: then it does not take back what is behind.
        """
        first, end = first + self.base, end + self.base
        self._open = {offset: each for offset, each in self._open.items() if not first <= offset < end}
        self._back = {offset: given for offset, given in self._back.items() if not first <= offset < end}
        self._aside = {offset: each for offset, each in self._aside.items() if not first <= offset < end}
        self.is_doubtful |= any(first <= refused < end for refused in self._fences.values())

    def retrying(self, offsets: Iterable[int]) -> None:
        """Dead letters are to be delivered again: this client asks for it, or the broker announces it."""
        self._asked.update(offset + self.base for offset in offsets)

    def retried(self, offsets: Iterable[int]) -> None:
        """The broker has answered: those that it could deliver again were delivered."""
        self._asked.difference_update(offset + self.base for offset in offsets)

    # -- what the application decides --------------------------------------------------------------------

    def ack(self, offsets: Iterable[int]) -> list[int]:
        """The application is done with some deliveries, of this connection or an earlier one.

        Returns their offsets, in the log of now.
        """
        opened, acked, offsets = self._open, self._acked, [*offsets]
        if self.inherits:
            offsets = self._current(offsets)
        self._young += offsets
        for offset in offsets:
            if offset in opened:
                del opened[offset]
                acked.append(offset)
                if offset in self._revived:
                    self._revived.discard(offset)
                    self._exact.append(offset)
                continue
            self._settled.add(offset)  # it may be on its way again
            self._aside.pop(offset, None)
            acked.append(offset)
            if self._back.pop(offset, None) is None:
                self._exact.append(offset)  # of an earlier connection
        return offsets

    def _current(self, offsets: Iterable[int]) -> list[int]:
        """The offsets of deliveries that the application is done with, in the log of now, as far as they are known."""
        found: list[int] = []
        for offset in offsets:
            here = offset >= self.base
            token = self._log_id if here else self._logs[offset // LOG_SPAN], offset % LOG_SPAN
            now = self._renamed.get(token)
            if now is None and offset not in self._open:
                self._carried[token] = None  # it is recognized when it comes
            if now is None and here:
                found.append(offset)
            elif now is not None and now not in self._settled:
                found.append(now)
        return found

    def nack(self, offset: int, attempt: int, reason: str) -> set[int]:
        """The application failed to handle a delivery. Returns what must not be shown any more: it comes again.

        Nothing is sent about a delivery of an earlier connection, or one that was withdrawn: it comes again anyway.
        """
        failed = self._open.get(offset)
        if failed is None or failed.attempt != attempt:
            return set()
        self._decided += self._acks()
        self._decided.append(Nack(self.queue, ((Offset(offset), attempt),), reason))
        del self._open[offset]
        if offset in self._revived:
            self._revived.discard(offset)  # it stays a dead letter
            return {offset}
        if not self._ordered:
            self._back[offset] = failed, 0
            return {offset}
        token = self._token()
        self._back[offset] = failed, token
        behind = {each for each in self._open if each > offset and each not in self._revived}
        self._back |= {each: (self._open.pop(each), token) for each in behind}
        self._decided.append(Ping(token))
        self._fences[token] = offset
        return behind | {offset}

    # -- what is sent to the broker ------------------------------------------------------------------------

    @property
    def unstored(self) -> list[int]:
        """What is acknowledged, and not known to be stored."""
        return [*(offset for some in self._sent for offset in some), *self._young]

    def stored(self, count: int) -> None:
        """The broker has stored so many messages `Ack` of this connection."""
        self._awaits_stored = False
        while self._stored < count and self._sent:
            self._stored += 1
            offsets = self._sent.popleft()
            self._sent_size -= len(offsets)
            if self._settled:
                self._settled.difference_update(offsets)

    def ask_stored(self) -> None:
        """Ask the broker what is stored, if that is not known of something."""
        if self._reports and self._sent and not self._awaits_stored:
            self._awaits_stored = True
            self._decided.append(AskStored(self.queue))

    def take(self, *, last: bool = False) -> list[AckMessage]:
        """The messages to send now; with `last`, however much is not stored."""
        messages: list[AckMessage] = []
        if last or self._sent_size < _MOST_UNSTORED * self._window or not self._reports:
            messages, self._decided = self._decided, []
            if self._acked:
                messages += self._acks()
        if (self._sent_size >= self._window or self._settled) and self._reports and not self._awaits_stored:
            self._awaits_stored = True
            messages.append(AskStored(self.queue))
        return messages

    def as_numbered(self, message: AckMessage) -> AckMessage:
        """A message about deliveries after a move, with the offsets of the broker's log."""
        match message:
            case Ack(queue, floor, ranges):
                there = tuple((Offset(first - self.base), Offset(end - self.base)) for first, end in ranges)
                return Ack(queue, Offset(max(0, floor - self.base)), there)
            case Nack(queue, failed, reason):
                return Nack(queue, tuple((Offset(offset - self.base), n) for offset, n in failed), reason)
        return message

    def _acks(self) -> list[AckMessage]:
        if not self._acked:
            return []
        below = self._acked_below() if self._ordered else 0
        if max(self._acked) < below and not self._exact:
            self._acked.clear()
            self._remember(1)
            return [Ack(self.queue, Offset(below))]
        ranges = _ranges([*(offset for offset in self._acked if offset >= below), *self._exact])
        self._acked.clear()
        self._exact.clear()
        parts = range(0, max(1, len(ranges)), _MOST_RANGES)
        self._remember(len(parts))
        return [Ack(self.queue, Offset(below), tuple(ranges[at : at + _MOST_RANGES])) for at in parts]

    def _remember(self, messages: int) -> None:
        """What is acknowledged is sent, and stored together with the last of these messages."""
        sent, young = self._sent, self._young
        while messages > 1:
            sent.append([])
            messages -= 1
        sent.append(young)
        self._sent_size += len(young)
        self._young = []
        if not self._reports:
            while self._sent_size - len(sent[0]) >= _REMEMBERED * self._window:
                self._sent_size -= len(sent.popleft())

    def _acked_below(self) -> int:
        """The lowest offset that is not done with."""
        heap, opened = self._heap, self._open
        while heap and heap[0] not in opened:
            heappop(heap)
        lowest = heap[0] if heap else self._next
        if self._back or self._asked or self._aside:
            lowest = min(lowest, *self._back, *self._asked, *self._aside)
        return lowest

    # -- connections -----------------------------------------------------------------------------------------

    def begin(self, *, reports: bool, log_id: str = "", inherits: bool = False) -> None:
        """A connection begins: what may not be stored is sent again, if the broker then says so."""
        self._reports, self._stored, self._awaits_stored, self._log_id = reports, 0, False, log_id
        self.inherits = self.inherits or inherits
        if self.inherits:  # the session may have been elsewhere meanwhile
            self._carried.update(dict.fromkeys((log_id, offset - self.base) for offset in self.unstored))
            self._bound()
        if reports:
            self._young = self.unstored
            self._acked, self._exact = [*self._young], [*self._young]
            self._sent.clear()
            self._sent_size = 0

    def lost(self) -> None:
        """The connection is gone: everything without an acknowledgement comes again."""
        for known in (self._open, self._back, self._aside, self._asked, self._revived, self._fences):
            known.clear()
        for unsent in (self._heap, self._acked, self._decided, self._exact):
            unsent.clear()
        self._next, self._waits_since, self.is_doubtful = 0, 0, False
        self._settled = {*self.unstored}

    def forget(self) -> None:
        """The queue is another one now, or in another log: nothing of it is known.

        The application may still acknowledge what it was shown before: that concerns no event of the new log.
        """
        self._begin_log(self._log_id)
        self._carried.clear()
        self.inherits = True

    def _forget_offsets(self) -> None:
        """Offsets mean other events from now on."""
        self.lost()
        for known in (self._young, self._sent, self._settled):
            known.clear()
        self._sent_size = 0

    def _bound(self) -> None:
        """Forget the oldest of very many numbers."""
        for oldest in [*self._carried][: max(0, len(self._carried) - 4 * _MOST_UNSTORED * self._window)]:
            del self._carried[oldest]

    def moved(self, log_id: str) -> None:
        """The queue goes on at another broker, under other numbers; until now they were those of this log."""
        self._carried.update(dict.fromkeys((log_id, offset - self.base) for offset in self.unstored))
        self._bound()
        self._begin_log(log_id)

    def _begin_log(self, before: str) -> None:
        """Offsets of another log follow those of the one that numbered deliveries before."""
        self._forget_offsets()
        self._renamed.clear()
        self._logs.append(before)
        self.base = len(self._logs) * LOG_SPAN

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self._open.keys() <= set(self._heap), "an open delivery is not in the heap"
        assert self._back.keys().isdisjoint(self._open), "a delivery is open and given back"
        assert self._sent_size == sum(map(len, self._sent))
        assert self._ordered or not (self._fences or self._aside), "only an ordered queue takes back what is behind"


def _ranges(offsets: Iterable[int]) -> list[tuple[Offset, Offset]]:
    """Offsets as ranges: consecutive ones together."""
    ranges: list[tuple[Offset, Offset]] = []
    first = end = -1
    for offset in sorted(offsets):
        if offset == end:
            end += 1
        elif offset >= end:
            if end >= 0:
                ranges.append((Offset(first), Offset(end)))
            first, end = offset, offset + 1
    if end >= 0:
        ranges.append((Offset(first), Offset(end)))
    return ranges
