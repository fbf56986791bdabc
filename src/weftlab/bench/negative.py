"""Subsumption by negative space against pairwise covering (negative space, section 5).

Subscriptions as the paper draws them: in 2 to 5 dimensions of [0, 1000], lower ends Zipf, sizes uniform in the rest.
The peer is the index of the covering order, asked for an earlier subscription that covers the new one. What it finds,
and what a limit of k = 50 finds, must be among what exact subsumption finds; both are without the bound on boxes that
a space has by default, which is the third kind, "bound". Times are of first passes over fresh subscriptions given as
boxes, after one small call that loads the compiled code.
"""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np

from weft.algebra.box import Box
from weft.algebra.spans import ColumnPart, Span
from weft.algebra.valueset import ValueSet
from weft.kernels.boxes import BOUNDED
from weft.model.schema import Schema
from weft.order.cover_index import CoverIndex
from weft.routing.negative.structure import MOST_BOXES, Limit, NegativeSpace
from weft.routing.negative.tiles import SplitChoice, SplitOrder
from weft.workloads.base import zipf
from weftlab.bench.report import Result, timed

TOP = 1000
K = 50
_MINUTES, _MEGABYTES = 15, 4096  # for 10,000 subscriptions in 4 dimensions, exact
_FIVE = 5
_MIXED, _BUDGET = 400, 64


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    size = size or (2_000 if quick else 10_000)
    _warm()
    results: list[Result] = []
    for dims in (2, 3, 4, 5):
        share = 4 if quick and dims == _FIVE else 1  # exact, 5 dimensions are a million boxes and more
        results += _growth(dims, size // share, progress)
    results += _orders(size // 4 if quick else size, progress)
    results += _limits(size // 2 if quick else size, progress)
    results += _leaving(size // 4, progress)
    results += _mixed(min(size, _MIXED), progress)
    results += _stepping(10 * size, progress)
    return results


def _growth(dims: int, size: int, progress: Callable[[str], None]) -> list[Result]:
    """Boxes by the number of subscriptions (tables 1 and 2), and what is found redundant (figures 10 and 11)."""
    boxes, name = _boxes(dims, size), f"{dims}d/{size}"
    progress(f"{dims} dimensions, {size:,} subscriptions: pairwise covering")
    covered_seconds, covered = timed(lambda: _covered(boxes))
    results, exact, seconds = [], set[int](), 0.0
    for kind, limit, most in (("exact", None, None), ("bound", None, MOST_BOXES), (f"k{K}", Limit(K), None)):
        progress(f"{dims} dimensions, {size:,} subscriptions: {kind}")
        space = NegativeSpace[int](_schema(dims), limit, most_boxes=most)
        counts, seconds = _filled(space, boxes)
        found = set(space.passive)
        exact = exact or found
        assert found <= exact, "only what is subsumed is found"
        assert covered <= found, "what one covers, all together do"
        results += [Result(f"{dims}d/{at}/{kind}_boxes", count, "boxes") for at, count in counts.items()]
        goal = 95.0 if (dims, kind, size) == (2, "exact", 10_000) else None
        results.append(Result(f"{name}/{kind}_redundant", 100 * len(found) / size, "%", goal))
        results.append(Result(f"{name}/{kind}_vs_covering", len(found) / max(1, len(covered)), "x found", 1.0))
        results.append(Result(f"{name}/{kind}_dearer", seconds / covered_seconds, "x time"))
        results.append(Result(f"{name}/{kind}_megabytes", space.nbytes / 1e6, "MB"))
        rated = dims == 4  # the dimensions that goals speak of
        if kind == "exact":
            minutes = seconds / 60
            results.append(Result(f"{name}/exact_minutes", minutes, "min", _MINUTES if rated else None, "lower"))
            memory = _process_megabytes()
            results.append(Result(f"{name}/process_peak", memory, "MB", _MEGABYTES if rated else None, "lower"))
        elif kind != "bound":
            results.append(Result(f"{name}/{kind}_rate", size / seconds, "subscriptions/s", 2_000 if rated else None))
    results.append(Result(f"{name}/covering_redundant", 100 * len(covered) / size, "%"))
    return results


def _orders(size: int, progress: Callable[[str], None]) -> list[Result]:
    """Boxes that the order of splitting and coalescing save (section 7), exact, in 3 dimensions."""
    boxes, counts, results = _boxes(3, size), {}, []
    for order in SplitOrder:
        progress(f"split order: {order.name.lower()}")
        space = NegativeSpace[int](_schema(3), most_boxes=None, order=order)
        _filled(space, boxes)
        counts[order] = space.boxes
        results.append(Result(f"order-{order.name.lower()}/{size}/boxes", space.boxes, "boxes"))
        seconds, saved = timed(lambda space=space: space.coalesce(sys.maxsize))  # type: ignore[misc]
        results.append(Result(f"order-{order.name.lower()}/{size}/coalesced", 100 * saved / counts[order], "% fewer"))
        results.append(Result(f"order-{order.name.lower()}/{size}/coalescing", seconds, "s"))
    least = counts[SplitOrder.MOST_OUTSIDE] / counts[SplitOrder.GIVEN]
    results.append(Result(f"order/{size}/saved", 100 * (1 - least), "% fewer", 0.0))
    return results


def _limits(size: int, progress: Callable[[str], None]) -> list[Result]:
    """The effect of k (figures 12 and 13) and of the selection function (14 and 15), in 3 dimensions."""
    boxes, results = _boxes(3, size), []
    limits = {f"k{k}": Limit(k) for k in (10, 50, 100)}
    limits |= {"dynamic10": Limit(10, dynamic=True)}
    limits |= {
        f"k10-{choice.name.lower()}": Limit(10, choice=choice) for choice in (SplitChoice.BENEFIT, SplitChoice.COST)
    }
    for name, limit in limits.items():
        progress(f"limits: {name}")
        space = NegativeSpace[int](_schema(3), limit)
        _, seconds = _filled(space, boxes)
        results.append(Result(f"limit-{name}/{size}/redundant", 100 * len(space.passive) / size, "%"))
        results.append(Result(f"limit-{name}/{size}/boxes", space.boxes, "boxes"))
        results.append(Result(f"limit-{name}/{size}/rate", size / seconds, "subscriptions/s"))
    return results


def _leaving(size: int, progress: Callable[[str], None]) -> list[Result]:
    """Unsubscription of a tenth of the subscriptions, active ones and passive ones, and a rebuild, in 3 dimensions."""
    boxes, results = _boxes(3, size), []
    for kind, limit in (("exact", None), (f"k{K}", Limit(K))):
        progress(f"unsubscription: {kind}")
        space = NegativeSpace[int](_schema(3), limit)
        _filled(space, boxes)
        gone = range(0, size, 10)
        seconds, _ = timed(lambda space=space, gone=gone: [space.discard(key) for key in gone])  # type: ignore[misc]
        active = len(space.active)
        results.append(Result(f"leave-{kind}/{size}/us", 1e6 * seconds / len(gone), "us"))
        seconds, change = timed(space.rebuild)
        results.append(Result(f"rebuild-{kind}/{size}/seconds", seconds, "s"))
        fewer = 100 * (len(change.drop) - len(change.add)) / active
        results.append(Result(f"rebuild-{kind}/{size}/active", fewer, "% fewer", 0.0))
    return results


def _mixed(size: int, progress: Callable[[str], None]) -> list[Result]:
    """Subscriptions on one to four of eight attributes, ranges and half-lines, in a space with its bound."""
    progress(f"mixed: {size} subscriptions on 8 attributes")
    rng, space = np.random.default_rng(8), NegativeSpace[int]()
    boxes = []
    for _ in range(size):
        names = rng.choice(8, int(rng.integers(1, 5)), replace=False)
        lows = rng.random(len(names)) * TOP
        cuts = [((low, 0), (low + rng.random() * TOP / 2, 1))[: int(rng.integers(1, 3))] for low in lows.tolist()]
        boxes.append(Box({f"a{name}": ValueSet(numbers=line) for name, line in zip(names, cuts, strict=True)}))
    _, seconds = _filled(space, boxes)
    return [
        Result(f"mixed/{size}/boxes", space.boxes, "boxes", MOST_BOXES, "lower"),
        Result(f"mixed/{size}/megabytes", space.nbytes / 1e6, "MB", 100, "lower"),
        Result(f"mixed/{size}/seconds", seconds, "s"),
        Result(f"mixed/{size}/redundant", 100 * len(space.passive) / size, "%"),
    ]


def _stepping(size: int, progress: Callable[[str], None]) -> list[Result]:
    """The removal of one that covers all others, in steps, in 2 dimensions; CPU time, and no garbage collection."""
    progress(f"steps: one around {size:,} others")
    space = NegativeSpace[int](_schema(2), Limit(K))
    space.add(-1, Box({f"a{n}": ValueSet(numbers=((0.0, 0), (2.0 * TOP, 1))) for n in range(2)}))
    rng = np.random.default_rng(2)
    low = rng.random((size, 2)) * TOP
    high = low + rng.random((size, 2)) * TOP / 20
    for key, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        space.add(key, Box({f"a{n}": ValueSet(numbers=((a[n], 0), (b[n], 1))) for n in range(2)}))
    gc.collect()
    gc.disable()
    start = process_time()
    space.discard(-1)
    longest = total = process_time() - start
    while space.pending:
        start = process_time()
        space.step(_BUDGET)
        spent = process_time() - start
        longest, total = max(longest, spent), total + spent
    gc.enable()
    return [
        Result(f"steps/{size}/longest", 1e3 * longest, "ms", 20, "lower"),
        Result(f"steps/{size}/all", total, "s"),
    ]


def _filled(space: NegativeSpace[int], boxes: list[Box]) -> tuple[dict[int, int], float]:
    """Subscribe all, one by one; the number of negative boxes after each fifth, and the seconds."""
    counts, fifth = {}, max(1, len(boxes) // 5)
    start = perf_counter()
    for key, box in enumerate(boxes):
        space.add(key, box)
        if (key + 1) % fifth == 0:
            counts[key + 1] = space.boxes
    return counts, perf_counter() - start


def _covered(boxes: list[Box]) -> set[int]:
    """The subscriptions that one earlier subscription covers."""
    index, found = CoverIndex(), set()
    for key, box in enumerate(boxes):
        spans = [_span(name, values) for name, values in box.sets.items()]
        if index.around(spans, exact=True):
            found.add(key)
        else:
            index.add(spans, exact=True)
    return found


def _span(name: str, values: ValueSet) -> Span:
    (low, _), (high, _) = values.numbers
    return (name, ColumnPart.NUMBERS), low, high, BOUNDED


def _boxes(dims: int, size: int) -> list[Box]:
    """The paper's recipe: lower ends Zipf over [0, 1000], sizes uniform up to what is left."""
    rng = np.random.default_rng(dims)
    low = np.stack([zipf(rng, TOP + 1, size) for _ in range(dims)], axis=1).astype(np.float64)
    high = low + rng.random((size, dims)) * (TOP - low)
    return [
        Box({f"a{n}": ValueSet(numbers=((a[n], 0), (b[n], 1))) for n in range(dims)})
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def _schema(dims: int) -> Schema:
    names = [f"a{number}" for number in range(dims)]
    return Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, TOP]} for name in names}})


def _warm() -> None:
    for limit in (None, Limit(1)):
        space = NegativeSpace[int](_schema(2), limit)
        _filled(space, _boxes(2, 10))
        space.discard(0)
        space.coalesce(10)
    _covered(_boxes(4, 1_000))  # enough for a tree


def _process_megabytes() -> float:
    """The most that this process ever had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024
