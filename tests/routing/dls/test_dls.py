"""Tables of label sets, as sentences."""

from __future__ import annotations

import pytest

from weft import Schema, parse
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.routing.dls import incoming as heard_labels
from weft.routing.dls import table as overlap
from weft.routing.dls.items import LabelSet, Note, Retuning, Stage, Switch
from weft.routing.dls.label_sides import LabelSides
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.dls.table import DlsTable
from weft.routing.mics.items import CurveRange
from weft.routing.table import ClientId, Exactness, ItemId, Link, Role, Tell, Update
from weft.space.grid import Grid

NORTH, SOUTH = Link("north"), Link("south")
SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("x", "y")}})
SPACE = LabelSpace([Grid.uniform(SCHEMA, cells=16)])
FINER = LabelSpace([Grid.uniform(SCHEMA, cells=64)])
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
        DlsTable(SPACE, shape=FilterShape(1 << 10), rate=0.5),
        DlsTable(SPACE, side=1),
    ]
    assert len({table.fingerprint for table in tables}) == len(tables)
    assert DlsTable(SPACE).fingerprint == DlsTable(LabelSpace.from_json(SPACE.to_json())).fingerprint
    assert [table.exactness for table in tables[2:4]] == [Exactness.CELLS, Exactness.HASHED]


def pair(**options: object) -> tuple[DlsTable, DlsTable]:
    """A teller and its neighbour, each the only link of the other."""
    here, there = (DlsTable(SPACE, **options) for _ in range(2))  # type: ignore[arg-type]
    pass_on(here.attach(NORTH), there_after_attaching(there))
    return here, there


def there_after_attaching(there: DlsTable) -> DlsTable:
    there.attach(SOUTH)
    return there


def pass_on(tells: list[Tell], there: DlsTable) -> list[Update]:
    for tell in tells:
        there.learn(SOUTH, tell.update)
    return [tell.update for tell in tells]


def test_a_full_filter_is_told_of_and_tidied_at_both_ends() -> None:
    here, there = pair(shape=FilterShape(32, 2), rate=1.0)
    pass_on(here.change({SubId(1): parse("x > 0 AND y > 0"), SubId(2): parse("x > 99 AND y > 99")}, ()), there)
    assert there.saturated(SOUTH) > 0
    pass_on(here.change({}, [SubId(1)]), there)
    assert there.saturated(SOUTH) > 0
    strangers = [{"x": n, "y": 50} for n in range(0, 90, 5)]
    false = len(there.route_batch(strangers, None)[SOUTH])  # nobody wants any
    there.step(100)  # not the receiver's to do: its filter would differ from its twin
    assert there.saturated(SOUTH) > 0
    (update,) = pass_on(here.step(100), there)
    assert update.notes == (Switch(1, 32),)
    assert there.saturated(SOUTH) == 0
    assert len(there.route_batch(strangers, None).get(SOUTH, ())) < false
    assert here.filter_told(NORTH) == there.filter_heard(SOUTH)
    assert here.step(100) == []
    here.check()
    there.check()


def test_a_fresh_update_frees_both_ends() -> None:
    here, there = pair(shape=FilterShape(32, 2), rate=1.0)
    pass_on(here.change({SubId(1): parse("x > 0 AND y > 0"), SubId(2): parse("x > 99 AND y > 99")}, ()), there)
    pass_on(here.change({}, [SubId(1)]), there)
    assert there.saturated(SOUTH) > 0
    pass_on(here.attach(NORTH), there)
    assert there.saturated(SOUTH) == 0
    assert here.filter_told(NORTH) == there.filter_heard(SOUTH)


def test_a_filter_grows_with_the_update_that_asks_for_it() -> None:
    here, there = pair(shape=FilterShape(4, 2), rate=0.01)
    small = there.memory(SOUTH)[0]
    (update,) = pass_on(here.change({SubId(1): parse("x > 50 AND y > 50")}, ()), there)
    (switch,) = update.notes
    assert switch == Switch(1, there.memory(SOUTH)[0] * 2)  # two counters a byte
    assert update.add
    assert there.memory(SOUTH)[0] > small
    assert there.route({"x": 60, "y": 70}, None) == {SOUTH}
    assert there.route({"x": 20, "y": 20}, None) == set()
    assert list(there.route_batch([{"x": 60, "y": 70}, {"x": 20}], None)[SOUTH]) == [0]
    (fresh,) = here.attach(NORTH)
    assert fresh.update.notes == (switch,)  # who knows nothing hears of the size as well
    (shrunk,) = pass_on(here.change({}, [SubId(1)]), there)
    assert shrunk.notes == (Switch(2, 4),)
    assert there.memory(SOUTH)[0] == small
    assert here.filter_told(NORTH) == there.filter_heard(SOUTH)
    there.check()


