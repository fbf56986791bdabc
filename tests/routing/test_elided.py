"""A table that starts with an elided set tells what one tells that was fed everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.models import PREDICATES
from strategies import EVENTS, filters, thorough
from weft.algebra.bulk import columns_of_texts
from weft.algebra.normalize import normalize
from weft.errors import LocalProtocolError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.merging.bulk_mergers import merge_all
from weft.order.minimal_cover import NOTHING, minimal_cover
from weft.routing.covering.table import CoveringTable
from weft.routing.elided import Elided, Passive
from weft.routing.table import Link

sets = st.lists(filters(3).filter(lambda each: "is_a" not in str(each) and normalize(each)), min_size=1, max_size=6)


def by_covering(some: list[Filter]) -> tuple[Elided, dict[SubId, Filter]]:
    coverers = minimal_cover(columns_of_texts(map(str, some)), len(some)).coverers.tolist()
    assert NOTHING not in coverers
    passive = {SubId(at): Passive(str(some[at]), (SubId(wide),)) for at, wide in enumerate(coverers) if wide != at}
    active = {SubId(at): some[at] for at, wide in enumerate(coverers) if wide == at}
    return Elided(passive, active), active


def by_merging(some: list[Filter]) -> tuple[Elided, dict[SubId, Filter]]:
    passive: dict[SubId, Passive] = {}
    active: dict[SubId, Filter] = {}
    components = {}
    for merger in merge_all([normalize(each) for each in some]):
        root = SubId(merger.components[0])
        active[root] = some[root] if merger.text is None else parse(merger.text)
        behind = merger.covered if merger.text is None else (*merger.components, *merger.covered)
        passive |= {SubId(at): Passive(str(some[at]), (root,)) for at in behind}
        if merger.text is not None:
            components[root] = tuple(map(SubId, merger.components))
    return Elided(passive, active, components), active


@pytest.mark.parametrize("elided", [by_covering, by_merging])
@given(sets, st.data())
@thorough(25)
def test_what_is_told_admits_what_is_wanted_whatever_goes_and_comes(elided, some: list[Filter], data) -> None:
    local, active = elided(some)
    table, north = CoveringTable(local=local, predicates=PREDICATES), Link("north")
    table.attach(north)
    table.change(active, ())
    wanted = {SubId(at): each for at, each in enumerate(some)}
    for turn in range(4):
        told = table.told(north).values()
        for event in EVENTS[::4]:
            assert any(event in normalize(item) if isinstance(item, Filter) else event in item for item in told) == any(
                matches(each, event) for each in wanted.values()
            )
        table.check()
        drop = data.draw(st.lists(st.sampled_from(sorted(wanted)), unique=True, max_size=2)) if wanted else []
        fresh = data.draw(filters(2))
        for sub in drop:
            del wanted[sub]
        new = {SubId(100 + turn): fresh}
        table.change(new, drop)
        wanted |= new


def test_what_stands_behind_several_comes_back_when_one_of_them_goes() -> None:
    passive = {SubId(3): Passive("x BETWEEN 2 AND 7", (SubId(1), SubId(2)))}
    local = Elided(passive, [SubId(1), SubId(2)])
    local.change({SubId(1): parse("x BETWEEN 0 AND 5"), SubId(2): parse("x BETWEEN 5 AND 9")}, ())
    assert local.elided == 1
    change = local.change({}, [SubId(2)])
    assert (list(change.drop), list(change.add), local.elided) == ([SubId(2)], [SubId(3)], 0)


def test_what_is_dropped_together_does_not_come_back() -> None:
    local = Elided({SubId(2): Passive("x > 5", (SubId(1),))}, [SubId(1)])
    local.change({SubId(1): parse("x > 0")}, ())
    change = local.change({}, [SubId(1), SubId(2)])
    assert (list(change.drop), dict(change.add), dict(local.roots())) == ([SubId(1)], {}, {})


def test_a_known_id_is_refused_and_nothing_changes() -> None:
    local = Elided({SubId(2): Passive("x > 5", (SubId(1),))}, [SubId(1)])
    local.change({SubId(1): parse("x > 0")}, ())
    for add, drop in (({SubId(1): parse("x > 3")}, ()), ({SubId(2): parse("x > 3")}, ()), ({}, [SubId(9)])):
        with pytest.raises(LocalProtocolError):
            local.change(add, drop)
    assert list(local.roots()) == [SubId(1)]
