"""Weft's broker against its goals and other brokers, over real sockets, in one run. The gate is the broker's processor
time, measured by the system; wall times are reported beside it.

S content subscriptions (symbol = X AND price in a range of 5%; 1,000 symbols, popular as Zipf says) over ten
connections, one publisher, events of 216 bytes, until everything has arrived. Weft, durable and not, and its peers take
turns on the same events; the median counts. Then come latencies at half the rate, and at half of what is demanded, a
chain of two brokers, a consumer that stalls, and memory. `soak` measures nothing but a long load.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from weft.errors import OptionError, WeftError
from weft.server.committer import WINDOW
from weftlab.bench.broker_chain import chain
from weftlab.bench.broker_contest import (
    DECODED,
    CheckedRunner,
    NoteSink,
    Peers,
    Runner,
    WeftRunner,
    compete,
    middle,
)
from weftlab.bench.broker_latency import latencies
from weftlab.bench.broker_load import Measured, rss_of
from weftlab.bench.broker_memory import connections, soak_results
from weftlab.bench.broker_stall import CONSUMERS, stalled
from weftlab.bench.broker_weft import WeftBroker, WeftLoad
from weftlab.bench.broker_workload import BrokerWorkload
from weftlab.bench.report import Progress, Result

_SIZES = 1_000, 10_000, 100_000
_STEADY = {"loose": 22_500, "durable": 12_500}  # events a second: half of what a broker must reach


def run(quick: bool, progress: Progress, note: NoteSink = lambda _: None, soak: float | None = None) -> list[Result]:
    """All figures; or those of a soak of so many seconds."""
    if not Path("/proc/self/task").exists():
        raise OptionError("weft bench broker needs Linux: it reads the processor time of brokers from /proc")
    try:
        return asyncio.run(_in_full(_soaked(soak, progress) if soak else _run(quick, progress, note)))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


async def _in_full(work: Coroutine[Any, Any, list[Result]]) -> list[Result]:
    """A signal that ends the bench ends its brokers, too."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    return await work


async def _run(quick: bool, progress: Progress, note: NoteSink) -> list[Result]:
    rounds, seconds = (1, 1.0) if quick else (3, 5.0)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        sync = fdatasync(place)
        results.append(Result("fdatasync", 1e3 * sync, "ms"))
        async with Peers(place, note) as peers:
            for size in (10_000,) if quick else _SIZES:
                progress(f"{size:,} subscriptions")
                work = BrokerWorkload(size, 10_000 if quick else 20_000)
                latency = seconds if size >= 10_000 else 0.0
                results += await _broker(work, place, peers, rounds, latency, sync, quick, progress, note)
        parts: list[Callable[[], Coroutine[Any, Any, list[Result]]]] = []
        for size in (10_000,) if quick else (10_000, 100_000):
            work = BrokerWorkload(size, 5_000 if quick else 20_000)
            parts.append(partial(chain, work, place, rounds, seconds, sync, progress))
        work = BrokerWorkload(1_000, 5_000, CONSUMERS)
        parts += [partial(stalled, work, place, durable, 1 if quick else 5, progress) for durable in (False, True)]
        parts.append(partial(connections, 500 if quick else 2_000))
        for part in parts:
            try:
                results += await part()
            except (OSError, WeftError) as error:  # what was measured before is worth having
                note(f"a part failed: {error}")
    return results


async def _soaked(seconds: float, progress: Progress) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        return await soak_results(BrokerWorkload(10_000, 20_000), Path(directory), seconds, progress)


def fdatasync(place: Path) -> float:
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


