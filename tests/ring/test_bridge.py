"""Brokers on a ring: clients of any broker get what they want, whatever joins, dies or starts again."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from ring.broker_ring import BrokerRing
from weft.language.meaning import matches
from weft.language.text import parse
from weft.log.memory import MemoryLog
from weft.model.schema import Attribute
from weft.model.value import Type
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping
from weft.ring.messages import NodeAddress

MAPPING = KeyMapping(IdSpace(1024), {"x": Intervals("x", 0, 100, 10)})
NAMES = ["a", "b", "c", "d", "e"]


def test_an_event_reaches_subscribers_of_other_brokers_and_no_one_else() -> None:
    ring = BrokerRing(MAPPING, NAMES)
    ring.subscribe("a", "high", 1, "x > 50")
    ring.subscribe("b", "low", 1, "x < 20")
    ring.subscribe("c", "own", 1, "x = 70")
    ring.run(5)
    assert ring.brokers["a"].complete("high")
    assert ring.brokers["b"].complete("low")
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
    while not ring.brokers["a"].complete("s"):
        ring.run(0.01)
    ring.publish("d", 1, {"x": 60}, b"first")
    ring.run(5)
    assert ring.brokers["a"].got("s") == [b"first"]


def death_and_join(ring: BrokerRing) -> None:
    """Forty events at b, of three kinds, while c dies and f joins."""
    ring.run(3)
    for number in range(1, 41):
        if number == 10:
            ring.kill("c")
        if number == 20:
            ring.add("f")
        ring.publish("b", number, {"x": number, "kind": "klm"[number % 3]}, b"%d" % number)
        ring.run(0.1)
    ring.run(30)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_death_and_a_join_lose_nothing_with_replicas(seed: int) -> None:
    ring = BrokerRing(MAPPING, NAMES, seed, replicas=3)
    ring.subscribe("a", "s", 1, "x >= 0")
    death_and_join(ring)
    assert ring.brokers["a"].numbers("s") == list(range(1, 41)), "each once"


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


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_death_and_a_join_lose_nothing_with_topic_groups(seed: int) -> None:
    rule = GroupRule(depth=2, lease=10_000_000, period=3_000_000)
    ring = BrokerRing(MAPPING, NAMES, seed, replicas=3, groups=rule, topic="kind")
    ring.subscribe("a", "s", 1, "kind = 'k' AND x >= 0")
    ring.subscribe("d", "s", 1, "kind IN ('k', 'l')")
    ring.subscribe("d", "every", 2, "x >= 0")
    death_and_join(ring)
    for name, client, wanted in (("a", "s", (0,)), ("d", "s", (0, 1)), ("d", "every", (0, 1, 2))):
        assert ring.brokers[name].numbers(client) == [number for number in range(1, 41) if number % 3 in wanted]


@pytest.mark.parametrize("victim", ["a", pytest.param("b", marks=pytest.mark.slow)])
def test_a_broker_that_is_killed_and_started_again_goes_on(victim: str) -> None:
    """The subscriber's broker or the publisher's: what was acknowledged before is delivered in the end."""
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.run(3)
    ring.publish_numbers("b", range(1, 11))
    log = ring.kill(victim)  # before anything has crossed the ring
    ring.run(2)
    ring.come_back(victim, log, "s")
    ring.run(25)
    assert ring.brokers["a"].numbers("s") == list(range(1, 11)), "each once"


def test_what_is_published_while_a_broker_is_down_reaches_it_when_it_is_back() -> None:
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.subscribe("c", "s", 1, "x >= 0")
    ring.run(3)
    log = ring.kill("a")
    ring.publish_numbers("b", range(1, 21), every=0.5)
    ring.run(10)
    publisher = ring.brokers["b"]
    assert ring.brokers["c"].numbers("s") == list(range(1, 21)), "nobody else waits for it"
    assert publisher.bridge.waiting == 0
    assert len(publisher.bridge.owed) == 20
    assert publisher.floor == 1, "the log keeps what is owed"
    again = ring.come_back("a", log, "s")
    assert again.numbers("s") == list(range(1, 21)), "each once"
    assert not publisher.bridge.owed
    assert publisher.bridge.owed.given_up == 0
    assert publisher.floor == publisher.broker.core.end
    publisher.broker.core.check()


def test_what_is_owed_survives_the_publishers_broker() -> None:
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.subscribe("c", "s", 1, "x >= 0")
    ring.run(3)
    log = ring.kill("a")
    ring.publish_numbers("b", range(1, 6))
    ring.run(10)
    ring.add("b", ring.kill("b"))
    ring.run(10)
    again = ring.come_back("a", log, "s")
    assert again.numbers("s") == list(range(1, 6))
    assert ring.brokers["c"].numbers("s") == list(range(1, 6)), "it drops what is sent again"


@pytest.mark.parametrize("durable", [True, False])
def test_what_nobody_fetches_is_given_up_and_counted(durable: bool) -> None:
    """The ring does not know which subscriptions are durable: all of them expire when they are not stored again."""
    ring = BrokerRing(MAPPING, NAMES, replicas=2, reissue=3_000_000, keep=20_000_000)
    ring.subscribe("a", "s", 1, "x >= 0", durable)
    ring.run(3)
    ring.kill("a")
    ring.publish_numbers("b", range(1, 4))
    ring.run(10)
    bridge = ring.brokers["b"].bridge
    assert len(bridge.owed) == 3
    ring.run(20)
    assert (len(bridge.owed), bridge.owed.given_up) == (0, 3)
    assert ring.brokers["b"].floor == 4
    for each in ring.brokers.values():
        each.perform(each.bridge.forget(NodeAddress("a"), ring.engine.now))  # nobody waits for it any more
    ring.publish("b", 4, {"x": 4}, b"4")
    ring.run(25)
    assert not bridge.owed, "its subscriptions have expired"
    assert not ring.stored()


def test_a_subscription_that_is_not_durable_ends_with_its_connection() -> None:
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0", durable=False)
    ring.subscribe("a", "durable", 1, "x < 10")
    ring.run(3)
    assert {home for home, _ in ring.stored()} == {"a"}
    a = ring.brokers["a"]
    for client in ("s", "durable"):
        a.at()
        a.broker.cut(client)
        a.flush()
    ring.run(3)
    assert len(ring.stored()) == 1, "only the durable one"
    ring.publish("b", 1, {"x": 5}, b"5")
    ring.publish("b", 2, {"x": 50}, b"50")
    ring.run(5)
    a.say("durable")
    ring.run(1)
    assert (a.numbers("durable"), a.numbers("s")) == ([5], [])


def downs_and_restarts(seed: int, **settings: Any) -> int:
    """Any broker may be down for seconds while events flow; in the end everybody has everything, once."""
    ring = BrokerRing(MAPPING, NAMES, seed, replicas=3, **settings)
    rng = np.random.default_rng(seed)
    filters = {"a": "x >= 0", "b": "x < 50", "c": "x > 20 AND kind = 'k'", "d": "kind IN ('k', 'l')"}
    for name, text in filters.items():
        ring.subscribe(name, "s", 1, text)
    ring.run(4)
    events: dict[int, dict[str, object]] = {}
    sequences = dict.fromkeys(NAMES, 0)
    down: tuple[str, MemoryLog] | None = None
    owed = 0
    for number in range(60):
        if down is None and rng.random() < 0.1:
            name = str(rng.choice(NAMES))
            down = name, ring.kill(name)
        elif down is not None and rng.random() < 0.15:
            ring.add(*down)
            down = None
        at = str(rng.choice([name for name in NAMES if name in ring.brokers]))
        sequences[at] += 1
        events[number] = {"x": int(rng.integers(100)), "kind": str(rng.choice(["k", "l", "m"]))}
        ring.publish(at, sequences[at], events[number], b"%d" % number)
        ring.run(float(rng.choice([0.05, 0.3, 1.5])))
        owed = max(owed, sum(len(each.bridge.owed) for each in ring.brokers.values()))
    if down is not None:
        ring.add(*down)
    ring.run(30)
    for name, text in filters.items():
        ring.brokers[name].say("s")
        ring.run(1)
        got = Counter(int(payload) for payload in ring.brokers[name].got("s"))
        wanted = {number for number, event in events.items() if matches(parse(text), event)}
        assert set(got) == wanted, (name, sorted(wanted - set(got)), sorted(set(got) - wanted))
        assert max(got.values(), default=1) == 1, (name, "came twice")
    for each in ring.brokers.values():
        assert not each.bridge.owed
        assert each.bridge.owed.given_up == 0
    return owed


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 10))])
def test_brokers_that_are_down_for_seconds_miss_nothing(seed: int) -> None:
    assert downs_and_restarts(seed), "something was owed at some time"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_brokers_that_are_down_for_seconds_miss_nothing_with_topic_groups(seed: int) -> None:
    downs_and_restarts(seed, groups=GroupRule(depth=2, lease=10_000_000, period=3_000_000), topic="kind")


def test_subscriptions_of_a_former_life_are_dropped_when_the_new_ones_are_stored() -> None:
    ring = BrokerRing(MAPPING, NAMES, replicas=2)
    ring.subscribe("a", "s", 1, "x >= 0")
    ring.run(3)
    ring.add("a", ring.kill("a"))
    ring.run(8)
    assert len(ring.stored()) == 2, "those of the former life are still there"
    for number in range(1, 11):  # one in each interval
        ring.publish("b", number, {"x": 10 * number - 5}, b"%d" % number)
    ring.run(5)
    assert len(ring.stored()) == 1
    ring.brokers["a"].say("s")
    ring.run(1)
    assert ring.brokers["a"].numbers("s") == list(range(1, 11))
