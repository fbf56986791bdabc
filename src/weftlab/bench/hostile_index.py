"""The cost of hostile input to an index, in processor time and bytes: one function for each row of the table.

Each returns a dictionary of figures and takes one size, so that growth shows over three of them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft.algebra.normalize import normalize
from weft.errors import FilterError
from weft.index import TreeIndex
from weft.language.text import parse
from weft.model.value import Value
from weftlab.bench.short_pauses import short_pauses
from weftlab.bench.traced_memory import TracedMemory

Figures = dict[str, float]


def strings_remembered(events: int, length: int = 1_000_000) -> Figures:
    """Match distinct long strings against `s = 'zz'`: what the index keeps of them, in bytes an event."""
    index = TreeIndex(tail=0)
    index.add_texts([1], ["s = 'zz'"])
    index.match({"s": "warm"})
    with TracedMemory() as traced:
        for n in range(events):
            index.match({"s": f"{n:08}" + "y" * length})
    return {"bytes_an_event": traced.kept / events}


def long_list(values: int) -> Figures:
    """Add `x IN (9007199254740993, 0, 2, ...)`, already in normal form: seconds, and bytes that stay."""
    return _added(f"x IN (9007199254740993, {', '.join(str(2 * n) for n in range(values))})")


def wide_conjunction(attributes: int) -> Figures:
    """Add a conjunction over many attributes."""
    return _added(" AND ".join(f"a{n}>=0" for n in range(attributes)))


def many_boxes(boxes: int) -> Figures:
    """Add a disjunction over many attributes, of conjunctions that multiply out to rows."""
    part = "(a{0} IN (1, 3) AND b{0} IN (1, 3) AND c{0} IN (1, 3) AND d{0} IN (1, 3) AND e{0} IN (1, 3))"
    return _added(" OR ".join(part.format(n) for n in range(boxes)))


def many_patterns(pairs: int) -> Figures:
    """Add pairs of contains patterns, which multiply out, with a long one; store, open and show it."""
    text = (
        " AND ".join(f"(s LIKE '%a{n}%' OR s LIKE '%b{n}%')" for n in range(pairs)) + f" AND s LIKE '%{'c' * 3_000}%'"
    )
    return _added(text)


def _added(text: str) -> Figures:
    """The cost of adding a filter that is in normal form, and of storing, opening and showing it."""
    form = normalize(parse(text))
    _index_of(form)
    with TracedMemory() as traced:
        index = _index_of(form)
    with tempfile.TemporaryDirectory() as folder:
        snapshot, opened = Path(folder, "index"), list[TreeIndex]()
        return {
            "add_s": _seconds(lambda: _index_of(form)),
            "bytes": float(traced.kept),
            "snapshot_s": _seconds(lambda: index.snapshot(snapshot)),
            "open_s": _seconds(lambda: opened.append(TreeIndex.open(snapshot))),
            "filter_s": _seconds(lambda: opened[0].filter(1)),
        }


def _index_of(form: Any) -> TreeIndex:
    index = TreeIndex(tail=0)
    index.add_forms([1], [form])
    return index


def churn(subscriptions: int, changes: int = 4_000, seed: int = 1) -> Figures:
    """Add and discard one by one in an index of a given size: milliseconds of the thread, the worst and the mean.

    Garbage is collected as in a broker: in any other process, an addition may also meet a full collection of Python's.
    """
    rng = np.random.default_rng(seed)
    index = TreeIndex()
    index.add_texts(range(subscriptions), [_text(rng) for _ in range(subscriptions)])
    events: list[dict[str, Value | None]] = [
        {"x": float(rng.uniform(0, 1000)), "y": float(rng.uniform(0, 1000)), "s": f"w{rng.integers(2000)}"}
        for _ in range(50)
    ]
    adds, matches = [], []
    with short_pauses():
        for turn in range(changes):
            text = _text(rng)
            start = time.thread_time()
            index.add(subscriptions + turn, text)
            adds.append(time.thread_time() - start)
            index.discard(int(rng.integers(subscriptions + turn)))
            if turn % 10 == 0:
                start = time.thread_time()
                index.match(events[turn // 10 % len(events)])
                matches.append(time.thread_time() - start)
        index.settle()
    return {
        "add_mean_ms": 1e3 * float(np.mean(adds)),
        "add_p99_ms": 1e3 * float(np.percentile(adds, 99)),
        "add_max_ms": 1e3 * max(adds),
        "match_p99_ms": 1e3 * float(np.percentile(matches, 99)),
        "segments": index.stats().segments,
    }


def _text(rng: np.random.Generator) -> str:
    low = rng.uniform(0, 1000)
    kinds = [
        f"x BETWEEN {low:.3f} AND {low + 20:.3f} AND y >= {rng.uniform(0, 1000):.3f}",
        f"s = 'w{rng.integers(2000)}' AND x < {low:.3f}",
        f"s IN ('w{rng.integers(2000)}', 'w{rng.integers(2000)}') AND y > {low:.3f}",
        f"y BETWEEN {low:.3f} AND {low + 5:.3f} AND (x > {low:.3f} OR s LIKE '%q{rng.integers(99)}')",
    ]
    return kinds[rng.integers(len(kinds))]


def opening(subscriptions: int) -> Figures:
    """Open a snapshot of a given size: seconds with every filter checked, and with arrays and tree only."""
    rng = np.random.default_rng(1)
    index = TreeIndex()
    index.add_texts(range(subscriptions), [_text(rng) for _ in range(subscriptions)])
    folder = Path(tempfile.mkdtemp(prefix="weft-hostile-"))
    try:
        index.snapshot(folder / "index")
        TreeIndex.open(folder / "index", verify=False)
        return {
            "verified_s": _seconds(lambda: TreeIndex.open(folder / "index")),
            "arrays_only_s": _seconds(lambda: TreeIndex.open(folder / "index", verify=False)),
        }
    finally:
        shutil.rmtree(folder)


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    with suppress(FilterError):  # refused: that is an answer, and must be as quick
        work()
    return time.process_time() - start


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What is measured at three sizes; `before` has what figures were before there were limits, where it is known."""

    name: str
    work: Callable[[int], Figures]
    sizes: tuple[int, int, int]
    quick: tuple[int, int, int]
    goals: dict[str, float] = field(default_factory=dict)
    before: dict[str, dict[int, float]] = field(default_factory=dict)


