"""Timestamps by their text: a predicate that every reader of filters knows. `covers` is True only when proven.

It is for what is not a range of timestamps, such as every full minute; compare with timestamps where you can.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from weft.language.pattern import Pattern
from weft.model.value import Type, Value, format_timestamp, to_micros

if TYPE_CHECKING:
    from weft.language.predicate import Arguments


_LONGEST = 64  # characters of a pattern; the text of a timestamp has at most 27, each of which may be escaped


class TimeLike:
    """`time_like(time, '%:00Z')`: the RFC 3339 text of a timestamp matches a LIKE pattern; an escape may follow.

    >>> from weft import Event, matches, parse
    >>> matches(parse("time_like(time, '%:00Z')"), Event.of(time="2018-02-01T09:30:00+01:00"))
    True
    """

    name = "time_like"
    type = Type.TIMESTAMP

    def check(self, arguments: Arguments) -> None:
        """A pattern and, if need be, its escape."""
        if len(arguments) not in (1, 2) or not all(isinstance(each, str) for each in arguments):
            raise ValueError("time_like takes an attribute and a LIKE pattern, as in time_like(time, '2018-%')")
        if len(str(arguments[0])) > _LONGEST:
            raise ValueError(f"a pattern of time_like has at most {_LONGEST} characters")
        Pattern.of(*arguments)  # type: ignore[arg-type]

    def matches(self, value: Value, arguments: Arguments) -> bool:
        """Whether the text of the timestamp matches."""
        assert isinstance(value, datetime)
        return Pattern.of(*arguments).matches(format_timestamp(to_micros(value)))  # type: ignore[arg-type]

    def covers(self, wide: Arguments, narrow: Arguments) -> bool:
        """True only if the narrow pattern is part of the wide one."""
        return Pattern.of(*wide).covers(Pattern.of(*narrow))  # type: ignore[arg-type]

    def overlaps(self, one: Arguments, other: Arguments) -> bool:
        """False only if no text matches both patterns."""
        return not Pattern.of(*one).disjoint(Pattern.of(*other))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeLike)

    def __hash__(self) -> int:
        return hash(TimeLike)


TIME_LIKE = TimeLike()
