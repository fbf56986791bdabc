"""The laws of one table by itself: what a link tells changes nothing of what it is told; a restart; pending work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.machine import ALL, MOST_STEPS, bits, union
from routing.models import CELLS, KNOWN, LABELS, SPACE, TABLES, Model, small_index
from strategies import EVENTS, filters, thorough
from weft.algebra.relate import as_form
from weft.errors import RemoteProtocolError
from weft.index.base import SubId
from weft.index.events import conformed
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.schema import Schema
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.dls.items import LabelSet
from weft.routing.mapping import Mapper
from weft.routing.merging.table import MergingTable
from weft.routing.mics.items import CurveRange
from weft.routing.registry import MODELS, make_table
from weft.routing.table import About, ClientId, Exactness, Heard, Item, ItemId, Kept, Link, Role, RoutingTable, Update

NORTH, SOUTH, WEST = Link("north"), Link("south"), Link("west")
HERE = ClientId("here")

RESTLESS = [name for name in TABLES if name != "flooding"]


def items_of(name: str, wanted: Filter) -> list[Item]:
    """A filter as a neighbour of the model tells it."""
    form = as_form(wanted)
    if not form:
        return []
    if name.startswith("mics") and not name.startswith("mics-exact"):
        return [CurveRange(0, start, end) for start, end in SPACE.ranges(form)]
    if name.startswith("dls"):
        return [LabelSet(tuple(LABELS.labels(form).tolist()))]
    return [wanted]


def finish(table: RoutingTable) -> None:
    while table.pending:
        table.step(3)


class Neighbour:
    """Tells a table items, under ids that ascend."""

    def __init__(self, table: RoutingTable, link: Link, about: About = About.SUBSCRIPTIONS) -> None:
        self.table, self.link, self.about = table, link, about
        self.told: list[ItemId] = []
        self.next = 1

    def add(self, items: list[Item]) -> None:
        new = {ItemId(self.next + at): item for at, item in enumerate(items)}
        self.next += len(new)
        self.told += new
        self.table.learn(self.link, Update(self.about, add=new))

    def drop(self, which: int) -> None:
        if self.told:
            gone = self.told.pop(which % len(self.told))
            self.table.learn(self.link, Update(self.about, drop=(gone,)))


@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", RESTLESS)
@given(data=st.data())
@thorough(8)
def test_what_a_link_tells_does_not_change_what_it_is_told(name: str, advertised: bool, data: st.DataObject) -> None:
    """Law 5, for subscriptions and for advertisements, whatever the others do between."""
    table: Any = TABLES[name].make()
    if advertised:
        table = Advertised(table, **KNOWN)
    abouts = [About.SUBSCRIPTIONS, *([About.ADVERTISEMENTS] if advertised else [])]
    for link in (NORTH, SOUTH, WEST):
        table.attach(link)
        if advertised:
            table.learn(link, Update(About.ADVERTISEMENTS, add={ItemId(0): parse("TRUE")}))
    neighbours = {(link, about): Neighbour(table, link, about) for link in (NORTH, SOUTH, WEST) for about in abouts}
    finish(table)
    for number in range(data.draw(st.integers(2, 10))):
        if data.draw(st.integers(0, 3)) == 0:
            table.change({SubId(number): data.draw(filters(3))}, ())
            finish(table)
            continue
        link, about = data.draw(st.sampled_from([*neighbours]))
        before = dict(table.told(link, about))
        wanted = data.draw(filters(3))
        if data.draw(st.booleans()):
            neighbours[link, about].add(items_of(name, wanted) if about is About.SUBSCRIPTIONS else [wanted])
        else:
            neighbours[link, about].drop(data.draw(st.integers(0, 5)))
        finish(table)
        assert dict(table.told(link, about)) == before, "(5) an update is answered to its source"
    table.check()


def test_a_network_of_merging_tables_falls_quiet() -> None:
    """Found from outside: told(L) once depended on what L said, and these tables talked for ever."""
    a, b, c, d = map(BrokerId, "abcd")
    for seed in range(20):
        overlay = TableNetwork([a, b, c, d], lambda: MergingTable(index=small_index), np.random.default_rng(seed))
        for one, other in ((a, b), (a, c), (b, d)):
            overlay.attach(one, other)
        wanted = [(a, "y < 0 OR x >= 9"), (a, "y != 4"), (d, "y < 5"), (b, "y != 4")]
        for number, (broker, text) in enumerate(wanted):
            overlay.subscribe(broker, SubId(number), parse(text))
            if seed % 2:
                overlay.settle(MOST_STEPS)
        overlay.settle(200)
        overlay.check()


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("merging")])
@given(data=st.data())
@thorough(6)
def test_merging_networks_fall_quiet_with_changes_between_messages(name: str, data: st.DataObject) -> None:
    """Additions and removals on random trees: each of twelve changes moves few messages."""
    size = data.draw(st.integers(3, 6))
    names = [BrokerId(f"b{number}") for number in range(size)]
    overlay = TableNetwork(names, TABLES[name].make, np.random.default_rng(data.draw(st.integers(0, 99))))
    for number in range(1, size):
        overlay.attach(names[number], names[data.draw(st.integers(0, number - 1))])
    homes: dict[SubId, BrokerId] = {}
    for number in range(12):
        if homes and data.draw(st.integers(0, 4)) == 0:
            sub = data.draw(st.sampled_from([*homes]))
            overlay.unsubscribe(homes.pop(sub), sub)
        else:
            homes[SubId(number)] = data.draw(st.sampled_from(names))
            overlay.subscribe(homes[SubId(number)], SubId(number), data.draw(filters(3)))
        for _ in range(data.draw(st.integers(0, 3))):
            overlay.step()
    overlay.settle(30 * size * 12)
    overlay.check()


# -- restart ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
@thorough(4)
def test_a_restarted_table_tells_what_the_old_one_told(name: str, advertised: bool, data: st.DataObject) -> None:
    """Whatever was held comes back before anybody is told anything; then told admits the same."""
    model: Model = TABLES[name]
    make: Any = (lambda: Advertised(model.make(), **KNOWN)) if advertised else model.make
    old = make()
    links = {NORTH: Role.PEER, SOUTH: Role.PEER}
    for link in links:
        old.attach(link)
    subs = {SubId(n): wanted for n, wanted in enumerate(data.draw(st.lists(filters(3), max_size=4)))}
    old.change(subs, ())
    promised = {SubId(n): wanted for n, wanted in enumerate(data.draw(st.lists(filters(2), max_size=2)))}
    if advertised:
        old.advertise(HERE, promised, ())
    for link in links:
        for wanted in data.draw(st.lists(filters(3), max_size=3)) if name != "flooding" else ():
            neighbour = Neighbour(old, link)
            neighbour.next = 1 + max(old.heard(link), default=0)
            neighbour.add(items_of(name, wanted))
        if advertised:
            old.learn(link, Update(About.ADVERTISEMENTS, add={ItemId(1): data.draw(filters(2))}))
    finish(old)
    heard = {
        link: Heard(role, dict(old.heard(link)), dict(old.heard(link, About.ADVERTISEMENTS)))
        for link, role in links.items()
    }
    new = make()
    new.restore(Kept(subs, {HERE: promised} if advertised else {}, heard, old.settings))
    assert not new.pending
    assert all(dict(new.heard(link)) == dict(old.heard(link)) for link in links)
    for event in EVENTS[::17]:  # events go where they went before any link is attached
        if new.exactness is not Exactness.HASHED:
            assert new.route(event, None) == old.route(event, None)
    for link in data.draw(st.permutations([*links])):
        tells = new.attach(link)
        assert all(tell.update.fresh for tell in tells if tell.link == link)
    finish(new)
    new.check()
    admits = model.admits or bits
    for link in links:
        may = (
            union(old.heard(link, About.ADVERTISEMENTS).values(), admits) if advertised else ALL
        )  # whole bundles are told
        assert union(new.told(link).values(), admits) & may == union(old.told(link).values(), admits) & may
        told = [*old.told(link, About.ADVERTISEMENTS).values()]
        assert union(new.told(link, About.ADVERTISEMENTS).values()) == union(told)
    assert new.fingerprint == old.fingerprint


def test_cells_of_the_models_are_those_of_events() -> None:
    assert len(CELLS) == len(EVENTS)


# -- pending work ----------------------------------------------------------------------------------


def test_a_large_consequence_is_told_over_several_updates_adds_first_and_the_drop_last() -> None:
    from weft.routing.covering.table import CoveringTable

    table = CoveringTable(index=small_index, work=4)
    table.attach(NORTH)
    table.change({SubId(0): parse("x >= 0")}, ())
    for number in range(1, 41):
        assert table.change({SubId(number): parse(f"x BETWEEN {number} AND {number + 0.5}")}, ()) == []
    (wide,) = table.told(NORTH)
    tells = table.change({}, [SubId(0)])
    assert table.pending
    updates = [tell.update for tell in tells]
    while table.pending:
        assert wide in table.told(NORTH), "it is told as long as something below it is not"
        updates += [tell.update for tell in table.step(4)]
    assert [update.drop for update in updates if update.drop] == [(wide,)]
    assert updates[-1].drop == (wide,)
    assert sum(len(update.add) for update in updates) == 40
    assert len(updates) >= 10
    table.check()


def test_what_comes_back_while_it_leaves_stays() -> None:
    from weft.routing.covering.table import CoveringTable

    table = CoveringTable(index=small_index, work=2)
    table.attach(NORTH)
    table.change({SubId(0): parse("x >= 0")}, ())
    table.change({SubId(n): parse(f"x BETWEEN {n} AND {n + 0.5}") for n in range(1, 21)}, ())
    (wide,) = table.told(NORTH)
    table.change({}, [SubId(0)])
    assert table.pending
    table.change({SubId(50): parse("x >= 0")}, ())
    finish(table)
    assert wide in table.told(NORTH)
    table.check()
    table.change({}, [SubId(50)])
    finish(table)
    assert wide not in table.told(NORTH)
    assert len(table.told(NORTH)) == 20
    table.check()


@pytest.mark.parametrize("name", ["simple", "identity", "covering", "merging", "negative", "mics", "dls"])
def test_links_come_and_go_while_work_is_pending(name: str) -> None:
    """Attach, detach and change in the midst of each other's work, piece by piece."""
    model = TABLES[name]
    table = model.make()
    table._jobs._pieces = 1  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    neighbours: dict[Link, Neighbour] = {}
    texts = [
        f"a BETWEEN {low / 8} AND {low / 8 + width / 8} AND b > {b / 4}"
        for low in range(12)
        for width in (1, 3)
        for b in (0, 3)
    ]
    subs: dict[SubId, Filter] = {}
    for turn in range(160):
        choice = int(rng.integers(8))
        wanted = parse(texts[int(rng.integers(len(texts)))])
        link = (NORTH, SOUTH, WEST)[int(rng.integers(3))]
        if choice < 3:
            subs[SubId(turn)] = wanted
            table.change({SubId(turn): wanted}, ())
        elif choice == 3 and subs:
            sub = [*subs][int(rng.integers(len(subs)))]
            del subs[sub]
            table.change({}, [sub])
        elif choice == 4:
            if link not in neighbours:
                neighbours[link] = Neighbour(table, link)
            table.attach(link)
        elif choice == 5 and link in neighbours:
            table.detach(link)
            del neighbours[link]
        elif link in neighbours:
            neighbours[link].add(items_of(name, wanted))
        if turn % 3 == 0:
            table.step(2)
        if turn % 16 == 0:
            table.check()
    finish(table)
    table.check()
    admits = model.admits or bits
    for link in neighbours:
        others = [item for other in neighbours if other != link for item in table.heard(other).values()]
        assert union(table.told(link).values(), admits) == union([*subs.values(), *others], admits)


