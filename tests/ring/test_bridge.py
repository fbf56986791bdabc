"""Brokers on a ring: clients of any broker get what they want, whatever joins, dies or starts again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ring.broker_ring import BrokerRing
from weft.broker.messages import Complete
from weft.model.schema import Attribute
from weft.model.value import Type
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping

MAPPING = KeyMapping(IdSpace(1024), {"x": Intervals("x", 0, 100, 10)})
NAMES = ["a", "b", "c", "d", "e"]


def complete(ring: BrokerRing, name: str, client: str) -> bool:
    return any(isinstance(each, Complete) for to, each in ring.brokers[name].broker.sent if to == client)


def test_an_event_reaches_subscribers_of_other_brokers_and_no_one_else() -> None:
    ring = BrokerRing(MAPPING, NAMES)
    ring.subscribe("a", "high", 1, "x > 50")
    ring.subscribe("b", "low", 1, "x < 20")
    ring.subscribe("c", "own", 1, "x = 70")
    ring.run(5)
    assert complete(ring, "a", "high")
    assert complete(ring, "b", "low")
    ring.publish("c", 1, {"x": 70}, b"seventy")
    ring.publish("c", 2, {"x": 10}, b"ten")
    ring.publish("c", 3, {"x": 30}, b"thirty")
    ring.run(5)
    assert ring.brokers["a"].got("high") == [b"seventy"]
    assert ring.brokers["b"].got("low") == [b"ten"]
    assert ring.brokers["c"].got("own") == [b"seventy"], "the broker delivers to its own clients itself"
    assert ring.brokers["d"].broker.core.end == ring.brokers["e"].broker.core.end == 1, "nobody wants it there"


def test_complete_means_that_the_next_event_arrives() -> None:
    ring = BrokerRing(MAPPING, NAMES)
    ring.subscribe("a", "s", 1, "x > 50")
    while not complete(ring, "a", "s"):
        ring.run(0.01)
    ring.publish("d", 1, {"x": 60}, b"first")
    ring.run(5)
    assert ring.brokers["a"].got("s") == [b"first"]


@pytest.mark.parametrize("seed", range(2))
def test_a_death_and_a_join_lose_nothing_with_replicas(seed: int) -> None:
    ring = BrokerRing(MAPPING, NAMES, seed, replicas=3)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.run(3)
    for number in range(1, 41):
        if number == 10:
            ring.kill("c")
        if number == 20:
            ring.add("f")
        ring.publish("b", number, {"x": number % 100}, b"%d" % number)
        ring.run(0.1)
    ring.run(30)
    got = ring.brokers["a"].got("s")
    assert sorted(map(int, got)) == list(range(1, 41)), "each once"


def test_timestamps_cross_the_ring_and_are_placed_by_intervals() -> None:
    year = Intervals.of_attribute(
        Attribute("time", Type.TIMESTAMP, low=datetime(2026, 1, 1), high=datetime(2027, 1, 1)), 12
    )
    ring = BrokerRing(KeyMapping(IdSpace(1024), {"time": year}), NAMES)
    ring.subscribe("a", "summer", 1, "time >= TIMESTAMP '2026-06-01' AND time < TIMESTAMP '2026-09-01'")
    ring.run(5)
    for number, month in enumerate((5, 6, 8, 9), 1):
        ring.publish("c", number, {"time": datetime(2026, month, 1, tzinfo=UTC)}, b"%d" % month)
    ring.run(5)
    assert sorted(ring.brokers["a"].got("summer")) == [b"6", b"8"]


@pytest.mark.parametrize("seed", range(2))
def test_a_death_and_a_join_lose_nothing_with_topic_groups(seed: int) -> None:
    rule = GroupRule(depth=2, lease=10_000_000, period=3_000_000)
    ring = BrokerRing(MAPPING, NAMES, seed, replicas=3, groups=rule, topic="kind")
    ring.subscribe("a", "s", 1, "kind = 'k' AND x >= 0")
    ring.subscribe("d", "s", 1, "kind IN ('k', 'l')")
    ring.subscribe("d", "every", 2, "x >= 0")
    ring.run(3)
    for number in range(1, 41):
        if number == 10:
            ring.kill("c")
        if number == 20:
            ring.add("f")
        ring.publish("b", number, {"x": number % 100, "kind": "klm"[number % 3]}, b"%d" % number)
        ring.run(0.1)
    ring.run(30)
    for name, client, wanted in (("a", "s", (0,)), ("d", "s", (0, 1)), ("d", "every", (0, 1, 2))):
        got = sorted(map(int, ring.brokers[name].got(client)))
        assert got == [number for number in range(1, 41) if number % 3 in wanted], (name, client)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_broker_that_is_killed_and_started_again_goes_on(victim: str) -> None:
    """The subscriber's broker or the publisher's: what was acknowledged before is delivered in the end."""
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.run(3)
    for number in range(1, 11):
        ring.publish("b", number, {"x": number}, b"%d" % number)
    log = ring.kill(victim)  # before anything has crossed the ring
    ring.run(2)
    again = ring.add(victim, log)
    ring.run(40)
    if victim == "a":
        again.say("s")
        ring.run(1)
    assert sorted(map(int, ring.brokers["a"].got("s"))) == list(range(1, 11)), "each once; a ring keeps no order"
