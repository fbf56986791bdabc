"""Sets of values of one attribute, absence included. They form a boolean algebra with exact membership. `covers` is
True only when proven, and complete except for LIKE patterns.

A value set has a part for each type of value, and says whether "absent" belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.algebra import interval
from weft.algebra.budget import Budget
from weft.algebra.interval import EMPTY, NUMBERS, TIMESTAMPS, Line
from weft.algebra.strings import ALL_STRINGS, NO_STRINGS, Strings
from weft.model.lists import AttributeValue
from weft.model.value import Type, Value, from_micros, to_micros, type_of

_BOOLS = frozenset((False, True))
_NO_BOOLS: frozenset[bool] = frozenset()


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set of values.

    >>> hot = ValueSet(numbers=((30, 1),))
    >>> 31.5 in hot, 30 in hot, None in hot, None in hot.complement()
    (True, False, False, True)
    """

    numbers: Line = EMPTY
    strings: Strings = NO_STRINGS
    bools: frozenset[bool] = _NO_BOOLS
    timestamps: Line = EMPTY  # microseconds; every cut lies below one
    absent: bool = False

    def __bool__(self) -> bool:
        """Whether it may have a member: False only if it is empty."""
        return bool(self.numbers or self.strings or self.bools or self.timestamps or self.absent)

    def __contains__(self, value: AttributeValue | None) -> bool:
        match type_of(value):
            case None:
                return self.absent
            case Type.STRING:
                assert isinstance(value, str)
                return value in self.strings
            case Type.BOOL:
                return value in self.bools
            case Type.TIMESTAMP:
                assert isinstance(value, datetime)
                return interval.contains(self.timestamps, to_micros(value))
        return interval.contains(self.numbers, value)

    def union(self, other: ValueSet, budget: Budget | None = None) -> ValueSet:
        """What is in either."""
        return ValueSet(
            interval.union(self.numbers, other.numbers),
            self.strings.union(other.strings, budget),
            self.bools | other.bools,
            interval.union(self.timestamps, other.timestamps),
            self.absent or other.absent,
        )

    @staticmethod
    def union_of(sets: Sequence[ValueSet], budget: Budget | None = None) -> ValueSet:
        """What is in any of them. Cost: O(n log n) without patterns."""
        if len(sets) == 1:
            return sets[0]
        return ValueSet(
            interval.union_of(each.numbers for each in sets),
            Strings.union_of((each.strings for each in sets if each.strings), budget),
            _NO_BOOLS.union(*(each.bools for each in sets)),
            interval.union_of(each.timestamps for each in sets),
            any(each.absent for each in sets),
        )

    def intersect(self, other: ValueSet, budget: Budget | None = None) -> ValueSet:
        """What is in both."""
        return ValueSet(
            interval.intersect(self.numbers, other.numbers),
            self.strings.intersect(other.strings, budget) if self.strings and other.strings else NO_STRINGS,
            self.bools & other.bools,
            interval.intersect(self.timestamps, other.timestamps),
            self.absent and other.absent,
        )

    @staticmethod
    def intersection_of(sets: Sequence[ValueSet], budget: Budget | None = None) -> ValueSet:
        """What is in all of them. Cost: O(n log n) without patterns."""
        if len(sets) == 1:
            return sets[0]
        strings = all(each.strings for each in sets)
        return ValueSet(
            interval.intersection_of((each.numbers for each in sets), NUMBERS),
            Strings.intersection_of((each.strings for each in sets), budget) if strings else NO_STRINGS,
            _BOOLS.intersection(*(each.bools for each in sets)),
            interval.intersection_of((each.timestamps for each in sets), TIMESTAMPS),
            all(each.absent for each in sets),
        )

    def complement(self, budget: Budget | None = None) -> ValueSet:
        """Every other value of every type, and absence if it does not belong to this set."""
        return ValueSet(
            interval.complement(self.numbers, NUMBERS),
            self.strings.complement(budget),
            _BOOLS - self.bools,
            interval.complement(self.timestamps, TIMESTAMPS),
            not self.absent,
        )

    def covers(self, other: ValueSet, budget: Budget | None = None) -> bool:
        """True only if all of the other is in this."""
        return (
            interval.covers(self.numbers, other.numbers)
            and (not other.strings or self.strings.covers(other.strings, budget))
            and (not other.bools or self.bools >= other.bools)
            and (not other.timestamps or interval.covers(self.timestamps, other.timestamps))
            and (not other.absent or self.absent)
        )

    def overlaps(self, other: ValueSet, budget: Budget | None = None) -> bool:
        """False only if nothing is in both."""
        return bool(
            (self.absent and other.absent)
            or interval.meets(self.numbers, other.numbers)
            or interval.meets(self.timestamps, other.timestamps)
            or not self.bools.isdisjoint(other.bools)
            or (self.strings and other.strings and self.strings.overlaps(other.strings, budget))
        )

    @property
    def cuts(self) -> int:
        """The number of cuts of its lines: the cost of an operation on it, except for patterns."""
        return len(self.numbers) + len(self.strings.line) + len(self.timestamps)

    def hull(self) -> ValueSet:
        """The smallest set that contains this one and has at most one interval per type and no pattern."""
        return ValueSet(
            interval.hull(self.numbers),
            Strings(interval.hull(self.strings.hull_of_terms())),
            self.bools,
            interval.hull(self.timestamps),
            self.absent,
        )

    def finite(self) -> list[Value | None] | None:
        """Its values, None for absence, if there are finitely many; else None."""
        if self.strings.terms or (len(self.numbers) | len(self.strings.line) | len(self.timestamps)) & 1:
            return None  # a pattern, or an interval without an end
        parts = [interval.points(self.numbers), interval.points(self.strings.line)]
        if any(part is None for part in parts):
            return None
        moments = []
        for low, high in interval.intervals(self.timestamps):
            if high is None or high[0] - low[0] != 1:
                return None
            moments.append(from_micros(low[0]))
        values: list[Any] = [value for part in parts if part for value in part]
        return [*values, *sorted(self.bools), *moments, *([None] if self.absent else [])]


