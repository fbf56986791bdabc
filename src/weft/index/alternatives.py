"""A box as tests on axes. The union of the alternatives holds the box, and is the box unless one of them requires that
the box be evaluated. The number of rows that they make is bounded, whatever the box, and depends on the box alone.

A set of several ranges makes several disjoint rows, and a HAS ANY a row for each value. Where that makes too many, the
sets with most ranges are widened to one range each, the tests that say least are left out, and the box is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from weft.algebra import interval
from weft.algebra.box import Box
from weft.algebra.element_sets import element_set
from weft.algebra.interval import NUMBERS, STRINGS, Line
from weft.algebra.residual import Outcomes, Subject
from weft.algebra.string_terms import Term, starting_with
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.index.axis import Axis
from weft.index.pieces import (
    LONGEST,
    Need,
    any_list,
    contained,
    element_part,
    element_piece,
    element_prefix,
    fitting,
    number_parts,
    pieces_of,
    real_list,
)
from weft.language.membership import is_membership, membership
from weft.language.pattern import Pattern

MOST_ROWS = 64  # of one box
MOST_ELEMENTS = 2_048  # rows for the values of a HAS ANY, over all boxes of a filter
MOST_TESTS = 32  # of one row; each is an axis, which costs every event
MOST_ENTRIES = 512  # rows times tests, over all boxes of a filter

Tests = dict[Axis, ValueSet | Outcomes]


class Alternative(NamedTuple):
    """Tests on axes, the axes among them that are one range around their values, pieces that strings must and must not
    contain, and whether to evaluate the box.
    """

    tests: Tests
    wide: frozenset[Axis]
    needs: frozenset[Need]
    check: bool


class _Part(NamedTuple):
    """Tests, each of some ranges, and needs; whether they are loose, so that the box must be evaluated."""

    tests: Tests
    loose: bool = False
    needs: frozenset[Need] = frozenset()


class _Choice(NamedTuple):
    """What a row may test of one attribute: one of several parts."""

    parts: list[_Part]
    rows: int
    wide: bool = False
    listed: bool = False  # a membership: the elements of a list


def room(boxes: int) -> int:
    """The rows times tests that each box of a filter may take, given the number of its boxes."""
    return max(1, MOST_ENTRIES // max(1, boxes))


def fits(tests: int, boxes: int) -> bool:
    """Whether a row with this number of tests is taken as it is, given the number of its filter's boxes."""
    return tests <= min(MOST_TESTS, room(boxes))


