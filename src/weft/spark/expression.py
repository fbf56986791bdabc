"""A filter as a Spark Column, built from its tree. It is TRUE, FALSE or NULL for every row, as `meaning` says.

This does not depend on the session's settings: no SQL text is made, nothing is cast that could fail under ANSI rules,
numbers compare exactly, and neither the time zone nor a collation matters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, Final

from weft.errors import EventError, FilterError, FilterTooComplexError
from weft.language.ast import (
    And,
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
    Or,
    Truth,
)
from weft.language.constant import Constant
from weft.language.membership import ELEMENT_NAME
from weft.language.pattern import Pattern
from weft.language.segment_search import PatternSegment
from weft.model.value import INT_MAX, INT_MIN, Type
from weft.spark.casefold import casefold
from weft.spark.events import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

    Typed = tuple[Type, Column]  # what an attribute is in every row: bigint, double, string, boolean, microseconds
    _Place = tuple[DataType, tuple[str, ...]]

_COMPARE: dict[Operator, Callable[[Column, Any], Any]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
}
_DAY = 86_400_000_000  # microseconds
MOST_DEEP: Final = 30  # on Connect: its client takes no message nested more than 100 deep
_BEYOND = float(2**63)  # the one double that some int64 rounds to and none equals


def column_of(filter: Filter, schema: StructType) -> Column:
    """The filter over rows of this schema. Raises FilterError for predicates, which Spark cannot evaluate, and on
    Connect FilterTooComplexError for filters nested more than MOST_DEEP deep.

    An attribute is a column, or a field of a struct under its dotted name, spelled exactly so. Columns of types that
    no attribute has (arrays, maps, binary) are absent.
    """
    return FrameAttributes(schema).column(filter)


class FrameAttributes:
    """The attributes of a DataFrame's rows; makes Columns of filters over them."""

    def __init__(self, schema: StructType) -> None:
        self._places: dict[str, list[_Place]] = {}
        self._typed: dict[str, Typed | None] = {}
        self._folded: dict[str, Column | None] = {}
        self._lists: dict[str, tuple[DataType, Column]] = {}  # types of elements, and arrays
        self._enter(schema, ())

    def _enter(self, struct: StructType, path: tuple[str, ...]) -> None:
        from pyspark.sql.types import ArrayType, StructType

        for each in struct.fields:
            here = (*path, each.name)
            if isinstance(each.dataType, StructType):
                self._enter(each.dataType, here)
            else:
                self._places.setdefault(".".join(here), []).append((each.dataType, here))
                if isinstance(each.dataType, ArrayType):
                    self._lists[".".join(here)] = each.dataType.elementType, _column(here)

    def __iter__(self) -> Iterator[str]:
        """The names of all columns that might be attributes."""
        return iter(self._places)

    def typed(self, name: str) -> Typed | None:
        """An attribute's type and Column; None if no row has it. Raises EventError if two columns have its name."""
        if name not in self._typed:
            places = self._places.get(name, [])
            if len(places) > 1:
                raise EventError(f"there are two columns {name!r}: rename one")
            self._typed[name] = _read(*places[0]) if places else None
        return self._typed[name]

    def text(self, name: str) -> Column | None:
        """The Column of an attribute that is a string; None if it is not one."""
        typed = self.typed(name)
        return typed[1] if typed and typed[0] is Type.STRING else None

    def folded(self, name: str) -> Column | None:
        """The same, folded as `str.casefold` does."""
        if name not in self._folded:
            column = self.text(name)
            self._folded[name] = None if column is None else casefold(column)
        return self._folded[name]

    def read_first(
        self, wanted: Iterable[str], folded: Collection[str], prefix: str
    ) -> tuple[dict[str, Column], FrameAttributes]:
        """Columns to select under names with the prefix, for the wanted attributes; and the attributes as held there.

        Many filters are evaluated faster over them: each attribute is read, and those of `folded` are folded, once
        per row and not once per test.
        """
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructType

        held: dict[str, Column] = {}
        found = FrameAttributes(StructType([]))
        for name in sorted(wanted):
            typed = self.typed(name)
            if typed is not None:
                kind, column = typed
                place = f"{prefix}{len(held)}"
                held[place], found._typed[name] = column, (kind, sf.col(place))
                if name in folded and kind is Type.STRING:
                    place = f"{prefix}{len(held)}"
                    held[place], found._folded[name] = casefold(column), sf.col(place)
            elif name in self._lists:
                element, column = self._lists[name]
                place = f"{prefix}{len(held)}"
                held[place], found._lists[name] = column, (element, sf.col(place))
        return held, found

    def column(self, filter: Filter) -> Column:
        """What `column_of` promises."""
        from pyspark.sql.utils import is_remote

        if is_remote() and levels(filter) > MOST_DEEP:
            raise FilterTooComplexError(
                f"a filter is nested {levels(filter)} deep, but Spark Connect takes {MOST_DEEP}: match with an index"
            )
        return self._truth(filter)

    def _truth(self, node: Filter) -> Column:
        from pyspark.sql import functions as sf

        match node:
            case Truth(known):
                return _constant(known)
            case AttributeRef(name):
                typed = self.typed(name)
                return typed[1] if typed and typed[0] is Type.BOOL else _constant(None)
            case Compare(left, operator, Constant() as right):
                return _against(self.typed(left.name), operator, right)
            case Compare(left, operator, AttributeRef(other)):
                return _between(self.typed(left.name), operator, self.typed(other))
            case Between(left, low, high):
                typed = self.typed(left.name)
                return _against(typed, Operator.GE, low) & _against(typed, Operator.LE, high)
            case In(left, constants):
                return _among(self.typed(left.name), constants)
            case Has(left, constants, every):
                return self._has(left.name, constants, every)
            case HasElement(left, test):
                return self._has_element(left.name, test)
            case Like(left):
                pattern = node.compiled
                column = self.folded(left.name) if pattern.ignore_case else self.text(left.name)
                return _constant(None) if column is None else _like(column, pattern)
            case Call(predicate):
                raise FilterError(
                    f"{predicate.name}() is a predicate, which Spark cannot evaluate by itself; match with an index"
                )
            case Is(AttributeRef(name), None):
                typed = self.typed(name)
                return typed[1].isNull() if typed else _constant(True)
            case Is(operand, None):
                return self._truth(operand).isNull()
            case Is(operand, wanted):
                return self._truth(operand).eqNullSafe(sf.lit(wanted))
            case Not(operand):
                return ~self._truth(operand)
            case And(operands):
                return _fold(and_, list(map(self._truth, operands)))
            case Or(operands):
                return _fold(or_, list(map(self._truth, operands)))
        raise TypeError(f"{node!r} is not a filter")

    def _has_element(self, name: str, test: Filter) -> Column:
        """Whether an element passes a test; a column that is not an array is a list of one."""
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructType

        def passes(element: Typed) -> Column:
            bound = FrameAttributes(StructType([]))
            bound._typed[ELEMENT_NAME] = element
            return sf.coalesce(element[1].isNotNull() & bound._truth(test), sf.lit(False))

        typed = self.typed(name)
        if typed is not None:
            return sf.when(typed[1].isNotNull(), passes(typed))
        if name not in self._lists:
            return _constant(None)
        kind, array = self._lists[name]
        if _is_nested(kind):
            return _nothing(array)
        if _typed(kind, array) is None:
            return _constant(None)

        def has(element: Column) -> Column:
            read = _typed(kind, element)
            assert read is not None
            return passes(read)

        return sf.when(array.isNotNull(), sf.exists(array, has))

    def _has(self, name: str, constants: Sequence[Constant], every: bool) -> Column:
        """Whether a list has values; a column that is not an array is a list of one."""
        from pyspark.sql import functions as sf

        fold = and_ if every else or_
        typed = self.typed(name)
        if typed is not None:
            tests = [sf.coalesce(_against(typed, Operator.EQ, each), sf.lit(False)) for each in constants]
            return sf.when(typed[1].isNotNull(), _fold(fold, tests))
        if name not in self._lists:
            return _constant(None)
        kind, array = self._lists[name]
        if _is_nested(kind):
            return _nothing(array)

        def has(constant: Constant) -> Column:
            found = sf.exists(array, lambda each: sf.coalesce(_equal(each, constant), sf.lit(False)))
            return sf.coalesce(found, sf.lit(False))

        def _equal(element: Column, constant: Constant) -> Column:
            return _against(_typed(kind, element), Operator.EQ, constant)

        if _typed(kind, array) is None:
            return _constant(None)
        return sf.when(array.isNotNull(), _fold(fold, [has(each) for each in constants]))


