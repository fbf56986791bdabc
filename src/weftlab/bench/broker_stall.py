"""One consumer among a hundred that stops reading. Two brokers have the same subscriptions, events and rate. At one of
them, a consumer that wants every event does not read. The processor time of the brokers and the latencies of the other
99 consumers are compared, in pairs of runs that follow each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

from weft.broker.limits import ClientLimits
from weft.protocol.messages import QueueNumber, SubNumber, Subscribe
from weftlab.bench.broker_latency import latencies
from weftlab.bench.broker_load import rss_of
from weftlab.bench.broker_weft import WeftBroker, WeftLoad, WeftReader, subscribe
from weftlab.bench.broker_workload import BrokerWorkload
from weftlab.bench.report import Result

CONSUMERS = 100
_EVERYTHING = SubNumber(1 << 20)
_LARGE = b"x" * 4_000  # payloads that fill the buffers of a consumer that does not read
_RATE = 3_000.0  # events a second: both brokers and the load keep up with it

_LIMITS = ClientLimits()
# of a queue that is not durable: the events that it may hold, and half as much for what is around them in memory
_BOUND = 1.5 * _LIMITS.held_bytes / (1 << 20)  # MiB


async def stalled(
    work: BrokerWorkload, place: Path, durable: bool, pairs: int, progress: Callable[[str], None]
) -> list[Result]:
    """A broker whose consumers all read, and one with a consumer that does not."""
    kind = "durable" if durable else "loose"
    name = f"stalled/{CONSUMERS}/{kind}"
    cpu, p50 = [], []
    with ExitStack() as stack:
        both: list[tuple[WeftLoad, WeftBroker]] = []
        for reads in (True, False):
            progress(f"one of {CONSUMERS} consumers stalls, {kind}, {'reading' if reads else 'stalled'}")
            broker = stack.enter_context(WeftBroker(place / f"stall-{kind}-{reads}" if durable else None))
            load = WeftLoad(durable, CONSUMERS)
            await load.open(work.texts, broker.address)
            await _want_everything(load)
            if not reads:
                load.consumers[0].transport.pause_reading()
            both.append((load, broker))
        many = 5 * int(_BOUND * (1 << 20)) // (4 * len(_LARGE))
        for load, broker in both:
            await _fill(load, work, many, broker)
        for number in range(1, pairs + 1):
            progress(f"one of {CONSUMERS} consumers stalls, {kind}, pair {number} of {pairs}")
            runs = [
                await latencies(load, work.events, _RATE, 2.0, pids=broker.pids, timed=load.consumers[1:])
                for load, broker in both
            ]
            cpu.append(runs[1].micros / runs[0].micros)
            p50.append(runs[1].delivery(0.5) / runs[0].delivery(0.5))
        more = (rss_of(both[1][1].pids) - rss_of(both[0][1].pids)) / (1 << 20)
        for load, _ in both:
            load.close()
    return [
        Result(f"{name}/cpu_ratio", median(cpu), "x", 1.1, "lower"),
        Result(f"{name}/p50_ratio_of_others", median(p50), "x", 1.2, "lower"),
        Result(f"{name}/memory_more", more, "MiB", _BOUND, "lower"),
    ]


async def _want_everything(load: WeftLoad) -> None:
    """The first consumer subscribes to everything, besides its share."""
    wire = load.consumers[0]
    reader = wire.reader
    assert isinstance(reader, WeftReader)
    reader.accepted = 0
    await subscribe(wire, reader, [Subscribe(_EVERYTHING, "TRUE", QueueNumber(0))])


async def _fill(load: WeftLoad, work: BrokerWorkload, many: int, broker: WeftBroker) -> None:
    """Publish large events until nothing fits into the buffers of a consumer that does not read."""
    events = [work.events[n % len(work.events)] for n in range(many)]
    others, everybody = load.consumers[1:], load.consumers
    load.consumers = others
    try:
        await load.run(events, work.due(events) - _due_to_first(work, events), broker.pids, _LARGE, size=10)
    finally:
        load.consumers = everybody


def _due_to_first(work: BrokerWorkload, events: list[dict[str, object]]) -> int:
    found = work.index.match_batch(events)
    offsets, ids = found.offsets.tolist(), found.ids.tolist()
    return sum(any(i % work.connections == 0 for i in ids[a:b]) for a, b in pairwise(offsets))
