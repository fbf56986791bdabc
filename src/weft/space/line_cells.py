"""A dimension that cuts a line into cells. An interval takes exactly the cells that it meets.

The first and the last cell are half-infinite, so a value out of bounds has a cell too. A line is cut like an interval,
just below a value or just above it, so open and closed ends are exact, and a closed end on an edge takes the cell that
it touches (MICS errata 5 and 6).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra import interval
from weft.algebra.columns import Column, ColumnPart
from weft.algebra.interval import NUMBERS, Cut, Line
from weft.algebra.residual import Residuals
from weft.algebra.valueset import ValueSet
from weft.errors import SchemaError
from weft.kernels.arrays import Ints
from weft.kernels.boxes import HIGH_OPEN, LOW_OPEN
from weft.model.column import TypedColumn
from weft.model.door import shown
from weft.model.value import INT_MAX, INT_MIN, Type, Value, to_micros, type_of
from weft.space.dimension import (
    ABSENT,
    CellInterval,
    cells_of_strings,
    cells_of_texts,
    has_others,
    joined,
    spans_of_texts,
)

_PARTS = {
    Type.INT: ColumnPart.NUMBERS,
    Type.FLOAT: ColumnPart.NUMBERS,
    Type.STRING: ColumnPart.STRINGS,
    Type.BOOL: ColumnPart.BOOLS,
    Type.TIMESTAMP: ColumnPart.TIMESTAMPS,
}


@dataclass(frozen=True, slots=True)
class LineCells:
    """A line in cells: numbers, timestamps (microseconds), bools, or strings by code point.

    >>> fever = LineCells("temperature", Type.FLOAT, ((35.5, 0), (38, 0)), ("Low", "Normal", "Fever"))
    >>> [fever.label(fever.cell(value)) for value in (35, 36.6, 38, "hot", None)]
    ['Low', 'Normal', 'Fever', 'absent', 'absent']
    """

    name: str
    type: Type
    cuts: Line
    labels: tuple[str, ...] = ()  # of cells 1, 2, ...
    _floats: NDArray[np.float64] = field(init=False, repr=False, compare=False)  # the smallest float above each cut
    _ints: Ints = field(init=False, repr=False, compare=False)  # the smallest int above each cut, where there is one

    def __post_init__(self) -> None:
        for value, side in self.cuts:
            fits = isinstance(value, str) if self.type is Type.STRING else _is_finite(value)
            if not fits or side not in (0, 1):
                raise SchemaError(
                    f"{self.name!r} cannot be cut at {shown(value)}, {side!r}; give a finite {self.type}, side 0 or 1"
                )
        if any(low >= high for low, high in pairwise(self.cuts)):
            raise SchemaError(f"the boundaries of {self.name!r} are not in order; sort them and remove duplicates")
        if self.labels and len(self.labels) != len(self.cuts) + 1:
            raise SchemaError(
                f"{len(self.cuts)} boundaries of {self.name!r} make {len(self.cuts) + 1} cells, "
                f"but there are {len(self.labels)} names; give one name per cell"
            )
        numbers = () if self.type is Type.STRING else self.cuts
        object.__setattr__(self, "_floats", np.array([_float_above(cut) for cut in numbers], np.float64))
        least = (_int_above(cut) for cut in numbers)
        ints = [max(value, INT_MIN) for value in least if value <= INT_MAX]
        object.__setattr__(self, "_ints", np.array(ints, np.int64))

    @property
    def size(self) -> int:
        """The number of cells, including cell 0."""
        return len(self.cuts) + 2

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Name, type, cuts and labels."""
        return ("line", self.name, str(self.type), self.cuts, self.labels)

    def cell(self, value: Value | None) -> int:
        """The cell of a value. Cost: O(log cells)."""
        kind = type_of(value)
        if kind is None or not kind.compares_with(self.type):
            return ABSENT
        return 1 + bisect_right(self.cuts, (to_micros(value) if isinstance(value, datetime) else value, 0))

    def cells(self, column: TypedColumn) -> Ints:
        """The cells of a column of values."""
        if column.type is None or not column.type.compares_with(self.type):
            return np.zeros(len(column.absent), np.int64)
        if self.type is Type.STRING:
            return cells_of_strings(column, self.cell)
        values = column.values
        steps: NDArray[Any] = self._floats if column.type is Type.FLOAT else self._ints
        found = 1 + np.searchsorted(steps, values if column.type is Type.FLOAT else values.astype(np.int64), "right")
        found[column.absent] = ABSENT
        return found

    def intervals(self, values: ValueSet, residuals: Residuals) -> list[CellInterval]:  # noqa: ARG002 - widened
        """The intervals of cells that the set meets. A line ignores residuals."""
        found = [(ABSENT, ABSENT)] if values.absent or has_others(values, _PARTS[self.type]) else []
        line = self._line(values)
        if len(line) == 2 and not found:  # the commonest
            return [(1 + bisect_right(self.cuts, line[0]), 1 + bisect_left(self.cuts, line[1]))]
        if len(line) > 2 * self.size:
            return joined(found + self._cells_met(line))
        for low, high in interval.intervals(line):
            last = len(self.cuts) if high is None else bisect_left(self.cuts, high)
            found.append((1 + bisect_right(self.cuts, low), 1 + last))
        return joined(found)

    def _cells_met(self, line: Line) -> list[CellInterval]:
        """The cells that a line of many intervals meets: each is looked up in it. Cost: O(cells log intervals)."""
        met: list[CellInterval] = []
        after, inside = 0, False  # nothing lies before the first cell
        for cell, cut in enumerate((*self.cuts, None), 1):
            until = len(line) if cut is None else bisect_left(line, cut)  # cuts of the line before the cell ends
            if inside or until > after:
                met.append((cell, cell))
            if cut is not None:
                after = bisect_right(line, cut)
                inside = after & 1 == 1
        return met

    def spans(self, part: ColumnPart, column: Column, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The first and last cell of each interval."""
        low, high, last = column.low, column.high, self.size - 1
        if part is not _PARTS[self.type]:
            return np.zeros(len(low), np.int64), np.zeros(len(low), np.int64)
        if part is ColumnPart.STRINGS:
            return spans_of_texts(low, cells_of_texts(texts, self.cell), last)
        low_open, high_open = (column.marks & LOW_OPEN) != 0, (column.marks & HIGH_OPEN) != 0
        if any(float(value) != value for value, _ in self.cuts):  # integers that no float equals: handled one by one
            starts = [bisect_right(self.cuts, cut) for cut in zip(low.tolist(), low_open.tolist(), strict=True)]
            stops = [bisect_left(self.cuts, cut) for cut in zip(high.tolist(), (~high_open).tolist(), strict=True)]
            return 1 + np.array(starts, np.int64), 1 + np.array(stops, np.int64)
        edges = np.array([value for value, _ in self.cuts], np.float64)
        closed = np.array([side == 0 for _, side in self.cuts] + [False])  # the cut is below its value
        below, to = np.searchsorted(edges, low, "left"), np.searchsorted(edges, low, "right")
        first = np.where(low_open, to, below + ((below < to) & closed[below]))
        below, to = np.searchsorted(edges, high, "left"), np.searchsorted(edges, high, "right")
        final = np.where(high_open, below, below + ((below < to) & closed[below]))
        return 1 + first, 1 + final

    def label(self, cell: int) -> str:
        """Its given name, or its interval."""
        if cell == ABSENT:
            return "absent"
        if self.labels:
            return self.labels[cell - 1]
        low = self.cuts[cell - 2] if cell > 1 else None
        high = self.cuts[cell - 1] if cell <= len(self.cuts) else None
        start = "(-inf" if low is None else f"{'(' if low[1] else '['}{low[0]}"
        end = "inf)" if high is None else f"{high[0]}{']' if high[1] else ')'}"
        return f"{start}, {end}"

    def _line(self, values: ValueSet) -> Line:
        part = _PARTS[self.type]
        if part is ColumnPart.NUMBERS:
            return values.numbers
        if part is ColumnPart.TIMESTAMPS:
            return values.timestamps
        if part is ColumnPart.STRINGS:
            return values.strings.hull_of_terms()
        return NUMBERS if len(values.bools) == 2 else tuple(c for b in values.bools for c in interval.point(int(b)))


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX + 1


def _float_above(cut: Cut) -> float:
    value, side = cut
    nearest = float(value)
    return math.nextafter(nearest, math.inf) if nearest < value or (nearest == value and side) else nearest


def _int_above(cut: Cut) -> int:
    value, side = cut
    least: int = math.floor(value) + 1 if side else math.ceil(value)
    return least
