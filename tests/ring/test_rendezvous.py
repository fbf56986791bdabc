"""Events find their subscriptions, once, while nodes join, leave and die."""

from __future__ import annotations

import numpy as np
import pytest

from ring.rendezvous_network import RendezvousNetwork
from strategies import EXAMPLES
from weft.algebra.profile import Meeting, Profile
from weft.errors import LocalProtocolError, RingError
from weft.index.scan import ScanIndex
from weft.index.tree import TreeIndex
from weft.language.text import parse
from weft.ring.chord import ChordNode, quiet_ring
from weft.ring.identifiers import IdSpace, Key
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping, Selection, Semantics
from weft.ring.load_sharing import FRESH, Sharing, SharingRule
from weft.ring.messages import NodeAddress, RequestToken
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    AskLoad,
    Delivered,
    DeliverEvent,
    Done,
    EventId,
    Handover,
    Hold,
    JoinedRing,
    JoiningFailed,
    LoadIs,
    Publication,
    PublicationDone,
    Record,
    RingSend,
    RingSub,
    Store,
    Subscribed,
    Unsubscribed,
    Visit,
    Visited,
)
from weft.ring.ring_settings import RingSettings

SPACE = IdSpace(256)
CUTS = {name: Intervals(name, 0, 10, 5) for name in ("x", "y")}
MAPPING = KeyMapping(SPACE, CUTS)
IDS = [3, 40, 90, 130, 170, 220]
FILTERS = (
    "x < 4",
    "x BETWEEN 3 AND 6 AND y > 2",
    "y = 7",
    "x = 1 OR y BETWEEN 0 AND 3",
    "name LIKE 'a%'",
    "name = 'ab' AND x > 2",
    "x != 5",
    "NOT (x > 3)",
    "x IS NULL",
    "TRUE",
)


def event(rng: np.random.Generator) -> dict[str, object]:
    given: dict[str, object] = {name: int(rng.integers(-1, 12)) for name in ("x", "y") if rng.random() < 0.8}
    if rng.random() < 0.5:
        given["name"] = str(rng.choice(["a", "ab", "b"]))
    return given


def test_an_event_reaches_all_who_want_it_once() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 1, index=TreeIndex)
    for number, text in enumerate(FILTERS):
        network.subscribe("n40", number, "t", text)
        network.subscribe("n3", number, "u", text)
    network.run(2)
    assert len(network.active) == 2 * len(FILTERS)
    for at in range(30):
        network.publish(f"n{IDS[at % 6]}", "tu"[at % 2], event(network.rng))
    network.run(3)
    network.check()


def test_a_subscription_that_is_removed_is_stored_nowhere() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 2, replicas=3)
    network.subscribe("n40", 1, "t", "x BETWEEN 0 AND 9 OR y = 3")
    network.run(2)
    assert sum(len(node.records) for node in network.nodes.values()) >= 3
    network.unsubscribe("n40", 1)
    network.run(2)
    assert ("n40", Unsubscribed(1)) in network.effects
    assert sum(len(node.records) for node in network.nodes.values()) == 0


def test_partial_match_delivers_what_lacks_an_attribute() -> None:
    network = RendezvousNetwork(KeyMapping(SPACE, CUTS, Semantics.PARTIAL), IDS, 3)
    network.subscribe("n40", 1, "t", "x < 4 AND y > 5")
    network.run(2)
    for given in ({"x": 1}, {"y": 9}, {"x": 1, "y": 1}, {"name": "a"}):
        network.publish("n3", "t", given)
    network.run(2)
    got = [effect.event.attributes for _, effect in network.effects if isinstance(effect, Delivered)]
    assert sorted(map(str, got)) == ["{'x': 1}", "{'y': 9}"]


def test_an_event_with_ranges_meets_as_the_subscription_says() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 4)
    node = network.nodes["n40"]
    network.perform(node, node.subscribe(1, "t", "x < 8", 0, Meeting.COVERING))
    network.perform(node, node.subscribe(2, "t", "x > 4", 0, Meeting.OVERLAP))
    network.perform(node, node.subscribe(3, "t", "y > 4", 0, Meeting.OVERLAP))
    network.run(2)
    storm = Profile("s", "1", parse("x BETWEEN 3 AND 6"))
    network.perform(network.nodes["n3"], network.nodes["n3"].publish("t", storm, network.engine.now)[1])
    network.run(2)
    assert sorted(e.number for _, e in network.effects if isinstance(e, Delivered)) == [1, 2, 3]


