"""The ring: how fast it is simulated, how evenly it spreads, how far messages go. Designs see the same workload. The
ring, a flooded tree, one broker and a covering overlay are compared by messages and bytes for the same events.

A message's bytes are those of the event as the ring encodes it; deliveries to subscribers are counted for all.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from math import log2
from time import process_time

import msgspec
import numpy as np

from weft.language.text import parse_many
from weft.ring.identifiers import IdSpace, Key
from weft.ring.load_sharing import Sharing
from weft.ring.messages import NodeAddress, RequestToken
from weft.ring.rendezvous_messages import EventId, Publication, Visit
from weftlab.bench.report import Result, timed
from weftlab.bench.ring_messages import message_results
from weftlab.overlay.overlay import Expected, scenario, simulate
from weftlab.overlay.trees import brokers, tree
from weftlab.ring.ring_design import RingDesign
from weftlab.ring.ring_model import RingModel
from weftlab.ring.ring_peers import compare_schemes
from weftlab.ring.ring_routes import RingRoutes
from weftlab.ring.ring_workload import RingWorkload, RingWorkloadSettings, ring_workload

_SHARED = RingDesign("busy", sharers=5, threshold=25)
DESIGNS = {
    "single": RingDesign("busy"),
    "replication": replace(_SHARED, sharing=Sharing.REPLICATION),
    "partition": replace(_SHARED, sharing=Sharing.PARTITION),
    "groups": RingDesign("busy", clusters=True),
    "no_rotation": RingDesign("busy", clusters=True, rotation=0),
    "no_remap": RingDesign("busy", clusters=True, remap=False),
}
_GIGA = 1 << 30


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; with a size, tiny ones of that many subscriptions."""
    sizes: tuple[int, ...]
    if size is not None:
        settings = RingWorkloadSettings(nodes=32, subscriptions=size, events=size)
        overlay, sizes, large = replace(settings, events=20), (64,), (100, 20 * size)
        counted: tuple[int, ...] = (16,)
    else:
        settings = RingWorkloadSettings(events=1_500 if quick else 9_000)
        overlay = RingWorkloadSettings(nodes=64, subscriptions=600, events=200)
        sizes = (100, 1_000) if quick else (100, 1_000, 10_000)
        large = (1_000, 50_000) if quick else (10_000, 1_000_000)
        counted = (16, 32, 64) if quick else (16, 64, 256, 1_024)
    return [
        *_hops(sizes, progress),
        *_designs(settings, progress),
        *_schemes(settings, progress),
        *_against(overlay, progress),
        *message_results(counted, progress),
        *_large(*large, progress),
    ]


def _hops(sizes: tuple[int, ...], progress: Callable[[str], None]) -> list[Result]:
    results = []
    for nodes in sizes:
        progress(f"hops on {nodes:,} nodes")
        rng = np.random.default_rng(nodes)
        space = IdSpace(1 << 32)
        routes = RingRoutes(space, sorted(rng.choice(space.size, nodes, replace=False).tolist()))
        hops = [len(routes.route(int(rng.integers(nodes)), int(rng.integers(space.size)))) for _ in range(2_000)]
        results.append(Result(f"look-up/{nodes}/hops", float(np.mean(hops)), "hops", log2(nodes), "lower"))
    return results


def _designs(settings: RingWorkloadSettings, progress: Callable[[str], None]) -> list[Result]:
    workload = ring_workload(settings, 1)
    results = []
    for name, design in DESIGNS.items():
        progress(f"the design {name}")
        seconds, outcome = timed(RingModel(workload, design, 1).run)
        mean = float(np.mean(outcome.loads))
        place = f"designs/{settings.subscriptions}/{name}"
        results += [
            Result(f"{place}_events_per_s", settings.events / seconds, "events/s"),
            Result(f"{place}_missed", outcome.missed, "matches", 0, "lower"),
            Result(f"{place}_gini", outcome.gini, "", better="lower"),
            Result(f"{place}_max_to_mean", outcome.largest / mean, "", better="lower"),
            Result(f"{place}_cost", outcome.cost, "simulated s", better="lower"),
            Result(f"{place}_latency", outcome.latency, "simulated s", better="lower"),
        ]
    return results


