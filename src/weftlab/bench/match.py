"""Matching: Weft against an R-tree, two query engines and plain Python, with the same filters and events, in one run
and on one thread each. Only first passes count. Encoding is part of the time. A figure is reported only if the numbers
of matches are equal.

Events come as Arrow batches of 4,096 rows, subscriptions as columns, both as users have them. A peer gets batches of
the same size, or smaller ones if it is slow, and as many as its time allows. Whatever compiles has done so before: sets
of a few filters are matched first. Results are written to memory that has been touched, on all sides: on a virtual
machine, new memory may cost twenty times as much as the ids that are written to it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.index import Matches, TreeIndex
from weft.index.segment import DEFAULT, TreeShape
from weft.language.meaning import matches
from weft.language.text import parse_many
from weft.workloads import WORKLOADS, Workload, mixed
from weftlab.bench.match_ids import more_for_one, times_of_batches, with_ids
from weftlab.bench.match_texts import SETS, measure_texts
from weftlab.bench.match_titles import measure_titles
from weftlab.bench.peers import PEERS, Peer, installed, pace, suits
from weftlab.bench.report import Result, timed

SIZES = (100_000, 1_000_000)
LARGEST = 5_000_000
BATCH = 4_096
MEMORY = 200  # bytes of a subscription
EVENTS = {"W1": 100_000, "W2": 50_000, "W3": 50_000, "W4": 20_000, "W5": 20_000, "W6": 20_000}
TITLES = "W7"
OTHERS = (TITLES, *SETS)  # workloads that are no ranges
JOINS = ("polars", "duckdb")
GOALS = {
    "W1/100000/vs_rtree": 50,
    "W2/100000/vs_rtree": 80,
    "W3/100000/vs_best_join": 30,
    "W4/100000/vs_best_peer": 400,
    "W5/100000/vs_best_peer": 500,
    "W1/1000000/vs_rtree": 40,
    "W2/1000000/vs_rtree": 100,
    "W3/1000000/vs_best_join": 60,
    "W4/1000000/vs_duckdb": 1_000,
    "W5/1000000/vs_duckdb": 1_200,
    "W6/1000000/vs_copy": 1.5,
    "W7/100000/vs_best_peer": 50,
    "W7/100000/us_per_event": 60,
    **{f"{name}/1000000/build_per_s": 300_000 for name in WORKLOADS},
    **{f"{name}/{size}/bytes_per_subscription": 200 for name in WORKLOADS for size in SIZES},
    "W6/1000000/bytes_per_subscription": 24,
    **{f"{name}/100000/single_match_us": 6 for name in ("W1", "W2", "W3")},
    **{f"W1/{size}/{figure}": 20_000 for size in SIZES for figure in ("add_per_s", "discard_per_s")},
    "W4/100000/two_threads": 1.6,
    **{f"W1/{size}/growth": 1 for size in (*SIZES, LARGEST)},
    "mixed/100000/slowdown": 3,
    **{f"{name}/100000/vs_best_shape": 1.3 for name in WORKLOADS},
    **{f"{name}/100000/index_batch_vs_tree": 1.3 for name in ("W1", "W2", "W3")},
    **{f"{name}/100000/index_single_more_us": 3 for name in ("W1", "W2", "W3")},
    "start/1/first_match": 400,
    **{f"urls/100000/{figure}": 2 for figure in ("vs_apart", "single_vs_apart")},
    **{f"{name}/100000/single_match_us": 40 for name in ("urls", "logs", "mails")},
    "tags/100000/us_per_event": 5,
}
LOWER = {"us", "ns", "ms", "bytes", "of linear", "x slower"}  # units in which less is better
_FIRST = """
import numpy as np
from weft.index import Matches, TreeIndex
index = TreeIndex()
index.add_texts(np.arange(1000), [f"magnitude >= {n % 10} AND depth < {n}" for n in range(1000)])
assert len(index.match({"magnitude": 5.5, "depth": 700.0})) == 179
"""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchEffort:
    """The time that a run may take, and the receiver of its notes."""

    quick: bool
    progress: Callable[[str], None]
    note: Callable[[str], None]

    @property
    def budget(self) -> float:
        """Seconds for one peer on one workload."""
        return 2.0 if self.quick else 20.0

    def workload(self, name: str, size: int) -> Workload:
        """Subscriptions, and enough events for them."""
        self.progress(f"{name} with {size:,} subscriptions")
        return WORKLOADS[name](size, min(EVENTS[name], max(size, 1_000)))


def run(
    quick: bool,
    progress: Callable[[str], None],
    size: int | None = None,
    workloads: Sequence[str] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """All figures, or those of a size and of some workloads. `note` is called with plans and missing peers."""
    effort = MatchEffort(quick, progress, note)
    sizes = (size,) if size else SIZES[:1] if quick else SIZES
    names = [name for name in workloads or WORKLOADS if name not in OTHERS]
    for peer in PEERS:
        if not installed(peer):
            note(f"{peer.name} is not installed and not measured: {peer.install}")
    for name in names:  # compiles, or loads what was compiled
        few = WORKLOADS[name](2_000, 1_000)
        _with_ids(_indexed(few), few.table)
    results: list[Result] = []
    for each in sizes:
        for name in names:
            results += _contest(effort, name, each, extras=each == sizes[0])
    if "W1" in names:
        results += _growth(effort, {each.name: each.value or 0.0 for each in results}, sizes)
    if "W3" in names:
        results += _mixed(effort, sizes[0])
    if workloads is None or TITLES in workloads:
        results += _titles(effort, sizes[0])
    for name in SETS:
        if workloads is None or name in workloads:
            results += _texts(effort, name, sizes[0])
    return [*results, _first_match(effort)]


def _figure(place: str, figure: str, value: float | None, unit: str) -> Result:
    name = f"{place}/{figure}"
    return Result(name, value, unit, GOALS.get(name), "lower" if unit in LOWER else "higher")


# -- Weft and its peers ------------------------------------------------------------------------------


def _contest(effort: MatchEffort, name: str, size: int, extras: bool) -> list[Result]:
    """All figures of one workload and size."""
    workload, place = effort.workload(name, size), f"{name}/{size}"
    build_seconds, index = timed(lambda: _indexed(workload))
    _touch_memory(index, name)
    seconds, counts = _first_pass(index, workload.batches(BATCH))
    events, found = len(counts), int(counts.sum())
    results = [
        _figure(place, "us_per_event", 1e6 * seconds / events, "us"),
        _figure(place, "events_per_s", events / seconds, "events/s"),
        _figure(place, "ns_per_match", 1e9 * seconds / found if found else None, "ns"),
        _figure(place, "build_per_s", size / build_seconds, "subscriptions/s"),
        _figure(place, "bytes_per_subscription", index.stats().bytes_per_subscription, "bytes"),
    ]
    seconds_of_all, again = timed(lambda: np.concatenate([index.count_batch(each) for each in workload.batches(BATCH)]))
    assert (again == counts).all(), "counting must find what matching finds"
    results.append(_figure(place, "count_us_per_event", 1e6 * seconds_of_all / events, "us"))
    seconds_of_all, wanted = timed(lambda: np.concatenate([index.any_batch(each) for each in workload.batches(BATCH)]))
    assert (wanted == (counts > 0)).all(), "whoever is wanted must have matches"
    results.append(_figure(place, "any_us_per_event", 1e6 * seconds_of_all / events, "us"))
    results += _against_peers(effort, workload, index, counts, seconds / events)
    if extras:
        results.append(_against_shapes(effort, workload, counts))
    if extras and name in ("W1", "W2", "W3"):
        results.append(_single(index, workload, counts))
        results += _ids(index, workload)
    if extras and name == "W4":
        results.append(_two_threads(index, workload))
    if name == "W1":
        results += _updates(effort, index, workload)
    if name == "W6":
        results += _against_copy(index, workload, seconds / found)
    return results


def _indexed(workload: Workload) -> TreeIndex:
    """An index of the subscriptions that has answered once, so that nothing is left to be built."""
    index = TreeIndex()
    index.add_columns(np.arange(len(workload)), workload.bounds)
    _with_ids(index, workload.table.slice(0, 3))
    index.match(workload.table.slice(0, 1).to_pylist()[0])
    return index


def _touch_memory(index: TreeIndex, name: str) -> None:
    """Match two batches of other events, and hold both results: a loop over batches holds the last one while it asks
    for the next.
    """
    others = WORKLOADS[name](1_000, 2 * BATCH, seed=2)
    held = [_with_ids(index, batch) for batch in others.batches(BATCH)]
    assert len(held) == 2


def _first_pass(index: TreeIndex, batches: Iterable[pa.RecordBatch]) -> tuple[float, Counts]:
    """Seconds for all batches, and how many matches each event has."""
    seconds, counts = 0.0, []
    for batch in batches:
        took, found = timed(partial(_with_ids, index, batch))
        seconds += took
        counts.append(np.diff(found.offsets))
    return seconds, np.concatenate(counts)


def _with_ids(index: TreeIndex, batch: pa.RecordBatch) -> Matches:
    """The matches of a batch, with an id written for each."""
    found = index.match_batch(batch)
    assert len(found.ids) == found.offsets[-1]
    return found


def _against_copy(index: TreeIndex, workload: Workload, ours: float) -> list[Result]:
    """The time of copying the id of a match, as many ids as each batch has, to memory touched before; and ours in times
    of it. What only searching takes is `count_us_per_event`.
    """
    seconds, copied = 0.0, 0
    for batch in workload.batches(BATCH):
        ids = index.match_batch(batch).ids
        source, target = np.arange(len(ids)), np.full(len(ids), -1)
        took, _ = timed(partial(np.copyto, target, source))
        seconds, copied = seconds + took, copied + len(ids)
    place, copy = f"{workload.name}/{len(workload)}", seconds / max(1, copied)
    return [
        _figure(place, "copy_ns_per_match", 1e9 * copy, "ns"),
        _figure(place, "vs_copy", ours / copy if copied else None, "x slower"),
    ]


def _titles(effort: MatchEffort, size: int) -> list[Result]:
    """W7, and how many times our time its peers take."""
    ours, theirs = measure_titles(size, effort.budget, effort.progress)
    place = f"{TITLES}/{size}"
    units = {"us_per_event": "us", "ns_per_match": "ns", "build_per_s": "texts/s", "bytes_per_subscription": "bytes"}
    results = [_figure(place, name, value, units[name]) for name, value in ours.items()]
    ratios = {name: each and 1e6 * each / ours["us_per_event"] for name, each in theirs.items()}
    results += [_figure(place, f"{name}_us_per_event", each and 1e6 * each, "us") for name, each in theirs.items()]
    ratios["best_peer"] = _least(list(ratios.values()))
    return results + [_figure(place, f"vs_{name}", ratio, "x") for name, ratio in ratios.items()]


def _texts(effort: MatchEffort, name: str, size: int) -> list[Result]:
    """Rules on texts, or on few of many attributes; and how many times our time peers take."""
    units = {"build_per_s": "texts/s", "bytes_per_subscription": "bytes", "vs_apart": "x slower"}
    units |= {"single_vs_apart": "x slower"}
    found = measure_texts(name, size, effort.budget, effort.quick, effort.progress)
    return [
        _figure(f"{name}/{size}", each, value, units.get(each, "x" if each.startswith("vs_") else "us"))
        for each, value in found.items()
    ]


def _against_peers(
    effort: MatchEffort, workload: Workload, index: TreeIndex, counts: Counts, ours: float
) -> list[Result]:
    """The time of each peer, and how many times ours it is. A missing peer also leaves out the bests."""
    size = len(workload)
    place = f"{workload.name}/{size}"
    results, ratios = [], dict[str, float | None]()
    for peer in PEERS:
        if not suits(peer, workload):
            continue
        theirs = None
        if installed(peer):
            effort.progress(f"{peer.name} on {workload.name} with {size:,} subscriptions")
            theirs = _time_of(effort, peer(), workload, index, counts)
        results.append(_figure(place, f"{peer.name}_us_per_event", theirs and 1e6 * theirs, "us"))
        ratios[peer.name] = theirs and theirs / ours
    ratios["best_join"] = _least([ratios[name] for name in JOINS])
    ratios["best_peer"] = _least([ratios[name] for name in ratios if name != "best_join"])
    return results + [_figure(place, f"vs_{name}", ratio, "x") for name, ratio in ratios.items()]


def _time_of(effort: MatchEffort, peer: Peer, workload: Workload, index: TreeIndex, counts: Counts) -> float:
    """Seconds that the peer takes for an event; its matches must be as many as ours."""
    peer.build(workload)
    # joins gain by larger batches, and get the time for them; the others take as long for each event
    measured = pace(peer, workload, effort.budget / (1 if peer.name in JOINS else 4), BATCH)
    holds = peer.subscriptions()
    if holds == len(workload):
        expected = int(counts[: measured.events].sum())
    else:
        batches = workload.batches(BATCH)[: -(-measured.events // BATCH)]
        found = [index.match_batch(batch.slice(0, measured.events - BATCH * at)) for at, batch in enumerate(batches)]
        expected = sum(int((each.ids < holds).sum()) for each in found)
    assert measured.matches == expected, (
        f"{peer.name} found {measured.matches} matches of {measured.events} events of {workload.name}, Weft {expected}"
    )
    plan = peer.plan(workload.table.slice(0, measured.batch))
    if plan:
        lines = "".join(f"\n    {line[:150]}" for line in plan.splitlines())
        what = f"{measured.events:,} events in batches of {measured.batch:,}"
        effort.note(f"{peer.name} on {workload.name} with {len(workload):,} subscriptions, {what}:{lines}")
    return measured.seconds


def _least(ratios: list[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known) if len(known) == len(ratios) else None


# -- one event, two threads, changes -----------------------------------------------------------------


def _against_shapes(effort: MatchEffort, workload: Workload, counts: Counts) -> Result:
    """The time of an event with the shape that a user gets, in parts of the best of a grid within the memory budget."""
    times: dict[TreeShape, float] = {}
    few = list(workload.batches(BATCH))[: 2 if effort.quick else None]
    for shape in (DEFAULT, *(TreeShape(leaf, alpha) for leaf in (64, 128, 256) for alpha in (1.0, 2.0, 4.0))):
        effort.progress(f"{workload.name}: leaves of {shape.leaf}, cells of {shape.alpha:g} ranges")
        index = TreeIndex(shape=shape, budget=math.inf)
        index.add_columns(np.arange(len(workload)), workload.bounds)
        _with_ids(index, workload.table.slice(0, 3))
        seconds, found = _first_pass(index, few)
        assert (found == counts[: len(found)]).all(), "every shape must find the same"
        if shape == DEFAULT or index.stats().bytes_per_subscription <= MEMORY:
            times[shape] = min(seconds, times.get(shape, math.inf))
    return _figure(
        f"{workload.name}/{len(workload)}", "vs_best_shape", times[DEFAULT] / min(times.values()), "x slower"
    )


def _single(index: TreeIndex, workload: Workload, counts: Counts) -> Result:
    """Events one by one, as a program has them: mappings."""
    events = workload.table.slice(0, 2_000).to_pylist()
    seconds, found = timed(lambda: [index.match(event) for event in events])
    assert [len(ids) for ids in found] == counts[: len(events)].tolist(), "one by one must be as in a batch"
    return _figure(f"{workload.name}/{len(workload)}", "single_match_us", 1e6 * seconds / len(events), "us")


def _ids(index: TreeIndex, workload: Workload) -> list[Result]:
    """What it costs more to have ids that are strings."""
    named, place = with_ids(workload), f"{workload.name}/{len(workload)}"
    events, batches = workload.table.slice(0, 2_000).to_pylist(), list(workload.batches(BATCH))
    return [
        _figure(place, "index_single_more_us", 1e6 * more_for_one(named, index, events), "us"),
        _figure(place, "index_batch_vs_tree", times_of_batches(named, index, batches), "x slower"),
    ]


def _two_threads(index: TreeIndex, workload: Workload) -> Result:
    """All events on one thread, and on two, in batches that are small enough for the halves to be equal; the median of
    five turns.
    """
    batches = workload.batches(1_000)

    def count(some: Sequence[pa.RecordBatch]) -> int:
        return sum(len(index.match_batch(batch).ids) for batch in some)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(count, [batches[:1]] * 4))  # they have started
        ratios = []
        for _ in range(5):
            alone, expected = timed(lambda: count(batches))
            together, found = timed(lambda: sum(threads.map(count, [batches[::2], batches[1::2]])))
            assert found == expected, "threads must find what one thread finds"
            ratios.append(alone / together)
    return _figure(f"{workload.name}/{len(workload)}", "two_threads", median(ratios), "x")


def _updates(effort: MatchEffort, index: TreeIndex, workload: Workload) -> list[Result]:
    """Additions and removals one at a time; then both in turn with matches, whose slowest are told."""
    size, place = len(workload), f"{workload.name}/{len(workload)}"
    effort.progress(f"changes of {workload.name} with {size:,} subscriptions")
    many = min(size // 2, 5_000 if effort.quick else 20_000)
    later = WORKLOADS[workload.name](2 * many, 0, seed=2)
    filters = parse_many(later.texts())
    old = np.random.default_rng(3).permutation(size)[: 2 * many].tolist()

    def add() -> None:
        for sub in range(many):
            index.add(size + sub, filters[sub])

    def discard() -> None:
        for sub in old[:many]:
            index.discard(sub)

    add_seconds, _ = timed(add)
    discard_seconds, _ = timed(discard)
    events, times = workload.table.slice(0, many).to_pylist(), []
    for turn in range(many, 2 * many):
        index.add(size + turn, filters[turn])
        index.discard(old[turn])
        start = perf_counter()
        index.match(events[turn % len(events)])
        times.append(perf_counter() - start)
    _check_changed(index, workload, later, old)
    return [
        _figure(place, "add_per_s", many / add_seconds, "filters/s"),
        _figure(place, "discard_per_s", many / discard_seconds, "filters/s"),
        _figure(place, "match_p99_ms", 1e3 * float(np.quantile(times, 0.99)), "ms"),
        _figure(place, "match_max_ms", 1e3 * max(times), "ms"),
    ]


def _check_changed(index: TreeIndex, workload: Workload, later: Workload, gone: list[int]) -> None:
    """A scan of what should be there now finds as many."""
    rows = np.ones((len(workload) + len(later), 20), bool)
    events = workload.table.slice(0, 20)
    for name, column in workload.bounds.items():
        low, high = (np.concatenate(pair)[:, None] for pair in zip(column, later.bounds[name], strict=True))
        values = events.column(name).to_numpy()
        rows[:, : len(values)] &= (low <= values) & (values <= high)
    rows[gone] = False
    found = index.count_batch(events)
    assert (found == rows.sum(axis=0)[: len(found)]).all(), "changes must be seen"


# -- growth, odd filters, the first match ------------------------------------------------------------


def _growth(effort: MatchEffort, known: dict[str, float], sizes: Sequence[int]) -> list[Result]:
    """The time of an event of W1 as the subscriptions grow, in parts of what linear growth would be."""
    times = {size: known[f"W1/{size}/us_per_event"] for size in sizes}
    results = []
    for size in (LARGEST,) if len(sizes) > 1 else (max(sizes[0] // 10, 1),):
        workload = effort.workload("W1", size)
        seconds, counts = _first_pass(_indexed(workload), workload.batches(BATCH))
        times[size] = 1e6 * seconds / len(counts)
        results.append(_figure(f"W1/{size}", "us_per_event", times[size], "us"))
    first = min(times)
    for size in sorted(times.keys() - {first}):
        share = times[size] / times[first] / (size / first)
        results.append(_figure(f"W1/{size}", "growth", share, "of linear"))
    return results


def _mixed(effort: MatchEffort, size: int) -> list[Result]:
    """W3 with a tenth of odd filters, against W3 without; the same events."""
    effort.progress(f"odd filters among {size:,}")
    market = mixed(size, min(20_000, max(size, 1_000)))
    batches = [market.table.slice(at, BATCH) for at in range(0, market.table.num_rows, BATCH)]
    seconds = {}
    for texts in (market.plain[:200], market.texts[:200], market.plain, market.texts):  # small ones first: they compile
        index = TreeIndex()
        build_seconds, _ = timed(partial(index.add_texts, np.arange(len(texts)), texts))
        _with_ids(index, market.table.slice(0, 3))
        seconds[id(texts)], _ = _first_pass(index, batches)
    some = market.table.slice(0, 5)
    odd = np.arange(9, size, 10)
    filters = parse_many([market.texts[row] for row in odd])
    for event, found in zip(some.to_pylist(), index.match_batch(some), strict=True):
        wanted = {int(row) for row, each in zip(odd, filters, strict=True) if matches(each, event)}
        assert wanted == set(found.tolist()) & set(odd.tolist()), "odd filters must match as their meaning says"
    slowdown = seconds[id(market.texts)] / seconds[id(market.plain)]
    return [
        _figure(f"mixed/{size}", "slowdown", slowdown, "x slower"),
        _figure(f"mixed/{size}", "us_per_event", 1e6 * seconds[id(market.texts)] / market.table.num_rows, "us"),
        _figure(f"mixed/{size}", "build_per_s", size / build_seconds, "texts/s"),
    ]


def _first_match(effort: MatchEffort) -> Result:
    """A fresh process, from its start to its end; what it compiles is in the cache from the runs before.

    So is Python's bytecode, as it is for what pip installs, even where this process may write none.
    """
    effort.progress("the first match of a fresh process")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="weft-bytecode-") as cache:
        environment["PYTHONPYCACHEPREFIX"] = cache
        times = [
            timed(lambda: subprocess.run([sys.executable, "-c", _FIRST], check=True, env=environment))[0]
            for _ in range(2 if effort.quick else 6)
        ]
    return _figure("start/1", "first_match", 1e3 * median(times[1:]), "ms")
