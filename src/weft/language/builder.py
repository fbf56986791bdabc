"""Filters from Python expressions: `(F.price < 95) & F.symbol.isin("X", "Y")`.

An expression builds the same tree as its text. No filter is ever silently used as a bool. Constants must be finite: NaN
and infinities raise FilterError, and so does None (use `is_null`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NoReturn

from weft.errors import FilterError, FilterTooComplexError, FilterTypeError
from weft.language.ast import (
    ELEMENT,
    FALSE,
    TRUE,
    AttributeRef,
    Between,
    Call,
    Compare,
    Filter,
    Has,
    HasElement,
    In,
    Is,
    Like,
    Not,
    Operator,
    as_filter,
    conjunction,
    disjunction,
)
from weft.language.constant import Constant
from weft.language.predicate import Predicate
from weft.model.door import shown
from weft.model.limits import LIMITS
from weft.model.value import Value

_OF_OBJECTS = "__", "_repr_", "_ipython_"  # what Python and notebooks ask every object for


_OF_OBJECTS = "__", "_repr_", "_ipython_"  # names that Python and notebooks ask every object for


class Field:
    """An attribute in a Python expression; `F.a.b` and `F["a.b"]` are the same flat name.

    Cost: O(1) for each comparison.

    >>> print((F.price < 95) & (F.open >= F.close) | ~F.active)
    price < 95 AND open >= close OR NOT active
    """

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self._name = AttributeRef(name)

    def __weft_filter__(self) -> Filter:
        """The bare boolean attribute."""
        return self._name

    def __getattr__(self, name: str) -> Field:
        if name.startswith(_OF_OBJECTS):
            raise AttributeError(name)
        return Field(f"{self._name.name}.{name}")

    def __eq__(self, other: Value | Field) -> Filter:  # type: ignore[override]
        return self._compare(Operator.EQ, other)

    def __ne__(self, other: Value | Field) -> Filter:  # type: ignore[override]
        return self._compare(Operator.NE, other)

    def __lt__(self, other: Value | Field) -> Filter:
        return self._compare(Operator.LT, other)

    def __le__(self, other: Value | Field) -> Filter:
        return self._compare(Operator.LE, other)

    def __gt__(self, other: Value | Field) -> Filter:
        return self._compare(Operator.GT, other)

    def __ge__(self, other: Value | Field) -> Filter:
        return self._compare(Operator.GE, other)

    def __and__(self, other: object) -> Filter:
        return conjunction(self._name, as_filter(other))

    def __or__(self, other: object) -> Filter:
        return disjunction(self._name, as_filter(other))

    def __rand__(self, other: object) -> Filter:
        return conjunction(as_filter(other), self._name)

    def __ror__(self, other: object) -> Filter:
        return disjunction(as_filter(other), self._name)

    def __invert__(self) -> Filter:
        return Not(self._name)

    def __bool__(self) -> NoReturn:
        bool(self._name)  # raises, with the hint
        raise AssertionError

    def __contains__(self, _: object) -> NoReturn:
        raise FilterTypeError("`in` cannot build a filter; use F.x.isin(...), F.x.has(...) or F.x.contains(...)")

    def __iter__(self) -> NoReturn:
        raise FilterTypeError(f"attribute {self._name.name} is not iterable")

    def __call__(self, *_: object) -> NoReturn:
        """Raise TypeError: what looks like a method is part of the name."""
        name, method = self._name.name.rpartition(".")[::2]
        raise FilterTypeError(f"attribute {name or method} has no method {method!r}; see help(weft.F.x)")

    def __repr__(self) -> str:
        return f"F[{self._name.name!r}]"

    def isin(self, *values: Value | Iterable[Value]) -> Filter:
        """Equal to one of the values, given one by one or as one iterable; FALSE if there are none. Cost: O(values).

        Raises FilterTooComplexError if there are more values than any operation on the filter admits.

        >>> print(F.symbol.isin("X", "Y"))
        symbol IN ('X', 'Y')
        """
        constants = _constants("isin", values)
        return In(self._name, constants) if constants else FALSE

    def has(self, value: Value | Callable[[Field], Filter]) -> Filter:
        """A list that has the value, or the value itself; given a function, a list that has an element which passes
        the test that the function makes. Cost: O(1), and that of the function.

        >>> print(F.tags.has("rock"))
        tags HAS 'rock'
        >>> print(F.tags.has(lambda tag: tag.startswith("rock")), F.sizes.has(lambda size: (size > 5) & (size < 9)))
        tags HAS LIKE 'rock%' sizes HAS (> 5 AND < 9)
        """
        if callable(value) and not isinstance(value, Field):
            return HasElement(self._name, as_filter(value(_element())))
        return Has(self._name, (Constant.of(value),))  # type: ignore[arg-type]  # a Field is refused there

    def has_any(self, *values: Value | Iterable[Value]) -> Filter:
        """A list that has one of the values, given one by one or as one iterable; FALSE if there are none.

        Cost: O(values).

        >>> print(F.tags.has_any("rock", "pop"))
        tags HAS ANY ('rock', 'pop')
        """
        constants = _constants("has_any", values)
        return Has(self._name, constants) if constants else FALSE

    def has_all(self, *values: Value | Iterable[Value]) -> Filter:
        """A list that has all the values, given one by one or as one iterable; TRUE if there are none.

        Cost: O(values).

        >>> print(F.tags.has_all("rock", "live"))
        tags HAS ALL ('rock', 'live')
        """
        constants = _constants("has_all", values)
        return Has(self._name, constants, every=True) if constants else TRUE

    def between(self, low: Value, high: Value) -> Filter:
        """Between low and high, both included. Cost: O(1).

        >>> print(F.depth.between(0, 70))
        depth BETWEEN 0 AND 70
        """
        return Between(self._name, Constant.of(low), Constant.of(high))

    def like(self, pattern: str, escape: str | None = None) -> Filter:
        """SQL's LIKE: `%` is any text, `_` one code point. Cost: O(characters).

        >>> print(F.place.like("%Alaska"))
        place LIKE '%Alaska'
        """
        return Like(self._name, pattern, escape)

    def ilike(self, pattern: str, escape: str | None = None) -> Filter:
        """LIKE without regard to case: both sides are compared by `str.casefold`. Cost: O(characters).

        >>> print(F.place.ilike("%alaska"))
        place ILIKE '%alaska'
        """
        return Like(self._name, pattern, escape, ignore_case=True)

    def startswith(self, text: str) -> Filter:
        """A string that starts with the text. Cost: O(characters).

        >>> print(F.type.startswith("order."))
        type LIKE 'order.%'
        """
        return literal_like(self._name, "", text, "%")

    def endswith(self, text: str) -> Filter:
        """A string that ends with the text. Cost: O(characters).

        >>> print(F.place.endswith("Alaska"))
        place LIKE '%Alaska'
        """
        return literal_like(self._name, "%", text, "")

    def contains(self, text: str) -> Filter:
        """A string that contains the text. Cost: O(characters).

        >>> print(F.place.contains("laska"))
        place LIKE '%laska%'
        """
        return literal_like(self._name, "%", text, "%")

    def is_null(self) -> Filter:
        """The attribute is absent. Cost: O(1).

        >>> print(F.depth.is_null())
        depth IS NULL
        """
        return Is(self._name, None)

    def is_not_null(self) -> Filter:
        """The attribute is present. Cost: O(1).

        >>> print(F.depth.is_not_null())
        depth IS NOT NULL
        """
        return Not(Is(self._name, None))

    def is_true(self) -> Filter:
        """The attribute is TRUE; unlike the bare attribute, this is never NULL. Cost: O(1).

        >>> print(F.active.is_true())
        active IS TRUE
        """
        return Is(self._name, True)

    def is_false(self) -> Filter:
        """The attribute is FALSE; this is never NULL. Cost: O(1).

        >>> print(F.active.is_false())
        active IS FALSE
        """
        return Is(self._name, False)

    def satisfies(self, predicate: Predicate, *arguments: Value) -> Filter:
        """A call of a predicate: `F.kind.satisfies(is_a, "vehicle")`. Cost: O(arguments).

        >>> from weft.language.cidr import CIDR
        >>> print(F.address.satisfies(CIDR, "10.0.0.0/8"))
        cidr(address, '10.0.0.0/8')
        """
        return Call(predicate, self._name, tuple(Constant.of(argument) for argument in arguments))

    def _compare(self, operator: Operator, other: Value | Field) -> Filter:
        if isinstance(other, Field):
            return Compare(self._name, operator, other._name)
        if isinstance(other, Filter):
            raise FilterError("a condition cannot be compared; use & | ~, and parentheses around comparisons")
        if other is None:
            raise FilterError("a comparison with None is never true; use is_null() or is_not_null()")
        return Compare(self._name, operator, Constant.of(other))


def _element() -> Field:
    made = Field.__new__(Field)
    made._name = ELEMENT
    return made


class _Fields:
    """Names attributes: `F.price`, or `F["any name"]`. Cost: O(1).

    >>> print((F.price < 95) & ~F.symbol.isin("X", "Y") & F.active)
    price < 95 AND symbol NOT IN ('X', 'Y') AND active
    """

    def __getattr__(self, name: str) -> Field:
        if name.startswith(_OF_OBJECTS):
            raise AttributeError(name)
        return Field(name)

    def __getitem__(self, name: str) -> Field:
        return Field(name)

    def __repr__(self) -> str:
        return "F"


F = _Fields()


def _constants(method: str, values: tuple[Value | Iterable[Value], ...]) -> tuple[Constant, ...]:
    """Constants that are given one by one or as one iterable."""
    if len(values) == 1 and isinstance(values[0], Iterable) and not isinstance(values[0], str | bytes):
        values = tuple(islice(values[0], LIMITS.steps + 1))
    if len(values) > LIMITS.steps:
        raise FilterTooComplexError(
            f"{method}() takes at most {LIMITS.steps:,} values; split the filter, or use a range"
        )
    return tuple(Constant.of(value) for value in values)  # type: ignore[arg-type]


def literal_like(left: AttributeRef, before: str, text: str, after: str, ignore_case: bool = False) -> Like:
    """LIKE, or ILIKE, with the text taken literally between two pieces of pattern."""
    if not isinstance(text, str):
        raise FilterError(f"the text to look for must be a string, not {shown(text)}")
    if "%" not in text and "_" not in text:
        return Like(left, before + text + after, None, ignore_case)
    for sign in "\\%_":
        text = text.replace(sign, "\\" + sign)
    return Like(left, before + text + after, "\\", ignore_case)
