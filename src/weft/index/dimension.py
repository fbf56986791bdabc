"""Dimensions: everything that an attribute can be, as whole numbers. Values and value sets keep their relations: a
value is in a set if and only if its code is in one of the set's ranges.

The cuts of all filters on an attribute divide each type's line into cells, and the cells of all types stand in one row:
absent, FALSE, TRUE, numbers, timestamps, strings. A code is a cell's place in it.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra import interval
from weft.algebra.interval import NUMBERS, STRINGS, Cut, Line
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.index.known_texts import UNKNOWN, KnownTexts
from weft.index.memo import ROOM, Memo
from weft.kernels.encode import FIRST, encode_floats, lookup
from weft.model.lists import AttributeValue
from weft.model.value import INT_MAX, INT_MIN, to_micros

CodeRange = tuple[int, int]  # of codes, both included

ABSENT, FALSE, TRUE, FIRST_NUMBER = 0, 1, 2, FIRST

Codes = NDArray[np.int32]

_BUCKETS, _MOST_BUCKETS = 2, 17  # bits: four buckets for each cut, so that most have none; but so many at most
_LISTED = 4096  # numbers that are kept as Python's too: a search among these takes half the time


class CodeDimension:
    """The codes of one attribute, from the sorted cuts of its number, timestamp and string lines (bottoms left out).

    >>> x = CodeDimension.of([(1, 0), (5, 1)], [], [])
    >>> x.code(0), x.code(1), x.code(5), x.code(5.5), x.code("a"), x.code(None)
    (3, 4, 4, 5, 7, 0)
    >>> x.ranges(ValueSet(numbers=((1, 0), (5, 1))))
    [(4, 4)]
    """

    __slots__ = (
        "first_moment",
        "first_string",
        "inexact",
        "moments",
        "near",
        "numbers",
        "plain",
        "plain_sides",
        "points",
        "sides",
        "size",
        "strings",
        "table",
        "texts",
    )

    def __init__(
        self, numbers: NDArray[Any], sides: NDArray[np.uint8], moments: NDArray[np.int64], strings: Sequence[Cut]
    ) -> None:
        self.inexact = numbers.dtype == object  # there is an int that no float equals
        self.numbers, self.sides, self.moments, self.strings = numbers, sides, moments, list(strings)
        self.first_moment = FIRST_NUMBER + len(self.numbers) + 1
        self.first_string = self.first_moment + len(self.moments) + 1
        self.size = self.first_string + len(self.strings) + 1
        self.texts = Memo()
        listed = self.inexact or len(self.numbers) <= _LISTED
        self.plain: Sequence[float] = self.numbers.tolist() if listed else self.numbers.data
        self.plain_sides: Sequence[int] = self.sides.tolist() if listed else self.sides.data
        self.table = np.zeros(1, np.int32)
        self.near: tuple[float, float, float, Any] | None = None  # first, last, buckets per unit, and the table
        self.points: KnownTexts | None = None  # the strings that filters name
        if not self.inexact and len(self.numbers) > 1:
            buckets = 1 << min(_MOST_BUCKETS, len(self.numbers).bit_length() + _BUCKETS)
            spread = float(self.numbers[-1]) - float(self.numbers[0])
            if math.isfinite(spread) and spread > buckets * sys.float_info.min:
                self.table = lookup(self.numbers, buckets)
                if not listed:
                    ends = float(self.numbers[0]), float(self.numbers[-1])
                    self.near = (*ends, buckets / spread, self.table.data)

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of; not what it remembers."""
        return CodeDimension, (self.numbers, self.sides, self.moments, self.strings)

    @staticmethod
    def of(numbers: Sequence[Cut], moments: Sequence[int], strings: Sequence[Cut]) -> CodeDimension:
        """The dimension of cuts in lists."""
        kind = object if any(float(value) != value for value, _ in numbers) else np.float64
        values: Any = [value for value, _ in numbers]
        sides = np.array([side for _, side in numbers], np.uint8)
        return CodeDimension(np.array(values, kind), sides, np.array(moments, np.int64), strings)

    # -- values ---------------------------------------------------------------------------------

    def code(self, value: AttributeValue | None) -> int:
        """The code of a value."""
        kind = type(value)
        if kind is float or kind is int:
            return self.code_of_number(value)  # type: ignore[arg-type]
        if kind is str:
            return self.code_of_string(value)  # type: ignore[arg-type]
        if kind is bool:
            return TRUE if value else FALSE
        if isinstance(value, datetime):
            return self.first_moment + int(np.searchsorted(self.moments, to_micros(value), "right"))
        if isinstance(value, str):
            return self.code_of_string(str(value))
        return ABSENT if value is None or kind is list else self.code_of_number(value)  # type: ignore[arg-type]

    def code_of_number(self, value: float) -> int:
        """The code of a number; NaN is absent."""
        if value != value:  # noqa: PLR0124 - NaN
            return ABSENT
        plain = self.plain
        near = self.near
        if near is not None and near[0] < value < near[1]:
            bucket = min(int((value - near[0]) * near[2]), len(near[3]) - 2)
            low, high = near[3][bucket], near[3][bucket + 1]
            at = bisect_left(plain, value, low, high)
            # rounding may be one bucket off: then the place is at an end, and not the right one
            if (at == low and plain[at - 1] >= value) or (at == high and plain[at] < value):
                at = bisect_left(plain, value)
        else:
            at = bisect_left(plain, value)  # Python compares int and float exactly
        if at < len(plain) and plain[at] == value and self.plain_sides[at] == 0:
            at += 1
        return FIRST_NUMBER + at

    def code_of_string(self, text: str) -> int:
        """The code of a string; short ones are remembered, since strings recur."""
        found = self.texts.get(text)
        if found is None:
            found = self.place_of_string(text)
            ROOM.keep(self.texts, text, found)
        return found

    def place_of_string(self, text: str) -> int:
        """The code of a string, which is not remembered."""
        return self.first_string + bisect_right(self.strings, (text, 0))

    def codes_of_strings(self, array: Any) -> Codes:
        """The codes of an Arrow array of strings; NULL is absent."""
        if self.points is None:
            texts = dict.fromkeys(text for text, _ in self.strings)
            self.points = KnownTexts.of({text: self.place_of_string(text) for text in texts})
        found = self.points.codes_of(array)
        if array.null_count:
            found[array.is_null().to_numpy(zero_copy_only=False)] = ABSENT
        for row in np.flatnonzero(found == UNKNOWN).tolist():  # a string that no filter names
            found[row] = self.code_of_string(array[row].as_py())
        return found

    def write_numbers(self, column: NDArray[np.float64], codes: Codes, dim: int) -> None:
        """The codes of a column of floats, NaN where there is no value, into codes[:, dim]."""
        # ints beyond 2**53 must come one by one: a float may be another number
        if self.inexact:
            codes[:, dim] = [self.code_of_number(value) for value in column.tolist()]
        else:
            encode_floats(self.numbers, self.sides, self.table, column, codes, dim)

    def codes_of_moments(self, micros: NDArray[np.int64]) -> Codes:
        """The codes of a column of timestamps."""
        return (self.first_moment + np.searchsorted(self.moments, micros, "right")).astype(np.int32)

    # -- sets -----------------------------------------------------------------------------------

    def ranges(self, values: ValueSet) -> list[CodeRange]:
        """The ranges of a value set without pattern terms; its cuts must be among the dimension's."""
        found: list[CodeRange] = [(ABSENT, ABSENT)] if values.absent else []
        found += [(TRUE, TRUE) if value else (FALSE, FALSE) for value in sorted(values.bools)]
        first, last = self.first_moment, self.first_string - 1
        if values.numbers:
            found += self._ranges(values.numbers, NUMBERS, FIRST_NUMBER, first - 1, self._number_place)
        if values.timestamps:
            found += self._ranges(values.timestamps, NUMBERS, first, last, self._moment_place)
        if values.strings.line:
            found += self._ranges(values.strings.line, STRINGS, self.first_string, self.size - 1, self._string_place)
        joined: list[CodeRange] = []
        for low, high in found:
            if joined and joined[-1][1] + 1 >= low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        return joined

    def hull(self, values: ValueSet) -> CodeRange:
        """The least range around a value set that is not empty; only its outermost cuts must be the dimension's."""
        first, last = self.first_moment, self.first_string - 1
        lines = (
            (values.numbers, NUMBERS, FIRST_NUMBER, first - 1, self._number_place),
            (values.timestamps, NUMBERS, first, last, self._moment_place),
            (values.strings.line, STRINGS, self.first_string, self.size - 1, self._string_place),
        )
        some = [each for each in lines if each[0]]
        flags = [ABSENT] if values.absent else []
        flags += [TRUE if value else FALSE for value in sorted(values.bools)]
        if flags:
            low = flags[0]
        else:
            line, whole, start, _, place = some[0]
            low = start if line[0] == whole[0] else start + place(line[0]) + 1
        if not some:
            return low, flags[-1]
        line, _, start, end, place = some[-1]
        return low, end if len(line) % 2 else start + place(line[-1])

    def values(self, low: int, high: int) -> ValueSet:
        """The value set of a range of codes. Cost: O(1)."""
        numbers = self._part(low, high, FIRST_NUMBER, self.first_moment - 1, NUMBERS, self._number_cut)
        moments = self._part(low, high, self.first_moment, self.first_string - 1, NUMBERS, self._moment_cut)
        strings = self._part(low, high, self.first_string, self.size - 1, STRINGS, self.strings.__getitem__)
        bools = frozenset(value for value, code in ((False, FALSE), (True, TRUE)) if low <= code <= high)
        return ValueSet(numbers, Strings(strings), bools, moments, low <= ABSENT <= high)

    @staticmethod
    def _part(low: int, high: int, first: int, last: int, whole: Line, cut: Callable[[int], Cut]) -> Line:  # noqa: PLR0913, PLR0917
        start, end = max(low, first), min(high, last)
        if start > end:
            return ()
        below = whole[0] if start == first else cut(start - first - 1)
        return (below,) if end == last else (below, cut(end - first))

    def _number_cut(self, place: int) -> Cut:
        value = self.plain[place]
        whole = INT_MIN <= value <= INT_MAX and value == int(value)
        return (int(value) if whole else value, self.plain_sides[place])

    def _moment_cut(self, place: int) -> Cut:
        return (int(self.moments[place]), 0)

    def _ranges(self, line: Line, whole: Line, first: int, last: int, place: Any) -> list[CodeRange]:
        return [
            (first if low == whole[0] else first + place(low) + 1, last if high is None else first + place(high))
            for low, high in interval.intervals(line)
        ]

    # A set's cuts must be among the dimension's: for any other a place would be a guess, and the answers wrong.

    def _number_place(self, cut: Cut) -> int:
        at = bisect_left(self.plain, cut[0])  # Python compares int and float exactly
        at += at + 1 < len(self.plain) and self.plain_sides[at] != cut[1]
        if at < len(self.plain) and self.plain[at] == cut[0] and self.plain_sides[at] == cut[1]:
            return at
        raise ValueError(f"{cut!r} is not among the cuts")

    def _moment_place(self, cut: Cut) -> int:
        at = int(np.searchsorted(self.moments, cut[0]))
        if at < len(self.moments) and self.moments[at] == cut[0] and cut[1] == 0:
            return at
        raise ValueError(f"{cut!r} is not among the cuts")

    def _string_place(self, cut: Cut) -> int:
        at = bisect_left(self.strings, cut)
        if at < len(self.strings) and self.strings[at] == cut:
            return at
        raise ValueError(f"{cut!r} is not among the cuts")

    # -- joining --------------------------------------------------------------------------------

    def cuts(self) -> tuple[list[Cut], list[int], list[Cut]]:
        """The cuts of its numbers, timestamps and strings."""
        numbers = list(zip(self.numbers.tolist(), self.sides.tolist(), strict=True))
        return numbers, self.moments.tolist(), self.strings

    def only(self, lows: NDArray[Any], highs: NDArray[Any]) -> CodeDimension:
        """The dimension with just the cuts at the ends of these ranges."""
        used = []
        for first, end in (
            (FIRST_NUMBER, self.first_moment - 1),
            (self.first_moment, self.first_string - 1),
            (self.first_string, self.size - 1),
        ):
            here = np.zeros(end - first, bool)
            here[lows[(lows > first) & (lows <= end)] - first - 1] = True
            here[highs[(highs >= first) & (highs < end)] - first] = True
            used.append(np.flatnonzero(here))
        moments, strings = self.moments[used[1]], [self.strings[at] for at in used[2].tolist()]
        if self.inexact:  # those that are left may be exact
            cuts = list(zip(self.numbers[used[0]].tolist(), self.sides[used[0]].tolist(), strict=True))
            return CodeDimension.of(cuts, moments.tolist(), strings)
        return CodeDimension(self.numbers[used[0]], self.sides[used[0]], moments, strings)

    @staticmethod
    def join(dimensions: Sequence[CodeDimension]) -> CodeDimension:
        """A dimension with the cuts of all."""
        moments = distinct(np.concatenate([d.moments for d in dimensions]))
        strings = sorted(set().union(*(d.strings for d in dimensions)))
        if any(d.inexact for d in dimensions):
            numbers = sorted(set().union(*(d.cuts()[0] for d in dimensions)))
            return CodeDimension.of(numbers, moments.tolist(), strings)
        values, sides = np.concatenate([d.numbers for d in dimensions]), np.concatenate([d.sides for d in dimensions])
        return CodeDimension(*unique_cuts(values, sides), moments, strings)

    def translation(self, joined: CodeDimension) -> tuple[Codes, Codes]:
        """Where the low and the high ends of ranges go in another dimension, by code; it must have their cuts."""
        lows, highs = np.zeros(self.size, np.int32), np.zeros(self.size, np.int32)
        lows[:FIRST_NUMBER] = highs[:FIRST_NUMBER] = np.arange(FIRST_NUMBER)
        parts: Iterable[tuple[int, int, int, NDArray[np.int64]]] = (
            (FIRST_NUMBER, FIRST_NUMBER, joined.first_moment - 1, self._number_places(joined)),
            (
                self.first_moment,
                joined.first_moment,
                joined.first_string - 1,
                np.searchsorted(joined.moments, self.moments),
            ),
            (self.first_string, joined.first_string, joined.size - 1, self._string_places(joined)),
        )
        for old, new, last, places in parts:
            cells = old + np.arange(len(places) + 1)
            lows[cells] = np.concatenate([[new], new + places + 1])
            highs[cells] = np.concatenate([new + places, [last]])
        return lows, highs

    def _number_places(self, joined: CodeDimension) -> NDArray[np.int64]:
        if joined.inexact:
            known = {cut: place for place, cut in enumerate(joined.cuts()[0])}
            return np.array([known.get(cut, 0) for cut in self.cuts()[0]], np.int64)
        if not len(joined.numbers):
            return np.zeros(len(self.numbers), np.int64)
        # an inexact number is none of the joined ones' cuts: where it goes does not matter
        at = np.minimum(np.searchsorted(joined.numbers, self.numbers.astype(np.float64)), len(joined.numbers) - 1)
        return at + np.where(joined.sides[at] == 0, self.sides.astype(np.int64), 0)

    def _string_places(self, joined: CodeDimension) -> NDArray[np.int64]:
        return np.array([bisect_right(joined.strings, cut) - 1 for cut in self.strings], np.int64)


class AnchorDimension(CodeDimension):
    """The codes of the anchor axis: 0 for none, and one for each piece."""

    __slots__ = ()

    def __init__(self, pieces: int) -> None:
        super().__init__(np.zeros(0), np.zeros(0, np.uint8), np.zeros(0, np.int64), ())
        self.size = pieces + 1

    def __reduce__(self) -> tuple[Any, ...]:
        return AnchorDimension, (self.size - 1,)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The values sorted, each once; much quicker than numpy's own."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def unique_cuts(values: NDArray[np.float64], sides: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Cuts sorted by value, then side, each once."""
    below, above = distinct(values[sides == 0]), distinct(values[sides == 1])
    values = np.concatenate([below, above])
    sides = np.repeat(np.array((0, 1), np.uint8), (len(below), len(above)))
    order = np.argsort(values, kind="stable")  # it merges the two: one below comes before its equal above
    return values[order], sides[order]
