"""The content space: a grid and a curve through its cells, so that a filter is a set of ranges and an event a number
(MICS 3). The index of an event that matches a filter lies in the filter's ranges. Two spaces with equal parameters give
equal ranges and indexes.

All of this is arithmetic on public parameters, so clients can compute it themselves (MICS 6.1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft.algebra.columns import BoxColumns
from weft.algebra.relate import Region
from weft.errors import SchemaError
from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints, Mask
from weft.model.schema import Schema
from weft.space.curve import MOST_RANGES, PATIENCE, Curve, Order, check_cap
from weft.space.grid import CellBoxes, Grid
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

if TYPE_CHECKING:
    import pyarrow as pa


_LARGE = 64  # boxes of a union that get half the patience: their ranges are capped together
_LEAST_PATIENCE = 0.25  # of each box


@dataclass(frozen=True, slots=True)
class ContentSpace:
    """A grid, the order in which its cells are visited, and the maximal number of ranges of a filter.

    >>> from weft import Schema
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "int", "bounds": [0, 12]} for n in ("x", "y")}})
    >>> space = ContentSpace(Grid.uniform(schema, cells=16))
    >>> wanted = space.ranges("x BETWEEN 3 AND 5 AND y >= 7")
    >>> wanted.contains([space.index({"x": 4, "y": 9}), space.index({"x": 4}), space.index({"x": 4, "y": 99})]).tolist()
    [True, False, True]
    """

    grid: Grid
    order: Order = Order.HILBERT
    most: int = MOST_RANGES
    curve: Curve = field(init=False, compare=False, repr=False)
    _shifts: Ints = field(init=False, compare=False, repr=False)

    model: ClassVar[str] = "mics"
    fields: ClassVar[tuple[str, ...]] = ("start", "end")
    countable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_cap(self.most)
        needed = [(size - 1).bit_length() for size in self.grid.shape]
        object.__setattr__(self, "curve", Curve(len(needed), max(needed), self.order))
        object.__setattr__(self, "order", self.curve.order)
        # The cells of a small dimension are spread out to where the curve turns first, so its boxes stay in few pieces.
        object.__setattr__(self, "_shifts", max(needed) - np.array(needed, np.int64))

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that two ends must agree on; hashable, and made of JSON types."""
        return (str(self.order), self.most, self.grid.parameters)

    def to_json(self) -> str:
        """The parameters as JSON."""
        return json.dumps(self.parameters)

    @staticmethod
    def from_json(text: str) -> ContentSpace:
        """The space with these parameters. Raises SchemaError if they are not those of a content space."""
        try:
            order, most, grid = json.loads(text)
            if not isinstance(most, int):
                raise ValueError(f"the cap {most!r} is not an integer")
            return ContentSpace(Grid.from_parameters(grid), order, most)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise SchemaError(f"not the parameters of a content space: {error}; write them with to_json()") from None

    def index(self, event: AnyEvent) -> int:
        """The index of an event's cell."""
        return int(self.curve.index([np.array(self.grid.cell(event), np.int64) << self._shifts])[0])

    def indexes(self, batch: pa.RecordBatch | Sequence[AnyEvent], schema: Schema | None = None) -> Ints:
        """The indexes of a batch of events, as they conform to a schema."""
        return self.of_cells(self.grid.cells(batch, schema))

    def of_cells(self, cells: Ints) -> Ints:
        """The indexes of cells of the grid, one per row."""
        return self.curve.index(cells << self._shifts)

    def ranges(self, region: Region | str) -> RangeSet:
        """The ranges of a filter, at most `most`. Raises FilterError if it never matches."""
        boxes = self.grid.boxes(region)
        if ((boxes.lows == 0) & (boxes.highs == np.array(self.grid.shape) - 1)).all(axis=1).any():
            return RangeSet.of((0, self.curve.last))  # one box has every cell, and the others add none
        found = self._range_sets(boxes, np.full(len(boxes.rows), len(boxes.rows)))
        return found.union().capped(self.most)

    def range_sets(self, columns: BoxColumns) -> tuple[Ints, RangeSets]:
        """The owners of many boxes, each once and in order, and the ranges of each, as computed by `ranges`.

        An owner that never matches has no box and is not included. Cost: a few microseconds per box.
        """
        owners, counts, boxes = self.grid.boxes_by_owner(columns)
        found = self._range_sets(boxes, np.repeat(counts, counts))
        if len(owners) == len(boxes.rows):
            return owners, found
        parts = pairwise(found.offsets[np.append(0, np.cumsum(counts))].tolist())
        unions = (RangeSet.union_of(found.starts[begin:end], found.ends[begin:end]) for begin, end in parts)
        return owners, RangeSets.of(each.capped(self.most) for each in unions)

    def _range_sets(self, boxes: CellBoxes, together: Ints) -> RangeSets:
        """The ranges of each box. The boxes of one filter, of which there are `together`, share its patience."""
        top = np.array(self.grid.shape, np.int64) - 1
        lows = boxes.lows << self._shifts
        # There is nothing past the last cell, so a box that ends there is extended to the end of the curve, which takes
        # fewer pieces.
        highs = np.where(boxes.highs == top, (1 << self.curve.bits) - 1, ((boxes.highs + 1) << self._shifts) - 1)
        patience = PATIENCE / np.where(together > _LARGE, 2 * together, together)
        return self.curve.range_sets(lows, highs, self.most, np.maximum(patience, _LEAST_PATIENCE))

    # -- as a cell space ---------------------------------------------------------------------------

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Its grid."""
        return (self.grid,)

    @property
    def groups(self) -> tuple[ContentSpace, ...]:
        """Itself as the only group, as `MicsTable` expects."""
        return (self,)

    def by_group(self, items: Ints) -> list[Ints]:
        """The ranges of each group."""
        return [items]

    def items(self, boxes: Sequence[CellBoxes], owners: Ints) -> Ints:
        """The ranges of each owner, one owner after another, as rows (start, end)."""
        (mine,) = boxes
        order = np.argsort(owners[mine.rows], kind="stable")
        _, firsts, counts = np.unique(owners[mine.rows][order], return_index=True, return_counts=True)
        sorted_boxes = CellBoxes(mine.lows[order], mine.highs[order], mine.rows[order])
        found = self._range_sets(sorted_boxes, np.repeat(counts, counts))
        alone = np.repeat(np.repeat(counts == 1, counts), np.diff(found.offsets))
        several = counts > 1
        begins, ends = found.offsets[firsts[several]], found.offsets[(firsts + counts)[several]]
        parts = (slice(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
        united = [_rows(RangeSet.union_of(found.starts[part], found.ends[part]).capped(self.most)) for part in parts]
        return np.concatenate([_rows(found)[alone], *united])

    def united(self, items: Ints) -> Ints:
        """The union of ranges in any order."""
        return _rows(RangeSet.union_of(items[:, 0], items[:, 1]))

    def admits(self, items: Ints, cells: Sequence[Ints]) -> Mask:
        """Which cells are in the ranges."""
        (mine,) = cells
        return RangeSet(items[:, 0], items[:, 1]).contains(self.of_cells(mine))


def _rows(ranges: RangeSet | RangeSets) -> Ints:
    return np.stack([ranges.starts, ranges.ends], axis=1)