NOTHING = ValueSet()
ANYTHING = ValueSet(NUMBERS, ALL_STRINGS, _BOOLS, TIMESTAMPS, absent=True)
PRESENT = ValueSet(NUMBERS, ALL_STRINGS, _BOOLS, TIMESTAMPS)
ABSENT = ValueSet(absent=True)
TRUTHS = ValueSet(bools=_BOOLS, absent=True)  # what a membership can be
TRULY = ValueSet(bools=frozenset((True,)))

_OF_TYPE = {
    Type.INT: ValueSet(numbers=NUMBERS),
    Type.FLOAT: ValueSet(numbers=NUMBERS),
    Type.STRING: ValueSet(strings=ALL_STRINGS),
    Type.BOOL: ValueSet(bools=_BOOLS),
    Type.TIMESTAMP: ValueSet(timestamps=TIMESTAMPS),
}


_OF_TYPE_OR_ABSENT = {kind: values.union(ABSENT) for kind, values in _OF_TYPE.items()}


def of_type_or_absent(kind: Type) -> ValueSet:
    """All values that compare with the type's, and absence."""
    return _OF_TYPE_OR_ABSENT[kind]


def of_type(kind: Type) -> ValueSet:
    """All values that compare with the type's."""
    return _OF_TYPE[kind]


def on_line(kind: Type, line: Line) -> ValueSet:
    """The values of one type on a line; a timestamp's cut above a microsecond moves below the next."""
    if kind is Type.INT or kind is Type.FLOAT:  # the commonest
        return ValueSet(line)
    if kind is Type.STRING:
        return ValueSet(strings=Strings(line))
    if kind is Type.TIMESTAMP:
        return ValueSet(timestamps=interval.whole_numbers(line))
    return ValueSet(bools=frozenset(value for value in _BOOLS if interval.contains(line, value)))
