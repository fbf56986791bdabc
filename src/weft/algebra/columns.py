"""Many boxes as columns: one box is compared with all of them in a few array operations. Every answer is the one that
the boxes themselves give, row by row.

A set that is one interval of numbers or timestamps, one string, or bools, is a row of a column; a box with anything
else in it is kept as an object beside the columns, and compared as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.bounds import are_moments, bounds_size, floats, string_numbers
from weft.algebra.box import Box
from weft.algebra.spans import ColumnKey, ColumnPart, Span, span_of, values_of
from weft.errors import FilterError
from weft.kernels import boxes as kernel
from weft.kernels.arrays import Floats, Mask
from weft.kernels.boxes import BOUNDED, Marks

__all__ = ["BoxColumns", "Column", "ColumnKey", "ColumnPart"]

_UNKNOWN_STRING = -1.0
MOST_SPANS = 64  # attributes; a box with more is kept as an object, since each would be a column over all rows


@dataclass(frozen=True, slots=True)
class Column:
    """The intervals of one attribute and part, one row per box."""

    low: Floats
    high: Floats
    marks: Marks

    @staticmethod
    def blank(size: int) -> Column:
        """A column in which no row has an interval."""
        return Column(np.full(size, -np.inf), np.full(size, np.inf), np.zeros(size, np.uint8))


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """Boxes as columns; `owners` has the filter that each row belongs to.

    >>> from weft import normalize, parse
    >>> rows = [normalize(parse(f"x > {n}")).boxes[0] for n in range(5)]
    >>> BoxColumns.of(rows).covered_by(rows[2]).tolist()
    [False, False, True, True, True]
    """

    columns: dict[ColumnKey, Column]
    owners: NDArray[np.int64]
    odd: dict[int, Box] = field(default_factory=dict)  # row -> a box that columns cannot hold
    strings: dict[str, int] = field(default_factory=dict)  # a string's number in the columns
    _texts: list[str] = field(default_factory=list, repr=False, compare=False)

    @staticmethod
    def of(
        boxes: Iterable[Box],
        owners: Sequence[int] | None = None,
        strings: dict[str, int] | None = None,
        beside: Container[int] = (),
    ) -> BoxColumns:
        """Columns of boxes; without owners, each box is its own. Known strings keep their numbers.

        The boxes of the rows `beside` are kept as objects.
        """
        rows = list(boxes)
        strings = {} if strings is None else strings
        columns: dict[ColumnKey, Column] = {}
        odd: dict[int, Box] = {}
        for row, box in enumerate(rows):
            spans = None if row in beside else _spans(box, lambda text: strings.setdefault(text, len(strings)))
            if spans is None:
                odd[row] = box
                continue
            for key, low, high, marks in spans:
                column = columns.get(key)
                if column is None:
                    column = columns[key] = Column.blank(len(rows))
                column.low[row], column.high[row], column.marks[row] = low, high, marks
        numbers = np.arange(len(rows)) if owners is None else np.asarray(owners, np.int64)
        return BoxColumns(columns, numbers, odd, strings)

    @staticmethod
    def from_bounds(bounds: Mapping[str, Any]) -> BoxColumns:
        """Columns of bounds: for each attribute a pair (low, high), both included, or an array of values to equal.

        NaN, None and NULL mean that there is no bound; a row whose low is above its high matches nothing and is left
        out. Bounds are numpy arrays, Arrow arrays or lists of numbers, in Arrow also timestamps; values to equal may
        also be strings.

        >>> from weft.algebra.valueset import ValueSet
        >>> rows = BoxColumns.from_bounds({"x": ([1.0, 5.0], [2.0, math.nan]), "s": ["a", None]})
        >>> rows.box(1) == Box({"x": ValueSet(numbers=((5, 0),))})
        True
        """
        columns: dict[ColumnKey, Column] = {}
        strings: dict[str, int] = {}
        size = bounds_size(bounds)
        fine = np.ones(size, bool)
        for name, each in bounds.items():
            if isinstance(each, tuple):
                low, high = (floats(name, side, size) for side in each)
                kinds = {are_moments(side) for side in each if side is not None}
                if len(kinds) > 1:
                    raise FilterError(f"the bounds of {name!r} are timestamps on one side only; use one type for both")
                part = ColumnPart.TIMESTAMPS if True in kinds else ColumnPart.NUMBERS
            elif (numbers := string_numbers(each, strings)) is not None:
                low = high = numbers
                part = ColumnPart.STRINGS
            else:
                low = high = floats(name, each, size)
                part = ColumnPart.TIMESTAMPS if are_moments(each) else ColumnPart.NUMBERS
            if len(low) != size or len(high) != size:
                raise FilterError(f"the columns of {name!r} have {len(low)} and {len(high)} rows, others {size}")
            bounded = ~(np.isnan(low) & np.isnan(high))
            low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
            columns[name, part] = Column(low, high, np.where(bounded, np.uint8(BOUNDED), np.uint8(0)))
            fine &= low <= high
        if not fine.all():
            columns = {key: Column(c.low[fine], c.high[fine], c.marks[fine]) for key, c in columns.items()}
        return BoxColumns(columns, np.flatnonzero(fine), {}, strings)

    @staticmethod
    def joined(parts: Iterable[tuple[BoxColumns, int]]) -> BoxColumns:
        """Parts one after another, each with the number of its filters; owners of the next part are counted from there.

        >>> a, b = BoxColumns.from_bounds({"s": ["a", "b"]}), BoxColumns.from_bounds({"s": ["b"]})
        >>> both = BoxColumns.joined([(a, 2), (b, 1)])
        >>> both.owners.tolist(), both.box(1) == both.box(2)
        ([0, 1, 2], True)
        """
        some = list(parts)
        size = sum(len(part) for part, _ in some)
        owners = np.zeros(size, np.int64)
        columns: dict[ColumnKey, Column] = {}
        odd: dict[int, Box] = {}
        strings: dict[str, int] = {}
        row = owner = 0
        for part, filters in some:
            rows = slice(row, row + len(part))
            owners[rows] = part.owners + owner
            odd |= {row + at: box for at, box in part.odd.items()}
            numbers = np.array([strings.setdefault(text, len(strings)) for text in part.strings], np.float64)
            for key, column in part.columns.items():
                if key not in columns:
                    columns[key] = Column.blank(size)
                here, into = _renumbered(column, numbers) if key[1] is ColumnPart.STRINGS else column, columns[key]
                into.low[rows], into.high[rows], into.marks[rows] = here.low, here.high, here.marks
            row, owner = row + len(part), owner + filters
        return BoxColumns(columns, owners, odd, strings)

    def of_owners(self, owners: NDArray[np.int64]) -> BoxColumns:
        """The rows of some owners, which are renumbered in the given order, with the strings that they use."""
        places = np.searchsorted(owners, self.owners)
        kept = np.flatnonzero(np.isin(self.owners, owners))
        columns = {key: Column(c.low[kept], c.high[kept], c.marks[kept]) for key, c in self.columns.items()}
        words = [column for (_, part), column in columns.items() if part is ColumnPart.STRINGS]
        strings: dict[str, int] = {}
        if words:
            numbers = np.zeros(len(self.strings))
            ends = np.concatenate([column.low for column in words])
            used = np.unique(ends[np.isfinite(ends)]).astype(np.int64)
            numbers[used] = np.arange(len(used))
            texts = self.texts()
            strings = {texts[number]: at for at, number in enumerate(used.tolist())}
            columns = {k: _renumbered(c, numbers) if k[1] is ColumnPart.STRINGS else c for k, c in columns.items()}
        rows = {row: at for at, row in enumerate(kept.tolist())} if self.odd else {}
        odd = {rows[row]: box for row, box in self.odd.items() if row in rows}
        return BoxColumns(columns, places[kept], odd, strings)

    def __len__(self) -> int:
        return len(self.owners)

    def __iter__(self) -> Iterator[Box]:
        return map(self.box, range(len(self)))

    def box(self, row: int) -> Box:
        """The box of a row."""
        if row in self.odd:
            return self.odd[row]
        texts = self.texts()
        sets = {}
        for key, column in self.columns.items():
            if column.marks[row] & BOUNDED:
                span = (key, float(column.low[row]), float(column.high[row]), int(column.marks[row]))
                sets[key[0]] = values_of(span, texts)
        return Box(sets)

    def texts(self) -> list[str]:
        """The strings by their numbers."""
        if len(self._texts) != len(self.strings):
            self._texts[:] = self.strings
        return self._texts

    def covered_by(self, box: Box) -> Mask:
        """Rows that the box covers. Cost: O(rows) for each attribute of the box."""
        rows = np.ones(len(self), bool)
        rest = bool(box.residuals)
        for key, span in self._asked(box):
            if span is None:
                rest = True
            elif key not in self.columns:
                rows[:] = False
            else:
                column = self.columns[key]
                rows &= kernel.within(column.low, column.high, column.marks, *span[1:])
        return self._settle(rows, rest, box.covers)

    def covering(self, box: Box) -> Mask:
        """Rows that cover the box. Cost: O(rows) for each column."""
        asked = dict(self._asked(box))
        rows = np.ones(len(self), bool)
        rest = any(span is None for span in asked.values())
        for key, column in self.columns.items():
            if (key[0], None) in asked:
                continue  # no span expresses this set: the rows are compared one by one
            span = asked.get(key) or (key, -math.inf, math.inf, 0)
            rows &= kernel.around(column.low, column.high, column.marks, *span[1:])
        return self._settle(rows, rest, lambda row: row.covers(box))

    def overlapping(self, box: Box) -> Mask:
        """Rows that overlap the box. Cost: O(rows) for each column of an attribute of the box."""
        asked = dict(self._asked(box))
        rows = np.ones(len(self), bool)
        rest = bool(box.residuals) or any(span is None for span in asked.values())
        for (name, part), column in self.columns.items():
            span = asked.get((name, part))
            if span is not None:
                rows &= kernel.meeting(column.low, column.high, column.marks, *span[1:])
            elif name in box.sets and (name, None) not in asked:  # of another type
                rows &= kernel.unbounded(column.marks)
        return self._settle(rows, rest, lambda row: row.overlaps(box))

    def _asked(self, box: Box) -> Iterator[tuple[tuple[str, ColumnPart | None], Span | None]]:
        """The spans of the box; for a set that is not a span, (name, None) and None."""
        for name, values in box.sets.items():
            span, exact = span_of(name, values, lambda text: self.strings.get(text, _UNKNOWN_STRING))
            yield (span[0], span) if exact and span is not None else ((name, None), None)

    def _settle(self, rows: Mask, rest: bool, holds: Callable[[Box], bool]) -> Mask:
        """Compare the boxes themselves where columns cannot tell: the odd ones, or all that are left."""
        for left in np.flatnonzero(rows).tolist() if rest else ():
            rows[left] = holds(self.box(left))
        for row, box in self.odd.items():
            rows[row] = holds(box)
        return rows


def _renumbered(column: Column, numbers: Floats) -> Column:
    """A column of strings in which number n becomes numbers[n]; infinite ends stay."""
    ends = []
    for side in (column.low, column.high):
        finite = np.isfinite(side)
        moved = side.copy()
        moved[finite] = numbers[side[finite].astype(np.int64)]
        ends.append(moved)
    return Column(ends[0], ends[1], column.marks)


def _spans(box: Box, number: Callable[[str], float]) -> list[Span] | None:
    """The spans of a box; None if they do not express all of it, or are too many."""
    if box.residuals or len(box.sets) > MOST_SPANS:
        return None
    spans: list[Span] = []
    for name, values in box.sets.items():
        span, exact = span_of(name, values, number)
        if span is None or not exact:
            return None
        spans.append(span)
    return spans
