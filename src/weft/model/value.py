"""Values and their five types. A value has exactly one type, or is NULL (None and NaN).

Numbers are int (64 bits) and float (64 bits), compared exactly with each other; a bool is not a number.
A timestamp is an instant: microseconds since 1970 in UTC, finer parts floored; a naive one is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum

Value = bool | int | float | str | datetime

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
MICROS_MIN = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MICROS_MAX = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Type(StrEnum):
    """The type of an attribute's value.

    >>> Type("float") is Type.FLOAT, [*map(str, Type)]
    (True, ['int', 'float', 'string', 'bool', 'timestamp'])
    """

    INT = "int"
    FLOAT = "float"
    STRING = "string"
    BOOL = "bool"
    TIMESTAMP = "timestamp"

    @property
    def is_number(self) -> bool:
        """Int and float share one line of numbers. Cost: O(1).

        >>> [str(kind) for kind in Type if kind.is_number]
        ['int', 'float']
        """
        return self is Type.INT or self is Type.FLOAT

    def compares_with(self, other: Type) -> bool:
        """Whether values of the two types compare at all; unlike types compare to NULL. Cost: O(1).

        >>> Type.INT.compares_with(Type.FLOAT), Type.INT.compares_with(Type.BOOL)
        (True, False)
        """
        return self is other or (self.is_number and other.is_number)


_TYPES: dict[type, Type] = {
    bool: Type.BOOL,
    int: Type.INT,
    float: Type.FLOAT,
    str: Type.STRING,
    datetime: Type.TIMESTAMP,
}


def type_of(value: object) -> Type | None:
    """The type of a value; None for NULL, which is None, NaN and anything that is not a value.

    >>> type_of(True), type_of(1), type_of(float("nan"))
    (<Type.BOOL: 'bool'>, <Type.INT: 'int'>, None)
    """
    found = _TYPES.get(type(value))
    if found is None:
        for base, kind in _TYPES.items():  # bool is listed before int, whose subclass it is
            if isinstance(value, base):
                found = kind
                break
    return None if found is Type.FLOAT and value != value else found  # noqa: PLR0124 - NaN


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 in UTC.

    >>> to_micros(datetime(1970, 1, 2))
    86400000000
    """
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The instant, in UTC. Raises OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=micros)


_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?\s?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def parse_timestamp(text: str) -> int:
    """Microseconds of an ISO 8601 date, or date and time; without a zone it is UTC. Raises ValueError.

    >>> parse_timestamp("2018-02-01T01:00:00.0000019+01:00") - parse_timestamp("2018-02-01")
    1
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("write it as 'YYYY-MM-DD' or 'YYYY-MM-DDTHH:MM:SS.ffffffZ'")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    micros = to_micros(moment) + int(((fraction or "") + "000000")[:6])
    if zone and zone not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if hours > 23 or minutes > 59:
            raise ValueError(f"no such zone: {zone}")
        offset = (hours * 60 + minutes) * 60_000_000
        micros += offset if zone[0] == "-" else -offset
    if not MICROS_MIN <= micros <= MICROS_MAX:
        raise ValueError("outside the years 1 to 9999 in UTC")
    return micros


def format_timestamp(micros: int) -> str:
    """The one spelling of an instant; `parse_timestamp` reads it back.

    >>> format_timestamp(1517363399650000)
    '2018-01-31T01:49:59.650000Z'
    """
    return from_micros(micros).isoformat().replace("+00:00", "Z")
