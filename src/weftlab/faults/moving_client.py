"""A client that moves between brokers: the product's session, its application, and what it has seen by identity.

The application subscribes before anything else happens, and publishes events with names of their own. Whatever the
session does, it is shown each event once, and what it has acknowledged never again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import msgspec

from weft.client import effects
from weft.client.effects import Replied, SessionEffect
from weft.client.publisher import NotStored, UnconfirmedEvent
from weft.client.session import ClientSession
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.errors import WeftError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.protocol.addresses import Address
from weft.protocol.messages import Advertise, BrokerMessage, ClientMessage, Deliver, SubNumber
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client_connection import ClientConnection, policy_of
from weftlab.faults.client_process import Consumer
from weftlab.faults.plan import OPEN
from weftlab.faults.shape import EVEN
from weftlab.faults.trace import Actor
from weftlab.faults.views import ClientViews, QueueView
from weftlab.faults.violation import require

_AGAIN = 20_000  # microseconds until what was refused is published again, at most
_PATIENCE = 400_000  # that a client waits at another broker before it goes back, sometimes
_WINDOW = 2
WATCHED = SubNumber(1)  # the subscription that is judged
CHANGING = SubNumber(2)  # another one, whose filter changes


class NoWatch:
    """Watches nothing: brokers number events differently, so what a client has had is judged by identity."""

    left_at = 0

    def __init__(self) -> None:
        self.owed: set[tuple[str, int]] = set()

    def sent(self, message: ClientMessage) -> None:
        """A message was sent."""

    def received(self, connection: str, message: BrokerMessage) -> None:
        """A message was received."""


@dataclass(eq=False)
class MovingClient(Actor):
    """A client with a name."""

    broker: BrokerProcess  # of its present connection, or of the last one
    brokers: dict[str, BrokerProcess]
    filter: str  # of its subscription; empty if it only publishes
    advertised: bool
    forgiving: bool = False  # something drastic may happen: what it misses or sees twice is not judged

    def __post_init__(self) -> None:
        self.principal, self.terms, self.anonymous = "", OPEN, False
        self.views, self.watch, self.connections = ClientViews(), NoWatch(), count(1)
        self.nacks, self.acking = 0.0, True
        self.shown: list[str] = []
        self.stored: list[str] = []  # its own events, as they were confirmed
        self.numbers = count(1)
        self.process = self.make_process()

    def make_process(self) -> MovingProcess:
        """The process that the client is."""
        return MovingProcess(self)

    @property
    def oracle(self):  # type: ignore[no-untyped-def]
        """The oracle of the broker to which it was connected last."""
        return self.broker.oracle

    def reach(self, address: Address) -> BrokerProcess:
        """The broker at this address."""
        return self.brokers[address.host]

    def wants(self, attributes: dict[str, object]) -> bool:
        """Whether its subscription matches an event."""
        return bool(self.filter) and matches(parse(self.filter, EVEN), attributes)  # type: ignore[arg-type]

    # -- what it does ----------------------------------------------------------------------------------

    def publish(self, uid: str, attributes: dict[str, object]) -> None:
        """Publish an event."""
        self.process.publish(uid, attributes)

    def move(self, target: str, patient: bool, abandon: int | None = None) -> None:
        """Go to another broker, half of the time without a connection to the old one."""
        address = Address.parse(f"weft+tls://{target}:9338")
        now, process = self.engine.now, self.process
        if self.rng.random() < 0.5:
            process.connection.cut()
        self.trace.count("op: move, make before break" if process.session.welcome else "op: move, break before make")
        patience = None if patient else _PATIENCE
        process.connection.perform(process.session.move(address, now, patience, abandon=abandon))

    def change(self, filter: str) -> None:
        """Change the other subscription, perhaps while the session moves."""
        self.process.change(filter)

    def mend(self) -> None:
        """No more trouble."""
        self.nacks, self.acking = 0.0, True
        self.process.connection.trap = ""
        self.process.connection.resume()

    def unfinished(self) -> Iterator[str]:
        """What it waits for, in a sentence each."""
        process = self.process
        if not process.connection.is_welcome or process.connection.is_cut:
            yield f"{self.name} is away"
        if process.unconfirmed or not process.session.is_settled:
            yield f"{self.name} waits for {len(process.unconfirmed)} confirmations"
        if any(not state.is_complete for state in process.session.subscriptions.values()):
            yield f"{self.name} does not know that its subscriptions are complete"
        if any(not advert.is_complete for advert in process.session.adverts.values()):
            yield f"{self.name} does not know that its advertisement is complete"


class MovingConsumer(Consumer):
    """What the application does with events; it knows them by their names."""

    def __init__(self, client: MovingClient, process: MovingProcess, state: SubscriptionState) -> None:
        super().__init__(client, process, state)  # type: ignore[arg-type]
        self._mover, self._acked_uids, self._own = client, set[str](), QueueView()

    @property
    def _view(self) -> QueueView:
        return self._own

    def _shown(self, message: Deliver) -> None:
        uid = bytes(message.payload).decode()
        seen = uid in self._acked_uids and not self._mover.forgiving
        require(not seen, f"{self._mover.name}: {uid} is shown after it was acknowledged")
        if self._state.number == WATCHED and uid not in self._mover.shown:
            self._mover.shown.append(uid)
        super()._shown(message)

    def forget(self) -> None:
        """Offsets mean other events from now on."""
        self._acked.clear()
        self._failed.clear()
        self._last = 0

    def _decide(self, message: Deliver, at: int, view) -> None:  # type: ignore[no-untyped-def]
        super()._decide(message, at, view)
        if message.offset in self._acked:
            self._acked_uids.add(bytes(message.payload).decode())


class MovingProcess:
    """The session of a client that moves, and what it reports."""

    is_leaving = False

    def __init__(self, client: MovingClient) -> None:
        self._client = client
        self.session = ClientSession(client.name, policy_of(client), draw=client.rng.random)  # type: ignore[arg-type]
        self.unconfirmed: dict[int, tuple[str, dict[str, object]]] = {}  # by the id of their receipt
        self.consumers: dict[SubNumber, MovingConsumer] = {}
        self._ids = count(1)
        self.connection = ClientConnection(client, self)  # type: ignore[arg-type]
        if client.filter:
            self._subscribe(WATCHED, client.filter)
        if client.advertised:
            self.session.request(lambda _: Advertise(1, "TRUE"), None)

    def _subscribe(self, number: SubNumber, filter: str) -> None:
        options = SubscriptionOptions(durable=True)
        state = SubscriptionState(number, options, window=_WINDOW, token=self.session.token)
        self.consumers[number] = MovingConsumer(self._client, self, state)
        self.session.subscribe(state, SubscriptionRequest("subscribe", filter, None))

    def change(self, filter: str) -> None:
        """Subscribe, or give the subscription another filter."""
        if CHANGING in self.session.subscriptions:
            self.session.ask(CHANGING, SubscriptionRequest("replace", filter, None))
        else:
            self._subscribe(CHANGING, filter)
        self.connection.flush()

    def publish(self, uid: str, attributes: dict[str, object]) -> None:
        """Publish an event."""
        receipt = next(self._ids)
        self.unconfirmed[receipt] = uid, attributes
        raw = msgspec.Raw(msgspec.msgpack.encode(attributes))
        self.session.publisher.add([UnconfirmedEvent(raw, uid.encode(), receipt=receipt)])
        self.connection.flush()

    def noticed(self, notice: SessionEffect) -> None:
        """What the session reports."""
        client = self._client
        match notice:
            case effects.Ready():
                client.trace.count("moved" if notice.moved_from else "welcome")
                known = notice.kept or not client.stored or client.forgiving
                require(known, f"{client.name} has got another session")
                if not notice.kept:
                    for consumer in self.consumers.values():
                        consumer.forget()
            case effects.MoveEnded(error):
                client.trace.count("move done" if error is None else "move failed")
            case effects.Lost():
                for consumer in self.consumers.values():
                    consumer.lost()
            case effects.Stored(events):
                for event in events:
                    client.stored.append(self._settled(event)[0])
            case NotStored(events):
                require(notice.code == "full", f"{client.name}: an event was refused: {notice.reason}")
                for event in events:
                    uid, attributes = self._settled(event)
                    client.soon(_AGAIN, lambda uid=uid, attributes=attributes: self.publish(uid, attributes))  # type: ignore[misc]
            case effects.Arrived(number, messages):
                self.consumers[number].arrived(messages)
            case effects.Answered(number, _, about, code):
                refused = code not in ("", "full") or (code and number == WATCHED)
                require(not refused, f"{client.name}: {about} {number} failed: {code}, {notice.reason}")
                if code and about == "subscribe":
                    del self.consumers[number]
            case effects.Ended(number):
                require(number == CHANGING, f"{client.name}: subscription {number} has ended: {notice.reason}")
                self.consumers.pop(number, None)
            case effects.Missed(number):
                require(client.forgiving, f"{client.name}: subscription {number} has missed events")
                client.trace.count("missed")
            case Replied():
                if notice.code == "full":
                    client.soon(_AGAIN, lambda: self.session.request(lambda _: Advertise(1, "TRUE"), None))
                else:
                    require(not notice.code, f"{client.name}: {notice.code}, {notice.reason}")

    def _settled(self, event: UnconfirmedEvent) -> tuple[str, dict[str, object]]:
        assert isinstance(event.receipt, int)
        require(event.receipt in self.unconfirmed, f"{self._client.name}: {event.payload!r} is answered twice")
        return self.unconfirmed.pop(event.receipt)

    def over(self, error: WeftError) -> None:
        """A session that moves never ends."""
        require(False, f"{self._client.name} has ended: {error}")
