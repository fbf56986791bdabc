"""Two linked brokers, durable. Subscribers are at one, the publisher at the other, so that every delivery has crossed
the link and was stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.server.committer import WINDOW
from weftlab.bench.broker_contest import middle, settle
from weftlab.bench.broker_latency import latencies
from weftlab.bench.broker_weft import WeftBroker, WeftLoad
from weftlab.bench.broker_workload import BrokerWorkload
from weftlab.bench.report import Result

_RATE = 40_000  # events a second that a chain must reach


async def chain(  # noqa: PLR0913, PLR0917 - the parts of a load
    work: BrokerWorkload, place: Path, rounds: int, seconds: float, sync: float, progress: Callable[[str], None]
) -> list[Result]:
    """Durable events through two brokers: the rate at saturation, and latencies at half of it and of what is demanded.

    A window is the time between two commits: 2 ms, or this machine's fdatasync if that takes longer.
    """
    name = f"chain/{work.size}"
    progress(f"a chain of two brokers, {work.size:,} subscriptions")
    listening, dialling = place / f"a{work.size}.toml", place / f"b{work.size}.toml"
    listening.write_text('name = "a"\n[links.b]\n', encoding="ascii")
    with WeftBroker(place / f"chain-a{work.size}", "--config", str(listening)) as first:
        dialling.write_text(f'name = "b"\n[links.a]\naddress = "{first.address}"\n', encoding="ascii")
        with WeftBroker(place / f"chain-b{work.size}", "--config", str(dialling)) as second:
            load, pids = WeftLoad(durable=True), [*first.pids, *second.pids]
            await load.open(work.texts, first.address, second.address, complete=True)
            await load.run(work.warm, work.due(work.warm), pids)
            due, done = work.due(work.events), []
            for number in range(1, rounds + 1):
                progress(f"a chain of two brokers, {work.size:,} subscriptions, round {number} of {rounds}")
                await settle()
                done.append(await load.run(work.events, due, pids))
            best = middle(done)
            progress(f"a chain of two brokers, {work.size:,} subscriptions, latency")
            half = await latencies(load, work.events, best.rate / 2, seconds)
            steady = await latencies(load, work.events, _RATE / 2, seconds)
            load.close()
    window = max(WINDOW, sync)
    goal = 1e3 * (2 * window + 0.002)
    return [
        Result(f"{name}/rate", best.rate, "events/s", _RATE),
        Result(f"{name}/cpu", best.micros, "us/event"),
        Result(f"{name}/p50", 1e3 * half.delivery(0.5), "ms", goal, "lower"),
        Result(f"{name}/p50_in_windows", half.delivery(0.5) / window, "windows"),
        Result(f"{name}/p99", 1e3 * half.delivery(0.99), "ms"),
        Result(f"{name}/steady_p50", 1e3 * steady.delivery(0.5), "ms", goal, "lower"),
        Result(f"{name}/steady_p99", 1e3 * steady.delivery(0.99), "ms"),
    ]
