"""An attribute as one sorted line of cuts.

Sorted items in rows of bounded length. Each row and the sequence of rows are sorted, and no item occurs twice.

A list moves half of its items when one is inserted; a row moves few. Insertion costs O(row + number of rows).

An attribute as one line of cuts with integer labels. Labels have exactly the order of their cuts. Every set without
patterns is a union of intervals of the line.

The line has a position for "absent", then the numbers, strings, bools and timestamps, or only those of the declared
type. In the latter case, a value of another type is absent (MICS 6 of the errata: a full-domain range does not contain
absence). Ends are half-open, so that integers and reals, points and rays are treated alike (errata, negative space 2).

A label is the position of its cut within the attribute's bounds, so that a difference of labels measures an interval.
Where there are no bounds, or no room, it lies between those of its neighbours. When there is no room at all, the labels
around the position are spread again, as many as needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra import interval
from weft.algebra.interval import NUMBERS, STRINGS, TIMESTAMPS, Line
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.model.schema import Attribute
from weft.model.value import Type, to_micros

ROW = 1024


class SortedRows:
    """Items in ascending order; there is always one, and nothing below the first is ever inserted.

    >>> rows = SortedRows([1, 9, 20], row=2)
    >>> rows.insert(15), list(rows), rows.around(10), rows.near(10, 1)
    (None, [1, 9, 15, 20], (9, 15), [9, 15, 20])
    """

    def __init__(self, items: Iterable[Any], row: int = ROW) -> None:
        self._rows = [sorted(items)]
        self._firsts = [self._rows[0][0]]
        self._row = row

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._rows)

    def insert(self, item: Any) -> None:
        """Insert an item that is not there. Cost: O(row + rows)."""
        number = bisect_right(self._firsts, item) - 1
        row = self._rows[number]
        insort(row, item)
        if len(row) > 2 * self._row:
            self._rows[number : number + 1] = [row[: self._row], row[self._row :]]
            self._firsts.insert(number + 1, row[self._row])

    def around(self, item: Any) -> tuple[Any, Any]:
        """The neighbours of an item that is not there, which lies between the first and the last."""
        number = bisect_right(self._firsts, item) - 1
        row = self._rows[number]
        at = bisect_left(row, item)
        return row[at - 1], row[at] if at < len(row) else self._firsts[number + 1]

    def near(self, item: Any, around: int) -> list[Any]:
        """The items on both sides of where an item would be: a number of them below, and one more from there on."""
        number = bisect_right(self._firsts, item) - 1
        at = bisect_left(self._rows[number], item)
        below, above = self._rows[number][:at], self._rows[number][at:]
        first = last = number
        while len(below) < around and first:
            first -= 1
            below = self._rows[first] + below
        while len(above) <= around and last + 1 < len(self._rows):
            last += 1
            above = above + self._rows[last]
        return below[max(0, len(below) - around) :] + above[: around + 1]

    def first_from(self, value: Any, key: Callable[[Any], Any]) -> Any:
        """The first item whose key is not below the value; keys ascend as items do."""
        number = max(0, bisect_right(self._firsts, value, key=key) - 1)
        row = self._rows[number]
        at = bisect_left(row, value, key=key)
        return row[at] if at < len(row) else self._firsts[number + 1]

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert all(a < b for a, b in pairwise(self)), "items ascend"
        assert [row[0] for row in self._rows] == self._firsts, "rows are found by their first items"
        assert all(len(row) <= 2 * self._row for row in self._rows), "rows are short"


LineCut = tuple[Any, ...]  # (segment, value, side); segments are ordered, and so are the values of each
CutInterval = tuple[LineCut, LineCut]

_ABSENT, _NUMBERS, _STRINGS, _BOOLS, _TIMESTAMPS = range(5)
_START: dict[int, LineCut] = {
    _ABSENT: (_ABSENT, 0, 0),
    _NUMBERS: (_NUMBERS, *NUMBERS[0]),
    _STRINGS: (_STRINGS, *STRINGS[0]),
    _BOOLS: (_BOOLS, False, 0),
    _TIMESTAMPS: (_TIMESTAMPS, *TIMESTAMPS[0]),
}
_TRUE: LineCut = (_BOOLS, True, 0)
_END: LineCut = (5, 0, 0)
_SEGMENT = {
    Type.INT: _NUMBERS,
    Type.FLOAT: _NUMBERS,
    Type.STRING: _STRINGS,
    Type.BOOL: _BOOLS,
    Type.TIMESTAMP: _TIMESTAMPS,
}

REACH = 1 << 62
_CROWD = 32  # minimal number of cuts on either side that are spread together
_ROOM = 24  # bits between two labels, enough for the next cuts to find room


class CutLine:
    """The requested cuts of one attribute, and their labels; `reach` bounds the labels.

    >>> line = CutLine()
    >>> low, high = line.intervals(ValueSet(numbers=((5, 0), (9, 1))))[0]
    >>> line.label(low) < line.label(high) < line.highest
    True
    """

    def __init__(self, attribute: Attribute | None = None, reach: int = REACH) -> None:
        self._natural = None if attribute is None else _Natural(attribute, reach)
        segments = list(_START) if attribute is None else [_ABSENT, _SEGMENT[attribute.type]]
        cuts: list[LineCut] = [*map(_START.__getitem__, segments), _END]
        self._after = dict(pairwise([*segments, _END[0]]))
        if attribute is None:
            labels = [-reach + 2 * reach * n // len(segments) for n in range(len(cuts))]
        else:  # what is out of bounds, or absent, counts a little more than nothing
            labels = [-reach // 2 - reach // 8, -reach // 2 - reach // 16, reach // 2 + reach // 16]
        self.lowest, self.highest = labels[0], labels[-1]
        self._known = dict(zip(cuts, labels, strict=True))
        self._cuts = SortedRows(cuts)
        self._last = cuts[0]  # the newest cut
        self._tight = cuts[0]  # the cut that had no room

    def __len__(self) -> int:
        return len(self._known)

    # -- sets -------------------------------------------------------------------------------------

    def intervals(self, values: ValueSet) -> list[CutInterval] | None:
        """The set as disjoint intervals that do not touch, in order; None if it contains a pattern."""
        if values.strings.terms:
            return None
        found: list[CutInterval] = []
        if values.absent:
            found.append((_START[_ABSENT], self._top(_ABSENT)))
        for segment, line in (
            (_NUMBERS, values.numbers),
            (_STRINGS, values.strings.line),
            (_BOOLS, _bool_line(values.bools)),
            (_TIMESTAMPS, values.timestamps),
        ):
            if not line or segment not in self._after:
                continue  # empty, or of another type than declared, so that no event has it
            for low, high in interval.intervals(line):
                start, end = (segment, *low), self._top(segment) if high is None else (segment, *high)
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, end))
        return found

    def around(self, values: ValueSet) -> CutInterval:
        """One interval around all values of a set; patterns are ignored."""
        numbers, others = values.numbers, values.strings.line or values.bools or values.timestamps or values.absent
        if numbers and not others and _NUMBERS in self._after:  # most sets
            return (_NUMBERS, *numbers[0]), self._top(_NUMBERS) if len(numbers) & 1 else (_NUMBERS, *numbers[-1])
        parts = {
            _NUMBERS: values.numbers,
            _STRINGS: values.strings.line,
            _BOOLS: _bool_line(values.bools),
            _TIMESTAMPS: values.timestamps,
        }
        held = [segment for segment in self._after if (values.absent if segment == _ABSENT else parts[segment])]
        if not held:
            return _START[_ABSENT], _END
        first, last = held[0], held[-1]
        low = _START[_ABSENT] if first == _ABSENT else (first, *parts[first][0])
        return low, self._top(last) if last == _ABSENT or len(parts[last]) & 1 else (last, *parts[last][-1])

    def values(self, low: LineCut, high: LineCut) -> ValueSet:
        """The values between two cuts."""
        lines: dict[int, Line] = {}
        for segment in self._after:
            start, end = max(low, _START[segment]), min(high, self._top(segment))
            if start < end:
                lines[segment] = (start[1:],) if end == self._top(segment) else (start[1:], end[1:])
        bools = lines.get(_BOOLS, ())
        return ValueSet(
            lines.get(_NUMBERS, ()),
            Strings(lines.get(_STRINGS, ())),
            frozenset(value for value in (False, True) if interval.contains(bools, value)),
            lines.get(_TIMESTAMPS, ()),
            _ABSENT in lines,
        )

    def _top(self, segment: int) -> LineCut:
        after = self._after[segment]
        return _START.get(after, _END)

    # -- labels -----------------------------------------------------------------------------------

    def label(self, cut: LineCut) -> int | None:
        """The label of a cut, a new one if necessary; None if there is no room, so spread the labels first."""
        label = self._known.get(cut)
        if label is not None:
            return label
        before, after = self._cuts.around(cut)
        below, above = self._known[before], self._known[after]
        label = None if self._natural is None else self._natural.label(cut)
        if label is None or not below < label < above:
            label = _amid(below, above, before == self._last, after == self._last)
        if label == below:
            self._tight = cut
            return None
        self._last = cut
        self._cuts.insert(cut)
        self._known[cut] = label
        return label

    def spread(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Spread the labels evenly around the position without room; returns the old labels and the new ones, in order.

        Labels outside this section stay. Cost: O(labels moved), which are few unless the line is full.
        """
        crowd = self._crowd()
        old = [self._known[cut] for cut in crowd]
        low, width, steps = old[0], old[-1] - old[0], len(crowd) - 1
        if width < 4 * steps:
            raise OverflowError("a line with more cuts than labels")
        new = [low + width * at // steps for at in range(steps + 1)]
        self._known.update(zip(crowd, new, strict=True))
        return np.array(old, np.int64), np.array(new, np.int64)

    def _crowd(self) -> list[LineCut]:
        """The few cuts around the position without room that have room when spread evenly."""
        around = _CROWD
        while True:
            some = self._cuts.near(self._tight, around)
            if len(some) == len(self) or (self._known[some[-1]] - self._known[some[0]]) >> _ROOM >= len(some) - 1:
                return some
            around *= 2

    def cut(self, label: int) -> LineCut:
        """The cut of a label. Cost: O(log n)."""
        found: LineCut = self._cuts.first_from(label, self._known.__getitem__)
        return found

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self._cuts.check()
        labels = [self._known[cut] for cut in self._cuts]
        assert len(labels) == len(self._known), "every cut is known"
        assert all(a < b for a, b in pairwise(labels)), "labels are ordered as cuts are"
        assert (labels[0], labels[-1]) == (self.lowest, self.highest), "the ends stay"


def intervals_at_most(values: ValueSet) -> int:
    """An upper bound of the number of intervals of a set. Cost: O(1)."""
    lines = (values.numbers, values.strings.line, values.timestamps)
    return values.absent + bool(values.bools) + sum([(len(line) + 1) // 2 for line in lines])


def intervals_at_least(values: ValueSet) -> int:
    """A lower bound of the number of intervals of a set: those of different types may touch. Cost: O(1)."""
    return (max(len(values.numbers), len(values.strings.line), len(values.timestamps), 1) + 1) // 2


def _amid(below: int, above: int, follows: bool, precedes: bool) -> int:
    """A label between two; where cuts come in a row, near the last one, so that the room lasts."""
    near = (above - below) >> 10
    if near and follows:
        return below + near
    return above - near if near and precedes else (below + above) // 2


class _Natural:
    """The positions of cuts within the bounds of their attribute, from -reach / 2 to reach / 2."""

    def __init__(self, attribute: Attribute, reach: int) -> None:
        self._reach = reach
        self._categories = sorted(attribute.categories)
        self._bounds: tuple[Any, Any] | None = None
        if attribute.low is not None and attribute.high is not None:
            last = 0 if attribute.type is Type.FLOAT else 1  # the last integer has a position, too
            low, high = _number(attribute.low), _number(attribute.high) + last
            self._bounds = (low, high) if low < high else None

    def label(self, cut: LineCut) -> int | None:
        """None if there are no bounds, or the cut lies outside."""
        if cut[0] == _STRINGS and self._categories:
            share = bisect_left(self._categories, cut[1]) / len(self._categories)
        elif cut[0] in (_NUMBERS, _TIMESTAMPS) and self._bounds is not None:
            low, high = self._bounds
            if not low <= cut[1] <= high:
                return None
            share = (cut[1] - low) / (high - low)
        else:
            return None
        return int((share - 0.5) * self._reach) + int(cut[2])


def _bool_line(bools: frozenset[bool]) -> Line:
    if not bools:
        return ()
    start = (min(bools), 0)
    return (start,) if max(bools) else (start, _TRUE[1:])


def _number(bound: Any) -> Any:
    return to_micros(bound) if isinstance(bound, datetime) else bound
