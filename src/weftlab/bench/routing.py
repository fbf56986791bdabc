"""The cost of routing models: items told and held, time to subscribe, time to route, memory.

A network is a random tree of nine brokers that are peers; subscriptions are at brokers drawn at random. They come in
batches of 1,000: each broker changes its part of a batch, then updates travel until nobody has anything to tell.
Filters are parsed before the clock starts; nothing else is: normal forms, covering, ledgers and the index that routes
are all in the times. Only the tables' own work is timed, in time of the processor (what else runs on the machine does
not count, what an index builds in a thread does); rates of the chain and of routing are also given by the clock on the
wall, and these have the goals. Compiled code is loaded before, with a tiny network.

The workloads are those of `weftlab.overlay.range_workloads`: `uniform` (ranges anywhere, 1 to 64 wide) and `zipf`
(popular places in a few popular sizes). For a sample of events every model must reach all brokers where a scan of all
subscriptions delivers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time

import numpy as np

from weft.index.base import SubId
from weft.index.scan import ScanIndex
from weft.language.ast import Filter
from weft.language.text import parse_many
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.table import ItemId, Link, Tell, Update
from weftlab.bench import routing_table
from weftlab.bench.report import Result
from weftlab.bench.traced_memory import TracedMemory
from weftlab.overlay.overlay import MODELS, NEED_BOUNDS, MakeTable
from weftlab.overlay.range_workloads import WORKLOADS
from weftlab.overlay.trees import TreeLinks, brokers, tree

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


class TimedNetwork:
    """Peers on a tree, whose subscriptions change in batches; measures the work of their tables.

    >>> from weft import parse
    >>> network = TimedNetwork(MODELS["simple"], tree("chain", 3, np.random.default_rng(1)))
    >>> network.subscribe({BrokerId("b1"): {SubId(1): parse("x > 5")}})
    >>> reached = network.tables.arrivals([{"x": 6}, {"x": 5}], BrokerId("b3"))
    >>> network.told, [sorted(each) for each in reached]
    (2, [['b1', 'b2', 'b3'], ['b3']])
    """

    def __init__(self, make: MakeTable, links: TreeLinks) -> None:
        names = brokers(len(links) + 1)
        self._seconds = 0.0
        self.tables = TableNetwork(names, lambda: make(None), matcher=None, pieces=_PIECES, run=self._timed)
        for near, far in links:
            self.tables.attach(near, far)
        self.tables.settle()
        self._seconds = self.change_seconds = 0.0

    def subscribe(self, parts: dict[BrokerId, dict[SubId, Filter]]) -> None:
        """Every broker changes its part, then updates travel."""
        before = self._seconds
        for broker, add in parts.items():
            self.tables.change(broker, add)
        self.change_seconds += self._seconds - before
        self.tables.settle()

    def _timed(self, _: BrokerId, work: Callable[[], list[Tell]]) -> list[Tell]:
        start = process_time()
        tells = work()
        self._seconds += process_time() - start
        return tells

    @property
    def learn_seconds(self) -> float:
        """The time in which tables learnt what their neighbours told."""
        return self._seconds - self.change_seconds

    @property
    def updates(self) -> int:
        """The number of updates on all links."""
        return sum(self.tables.counters.updates.values())

    @property
    def told(self) -> int:
        """The number of items on all links."""
        return sum(self.tables.counters.items_added.values())

    def held(self) -> list[int]:
        """The number of items that each table has received."""
        return [self.tables.sizes(broker).received for broker in self.tables.brokers]


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
        network = TimedNetwork(MODELS[model], links)
        for start in range(0, size, BATCH):
            network.subscribe(_parts(filters, homes, range(start, min(start + BATCH, size))))
        for broker in names:
            for subs, reached in zip(expected, network.tables.arrivals(events, broker), strict=True):
                delivered = [sub for sub in subs if homes[sub] in reached]
                assert delivered == subs, f"{model} must deliver as a scan does"
        told[model] = network.told
        results += _figures(f"{name}/{size}/{model}", network, size)
    goal = 2.0 if name == "zipf" and size >= _MANY else None  # where many want the same, covering must spare half
    results.append(Result(f"{name}/{size}/simple_to_covering", told["simple"] / told["covering"], "x", goal))
    return results


def _parts(
    filters: Sequence[Filter], homes: Sequence[BrokerId], batch: Iterable[int]
) -> dict[BrokerId, dict[SubId, Filter]]:
    parts: dict[BrokerId, dict[SubId, Filter]] = {}
    for sub in batch:
        parts.setdefault(homes[sub], {})[SubId(sub)] = filters[sub]
    return parts


def _figures(prefix: str, network: TimedNetwork, size: int) -> list[Result]:
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
    network = TimedNetwork(MODELS[model], tree("chain", 3, np.random.default_rng(1)))
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
    with TracedMemory() as traced:
        for update in updates:
            table.learn(_NORTH, update)
    return Result(f"memory/{held}/{model}_bytes", traced.kept / held, "bytes", better="lower")


def _updates(size: int, seed: int) -> list[Update]:
    filters = parse_many(WORKLOADS["uniform"](size, 0, seed=seed).texts())
    return [Update(add={ItemId(n): filters[n] for n in batch}) for batch in _batches(size)]
