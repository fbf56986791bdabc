"""Posets and forests: what holds of them whatever comes and goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from order.things import CASES, LEAN, RANGES, STRUCTURES, Case, Range, plain_ranges
from strategies import thorough
from weft.errors import FilterError, OptionError
from weft.language.text import parse
from weft.order import FilterRelation, Forest, NonRedundantForest, Poset, Relation, Structure

Wants = set[tuple[Any, int]]


def steps(case: Case, interfaces: int = 3) -> st.SearchStrategy[list[tuple[bool, int, int]]]:
    """Additions and removals of things, by their numbers, for interfaces."""
    return st.lists(
        st.tuples(st.booleans(), st.integers(0, len(case.things) - 1), st.integers(0, interfaces - 1)), max_size=25
    )


def minimal(case: Case, things: list[Any]) -> list[Any]:
    """The things that no other one covers, one of those that are equal."""
    return [
        thing
        for at, thing in enumerate(things)
        if not any(
            case.holds(other, thing) and (place < at or not case.holds(thing, other))
            for place, other in enumerate(things)
            if place != at
        )
    ]


def apply(structure: Structure[Any], wants: Wants, step: tuple[bool, Any, int]) -> None:
    """One step; a lean structure's caller adds again what a removed filter had made needless, as a neighbour does."""
    add, thing, interface = step
    if add:
        structure.add(thing, interface)
        wants.add((thing, interface))
        return
    structure.discard(thing, interface)
    wants.discard((thing, interface))
    if not structure.redundant:
        for other, same in sorted(wants, key=str):
            if same == interface:
                structure.add(other, interface)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@thorough(60)
def test_the_roots_are_the_minimal_cover(name: str, kind: str, data: st.DataObject) -> None:
    """Theorem 3.7, Corollary 3.8: whatever the order of changes; and every root change is reported."""
    case = CASES[name]
    structure = STRUCTURES[kind](case.relation())
    wants: Wants = set()
    for add, number, interface in data.draw(steps(case)):
        apply(structure, wants, (add, case.things[number], interface))
        structure.check()
        assert all(p is structure.top or case.holds(p.thing, n.thing) for n in structure for p in n.parents)
        wanted = [thing for thing, _ in sorted(wants, key=str)]
        roots = [node.thing for node in structure.roots]
        assert all(any(case.holds(root, thing) for root in roots) for thing in wanted), "the roots cover everything"
        assert all(any(root == thing or case.holds(thing, root) for thing in wanted) for root in roots)
        if case.complete:
            least = minimal(case, wanted)
            assert len(roots) == len(least)
            assert all(any(case.holds(a, b) and case.holds(b, a) for b in least) for a in roots)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@thorough(30)
def test_root_changes_add_up(name: str, kind: str, data: st.DataObject) -> None:
    case = CASES[name]
    structure = STRUCTURES[kind](case.relation())
    known: list[Any] = []
    for add, number, interface in data.draw(steps(case)):
        thing = case.things[number]
        change = structure.add(thing, interface) if add else structure.discard(thing, interface)
        for left in change.drop:
            known.remove(left)
        known += change.add
        assert sorted(map(str, known)) == sorted(str(node.thing) for node in structure.roots)


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.complete])
@given(data=st.data())
@thorough(30)
def test_covering_and_covered_sets(name: str, kind: str, data: st.DataObject) -> None:
    case = CASES[name]
    structure = STRUCTURES[kind](case.relation())
    for number in data.draw(st.lists(st.integers(0, len(case.things) - 1), max_size=12)):
        structure.add(case.things[number], number)
    asked = case.things[data.draw(st.integers(0, len(case.things) - 1))]
    there = [node.thing for node in structure]
    assert {str(n.thing) for n in structure.covering(asked)} == {str(t) for t in there if case.holds(t, asked)}
    assert {str(n.thing) for n in structure.covered(asked)} == {str(t) for t in there if case.holds(asked, t)}


@pytest.mark.parametrize("kind", LEAN)
@given(data=st.data())
@thorough(60)
def test_no_interface_wants_what_it_has_a_wider_filter_for(kind: str, data: st.DataObject) -> None:
    """Property 3.2, and the depth bound of Theorem 3.3."""
    case = CASES["boxes"]
    structure = STRUCTURES[kind](case.relation())
    for add, number, interface in data.draw(steps(case, interfaces=4)):
        thing = case.things[number]
        if add:
            structure.add(thing, interface)
        else:
            structure.discard(thing, interface)
        if kind != "nonredundant-discard":
            mine = [node.thing for node in structure if interface in node.interfaces]
            assert not any(a is not b and case.holds(a, b) for a in mine for b in mine)
            assert structure.depth <= 4
            structure.check()


@given(data=st.data())
@thorough(60)
def test_a_poset_and_a_nonredundant_forest_hold_the_same(data: st.DataObject) -> None:
    """Section 3.5: the same nodes, wanted by the same interfaces."""
    case = CASES["boxes"]
    poset, forest = Poset(case.relation()), NonRedundantForest(case.relation())
    for add, number, interface in data.draw(steps(case)):
        for structure in (poset, forest):
            step = structure.add if add else structure.discard
            step(case.things[number], interface)
        assert {(str(n.thing), frozenset(n.interfaces)) for n in poset} == {
            (str(n.thing), frozenset(n.interfaces)) for n in forest
        }


@given(data=st.data())
@thorough(60)
def test_a_poset_knows_the_whole_relation(data: st.DataObject) -> None:
    poset: Poset[Range] = Poset(plain_ranges())
    for add, number, interface in data.draw(steps(CASES["ranges"], interfaces=30)):
        (poset.add if add else poset.discard)(RANGES[number], interface)
    for node in poset:
        above = {other.thing for other in poset if other is not node and other.thing.covers(node.thing)}
        assert {other.thing for other in node.above()} == above


