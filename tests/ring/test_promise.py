"""What a ring promises, sentence by sentence: at the top of the node and in the guide. Each has a test."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from ring.rendezvous_network import RendezvousNetwork
from weft.index.scan import ScanIndex
from weft.ring import rendezvous
from weft.ring.chord import ANSWER, ChordNode, quiet_ring
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping
from weft.ring.keys_in_hand import Life
from weft.ring.messages import Find, NodeAddress, SendTo
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import AskRange, PublicationDone, RangeIs, Returned, RingSend
from weft.ring.ring_settings import RingSettings
from weft.server.ring_config import REISSUE

TESTS = Path(__file__).parents[1]
GUIDE = TESTS.parent / "docs" / "guides" / "ring.md"
SPACE = IdSpace(1 << 16)
MAPPING = KeyMapping(SPACE, {"x": Intervals("x", 0, 100, 4)})
KEY = MAPPING.of_value("t", "x", 10)

NODE = {  # how a sentence begins, and the tests that hold it
    "An event that is published after a subscription was": [
        "ring/test_rendezvous.py::test_an_event_reaches_all_who_want_it_once",
        "ring/test_ring_faults.py::test_members_that_cannot_be_reached_are_named_and_events_are_owed_to_them",
        "ring/test_promise.py::test_a_node_that_is_started_again_with_its_subscriptions_gets_what_it_is_owed",
    ],
    "This holds while nodes join and leave": [
        "ring/test_rendezvous.py::test_joins_and_leaves_lose_nothing",
        "ring/test_ring_faults.py::test_nodes_that_join_at_once_in_one_gap_lose_nothing",
        "ring/test_rendezvous.py::test_fewer_failures_than_copies_lose_nothing",
        "ring/test_ring_faults.py::test_one_death_close_to_joins_or_a_leave_loses_nothing",
        "ring/test_ring_faults.py::test_a_ring_that_was_cut_becomes_one_again_and_loses_nothing",
        "lab/test_ring_faults.py::test_a_ring_keeps_its_promise_under_faults",
    ],
    "A node that is started again with its application's": [
        "ring/test_promise.py::test_a_node_that_is_started_again_with_its_subscriptions_gets_what_it_is_owed",
    ],
    "One that comes back without them has none": [
        "ring/test_promise.py::test_a_node_that_comes_back_without_its_subscriptions_has_none_and_nothing_waits_for_it",
        "ring/test_ring_faults.py::test_a_restarted_node_is_handed_its_keys_at_once",
    ],
    "Where no complete copy of a key's records": [
        "ring/test_promise.py::test_without_a_copy_nobody_answers_until_the_key_is_abandoned_and_learnt_anew",
    ],
    "Requests wait and nothing is done": [
        "ring/test_promise.py::test_without_a_copy_nobody_answers_until_the_key_is_abandoned_and_learnt_anew",
        "ring/test_promise.py::test_keys_that_nobody_answers_for_wait_for_a_node_that_has_a_copy",
    ],
}

PROMISES = {
    "A publish is acknowledged when it is on the disk": ["server/test_ring.py::test_a_broker_that_is_killed_and_comes"],
    "The broker offers the event to the ring until": [
        "ring/test_bridge.py::test_a_broker_that_is_killed_and_started_again_goes_on",
        "ring/test_bridge.py::test_what_is_owed_survives_the_publishers_broker",
    ],
    "An event that is published after a subscription is": [
        "ring/test_bridge.py::test_complete_means_that_the_next_event_arrives"
    ],
    "This holds while nodes join and leave": [
        "ring/test_bridge.py::test_a_death_and_a_join_lose_nothing_with_replicas",
        "ring/test_bridge.py::test_a_death_and_a_join_lose_nothing_with_topic_groups",
        "server/test_ring.py::test_five_processes_one_killed_and_one_joining_under_load_lose_nothing",
        "ring/test_ring_faults.py::test_a_ring_that_was_cut_becomes_one_again_and_loses_nothing",
    ],
    "Rings that meet become one.": [
        "ring/test_ring_faults.py::test_a_ring_that_was_cut_becomes_one_again_and_loses_nothing"
    ],
    "Every node looks for members that it has known": [
        "ring/test_promise.py::test_a_node_looks_for_other_rings_every_ten_seconds_or_two_while_a_member_is_silent"
    ],
    "Where no complete copy of a key's subscriptions": [
        "ring/test_promise.py::test_without_a_copy_nobody_answers_until_the_key_is_abandoned_and_learnt_anew"
    ],
    "After a minute without its owner": [
        "ring/test_promise.py::test_without_a_copy_nobody_answers_until_the_key_is_abandoned_and_learnt_anew",
        "ring/test_promise.py::test_the_periods_are_those_of_the_guide",
    ],
    "The same holds for the keys of a topic that were lost": [
        "ring/test_promise.py::test_cells_of_a_group_that_were_lost_with_all_copies_are_learnt_anew"
    ],
    "A broker that was down, was killed or stopped cleanly": [
        "ring/test_bridge.py::test_what_is_published_while_a_broker_is_down_reaches_it_when_it_is_back",
        "ring/test_bridge.py::test_brokers_that_are_down_for_seconds_miss_nothing",
        "server/test_ring.py::test_a_broker_that_is_killed_and_comes_back_later",
    ],
    "See [brokers that are down]": [],
    "A broker that comes back without its disk": [
        "ring/test_promise.py::test_a_node_that_comes_back_without_its_subscriptions_has_none_and_nothing_waits_for_it"
    ],
    "What it stored for others is recalled": [
        "ring/test_ring_faults.py::test_a_restarted_node_is_handed_its_keys_at_once",
    ],
    "A subscriber's broker stores each event once": [
        "ring/test_bridge.py::test_brokers_that_are_down_for_seconds_miss_nothing"
    ],
    "It tells events apart by what it has received": [
        "ring/test_bridge.py::test_a_broker_that_is_killed_and_started_again_goes_on"
    ],
    "A node that is stopped takes no new events": [
        "ring/test_ring_faults.py::test_a_node_leaves_while_events_keep_coming_and_takes_no_more_itself",
        "ring/test_promise.py::test_a_node_that_leaves_waits_for_two_seconds_at_most",
    ],
    "Others have as many copies by then as before": [
        "ring/test_ring_faults.py::test_a_node_leaves_when_its_keys_will_have_as_many_copies_as_before"
    ],
    "Its own clients' durable subscriptions stay": [
        "ring/test_promise.py::test_a_node_that_is_started_again_with_its_subscriptions_gets_what_it_is_owed"
    ],
}


def sentences(text: str) -> list[str]:
    """The sentences of a list of promises."""
    points = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    return [each for point in points for each in re.split(r"(?<=\.) (?=[A-Z])", " ".join(point.split()))]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        pytest.param(
            (inspect.getdoc(rendezvous) or "").partition("promised:")[2].partition("How a node")[0], NODE, id="node"
        ),
        pytest.param(GUIDE.read_text().partition("## What it promises")[2].partition("\n## ")[0], PROMISES, id="guide"),
    ],
)
def test_every_sentence_of_the_promise_has_a_test(text: str, held: dict[str, list[str]]) -> None:
    found = sentences(text)
    assert len(found) >= 5
    for sentence in found:
        assert any(sentence.startswith(begin) for begin in held), f"no test holds: {sentence}"
    for begin, tests in held.items():
        assert any(sentence.startswith(begin) for sentence in found), f"this is not promised any more: {begin}"
        for test in tests:
            file, name = test.split("::")
            assert f"def {name}" in (TESTS / file).read_text(), test


def at(distance: int) -> int:
    return (KEY + distance) % SPACE.size


def ring(*distances: int, **settings: object) -> RendezvousNetwork:
    return RendezvousNetwork(MAPPING, sorted(map(at, distances)), 1, **settings)


def names(*distances: int) -> list[NodeAddress]:
    return [NodeAddress(f"n{at(distance)}") for distance in distances]


def done(network: RendezvousNetwork) -> list[PublicationDone]:
    return [effect for _, effect in network.effects if isinstance(effect, PublicationDone)]


@pytest.mark.parametrize("ends", ["leave", "death"])
def test_a_node_that_is_started_again_with_its_subscriptions_gets_what_it_is_owed(ends: str) -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=2)
    home, other = names(30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(3)
    if ends == "leave":
        network.leave(home)
    else:
        network.fail(home)
    network.run(6)
    event = network.publish(other, "t", {"x": 12})
    network.run(8)
    assert {each.silent for each in done(network)} == {(home,)}, "it is owed the event"
    network.join(at(30_000), other)
    network.subscribe(home, 2, "t", "x BETWEEN 1 AND 20")  # its application has it again, under another number
    network.run(20)
    assert (other, Returned(home)) in network.effects
    assert network.delivered[event, home, 2] == 1
    assert done(network)[-1].silent == ()


def test_a_node_that_comes_back_without_its_subscriptions_has_none_and_nothing_waits_for_it() -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=2)
    home, other, third = names(30_000, 40_000, 20_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.subscribe(third, 1, "t", "x BETWEEN 1 AND 20")
    network.run(3)
    network.fail(home)
    network.run(6)
    network.publish(other, "t", {"x": 12})
    network.run(4)
    network.active.pop((home, 1))
    network.join(at(30_000), other)
    network.run(25)
    network.publish(other, "t", {"x": 13})
    network.run(5)
    assert {address for (_, address, _) in network.delivered} == {third}
    assert done(network)[-1].silent == ()
    assert not any(network.owed.values())
    assert not any(record.sub.home == home for node in network.nodes.values() for record in node.records)


def test_without_a_copy_nobody_answers_until_the_key_is_abandoned_and_learnt_anew() -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=1, abandon=10 * ANSWER, reissue=8 * ANSWER, keep=3600 * ANSWER)
    owner, home, other = names(50, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(3)
    network.fail(owner)
    event = network.publish(other, "t", {"x": 12})
    died = network.engine.now
    while not done(network):
        assert network.engine.now < died + 60 * ANSWER
        network.run(0.2)
    assert network.engine.now - died >= 10 * ANSWER + 10 * ANSWER, "abandoned, and then learnt for 1.25 periods"
    network.run(5)
    assert network.delivered[event, home, 1] == 1
    assert sum(node.keys.incomplete for node in network.nodes.values()) == 1


@pytest.mark.parametrize("ends", ["death", "leave while cut off"])
def test_cells_of_a_group_that_were_lost_with_all_copies_are_learnt_anew(ends: str) -> None:
    rule = GroupRule(depth=3, lease=9 * ANSWER)
    network = ring(
        50, 20_000, 30_000, 40_000, replicas=1, groups=rule, abandon=10 * ANSWER, reissue=8 * ANSWER, keep=3600 * ANSWER
    )
    everybody = names(50, 20_000, 30_000, 40_000)
    for address in everybody[:3]:
        network.subscribe(address, 1, "t", "x >= 0")
    network.run(15)
    (holder,) = {
        node.me.address
        for node in network.nodes.values()
        if node.groups is not None and any(hold.has(SPACE, KEY) for hold in node.groups.cells.holds())
    }
    if ends == "death":
        network.fail(holder)
    else:
        network.cut_off = {holder}
        network.run(4)
        network.leave(holder)
        while holder in network.nodes:
            network.run(0.5)
        network.cut_off = set()
    event = network.publish(everybody[3], "t", {"x": 10})
    network.run(80)
    assert {home for each, home, _ in network.delivered if each == event} == set(everybody[:3]) - {holder}
    network.subscribe(everybody[3], 2, "t", "x >= 0")
    network.run(5)
    last = network.publish(everybody[3], "t", {"x": 10})
    network.run(5)
    assert network.delivered[last, everybody[3], 2] == 1, "everything is as before"


def test_keys_that_nobody_answers_for_wait_for_a_node_that_has_a_copy() -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=2, abandon=60 * ANSWER, reissue=20 * ANSWER)
    owner, copy, home, other = names(50, 20_000, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(5)
    network.cut_off = {owner, copy}  # both who have the record
    network.run(3)
    event = network.publish(other, "t", {"x": 12})
    network.run(20)
    assert not done(network), "nobody has answered"
    network.cut_off = set()
    network.run(20)
    assert network.delivered[event, home, 1] == 1
    assert not sum(node.keys.incomplete for node in network.nodes.values())
    assert network.is_one_ring()


def looks(chord: ChordNode, seconds: int) -> int:
    """How often a node looks its own place up."""
    own = 0
    for tenth in range(seconds * 10):
        effects = chord.tick(tenth * ANSWER // 10)
        messages = [effect.message for effect in effects if isinstance(effect, SendTo)]
        own += sum(isinstance(each, Find) and each.key == chord.me.id for each in messages)
        chord._requests.clear()  # everybody answers
        chord._lookups.clear()
    return own


def test_a_node_looks_for_other_rings_every_ten_seconds_or_two_while_a_member_is_silent() -> None:
    quiet, troubled = (quiet_ring(SPACE, range(0, SPACE.size, 4_096), 4)[0] for _ in range(2))
    assert looks(quiet, 60) == 6
    next(iter(troubled.members.values())).silent_since = 1
    assert looks(troubled, 60) == 30


def test_a_node_that_is_back_is_reported_again_less_and_less_often() -> None:
    chord = quiet_ring(SPACE, [10_000, 30_000, 50_000])[0]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    back = chord.successor
    reported = []
    for tenth in range(800):
        now = tenth * ANSWER // 10
        node.owe([back.address], now)
        for effect in node.tick(now):
            if isinstance(effect, RingSend) and isinstance(effect.message, AskRange):
                answer = RangeIs(effect.message.token, back.id)
                found = node.receive(back, [answer], now)
                reported += [now // ANSWER for each in found if each == Returned(back.address)]
    assert reported == [0, 5, 15, 35, 55, 75]


def test_the_periods_are_those_of_the_guide() -> None:
    made = RingSettings(MAPPING, reissue=REISSUE)
    assert (made.abandon, made.learn) == (60 * ANSWER, 75 * ANSWER)


def test_a_node_that_leaves_waits_for_two_seconds_at_most() -> None:
    chord = quiet_ring(SPACE, [10_000, 30_000, 50_000])[0]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    node.publish("t", {"x": 12}, 0)  # nobody answers
    node.leave(0)
    assert node.life is Life.FINISHING
    for tenth in range(1, 20):
        node.tick(tenth * ANSWER // 10)
        chord._requests.clear()  # all others are alive
    assert node.life is Life.FINISHING
    sent = [effect for effect in node.tick(2 * ANSWER) if isinstance(effect, RingSend)]
    assert node.life is Life.LEAVING
    assert sent, "it hands its keys over"