# -- sessions that begin in parts ----------------------------------------------------------------------


def bands(count: int) -> dict[SubId, Filter]:
    """Filters that no other covers, and that do not merge."""
    return {SubId(n): parse(f"a BETWEEN {n / 8} AND {n / 8 + 0.0625} AND b > {n % 5}") for n in range(count)}


def within(number: int) -> dict[str, float]:
    """An event of one of them."""
    return {"a": number / 8 + 0.03, "b": number % 5 + 1}


@pytest.mark.parametrize("advertised", [False, True], ids=["subscriptions", "advertisements"])
@pytest.mark.parametrize("name", RESTLESS)
def test_a_neighbour_keeps_what_a_restarted_table_has_not_repeated_yet(name: str, advertised: bool) -> None:
    """Found from outside: the first fresh update had a part only, and the neighbour forgot the rest."""
    make: Any = (lambda: Advertised(TABLES[name].make(), **KNOWN)) if advertised else TABLES[name].make
    filters, everything = bands(30), {SubId(0): parse("TRUE")}
    before, neighbour = make(), make()

    def tell(sender: RoutingTable, tells: list[Any]) -> None:
        for told in tells:
            answers = neighbour.learn(SOUTH, told.update)
            for answer in answers:
                tell_back(sender, answer)

    def tell_back(receiver: RoutingTable, answer: Any) -> None:
        tell(receiver, receiver.learn(NORTH, answer.update))

    def meet(table: RoutingTable) -> list[Any]:
        tells = [*table.attach(NORTH)]
        for answer in neighbour.attach(SOUTH):
            tells += table.learn(NORTH, answer.update)
        return tells

    if advertised:
        neighbour.advertise(HERE, everything, ())
    before.change(filters, ())
    tell(before, meet(before))
    while before.pending:
        tell(before, before.step(100))
    assert all(neighbour.route(within(n), None) == {SOUTH} for n in range(30))

    heard = Heard(Role.PEER, dict(before.heard(NORTH)), dict(before.heard(NORTH, About.ADVERTISEMENTS)))
    after = make()
    (after.table if advertised else after)._jobs._pieces = 1
    del filters[SubId(0)]
    after.restore(Kept(filters, {}, {NORTH: heard}, before.settings))
    tells = meet(after)
    parts = 0
    while True:
        parts += sum(told.update.partial for told in tells)
        tell(after, tells)
        assert all(neighbour.route(within(n), None) == {SOUTH} for n in range(1, 30)), "it was forgotten"
        neighbour.check()
        if not after.pending:
            break
        tells = after.step(1)
    assert parts or name == "naive", "everything was told at once"
    assert dict(after.told(NORTH)) == dict(neighbour.heard(SOUTH))
    if TABLES[name].admits is None and neighbour.exactness is Exactness.EXACT:
        assert neighbour.route(within(0), None) == set(), "what is no longer wanted is forgotten in the end"


