"""One subscription between the application and the network thread: its events, decisions and requests.

What the application has acknowledged is not shown again. After a negative acknowledgement in an ordered queue nothing
is shown before the queue begins again there. Whatever the application does, a bounded number of events is held: the
broker bounds those of a durable subscription by its window, and any other subscription drops its oldest events. Every
request is answered, at the latest when the subscription ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from weft.client.connection import SessionDriver, Waiter, finish_all, wake
from weft.client.effects import Answered, Ended, Missed, QueryMessage
from weft.client.subscription import LOG_SPAN, AckBook, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.errors import AccessError, ClientClosedError, FilterError, RequestError, WeftError
from weft.protocol.messages import Deliver, QueueNumber, SubNumber
from weft.protocol.move_messages import tokens_of

NAMED = SubNumber(1)  # the subscription of a session that has its name from it
MOST_HELD = 10_000  # events that a subscription without a name holds for a slow application
MOST_HELD_BYTES = 16 << 20

MessageOf = Callable[[int], QueryMessage]  # the message of a request, by its number


class Inbox:
    """The events of one subscription. `decided` is called in the application's thread when there is a decision, with
    whether it is urgent.
    """

    def __init__(
        self, *, durable: bool, ordered: bool, most: int, most_bytes: int, decided: Callable[[bool], None]
    ) -> None:
        self.durable = durable
        self.dropped = 0  # events that were not durable, and for which there was no room
        self.gaps: list[tuple[int, int]] = []  # ranges of offsets that the broker gave up
        self._ordered = ordered
        self._most, self._most_bytes = most, most_bytes
        self._decided = decided
        self._lock = threading.Lock()
        self._events: deque[Deliver] = deque()
        self._bytes = 0
        self._acks: list[int] = []
        self._nacks: list[tuple[int, int, str]] = []  # offsets, attempts, reasons
        self._again = False  # whether anything may have been delivered more than once
        self._held = False  # the queue is about to go back
        self._waiters: list[Waiter] = []
        self._base = 0  # offsets below are of brokers where the session was before it has moved
        self._is_doubtful = False  # one was acknowledged, and only the book knows its number now
        self._is_over = False
        self._error: WeftError | None = None

    # -- the network thread -----------------------------------------------------------------------------------

    def put(self, messages: Sequence[Deliver]) -> None:
        """Some have arrived."""
        with self._lock:
            self._events.extend(messages)
            if messages[-1].offset >= self._base + LOG_SPAN:
                self._base = messages[-1].offset // LOG_SPAN * LOG_SPAN
                self._is_doubtful = min(self._acks, default=self._base) < self._base
            if not self.durable:
                self._make_room(messages)
            waiters = [] if self._held else self._take_waiters()
        if waiters:
            wake(waiters)

    def _make_room(self, messages: Sequence[Deliver]) -> None:
        events = self._events
        self._bytes += sum(map(_size, messages))
        while len(events) > self._most or (self._bytes > self._most_bytes and len(events) > 1):
            self._bytes -= _size(events.popleft())
            self.dropped += 1

    def lost(self) -> None:
        """The connection is gone: what is durable comes again."""
        with self._lock:
            if self.durable:
                self._events.clear()
            self._again = True

    def settle(self, book: AckBook | None) -> None:
        """Enter the decisions since the last call into the book; what is then withdrawn is not shown any more."""
        with self._lock:
            acks, nacks = self._acks, self._nacks
            self._acks, self._nacks = [], []
            withdrawn: set[int] = set()
            if book is not None:
                if acks:
                    acks = [*acks, *book.ack(acks)]
                for offset, attempt, reason in nacks:
                    withdrawn |= book.nack(offset, attempt, reason)
            if self._again and acks:
                withdrawn |= set(acks)
            if withdrawn:
                self._again = True
                self._events = deque(each for each in self._events if each.offset not in withdrawn)
            self._held = False
            waiters = self._take_waiters() if self._events else []
        if waiters:
            wake(waiters)

    def end(self, error: WeftError | None) -> None:
        """Nothing more comes."""
        with self._lock:
            if self._is_over:
                return
            self._is_over, self._error = True, error
            waiters = self._take_waiters()
        if waiters:
            wake(waiters)

    def _take_waiters(self) -> list[Waiter]:
        """All of them: each looks for an event, and waits again if others were quicker."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.finish()
        return waiters

    # -- the application ----------------------------------------------------------------------------------------

    def pop(self) -> Deliver | None:
        """The next event, or None if there is none now. Raises StopIteration at the end, or why it ended."""
        with self._lock:
            doubtful, self._is_doubtful = self._is_doubtful, False
            self._held = self._held or doubtful
            if not self._held:
                while self._events:
                    message = self._events[0]
                    if self._acks and message.attempt > 1 and message.offset and tokens_of(message.head):
                        doubtful = self._held = True  # it may have been acknowledged under another number
                        break
                    self._events.popleft()
                    if not self.durable:
                        self._bytes -= _size(message)
                    elif self._again and message.offset and message.offset in self._acks:
                        continue
                    return message
            if self._is_over:
                if self._error is not None:
                    raise self._error
                raise StopIteration
        if doubtful:
            self._decided(True)
        return None

    def wait(self, waiter: Waiter) -> bool:
        """Finish the waiter when there may be something to pop; False if that is now."""
        with self._lock:
            if self._is_over or (self._events and not self._held):
                return False
            self._waiters.append(waiter)
            return True

    def give_up(self, waiter: Waiter) -> None:
        """Whoever waits no longer does so."""
        with self._lock:
            self._waiters = [each for each in self._waiters if each is not waiter]

    def ack(self, offset: int) -> None:
        """The application is done with an event."""
        with self._lock:
            first = not self._acks
            self._acks.append(offset)
            if offset < self._base:
                self._is_doubtful = True
        if first:
            self._decided(False)

    def nack(self, offset: int, attempt: int, reason: str) -> None:
        """The application failed to handle an event."""
        with self._lock:
            self._nacks.append((offset, attempt, reason))
            self._held = self._held or self._ordered
        self._decided(True)

    def __len__(self) -> int:
        return len(self._events)