@pytest.mark.parametrize(
    "notes",
    [
        (Switch(2, 32),),
        (Switch(1, 2),),
        (Switch(1, 33),),
        (Switch(1, 1 << 40),),
        (Switch(1, 32), Switch(2, 64)),
        (Retuning("{}", Stage.OFFERED),),
        (Retuning("[1, 2, 3]", Stage.OFFERED),),
        (Retuning(FINER.to_json().replace("[256, ", "[4611686018427387904, ", 1), Stage.OFFERED),),
        (Retuning(FINER.to_json(), Stage.UNAWARE),),
        (Retuning(FINER.to_json(), 7),),  # type: ignore[arg-type]
        (Retuning(FINER.to_json(), Stage.OFFERED), Retuning(FINER.to_json(), Stage.DONE)),
    ],
)
def test_notes_that_cannot_be_are_refused(notes: tuple[Note, ...]) -> None:
    table = attached(DlsTable(SPACE, shape=FilterShape(16)))
    mine = LabelSet(tuple(SPACE.labels(WIDE).tolist()))
    with pytest.raises(RemoteProtocolError, match="north"):
        table.learn(NORTH, Update(add={ItemId(1): mine}, notes=notes))
    assert not table.heard(NORTH)
    assert not table.retuning
    table.check()


def test_a_switch_needs_a_filter(table: DlsTable) -> None:
    with pytest.raises(RemoteProtocolError, match="agreed"):
        table.learn(NORTH, Update(notes=(Switch(1, 32),)))


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
def test_an_invalid_label_set_is_refused(table: DlsTable, item: object) -> None:
    with pytest.raises(RemoteProtocolError, match="north"):
        table.learn(NORTH, Update(add={ItemId(1): item}))  # type: ignore[dict-item]
    assert not table.heard(NORTH)
    table.check()


def test_bad_settings_are_refused() -> None:
    for bad in ({"rate": 0.0}, {"rate": 2.0}, {"bundle": 0}):
        with pytest.raises(LocalProtocolError):
            DlsTable(SPACE, **bad)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="no advertisements"):
        DlsTable(SPACE).advertise(ClientId("here"), {}, ())


def test_a_master_gets_every_event() -> None:
    table = DlsTable(SPACE)
    table.attach(NORTH, Role.PARENT)
    table.attach(SOUTH, Role.CHILD)
    assert table.memory(SOUTH)[1] == 0
    assert table.route({"x": 1}, SOUTH) == {NORTH}
    assert list(table.route_batch([{"x": 1}, {}], SOUTH)[NORTH]) == [0, 1]
    table.check()


def test_a_neighbour_with_too_many_levels_gets_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    space = LabelSpace([Grid.uniform(SCHEMA, cells=16)], most=2)
    table = attached(DlsTable(space))
    texts = ("x > 90 AND y > 90", "y > 90", "x > 93 AND x < 99", "x < 60 AND y > 50")
    sets = {ItemId(n): LabelSet(tuple(space.labels(text).tolist())) for n, text in enumerate(texts)}
    monkeypatch.setattr(heard_labels, "MOST_LEVELS", 2)
    far = {"x": 70, "y": 1}
    for number, item in sets.items():
        table.learn(NORTH, Update(add={number: item}))
        heard = table.incoming[NORTH]
        assert heard.levels.size <= 2
        assert (table.route(far, SOUTH) == {NORTH}) == heard.everything == (len(table.route_batch([far], SOUTH)) == 1)
        assert table.route({"x": 99, "y": 99}, SOUTH) == {NORTH}
        table.check()
    assert heard.everything
    assert len(table.reasons({"x": 99, "y": 99}, NORTH, 9)) == 0  # it gets it, whatever it has told
    table.learn(NORTH, Update(drop=(ItemId(1), ItemId(2), ItemId(3))))
    assert not heard.everything
    assert (table.route(far, SOUTH), table.route({"x": 99, "y": 99}, SOUTH)) == (set(), {NORTH})
    table.check()


def test_a_large_label_set_is_not_compared_with_advertisements(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = LabelSides.of(SPACE)
    compares = overlap.LabelOverlap(lambda: sides)
    far = LabelSet(tuple(SPACE.labels("x > 90 AND y > 90").tolist()))
    promised = compares.promise(parse("x < 20 AND y < 20"))
    seen = compares.see(far)
    assert seen is not None
    assert not compares.meets(seen, promised)
    monkeypatch.setattr(overlap, "_AT_ONCE", 2)
    assert not compares.meets(seen, promised)
    assert compares.meets(seen, compares.promise(parse("x > 95")))
    monkeypatch.setattr(overlap, "_MOST_COMPARED", 1)
    assert compares.meets(seen, promised)  # not disproved
    monkeypatch.setattr(overlap, "_MOST_LABELS", 0)
    assert compares.see(far) is None
    assert compares.meets(None, promised)
