"""What routing models cost: items told and held, time to subscribe, time to route, memory.

A network is a random tree of nine brokers that are peers; subscriptions are at brokers drawn at random. They come in
batches of 1,000: each broker changes its part of a batch, then updates travel until nobody has anything to tell.
Filters are parsed before the clock starts; nothing else is: normal forms, covering, ledgers and the index that routes
are all in the times. Only the tables' own work is timed, in time of the processor (what else runs on the machine does
not count, what an index builds in a thread does); rates of the chain and of routing are also given by the clock on the
wall, and these have the goals. Compiled code is loaded before, with a tiny network.

The workloads are `weft.sim.range_workloads`'s: `uniform` (ranges anywhere, 1 to 64 wide) and `zipf` (popular places in
a few popular sizes). For a sample of events every model must reach all brokers where a scan of all subscriptions
delivers.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time

import numpy as np

from weft.bench import routing_table
from weft.bench.report import Result
from weft.index.base import AnyEvent, SubId
from weft.index.scan import ScanIndex
from weft.language.ast import Filter
from weft.language.text import parse_many
from weft.routing.overlay import BrokerId
from weft.routing.table import Filters, ItemId, Link, RoutingTable, Source, Tell, Update
from weft.sim.overlay import MODELS, NEED_BOUNDS, MakeTable
from weft.sim.range_workloads import WORKLOADS
from weft.sim.trees import Links, brokers, tree

NAMES = ("uniform", "zipf")
BROKERS, BATCH = 9, 1_000
TOLD = [name for name in MODELS if name not in ("flooding", *NEED_BOUNDS)]  # flooding tells nothing, so costs nothing
LARGE = ("simple", "identity", "covering")  # of 100,000 subscriptions, which take minutes
SMALL = ("merging",)  # merges some hundreds of filters a second, so of few subscriptions only
CHAINED = ("simple", "covering")

_NORTH, _SOUTH = Link("north"), Link("south")
_MANY = 10_000  # subscriptions: of few, few cover others
_FEW = 2_000
_SCANNED = 2_000_000  # filters asked one by one
_EVENTS = 1_000  # routed in one batch
_ROUNDS = 9
_PIECES = 64  # of pending work in one step


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    sizes = [size] if size else [2_000] if quick else [10_000, 100_000]
    chained = size or (10_000 if quick else 100_000)
    held = size or 10_000
    traced = size or (2_000 if quick else 10_000)
    progress("nothing yet, loading compiled code")
    _networks("zipf", min(size or 100, 100), lambda _: None)
    results = []
    for name in NAMES:
        for each in sizes:
            results += _networks(name, each, progress)
    for model in CHAINED:
        progress(f"a chain of three, {model}, {chained:,} subscriptions")
        results += _chain(model, chained)
    for model in TOLD:
        progress(f"routing, {model}, {held:,} items a link")
        results += _routing(model, held)
        progress(f"memory, {model}, {traced:,} items")
        results.append(_memory(model, traced))
    return results + routing_table.run(quick, progress, size)


# -- nine brokers ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Network:
    """Tables on a tree, changed in batches; counts and times what the tables do.

    >>> from weft import parse
    >>> network = Network.of(MODELS["simple"], tree("chain", 3, np.random.default_rng(1)))
    >>> network.subscribe({BrokerId("b1"): {SubId(1): parse("x > 5")}})
    >>> network.told, [sorted(reached) for reached in network.reached([{"x": 6}, {"x": 5}], BrokerId("b3"))]
    (2, [['b1', 'b2', 'b3'], ['b3']])
    """

    tables: dict[BrokerId, RoutingTable]
    links: Links
    updates: int = 0
    told: int = 0
    dropped: int = 0
    change_seconds: float = 0.0
    learn_seconds: float = 0.0
    _flying: deque[tuple[BrokerId, Tell]] = field(default_factory=deque)

    @classmethod
    def of(cls, make: MakeTable, links: Links) -> Network:
        """Peers on a tree."""
        network = cls({broker: make(None) for broker in brokers(len(links) + 1)}, links)
        for near, far in links:
            network._send(near, network.tables[near].attach(Link(far)))
            network._send(far, network.tables[far].attach(Link(near)))
        network._settle()
        return network

    def subscribe(self, parts: dict[BrokerId, Filters]) -> None:
        """Every broker changes its part, then updates travel."""
        for broker, add in parts.items():
            start = process_time()
            tells = self.tables[broker].change(add, ())
            self.change_seconds += process_time() - start
            self._send(broker, tells)
        self._settle()

    def _settle(self) -> None:
        while self._flying:
            sender, tell = self._flying.popleft()
            broker = BrokerId(tell.link)
            start = process_time()
            tells = self.tables[broker].learn(Link(sender), tell.update)
            self._send(broker, tells)
            for name, table in self.tables.items() if not self._flying else ():
                while table.pending:
                    self._send(name, table.step(_PIECES))
            self.learn_seconds += process_time() - start

    def _send(self, broker: BrokerId, tells: Iterable[Tell]) -> None:
        for tell in tells:
            self._flying.append((broker, tell))
            self.updates += 1
            self.told += len(tell.update.add)
            self.dropped += len(tell.update.drop)

    def reached(self, events: Sequence[AnyEvent], start: BrokerId) -> list[set[BrokerId]]:
        """The brokers that each event comes to when it is published at `start`."""
        reached = [{start} for _ in events]
        todo: list[tuple[BrokerId, Source, list[int]]] = [(start, None, [*range(len(events))])]
        while todo:
            broker, source, positions = todo.pop()
            routes = self.tables[broker].route_batch([events[at] for at in positions], source)
            for link, chosen in routes.items():
                going = [positions[at] for at in chosen.tolist()]
                for at in going:
                    reached[at].add(BrokerId(link))
                todo.append((BrokerId(link), Link(broker), going))
        return reached

    def held(self) -> list[int]:
        """How many items each table has heard."""
        heard = dict.fromkeys(self.tables, 0)
        for near, far in self.links:
            heard[near] += len(self.tables[near].heard(Link(far)))
            heard[far] += len(self.tables[far].heard(Link(near)))
        return [*heard.values()]


def _networks(name: str, size: int, progress: Callable[[str], None]) -> list[Result]:
    """The same subscriptions with every model."""
    workload = WORKLOADS[name](size, max(1, min(50, _SCANNED // size)))
    filters, events = parse_many(workload.texts()), workload.table.to_pylist()
    links = tree("random", BROKERS, np.random.default_rng(1))
    names = brokers(BROKERS)
    homes = [names[n] for n in np.random.default_rng(2).integers(BROKERS, size=size).tolist()]
    scan = ScanIndex()
    for sub, wanted in enumerate(filters):
        scan.add(SubId(sub), wanted)
    expected = [scan.match(event).tolist() for event in events]
    results, told = [], {}
    for model in LARGE if size >= 100_000 else [name for name in TOLD if size <= _FEW or name not in SMALL]:
        progress(f"{name}, {size:,} subscriptions, {model}")
        gc.collect()
        network = Network.of(MODELS[model], links)
        for start in range(0, size, BATCH):
            network.subscribe(_parts(filters, homes, range(start, min(start + BATCH, size))))
        for broker in names:
            for subs, reached in zip(expected, network.reached(events, broker), strict=True):
                delivered = [sub for sub in subs if homes[sub] in reached]
                assert delivered == subs, f"{model} must deliver as a scan does"
        told[model] = network.told
        results += _figures(f"{name}/{size}/{model}", network, size)
    goal = 2.0 if name == "zipf" and size >= _MANY else None  # where many want the same, covering must spare half
    results.append(Result(f"{name}/{size}/simple_to_covering", told["simple"] / told["covering"], "x", goal))
    return results


def _parts(filters: Sequence[Filter], homes: Sequence[BrokerId], batch: Iterable[int]) -> dict[BrokerId, Filters]:
    parts: dict[BrokerId, dict[SubId, Filter]] = {}
    for sub in batch:
        parts.setdefault(homes[sub], {})[SubId(sub)] = filters[sub]
    return dict(parts)


def _figures(prefix: str, network: Network, size: int) -> list[Result]:
    held = network.held()
    return [
        Result(f"{prefix}_updates", network.updates, "updates", better="lower"),
        Result(f"{prefix}_told", network.told, "items", better="lower"),
        Result(f"{prefix}_held", sum(held) / len(held), "items", better="lower"),
        Result(f"{prefix}_change_us", 1e6 * network.change_seconds / size, "us", better="lower"),
        Result(f"{prefix}_learn_us", 1e6 * network.learn_seconds / size, "us", better="lower"),
    ]


# -- a chain of three --------------------------------------------------------------------------------


def _chain(model: str, size: int) -> list[Result]:
    """All subscriptions at one end of a chain: one `change` and two `learn` for each batch."""
    network = Network.of(MODELS[model], tree("chain", 3, np.random.default_rng(1)))
    first = brokers(3)[0]
    filters = parse_many(WORKLOADS["zipf"](size, 0).texts())
    batches = [{SubId(sub): filters[sub] for sub in batch} for batch in _batches(size)]
    gc.collect()
    start, cpu = perf_counter(), process_time()
    for batch in batches:
        network.subscribe({first: batch})
    seconds, cpu = perf_counter() - start, process_time() - cpu
    goal = 5_000 if model == "covering" else None
    return [
        Result(f"chain/{size}/{model}_per_s", size / seconds, "/s", goal),
        Result(f"chain/{size}/{model}_cpu_us", 1e6 * cpu / size, "us", better="lower"),
    ]


def _batches(size: int) -> Iterator[range]:
    edges = [*range(0, size, BATCH), size]
    return (range(start, end) for start, end in pairwise(edges))


# -- one table ---------------------------------------------------------------------------------------


def _routing(model: str, held: int) -> list[Result]:
    """A broker with three neighbours that have told it so many items each; events come in batches of 1,000."""
    table = MODELS[model](None)
    links = [_NORTH, _SOUTH, Link("west")]
    for turn, link in enumerate(links):
        table.attach(link)
        for update in _updates(held, 1 + turn):
            table.learn(link, update)
    events = WORKLOADS["uniform"](1, _EVENTS).table.to_pylist()
    table.route_batch(events, None)
    walls, cpus = [], []
    for _ in range(_ROUNDS):
        wall, cpu = perf_counter(), process_time()
        table.route_batch(events, None)
        walls.append(perf_counter() - wall)
        cpus.append(process_time() - cpu)
    return [
        Result(f"route/{held}/{model}_us", 1e6 * median(walls) / _EVENTS, "us", 10, "lower"),
        Result(f"route/{held}/{model}_cpu_us", 1e6 * median(cpus) / _EVENTS, "us", better="lower"),
    ]


def _memory(model: str, held: int) -> Result:
    """All that a table with two neighbours allocates for what one of them tells it, but for the filters themselves."""
    updates = _updates(held, 1)
    table = MODELS[model](None)
    table.attach(_NORTH)
    table.attach(_SOUTH)
    gc.collect()
    tracemalloc.start()
    try:
        for update in updates:
            table.learn(_NORTH, update)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return Result(f"memory/{held}/{model}_bytes", traced / held, "bytes", better="lower")


def _updates(size: int, seed: int) -> list[Update]:
    filters = parse_many(WORKLOADS["uniform"](size, 0, seed=seed).texts())
    return [Update(add={ItemId(n): filters[n] for n in batch}) for batch in _batches(size)]
