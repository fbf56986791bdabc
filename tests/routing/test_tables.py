"""The first tables, as sentences: what they tell, what they hear, where events go."""

from __future__ import annotations

import json
from functools import partial
from itertools import count
from typing import Any

import pytest

from routing.models import TABLES, LeastRoots, minimal_cover, small_index
from strategies import KINDS
from weft import normalize, parse
from weft.algebra.box import NormalForm
from weft.errors import EventError, FilterTooComplexError, LocalProtocolError, RemoteProtocolError
from weft.index import TreeIndex
from weft.index.base import SubId
from weft.index.current_version import FlushOnMatch
from weft.language.predicate import Predicates
from weft.merging import MergeBudget
from weft.model.schema import Schema
from weft.routing.dls.items import Switch
from weft.routing.flooding.table import FloodingTable
from weft.routing.identity.table import IdentityTable
from weft.routing.incoming import LinkMatcher, table_index
from weft.routing.ledger import Ledger
from weft.routing.merging.table import MergingTable
from weft.routing.simple.table import SimpleTable
from weft.routing.table import About, ClientId, ItemId, Link, Role, Tell, Update

NORTH, SOUTH, WEST, EAST = Link("north"), Link("south"), Link("west"), Link("east")
WIDE, NARROW = parse("x > 0"), parse("x > 5")
EXACT = {"simple": SimpleTable, "identity": IdentityTable}


def subs(**filters: Any) -> dict[SubId, Any]:
    return {SubId(int(name[1:])): wanted for name, wanted in filters.items()}


def items(*filters: Any, start: int = 1) -> dict[ItemId, Any]:
    return {ItemId(start + at): each for at, each in enumerate(filters)}


def drops(*ids: int) -> tuple[ItemId, ...]:
    return tuple(map(ItemId, ids))


@pytest.fixture(params=EXACT)
def table(request: pytest.FixtureRequest) -> Any:
    made = EXACT[request.param](index=small_index)
    for link in (NORTH, SOUTH):
        assert made.attach(link) == [Tell(link, Update(fresh=True))]
    return made


def test_a_subscription_is_told_to_all_but_its_source(table: Any) -> None:
    assert table.change(subs(s1=WIDE), ()) == [
        Tell(NORTH, Update(add=items(WIDE))),
        Tell(SOUTH, Update(add=items(WIDE, start=2))),
    ]
    assert table.learn(NORTH, Update(add={ItemId(9): NARROW})) == [Tell(SOUTH, Update(add=items(NARROW, start=3)))]
    assert dict(table.heard(NORTH)) == {9: NARROW}
    table.check()


def test_a_replacement_is_one_update(table: Any) -> None:
    table.change(subs(s1=WIDE), ())
    tells = table.change(subs(s1=NARROW), [SubId(1)])
    assert tells == [
        Tell(NORTH, Update(drop=drops(1), add=items(NARROW, start=3))),
        Tell(SOUTH, Update(drop=drops(2), add=items(NARROW, start=4))),
    ]


def test_simple_tells_equal_filters_twice_and_identity_once() -> None:
    told = {}
    for name, make in EXACT.items():
        table = make(index=small_index)
        table.attach(NORTH)
        table.change(subs(s1=parse("x > 5 AND y = 1"), s2=parse("y = 1 AND NOT x <= 5 AND x >= 0")), ())
        told[name] = len(table.told(NORTH))
        table.change({}, [SubId(1)])
        assert len(table.told(NORTH)) == 1  # the other is still wanted
        table.change({}, [SubId(2)])
        assert not table.told(NORTH)
    assert told == {"simple": 2, "identity": 1}