@pytest.mark.parametrize("kind", ["forest", "balanced"])
@given(data=st.data())
@thorough(60)
def test_siblings_are_incomparable(kind: str, data: st.DataObject) -> None:
    """Definition 3.6, at every node, after removals too."""
    forest = STRUCTURES[kind](plain_ranges())
    for add, number, interface in data.draw(steps(CASES["ranges"], interfaces=30)):
        (forest.add if add else forest.discard)(RANGES[number], interface)
        for node in (forest.top, *forest):
            children = [child.thing for child in node.children]
            assert not any(a is not b and a.covers(b) for a in children for b in children)


@pytest.mark.parametrize("kind", STRUCTURES)
def test_the_example_of_theorem_3_3(kind: str) -> None:
    structure = STRUCTURES[kind](FilterRelation())
    for number, bound in enumerate((0, 5, 10, 12)):
        structure.add(parse(f"x > {bound}"), f"i{number}")
    assert structure.depth == 4


def test_figure_3_4() -> None:
    """The same filters as a poset and as a forest."""
    texts = [f"type = 'A' AND rng BETWEEN {a} AND {b}" for a, b in ((0, 100), (0, 40), (20, 90), (30, 35), (35, 38))]
    texts.append("type = 'A' AND rng = 35 AND name = 'B'")
    poset, forest = Poset(FilterRelation()), Forest(FilterRelation())
    for number, text in enumerate(texts):
        poset.add(parse(text), number)
        forest.add(parse(text), number)
    above = {text: {str(parent.thing) for parent in poset.find(parse(text)).parents} for text in texts[1:]}  # type: ignore[union-attr]
    assert above == {
        texts[1]: {texts[0]},
        texts[2]: {texts[0]},
        texts[3]: {texts[1], texts[2]},
        texts[4]: {texts[1], texts[2]},
        texts[5]: {texts[3], texts[4]},
    }
    assert [str(node.thing) for node in forest.roots] == [texts[0]]
    assert all(str(node.parent.thing) in above[str(node.thing)] for node in forest if str(node.thing) != texts[0])
    assert forest.depth == poset.depth == 4


def test_roots_are_parted_by_event_type() -> None:
    """A filter is not compared with the roots of another type."""
    forest = Forest(FilterRelation(indexed=False))
    for kind in "ABCDEFGH":
        forest.add(parse(f"type = '{kind}' AND x > 0"), kind)
    before = forest.relation.comparisons
    forest.add(parse("type = 'C' AND x > 5"), "new")
    assert forest.relation.comparisons - before == 1
    before = forest.relation.comparisons
    forest.add(parse("x > 0"), "any")
    assert forest.relation.comparisons - before == 8
    assert [str(node.thing) for node in forest.roots] == ["x > 0"]


def test_a_new_filter_goes_below_the_smallest_tree() -> None:
    forest: Forest[Range] = Forest(plain_ranges())
    for low, high in ((0, 5), (4, 9), (0, 1), (1, 2)):
        forest.add(Range(low, high))
    forest.add(Range(4, 5))
    node = forest.find(Range(4, 5))
    assert node is not None
    assert node.parent.thing == Range(4, 9)


def test_a_duplicate_is_one_node_however_it_is_written() -> None:
    poset = Poset(FilterRelation())
    poset.add(parse("x > 5 AND y = 'a'"), "north")
    poset.add(parse("'a' = y AND 5 < x"), "south")
    (node,) = poset
    assert node.interfaces == {"north", "south"}
    poset.discard(parse("y = 'a' AND x > 5"), "north")
    assert len(poset) == 1


@pytest.mark.parametrize("kind", STRUCTURES)
def test_what_matches_nothing_has_no_place(kind: str) -> None:
    structure = STRUCTURES[kind](FilterRelation())
    with pytest.raises(FilterError, match="never matches"):
        structure.add(parse("x > 5 AND x < 3"))
    assert len(structure) == 0


@pytest.mark.parametrize("kind", STRUCTURES)
def test_an_interface_goes_with_all_it_wanted(kind: str) -> None:
    structure = STRUCTURES[kind](plain_ranges())
    for number, thing in enumerate(RANGES):
        structure.add(thing, number % 3)
    structure.discard_interface(1)
    structure.check()
    assert not any(1 in node.interfaces for node in structure)
    for interface in (0, 2):
        structure.discard_interface(interface)
    assert len(structure) == 0
    assert not list(structure.roots)


def test_discarding_what_is_not_there_changes_nothing() -> None:
    forest: Forest[Range] = Forest(plain_ranges())
    forest.add(Range(0, 3), "north")
    assert not forest.discard(Range(1, 2), "north")
    assert not forest.discard(Range(0, 3), "south")
    assert len(forest) == 1


def test_rates_are_ordered_too() -> None:
    """20 a second covers 10 a second (acceptance, thesis 3.8)."""
    rates: Relation[float] = Relation(lambda wide, narrow: wide >= narrow)
    forest: Forest[float] = Forest(rates)
    for rate in (10.0, 20.0, 5.0):
        forest.add(rate)
    assert [node.thing for node in forest.roots] == [20.0]
    assert forest.depth == 3


def test_a_nonredundant_forest_says_when_it_spares() -> None:
    with pytest.raises(OptionError, match="'add' or 'discard'"):
        NonRedundantForest(plain_ranges(), spare_on="never")  # type: ignore[arg-type]
