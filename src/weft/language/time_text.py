"""The attribute `time` as text. `time_test` and `time_like` agree with the text of the timestamp. Whatever can be a
range of timestamps is one.

The text of a timestamp is its RFC 3339 form in UTC: `2018-02-01T09:30:00Z`, with six digits of fraction if it is not a
whole second (`2018-02-01T09:30:00.250000Z`). The JSON dialects and EventBridge patterns compare strings with it. A
string that is a whole RFC 3339 timestamp is compared as an instant, so that neither an offset nor the number of digits
matters.
"""

from __future__ import annotations

import re
from enum import StrEnum

from weft.errors import FilterError
from weft.language.ast import FALSE, AttributeRef, Between, Call, Compare, Filter, Like, Operator
from weft.language.builder import literal_like
from weft.language.constant import Constant
from weft.language.time_like import TIME_LIKE
from weft.model.value import MICROS_MAX, MICROS_MIN, Type, format_timestamp, parse_timestamp

_WHOLE = re.compile(r"[0-9-]{10}[Tt][0-9:]{8}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")
_SECONDS = 19  # characters of the text down to the second
_FRACTION = re.compile(r"\.([0-9]{0,6})")
_SECOND = 1_000_000  # microseconds


class TimeText(StrEnum):
    """How a string is compared with the text."""

    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"


def time_test(left: AttributeRef, how: TimeText, text: str) -> Filter:
    """The timestamps whose text is, starts with, or ends with a string.

    >>> print(time_test(AttributeRef("time"), TimeText.PREFIX, "2018-02-01T09"))
    time BETWEEN TIMESTAMP '2018-02-01T09:00:00Z' AND TIMESTAMP '2018-02-01T09:59:59.999999Z'
    """
    if _WHOLE.fullmatch(text):
        try:
            return Compare(left, Operator.EQ, Constant(Type.TIMESTAMP, parse_timestamp(text)))
        except ValueError as error:
            raise FilterError(f"{text!r} is not a timestamp: {error}") from None
    if how is TimeText.EXACT:
        raise FilterError(f"{text!r} is not an RFC 3339 timestamp; write it as '2018-02-01T09:30:00Z'")
    if how is TimeText.SUFFIX:
        return time_matching(left, literal_like(left, "%", text, ""))
    found = _starting_with(text)
    if found is None:
        return FALSE
    low, high = (Constant(Type.TIMESTAMP, end) for end in found)
    return Compare(left, Operator.EQ, low) if low == high else Between(left, low, high)


def time_matching(left: AttributeRef, like: Like) -> Filter:
    """The timestamps whose text matches a pattern."""
    arguments = (Constant.of(like.pattern), *(() if like.escape is None else (Constant.of(like.escape),)))
    return Call(TIME_LIKE, left, arguments)


def _starting_with(text: str) -> tuple[int, int] | None:
    """The first and the last microsecond whose text starts so; they are a range, for texts are ordered as instants."""
    start = text[:_SECONDS]
    first, last = _first_second(start), _first_second(start + "~") - 1
    if first > last:
        return None
    low, high = first * _SECOND, last * _SECOND + _SECOND - 1
    rest = text[_SECONDS:]
    if rest:  # "Z" comes with a whole timestamp only
        digits = _FRACTION.fullmatch(rest)
        if digits is None:
            return None
        fraction = digits[1]
        step = 10 ** (6 - len(fraction))
        low, high = (low + int(fraction or 0) * step, low + (int(fraction or 0) + 1) * step - 1)
        low += low % _SECOND == 0  # a whole second has no fraction
    return (low, high) if low <= high else None


def _first_second(text: str) -> int:
    """The first second whose text is not less than this one."""
    low, high = MICROS_MIN // _SECOND, MICROS_MAX // _SECOND + 1
    while low < high:
        middle = (low + high) // 2
        if format_timestamp(middle * _SECOND)[:_SECONDS] < text:
            low = middle + 1
        else:
            high = middle
    return low
