"""Another label space, while a network runs: nothing is lost, and of the old one nothing is left."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from routing.machine import MOST_STEPS, Network, brokers
from routing.models import LABELS, PREDICATES, SPACE, Model, small_index
from strategies import EVENTS, EXAMPLES, thorough
from weft import Schema, parse
from weft.algebra.relate import as_form, is_empty
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.dls.items import LabelSet, Retuning, Stage
from weft.routing.dls.label_sides import LabelSides
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.dls.table import DlsTable
from weft.routing.simple.table import SimpleTable
from weft.routing.table import About, Heard, Item, ItemId, Kept, Link, Role, RoutingTable, Tell, Update
from weft.space import Grid

# The spaces take turns, so each has its side; they differ in all that spaces can differ in.
TURNS = (LABELS, LabelSpace([Grid(SPACE.grid.dimensions[1:])], most=4, parts=1))
BOTH = LabelSides(TURNS)
_known: dict[bytes, int] = {}


def labelled(item: Item) -> int:
    """The events of EVENTS that have one of a set of labels, or that a filter's cells hold in either space."""
    if isinstance(item, LabelSet):
        wanted = np.array(item.labels, np.int64)
    elif is_empty(item):
        return 0
    else:
        wanted = np.concatenate([BOTH.labels(as_form(item), side) for side in (0, 1)])
    key = wanted.tobytes()
    if key not in _known:
        inside = np.isin(BOTH.of_events(EVENTS, BOTH.levels(wanted)), wanted).any(axis=1)
        _known[key] = sum(1 << int(at) for at in inside.nonzero()[0])
    return _known[key]


def inner(table: RoutingTable) -> DlsTable:
    found = table.table if isinstance(table, Advertised) else table
    assert isinstance(found, DlsTable)
    return found


class RetunedNetwork(Network):
    """Spaces change now and then, somewhere, in the midst of everything else."""

    @rule(broker=brokers, steps=st.integers(0, 8))
    def retune(self, broker: int, steps: int) -> None:
        """Anywhere, unless a change is under way; others may still wait to hear that the last one is over."""
        name = self.names[broker % len(self.names)]
        table = self.overlay.table(name)
        assert isinstance(table, DlsTable | Advertised)
        reached = [inner(self.overlay.table(other)) for other in self.overlay.reachable(name)]
        if not inner(table).retuning and all(each.sides.coming is None for each in reached):
            assert len({each.sides.side for each in reached}) == 1, "over, but not everywhere"
            self.overlay._send(name, table.retune(TURNS[1 - inner(table).sides.side]))
        for _ in range(steps):
            self.overlay.step()
            self.laws_hold()

    @rule(broker=brokers, at=st.integers(0, len(EVENTS) - 1))
    def retune_under_fire(self, broker: int, at: int) -> None:
        """Events between all the messages that a change of spaces takes."""
        self.overlay.settle(MOST_STEPS)
        self.look()
        self.retune(broker, 0)
        while not self.overlay.quiet:
            self.publish(broker + at, at, wanted=True)
            for _ in range(3):
                self.overlay.step()
            self.laws_hold()
            at += 1
            if at % 40 == 0:
                self.overlay.settle(MOST_STEPS)

    def connect(self, one: BrokerId, other: BrokerId, up: bool) -> None:
        """As the handshake allows it: with the same space, and no other on its way."""
        tables = [
            inner(self.overlay.table(name)) for name in self.overlay.reachable(one) | self.overlay.reachable(other)
        ]
        if not any(table.retuning for table in tables) and len({table.sides.side for table in tables}) == 1:
            super().connect(one, other, up)

    @precondition(lambda self: hasattr(self, "overlay") and self.overlay.quiet)
    @rule()
    def one_space_is_left(self) -> None:
        self.look_for_old_labels()

    def look_for_old_labels(self) -> None:
        for name in self.names:
            table = inner(self.overlay.table(name))
            assert not table.retuning, "nothing is in flight, and yet somebody waits"
            assert [space is not None for space in table.sides.spaces] == [table.sides.side == side for side in (0, 1)]
            for link in map(Link, self.overlay.links(name)):
                for item in (*table.told(link).values(), *table.heard(link).values()):
                    assert isinstance(item, LabelSet)
                    assert {label >> 62 for label in item.labels} == {table.sides.side}
            for near in self.overlay.reachable(name):
                assert inner(self.overlay.table(near)).fingerprint == table.fingerprint

    def teardown(self) -> None:
        if hasattr(self, "overlay"):
            self.overlay.settle(MOST_STEPS)
            self.look_for_old_labels()
        super().teardown()