@pytest.mark.parametrize("sharing", [Sharing.REPLICATION, Sharing.PARTITION])
def test_an_overloaded_node_shares_what_it_examines(sharing: Sharing) -> None:
    network = RendezvousNetwork(MAPPING, IDS, 5, sharing=SharingRule(sharing, nodes=3, threshold=4))
    for number in range(20):  # all under one key
        network.subscribe("n40", number, "t", f"x = 1 AND name != 'z{number}'")
        network.run(1)
    held = {a: sum(len(each) for _, each in node.keeper.held.values()) for a, node in network.nodes.items()}
    holders = [count for count in held.values() if count]
    assert len(holders) == 2
    if sharing is Sharing.REPLICATION:
        assert min(holders) >= 20, "what was stored before is copied first"
    else:
        assert 3 <= min(holders) <= max(holders) <= 7
    for at in range(9):
        network.publish(f"n{IDS[at % 6]}", "t", {"x": 1, "name": "a"})
    network.run(3)
    network.check()
    assert sum(network.delivered.values()) == 180
    network.unsubscribe("n40", 19)
    network.run(2)
    dead = next(address for address, count in held.items() if count and address not in ("n40", "n3"))
    network.publish("n3", "t", {"x": 1, "name": "a"})
    network.fail(dead)
    network.publish("n3", "t", {"x": 1, "name": "b"})
    network.run(12)
    network.check()


def test_only_neighbours_that_are_alive_and_not_overloaded_are_asked_to_share() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90, 130, 200])[1]
    rule = SharingRule(Sharing.PARTITION, nodes=4, threshold=2)
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex, sharing=rule), np.random.default_rng(1))
    asked = {e.to: e.message for e in node.tick(0) if isinstance(e, RingSend) and isinstance(e.message, AskLoad)}
    assert set(asked) == {"n10", "n90", "n130", "n200"}, "successors and fingers"
    by_address = {each.address: each for each in chord.neighbours()}
    for address, load in (("n90", 3), ("n130", 2), ("n200", 0)):  # n10 does not answer
        node.receive(by_address[address], [LoadIs(asked[address].token, by_address[address], load)], 1_000)

    def store(number: int, now: int) -> list[str]:
        record = Record(Key(30), RingSub("n90", number), "t", "TRUE")
        effects = node.receive(by_address["n90"], [Store(RequestToken(number), Key(30), (record,))], now)
        return [e.to for e in effects if isinstance(e, RingSend) and isinstance(e.message, Hold)]

    assert [store(1, 2_000), store(2, 2_000)] == [[], []], "it is not overloaded itself"
    assert store(3, 2_000) == ["n200", "n130"], "the least loaded first; n90 is overloaded"
    late = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex, sharing=rule), np.random.default_rng(1))
    for address in asked:
        late.keeper._neighbours.heard(by_address[address], 0, 0)
    assert late.keeper._neighbours.fit(FRESH) != []
    assert late.keeper._neighbours.fit(FRESH + 1) == [], "who has not answered for long is taken for dead"


def test_a_node_answers_how_much_it_examines() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    sender = chord.successor
    node.receive(sender, [Store(RequestToken(1), Key(30), (Record(Key(30), RingSub("n90", 1), "t", "TRUE"),))], 0)
    assert node.receive(sender, [AskLoad(RequestToken(7))], 0) == [RingSend("n90", LoadIs(RequestToken(7), node.me, 1))]


def test_holders_forget_what_they_hold_when_keys_move() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 5, sharing=SharingRule(Sharing.PARTITION, nodes=3, threshold=4))
    for number in range(12):
        network.subscribe("n40", number, "t", f"x = 1 AND name != 'z{number}'")
        network.run(0.5)
    owner = next(node for node in network.nodes.values() if node.keeper.shared.holders)
    before = owner.keeper.shared.epoch
    network.join((owner.me.id - 1) % 256, "n3")
    network.run(6)
    assert owner.keeper.shared.epoch > before
    for node in network.nodes.values():
        for address, (epoch, _) in node.keeper.held.items():
            assert network.nodes[address].keeper.shared.epoch == epoch
    network.publish("n3", "t", {"x": 1, "name": "a"})
    network.run(3)
    network.check()
    assert sum(network.delivered.values()) == 12


def test_a_subscription_whose_node_is_gone_is_dropped() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 6, reissue=3_000_000)
    network.subscribe("n90", 1, "t", "x = 1")
    network.subscribe("n3", 1, "t", "x = 1")
    network.run(30)
    stored = [record.sub.home for node in network.nodes.values() for record in node.records]
    assert sorted(stored) == ["n3", "n90"], "both are stored again and again"
    network.fail("n90")
    network.run(30)
    assert {r.sub.home for node in network.nodes.values() for r in node.records} <= {"n3"}


