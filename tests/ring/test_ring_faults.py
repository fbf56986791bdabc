"""What once lost events on a ring, or stopped it: cuts, joins, leaves and deaths close together, restarts."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ring.rendezvous_network import RendezvousNetwork
from weft.errors import LocalProtocolError
from weft.index.scan import ScanIndex
from weft.ring.chord import ANSWER, ChordNode, quiet_ring
from weft.ring.identifiers import IdSpace, Key
from weft.ring.intervals import Intervals
from weft.ring.key_copies import BATCH
from weft.ring.key_mapping import KeyMapping
from weft.ring.keys_in_hand import NEXT_LIFE, Life
from weft.ring.load_sharing import Sharing, SharingRule
from weft.ring.messages import Ask, NodeAddress, Notify, RequestToken
from weft.ring.own_interest import Subscribing
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    CopyRecords,
    Delivered,
    Done,
    Handover,
    HandoverPart,
    Hold,
    LeftRing,
    PublicationDone,
    Record,
    RingSend,
    RingSub,
    Store,
    Subscribed,
    Visited,
    first_stamp,
)
from weft.ring.ring_settings import RingSettings
from weft.ring.work import NEXT, RingWork, WorkState

SPACE = IdSpace(1 << 16)
MAPPING = KeyMapping(SPACE, {"x": Intervals("x", 0, 100, 4)})
KEY = MAPPING.of_value("t", "x", 10)  # what the subscriptions here are stored under


def at(distance: int) -> int:
    """An identifier so far after the key."""
    return (KEY + distance) % SPACE.size


def ring(*distances: int, seed: int = 1, **settings: object) -> RendezvousNetwork:
    return RendezvousNetwork(MAPPING, sorted(map(at, distances)), seed, **settings)


def names(*distances: int) -> list[NodeAddress]:
    return [NodeAddress(f"n{at(distance)}") for distance in distances]


# -- splits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1, 3, 12])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_ring_that_was_cut_becomes_one_again_and_loses_nothing(seconds: int, parts: int) -> None:
    distances = (50, 10_000, 20_000, 30_000, 40_000)
    network = ring(*distances, replicas=2, reissue=20 * ANSWER, keep=3600 * ANSWER)
    everybody = names(*distances)
    for address in everybody:
        network.subscribe(address, 1, "t", "x >= 0")
    network.run(5)
    network.cut_off = set(everybody[:parts])
    for number in range(4 * seconds):
        network.publish(everybody[number % 5], "t", {"x": number})
        network.run(0.25)
        if number == 2:
            for address in everybody:
                network.subscribe(address, 2, "t", "x >= 5")
    network.cut_off = set()
    network.run(5)
    assert network.is_one_ring()
    for address in everybody:
        network.publish(address, "t", {"x": 70})
    network.run(90)
    network.check()
    assert not any(network.owed.values())


def test_members_that_cannot_be_reached_are_named_and_events_are_owed_to_them() -> None:
    network = ring(50, 10_000, 20_000, 30_000, replicas=2)
    gone, owner, home = names(10_000, 50, 30_000)
    network.subscribe(home, 1, "t", "x >= 0")
    network.run(3)
    network.cut_off = {gone}
    network.run(4)
    assert set(network.nodes[owner].chord.unreachable()) == {gone}
    network.publish(home, "t", {"x": 10})
    network.run(3)
    assert [e.silent for _, e in network.effects if isinstance(e, PublicationDone)] == [(gone,)]
    network.nodes[owner].forget(gone)
    assert not network.nodes[owner].chord.unreachable()


def test_a_node_that_did_not_run_for_a_while_does_not_vouch_for_its_keys() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    node.tick(0)
    node.tick(100_000)
    assert node.keys.missing(100_000) == []
    node.tick(5 * ANSWER)
    assert set(node.keys.missing(5 * ANSWER)) == {"n10", "n90"}, "others may have taken its keys over"


def test_nodes_that_were_all_stopped_begin_again() -> None:
    network = ring(50, 10_000, 20_000, replicas=2, reissue=2 * ANSWER)
    everybody = names(50, 10_000, 20_000)
    members = [network.nodes[address].me for address in everybody]
    network.run(3)
    for address in everybody:
        network.fail(address)
    for ref in members:
        node = network._start(ChordNode(SPACE, ref.address, ref.id, 4, 1))
        node.wait(members)
        known = next(each for each in everybody if each != ref.address)
        network.perform(node, node.join(known, network.engine.now))
    for _ in range(30):
        network.run(1)
        for node in network.nodes.values():
            if node.life is Life.JOINING and node.chord._through is None:
                known = next(each for each in everybody if each != node.me.address)
                network.perform(node, node.join(known, network.engine.now))
    assert network.is_one_ring()


# -- joins, leaves and deaths ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("replicas", [1, 2])
def test_nodes_that_join_at_once_in_one_gap_lose_nothing(seed: int, replicas: int) -> None:
    rng = np.random.default_rng(seed)
    ids = [1000, 40_000, 48_000, 56_000]
    network = RendezvousNetwork(KeyMapping(SPACE, {"x": Intervals("x", 0, 100, 50)}), ids, seed, replicas=replicas)
    homes = [f"n{each}" for each in ids[1:]]
    for number in range(25):
        low = int(rng.integers(95))
        network.subscribe(homes[number % 3], number, "t", f"x BETWEEN {low} AND {low + 4}")
    network.run(5)
    for new in rng.choice(np.arange(2_000, 39_000), 5, replace=False).tolist():
        network.join(new, homes[new % 3])
        network.run(float(rng.choice([0, 0.05, 0.3])))
    for number in range(60):
        network.publish(homes[number % 3], "t", {"x": int(rng.integers(101))})
        network.run(0.05)
    network.run(20)
    network.check()
    assert network.is_one_ring()


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_node_can_leave_return_and_leave_again(replicas: int) -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=replicas)
    back, home, other = names(50, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(3)
    for _ in range(3):
        network.leave(back)
        network.run(5)
        assert back not in network.nodes
        network.publish(other, "t", {"x": 12})
        network.join(at(50), other)
        network.run(3)
        assert network.nodes[back].life is Life.SERVING
        network.publish(other, "t", {"x": 12})
    network.run(5)
    network.check()


def test_a_node_leaves_while_events_keep_coming_and_takes_no_more_itself() -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=2)
    leaver, home, other = names(50, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x >= 0")
    network.run(3)
    network.publish(leaver, "t", {"x": 12})
    network.leave(leaver)
    with pytest.raises(LocalProtocolError, match="leaving"):
        network.nodes[leaver].publish("t", {"x": 1}, network.engine.now)
    for _ in range(60):
        network.publish(other, "t", {"x": 12})
        network.run(0.05)
    assert leaver not in network.nodes
    network.run(5)
    network.check()


@pytest.mark.parametrize("pause", [0, 0.05, 0.3, 1.2])
@pytest.mark.parametrize("what", ["joins", "leave", "owner leaves", "death first"])
def test_one_death_close_to_joins_or_a_leave_loses_nothing(what: str, pause: float) -> None:
    network = ring(50, 20_000, 30_000, 40_000, 50_000, replicas=2, seed=int(10 * pause))
    owner, holder, home, other = names(50, 20_000, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(5)
    if what == "joins":  # two nodes between the owner and the copy
        network.join(at(1_000), other)
        network.join(at(2_000), home)
        while not all(node.life is Life.SERVING for node in network.nodes.values()):
            network.run(0.02)
    elif what == "leave":
        network.leave(holder)
        while holder in network.nodes:
            network.run(0.005)
    if what == "death first":
        network.fail(owner)
        network.run(pause)
        network.leave(holder)
    elif what == "owner leaves":  # and who has got everything from it dies
        network.leave(owner)
        while owner in network.nodes:
            network.run(0.005)
        network.run(pause)
        network.fail(holder)
    else:
        network.run(pause)
        network.fail(owner)
    network.run(15)
    network.publish(other, "t", {"x": 12})
    network.run(10)
    network.check()
    assert network.is_one_ring()


@pytest.mark.parametrize("pause", [0.05, 0.4, 1.5])
def test_two_deaths_with_quick_restarts_lose_nothing_with_three_copies(pause: float) -> None:
    network = ring(50, 20_000, 30_000, 40_000, 50_000, replicas=3, seed=int(10 * pause))
    owner, holder, home, other = names(50, 20_000, 40_000, 50_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(5)
    for distance, address in ((50, owner), (20_000, holder)):
        network.fail(address)
        network.run(pause)
        network.join(at(distance), other)  # without its disk
        network.run(pause)
    for _ in range(5):
        network.publish(other, "t", {"x": 12})
        network.run(0.3)
    network.run(20)
    network.check()
    assert network.is_one_ring()


def test_a_node_leaves_when_its_keys_will_have_as_many_copies_as_before() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90, 130])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, replicas=2, index=ScanIndex), np.random.default_rng(1))
    first, second = chord.successors[:2]
    node.leave(0)
    sent: list[RingSend] = []
    for now in (100_000, 200_000, 300_000):
        chord._requests.clear()  # everybody is alive
        sent += [effect for effect in node.tick(now) if isinstance(effect, RingSend)]
        for effect in [each for each in sent if isinstance(each.message, CopyRecords)]:
            node.receive(first, [Done(effect.message.token)], now) if effect.to == first.address else None
    copies = [effect for effect in sent if isinstance(effect.message, CopyRecords) and effect.message.whole]
    assert [effect.to for effect in copies] == [first.address, second.address]
    assert not any(isinstance(effect.message, Handover) for effect in sent)
    (handover,) = [
        effect
        for effect in node.receive(second, [Done(copies[1].message.token)], 400_000)
        if isinstance(effect.message, Handover)
    ]
    assert handover.to == first.address


def test_a_holder_that_leaves_while_the_key_moves_does_not_hide_subscriptions() -> None:
    rule = SharingRule(Sharing.REPLICATION, nodes=3, threshold=2)
    for seed in range(6):
        network = ring(200, 20_000, 30_000, 40_000, seed=seed, sharing=rule)
        owner, home = names(200, 40_000)
        for number in range(6):
            network.subscribe(home, number, "t", "x BETWEEN 1 AND 20")
            network.run(1.5)
        holders = [each.address for each in network.nodes[owner].keeper.shared.holders if each.address != home]
        network.leave(holders[0])
        network.run(0.1)
        for _ in range(6):
            network.publish(home, "t", {"x": 12})
        network.run(0.5)
        network.join(at(100), home)
        network.run(20)
        network.check()


def test_a_restarted_node_is_handed_its_keys_at_once() -> None:
    network = ring(50, 20_000, 30_000, 40_000, replicas=2)
    back, home, other = names(50, 30_000, 40_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 20")
    network.run(3)
    network.fail(back)
    network.join(at(50), other)  # before anybody has noticed
    network.run(4)
    assert network.nodes[back].life is Life.SERVING
    network.publish(other, "t", {"x": 12})
    network.run(3)
    network.check()


# -- subscriptions and events ------------------------------------------------------------------------------


def test_a_number_that_is_used_again_is_another_subscription() -> None:
    network = ring(5, 12_000, 24_000, 36_000, replicas=2)
    owner, home, other = names(5, 24_000, 36_000)
    network.subscribe(home, 1, "t", "x BETWEEN 1 AND 5")
    network.run(3)
    network.join(at(2_000), other)  # the next to have copies
    network.run(6)
    network.unsubscribe(home, 1)
    network.run(3)
    network.subscribe(home, 1, "t", "x BETWEEN 11 AND 15")
    network.run(5)
    network.fail(owner)
    network.run(8)
    for value in (12, 3):
        network.publish(other, "t", {"x": value})
    network.run(6)
    got = [effect.event.attributes for _, effect in network.effects if isinstance(effect, Delivered)]
    assert got == [{"x": 12}]


@pytest.mark.parametrize("sharing", [Sharing.REPLICATION, Sharing.PARTITION])
def test_whoever_shares_the_load_knows_a_subscription_whose_number_was_used_before(sharing: Sharing) -> None:
    """A node that is started again counts from the beginning: what others held for the owner was of its former life."""
    rule = SharingRule(sharing, nodes=3, threshold=2)
    network = ring(50, 20_000, 30_000, 40_000, 50_000, sharing=rule)
    owner, home, other = names(50, 50_000, 30_000)
    for number in range(8):
        network.subscribe(home, number, "t", "x BETWEEN 1 AND 5")
        network.run(1.5)
    holders = network.nodes[owner].keeper.shared.holders
    assert len(holders) == 2
    assert home not in {each.address for each in holders}
    network.fail(home)
    network.run(0.2)
    network.join(at(50_000), other)
    network.run(0.5)
    for number in range(8):
        network.subscribe(home, number, "t", "x BETWEEN 11 AND 15")
    network.run(5)
    for _ in range(6):
        network.publish(other, "t", {"x": 12})
    network.run(8)
    network.check()
    assert sum(network.delivered.values()) == 48


def test_a_node_that_was_started_again_does_not_examine_what_it_does_not_have() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90])[1]
    owner = chord.successor
    first, later = (Record(Key(80), RingSub("n10", number), "t", "TRUE", stamp=1) for number in (1, 2))
    begin, more = Hold(RequestToken(1), 7, (first,), first=True), Hold(RequestToken(2), 7, (later,))

    def answers(*messages: Hold) -> list[bool]:
        node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
        return [effect.message.ok for message in messages for effect in node.receive(owner, [message], 0)]

    assert answers(begin, more) == [True, True]
    assert answers(more) == [False], "what was held before is gone"
    assert answers(begin, msgspec.structs.replace(more, epoch=8)) == [True, False]


def test_a_record_whose_copy_fails_at_first_is_known_to_those_who_share_the_load() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90, 130])[1]
    rule = SharingRule(Sharing.REPLICATION, nodes=2, threshold=1)
    settings = RingSettings(MAPPING, replicas=2, index=ScanIndex, sharing=rule)
    node = RendezvousNode(chord, settings, np.random.default_rng(1))
    copy, holder = chord.successors[:2]
    node.keeper.shared.holders.append(holder)
    record = Record(Key(30), RingSub("n130", 1), "t", "TRUE", stamp=1)
    (copied,) = node.receive(holder, [Store(RequestToken(7), Key(30), (record,))], 0)
    assert (copied.to, type(copied.message)) == (copy.address, CopyRecords)
    (held,) = node.receive(copy, [Done(copied.message.token, ok=False)], 1)
    assert held == RingSend(holder.address, Hold(held.message.token, node.keeper.shared.epoch, (record,)))
    assert node.receive(holder, [Done(held.message.token)], 2) == [
        RingSend(holder.address, Done(RequestToken(7), False))
    ]


def test_records_of_a_node_that_is_forgotten_do_not_come_back_with_a_late_copy() -> None:
    chord = quiet_ring(SPACE, [10, 50, 90])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    gone = chord.successor
    late, newer = (
        Record(Key(80), RingSub(gone.address, 1), "t", "TRUE", stamp=first_stamp(life) + 1)
        for life in (gone.life, gone.life + 1)
    )
    assert node.forget(gone.address) == []
    assert gone.address not in chord.members
    sender = chord.predecessor
    assert sender is not None
    node.receive(sender, [CopyRecords(RequestToken(1), (late,))], 0)
    assert list(node.records) == []
    node.receive(sender, [CopyRecords(RequestToken(2), (newer,))], 0)
    assert list(node.records) == [newer], "it has come back after all"


def test_a_subscription_that_cannot_be_stored_for_long_is_one_piece_of_work() -> None:
    network = ring(50, 20_000, 30_000, reissue=2 * ANSWER, keep=3600 * ANSWER)
    owner, home = names(50, 30_000)
    network.cut_off = {home}
    network.subscribe(home, 1, "t", "x >= 0")
    network.run(30)
    assert network.nodes[home].work.count(Subscribing) <= 1
    network.cut_off = set()
    network.run(30)
    assert (home, Subscribed(1)) in network.effects
    assert network.nodes[home].work.count(Subscribing) == 0
    assert owner in network.nodes


def test_a_filter_that_nothing_satisfies_is_stored_nowhere_and_its_node_can_leave() -> None:
    network = ring(50, 20_000, 30_000)
    (home,) = names(20_000)
    network.subscribe(home, 1, "t", "x > 50 AND x < 3")
    network.run(3)
    assert network.effects.count((home, Subscribed(1))) == 1
    network.leave(home)
    network.run(5)
    assert (home, LeftRing()) in network.effects


def test_events_of_a_node_that_was_started_again_have_other_ids() -> None:
    network = ring(50, 20_000, 30_000, replicas=2)
    home, publisher, other = names(50, 20_000, 30_000)
    network.subscribe(home, 1, "t", "x >= 0")
    network.run(3)
    first = [network.publish(publisher, "t", {"x": value}) for value in range(3)]
    network.run(3)
    network.fail(publisher)
    network.run(5)
    network.join(at(20_000), other)
    network.run(5)
    second = [network.publish(publisher, "t", {"x": value}) for value in range(3)]
    network.run(5)
    assert not set(first) & set(second)
    assert sum(network.delivered.values()) == 6


# -- size --------------------------------------------------------------------------------------------------


def test_keys_are_handed_over_in_steps_and_others_are_answered_between_them() -> None:
    chord = quiet_ring(SPACE, [100, 50_000])[1]
    node = RendezvousNode(chord, RingSettings(MAPPING, index=ScanIndex), np.random.default_rng(1))
    other = chord.successor
    records = [Record(Key(2_000), RingSub("n100", n), "t", "TRUE", stamp=1) for n in range(2 * BATCH + 3)]
    node.records.take(records, 0)
    new = ChordNode(SPACE, "new", 3_000).me
    sent = [e.message for e in node.receive(new, [Notify(new)], 0) if isinstance(e, RingSend)]
    for step in range(2):
        (part,) = [each for each in sent if isinstance(each, HandoverPart)]
        assert len(part.records) == BATCH
        assert node.keys.serves(2_000), "it answers meanwhile"
        assert node.receive(other, [Ask(RequestToken(9))], step), "and says that it is alive"
        sent = [e.message for e in node.receive(new, [Done(part.token)], step) if isinstance(e, RingSend)]
    (last,) = [each for each in sent if isinstance(each, Handover)]
    assert (len(last.records), last.after, last.upto, last.edge) == (3, 100, 3_000, other)
    assert not node.keys.serves(2_000), "the keys are on their way"


# -- states ------------------------------------------------------------------------------------------------


def test_the_tables_of_states_have_all_of_them() -> None:
    assert set(NEXT) == set(WorkState)
    assert set(NEXT_LIFE) == set(Life)
    work = RingWork()
    work.to(WorkState.SENDING)
    with pytest.raises(AssertionError, match="goes from SENDING to VISITING"):
        work.to(WorkState.VISITING)
    assert Visited(RequestToken(1)).silent == ()
