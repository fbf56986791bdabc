"""Both searches of a tree find what comparing every row finds, however little room they are given."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from weft.index.events import EventColumns
from weft.index.segment import TreeShape
from weft.index.tree import TreeIndex
from weft.index.verify import check_tree
from weft.index.version import SegmentView
from weft.kernels import batch_search, search
from weft.kernels.leaves import HEADER, SPECIAL
from weft.workloads import WORKLOADS

Bounds = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def _given(name: str) -> tuple[Bounds, pa.RecordBatch]:
    if name == "dense":  # blocks of which few, half and nearly all rows match
        rng = np.random.default_rng(5)
        low = rng.random(600)
        return {"x": (low, low + rng.random(600))}, pa.record_batch({"x": np.linspace(0, 2, 40)})
    if name == "stocks":
        return _stocks()
    given = WORKLOADS[name](600, 40, seed=5)
    return dict(given.bounds), given.table


def _stocks() -> tuple[Bounds, pa.RecordBatch]:
    """One leaf of many blocks, whose rows are bounded from one or two sides."""
    rng = np.random.default_rng(7)
    low, least = rng.random(600), rng.random(600)
    values = rng.random((40, 2))
    return (
        {"price": (low, low + 0.05), "volume": (least, np.full(600, np.nan))},
        pa.record_batch({"price": values[:, 0], "volume": values[:, 1]}),
    )


def _subs(view: SegmentView, slots: NDArray[np.int32]) -> list[int]:
    rows = view.segment.rows
    return sorted(sub for slot in slots for sub in rows.subs[rows.firsts[slot] : rows.firsts[slot + 1]].tolist())


@pytest.mark.parametrize(("name", "leaf"), [("dense", 256), ("stocks", 600), ("W4", 2), ("W4", 1)])
def test_both_searches_find_the_same_and_make_room_for_it(name: str, leaf: int) -> None:
    bounds, batch = _given(name)
    index = TreeIndex(shape=TreeShape(leaf))
    index.add_columns(np.arange(600), bounds)
    (view,) = index._version.views
    lows, highs = (np.stack([column[end] for column in bounds.values()], 1) for end in (0, 1))
    values = np.stack([batch.column(each).to_numpy() for each in bounds], 1)[:, None]
    outside = (values < lows) | (values > highs)  # NaN is no bound
    wanted = [np.flatnonzero(row).tolist() for row in ~outside.any(axis=2)]
    codes = view.segment.rows.encode(EventColumns.of(batch, bounds))
    nothing, counts = np.empty(1, np.int32), np.zeros(0, np.int64)

    offsets = np.zeros(len(codes) + 1, np.int64)
    out, found = search.event_by_event(view.tree, codes, nothing, offsets, counts, search.FIND)
    assert found == offsets[-1]
    assert [_subs(view, out[a:b]) for a, b in pairwise(offsets)] == wanted

    later, by_dimension, tree = np.zeros(len(codes) + 1, np.int64), codes.T.reshape(-1), view.tree
    hits, found = batch_search.all_together(tree, by_dimension, nothing.view(np.uint32), later, counts, search.FIND)
    assert (later == offsets).all()
    hits = hits[: batch_search.HIT * found]
    batch_search.write_names(hits, tree.ids, later, out)
    assert [_subs(view, out[a:b]) for a, b in pairwise(later)] == wanted

    slots, sizes = np.full_like(out, -1), np.zeros(len(codes), np.int64)
    batch_search.write_slots(hits, tree.ids, view.segment.rows.firsts, later, slots, sizes)
    assert (slots[: later[-1]] == out[: later[-1]]).all()
    assert sizes.tolist() == [len(subs) for subs in wanted]

    free, ids = later[:-1] + np.arange(len(codes)), np.full(later[-1] + len(codes), -1)  # with gaps, to be left alone
    batch_search.write_ids(hits, tree.ids, view.segment.rows.subs, later, free, ids)
    assert [sorted(ids[a + gap : b + gap].tolist()) for gap, (a, b) in enumerate(pairwise(later))] == wanted
    assert (ids[free] == -1).all()
    assert (np.diff(free) == np.diff(later)[1:] + 1).all()

    some = np.zeros(len(codes), np.int64)
    _, found = batch_search.all_together(tree, by_dimension, nothing.view(np.uint32), later, some, search.ANY)
    assert (found, (some > 0).tolist()) == (0, [bool(subs) for subs in wanted])

    assert index.any_batch(batch).tolist() == [bool(subs) for subs in wanted]
    assert [sorted(index.match(event).tolist()) for event in batch.to_pylist()] == wanted


def test_most_blocks_are_passed_over_by_their_bounds() -> None:
    """The rows of a leaf are sorted by two columns: an event is within the bounds of few blocks."""
    bounds, batch = _stocks()
    index = TreeIndex(shape=TreeShape(600))
    index.add_columns(np.arange(600), bounds)
    (view,) = index._version.views
    codes = view.segment.rows.encode(EventColumns.of(batch, bounds))
    columns, at, may_match, blocks = view.tree.columns, 0, 0, 0
    while at < len(columns):
        one, low, high, other, least, most = columns[at + 2 : at + HEADER].tolist()
        inside = (
            (codes[:, one] >= low) & (codes[:, one] <= high) & (codes[:, other] >= least) & (codes[:, other] <= most)
        )
        may_match, blocks = may_match + int(inside.sum()), blocks + 1
        at += HEADER + int(columns[at]) % SPECIAL
    assert blocks == 19
    assert may_match < blocks * len(codes) // 3


@pytest.mark.parametrize(("place", "step"), [(3, 1), (4, -1), (6, 1), (7, -1), (2, 100), (5, -100)])
def test_bounds_that_would_hide_a_row_are_refused(place: int, step: int) -> None:
    bounds, _ = _stocks()
    index = TreeIndex(shape=TreeShape(600))
    index.add_columns(np.arange(600), bounds)
    segment = index._version.views[0].segment
    check_tree(segment)
    segment.tree.columns[place] += step
    with pytest.raises(ValueError, match=r"bounds|columns"):
        check_tree(segment)


@pytest.mark.parametrize("name", [-1, 600])
def test_an_empty_lane_names_a_slot_too(name: int) -> None:
    """All names of a block are read together: a snapshot whose empty lanes name anything else is refused."""
    bounds, _ = _stocks()
    index = TreeIndex(shape=TreeShape(600))
    index.add_columns(np.arange(600), bounds)
    segment = index._version.views[0].segment
    assert not segment.tree.live[-1] >> np.uint32(31)
    segment.tree.ids[-1] = name
    with pytest.raises(ValueError, match="does not exist"):
        check_tree(segment)
