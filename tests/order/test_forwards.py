"""Forwards sets: what each neighbour is told, against the naive mechanism, and the worked traces of the thesis."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from order.things import CASES, STRUCTURES, Case, Range, plain_ranges
from strategies import thorough
from weft.language.text import parse
from weft.order import FilterRelation, ForwardChange, Forwarding, NonRedundantForest, Poset, Relation, Structure

NEIGHBOURS = ("I1", "I2", "I3")
INTERFACES = (*NEIGHBOURS, "a client", "another client")
Told = dict[Any, ForwardChange[Any]]


def naive(case: Case, wants: set[tuple[Any, str]], neighbour: str) -> list[Any]:
    """The naive mechanism (thesis 3.2.1): the minimal cover of what all others want, computed anew."""
    things = sorted({thing for thing, interface in wants if interface != neighbour}, key=str)
    return [a for a in things if not any(b is not a and case.holds(b, a) and not case.holds(a, b) for b in things)]


def shown(told: Told) -> dict[Any, tuple[list[str], list[str]]]:
    return {to: ([str(n.thing) for n in each.add], [str(n.thing) for n in each.drop]) for to, each in told.items()}


def heard(held: dict[Any, set[Any]], told: Told) -> None:
    """What the neighbours hold after a change; nothing is dropped that was not there, nor added twice."""
    for neighbour, change in told.items():
        drop, add = [n.thing for n in change.drop], [n.thing for n in change.add]
        assert held[neighbour].issuperset(drop)
        held[neighbour].difference_update(drop)
        assert held[neighbour].isdisjoint(add)
        held[neighbour].update(add)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "approximate"])
@pytest.mark.parametrize("kind", ["poset", "nonredundant"])
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@thorough(60)
def test_neighbours_are_told_the_minimal_cover_of_what_others_want(
    name: str, kind: str, exact: bool, data: st.DataObject
) -> None:
    """Theorem 3.1, and section 4.5 where it is approximate: never less, and nothing that nobody else wants."""
    case = CASES[name]
    table = Forwarding(STRUCTURES[kind](case.relation()), NEIGHBOURS, exact)
    wants: set[tuple[Any, str]] = set()
    held: dict[Any, set[Any]] = {neighbour: set() for neighbour in NEIGHBOURS}
    steps = st.tuples(st.booleans(), st.integers(0, len(case.things) - 1), st.sampled_from(INTERFACES))
    for add, number, interface in data.draw(st.lists(steps, max_size=20)):
        thing = case.things[number]
        if add:
            wants.add((thing, interface))
            heard(held, table.add(thing, interface))
        else:
            wants.discard((thing, interface))
            again = [(other, interface) for other, same in sorted(wants, key=str) if same == interface]
            heard(held, table.change(again, [(thing, interface)]))
        table.check()
        for neighbour in NEIGHBOURS:
            assert held[neighbour] == {node.thing for node in table.told(neighbour)}
            others = {thing for thing, same in wants if same != neighbour}
            assert all(any(case.holds(told, thing) for told in held[neighbour]) for thing in others), "nothing is lost"
            assert held[neighbour] <= others
            if case.complete and (exact or kind == "poset"):
                assert sorted(map(str, held[neighbour])) == sorted(map(str, naive(case, wants, neighbour)))


@pytest.mark.parametrize("kind", ["poset", "nonredundant"])
@given(data=st.data())
@thorough(40)
def test_neighbours_come_and_go(kind: str, data: st.DataObject) -> None:
    case = CASES["boxes"]
    table = Forwarding(STRUCTURES[kind](case.relation()), ("I1", "I2"))
    wants: set[tuple[Any, str]] = set()
    steps = st.tuples(st.integers(0, len(case.things) - 1), st.sampled_from(("I1", "I2", "a client")))
    for number, interface in data.draw(st.lists(steps, max_size=12)):
        table.add(case.things[number], interface)
        wants.add((case.things[number], interface))
    new = table.attach("I3")
    assert {node.thing for node in new.add} == set(naive(case, wants, "I3"))
    assert not new.drop
    table.check()
    table.detach("I1")
    table.check()
    wants = {(thing, interface) for thing, interface in wants if interface != "I1"}
    for neighbour in ("I2", "I3"):
        assert {str(n.thing) for n in table.told(neighbour)} == set(map(str, naive(case, wants, neighbour)))


@given(data=st.data())
@thorough(60)
def test_only_two_levels_are_forwarded(data: st.DataObject) -> None:
    """Theorem 3.4, with its erratum: a root whose subscriber is the only neighbour is forwarded to nobody."""
    table: Forwarding[Range] = Forwarding(Poset(plain_ranges()), NEIGHBOURS[: data.draw(st.integers(1, 3))])
    things = CASES["ranges"].things
    for number, interface in data.draw(
        st.lists(st.tuples(st.integers(0, len(things) - 1), st.sampled_from(INTERFACES)), max_size=20)
    ):
        table.add(things[number], interface)
    top = table.structure.top
    for node in table.structure:
        if top in node.parents:
            alone = len(table.neighbours) == 1 and node.interfaces == set(table.neighbours)
            assert bool(node.forwards) is not alone
        elif node.forwards:
            assert len(node.forwards) == 1
            assert all(top in parent.parents for parent in node.parents)


def test_forwards_set_of_two_subscribers() -> None:
    """Subscribers {I1, I2}, forwarded to all three; I1 unsubscribes, which goes to I2: {I1, I3} are left."""
    table = Forwarding(Poset(FilterRelation()), NEIGHBOURS)
    f = parse("x > 0")
    table.add(f, "I1")
    table.add(f, "I2")
    node = table.structure.find(f)
    assert node is not None
    assert node.forwards == {"I1", "I2", "I3"}
    assert shown(table.discard(f, "I1")) == {"I2": ([], ["x > 0"])}
    assert node.forwards == {"I1", "I3"}
    assert shown(table.add(f, "I1")) == {"I2": (["x > 0"], [])}


A, B, C, D, E = (
    parse(text) for text in ("x BETWEEN 0 AND 60", "x > 50", "x BETWEEN 0 AND 40", "x BETWEEN 60 AND 80", "x = 7")
)


@pytest.mark.parametrize("kind", ["poset", "nonredundant"])
def test_figures_3_2_and_3_3(kind: str) -> None:
    """Five subscriptions, then the first is taken back: c also goes to I3, its child now to I2."""
    structure: Structure[Any] = STRUCTURES[kind](FilterRelation())
    table = Forwarding(structure, NEIGHBOURS)
    assert shown(table.add(A, "I1")) == {"I2": ([str(A)], []), "I3": ([str(A)], [])}
    assert shown(table.add(B, "I1")) == {"I2": ([str(B)], []), "I3": ([str(B)], [])}
    assert shown(table.add(C, "I2")) == {"I1": ([str(C)], [])}
    assert shown(table.add(D, "I2")) == {"I1": ([str(D)], [])}
    assert shown(table.add(E, "I3")) == {}
    assert shown(table.discard(A, "I1")) == {"I2": ([str(E)], [str(A)]), "I3": ([str(C)], [str(A)])}


def test_figure_3_5() -> None:
    """d lies below c, which lies below a, and below b: nobody needs it; hung below b alone, I1 is told needlessly."""
    texts = ("x BETWEEN 0 AND 90", "x BETWEEN 40 AND 100", "x BETWEEN 10 AND 60", "x BETWEEN 42 AND 45")
    a, b, c, d = (parse(text) for text in texts)
    for exact, structure in product((True, False), (Poset, NonRedundantForest)):
        table = Forwarding(structure(FilterRelation()), NEIGHBOURS, exact)
        for thing, interface, to in ((a, "I1", {"I2", "I3"}), (b, "I1", {"I2", "I3"}), (c, "I2", {"I1"})):
            assert set(table.add(thing, interface)) == to
        told = shown(table.add(d, "I3"))
        assert told == ({} if exact or structure is Poset else {"I1": ([str(d)], [])})


def test_example_3_2() -> None:
    """F3 goes: F4 must go to c, though the forest had hung F4 elsewhere."""
    f1, f2 = parse("x BETWEEN 0 AND 90"), parse("x BETWEEN 10 AND 100")
    f3, f4 = parse("x BETWEEN 20 AND 80"), parse("x BETWEEN 30 AND 40")
    structure = NonRedundantForest(FilterRelation())
    table = Forwarding(structure, ("a", "b", "c"))
    table.add(f1, "c")
    table.add(f4, "b")  # hangs below F1
    table.add(f2, "c")
    table.add(parse("x = 50"), "a")
    assert shown(table.add(f3, "a"))["c"][0] == [str(f3)]
    table.discard(parse("x = 50"), "a")
    table.check()
    assert shown(table.discard(f3, "a")) == {"c": ([str(f4)], [str(f3)])}


def test_equal_filters_that_are_not_known_as_such_are_not_lost() -> None:
    """Two of different keys that cover each other, below different roots of one neighbour: one must still be told."""
    relation: Relation[tuple[str, Range]] = Relation(lambda wide, narrow: wide[1].covers(narrow[1]))
    for order in ("zy", "yz"):
        table = Forwarding(NonRedundantForest(relation), ("n", "m"))
        table.add(("left", Range(0, 8)), "n")
        table.add((order[0], Range(4, 5)), "m")
        table.add(("right", Range(2, 9)), "n")
        table.add((order[1], Range(4, 5)), "a client")
        assert any(node.thing is not None and node.thing[1] == Range(4, 5) for node in table.told("n"))
