"""One dimension of a grid: the values of an attribute in cells, numbered from 0. Every value, and absence, is in
exactly one cell. The cells of a value set include the cell of each of its values.

Cell 0 is "absent, or of another type" (MICS erratum 6). The kind of dimension determines the other cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import Column, ColumnPart
from weft.algebra.residual import Residuals
from weft.algebra.valueset import ValueSet
from weft.kernels.arrays import Ints
from weft.model.column import TypedColumn
from weft.model.value import Value

CellInterval = tuple[int, int]  # first and last cell

ABSENT = 0


class GridDimension(Protocol):
    """What a grid requires of a dimension."""

    @property
    def name(self) -> str:
        """The attribute."""

    @property
    def size(self) -> int:
        """The number of cells, including cell 0."""

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Everything that determines the cell of a value, as JSON types; equal for equal dimensions."""

    def cell(self, value: Value | None) -> int:
        """The cell of a value; None is absence."""

    def cells(self, column: TypedColumn) -> Ints:
        """The cells of a column of values."""

    def intervals(self, values: ValueSet, residuals: Residuals) -> list[CellInterval]:
        """The fewest intervals of cells that contain all values of a set that the residuals may let pass."""

    def spans(self, part: ColumnPart, column: Column, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The first and last cell of each interval of a column of boxes; `texts` are its strings."""

    def label(self, cell: int) -> str:
        """A cell as text for people."""


def is_integer(value: object) -> bool:
    """Whether a value is a Python or numpy integer. A bool is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def joined(intervals: Iterable[CellInterval]) -> list[CellInterval]:
    """Intervals in order, with touching ones joined.

    >>> joined([(5, 6), (0, 1), (2, 3)])
    [(0, 3), (5, 6)]
    """
    found: list[CellInterval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def cells_of_texts(texts: Iterable[str | None], cell: Callable[[str | None], int]) -> Ints:
    """The cells of strings, None for absence. Each different string is looked up once."""
    known: dict[str | None, int] = {}
    found: list[int] = []
    for text in texts:
        at = known.get(text)
        if at is None:
            at = known[text] = cell(text)
        found.append(at)
    return np.array(found, np.int64)


def spans_of_texts(low: NDArray[np.float64], cells: Ints, last: int) -> tuple[Ints, Ints]:
    """The cells of a column of string numbers; -inf stands for any string."""
    if len(cells) == 0:
        cells = np.zeros(1, np.int64)
    anything = np.isneginf(low)
    one = cells[np.where(anything, 0, low).astype(np.int64)]
    return np.where(anything, 1, one), np.where(anything, last, one)


def cells_of_strings(column: TypedColumn, cell: Callable[[str | None], int]) -> Ints:
    """The cells of a column of strings."""
    found = cells_of_texts(column.values.tolist(), cell)
    found[column.absent] = ABSENT  # where a dictionary column may contain any word
    return found


def has_others(values: ValueSet, own: ColumnPart) -> bool:
    """Whether a set contains values of any other type."""
    return bool(
        (own is not ColumnPart.NUMBERS and values.numbers)
        or (values.bools and own is not ColumnPart.BOOLS)
        or (values.timestamps and own is not ColumnPart.TIMESTAMPS)
        or (own is not ColumnPart.STRINGS and values.strings)
    )
