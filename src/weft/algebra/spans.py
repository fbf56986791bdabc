"""Value sets as spans, one interval of one type each. The span of a set holds all of it. Where it is exact it holds
nothing else, and `values_of` gives the set back.

The ends are floats, so that columns and indexes can compare them: a string is represented by a number that its
owner gave it, a timestamp by its microseconds. Rounding to floats keeps the order, so that a span that is not exact is
still a hull.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

from weft.algebra import interval
from weft.algebra.interval import NUMBERS
from weft.algebra.strings import ALL_STRINGS, NO_STRINGS, Strings
from weft.algebra.valueset import ValueSet
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.language.membership import MARK
from weft.model.value import INT_MAX, INT_MIN


class ColumnPart(StrEnum):
    """The part of a value set that a column holds."""

    NUMBERS = "numbers"
    STRINGS = "strings"
    BOOLS = "bools"
    TIMESTAMPS = "timestamps"


ColumnKey = tuple[str, ColumnPart]
Span = tuple[ColumnKey, float, float, int]  # low, high and marks as in kernels.boxes


def span_of(name: str, values: ValueSet, number: Callable[[str], float]) -> tuple[Span | None, bool]:
    """The span of the set of an attribute, and whether it is exact; a set of several types has none.

    `number` gives the number of a string; it is called only if the set is just that string.

    >>> span_of("x", ValueSet(numbers=((1, 0), (2, 0), (5, 1))), len)
    ((('x', <ColumnPart.NUMBERS: 'numbers'>), 1.0, inf, 4), False)
    """
    if name[0] == MARK:  # there may be very many, and few boxes test the same
        return None, False
    cuts = values.numbers
    if cuts:
        strings = values.strings
        if values.absent or values.bools or values.timestamps or (strings is not NO_STRINGS and strings):
            return None, False
        low, side = cuts[0]
        top, end = cuts[-1] if len(cuts) % 2 == 0 else (math.inf, 1)
        marks = BOUNDED | (LOW_OPEN if side else 0) | (0 if end else HIGH_OPEN)
        start, stop = float(low), float(top)
        return ((name, ColumnPart.NUMBERS), start, stop, marks), len(cuts) <= 2 and start == low and stop == top
    strings, bools, cuts = values.strings, values.bools, values.timestamps
    if values.absent or (bool(strings) + bool(bools) + bool(cuts)) != 1:
        return None, False
    if cuts:
        low, top = cuts[0][0], cuts[-1][0] - 1 if len(cuts) % 2 == 0 else math.inf
        start, stop = float(low), float(top)
        return ((name, ColumnPart.TIMESTAMPS), start, stop, BOUNDED), len(cuts) <= 2 and start == low and stop == top
    if bools:
        return ((name, ColumnPart.BOOLS), float(min(bools)), float(max(bools)), BOUNDED), True
    text = only_string(strings)
    if text is None:
        return ((name, ColumnPart.STRINGS), -math.inf, math.inf, BOUNDED), strings == ALL_STRINGS
    place = number(text)
    return ((name, ColumnPart.STRINGS), place, place, BOUNDED), True


def only_string(strings: Strings) -> str | None:
    """The only string of a set; None if it has others, or may have."""
    texts = None if strings.terms else interval.points(strings.line)
    return texts[0] if texts is not None and len(texts) == 1 else None


def values_of(span: Span, texts: Sequence[str]) -> ValueSet:
    """The set of an exact span; `texts` are the strings by their numbers."""
    (_, part), low, high, marks = span
    match part:
        case ColumnPart.NUMBERS:
            ends = (
                (_number(low), 1 if marks & LOW_OPEN else 0),
                (_number(high), 0 if marks & HIGH_OPEN else 1),
            )
            return ValueSet(numbers=ends[:1] if high == math.inf and not marks & HIGH_OPEN else ends)
        case ColumnPart.TIMESTAMPS:
            start = NUMBERS[0] if low == -math.inf else (int(low), 0)
            return ValueSet(timestamps=(start,) if high == math.inf else (start, (int(high) + 1, 0)))
        case ColumnPart.BOOLS:
            return ValueSet(bools=frozenset((bool(low), bool(high))))
    return ValueSet(strings=ALL_STRINGS if low == -math.inf else Strings(interval.point(texts[int(low)])))


def _number(value: float) -> float:
    return int(value) if value.is_integer() and INT_MIN <= value <= INT_MAX else value
