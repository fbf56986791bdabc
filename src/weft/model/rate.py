"""Rates of events, such as "10/s", and the token buckets that keep to them.

A subscription with a rate is written as its filter and the rate: `magnitude > 2 AT MOST 10/s`. Brokers store it, and
move it, like that.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from weft.errors import FilterError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_RATE = r"(\d{1,9})\s*/\s*(\d{1,9}(?:\.\d{1,6})?)?\s*(s|min|h|d)"
_ALONE = re.compile(rf"\s*{_RATE}\s*")
_BEHIND = re.compile(rf"(?is)(.*?)\s+AT\s+MOST\s+{_RATE}\s*")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most this many events in a period of seconds.

    >>> Rate(20).covers(Rate(10)), Rate(20).covers(Rate(30, period=2)), Rate(20).covers(Rate(50, period=2))
    (True, True, False)
    """

    events: int
    period: float = 1.0

    def __post_init__(self) -> None:
        if self.events < 1 or not 0 < self.period < math.inf:
            raise FilterError(
                f"{self.events} events in {self.period} seconds is not a rate; "
                "give at least one event and a period of more than 0 seconds"
            )

    @staticmethod
    def parse(text: str) -> Rate:
        """The rate of a text such as "10/s", "100/min" or "1/30s". Raises FilterError.

        >>> Rate.parse("100/min"), str(Rate.parse("1/30s"))
        (Rate(events=100, period=60.0), '1/30s')
        """
        found = _ALONE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise FilterError(f"{text!r} is not a rate; write events and a period, such as 10/s, 100/min or 1/30s")
        return _rate(*found.groups())

    @property
    def per_second(self) -> float:
        """Events per second."""
        return self.events / self.period

    def covers(self, other: Rate) -> bool:
        """Whether it lets through at least as much."""
        return self.per_second >= other.per_second

    def __str__(self) -> str:
        for unit, seconds in _UNITS.items():
            if self.period == seconds:
                return f"{self.events}/{unit}"
        return f"{self.events}/{self.period:g}s"


def _rate(events: str, times: str | None, unit: str) -> Rate:
    return Rate(int(events), float(times or 1) * _UNITS[unit.lower()])


def split_rate(text: str) -> tuple[str, Rate | None]:
    """The filter and the rate of a subscription's text. Raises FilterError.

    >>> split_rate("x > 5 AT MOST 10/s"), split_rate("x = 'at most 10/s'")
    (('x > 5', Rate(events=10, period=1.0)), ("x = 'at most 10/s'", None))
    """
    if text[-1:].lower() not in ("s", "n", "h", "d", " "):  # of a unit: nearly no filter is looked at
        return text, None
    found = _BEHIND.fullmatch(text)
    return (text, None) if found is None else (found[1], _rate(*found.groups()[1:]))


def with_rate(filter: str, rate: Rate | None) -> str:
    """The text of a subscription."""
    return filter if rate is None else f"{filter} AT MOST {rate}"


_MEMORY = 60.0  # seconds: an event counts e times less in a moving average when it is so old
_FADING = math.exp(-1 / _MEMORY)  # of an event in a second


def faded(seconds: Any) -> Any:
    """How much an event of so many seconds ago counts in a moving average; for a number, or an array of them.

    >>> faded(0), round(faded(60), 3)
    (1.0, 0.368)
    """
    return _FADING**seconds


def average_rate(weight: Any, seconds: Any) -> Any:
    """Events per second, if all events of the last `seconds` weigh so much together, each as much as `faded` says; for
    numbers, or arrays of them. `seconds` is at least 1.

    The average of what happens evenly does not depend on the time: nothing is missing at the beginning.

    >>> [round(average_rate(sum(faded(n) for n in range(size)), size), 6) for size in (1, 10, 600)]
    [1.0, 1.0, 1.0]
    """
    return weight * (1 - _FADING) / (1 - _FADING**seconds)


class RateAverage:
    """A moving average of events per second, over about a minute (thesis 3.8). Times are in seconds.

    >>> average = RateAverage()
    >>> for second in range(100, 105):
    ...     average.count(20, second)
    >>> round(average.per_second(104)), round(average.per_second(164))
    (20, 1)
    """

    __slots__ = ("_since", "_weight", "last", "total")

    def __init__(self) -> None:
        self.total = 0  # events
        self.last: float = -1  # the time of the last one
        self._since: float = -1
        self._weight = 0.0

    def count(self, events: int, second: float) -> None:
        """Add events that happen now. A clock that goes back changes nothing."""
        self.total += events
        if second > self.last:
            if self._weight:
                self._weight *= faded(second - self.last)
            else:
                self._since = second
            self.last = second
        self._weight += events

    def per_second(self, second: float) -> float:
        """The average since the first event, as of now."""
        if not self._weight:
            return 0.0
        now = max(second, self.last)
        found: float = average_rate(self._weight * faded(now - self.last), now - self._since + 1)
        return found


class RateBucket:
    """The events that a rate allows now: as many as in a period, and they come back evenly. It is exact.

    >>> bucket = RateBucket(Rate(2), at=0)
    >>> bucket.take(0), bucket.take(0), bucket.take(400_000), bucket.take(500_000)
    (True, True, False, True)
    """

    __slots__ = ("_last", "_left", "_most", "_period", "rate", "suppressed")

    def __init__(self, rate: Rate, at: int, *, full: bool = True) -> None:
        self.suppressed = 0
        self._last = at
        self._set(rate)
        self._left = self._most if full else 0

    def _set(self, rate: Rate) -> None:
        self.rate = rate
        self._period = max(1, round(rate.period * 1_000_000))  # what an event costs; each microsecond earns `events`
        self._most = rate.events * self._period

    def change(self, rate: Rate, at: int) -> None:
        """Another rate from now on. What was left of the old one stays, as far as the new one allows it."""
        self._advance(at)
        left, period = self._left, self._period
        self._set(rate)
        self._left = min(self._most, left * self._period // period)

    def take(self, at: int) -> bool:
        """Whether one more event may pass at this time, in microseconds. If not, it is counted as suppressed."""
        self._advance(at)
        if self._left < self._period:
            self.suppressed += 1
            return False
        self._left -= self._period
        return True

    def _advance(self, at: int) -> None:
        if at > self._last:
            self._left = min(self._most, self._left + (at - self._last) * self.rate.events)
            self._last = at
