"""Values that are written as text, in CSV and JSON files: what they are, and what they become.

The rules are those of Spark's readers with the formats that `weft.spark.files` gives them, so that both engines read a
file alike. Columns of the usual spellings are converted as a whole; other texts one by one, each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.model.value import Type

ArrowKind = Any  # a type of Arrow
NULL, STRING, BOOL, DOUBLE = pa.null(), pa.string(), pa.bool_(), pa.float64()
INT, LONG = pa.int32(), pa.int64()
TIMESTAMP = pa.timestamp("us", "UTC")
DECLARED = {Type.INT: LONG, Type.FLOAT: DOUBLE, Type.STRING: STRING, Type.BOOL: BOOL, Type.TIMESTAMP: TIMESTAMP}
DIGITS = 38  # of a decimal, at most
INT_END, LONG_END = 2**31, 2**63

_WIDE = Context(prec=2 * DIGITS)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_JAVA_DOUBLE = re.compile(
    r"[\0- ]*[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)[\0- ]*"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MOMENT = re.compile(
    r"([0-9]{4}|\+[0-9]{5,10}|-[0-9]{4,10})-([0-9]{2})-([0-9]{2})"
    r"(?:T? ?([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.IGNORECASE | re.ASCII,
)
_INFINITE = {"NaN": float("nan"), "Inf": float("inf"), "-Inf": float("-inf")}
_TRUTHS = {"true": True, "false": False}
_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# spellings that Arrow converts as Spark does; whatever else there is, is converted one by one
_PLAIN = {
    INT: r"^-?[0-9]{1,9}$",
    LONG: r"^-?[0-9]{1,18}$",
    DOUBLE: r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
    BOOL: r"^(true|false)$",
    TIMESTAMP: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z?)?$",
}

_EMPTY = pa.scalar("")
_FRACTION = r"^-?[0-9]+\.[0-9]+$"  # nothing but a float
_MOST_DIGITS = 1_000  # of an integer
_MANY = 1_000  # texts, of which Arrow tells the type faster


# -- single values -----------------------------------------------------------------------------------


def kind_of(text: str) -> ArrowKind:
    """The type of a cell of a CSV file; an empty one is null.

    >>> [str(kind_of(text)) for text in ("7", "3000000000", "1e5", "2018-02-01", "TRUE", "10:30", "")]
    ['int32', 'int64', 'double', 'timestamp[us, tz=UTC]', 'bool', 'string', 'null']
    """
    if not text:
        return NULL
    if (number := _whole(text)) is not None:
        if -INT_END <= number < INT_END:
            return INT
        if -LONG_END <= number < LONG_END:
            return LONG
    if _JAVA_DOUBLE.fullmatch(text) or text in _INFINITE:
        return _decimal_kind(text) or DOUBLE
    if moment(text) is not None:
        return TIMESTAMP
    return BOOL if text.lower() in _TRUTHS else STRING


def _whole(text: str) -> int | None:
    """An integer, None if it is none or has more digits than anyone needs."""
    return int(text) if len(text) <= _MOST_DIGITS and _INTEGER.fullmatch(text) else None


def _decimal_kind(text: str) -> ArrowKind | None:
    """The type of a decimal without a fraction."""
    if not _DECIMAL.fullmatch(text):
        return None
    value = Decimal(text).as_tuple()
    size = len(value.digits)
    return pa.decimal128(size, 0) if value.exponent == 0 and size <= DIGITS else None


def number_kind(text: str) -> ArrowKind:
    """The type of a number of a JSON document."""
    number = _whole(text)
    if number is None:
        return DOUBLE
    if -LONG_END <= number < LONG_END:
        return LONG
    size = len(str(abs(number)))
    return pa.decimal128(size, 0) if size <= DIGITS else DOUBLE


def double(text: str) -> float | None:
    """A float as Java reads it, None if it does not."""
    if text in _INFINITE:
        return _INFINITE[text]
    if not _JAVA_DOUBLE.fullmatch(text):
        return None
    plain = text.strip("".join(map(chr, range(33))))
    if plain.lstrip("+-")[:2].lower() == "0x":
        try:
            return float.fromhex(plain.rstrip("fFdD"))  # an exponent is decimal
        except OverflowError:
            return float("-inf" if plain[0] == "-" else "inf")
    return float(plain if plain.endswith(("NaN", "Infinity")) else plain.rstrip("fFdD"))


def moment(text: str) -> int | None:
    """The microseconds of a timestamp, UTC unless it says otherwise; None if it is not one."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day = (int(found[at]) for at in (1, 2, 3))
    hour, minute, second = (int(found[at] or 0) for at in (4, 5, 6))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTHS[month - 1] or (month == 2 and day == 29 and not leap):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    zone = found[8] or "Z"
    offset = 0
    if zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if minutes > 59 or 60 * hours + minutes > 18 * 60:
            return None
        offset = (60 * hours + minutes) * (-1 if zone[0] == "-" else 1)
    seconds = (((_days(year, month, day) * 24 + hour) * 60) + minute - offset) * 60 + second
    micros = seconds * 1_000_000 + int((found[7] or "0").ljust(9, "0")[:6])
    return micros if -LONG_END <= micros < LONG_END else None


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a day of the calendar without beginning."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _integer(end: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        number = _whole(text)
        return number if number is not None and -end <= number < end else None

    return read


