"""What links cost: brokers in memory, driven by hand, without sockets, frames and disks.

Subscriptions are those of `weft bench core`. They are made at one end of a chain; none covers another, so every broker
holds and tells all of them. Times are of the processor, of all brokers of a chain together. The longest call is that of
one broker, without Python's collection of garbage, and is what an event or a heartbeat may have to wait for.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from time import process_time, thread_time

from weft.bench.core import events, subscriptions
from weft.bench.report import Result
from weft.broker.core import Core
from weft.broker.delivery_run import DeliveryRun
from weft.broker.effects import ConnectionId, Effect, Now, Persist, Send, SetTimer
from weft.broker.limits import ClientLimits
from weft.broker.link_messages import IncomingMessage
from weft.broker.messages import Ack, Deliver, Hello, Publish, SubNumber, Subscribe, Unsubscribe
from weft.errors import LocalProtocolError
from weft.log.base import Offset
from weft.log.memory import MemoryLog
from weft.routing.registry import make_table
from weft.routing.table import Role

MODEL = "covering"
_READ = 32  # messages of a client that come together

_LIMITS = ClientLimits(subscriptions=1 << 30, window_events=1 << 30, window_bytes=1 << 60, heartbeat=1 << 50)


class LinkedBroker:
    """One broker of a chain; its messages to neighbours wait in `wires`."""

    def __init__(self, name: str, wires: deque[tuple[str, ConnectionId, list[IncomingMessage]]]) -> None:
        self.name = name
        self.log = MemoryLog(f"log of {name}")
        self.neighbours: dict[ConnectionId, str] = {}
        self.now = Now(0, 1_700_000_000_000_000)
        self.longest = 0.0  # seconds of one call
        self.delivered = 0
        self._wires = wires
        self._ids = count(1)
        self._groups: deque[Persist] = deque()
        self.due = False
        self.start()

    def start(self) -> None:
        """Begin with what the log has."""
        self._groups.clear()
        self.neighbours.clear()
        table = make_table(MODEL)
        self.core = Core(
            self.log, self.log.restore(), table, name=self.name, draw=lambda: next(self._ids), limits=_LIMITS
        )

    def call(self, method: Callable[..., list[Effect]], *args: object) -> None:
        """Call the core, store what it asks for, and pass on what it sends. The time of a call is that of its thread:
        an index that is built in the background keeps nobody waiting.
        """
        start = thread_time()
        effects = method(*args, self.now)
        self.longest = max(self.longest, thread_time() - start)
        self._do(effects)
        while self._groups:
            group = self._groups.popleft()
            self.log.commit([group.group])
            start = thread_time()
            effects = self.core.committed(group.ticket, self.now)
            self.longest = max(self.longest, thread_time() - start)
            self._do(effects)

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self._groups.append(effect)
            elif isinstance(effect, SetTimer):
                self.due = effect.at <= self.now.monotonic
            elif isinstance(effect, Send):
                other = self.neighbours.get(effect.connection)
                if other is not None:
                    self._wires.append((other, effect.connection, effect.messages))  # type: ignore[arg-type]
                else:
                    self._deliver(effect)

    def _deliver(self, effect: Send) -> None:
        found = [message for message in effect.messages if isinstance(message, Deliver | DeliveryRun)]
        self.delivered += sum(len(each) if isinstance(each, DeliveryRun) else 1 for each in found)
        if found:
            last = found[-1].last if isinstance(found[-1], DeliveryRun) else found[-1]
            ack = Ack(last.queue, Offset(last.offset + 1))
            self.call(self.core.receive, effect.connection, [ack])


class Chain:
    """Brokers in a row."""

    def __init__(self, size: int) -> None:
        self.wires: deque[tuple[str, ConnectionId, list[IncomingMessage]]] = deque()
        self.brokers = {f"b{number}": LinkedBroker(f"b{number}", self.wires) for number in range(size)}
        self._numbers = count(1)
        for one, other in pairwise(self.brokers.values()):
            one.call(one.core.attach, other.name, Role.PEER)
            other.call(other.core.attach, one.name, Role.PEER)
            self.dial(one, other)
        self.settle()

    def dial(self, one: LinkedBroker, other: LinkedBroker) -> None:
        """Connect two neighbours."""
        wire = ConnectionId(f"link {next(self._numbers)}")
        one.neighbours[wire], other.neighbours[wire] = other.name, one.name
        other.call(other.core.connected, wire)
        one.call(one.core.dialled, wire, other.name)

    def cut(self, one: LinkedBroker, other: LinkedBroker) -> None:
        """Close the connection of two neighbours."""
        for wire in [wire for wire, name in one.neighbours.items() if name == other.name]:
            del one.neighbours[wire], other.neighbours[wire]
            one.call(one.core.closed, wire)
            other.call(other.core.closed, wire)

    def settle(self) -> float:
        """Until there is nothing to do; seconds of the processor."""
        start = process_time()
        busy = True
        while busy:
            busy = bool(self.wires)
            for _ in range(len(self.wires)):
                name, wire, messages = self.wires.popleft()
                broker = self.brokers[name]
                if wire in broker.neighbours:
                    broker.call(broker.core.receive, wire, messages)
            for broker in self.brokers.values():
                if broker.due:
                    busy, broker.due = True, False
                    broker.call(broker.core.tick)
        return process_time() - start

    def subscribe(self, broker: LinkedBroker, texts: Sequence[str]) -> float:
        """Subscribe, some at a time, until everybody knows; seconds of the processor."""
        start = process_time()
        for first in range(0, len(texts), _READ):
            some = [Subscribe(SubNumber(first + n), text) for n, text in enumerate(texts[first : first + _READ])]
            broker.call(broker.core.receive, ConnectionId("s"), some)
            self.settle()
        return process_time() - start

    def hello(self, broker: LinkedBroker, client: str) -> None:
        """A client with a session of its name."""
        broker.call(broker.core.connected, ConnectionId(client))
        window = Hello(session=client, window_events=1 << 30, window_bytes=1 << 60)
        broker.call(broker.core.receive, ConnectionId(client), [window])

    def forget_longest(self) -> None:
        """Begin anew with the longest call."""
        for broker in self.brokers.values():
            broker.longest = 0.0

    @property
    def longest(self) -> float:
        """The longest call so far, in milliseconds."""
        return 1e3 * max(broker.longest for broker in self.brokers.values())


@contextmanager
def _without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures."""
    if size is not None and size < 100:
        raise LocalProtocolError(f"size is {size}; give at least 100 subscriptions")
    progress("compiling")
    _chain(600, 2, changes=300)
    sizes = (size,) if size else (2_000,) if quick else (10_000, 100_000)
    results: list[Result] = []
    for many in sizes:
        progress(f"{many:,} subscriptions through a chain of five brokers")
        results += _chain(many, 5, changes=min(500, many // 10))
    for many in sizes:
        progress(f"events through a chain of three brokers with {many:,} subscriptions")
        results += _events(many, 2_000 if quick or size else 20_000)
    progress(f"a resync of {sizes[-1]:,} items, and a restart")
    results += _resync(sizes[-1])
    return results


def _chain(size: int, brokers: int, changes: int) -> list[Result]:
    chain = Chain(brokers)
    first, *_, last = chain.brokers.values()
    chain.hello(first, "s")
    texts = subscriptions(size + changes)
    with _without_gc():
        learnt = chain.subscribe(first, texts[:size])
        assert last.core.links()[0].heard == len({*texts[:size]}), "covering tells equal ones once"
        long = chain.longest
        chain.forget_longest()
        start = process_time()
        for number in range(changes):
            added = Subscribe(SubNumber(size + number), texts[size + number])
            first.call(first.core.receive, ConnectionId("s"), [Unsubscribe(SubNumber(number)), added])
            chain.settle()
        changed = process_time() - start
    hops = size * brokers
    return [
        Result(f"chain/{size}/subscribe_us", 1e6 * learnt / hops, "us a subscription and broker"),
        Result(f"chain/{size}/change_us", 1e6 * changed / (changes * brokers), "us a replaced one and broker"),
        Result(f"chain/{size}/longest_learn_ms", long, "ms", 20, "lower"),
        Result(f"chain/{size}/longest_change_ms", chain.longest, "ms", 20, "lower"),
    ]


def _events(size: int, many: int) -> list[Result]:
    chain = Chain(3)
    first, _, last = chain.brokers.values()
    chain.hello(first, "s")
    chain.hello(last, "p")
    chain.subscribe(first, subscriptions(size))
    attributes = events(many)
    sent = [Publish.of(n + 1, each, b"x" * 130) for n, each in enumerate(attributes)]
    with _without_gc():
        _publish(chain, last, sent[:1_000])
        start = process_time()
        _publish(chain, last, sent[1_000:])
        spent = process_time() - start
    many -= 1_000
    assert first.delivered == first.core.end - 1, "an event that crosses both links is delivered"
    return [
        Result(f"events/{size}/per_cpu_s", many / spent, "events/s of one processor"),
        Result(f"events/{size}/hop_us", 1e6 * spent / (3 * many), "us an event and broker"),
        Result(f"events/{size}/crossed", 100 * (first.core.end - 1) / len(sent), "% of the events"),
    ]


def _publish(chain: Chain, broker: LinkedBroker, sent: Sequence[Publish]) -> None:
    for begin in range(0, len(sent), 500):
        broker.call(broker.core.receive, ConnectionId("p"), sent[begin : begin + 500])
        chain.settle()


def _resync(size: int) -> list[Result]:
    chain = Chain(3)
    first, middle, last = chain.brokers.values()
    chain.hello(first, "s")
    texts = subscriptions(size)
    chain.subscribe(first, texts)
    share = size / 100_000
    gc.collect()
    gc.disable()  # as a broker does while it starts
    chain.cut(first, middle)
    start = process_time()
    chain.dial(first, middle)
    chain.settle()
    equal = process_time() - start
    chain.cut(first, middle)
    few = min(50, size // 10)
    other = subscriptions(few, seed=9)
    gone = [Unsubscribe(SubNumber(number)) for number in range(few)]
    new = [Subscribe(SubNumber(size + number), text) for number, text in enumerate(other)]
    first.call(first.core.receive, ConnectionId("s"), [*gone, *new])
    chain.settle()
    start = process_time()
    chain.dial(first, middle)
    chain.settle()
    different = process_time() - start
    for neighbour in (first, last):
        chain.cut(middle, neighbour)
    middle.log = middle.log.crash()
    start = process_time()
    middle.start()
    chain.dial(first, middle)
    chain.dial(middle, last)
    chain.settle()
    restarted = process_time() - start
    gc.enable()
    assert all(link.warm and not link.resyncing for link in middle.core.links())
    return [
        Result(f"resync/{size}/equal_s", equal, "s", share, "lower"),
        Result(f"resync/{size}/{2 * few}_different_s", different, "s", max(0.1, 1.5 * share), "lower"),
        Result(f"restart/{size}/warm_s", restarted, "s", 15 * share, "lower"),
    ]
