"""Brokers in memory, with their clients and the links between them.

Everything that decides is the product's: the core, its driver, the log's rules, the codec. What a process and a machine
would add is moved by hand: time passes in `wait`, groups are stored at once or in `commit`, frames arrive in `step`,
and connections end in `cut` and `crash`. The same calls give the same run. A client is a connection with a name.

The function `run` gets every piece of work of a broker, and runs it: a benchmark measures the time there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from enum import Enum
from functools import partial
from itertools import count, pairwise
from typing import Any, NamedTuple

from weft.broker.broker import Core
from weft.broker.delivery_run import encode_all, one_by_one
from weft.broker.driver import CommitOutcome, Driver, store
from weft.broker.effects import ConnectionId, Effect, Now, Outgoing, Relayed
from weft.broker.identity import Authenticate
from weft.broker.links.neighbour import LinkStatus
from weft.errors import ProtocolError, RemoteProtocolError
from weft.log.base import Log
from weft.log.memory import MemoryLog
from weft.protocol.codec import MessageReader, client_messages, encode
from weft.protocol.link_messages import IncomingMessage, LinkMessage
from weft.protocol.messages import BrokerMessage, ClientMessage, Deliver, Hello
from weft.routing.registry import make_table
from weft.routing.table import About, Link, Role

START = Now(0, 1_700_000_000_000_000)  # the time at which every broker begins


class BrokerWork(Enum):
    """What a broker is doing when its work is measured."""

    READ = "read"  # decoding bytes
    CALL = "call"  # a call of the core; its effects are carried out, and what is sent is encoded
    STORE = "store"  # storing groups in the log


class Transport(Enum):
    """What travels on a link, and arrives at once."""

    FRAMES = "frames"  # one message, as a frame
    WRITES = "writes"  # all messages that a broker sends at once, as bytes
    MESSAGES = "messages"  # the same, not encoded


RunBrokerWork = Callable[[str, BrokerWork, Callable[[], Any]], Any]
Receiver = Callable[[list[Outgoing] | None], None]  # gets what a broker sends; None: it has closed the connection
ClientAnswer = Callable[[list[Outgoing]], Sequence[ClientMessage]]
Travelling = bytes | list[IncomingMessage]
CarryOnLink = Callable[["LinkEnd", "list[Outgoing] | None"], None]  # to which end; None: the other end has closed
SentMessage = BrokerMessage | LinkMessage


class SameThread(Executor):
    """An executor that works at once, in the thread of its caller."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Do the work; what it raises is raised here."""
        done: Future[Any] = Future()
        done.set_result(fn(*args, **named))
        return done


