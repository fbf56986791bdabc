"""Events that tell filters apart: one that a filter matches and another does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain, islice, product
from typing import Any

from weft.algebra import interval
from weft.algebra.box import Box
from weft.algebra.interval import NUMBERS, TIMESTAMPS, Line
from weft.algebra.relate import as_form
from weft.algebra.strings import ALL_STRINGS, Strings
from weft.algebra.subtract import subtract
from weft.algebra.valueset import ValueSet
from weft.errors import FilterTooComplexError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.membership import attribute_of, is_membership, member_values
from weft.language.pattern import Pattern
from weft.model.schema import Schema
from weft.model.value import Type, from_micros

_PIECES, _VALUES, _TRIES = 20, 4, 400  # that are looked at
_MICROS = 1_767_225_600_000_000  # some time in 2026, where any would do


def counterexample(wide: Filter, narrow: Filter, schema: Schema | None = None) -> dict[str, Any] | None:
    """The attributes of an event that `narrow` matches and `wide` does not, if one is found.

    None proves nothing: `covers` does. What is returned was evaluated with both filters.

    Cost: that of subtracting the filters, and of some hundred evaluations.

    >>> from weft import parse
    >>> counterexample(parse("x < 10"), parse("x < 20 AND place = 'Chile'"))
    {'x': 10, 'place': 'Chile'}
    >>> counterexample(parse("x < 20"), parse("x < 10")) is None
    True
    """
    try:
        pieces = subtract(as_form(narrow, schema), [as_form(wide, schema)], schema)
    except FilterTooComplexError:
        pieces = []
    for box in pieces[:_PIECES]:
        for event in islice(_events(box, schema), _TRIES):
            if matches(narrow, event) and not matches(wide, event):
                return event
    return None


def _events(box: Box, schema: Schema | None) -> Iterator[dict[str, Any]]:
    """Some events of a box; attributes that only comparisons with others mention may be wrong."""
    names = [*box.sets]
    for values in product(*(list(islice(_values(box.sets[name], _kind(name, schema)), _VALUES)) for name in names)):
        given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        event = {name: value for name, value in given.items() if not is_membership(name)}
        for name in (name for name, value in given.items() if is_membership(name) and value is True):
            held = event.setdefault(attribute_of(name), [])
            if isinstance(held, list):
                held += [each.python for each in member_values(name)]
        yield event
        for subject in box.residuals:  # a > b and the like: some orders of the two
            for pair in ((1, 2), (2, 1), (1, 1)):
                yield {**dict(zip(subject.names, pair, strict=False)), **event}


def _kind(name: str, schema: Schema | None) -> Type | None:
    declared = None if schema is None else schema.get(name)
    return None if declared is None else declared.type


def _values(values: ValueSet, kind: Type | None) -> Iterator[Any]:
    """Some members of a set; None is absence. Types of which it has a part come first: they are what a filter tests."""
    numbers = (each for each in _numbers(values.numbers) if kind is not Type.INT or each == int(each))
    parts = [
        (values.numbers != NUMBERS, numbers),
        (values.strings != ALL_STRINGS, _texts(values.strings)),
        (len(values.bools) < 2, iter(sorted(values.bools, reverse=True))),
        (values.timestamps != TIMESTAMPS, _moments(values.timestamps)),
        (False, iter((None,) if values.absent else ())),
    ]
    for wanted in (True, False):
        yield from chain.from_iterable(some for is_part, some in parts if is_part is wanted)


def _numbers(line: Line) -> Iterator[float]:
    for low, high in interval.intervals(line):
        start, end = low[0], None if high is None else high[0]
        if start == float("-inf"):
            near = [0, end if end is not None else 0, (end or 0) - 1]
        elif end is None:
            near = [start, start + 1]
        else:
            near = [start, int(start) + 1, (start + end) / 2, end]
        yield from dict.fromkeys(each for each in near if each is not None and interval.contains(line, each))


def _texts(strings: Strings) -> Iterator[str]:
    for low, _ in interval.intervals(strings.line):
        yield from (text for text in (low[0], low[0] + "a", low[0] + "\\0") if text in strings)
    for term in strings.terms:
        parts = [_filled(pattern) for pattern in term.musts]
        start = "" if not term.line else str(term.line[0][0])
        for text in (*parts, "".join(parts), start + "".join(parts), start + "a" + "".join(parts), "a", "b", ""):
            if text in strings:
                yield text


def _filled(pattern: Pattern) -> str:
    """A short text that matches a pattern of LIKE."""
    return "".join("a".join(segment) for segment in pattern.segments)


def _moments(line: Line) -> Iterator[datetime]:
    for low, high in interval.intervals(line):
        start, end = low[0], None if high is None else high[0]
        near = _MICROS if start == float("-inf") else start
        if end is not None and near >= end:
            near = end - 1
        if interval.contains(line, near):
            yield from_micros(int(near))


def shown_example(event: Mapping[str, Any]) -> dict[str, Any]:
    """An example as JSON has it."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in event.items()}
