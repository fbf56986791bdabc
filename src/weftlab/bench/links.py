"""The cost of links: brokers in memory, driven by hand, without sockets, frames and disks.

Subscriptions are those of `weft bench core`. They are made at one end of a chain; none covers another, so every broker
holds and tells all of them. Times are of the processor, of all brokers of a chain together. The longest call is that of
one broker, without Python's collection of garbage, and is what an event or a heartbeat may have to wait for.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import process_time, thread_time
from typing import Any

from weft.broker.delivery_run import DeliveryRun
from weft.broker.effects import Outgoing
from weft.broker.limits import ClientLimits
from weft.errors import LocalProtocolError
from weft.log.base import Offset
from weft.network.cores import BrokerNetwork, BrokerWork, MemoryBroker, Transport
from weft.protocol.messages import Ack, ClientMessage, Deliver, Publish, SubNumber, Subscribe, Unsubscribe
from weftlab.bench.core import events, subscriptions
from weftlab.bench.report import Result

MODEL = "covering"
_READ = 32  # messages of a client that come together

_LIMITS = ClientLimits(subscriptions=1 << 30, window_events=1 << 30, window_bytes=1 << 60, heartbeat=1 << 50)


class Chain:
    """Brokers in a row; measures their calls."""

    def __init__(self, size: int) -> None:
        self.longest_call = 0.0  # seconds
        self.network = BrokerNetwork(
            *(f"b{number}" for number in range(size)),
            transport=Transport.MESSAGES,
            model=MODEL,
            limits=_LIMITS,
            executor=None,
            recorded=False,
            run=self._timed,
        ).chain()
        self.brokers = [*self.network.brokers.values()]
        self.delivered = 0

    def _timed(self, _: str, work: BrokerWork, do: Callable[[], Any]) -> Any:
        """The time of a call is that of its thread: an index that is built in the background keeps nobody waiting."""
        if work is not BrokerWork.CALL:
            return do()
        start = thread_time()
        done = do()
        self.longest_call = max(self.longest_call, thread_time() - start)
        return done

    def settle(self) -> None:
        """Until there is nothing to do."""
        self.network.settle()

    def subscribe(self, broker: MemoryBroker, texts: Sequence[str]) -> float:
        """Subscribe, some at a time, until everybody knows; seconds of the processor."""
        start = process_time()
        for first in range(0, len(texts), _READ):
            some = [Subscribe(SubNumber(first + n), text) for n, text in enumerate(texts[first : first + _READ])]
            broker.say("s", *some)
            self.settle()
        return process_time() - start

    def hello(self, broker: MemoryBroker, client: str) -> None:
        """A client with a session of its name, which acknowledges what it gets."""
        broker.hello(client, answer=self._acknowledge, window_events=1 << 30, window_bytes=1 << 60)

    def _acknowledge(self, messages: list[Outgoing]) -> list[ClientMessage]:
        found = [message for message in messages if isinstance(message, Deliver | DeliveryRun)]
        self.delivered += sum(len(each) if isinstance(each, DeliveryRun) else 1 for each in found)
        if not found:
            return []
        last = found[-1].last if isinstance(found[-1], DeliveryRun) else found[-1]
        return [Ack(last.queue, Offset(last.offset + 1))]

    @property
    def longest(self) -> float:
        """The longest call so far, in milliseconds."""
        return 1e3 * self.longest_call


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
    first, *_, last = chain.brokers
    chain.hello(first, "s")
    texts = subscriptions(size + changes)
    with _without_gc():
        learnt = chain.subscribe(first, texts[:size])
        assert last.core.links()[0].heard == len({*texts[:size]}), "covering tells equal ones once"
        long = chain.longest
        chain.longest_call = 0.0
        start = process_time()
        for number in range(changes):
            added = Subscribe(SubNumber(size + number), texts[size + number])
            first.say("s", Unsubscribe(SubNumber(number)), added)
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
    first, _, last = chain.brokers
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
    assert chain.delivered == first.core.end - 1, "an event that crosses both links is delivered"
    return [
        Result(f"events/{size}/per_cpu_s", many / spent, "events/s of one processor"),
        Result(f"events/{size}/hop_us", 1e6 * spent / (3 * many), "us an event and broker"),
        Result(f"events/{size}/crossed", 100 * (first.core.end - 1) / len(sent), "% of the events"),
    ]


def _publish(chain: Chain, broker: MemoryBroker, sent: Sequence[Publish]) -> None:
    for begin in range(0, len(sent), 500):
        broker.say("p", *sent[begin : begin + 500])
        chain.settle()


def _resync(size: int) -> list[Result]:
    chain = Chain(3)
    first, middle, last = chain.brokers
    chain.hello(first, "s")
    texts = subscriptions(size)
    chain.subscribe(first, texts)
    share = size / 100_000
    gc.collect()
    gc.disable()  # as a broker does while it starts
    chain.network.cut(first.name, middle.name)
    start = process_time()
    chain.network.dial(first.name, middle.name)
    chain.settle()
    equal = process_time() - start
    chain.network.cut(first.name, middle.name)
    few = min(50, size // 10)
    other = subscriptions(few, seed=9)
    gone = [Unsubscribe(SubNumber(number)) for number in range(few)]
    new = [Subscribe(SubNumber(size + number), text) for number, text in enumerate(other)]
    first.say("s", *gone, *new)
    chain.settle()
    start = process_time()
    chain.network.dial(first.name, middle.name)
    chain.settle()
    different = process_time() - start
    for neighbour in (first, last):
        chain.network.cut(middle.name, neighbour.name)
    log = middle.log.crash()
    start = process_time()
    middle.start(log)
    chain.network.dial(first.name, middle.name)
    chain.network.dial(middle.name, last.name)
    chain.settle()
    restarted = process_time() - start
    gc.enable()
    assert all(link.warm and not link.resyncing for link in middle.core.links())
    return [
        Result(f"resync/{size}/equal_s", equal, "s", share, "lower"),
        Result(f"resync/{size}/{2 * few}_different_s", different, "s", max(0.1, 1.5 * share), "lower"),
        Result(f"restart/{size}/warm_s", restarted, "s", 15 * share, "lower"),
    ]
