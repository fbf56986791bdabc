"""Weft's broker against its goals and other brokers, over real sockets, in one run. Law: the gate is the broker's
processor time, measured by the system; wall times are reported beside it.

S content subscriptions (symbol = X AND price in a range of 5%; 1,000 symbols, popular as Zipf says) over ten
connections, one publisher, events of 216 bytes, until everything has arrived. Durable and other rounds alternate, and
the median counts; peers follow on the same events.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from weft.bench import broker_peers as peers
from weft.bench.broker_latency import latencies
from weft.bench.broker_load import Measured, rss_of
from weft.bench.broker_memory import connections, soak
from weft.bench.broker_weft import CONNECTIONS, WeftBroker, WeftLoad
from weft.bench.core import events, subscriptions
from weft.bench.report import Result
from weft.errors import OptionError
from weft.index.tree import TreeIndex

_SOAK = 600.0  # seconds
_WARM = 500  # events before a measurement
_WINDOW = 2e-3  # seconds that a commit may wait

Load = Callable[[peers.Peer], Awaitable[Measured]]
Progress = Callable[[str], None]


class Workload:
    """Subscriptions and events, and how many deliveries are due, by what a broker filters."""

    def __init__(self, size: int, many: int) -> None:
        self.size, self.texts, self.events = size, subscriptions(size), events(many)
        self.index = TreeIndex()
        self.index.add_texts(range(size), self.texts)
        symbols = [text.split("'")[1] for text in self.texts]
        self.symbols = [symbols[number::CONNECTIONS] for number in range(CONNECTIONS)]
        self.published = [str(event["symbol"]) for event in self.events]
        self._every = Counter(symbols)
        self._wide = Counter(symbol for mine in self.symbols for symbol in set(mine))

    def due(self, given: Sequence[dict[str, object]]) -> int:
        """Deliveries by content: one for each connection that has a subscription that matches."""
        found = self.index.match_batch(given)
        offsets, ids = found.offsets.tolist(), found.ids.tolist()
        return sum(len({i % CONNECTIONS for i in ids[a:b]}) for a, b in pairwise(offsets))

    def due_by_symbol(self, given: Sequence[str], *, each: bool = False) -> int:
        """Deliveries by symbol: one for each connection, or for each subscription."""
        return sum((self._every if each else self._wide)[symbol] for symbol in given)

    def matcher(self) -> float:
        """Microseconds of matching alone, for each event, in batches as the broker has them."""
        some = self.events[:2_000]
        self.index.match_batch(some[:100])
        start = process_time()
        for at in range(0, len(some), 100):
            self.index.match_batch(some[at : at + 100])
        return 1e6 * (process_time() - start) / len(some)


def run(quick: bool, progress: Progress, note: Callable[[str], None] = lambda _: None) -> list[Result]:
    """All figures."""
    if not Path("/proc/self/task").exists():
        raise OptionError("weft bench broker needs Linux: it reads the processor time of brokers from /proc")
    return asyncio.run(_run(quick, progress, note))


async def _run(quick: bool, progress: Progress, note: Callable[[str], None]) -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        sync = _fdatasync(place)
        results.append(Result("broker/fdatasync", 1e3 * sync, "ms"))
        for size in (10_000,) if quick else (1_000, 10_000, 100_000):
            work = Workload(size, 10_000 if quick else 20_000)
            results += await _weft(work, place, quick, progress, sync)
            if size <= 10_000:
                results += await _peers(work, place, quick, progress, note, results)
        chained = Workload(10_000, 3_000 if quick else 20_000)
        results += await _chain(chained, place, progress)
        progress("memory of connections")
        results.append(await connections(100 if quick else 1_000))
        if not quick:
            due = chained.due(chained.events)
            results.append(await soak(chained.texts, chained.events, due, place, _SOAK, progress))
    return results


def _fdatasync(place: Path) -> float:
    """Seconds of this machine's own fdatasync, for one block that was appended."""
    times = []
    with (place / "probe").open("wb") as file:
        for _ in range(20):
            file.write(b"x" * 4096)
            file.flush()
            start = perf_counter()
            os.fdatasync(file.fileno())
            times.append(perf_counter() - start)
    return median(times)


# -- Weft -----------------------------------------------------------------------------------------------------