def test_identity_tells_a_filter_back_when_another_source_wants_it_too() -> None:
    table = IdentityTable(index=small_index)
    table.attach(NORTH), table.attach(SOUTH)
    assert [tell.link for tell in table.learn(NORTH, Update(add=items(WIDE)))] == [SOUTH]
    assert [tell.link for tell in table.learn(SOUTH, Update(add=items(WIDE)))] == [NORTH]
    assert table.change(subs(s1=WIDE), ()) == []
    withdrawn = table.learn(NORTH, Update(drop=drops(1)))
    assert withdrawn == []  # south and a client here want it: north is told so, and south of the client
    assert [(t.link, len(t.update.drop)) for t in table.change({}, [SubId(1)])] == [(SOUTH, 1)]
    table.check()


def test_what_matches_nothing_is_not_told(table: Any) -> None:
    assert table.change(subs(s1=parse("x > 5 AND x < 3")), ()) == []
    assert table.learn(NORTH, Update(add=items(parse("FALSE")))) == []
    assert table.learn(NORTH, Update(drop=drops(1))) == []
    table.check()


def test_a_link_that_comes_back_is_told_everything_fresh_under_new_ids(table: Any) -> None:
    table.change(subs(s1=WIDE), ())
    table.learn(SOUTH, Update(add=items(NARROW)))
    before = set(table.told(NORTH))
    assert [tell.link for tell in table.detach(SOUTH)] == [NORTH]
    assert table.detach(NORTH) == []
    (tell,) = table.attach(NORTH)
    assert tell.update.fresh
    assert list(tell.update.add.values()) == [WIDE]
    assert before.isdisjoint(tell.update.add)


def test_a_lost_session_is_told_everything_fresh_under_the_same_ids(table: Any) -> None:
    table.change(subs(s1=WIDE), ())
    table.learn(NORTH, Update(add=items(NARROW)))
    told = dict(table.told(NORTH))
    assert table.attach(NORTH) == [Tell(NORTH, Update(fresh=True, add=told))]
    assert table.route({"x": 6}, None) == {NORTH}  # what it wanted holds until it tells anew
    tells = table.learn(NORTH, Update(fresh=True, add=items(WIDE, NARROW, start=7)))
    assert {tell.link for tell in tells} <= {SOUTH}
    assert dict(table.heard(NORTH)) == items(WIDE, NARROW, start=7)
    table.check()


def test_a_fresh_update_that_says_the_same_changes_nothing(table: Any) -> None:
    table.learn(NORTH, Update(add=items(WIDE, NARROW)))
    assert table.learn(NORTH, Update(fresh=True, add=items(parse("x > 0"), parse("x > 5")))) == []
    reused = table.learn(NORTH, Update(fresh=True, add=items(NARROW)))  # a neighbour that counts from 1 again
    assert all(tell.update.drop for tell in reused)
    assert table.route({"x": 3}, None) == set()
    table.check()


@pytest.mark.parametrize(
    "update",
    [
        Update(drop=drops(2)),
        Update(drop=drops(1, 1)),
        Update(add=items(NARROW)),
        Update(drop=drops(1), add=items(NARROW)),
        Update(About.ADVERTISEMENTS, add=items(NARROW, start=2)),
        Update(add={ItemId(2): 5}),  # type: ignore[dict-item]
        Update(add={ItemId(2): normalize(NARROW, Schema.of(x="int"))}),
        Update(add={ItemId(-1): NARROW}),
        Update(add={ItemId(3): NARROW, ItemId(0): WIDE}),
        Update(add=items(NARROW, start=2), notes=(Switch(1, 64),)),
    ],
    ids=[
        *("unknown drop", "dropped twice", "added twice", "id used again", "about", "no filter", "other schema"),
        *("negative id", "smaller id", "notes"),
    ],
)
def test_a_wrong_update_is_refused_as_a_whole(table: Any, update: Update) -> None:
    table.learn(NORTH, Update(add=items(WIDE)))
    with pytest.raises(RemoteProtocolError, match="north"):
        table.learn(NORTH, update)
    assert dict(table.heard(NORTH)) == items(WIDE)
    table.check()


