"""The extent of a filter: its hull as spans of axes, and its canonical key. Filters with equal keys match the same
events; if the hull is exactly the filter, the key is the hull.

Most filters are conjunctions of comparisons with constants. Their extent is read from the syntax tree, without a normal
form.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.algebra.spans import ColumnPart
from weft.errors import FilterTooComplexError
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.ast import And, Between, Compare, Filter, Operator
from weft.language.constant import Constant
from weft.model.schema import Schema
from weft.model.value import Type
from weft.order.filter_relation import FilterRelation
from weft.routing.routed_filter import AxisSpan, RoutedFilter

_INFINITE = float("inf")
_SPAN = struct.Struct("<HddB")  # axis, low, high, marks
_NUMERIC = (Type.INT, Type.FLOAT)
_MOST_AXES = 1 << 16
_FEW = 8


class Extents:
    """Extents under one schema, with numbers for their axes and strings.

    >>> from weft import parse
    >>> extents = Extents()
    >>> one, other = extents.of(parse("x > 5 AND y = 'a'")), extents.of(parse("y = 'a' AND NOT x <= 5 AND x > 0"))
    >>> one.key == other.key, one.exact, sorted(extents.spans(one.key)) == sorted(one.spans)
    (True, True, True)
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self.schema = schema
        self._strings = _StringNumbers()
        self._filters = FilterRelation(schema, numbers=self._strings)
        self._axes: dict[ColumnPart, dict[str, int]] = {part: {} for part in ColumnPart}
        self._numeric, self._textual = self._axes[ColumnPart.NUMBERS], self._axes[ColumnPart.STRINGS]
        self._count = 0  # of axes

    def of(self, item: Filter | NormalForm, form: NormalForm | None = None) -> RoutedFilter | None:
        """The filter with its hull and key; None if it never matches. Raises FilterTooComplexError.

        `form` is its normal form under the same schema, if that is known: it takes longer than all the rest.
        """
        spans = None if isinstance(item, NormalForm) else self._read(item)
        if spans is None:
            form = as_form(item, self.schema) if form is None else form
            if not form:
                return None
            made = self._filters.make(form)
            spans = [(self._axis(*axis), low, high, marks) for axis, low, high, marks in made.spans]
            if not made.exact:
                return RoutedFilter(item, form, form, spans)
        if len(spans) > 1:
            spans.sort()
        return RoutedFilter(item, None, b"".join([_SPAN.pack(*span) for span in spans]), spans, exact=True)

    def _axis(self, name: str, part: ColumnPart) -> int:
        """The number of an axis, a new one if necessary. Raises FilterTooComplexError beyond the maximum."""
        axes = self._axes[part]
        number = axes.get(name)
        if number is None:
            if self._count == _MOST_AXES:
                raise FilterTooComplexError(f"filters use more than {_MOST_AXES} attributes in total; use fewer")
            number = axes[name] = self._count
            self._count += 1
        return number

    def spans(self, key: Hashable) -> list[AxisSpan]:
        """The spans of an exact extent, by its key."""
        assert isinstance(key, bytes)
        return list(_SPAN.iter_unpack(key))

    def _read(self, item: Filter) -> list[AxisSpan] | None:
        """The spans of a conjunction of comparisons with constants; None for any other filter, and for one that never
        matches.
        """
        spans: dict[str, AxisSpan] = {}
        parts = item.operands if type(item) is And else (item,)
        for part in parts:
            kind = type(part)
            if kind is Between:
                ends = _between(part.low, part.high)  # type: ignore[attr-defined]
                axes = self._numeric
            elif kind is Compare and type(part.right) is Constant:  # type: ignore[attr-defined]
                constant: Constant = part.right  # type: ignore[attr-defined]
                if constant.type is Type.STRING:
                    if part.operator is not Operator.EQ:  # type: ignore[attr-defined]
                        return None
                    number = self._strings.number(constant.value)  # type: ignore[arg-type]
                    ends, axes = (number, number, BOUNDED), self._textual
                else:
                    ends, axes = _compared(part.operator, constant), self._numeric  # type: ignore[attr-defined]
            else:
                return None
            if ends is None:
                return None
            name: str = part.left.name  # type: ignore[attr-defined]
            if self.schema is not None and not self._plain(name, axes is self._textual):
                return None
            axis = axes.get(name)
            if axis is None:
                axis = self._axis(name, ColumnPart.STRINGS if axes is self._textual else ColumnPart.NUMBERS)
            known = spans.get(name)
            if known is not None:
                both = _intersected(known[1:], ends) if known[0] == axis and axes is self._numeric else None
                if both is None:
                    return None
                ends = both
            spans[name] = (axis, *ends)
        return [*spans.values()]

    def _plain(self, name: str, text: bool) -> bool:
        """Whether the schema leaves numbers, or strings, of an attribute unchanged."""
        assert self.schema is not None
        declared = self.schema.get(name)
        return declared is None or declared.type is (Type.STRING if text else Type.FLOAT)

    # -- strings in use -------------------------------------------------------------------------------

    def retain(self, spans: Sequence[AxisSpan]) -> None:
        """Retain these spans, so that the numbers of their strings are not forgotten."""
        if self._textual:
            for number in self._string_numbers(spans):
                self._strings.retain(number)

    def release(self, spans: Sequence[AxisSpan]) -> None:
        """Release these spans."""
        if self._textual:
            for number in self._string_numbers(spans):
                self._strings.release(number)

    def _string_numbers(self, spans: Sequence[AxisSpan]) -> list[float]:
        texts = {*self._textual.values()} if len(self._textual) < _FEW else self._textual.values()
        return [low for axis, low, high, _ in spans if low == high and axis in texts]

    def forget_unused(self) -> None:
        """Forget the numbers of strings that are not retained."""
        self._strings.forget_unused()


