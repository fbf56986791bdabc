"""A million trials a model: after random unsubscriptions no event is lost, though filters are tiny and collide.

A trial is one event, asked of a neighbour's table that has heard what was told; arrays say what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from weft import Schema, parse
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.dls.table import DlsTable
from weft.routing.mics.table import MicsTable
from weft.routing.negative.structure import Limit
from weft.routing.negative.table import NegativeTable
from weft.routing.table import Link, RoutingTable, Tell
from weft.space import Grid
from weft.space.content import ContentSpace

NAMES = ("x", "y")
SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in NAMES}})
SPACE = LabelSpace([Grid.uniform(SCHEMA, 16), Grid.uniform(SCHEMA, 32, ["y"])], most=24)
MODELS: dict[str, Callable[[], RoutingTable]] = {
    "dls": partial(DlsTable, SPACE, shape=FilterShape(16, 2), rate=1.0),  # never more: all but everything collides
    "dls, growing": partial(DlsTable, SPACE, shape=FilterShape(2, 1), rate=0.3),
    "mics": partial(MicsTable, [ContentSpace(Grid.uniform(SCHEMA, 16), most=3)]),
    "negative": NegativeTable,
    "negative, approximate": partial(NegativeTable, limit=Limit(1)),
}
NEGATIVE = [name for name in MODELS if name.startswith("negative")]
HERE, THERE = Link("here"), Link("there")
SUBS, EVENTS = 24, 20_000
ROUNDS = 1_000_000 // EVENTS


def subscriptions(rng: np.random.Generator) -> tuple[dict[SubId, Filter], NDArray[np.float64], NDArray[np.float64]]:
    """Boxes with closed ends; one attribute of some is anything, absent included: NaN."""
    lows = rng.uniform(-10, 95, (SUBS, 2)).round(0)
    highs = lows + rng.uniform(0, 30, (SUBS, 2)).round(0)
    anything = rng.random((SUBS, 2)) < 0.15
    anything[anything.all(axis=1)] = False
    lows[anything] = highs[anything] = np.nan
    texts = [
        " AND ".join(f"{n} BETWEEN {a} AND {b}" for n, a, b in zip(NAMES, low, high, strict=True) if not isnan(a))
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
    return {SubId(number): parse(text) for number, text in enumerate(texts)}, lows, highs


@lru_cache(1)
def published() -> tuple[NDArray[np.float64], list[dict[str, Any]], pa.RecordBatch]:
    """Points, on edges as often as not, some out of bounds; NaN is absent. As arrays, events and a table."""
    rng = np.random.default_rng(6)
    points = rng.uniform(-20, 120, (EVENTS, 2))
    points = np.where(rng.random((EVENTS, 2)) < 0.5, points.round(0), points)
    points[rng.random((EVENTS, 2)) < 0.05] = np.nan
    rows = [{name: x for name, x in zip(NAMES, row, strict=True) if not isnan(x)} for row in points.tolist()]
    columns = {name: pa.array(points[:, at], from_pandas=True) for at, name in enumerate(NAMES)}
    return points, rows, pa.record_batch(columns)


def trials(make: Callable[[], RoutingTable], seed: int) -> int:
    """Ask for all events once, and tell how many of them somebody wanted."""
    rng = np.random.default_rng(seed)
    here, there = make(), make()
    pass_on = partial(learnt, there)
    there.attach(HERE)
    pass_on(here.attach(THERE))
    subs, lows, highs = subscriptions(rng)
    wanted = rng.permutation(SUBS)
    for some in np.array_split(wanted, 4):
        pass_on(here.change({SubId(int(n)): subs[SubId(int(n))] for n in some}, ()))
    gone = rng.permutation(SUBS)[: int(rng.integers(SUBS // 2, SUBS))]
    for some in np.array_split(gone, 5):
        pass_on(here.change({}, [SubId(int(n)) for n in some]))
    points, rows, table = published()
    left = np.setdiff1d(np.arange(SUBS), gone)
    matched = np.zeros(EVENTS, bool)
    for low, high in zip(lows[left], highs[left], strict=True):
        inside = (low <= points) & (points <= high)
        matched |= (inside | np.isnan(low)).all(axis=1)
    found = there.route_batch(rows if isinstance(there, NegativeTable) else table, None)  # type: ignore[arg-type]
    passed = np.zeros(EVENTS, bool)
    passed[found.get(HERE, [])] = True
    lost = np.flatnonzero(matched & ~passed)
    assert not lost.size, f"{points[lost[0]]} is lost with seed {seed}"
    return int(matched.sum())


def learnt(there: RoutingTable, tells: list[Tell]) -> None:
    for tell in tells:
        there.learn(HERE, tell.update)


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_share_of_the_trials_of_negative_space(name: str) -> None:
    assert sum(trials(MODELS[name], seed) for seed in range(ROUNDS, ROUNDS + 3)) > 3_000


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in NEGATIVE else name for name in MODELS]
)
def test_no_event_is_lost_in_a_million_trials(name: str) -> None:
    assert sum(trials(MODELS[name], seed) for seed in range(ROUNDS)) > 50_000
