"""An event that matches a filter is in a cell that the filter covers, whatever the filter, the event and the grid."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import (
    DAY,
    EVENTS,
    EXTREME_FLOATS,
    EXTREME_INTS,
    KINDS,
    NEXT,
    STRING_VALUES,
    VALUES,
    A,
    filters,
    thorough,
)
from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.errors import FilterError
from weft.language.ast import Compare, Filter, Operator
from weft.language.constant import Constant
from weft.language.meaning import matches
from weft.model.event import Event
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.space import partition
from weft.space.content import ContentSpace
from weft.space.curve import Order
from weft.space.dimension import GridDimension
from weft.space.grid import CellBoxes, Grid
from weft.space.line_cells import LineCells

LATER = DAY.replace(day=2)


def dimensions(name: str) -> list[GridDimension]:
    """Every way to cut an attribute, coarse and fine, of every type."""
    number, whole = Attribute(name, Type.FLOAT, 0, 2), Attribute(name, Type.INT, 0, 2)
    text = Attribute(name, Type.STRING, categories=("b", "a", "car", "ab"))
    moment = Attribute(name, Type.TIMESTAMP, DAY, LATER)
    return [
        *(partition.uniform(each, cells) for each in (number, whole, text, moment) for cells in (2, 3, 4, 5, 8)),
        *(partition.uniform(Attribute(name, Type.BOOL), cells) for cells in (2, 4)),
        partition.at(number, [1], ["less", "more"]),
        partition.at(whole, [0, 1, 1.5, 2]),
        partition.at(Attribute(name, Type.STRING), ["a", "ab", "b"]),
        partition.at(moment, [DAY, NEXT]),
        partition.equi_depth(number, [0, 1, 1, 1, 1, 1.5, 2, math.inf, None, "a"], 5),
        partition.equi_depth(text, ["a", "a", "b", "z"], 4),
        partition.equi_depth(Attribute(name, Type.STRING), STRING_VALUES, 5),
        partition.by_taxonomy(Attribute(name, Type.STRING), KINDS.taxonomy, ["thing"]),
        partition.by_taxonomy(Attribute(name, Type.STRING), KINDS.taxonomy, ["thing"], cells=4),
        LineCells(name, Type.FLOAT, ((0, 0), (0, 1), (1, 1), (1.5, 0), (1.5, 1))),
    ]


grids = st.one_of(
    st.sampled_from(dimensions("a")).map(lambda a: Grid((a,))),
    st.tuples(st.sampled_from(dimensions("b")), st.sampled_from(dimensions("a"))).map(Grid),
    st.tuples(*(st.sampled_from(dimensions(name)) for name in "abc")).map(Grid),
)
whole_schema = Schema.of(a="int", b="int")


def covered(boxes: CellBoxes, cell: Any) -> bool:
    return bool(((boxes.lows <= cell) & (boxes.highs >= cell)).all(axis=1).any())


def boxes_of(grid: Grid, region: Any, most: int) -> CellBoxes | None:
    try:
        return grid.boxes(region, most)
    except FilterError:
        return None


@given(filters(), grids, st.sampled_from((1, 2, 16)))
@thorough(600)
def test_no_event_is_outside_the_cells_of_a_filter_that_it_matches(wanted: Filter, grid: Grid, most: int) -> None:
    boxes = boxes_of(grid, wanted, most)
    for event in EVENTS:
        if matches(wanted, event):
            assert boxes is not None
            assert covered(boxes, grid.cell(event))
    if boxes is not None:
        assert (boxes.lows <= boxes.highs).all()
        assert (boxes.lows >= 0).all()
        assert (boxes.highs < grid.shape).all()
        assert np.unique(boxes.rows, return_counts=True)[1].max() <= most


@given(filters(), grids)
@thorough(200)
def test_a_form_under_a_schema_holds_for_events_that_conform(wanted: Filter, grid: Grid) -> None:
    form = normalize(wanted, whole_schema)
    boxes = boxes_of(grid, form, 16)
    for event in EVENTS:
        kept = whole_schema.conform(Event.of(event))
        if kept in form:
            assert boxes is not None
            assert covered(boxes, grid.cell(kept))


@given(st.lists(filters(4), max_size=6), grids)
@thorough(400)
def test_columns_of_boxes_give_the_cells_of_each(wanted: list[Filter], grid: Grid) -> None:
    held = [box for each in wanted for box in normalize(each).boxes]
    found = grid.boxes_of_columns(BoxColumns.of(held))
    alone = [grid.boxes(box) for box in held]
    assert found.rows.tolist() == [row for row, boxes in enumerate(alone) for _ in boxes.rows]
    assert found.lows.tolist() == [low for boxes in alone for low in boxes.lows.tolist()]
    assert found.highs.tolist() == [high for boxes in alone for high in boxes.highs.tolist()]


@given(st.lists(filters(4), min_size=1, max_size=4), grids, st.sampled_from(Order), st.sampled_from((1, 3, 256)))
@thorough(200)
def test_an_event_that_matches_has_its_index_in_the_ranges(
    wanted: list[Filter], grid: Grid, order: Order, most: int
) -> None:
    space = ContentSpace(grid, order, most)
    assert ContentSpace.from_json(space.to_json()) == space
    indexes = space.indexes(EVENTS)
    forms = [normalize(each) for each in wanted]
    rows = [(owner, box) for owner, form in enumerate(forms) for box in form.boxes]
    owners, sets = space.range_sets(BoxColumns.of([box for _, box in rows], [owner for owner, _ in rows]))
    assert owners.tolist() == [owner for owner, form in enumerate(forms) if form]
    for at, owner in enumerate(owners.tolist()):
        ranges = space.ranges(wanted[owner])
        assert len(ranges.starts) <= most
        admitted = ranges.contains(indexes)
        assert all(admitted[row] for row, event in enumerate(EVENTS) if matches(wanted[owner], event))
        assert sets[at] == ranges


def test_a_filter_that_matches_nothing_is_refused() -> None:
    with pytest.raises(FilterError, match="never matches"):
        Grid((dimensions("a")[0],)).boxes("a > 2 AND a < 1")


@given(st.lists(st.sampled_from(VALUES), max_size=12), grids)
@thorough(200)
def test_a_batch_has_the_cells_of_its_events(values: list[Any], grid: Grid) -> None:
    events = [{"a": value, "b": other} for value, other in zip(values, values[::-1], strict=True)]
    assert grid.cells(events).tolist() == [list(grid.cell(event)) for event in events]


@given(grids)
@thorough(100)
def test_parameters_survive_json(grid: Grid) -> None:
    same = Grid.from_parameters(json.loads(json.dumps(grid.parameters)))
    assert same == grid
    assert hash(same.parameters) == hash(grid.parameters)
    assert same.parameters == grid.parameters


@given(st.sampled_from(dimensions("a")), st.sampled_from(dimensions("a")))
@thorough(200)
def test_other_cells_are_other_parameters(one: GridDimension, other: GridDimension) -> None:
    assert (one == other) == (Grid((one,)).parameters == Grid((other,)).parameters)


@given(st.sampled_from(dimensions("a")))
@thorough(50)
def test_no_predicate_is_every_cell_and_a_full_range_is_not_the_absent_one(dimension: GridDimension) -> None:
    grid = Grid((dimension,))
    everything = grid.boxes(Box({}))
    assert (everything.lows.tolist(), everything.highs.tolist()) == ([[0]], [[dimension.size - 1]])
    full = {
        "line": {"float": "a <= 2 OR a > 2", "int": "a <= 2 OR a > 2", "bool": "a OR NOT a", "string": "a >= ''"},
        "categories": {},
    }
    kind = dimension.parameters[0]
    text = full[kind].get(str(dimension.parameters[2])) if kind == "line" else "a LIKE '%'"
    if text is not None:
        present = grid.boxes(text)
        assert (present.lows.tolist(), present.highs.tolist()) == ([[1]], [[dimension.size - 1]])
    absent = grid.boxes("a IS NULL")
    assert (absent.lows.tolist(), absent.highs.tolist()) == ([[0]], [[0]])


extremes = st.one_of(
    st.sampled_from((*EXTREME_INTS, *EXTREME_FLOATS)),
    st.integers(2**54 - 3, 2**54 + 5),
    st.sampled_from((2.0**54 - 2, 2.0**54, 2.0**54 + 4)),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(
    st.lists(st.tuples(extremes, st.integers(0, 1)), max_size=5),
    st.lists(
        st.builds(Compare, st.just(A), st.sampled_from(Operator), extremes.map(Constant.of)), min_size=1, max_size=4
    ),
    st.lists(st.one_of(extremes, st.sampled_from((math.inf, -math.inf))), min_size=1, max_size=8),
)
@thorough(500)
def test_numbers_at_the_edges_of_both_types_are_compared_exactly(
    cuts: list[tuple[float, int]], wanted: list[Filter], values: list[float]
) -> None:
    dimension = LineCells("a", Type.FLOAT, tuple(sorted(set(cuts))))
    grid = Grid((dimension,))
    exact = [1 + sum(value > cut or (value == cut and side == 0) for cut, side in dimension.cuts) for value in values]
    assert [dimension.cell(value) for value in values] == exact
    for kind in (int, float):
        some = [(value, cell) for value, cell in zip(values, exact, strict=True) if isinstance(value, kind)]
        if some:
            batch = pa.record_batch({"a": pa.array([value for value, _ in some])})
            assert grid.cells(batch)[:, 0].tolist() == [cell for _, cell in some]
    held = [box for each in wanted for box in normalize(each).boxes]
    found = grid.boxes_of_columns(BoxColumns.of(held))
    for row, box in enumerate(held):
        mine = CellBoxes(*(side[found.rows == row] for side in found))
        alone = grid.boxes(box)
        assert (mine.lows.tolist(), mine.highs.tolist()) == (alone.lows.tolist(), alone.highs.tolist())
        for value, cell in zip(values, exact, strict=True):
            assert {"a": value} not in box or covered(mine, [cell])
