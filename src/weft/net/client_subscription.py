"""One subscription as its client sees it. Law: requests are made one after the other, each until it is answered; after
a reconnection the broker is told whatever it does not know.

A subscription has a queue of its own, with the same number. If the broker already has a subscription of this number,
the filter is replaced, which changes nothing if it is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from weft.broker.messages import ClientMessage, Deliver, QueueNumber, Replace, SubNumber, Subscribe, Unsubscribe
from weft.log.base import Offset
from weft.net.ack_book import AckBook
from weft.net.publisher import FULL


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


class SubscriptionState:
    """A subscription over all connections of its session."""

    def __init__(
        self, number: SubNumber, options: SubscriptionOptions, *, window: int, token: Callable[[], int]
    ) -> None:
        self.number = number
        self.queue = QueueNumber(number)
        self.options = options
        self.durable, self.share = options.durable, options.share
        ordered = options.ordered and not options.share
        self.book = AckBook(self.queue, ordered=ordered, window=window, token=token) if options.durable else None
        self.filter = ""  # as the broker has it
        self.asks: deque[SubscriptionRequest] = deque()
        self.offset = Offset(0)  # from which on the current filter holds
        self.was_here = False  # whether the broker has ever accepted it
        self.is_complete = False
        self.ended = False
        self._flying = ""  # what was asked last: subscribe, replace or unsubscribe; empty if nothing
        self._there = False  # whether the broker has it, on this connection
        self._begun = False
        self._waiting = False  # the broker had no room

    # -- requests -------------------------------------------------------------------------------------------

    def add(self, ask: SubscriptionRequest) -> None:
        """Ask for something, after all else."""
        self.asks.append(ask)

    @property
    def is_asking(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._flying) or self._waiting

    def go_on(self) -> None:
        """Ask again what the broker had no room for."""
        self._waiting = False

    def begin(self, *, there: bool) -> SubscriptionRequest | None:
        """A connection begins, and the broker has the subscription or not. Returns a request that this settles."""
        self._begun, self._there, self._flying = True, there, ""
        if self.asks and self.asks[0].about == "unsubscribe" and not there and self.was_here and not self.share:
            self.ended = True
            return self.asks.popleft()
        if self.asks and self.asks[0].about == "subscribe":
            return None
        if not there:
            self.asks.appendleft(SubscriptionRequest("subscribe", self.filter, internal=True))
        elif not self.is_complete:
            self.asks.appendleft(SubscriptionRequest("replace", self.filter, internal=True))
        return None

    def answered(self, about: str, code: str, offset: int) -> SubscriptionRequest | None:
        """The broker has answered. Returns the request, if it is one and somebody waits for it."""
        if about != self._flying or not self.asks:
            return None
        self._flying = ""
        if code == FULL and self.asks[0].internal:
            self._waiting = True
            return None
        ask = self.asks.popleft()
        if code:
            self.ended = ask.about == "subscribe" or ask.internal
            return None if ask.internal else ask
        if ask.about == "unsubscribe":
            self.ended = True
        else:
            self._there = self.was_here = True
            self.is_complete = False
            self.filter, self.offset = ask.filter, Offset(offset)
        return None if ask.internal else ask

    def completed(self) -> bool:
        """It is active on every path; whether that is news."""
        news = not self.is_complete and not self._flying
        if news:
            self.is_complete = True
        return news

    @property
    def _may_ask(self) -> bool:
        return bool(self.asks) and self._begun and not self._flying and not self._waiting

    @property
    def has_news(self) -> bool:
        """Whether there is anything to say."""
        return self._may_ask or (self.book is not None and self.book.has_news)

    def take(self) -> list[ClientMessage]:
        """The messages to send now."""
        said: list[ClientMessage] = []
        if self.book is not None and self.book.has_news:
            said += self.book.take()
        if self._may_ask:
            message = self._message(self.asks[0])
            self._flying = type(message).__name__.lower()
            said.append(message)
        return said

    def _message(self, ask: SubscriptionRequest) -> ClientMessage:
        if ask.about == "unsubscribe":
            return Unsubscribe(self.number)
        if self._there:
            return Replace(self.number, ask.filter)
        options, first = self.options, not self.was_here  # older events are wanted once
        return Subscribe(
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

    # -- deliveries -----------------------------------------------------------------------------------------

    def delivered(self, messages: Sequence[Deliver]) -> list[Deliver]:
        """Deliveries; returns those to be shown to the application."""
        if self.book is None:
            return list(messages)
        if messages[0].offset and messages[-1].offset:
            return self.book.delivered(messages)
        shown: list[Deliver] = []
        for message in messages:  # events that are not durable among others
            shown += self.book.delivered([message]) if message.offset else [message]
        return shown

    def pong(self, token: int) -> None:
        """The broker has answered a `Ping`."""
        if self.book is not None:
            self.book.pong(token)

    def gap(self, first: int, end: int) -> list[Deliver]:
        """Events are lost. Returns deliveries to be shown after all."""
        return [] if self.book is None else self.book.gap(first, end)

    # -- connections ----------------------------------------------------------------------------------------

    def lost(self) -> None:
        """The connection is gone."""
        self._begun, self._flying, self._waiting = False, "", False
        if self.asks and self.asks[0].internal:
            self.asks.popleft()
        if self.book is not None:
            self.book.lost()

    def forget(self) -> None:
        """Offsets mean other events from now on."""
        if self.book is not None:
            self.book.forget()

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self._flying or (self.asks and self._begun)
        if self.book is not None:
            self.book.check()