UNITS = {
    "bytes_an_event": "bytes",
    "add_s": "s",
    "bytes": "bytes",
    "snapshot_s": "s",
    "open_s": "s",
    "filter_s": "s",
    "add_mean_ms": "ms",
    "add_p99_ms": "ms",
    "add_max_ms": "ms",
    "match_p99_ms": "ms",
    "segments": "",
    "verified_s": "s",
    "arrays_only_s": "s",
}

INDEX_ROWS = (
    IndexRow(
        "index_strings",
        strings_remembered,
        (10, 20, 40),
        (2, 4, 8),
        {"bytes_an_event": 1_000.0},
        {"bytes_an_event": {40: 1e6}},
    ),
    IndexRow(
        "index_list",
        long_list,
        (1_000, 2_000, 4_000),
        (100, 200, 400),
        {"add_s": 0.05},
        {"add_s": {2_000: 1.4, 4_000: 25.0}},
    ),
    IndexRow("index_attributes", wide_conjunction, (128, 256, 512), (50, 100, 200), {"add_s": 0.05}),
    IndexRow("index_boxes", many_boxes, (25, 50, 100), (5, 10, 20), {"add_s": 0.05}),
    IndexRow("index_patterns", many_patterns, (2, 3, 4), (2, 3, 4), {"add_s": 0.05}),
    IndexRow(
        "index_churn",
        churn,
        (10_000, 30_000, 100_000),
        (500, 1_000, 2_000),
        {"add_max_ms": 20.0, "match_p99_ms": 5.0},
        {"add_max_ms": {100_000: 950.0}},
    ),
    IndexRow("index_opening", opening, (5_000, 10_000, 20_000), (500, 1_000, 2_000)),
)
