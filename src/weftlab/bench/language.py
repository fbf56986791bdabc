"""Rates of the filter language and its algebra: parsing, normal forms, covering.

Filters have two or three predicates. Each fast way is checked to give what the plain way gives, in the same run, and
its ratio to it is reported. All times are of first passes, whatever was compiled or cached along the way included.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median

import numpy as np

from weft.algebra.box import Box
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.language.grammar import parse_text
from weft.language.predicate import NO_PREDICATES
from weft.language.text import parse_many
from weftlab.bench.report import Result, timed

_FIRST = "import weft; weft.matches(weft.parse('magnitude >= 5 AND depth < 70'), {'magnitude': 6, 'depth': 9})"


def run(quick: bool, progress: Callable[[str], None], size: int | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    size = size or (20_000 if quick else 200_000)
    results: list[Result] = []
    texts = repeated_shapes(size)
    progress("new shapes")
    fresh = new_shapes(max(size // 20, 10))
    seconds, parsed = timed(lambda: parse_many(fresh))
    results.append(Result(f"parse/{len(fresh)}/new_shapes", len(fresh) / seconds, "filters/s", 5_000))
    assert [str(tree) for tree in parsed] == fresh, "a parsed filter must have its own text"

    progress("repeated shapes into filters")
    sample = texts[: max(size // 20, 10)]
    plain_seconds, plain = timed(lambda: [parse_text(text, NO_PREDICATES).tree for text in sample])
    seconds, filters = timed(lambda: parse_many(texts))
    rate, plain_rate = len(texts) / seconds, len(sample) / plain_seconds
    assert filters[: len(sample)] == plain, "a cached shape must not change a tree"
    results.append(Result(f"parse/{size}/repeated_shapes", rate, "filters/s", 50_000))
    results.append(Result(f"parse/{size}/vs_grammar", rate / plain_rate, "x"))

    progress("repeated shapes into box columns")
    plain_seconds, boxes = timed(lambda: [normalize(tree).boxes[0] for tree in filters[: len(sample)]])
    seconds, columns = timed(lambda: columns_of_texts(texts))
    assert len(columns) == size, "every filter must be one box"
    assert [columns.box(row) for row in range(0, len(sample), 7)] == boxes[::7], "columns must hold the boxes"
    results.append(Result(f"columns/{size}/repeated_shapes", size / seconds, "filters/s", 100_000))
    one_by_one = 1 / (1 / plain_rate + plain_seconds / len(sample))
    results.append(Result(f"columns/{size}/vs_one_by_one", size / seconds / one_by_one, "x"))

    progress("covering")
    results += _covering(columns, boxes)
    progress("first filter of a fresh process")
    times = [
        timed(lambda: subprocess.run([sys.executable, "-c", _FIRST], check=True))[0] for _ in range(3 if quick else 9)
    ]
    results.append(Result("start/1/first_filter", 1000 * median(times), "ms", 300, "lower"))
    return results


def _covering(columns: BoxColumns, boxes: list[Box]) -> list[Result]:
    """Covering between objects, pair by pair, and of one box against all columns."""
    wide = boxes[:20]
    hosts = [Box({name: values.hull() for name, values in box.sets.items() if name != "volume"}) for box in wide]
    pairs = [(a, b) for a in (*wide, *hosts) for b in boxes]
    seconds, answers = timed(lambda: [a.covers(b) for a, b in pairs])
    rate = len(pairs) / seconds
    narrower = [(box, box) for box in boxes for _ in range(10)]
    yes_seconds, yes = timed(lambda: [a.covers(b) for a, b in narrower])
    assert all(yes), "a box covers itself"
    asked = (*wide, *hosts)
    batch_seconds, masks = timed(lambda: [columns.covered_by(box) for box in asked])
    ours = np.concatenate([mask[: len(boxes)] for mask in masks]).tolist()
    assert ours == answers, "columns must answer as boxes do"
    batch = len(asked) * len(columns) / batch_seconds
    size = len(columns)
    return [
        Result(f"covers/{len(pairs)}/objects", rate, "pairs/s", 200_000),
        Result(f"covers/{len(narrower)}/objects_all_true", len(narrower) / yes_seconds, "pairs/s", 200_000),
        Result(f"covers/{size}/batch", batch, "pairs/s", 20_000_000),
        Result(f"covers/{size}/batch_vs_objects", batch / rate, "x"),
    ]


def repeated_shapes(size: int) -> list[str]:
    """Filters of a few shapes with many constants, as subscribers of market, sensor and quake data write them."""
    rng = np.random.default_rng(1)
    symbols = rng.integers(0, 1000, size)
    prices = rng.uniform(0, 500, size).round(2)
    counts = rng.integers(0, 50_000, size)
    makers: list[Callable[[int], str]] = [
        lambda n: f"symbol = 'S{symbols[n]}' AND price > {prices[n]} AND volume >= {counts[n]}",
        lambda n: f"price BETWEEN {prices[n]} AND {prices[n] + 25:.2f} AND symbol = 'S{symbols[n]}'",
        lambda n: f"magnitude >= {prices[n] / 100:.1f} AND depth < {counts[n]}",
        lambda n: (
            f"time > TIMESTAMP '2018-02-0{1 + n % 7}T{n % 24:02}:{n % 59:02}:00Z' "
            f"AND latitude > -{prices[n]} AND latitude <= {prices[n]}"
        ),
    ]
    return [makers[n % 4](n) for n in range(size)]


def new_shapes(size: int) -> list[str]:
    """Filters that all have different attributes, so that no shape comes twice."""
    return [f"a{n} >= {n % 97} AND b{n} < {n % 89}.5 AND kind{n} = 'K{n}'" for n in range(size)]