def alternatives(box: Box, subjects: frozenset[Subject], boxes: int) -> Iterator[Alternative]:
    """Tests whose union is the box, or holds it where the box must be evaluated; `boxes` is how many its filter has."""
    most = room(boxes)
    check = any(subject not in subjects for subject in box.residuals)
    sets = list(box.sets.items())
    if len(sets) > min(MOST_TESTS, most):  # those of fewest ranges say most
        sets.sort(key=lambda item: _intervals(item[1]) + len(item[1].strings.terms))
        sets, check = sets[: min(MOST_TESTS, most)], True
    tested = {name for name, _ in sets if not is_membership(name)}
    choices = [_of_values(name, values, tested) for name, values in sets]
    for subject in (subject for subject in box.residuals if subject in subjects):
        if len(choices) < min(MOST_TESTS, most):
            allowed = box.residuals[subject]
            choices.append(_Choice([_Part({Axis(subject=subject): allowed})], len(allowed)))
        else:
            check = True
    rows, limit = math.prod([choice.rows for choice in choices]), min(MOST_ROWS, most // max(1, len(choices)) or 1)
    widest = sorted(range(len(choices)), key=lambda at: -choices[at].rows)
    if rows > limit and choices[widest[0]].listed and choices[widest[0]].rows <= MOST_ELEMENTS // max(1, boxes):
        rows, limit = rows // choices[widest[0]].rows, 1  # each value of a long HAS ANY is found by its own row
        del widest[0]
    if rows > limit:
        check = True
        for at in widest:
            rows //= choices[at].rows
            choices[at] = _widened(box, choices[at])
            if rows <= limit:
                break
    wide = frozenset(axis for choice in choices if choice.wide for axis in choice.parts[0].tests)
    for chosen in product(*(choice.parts for choice in choices)):
        tests: Tests = {}
        for part in chosen:
            tests.update(part.tests)
        needs, too_many = fitting(need for part in chosen for need in part.needs)
        yield Alternative(tests, wide, needs, check or too_many or any(part.loose for part in chosen))


def _of_values(name: str, values: ValueSet, tested: set[str]) -> _Choice:
    """The tests of a value set: of all that is not a pattern, and of each term. The axes of the `tested` attributes
    are in use; those that a membership takes are added.
    """
    if is_membership(name):
        return _of_membership(name, values, tested)
    terms = values.strings.terms
    if not terms:
        return _Choice([_Part({Axis(name): values})], _intervals(values))
    if len(terms) > MOST_ROWS:
        return _Choice([_Part({Axis(name): values}, loose=True)], MOST_ROWS + 1)
    strings = Strings(values.strings.line)
    plain = ValueSet(values.numbers, strings, values.bools, values.timestamps, values.absent)
    parts = [_Part({Axis(name): plain})] if plain else []
    parts += [_of_term(name, term) for term in terms]
    return _Choice(parts, sum(math.prod(map(_intervals, part.tests.values())) for part in parts))


def _of_membership(name: str, values: ValueSet, tested: set[str]) -> _Choice:
    """The needs of a test whether a list has any of some values, or all, or an element that passes a test."""
    attribute, keys, every, test = membership(name)
    if test and len(values.bools) == 1:
        return _of_element_test(name, attribute, values, tested)
    elements, present = [element_piece(attribute, key) for key in sorted(keys)], any_list(attribute)
    if len(values.bools) != 1:
        return _Choice([_Part({}, needs=frozenset({Need(present, bool(values.bools))}))], 1, listed=True)
    (true,) = values.bools
    needs = [Need(element, true) for element in elements]
    there = frozenset(() if true else (Need(present, True),))
    if every == true:  # all of them, or none
        parts = [_Part({}, needs=frozenset(needs) | (frozenset() if values.absent and not true else there))]
    else:
        parts = [_Part({}, needs=there | {need}) for need in needs]
    if values.absent and (true or len(parts) > 1):
        parts.append(_Part({}, needs=frozenset({Need(present, False)})))
    return _Choice(parts, len(parts), listed=True)


def _of_element_test(name: str, attribute: str, values: ValueSet, tested: set[str]) -> _Choice:
    """Prefixes and other texts of elements are pieces. With any other test, a scalar is found on the attribute's own
    axis, as by an ordinary test, and a list is evaluated.
    """
    present = Need(any_list(attribute), True)
    (true,) = values.bools
    if not true:  # no element passes
        return _Choice([_Part({}, True, frozenset(() if values.absent else (present,)))], 1, listed=True)
    found = element_set(name).values
    parts = None if found is None else _of_texts(attribute, found)
    if parts is None and found and attribute not in tested:
        tested.add(attribute)
        parts = list(_of_values(attribute, found, set()).parts)
        parts += _of_list(attribute, found)
    if parts is None:
        parts = [_Part({}, True, frozenset({present}))]
    if values.absent:
        parts.append(_Part({}, needs=frozenset({Need(any_list(attribute), False)})))
    return _Choice(parts, sum(max(1, math.prod(map(_intervals, part.tests.values()))) for part in parts), listed=True)


def _of_list(attribute: str, values: ValueSet) -> list[_Part]:
    """The parts of a list whose elements are evaluated: by digits of its numbers, if only near ones are in the set."""
    hull = interval.hull(values.numbers)
    plain = not (values.strings or values.bools or values.timestamps)
    bounded = plain and len(hull) == 2 and math.isfinite(hull[0][0])
    pieces = number_parts(attribute, hull[0][0], hull[1][0]) if bounded else None
    some = [real_list(attribute)] if pieces is None else pieces
    return [_Part({}, True, frozenset({Need(piece, True)})) for piece in some]


def _of_texts(attribute: str, values: ValueSet) -> list[_Part] | None:
    """A part for each prefix and pattern, if the set is made of them and they have text that a list must contain."""
    if values.numbers or values.bools or values.timestamps or values.absent:
        return None
    parts: list[_Part] = []
    for low, high in interval.intervals(values.strings.line):
        piece = element_prefix(attribute, str(low[0])) if (low, high) == starting_with(str(low[0])) else None
        if piece is None or not low[0]:
            return None
        parts.append(_Part({}, needs=frozenset({Need(piece, True)})))
    for term in values.strings.terms:
        pieces = [piece for pattern in term.musts if (piece := element_part(attribute, pattern)) is not None]
        if not pieces:
            return None
        parts.append(_Part({}, True, frozenset(Need(piece, True) for piece in pieces)))
    return parts if len(parts) <= MOST_ROWS else None


def _intervals(values: ValueSet | Outcomes) -> int:
    """At most how many ranges a test has."""
    if not isinstance(values, ValueSet):
        return len(values)
    ends = (len(values.numbers) + 1) // 2 + (len(values.timestamps) + 1) // 2 + (len(values.strings.line) + 1) // 2
    return ends + len(values.bools) + values.absent


def _of_term(name: str, term: Term) -> _Part:
    """A term's line; on the reversed axis the suffixes it must and must not have; on the folded axes the folded texts,
    prefixes and suffixes; and the pieces that it must and must not contain.
    """
    loose = False
    ends = starts_folded = ends_folded = STRINGS
    needs: list[Need] = []
    for pattern in term.musts:
        if pattern.ignore_case:
            starts_folded = interval.intersect(starts_folded, _starts(pattern))
            if pattern.literal is None:
                ends_folded = interval.intersect(ends_folded, starting_with(pattern.tail[::-1]))
            told = pattern.literal is not None or pattern.prefix is not None or pattern.suffix is not None
        else:
            if tail := pattern.tail:
                ends = interval.intersect(ends, starting_with(tail[::-1]))
            told = pattern.suffix is not None
        needs += [Need(piece, True) for piece in pieces_of(name, pattern)]
        loose = loose or not (told or _is_piece(pattern))
    for pattern in term.nots:
        if pattern.suffix is not None:
            without = interval.complement(starting_with(pattern.suffix[::-1]), STRINGS)
            if pattern.ignore_case:
                ends_folded = interval.intersect(ends_folded, without)
            else:
                ends = interval.intersect(ends, without)
        elif pattern.ignore_case and (pattern.literal is not None or pattern.prefix is not None):
            starts_folded = interval.intersect(starts_folded, interval.complement(_starts(pattern), STRINGS))
        elif _is_piece(pattern):
            needs += [Need(piece, False) for piece in pieces_of(name, pattern)]
        else:
            loose = True
    tests: Tests = {}
    if ends is not STRINGS and ends != STRINGS:
        tests[Axis(name, reverse=True)] = ValueSet(strings=Strings(ends))
    if starts_folded is not STRINGS and starts_folded != STRINGS:
        tests[Axis(name, folded=True)] = ValueSet(strings=Strings(starts_folded))
    if ends_folded is not STRINGS and ends_folded != STRINGS:
        tests[Axis(name, reverse=True, folded=True)] = ValueSet(strings=Strings(ends_folded))
    some, too_many = fitting(needs)
    # a test on a folded axis, and a piece that must be there, say already that there is a string
    is_string = any(axis.folded for axis in tests) or any(need.wanted for need in some)
    if term.line != STRINGS or not is_string:
        tests = {Axis(name): ValueSet(strings=Strings(term.line)), **tests}
    return _Part(tests, loose or too_many, some)


def _is_piece(pattern: Pattern) -> bool:
    """Whether a pattern asks for one piece, and for nothing else."""
    text = contained(pattern)
    return text is not None and len(text.encode("utf-8", "surrogatepass")) <= LONGEST


def _starts(pattern: Pattern) -> Line:
    """The folded texts with the head of a pattern; of one without wildcards, itself."""
    if pattern.literal is not None:
        return interval.point(pattern.literal)
    return starting_with(pattern.segments[0][0])


def _widened(box: Box, choice: _Choice) -> _Choice:
    """The choice as one test of one range."""
    if choice.listed:
        return _Choice([_Part({}, loose=True)], 1)
    axis = next(iter(choice.parts[0].tests), None)
    if axis is not None and axis.subject is not None:  # all outcomes: no test
        return _Choice([_Part({}, loose=True)], 1)
    name = next(iter(choice.parts[0].needs)).piece.name if axis is None else axis.name
    values = box.sets[name]
    lines = [values.strings.line, *(term.line for term in values.strings.terms)]
    hull = ValueSet(
        _hull([values.numbers], NUMBERS),
        Strings(_hull(lines, STRINGS)),
        values.bools,
        _hull([values.timestamps], NUMBERS),
        values.absent,
    )
    return _Choice([_Part({Axis(name): hull}, loose=True)], 1, wide=True)


def _hull(lines: list[Line], whole: Line) -> Line:
    """The smallest interval around several lines. Cost: O(lines)."""
    some = [line for line in lines if line]
    if not some:
        return ()
    low = min(line[0] for line in some)
    if any(len(line) & 1 for line in some):
        return whole if low == whole[0] else (low,)
    return (low, max(line[-1] for line in some))
