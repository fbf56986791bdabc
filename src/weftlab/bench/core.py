"""The cost of a broker's core, without sockets and without a disk: durable, ordered, acknowledged.

Ten sessions share S subscriptions (symbol = X AND price in a range of 5%; 1,000 symbols, popular as Zipf says), each
session in one queue; one publisher sends events of 216 bytes in batches. What is measured is everything between decoded
messages and messages to encode: admission, matching, grouping, the groups for the log, deliveries, acknowledgements.
Deliveries in runs are made as they are encoded, which is measured apart.
The time of matching alone is measured on the same events and given apart. Times are of the processor, and of the
cheapest of five pieces of a run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from time import process_time
from typing import TypeVar

import numpy as np

from weft.broker.broker import Core
from weft.broker.delivery_run import DeliveryRun, encode_all, one_by_one
from weft.broker.driver import CommitOutcome, Driver
from weft.broker.effects import ConnectionId, Now, Outgoing
from weft.broker.limits import ClientLimits
from weft.index.tree import TreeIndex
from weft.log.base import Group, Offset, State
from weft.log.memory import MemoryLog
from weft.protocol.codec import client_messages, encode
from weft.protocol.link_messages import IncomingMessage
from weft.protocol.messages import Ack, ClientMessage, Deliver, Hello, Publish, QueueNumber, SubNumber, Subscribe
from weft.routing.registry import make_table
from weftlab.bench.log_groups import log_results
from weftlab.bench.report import Result
from weftlab.bench.traced_memory import TracedMemory

CONNECTIONS = 10
SYMBOLS = 1_000
BATCHES = (1, 16, 500)
_PIECES = 5  # into which a measurement is cut

R = TypeVar("R")
SentTo = tuple[ConnectionId, list[Outgoing]]


class NullLog(MemoryLog):
    """A log that keeps the rows of groups but not their events: only the core is measured."""

    def commit(self, groups: Sequence[Group]) -> None:
        """Nothing is stored."""


def subscriptions(size: int, seed: int = 1) -> list[str]:
    """Filters on a symbol and a range of 5% of its prices."""
    rng = np.random.default_rng(seed)
    symbols = _symbols(rng, size)
    lows = rng.uniform(0, 95, size)
    return [
        f"symbol = 'S{symbol}' AND price >= {low:.3f} AND price < {low + 5:.3f}"
        for symbol, low in zip(symbols, lows, strict=True)
    ]


def events(size: int, seed: int = 2) -> list[dict[str, object]]:
    """Attributes of events; with their payload they take 216 bytes."""
    rng = np.random.default_rng(seed)
    symbols = _symbols(rng, size)
    prices = rng.uniform(0, 100, size)
    return [
        {"symbol": f"S{symbol}", "price": float(price), "volume": n % 1000, "venue": "XETRA"}
        for n, (symbol, price) in enumerate(zip(symbols, prices, strict=True))
    ]


def _symbols(rng: np.random.Generator, size: int) -> list[int]:
    weights = 1 / np.arange(1, SYMBOLS + 1)
    drawn: list[int] = rng.choice(SYMBOLS, size, p=weights / weights.sum()).tolist()
    return drawn


class Bench:
    """A core with its subscriptions, driven by hand."""

    def __init__(self, texts: Sequence[str], model: str) -> None:
        self.log = NullLog("bench")
        ids = count(1)
        limits = ClientLimits(window_events=1 << 30, window_bytes=1 << 60, subscriptions=1 << 30)
        self._background = ThreadPoolExecutor(1)
        self.core = Core(
            self.log,
            self.log.restore(),
            make_table(model),
            draw=lambda: next(ids),
            limits=limits,
            executor=self._background,
        )
        self.now = Now(0, 1_700_000_000_000_000)
        self.names = [ConnectionId(f"c{number}") for number in range(CONNECTIONS)]
        self.driver = Driver(
            self.core, lambda: self.now, send=self._send, commit=_nothing, timer=_nothing, close=_nothing
        )
        self.sent: list[SentTo] = []
        for number, name in enumerate([ConnectionId("publisher"), *self.names]):
            self.driver.connected(name)
            window = Hello(session=name, window_events=1 << 30, window_bytes=1 << 60)
            mine = [Subscribe(SubNumber(n), text) for n, text in enumerate(texts[number - 1 :: CONNECTIONS]) if number]
            self.receive(name, [window, *mine])
            self.driver.settle(self.log)
        assert self.core.status().subscriptions == len(texts)

    def end_background(self) -> None:
        """Wait for what the index does in the background; from here on it cannot begin anything there."""
        self._background.shutdown()

    def _send(self, connection: ConnectionId, messages: list[Outgoing]) -> None:
        self.sent.append((connection, messages))

    def receive(self, connection: ConnectionId, messages: Sequence[IncomingMessage]) -> list[SentTo]:
        """One read, and the commit of what it stores. Returns what is sent."""
        self.sent = []
        driver = self.driver
        driver.receive(connection, messages)
        driver.handle_ready()
        while driver.waiting:
            groups = driver.begin_commit()
            driver.end_commit(CommitOutcome(groups, len(groups)))
        return self.sent

    def round(self, messages: Sequence[IncomingMessage]) -> None:
        """One read of the publisher, its commit, the deliveries, and an acknowledgement from each that got any."""
        self.now = Now(self.now.monotonic + 20 * len(messages), self.now.utc + 20 * len(messages))
        for connection, sent in self.receive(ConnectionId("publisher"), messages):
            message = sent[-1]
            last = message.last if type(message) is DeliveryRun else message
            if type(last) is Deliver:
                self.receive(connection, [Ack(last.queue, Offset(last.offset + 1))])


def _nothing(_: object) -> None:
    pass


def run(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    """All figures."""
    sizes = (10_000,) if quick else (10_000, 100_000)
    results: list[Result] = []
    for size in sizes:
        progress(f"{size:,} subscriptions over {CONNECTIONS} connections")
        results += _throughput(size, 4_000 if quick else 10_000)
    progress("memory")
    results.append(_memory(sizes[-1]))
    progress("recovery")
    results += _recovery(sizes[-1], "covering", 15 * sizes[-1] / 100_000)
    if not quick:
        results += _recovery(1_000_000, "simple", 60)
    return results + log_results(quick, progress)


def _throughput(size: int, many: int) -> list[Result]:
    texts = subscriptions(size)
    bench = Bench(texts, "simple")
    index = TreeIndex()
    index.add_texts(range(size), texts)
    attributes = events(many)
    found = index.match_batch(attributes[: many // 2])
    matches = len(found.ids) / len(found)
    deliveries = _frames(found.offsets, found.ids)
    results = [
        Result(f"core/{size}/matches", matches, "an event"),
        Result(f"core/{size}/deliveries", deliveries, "an event"),
    ]
    payload = b"x" * 130
    sequence = 0
    gc.collect()
    gc.freeze()
    for batch in BATCHES:
        some = min(many, 2_000) if batch == 1 else many
        published = [Publish.of(sequence + n + 1, attributes[n], payload) for n in range(some)]
        sequence += some
        reads = [published[start : start + batch] for start in range(0, some, batch)]
        raw = [attributes[start : start + batch] for start in range(0, some, batch)]
        bench.round(reads[0])
        matching = min(_timed_matching(index, piece) for piece in _pieces(raw[1:]))
        total = min(_timed_rounds(bench, piece) for piece in _pieces(reads[1:]))
        rest = total - matching
        goal = 3 + deliveries if batch == 500 else None
        results += [
            Result(f"core/{size}/{batch}/event_us", total, "us"),
            Result(f"core/{size}/{batch}/matching_us", matching, "us"),
            Result(f"core/{size}/{batch}/rest_us", rest, "us", goal, "lower"),
            Result(f"core/{size}/{batch}/delivery_us", (rest - 3) / deliveries, "us", 1 if goal else None, "lower"),
        ]
    results += _codec(size, bench, published[:500])
    gc.unfreeze()
    return results


def _pieces(reads: Sequence[R]) -> list[Sequence[R]]:
    """Some pieces of about the same length; the cheapest counts, because other programs only ever add to a time."""
    step = max(1, len(reads) // _PIECES)
    return [reads[start : start + step] for start in range(0, len(reads), step)]


def _timed_matching(index: TreeIndex, reads: Sequence[list[dict[str, object]]]) -> float:
    """Microseconds an event of matching alone."""
    start = process_time()
    for read in reads:
        if len(read) == 1:
            index.match(read[0])
        else:
            index.match_batch(read)
    return 1e6 * (process_time() - start) / sum(map(len, reads))


def _timed_rounds(bench: Bench, reads: Sequence[list[Publish]]) -> float:
    """Microseconds an event of everything."""
    reader, total = client_messages(), 0.0
    for read in reads:
        messages = reader.feed(encode(read))  # as fresh as a read brings them
        start = process_time()
        bench.round(messages)
        total += process_time() - start
    return 1e6 * total / sum(map(len, reads))


def _frames(offsets: np.ndarray, ids: np.ndarray) -> float:
    """Connections that get an event, on average: subscriptions are dealt to them in turns."""
    whose = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return len(np.unique(whose * CONNECTIONS + ids % CONNECTIONS)) / (len(offsets) - 1)


def _codec(size: int, bench: Bench, published: Sequence[Publish]) -> list[Result]:
    """Reading what the publisher sends, and writing what subscribers get."""
    data = encode(published)
    reader = client_messages()
    start = process_time()
    for _ in range(10):
        messages = reader.feed(data)
    decode = (process_time() - start) / (10 * len(messages))
    again = [Publish(n + 1, each.attributes, each.payload) for n, each in enumerate(published)]
    bench.receive(ConnectionId("publisher"), [_next_epoch(bench)])
    sent = [each for _, each in bench.receive(ConnectionId("publisher"), again)]
    many = sum(len([*one_by_one(each)]) for each in sent)
    encode_all(sent[0])  # whatever is loaded at first use
    start = process_time()
    for each in sent:
        encode_all(each)
    written = (process_time() - start) / many
    return [
        Result(f"core/{size}/decode_us", 1e6 * decode, "us"),
        Result(f"core/{size}/encode_us", 1e6 * written, "us a delivery"),
    ]


def _next_epoch(bench: Bench) -> ClientMessage:
    from weft.protocol.messages import NewEpoch

    session = bench.core.session("publisher")
    assert session is not None
    return NewEpoch(bench.core.export(session).pub_epoch + 1)


def _memory(size: int) -> Result:
    """Bytes that a broker takes for each durable subscription: index, table, session, queue, and its text."""
    with TracedMemory() as traced:
        texts = subscriptions(size, seed=3)
        bench = Bench(texts, "covering")
        traced.wait_for(bench.end_background)
        del texts
    assert bench.core.end
    return Result(f"core/{size}/bytes", traced.kept / size, "bytes a subscription", 3 * 1024, "lower")


def _recovery(size: int, model: str, goal: float) -> list[Result]:
    """A broker starts with this many durable subscriptions in its log."""
    state = _stored(size)
    log = NullLog("bench")
    gc.collect()
    gc.disable()  # as a broker does while it starts
    try:
        start = process_time()
        core = Core(log, state, make_table(model), draw=lambda: 1)
        seconds = process_time() - start
    finally:
        gc.enable()
    assert core.end == state.next
    return [Result(f"recovery/{model}/{size}/cpu_s", seconds, "s", goal, "lower")]


def _stored(size: int) -> State:
    """The rows of ten sessions with one queue each."""
    log = MemoryLog("bench")
    ids = count(1)
    limits = ClientLimits(subscriptions=1 << 30)
    few = Core(log, log.restore(), make_table("flooding"), draw=lambda: next(ids), limits=limits)
    driver = Driver(few, lambda: Now(0, 1), send=lambda _, __: None, commit=_nothing, timer=_nothing, close=_nothing)
    texts = subscriptions(size, seed=4)
    for number in range(CONNECTIONS):
        name = ConnectionId(f"c{number}")
        driver.connected(name)
        mine = [Subscribe(SubNumber(0), "x = 1", QueueNumber(0)), Subscribe(SubNumber(1), "x = 2", QueueNumber(0))]
        driver.receive(name, [Hello(session=name), *mine])
        driver.settle(log)
    state = log.restore()
    return _multiplied(state, texts)


def _multiplied(state: State, texts: Sequence[str]) -> State:
    """The same rows with many members in each queue."""
    from msgspec.structs import replace

    from weft.log.base import SeatId

    members = [row for row in state.subs.values() if row.filter == "x = 1"]
    subs = {seat: row for seat, row in state.subs.items() if not row.filter}
    seat = int(state.next_seat)
    for number, text in enumerate(texts):
        like = members[number % len(members)]
        seat += 1
        subs[SeatId(seat)] = replace(like, seat=SeatId(seat), number=number, filter=text)
    return replace(state, subs=subs, next_seat=SeatId(seat + 1))
