"""Curves through the cells of a grid: a box of cells becomes ranges of one line (MICS 3.2, 3.3). Every cell has one
index and every index one cell. The ranges of a box contain all of its cells. Without a cap they contain no others.

Neighbours on Hilbert's curve are neighbours in space, so it cuts a box into the fewest ranges; the other two are there
for comparison. Ranges are inclusive, sorted, disjoint and not adjacent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from weft.errors import SchemaError
from weft.kernels import curves as kernel
from weft.kernels.arrays import Ints
from weft.space.dimension import is_integer
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

MOST_BITS = 63  # of an index: an int64 without its sign
MOST_RANGES = 256  # of a box; if there are more, the smallest gaps are closed
MOST_ALLOWED = 2**20  # ranges of a box that a caller may request
PATIENCE = 256  # halves that are visited for each allowed range


class Order(StrEnum):
    """The order in which a curve visits the cells."""

    HILBERT = "hilbert"
    Z_ORDER = "z-order"
    GRAY = "gray"


_KINDS = {Order.HILBERT: kernel.HILBERT, Order.Z_ORDER: kernel.Z_ORDER, Order.GRAY: kernel.GRAY}


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through 2^bits cells in each dimension.

    Hilbert's curve begins at cell (0, ..., 0) and ends at (2^bits - 1, 0, ..., 0). The worked example of MICS 3.3:

    >>> curve = Curve(dims=2, bits=3)
    >>> curve.index([(3, 5), (5, 3), (6, 2)]).tolist()
    [28, 52, 50]
    >>> found = curve.ranges((4, 2), (6, 5))
    >>> list(zip(found.starts.tolist(), found.ends.tolist()))
    [(32, 35), (45, 46), (50, 55)]
    """

    dims: int
    bits: int
    order: Order = Order.HILBERT

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "order", Order(self.order))
        except ValueError:
            raise SchemaError(f"there is no curve {self.order!r}; use one of {', '.join(Order)}") from None
        if self.dims < 1 or self.bits < 1:
            raise SchemaError(
                f"a curve of {self.dims} dimensions and {self.bits} bits is empty; give at least 1 of both"
            )
        if self.dims * self.bits > MOST_BITS:
            fits = MOST_BITS // self.dims
            hint = (
                f"use at most {fits} bits ({2**fits} cells) per dimension, or fewer dimensions"
                if fits
                else f"use at most {MOST_BITS} dimensions"
            )
            raise SchemaError(
                f"{self.dims} dimensions of {self.bits} bits make an index of {self.dims * self.bits} bits, "
                f"and {MOST_BITS} is the limit; {hint}"
            )

    @property
    def last(self) -> int:
        """The greatest index."""
        return (1 << self.dims * self.bits) - 1

    def index(self, cells: Any) -> Ints:
        """The indexes of cells, one per row. Cost: O(dims * bits) each."""
        rows = self._cells(cells)
        out = np.empty(len(rows), np.int64)
        kernel.index_cells(rows, self.bits, _KINDS[self.order], out)
        return out

    def cells(self, indexes: Any) -> Ints:
        """The cells at the given indexes, one per row. Cost: O(dims * bits) each."""
        given = np.ascontiguousarray(indexes, np.int64).reshape(-1)
        if len(given) and not 0 <= given.min() <= given.max() <= self.last:
            raise SchemaError(f"an index is outside this curve; give indexes from 0 to {self.last}")
        out = np.empty((len(given), self.dims), np.int64)
        kernel.cells_at(given, self.bits, _KINDS[self.order], out)
        return out

    def ranges(self, low: Any, high: Any, most: int = MOST_RANGES, patience: int = PATIENCE) -> RangeSet:
        """The ranges of the box between two cells, both included. A cap can only add points, never remove any."""
        return self.range_sets([low], [high], most, patience)[0]

    def range_sets(self, lows: Any, highs: Any, most: int = MOST_RANGES, patience: Any = PATIENCE) -> RangeSets:
        """The ranges of many boxes, at most `most` each: the smallest gaps are closed first.

        Cost: O(ranges * dims * bits) per box, and never more than a few times `most * patience` steps: a box with a
        larger surface is followed to a coarser level, where cells that are partly in the box count as inside.
        `patience` is one number for all boxes, or one for each; a fraction visits less than each range once.
        """
        check_cap(most)
        if np.min(patience, initial=1) <= 0:
            raise SchemaError(f"a patience of {patience} visits nothing; give more than 0")
        below, above = self._cells(lows), self._cells(highs)
        if below.shape != above.shape or (below > above).any():
            raise SchemaError(
                "the low and high cells do not form boxes; give as many of both, with no low above its high"
            )
        steps = np.ceil(most * np.broadcast_to(np.asarray(patience, np.float64), len(below))).astype(np.int64)
        offsets = np.zeros(len(below) + 1, np.int64)
        room = 4 * len(below) + most
        starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
        row = 0
        while True:
            row = kernel.cover_boxes(
                below, above, self.bits, _KINDS[self.order], most, steps, row, offsets, starts, ends
            )
            if row == len(below):
                break
            more = np.empty(len(starts) + most, np.int64)
            starts, ends = np.concatenate([starts, more]), np.concatenate([ends, more])
        return RangeSets(offsets, starts[: offsets[-1]], ends[: offsets[-1]])

    def _cells(self, cells: Any) -> Ints:
        rows = np.ascontiguousarray(cells, np.int64)
        if rows.size == 0:
            rows = rows.reshape(0, self.dims)
        if rows.ndim != 2 or rows.shape[1] != self.dims:
            raise SchemaError(f"a cell has the wrong number of coordinates; this curve needs {self.dims} per row")
        if rows.size and not 0 <= rows.min() <= rows.max() < 2**self.bits:
            raise SchemaError(f"a coordinate is outside this curve; give coordinates from 0 to {2**self.bits - 1}")
        return rows


def check_cap(most: int) -> None:
    """Raise SchemaError for an invalid number of ranges."""
    if not is_integer(most) or not 1 <= most <= MOST_ALLOWED:
        raise SchemaError(f"the cap {most!r} is not a number of ranges; give an integer from 1 to {MOST_ALLOWED}")
