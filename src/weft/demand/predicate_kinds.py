"""The kind of predicate that a value set is. It follows from the set alone, however the filter was written."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from weft.algebra import interval
from weft.algebra.interval import NUMBERS, STRINGS, TIMESTAMPS, Line
from weft.algebra.string_terms import starting_with
from weft.algebra.valueset import PRESENT, ValueSet


class PredicateKind(StrEnum):
    """Kinds of predicates on an attribute."""

    EQUALITY = "equality"
    SET = "set"
    RANGE = "range"
    ONE_SIDED = "one-sided"
    SEVERAL = "several ranges"
    EXCLUSION = "exclusion"
    PREFIX = "prefix"
    PATTERN = "pattern"
    PRESENCE = "presence"
    ABSENCE = "absence"
    COMPARISON = "attributes compared"
    PREDICATE = "user predicate"


def kind_of(values: ValueSet) -> PredicateKind:
    """The kind of a set that is not everything. Absence in addition to values does not change it.

    >>> from weft import normalize, parse
    >>> [str(kind_of(normalize(parse(f"x {test}")).boxes[0].sets["x"])) for test in ("= 5", "!= 5", "LIKE 'a%'", "< 5")]
    ['equality', 'exclusion', 'prefix', 'one-sided']
    """
    present = replace(values, absent=False)
    if not present:
        return PredicateKind.ABSENCE
    if present == PRESENT or len(present.bools) == 2:
        return PredicateKind.PRESENCE
    finite = present.finite()
    if finite is not None:
        return PredicateKind.EQUALITY if len(finite) == 1 else PredicateKind.SET
    if present.strings.terms:
        return PredicateKind.PATTERN
    lines = [
        (line, whole)
        for line, whole in (
            (present.numbers, NUMBERS),
            (present.timestamps, TIMESTAMPS),
            (present.strings.line, STRINGS),
        )
        if line
    ]
    if all(line == whole for line, whole in lines):
        return PredicateKind.PRESENCE
    left = [interval.complement(line, whole) for line, whole in lines]
    if all(_few(line) for line in left):
        return PredicateKind.EXCLUSION
    (line, whole), *more = lines
    if more or present.bools or len(line) > 2:
        return PredicateKind.SEVERAL
    if whole is STRINGS and line[0][0] and starting_with(line[0][0]) == line:
        return PredicateKind.PREFIX
    return PredicateKind.ONE_SIDED if len(line) == 1 or line[0] == whole[0] else PredicateKind.RANGE


def _few(line: Line) -> bool:
    """Whether the line consists of single values; for timestamps, of microseconds."""
    return all(
        high is not None
        and (low[0] == high[0] or (isinstance(low[0], int) and low[1] == high[1] == 0 and high[0] - low[0] == 1))
        for low, high in interval.intervals(line)
    )