def _size(message: Deliver) -> int:
    return len(memoryview(message.head)) + len(message.payload)


class SubscriptionHandle:
    """One subscription. Its waiters belong to `loop`."""

    def __init__(
        self,
        driver: SessionDriver,
        number: SubNumber,
        name: str,
        options: SubscriptionOptions,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.driver, self.number, self.name, self.options = driver, number, name, options
        self.own = number == NAMED  # its session has no other purpose
        self.temporary = options.durable and not name  # its session ends with it; events need no acknowledgement
        self.resets = 0  # how often the broker had forgotten the subscription
        self._loop = loop
        session = driver.session
        self.queue = QueueNumber(number)
        self._state = SubscriptionState(number, options, window=session.policy.window_events, token=session.token)
        self.inbox = Inbox(
            durable=options.durable,
            ordered=options.ordered and not options.share,
            most=options.lag or MOST_HELD,
            most_bytes=MOST_HELD_BYTES,
            decided=self._decided,
        )
        self._waiters: dict[Waiter, None] = {}  # of requests
        self._completing: list[Waiter] = []
        self._ending: Waiter | None = None  # waits until the broker has forgotten the session
        self.is_over = False
        self.is_leaving = False  # the application has left it
        self._error: WeftError | None = None

    # -- from the application --------------------------------------------------------------------------------

    def ask(self, about: str, filter: str = "") -> Waiter:
        """Subscribe, replace the filter, or unsubscribe for good; finished when the broker has answered."""
        self.is_leaving = self.is_leaving or about == "unsubscribe"
        return self._post(self._ask, about, filter)

    def complete(self) -> Waiter:
        """Finished when the subscription is active on every path."""
        return self._post(self._complete)

    def request(self, message_of: MessageOf) -> Waiter:
        """Make a request about its dead letters."""
        return self._post(self._request, message_of)

    def leave(self) -> None:
        """Deliver nothing more to the application; a durable subscription stays at the broker."""
        self.inbox.end(None)
        self.abandon()

    def abandon(self) -> None:
        """The same, when nobody can receive its events any more. It takes no lock: a garbage collection calls it."""
        self.is_leaving = True
        with suppress(ClientClosedError):
            self.driver.post(self._leave)

    def _post(self, what: Callable[..., None], *args: Any) -> Waiter:
        waiter = Waiter(self._loop)
        self.driver.post(what, waiter, *args)
        return waiter

    def _decided(self, urgent: bool) -> None:
        with suppress(ClientClosedError):  # the broker delivers it again to whoever comes next
            if urgent:
                self.driver.post(self.settle)
            else:
                self.driver.post(self.driver.later, self.settle)

    # -- in the network thread -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Note what the application has decided."""
        self.inbox.settle(self._state.book)

    def _ask(self, waiter: Waiter, about: str, filter: str) -> None:
        if not self._admits(waiter):
            return
        request = SubscriptionRequest(about, filter, waiter)
        if about == "subscribe":
            self.driver.session.subscribe(self._state, request)
            self.driver.start()
        elif about == "unsubscribe" and self.own and not self.options.share:
            self._ending = waiter
            self.driver.close(forget=True)
        else:
            self.driver.session.ask(self.number, request)

    def _complete(self, waiter: Waiter) -> None:
        if self._state.is_complete:
            finish_all([waiter])
        elif self._admits(waiter):
            self._completing.append(waiter)

    def _request(self, waiter: Waiter, message_of: MessageOf) -> None:
        if self._admits(waiter):
            self.driver.session.request(message_of, waiter, self.number)

    def _leave(self) -> None:
        if self.is_over:
            return
        self.settle()
        if self.own:
            self.driver.close(forget=self.temporary)
        else:
            self.driver.session.ask(self.number, SubscriptionRequest("unsubscribe", internal=True))

    def _admits(self, waiter: Waiter) -> bool:
        """Remember a waiter; if the subscription is over, finish it and return False."""
        if self.is_over:
            finish_all([waiter], error=self._error or ClientClosedError("the subscription is closed"))
            return False
        self._waiters[waiter] = None
        return True

    def handle(self, notice: Answered | Ended | Missed) -> None:
        """A notice of the session."""
        match notice:
            case Missed(_, first, end, count):
                if end:
                    self.inbox.gaps.append((first, end))
                elif count:
                    self.inbox.dropped += count
                else:
                    self.resets += 1
            case Ended(_, code, reason):
                self.over(refusal(code, reason))
            case Answered(about="complete"):
                done, self._completing = self._completing, []
                for each in done:
                    self.replied(each)
                finish_all(done)
            case Answered(_, waiter, about, code, reason):
                assert isinstance(waiter, Waiter)
                self.replied(waiter)
                error = refusal(code, reason)
                if error is not None and about == "subscribe":
                    self.over(error)
                finish_all([waiter], error=error)

    def replied(self, waiter: Waiter) -> None:
        """A request is answered."""
        self._waiters.pop(waiter, None)

    def over(self, error: WeftError | None) -> None:
        """Nothing more comes."""
        if self.is_over:
            return
        self.is_over = self.is_leaving = True
        self._error = error
        self.inbox.end(None if isinstance(error, ClientClosedError) else error)
        if self._ending is not None and self.driver.session.is_forgotten:
            finish_all([self._ending])
        finish_all(self._waiters, error=error or ClientClosedError("the subscription is closed"))
        self._waiters.clear()
        self._completing.clear()


def refusal(code: str, reason: str) -> WeftError | None:
    """The error of a request that the broker refused; None without a code."""
    if not code:
        return None
    if code == "access":
        return AccessError(reason)
    if code == "filter":
        return FilterError(reason)
    return RequestError(reason, code)
