"""The test bed: brokers on a tree, message by message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from routing.models import small_index
from weft import parse
from weft.errors import LocalProtocolError, ProtocolError
from weft.index.base import SubId
from weft.routing.adverts import Advertised
from weft.routing.flooding import FloodingTable
from weft.routing.identity import IdentityTable
from weft.routing.overlay import BrokerId, Overlay
from weft.routing.simple import SimpleTable
from weft.routing.table import About, Role, Source

A, B, C, D = map(BrokerId, "abcd")
WIDE, NARROW = parse("x > 0"), parse("x > 5")


def line(make: Any = lambda: SimpleTable(index=small_index), seed: int = 1) -> Overlay:
    """a - b - c - d"""
    overlay = Overlay([A, B, C, D], make, np.random.default_rng(seed))
    for one, other in ((A, B), (B, C), (C, D)):
        overlay.attach(one, other)
    overlay.settle()
    return overlay


def test_an_event_reaches_who_wants_it_and_only_on_the_way_there() -> None:
    overlay = line()
    overlay.subscribe(C, SubId(1), WIDE)
    overlay.subscribe(A, SubId(2), NARROW)
    overlay.settle()
    before = overlay.counters.events
    overlay.publish(A, {"x": 3})
    overlay.settle()
    assert overlay.deliveries == [(0, C, 1)]
    assert overlay.counters.events - before == 2
    assert overlay.counters.false_positives == 0


def test_updates_and_items_are_counted() -> None:
    simple, identity = line(), line(lambda: IdentityTable(index=small_index))
    for overlay in (simple, identity):
        start = overlay.counters.updates[About.SUBSCRIPTIONS]
        for broker, sub in ((A, 1), (A, 2), (A, 3)):
            overlay.subscribe(broker, SubId(sub), WIDE)
        overlay.settle()
        sent = overlay.counters.updates[About.SUBSCRIPTIONS] - start
        assert sent == overlay.counters.items_added[About.SUBSCRIPTIONS]
        assert sent == (9 if overlay is simple else 3)
        assert overlay.sizes(B) == ((3, 3) if overlay is simple else (1, 1))
        overlay.unsubscribe(A, SubId(1))
        overlay.settle()
        assert overlay.counters.items_dropped[About.SUBSCRIPTIONS] == (3 if overlay is simple else 0)
        overlay.check()


def test_flooding_sends_unwanted_events() -> None:
    overlay = line(FloodingTable)
    overlay.subscribe(B, SubId(1), WIDE)
    overlay.publish(A, {"x": 1})
    overlay.settle()
    assert overlay.deliveries == [(0, B, 1)]
    assert (overlay.counters.events, overlay.counters.false_positives) == (3, 2)


def test_an_event_behind_an_unsubscription_is_a_false_positive() -> None:
    overlay = line()
    overlay.subscribe(B, SubId(1), WIDE)
    overlay.settle()
    overlay.unsubscribe(B, SubId(1))
    overlay.publish(A, {"x": 1})  # a has not heard of it yet
    overlay.settle()
    assert overlay.deliveries == []
    assert overlay.counters.false_positives == 1


def test_a_cut_loses_what_is_in_flight_and_a_new_link_tells_everything() -> None:
    overlay = line()
    overlay.subscribe(D, SubId(1), WIDE)
    assert overlay.in_flight(D, C) == 1
    overlay.detach(C, D)
    assert overlay.counters.lost == 1
    overlay.settle()
    assert overlay.sizes(C).heard == 0
    overlay.attach(A, D)
    overlay.settle()
    overlay.publish(C, {"x": 1})
    overlay.settle()
    assert overlay.deliveries == [(0, D, 1)]
    overlay.check()


def test_links_form_a_tree() -> None:
    overlay = line()
    with pytest.raises(LocalProtocolError, match="tree"):
        overlay.attach(A, D)
    with pytest.raises(LocalProtocolError, match="not linked"):
        overlay.detach(A, C)
    overlay.detach(A, B)
    with pytest.raises(LocalProtocolError, match="slaves"):
        overlay.attach(B, A, Role.MASTER)  # b has a peer
    with pytest.raises(LocalProtocolError, match="slaves"):
        overlay.attach(A, B, Role.SLAVE)  # the same, seen from the other end: nothing stays behind
    overlay.attach(A, B, Role.MASTER)
    assert overlay.links(A) == {B: Role.MASTER}
    assert overlay.links(B) == {C: Role.PEER, A: Role.SLAVE}


def test_all_events_of_a_hierarchy_go_up() -> None:
    overlay = Overlay([A, B, C, D], lambda: SimpleTable(index=small_index), np.random.default_rng(1))
    for slave, master in ((B, A), (C, A), (D, C)):
        overlay.attach(slave, master, Role.MASTER)
    overlay.subscribe(D, SubId(1), WIDE)
    overlay.settle()
    assert overlay.sizes(B) == (0, 0)
    overlay.publish(B, {"x": 1})
    overlay.publish(B, {"x": -1})
    overlay.settle()
    assert overlay.deliveries == [(0, D, 1)]
    assert (overlay.counters.events, overlay.counters.false_positives) == (4, 1)


def test_subscriptions_go_only_where_something_is_advertised() -> None:
    overlay = line(lambda: Advertised(SimpleTable(index=small_index), index=small_index))
    overlay.advertise(B, SubId(1), WIDE)
    overlay.settle()
    assert overlay.counters.items_added == {About.SUBSCRIPTIONS: 0, About.ADVERTISEMENTS: 3}
    overlay.subscribe(D, SubId(1), NARROW)
    overlay.settle()
    assert overlay.counters.items_added[About.SUBSCRIPTIONS] == 2  # d to c to b, and not to a
    overlay.publish(B, {"x": 6})
    overlay.settle()
    assert overlay.deliveries == [(0, D, 1)]
    overlay.unadvertise(B, SubId(1))
    overlay.settle()
    assert overlay.counters.items_dropped == {About.SUBSCRIPTIONS: 2, About.ADVERTISEMENTS: 3}
    with pytest.raises(LocalProtocolError):
        overlay.publish(B, {"x": 6})


def run(seed: int) -> tuple[Any, ...]:
    overlay = line(seed=seed)
    moves = []
    for sub, broker in enumerate((A, B, C, D)):
        overlay.subscribe(broker, SubId(sub), WIDE)
        overlay.publish(D, {"x": sub})
    while (moved := overlay.step()) is not None:
        moves.append(moved)
    return moves, overlay.deliveries


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(3) == run(3)
    assert run(3) != run(4)


def test_tables_that_talk_without_end_are_stopped() -> None:
    class Endless(SimpleTable):
        def route(self, event: Any, source: Source) -> Any:
            return set(self.links)

    overlay = line(lambda: Endless(index=small_index))
    overlay.publish(A, {})
    with pytest.raises(ProtocolError, match="never stops"):
        overlay.settle(100)
