"""A grid over some attributes of a schema: events fall into cells, filters cover boxes of cells (MICS 3.3). An event
that matches a filter is in a cell that the filter covers.

Without a predicate, a filter covers all cells of a dimension, including the one for "absent"; a range over the whole
domain does not cover that one. A condition that a grid cannot express (a comparison between attributes, an attribute
without a dimension) widens to everything there. A set of several intervals gives several boxes, because its hull would
often be everything (`x != 5`, `x IS NULL OR x > 9`); past a cap, the smallest gaps are closed.

If a filter is given, the law holds for events as they are. If a normal form under a schema is given, which is finer on
integers, it holds for events that conform to that schema. A network must use one or the other everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.algebra.box import Box, NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.normalize import normalize
from weft.algebra.relate import Region
from weft.errors import FilterError, SchemaError
from weft.index.base import AnyEvent
from weft.index.events import EventColumns
from weft.kernels.arrays import Ints
from weft.kernels.boxes import BOUNDED
from weft.language.ast import as_filter
from weft.language.text import parse
from weft.model.event import attributes_of
from weft.model.schema import Schema, did_you_mean
from weft.model.value import Type
from weft.space import partition
from weft.space.categories import Categories
from weft.space.cells_met import CellsMet
from weft.space.dimension import CellInterval, GridDimension, cells_of_texts
from weft.space.line_cells import LineCells

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BOXES = 16  # of cells, per box of values


class CellBoxes(NamedTuple):
    """Boxes of cells: the first and last cell in each dimension, and the row that each box belongs to."""

    lows: Ints
    highs: Ints
    rows: Ints


@dataclass(frozen=True, slots=True)
class Grid:
    """Dimensions, each in cells.

    >>> from weft import Schema, parse
    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 10]}, "ok": "bool"}})
    >>> grid = Grid.uniform(schema, cells=8)
    >>> grid.cell({"x": 4, "ok": True}), grid.cell({"x": -1}), grid.cell({"x": "?", "ok": False})
    ((4, 2), (1, 0), (0, 1))
    >>> covered = grid.boxes(parse("x BETWEEN 2 AND 4"))
    >>> covered.lows.tolist(), covered.highs.tolist()
    ([[3, 0]], [[4, 2]])
    """

    dimensions: tuple[GridDimension, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        if not self.dimensions:
            raise SchemaError("a grid needs at least one attribute; name one")
        if len(set(self.names)) != len(self.dimensions):
            raise SchemaError(
                f"duplicate attribute in the grid of {', '.join(self.names)}; give one dimension for each"
            )

    @staticmethod
    def uniform(schema: Schema, cells: int | Mapping[str, int] = 256, names: Iterable[str] | None = None) -> Grid:
        """Cells of equal width between the schema's bounds, for all attributes or the named ones."""
        chosen = _chosen(schema, names, cells)
        return Grid(tuple(partition.uniform(schema[name], count) for name, count in chosen))

    @staticmethod
    def equi_depth(
        schema: Schema,
        sample: pa.RecordBatch | Sequence[AnyEvent],
        cells: int | Mapping[str, int] = 256,
        names: Iterable[str] | None = None,
    ) -> Grid:
        """Cells that contain about the same number of the sample's events (MICS 6.3)."""
        chosen = _chosen(schema, names, cells)
        columns = EventColumns.of(sample, [name for name, _ in chosen])
        return Grid(tuple(partition.equi_depth(schema[name], columns.values(name), count) for name, count in chosen))

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes in the order of dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells in each dimension."""
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that two ends must agree on: equal for equal grids, hashable, and made of JSON types.

        `Grid.from_parameters` reads it back, before or after JSON.
        """
        return tuple(dimension.parameters for dimension in self.dimensions)

    @staticmethod
    def from_parameters(parameters: Sequence[Any]) -> Grid:
        """The grid with these parameters. Raises SchemaError if they are not those of a grid."""
        try:
            return Grid(tuple(map(_dimension, parameters)))
        except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
            raise SchemaError(f"not the parameters of a grid: {error}; pass those of another grid") from None

    def cell(self, event: AnyEvent) -> tuple[int, ...]:
        """The cell of an event. Cost: O(log cells) per dimension."""
        values = attributes_of(event)
        return tuple(dimension.cell(values.get(dimension.name)) for dimension in self.dimensions)

    def cells(self, batch: pa.RecordBatch | Sequence[AnyEvent], schema: Schema | None = None) -> Ints:
        """The cells of a batch of events, one row each, as they conform to a schema."""
        columns = EventColumns.of(batch, self.names, schema)
        out = np.zeros((columns.size, len(self.dimensions)), np.int64)
        for at, dimension in enumerate(self.dimensions):
            column = columns.columns.get(dimension.name)
            if column is not None:
                out[:, at] = dimension.cells(column)
            elif dimension.name in columns.strings:
                coded = columns.strings[dimension.name].dictionary_encode()
                words = np.array([dimension.cell(text) for text in (*coded.dictionary.to_pylist(), None)], np.int64)
                out[:, at] = words[coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
            elif dimension.name in columns.texts:
                out[:, at] = cells_of_texts(columns.texts[dimension.name], dimension.cell)
            elif dimension.name in columns.mixed:
                out[:, at] = [dimension.cell(value) for value in columns.mixed[dimension.name]]
        return out

    def boxes(self, region: Region | str, most: int = MOST_BOXES) -> CellBoxes:
        """The boxes of cells that cover a filter; `rows` numbers the boxes of its normal form.

        Raises FilterError if the filter never matches: an empty interest is dropped, not forwarded.
        """
        found = self._gather(enumerate(_boxes(region)), most)
        if len(found.rows) == 0:
            raise FilterError("this filter never matches, so it covers no cell; do not forward it")
        return found

    def boxes_of_columns(self, columns: BoxColumns) -> CellBoxes:
        """The same for many boxes at once; `rows` are the rows of the columns. Cost: O(rows) per dimension."""
        size = len(columns)
        lows = np.zeros((size, len(self.dimensions)), np.int64)
        highs = np.tile(np.array(self.shape, np.int64) - 1, (size, 1))
        for at, dimension in enumerate(self.dimensions):
            for (name, part), column in columns.columns.items():
                if name == dimension.name:
                    rows = column.marks >= BOUNDED
                    first, last = dimension.spans(part, column, columns.texts())
                    lows[rows, at], highs[rows, at] = first[rows], last[rows]
        if not columns.odd:
            return CellBoxes(lows, highs, np.arange(size))
        odd = self._gather(columns.odd.items(), MOST_BOXES)
        rows = np.delete(np.arange(size), list(columns.odd))
        numbers = np.concatenate([rows, odd.rows])
        order = np.argsort(numbers, kind="stable")
        every = np.concatenate([lows[rows], odd.lows]), np.concatenate([highs[rows], odd.highs])
        return CellBoxes(every[0][order], every[1][order], numbers[order])

    def boxes_by_owner(self, columns: BoxColumns) -> tuple[Ints, Ints, CellBoxes]:
        """The owners of the columns' boxes, each once and in order, the number of boxes of cells of each, and these
        boxes, owner by owner. An owner without a box is not included.
        """
        boxes = self.boxes_of_columns(columns)
        holders = columns.owners[boxes.rows]
        order = np.argsort(holders, kind="stable")
        owners, counts = np.unique(holders, return_counts=True)
        return owners, counts, CellBoxes(boxes.lows[order], boxes.highs[order], boxes.rows[order])

    def _gather(self, boxes: Iterable[tuple[int, Box]], most: int) -> CellBoxes:
        found: list[tuple[CellInterval, ...]] = []
        rows: list[int] = []
        met = CellsMet(self.dimensions, most)
        for row, box in boxes:
            covered = met.boxes(box)
            found += covered
            rows += [row] * len(covered)
        corners = np.array(found, np.int64).reshape(-1, len(self.dimensions), 2)
        return CellBoxes(corners[:, :, 0].copy(), corners[:, :, 1].copy(), np.array(rows, np.int64))


def _boxes(region: Region | str) -> tuple[Box, ...]:
    if isinstance(region, NormalForm):
        return region.boxes
    if isinstance(region, Box):
        return (region,)
    return normalize(parse(region) if isinstance(region, str) else as_filter(region)).boxes


def _chosen(schema: Schema, names: Iterable[str] | None, cells: int | Mapping[str, int]) -> list[tuple[str, int]]:
    chosen = list(schema) if names is None else list(names)
    for name in (*chosen, *(cells if isinstance(cells, Mapping) else ())):
        if name not in schema:
            raise SchemaError(f"the schema has no attribute {name!r}{did_you_mean(name, schema)}")
    if not isinstance(cells, Mapping):
        return [(name, cells) for name in chosen]
    for name in chosen:
        if name not in cells:
            raise SchemaError(f"attribute {name!r} has no number of cells; give one for each attribute")
    return [(name, cells[name]) for name in chosen]


def _dimension(form: Sequence[Any]) -> GridDimension:
    match form:
        case ["line", str() as name, kind, cuts, labels]:
            return LineCells(name, Type(kind), tuple((value, int(side)) for value, side in cuts), _texts(labels))
        case ["categories", str() as name, groups]:
            return Categories(name, tuple(_texts(group) for group in groups))
    raise ValueError("a dimension is neither a line nor categories")


def _texts(several: Any) -> tuple[str, ...]:
    if not isinstance(several, list | tuple) or not all(isinstance(each, str) for each in several):
        raise ValueError("categories and labels must be lists of strings")
    return tuple(several)