async def _weft(work: Workload, place: Path, quick: bool, progress: Progress, sync: float) -> list[Result]:
    """Loose and durable, side by side, then latencies at half the rate."""
    name, results, loads = f"broker/{work.size}", [], {}
    rounds: dict[bool, list[Measured]] = {False: [], True: []}
    matcher, warm = work.matcher(), events(_WARM, seed=9)
    with ExitStack() as stack:
        for durable in (False, True):
            progress(f"{work.size:,} subscriptions, {'durable' if durable else 'not durable'}")
            data = place / f"weft-{work.size}" if durable else None
            broker = stack.enter_context(WeftBroker(data))
            load, before = WeftLoad(durable), rss_of(broker.pids)
            await load.open(work.texts, broker.address)
            loads[durable] = load, broker
            if not durable:
                each = (rss_of(broker.pids) - before) / work.size
                results.append(Result(f"{name}/memory", each, "bytes a subscription, connections included"))
            await load.run(warm, work.due(warm), broker.pids)
        for _ in range(1 if quick else 3):
            for durable, (load, broker) in loads.items():
                rounds[durable].append(await load.run(work.events, work.due(work.events), broker.pids))
        for durable, (load, _) in loads.items():
            kind = "durable" if durable else "loose"
            middle = _middle(rounds[durable])
            per_event = middle.deliveries / middle.events
            goal = {True: 25_000, False: 30_000 if work.size > 10_000 else 45_000}[durable]
            results += [
                Result(f"{name}/{kind}/cpu", middle.micros, "us an event"),
                Result(f"{name}/{kind}/rate", middle.rate, "events/s", goal),
            ]
            if not durable:
                allowed = 4 + matcher + 1.5 * per_event
                results += [
                    Result(f"{name}/matcher", matcher, "us an event"),
                    Result(f"{name}/deliveries", per_event, "an event"),
                    Result(f"{name}/{kind}/cpu of what is allowed", middle.micros / allowed, "", 1.0, "lower"),
                ]
            progress(f"{work.size:,} subscriptions, latency, {kind}")
            found = await latencies(load, work.events, middle.rate / 2, 1.0 if quick else 5.0)
            results.append(Result(f"{name}/{kind}/delivery p50", 1e3 * found.delivery(0.5), "ms"))
            results.append(Result(f"{name}/{kind}/delivery p99", 1e3 * found.delivery(0.99), "ms", 5.0, "lower"))
            if durable:
                limit = 1e3 * (_WINDOW + 2 * sync) + 5
                p99 = 1e3 * found.confirmation(0.99)
                results.append(Result(f"{name}/{kind}/acknowledgement p99", p99, "ms", limit, "lower"))
            load.close()
    overhead = _middle(rounds[True]).micros - _middle(rounds[False]).micros
    results.append(Result(f"{name}/durability", overhead, "us an event", 4.0, "lower"))
    return results


def _middle(rounds: Sequence[Measured]) -> Measured:
    return sorted(rounds, key=lambda each: each.micros)[len(rounds) // 2]


async def _chain(work: Workload, place: Path, progress: Progress) -> list[Result]:
    """Durable events through two brokers."""
    progress("a chain of two brokers")
    listening, dialling = place / "a.toml", place / "b.toml"
    listening.write_text('name = "a"\n[links.b]\n', encoding="ascii")
    with WeftBroker(place / "chain-a", "--config", str(listening)) as first:
        dialling.write_text(f'name = "b"\n[links.a]\naddress = "{first.address}"\n', encoding="ascii")
        with WeftBroker(place / "chain-b", "--config", str(dialling)) as second:
            load, pids = WeftLoad(durable=True), [*first.pids, *second.pids]
            await load.open(work.texts, first.address, second.address, complete=True)
            warm = events(_WARM, seed=9)
            await load.run(warm, work.due(warm), pids)
            done = await load.run(work.events, work.due(work.events), pids)
            load.close()
    return [
        Result("broker/chain/rate", done.rate, "events/s", 40_000),
        Result("broker/chain/cpu", done.micros, "us an event, both brokers"),
    ]


# -- peers ----------------------------------------------------------------------------------------------------


async def _peers(  # noqa: PLR0913, PLR0917 - what a comparison takes
    work: Workload,
    place: Path,
    quick: bool,
    progress: Progress,
    note: Callable[[str], None],
    known: Sequence[Result],
) -> list[Result]:
    """Each peer that is installed, and how many times more it costs than Weft."""
    name, results = f"broker/{work.size}", []
    cost = {each.name: each.value for each in known}
    few = work.published[: 300 if quick else 1_000]  # where every event is delivered to hundreds
    wide, every = work.due_by_symbol, len(work.published)
    some = work.published[: min(every, 2_000)] if quick else work.published
    small = work.size <= 1_000
    runs: list[tuple[str, str, str, float | None, Load]] = [
        (
            "nats",
            "nats, a subject a subscription",
            "loose",
            None if small else 8,
            lambda p: peers.nats_load(p, work.symbols, few, wide(few, each=True), True),
        ),
        (
            "nats",
            "nats, a subject a symbol",
            "loose",
            None if small else 0.4,
            lambda p: peers.nats_load(p, work.symbols, some, wide(some), False),
        ),
        (
            "mosquitto",
            "mosquitto",
            "loose",
            None if small else 1.3,
            lambda p: peers.mosquitto_load(p, work.symbols, some, wide(some)),
        ),
        (
            "rabbitmq",
            "rabbitmq direct",
            "loose",
            None if small else 5,
            lambda p: peers.rabbitmq_load(p, work.symbols, some, wide(some), "direct"),
        ),
        (
            "rabbitmq",
            "rabbitmq headers",
            "loose",
            60 if small else 500,
            lambda p: peers.rabbitmq_load(p, work.symbols, few[:100], wide(few[:100]), "headers"),
        ),
        (
            "rabbitmq",
            "rabbitmq direct, confirmed",
            "durable",
            None if small else 5,
            lambda p: peers.rabbitmq_load(p, work.symbols, some, wide(some), "direct", True),
        ),
    ]
    for peer in dict.fromkeys(each[0] for each in runs):
        mine = [each[1:] for each in runs if each[0] == peer]
        program = peers.installed(peer)
        if program is None:
            note(f"{peer} is not installed: {peers.INSTALL[peer]}")
            results += [Result(f"{name}/vs {label}", None, "times Weft's cpu", goal) for label, _, goal, _ in mine]
            continue
        with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as directory:
            async with getattr(peers, peer)(program, Path(directory)) as server:
                for label, kind, goal, load in mine:
                    progress(f"{work.size:,} subscriptions, {label}")
                    done = await load(server)
                    ours = cost.get(f"{name}/{kind}/cpu")
                    results += [
                        Result(f"{name}/{label}/cpu", done.micros, "us an event"),
                        Result(f"{name}/{label}/rate", done.rate, "events/s"),
                        Result(f"{name}/vs {label}", done.micros / ours if ours else None, "times Weft's cpu", goal),
                    ]
    return results