class _StringNumbers(dict[str, float]):
    """Numbers of strings. A string keeps its number while it is in use, and no other string ever gets the
    same number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._texts: dict[float, str] = {}
        self._uses: dict[float, int] = {}
        self._unused: dict[float, None] = {}

    def number(self, text: str) -> float:
        """The number of a string, a new one if necessary."""
        found = self.get(text)
        if found is None:
            found = self[text] = self._next
            self._texts[found] = text
            self._unused[found] = None
            self._next += 1.0
        return found

    def setdefault(self, text: str, default: float = 0.0) -> float:  # noqa: ARG002 - numbers are assigned here
        """`number`, for `FilterRelation`."""
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


_Ends = tuple[float, float, int]


def _between(low: Constant, high: Constant) -> _Ends | None:
    if low.type not in _NUMERIC or high.type not in _NUMERIC:
        return None
    start, end = float(low.value), float(high.value)
    return (start, end, BOUNDED) if start == low.value and end == high.value and start <= end else None


def _intersected(one: _Ends, other: _Ends) -> _Ends | None:
    """What two intervals share; None if that is nothing."""
    low, high, marks = one
    if other[0] > low:
        low, marks = other[0], marks & ~LOW_OPEN | other[2] & LOW_OPEN
    elif other[0] == low:
        marks |= other[2] & LOW_OPEN
    if other[1] < high:
        high, marks = other[1], marks & ~HIGH_OPEN | other[2] & HIGH_OPEN
    elif other[1] == high:
        marks |= other[2] & HIGH_OPEN
    return (low, high, marks) if low < high or (low == high and marks == BOUNDED) else None


def _compared(operator: Operator, constant: Constant) -> _Ends | None:
    if constant.type not in _NUMERIC:
        return None
    value = float(constant.value)
    if value != constant.value:
        return None
    match operator:
        case Operator.EQ:
            return value, value, BOUNDED
        case Operator.GE:
            return value, _INFINITE, BOUNDED
        case Operator.GT:
            return value, _INFINITE, BOUNDED | LOW_OPEN
        case Operator.LE:
            return -_INFINITE, value, BOUNDED
        case Operator.LT:
            return -_INFINITE, value, BOUNDED | HIGH_OPEN
    return None