def decimal_of(digits: int) -> Callable[[str], Decimal | None]:
    """How a text becomes a decimal of so many digits without a fraction."""

    def read(text: str) -> Decimal | None:
        try:
            value = Decimal(text) if _DECIMAL.fullmatch(text) else None
        except InvalidOperation:
            return None
        if value is None or value.adjusted() >= digits or value.adjusted() < -digits:
            return None
        whole = value.quantize(Decimal(1), rounding="ROUND_HALF_UP", context=_WIDE)
        return whole if len(whole.as_tuple().digits) <= digits else None

    return read


def reader_of(kind: ArrowKind) -> Callable[[str], Any]:
    """How the text of a cell becomes a value of a type, None if it does not."""
    if pa.types.is_decimal(kind):
        return decimal_of(kind.precision)
    known: dict[ArrowKind, Callable[[str], Any]] = {
        STRING: str,
        INT: _integer(INT_END),
        LONG: _integer(LONG_END),
        DOUBLE: double,
        BOOL: lambda text: _TRUTHS.get(text.lower()),
        TIMESTAMP: moment,
    }
    return known[kind]


# -- types together ----------------------------------------------------------------------------------


def united(one: ArrowKind, other: ArrowKind) -> ArrowKind:
    """The type that fits the values of two; text fits all.

    >>> str(united(pa.int64(), pa.float64())), str(united(pa.int64(), pa.bool_()))
    ('double', 'string')
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = united(fields.get(field.name, NULL), field.type)
        return struct_of(fields)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(united(one.value_type, other.value_type))
    if not (_is_number(one) and _is_number(other)):
        return STRING
    if DOUBLE in (one, other):
        return DOUBLE
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return LONG
    return pa.decimal128(max(_digits(one), _digits(other)), 0)


def widened(known: ArrowKind, text: str) -> ArrowKind:
    """The type that fits values of a known type and one more cell. Among decimals an integer is one of its digits."""
    kind = kind_of(text)
    if pa.types.is_decimal(known) and pa.types.is_integer(kind):
        kind = pa.decimal128(len(str(abs(int(text)))), 0)
    return united(known, kind)


def struct_of(fields: dict[str, ArrowKind]) -> ArrowKind:
    """A struct whose fields are in order."""
    return pa.struct([(name, fields[name]) for name in in_order(fields)])


def in_order(names: Any) -> list[str]:
    """Names as Java orders them: by their UTF-16 units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _is_number(kind: ArrowKind) -> bool:
    return bool(pa.types.is_integer(kind) or kind == DOUBLE or pa.types.is_decimal(kind))


def _digits(kind: ArrowKind) -> int:
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return 10 if kind == INT else 20


# -- columns -----------------------------------------------------------------------------------------


def column_kind(texts: Any, known: ArrowKind) -> ArrowKind:
    """The type that fits a column of texts, empty ones apart, and values of a known type."""
    if known == STRING:
        return STRING
    if _is_plain(texts, _PLAIN.get(known)) and (known != TIMESTAMP or converted(texts, known)[1] is None):
        return known
    found = pc.unique(texts)
    if pa.types.is_null(known) and len(found) > _MANY:
        for kind in (INT, LONG):
            if _is_plain(found, _PLAIN[kind]):
                return kind
        if _is_plain(found, _PLAIN[DOUBLE]) and pc.any(pc.match_substring_regex(found, _FRACTION)).as_py():
            return DOUBLE
        if _is_plain(found, _PLAIN[TIMESTAMP]) and converted(found, TIMESTAMP)[1] is None:
            return TIMESTAMP
    for text in found.to_pylist():
        known = widened(known, text)
        if known == STRING:
            break
    return known


def converted(texts: Any, kind: ArrowKind) -> tuple[Any, Any]:
    """A column of texts as values of a type, empty ones as NULL, and which cannot be converted (None: all can)."""
    filled = pc.if_else(pc.equal(texts, _EMPTY), pa.scalar(None, STRING), texts)
    if kind == STRING:
        return filled, None
    if _is_plain(texts, _PLAIN.get(kind)):
        try:
            if kind == TIMESTAMP:
                naive = pc.utf8_rtrim(filled, "Z").cast(pa.timestamp("us"))
                return naive.cast(LONG).cast(TIMESTAMP), None
            return filled.cast(kind), None
        except pa.ArrowException:
            pass  # a day that does not exist
    coded = filled.dictionary_encode()
    read = reader_of(kind)
    values = [read(text) for text in coded.dictionary.to_pylist()]
    bad = None
    if None in values:
        wrong = pa.array([value is None for value in values], BOOL)
        bad = wrong.take(coded.indices).fill_null(False)
    return pa.array(values, kind).take(coded.indices), bad


def _is_plain(texts: Any, pattern: str | None) -> bool | None:
    """Whether all texts that are not empty are of a pattern."""
    if pattern is None:
        return False
    fits = pc.match_substring_regex(texts, pattern)
    if pc.all(fits, min_count=0).as_py():
        return True
    return bool(pc.all(pc.or_(fits, pc.equal(texts, _EMPTY)), min_count=0).as_py())
