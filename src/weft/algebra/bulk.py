"""Many filter texts as box columns, fast. The columns are those of `normalize(parse(text))`.

Texts of one shape that is a conjunction of comparisons become columns without a tree: their constants are gathered
for the whole shape and converted to arrays at once. Other conjunctions of comparisons, whose shape few texts have, are
parsed and become rows one by one; what is left is normalised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.algebra.columns import MOST_SPANS, BoxColumns, Column, ColumnKey, ColumnPart
from weft.algebra.direct_rows import EXACT_DIGITS, PARTS, DirectRows, holds_any
from weft.algebra.normalize import normalize
from weft.errors import FilterError
from weft.kernels.arrays import Floats, Mask
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.ast import And, Between, Compare, Filter, Operator
from weft.language.constant import Constant, read_negative_float, read_negative_int
from weft.language.lexer import check_size
from weft.language.long_text import parse_long
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import ShapeKey, TextShape, key_of, known_shape, parse, shape_of
from weft.model.schema import Schema
from weft.model.value import Type

_STARTS = {
    Operator.EQ: 0,
    Operator.GT: LOW_OPEN,
    Operator.GE: 0,
}  # the operators that set a low end, and its mark
_ENDS = {Operator.EQ: 0, Operator.LT: HIGH_OPEN, Operator.LE: 0}  # those that set a high end
_WORTH = 8  # texts of one shape, for which learning it is worth the time


def columns_of_texts(
    texts: Iterable[str],
    schema: Schema | None = None,
    predicates: Predicates = NO_PREDICATES,
    refused: dict[int, FilterError] | None = None,
) -> BoxColumns:
    """The boxes of many filters; `owners` has the number of each row's filter, in order.

    A text that is not a filter raises FilterError, with its position; if `refused` is given, the error is stored there
    by number instead.

    >>> rows = columns_of_texts(["x > 5", "x > 3 OR y = 1", "x > 5 AND x < 2"])
    >>> rows.owners.tolist()
    [0, 1, 1]
    """
    texts = list(texts)
    batches, alone = _batches(texts, schema)
    rows = _Rows(schema)
    singles = [number for number in alone if not rows.direct.take(number, texts[number])]
    singles += rows.add_direct()
    for batch in batches:
        singles += batch.owners if batch.tests is None else rows.add_batch(batch, batch.tests)
    for number in sorted(singles):
        try:
            tree = _parsed_alone(texts[number])
            tree = parse(texts[number], predicates) if tree is None else tree
            rows.add_boxes(number, normalize(tree, schema).boxes)
        except FilterError as error:
            if refused is not None:
                refused[number] = error
                continue
            raise error.at(number) from None
    return rows.columns()


def _batches(texts: Sequence[str], schema: Schema | None) -> tuple[list[_Batch], list[int]]:
    """The texts by their shapes, and those that are best parsed alone: few have their shape."""
    batches: dict[int, _Batch] = {}
    alone: list[int] = []
    waiting: dict[ShapeKey, list[tuple[int, list[str]]]] = {}  # texts of shapes that are not known yet

    def take(number: int, shape: TextShape, constants: list[str]) -> None:
        batch = batches.get(id(shape))
        if batch is None:
            batch = batches[id(shape)] = _Batch(shape, _plan(shape, schema))
        batch.owners.append(number)
        batch.constants.append(constants)

    for number, text in enumerate(texts):
        try:
            found = key_of(text)
        except FilterError:  # too long, or not text: parsing it alone says so
            found = None
        if found is None:
            alone.append(number)
        elif (shape := known_shape(*found)) is not None:
            take(number, shape, found[1])
        else:
            waiting.setdefault(found[0], []).append((number, found[1]))
    for key, some in waiting.items():
        learned = shape_of(texts[some[0][0]]) if len(some) >= _WORTH else None
        for number, constants in some:
            shape = None if learned is None else known_shape(key, constants)  # it may depend on constants
            if shape is None:
                alone.append(number)
            else:
                take(number, shape, constants)
    return list(batches.values()), alone


def _parsed_alone(text: str) -> Filter | None:
    """The filter of a text, if it is of the usual kind; the grammar reads the others, and reports errors."""
    try:
        check_size(text)
        return parse_long(text)
    except FilterError:
        return None


@dataclass(slots=True)
class _Test:
    """A comparison with the constant of a slot."""

    key: ColumnKey
    slot: int
    operator: Operator


@dataclass(slots=True)
class _Batch:
    """The texts of one shape: its tests, None if columns cannot hold them, and the constants of each text."""

    shape: TextShape
    tests: list[_Test] | None
    owners: list[int] = field(default_factory=list)
    constants: list[list[str]] = field(default_factory=list)


def _plan(shape: TextShape, schema: Schema | None) -> list[_Test] | None:
    """The tests of a shape, if it is a conjunction of comparisons that columns can hold."""
    tests: list[_Test] = []
    for node in shape.tree.operands if isinstance(shape.tree, And) else (shape.tree,):
        found = _tests(node, shape.slots)
        if found is None:
            return None
        tests += found
    parts: dict[str, ColumnPart] = {}
    for name, part in (test.key for test in tests):
        declared = None if schema is None else schema.get(name)
        if declared is not None and PARTS.get(declared.type) is not part:
            return None  # of another type than the schema's: never matches
        if name in parts and (part is ColumnPart.STRINGS or parts[name] is not part):
            return None
        parts[name] = part
    return tests if len(parts) <= MOST_SPANS else None


def _tests(node: Filter, slots: dict[int, int]) -> list[_Test] | None:
    match node:
        case Compare(left, operator, Constant() as right) if operator is not Operator.NE:
            pairs = [(operator, right)]
        case Between(left, low, high):
            pairs = [(Operator.GE, low), (Operator.LE, high)]
        case _:
            return None
    tests = []
    for operator, constant in pairs:
        part = PARTS.get(constant.type)
        if part is None or id(constant) not in slots or (part is ColumnPart.STRINGS and operator is not Operator.EQ):
            return None
        tests.append(_Test((left.name, part), slots[id(constant)], operator))
    return tests


class _Rows:
    """Rows collected from batches and from single boxes, finally sorted by filter."""

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self.owners: list[NDArray[np.int64]] = []
        self.parts: list[dict[ColumnKey, Column]] = []
        self.boxes: list[Box] = []
        self.box_owners: list[int] = []
        self.strings: dict[str, int] = {}
        self.direct = DirectRows(schema, self.strings)

    def add_boxes(self, owner: int, boxes: Sequence[Box]) -> None:
        self.boxes += boxes
        self.box_owners += [owner] * len(boxes)

    def add_batch(self, batch: _Batch, tests: Sequence[_Test]) -> list[int]:
        """Add a batch as columns; returns the filters that must be normalised one by one after all."""
        owners = np.array(batch.owners, np.int64)
        slots = list(zip(*batch.constants, strict=True))
        fine = np.ones(len(owners), bool)
        columns: dict[ColumnKey, Column] = {}
        for test in tests:
            column = columns.get(test.key)
            if column is None:
                column = columns[test.key] = Column.blank(len(owners))
                column.marks[:] = BOUNDED
            _narrow(column, self.read(batch.shape, slots[test.slot], test, fine), test.operator)
        kept = np.ones(len(owners), bool)
        for key, column in columns.items():
            fine &= self._finish(key, column)
            kept &= holds_any(column)
        kept &= fine
        self.owners.append(owners[kept])
        self.parts.append({key: Column(c.low[kept], c.high[kept], c.marks[kept]) for key, c in columns.items()})
        return [int(number) for number in owners[~fine]]

    def add_direct(self) -> list[int]:
        """Add the rows taken one by one; returns the filters that must be normalised after all."""
        owners = np.array(self.direct.owners, np.int64)
        kept, fine = np.ones(len(owners), bool), np.ones(len(owners), bool)
        columns: dict[ColumnKey, Column] = {}
        for key, rows, column in self.direct.columns():
            fine[rows] &= self._finish(key, column)
            kept[rows] &= holds_any(column)
            whole = columns[key] = Column.blank(len(owners))
            whole.low[rows], whole.high[rows], whole.marks[rows] = column.low, column.high, column.marks
        kept &= fine
        self.owners.append(owners[kept])
        self.parts.append({key: Column(c.low[kept], c.high[kept], c.marks[kept]) for key, c in columns.items()})
        return [int(number) for number in owners[~fine]]

    def _finish(self, key: ColumnKey, column: Column) -> Mask:
        """Bring the ends of a column into their form; returns which of its rows columns can hold."""
        declared = None if self.schema is None else self.schema.get(key[0])
        fine = np.ones(len(column.low), bool)
        if key[1] is ColumnPart.TIMESTAMPS:
            _close(column)
        elif declared is not None and declared.type is Type.INT:
            fine = _holds(column.low) & _holds(column.high)  # beyond, no float is the next integer
            _round(column)
        return fine

    def read(self, shape: TextShape, pieces: Sequence[str], test: _Test, fine: Mask) -> Floats:
        """The constants of a slot as numbers, and which of them are readable and exact as floats."""
        reader = shape.readers[test.slot]
        match test.key[1]:
            case ColumnPart.STRINGS:
                known = self.strings
                texts = [piece[1:-1].replace("''", "'") for piece in pieces]
                return np.array([known.setdefault(text, len(known)) for text in texts], np.float64)
            case ColumnPart.TIMESTAMPS:
                values = np.zeros(len(pieces))
                for row, piece in enumerate(pieces):
                    try:
                        micros = int(reader(piece).value)
                    except FilterError:
                        micros = 2**53 + 1
                    values[row] = micros
                    fine[row] &= abs(micros) < 2**53
                return values
        values = np.array([float(piece) for piece in pieces])
        if max(map(len, pieces)) > EXACT_DIGITS:
            fine &= np.array([len(piece) <= EXACT_DIGITS or not piece.isdigit() for piece in pieces])
        fine &= np.isfinite(values)
        for row in np.flatnonzero(values == 0).tolist():  # zero, or too small for a float
            fine[row] &= not pieces[row].lower().partition("e")[0].strip("0.")
        return -values + 0.0 if reader in (read_negative_int, read_negative_float) else values

    def columns(self) -> BoxColumns:
        """All rows, sorted by filter."""
        single = BoxColumns.of(self.boxes, self.box_owners, self.strings)
        owners = np.concatenate([*self.owners, single.owners])
        order = np.argsort(owners, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        columns: dict[ColumnKey, Column] = {}
        start = 0
        for numbers, part in zip([*self.owners, single.owners], [*self.parts, single.columns], strict=True):
            rows = place[start : start + len(numbers)]
            start += len(numbers)
            for key, piece in part.items():
                if key not in columns:
                    columns[key] = Column.blank(len(order))
                column = columns[key]
                column.low[rows], column.high[rows], column.marks[rows] = piece.low, piece.high, piece.marks
        first = len(order) - len(single)
        odd = {int(place[first + row]): box for row, box in single.odd.items()}
        return BoxColumns(columns, owners[order], odd, self.strings)


def _narrow(column: Column, values: Floats, operator: Operator) -> None:
    """Restrict the intervals to what the test leaves of them."""
    if operator in _STARTS:
        mark = _STARTS[operator]
        higher = (values > column.low) | ((values == column.low) & (mark > column.marks & LOW_OPEN))
        column.low[higher] = values[higher]
        column.marks[higher] = column.marks[higher] & ~np.uint8(LOW_OPEN) | mark
    if operator in _ENDS:
        mark = _ENDS[operator]
        lower = (values < column.high) | ((values == column.high) & (mark > column.marks & HIGH_OPEN))
        column.high[lower] = values[lower]
        column.marks[lower] = column.marks[lower] & ~np.uint8(HIGH_OPEN) | mark


def _holds(ends: Floats) -> Mask:
    return np.isinf(ends) | (np.abs(ends) < 2**53)


def _round(column: Column) -> None:
    """The integers of each interval: closed at the first, open at the one after the last."""
    low_open, high_open = column.marks & LOW_OPEN != 0, column.marks & HIGH_OPEN != 0
    column.low[:] = np.where(low_open, np.floor(column.low) + 1, np.ceil(column.low))
    column.high[:] = np.where(high_open, np.ceil(column.high), np.floor(column.high) + 1)
    column.marks[:] = np.where(np.isinf(column.high), BOUNDED, BOUNDED | HIGH_OPEN)


def _close(column: Column) -> None:
    """Microseconds, from the first to the last."""
    column.low[:] += column.marks & LOW_OPEN != 0
    column.high[:] -= column.marks & HIGH_OPEN != 0
    column.marks[:] = BOUNDED
