"""Tables of label sets, as sentences."""

from __future__ import annotations

import pytest

from weft import Schema, parse
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.interest.curve_range import CurveRange
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import LabelSet
from weft.routing.dls import DlsTable
from weft.routing.table import Exactness, ItemId, Link, Role, Tell, Update
from weft.space.grid import Grid
from weft.space.label_space import LabelSpace

NORTH, SOUTH = Link("north"), Link("south")
SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("x", "y")}})
SPACE = LabelSpace([Grid.uniform(SCHEMA, cells=16)])
WIDE, NARROW = parse("x BETWEEN 10 AND 40 AND y < 50"), parse("x BETWEEN 12 AND 30 AND y < 40")


@pytest.fixture
def table() -> DlsTable:
    return attached(DlsTable(SPACE))


def attached(made: DlsTable) -> DlsTable:
    for link in (NORTH, SOUTH):
        made.attach(link)
    return made


def labels(tells: list[Tell], link: Link) -> list[int]:
    return [label for tell in tells if tell.link == link for item in tell.update.add.values() for label in item.labels]  # type: ignore[union-attr]


def test_only_new_labels_are_told(table: DlsTable) -> None:
    told = labels(table.change({SubId(1): NARROW}, ()), NORTH)
    more = labels(table.change({SubId(2): WIDE}, ()), NORTH)
    assert sorted(told) == SPACE.labels(NARROW).tolist()
    assert set(more) == set(SPACE.labels(WIDE).tolist()) - set(told)
    table.check()


def test_what_others_want_stays_when_one_goes(table: DlsTable) -> None:
    table.change({SubId(1): WIDE, SubId(2): NARROW}, ())
    table.change({}, [SubId(1)])
    left = [label for item in table.told(NORTH).values() for label in item.labels]  # type: ignore[union-attr]
    assert sorted(left) == SPACE.labels(NARROW).tolist()
    table.change({}, [SubId(2)])
    assert not table.told(NORTH)
    table.check()


def test_local_interest_reaches_a_neighbour_that_told_the_same(table: DlsTable) -> None:
    """One filter for the whole broker would hold it back (errata, DLS 5)."""
    mine = LabelSet(tuple(SPACE.labels(WIDE).tolist()))
    told = table.learn(NORTH, Update(add={ItemId(1): mine}))
    assert [tell.link for tell in told] == [SOUTH]
    assert labels(table.change({SubId(1): WIDE}, ()), NORTH) == list(mine.labels)


@pytest.mark.parametrize("shape", [None, FilterShape(1 << 12)])
def test_what_a_neighbour_drops_is_not_sent_to_it(shape: FilterShape | None) -> None:
    table = attached(DlsTable(SPACE, shape=shape))
    table.learn(NORTH, Update(add={ItemId(1): LabelSet(tuple(SPACE.labels(WIDE).tolist()))}))
    assert table.route({"x": 20, "y": 20}, None) == {NORTH}
    table.learn(NORTH, Update(drop=(ItemId(1),)))
    assert table.route({"x": 20, "y": 20}, None) == set()
    assert table.route_batch([{"x": 20, "y": 20}], None) == {}
    table.check()


def test_ends_that_differ_are_seen_in_their_parameters() -> None:
    tables = [
        DlsTable(SPACE),
        DlsTable(LabelSpace([Grid.uniform(SCHEMA, cells=15)])),
        DlsTable(LabelSpace(SPACE.grids, most=9)),
        DlsTable(SPACE, shape=FilterShape(1 << 10)),
        DlsTable(SPACE, shape=FilterShape(1 << 11)),
        DlsTable(SPACE, shape=FilterShape(1 << 10, seed=1)),
        DlsTable(SPACE, shape=FilterShape(1 << 10, hashes=5)),
        DlsTable(SPACE, shape=FilterShape(1 << 10, bits=8)),
    ]
    known = {(table.exactness, tuple(table.parameters.items())) for table in tables}
    assert len(known) == len(tables)
    assert DlsTable(SPACE).parameters == DlsTable(LabelSpace.from_json(SPACE.to_json())).parameters
    assert [table.exactness for table in tables[2:4]] == [Exactness.CELLS, Exactness.HASHED]


