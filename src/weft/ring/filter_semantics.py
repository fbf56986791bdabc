"""Other meanings of a filter, written as filters: partial match, events with ranges, general topics (003, 3.1, 3.3).

Brokers evaluate what these functions return like any other filter, on a ring and elsewhere.

An event with a range has two attributes instead of one: `price.low` and `price.high` are the ends of a range of prices,
both included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from weft.algebra import interval
from weft.algebra.box import Box
from weft.algebra.interval import Line
from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting
from weft.algebra.to_filter import to_filter
from weft.algebra.valueset import PRESENT, ValueSet, on_line
from weft.errors import EventError
from weft.language.ast import Filter, conjunction, disjunction
from weft.language.builder import F
from weft.language.membership import is_membership
from weft.model.value import Type
from weft.ring.topics import TopicTree

LOW, HIGH = ".low", ".high"  # the ends of a range, after the name of the attribute


def partial_filter(wanted: Filter) -> Filter:
    """The filter that matches exactly the events that match `wanted` partially (see `partially_matches`).

    An attribute that an event lacks satisfies every test, unless the event has none of the attributes. It is stored on
    a ring under each of its attributes.

    >>> from weft import matches, parse
    >>> wanted = partial_filter(parse("a < 20 AND b > 5"))
    >>> [matches(wanted, event) for event in ({"a": 10}, {"a": 10, "b": 1}, {"c": 1})]
    [True, False, False]
    """
    alternatives: list[Filter] = []
    for box in normalize(wanted).boxes:
        terms = [F[name].is_null() | to_filter(Box({name: values})) for name, values in sorted(box.sets.items())]
        for subject, allowed in box.residuals.items():
            missing = [F[name].is_null() for name in sorted(subject.names)]
            terms.append(disjunction(*missing, subject.to_filter(allowed)))
        given = [F[name].is_not_null() for name in sorted(box.names)]
        alternatives.append(to_filter(box))
        if given:
            alternatives.append(conjunction(*terms, disjunction(*given)))
    return disjunction(*alternatives)


def range_filter(wanted: Filter, meeting: Meeting = Meeting.COVERING) -> Filter:
    """The filter that also matches events with ranges: all of a range must match, or with `OVERLAP` some of it.

    >>> from weft import matches, parse
    >>> storm = ranged_event({"kind": "storm", "wind": [30, 45]}, ["wind"])
    >>> storm
    {'kind': 'storm', 'wind.low': 30, 'wind.high': 45}
    >>> [matches(range_filter(parse("wind > 40"), meeting), storm) for meeting in Meeting]
    [False, True]
    >>> matches(range_filter(parse("wind > 20")), storm), matches(range_filter(parse("wind > 20")), {"wind": 21})
    (True, True)
    """
    alternatives: list[Filter] = []
    for box in normalize(wanted).boxes:
        terms = [_or_range(name, values, meeting) for name, values in sorted(box.sets.items())]
        alternatives.append(conjunction(*terms, *_rest(box)))
    return disjunction(*alternatives)


def _rest(box: Box, *without: str) -> list[Filter]:
    """A box without its value sets, or without some of them."""
    sets = {name: values for name, values in box.sets.items() if without and name not in without}
    return [to_filter(Box(sets, box.residuals))] if sets or box.residuals else []


def _or_range(name: str, values: ValueSet, meeting: Meeting) -> Filter:
    """A test of an attribute, or of the ends of its range."""
    exact = to_filter(Box({name: values}))
    if is_membership(name):
        return exact
    if values.absent:  # an event with a range does not lack the attribute
        exact = conjunction(exact, F[name + LOW].is_null())
    if values.numbers == PRESENT.numbers and values.timestamps == PRESENT.timestamps:
        return disjunction(exact, F[name + LOW].is_not_null())
    lines = ((Type.FLOAT, values.numbers), (Type.TIMESTAMP, values.timestamps))
    ranges = [_ends(name, kind, piece, meeting) for kind, line in lines for piece in _pieces(line)]
    return disjunction(exact, *ranges)


def _pieces(line: Line) -> list[Line]:
    return [tuple(cut for cut in each if cut is not None) for each in interval.intervals(line)]


def _ends(name: str, kind: Type, piece: Line, meeting: Meeting) -> Filter:
    """Both ends lie in an interval; or the low end is not above it, and the high end not below."""
    inside = on_line(kind, piece)
    sets = {name + LOW: inside, name + HIGH: inside}
    if meeting is Meeting.OVERLAP:
        whole = interval.NUMBERS if kind is Type.FLOAT else interval.TIMESTAMPS
        sets = {name + LOW: on_line(kind, (*whole, *piece[1:]))} if len(piece) == 2 else {}
        if piece[:1] != whole or not sets:
            sets[name + HIGH] = on_line(kind, piece[:1])
    return to_filter(Box(sets))


def ranged_event(event: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """An event whose attributes `names` are pairs [low, high], written with the ends of these ranges.

    Raises EventError if one of them is not such a pair. An attribute that is missing, or is not a list, stays as it is.
    """
    made: dict[str, Any] = {}
    for name, value in event.items():
        if name not in names or not isinstance(value, list | tuple):
            made[name] = value
            continue
        ends = list(value)
        try:
            ordered = len(ends) == 2 and ends[0] <= ends[1]
        except TypeError:
            ordered = False
        if not ordered or isinstance(ends[0], str | bool) or isinstance(ends[1], str | bool):
            raise EventError(f"{name} = {value!r} is not a range; write [low, high] with two numbers or two timestamps")
        made[name + LOW], made[name + HIGH] = ends
    return made


def general_filter(wanted: Filter, attribute: str, topics: TopicTree) -> Filter:
    """The filter that also matches general topics: a topic meets those above it and those below.

    It concerns tests that allow finitely many topics; others stay as they are.

    >>> from weft import matches, parse
    >>> tree = TopicTree({"sport": ["tennis", "chess"]})
    >>> sport, tennis = (general_filter(parse(f"kind = '{each}'"), "kind", tree) for each in ("sport", "tennis"))
    >>> [matches(sport, {"kind": each}) for each in ("sport", "tennis", "golf")]
    [True, True, False]
    >>> [matches(tennis, {"kind": each}) for each in ("sport", "tennis", "chess")]
    [True, True, False]
    """
    alternatives: list[Filter] = []
    for box in normalize(wanted).boxes:
        values = box.sets.get(attribute)
        finite = None if values is None or values.absent else values.finite()
        met = {other for topic in finite or () if isinstance(topic, str) for other in topics.related(topic)}
        if not met:
            alternatives.append(to_filter(box))
            continue
        topic = disjunction(to_filter(Box({attribute: box.sets[attribute]})), F[attribute].isin(sorted(met)))
        alternatives.append(conjunction(topic, *_rest(box, attribute)))
    return disjunction(*alternatives)
