"""Merging inside a structure: the six rules, and that nobody notices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merging.merging_cases import MERGE_CASES, MergeCase, touching
from merging.test_merged_set import steps
from order.things import STRUCTURES, Range
from strategies import thorough
from weft.merging.local_merging import LocalMerging
from weft.merging.mergeability import Merging
from weft.order import Poset, Relation, Structure

EXACT = [name for name, case in MERGE_CASES.items() if case.exact]


def ranges(kind: str) -> LocalMerging[Range]:
    return LocalMerging(STRUCTURES[kind](Relation(Range.covers)), Merging(touching))


def held(table: LocalMerging[Range], interface: int = 0) -> set[Range | None]:
    """What the structure holds for an interface."""
    return {node.thing for node in table.structure if interface in node.interfaces}


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize(
    ("rule", "adds", "holds", "drop", "then"),
    [
        # 1: a filter that another covers is taken out; it comes back when that goes
        (1, [(2, 3), (1, 5)], {(1, 5)}, (1, 5), {(2, 3)}),
        (1, [(1, 5), (2, 3)], {(1, 5)}, (1, 5), {(2, 3)}),
        # 2: a merger that a filter covers is taken out, and with it its components (rule 6)
        (2, [(1, 2), (3, 4), (0, 9)], {(0, 9)}, (0, 9), {(1, 4)}),
        # 3: a filter that a merger covers is taken out and kept with the merger
        (3, [(0, 3), (4, 7), (2, 5)], {(0, 7)}, (0, 3), {(2, 7)}),
        # 4: a merger that a merger covers is taken out, its components and what it covers are kept with the other
        (4, [(2, 3), (4, 5), (3, 4), (9, 9), (0, 3), (4, 8)], {(0, 9)}, (4, 8), {(0, 5), (9, 9)}),
        # 5: a component goes: the others, and what the merger covered, come back
        (5, [(0, 1), (2, 3), (4, 5), (1, 2)], {(0, 5)}, (2, 3), {(0, 2), (4, 5)}),
        # 6: the last component goes, and so does the merger
        (6, [(0, 1), (2, 3)], {(0, 3)}, (0, 1), {(2, 3)}),
    ],
)
def test_the_six_rules(
    *, kind: str, rule: int, adds: list[tuple[int, int]], holds: set[Any], drop: tuple[int, int], then: set[Any]
) -> None:
    """Each with an example, and that the structure lets through what it would without."""
    table = ranges(kind)
    for low, high in adds:
        table.add(Range(low, high))
        table.check()
    assert held(table) == {Range(low, high) for low, high in holds}, f"rule {rule}"
    table.discard(Range(*drop))
    table.check()
    assert held(table) == {Range(low, high) for low, high in then}, f"rule {rule}"
    left = [Range(*ends) for ends in adds if ends != drop]
    assert {n for n in range(12) if any(n in r for r in held(table) if r)} == {
        n for n in range(12) if any(n in r for r in left)
    }
    for one in left:
        table.discard(one)
    assert not len(table.structure), "nothing is left"


@pytest.mark.parametrize("kind", STRUCTURES)
def test_filters_of_different_interfaces_do_not_merge(kind: str) -> None:
    """Definition 8.1: an event must not reach an interface that did not ask for it."""
    table = ranges(kind)
    table.add(Range(0, 2), 1)
    table.add(Range(3, 5), 2)
    assert held(table, 1) == {Range(0, 2)}
    assert held(table, 2) == {Range(3, 5)}
    table.add(Range(3, 5), 1)
    assert held(table, 1) == {Range(0, 5)}
    assert held(table, 2) == {Range(3, 5)}
    table.discard_interface(1)
    table.check()
    assert held(table, 2) == {Range(3, 5)}
    assert not list(table.items(1))
    assert not table.discard(Range(0, 2), 1)


def through(case: MergeCase, structure: Structure[Any], interface: int) -> set[int]:
    return case.through(node.thing for node in structure if interface in node.interfaces)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("name", EXACT)
@given(data=st.data())
@thorough(15)
def test_merging_does_not_change_what_is_matched(name: str, kind: str, data: st.DataObject) -> None:
    """Every interface gets what its filters match; the root changes add up; in the end nothing is left."""
    case = MERGE_CASES[name]
    table = LocalMerging(STRUCTURES[kind](case.relation()), case.merging())
    relation = table.structure.relation
    wants: set[tuple[int, int]] = set()
    roots: set[Any] = set()
    drawn = data.draw(steps(case, most=20))
    for add, number, interface in [*drawn, *((False, number, interface) for _, number, interface in drawn)]:
        thing = case.things[number]
        change = table.add(thing, interface) if add else table.discard(thing, interface)
        (wants.add if add else wants.discard)((number, interface))
        if case.complete:
            table.check()
        for one in range(3):
            wanted = case.through(case.things[at] for at, same in wants if same == one)
            assert through(case, table.structure, one) == wanted
        roots -= {relation.key(relation.make(left)) for left in change.drop}
        entered = {relation.key(relation.make(new)) for new in change.add}
        assert not roots & entered
        roots |= entered
        assert roots == {relation.key(node.made) for node in table.structure.roots}
    assert not len(table.structure)


def test_a_merged_structure_is_smaller() -> None:
    plain, table = Poset(Relation(Range.covers)), ranges("poset")
    for low in range(10):
        plain.add(Range(low, low), 0)
        table.add(Range(low, low), 0)
    assert (len(plain), len(table.structure)) == (10, 1)
