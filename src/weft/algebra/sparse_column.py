"""A column of intervals of which few rows have one. It is the column that has the same intervals, and takes memory for
these alone.

Thousands of filters over a thousand attributes are a table of which a thousandth is filled. `low`, `high` and `marks`
are made when they are asked for, so that only the column in hand is ever written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import Column
from weft.kernels.arrays import Floats
from weft.kernels.boxes import Marks


class SparseColumn(Column):
    """The intervals `low`, `high`, `marks` of some rows, of `size` in all; `rows` ascend.

    >>> column = SparseColumn(4, np.array([2]), Column(np.array([1.0]), np.array([5.0]), np.array([4], np.uint8)))
    >>> column.low.tolist(), column.marks.tolist()
    ([-inf, -inf, 1.0, -inf], [0, 0, 4, 0])
    """

    __slots__ = ("held", "rows", "size")
    rows: NDArray[np.int64]
    held: Column
    size: int

    def __init__(self, size: int, rows: NDArray[np.int64], held: Column) -> None:
        for name, value in (("size", size), ("rows", rows), ("held", held)):
            object.__setattr__(self, name, value)  # columns are frozen

    @property
    def low(self) -> Floats:
        """The low end of every row. Cost: O(size)."""
        ends = np.full(self.size, -np.inf)
        ends[self.rows] = self.held.low
        return ends

    @property
    def high(self) -> Floats:
        """The high end of every row. Cost: O(size)."""
        ends = np.full(self.size, np.inf)
        ends[self.rows] = self.held.high
        return ends

    @property
    def marks(self) -> Marks:
        """The marks of every row. Cost: O(size)."""
        marks = np.zeros(self.size, np.uint8)
        marks[self.rows] = self.held.marks
        return marks

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseColumn, (self.size, self.rows, self.held)
