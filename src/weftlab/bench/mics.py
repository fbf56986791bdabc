"""Curve ranges against what they replace: mapping, insertion, covering, matching (MICS, section 7).

Subscriptions are boxes of `size` cells a side on a grid of 256 cells an attribute, with uniform or Zipf lower corners,
in 2, 3 and 4 dimensions, given as columns of bounds. Peers: enumerate the cells and sort them, for the mapping; a scan
of all boxes, and the index of the covering order, for covering. Times are of first passes over fresh subscriptions,
after one small call that loads the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from weft.algebra.columns import BoxColumns
from weft.kernels.arrays import Ints
from weft.model.schema import Schema
from weft.order import FilterRelation, NonRedundantForest
from weft.routing.mics.structure import RangeTable
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.range_sets import RangeSets
from weft.workloads.base import zipf
from weftlab.bench.report import Result, timed

CELLS = 253  # within the bounds; one below, one above and one for "absent" make 256
_FIRST = 2  # cell within the bounds: after "absent" and below
_BATCH = 10_000


def run(quick: bool, progress: Callable[[str], None]) -> list[Result]:
    """All figures; `progress` is called with what is being measured."""
    results: list[Result] = []
    for draw in ("uniform", "zipf"):
        for dims in (2, 3, 4):
            results += _mapping(draw, dims, 1_000 if quick else _BATCH, progress)
            results += _growth(draw, dims, (2_000, 20_000) if quick else (10_000, 100_000, 1_000_000), progress)
    for draw in ("uniform", "zipf"):
        results += _covering(draw, 10_000 if quick else 100_000, progress)
    return results


def _mapping(draw: str, dims: int, size: int, progress: Callable[[str], None]) -> list[Result]:
    """From bounds to ranges, and by enumerating cells and sorting their indexes."""
    results = []
    space = _space(dims)
    for side in (2, 4, 8, 16):
        progress(f"mapping: {draw}, {dims} dimensions, {side} cells a side")
        count = max(10, size // side ** max(0, dims - 2))
        lows = _lows(draw, dims, count, side, seed=side)
        columns = _columns(lows, side)
        space.range_sets(_columns(lows[:2], side))
        seconds, (_, found) = timed(lambda columns=columns: space.range_sets(columns))  # type: ignore[misc]
        few = max(2, min(count, 20_000 // side**dims))
        peer, sorted_ = timed(lambda lows=lows, side=side, few=few: _enumerated(space, lows[:few], side))  # type: ignore[misc]
        if side ** (dims - 1) <= 64:  # no box is capped
            assert all(found[row] == sorted_[row] for row in range(few)), "both ways must give the same ranges"
        name = f"{draw}-{dims}d/{count}/map_{side}"
        paper = 5.0 if (dims, side) == (3, 4) else None
        results.append(Result(f"{name}_us", 1e6 * seconds / count, "us", paper, "lower"))
        results.append(Result(f"{name}_vs_enumeration", peer / few / (seconds / count), "x"))
        results.append(Result(f"{name}_ranges", len(found.starts) / count, "ranges"))
    return results


def _growth(draw: str, dims: int, sizes: tuple[int, ...], progress: Callable[[str], None]) -> list[Result]:
    """Insertion with covering, subsumption and merging of boxes of 2 cells a side, removal and matching, by n."""
    results, inserting = [], []
    space = _space(dims)
    most, least = (10.0, 2.0) if dims == 3 else (None, None)
    batch = min(_BATCH, sizes[0])
    fresh = space.range_sets(_columns(_lows(draw, dims, batch, 2, seed=99), 2))[1]
    points = space.curve.index(_lows(draw, dims, 10 * batch, 1, seed=98) + _FIRST)
    _load(fresh, points)
    for size in sizes:
        progress(f"a table of {size:,} subscriptions: {draw}, {dims} dimensions")
        table = RangeTable()
        table.insert_batch(space.range_sets(_columns(_lows(draw, dims, size, 2, seed=97), 2))[1])
        before = table.needed()
        seconds, change = timed(lambda table=table: table.insert_batch(fresh))  # type: ignore[misc]
        assert change.add == table.needed() - before, "what is told must be what is newly needed"
        match_seconds, found = timed(lambda table=table: table.match_batch(points))  # type: ignore[misc]
        assert np.array_equal(found, table.needed().contains(points)), "a look-up must say what the set says"
        gone, _ = timed(lambda table=table: table.remove_batch(fresh))  # type: ignore[misc]
        assert table.needed() == before, "taking back must undo"
        inserting.append(1e6 * seconds / batch)
        name = f"{draw}-{dims}d/{size}"
        results += [
            Result(f"{name}/insert_us", inserting[-1], "us", most, "lower"),
            Result(f"{name}/remove_us", 1e6 * gone / batch, "us"),
            Result(f"{name}/match_us", 1e6 * match_seconds / len(points), "us", 1.0, "lower"),
            Result(f"{name}/ranges", len(before), "ranges"),
        ]
    results.append(
        Result(f"{draw}-{dims}d/{sizes[-1]}/insert_growth", max(inserting) / inserting[0], "x", least, "lower")
    )
    return results


def _covering(draw: str, size: int, progress: Callable[[str], None]) -> list[Result]:
    """Whether others already need all of a subscription: the table, a scan of the boxes, the covering order."""
    progress(f"covering at {size:,} subscriptions: {draw}")
    space, batch = _space(3), 1_000
    lows, asked = _lows(draw, 3, size, 4, seed=96), _lows(draw, 3, batch, 2, seed=95)
    columns, questions = _columns(lows, 4), _columns(asked, 2)
    table = RangeTable()
    table.insert_batch(space.range_sets(columns)[1])
    _load(space.range_sets(questions)[1], np.zeros(2, np.int64))
    seconds, subsumed = timed(lambda: table.covers_batch(space.range_sets(questions)[1]))
    few = 100
    boxes = [questions.box(row) for row in range(few)]
    scan, covered = timed(lambda: [bool(columns.covering(box).any()) for box in boxes])
    assert all(one or not other for one, other in zip(subsumed[:few].tolist(), covered, strict=True)), (
        "what one subscription covers, all together cover"
    )
    forest = NonRedundantForest(FilterRelation())
    for number, box in enumerate(columns):
        forest.add(box, number)
    forest_seconds, by_forest = timed(lambda: [bool(forest.covering(box)) for box in boxes])
    assert by_forest == covered, "the order must say what the scan says"
    mine = seconds / batch
    return [
        Result(f"{draw}-3d/{size}/cover_us", 1e6 * mine, "us"),
        Result(f"{draw}-3d/{size}/cover_vs_scan", scan / few / mine, "x", 100.0),
        Result(f"{draw}-3d/{size}/cover_vs_forest", forest_seconds / few / mine, "x"),
        Result(f"{draw}-3d/{size}/subsumed", 100 * float(subsumed.mean()), "%"),
        Result(f"{draw}-3d/{size}/covered_by_one", 100 * float(np.mean(covered)), "%"),
    ]


def _load(sets: RangeSets, points: Ints) -> None:
    """Load the compiled code with a tiny table."""
    table, few = RangeTable(), RangeSets.of([sets[0]])
    table.insert_batch(few)
    table.match_batch(points[:2])
    table.covers_batch(few)
    table.remove_batch(few)


def _space(dims: int) -> ContentSpace:
    names = [f"a{number}" for number in range(dims)]
    schema = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, CELLS]} for name in names}})
    return ContentSpace(Grid.uniform(schema, cells=256), most=1 << 13)


def _lows(draw: str, dims: int, count: int, side: int, seed: int) -> Ints:
    """The lower corners of boxes, in cells within the bounds."""
    rng = np.random.default_rng(seed)
    if draw == "zipf":
        columns = [zipf(rng, CELLS - side + 1, count) for _ in range(dims)]
    else:
        columns = [rng.integers(0, CELLS - side + 1, count) for _ in range(dims)]
    return np.stack(columns, axis=1)


def _columns(lows: Ints, side: int) -> BoxColumns:
    """Bounds that touch just the cells from each corner on."""
    low = lows + 0.25
    return BoxColumns.from_bounds({f"a{n}": (low[:, n], low[:, n] + side - 0.5) for n in range(lows.shape[1])})


def _enumerated(space: ContentSpace, lows: Ints, side: int) -> RangeSets:
    """The ranges of boxes by the indexes of all of their cells, sorted; all boxes together."""
    dims = lows.shape[1]
    steps = np.array(list(product(range(side), repeat=dims)))
    cells = (lows[:, None, :] + _FIRST + steps).reshape(-1, dims)
    indexes = np.sort(space.curve.index(cells).reshape(len(lows), -1))
    first = np.ones(indexes.shape, bool)
    first[:, 1:] = np.diff(indexes) != 1
    last = np.ones(indexes.shape, bool)
    last[:, :-1] = first[:, 1:]
    return RangeSets(np.append(0, np.cumsum(first.sum(axis=1))), indexes[first], indexes[last])
