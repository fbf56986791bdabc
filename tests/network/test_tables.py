"""Routing tables on a tree, message by message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from routing.models import small_index
from weft import parse
from weft.errors import LocalProtocolError, ProtocolError
from weft.index.base import SubId
from weft.network.tables import BrokerId, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.covering.table import CoveringTable
from weft.routing.flooding.table import FloodingTable
from weft.routing.identity.table import IdentityTable
from weft.routing.simple.table import SimpleTable
from weft.routing.table import About, Role, Source, Update

A, B, C, D = map(BrokerId, "abcd")
WIDE, NARROW = parse("x > 0"), parse("x > 5")


def line(make: Any = lambda: SimpleTable(index=small_index), seed: int = 1) -> TableNetwork:
    """a - b - c - d"""
    overlay = TableNetwork([A, B, C, D], make, np.random.default_rng(seed))
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
    assert overlay.sizes(C).received == 0
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
    with pytest.raises(LocalProtocolError, match="children"):
        overlay.attach(B, A, Role.PARENT)  # b has a peer
    with pytest.raises(LocalProtocolError, match="children"):
        overlay.attach(A, B, Role.CHILD)  # the same, seen from the other end: nothing stays behind
    overlay.attach(A, B, Role.PARENT)
    assert overlay.links(A) == {B: Role.PARENT}
    assert overlay.links(B) == {C: Role.PEER, A: Role.CHILD}


def test_all_events_of_a_hierarchy_go_up() -> None:
    overlay = TableNetwork([A, B, C, D], lambda: SimpleTable(index=small_index), np.random.default_rng(1))
    for child, parent in ((B, A), (C, A), (D, C)):
        overlay.attach(child, parent, Role.PARENT)
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


# -- in order, batches, and what can be watched ---------------------------------------------------------


def ordered(**options: Any) -> TableNetwork:
    """a - b - c - d, without a generator"""
    network = TableNetwork([A, B, C, D], lambda: SimpleTable(index=small_index), **options)
    for one, other in ((A, B), (B, C), (C, D)):
        network.attach(one, other)
    network.settle()
    return network


def test_without_a_generator_the_oldest_message_moves_first() -> None:
    network = ordered()
    network.subscribe(D, SubId(1), WIDE)
    network.subscribe(A, SubId(2), WIDE)
    moves = []
    while (moved := network.step()) is not None:
        moves.append(moved)
    assert moves == [(D, C), (A, B), (C, B), (B, C), (B, A), (C, D)]
    network.publish(B, {"x": 1})
    network.settle()
    assert sorted(network.deliveries) == [(0, A, 2), (0, D, 1)]
    network.check()


def test_a_cut_loses_only_its_own_messages_in_order() -> None:
    network = ordered()
    network.subscribe(D, SubId(1), WIDE)
    network.subscribe(A, SubId(2), WIDE)
    network.detach(C, D)
    network.settle()
    assert network.counters.lost == 1
    assert network.sizes(C).received == 1
    network.check()


def test_pending_work_is_done_when_nothing_is_in_flight() -> None:
    network = TableNetwork([A, B], lambda: CoveringTable(work=2), pieces=2)
    network.attach(A, B)
    network.change(A, {SubId(0): parse("x >= 0")})
    network.change(A, {SubId(n): parse(f"x BETWEEN {n} AND {n}.5") for n in range(1, 6)})
    network.settle()
    assert network.sizes(B).received == 1
    network.unsubscribe(A, SubId(0))
    assert network.table(A).pending
    network.settle()
    assert network.quiet
    assert network.sizes(B).received == 5
    network.check()


def test_a_batch_of_events_arrives_where_single_events_do() -> None:
    network = ordered()
    network.change(D, {SubId(1): NARROW})
    network.change(B, {SubId(2): WIDE})
    network.settle()
    assert network.arrivals([{"x": 6}, {"x": 3}, {"x": 0}], A) == [{A, B, C, D}, {A, B}, {A}]


def test_a_network_without_a_matcher_publishes_nothing() -> None:
    network = ordered(matcher=None)
    network.subscribe(D, SubId(1), WIDE)
    network.settle()
    assert network.arrivals([{"x": 3}], B) == [{B, C, D}]
    with pytest.raises(LocalProtocolError, match="matcher"):
        network.publish(B, {"x": 3})


def test_a_new_table_is_sent_everything() -> None:
    network = ordered()
    network.subscribe(A, SubId(1), WIDE)
    network.subscribe(B, SubId(2), NARROW)
    network.settle()
    before = network.table(D)
    network.subscribe(A, SubId(3), NARROW)
    network.renew(D)
    assert network.table(D) is not before
    network.settle()
    assert network.sizes(D).received == 3
    network.check()
    with pytest.raises(LocalProtocolError, match="2 clients"):
        network.renew(A)


def test_work_and_updates_can_be_watched() -> None:
    worked: list[BrokerId] = []
    sent: list[tuple[BrokerId, BrokerId]] = []

    def run(broker: BrokerId, work: Any) -> Any:
        worked.append(broker)
        return work()

    def send(direction: tuple[BrokerId, BrokerId], update: Update) -> Update:
        sent.append(direction)
        return update

    network = ordered(run=run, send=send)
    worked.clear()
    sent.clear()
    network.subscribe(A, SubId(1), WIDE)
    network.settle()
    assert worked == [A, B, C, D]
    assert sent == [(A, B), (B, C), (C, D)]


def test_with_a_clock_messages_arrive_when_they_are_told_to() -> None:
    sent: list[tuple[Any, str]] = []
    read: list[object] = []
    overlay = TableNetwork(
        [A, B],
        lambda: SimpleTable(index=small_index),
        clock=lambda direction, message: sent.append((direction, type(message).__name__)),
        read=lambda _, note: read.append(note),
    )
    overlay.attach(A, B)
    while overlay.in_flight(A, B):
        overlay.arrive((A, B))
    while overlay.in_flight(B, A):
        overlay.arrive((B, A))
    sent.clear()
    overlay.subscribe(B, SubId(1), WIDE)
    overlay.post((B, A), "behind the subscription")
    assert sent == [((B, A), "Update"), ((B, A), "Posted")]
    overlay.publish(A, {"x": 1})
    assert sent[2:] == []  # nobody is known to want it
    overlay.arrive((B, A))
    assert read == []
    overlay.arrive((B, A))
    assert read == ["behind the subscription"]
    overlay.publish(A, {"x": 2})
    overlay.arrive((A, B))
    assert overlay.deliveries == [(1, B, 1)]
    assert overlay.quiet