def _is_nested(kind: DataType) -> bool:
    from pyspark.sql import types as st

    return isinstance(kind, st.StructType | st.ArrayType | st.MapType)


def _nothing(array: Column) -> Column:
    """HAS of an array whose elements are nested: absent, unless all its elements are NULL."""
    from pyspark.sql import functions as sf

    return sf.when(array.isNotNull() & ~sf.exists(array, lambda each: each.isNotNull()), sf.lit(False))


def levels(node: Filter) -> int:
    """How deep the filter's Column is nested, without what its tests are made of.

    >>> from weft import parse
    >>> levels(parse("x > 5")), levels(parse("NOT (a AND b AND c AND d AND e)"))
    (0, 4)
    """
    match node:
        case Not(operand) | Is(operand):
            return 1 + levels(operand)
        case HasElement(_, test):
            return 1 + levels(test)
        case And(operands) | Or(operands):
            return (len(operands) - 1).bit_length() + max(map(levels, operands))
    return 0


# -- attributes -------------------------------------------------------------------------------------


def _column(path: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as sf

    # Fields are not named in one dotted text: `a`.`b` would find the column b of a DataFrame with the alias a.
    return reduce(lambda struct, name: struct.getField(name), path[1:], sf.col(quoted(path[0])))


def _read(kind: DataType, path: tuple[str, ...]) -> Typed | None:
    return _typed(kind, _column(path))


def _typed(kind: DataType, column: Column) -> Typed | None:
    """A column as its attribute: one type for each line of values; None for a type that no attribute has."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    match kind:
        case st.BooleanType():
            return Type.BOOL, column
        case st.ByteType() | st.ShortType() | st.IntegerType() | st.LongType():
            return Type.INT, column.cast("bigint")
        case st.FloatType() | st.DoubleType() | st.DecimalType():
            number = column.cast("double")  # Spark's -0.0 equals 0.0 everywhere, in sets too
            return Type.FLOAT, sf.when(~sf.isnan(number), number)
        case st.StringType() | st.CharType() | st.VarcharType():
            plain = isinstance(kind, st.StringType) and kind == st.StringType()
            return Type.STRING, column if plain else sf.collate(column, "UTF8_BINARY")
        case st.TimestampType():
            return Type.TIMESTAMP, sf.unix_micros(column)
        case st.TimestampNTZType():
            # By way of an interval: every other way to a number goes through the session's time zone.
            since = column - sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            seconds = since.cast("interval second").cast("decimal(20,6)")
            return Type.TIMESTAMP, (seconds * sf.lit(1_000_000)).cast("bigint")
        case st.DateType():
            return Type.TIMESTAMP, sf.try_multiply(sf.unix_date(column).cast("bigint"), sf.lit(_DAY))
    return None


# -- truths -----------------------------------------------------------------------------------------


def _constant(known: bool | None) -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(known).cast("boolean")


def _known(column: Column, known: bool) -> Column:
    """The same truth for every value, NULL for none."""
    from pyspark.sql import functions as sf

    return sf.when(column.isNotNull(), sf.lit(known))


def _fold(operator: Callable[[Column, Column], Column], parts: Sequence[Column]) -> Column:
    """All of them, halved again and again: a long chain would overflow the stack of Spark's planner."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return operator(_fold(operator, parts[:half]), _fold(operator, parts[half:]))


# -- comparisons ------------------------------------------------------------------------------------


def _against(typed: Typed | None, operator: Operator, constant: Constant) -> Column:
    from pyspark.sql import functions as sf

    if typed is None or not typed[0].compares_with(constant.type):
        return _constant(None)
    kind, column = typed
    if kind is constant.type:
        return _compared(column, operator, sf.lit(constant.value))
    below, above = _neighbours(constant, kind)
    match operator:
        case Operator.EQ | Operator.NE if below is None or below != above:
            return _known(column, operator is Operator.NE)
        case Operator.LE if below is None:
            return _known(column, False)
        case Operator.GT if below is None:
            return _known(column, True)
        case Operator.LT if above is None:
            return _known(column, True)
        case Operator.GE if above is None:
            return _known(column, False)
    nearest = above if operator in (Operator.LT, Operator.GE) else below
    return _compared(column, operator, sf.lit(nearest))


def _neighbours(constant: Constant, kind: Type) -> tuple[int | float | None, int | float | None]:
    """The greatest number of the other kind at or below a number, and the least at or above it, if there are any."""
    if kind is Type.INT:
        low, high = math.floor(constant.value), math.ceil(constant.value)  # type: ignore[arg-type]
        below = None if low < INT_MIN else min(low, INT_MAX)
        return below, None if high > INT_MAX else max(high, INT_MIN)
    whole = int(constant.value)
    nearest = float(whole)
    if nearest == whole:
        return nearest, nearest
    other = math.nextafter(nearest, math.inf if nearest < whole else -math.inf)
    return min(nearest, other), max(nearest, other)


def _between(one: Typed | None, operator: Operator, other: Typed | None) -> Column:
    """A comparison between attributes."""
    if one is None or other is None or not one[0].compares_with(other[0]):
        return _constant(None)
    if one[0] is other[0]:
        return _compared(one[1], operator, other[1])
    if one[0] is Type.INT:
        return _int_with_float(one[1], operator, other[1])
    return _int_with_float(other[1], operator.mirrored, one[1])


def _int_with_float(whole: Column, operator: Operator, number: Column) -> Column:
    """Exact beyond 2**53: rounding keeps order, so only what rounds to equal is compared again, as integers."""
    from pyspark.sql import functions as sf

    rounded = whole.cast("double")
    less = sf.lit(operator in (Operator.LT, Operator.LE, Operator.NE))
    greater = sf.lit(operator in (Operator.GT, Operator.GE, Operator.NE))
    return (
        sf.when((rounded < number) | ((rounded == number) & (number == sf.lit(_BEYOND))), less)
        .when(rounded > number, greater)
        .otherwise(_compared(whole, operator, number.try_cast("bigint")))
    )


def _compared(left: Column, operator: Operator, right: Column) -> Column:
    compared: Column = _COMPARE[operator](left, right)
    return compared


def _among(typed: Typed | None, constants: Sequence[Constant]) -> Column:
    """IN as one set of the column's own type; a constant of an unlike type makes FALSE into NULL."""
    from pyspark.sql import functions as sf

    if typed is None:
        return _constant(None)
    kind, column = typed
    alike = [constant for constant in constants if constant.type.compares_with(kind)]
    equal = {each.value if each.type is kind else _neighbours(each, kind)[0] for each in alike if _meets(each, kind)}
    found = column.isin(*map(sf.lit, sorted(equal))) if equal else _known(column, False)  # type: ignore[type-var]
    return found if len(alike) == len(constants) else found | _constant(None)


def _meets(constant: Constant, kind: Type) -> bool:
    """Whether some value of a comparable type equals the constant."""
    if constant.type is kind:
        return True
    below, above = _neighbours(constant, kind)
    return below is not None and below == above


# -- patterns ---------------------------------------------------------------------------------------


def _like(column: Column, pattern: Pattern) -> Column:
    """LIKE, or ILIKE on a folded Column; Spark's own has an escape by default, and its time grows with a power of the
    text's length.
    """
    from pyspark.sql import functions as sf

    if pattern.literal is not None:
        return column == sf.lit(pattern.literal)
    if pattern.prefix is not None:
        return column.startswith(sf.lit(pattern.prefix))
    return column.rlike(_regex(pattern))


def _regex(pattern: Pattern) -> str:
    """A regular expression of Java that never looks back past a `%`: the leftmost fit of a segment is the best."""
    first, *rest = map(_segment, pattern.segments)
    if not rest:
        return rf"(?s)\A{first}\z"
    return rf"(?s)\A{first}{''.join(f'(?>.*?{middle})' for middle in rest[:-1])}.*{rest[-1]}\z"


def _segment(segment: PatternSegment) -> str:
    return ".".join(re.sub(r"[^\w]", lambda sign: f"\\x{{{ord(sign[0]):x}}}", chunk) for chunk in segment)
