"""One session of a client, without sockets and clocks: messages in, notices out. Law: what was asked for is asked again
on each new connection until it is answered, and what was published is sent again until it is confirmed.

The driver connects, sends `hello()`, passes what it receives to `receive`, and after each call sends what `take`
returns. When the connection is gone it calls `lost`, and begins anew.

A session with a name is fenced by its epoch: each connection of this client has a higher one than the last. If somebody
else has used the name in the meantime, the broker refuses the old epoch, and this client does not fight for the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.broker.messages import (
    Accepted,
    BrokerMessage,
    Bye,
    ClientMessage,
    Complete,
    DeadDone,
    DeadLetters,
    Deliver,
    Dropped,
    Explained,
    Failed,
    Gap,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Published,
    Refused,
    Revoked,
    SubNumber,
    Welcome,
)
from weft.net.client_notices import (
    Answered,
    Arrived,
    Closed,
    Ended,
    Letters,
    Lost,
    Missed,
    Notice,
    Ready,
    Redirected,
    Shown,
    Stored,
)
from weft.net.client_subscription import SubscriptionRequest, SubscriptionState
from weft.net.open_requests import DeadRequest, ExplainRequest, OpenRequests
from weft.net.publisher import NotStored, Publisher, UnconfirmedEvent

MOVED = "moved"  # the code of a Bye whose reason is the address of the broker that has the session
_FINAL = frozenset({"refused", "taken over", "forgotten", "protocol"})  # after these a client does not come back


class ClientSession:
    """The state of a session over all its connections."""

    def __init__(self, name: str = "", *, expires: int = 0, window_events: int = 1_000, window_bytes: int = 1 << 20):
        self.name = name
        self.publisher = Publisher()
        self.subscriptions: dict[SubNumber, SubscriptionState] = {}
        self.dead: OpenRequests[DeadRequest] = OpenRequests()
        self.explained: OpenRequests[ExplainRequest] = OpenRequests()
        self.welcome: Welcome | None = None  # of this connection
        self._before: Welcome | None = None  # of the last one
        self._expires = expires
        self._windows = window_events, window_bytes
        self._tries = 0  # hellos that nobody answered
        self._loose: list[UnconfirmedEvent] = []
        self.handed: list[UnconfirmedEvent] = []  # events that are not durable and were handed to the network
        self._said: list[ClientMessage] = []
        self._tokens = 0
        self._there: set[int] = set()  # the subscriptions that the broker has

    # -- connections --------------------------------------------------------------------------------------

    def hello(self, credentials: bytes = b"") -> Hello:
        """The first message of a connection."""
        epoch = pub_epoch = 0
        if self.name and self._before is not None:
            self._tries += 1
            epoch, pub_epoch = self._before.epoch + self._tries, self.publisher.epoch
        events, size = self._windows
        return Hello(
            session=self.name,
            epoch=epoch,
            pub_epoch=pub_epoch,
            credentials=credentials,
            expires=self._expires,
            window_events=events,
            window_bytes=size,
        )

    def lost(self) -> list[Notice]:
        """The connection is gone. Deliveries that were not acknowledged come again."""
        self.publisher.lost()
        self._said.clear()
        if self.welcome is None:
            return []
        self._before, self.welcome = self.welcome, None
        for each in self.subscriptions.values():
            each.lost()
        return [Lost()]

    def goodbye(self, forget: bool = False) -> None:
        """End the connection, and the session too if it is to be forgotten."""
        self._said.append(Goodbye(forget))

    @property
    def is_settled(self) -> bool:
        """Whether everything published is confirmed and everything asked for is answered."""
        asking = any(each.asks for each in self.subscriptions.values())
        asking = asking or bool(self.dead.waiting or self.explained.waiting)
        return not self.publisher.waiting and not self._loose and not asking

    # -- what the application does -------------------------------------------------------------------------

    def publish(self, events: Iterable[UnconfirmedEvent]) -> None:
        """Publish durable events."""
        self.publisher.add(events)

    def publish_loose(self, events: Iterable[UnconfirmedEvent]) -> None:
        """Publish events that are not durable; without a connection they wait, and are lost with it."""
        self._loose += events

    def subscribe(self, state: SubscriptionState, ask: SubscriptionRequest) -> None:
        """Add a subscription: one that the broker may know is added before the session connects."""
        self.subscriptions[state.number] = state
        state.add(ask)
        if self.welcome is not None:
            state.begin(there=state.number in self._there)

    def ask(self, number: SubNumber, ask: SubscriptionRequest) -> None:
        """Change or end a subscription."""
        state = self.subscriptions.get(number)
        if state is not None:
            state.add(ask)

    def leave(self, number: SubNumber) -> None:
        """End a subscription; nobody waits for that."""
        self.ask(number, SubscriptionRequest("unsubscribe", internal=True))

    def abandon(self) -> list[UnconfirmedEvent]:
        """Give up; returns the events whose fate is not known."""
        left = [*self.publisher.abandon(), *self._loose, *self.handed]
        self._loose, self.handed = [], []
        return left

    def ping(self) -> None:
        """Say that the client is there."""
        self._said.append(Ping(0))

    def token(self) -> int:
        """A new number for a `Ping`."""
        self._tokens += 1
        return self._tokens

    def take(self, most: int = 1 << 62) -> list[ClientMessage]:
        """The messages to send now, with `most` durable events at most."""
        said, self._said = self._said, []
        if self.welcome is None:
            return said
        for state in self.subscriptions.values():
            if state.has_news:
                said += state.take()
        if self.dead.has_news:
            for request in self.dead.take():
                self._retrying(request)
                said.append(request.message)
        if self.explained.has_news:
            said += [request.message for request in self.explained.take()]
        said += self.publisher.take(most)
        if self._loose:
            said += [event.numbered(0) for event in self._loose]
            self.handed += self._loose
            self._loose = []
        if len(said) > 1:
            goodbyes = [each for each in said if type(each) is Goodbye]
            if goodbyes:
                said = [*(each for each in said if type(each) is not Goodbye), *goodbyes]
        return said

    def _retrying(self, request: DeadRequest) -> None:
        state = self.subscriptions.get(request.number)
        if request.retry and state is not None and state.book is not None:
            state.book.retrying(request.offsets)

    def tick(self) -> None:
        """Some time has passed: try again what the broker had no room for."""
        self.publisher.go_on()
        for state in self.subscriptions.values():
            state.go_on()

    # -- what the broker says --------------------------------------------------------------------------------

    def receive(self, messages: Sequence[BrokerMessage]) -> list[Notice]:
        """Messages of one read."""
        notices: list[Notice] = []
        at, size = 0, len(messages)
        while at < size:
            message = messages[at]
            if type(message) is Deliver:
                first, queue = at, message.queue
                while at < size and type(each := messages[at]) is Deliver and each.queue == queue:
                    at += 1
                self._deliver(queue, messages[first:at], notices)  # type: ignore[arg-type]
                continue
            self._handle(message, notices)
            at += 1
        return notices

    def _deliver(self, queue: int, messages: Sequence[Deliver], notices: list[Notice]) -> None:
        state = self.subscriptions.get(SubNumber(queue))  # each subscription has a queue of its own, with its number
        if state is not None:
            shown = state.delivered(messages)
            if shown:
                notices.append(Arrived(state.number, shown))

    def _handle(self, message: BrokerMessage, notices: list[Notice]) -> None:
        match message:
            case Published():
                stored = self.publisher.confirmed(message)
                if stored:
                    notices.append(Stored(stored))
            case Pong(token):
                if token:
                    for state in self.subscriptions.values():
                        state.pong(token)
            case Welcome():
                self._welcomed(message, notices)
            case Refused():
                self._refused(message, notices)
            case Accepted(about, number, offset):
                self._answered(SubNumber(number), about, "", "", offset, notices)
            case Failed(about, number, code, reason):
                if about.endswith("dead"):
                    asked = self.dead.failed(number)
                    if asked is not None:
                        notices.append(Letters(asked, None, code, reason))
                elif about == "explain":
                    self._shown(number, b"", code, reason, notices)
                else:
                    self._answered(SubNumber(number), about, code, reason, 0, notices)
            case Complete(number):
                known = self.subscriptions.get(number)
                if known is not None and known.completed():
                    notices.append(Answered(number, None, "complete", "", ""))
            case Gap(queue, first, end):
                self._gap(queue, first, end, notices)
            case Dropped(queue, count):
                notices.append(Missed(SubNumber(queue), 0, 0, count))
            case Revoked(number, reason):
                self._revoked(number, reason, notices)
            case DeadLetters(request) | DeadDone(request):
                self._letters(request, message, notices)
            case Explained(request, body):
                self._shown(request, bytes(body), "", "", notices)
            case Bye(code, reason):
                self._bye(code, reason, notices)
            case _:
                pass

    def _welcomed(self, message: Welcome, notices: list[Notice]) -> None:
        before = self._before
        same = before is not None and message.resumed and before.log_id == message.log_id
        self.welcome, self._tries = message, 0
        stored = self.publisher.welcomed(message.pub_epoch, message.pub_seq, kept=same)
        notices.append(Ready(message, same))
        if stored:
            notices.append(Stored(stored))
        there = self._there = set(message.subscriptions)
        for state in self.subscriptions.values():
            if before is not None and before.log_id != message.log_id:
                state.forget()
            if state.was_here and state.durable and not state.share and state.number not in there:
                notices.append(Missed(state.number, 0, 0, 0))  # the broker no longer knows it: nobody knows how many
                state.forget()
            gone = state.begin(there=state.number in there)
            if gone is not None:
                if not gone.internal:
                    notices.append(Answered(state.number, gone.waiter, gone.about, "", ""))
                notices.append(Ended(state.number, "", ""))
        self.subscriptions = {number: state for number, state in self.subscriptions.items() if not state.ended}
        self.dead.again()
        self.explained.again()

    def _refused(self, message: Refused, notices: list[Notice]) -> None:
        if not message.sequence:
            notices.append(NotStored([], message.code, message.reason))  # an event that is not durable has no number
            return
        failed = self.publisher.refused(message)
        if failed is not None:
            notices.append(failed)

    def _answered(  # noqa: PLR0913, PLR0917 - the fields of an answer
        self, number: SubNumber, about: str, code: str, reason: str, offset: int, notices: list[Notice]
    ) -> None:
        state = self.subscriptions.get(number)
        if state is None:
            return
        ask = state.answered(about, code, offset)
        if not code and about == "subscribe":
            self._there.add(number)
        if ask is not None:
            notices.append(Answered(number, ask.waiter, ask.about, code, reason))
        elif code and not state.is_asking:
            notices.append(Ended(number, code, reason))  # the broker ends it of its own accord
            state.ended = True
        if state.ended:
            del self.subscriptions[number]
            self._there.discard(number)
            if not code:
                notices.append(Ended(number, "", ""))

    def _gap(self, queue: int, first: int, end: int, notices: list[Notice]) -> None:
        state = self.subscriptions.get(SubNumber(queue))
        if state is None:
            return
        notices.append(Missed(state.number, first, end, 0))
        shown = state.gap(first, end)
        if shown:
            notices.append(Arrived(state.number, shown))

    def _revoked(self, number: SubNumber, reason: str, notices: list[Notice]) -> None:
        state = self.subscriptions.get(number)
        if state is not None and state.was_here:  # otherwise an older one of this number is meant
            del self.subscriptions[number]
            self._there.discard(number)
            notices.append(Ended(number, "access", reason))

    def _letters(self, request: int, message: DeadLetters | DeadDone, notices: list[Notice]) -> None:
        asked = self.dead.answered(request)
        if asked is None:
            return
        state = self.subscriptions.get(asked.number)
        if state is not None and state.book is not None and asked.retry:
            state.book.retried(asked.offsets)
        notices.append(Letters(asked, message, "", ""))

    def _shown(self, number: int, body: bytes, code: str, reason: str, notices: list[Notice]) -> None:
        request = self.explained.answered(number)
        if request is not None:
            notices.append(Shown(request, body, code, reason))

    def _bye(self, code: str, reason: str, notices: list[Notice]) -> None:
        if code == MOVED:
            notices.append(Redirected(reason))
        else:
            self._tries = max(0, self._tries - 1) if code == "refused" else self._tries
            notices.append(Closed(code, reason, code in _FINAL))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for number, state in self.subscriptions.items():
            assert state.number == number
            state.check()
