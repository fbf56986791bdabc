"""W1 to W6, the workloads of `weft bench match`. Values are whole numbers in float64, or strings, as in users' data.

Events and subscriptions have separate generators, so that more of one do not change the other.

| name | subscriptions | events |
|---|---|---|
| W1 | 3 attributes 0..255, ranges of 4 values from a uniform lower bound | uniform |
| W2 | as W1, lower bounds Zipf | Zipf |
| W3 | a symbol of 1,000 (Zipf), a price range of 5% of 0..49,999, a least volume | symbol Zipf, rest uniform |
| W4 | 10 attributes 0..9,999, ranges of 10% on 3 of them | uniform |
| W5 | 10 strings of 5 to 1,000 values, 10 numbers 0..9,999; equality or 5% to 50% wide on 2 to 8 of them | uniform |
| W6 | one filter of W3 for every 50 subscriptions, which choose among them (Zipf) | as W3 |
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.kernels.arrays import Ints
from weft.workloads.base import Bounds, MakeWorkload, Workload, ranges, words, zipf

SYMBOLS, SYMBOL, TOP_PRICE, TOP_VOLUME = 1_000, "S", 49_999, 49_999
SAME = 50  # subscriptions for each different filter of W6
CATEGORIES = (5, 10, 10, 20, 20, 50, 50, 100, 200, 1_000)


def w1(n: int, events: int, seed: int = 1) -> Workload:
    """Small cubes in a cube, uniform."""
    subscriptions, happening = _generators(seed)
    lows = [subscriptions.integers(0, 256, n) for _ in "xyz"]
    points = [happening.integers(0, 256, events) for _ in "xyz"]
    return _cubes("W1", lows, points)


def w2(n: int, events: int, seed: int = 1) -> Workload:
    """Small cubes in a cube, crowded at the origin."""
    subscriptions, happening = _generators(seed)
    lows = [zipf(subscriptions, 256, n) for _ in "xyz"]
    points = [zipf(happening, 256, events) for _ in "xyz"]
    return _cubes("W2", lows, points)


def w3(n: int, events: int, seed: int = 1) -> Workload:
    """A market: a few symbols have most of the subscriptions and most of the events."""
    subscriptions, happening = _generators(seed)
    bounds: Bounds = {
        "symbol": words(SYMBOL, SYMBOLS, zipf(subscriptions, SYMBOLS, n)),
        "price": ranges(subscriptions.integers(0, TOP_PRICE + 1, n), 2_500, TOP_PRICE),
        "volume": (subscriptions.integers(0, TOP_VOLUME + 1, n).astype(np.float64), np.full(n, np.nan)),
    }
    table = pa.record_batch(
        {
            "symbol": words(SYMBOL, SYMBOLS, zipf(happening, SYMBOLS, events)),
            "price": happening.integers(0, TOP_PRICE + 1, events).astype(np.float64),
            "volume": happening.integers(0, TOP_VOLUME + 1, events).astype(np.float64),
        }
    )
    return Workload("W3", bounds, table)


def w4(n: int, events: int, seed: int = 1) -> Workload:
    """Three ranges on any of ten attributes: no attribute is in most subscriptions."""
    subscriptions, happening = _generators(seed)
    chosen = _chosen(subscriptions, n, 10, np.full(n, 3))
    bounds: Bounds = {}
    for attribute in range(10):
        low, high = ranges(subscriptions.integers(0, 10_000, n), 1_000, 9_999)
        without = ~chosen[:, attribute]
        low[without] = high[without] = np.nan
        bounds[f"a{attribute}"] = low, high
    points = {name: happening.integers(0, 10_000, events).astype(np.float64) for name in bounds}
    return Workload("W4", bounds, pa.record_batch(points))


def w5(n: int, events: int, seed: int = 1) -> Workload:
    """Two to eight predicates on any of twenty attributes, strings and numbers, from very wide to very narrow."""
    subscriptions, happening = _generators(seed)
    chosen = _chosen(subscriptions, n, 20, subscriptions.integers(2, 9, n))
    bounds: Bounds = {}
    columns = {}
    for attribute, values in enumerate(CATEGORIES):
        codes = np.where(chosen[:, attribute], subscriptions.integers(0, values, n), -1)
        bounds[f"c{attribute}"] = words("v", values, codes)
        columns[f"c{attribute}"] = words("v", values, happening.integers(0, values, events))
    for attribute in range(10):
        widths = (10_000 * subscriptions.uniform(0.05, 0.5, n)).astype(np.int64)
        low, high = ranges(subscriptions.integers(0, 10_000, n), widths, 9_999)
        without = ~chosen[:, 10 + attribute]
        low[without] = high[without] = np.nan
        bounds[f"n{attribute}"] = low, high
        columns[f"n{attribute}"] = happening.integers(0, 10_000, events).astype(np.float64)
    return Workload("W5", bounds, pa.record_batch(columns))


def w6(n: int, events: int, seed: int = 1) -> Workload:
    """A market in which many want the same: a few filters have most of the subscriptions."""
    market = w3(max(1, n // SAME), events, seed)
    subscriptions, _ = _generators(seed + 1)
    chosen = zipf(subscriptions, len(market), n)
    bounds: Bounds = {}
    for name, column in market.bounds.items():
        if isinstance(column, tuple):
            bounds[name] = column[0][chosen], column[1][chosen]
        else:
            bounds[name] = column.take(pa.array(chosen))
    return Workload("W6", bounds, market.table)


WORKLOADS: dict[str, MakeWorkload] = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W6": w6}


def _generators(seed: int) -> list[np.random.Generator]:
    """One generator for the subscriptions, one for the events."""
    rng = np.random.default_rng(seed)
    return rng.spawn(2)


def _cubes(name: str, lows: list[Ints], points: list[Ints]) -> Workload:
    bounds: Bounds = {axis: ranges(low, 4, 255) for axis, low in zip("xyz", lows, strict=True)}
    columns = {axis: point.astype(np.float64) for axis, point in zip("xyz", points, strict=True)}
    return Workload(name, bounds, pa.record_batch(columns))


def _chosen(rng: np.random.Generator, n: int, attributes: int, counts: Ints) -> NDArray[np.bool_]:
    """The attributes that each of n subscriptions tests: as many as `counts` gives, each equally likely."""
    ranks = rng.permuted(np.broadcast_to(np.arange(attributes), (n, attributes)), axis=1)
    chosen: NDArray[np.bool_] = ranks < counts[:, None]
    return chosen