@pytest.mark.parametrize("sharing", [Sharing.REPLICATION, Sharing.PARTITION])
def test_what_expires_is_forgotten_by_those_who_hold_it_too(sharing: Sharing) -> None:
    rule = SharingRule(sharing, nodes=3, threshold=3)
    network = RendezvousNetwork(MAPPING, IDS, 6, replicas=2, sharing=rule, reissue=3_000_000)
    for number in range(12):
        network.subscribe("n3" if number % 2 else "n90", number, "t", "x = 1")
        network.run(1)

    def homes() -> set[NodeAddress]:
        held = [store for node in network.nodes.values() for _, store in node.keeper.held.values()]
        return {record.sub.home for store in held for record in store}

    assert homes() == {"n3", "n90"}
    network.fail("n90")
    network.run(40)
    assert homes() <= {"n3"}
    network.publish("n3", "t", {"x": 1, "name": "a"})
    network.run(8)  # the dead node may have been a holder
    network.check()
    for node in network.nodes.values():
        node.forget(NodeAddress("n90"))  # else it might come back with subscriptions that nobody knows of
    network.publish("n3", "t", {"x": 1, "name": "a"})
    network.run(8)
    done = [effect.silent for _, effect in network.effects if isinstance(effect, PublicationDone)]
    assert done[0] == ("n90",)
    assert done[-1] == ()


def test_nothing_is_remembered_of_a_subscription_that_is_removed() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 6, replicas=2)
    network.subscribe("n90", 1, "t", "x < 7")
    network.run(2)
    assert any(node.records.renewed for node in network.nodes.values())
    network.unsubscribe("n90", 1)
    network.run(2)
    assert not any(node.records.renewed or len(node.records) for node in network.nodes.values())


def test_a_node_finishes_what_it_publishes_before_it_leaves() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 8)
    network.subscribe("n3", 1, "t", "x = 1 OR name LIKE 'a%'")
    network.run(1)
    network.publish("n90", "t", {"x": 1, "name": "ab"})
    network.leave("n90")
    network.run(0.01)
    assert "n90" in network.nodes
    network.run(3)
    assert "n90" not in network.nodes
    network.check()


CLIENTS = ("n3", "n130")


def churn(seed: int, replicas: int, sharing: Sharing = Sharing.NONE, mapping: KeyMapping = MAPPING) -> None:
    """Two nodes have clients; others come, go and, with replicas, die: at most one fewer at once than there are."""
    rule = SharingRule(sharing, nodes=3, threshold=3)
    ids = IDS if replicas == 1 else sorted([*IDS, 15, 60, 110, 150, 190, 240])
    network = RendezvousNetwork(mapping, ids, seed, replicas=replicas, sharing=rule)
    rng = np.random.default_rng(seed)
    calm = 0
    for step in range(40):
        choice = rng.integers(8)
        others = [a for a, n in network.nodes.items() if a not in CLIENTS and not n.chord.joining]
        home = CLIENTS[int(rng.integers(2))]
        if choice <= 1:
            network.subscribe(home, step, "t", str(rng.choice(FILTERS)))
        elif choice == 2 and network.active:
            network.unsubscribe(*list(network.active)[int(rng.integers(len(network.active)))])
        elif choice == 3:
            new = int(rng.integers(256))
            if f"n{new}" not in network.nodes:
                network.join(new, home)
        elif choice == 4 and len(others) > 1:
            network.leave(others[int(rng.integers(len(others)))])
        elif choice >= 5 and replicas > 1 and len(others) > replicas and calm > 8:
            for dead in rng.permutation(others)[: replicas - 1].tolist():  # at once
                network.fail(dead)
            calm = 0
        else:
            network.publish(home, "t", event(rng))
        for _ in range(4 if choice >= 3 else 0):  # while keys move
            network.run(0.04)
            network.publish(home, "t", event(rng))
        pause = float(rng.choice([0.01, 0.2, 1.0]))
        calm += pause
        if replicas > 1:
            pause += 1.0
        network.run(pause)
    network.run(40)
    network.check()
    publisher = CLIENTS[0]
    for _ in range(5):
        network.publish(publisher, "t", event(rng))
    network.run(8)
    network.check()


@pytest.mark.parametrize("seed", range(2 if EXAMPLES == 1 else 5 * EXAMPLES))
def test_joins_and_leaves_lose_nothing(seed: int) -> None:
    churn(seed, 1)