async def _broker(  # noqa: PLR0913, PLR0917 - the parts of a measurement
    work: BrokerWorkload,
    place: Path,
    peers: Peers,
    rounds: int,
    seconds: float,
    sync: float,
    quick: bool,
    progress: Progress,
    note: NoteSink,
) -> list[Result]:
    """Weft, durable and not, and its peers in turns; then latencies at half the rate."""
    name = f"broker/{work.size}"
    results: list[Result] = []
    ours: dict[str, Runner] = {}
    runners: dict[str, WeftRunner] = {}
    with ExitStack() as stack:
        for kind in ("loose", "durable", "decoding")[: 3 if work.size <= DECODED else 2]:
            progress(f"{work.size:,} subscriptions, Weft gets ready, {kind}")
            durable = kind == "durable"
            broker = stack.enter_context(WeftBroker(place / f"weft-{work.size}" if durable else None))
            load, before = WeftLoad(durable), rss_of(broker.pids)
            stack.callback(load.close)
            await load.open(work.texts, broker.address, decoding=kind == "decoding")
            runner = runners[kind] = WeftRunner(work, load, broker, 5_000 if kind == "decoding" else None)
            await runner.warm_up()
            ours[kind] = runner
            if kind == "decoding":
                ours[kind] = CheckedRunner(runner, lambda load=load: load.matches, work.matches(work.events[:5_000]))  # type: ignore[misc]
            else:
                each = (rss_of(broker.pids) - before) / work.size
                results.append(Result(f"{name}/{kind}/memory", each, "bytes/subscription"))
        done, compared = await compete(work, ours, peers, rounds, quick, progress, note)
        results += _costs(work, done)
        for kind in ("loose", "durable") if seconds else ():
            progress(f"{work.size:,} subscriptions, latency, {kind}")
            load = runners[kind].load
            results += await _latencies(work, load, "half", middle(done[kind]).rate / 2, seconds, sync)
            results += await _latencies(work, load, "steady", _STEADY[kind], seconds, sync)
    return results + compared


def _costs(work: BrokerWorkload, done: Mapping[str, Sequence[Measured]]) -> list[Result]:
    """Weft's processor time and rates, durable and not."""
    name, matcher = f"broker/{work.size}", work.matcher()
    loose, durable = middle(done["loose"]), middle(done["durable"])
    per_event = loose.deliveries / loose.events
    allowed = 4 + matcher + 1.5 * per_event
    goals = {10_000: (45_000, 25_000), 100_000: (30_000, None)}.get(work.size, (None, None))
    overhead = median(b.micros - a.micros for a, b in zip(done["loose"], done["durable"], strict=True))
    looked_at = [middle(done["decoding"]).micros_of_all] if "decoding" in done else []
    return [
        Result(f"{name}/matcher", matcher, "us/event"),
        Result(f"{name}/deliveries", per_event, "per event"),
        Result(f"{name}/loose/cpu", loose.micros, "us/event", allowed, "lower"),
        Result(f"{name}/loose/rate", loose.rate, "events/s", goals[0]),
        Result(f"{name}/durable/cpu", durable.micros, "us/event"),
        Result(f"{name}/durable/rate", durable.rate, "events/s", goals[1]),
        Result(f"{name}/durability", overhead, "us/event", 4.0, "lower"),
        *(Result(f"{name}/decoding/cpu", each, "us/event") for each in looked_at),
    ]


async def _latencies(  # noqa: PLR0913, PLR0917 - the parts of a load
    work: BrokerWorkload, load: WeftLoad, called: str, rate: float, seconds: float, sync: float
) -> list[Result]:
    """At a steady rate. A durable event is delivered after its commit, as it is acknowledged, so that is its goal.

    The load has a process of its own, whose part of a processor is told: near 100% it measures itself.
    """
    name = f"broker/{work.size}/{'durable' if load.durable else 'loose'}/{called}"
    found = await latencies(load, work.events, rate, seconds)
    goal = 1e3 * (WINDOW + 2 * sync) + 5 if load.durable else 5.0
    p50, p99 = found.delivery(0.5), found.delivery(0.99)
    results = [
        Result(f"{name}_rate", rate, "events/s"),
        Result(f"{name}_load", 100 * found.busy, "% of a processor"),
        Result(f"{name}_p50", 1e3 * p50, "ms"),
        Result(f"{name}_p99", 1e3 * p99, "ms", goal, "lower"),
        Result(f"{name}_p50_in_syncs", p50 / sync, "fdatasyncs"),
        Result(f"{name}_p99_in_syncs", p99 / sync, "fdatasyncs"),
    ]
    if load.durable:
        confirmed = 1e3 * found.confirmation(0.99)
        results.append(Result(f"{name}_acknowledged_p99", confirmed, "ms", goal, "lower"))
    return results