def test_a_session_that_was_not_begun_cannot_be_continued() -> None:
    table = TABLES["simple"].make()
    table.attach(NORTH)
    with pytest.raises(RemoteProtocolError, match="not begun"):
        table.learn(NORTH, Update(partial=True))
    table.learn(NORTH, Update(fresh=True, add={ItemId(5): parse("x > 5"), ItemId(6): parse("x > 6")}))
    table.learn(NORTH, Update(fresh=True, partial=True, add={ItemId(1): parse("x > 1")}))
    with pytest.raises(RemoteProtocolError, match="has not told"):
        table.learn(NORTH, Update(partial=True, drop=(ItemId(5),)))
    assert table.heard(NORTH).keys() == {1, 5, 6}
    table.learn(NORTH, Update(partial=True, add={ItemId(5): parse("x > 5"), ItemId(6): parse("x < 0")}))
    assert sorted(map(str, table.heard(NORTH).values())) == ["x < 0", "x > 1", "x > 5", "x > 6"]
    table.check()
    table.learn(NORTH, Update())
    assert {number: str(item) for number, item in table.heard(NORTH).items()} == {1: "x > 1", 5: "x > 5", 6: "x < 0"}
    table.check()


# -- under a schema ------------------------------------------------------------------------------------

SCHEMA = Schema.from_dict(
    {
        "attributes": {
            "n": {"type": "int", "bounds": [0, 100]},
            "x": {"type": "float", "bounds": [0, 100]},
            "t": {"type": "timestamp", "bounds": ["2020-01-01", "2020-12-31"]},
        }
    }
)
ODD = [
    None,
    0,
    5,
    19.5,
    20.0,
    -0.0,
    float("nan"),
    True,
    "a",
    150,
    -3,
    2**63 - 1,
    1e300,
    datetime(2020, 5, 1, tzinfo=UTC),
]
TEXTS = [
    "n IS NULL",
    "n IS NOT NULL",
    "n > 5",
    "n = 0",
    "n != 3",
    "NOT n > 5",
    "n = 19.5",
    "x IS NULL",
    "x = 0",
    "x > 5",
]
TEXTS += ["TRUE", "n = x", "n = 'a'", "n", "t IS NULL", "t >= TIMESTAMP '2020-02-01'", "n IS NULL AND x > 5"]


