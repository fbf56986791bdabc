"""Texts that are conjunctions of comparisons as rows of columns, one at a time. A row is the box of
`normalize(parse(text))`.

For texts whose shape few others have: there is nothing to gather, and the text is read without making a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import MOST_SPANS, Column, ColumnKey, ColumnPart
from weft.kernels.arrays import Mask
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.constant import encodes
from weft.language.long_text import plain_comparisons
from weft.model.schema import Schema
from weft.model.value import Type

PARTS = {
    Type.INT: ColumnPart.NUMBERS,
    Type.FLOAT: ColumnPart.NUMBERS,
    Type.TIMESTAMP: ColumnPart.TIMESTAMPS,
    Type.STRING: ColumnPart.STRINGS,
}
EXACT_DIGITS = 15  # a whole number of so many digits is a float exactly
_LONGEST = 2048  # characters; beyond, the limits of the language must be minded

_Span = tuple[float, float, int]  # low, high and marks
_NARROW: dict[str, tuple[int, int]] = {  # the marks that an operator gives a low and a high end, or -1 for no end
    "=": (0, 0),
    ">": (LOW_OPEN, -1),
    ">=": (0, -1),
    "<": (-1, HIGH_OPEN),
    "<=": (-1, 0),
}


class DirectRows:
    """Rows while they are gathered: for each column the rows that it bounds, and their bounds."""

    def __init__(self, schema: Schema | None, strings: dict[str, int]) -> None:
        self.owners: list[int] = []
        self._schema = schema
        self._strings = strings  # shared with the other rows of a set
        self._held: dict[ColumnKey, tuple[list[int], list[float], list[float], list[int]]] = {}

    def take(self, owner: int, text: str) -> bool:
        """Take a filter, if it is a conjunction of comparisons that columns can hold."""
        if not isinstance(text, str) or len(text) > _LONGEST:
            return False
        tests = plain_comparisons(text)
        if tests is None:
            return False
        spans: dict[str, tuple[ColumnPart, _Span]] = {}
        for name, operator, constant in tests:
            marks = _NARROW.get(operator)
            number = None if marks is None else self._number(operator, constant)
            if marks is None or number is None:
                return False
            part, value = number
            before = spans.get(name)
            if before is None:
                if not self._fits(name, part):
                    return False
                spans[name] = part, _narrowed((-inf, inf, BOUNDED), marks, value)
            elif before[0] is not part or part is ColumnPart.STRINGS:
                return False
            else:
                spans[name] = part, _narrowed(before[1], marks, value)
        if len(spans) > MOST_SPANS:
            return False
        row = len(self.owners)
        self.owners.append(owner)
        for name, (part, (low, high, both)) in spans.items():
            held = self._held.get((name, part))
            if held is None:
                held = self._held[name, part] = ([], [], [], [])
            held[0].append(row)
            held[1].append(low)
            held[2].append(high)
            held[3].append(both)
        return True

    def _fits(self, name: str, part: ColumnPart) -> bool:
        declared = None if self._schema is None else self._schema.get(name)
        return declared is None or PARTS.get(declared.type) is part

    def _number(self, operator: str, constant: str) -> tuple[ColumnPart, float] | None:
        """The constant as a column has it; None if it cannot."""
        sign = constant[0]
        if sign == "'":
            text = constant[1:-1].replace("''", "'")
            if operator != "=" or not (text.isascii() or encodes(text)):
                return None
            return ColumnPart.STRINGS, float(self._strings.setdefault(text, len(self._strings)))
        if sign in "Tt":
            return None
        digits = constant[1:].lstrip() if sign in "+-" else constant
        value = float(digits)
        if digits.isdigit():
            if len(digits) > EXACT_DIGITS:
                return None
        elif not isfinite(value) or (value == 0 and digits.lower().partition("e")[0].strip("0.")):
            return None  # too large or too small for a float
        return ColumnPart.NUMBERS, -value + 0.0 if sign == "-" else value

    def columns(self) -> Iterator[tuple[ColumnKey, NDArray[np.int64], Column]]:
        """Each column, with the rows that it bounds."""
        for key, (rows, lows, highs, marks) in self._held.items():
            bounds = Column(np.array(lows, np.float64), np.array(highs, np.float64), np.array(marks, np.uint8))
            yield key, np.array(rows, np.int64), bounds


def _narrowed(span: _Span, marks: tuple[int, int], value: float) -> _Span:
    """What a test leaves of an interval."""
    low, high, both = span
    low_mark, high_mark = marks
    if low_mark >= 0 and (value > low or (value == low and low_mark > both & LOW_OPEN)):
        low, both = value, both & ~LOW_OPEN | low_mark
    if high_mark >= 0 and (value < high or (value == high and high_mark > both & HIGH_OPEN)):
        high, both = value, both & ~HIGH_OPEN | high_mark
    return low, high, both


def holds_any(column: Column) -> Mask:
    """Which intervals of a column hold anything."""
    closed = column.marks & (LOW_OPEN | HIGH_OPEN) == 0
    full: Mask = (column.low < column.high) | ((column.low == column.high) & closed)
    return full
