"""One session of a client, from its first connection to its end: messages in, effects and messages out.

A session outlives its connections. What was asked for is asked again on each new connection until it is answered, and
what was published is sent again until it is confirmed. The session decides where and when to connect, and a driver
obeys: `weft.client.connection` over sockets, the fault simulator in memory. Neither sockets, clocks nor random numbers
are used here. Time is passed in as monotonic microseconds.

The calls, in the order of a session's life:

1. `start` returns `Dial`. The driver opens the connection and calls `opened` or `dial_failed`.
2. After `opened`, `take` returns the `Hello`. The driver sends what `take` returns after every call, as long as its
   buffers have room.
3. `received` gets the messages of one read. The `Welcome` among them makes the session ready: then `take` returns what
   the application asks for and publishes, and `received` returns notices to the application.
4. `closed` says that the connection is gone. The session dials again: the addresses in turn, with growing pauses.
5. `tick` is called at the time of the last `WakeAt`: for heartbeats, time-outs and pauses.
   `move` goes on at another broker: a second connection is opened, on which the driver sends what `Greet` has. When
   that is welcome, the first one is hung up.
6. `close` sends what is left, and then `Goodbye`. `Over` is the last effect, and says why the session ended.

A session with a name is fenced by its epoch: each connection of this client has a higher one than the last. If somebody
else has used the name in the meantime, the broker refuses the old epoch, and this client does not fight for the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from weft.client.advertisements import AdvertState
from weft.client.effects import (
    Answered,
    Arrived,
    BrokerRequest,
    Closed,
    Dial,
    Ended,
    Greet,
    HangUp,
    Lost,
    Missed,
    MoveEnded,
    Over,
    QueryMessage,
    Ready,
    Replied,
    SessionEffect,
    Stored,
    WakeAt,
)
from weft.client.event_mapping import mapping_of
from weft.client.publisher import Publisher, UnconfirmedEvent
from weft.client.subscription import AckBook, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.errors import ClientClosedError, ConnectError, RequestError, SessionTakenError, WeftError
from weft.protocol.addresses import Address
from weft.protocol.messages import (
    MOVES,
    NEWEST,
    PLACES,
    PROFILES,
    QUESTIONS,
    REPORTS,
    STRIDE,
    VERSION,
    Accepted,
    AcksStored,
    Advertise,
    Answer,
    AskSpace,
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
    History,
    HomeBroker,
    OfferedSpace,
    Ping,
    Pong,
    ProfilePublished,
    Published,
    PublishProfile,
    Question,
    QueueNumber,
    ReadHistory,
    Refused,
    RetryDead,
    Revival,
    Revoked,
    StatusReport,
    SubNumber,
    Unadvertise,
    Welcome,
    Whereabouts,
    WithdrawProfile,
    next_epoch,
)

if TYPE_CHECKING:
    import ssl

MOVED = "moved"  # the code of a Bye whose reason is the address of the broker that has the session
_ONE_ANSWER = frozenset({"explain", "history", "status", "question"})  # requests that one message answers
_MOST_REDIRECTS = 5  # in a row
_SILENT_BEATS = 3  # heartbeats without a word from the broker after which a connection is given up
_NO_SUBSCRIPTION = SubNumber(0)
_NEEDED = {ReadHistory: REPORTS, Question: QUESTIONS, PublishProfile: PROFILES, WithdrawProfile: PROFILES}
_WHAT = {ReadHistory: "read history", Question: "answer questions"}  # what brokers before these versions cannot do
_HAVE_PROFILES = "have profiles"
_MOST_GREETED = 16
_NOT_TAKEN = "refused", "unreachable", "protocol"  # codes of a broker that does not take a session over
_RETRY = 250_000  # microseconds after which what the broker had no room for is sent again


class SessionState(Enum):
    """Where a session is in its life."""

    NEW = "new"  # not started, or waiting for an older session of the same name to end
    DIALLING = "dialling"  # a connection is being opened
    GREETING = "greeting"  # it is open, and the broker has not answered the Hello
    READY = "ready"  # the broker has said welcome
    PAUSED = "paused"  # between two attempts to connect
    CLOSING = "closing"  # ready, and about to leave when everything is sent and answered
    LEAVING = "leaving"  # Goodbye is sent; the broker closes the connection
    OVER = "over"


_S = SessionState
TRANSITIONS: dict[SessionState, frozenset[SessionState]] = {
    _S.NEW: frozenset({_S.DIALLING, _S.OVER}),
    _S.DIALLING: frozenset({_S.GREETING, _S.DIALLING, _S.PAUSED, _S.OVER}),
    _S.GREETING: frozenset({_S.READY, _S.DIALLING, _S.PAUSED, _S.OVER}),
    _S.READY: frozenset({_S.CLOSING, _S.DIALLING, _S.PAUSED, _S.OVER}),
    _S.PAUSED: frozenset({_S.DIALLING, _S.OVER}),
    _S.CLOSING: frozenset({_S.LEAVING, _S.OVER}),
    _S.LEAVING: frozenset({_S.OVER}),
    _S.OVER: frozenset(),
}
_CONNECTED = _S.READY, _S.GREETING, _S.CLOSING, _S.LEAVING  # tuples: a set would call Enum.__hash__, which is slow
_WELCOME = _S.READY, _S.CLOSING  # states in which requests and events are sent


class _Deadline(Enum):
    """What a session waits for, besides messages."""

    DIAL = "dial"
    HELLO = "hello"
    BEAT = "beat"
    RETRY = "retry"
    PAUSE = "pause"
    PATIENCE = "patience"
    MOVE = "move"
    NEXT = "next"  # the second connection, while the session moves


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """Where a client connects, and how. Times are in seconds, as users give them. `tls` is for the driver."""

    addresses: tuple[Address, ...] = (Address(),)
    credentials: Callable[[], bytes] = field(default=lambda: b"")  # called for each connection
    tls: ssl.SSLContext | None = None
    timeout: float = 10.0  # for a connection, and again for its welcome
    heartbeat: float = 10.0  # between heartbeats; a broker that misses three of them is considered lost
    shortest_pause: float = 0.05  # before the second attempt to come back
    longest_pause: float = 5.0
    retry_for: float | None = None  # how long to try to come back; None is for ever
    patience: float = 5.0  # to send what is left when a session is closed
    window_events: int = 1_000  # of each queue; see `Hello`
    window_bytes: int = 1 << 20


@dataclass(slots=True)
class _NextConnection:
    """A connection to the broker that a session moves to, opened while the old one still works."""

    number: int
    address: Address
    state: SessionState  # DIALLING, GREETING, or PAUSED between two attempts
    until: int  # when that ends
    host: str = ""  # the name of the broker


class ClientSession:
    """The state of a session over all its connections. `draw` returns a random number from 0 to 1. With `map_events`,
    durable events are sent with their places, where the broker has a space for that.

    >>> session = ClientSession("alerts")
    >>> session.start(now=0)
    [Dial(connection=1, address=Address(scheme='weft', host='localhost', port=9338, path='')), WakeAt(at=10000000)]
    >>> _ = session.opened(1, now=5)
    >>> session.take()
    [Hello(session='alerts', versions=(2, 6), credentials=none)]
    """

    def __init__(
        self,
        name: str = "",
        policy: ConnectionPolicy = ConnectionPolicy(),
        *,
        draw: Callable[[], float] = lambda: 1.0,
        expires: int = 0,
        map_events: bool = False,
    ) -> None:
        self.name, self.policy = name, policy
        self.state = SessionState.NEW
        self.address: Address | None = None  # of the last connection
        self.connection = 0  # its number
        self.error: WeftError | None = None  # why the session is over
        self.is_forgotten = False  # the broker has removed the session
        self.publisher = Publisher()
        self.subscriptions: dict[SubNumber, SubscriptionState] = {}
        self.readers: dict[QueueNumber, SubscriptionState] = {}  # of each queue: the one that has its acknowledgements
        self.adverts: dict[int, AdvertState] = {}
        self.welcome: Welcome | None = None  # of this connection
        self.handed: list[UnconfirmedEvent] = []  # transient events that `take` has returned
        self._draw, self._expires, self._map_events = draw, expires, map_events
        # what is to be sent
        self._unsent: list[ClientMessage] = []
        self._speaking: dict[SubNumber, SubscriptionState] = {}  # subscriptions that may have something to send
        self._transient: list[UnconfirmedEvent] = []
        self._requests: dict[int, BrokerRequest] = {}  # without an answer
        self._unsent_requests: list[int] = []
        self._last_request = self._last_token = 0
        self._open_adverts: dict[int, AdvertState] = {}  # those about which there is something to send or to wait for
        # what the broker knows
        self._before: Welcome | None = None  # of the last connection
        self._tries = 0  # hellos that were not answered
        self._there: set[int] = set()  # the subscriptions that the broker has
        # connections
        self._is_dialled = False  # a connection is open, or being opened
        self._addresses = policy.addresses  # of brokers that may have the session
        self._turn = 0  # the address to try next
        self._home = ""  # the name of the broker that has welcomed the session last
        self._greeted: list[str] = []  # brokers that it has greeted since, the newest first
        self._host = ""  # the name of the broker at the other end
        self._target: Address | None = None  # where the session is moving to
        self._next: _NextConnection | None = None  # to that broker, while this connection still works
        self._was_greeted = False  # that broker, since the move began
        self._abandon: int | None = None  # microseconds without a word from the old broker; then go on without it
        self._last_connection = 0  # the highest number of a connection
        self._redirect: Address | None = None
        self._redirects = 0  # in a row
        self._was_ready = self._was_useful = False  # ever, and on this connection
        self._began = self._last_read = self._since = 0  # this connection, its last read, and the attempts to come back
        self._pause = 0.0  # seconds
        self._every = 0  # microseconds between heartbeats
        self._last_words = ""  # the reason of the broker's Bye
        self._fatal: WeftError | None = None  # why the session ends when this connection is gone
        self._forget = False
        self._successors: list[ClientSession] = []
        self._deadlines: dict[_Deadline, int] = {}
        self._alarm = 0  # the time of the last WakeAt; 0 if it has passed
        self._move_until = 0  # when the session goes back, if it has not moved; 0 is never
        self._unwelcome: WeftError | None = None  # why the broker to which it should move does not take it
        self._effects: list[SessionEffect] = []  # of the call that is under way

    # -- calls of the driver -----------------------------------------------------------------------------------

    def start(self, now: int, after: ClientSession | None = None) -> list[SessionEffect]:
        """Connect; with `after`, an older session of the same name, when that one is over."""
        if after is not None and after.state is not _S.OVER:
            after._successors.append(self)
        elif self.state is _S.NEW:
            self._since = now
            self._dial(now)
        return self._done()

    def opened(self, connection: int, now: int) -> list[SessionEffect]:
        """The connection is open: `take` returns the Hello."""
        following = self._next
        is_next = following is not None and following.number == connection and following.state is _S.DIALLING
        if not is_next and (connection != self.connection or self.state is not _S.DIALLING):
            return self._done()
        try:
            hellos = self._hellos(self.policy.credentials())
        except Exception as failure:  # the application's own function
            return self.fail(failure, "the function given as token= failed")
        self._was_greeted = True
        if is_next:
            assert following is not None
            following.state = _S.GREETING
            self._deadlines[_Deadline.NEXT] = following.until = now + _micros(self.policy.timeout)
            self._effects.append(Greet(connection, tuple(hellos)))
        else:
            self._become(_S.GREETING)
            self._last_read = now
            self._set_deadline(_Deadline.HELLO, now + _micros(self.policy.timeout))
            self._unsent += hellos
        return self._done()

    def dial_failed(self, connection: int, error: WeftError, now: int) -> list[SessionEffect]:
        """The connection could not be opened."""
        if connection == self.connection and self.state is _S.DIALLING:
            self._is_dialled = False
            self._try_next(error, now)
        elif self._next is not None and self._next.number == connection:
            self._next = None
            self._return(error, now)
        return self._done()

    def received(self, connection: int, messages: Sequence[BrokerMessage], now: int) -> list[SessionEffect]:
        """The messages of one read. Cost: O(messages)."""
        if self._next is not None and connection == self._next.number:
            messages = self._welcomed_next(messages, now)
        if connection != self.connection or self.state not in _CONNECTED:
            return self._done()
        self._last_read = now
        at, size = 0, len(messages)
        while at < size:
            message = messages[at]
            if type(message) is Deliver:
                first, queue = at, message.queue
                while at < size and type(each := messages[at]) is Deliver and each.queue == queue:
                    at += 1
                if (state := self.readers.get(queue)) is not None:
                    shown = state.delivered(messages[first:at])  # type: ignore[arg-type]
                    if shown:
                        self._was_useful = True
                        self._effects.append(Arrived(SubNumber(queue), shown))
                continue
            self._handle(message)
            at += 1
        if self.publisher.throttled and _Deadline.RETRY not in self._deadlines:
            self._deadlines[_Deadline.RETRY] = now + _RETRY
            self._wake()
        effects, self._effects = self._effects, []
        return effects

    def broken(self, connection: int, error: WeftError, now: int) -> list[SessionEffect]:
        """What was read is not Weft's protocol."""
        if connection == self.connection and self.state in _CONNECTED:
            self._fatal = ConnectError(f"{self.address} does not speak Weft's protocol: {error}")
            self._hang_up(self._fatal, now)
        elif self._next is not None and connection == self._next.number:
            self._return(ConnectError(f"{self._next.address} does not speak Weft's protocol: {error}"), now)
        return self._done()

    def closed(self, connection: int, now: int) -> list[SessionEffect]:
        """The connection is gone."""
        if connection == self.connection and self.state in _CONNECTED:
            self._is_dialled = False
            address, why = self.address, f": {self._last_words}" if self._last_words else " without a reason"
            if self.state is _S.GREETING and not self._last_words:
                why = " without an answer"
                if address is not None and address.scheme == "weft":
                    why += f"; if it uses TLS, connect to {replace(address, scheme='weft+tls')}"
            self._gone(ConnectError(f"{address} closed the connection{why}"), now)
        elif self._next is not None and connection == self._next.number:
            self._next_gone(now)
        return self._done()

    def tick(self, now: int) -> list[SessionEffect]:
        """Time has passed. Harmless if nothing is due."""
        self._alarm = 0
        for deadline in [each for each, at in self._deadlines.items() if at <= now]:
            if self._deadlines.get(deadline, now + 1) > now:
                continue  # an earlier one has changed it
            del self._deadlines[deadline]
            match deadline:
                case _Deadline.DIAL | _Deadline.HELLO:
                    does = "does" if deadline is _Deadline.DIAL else "accepts connections, but does"
                    why = f"{self.address} {does} not answer within {self.policy.timeout:g} s"
                    self._hang_up(ConnectError(why), now)
                case _Deadline.BEAT:
                    self._beat(now)
                case _Deadline.RETRY:
                    self._go_on()
                case _Deadline.PAUSE:
                    self._dial(now)
                case _Deadline.PATIENCE:
                    self._end()
                case _Deadline.NEXT:
                    self._next_is_late(now)
                case _Deadline.MOVE:
                    self._return(ConnectError(f"{self._target} does not have the session in time"), now)
        return self._done()

    def close(self, now: int, patience: int, forget: bool = False) -> list[SessionEffect]:
        """Send what waits, and then Goodbye; after `patience` microseconds without. `forget` ends the session too."""
        self._forget = self._forget or forget
        self._drop_next()
        if self.state in _WELCOME:
            if self.state is _S.READY:
                self._become(_S.CLOSING)
            until = now + patience
            self._deadlines[_Deadline.PATIENCE] = min(until, self._deadlines.get(_Deadline.PATIENCE, until))
        elif self.state is not _S.LEAVING:
            self._end()
        return self._done()

    def move(
        self, address: Address, now: int, patience: int | None = None, *, abandon: int | None = None
    ) -> list[SessionEffect]:
        """Go on at another broker: `MoveEnded` says whether that was possible. The session is there then, whole.

        The connection goes on until the other broker has the session, if that has a name. If it is refused there, or
        has not come after `patience` microseconds, it stays where it was. With `abandon` it goes on without the old
        broker, when that has not said a word to the new one for so many microseconds.
        """
        if self.state in (_S.CLOSING, _S.LEAVING, _S.OVER) or self._target is not None:
            reason = "the session is moving already" if self._target is not None else "the session is closed"
            self._effects.append(MoveEnded(ConnectError(f"{reason}; it does not move to {address}")))
            return self._done()
        self._target, self._was_greeted, self._abandon = address, False, abandon
        if self.state is _S.NEW:
            self._addresses, self._target = (address,), None  # it has not begun
            self._effects.append(MoveEnded(None))
            return self._done()
        self._redirects, self._pause, self._since = 0, 0.0, now
        self._move_until = 0 if patience is None else now + patience
        if self.state is _S.READY and self.name and self._home:
            if self._move_until:
                self._deadlines[_Deadline.MOVE] = self._move_until
            self._dial_next(now)
            return self._done()
        if self._is_dialled:
            self._effects.append(HangUp(self.connection))
            self._is_dialled = False
        self._lose()
        self._dial(now)
        return self._done()

    def stop(self) -> list[SessionEffect]:
        """End at once, without Goodbye."""
        self._end()
        return self._done()

    def fail(self, failure: Exception, what: str = "the client failed") -> list[SessionEffect]:
        """Something failed that should not: nobody knows what the session holds, so it ends."""
        error = ConnectError(f"{what}: {type(failure).__name__}: {failure}")
        error.__cause__ = failure
        self._end(error)
        return self._done()

    def take(self, most: int = 1 << 62) -> list[ClientMessage]:
        """The messages to send now, with `most` durable events at most. The order is part of the protocol:

        1. Hello and heartbeats;
        2. acknowledgements and requests of each subscription;
        3. requests that one message answers, and those about advertisements;
        4. durable events, then transient ones, unless an advertisement holds them;
        5. Goodbye, when the session is closing and nothing is left to be sent or answered.
        """
        messages, self._unsent = self._unsent, []
        if self.state not in _WELCOME:
            return messages
        if self._speaking:
            messages += self._take_subscriptions()
        if self._unsent_requests:
            messages += self._take_requests()
        is_held = False
        for advert in self._open_adverts.values():
            messages += advert.take()
            is_held = is_held or advert.holds_events
        if not is_held:
            messages += self.publisher.take(most)
        if self._transient and not is_held:
            messages += [event.transient() for event in self._transient]
            self.handed += self._transient
            self._transient = []
        if self.state is _S.CLOSING and self.is_settled:
            messages.append(Goodbye(self._forget))
            self._become(_S.LEAVING)
        return messages

    # -- what the application does -----------------------------------------------------------------------------

    def publish_transient(self, events: Iterable[UnconfirmedEvent]) -> None:
        """Publish events that are not durable; without a connection they wait, and are lost with it."""
        self._transient += events

    def subscribe(self, state: SubscriptionState, ask: SubscriptionRequest) -> None:
        """Add a subscription; one that the broker may know is added before the session connects."""
        state.asks.append(ask)
        self._add(state)

    def _add(self, state: SubscriptionState) -> None:
        reader = self.readers.get(state.queue)
        if reader is None or reader.number == state.number:
            self.readers[state.queue] = state
        else:
            state.book = None
        self.subscriptions[state.number] = self._speaking[state.number] = state
        if self.welcome is not None:
            state.begin(there=state.number in self._there, version=self.welcome.version, log_id=self.welcome.log_id)
            self._check_profiles(state, self.welcome)

    def ask(self, number: SubNumber, ask: SubscriptionRequest) -> None:
        """Change or end a subscription."""
        state = self.subscriptions.get(number)
        if state is not None:
            state.asks.append(ask)
            self._speaking[number] = state

    def end_others(self, first: SubNumber, queue: QueueNumber, options: SubscriptionOptions) -> list[SubNumber]:
        """End what an earlier client of this name has subscribed to, and this one has not. Returns the numbers.

        Such subscriptions have the number of their queue, or numbers from `first` on.
        """
        others = [SubNumber(each) for each in sorted(self._there) if each >= first or each == SubNumber(queue)]
        others = [number for number in others if number not in self.subscriptions]
        for number in others:
            state = SubscriptionState(number, options, window=1, token=self.token, queue=queue)
            state.end_there()
            self._add(state)
        return others

    def request(
        self, message_of: Callable[[int], QueryMessage], waiter: object, number: SubNumber = _NO_SUBSCRIPTION
    ) -> None:
        """Make a request that one message answers; `message_of` gets its number. An advertisement has one of its own,
        and is answered when it is complete.
        """
        self._last_request += 1
        request = BrokerRequest(message_of(self._last_request), number, waiter)
        if isinstance(request.message, Advertise | Unadvertise):
            state = self.adverts.setdefault(request.message.number, AdvertState())
            state.requests.append(request)
            self._open_adverts[request.message.number] = state
            return
        self._requests[self._last_request] = request
        self._unsent_requests.append(self._last_request)

    def abandon(self) -> list[UnconfirmedEvent]:
        """Give up; returns the events whose fate is not known."""
        left = [*self.publisher.abandon(), *self._transient, *self.handed]
        self._transient, self.handed = [], []
        return left

    def token(self) -> int:
        """A new number for a `Ping`."""
        self._last_token += 1
        return self._last_token

    @property
    def home(self) -> str:
        """The name of the broker that has welcomed the session last; empty if it has none."""
        return self._home

    @property
    def is_settled(self) -> bool:
        """Whether everything published is confirmed and every request is answered."""
        asking = bool(self._requests) or any(each.asks for each in self.subscriptions.values())
        asking = asking or any(each.requests for each in self._open_adverts.values())
        return not self.publisher.waiting and not self._transient and not asking

    # -- connections -------------------------------------------------------------------------------------------

    def _become(self, state: SessionState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state

    def _wake(self) -> None:
        """Set a timer, if something is due before the timer that is set."""
        if self._deadlines:
            first = min(self._deadlines.values())
            if not self._alarm or first < self._alarm:
                self._alarm = first
                self._effects.append(WakeAt(first))

    def _done(self) -> list[SessionEffect]:
        """The last step of a call that may set a deadline: its effects."""
        self._wake()
        effects, self._effects = self._effects, []
        return effects

    def _dial(self, now: int) -> None:
        """Open a connection to where the session was redirected, or to the address whose turn it is."""
        redirect = self._redirect or self._target
        self._redirects = 0 if self._redirect is None else self._redirects + 1
        if self._redirects > _MOST_REDIRECTS:
            why = f"{self._redirects} redirects in a row, the last one to {redirect}: check the brokers"
            self._end(ConnectError(why))
            return
        addresses = self._addresses
        self.address = redirect or addresses[self._turn % len(addresses)]
        self.connection = self._last_connection = self._last_connection + 1
        self._redirect, self._is_dialled = None, True
        self._began, self._was_useful, self._last_words, self._host = now, False, "", ""
        self._become(_S.DIALLING)
        self._set_deadline(_Deadline.DIAL, now + _micros(self.policy.timeout))
        self._effects.append(Dial(self.connection, self.address))

    def _set_deadline(self, deadline: _Deadline, at: int) -> None:
        """Wait for this, and for the end of a move, and for nothing else."""
        self._deadlines = {deadline: at}
        if self._target is not None and self._move_until:
            self._deadlines[_Deadline.MOVE] = self._move_until

    def _hellos(self, credentials: bytes) -> list[ClientMessage]:
        """The first messages of a connection: who the client is, and where its session is."""
        hello, last = self._hello(credentials), self.welcome or self._before
        if not self.name or last is None or not self._home:
            return [hello]
        abandon = None if self._target is None or self._abandon is None else self._abandon // 1_000
        hints = tuple(self._greeted[:_MOST_GREETED])
        whence = Whereabouts(last.session, self._home, hints, last.epoch, abandon)
        return [msgspec.structs.replace(hello, versions=(MOVES, hello.versions[1])), whence]

    def _hello(self, credentials: bytes) -> Hello:
        epoch = pub_epoch = 0
        before = self.welcome or self._before
        if self.name and before is not None:
            self._tries += 1
            last, pub_epoch = before.epoch, self.publisher.epoch
            strides = before.version >= MOVES
            epoch = next_epoch(last + (self._tries - 1) * STRIDE) if strides else last + self._tries
        return Hello(
            versions=(VERSION, PLACES if self._map_events else NEWEST),
            session=self.name,
            epoch=epoch,
            pub_epoch=pub_epoch,
            credentials=credentials,
            expires=self._expires,
            window_events=self.policy.window_events,
            window_bytes=self.policy.window_bytes,
        )

    def _beat(self, now: int) -> None:
        """Send a heartbeat; give the connection up if the broker has been silent for too long, or a queue is stuck."""
        if now - self._last_read > _SILENT_BEATS * self._every:
            self._hang_up(ConnectError(f"{self.address} is silent"), now)
            return
        if any(state.book is not None and state.book.is_overdue(now) for state in self.subscriptions.values()):
            self._hang_up(ConnectError("nobody knows whether deliveries come again"), now)
            return
        for state in self.subscriptions.values():
            if state.book is not None:
                state.book.ask_stored()
        self._unsent.append(Ping(0))
        self._go_on()
        self._deadlines[_Deadline.BEAT] = now + self._every

    def _go_on(self) -> None:
        """Try again what the broker had no room for."""
        self.publisher.throttled = False
        for state in self.subscriptions.values():
            state.is_waiting = False
            if state.asks:
                self._speaking[state.number] = state
        for advert in self._open_adverts.values():
            advert.is_waiting = False

    def _hang_up(self, error: WeftError, now: int) -> None:
        self._effects.append(HangUp(self.connection))
        self._is_dialled = False
        self._gone(error, now)

    def _gone(self, error: WeftError, now: int) -> None:
        """The connection is gone: what happens next. `error` counts if the broker never said welcome."""
        was_welcome = self.welcome is not None
        self._lose()
        if self._fatal is not None or self.state in (_S.CLOSING, _S.LEAVING):
            self._end()
        elif self._next is not None:
            self._switch(now)
        elif self._unwelcome is not None:
            refused, self._unwelcome = self._unwelcome, None
            self._return(refused, now)
        elif self._target is not None:
            self._wait(now)
        elif self._redirect is not None:
            self._dial(now)
        elif was_welcome:
            self._turn, self._since = 0, now
            if self._was_useful or now - self._began > _micros(self.policy.longest_pause):
                self._pause = 0.0
            self._wait(now)
        else:
            self._try_next(error, now)

    def _try_next(self, error: WeftError, now: int) -> None:
        """An attempt has failed: try the next address, or all of them again after a pause, or give up."""
        if self._target is not None:
            self._return(error, now)
            return
        addresses, redirected = self._addresses, self._redirects > 0
        self._turn += not redirected
        retry_for = self.policy.retry_for
        is_first = not self._was_ready and (redirected or self._turn >= len(addresses))
        if is_first or (retry_for is not None and now - self._since > _micros(retry_for)):
            self._end(error)
        elif self._turn % len(addresses):
            self._dial(now)
        else:
            self._wait(now)

    def _wait(self, now: int) -> None:
        """Dial again after a pause; pauses grow, and are shortened at random so that clients do not come together."""
        pause = self._pause
        self._pause = min(max(self.policy.shortest_pause, 2 * pause), self.policy.longest_pause)
        if not pause:
            self._dial(now)
            return
        self._become(_S.PAUSED)
        self._set_deadline(_Deadline.PAUSE, now + _micros(pause * (0.5 + self._draw() / 2)))

    def _return(self, error: WeftError, now: int) -> None:
        """The session does not get to the broker to which it should move: stay, or go back to where it was.

        Once that broker was greeted, the session may come to it even so, unless the old broker hears a newer hello.
        """
        self._target, self._move_until = None, 0
        self._deadlines.pop(_Deadline.MOVE, None)
        self._drop_next()
        self._effects.append(MoveEnded(error))
        if self.state is _S.READY and not self._was_greeted:
            return
        if self._is_dialled:
            self._effects.append(HangUp(self.connection))
            self._is_dialled = False
        self._lose()
        self._turn, self._since, self._pause, self._redirect = 0, now, 0.0, None
        self._dial(now)

    # -- a second connection, to the broker that the session moves to -------------------------------------------

    def _dial_next(self, now: int) -> None:
        """Open a connection to the broker to which the session moves, besides the one that it has."""
        assert self._target is not None
        self._last_connection += 1
        until = now + _micros(self.policy.timeout)
        self._next = _NextConnection(self._last_connection, self._target, _S.DIALLING, until)
        self._deadlines[_Deadline.NEXT] = until
        self._effects.append(Dial(self._last_connection, self._target))

    def _welcomed_next(self, messages: Sequence[BrokerMessage], now: int) -> Sequence[BrokerMessage]:
        """What the broker says to which the session moves; the rest, when its connection is the only one."""
        following = self._next
        assert following is not None
        for at, message in enumerate(messages):
            match message:
                case HomeBroker(broker):
                    following.host = broker
                    self._greeted = [broker, *(each for each in self._greeted if each != broker)]
                case Bye(code, reason) if code in _NOT_TAKEN:
                    self._unwelcome = ConnectError(f"{following.address} refuses to take the session: {reason}", code)
                case Welcome(session=other) if self.welcome is not None and other != self.welcome.session:
                    self._return(self._is_another(following.address), now)
                    return ()
                case Welcome() | Bye("moved"):
                    self._switch(now)
                    return messages[at:]
                case _:
                    pass
        return ()

    def _is_another(self, address: Address) -> WeftError:
        """Why a session does not stay at a broker that has made it anew: that is on a ring, or has lost its log."""
        what = f"{address} does not know the session {self.name!r}, which is at {self._home}"
        return ConnectError(f"{what}; move to a broker that is linked with that one")

    def _switch(self, now: int) -> None:
        """The second connection becomes the only one: its broker has the session, or the old connection is gone."""
        following, self._next = self._next, None
        assert following is not None
        if self._is_dialled:
            self._effects.append(HangUp(self.connection))
        self._lose()
        self.connection, self.address, self._host = following.number, following.address, following.host
        self._is_dialled, self._redirect = following.state is not _S.PAUSED, None
        self._began, self._last_read, self._was_useful, self._last_words = now, now, False, ""
        if following.state is _S.PAUSED:
            self._become(_S.PAUSED)
            self._set_deadline(_Deadline.PAUSE, following.until)
            return
        self._become(_S.DIALLING)
        self._set_deadline(_Deadline.DIAL, following.until)
        if following.state is _S.GREETING:
            self._become(_S.GREETING)
            self._set_deadline(_Deadline.HELLO, following.until)

    def _next_gone(self, now: int) -> None:
        """The second connection is gone: stay if the broker has refused the session, or try again after a pause."""
        following = self._next
        assert following is not None
        if self._unwelcome is not None:
            refused, self._unwelcome = self._unwelcome, None
            self._next = None
            self._return(refused, now)
            return
        pause = self._pause
        self._pause = min(max(self.policy.shortest_pause, 2 * pause), self.policy.longest_pause)
        following.state = _S.PAUSED
        following.until = now + max(1, _micros(pause * (0.5 + self._draw() / 2)))
        self._deadlines[_Deadline.NEXT] = following.until

    def _next_is_late(self, now: int) -> None:
        """The second connection was not opened or not welcome in time, or a pause is over."""
        following = self._next
        assert following is not None
        if following.state is _S.PAUSED:
            self._dial_next(now)
            return
        self._effects.append(HangUp(following.number))
        if following.state is _S.DIALLING:
            self._next = None
            self._return(ConnectError(f"{following.address} does not answer within {self.policy.timeout:g} s"), now)
        else:
            self._next_gone(now)

    def _drop_next(self) -> None:
        following, self._next = self._next, None
        self._deadlines.pop(_Deadline.NEXT, None)
        if following is not None and following.state is not _S.PAUSED:
            self._effects.append(HangUp(following.number))

    def _lose(self) -> None:
        """Forget what belongs to the connection. Deliveries that were not acknowledged come again."""
        self._deadlines.clear()
        self._unsent.clear()
        self.publisher.lost()
        self.publisher.mapping = None  # until the next broker has sent its space
        if self.welcome is None:
            return
        self._before, self.welcome = self.welcome, None
        for each in self.subscriptions.values():
            each.lost()
        self._effects.append(Lost())

    def _end(self, error: WeftError | None = None) -> None:
        """The session is over: because of an error, or because the broker or the client has ended it."""
        if self.state is _S.OVER:
            return
        self._drop_next()
        if self._is_dialled:
            self._is_dialled = False
            self._effects.append(HangUp(self.connection))
        self._lose()
        self._become(_S.OVER)
        self.error = error or self._fatal or ClientClosedError("the client is closed")
        successors, self._successors = self._successors, []
        self._effects.append(Over(self.error, tuple(successors)))

    def _follow(self, text: str) -> None:
        """Remember where the broker redirects to; never from an encrypted address to a plain one."""
        try:
            target = Address.parse(text)
        except WeftError as error:
            self._fatal = ConnectError(f"{self.address} names another broker that cannot be reached: {error}")
            return
        if self.address is not None and self.address.tls and not target.tls:
            self._fatal = ConnectError(
                f"{self.address} redirects to {target}, which is not encrypted; connect to {target} if you trust it"
            )
            return
        self._redirect = target

    # -- messages of the broker --------------------------------------------------------------------------------

    def _handle(self, message: BrokerMessage) -> None:  # noqa: PLR0915 - a case for each message
        match message:
            case Published():
                stored = self.publisher.confirmed(message)
                if stored:
                    self._was_useful = True
                    self._effects.append(Stored(stored))
            case Pong(token):
                if token:
                    for state in self.subscriptions.values():
                        if state.book is not None:
                            state.book.pong(token)
            case AcksStored(queue, count):
                consumed = self.readers.get(queue)
                if consumed is not None and consumed.book is not None:
                    consumed.book.stored(count)
            case Revival(queue, offset):
                consumed = self.readers.get(queue)
                if consumed is not None and consumed.book is not None:
                    consumed.book.retrying([offset])
            case Welcome():
                before, is_mine = self._before, bool(self.name and self._home)
                if self._target and is_mine and before is not None and before.session != message.session:
                    assert self.address is not None
                    self._return(self._is_another(self.address), self._last_read)
                else:
                    self._welcomed(message)
            case HomeBroker(broker):
                self._host = broker
                self._greeted = [broker, *(each for each in self._greeted if each != broker)]
            case OfferedSpace(number, packed):
                self.publisher.mapping = mapping_of(number, packed) if self._map_events else None
            case Refused():
                failed = self.publisher.refused(message)  # None for a transient event, too
                if failed is not None:
                    self._effects.append(failed)
            case Accepted("withdraw profile", number):
                self._replied(number, None)
            case Accepted(about, number):
                self._answered(SubNumber(number), about, "", "")
            case Failed(about, number, code, reason):
                if about.endswith(("dead", "profile")) or about in _ONE_ANSWER:
                    self._replied(number, None, code, reason)
                else:
                    self._answered(SubNumber(number), about, code, reason)
            case Complete(number, "advertise"):
                self._advertised(number, "complete")
            case Complete(number):
                known = self.subscriptions.get(number)
                if known is not None and known.completed():
                    self._effects.append(Answered(number, None, "complete", "", ""))
            case Gap(queue, first, end):
                self._gap(queue, first, end)
            case Dropped(queue, count):
                self._effects.append(Missed(SubNumber(queue), 0, 0, count))
            case Revoked(number, reason):
                self._revoked(number, reason)
            case (
                DeadLetters(request)
                | DeadDone(request)
                | History(request)
                | Answer(request)
                | ProfilePublished(request)
            ):
                self._replied(request, message)
            case Explained(request, body) | StatusReport(request, body):
                self._replied(request, bytes(body))
            case Bye(code, reason):
                self._bye(code, reason)
            case _:
                pass

    def _welcomed(self, message: Welcome) -> None:
        if self.state is not _S.GREETING:
            return
        self._become(_S.READY)
        self._was_ready = True
        idle = message.idle // 3
        every = _micros(self.policy.heartbeat)
        self._every = min(every, idle) if idle else every
        self._deadlines = {_Deadline.BEAT: self._last_read + self._every}
        before, home = self._before, self._home
        same = before is not None and before.session == message.session
        moved = same and before is not None and before.log_id != message.log_id and home not in ("", self._host)
        same = same and before is not None and (moved or before.log_id == message.log_id)
        moved_from = before.log_id if moved and before is not None else ""
        was_target = self._arrived(moved or self._redirects > 0)
        self.welcome, self._tries = message, 0
        is_known = same and message.resumed and message.pub_epoch == self.publisher.epoch  # it never began anew
        stored = self.publisher.welcomed(message.pub_epoch, message.pub_seq, kept=same)
        self._effects.append(Ready(message, same, moved_from))
        if stored:
            self._was_useful = True
            self._effects.append(Stored(stored))
        there = self._there = set(message.subscriptions)
        kept = {state.queue for state in self.subscriptions.values() if state.number in there}
        for state in self.subscriptions.values():
            if moved_from:
                state.moved(moved_from)
            elif before is not None and before.log_id != message.log_id:
                state.forget()
            if state.was_here and state.book is not None and not state.share and state.queue not in kept:
                self._effects.append(Missed(SubNumber(state.queue), 0, 0, 0))  # it is forgotten: nobody knows how many
                state.forget()
            inherits = before is not None and bool(self._home)
            self._check_profiles(state, message)
            at = {"there": state.number in there, "version": message.version, "log_id": message.log_id}
            gone = state.begin(**at, inherits=inherits)  # type: ignore[arg-type]
            if gone is not None:
                if not gone.internal:
                    self._effects.append(Answered(state.number, gone.waiter, gone.about, "", ""))
                self._effects.append(Ended(state.number, "", ""))
        for state in [each for each in self.subscriptions.values() if each.ended]:
            self._remove(state)
        self._speaking = dict(self.subscriptions)
        self._unsent_requests = sorted(self._requests)
        for advert in self.adverts.values():
            advert.begin(kept=is_known)
        self._open_adverts = {number: each for number, each in self.adverts.items() if not each.is_settled}
        if was_target:
            self._effects.append(MoveEnded(None))
        if self._map_events and message.version >= PLACES:
            self._unsent.append(AskSpace())
        self._wake()

    def _check_profiles(self, state: SubscriptionState, welcome: Welcome) -> None:
        """A subscription to profiles ends at a broker that does not have any."""
        if state.options.profiles and welcome.version < PROFILES and not state.ended:
            state.ended = True
            self._effects.append(Ended(state.number, "version", _too_old(_HAVE_PROFILES)))

    def _arrived(self, moved: bool) -> bool:
        """The broker has welcomed the session, which is there: it is the first one to come back to.

        Returns whether it was to move there.
        """
        self._home, self._greeted = self._host, []
        if self._target is not None or (moved and self._host):
            assert self.address is not None
            self._addresses = (self.address, *(each for each in self._addresses if each != self.address))
            self._turn = 0
        was_target = self._target is not None
        self._target, self._move_until = None, 0
        return was_target

    def _advertised(self, number: int, about: str, code: str = "", reason: str = "") -> None:
        """An advertisement, or its end, is granted or refused; or it is complete."""
        state = self.adverts.get(number)
        if state is not None:
            self._effects += state.completed() if about == "complete" else state.answered(about, code, reason)
            if state.is_settled:
                self._open_adverts.pop(number, None)
                if state.message is None:
                    del self.adverts[number]

    def _answered(self, number: SubNumber, about: str, code: str, reason: str) -> None:
        if about.endswith("advertise"):
            self._advertised(number, about, code, reason)
            return
        state = self.subscriptions.get(number)
        if state is None:
            return
        ask = state.answered(about, code)
        if not code and about == "subscribe":
            self._there.add(number)
        if state.asks:
            self._speaking[number] = state
        if ask is not None:
            self._effects.append(Answered(number, ask.waiter, ask.about, code, reason))
        elif code and not state.is_asking:
            self._effects.append(Ended(number, code, reason))  # the broker ends it of its own accord
            state.ended = True
        if state.ended:
            self._remove(state)
            if code in ("", "unknown"):
                self._there.discard(number)
            if not code:
                self._effects.append(Ended(number, "", ""))

    def _remove(self, state: SubscriptionState) -> None:
        """A subscription is gone; another one of its queue goes on with the acknowledgements."""
        del self.subscriptions[state.number]
        self._speaking.pop(state.number, None)
        if self.readers.get(state.queue) is not state:
            return
        del self.readers[state.queue]
        for other in self.subscriptions.values():
            if other.queue == state.queue:
                other.book, state.book = state.book, None
                self.readers[other.queue] = self._speaking[other.number] = other
                return

    def _gap(self, queue: QueueNumber, first: int, end: int) -> None:
        state = self.readers.get(queue)
        if state is None:
            return
        self._effects.append(Missed(SubNumber(queue), first, end, 0))
        if state.book is not None:
            state.book.gap(first, end)
            if state.book.is_doubtful:
                self._deadlines[_Deadline.BEAT] = self._last_read  # connect again at once
                self._wake()

    def _revoked(self, number: SubNumber, reason: str) -> None:
        state = self.subscriptions.get(number)
        if state is not None and number in self._there:  # otherwise an older one of this number is meant
            self._remove(state)
            self._there.discard(number)
            self._effects.append(Ended(number, "access", reason))

    def _take_subscriptions(self) -> list[ClientMessage]:
        """What subscriptions have to say. One without acknowledgements of its own has then said it all."""
        messages: list[ClientMessage] = []
        for number, state in [*self._speaking.items()]:
            messages += state.take(last=self.state is _S.CLOSING)
            if state.book is None:
                del self._speaking[number]
        return messages

    def _take_requests(self) -> list[ClientMessage]:
        unsent, self._unsent_requests = self._unsent_requests, []
        requests = [(number, self._requests[number]) for number in unsent if number in self._requests]
        for number, request in requests:
            if type(request.message) is RetryDead and (book := self._book(request)) is not None:
                book.retrying(request.message.offsets)
            elif self.welcome is not None and self.welcome.version < _NEEDED.get(type(request.message), VERSION):
                self._replied(number, None, "version", _too_old(_WHAT.get(type(request.message), _HAVE_PROFILES)))
        return [request.message for number, request in requests if number in self._requests]

    def _replied(
        self,
        number: int,
        answer: DeadLetters | DeadDone | History | Answer | ProfilePublished | bytes | None,
        code: str = "",
        reason: str = "",
    ) -> None:
        request = self._requests.pop(number, None)
        if request is None:
            return
        if type(request.message) is RetryDead and (book := self._book(request)) is not None:
            book.retried(request.message.offsets)
        self._effects.append(Replied(request, answer, code, reason))

    def _book(self, request: BrokerRequest) -> AckBook | None:
        reader = self.readers.get(QueueNumber(request.number))
        return None if reader is None else reader.book

    def _bye(self, code: str, reason: str) -> None:
        """The broker ends the connection; after some codes the session ends with it."""
        if code == MOVED:
            if reason:  # otherwise the client itself has asked for the move
                self._follow(reason)
            return
        self._last_words = reason
        if self._target is not None and self.state is _S.GREETING and code in _NOT_TAKEN:
            self._unwelcome = ConnectError(f"{self.address} refuses to take the session: {reason}", code)
            return
        if code == "taken over" and self._next is not None and self._was_greeted:
            return  # by its own second connection, to the same broker
        if code == "taken over":
            self._fatal = SessionTakenError(
                f"a newer connection uses the name {self.name!r}, so this one has ended; choose another name, or "
                f"consume together with shared=True"
            )
        elif code == "forgotten":
            self.is_forgotten = True
            self._fatal = ClientClosedError(f"the session {self.name!r} was removed")
        elif code == "full" and self.state is _S.LEAVING:
            self._fatal = RequestError(reason, code)
        elif code in ("refused", "protocol"):
            self._tries = max(0, self._tries - (code == "refused"))
            what = "no longer accepts this client" if self._was_ready else "refuses this client"
            self._fatal = ConnectError(f"{self.address} {what}: {reason}", code)
        self._effects.append(Closed(code, reason, self._fatal is not None))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert (self.welcome is not None) == (self.state in (_S.READY, _S.CLOSING, _S.LEAVING))
        assert self._is_dialled == (self.state is _S.DIALLING or self.state in _CONNECTED)
        assert (self.error is not None) == (self.state is _S.OVER)
        due = min(self._deadlines.values(), default=self._alarm)
        assert not self._deadlines or 0 < self._alarm <= due, "something is due, and no timer is set"
        assert _Deadline.PAUSE in self._deadlines or self.state is not _S.PAUSED
        assert (self._next is not None) == (_Deadline.NEXT in self._deadlines)
        assert self._next is None or self.state is _S.READY
        assert {state.queue for state in self.subscriptions.values()} == self.readers.keys()
        for number, state in self.subscriptions.items():
            assert state.number == number
            reader = self.readers[state.queue]
            assert state is reader or state.book is None, "two subscriptions of a queue acknowledge its events"
            assert state.book is None or number in self._speaking
            state.check()


def _too_old(what: str) -> str:
    return f"the broker runs an older version of Weft, which cannot {what}; update it"


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