@pytest.mark.parametrize("seed", range(100, 102 if EXAMPLES == 1 else 100 + 4 * EXAMPLES))
def test_fewer_failures_than_copies_lose_nothing(seed: int) -> None:
    churn(seed, 3)


@pytest.mark.parametrize("seed", range(200, 201 if EXAMPLES == 1 else 200 + 2 * EXAMPLES))
@pytest.mark.parametrize("sharing", [Sharing.REPLICATION, Sharing.PARTITION])
def test_sharing_the_load_loses_nothing(seed: int, sharing: Sharing) -> None:
    churn(seed, 2, sharing)


@pytest.mark.parametrize("seed", [300, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(301, 310))])
@pytest.mark.parametrize(
    "mapping",
    [KeyMapping(SPACE, CUTS, Semantics.PARTIAL), KeyMapping(SPACE, CUTS, selection=Selection.RANDOM)],
    ids=["partial", "random"],
)
def test_other_mappings_lose_nothing(seed: int, mapping: KeyMapping) -> None:
    churn(seed, 2, mapping=mapping)


def test_a_node_whose_identifier_is_taken_cannot_join() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 9)
    twin = RendezvousNode(ChordNode(SPACE, "twin", 90), network.settings, network.rng)
    network.nodes[twin.me.address] = twin
    network.perform(twin, twin.join("n3", 0))
    network.run(1)
    assert ("twin", JoiningFailed("identifier 90 is taken by n90; give this node another address")) in network.effects
    assert not twin.keys.serves(90), "it answers for nothing"


def test_bad_requests_are_refused() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 7)
    network.subscribe("n3", 1, "t", "x = 1")
    network.run(1)
    assert ("n3", Subscribed(1)) in network.effects
    with pytest.raises(LocalProtocolError, match="already exists"):
        network.nodes["n3"].subscribe(1, "t", "x = 1", 0)
    network.unsubscribe("n3", 1)
    with pytest.raises(LocalProtocolError, match="still being removed"):
        network.nodes["n3"].subscribe(1, "t", "x = 1", 0)
    network.run(2)
    network.subscribe("n3", 1, "t", "x = 1")
    with pytest.raises(LocalProtocolError, match="no subscription 9"):
        network.nodes["n3"].unsubscribe(9, 0)
    with pytest.raises(LocalProtocolError, match="part of a ring"):
        network.nodes["n3"].join("n40", 0)
    with pytest.raises(RingError, match="circle of 256"):
        RendezvousNode(ChordNode(IdSpace(8), "a"), network.settings, network.rng)
    with pytest.raises(RingError, match="at least one node"):
        RingSettings(MAPPING, replicas=0)
    with pytest.raises(RingError, match="two nodes or more"):
        SharingRule(nodes=1)
    with pytest.raises(RingError, match="1 or more"):
        SharingRule(threshold=0)


def test_a_node_answers_for_a_key_only_with_its_data_in_hand() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    before, after = chord.predecessor, chord.successor
    assert before is not None
    record = Record(Key(30), RingSub("n90", 1), "t", "TRUE")
    visit = Visit(RequestToken(1), Key(30), Publication(EventId("n10", 1), "t", {}))
    refused = [RingSend("n10", Done(RequestToken(1), ok=False))]
    node.wait([])
    assert node.receive(before, [visit], 0) == refused, "it has not been handed its keys"
    handover = Handover(RequestToken(5), Key(10), Key(50), (record,))
    assert node.receive(after, [handover], 0) == [RingSend("n90", Done(RequestToken(5), ok=False))], "it is not placed"
    node.chord.begin()
    node.keys.joined()
    assert node.receive(after, [handover], 0) == [RingSend("n90", Done(RequestToken(5))), JoinedRing()]
    delivered = DeliverEvent(RequestToken(1), visit.event, ((1, 0),))
    assert node.receive(before, [visit], 0) == [RingSend("n90", delivered)]
    assert node.receive(after, [Done(RequestToken(1))], 0) == [RingSend("n10", Visited(RequestToken(1)))], (
        "now all who want it have it"
    )
    elsewhere = Handover(RequestToken(6), Key(200), Key(9), ())
    assert node.receive(before, [elsewhere], 0) == [RingSend("n10", Done(RequestToken(6), ok=False))], (
        "it is not next to this"
    )
    last = Handover(RequestToken(2), Key(10), Key(50), (record,), edge=before, leaving=True)
    assert node.leave(0) == [RingSend("n90", last)]
    assert node.receive(before, [visit], 0) == refused, "it is leaving"
