"""Values to keys by intervals of their domain (003, 3.1). A matching event and subscription share a key.

A domain is divided into equal intervals; the last one ends with the domain's upper end (erratum 4). What lies outside
of the domain belongs to the interval at that end, so that this holds for every number, or timestamp. A key combines
interval, attribute and topic; intervals of one attribute are `gap` apart on the circle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from weft.algebra.interval import Cut
from weft.errors import RingError
from weft.model.schema import Attribute
from weft.model.value import Value, format_timestamp, to_micros
from weft.ring.identifiers import IdSpace, Key


@dataclass(frozen=True, slots=True)
class Intervals:
    """An attribute's domain [low, high] in `count` equal intervals.

    >>> price = Intervals("price", 0, 500, 100)
    >>> [price.start(number) for number in price.of_range(2, 8)]
    [0.0, 5.0]
    >>> price.of(500), price.of(-3), price.of(900)
    (99, 0, 99)

    The bounds of timestamps are given in microseconds, or taken from a schema:

    >>> from weft.model.value import Type
    >>> time = Attribute("time", Type.TIMESTAMP, low=datetime(2026, 1, 1), high=datetime(2027, 1, 1))
    >>> year = Intervals.of_attribute(time, 12)
    >>> year.of(to_micros(datetime(2026, 7, 20))), year.bounds
    (6, ('2026-01-01T00:00:00Z', '2027-01-01T00:00:00Z'))
    """

    attribute: str
    low: float
    high: float
    count: int
    timestamps: bool = False  # the values are microseconds since 1970

    def __post_init__(self) -> None:
        if self.count < 1:
            raise RingError(f"attribute {self.attribute!r} needs at least one interval, not {self.count}")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise RingError(
                f"attribute {self.attribute!r} needs finite bounds with low < high, not {self.low} and {self.high}"
            )

    @classmethod
    def of_attribute(cls, attribute: Attribute, count: int) -> Intervals:
        """The intervals of a schema's attribute. Raises RingError if it has no bounds."""
        low, high = attribute.low, attribute.high
        if low is None or high is None:
            raise RingError(
                f"attribute {attribute.name!r} has no bounds; give it low and high in the schema to place filters by it"
            )
        if isinstance(low, datetime) and isinstance(high, datetime):
            return cls(attribute.name, to_micros(low), to_micros(high), count, timestamps=True)
        assert not isinstance(low, datetime)
        assert not isinstance(high, datetime)
        return cls(attribute.name, low, high, count)

    @property
    def bounds(self) -> tuple[str, str]:
        """Both bounds as texts; equal texts mean equal bounds."""
        if self.timestamps:
            return format_timestamp(int(self.low)), format_timestamp(int(self.high))
        return _exact(self.low), _exact(self.high)

    def position(self, value: Value) -> float | None:
        """Where a value lies in the domain; None if it is of another type."""
        if self.timestamps:
            return to_micros(value) if isinstance(value, datetime) else None
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def of(self, value: float) -> int:
        """The interval of a value; values outside of the domain count to the nearest one."""
        if value <= self.low:
            return 0
        if value >= self.high:
            return self.count - 1
        number = min(int((value - self.low) / (self.high - self.low) * self.count), self.count - 1)
        # rounding must not separate a value from the interval that `start` says it lies in
        while number and value < self.start(number):
            number -= 1
        while number + 1 < self.count and value >= self.start(number + 1):
            number += 1
        return number

    def of_range(self, low: float, high: float) -> range:
        """The intervals that meet [low, high]."""
        return range(self.of(low), self.of(high) + 1)

    def of_cuts(self, low: Cut, high: Cut | None) -> range:
        """The intervals that meet what lies between two cuts of the number line; None is an end without bound."""
        first = self.of(low[0])
        if high is None:
            return range(first, self.count)
        last = self.of(high[0])
        excluded = high[1] == 0 and last > first and high[0] == self.start(last)
        return range(first, last + (not excluded))

    def start(self, number: int) -> float:
        """The lower end of an interval."""
        return self.low + (self.high - self.low) * number / self.count

    def key(self, number: int, space: IdSpace, topic: str) -> Key:
        """Where interval `number` of a topic is on the circle."""
        gap = max(1, space.size // self.count)
        return Key((number * gap + space.hash(f"{self.attribute}\x00{topic}")) % space.size)


def _exact(number: float) -> str:
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))
