"""A simulated client: it publishes, subscribes and acknowledges, reconnects when it is cut off, and forgets nothing.

What it asked for is asked again after a reconnection until it is answered, and what it published is sent again until it
is confirmed, as the client library does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import msgspec

from weft.broker.codec import broker_messages, encode
from weft.broker.effects import ConnectionId
from weft.broker.messages import (
    Accepted,
    Ack,
    Advertise,
    Bye,
    ClientMessage,
    DeadDone,
    DeadLetters,
    Deliver,
    DropDead,
    Dropped,
    Failed,
    Gap,
    Goodbye,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Pong,
    Publish,
    Published,
    QueueNumber,
    Range,
    Refused,
    Replace,
    RetryDead,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from weft.language.ast import Filter
from weft.language.text import parse
from weft.log.base import Offset
from weft.sim.engine import Engine
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.oracle import Oracle, QueueView, SubView, Version, require
from weft.sim.faults.trace import Trace
from weft.sim.faults.wire import Lane

_RETRY = 20_000  # microseconds between attempts to connect, at most
_THINK = 6_000  # between a delivery and its acknowledgement, at most
_BEAT = 400_000


@dataclass(slots=True)
class Unconfirmed:
    """An event that was published and not yet confirmed."""

    uid: str
    attributes: dict[str, object]
    ttl: int


@dataclass(slots=True)
class ClientState:
    """What a client remembers over its connections."""

    pub_epoch: int = 1
    sequence: int = 0  # of the last event of the epoch
    unconfirmed: dict[int, Unconfirmed] = field(default_factory=dict)  # by sequence
    subs: dict[SubNumber, SubView] = field(default_factory=dict)
    asked: list[ClientMessage] = field(default_factory=list)  # requests without an answer
    queues: dict[QueueNumber, QueueView] = field(default_factory=dict)
    ordered: dict[QueueNumber, bool] = field(default_factory=dict)
    open: dict[QueueNumber, set[Offset]] = field(default_factory=dict)  # delivered on this connection, not acknowledged
    once: set[tuple[QueueNumber, str]] = field(default_factory=set)  # what queues that are not durable have had


class SimClient:
    """A client of one broker, with a name."""

    def __init__(  # noqa: PLR0913, PLR0917 - a world has many parts
        self, name: str, broker: BrokerProcess, engine: Engine, rng: Random, trace: Trace, oracle: Oracle
    ) -> None:
        self.name = name
        self.state = ClientState()
        self.shares: dict[str, QueueView] = {}  # shared with other clients
        self.nacks = 0.0  # the part of the deliveries that it cannot handle
        self.acking = True
        self.anonymous = False  # a session without a name ends with its connection
        self.wanted = True  # whether it wants to be connected
        self._broker, self._engine, self._rng, self._trace, self._oracle = broker, engine, rng, trace, oracle
        self._connection: ConnectionId | None = None
        self._welcomed = False
        self._lane: Lane | None = None  # to the broker
        self._back: Lane | None = None  # from the broker
        self._connections = 0
        self._ended_from = 0  # the first refused event of the epoch
        self._request = 0
        self._asked_again: list[ClientMessage] = []
        self._retried: list[ClientMessage] = []  # requests that failed, and are to be made again
        self._listed: dict[int, QueueNumber] = {}  # requests for dead letters
        self._shares: list[Subscribe] = []  # a consumer of a shared queue subscribes anew on each connection
        self._hanging: list[tuple[Lane, Lane]] = []
        engine.after(1 + rng.randrange(3000), self._connect)
        engine.after(_BEAT, self._beat)

    # -- connections -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connection is not None or not self.wanted:
            return
        if self._broker.core is None:
            self._engine.after(1 + self._rng.randrange(_RETRY), self._connect)
            return
        self._open()

    def _open(self) -> None:
        self._connections += 1
        connection = ConnectionId(f"{self.name}-{self._connections}")
        reader = broker_messages()

        def receive(data: bytes) -> None:
            for message in reader.feed(data):
                if self._connection == connection:
                    self._handle(message)
            self._broker.drained(connection)

        self._connection, self._welcomed = connection, False
        self._back = Lane(self._engine, self._rng, receive, 1500)
        self._lane = Lane(self._engine, self._rng, lambda data: self._broker.receive(connection, data), 1500)
        back, lane = self._back, self._lane

        def closing() -> None:
            lane.cut()
            back.close(lambda: self._gone(connection))

        self._oracle.watch(connection, self.state.queues.get)
        self._broker.accept(connection, back, closing)
        name = "" if self.anonymous else self.name
        if self.anonymous:  # whether what it published is stored can no longer be known
            self.state.unconfirmed.clear()
            self.state.pub_epoch, self.state.sequence, self._ended_from = 1, 0, 0
        self._tell(Hello(session=name, pub_epoch=self.state.pub_epoch), always=True)

    def take_over(self) -> None:
        """Connect again while the old connection lasts: the newer one takes the session over."""
        if self._connection is not None and self._broker.core is not None:
            self._trace.count("fault: take-over")
            self._forget_deliveries()
            self._open()

    def cut(self, *, half_open: bool) -> None:
        """The connection breaks; the broker notices soon, or not at all when it is half open."""
        connection, lane, back = self._connection, self._lane, self._back
        if connection is None or lane is None or back is None:
            return
        self._trace.count("fault: half-open" if half_open else "fault: cut")
        self._say("is cut off" + (", unnoticed by the broker" if half_open else ""))
        lane.cut()
        back.cut()
        if not half_open:
            self._engine.after(1 + self._rng.randrange(5000), lambda: self._broker.noticed_cut(connection))
        self._gone(connection)

    def leave(self) -> None:
        """Say goodbye, and come back later."""
        if self._connection is not None and self._welcomed:
            self._tell(Goodbye())
            self._trace.count("op: goodbye")

    def _gone(self, connection: ConnectionId) -> None:
        if connection == self._connection:
            self._connection, self._welcomed, self._lane, self._back = None, False, None, None
            self._forget_deliveries()
            self._engine.after(1 + self._rng.randrange(_RETRY), self._connect)

    def _forget_deliveries(self) -> None:
        self.state.open.clear()

    def pause(self) -> None:
        """Read nothing for a while."""
        if self._back is not None:
            self._trace.count("fault: slow reader")
            self._back.pause()

    def resume(self) -> None:
        """Read again."""
        if self._back is not None:
            self._back.resume()
            if self._connection is not None:
                self._broker.drained(self._connection)

    def _beat(self) -> None:
        if self._welcomed:
            self._tell(Ping(1))
        self._engine.after(_BEAT, self._beat)

    def _tell(self, *messages: ClientMessage, always: bool = False) -> None:
        if self._lane is not None and (self._welcomed or always):
            for message in messages:
                self._say(f"-> {_shown(message)}")
            self._lane.send(encode(messages))

    # -- publishing ------------------------------------------------------------------------------------

    def publish(self, uid: str, attributes: dict[str, object], ttl: int = 0) -> None:
        """Publish a durable event; it is sent until it is confirmed."""
        self.state.sequence += 1
        self.state.unconfirmed[self.state.sequence] = Unconfirmed(uid, attributes, ttl)
        if not self._ended_from:
            self._publish(self.state.sequence)

    def publish_once(self, uid: str, attributes: dict[str, object]) -> None:
        """Publish an event that is not durable, if connected."""
        self._tell(Publish.of(0, attributes, uid.encode()))

    def _publish(self, sequence: int) -> None:
        event = self.state.unconfirmed[sequence]
        self._tell(Publish.of(sequence, event.attributes, event.uid.encode(), ttl=event.ttl))

    def _confirmed(self, upto: int) -> None:
        for sequence in [s for s in self.state.unconfirmed if s <= upto]:
            event = self.state.unconfirmed.pop(sequence)
            require(self._oracle.offset_of(event.uid) is not None, f"{self.name}: {event.uid} is confirmed, not stored")
        self._renew()

    def _refused(self, message: Refused) -> None:
        if message.sequence and message.pub_epoch == self.state.pub_epoch and not self._ended_from:
            self._ended_from = message.sequence
            self._engine.after(1 + self._rng.randrange(10_000), self._renew)

    def _renew(self) -> None:
        """Begin a new epoch once everything before the refused event is confirmed."""
        state = self.state
        if self._ended_from and self._welcomed and all(s >= self._ended_from for s in state.unconfirmed):
            self._ended_from = 0
            state.pub_epoch += 1
            waiting = [state.unconfirmed[s] for s in sorted(state.unconfirmed)]
            state.unconfirmed = dict(enumerate(waiting, 1))
            state.sequence = len(waiting)
            self._trace.count("op: new publisher epoch")
            self._tell(NewEpoch(state.pub_epoch))
            for sequence in state.unconfirmed:
                self._publish(sequence)

    # -- subscribing -----------------------------------------------------------------------------------

    def subscribe(self, message: Subscribe) -> None:
        """Subscribe; asked until answered."""
        since = message.since
        low = self._oracle.next if since is None else since
        if message.share:  # the queue may have been there before
            low = 0
            self._shares.append(message)
        durable = message.durable is not False  # sessions with a name: durable unless they say otherwise
        view = SubView(message.number, message.queue, durable, [Version(_filter(message.filter), low)])
        self.state.subs[message.number] = view
        if durable:
            self._adopt(message)
            self._queue(message.queue).subs.append(view)
        self._ask(message)

    def _adopt(self, message: Subscribe) -> None:
        if message.queue not in self.state.queues:
            view = self.shares.get(message.share) if message.share else self._oracle.view()
            assert view is not None
            self.state.queues[message.queue] = view
            view.ordered = self.state.ordered[message.queue] = message.ordered and not message.share

    def replace(self, number: SubNumber, text: str) -> None:
        """Give a subscription another filter."""
        sub = self.state.subs.get(number)
        if sub is not None and not sub.ended and not self._is_asked(number):
            sub.versions.append(Version(_filter(text), self._oracle.next))
            self._ask(Replace(number, text))

    def unsubscribe(self, number: SubNumber) -> None:
        """End a subscription."""
        sub = self.state.subs.get(number)
        if sub is not None and not sub.ended and not self._is_asked(number):
            sub.versions.append(Version(None, self._oracle.next))
            self._end_queue(sub.queue)
            self._ask(Unsubscribe(number))

    def _end_queue(self, queue: QueueNumber) -> None:
        """A queue without subscriptions ends; one with its number may begin later."""
        view = self.state.queues.get(queue)
        if view is not None:
            view.held.clear()  # what failed may have been this subscription's alone
        if view is not None and all(sub.ended for sub in self.state.subs.values() if sub.queue == queue):
            self.state.open.pop(queue, None)
            view.drop(set(self._oracle.history))

    def advertise(self, number: int) -> None:
        """Promise to publish anything."""
        self._ask(Advertise(number, "TRUE"))

    def unadvertise(self, number: int) -> None:
        """Take the promise back."""
        self._ask(Unadvertise(number))

    def dead(self, queue: QueueNumber, action: str) -> None:
        """Ask for dead letters; those that come are retried or dropped."""
        self._request += 1
        request = self._request * 3 + ("list", "retry", "drop").index(action)
        self._listed[request] = queue
        self._tell(ListDead(request, queue))

    @property
    def is_retrying(self) -> bool:
        """Whether a request that failed is to be made again."""
        return bool(self._retried)

    def _is_asked(self, number: int) -> bool:
        return any(getattr(message, "number", None) == number for message in (*self.state.asked, *self._retried))

    def _ask(self, message: ClientMessage) -> None:
        self.state.asked.append(message)
        self._tell(message)

    def _answered(self, about: str, number: int) -> ClientMessage | None:
        for message in self.state.asked:
            if type(message).__name__.lower() == about and message.number == number:  # type: ignore[union-attr]
                self.state.asked.remove(message)
                return message
        return None

    def _accepted(self, message: Accepted) -> None:
        asked = self._answered(message.about, message.number)
        if asked is None or message.about in ("advertise", "unadvertise"):
            return
        sub = self.state.subs[SubNumber(message.number)]
        if message.about == "unsubscribe":
            self._end_queue(sub.queue)
        version = sub.versions[{"subscribe": 0, "replace": -1, "unsubscribe": -1}[message.about]]
        if isinstance(asked, Subscribe) and asked.since is not None:
            version.high = max(asked.since, self._oldest())
            self._queue(sub.queue).begins = self._oldest()
            return
        if isinstance(asked, Subscribe) and asked.share:
            version.high = min(version.high, message.offset)
            return
        if asked in self._asked_again:  # it may have been done the first time, and the answer was lost
            self._asked_again.remove(asked)
            version.high = message.offset
            return
        early = message.offset < version.low
        require(not early, f"{self.name}: {message.about} holds from {message.offset}, before it was requested")
        version.low = version.high = message.offset

    def _oldest(self) -> int:
        """The oldest event in the broker's log."""
        return self._broker.log.restore().first if self._broker.core is not None else self._oracle.next

    def _failed(self, message: Failed) -> None:
        self._trace.count(f"failed: {message.about} {message.code}")
        asked = self._answered(message.about, message.number)
        if asked is not None and message.code != "table":  # the log was full: ask again later
            self._retried.append(asked)
            self._engine.after(1 + self._rng.randrange(20_000), lambda: self._ask_again(asked))

    def _ask_again(self, asked: ClientMessage) -> None:
        if asked in self._retried:
            self._retried.remove(asked)
            self._ask(asked)

    # -- messages --------------------------------------------------------------------------------------

    def _handle(self, message: object) -> None:
        self._say(f"<- {_shown(message)}")
        match message:
            case Welcome():
                self._welcome(message)
            case Published(pub_epoch, upto) if pub_epoch == self.state.pub_epoch:
                self._confirmed(upto)
            case Refused():
                self._refused(message)
            case Accepted():
                self._accepted(message)
            case Failed():
                self._failed(message)
            case Deliver():
                self._delivered(message)
            case Gap(queue, first, end):
                self._trace.count("gap")
                self._oracle.gap(self.name, self._queue(queue), first, end)
            case Dropped():
                self._trace.count("dropped")
            case DeadLetters():
                self._dead_letters(message)
            case DeadDone() | Pong() | Published():
                pass
            case Bye(code):
                self._trace.count(f"bye: {code}")
            case _:
                pass

    def _welcome(self, message: Welcome) -> None:
        self._welcomed = True
        state = self.state
        same = message.pub_epoch == state.pub_epoch
        require(same, f"{self.name}: publisher epoch {message.pub_epoch}, not {state.pub_epoch}")
        self._ended_from = 0
        if self._rng.random() < 0.7:  # otherwise it sends again what is stored, and the broker must notice
            self._confirmed(message.pub_seq)
        there = set(message.subscriptions)
        for asked in list(state.asked):
            if isinstance(asked, Subscribe) and asked.number in there:  # it was done, and the answer was lost
                state.asked.remove(asked)
                state.subs[asked.number].versions[0].high = self._oracle.next
                if asked.since is not None:
                    self._queue(asked.queue).begins = self._oldest()
            if isinstance(asked, Unsubscribe) and asked.number not in there:
                state.asked.remove(asked)
        lost = {number for number, sub in state.subs.items() if not sub.durable and number not in there}
        for waiting_list in (state.asked, self._retried):  # subscriptions that ended with the connection are made anew
            waiting_list[:] = [asked for asked in waiting_list if getattr(asked, "number", None) not in lost]
        state.asked += [share for share in self._shares if share not in state.asked]
        waiting = {getattr(asked, "number", None) for asked in state.asked}
        for number, sub in state.subs.items():
            if sub.durable and sub.accepted and not sub.ended and number not in waiting:
                require(number in there, f"{self.name}: subscription {number} was accepted, and is lost")
            if not sub.durable and not sub.ended and number not in there and number not in waiting:
                sub.versions[0] = Version(sub.versions[-1].filter, self._oracle.next)
                del sub.versions[1:]
                state.asked.append(Subscribe(number, str(sub.versions[0].filter), sub.queue, durable=False))
        self._asked_again = list(state.asked)
        self._tell(*state.asked)
        for sequence in sorted(state.unconfirmed):
            self._publish(sequence)

    def _queue(self, queue: QueueNumber) -> QueueView:
        return self.state.queues[queue]

    def _delivered(self, message: Deliver) -> None:
        subs = [sub for sub in self.state.subs.values() if sub.queue == message.queue]
        if message.queue not in self.state.queues:
            self._trace.count("delivered: not durable")
            for number in message.numbers:
                require(number in self.state.subs, f"{self.name}: a delivery for unknown subscription {number}")
            uid = bytes(message.payload).decode()
            once = (message.queue, uid)
            require(once not in self.state.once, f"{self.name}: {uid} was delivered twice to queue {message.queue}")
            self.state.once.add(once)
            return
        if not message.offset:
            return
        view = self._queue(message.queue)
        self._trace.count("delivered")
        if message.attempt > 1:
            self._trace.count("delivered again")
        ordered = self.state.ordered[message.queue]
        assert self._connection is not None
        self._oracle.delivered(self._connection, message, subs, view, ordered=ordered)
        self.state.open.setdefault(message.queue, set()).add(message.offset)
        connection = self._connection
        delay = 1 + self._rng.randrange(_THINK)
        self._engine.after(delay, lambda: self._decide(connection, message.queue, message.offset))

    def _decide(self, connection: ConnectionId | None, queue: QueueNumber, offset: Offset) -> None:
        waiting = self.state.open.get(queue, set())
        if connection != self._connection or offset not in waiting or not self._welcomed:
            return
        if not self.acking:
            self._engine.after(_THINK, lambda: self._decide(connection, queue, offset))
        elif self._rng.random() < self.nacks and offset not in self._queue(queue).acked:
            waiting.discard(offset)
            self._trace.count("op: nack")
            self._queue(queue).refused.add(offset)
            self._tell(Nack(queue, (offset,), "cannot handle it"))
        else:
            waiting.discard(offset)
            self._queue(queue).acked.add(offset)
            if self._rng.random() < 0.5 or not waiting:
                self._acknowledge(queue)

    def _acknowledge(self, queue: QueueNumber) -> None:
        waiting, view = self.state.open.get(queue, set()), self._queue(queue)
        floor = min(waiting, default=max(view.acked) + 1)
        if not all(offset in view.acked for offset in view.seen if offset < floor):
            floor = min(offset for offset in view.seen if offset not in view.acked)
        above = sorted(offset for offset in view.acked if offset >= floor)
        ranges: list[Range] = []
        for offset in above:
            if ranges and ranges[-1][1] == offset:
                ranges[-1] = (ranges[-1][0], Offset(offset + 1))
            else:
                ranges.append((Offset(offset), Offset(offset + 1)))
        self._tell(Ack(queue, Offset(floor), tuple(ranges)))

    def _dead_letters(self, message: DeadLetters) -> None:
        offsets = tuple(letter.offset for letter in message.letters)
        self._trace.count("dead letters", len(offsets))
        queue = self._listed.pop(message.request, None)
        if queue is None or not offsets or queue not in self.state.queues:
            return
        self._queue(queue).excused |= set(offsets)
        action = message.request % 3
        if action:
            self._trace.count(("", "op: retry dead", "op: drop dead")[action])
            self._tell((RetryDead if action == 1 else DropDead)(message.request, queue, offsets))

    def _say(self, what: str) -> None:
        self._trace.say(self._engine.now, self.name, what)


def _filter(text: str) -> Filter:
    return parse(text)


def _shown(message: object) -> str:
    """A message in a line of the trace: its name and what is not empty."""
    assert isinstance(message, msgspec.Struct)
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, msgspec.Raw):
            value = msgspec.msgpack.decode(value)
        elif name == "letters":
            value = [letter.offset for letter in value]
        elif isinstance(message, Deliver) and name == "packed":
            name, value = "numbers", message.numbers  # noqa: PLW2901 - as a person reads it
        if value not in (0, "", b"", (), [], {}, None, False):
            fields.append(f"{name}={value}")
    return f"{type(message).__name__} {' '.join(fields)}"