def _schemes(settings: RingWorkloadSettings, progress: Callable[[str], None]) -> list[Result]:
    progress("the paper's peers")
    results = []
    for row in compare_schemes(ring_workload(settings, 1), 1, 300):
        place = f"schemes/{settings.nodes}/{row.scheme.split()[0].lower()}"
        results += [
            Result(f"{place}_per_subscription", row.per_subscription, "brokers", better="lower"),
            Result(f"{place}_per_event", row.per_event, "brokers", better="lower"),
            Result(f"{place}_in_all", row.rendezvous, "brokers"),
        ]
    return results


def _against(settings: RingWorkloadSettings, progress: Callable[[str], None]) -> list[Result]:
    """Messages and bytes of an event, of the ring and of others with the same subscriptions."""
    progress("the covering overlay")
    workload = ring_workload(settings, 1)
    bytes_of_event = _bytes(workload)
    homes = [len(np.unique(workload.homes[workload.matches(event)])) for event in range(settings.events)]
    ring = RingModel(workload, RingDesign(), 1).run()
    messages = {
        "ring": ring.hops / settings.events + float(np.mean(homes)),
        "flooding": float(settings.nodes - 1),
        "one_broker": 1 + float(np.mean(homes)),
        "covering": _covering(workload) / settings.events,
    }
    results = []
    for name, count in messages.items():
        place = f"against/{settings.nodes}/{name}"
        results.append(Result(f"{place}_messages", count, "messages/event", better="lower"))
        results.append(Result(f"{place}_bytes", count * bytes_of_event, "bytes/event", better="lower"))
    return results


def _bytes(workload: RingWorkload) -> float:
    sizes = []
    for event in range(min(100, len(workload.event_topics))):
        topic = int(workload.event_topics[event])
        names = workload.topic_attributes[topic].tolist()
        values = {f"a{name}": value for name, value in zip(names, workload.values[event].tolist(), strict=True)}
        made = Publication(EventId(NodeAddress("node"), event), f"t{topic}", values)
        sizes.append(len(msgspec.msgpack.encode(Visit(RequestToken(event), Key(event), made))))
    return float(np.mean(sizes))


def _covering(workload: RingWorkload) -> int:
    """Events over links of a random tree of brokers that forward by covering; a topic is an attribute."""
    rng = np.random.default_rng(1)
    texts = []
    for row in range(len(workload.topics)):
        topic = int(workload.topics[row])
        names = workload.topic_attributes[topic].tolist()
        tests = [f"topic = 't{topic}'"]
        for name, low, high in zip(names, workload.low[row].tolist(), workload.high[row].tolist(), strict=True):
            if low >= 0:
                tests.append(f"a{name} BETWEEN {low} AND {high}")
        texts.append(" AND ".join(tests))
    events = [
        {"topic": f"t{topic}"}
        | {f"a{name}": value for name, value in zip(workload.topic_attributes[topic].tolist(), values, strict=True)}
        for topic, values in zip(workload.event_topics.tolist(), workload.values.tolist(), strict=True)
    ]
    names = brokers(workload.settings.nodes)
    links = tree("random", workload.settings.nodes, rng)
    places = [names[home] for home in workload.homes.tolist()]
    given = scenario(links, parse_many(texts), events, rng, places=places)
    return simulate(given, "covering", Expected(given), seed=1).messages


def _large(nodes: int, subscriptions: int, progress: Callable[[str], None]) -> list[Result]:
    def storing(done: int, of: int) -> None:
        progress(f"{nodes:,} nodes, {done:,} of {of:,} subscriptions stored")

    progress(f"{subscriptions:,} subscriptions on {nodes:,} nodes")
    before = process_time()
    settings = RingWorkloadSettings(
        nodes=nodes, ring=1 << 24, subscriptions=subscriptions, events=100, topics=100, schema=200, intervals=20
    )
    model = RingModel(ring_workload(settings, 1), RingDesign(), 1)
    seconds, outcome = timed(lambda: model.run(storing=storing))
    cpu = process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIGA
    return [
        Result(f"large/{subscriptions}/seconds", seconds, "s", 600, "lower"),
        Result(f"large/{subscriptions}/cpu_seconds", cpu, "s", better="lower"),
        Result(f"large/{subscriptions}/memory", memory, "GiB", 8, "lower"),
        Result(f"large/{subscriptions}/missed", outcome.missed, "matches", 0, "lower"),
        Result(
            f"large/{subscriptions}/max_to_mean", outcome.largest / float(np.mean(outcome.loads)), "", better="lower"
        ),
    ]
