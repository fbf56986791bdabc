"""Advertisements, as sentences."""

from __future__ import annotations

import pytest

from routing.models import small_index
from weft import parse
from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import SubId
from weft.routing.adverts import Advertised
from weft.routing.flooding.table import FloodingTable
from weft.routing.identity.table import IdentityTable
from weft.routing.simple.table import SimpleTable
from weft.routing.table import About, ClientId, Exactness, ItemId, Link, Role, Tell, Update

NORTH, SOUTH = Link("north"), Link("south")
HERE = ClientId("here")
LOW, HIGH, ALL = parse("x BETWEEN 0 AND 9"), parse("x BETWEEN 10 AND 19"), parse("x >= 0")


@pytest.fixture
def table() -> Advertised:
    made = Advertised(IdentityTable(index=small_index), index=small_index)
    for link in (NORTH, SOUTH):
        assert [tell.update.about for tell in made.attach(link)] == [About.ADVERTISEMENTS, About.SUBSCRIPTIONS]
    return made


def adverts(table: Advertised, link: Link, **update: object) -> list[Tell]:
    return table.learn(link, Update(About.ADVERTISEMENTS, **update))  # type: ignore[arg-type]


def test_a_subscription_waits_for_an_advertisement_that_it_overlaps(table: Advertised) -> None:
    assert table.change({SubId(1): LOW, SubId(2): HIGH}, ()) == []
    told = adverts(table, NORTH, add={ItemId(1): LOW})
    assert [(tell.link, tell.update.about, [*tell.update.add.values()]) for tell in told] == [
        (SOUTH, About.ADVERTISEMENTS, [LOW]),  # the advertisement goes on
        (NORTH, About.SUBSCRIPTIONS, [LOW]),  # and what waited for it goes back
    ]
    table.check()


def test_what_two_advertisements_meet_is_withdrawn_with_the_second(table: Advertised) -> None:
    table.change({SubId(1): LOW}, ())
    adverts(table, NORTH, add={ItemId(1): LOW, ItemId(2): ALL})
    first = adverts(table, NORTH, drop=(ItemId(2),))
    assert [tell.update.about for tell in first] == [About.ADVERTISEMENTS]
    second = adverts(table, NORTH, drop=(ItemId(1),))
    assert [(tell.link, tell.update.about, len(tell.update.drop)) for tell in second] == [
        (SOUTH, About.ADVERTISEMENTS, 1),
        (NORTH, About.SUBSCRIPTIONS, 1),
    ]
    assert not table.told(NORTH)


def test_what_is_told_again_has_a_new_id(table: Advertised) -> None:
    table.change({SubId(1): LOW}, ())
    seen: list[ItemId] = []
    for turn in range(3):
        adverts(table, NORTH, add={ItemId(turn): ALL})
        seen += table.told(NORTH)
        adverts(table, NORTH, drop=(ItemId(turn),))
    assert len(set(seen)) == 3


def test_what_was_never_told_is_not_dropped(table: Advertised) -> None:
    adverts(table, NORTH, add={ItemId(1): HIGH})
    table.change({SubId(1): LOW, SubId(2): ALL}, ())
    (tell,) = table.change({SubId(1): HIGH}, [SubId(1), SubId(2)])
    assert (tell.link, len(tell.update.drop), [*tell.update.add.values()]) == (NORTH, 1, [HIGH])
    assert table.change({SubId(1): LOW}, [SubId(1)])[0].update.add == {}
    assert table.change({}, [SubId(1)]) == []
    table.check()


def test_a_neighbour_that_counts_from_one_again_is_understood(table: Advertised) -> None:
    table.change({SubId(1): LOW, SubId(2): HIGH}, ())
    adverts(table, NORTH, add={ItemId(1): LOW})
    told = adverts(table, NORTH, fresh=True, add={ItemId(1): HIGH})
    assert [(len(tell.update.drop), [*tell.update.add.values()]) for tell in told if tell.link == NORTH] == [
        (1, [HIGH])
    ]
    table.check()


def test_events_outside_what_a_client_advertises_are_not_admitted_but_routed_all_the_same(table: Advertised) -> None:
    adverts(table, NORTH, add={ItemId(1): ALL})  # another's advertisement permits nothing here
    assert table.admitted([{"x": 5}], HERE).tolist() == [False]
    assert table.route({"x": 5}, None) == set()
    table.advertise(HERE, {SubId(1): LOW}, ())
    assert table.route_batch([], None) == {}
    events = [{"x": 5}, {"x": 15}, {"x": 6}]
    assert table.admitted(events, HERE).tolist() == [True, False, True]
    assert table.admitted(events, ClientId("another")).tolist() == [False, False, False]
    assert table.route_batch(events, None) == {}
    table.advertise(HERE, {SubId(1): HIGH}, [SubId(1)])
    assert table.admitted(events, HERE).tolist() == [False, True, False]
    table.advertise(HERE, {}, [SubId(1)])
    assert not table.admitted(events, HERE).any()


def test_a_client_changes_its_own_advertisements_only(table: Advertised) -> None:
    table.advertise(HERE, {SubId(1): LOW}, ())
    with pytest.raises(LocalProtocolError, match="no subscription 1"):
        table.advertise(ClientId("another"), {}, [SubId(1)])
    assert table.admitted([{"x": 5}], HERE).all()


def test_wrong_advertisements_are_refused(table: Advertised) -> None:
    with pytest.raises(RemoteProtocolError, match="north drops item 4"):
        adverts(table, NORTH, drop=(ItemId(4),))
    with pytest.raises(LocalProtocolError):
        table.advertise(HERE, {}, [SubId(9)])
    with pytest.raises(LocalProtocolError, match="no link"):
        adverts(table, Link("nowhere"))
    table.check()


def test_a_parent_is_told_everything_and_a_child_nothing() -> None:
    table = Advertised(SimpleTable(index=small_index), index=small_index)
    table.attach(NORTH, Role.PARENT)
    assert table.attach(SOUTH, Role.CHILD) == []
    assert [tell.link for tell in table.change({SubId(1): LOW}, ())] == [NORTH]
    assert [tell.link for tell in adverts(table, SOUTH, add={ItemId(1): LOW})] == [NORTH]
    with pytest.raises(LocalProtocolError, match="children"):
        table.attach(Link("west"))
    table.check()


def test_a_lost_session_is_told_what_overlaps_fresh(table: Advertised) -> None:
    table.change({SubId(1): LOW, SubId(2): HIGH}, ())
    adverts(table, NORTH, add={ItemId(1): LOW})
    table.advertise(HERE, {SubId(1): HIGH}, ())
    adverts_again, subs_again = table.attach(NORTH)
    assert adverts_again.update.fresh
    assert [*adverts_again.update.add.values()] == [HIGH]
    assert subs_again.update == Update(fresh=True, add=dict(table.told(NORTH)))


def test_advertisements_can_travel_by_any_table() -> None:
    table = Advertised(SimpleTable(index=small_index), SimpleTable(index=small_index), index=small_index)
    assert table.model == "simple with advertisements"
    assert table.fingerprint == (
        '{"advertisements":{"exactness":"exact","model":"simple","schema":null},'
        '"table":{"exactness":"exact","model":"simple","schema":null}}'
    )
    assert Advertised(FloodingTable()).exactness is Exactness.FLOOD
    table.attach(NORTH)
    tells = table.advertise(HERE, {SubId(1): LOW, SubId(2): LOW}, ())
    assert [len(tell.update.add) for tell in tells] == [2]
