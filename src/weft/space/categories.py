"""A dimension of known strings in cells. An unknown string has its own cell, after all known ones.

The order is chosen by the user or by a taxonomy, so that strings that are requested together are neighbours. Patterns
and user predicates are exact here, because each known string can be tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.algebra import interval
from weft.algebra.columns import Column, ColumnPart
from weft.algebra.residual import Called, Residuals
from weft.algebra.valueset import ValueSet
from weft.errors import SchemaError
from weft.kernels.arrays import Ints
from weft.model.column import TypedColumn
from weft.model.value import Type, Value
from weft.space.dimension import (
    ABSENT,
    CellInterval,
    cells_of_strings,
    cells_of_texts,
    has_others,
    joined,
    spans_of_texts,
)


@dataclass(frozen=True, slots=True)
class Categories:
    """Known strings in cells of one or more, in an order of their own, and a last cell for all other strings.

    >>> kind = Categories("kind", (("quake",), ("blast", "collapse")))
    >>> [kind.cell(value) for value in ("quake", "collapse", "ice", 7)]
    [1, 2, 3, 0]
    """

    name: str
    groups: tuple[tuple[str, ...], ...]
    _known: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {text: 1 + at for at, group in enumerate(self.groups) for text in group}
        if len(known) != sum(map(len, self.groups)):
            raise SchemaError(f"duplicate category of attribute {self.name!r}; list each category once")
        object.__setattr__(self, "_known", known)

    @property
    def size(self) -> int:
        """The number of cells, including cell 0 and the cell of other strings."""
        return len(self.groups) + 2

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Name and groups."""
        return ("categories", self.name, self.groups)

    def cell(self, value: Value | None) -> int:
        """The cell of a value. Cost: O(1)."""
        return self._known.get(value, self.size - 1) if isinstance(value, str) else ABSENT

    def cells(self, column: TypedColumn) -> Ints:
        """The cells of a column of values."""
        if column.type is not Type.STRING:
            return np.zeros(len(column.absent), np.int64)
        return cells_of_strings(column, self.cell)

    def intervals(self, values: ValueSet, residuals: Residuals) -> list[CellInterval]:
        """The intervals of cells that the set meets. User predicates (is_a) are evaluated for each category."""
        found = [(ABSENT, ABSENT)] if values.absent or has_others(values, ColumnPart.STRINGS) else []
        strings = values.strings
        asked = [
            (subject, allowed)
            for subject, allowed in residuals.items()
            if isinstance(subject, Called) and subject.names == (self.name,)
        ]
        points = None if strings.terms else interval.points(strings.line)
        texts = self._known if points is None else [text for text in points if text in self._known]
        for text in texts:
            among = points is not None or text in strings
            if among and all(subject.outcome({self.name: text}) in allowed for subject, allowed in asked):
                found.append((self._known[text], self._known[text]))
        if points is None or len(texts) < len(points):
            found.append((self.size - 1, self.size - 1))
        return joined(found)

    def tests(self, values: ValueSet, residuals: Residuals) -> int:
        """How many tests `intervals` makes at most."""
        called = sum(isinstance(subject, Called) and subject.names == (self.name,) for subject in residuals)
        return len(self._known) * (1 + len(values.strings.terms) + called)

    def around(self, values: ValueSet) -> list[CellInterval]:
        """As `intervals`, without a test: all cells of strings if there is any string."""
        found = [(ABSENT, ABSENT)] if values.absent or has_others(values, ColumnPart.STRINGS) else []
        return joined([*found, (1, self.size - 1)] if values.strings else found)

    def spans(self, part: ColumnPart, column: Column, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The first and last cell of each interval."""
        if part is not ColumnPart.STRINGS:
            return np.zeros(len(column.low), np.int64), np.zeros(len(column.low), np.int64)
        return spans_of_texts(column.low, cells_of_texts(texts, self.cell), self.size - 1)

    def label(self, cell: int) -> str:
        """Its categories."""
        return "absent" if cell == ABSENT else "other" if cell == self.size - 1 else ", ".join(self.groups[cell - 1])
