"""The extent of a filter: its hull as spans of axes, and its canonical key. Law: filters with equal keys match the same
events; where the hull is all of the filter, the key is the hull.

Most filters are conjunctions of comparisons with constants: their extent is read off the tree, without a normal form.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from weft.algebra.box import NormalForm
from weft.algebra.columns import Part
from weft.algebra.relate import as_form
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.ast import And, Between, Compare, Filter, Operator
from weft.language.constant import Constant
from weft.model.schema import Schema
from weft.model.value import Type
from weft.order.boxed import Filters
from weft.order.cover_index import Axis, Span

_INFINITE = float("inf")
_SPAN = struct.Struct("<HddB")  # axis, low, high, marks
_NUMERIC = (Type.INT, Type.FLOAT)
_MOST_AXES = 1 << 16


class Extent(NamedTuple):
    """What is compared of a filter; `form` is its normal form where the hull is not all of it, else None."""

    key: Hashable
    spans: tuple[Span, ...]
    exact: bool
    form: NormalForm | None


class Extents:
    """Extents under one schema, with numbers for the strings and axes in them.

    >>> from weft import parse
    >>> extents = Extents()
    >>> one, other = extents.of(parse("x > 5 AND y = 'a'")), extents.of(parse("y = 'a' AND NOT x <= 5 AND x > 0"))
    >>> one.key == other.key, one.exact, extents.spans(one.key) == one.spans
    (True, True, True)
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self.schema = schema
        self._strings = _StringNumbers()
        self._filters = Filters(schema, numbers=self._strings)
        self._axes: dict[Axis, int] = {}
        self._names: list[Axis] = []

    def of(self, item: Filter | NormalForm) -> Extent | None:
        """The extent; None if it matches nothing. Raises FilterTooComplexError."""
        spans = None if isinstance(item, NormalForm) else self._read(item)
        if spans is None:
            form = as_form(item, self.schema)
            if not form:
                return None
            made = self._filters.make(form)
            if not made.exact:
                return Extent(made.form, made.spans, False, made.form)
            spans = made.spans
        key = self._key(spans)
        return Extent(spans, spans, True, None) if key is None else Extent(key, self.spans(key), True, None)

    def _key(self, spans: tuple[Span, ...]) -> bytes | None:
        """The spans as bytes; None if there are more axes than bytes can name."""
        packed = []
        for axis, low, high, marks in spans:
            number = self._axes.get(axis)
            if number is None:
                if len(self._names) == _MOST_AXES:
                    return None
                number = self._axes[axis] = len(self._names)
                self._names.append(axis)
            packed.append(_SPAN.pack(number, low, high, marks))
        packed.sort()
        return b"".join(packed)

    def spans(self, key: Hashable) -> tuple[Span, ...]:
        """The spans of an exact extent, by its key."""
        if not isinstance(key, bytes):
            assert isinstance(key, tuple)
            return key
        return tuple((self._names[axis], low, high, marks) for axis, low, high, marks in _SPAN.iter_unpack(key))

    def _read(self, item: Filter) -> tuple[Span, ...] | None:
        """The spans of a conjunction of comparisons with constants, each of another attribute; None for any other."""
        spans: dict[str, Span] = {}
        for part in item.operands if type(item) is And else (item,):
            if type(part) is Between:
                ends = _interval(part.low, True, part.high, True)
            elif type(part) is Compare and type(part.right) is Constant:
                if part.right.type is Type.STRING and part.operator is Operator.EQ:
                    number = self._strings.number(str(part.right.value))
                    ends = Part.STRINGS, number, number, BOUNDED
                else:
                    ends = _compared(part.operator, part.right)
            else:
                return None
            name = part.left.name
            if ends is None or name in spans or not self._plain(name, ends[0]):
                return None
            spans[name] = ((name, ends[0]), *ends[1:])
        return tuple(spans.values())

    def _plain(self, name: str, part: Part) -> bool:
        """Whether the schema leaves values of the part as they are."""
        declared = None if self.schema is None else self.schema.get(name)
        return declared is None or declared.type is (Type.STRING if part is Part.STRINGS else Type.FLOAT)

    # -- strings that are in use ------------------------------------------------------------------

    def retain(self, spans: tuple[Span, ...]) -> None:
        """Somebody keeps these spans: the numbers of their strings are not forgotten."""
        for number in _string_numbers(spans):
            self._strings.retain(number)

    def release(self, spans: tuple[Span, ...]) -> None:
        """Somebody keeps these spans no longer."""
        for number in _string_numbers(spans):
            self._strings.release(number)

    def forget_unused(self) -> None:
        """Forget the numbers of strings that nobody kept."""
        self._strings.forget_unused()


class _StringNumbers(dict[str, float]):
    """Numbers of strings; each string has one as long as somebody uses it, and no other string ever gets that."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._texts: dict[float, str] = {}
        self._uses: dict[float, int] = {}
        self._unused: dict[float, None] = {}

    def number(self, text: str) -> float:
        """The number of a string, a new one if it has none."""
        found = self.get(text)
        if found is None:
            found = self[text] = self._next
            self._texts[found] = text
            self._unused[found] = None
            self._next += 1.0
        return found

    def setdefault(self, text: str, default: float = 0.0) -> float:  # noqa: ARG002 - numbers are ours to give
        """`number`, for `Filters`."""
        return self.number(text)

    def retain(self, number: float) -> None:
        self._uses[number] = self._uses.get(number, 0) + 1
        self._unused.pop(number, None)

    def release(self, number: float) -> None:
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._uses[number]
            self._unused[number] = None

    def forget_unused(self) -> None:
        for number in self._unused:
            del self[self._texts.pop(number)]
        self._unused.clear()


def _string_numbers(spans: tuple[Span, ...]) -> Iterator[float]:
    return (low for (_, part), low, high, _ in spans if part is Part.STRINGS and low == high)


_Ends = tuple[Part, float, float, int]


def _interval(low: Constant, closed: bool, high: Constant, shut: bool) -> _Ends | None:
    if low.type not in _NUMERIC or high.type not in _NUMERIC:
        return None
    start, end = float(low.value), float(high.value)
    if start != low.value or end != high.value or start > end:
        return None
    return Part.NUMBERS, start, end, BOUNDED | (0 if closed else LOW_OPEN) | (0 if shut else HIGH_OPEN)


def _compared(operator: Operator, constant: Constant) -> _Ends | None:
    if constant.type not in _NUMERIC:
        return None
    value = float(constant.value)
    if value != constant.value:
        return None
    match operator:
        case Operator.EQ:
            return Part.NUMBERS, value, value, BOUNDED
        case Operator.GE:
            return Part.NUMBERS, value, _INFINITE, BOUNDED
        case Operator.GT:
            return Part.NUMBERS, value, _INFINITE, BOUNDED | LOW_OPEN
        case Operator.LE:
            return Part.NUMBERS, -_INFINITE, value, BOUNDED
        case Operator.LT:
            return Part.NUMBERS, -_INFINITE, value, BOUNDED | HIGH_OPEN
    return None
