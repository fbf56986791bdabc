"""Matching on posets and forests: exact, and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from order.things import BOXES, RANGES, STRUCTURES, TYPED, Range, plain_ranges
from strategies import EVENTS, filters, thorough
from weft.algebra.relate import is_empty
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.order import BalancedForest, FilterRelation, Forest, match

BOX_EVENTS = [{"a": a, "b": b} for a in (None, 0, 1, 2, 3, 4) for b in (None, 0, 1, 2, 3, "x")]
TYPED_EVENTS = [
    Event({"type": kind, "x": x})  # unchecked: one has a type that the door would refuse
    for kind in (None, "A", "B", "AB", 7)
    for x in (None, 0, 1, 4, 8, 9, "x")
]


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "one-by-one"])
@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize(("things", "events"), [(BOXES, BOX_EVENTS), (TYPED, TYPED_EVENTS)], ids=["boxes", "typed"])
@given(data=st.data())
@thorough(25)
def test_every_interface_that_wants_an_event_is_found(
    things: list[Any], events: list[Any], kind: str, indexed: bool, data: st.DataObject
) -> None:
    """Properties 3.12 and 3.13, in structures that spare needless filters too: their interfaces are the same."""
    structure = STRUCTURES[kind](FilterRelation(indexed=indexed))
    wants: set[tuple[Any, int]] = set()
    steps = st.tuples(st.integers(0, len(things) - 1), st.integers(0, 3))
    for number, interface in data.draw(st.lists(steps, max_size=15)):
        structure.add(things[number], interface)
        wants.add((things[number], interface))
    for event in events:
        wanted = {interface for thing, interface in wants if matches(thing, event)}
        assert match(structure, event) == wanted
        assert match(structure, event, interfaces=range(4)) == wanted
        assert match(structure, event, stop=iter([False, False, *[True] * 99]).__next__) >= wanted


@pytest.mark.parametrize("kind", STRUCTURES)
@given(data=st.data())
@thorough(40)
def test_filters_of_the_whole_language(kind: str, data: st.DataObject) -> None:
    structure = STRUCTURES[kind](FilterRelation())
    wants: set[tuple[Any, int]] = set()
    for number, thing in enumerate(data.draw(st.lists(filters(4), max_size=8))):
        if is_empty(thing):
            continue
        structure.add(thing, number % 3)
        wants.add((thing, number % 3))
    structure.check()
    for event in EVENTS[::3]:
        assert match(structure, event) == {who for thing, who in wants if matches(thing, event)}
    for gone, who in sorted(wants, key=str):
        structure.discard(gone, who)
        wants.discard((gone, who))
        for other, same in sorted(wants, key=str):
            if same == who:  # what the other made needless, or was the same in other words
                structure.add(other, who)
        for event in EVENTS[::7]:
            assert match(structure, event) == {who for thing, who in wants if matches(thing, event)}
    assert len(structure) == 0


def test_a_chosen_interface_is_not_compared_again() -> None:
    compared: list[Range] = []

    def holds(thing: Range, event: int) -> bool:
        compared.append(thing)
        return event in thing

    forest: Forest[Range] = Forest(plain_ranges())
    balanced: BalancedForest[Range] = BalancedForest(plain_ranges())
    for structure in (forest, balanced):
        structure.add(Range(0, 5), "a")
        structure.add(Range(1, 4), "a")
        structure.add(Range(2, 3), "a")
        assert match(structure, 2, matches=holds, kind=lambda event: None) == {"a"}
        assert compared == [Range(0, 5)]
        compared.clear()


def test_a_bound_gives_false_positives_only() -> None:
    forest: Forest[Range] = Forest(plain_ranges())
    for number, thing in enumerate(RANGES):
        forest.add(thing, number)
    exact = match(forest, 3, matches=lambda thing, event: event in thing, kind=lambda event: None)
    for steps in range(len(RANGES) + 1):
        left = iter([False] * steps + [True] * 99)
        bounded = match(
            forest, 3, matches=lambda thing, event: event in thing, kind=lambda event: None, stop=left.__next__
        )
        assert exact <= bounded
    assert bounded == exact, "a bound that is not reached changes nothing"


def test_only_the_roots_of_the_event_type_are_compared() -> None:
    forest = Forest(FilterRelation())
    for kind in "ABC":
        forest.add(parse(f"type = '{kind}' AND x > 0"), kind)
    forest.add(parse("x > 5"), "any")
    seen: list[str] = []

    def holds(made: Any, event: Any) -> bool:
        seen.append(str(made.form))
        return event in made.form

    assert match(forest, {"type": "B", "x": 9}, matches=holds) == {"B", "any"}
    assert len(seen) == 2