def test_wrong_calls_are_refused_and_change_nothing(table: Any) -> None:
    table.change(subs(s1=WIDE), ())
    for add, drop, what in (
        (subs(s1=NARROW), (), "already exists"),
        ({}, [SubId(7)], "no subscription 7"),
        ({}, [SubId(1), SubId(1)], "twice"),
    ):
        with pytest.raises(LocalProtocolError, match=what):
            table.change(add, drop)
    huge = parse(" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(20)))
    with pytest.raises(FilterTooComplexError):
        table.change(subs(s2=huge), [SubId(1)])
    with pytest.raises(RemoteProtocolError):
        table.learn(NORTH, Update(add=items(huge)))
    for call in (table.detach, table.told, table.heard, partial(table.learn, update=Update())):
        with pytest.raises(LocalProtocolError, match="no link west"):
            call(WEST)
    with pytest.raises(LocalProtocolError, match="no advertisements"):
        table.advertise(ClientId("here"), subs(s1=WIDE), ())
    assert list(table.told(NORTH).values()) == [WIDE]
    table.check()


def test_events_go_where_they_are_wanted_and_never_back(table: Any) -> None:
    table.attach(WEST)
    table.learn(NORTH, Update(add=items(WIDE)))
    table.learn(SOUTH, Update(add=items(normalize(NARROW))))
    assert table.route({"x": 6}, None) == {NORTH, SOUTH}
    assert table.route({"x": 6}, NORTH) == {SOUTH}
    assert table.route({"x": "6"}, WEST) == set()
    routes = table.route_batch([{"x": 6}, {}, {"x": 1}], SOUTH)
    assert {link: places.tolist() for link, places in routes.items()} == {NORTH: [0, 2]}
    assert table.route_batch([], None) == {}


def test_a_table_with_a_schema_compares_under_it() -> None:
    schema = Schema.of(x="int")
    table = IdentityTable(schema, index=small_index)
    table.attach(NORTH)
    table.change(subs(s1=parse("x > 5"), s2=parse("x >= 6")), ())
    assert len(table.told(NORTH)) == 1
    assert table.fingerprint == (
        '{"exactness":"exact","model":"identity","schema":{"attributes":{"x":{"type":"int"}}}}'
    )


def test_a_table_is_told_the_roots_of_its_local_part_only() -> None:
    table = SimpleTable(index=small_index, local=LeastRoots())
    table.attach(NORTH)
    table.change(subs(s1=NARROW), ())
    (tell,) = table.change(subs(s2=WIDE), ())
    assert (len(tell.update.drop), [*tell.update.add.values()]) == (1, [WIDE])
    (tell,) = table.change({}, [SubId(2)])
    assert (len(tell.update.drop), [*tell.update.add.values()]) == (1, [NARROW])  # uncovered, in the same update
    table.check()


# -- hierarchies -----------------------------------------------------------------------------------


def test_subscriptions_and_all_events_go_up() -> None:
    table = SimpleTable(index=small_index)
    assert table.attach(NORTH, Role.PARENT) == [Tell(NORTH, Update(fresh=True))]
    assert table.attach(SOUTH, Role.CHILD) == []
    assert [tell.link for tell in table.learn(SOUTH, Update(add=items(WIDE)))] == [NORTH]
    assert [tell.link for tell in table.change(subs(s1=NARROW), ())] == [NORTH]
    assert not table.told(SOUTH)
    assert table.route({"y": 1}, SOUTH) == {NORTH}
    assert table.route({"x": 6}, NORTH) == {SOUTH}
    routes = table.route_batch([{"y": 1}, {"x": 1}], None)
    assert {link: places.tolist() for link, places in routes.items()} == {SOUTH: [1], NORTH: [0, 1]}
    with pytest.raises(RemoteProtocolError, match="parent"):
        table.learn(NORTH, Update(add=items(WIDE)))
    table.check()


@pytest.mark.parametrize("make", [SimpleTable, FloodingTable])
def test_a_broker_with_a_parent_has_only_children_besides(make: Any) -> None:
    table = make()
    table.attach(NORTH, Role.PARENT)
    for role in (Role.PEER, Role.PARENT):
        with pytest.raises(LocalProtocolError, match="children"):
            table.attach(SOUTH, role)
    with pytest.raises(LocalProtocolError, match="detach"):
        table.attach(NORTH, Role.PEER)
    table.detach(NORTH)
    table.attach(SOUTH, Role.PEER)
    with pytest.raises(LocalProtocolError, match="children"):
        table.attach(NORTH, Role.PARENT)


def test_a_child_replaces_its_whole_root_set_from_time_to_time() -> None:
    table, parent = IdentityTable(index=small_index, refresh=True), SimpleTable(index=small_index)
    table.attach(NORTH, Role.PARENT), parent.attach(SOUTH, Role.CHILD), parent.attach(WEST)
    table.change(subs(s1=WIDE), ())
    (tell,) = table.step(100)
    assert tell == Tell(NORTH, Update(fresh=True, add=items(WIDE)))
    assert [each.link for each in parent.learn(SOUTH, tell.update)] == [WEST]  # a parent that had lost it is healed
    assert parent.learn(SOUTH, tell.update) == []  # and one that had not stays as it is
    assert SimpleTable(index=small_index).step(100) == []


# -- flooding --------------------------------------------------------------------------------------


def test_flooding_tells_nothing_and_sends_everything() -> None:
    table = FloodingTable()
    for link in (NORTH, SOUTH):
        assert table.attach(link) == []
    assert table.change(subs(s1=WIDE), ()) == []
    assert table.route({}, NORTH) == {SOUTH}
    assert {k: v.tolist() for k, v in table.route_batch([{}, {}], None).items()} == {NORTH: [0, 1], SOUTH: [0, 1]}
    assert table.learn(NORTH, Update(fresh=True)) == []
    with pytest.raises(RemoteProtocolError, match="flooded"):
        table.learn(NORTH, Update(add=items(WIDE)))
    with pytest.raises(LocalProtocolError, match="no subscription 3"):
        table.change({}, [SubId(3)])
    table.check()


# -- the matcher -----------------------------------------------------------------------------------


def held(*filters: Any) -> dict[ItemId, NormalForm]:
    return {item_id: normalize(item) for item_id, item in items(*filters).items()}


def test_many_items_at_once_are_matched_like_one_by_one() -> None:
    predicates = Predicates([KINDS])
    texts = [f"x > {n}" for n in range(50)] + ["is_a(kind, 'vehicle')", "y LIKE 'a%'", "x > y"]
    filters = [parse(text, predicates) for text in texts]
    plain = [partial(TreeIndex, tail=256, flush=FlushOnMatch(changes=changes)) for changes in (0, 3, 100)]
    small = [partial(small_index, buffered=changes) for changes in (0, 3, 100)]
    for make in (table_index, *plain, *small):  # only the small ones know the predicate
        matcher = LinkMatcher(None, make)
        for link in (NORTH, SOUTH):
            matcher.attach(link)
        matcher.change(NORTH, (), held(*filters))
        matcher.change(SOUTH, (), held(*filters[50:]))
        matcher.change(NORTH, drops(1, 51), {})
        assert matcher.wanting({"x": 2}) == {NORTH}
        assert matcher.wanting({"x": 1}) == set()
        assert matcher.wanting({"x": 1, "y": 0}) == {NORTH, SOUTH}
        assert matcher.wanting({"kind": "car"}) == {SOUTH}
        together = matcher.wanting_batch([{"kind": "car"}, {"x": 70}, {"y": "ab"}])
        assert {link: places.tolist() for link, places in together.items()} == {NORTH: [1, 2], SOUTH: [0, 2]}
        clearing = matcher.detach(NORTH)
        assert matcher.wanting({"x": 1, "y": 0}) == {SOUTH}  # at once, though its items are there still
        matcher.attach(EAST)
        assert matcher.wanting({"x": 1, "y": 0}) == {SOUTH}
        matcher.check({SOUTH: list(items(*filters[50:])), EAST: []})
        assert len([*clearing]) > 1  # in pieces
        matcher.attach(WEST)  # gets the number that is free
        assert matcher.wanting({"x": 1, "y": 0}) == {SOUTH}
        matcher.check({SOUTH: list(items(*filters[50:])), EAST: [], WEST: []})


def test_minimal_cover_keeps_what_no_other_covers() -> None:
    texts = ["x > 5", "x > 0", "x > 0 AND y = 1", "y = 1", "NOT x <= 0", "y = 1 OR y = 2"]
    assert minimal_cover({text: normalize(parse(text)) for text in texts}) == {"x > 0", "y = 1 OR y = 2"}
    assert minimal_cover({}) == set()


def test_every_table_says_what_neighbours_must_agree_on() -> None:
    said = {}
    for name, model in TABLES.items():
        table = model.make()
        assert name.startswith(table.model)
        agreed = json.loads(table.fingerprint)
        assert (agreed["model"], agreed["exactness"]) == (table.model, table.exactness.value)
        assert table.fingerprint == model.make().fingerprint
        said[name] = table.fingerprint
    assert said["merging"] != said["merging, lazy"], "who is lazy says so"
    assert len({said[name] for name in ("dls", "dls, hashed", "dls, growing")}) == 3
    assert said["mics"] != said["mics, gaps"]
    assert said["covering"] == said["covering, piece by piece"], "how much work a call does is nobody else's affair"


def test_an_imperfect_merging_table_does_not_say_that_it_is_exact() -> None:
    schema = Schema.from_dict({"attributes": {"a": {"type": "float", "bounds": [0, 10]}}})
    made = {
        "perfect": MergingTable(schema),
        "lazy": MergingTable(schema, lazy=True),
        "budget": MergingTable(schema, budget=MergeBudget(0.1)),
    }
    assert {name: table.exactness.value for name, table in made.items()} == {
        "perfect": "exact",
        "lazy": "wider",
        "budget": "wider",
    }
    assert len({table.fingerprint for table in made.values()}) == 3


# -- the ledger ------------------------------------------------------------------------------------


def test_a_ledger_makes_one_update_of_what_came_and_went() -> None:
    ledger: Ledger[str] = Ledger(count(1))
    texts = {"a": WIDE, "b": NARROW}
    ledger.tell("a")
    ledger.tell("b")
    ledger.withdraw("b")
    assert ledger.flush(texts.__getitem__) == Update(add=items(WIDE))
    ledger.withdraw("a")
    ledger.tell("a")
    assert not ledger.changed, "what went and came back leaves no trace"
    ledger.withdraw("a")
    ledger.tell("b")
    assert ledger.flush(texts.__getitem__) == Update(drop=drops(1), add=items(NARROW, start=2))
    ledger.fresh = True
    assert ledger.flush(texts.__getitem__) == Update(fresh=True, add=items(NARROW, start=2))
    with pytest.raises(AssertionError):
        ledger.tell("b")
    with pytest.raises(KeyError):
        ledger.withdraw("c")
    ledger.check()


@pytest.mark.parametrize("bad", [{"x": [b"1"]}, {"time": 10}, 7])
def test_an_event_that_cannot_be_read_is_refused_and_never_lost(table: Any, bad: Any) -> None:
    table.learn(NORTH, Update(add={ItemId(9): NARROW}))
    for events in ([bad], [{"x": 3}, bad]):
        with pytest.raises(EventError):
            table.route_batch(events, SOUTH)
    with pytest.raises(EventError):
        table.route(bad, SOUTH)
