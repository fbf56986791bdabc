"""The table of negative space: what is told, and tidied, as one update."""

from __future__ import annotations

import pytest

from weft import Event, parse
from weft.errors import RemoteProtocolError
from weft.index.base import SubId
from weft.routing.negative.structure import Limit
from weft.routing.negative.table import NegativeTable
from weft.routing.table import ItemId, Link, Update

NORTH, SOUTH = Link("north"), Link("south")


def told(table: NegativeTable, link: Link) -> list[str]:
    return sorted(str(item) for item in table.told(link).values())


@pytest.fixture(params=[None, Limit(4)], ids=["exact", "limit"])
def table(request: pytest.FixtureRequest) -> NegativeTable:
    table = NegativeTable(limit=request.param)
    table.attach(NORTH)
    table.attach(SOUTH)
    return table


def test_what_two_cover_together_is_not_told(table: NegativeTable) -> None:
    table.learn(NORTH, Update(add={ItemId(1): parse("x < 5"), ItemId(2): parse("x >= 5"), ItemId(3): parse("x > 3")}))
    assert told(table, SOUTH) == ["x < 5", "x >= 5"]
    assert told(table, NORTH) == []


def test_a_link_is_not_spared_what_only_its_own_items_cover(table: NegativeTable) -> None:
    table.learn(NORTH, Update(add={ItemId(1): parse("x < 5")}))
    table.change({SubId(1): parse("x < 3")}, ())
    assert told(table, NORTH) == ["x < 3"]
    assert told(table, SOUTH) == ["x < 5"]


def test_what_uncovers_comes_in_the_same_update(table: NegativeTable) -> None:
    table.change({SubId(1): parse("x < 5"), SubId(2): parse("x >= 5"), SubId(3): parse("x > 3")}, ())
    tells = table.change({}, [SubId(2)])
    assert [(tell.link, len(tell.update.drop)) for tell in tells] == [(NORTH, 1), (SOUTH, 1)]
    assert [[str(item) for item in tell.update.add.values()] for tell in tells] == [["x > 3"], ["x > 3"]]


def test_tidying_withdraws_what_a_later_one_made_redundant(table: NegativeTable) -> None:
    table.change({SubId(n): parse(f"x BETWEEN {n} AND {n + 1}") for n in range(5)}, ())
    table.change({SubId(9): parse("x BETWEEN -3 AND 9")}, ())
    assert len(told(table, NORTH)) == 6
    tells = table.step(100)
    assert [(tell.link, len(tell.update.drop), len(tell.update.add)) for tell in tells] == [
        (NORTH, 5, 0),
        (SOUTH, 5, 0),
    ]
    assert told(table, NORTH) == ["x BETWEEN -3 AND 9"]
    assert table.step(100) == []  # nothing has changed since
    assert table.route(Event.of(x=1), None) == set()
    table.check()


def test_tidying_keeps_to_its_budget(table: NegativeTable) -> None:
    table.change({SubId(n): parse(f"x BETWEEN {n} AND {n + 1}") for n in range(5)}, ())
    table.change({SubId(9): parse("x BETWEEN -3 AND 9")}, ())
    assert [tell.link for tell in table.step(1)] == [NORTH]
    assert [tell.link for tell in table.step(1)] == [SOUTH]


def test_a_filter_that_never_matches_is_not_held(table: NegativeTable) -> None:
    assert table.change({SubId(1): parse("x > 5 AND x < 3")}, ()) == []
    with pytest.raises(RemoteProtocolError):
        table.learn(NORTH, Update(drop=(ItemId(7),)))
    assert told(table, SOUTH) == []
