"""The table of curve ranges: what is told and withdrawn, groups, and what two ends must agree on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.errors import LocalProtocolError, RemoteProtocolError, SchemaError
from weft.index.base import SubId
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing.adverts import Advertised
from weft.routing.mics.items import CurveRange
from weft.routing.mics.table import MicsTable
from weft.routing.table import About, ClientId, Exactness, ItemId, Link, Role, Update
from weft.space.content import ContentSpace
from weft.space.grid import Grid
from weft.space.range_set import RangeSet

NORTH, SOUTH = Link("north"), Link("south")


def schema(*names: str) -> Schema:
    return Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in names}})


def space(*names: str, cells: int = 16) -> ContentSpace:
    return ContentSpace(Grid.uniform(schema(*names), cells))


def told(table: Any, link: Link) -> RangeSet:
    return RangeSet.of(*((item.start, item.end) for item in table.told(link).values()))


@pytest.fixture
def table() -> MicsTable:
    table = MicsTable([space("x", "y")])
    table.attach(NORTH)
    table.attach(SOUTH)
    return table


def test_only_what_is_new_is_told_and_only_what_is_unneeded_withdrawn(table: MicsTable) -> None:
    wide, part = parse("x BETWEEN 0 AND 50"), parse("x BETWEEN 10 AND 20 AND y > 3")
    more = parse("x BETWEEN 40 AND 70")
    tells = table.change({SubId(1): wide}, ())
    assert sorted(tell.link for tell in tells) == [NORTH, SOUTH]
    assert table.change({SubId(2): part}, ()) == [], "covered"
    before = told(table, NORTH)
    table.change({SubId(3): more}, ())
    assert told(table, NORTH) - before == table.spaces[0].ranges(more) - before
    table.change({}, [SubId(1)])
    assert told(table, NORTH) == table.spaces[0].ranges(part) | table.spaces[0].ranges(more)
    assert table.change({}, [SubId(2), SubId(3)])
    assert not table.told(NORTH)
    table.check()


def test_what_a_neighbour_wants_goes_to_the_others(table: MicsTable) -> None:
    (tell,) = table.learn(NORTH, Update(add={ItemId(1): CurveRange(0, 5, 9)}))
    assert tell.link == SOUTH
    assert told(table, SOUTH) == RangeSet.of((5, 9))
    assert not table.told(NORTH)
    assert table.learn(SOUTH, Update(add={ItemId(1): CurveRange(0, 8, 12)}))[0].link == NORTH
    table.detach(NORTH)
    assert not table.told(SOUTH)
    table.check()


def test_pieces_are_united_when_the_table_tidies(table: MicsTable) -> None:
    bounds = list(range(0, 100, 5))
    for number, (low, high) in enumerate(pairwise(bounds)):
        table.change({SubId(number): parse(f"x BETWEEN {low} AND {high}")}, ())
    before, pieces = told(table, NORTH), len(table.told(NORTH))
    table.step(10_000)
    assert told(table, NORTH) == before
    assert len(table.told(NORTH)) < pieces
    table.check()


def test_an_event_goes_where_its_cell_is_wanted(table: MicsTable) -> None:
    wanted = parse("x BETWEEN 30 AND 40 AND y < 50")
    for number, (start, end) in enumerate(table.spaces[0].ranges(wanted)):
        table.learn(SOUTH, Update(add={ItemId(number): CurveRange(0, start, end)}))
    assert table.route({"x": 35, "y": 10}, None) == {SOUTH}
    assert table.route({"x": 35, "y": 10}, SOUTH) == set()
    assert table.route({"x": 35}, None) == set()
    assert table.route({"x": 35, "y": -7}, NORTH) == {SOUTH}
    batch = table.route_batch([{"x": 35, "y": 10}, {}, {"x": 31, "y": 2}], None)
    assert {link: places.tolist() for link, places in batch.items()} == {SOUTH: [0, 2]}
    assert table.route_batch([], None) == {}


@given(data=st.data())
@thorough(40)
def test_groups_must_all_agree(data: st.DataObject) -> None:
    """Two curves: nothing that a subscription wants is lost, and all is withdrawn in the end (MICS 8)."""
    table = MicsTable([space("x", "y", cells=8), space("z", cells=8)])
    table.attach(NORTH)
    other = MicsTable(table.spaces)
    other.attach(SOUTH)
    tests = ("x > 50", "x BETWEEN 10 AND 30", "y < 20", "z > 90", "z BETWEEN 0 AND 40", "z IS NULL", "TRUE")
    chosen = data.draw(st.lists(st.lists(st.sampled_from(tests), min_size=1, max_size=3), min_size=1, max_size=6))
    filters = {SubId(n): parse(" AND ".join(each)) for n, each in enumerate(chosen)}
    for tell in table.change(filters, ()):
        other.learn(SOUTH, tell.update)
    kept = {sub: wanted for sub, wanted in filters.items() if data.draw(st.booleans())}
    for tell in table.change({}, [sub for sub in filters if sub not in kept]):
        other.learn(SOUTH, tell.update)
    table.check()
    other.check()
    from weft.language.meaning import matches

    for x, y, z in data.draw(
        st.lists(st.tuples(*[st.sampled_from((None, -1, 0, 15, 35, 60, 95, "?"))] * 3), max_size=30)
    ):
        event = {name: value for name, value in (("x", x), ("y", y), ("z", z)) if value is not None}
        if any(matches(wanted, event) for wanted in kept.values()):
            assert other.route(event, None) == {SOUTH}
    for tell in table.change({}, list(kept)):
        other.learn(SOUTH, tell.update)
    assert not table.told(NORTH)
    assert other.route({"x": 60}, None) == set()


def test_the_default_needs_a_schema_with_bounds_and_no_more() -> None:
    table = MicsTable.of(schema("a", "b", "c", "d"))
    assert [each.grid.names for each in table.spaces] == [("a", "b", "c"), ("d",)]
    with pytest.raises(SchemaError, match="'open' has no bounds"):
        MicsTable.of(Schema.from_dict({"attributes": {"open": "float"}}))
    with pytest.raises(LocalProtocolError, match="needs a content space"):
        MicsTable([])
    for gap in (-1, 1 << 70):
        with pytest.raises(LocalProtocolError, match="the gap is"):
            MicsTable([space("x")], gap=gap)


def test_ends_with_other_grids_are_told_apart() -> None:
    one, other = MicsTable([space("x", cells=16)]), MicsTable([space("x", cells=8)])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == MicsTable([space("x", cells=16)]).fingerprint
    wider = MicsTable([space("x", cells=16)], gap=4)
    assert wider.exactness is Exactness.WIDER, "with gaps more is told than is wanted"
    assert one.fingerprint != wider.fingerprint


@pytest.mark.parametrize(
    "item", [CurveRange(1, 0, 1), CurveRange(0, 3, 2), CurveRange(0, -1, 2), CurveRange(0, 0, 1 << 40), "x > 5"]
)
def test_a_range_of_other_curves_is_refused(table: MicsTable, item: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="not a range of our curves"):
        table.learn(NORTH, Update(add={ItemId(1): item}))
    assert not table.heard(NORTH)
    table.check()


def test_wrong_calls_change_nothing(table: MicsTable) -> None:
    table.change({SubId(1): parse("x > 50")}, ())
    with pytest.raises(LocalProtocolError, match="already exists"):
        table.change({SubId(1): parse("x > 60")}, ())
    with pytest.raises(LocalProtocolError, match="no subscription 7"):
        table.change({}, [SubId(7)])
    with pytest.raises(LocalProtocolError, match="no advertisements"):
        table.advertise(ClientId("here"), {}, ())
    table.check()


def test_a_filter_that_never_matches_is_kept_but_not_told(table: MicsTable) -> None:
    assert table.change({SubId(1): parse("x > 5 AND x < 3")}, ()) == []
    assert table.change({SubId(1): parse("x > 5")}, [SubId(1)])
    table.check()


def test_a_master_gets_every_event_and_the_slaves_wishes() -> None:
    table = MicsTable([space("x")], refresh=True)
    table.attach(NORTH, Role.PARENT)
    table.attach(SOUTH, Role.CHILD)
    table.learn(SOUTH, Update(add={ItemId(1): CurveRange(0, 3, 4)}))
    assert told(table, NORTH) == RangeSet.of((3, 4))
    assert NORTH in table.route({"x": 1}, None)
    assert table.route_batch([{"x": 1}], None)[NORTH].tolist() == [0]
    assert table.step(9)[-1].update.fresh


def test_ranges_wait_for_an_advertisement_that_they_meet() -> None:
    table = Advertised(MicsTable([space("x")]))
    table.attach(NORTH)
    table.change({SubId(1): parse("x BETWEEN 70 AND 80")}, ())
    table.learn(NORTH, Update(About.ADVERTISEMENTS, add={ItemId(1): parse("x < 20"), ItemId(2): parse("x > x")}))
    assert not table.told(NORTH)
    table.learn(NORTH, Update(About.ADVERTISEMENTS, add={ItemId(3): parse("x > 75")}))
    assert table.told(NORTH)
