"""Label sets: insertion, deletion, matching, what is forwarded, false positives, losses and memory (DLS, section 6).

As in the paper, d=2, 3, 4 attributes have 128, 32, 16 granules, and a subscription of the tables on scalability is one
label (errata, DLS 8). "zipf" draws each attribute by itself; "tied" draws one granule for all attributes, which is what
Table 4 seems to have done: it forwards just as many labels as an attribute has granules. Times by n are medians over
batches of fresh labels, each passed once, after one small call that loads the compiled code: a batch takes less than a
millisecond, so an interruption of the process would be most of a single one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.kernels.arrays import Ints
from weft.model.schema import Schema
from weft.routing.dls.incoming import HeardLabels
from weft.routing.dls.labels import LabelCode
from weft.routing.dls.space import PARTS, LabelSpace
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts
from weft.space.grid import Grid
from weft.workloads.base import zipf
from weftlab.bench import dls_granules, dls_printed
from weftlab.bench.report import Progress, Result, timed

GRANULES = {2: 128, 3: 32, 4: 16}
DRAWS = ("uniform", "zipf", "tied")
FORWARDED = {  # Tables 3 and 4, for 100 000 to 500 000 subscriptions
    ("uniform", 2): (16345, 16378, 16376, 16374, 16378),
    ("uniform", 3): (31206, 32697, 32756, 32762, 32760),
    ("uniform", 4): (51217, 62461, 64832, 65394, 65493),
    ("tied", 2): (128, 128, 128, 127, 129),
    ("tied", 3): (32, 32, 33, 32, 32),
    ("tied", 4): (16, 16, 17, 16, 16),
}
_TOP = 1 << 20  # values of an attribute, where granules vary
_BATCH = 10_000
_BATCHES = 9


def run(quick: bool, progress: Progress, sizes: tuple[int, ...] | None = None) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    sizes = sizes or ((100_000, 1_000_000) if quick else (100_000, 200_000, 300_000, 400_000, 500_000, 1_000_000))
    results: list[Result] = []
    for draw in DRAWS:
        for dims in GRANULES:
            results += _growth(draw, dims, sizes, progress)
    results += _boxes(min(sizes), progress)
    results += _events(min(sizes), progress)
    results += dls_granules.run(min(sizes[0], 8_000), 3 if quick else 9, progress)
    results += dls_printed.run(min(sizes) // 50, 2 if quick else 5, progress)
    few = 2_000 if quick else 20_000
    for draw in ("uniform", "zipf"):
        results += _filter_sizes(draw, few, progress)
        results += _granules(draw, few, progress)
    return results


def _growth(draw: str, dims: int, sizes: tuple[int, ...], progress: Progress) -> list[Result]:
    """One-label subscriptions by n: exact counts decide, a filter is looked up (Tables 1 to 6, Figure 6)."""
    results, inserting, matching = [], [], []
    granules = GRANULES[dims]
    code = LabelCode((granules,) * dims, PARTS)
    rng = np.random.default_rng(dims)
    fresh, asked = ([_cells(draw, dims, granules, _BATCH, rng) for _ in range(_BATCHES)] for _ in range(2))
    needs, filter_ = LabelCounts(), CountingFilter(FilterShape(64))
    _insert(code, needs, filter_, fresh[0][:2])
    _delete(code, needs, filter_, fresh[0][:2])
    for size in sizes:
        progress(f"{size:,} subscriptions: {draw}, {dims} attributes")
        needs, filter_ = LabelCounts(), CountingFilter(FilterShape.fitting(min(size, code.ranges)))
        _insert(code, needs, filter_, _cells(draw, dims, granules, size, np.random.default_rng(size)))
        before = needs.labels()
        name = f"{draw}-{dims}d-{size}"
        insert, _ = _paced(partial(_insert, code, needs, filter_), fresh)
        match, found = _paced(partial(_asked, code, filter_), asked)
        exact, truth = _paced(partial(_asked, code, needs), asked)
        assert not (np.concatenate(truth) & ~np.concatenate(found)).any(), "a filter must find what is there"
        delete, _ = _paced(partial(_delete, code, needs, filter_), fresh)
        assert np.array_equal(needs.labels(), before), "taking back must undo"
        inserting.append(insert)
        matching.append(match)
        paper = FORWARDED.get((draw, dims))
        at = size // 100_000 - 1
        results += [
            Result(f"insert/{name}/us", inserting[-1], "us", 1.0, "lower"),
            Result(f"delete/{name}/us", delete, "us"),
            Result(f"match/{name}/us", matching[-1], "us", 1.0, "lower"),
            Result(f"match/{name}/exact_us", exact, "us", 1.0, "lower"),
            Result(f"forwarded/{name}/labels", len(before), "labels"),
        ]
        if paper and size == (at + 1) * 100_000 and at < len(paper):
            off = 100 * abs(len(before) - paper[at]) / paper[at]
            results.append(Result(f"forwarded/{name}/off_paper", off, "%", 1.0, "lower"))
        results += [
            Result(f"memory/{name}/exact", needs.nbytes / 1024, "KiB"),
            Result(f"memory/{name}/filter", filter_.nbytes / 1024, "KiB"),
        ]
    results.append(Result(f"insert/{draw}-{dims}d/growth", inserting[-1] / inserting[0], "x", 2.0, "lower"))
    results.append(Result(f"match/{draw}-{dims}d/growth", matching[-1] / matching[0], "x", 2.0, "lower"))
    return results


def _boxes(size: int, progress: Progress) -> list[Result]:
    """Subscriptions of several labels: from boxes of cells to counted labels, by the label."""
    results = []
    for dims, granules in GRANULES.items():
        progress(f"boxes of 3 granules a side: {dims} attributes")
        code = LabelCode((granules,) * dims, PARTS)
        lows = np.random.default_rng(1).integers(0, granules - 2, (size // 10, dims))
        needs = LabelCounts()
        needs.add(code.of_boxes(lows[:2], lows[:2] + 2, 256).labels)
        mapping, sets = timed(lambda: code.of_boxes(lows, lows + 2, 256))  # noqa: B023
        counting, _ = timed(lambda: needs.add(sets.labels))  # noqa: B023
        each = len(sets.labels) / 1e6
        results.append(Result(f"boxes/{dims}d/map_us", mapping / each, "us", 1.0, "lower"))
        results.append(Result(f"boxes/{dims}d/insert_us", counting / each, "us", 1.0, "lower"))
    return results


def _events(size: int, progress: Progress) -> list[Result]:
    """From a table of events to whether a neighbour wants them: grid, labels and look-up."""
    progress("events of a table, from values on")
    names = ("a", "b", "c")
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 29]} for name in names}})
    space = LabelSpace([Grid.uniform(schema, 32)])
    rng = np.random.default_rng(2)
    results = []
    for kind, shape in (("exact", None), ("filter", FilterShape(1 << 18))):
        heard = HeardLabels(space, shape)
        wanted = space.codes[0].of_cells(np.random.default_rng(3).integers(0, 32, (size, 3)))
        heard.change(np.zeros(0, np.int64), np.unique(wanted))
        table = pa.record_batch({name: rng.uniform(0, 29, _BATCH * 10) for name in names})
        heard.match_batch(table.slice(0, 2))  # type: ignore[arg-type]
        seconds, _ = timed(lambda: heard.match_batch(table))  # type: ignore[arg-type]  # noqa: B023
        results.append(Result(f"events/{kind}/us", 1e6 * seconds / table.num_rows, "us", 1.0, "lower"))
    return results


def _filter_sizes(draw: str, events: int, progress: Progress) -> list[Result]:
    """False positives by the number of counters, at 32 granules (Table 10)."""
    progress(f"false positives by the size of the filter: {draw}")
    rng = np.random.default_rng(10)
    lows, points = _values(draw, 8_000, rng), _values(draw, events, rng)
    wanted = _wanted(lows, lows + 3, points)
    results = []
    for power in (8, 10, 12, 14, 16):
        figures = _rates(lows, lows + 3, points, wanted, 32, 1 << power)
        results += [Result(f"false/{draw}-m2^{power}/{name}", 100 * rate, "%") for name, rate in figures.items()]
    return results


def _granules(draw: str, events: int, progress: Progress) -> list[Result]:
    """False positives by the number of granules, at 65536 counters (Figure 9); sides of up to a sixteenth."""
    progress(f"false positives by granules: {draw}")
    rng = np.random.default_rng(9)
    lows, points = _values(draw, 1_000, rng), _values(draw, events, rng)
    highs = np.minimum(lows + rng.integers(0, _TOP // 16, lows.shape), _TOP - 1)
    wanted = _wanted(lows, highs, points)
    results, every = [], {}
    for granules in (8, 16, 32, 64, 128):
        figures = _rates(lows, highs, points, wanted, granules, 1 << 16)
        every[granules] = figures["all"]
        results += [Result(f"false/{draw}-g{granules}/{name}", 100 * rate, "%") for name, rate in figures.items()]
    results.append(Result(f"false/{draw}/best_granules", min(every, key=lambda g: every[g]), "granules"))
    return results


# -- drawing and counting ----------------------------------------------------------------------------


def _insert(code: LabelCode, needs: LabelCounts, filter_: CountingFilter, cells: Ints) -> None:
    filter_.add(needs.add(code.of_cells(cells)))


def _delete(code: LabelCode, needs: LabelCounts, filter_: CountingFilter, cells: Ints) -> None:
    filter_.remove(needs.remove(code.of_cells(cells)))


def _asked(code: LabelCode, held: LabelCounts | CountingFilter, cells: Ints) -> NDArray[np.bool_]:
    return held.contains(code.of_cells(cells))


def _paced(work: Callable[[Ints], Any], batches: list[Ints]) -> tuple[float, list[Any]]:
    """Microseconds a row, the median of all batches; and what each gave."""
    passes = [timed(partial(work, batch)) for batch in batches]
    return 1e6 * float(np.median([seconds for seconds, _ in passes])) / len(batches[0]), [out for _, out in passes]


def _cells(draw: str, dims: int, granules: int, count: int, rng: np.random.Generator) -> Ints:
    if draw == "uniform":
        return rng.integers(0, granules, (count, dims))
    if draw == "tied":
        return np.repeat(zipf(rng, granules, count)[:, None], dims, axis=1)
    return np.stack([zipf(rng, granules, count) for _ in range(dims)], axis=1)


def _values(draw: str, count: int, rng: np.random.Generator) -> Ints:
    """Points of three attributes; Zipf values lie at the lower end, as the paper's do."""
    if draw == "uniform":
        return rng.integers(0, _TOP - 4, (count, 3))
    return np.stack([zipf(rng, _TOP - 4, count) for _ in range(3)], axis=1)