@pytest.mark.parametrize("hierarchical", [False, True], ids=["peers", "hierarchy"])
@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("shape", [None, FilterShape(4, 2)], ids=["exact", "hashed"])
def test_nothing_is_lost_while_spaces_change(shape: FilterShape | None, advertised: bool, hierarchical: bool) -> None:
    model = Model(
        lambda: DlsTable(LABELS, shape=shape, rate=0.3, bundle=2, predicates=PREDICATES), admits=labelled, loose=True
    )
    options = {"model": model, "advertised": advertised, "hierarchical": hierarchical}
    machine = type("Retuned", (RetunedNetwork,), options)
    run_state_machine_as_test(machine, settings=settings(thorough(3), stateful_step_count=30))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("shape", [None, FilterShape(16, 3)], ids=["exact", "hashed"])
@pytest.mark.parametrize("seed", range(2 if EXAMPLES == 1 else 6 * EXAMPLES))
def test_random_trees_change_under_updates_and_events(seed: int, shape: FilterShape | None) -> None:
    """Twice, begun at one broker or at two; subscriptions come and go, and events are published, between messages."""
    rng = np.random.default_rng(seed)
    names = [BrokerId(f"b{number}") for number in range(int(rng.integers(2, 9)))]
    overlay = TableNetwork(names, lambda: DlsTable(OLD, shape=shape, rate=0.1, bundle=5), rng)
    for number in range(1, len(names)):
        overlay.attach(names[number], names[int(rng.integers(number))])
    boxes: dict[SubId, np.ndarray[Any, Any]] = {}
    passing: dict[SubId, BrokerId] = {}

    def subscribe(sub: SubId, at: BrokerId) -> None:
        low = rng.uniform(0, 70, 2).round(1)
        boxes[sub] = np.array([low, low + 25])
        (a, b), (c, d) = boxes[sub].T.tolist()
        overlay.subscribe(at, sub, parse(f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}"))

    for number in range(2 * len(names)):
        subscribe(SubId(number), names[number % len(names)])
    staying = [*boxes]
    overlay.settle()
    events: dict[int, np.ndarray[Any, Any]] = {}
    both = 0  # moments at which somebody had two spaces, and somebody else one
    for space in (NEW, OLD):
        for name in rng.choice(names, int(rng.integers(1, 3))).tolist():
            overlay._send(BrokerId(name), inner(overlay.table(BrokerId(name))).retune(space))
        while not overlay.quiet:
            act = rng.random() * len(names)  # less is begun than arrives, or there would be no end
            if act < 0.4:
                point = rng.uniform(0, 100, 2)
                number = overlay.publish(names[int(rng.integers(len(names)))], dict(zip("xy", point, strict=True)))
                events[number] = point
            elif act < 0.55:
                sub = SubId(len(boxes))
                passing[sub] = names[int(rng.integers(len(names)))]
                subscribe(sub, passing[sub])
            elif act < 0.7 and passing:
                sub, at = passing.popitem()
                overlay.unsubscribe(at, sub)
            overlay.step()
            both += len({inner(overlay.table(name)).retuning for name in names}) == 2
        overlay.check()
        for name in names:
            table = inner(overlay.table(name))
            assert not table.retuning
            assert table.space == space
            assert table.sides.coming is None
    got = Counter((delivery.number, delivery.sub) for delivery in overlay.deliveries if delivery.sub in set(staying))
    due = {
        (n, sub) for n, at in events.items() for sub in staying if ((boxes[sub][0] <= at) & (at <= boxes[sub][1])).all()
    }
    assert got.keys() == due, "an event was lost"
    assert set(got.values()) <= {1}
    assert both > 0


# -- as sentences -------------------------------------------------------------------------------------

NORTH, SOUTH = Link("north"), Link("south")
SCHEMA = Schema.from_dict({"attributes": {name: {"type": "float", "bounds": [0, 100]} for name in ("x", "y")}})
OLD, NEW = (LabelSpace([Grid.uniform(SCHEMA, cells)]) for cells in (16, 64))
WIDE, NARROW = parse("x BETWEEN 10 AND 40 AND y < 50"), parse("x BETWEEN 12 AND 30 AND y < 40")
BESIDE = LabelSides((OLD, NEW))


def said(tells: list[Tell]) -> list[tuple[Link, Stage]]:
    return [(tell.link, note.stage) for tell in tells for note in tell.update.notes if isinstance(note, Retuning)]


def sides(tells: list[Tell]) -> list[tuple[Link, int, set[int]]]:
    """To whom items are told, how many are dropped, and of which sides the labels are that are added."""
    return [
        (tell.link, len(tell.update.drop), {x >> 62 for item in tell.update.add.values() for x in item.labels})  # type: ignore[union-attr]
        for tell in tells
        if tell.update.drop or tell.update.add
    ]


def stage(stage: Stage, space: LabelSpace = NEW) -> Update:
    return Update(notes=(Retuning(space.to_json(), stage),))


@pytest.fixture
def table() -> DlsTable:
    made = DlsTable(OLD)
    made.attach(NORTH)
    made.attach(SOUTH)
    made.change({SubId(1): WIDE, SubId(2): parse("FALSE")}, ())
    return made


def test_old_labels_go_with_the_update_that_brings_the_new_space(table: DlsTable) -> None:
    told = table.retune(NEW)
    assert sides(told) == [(NORTH, 1, {1}), (SOUTH, 1, {1})]
    assert said(told) == [(NORTH, Stage.OFFERED), (SOUTH, Stage.OFFERED)]
    assert len(told) == 2
    assert sides(table.change({SubId(3): parse("x > 90")}, ())) == [(NORTH, 0, {1}), (SOUTH, 0, {1})]
    assert table.retuning
    assert table.fingerprint == DlsTable(OLD).fingerprint
    table.check()


def test_the_old_space_is_forgotten_when_all_are_done_with_it(table: DlsTable) -> None:
    old, new = (LabelSet(tuple(BESIDE.labels(as_form(NARROW), side).tolist())) for side in (0, 1))
    table.learn(NORTH, Update(add={ItemId(1): old}))
    table.learn(SOUTH, Update(add={ItemId(1): old}))
    table.retune(NEW)
    assert table.route({"x": 20, "y": 20}, None) == {NORTH, SOUTH}
    table.learn(NORTH, Update(drop=(ItemId(1),), add={ItemId(2): new}, notes=stage(Stage.OFFERED).notes))
    assert table.route({"x": 20, "y": 20}, None) == {NORTH, SOUTH}  # in a space each
    assert said(table.learn(NORTH, stage(Stage.DONE))) == [(SOUTH, Stage.DONE)]
    assert table.retuning
    told = table.learn(SOUTH, Update(drop=(ItemId(1),), add={ItemId(2): new}, notes=stage(Stage.DONE).notes))
    assert said(told) == [(NORTH, Stage.DONE)]
    assert table.sides == LabelSides.of(NEW, side=1)
    assert table.fingerprint == DlsTable(NEW, side=1).fingerprint != DlsTable(NEW).fingerprint
    assert table.route({"x": 20, "y": 20}, None) == {NORTH, SOUTH}
    table.check()
    with pytest.raises(RemoteProtocolError, match="not a set of our labels"):
        table.learn(NORTH, Update(add={ItemId(3): old}))
    assert table.retuning  # others may still have the old space
    assert said(table.learn(NORTH, stage(Stage.MOVED))) == [(SOUTH, Stage.MOVED)]
    assert said(table.learn(SOUTH, stage(Stage.MOVED))) == [(NORTH, Stage.MOVED)]
    assert not table.retuning
    table.attach(Link("west"))  # and new neighbours are welcome again


def test_the_counts_of_old_labels_are_gone(table: DlsTable) -> None:
    coarse = LabelSpace([Grid.uniform(SCHEMA, 4)])
    table.change({SubId(n): parse(f"x BETWEEN {n} AND {n + 1} AND y < 50") for n in range(10, 90)}, ())
    before = table.memory(NORTH)[1]
    table.retune(coarse)
    for link in (NORTH, SOUTH):
        table.learn(link, stage(Stage.DONE, coarse))
    assert table.memory(NORTH)[1] < before / 4


def test_a_broker_alone_changes_at_once() -> None:
    table = DlsTable(OLD)
    table.change({SubId(1): WIDE}, ())
    assert table.retune(NEW) == []
    assert table.fingerprint == DlsTable(NEW, side=1).fingerprint
    assert table.retune(OLD) == []
    assert table.fingerprint == DlsTable(OLD).fingerprint
    table.check()


def test_the_space_in_use_is_not_a_change(table: DlsTable) -> None:
    assert table.retune(LabelSpace.from_json(OLD.to_json())) == []
    table.retune(NEW)
    assert table.retune(NEW) == []


def test_one_change_at_a_time(table: DlsTable) -> None:
    table.retune(NEW)
    other = LabelSpace([Grid.uniform(SCHEMA, 5)])
    with pytest.raises(LocalProtocolError, match="in progress"):
        table.retune(other)
    with pytest.raises(RemoteProtocolError, match="one broker"):
        table.learn(NORTH, stage(Stage.OFFERED, other))
    with pytest.raises(LocalProtocolError, match="later"):
        table.attach(Link("west"))
    table.check()


def test_the_next_change_waits_until_everybody_has_removed_the_old_space(table: DlsTable) -> None:
    table.retune(NEW)
    table.learn(NORTH, stage(Stage.MOVED))
    table.learn(SOUTH, stage(Stage.DONE))
    assert table.sides.coming is None
    with pytest.raises(LocalProtocolError, match="in progress"):
        table.retune(OLD)  # what South waits for may be lost with its session
    table.learn(SOUTH, stage(Stage.MOVED))
    assert said(table.retune(OLD)) == [(NORTH, Stage.OFFERED), (SOUTH, Stage.OFFERED)]
    table.check()


def test_the_next_change_says_that_the_last_one_is_over(table: DlsTable) -> None:
    table.retune(NEW)
    table.learn(NORTH, stage(Stage.MOVED))
    table.learn(SOUTH, stage(Stage.DONE))
    assert said(table.learn(SOUTH, stage(Stage.OFFERED, OLD))) == [(NORTH, Stage.OFFERED), (SOUTH, Stage.OFFERED)]
    assert said(table.learn(NORTH, Update(fresh=True, notes=stage(Stage.MOVED).notes))) == []  # it will hear the same
    table.check()


def test_whether_a_change_is_over_survives_a_restart(table: DlsTable) -> None:
    table.retune(NEW)
    for link in (NORTH, SOUTH):
        table.learn(link, stage(Stage.DONE))
    again = DlsTable(OLD)
    again.restore(Kept({}, {}, {link: Heard(Role.PEER, {}, {}) for link in (NORTH, SOUTH)}, table.settings))
    assert again.sides == LabelSides.of(NEW, side=1)
    assert again.retuning
    assert said(again.attach(NORTH)) == [(NORTH, Stage.OFFERED)]
    for link in (NORTH, SOUTH):
        again.learn(link, stage(Stage.MOVED))
    assert not again.retuning


def test_a_neighbour_that_leaves_is_waited_for_no_more(table: DlsTable) -> None:
    assert said(table.learn(NORTH, stage(Stage.OFFERED))) == [(NORTH, Stage.OFFERED), (SOUTH, Stage.OFFERED)]
    assert said(table.detach(SOUTH)) == [(NORTH, Stage.DONE)]
    assert table.retuning
    table.learn(NORTH, stage(Stage.MOVED))
    assert not table.retuning
    table.check()


def test_a_session_that_was_lost_hears_of_the_stage_again(table: DlsTable) -> None:
    table.retune(NEW)
    table.learn(NORTH, stage(Stage.DONE))
    (again,) = table.attach(SOUTH)
    assert again.update.fresh
    assert said([again]) == [(SOUTH, Stage.DONE)]
    lost = DlsTable(OLD)
    lost.attach(NORTH)
    assert said(lost.learn(NORTH, again.update)) == [(NORTH, Stage.MOVED)]  # nobody else is there to wait for
    assert lost.sides == LabelSides.of(NEW, side=1)


def test_who_waits_for_a_word_that_was_lost_is_given_it_again() -> None:
    done = DlsTable(NEW)
    done.attach(NORTH)
    fresh = Update(fresh=True, notes=stage(Stage.DONE).notes)
    assert said(done.learn(NORTH, fresh)) == [(NORTH, Stage.MOVED)]
    assert done.learn(NORTH, stage(Stage.MOVED)) == []  # or two would thank each other for ever
    assert not done.retuning


def test_old_labels_after_done_are_refused(table: DlsTable) -> None:
    table.retune(NEW)
    old = LabelSet(tuple(BESIDE.labels(as_form(NARROW), 0).tolist()))
    table.learn(NORTH, Update(add={ItemId(1): old}))
    with pytest.raises(RemoteProtocolError, match="done"):
        table.learn(NORTH, stage(Stage.DONE))
    table.learn(NORTH, Update(drop=(ItemId(1),), notes=stage(Stage.DONE).notes))
    with pytest.raises(RemoteProtocolError, match="done"):
        table.learn(NORTH, Update(add={ItemId(2): old}))
    table.check()


def test_a_slave_hears_of_it_though_it_is_told_nothing_else() -> None:
    table = DlsTable(OLD)
    table.attach(NORTH, Role.CHILD)
    assert said(table.retune(NEW)) == [(NORTH, Stage.DONE)]
    assert said(table.attach(NORTH, Role.CHILD)) == [(NORTH, Stage.DONE)]
    assert table.told(NORTH) == {}


def test_advertisements_pass_it_on() -> None:
    table = Advertised(DlsTable(OLD), index=small_index)
    table.attach(NORTH)
    table.learn(NORTH, Update(About.ADVERTISEMENTS, add={ItemId(1): parse("x > 50")}))
    table.change({SubId(1): parse("x > 60 AND y > 60"), SubId(2): WIDE}, ())
    assert len(table.told(NORTH)) > 0
    assert not table.retuning
    told = table.retune(NEW)
    assert said(told) == [(NORTH, Stage.DONE)]
    assert [each[0::2] for each in sides(told)] == [(NORTH, {1})]
    assert table.retuning
    wanted = set(BESIDE.labels(as_form(parse("x > 60 AND y > 60")), 1).tolist())
    known = {label for item in table.told(NORTH).values() for label in item.labels}  # type: ignore[union-attr]
    assert wanted <= known
    table.learn(NORTH, stage(Stage.MOVED))
    assert not table.retuning
    table.check()
    table.learn(NORTH, Update(About.ADVERTISEMENTS, fresh=True, add={ItemId(2): parse("x BETWEEN 10 AND 20")}))
    told_now = np.array([label for item in table.told(NORTH).values() for label in item.labels])  # type: ignore[union-attr]
    wanted_now = BESIDE.of_event({"x": 15, "y": 20}, BESIDE.levels(told_now))
    assert np.isin(wanted_now, told_now).any()  # compared in the new space, which the advertisement is newer than
    table.check()


def test_a_table_without_labels_cannot_be_tuned() -> None:
    table = Advertised(SimpleTable(index=small_index), index=small_index)
    assert not table.retuning
    with pytest.raises(LocalProtocolError, match="nothing to re-tune"):
        table.retune(NEW)


def test_all_brokers_of_a_tree_end_with_the_new_space() -> None:
    """A call at one leaf is enough, and it takes three messages per link and direction, or two from whoever has nobody
    else to wait for: the six leaves, and the neighbour of the one that begins.
    """
    names = [BrokerId(f"b{number}") for number in range(9)]
    overlay = TableNetwork(names, lambda: DlsTable(OLD), np.random.default_rng(1))
    for one, other in [*pairwise(names[:5]), *((names[2], each) for each in names[5:])]:
        overlay.attach(one, other)
    overlay.settle()
    before = overlay.counters.updates[About.SUBSCRIPTIONS]
    table = overlay.table(names[0])
    assert isinstance(table, DlsTable)
    overlay._send(names[0], table.retune(NEW))
    overlay.settle()
    assert {overlay.table(name).fingerprint for name in names} == {DlsTable(NEW, side=1).fingerprint}
    assert overlay.counters.updates[About.SUBSCRIPTIONS] - before == 3 * 2 * (len(names) - 1) - 7
