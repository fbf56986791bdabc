"""One subscription between the application and the network thread: its events, decisions and requests.

What the application has acknowledged is not shown again. After a negative acknowledgement in an ordered queue nothing
is shown before the queue begins again there. Whatever the application does, a bounded number of events is held: the
broker bounds those of a durable subscription by its window, and any other subscription drops its oldest events. Every
request is answered, at the latest when the subscription ends.

A subscription has one filter or several, each with a number of its own; all share one queue, so that an event comes
once, with the numbers of the filters that it matches. What filters it has is changed as a whole: those that are new or
different are requested together. If one is refused, the others are taken back. Otherwise those that are left out end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from zlib import crc32

from weft.client.connection import SessionDriver, Waiter, finish_all, wake
from weft.client.effects import Answered, Ended, Missed, QueryMessage
from weft.client.subscription import LOG_SPAN, AckBook, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.errors import AccessError, ClientClosedError, FilterError, RequestError, WeftError
from weft.protocol.messages import Deliver, QueueNumber, SubNumber
from weft.protocol.move_messages import tokens_of

NAMED = SubNumber(1)  # the queue of a session that has its name from a subscription, and its filter if there is one
LABELLED = SubNumber(1 << 31)  # from here on the numbers of filters follow from their labels
MOST_HELD = 10_000  # events that a subscription without a name holds for a slow application
MOST_HELD_BYTES = 16 << 20

MessageOf = Callable[[int], QueryMessage]  # the message of a request, by its number
Label = str | int  # what an application calls one of several filters: a name, or its position


class LabelledFilter(NamedTuple):
    """A filter among those of one subscription."""

    position: int
    label: Label
    text: str


def labelled_numbers(labels: Iterable[Label], known: Mapping[Label, SubNumber]) -> dict[Label, SubNumber]:
    """The numbers of filters in a session of their own, besides those that are known.

    They follow from the labels, so that another process under this name gives the same filter the same number.
    """
    labels = [*labels]
    found = {label: known[label] for label in labels if label in known}
    used = {*known.values()}
    for label in sorted({*labels} - found.keys(), key=repr):
        number = crc32(repr(label).encode("utf-8", "surrogatepass")) >> 1
        while LABELLED | number in used:  # very rare: two labels with one checksum
            number = (number + 1) % LABELLED
        found[label] = SubNumber(LABELLED | number)
        used.add(found[label])
    return found


class _Change:
    """The filters that a subscription is to have from now on, by their numbers, until the broker has answered."""

    def __init__(self, waiter: Waiter, filters: Mapping[SubNumber, LabelledFilter]) -> None:
        self.waiter, self.filters = waiter, filters
        self.before: dict[SubNumber, str | None] = {}  # of those that are requested; None if there was none
        self.refused: dict[SubNumber, WeftError] = {}
        self.left = 0  # requests without an answer
        self.is_begun = False


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
        self.filters: dict[SubNumber, LabelledFilter] = {}  # and those that were replaced by them
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
    """One subscription, with one filter or, if it `is_many`, with several. Its waiters belong to `loop`."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a subscription is
        self,
        driver: SessionDriver,
        number: SubNumber,
        name: str,
        options: SubscriptionOptions,
        loop: asyncio.AbstractEventLoop | None,
        handles: dict[SubNumber, SubscriptionHandle],
        is_many: bool = False,
    ) -> None:
        self.driver, self.number, self.name, self.options = driver, number, name, options
        self.is_many = is_many
        self.numbers: dict[Label, SubNumber] = {}  # of its filters; for the engine
        self.own = number == NAMED  # its session has no other purpose
        self.temporary = options.durable and not name  # its session ends with it; events need no acknowledgement
        self.resets = 0  # how often the broker had forgotten the subscription
        self._loop = loop
        session = driver.session
        self.queue = QueueNumber(number)
        self._window, self._token = session.policy.window_events, session.token
        self._handles = handles  # of the session, by the numbers of their filters; for the network thread
        self._states: dict[SubNumber, SubscriptionState] = {}
        self._accepted: Mapping[SubNumber, LabelledFilter] = {}
        self._texts: dict[SubNumber, str] = {}  # the filters that the broker has accepted
        self._changes: deque[_Change] = deque()  # the first one is under way
        self._is_started = self._is_subscribed = False
        self.inbox = Inbox(
            durable=options.durable,
            ordered=options.ordered and not options.share,
            most=options.lag or MOST_HELD,
            most_bytes=MOST_HELD_BYTES,
            decided=self._decided,
        )
        self._waiters: dict[Waiter, None] = {}  # of requests
        self._completing: list[Waiter] = []
        self._incomplete: set[SubNumber] = set()  # filters for which these wait
        self._ending: Waiter | None = None  # waits until the broker has forgotten the session
        self.is_over = False
        self.is_leaving = False  # the application has left it
        self._error: WeftError | None = None

    # -- from the application --------------------------------------------------------------------------------

    def hold(self, filters: Mapping[SubNumber, LabelledFilter]) -> Waiter:
        """Have these filters, and no others; finished when the broker has answered. The first call begins it."""
        self.inbox.filters = {**self._accepted, **filters}
        return self._post(self._hold, filters)

    def unsubscribe(self) -> Waiter:
        """End it for good; finished when the broker has answered."""
        self.is_leaving = True
        return self._post(self._unsubscribe)

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
        reader = self.driver.session.readers.get(self.queue)
        self.inbox.settle(None if reader is None else reader.book)

    def _hold(self, waiter: Waiter, filters: Mapping[SubNumber, LabelledFilter]) -> None:
        if self._admits(waiter):
            self._changes.append(_Change(waiter, filters))
            if len(self._changes) == 1:
                self._begin_change()

    def _begin_change(self) -> None:
        """Make the requests of the next change, once filters that had its numbers before have ended at the broker."""
        change, session = self._changes[0], self.driver.session
        if any(number in session.subscriptions and number not in self._states for number in change.filters):
            return
        change.is_begun = True
        for number, each in change.filters.items():
            text, before = each.text, self._texts.get(number)
            if before == text:
                continue
            change.before[number] = before
            if before is None:
                state = SubscriptionState(
                    number, self.options, window=self._window, token=self._token, queue=self.queue
                )
                self._states[number], self._handles[number] = state, self
                session.subscribe(state, SubscriptionRequest("subscribe", text, change))
            else:
                session.ask(number, SubscriptionRequest("replace", text, change))
        change.left = len(change.before)
        if not self._is_started:
            self._is_started = True
            self.driver.start()
        if not change.left:
            self._end_change()

    def _changed(self, number: SubNumber, change: _Change, error: WeftError | None) -> None:
        """A request of a change is answered."""
        if error is None:
            self._texts[number] = change.filters[number].text
        else:
            change.refused[number] = error
            if change.before[number] is None:
                self._forget(number)
        change.left -= 1
        if not change.left:
            self._end_change()

    def _end_change(self) -> None:
        """Every request of a change is answered: end what is left out, or take it back if one was refused."""
        change, session = self._changes.popleft(), self.driver.session
        self.replied(change.waiter)
        if change.refused:
            number = next(each for each in change.filters if each in change.refused)
            error = self._named(number, change.refused[number])
            for each, before in change.before.items():
                if each in change.refused:
                    continue
                if before is None:
                    self._end(each)
                else:
                    self._texts[each] = before
                    session.ask(each, SubscriptionRequest("replace", before, internal=True))
            self.inbox.filters = {**change.filters, **self._accepted}
            if not self._is_subscribed:
                self.over(error)
            finish_all([change.waiter], error=error)
        else:
            self._is_subscribed, self._accepted = True, change.filters
            for each in [each for each in self._texts if each not in change.filters]:
                self._end(each)
            if self.own and self.name and not self.options.share:
                for each in session.end_others(LABELLED, self.queue, self.options):
                    self._handles[each] = self
            finish_all([change.waiter])
        if self._changes and not self.is_over:
            self._begin_change()

    def _end(self, number: SubNumber) -> None:
        """One of several filters ends."""
        self._forget(number)
        self._handles[number] = self  # until it has
        self.driver.session.ask(number, SubscriptionRequest("unsubscribe", internal=True))

    def _forget(self, number: SubNumber) -> None:
        self._states.pop(number, None)
        self._texts.pop(number, None)
        self._handles.pop(number, None)

    def _named(self, number: SubNumber, error: WeftError) -> WeftError:
        """The error of one filter, which names it if there are several."""
        found = self.inbox.filters.get(number)
        return error if found is None or not self.is_many else of_filter(error, found.position, found.label)

    def _unsubscribe(self, waiter: Waiter) -> None:
        if not self._admits(waiter):
            return
        if self.own and not self.options.share:
            self._ending = waiter
            self.driver.close(forget=True)
            return
        *others, last = [*self._states]
        for number in others:
            self._end(number)
        self.driver.session.ask(last, SubscriptionRequest("unsubscribe", waiter=waiter))

    def _complete(self, waiter: Waiter) -> None:
        if self._admits(waiter):
            self._completing.append(waiter)
            self._check_complete()

    def _check_complete(self) -> None:
        """Finish those who wait for every filter to be complete, if that is so."""
        if not self._completing:
            return
        self._incomplete = {number for number, state in self._states.items() if not state.is_complete}
        if not self._incomplete:
            done, self._completing = self._completing, []
            for each in done:
                self.replied(each)
            finish_all(done)

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
            for number in self._states:
                self.driver.session.ask(number, SubscriptionRequest("unsubscribe", internal=True))

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
            case Ended(number, code, reason):
                self._ended(number, refusal(code, reason))
            case Answered(number, about="complete"):
                self._incomplete.discard(number)
                if not self._incomplete:
                    self._check_complete()
            case Answered(number, _Change() as change, _, code, reason):
                self._changed(number, change, refusal(code, reason))
            case Answered(_, waiter, _, code, reason):
                assert isinstance(waiter, Waiter)
                self.replied(waiter)
                finish_all([waiter], error=refusal(code, reason))

    def _ended(self, number: SubNumber, error: WeftError | None) -> None:
        """A filter has ended, and the subscription with its last one, or with any that the broker has ended."""
        if number not in self._states:  # it was left out, or belongs to an earlier client
            self._handles.pop(number, None)
            if self._changes and not self._changes[0].is_begun:
                self._begin_change()
            return
        self._forget(number)
        if error is not None:
            error = self._named(number, error)
            for each in [*self._states]:
                self._end(each)
        if not self._states:
            self.over(error)

    def replied(self, waiter: Waiter) -> None:
        """A request is answered."""
        self._waiters.pop(waiter, None)

    def over(self, error: WeftError | None) -> None:
        """Nothing more comes."""
        if self.is_over:
            return
        self.is_over = self.is_leaving = True
        self._error = error
        for number in [*self._states]:
            self._forget(number)
        self.inbox.end(None if isinstance(error, ClientClosedError) else error)
        if self._ending is not None and self.driver.session.is_forgotten:
            finish_all([self._ending])
        finish_all(self._waiters, error=error or ClientClosedError("the subscription is closed"))
        self._waiters.clear()
        self._completing.clear()
        self._changes.clear()


def of_filter(error: WeftError, position: int, label: Label) -> WeftError:
    """The same error, as that of one filter among several.

    >>> print(of_filter(AccessError("no rule covers this filter"), 2, "strong"))
    filter 2 (id 'strong'): no rule covers this filter
    """
    given = None if label == position else label
    if isinstance(error, FilterError):
        return error.at(position, given)
    place = FilterError("").at(position, given)
    if isinstance(error, RequestError):
        return RequestError(f"{place}{error.message}", error.code)
    return AccessError(f"{place}{error}") if isinstance(error, AccessError) else error


def refusal(code: str, reason: str) -> WeftError | None:
    """The error of a request that the broker refused; None without a code."""
    if not code:
        return None
    if code == "access":
        return AccessError(reason)
    if code == "filter":
        return FilterError(reason)
    return RequestError(reason, code)