class MemoryBroker:
    """One broker: a core, its driver, a log in memory, and connections.

    >>> from weft.protocol.messages import Publish, Subscribe
    >>> broker = MemoryBroker()
    >>> _ = broker.hello("alerts")
    >>> broker.say("alerts", Subscribe(1, "x > 5"))
    [Accepted(about='subscribe', number=1, offset=1), Complete(number=1, about='subscribe')]
    >>> _ = broker.hello("meter")
    >>> broker.say("meter", Publish.of(1, {"x": 3}), Publish.of(2, {"x": 6}, b"six"))
    [Published(pub_epoch=1, upto=2, absent={})]
    >>> broker.got("alerts")
    [b'six']

    `log` is a `MemoryLog` unless it is given; `time` is when the broker begins. With `at_once`, groups are stored as
    soon as the core asks for it; otherwise they wait for `commit`. With `ticking`, a timer that is due runs after each
    such call; otherwise it waits for `tick` or `wait`. With `checked`, the core's invariants are checked after every
    call. With `recorded`, everything that is sent is kept in `sent`.

    `options` are those of `Core`, and how its table is made: `model` and `table`, the options of `make_table`, or a
    function `make`. They are read whenever the broker starts.
    """

    def __init__(  # noqa: PLR0913 - all have defaults
        self,
        name: str = "",
        *,
        log: Any = None,
        time: Now = START,
        at_once: bool = True,
        ticking: bool = True,
        checked: bool = False,
        recorded: bool = True,
        run: RunBrokerWork = lambda _, __, work: work(),
        **options: Any,
    ) -> None:
        self.name = name
        self.log: Any = MemoryLog("a1") if log is None else log
        self.at_once, self.ticking, self.checked, self.recorded = at_once, ticking, checked, recorded
        self.options, self.time, self._run = {"name": name, **options}, time, run
        self._ids = count(1001)
        self.start()

    # -- the process ---------------------------------------------------------------------------------

    def start(self, log: Log | None = None) -> None:
        """Start a new process on what the log has, or on another log."""
        if log is not None:
            self.log = log
        self.sent: list[tuple[ConnectionId, SentMessage]] = []
        self.closed: list[ConnectionId] = []  # by the broker
        self.relayed: list[Relayed] = []
        self._readers = defaultdict[ConnectionId, MessageReader[IncomingMessage]](client_messages)
        self._receivers: dict[ConnectionId, Receiver] = {}  # who gets what is sent on a connection
        self._answered: deque[tuple[ConnectionId, Sequence[ClientMessage]]] = deque()
        of_core = {"draw": lambda: next(self._ids), "executor": SameThread(), **self.options}
        model, of_table = of_core.pop("model", "covering"), of_core.pop("table", {})
        make = of_core.pop("make", None) or partial(
            make_table, model, of_core.get("schema"), advertised=of_core.get("advertised", False), **of_table
        )
        self.core = Core(self.log, self.log.restore(), make(), **of_core)
        self.driver = Driver(
            self.core,
            lambda: self.time,
            send=self.send,
            commit=lambda _: None,
            timer=lambda _: None,
            close=self.close,
            relayed=self.relayed.append,
        )
        self.driver.tick()  # what was restored goes on

    def restart(self) -> None:
        """Crash, losing every connection and what was not stored, and start again."""
        self.driver.stop()
        self.start(self.log.crash())
        self.follow_up()

    # -- connections ---------------------------------------------------------------------------------

    def connect(
        self,
        *names: str,
        answer: ClientAnswer | None = None,
        receiver: Receiver | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        """Accept connections. `answer` gets what is sent, and returns what the client says next; `receiver` gets it."""
        for connection in map(ConnectionId, names):
            if answer is not None:
                receiver = partial(self._answer, connection, answer)
            if receiver is not None:
                self._receivers[connection] = receiver
            self._do(partial(self.driver.connected, connection, authenticate=authenticate))

    def hello(
        self, name: str, session: str | None = None, *, answer: ClientAnswer | None = None, **fields: Any
    ) -> list[SentMessage]:
        """Connect a client that begins with a hello; its session has the same name unless another is given."""
        self.connect(name, answer=answer)
        return self.say(name, Hello(session=name if session is None else session, **fields))

    def say(self, name: str, *messages: IncomingMessage) -> list[SentMessage]:
        """Send messages to the broker, in one read; returns what it sends back on this connection."""
        before = len(self.sent)
        if messages:
            self.receive(ConnectionId(name), messages)
        return [message for to, message in self.sent[before:] if to == name]

    def receive(self, connection: ConnectionId, messages: Sequence[IncomingMessage]) -> None:
        """Messages of one read have arrived on a connection."""
        self._do(partial(self._hand_on, connection, messages))

    def read(self, connection: ConnectionId, data: bytes) -> None:
        """Bytes have arrived on a connection. Bytes that are not messages end it."""
        try:
            messages = self._run(self.name, BrokerWork.READ, partial(self._readers[connection].feed, data))
        except RemoteProtocolError as error:
            self._do(partial(self.driver.garbled, connection, str(error)))
            return
        if messages:
            self.receive(connection, messages)

    def _hand_on(self, connection: ConnectionId, messages: Sequence[IncomingMessage]) -> None:
        self.driver.receive(connection, messages)
        self.driver.handle_ready()

    def cut(self, name: str) -> None:
        """A connection is lost."""
        self._do(partial(self.driver.lost, ConnectionId(name)))

    def dial(self, connection: str, peer: str, receiver: Receiver | None = None) -> None:
        """A connection to a neighbour was opened by this broker; `receiver` gets what is sent on it."""
        if receiver is not None:
            self._receivers[ConnectionId(connection)] = receiver
        self._do(partial(self.driver.dialled, ConnectionId(connection), peer))

    def attach(self, peer: str, role: Role = Role.PEER) -> None:
        """Add a neighbour."""
        self.call(self.core.attach, peer, role)

    def call(self, method: Callable[..., list[Effect]], *args: Any) -> None:
        """Call any method of the core that takes the time as its last argument, and carry out its effects."""
        self._do(partial(self.driver.do, method, *args))

    def send(self, connection: ConnectionId, messages: list[Outgoing]) -> None:
        """Carry out a Send: record it, and pass it to its client or its link."""
        if self.recorded:
            self.sent += [(connection, message) for message in one_by_one(messages)]
        receiver = self._receivers.get(connection)
        if receiver is not None:
            receiver(messages)

    def _answer(self, connection: ConnectionId, answer: ClientAnswer, messages: list[Outgoing] | None) -> None:
        if messages is not None and (said := answer(messages)):
            self._answered.append((connection, said))

    def close(self, connection: ConnectionId) -> None:
        """Carry out a Close."""
        self.closed.append(connection)
        receiver = self._receivers.pop(connection, None)
        if receiver is not None:
            receiver(None)

    # -- time and the disk -----------------------------------------------------------------------------

    def wait(self, micros: int) -> None:
        """Let time pass, with the timers on the way."""
        until = self.time.monotonic + micros
        while self.driver.due is not None and self.driver.due <= until:
            self.pass_time(max(0, self.driver.due - self.time.monotonic))
            self.tick()
        self.pass_time(until - self.time.monotonic)

    def pass_time(self, micros: int) -> None:
        """Move the clocks; timers do not run."""
        self.time = Now(self.time.monotonic + micros, self.time.utc + micros)

    @property
    def is_due(self) -> bool:
        """Whether the timer is due."""
        return self.driver.due is not None and self.driver.due <= self.time.monotonic

    def tick(self) -> None:
        """Run the timer."""
        self._do(self.driver.tick)

    def commit(self, number: int = 1) -> list[tuple[ConnectionId, SentMessage]]:
        """Store the first `number` groups that wait, in one commit; returns what is then sent."""
        before = len(self.sent)
        groups = self.driver.begin_commit(number)
        if groups:
            outcome = self._run(self.name, BrokerWork.STORE, partial(store, self.log.commit, groups))
            self._run(self.name, BrokerWork.CALL, partial(self.driver.end_commit, outcome))
        return self.sent[before:]

    def reject(self, reason: str = "the log is full") -> list[tuple[ConnectionId, SentMessage]]:
        """Refuse every group that waits, as a full log does; returns what is then sent."""
        before = len(self.sent)
        outcome = CommitOutcome(self.driver.begin_commit(), 0, reason)
        self._run(self.name, BrokerWork.CALL, partial(self.driver.end_commit, outcome))
        if self.checked:
            self.core.check()
        return self.sent[before:]

    def _do(self, work: Callable[[], None]) -> None:
        """Do something, and whatever follows from it at once."""
        self._run(self.name, BrokerWork.CALL, work)
        self.follow_up()

    def follow_up(self) -> None:
        """Do what is to be done at once: store groups, let clients answer, run the timer."""
        while True:
            if self.at_once and self.driver.waiting:
                self.commit()
            elif self._answered:
                connection, said = self._answered.popleft()
                self._run(self.name, BrokerWork.CALL, partial(self._hand_on, connection, said))
            elif self.ticking and self.at_once and self.is_due:
                self._run(self.name, BrokerWork.CALL, self.driver.tick)
            else:
                break
        if self.checked:
            self.core.check()

    # -- contents --------------------------------------------------------------------------------------

    def messages(self, connection: str) -> list[SentMessage]:
        """Everything that was sent on a connection."""
        return [message for to, message in self.sent if to == connection]

    def got(self, client: str) -> list[bytes]:
        """The payloads that were delivered to a client."""
        return [each.payload for each in self.messages(client) if isinstance(each, Deliver)]

    def link(self, peer: str) -> LinkStatus:
        """The status of the link to a neighbour."""
        return next(each for each in self.core.links() if each.peer == peer)

    def interest(self, peer: str, about: About = About.SUBSCRIPTIONS) -> tuple[list[bytes], list[bytes]]:
        """The items that this broker has sent to a neighbour and received from it, encoded and sorted."""
        table, link = self.core.table, Link(peer)
        both = table.told(link, about), table.heard(link, about)
        sent, received = (sorted(table.codec.encode_item(about, each) for each in items.values()) for items in both)
        return sent, received


class LinkEnd(NamedTuple):
    """One end of a connection between brokers."""

    broker: str
    connection: ConnectionId


class BrokerNetwork:
    """Brokers and the connections between them.

    >>> from weft.protocol.messages import Publish, Subscribe
    >>> network = BrokerNetwork("west", "east").chain()
    >>> _ = network["west"].hello("alerts"), network["west"].say("alerts", Subscribe(1, "x > 5"))
    >>> network.settle()
    >>> _ = network["east"].hello("meter"), network["east"].say("meter", Publish.of(1, {"x": 6}, b"six"))
    >>> network.settle()
    >>> network["west"].got("alerts")
    [b'six']

    `open_log` opens the log of a broker by its name; a log on disk cannot crash. `carry` gets what is sent on links,
    and calls `arrive` when it arrives: a simulator of time gives it a delay. Otherwise it waits for `step`. The other
    `options` are those of each `MemoryBroker`. In a network, timers that are due run when it settles.
    """

    def __init__(
        self,
        *names: str,
        transport: Transport = Transport.FRAMES,
        open_log: Callable[[str], Log] = lambda name: MemoryLog(f"log of {name}"),
        make_broker: Callable[..., MemoryBroker] = MemoryBroker,
        carry: CarryOnLink | None = None,
        **options: Any,
    ) -> None:
        self.transport, self._carry = transport, carry
        self.wires: dict[LinkEnd, LinkEnd] = {}  # the other end of each end
        self.in_flight: deque[tuple[LinkEnd, Travelling | None]] = deque()  # None: the other end has closed
        self._numbers = count(1)
        self.brokers: Mapping[str, MemoryBroker] = {
            name: make_broker(name, log=open_log(name), ticking=False, **options) for name in names
        }

    def __getitem__(self, name: str) -> MemoryBroker:
        return self.brokers[name]

    # -- links ---------------------------------------------------------------------------------------

    def chain(self) -> BrokerNetwork:
        """Link all brokers in a row."""
        for one, other in pairwise(self.brokers):
            self.link(one, other)
        self.settle()
        return self

    def link(self, one: str, other: str, role: Role = Role.PEER) -> None:
        """Attach two brokers to each other, and connect them; `role` is what the other is to the one."""
        self[one].attach(other, role)
        self[other].attach(one, role.converse)
        self.dial(one, other)

    def dial(self, one: str, other: str) -> None:
        """Connect two brokers that are attached to each other."""
        connection = ConnectionId(f"link{next(self._numbers)}")
        near, far = LinkEnd(one, connection), LinkEnd(other, connection)
        self.wires[near], self.wires[far] = far, near
        self[other].connect(connection, receiver=partial(self._send, far))
        self[one].dial(connection, other, partial(self._send, near))

    def cut(self, one: str, other: str) -> None:
        """Cut every connection between two brokers; what is in flight on it is lost."""
        for near, far in [(near, far) for near, far in self.wires.items() if (near.broker, far.broker) == (one, other)]:
            self._forget(near, far)
            self[one].cut(near.connection)
            self[other].cut(far.connection)

    def crash(self, name: str) -> None:
        """Let a broker crash and start again; its connections are lost."""
        for near, far in [(near, far) for near, far in self.wires.items() if near.broker == name]:
            self._forget(near, far)
            self[far.broker].cut(far.connection)
        self[name].restart()

    def _forget(self, *ends: LinkEnd) -> None:
        for end in ends:
            self.wires.pop(end, None)
        self.in_flight = deque(each for each in self.in_flight if each[0] not in ends)

    def _send(self, end: LinkEnd, messages: list[Outgoing] | None) -> None:
        """Send what a broker sends on a link. If it closes the link, the other end learns that after what was sent."""
        other = self.wires.get(end)
        if other is None:
            return
        if messages is None:
            self._forget(end)
        if self._carry is not None:
            self._carry(other, messages)
        elif messages is None:
            self.in_flight.append((other, None))
        elif self.transport is Transport.FRAMES:
            self.in_flight += [(other, encode([message])) for message in one_by_one(messages)]
        elif self.transport is Transport.WRITES:
            self.in_flight.append((other, encode_all(messages)))
        else:
            self.in_flight.append((other, messages))  # type: ignore[arg-type]

    # -- what happens ----------------------------------------------------------------------------------

    def step(self, but: str = "") -> bool:
        """Let one thing arrive, one timer run, or one group be stored, except by `but`; False if nothing is to do."""
        if self.in_flight:
            self.arrive(*self.in_flight.popleft())
            return True
        for broker in self.brokers.values():
            if broker.is_due:
                broker.tick()
                return True
        for name, broker in self.brokers.items():
            if broker.driver.waiting and name != but:
                self.commit(name)
                return True
        return False

    def arrive(self, end: LinkEnd, data: Travelling | None) -> None:
        """Something arrives at the end of a link; None if the other end has closed it."""
        if end not in self.wires:
            return
        broker = self[end.broker]
        if data is None:
            del self.wires[end]
            broker.cut(end.connection)
        elif isinstance(data, bytes):
            broker.read(end.connection, data)
        else:
            broker.receive(end.connection, data)

    def commit(self, name: str) -> None:
        """Let a broker store the next group, if one waits."""
        if self[name].driver.waiting:
            self[name].commit()
            self[name].follow_up()

    def settle(self, most: int = 100_000, but: str = "") -> None:
        """Step until there is nothing to do, except groups of the broker `but`. Raises ProtocolError after `most`."""
        for _ in range(most):
            if not self.step(but):
                return
        raise ProtocolError(f"the brokers still have work to do after {most} steps; one of them never stops")

    def wait(self, micros: int) -> None:
        """Let time pass at all brokers, with their timers on the way."""
        self.settle()
        while micros > 0:
            timers = [(each.driver.due, each.time.monotonic) for each in self.brokers.values()]
            some = min([micros, *(due - now for due, now in timers if due is not None)])
            for broker in self.brokers.values():
                broker.pass_time(some)
            micros -= some
            self.settle()

    def check(self) -> None:
        """Raise AssertionError if a table is unsound, or neighbours disagree about what they have exchanged."""
        for name, broker in self.brokers.items():
            broker.core.table.check()
            for status in broker.core.links():
                for about in About:
                    sent, _ = broker.interest(status.peer, about)
                    _, received = self[status.peer].interest(name, about)
                    assert sent == received, f"{status.peer} has received other {about.value} than {name} has sent"
