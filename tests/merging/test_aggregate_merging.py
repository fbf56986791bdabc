"""Merging of what neighbours are told: each hears of what the others want, in as few items as merge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merging.merging_cases import MERGE_CASES, touching
from merging.test_merged_set import follow, steps
from order.things import STRUCTURES, Range
from strategies import thorough
from weft.merging.aggregate_merging import AggregateMerging
from weft.merging.merge_parts import MergeItem
from weft.merging.mergeability import Merging
from weft.order import Forwarding, Poset, Relation

KINDS = ("poset", "forest", "nonredundant")
EXACT = [name for name, case in MERGE_CASES.items() if case.exact]
LOCAL = 3


def ranges(neighbours: Iterable[int], overlapping: bool = False) -> AggregateMerging[Range]:
    return AggregateMerging(Forwarding(Poset(Relation(Range.covers)), neighbours), Merging(touching), overlapping)


def told(table: AggregateMerging[Range], neighbour: int) -> set[Range]:
    return {item.thing for item in table.told(neighbour)}


@pytest.mark.parametrize("overlapping", [False, True], ids=("equal", "overlapping"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXACT)
@given(data=st.data())
@thorough(15)
def test_neighbours_hear_of_what_the_others_want(name: str, kind: str, overlapping: bool, data: st.DataObject) -> None:
    """As the naive minimal cover for each neighbour, event by event; one of them comes later and goes earlier."""
    case = MERGE_CASES[name]
    forwarding = Forwarding(STRUCTURES[kind](case.relation()), [0, 1])
    table = AggregateMerging(forwarding, case.merging(), overlapping)
    wants: set[tuple[int, int]] = set()
    known: dict[int, dict[MergeItem[Any], None]] = {0: {}, 1: {}}
    drawn = data.draw(steps(case, interfaces=4, most=16))
    come, go = sorted(data.draw(st.tuples(st.integers(0, 16), st.integers(0, 16))))
    moves: list[Any] = [*drawn, *((False, number, interface) for _, number, interface in drawn)]
    moves[come:come], moves[go + 1 : go + 1] = ["come"], ["go"]
    for move in moves:
        if move == "come":
            known[2] = {}
            changes = table.attach(2)
        elif move == "go":
            del known[2]
            changes = table.detach(2)
            wants = {want for want in wants if want[1] != 2}
        else:
            add, number, interface = move
            if interface not in (*known, LOCAL):
                continue
            again = [] if add else [(case.things[at], same) for at, same in sorted(wants) if (at, same) != move[1:]]
            want = (case.things[number], interface)
            changes = (
                table.add(*want) if add else table.change([other for other in again if other[1] == interface], [want])
            )
            (wants.add if add else wants.discard)((number, interface))
        if case.complete:
            table.check()
        for neighbour, change in changes.items():
            follow(known[neighbour], change)
        for neighbour, items in known.items():
            assert set(table.told(neighbour)) == set(items)
            wanted = case.through(case.things[at] for at, same in wants if same != neighbour)
            assert case.through(item.thing for item in items) == wanted
            assert len(items) <= len(forwarding.told(neighbour))
    assert not any(known.values())
    assert not table._groups


def test_equal_forwards_sets_merge_once() -> None:
    """Section 8.4: both filters go to all but the neighbour that wants them."""
    table = ranges([1, 2, 3])
    table.add(Range(0, 2), 1)
    changes = table.add(Range(3, 5), 1)
    assert {to: [item.thing for item in change.add] for to, change in changes.items()} == {
        2: [Range(0, 5)],
        3: [Range(0, 5)],
    }
    assert told(table, 1) == set()
    changes = table.discard(Range(0, 2), 1)
    assert {to: [item.thing for item in change.add] for to, change in changes.items()} == {
        2: [Range(3, 5)],
        3: [Range(3, 5)],
    }


def test_overlapping_forwards_sets_merge_for_the_intersection() -> None:
    """Definition 8.2: {2, 3} and {1, 3}: the merger goes to 3, each part to the other one."""
    equal, overlapping = ranges([1, 2, 3]), ranges([1, 2, 3], overlapping=True)
    for table in (equal, overlapping):
        table.add(Range(0, 2), 1)
        table.add(Range(3, 5), 2)
        assert told(table, 1) == {Range(3, 5)}
        assert told(table, 2) == {Range(0, 2)}
    assert told(equal, 3) == {Range(0, 2), Range(3, 5)}
    assert told(overlapping, 3) == {Range(0, 5)}


def test_what_a_merger_covers_is_not_told_where_the_merger_is() -> None:
    """Equation 8.1: the forwards set of a filter is without those of the mergers that cover it."""
    table = ranges([1, 2, 3])
    table.add(Range(0, 2), 1)
    table.add(Range(3, 5), 1)
    table.add(Range(2, 3), 2)
    assert told(table, 1) == {Range(2, 3)}
    assert told(table, 2) == {Range(0, 5)}
    assert told(table, 3) == {Range(0, 5)}, "and not [2, 3], which goes to 1 and 3 unmerged"
    table.discard(Range(0, 2), 1)
    assert told(table, 3) == {Range(2, 3), Range(3, 5)}


def test_with_one_neighbour_it_is_root_merging() -> None:
    """Section 8.4: hierarchical routing has one direction only."""
    table = ranges(["master"])  # type: ignore[list-item]
    for number, low in enumerate((0, 2, 4, 6)):
        table.add(Range(low, low + 1), number)
    assert told(table, "master") == {Range(0, 7)}  # type: ignore[arg-type]


def test_a_new_neighbour_hears_of_everything_and_others_of_nothing() -> None:
    table = ranges([1, 2])
    table.add(Range(0, 2), 1)
    table.add(Range(3, 5), LOCAL)
    changes = table.attach(9)
    assert changes.keys() == {9}
    assert {item.thing for item in changes[9].add} == told(table, 9) == {Range(0, 2), Range(3, 5)}
    assert not table.detach(9)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize(
    ("wants", "drop"),
    [
        # [3, 3] still hangs below [3, 5], which 1 alone wants: now 1 must hear of it
        ([(0, 4, 0), (3, 3, LOCAL), (3, 5, 1)], (0, 4, 0)),
        # below a chain that 1 alone wants
        ([(0, 9, 0), (1, 8, 1), (2, 7, 1), (3, 6, LOCAL)], (0, 9, 0)),
    ],
)
def test_what_a_removed_filter_hid_is_told(
    kind: str, wants: list[tuple[int, int, int]], drop: tuple[int, int, int]
) -> None:
    forwarding = Forwarding(STRUCTURES[kind](Relation(Range.covers)), [0, 1])
    table = AggregateMerging(forwarding, Merging(touching))
    for low, high, interface in wants:
        table.add(Range(low, high), interface)
    table.discard(Range(*drop[:2]), drop[2])
    table.check()
    assert {n for n in range(10) for item in table.told(1) if n in item.thing} == {
        n for n in range(10) for low, high, interface in wants if interface == LOCAL and low <= n <= high
    }