def test_a_full_filter_is_told_of_and_tidied() -> None:
    table = attached(DlsTable(SPACE, shape=FilterShape(8, 2), rate=1.0))
    wanted = SPACE.labels("x > 0").tolist()
    table.learn(NORTH, Update(add={ItemId(1): LabelSet(tuple(wanted)), ItemId(2): LabelSet(tuple(wanted[:1]))}))
    assert table.saturated(NORTH) > 0
    table.learn(NORTH, Update(drop=(ItemId(1),)))
    assert table.saturated(NORTH) > 0
    assert table.route({"x": 50, "y": 50}, SOUTH) == {NORTH}  # a false positive: nobody wants it
    table.tidy(budget=100)
    assert table.saturated(NORTH) == 0
    assert table.route({"x": 50, "y": 50}, SOUTH) == set()
    table.check()


def test_a_filter_grows_with_what_is_heard() -> None:
    table = attached(DlsTable(SPACE, shape=FilterShape(4, 2), rate=0.01))
    small = table.memory(NORTH)[0]
    wanted = SPACE.labels("x > 50 AND y > 50").tolist()
    table.learn(NORTH, Update(add={ItemId(1): LabelSet(tuple(wanted))}))
    assert table.memory(NORTH)[0] > small
    assert table.route({"x": 60, "y": 70}, None) == {NORTH}
    assert table.route({"x": 20, "y": 20}, None) == set()
    assert list(table.route_batch([{"x": 60, "y": 70}, {"x": 20}], None)[NORTH]) == [0]
    table.check()


@pytest.mark.parametrize(
    "item",
    [
        LabelSet(()),
        LabelSet((5,)),
        LabelSet((-1,)),
        LabelSet((1 << 70,)),
        LabelSet(tuple(SPACE.labels("x > 50").tolist()[::-1])),
        LabelSet(tuple(SPACE.labels("x > 50").tolist()[:1] * 2)),
        CurveRange(0, 1, 2),
        parse("x > 5"),
    ],
)
def test_what_is_no_label_set_is_refused(table: DlsTable, item: object) -> None:
    with pytest.raises(RemoteProtocolError, match="north"):
        table.learn(NORTH, Update(add={ItemId(1): item}))  # type: ignore[dict-item]
    assert not table.heard(NORTH)
    table.check()


def test_bad_settings_are_refused() -> None:
    for bad in ({"rate": 0.0}, {"rate": 2.0}, {"bundle": 0}):
        with pytest.raises(LocalProtocolError):
            DlsTable(SPACE, **bad)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="no advertisements"):
        DlsTable(SPACE).advertise({}, ())


def test_a_retuned_grid_replaces_the_old_one_in_one_update(table: DlsTable) -> None:
    table.change({SubId(1): WIDE, SubId(2): parse("FALSE")}, ())
    before = table.parameters
    number = table.accept(Grid.uniform(SCHEMA, cells=64))
    assert table.parameters != before
    assert labels(table.change({SubId(3): NARROW}, ()), NORTH) == []  # mapped to the old grid still
    tells = table.retune(number)
    wide, narrow = (table.space.labels(each, number).tolist() for each in (WIDE, NARROW))
    assert set(labels(tells, NORTH)) == {*wide, *narrow}
    assert [len(tell.update.drop) > 0 for tell in tells] == [True, True]
    assert table.learn(NORTH, Update(add={ItemId(1): LabelSet(tuple(narrow))})) == []  # we want it all already
    assert table.route({"x": 20, "y": 20}, None) == {NORTH}
    table.check()
    for none in ((), (number + 1,), (-1,)):
        with pytest.raises(LocalProtocolError, match="applications"):
            table.retune(*none)


def test_a_master_gets_every_event() -> None:
    table = DlsTable(SPACE)
    table.attach(NORTH, Role.MASTER)
    table.attach(SOUTH, Role.SLAVE)
    assert table.memory(SOUTH)[1] == 0
    assert table.route({"x": 1}, SOUTH) == {NORTH}
    assert list(table.route_batch([{"x": 1}, {}], SOUTH)[NORTH]) == [0, 1]
    table.check()