def _wanted(lows: Ints, highs: Ints, points: Ints) -> NDArray[np.bool_]:
    """Whether some box holds each point."""
    found = np.zeros(len(points), bool)
    for at, point in enumerate(points):
        found[at] = ((lows <= point) & (point <= highs)).all(axis=1).any()
    return found


def _rates(  # noqa: PLR0913, PLR0917
    lows: Ints, highs: Ints, points: Ints, wanted: NDArray[np.bool_], granules: int, size: int
) -> dict[str, float]:
    """Of the unwanted events, those that cells let pass, cells and filter, and what the filter should add."""
    width = _TOP // granules
    code = LabelCode((granules,) * 3, PARTS)
    labels = np.unique(code.of_boxes(lows // width, highs // width).labels)
    filter_ = CountingFilter.of(FilterShape(size), [labels])
    asked = code.of_cells(points // width)
    cells, passed = np.isin(asked, labels), filter_.contains(asked)
    assert not (cells & ~passed).any(), "a filter must find what is there"
    strangers = ~wanted
    return {
        "cells": float(cells[strangers].mean()),
        "all": float(passed[strangers].mean()),
        "filter": float(passed[~cells].mean()) if (~cells).any() else 0.0,
        "expected": filter_.shape.rate(len(labels)),
    }
