"""Curves through the cells of a grid: a box of cells becomes ranges of one line (MICS 3.2, 3.3).
Laws: every cell has one index and every index one cell; the ranges of a box hold all of its cells; with room for all of
them they hold no other.

Neighbours on Hilbert's curve are neighbours in space, so it cuts a box into the fewest ranges; the two others are there
to show it. Ranges are inclusive, sorted, disjoint and not adjacent.
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
MOST_RANGES = 256  # of a box; more are closed over their smallest gaps
MOST_ALLOWED = 2**20  # ranges of a box that a caller may ask for
PATIENCE = 256  # halves that are looked at for each range that is allowed


class Order(StrEnum):
    """In which order a curve visits the cells."""

    HILBERT = "hilbert"
    Z_ORDER = "z-order"
    GRAY = "gray"


_KINDS = {Order.HILBERT: kernel.HILBERT, Order.Z_ORDER: kernel.Z_ORDER, Order.GRAY: kernel.GRAY}


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve through 2^bits cells in each of some dimensions.

    Hilbert's begins at cell (0, ..., 0) and ends at (2^bits - 1, 0, ..., 0). The worked example of MICS 3.3:

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
            raise SchemaError(f"no curve is named {self.order!r}: use one of {', '.join(Order)}") from None
        if self.dims < 1 or self.bits < 1:
            raise SchemaError(f"a curve needs a dimension and a bit at least: {self.dims} and {self.bits} are too few")
        if self.dims * self.bits > MOST_BITS:
            fits = MOST_BITS // self.dims
            hint = (
                f"use at most {fits} bits ({2**fits} cells) a dimension, or fewer dimensions"
                if fits
                else f"use at most {MOST_BITS} dimensions"
            )
            raise SchemaError(
                f"{self.dims} dimensions of {self.bits} bits make an index of {self.dims * self.bits} bits, "
                f"and {MOST_BITS} is the limit: {hint}"
            )

    @property
    def last(self) -> int:
        """The greatest index."""
        return (1 << self.dims * self.bits) - 1

    def index(self, cells: Any) -> Ints:
        """The indexes of cells, a row each. Cost: O(dims * bits) each."""
        rows = self._cells(cells)
        out = np.empty(len(rows), np.int64)
        kernel.index_cells(rows, self.bits, _KINDS[self.order], out)
        return out

    def cells(self, indexes: Any) -> Ints:
        """The cells at indexes, a row each. Cost: O(dims * bits) each."""
        given = np.ascontiguousarray(indexes, np.int64).reshape(-1)
        if len(given) and not 0 <= given.min() <= given.max() <= self.last:
            raise SchemaError(f"an index of this curve is 0..{self.last}: one of those given is outside")
        out = np.empty((len(given), self.dims), np.int64)
        kernel.cells_at(given, self.bits, _KINDS[self.order], out)
        return out

    def ranges(self, low: Any, high: Any, most: int = MOST_RANGES, patience: int = PATIENCE) -> RangeSet:
        """The ranges of the box between two cells, both included; the safe side of the cap is more, never less."""
        return self.range_sets([low], [high], most, patience)[0]

    def range_sets(self, lows: Any, highs: Any, most: int = MOST_RANGES, patience: Any = PATIENCE) -> RangeSets:
        """The ranges of many boxes, at most `most` each: the smallest gaps are closed first.

        Cost: O(ranges * dims * bits) a box, never more than a few times `most * patience` steps: a box with a larger
        surface is followed to a coarser level, whose cells count as in the box when they are partly in. There is one
        patience for all, or one for each.
        """
        check_cap(most)
        if np.min(patience, initial=1) < 1:
            raise SchemaError(f"a descent looks at one half at least: a patience of {patience} allows none")
        below, above = self._cells(lows), self._cells(highs)
        if below.shape != above.shape or (below > above).any():
            raise SchemaError("a box of cells has a low and a high cell, and no low above its high")
        steps = most * np.broadcast_to(np.asarray(patience, np.int64), len(below))
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
            raise SchemaError(f"a cell of this curve has {self.dims} coordinates: the rows given have others")
        if rows.size and not 0 <= rows.min() <= rows.max() < 2**self.bits:
            raise SchemaError(f"a coordinate of this curve is 0..{2**self.bits - 1}: one of those given is outside")
        return rows


def check_cap(most: int) -> None:
    """Raise SchemaError for a number of ranges that cannot be had."""
    if not is_integer(most) or not 1 <= most <= MOST_ALLOWED:
        raise SchemaError(f"a filter becomes 1 to {MOST_ALLOWED} ranges: a cap of {most!r} is no such integer")