def odd_events() -> list[dict[str, Any]]:
    """Events with values of other types than the schema has, among others."""
    pairs = [{"n": n, "x": x} for n in ODD for x in ODD]
    each = [*pairs, *({"n": 5, "t": t} for t in ODD), {"t": 5, "n": "b", "x": False}]
    return [{name: value for name, value in event.items() if value is not None} for event in each]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("model", [model for model in MODELS if model != "flooding"])
def test_an_event_under_a_schema_goes_where_it_matches(model: str, text: str) -> None:
    """By the values that conform to the table's schema, if it has one: alone, in a batch, and mapped beforehand."""
    events, wanted = odd_events(), parse(text)
    table, neighbour = make_table(model, SCHEMA), make_table(model, SCHEMA)
    neighbour.attach(SOUTH)
    neighbour.change({SubId(1): wanted}, ())
    table.attach(NORTH)
    table.learn(NORTH, Update(add=dict(neighbour.told(SOUTH))))
    schema = table.schema
    known = events if schema is None else [conformed(event, schema) for event in events]
    due = {at for at, event in enumerate(known) if matches(wanted, event)}
    alone = {at for at, event in enumerate(events) if table.route(event, None)}
    assert due <= alone
    assert table.exactness is not Exactness.EXACT or alone == due
    routed = table.route_batch(events, None).get(NORTH, np.zeros(0, np.intp))
    assert {*routed.tolist()} == alone
    if (places := table.place(events)) is not None:
        assert {*table.route_batch(events, None, places).get(NORTH, np.zeros(0, np.intp)).tolist()} == alone
        assert np.array_equal(Mapper(table.fingerprint).events(events).keys, places.keys)
    for at, event in enumerate(events):
        assert bool(table.reasons(event, NORTH, 1)) == (at in alone)


@pytest.mark.parametrize("model", [model for model in MODELS if model != "flooding"])
def test_an_event_within_an_advertisement_is_admitted_by_the_values_by_which_it_is_routed(model: str) -> None:
    events = odd_events()
    for text in TEXTS:
        table: Any = make_table(model, SCHEMA, advertised=True)
        table.advertise(HERE, {SubId(1): parse(text)}, ())
        schema = table.schema
        known = events if schema is None else [conformed(event, schema) for event in events]
        assert table.admitted(events, HERE).tolist() == [matches(parse(text), event) for event in known]
        assert table.advertisements.schema == schema
