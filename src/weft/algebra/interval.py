"""Unions of intervals on one ordered line, as their sorted cuts. Operations are exact, and each set has one form.

A cut lies just below a value, (v, 0), or just above it, (v, 1), and the set changes sides at each: a value belongs to
it if an odd number of cuts lie below. So [1, 2) is ((1, 0), (2, 0)), {5} is ((5, 0), (5, 1)), x > 3 is ((3, 1),),
the whole line is its bottom cut alone, and () is empty. Open ends, points, holes and unbounded ends are not special
cases, and intersection, union and complement are sweeps over the cuts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from weft.model.value import INT_MAX, INT_MIN

Cut = tuple[Any, int]
Line = tuple[Cut, ...]

EMPTY: Line = ()
NUMBERS: Line = ((-math.inf, 0),)
TIMESTAMPS: Line = NUMBERS  # microseconds
STRINGS: Line = (("", 0),)

_AND = ((False, False), (False, True))
_OR = ((False, True), (True, True))
_MINUS = ((False, False), (True, False))


def point(value: Any) -> Line:
    """The set of one value."""
    return ((value, 0), (value, 1))


def points_line(values: Iterable[Any]) -> Line:
    """The set of the given values. Cost: O(n log n)."""
    return tuple([cut for value in sorted(set(values)) for cut in ((value, 0), (value, 1))])


def contains(line: Line, value: Any) -> bool:
    """Whether the value belongs to the set. Cost: O(log n)."""
    return bisect_right(line, (value, 0)) & 1 == 1


def union(one: Line, other: Line) -> Line:
    """What is in either."""
    if not one or one == other:
        return other
    return _sweep(one, other, _OR) if other else one


def intersect(one: Line, other: Line) -> Line:
    """What is in both."""
    if not one or not other:
        return EMPTY
    if len(one) <= 2 and len(other) <= 2:  # two intervals: the later start, the earlier end
        low = max(one[0], other[0])
        if len(one) == 1:
            return (low, other[1]) if len(other) == 2 and low < other[1] else (low,) if len(other) == 1 else EMPTY
        high = one[1] if len(other) == 1 else min(one[1], other[1])
        return (low, high) if low < high else EMPTY
    if len(one) <= 2:
        return _within(other, one)
    return _within(one, other) if len(other) <= 2 else _sweep(one, other, _AND)


def meets(one: Line, other: Line) -> bool:
    """Whether anything is in both. Cost: O(n log m) for n cuts of the shorter one, up to the first place."""
    if len(one) > len(other):
        one, other = other, one
    for at in range(0, len(one), 2):
        place = bisect_right(other, one[at])
        if place & 1 or (place < len(other) and (at + 1 == len(one) or other[place] < one[at + 1])):
            return True
    return False


def union_of(lines: Iterable[Line]) -> Line:
    """What is in any of them. Cost: O(n log n) for n cuts in total."""
    some = [line for line in lines if line]
    if len(some) < 3:
        return union(some[0], some[1]) if len(some) == 2 else some[0] if some else EMPTY
    pieces = sorted([piece for line in some for piece in intervals(line)], key=_start)
    cuts: list[Cut] = []
    low, high = pieces[0]
    for start, end in pieces:
        if high is None:
            break
        if start > high:
            cuts += (low, high)
            low, high = start, end
        elif end is None or end > high:
            high = end
    cuts += (low,) if high is None else (low, high)
    return tuple(cuts)


def intersection_of(lines: Iterable[Line], whole: Line) -> Line:
    """What is in all of them. Cost: O(n log n) for n cuts in total."""
    return complement(union_of(complement(line, whole) for line in lines), whole)


def minus(one: Line, other: Line) -> Line:
    """What is in the first and not in the second."""
    return _sweep(one, other, _MINUS) if one and other else one


def complement(line: Line, whole: Line) -> Line:
    """What is not in the set, of the whole line."""
    return line[1:] if line and line[0] == whole[0] else whole + line


def covers(wide: Line, narrow: Line) -> bool:
    """Whether all of `narrow` is in `wide`. Cost: O(n log m) for n cuts of the narrow one."""
    if not narrow:
        return True
    if not wide:
        return False
    if len(wide) <= 2 and wide[0] <= narrow[0]:
        return len(wide) == 1 or (len(narrow) & 1 == 0 and narrow[-1] <= wide[1])
    for at in range(0, len(narrow), 2):  # each interval must lie in one, for maximal intervals never touch
        place = bisect_right(wide, narrow[at])
        if not place & 1:
            return False
        if place < len(wide) and (at + 1 == len(narrow) or narrow[at + 1] > wide[place]):
            return False
    return True


def intervals(line: Line) -> Iterator[tuple[Cut, Cut | None]]:
    """Its maximal intervals as pairs of cuts, in order; None for an unbounded end."""
    for at in range(0, len(line), 2):
        yield line[at], line[at + 1] if at + 1 < len(line) else None


def points(line: Line) -> list[Any] | None:
    """Its values if it is a finite set, else None."""
    found = []
    for low, high in intervals(line):
        if high is None or low[0] != high[0]:
            return None
        found.append(low[0])
    return found


def hull(line: Line) -> Line:
    """The smallest interval around the set."""
    return line[:1] if len(line) & 1 else line[:1] + line[-1:]


def whole_numbers(line: Line) -> Line:
    """The integers of the set, as a set whose every cut lies just below an int64.

    >>> whole_numbers(((0, 0), (5, 1), (5.5, 0), (10, 1)))  # [0, 5] and [5.5, 10] have no integer between them
    ((0, 0), (11, 0))
    """
    cuts: list[Cut] = []
    for value, side in line:
        least = math.floor(value) + 1 if side else math.ceil(value) if math.isfinite(value) else value
        if least > INT_MAX:
            break
        cut = (least, 0) if least > INT_MIN else NUMBERS[0]
        if cuts and cuts[-1] == cut:
            cuts.pop()
        else:
            cuts.append(cut)
    return tuple(cuts)


def _start(piece: tuple[Cut, Cut | None]) -> Cut:
    return piece[0]


def _within(line: Line, piece: Line) -> Line:
    """The part of a line within one interval. Cost: O(log n), and the copy."""
    first = bisect_right(line, piece[0])
    head = piece[:1] if first & 1 else EMPTY
    if len(piece) == 1:
        return head + line[first:]
    last = bisect_left(line, piece[1])
    return head + line[first:last] + (piece[1:] if last & 1 else EMPTY)


def _sweep(one: Line, other: Line, table: tuple[tuple[bool, bool], tuple[bool, bool]]) -> Line:
    cuts: list[Cut] = []
    i = j = 0
    inside = False
    while i < len(one) or j < len(other):
        if j == len(other) or (i < len(one) and one[i] <= other[j]):
            cut = one[i]
            if j < len(other) and other[j] == cut:
                j += 1
            i += 1
        else:
            cut = other[j]
            j += 1
        now = table[i & 1][j & 1]
        if now is not inside:
            cuts.append(cut)
            inside = now
    return tuple(cuts)
