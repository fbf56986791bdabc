"""Label sets and curve ranges by the number of granules (DLS, Tables 8 and 9), next to what the paper measured.

As there: 3 attributes of 2^20 values, 8,000 subscriptions, 16 to 256 granules an attribute. That "the subscription size
is 4" may mean values or granules of each attribute; the paper does not say, so both are measured. Subscriptions are
given as boxes of cells to both models. A figure `vs_paper` is ours as a multiple of the paper's; machines, languages
and batches differ, so it is their course over the granules that compares, which `growth` sums up.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from weft.kernels.arrays import Ints
from weft.routing.dls.labels import LabelCode
from weft.routing.dls.space import PARTS
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts
from weft.routing.mics.structure import RangeTable
from weft.space.curve import Curve
from weft.space.range_sets import RangeSets
from weft.workloads.base import zipf
from weftlab.bench.report import Progress, Result, timed

GRANULES = (16, 32, 64, 128, 256)
PAPER = {  # microseconds
    ("insert", "uniform", "dls"): (0.791, 1.021, 1.250, 0.875, 1.000),
    ("insert", "uniform", "mics"): (2.5, 3.75, 7, 17.125, 47.75),
    ("insert", "zipf", "dls"): (0.688, 0.458, 0.375, 0.479, 0.375),
    ("insert", "zipf", "mics"): (4, 6.25, 11.25, 21.875, 63.0),
    ("match", "uniform", "dls"): (0.31, 0.35, 0.34, 0.405, 0.39),
    ("match", "uniform", "mics"): (36.6, 75.1, 84.9, 86.1, 88.1),
    ("match", "zipf", "dls"): (0.295, 0.35, 0.38, 0.38, 0.38),
    ("match", "zipf", "mics"): (0.1, 0.21, 0.36, 0.87, 2.51),
}
SIZES = ("values", "granules")
_TOP = 1 << 20
_SIDE = 4
_DIMS = 3


def run(subscriptions: int, passes: int, progress: Progress) -> list[Result]:
    """The figures of both tables, with a number of subscriptions; medians over some passes, each of fresh draws."""
    results: list[Result] = []
    for draw in ("uniform", "zipf"):
        for size in SIZES:
            every: dict[tuple[str, str], list[float]] = {}
            for granules in GRANULES:
                progress(f"{granules} granules: {draw}, subscriptions of 4 {size}")
                _pass(draw, size, granules, 2, 0)  # loads the compiled code
                found = [_pass(draw, size, granules, subscriptions, seed) for seed in range(passes)]
                for key in found[0]:
                    every.setdefault(key, []).append(float(np.median([each[key] for each in found])))
            results += _results(draw, size, every)
    return results


def _results(draw: str, size: str, every: dict[tuple[str, str], list[float]]) -> list[Result]:
    results = []
    for (what, model), figures in every.items():
        paper = PAPER[what, draw, model]
        name = f"{what}/{draw}-4-{size}"
        for granules, ours, theirs in zip(GRANULES, figures, paper, strict=True):
            results.append(Result(f"{name}-g{granules}/{model}_us", ours, "us"))
            results.append(Result(f"{name}-g{granules}/{model}_vs_paper", ours / theirs, "x"))
        goal = 2.0 if model == "dls" and size == "values" else None  # "stable"
        results.append(Result(f"{name}/{model}_growth", figures[-1] / figures[0], "x", goal, "lower"))
        results.append(Result(f"{name}/{model}_growth_in_paper", paper[-1] / paper[0], "x"))
    return results


def _pass(draw: str, size: str, granules: int, count: int, seed: int) -> dict[tuple[str, str], float]:
    """Microseconds a subscription and an event, of both models."""
    width = _TOP // granules
    corners, points = _drawn(draw, count, seed)
    highs = np.minimum(corners + _SIDE - 1, _TOP - 1) // width
    lows = corners // width
    if size == "granules":
        lows = np.minimum(lows, granules - _SIDE)
        highs = lows + _SIDE - 1
    cells = points // width
    code, curve = LabelCode((granules,) * _DIMS, PARTS), Curve(_DIMS, granules.bit_length() - 1)
    needs, filter_, table = LabelCounts(), CountingFilter(FilterShape(1 << 16)), RangeTable()
    inserting, _ = timed(partial(_insert, code, needs, filter_, lows, highs))
    matching, passed = timed(lambda: filter_.contains(code.of_cells(cells)))
    ranging, _ = timed(lambda: table.insert_batch(_ranges(curve, lows, highs)))
    finding, found = timed(lambda: table.match_batch(curve.index(cells)))
    wanted = needs.contains(code.of_cells(cells))
    assert not (wanted & ~passed).any(), "a filter must find what is there"
    assert np.array_equal(wanted, found), "both models have the same cells"
    times = {"insert": (inserting, ranging), "match": (matching, finding)}
    return {
        (what, model): 1e6 * seconds / count
        for what, pair in times.items()
        for model, seconds in zip(("dls", "mics"), pair, strict=True)
    }


def _insert(code: LabelCode, needs: LabelCounts, filter_: CountingFilter, lows: Ints, highs: Ints) -> None:
    filter_.add(needs.add(code.of_boxes(lows, highs).labels))


def _ranges(curve: Curve, lows: Ints, highs: Ints) -> RangeSets:
    return curve.range_sets(lows, highs, most=_SIDE**_DIMS, patience=1 << 10)


@lru_cache(64)  # the same draws for all granules
def _drawn(draw: str, count: int, seed: int) -> tuple[Ints, Ints]:
    """The lower corners of subscriptions, and events, as values."""
    rng = np.random.default_rng(seed)
    if draw == "uniform":
        return rng.integers(0, _TOP, (count, _DIMS)), rng.integers(0, _TOP, (count, _DIMS))
    values = np.reshape(zipf(rng, _TOP, 2 * count * _DIMS), (2, count, _DIMS))
    return values[0], values[1]
