"""Where values fall, what filters cover, and what is refused; Arrow batches fall where their events do."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strategies import KINDS, PREDICATES
from weft.algebra.box import Box
from weft.algebra.bulk import columns_of_texts
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.algebra.valueset import ValueSet
from weft.errors import FilterError, SchemaError
from weft.language.taxonomy import Taxonomy
from weft.language.text import parse
from weft.model.batch import events_from_batch
from weft.model.schema import Attribute, Schema
from weft.model.value import INT_MAX, INT_MIN, Type
from weft.routing.dls.space import LabelSpace
from weft.space import partition
from weft.space.categories import Categories
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.line_cells import LineCells

SCHEMA = Schema.of(
    Attribute("magnitude", Type.FLOAT, 0, 10),
    Attribute("depth", Type.INT, 0, 700),
    Attribute("status", Type.STRING, categories=("automatic", "reviewed", "deleted")),
    Attribute("felt", Type.BOOL),
    Attribute("time", Type.TIMESTAMP, datetime(2018, 1, 1, tzinfo=UTC), datetime(2018, 12, 31, tzinfo=UTC)),
)


def spans(grid: Grid, region: Any) -> list[list[tuple[int, int]]]:
    found = grid.boxes(region)
    pairs = zip(found.lows.tolist(), found.highs.tolist(), strict=True)
    return [list(zip(low, high, strict=True)) for low, high in pairs]


def span(dimension: Any, text: str) -> list[tuple[int, int]]:
    return [box[0] for box in spans(Grid((dimension,)), parse(text, PREDICATES))]


def test_cells_of_a_float() -> None:
    x = partition.uniform(Attribute("x", Type.FLOAT, 0, 10), 8)  # absent, below, [0, 2), [2, 4), ... [8, 10], above
    assert [x.cell(v) for v in (None, "a", True, -math.inf, -0.1, 0, 1.99, 2, 9, 10, 10.01, math.inf)] == [
        *(0, 0, 0, 1, 1, 2, 2, 3, 6, 6, 7, 7)
    ]
    assert [x.label(cell) for cell in range(4)] == ["absent", "(-inf, 0.0)", "[0.0, 2.0)", "[2.0, 4.0)"]
    assert [x.label(cell) for cell in (6, 7)] == ["[8.0, 10.0]", "(10.0, inf)"]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("x >= 2", [(3, 7)]),
        ("x > 2", [(3, 7)]),
        ("x < 2", [(1, 2)]),
        ("x <= 2", [(1, 3)]),  # a closed end on an edge takes the cell that it touches
        ("x = 10", [(6, 6)]),
        ("x > 10", [(7, 7)]),
        ("x BETWEEN 0 AND 10", [(2, 6)]),
        ("x != 3", [(1, 7)]),
        ("x < 1 OR x > 9", [(1, 2), (6, 7)]),
        ("x IS NULL", [(0, 0)]),
        ("x IS NULL OR x < -5", [(0, 1)]),
        ("x IS NULL OR x > 9", [(0, 0), (6, 7)]),
        ("x = 'a'", [(0, 0)]),
        ("x IS NOT NULL", [(0, 7)]),  # a value of another type is in cell 0 too
        ("y = 5", [(0, 7)]),
        ("x < y", [(0, 7)]),
        ("x < y AND x > 4", [(4, 7)]),
    ],
)
def test_cells_of_filters(text: str, cells: list[tuple[int, int]]) -> None:
    x = partition.uniform(Attribute("x", Type.FLOAT, 0, 10), 8)
    assert span(x, text) == cells


def test_a_form_under_a_schema_is_finer_on_integers() -> None:
    schema = Schema.of(Attribute("n", Type.INT, 0, 9))
    grid = Grid.uniform(schema, 13)  # a cell for each
    assert spans(grid, parse("n > 4")) == [[(6, 12)]]  # 4.5 is in the cell of 4
    assert spans(grid, normalize(parse("n > 4"), schema)) == [[(7, 12)]]


@pytest.mark.parametrize(("cells", "size"), [(2, 2), (3, 3), (4, 4), (5, 5), (64, 64)])
def test_a_dimension_has_the_cells_that_were_asked_for(cells: int, size: int) -> None:
    for name in ("magnitude", "depth", "time"):
        assert partition.uniform(SCHEMA[name], cells).size == size


def test_fewer_values_than_cells_make_fewer_cells() -> None:
    assert partition.uniform(SCHEMA["status"], 64).size == 5
    assert partition.uniform(SCHEMA["felt"], 64).size == 3
    assert partition.uniform(Attribute("n", Type.INT, 3, 5), 64).size == 6
    assert partition.uniform(Attribute("n", Type.FLOAT, 3, 3), 64).size == 4


def test_huge_bounds() -> None:
    top = 1.7976931348623157e308
    wide = partition.uniform(Attribute("x", Type.FLOAT, -top, top), 66)
    assert wide.size == 66
    assert [wide.cell(v) for v in (-math.inf, -top, 0, top, math.inf)] == [1, 2, 33, 64, 65]
    whole = partition.uniform(Attribute("n", Type.INT, INT_MIN, INT_MAX), 10)
    ends = np.array([INT_MIN, -1, 0, INT_MAX])
    rows = pa.record_batch({"n": ends})
    assert Grid((whole,)).cells(rows)[:, 0].tolist() == [whole.cell(int(end)) for end in ends] == [2, 5, 5, 8]


def test_integers_beyond_floats_fall_exactly() -> None:
    """A float is compared with 2**53 + 1 as a number, not after rounding."""
    edge = 2**54 + 2
    n = partition.at(Attribute("n", Type.INT), [edge])
    grid = Grid((n,))
    values = [edge - 1, edge, edge + 1, INT_MAX]
    assert grid.cells(pa.record_batch({"n": values}))[:, 0].tolist() == [1, 2, 2, 2]
    floats = [float(2**54), float(2**54 + 4), float(edge)]
    assert grid.cells(pa.record_batch({"n": floats}))[:, 0].tolist() == [n.cell(value) for value in floats]
    for low in (2.0**54, 2.0**54 + 4):
        for text in (f"n > {int(low)}", f"n >= {int(low)}", f"n < {int(low)}", f"n <= {int(low)}"):
            (box,) = normalize(parse(text)).boxes
            columns = BoxColumns.of([box])
            assert not columns.odd
            found, alone = grid.boxes_of_columns(columns), grid.boxes(box)
            assert (found.lows.tolist(), found.highs.tolist()) == (alone.lows.tolist(), alone.highs.tolist())
            for value in range(edge - 4, edge + 5):
                if {"n": value} in box:
                    assert found.lows[0, 0] <= n.cell(value) <= found.highs[0, 0]


def test_named_boundaries() -> None:
    heat = partition.at(Attribute("heat", Type.FLOAT), [36, 38], ["Low", "Normal", "Fever"])
    assert heat.label(heat.cell(38)) == "Fever"
    assert span(heat, "heat > 37.5") == [(2, 3)]
    with pytest.raises(SchemaError, match="3 cells, but there are 2 names"):
        partition.at(Attribute("heat", Type.FLOAT), [36, 38], ["Low", "High"])


def test_categories_keep_their_own_order() -> None:
    status = partition.uniform(SCHEMA["status"], 8)
    assert [status.cell(v) for v in ("automatic", "reviewed", "deleted", "lost", None, 3)] == [1, 2, 3, 4, 0, 0]
    assert span(status, "status IN ('automatic', 'deleted')") == [(1, 1), (3, 3)]
    assert span(status, "status LIKE '%ed'") == [(2, 4)]  # reviewed, deleted, and perhaps others
    assert span(status, "status != 'reviewed'") == [(1, 1), (3, 4)]
    assert span(status, "status = 'unheard of'") == [(4, 4)]
    assert status.label(4) == "other"


def test_too_many_categories_share_cells() -> None:
    kind = Attribute("kind", Type.STRING, categories=tuple("abcdefgh"))
    assert partition.uniform(kind, 6).parameters[2] == (("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"))
    seen = ["a"] * 50 + list("bcdefgh") * 5
    deep = partition.equi_depth(kind, seen, 6)
    assert deep.size <= 6
    assert [deep.cell(text) for text in "abh"] == sorted(deep.cell(text) for text in "abh")
    assert deep.label(1) == "a"


def test_a_taxonomy_keeps_families_together() -> None:
    kinds = Taxonomy(
        {"car": ["vehicle"], "truck": ["vehicle"], "vehicle": ["thing"], "rose": ["thing"], "cab": ["car"]}
    )
    kind = partition.by_taxonomy(Attribute("kind", Type.STRING), kinds, ["thing"])
    assert kind.parameters[2] == (("thing",), ("vehicle",), ("car",), ("cab",), ("truck",), ("rose",))
    mine = partition.by_taxonomy(Attribute("a", Type.STRING), KINDS.taxonomy, ["thing"])
    assert mine.parameters[2] == (("thing",), ("vehicle",), ("car",), ("ab",), ("truck",))
    assert span(mine, "is_a(a, 'car')") == [(3, 4), (6, 6)]  # strings that no cell knows may be anything
    assert span(mine, "NOT is_a(a, 'car')") == [(1, 2), (5, 6)]


def test_equi_depth_cells_hold_as_much_each() -> None:
    rng = np.random.default_rng(2)
    sample = rng.lognormal(0, 2, 4000)
    grid = Grid.equi_depth(Schema.of(x="float"), pa.record_batch({"x": sample}), cells=17)
    counts = np.bincount(grid.cells(pa.record_batch({"x": sample}))[:, 0], minlength=17)
    assert counts[0] == 0
    assert counts[1:].min() >= 245
    assert counts[1:].max() <= 255


def test_a_frequent_value_has_its_own_cell() -> None:
    x = partition.equi_depth(Attribute("x", Type.INT), [5] * 60 + list(range(40)), 8)
    assert x.label(x.cell(5)) == "[5, 5]"
    everything_alike = partition.equi_depth(Attribute("x", Type.INT), [5] * 60, 8)
    assert everything_alike.parameters[3] == ((5, 0), (5, 1))


def test_equi_depth_of_every_type() -> None:
    events = [
        {"magnitude": m / 10, "depth": m, "status": s, "felt": m % 2 == 0, "time": datetime(2018, 1, 1 + m, tzinfo=UTC)}
        for m, s in zip(range(20), ["automatic", "reviewed"] * 10, strict=True)
    ]
    grid = Grid.equi_depth(SCHEMA, events, cells=6)
    assert grid.shape == (6, 6, 5, 3, 6)
    assert (grid.cells(events) > 0).all()


def test_an_arrow_batch_falls_where_its_events_do() -> None:
    rng = np.random.default_rng(1)
    size = 200

    def holes(values: Any, kind: Any = None) -> Any:
        return pa.array(values, kind, mask=rng.random(size) < 0.2)

    words = np.array(["automatic", "reviewed", "deleted", "odd", ""])[rng.integers(0, 5, size)].tolist()
    floats = rng.normal(5, 5, size)
    floats[:4] = [math.nan, math.inf, -math.inf, -0.0]
    base = pa.record_batch(
        {
            "magnitude": holes(floats),
            "depth": holes(rng.integers(-100, 900, size)),
            "status": holes(words),
            "felt": holes(rng.random(size) < 0.5),
            "time": holes(rng.integers(1_500_000_000, 1_560_000_000, size) * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )
    turned = pa.record_batch(  # other types of the same names: ints for floats, a dictionary, what is of another type
        {
            "magnitude": holes(rng.integers(-2, 12, size)),
            "depth": holes(np.round(rng.normal(300, 300, size), 1)),
            "status": holes(words).dictionary_encode(),
            "felt": holes(rng.integers(0, 2, size)),
        }
    )
    line = LineCells("status", Type.STRING, (("b", 0), ("d", 1)))
    for batch in (base, turned, base.slice(3, 50), base.slice(0, 0)):
        for grid in (Grid.uniform(SCHEMA, 16), Grid((line,))):
            expected = [list(grid.cell(event)) for event in events_from_batch(batch)]
            assert grid.cells(batch).tolist() == expected
            assert grid.cells(events_from_batch(batch)).tolist() == expected


def test_bounds_and_texts_in_bulk() -> None:
    grid = Grid.uniform(SCHEMA, 16, ["magnitude", "status"])
    bounds = BoxColumns.from_bounds(
        {"magnitude": ([1.0, 5.0, 9.0], [2.0, math.nan, 8.0]), "status": ["deleted", None, "lost"]}
    )
    found = grid.boxes_of_columns(bounds)
    assert bounds.owners.tolist() == [0, 1]  # 9..8 matches nothing
    assert found.lows.tolist() == [[3, 3], [8, 0]]
    assert found.highs.tolist() == [[4, 3], [15, 4]]
    texts = ["magnitude > 5", "status = 'odd' OR magnitude < 1", "magnitude > 5 AND magnitude < 3", "TRUE"]
    space = ContentSpace(grid)
    owners, sets = space.range_sets(columns_of_texts(texts))
    assert owners.tolist() == [0, 1, 3]
    for row, owner in enumerate(owners.tolist()):
        assert sets[row] == space.ranges(texts[owner])
    assert sets[2].starts.tolist() == [0]
    assert sets[2].ends.tolist() == [space.curve.last]
    assert space.range_sets(columns_of_texts([]))[0].tolist() == []


def test_a_small_dimension_stays_in_few_pieces() -> None:
    """Three cells of a bool among 256 of a float: the predicate on the bool alone is a handful of ranges."""
    space = ContentSpace(Grid.uniform(SCHEMA, 256, ["magnitude", "felt"]))
    for text in ("felt", "NOT felt", "felt IS NULL"):
        assert len(space.ranges(text).starts) <= 4


def test_boxes_past_the_cap_are_joined_over_the_smallest_gap() -> None:
    grid = Grid((partition.uniform(Attribute("x", Type.INT, 0, 9), 13),))
    found = grid.boxes("x IN (0, 2, 3, 7)", most=2)
    assert list(zip(found.lows[:, 0].tolist(), found.highs[:, 0].tolist(), strict=True)) == [(2, 5), (9, 9)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Grid.uniform(Schema.of(x="float"), 8), "attribute 'x' has no bounds"),
        (lambda: Grid.uniform(Schema.of(Attribute("x", Type.INT, low=1)), 8), "attribute 'x' has no bounds"),
        (lambda: Grid.uniform(Schema.of(s="string"), 8), "attribute 's' has no categories"),
        (lambda: Grid.uniform(SCHEMA, 8, ["dept"]), "did you mean 'depth'"),
        (lambda: Grid.uniform(SCHEMA, {"depth": 8}), "'magnitude' has no number of cells"),
        (lambda: Grid.uniform(SCHEMA, {"depht": 8}, ["depth"]), "did you mean 'depth'"),
        (lambda: Grid.uniform(SCHEMA, 1), "give at least 2"),
        (lambda: Grid(()), "needs at least one attribute"),
        (lambda: Grid((Categories("s", ()), Categories("s", ()))), "duplicate attribute"),
        (lambda: Categories("s", (("a",), ("a",))), "duplicate category"),
        (lambda: LineCells("x", Type.INT, ((2, 0), (1, 0))), "not in order"),
        (lambda: LineCells("x", Type.INT, (("a", 0),)), "cannot be cut at 'a'"),
        (lambda: LineCells("x", Type.FLOAT, ((math.nan, 0),)), "cannot be cut at nan"),
        (lambda: partition.at(SCHEMA["depth"], ["deep"]), "'deep' of attribute 'depth' is not of type int"),
        (lambda: partition.at(SCHEMA["depth"], [math.inf]), "cannot be cut at inf"),
        (lambda: partition.at(SCHEMA["felt"], [True]), "use uniform cells"),
        (lambda: partition.categories(SCHEMA["depth"], ["a"]), "only strings have categories"),
        (lambda: partition.by_taxonomy(Attribute("s", Type.STRING), KINDS.taxonomy), "taxonomy's roots"),
        (lambda: Grid.equi_depth(SCHEMA, [{}], 8), "the sample has no value of 'magnitude'"),
        (lambda: Grid.from_parameters([["line"]]), "not the parameters of a grid"),
        (lambda: Grid.from_parameters([["line", "x", "float", [["a", 0]], []]]), "cannot be cut"),
        (lambda: Grid.from_parameters(None), "not the parameters of a grid"),  # type: ignore[arg-type]
        (lambda: ContentSpace.from_json("{}"), "not the parameters of a content space"),
        (lambda: ContentSpace.from_json("["), "not the parameters of a content space"),
        (lambda: ContentSpace.from_json('["hilbert", 0, [["categories", "s", []]]]'), "the cap 0"),
        (lambda: ContentSpace.from_json('["peano", 9, [["categories", "s", []]]]'), "there is no curve"),
        (lambda: ContentSpace(Grid.uniform(SCHEMA, 2**13)), "at most 12 bits"),
        (lambda: ContentSpace(Grid.uniform(SCHEMA, 16), most=2.5), "the cap 2.5"),  # type: ignore[arg-type]
        (lambda: Grid.uniform(SCHEMA, 0), "give at least 2"),
        (lambda: Grid.uniform(SCHEMA, 2**20 + 1), "give at most 1048576"),
        (lambda: Grid.uniform(SCHEMA, 2.5), "2.5 cells; give an integer"),  # type: ignore[arg-type]
        (lambda: Grid.uniform(SCHEMA, math.nan), "nan cells; give an integer"),  # type: ignore[arg-type]
        (lambda: Grid.uniform(SCHEMA, None), "None cells; give an integer"),  # type: ignore[arg-type]
        (lambda: Grid.uniform(SCHEMA, True), "True cells; give an integer"),
        (lambda: Grid.uniform(SCHEMA, "8"), "'8' cells; give an integer"),  # type: ignore[arg-type]
        (lambda: Grid.uniform(SCHEMA, {"depth": 2.5}, ["depth"]), "give an integer"),  # type: ignore[dict-item]
        (lambda: Grid.equi_depth(SCHEMA, [{"depth": 1}], 2.5), "give an integer"),  # type: ignore[arg-type]
        (lambda: partition.categories(SCHEMA["status"], ["a"], 2.5), "give an integer"),  # type: ignore[arg-type]
        (lambda: LabelSpace.of(SCHEMA, 0), "give at least 2"),
        (lambda: LabelSpace.of(SCHEMA, 2.5), "2.5 cells; give an integer"),  # type: ignore[arg-type]
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        make()


def test_an_unsatisfiable_filter_is_refused() -> None:
    space = ContentSpace(Grid.uniform(SCHEMA, 16))
    with pytest.raises(FilterError, match="never matches"):
        space.ranges("depth > 5 AND depth < 3")
    with pytest.raises(FilterError, match="never matches"):
        space.ranges("FALSE")


def test_a_box_of_sets_is_a_region_too() -> None:
    grid = Grid.uniform(SCHEMA, 16, ["depth"])
    assert spans(grid, Box({"depth": ValueSet(numbers=((0, 0),))})) == [[(2, 15)]]
