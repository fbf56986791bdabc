"""Similar topic groups are merged into super topics and separated again, while nothing is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from ring.rendezvous_network import RendezvousNetwork
from ring.test_groups import CIRCLE, FILTERS, IDS, MAPPING, check_places, event, state_of, view_of
from strategies import EXAMPLES
from weft.ring.group_cells import GroupCells
from weft.ring.group_placement import GroupTree
from weft.ring.group_root import GroupRoots
from weft.ring.group_state import CellHold, GroupId, GroupRule, GroupState, root_key
from weft.ring.groups import Groups
from weft.ring.identifiers import IdSpace
from weft.ring.load_sharing import Sharing, SharingRule
from weft.ring.record_keeper import RingReply
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import Delivered, GiveCells, HostRequest, Renew, RingEffect, RingSend
from weft.ring.topics import SuperTopics, TopicTree

SECOND = 1_000_000
MERGING = SuperTopics(least_equal=2, most_unequal=1, period=2 * SECOND)
RULE = GroupRule(depth=3, merging=MERGING)


def hosts_of(node: RendezvousNode) -> Groups:
    assert node.groups is not None
    return node.groups


def subscribe(network: RendezvousNetwork, topic: str, homes: list[int], first: int = 0) -> None:
    for home in homes:
        for number, text in enumerate(FILTERS, first):
            network.subscribe(f"n{home}", number, topic, text)


def unsubscribe(network: RendezvousNetwork, homes: list[int], first: int) -> None:
    for home in homes:
        for number in range(first, first + len(FILTERS)):
            network.unsubscribe(f"n{home}", number)


def publish(network: RendezvousNetwork, topics: str, times: int = 20) -> None:
    for at in range(times):
        network.publish(f"n{IDS[at % len(IDS)]}", topics[at % len(topics)], event(network.rng))
        network.run(0.05)
    network.run(5)
    network.check()


def states(network: RendezvousNetwork) -> list[tuple[RendezvousNode, GroupState]]:
    return [(n, state) for n in network.nodes.values() for state in n.states if isinstance(state, GroupState)]


def references(network: RendezvousNetwork) -> dict[GroupId, str]:
    return {
        state.group: state.entrusted
        for node, state in states(network)
        if state.entrusted is not None and node.keys.serves(state.key)
    }


# -- states ------------------------------------------------------------------------------------------------


def test_a_state_is_given_away_and_stays_as_a_reference() -> None:
    tree, other = GroupTree(IdSpace(16), 0, 2), GroupTree(IdSpace(16), 5, 2)
    state = GroupState.begun("t", tree, 3)
    reference = state.given_to("t+u")
    taken = reference.taken_by("t+u", other)
    assert (reference.group, reference.entrusted) == (("t", "t"), "t+u")
    assert (taken.group, taken.entrusted, taken.tree) == (("t+u", "t"), None, other)
    back = taken.given_to("t").taken_by("t", tree)
    serials = [each.serial for each in (state, reference, taken, back)]
    assert all(before < after for before, after in pairwise(serials))


# -- nodes -------------------------------------------------------------------------------------------------


def test_similar_groups_are_merged_and_joins_are_redirected_until_they_differ() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 1, groups=RULE)
    subscribe(network, "t", [3, 40, 90])
    subscribe(network, "u", [3, 40, 90], 100)
    subscribe(network, "v", [130, 170], 200)
    network.run(20)
    publish(network, "tuv")
    assert references(network) == {GroupId("t", "t"): "t+u", GroupId("u", "u"): "t+u"}
    for topic in "tu":
        state = state_of(network, topic)
        assert (state.host, view_of(network, topic).members) == ("t+u", (3, 40, 90))
        assert state.tree.start == root_key(CIRCLE, "t+u")
        check_places(network, topic)
    assert state_of(network, "v").host == "v"

    subscribe(network, "t", [220])  # a node that has never heard of the super topic
    network.run(10)
    assert state_of(network, "t").members == (3, 40, 90, 220)
    assert state_of(network, "u").members == (3, 40, 90)
    assert [view_of(network, topic).members for topic in "tu"] == [(3, 40, 90, 220)] * 2
    assert hosts_of(network.nodes["n220"]).host("t") == "t+u"
    publish(network, "tuv")

    unsubscribe(network, [90], 100)
    for _ in range(200):
        network.publish("n130", "u", event(network.rng))
        network.run(0.05)
    network.run(25)
    network.check()
    assert set(references(network)) == {GroupId("t+u", "t"), GroupId("t+u", "u")}
    assert [state_of(network, topic).host for topic in "tu"] == ["t", "u"]
    assert [view_of(network, topic).members for topic in "tu"] == [(3, 40, 90, 220), (3, 40)]
    for topic in "tu":
        assert state_of(network, topic).tree.start == root_key(CIRCLE, topic)
        check_places(network, topic)
    publish(network, "tuv")

    subscribe(network, "u", [90], 100)  # once more, by hosts that have references from before
    network.run(20)
    assert [state_of(network, topic).host for topic in "tu"] == ["t+u", "t+u"]
    publish(network, "tuv")


def test_a_super_topic_grows_and_its_tree_is_reshaped_as_one() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 2, groups=RULE)
    for at, topic in enumerate("tuv"):
        subscribe(network, topic, [3, 90, 170], 100 * at)
    network.run(40)
    assert {state_of(network, topic).host for topic in "tuv"} == {"t+u+v"}
    node = network.nodes["n220"]
    network.perform(node, node.reshape("u", network.engine.now, depth=1, rotation=9))
    network.run(10)
    trees = {state_of(network, topic).tree for topic in "tuv"}
    assert [(tree.depth, tree.rotation) for tree in trees] == [(1, 9)]
    publish(network, "tuv")
    for topic in "tuv":
        check_places(network, topic)


def test_the_topic_above_is_the_super_topic_of_its_leaves() -> None:
    topics = TopicTree({"sports": ["tennis", "chess"]})
    network = RendezvousNetwork(MAPPING, IDS, 3, groups=RULE, topics=topics)
    for home in ("n3", "n90"):
        network.subscribe(home, 1, "sports", "x = 1")
    network.run(15)
    assert [state_of(network, leaf).host for leaf in ("tennis", "chess")] == ["sports", "sports"]
    node = network.nodes["n40"]
    for at, topic in enumerate(("sports", "tennis", "chess")):
        network.perform(node, node.publish(topic, {"x": 1, "y": at}, network.engine.now)[1])
    network.run(5)
    got = sorted((e.event.attributes["y"], home) for home, e in network.effects if isinstance(e, Delivered))
    assert got == [(at, home) for at in range(3) for home in ("n3", "n90")]


class CountingNetwork(RendezvousNetwork):
    """Counts renewals."""

    renewals = 0

    def perform(self, node: RendezvousNode, effects: list[RingEffect]) -> None:
        self.renewals += sum(isinstance(each, RingSend) and isinstance(each.message, Renew) for each in effects)
        super().perform(node, effects)


def test_a_member_registers_again_once_for_all_topics_of_a_host() -> None:
    counts = []
    for merging in (None, MERGING):
        network = CountingNetwork(MAPPING, IDS, 1, groups=GroupRule(depth=3, lease=9 * SECOND, merging=merging))
        for number, topic in enumerate("abcdef"):
            for home in ("n3", "n90", "n170", "n220"):
                network.subscribe(home, number, topic, "x = 1")
        network.run(90)
        assert len({state_of(network, topic).host for topic in "abcdef"}) == (6 if merging is None else 1)
        network.renewals = 0
        network.run(60)
        counts.append(network.renewals)
        assert all(state_of(network, topic).members == (3, 90, 170, 220) for topic in "abcdef")
    assert counts == [480, 80], "every three seconds"


def test_two_hosts_that_both_have_a_topic_agree_on_one() -> None:
    """Rings that meet unite the states under each key, and each root may have gone on in its own way."""
    network = RendezvousNetwork(MAPPING, IDS, 1, groups=GroupRule(depth=3, lease=9 * SECOND, merging=MERGING))
    subscribe(network, "t", [3, 40, 90])
    subscribe(network, "u", [3, 40, 90], 100)
    network.run(20)
    assert state_of(network, "t").host == "t+u"
    own = GroupId("t", "t")
    for _, state in states(network):
        if state.group == own:
            later = replace(state, entrusted=None, members=(), serial=state.serial + 5)
            for node in network.nodes.values():
                if node.states.get(state.id) is not None:
                    node.states.take((later,))
    network.run(40)
    hosts = {
        state.host
        for node, state in states(network)
        if state.topic == "t" and node.keys.serves(state.key) and not state.entrusted
    }
    assert len(hosts) == 1
    assert state_of(network, "t").members == (3, 40, 90)
    publish(network, "tu")


def test_without_merging_groups_stay_apart() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 4, groups=GroupRule(depth=3))
    subscribe(network, "t", [3, 40, 90])
    subscribe(network, "u", [3, 40, 90], 100)
    network.run(20)
    assert not references(network)


def test_a_super_topic_that_is_lost_with_all_copies_begins_again() -> None:
    network = RendezvousNetwork(MAPPING, IDS, 5, groups=RULE, reissue=5 * SECOND, abandon=5 * SECOND)
    key = root_key(CIRCLE, "t+u")
    (root,) = [address for address, node in network.nodes.items() if node.keys.serves(key)]
    homes = tuple(sorted(set(network.nodes) - {root}))[:3]
    for topic, number in (("t", 1), ("u", 2)):
        for home in homes:
            network.subscribe(home, number, topic, "x < 9")
    network.run(15)
    assert {"t", "u"}.isdisjoint(state.host for node, state in states(network) if node.me.address == root)
    network.fail(root)
    network.run(40)
    publish_from(network, homes)
    assert {state_of(network, topic).host for topic in "tu"} == {"t+u"}


CLIENTS = ("n3", "n90", "n170")
TOPICS = "tuv"


def churn(seed: int, replicas: int, sharing: Sharing = Sharing.NONE) -> tuple[int, int]:
    """Members join and leave groups so that they are alike and differ in turn; nodes come and go and, with replicas,
    die, while events flow. How often topics were given away by their own roots, and by those of super topics.
    """
    rule = GroupRule(
        depth=seed % 4,
        rotation=seed % 3 * 5,
        lease=8 * SECOND,
        period=5 * SECOND if seed % 2 else None,
        merging=SuperTopics(2, seed % 2, period=SECOND),
    )
    shared = SharingRule(sharing, nodes=3, threshold=3)
    network = RendezvousNetwork(MAPPING, IDS, seed, replicas=replicas, groups=rule, sharing=shared)
    rng, number, quiet, used = network.rng, 0, 0.0, set(IDS)
    seen: set[tuple[GroupId, int]] = set()
    for _ in range(70):
        choice = int(rng.integers(11))
        home, topic = str(rng.choice(CLIENTS)), str(rng.choice([*TOPICS]))
        others = sorted(set(network.nodes) - set(CLIENTS))
        settled = all(node.keys.after is not None for node in network.nodes.values())
        node = network.nodes[home]
        if choice < 4:
            for client in CLIENTS if choice < 2 else (home,):
                number += 1
                topics = (topic,) if rng.random() < 0.7 else tuple(TOPICS.replace(topic, ""))
                network.subscribe(client, number, topics, str(rng.choice(FILTERS)))
                network.run(0.02)
        elif choice < 6:  # a client gives up a topic
            for at, gone in sorted(sub for sub, (wanted, _) in network.active.items() if topic in wanted):
                if at == home:
                    network.unsubscribe(at, gone)
        elif choice == 6:
            network.perform(node, node.reshape(topic, network.engine.now, rotation=int(rng.integers(32))))
        elif choice == 7 and len(network.nodes) < 9:
            new = int(rng.integers(256))
            if new not in used:
                used.add(new)
                network.join(new, home)
        elif choice == 8 and others and settled:
            network.leave(str(rng.choice(others)))
        elif choice == 9 and others and settled and replicas > 1 and quiet > 8:
            network.fail(str(rng.choice(others)))
            quiet = 0.0
        elif choice == 10 and others and settled:
            number += 1
            network.subscribe(str(rng.choice(others)), number, topic, str(rng.choice(FILTERS)))
        pause = float(rng.choice([0.1, 0.5, 1.0, 3.0]))
        quiet += pause
        for _ in range(max(1, round(pause / 0.1))):
            network.publish(str(rng.choice(CLIENTS)), str(rng.choice([*TOPICS])), event(rng))
            network.run(0.1)
            seen.update((state.group, state.serial) for _, state in states(network) if state.entrusted)
    network.run(60)
    network.check()
    publish_from(network, CLIENTS)
    merged = sum(group.host == group.topic for group, _ in seen)
    return merged, len(seen) - merged


def publish_from(network: RendezvousNetwork, homes: tuple[str, ...]) -> None:
    for at in range(12):
        network.publish(homes[at % len(homes)], TOPICS[at // 3 % 3], event(network.rng))
    network.run(10)
    network.check()


@pytest.mark.parametrize(
    ("seeds", "replicas"),
    [([2], 1), ([100], 3)] if EXAMPLES == 1 else [(range(5 * EXAMPLES), 1), (range(100, 100 + 3 * EXAMPLES), 3)],
    ids=["nodes come and go", "roots die"],
)
def test_nothing_is_missed_while_groups_are_merged_and_separated(seeds: Iterable[int], replicas: int) -> None:
    merged, separated = zip(*(churn(seed, replicas) for seed in seeds), strict=True)
    assert any(merged)
    assert any(separated)


@pytest.mark.parametrize("sharing", [pytest.param(Sharing.REPLICATION, marks=pytest.mark.slow), Sharing.PARTITION])
def test_nothing_is_missed_while_members_of_super_topics_share_their_load(sharing: Sharing) -> None:
    merged, separated = churn(200, 2, sharing)
    assert merged
    assert separated


# -- mutants -----------------------------------------------------------------------------------------------


def without_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root forgets the topics that it has given away."""
    asked = GroupRoots.asked

    def forgetful(self: GroupRoots, message: HostRequest, now: int, reply: RingReply) -> list[RingEffect]:
        for group in list(self._told):
            state = self.state(group)
            if state is not None and state.entrusted is not None:
                self._states.discard(state)
        return asked(self, message, now, reply)

    monkeypatch.setattr(GroupRoots, "asked", forgetful)


def with_cells_at_two_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member goes on answering for cells that it has given away."""
    monkeypatch.setattr(CellHold, "giving_away", lambda self, _, arc, to: replace(self, giving=(arc, to)))


def without_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member takes cells without what is stored under them."""
    given = GroupCells.given

    def empty(self: GroupCells, message: GiveCells, now: int, reply: RingReply) -> list[RingEffect]:
        return given(self, replace(message, records=()), now, reply)

    monkeypatch.setattr(GroupCells, "given", empty)


def churn_of(seeds: range) -> None:
    for seed in seeds:
        churn(seed, 1)


@pytest.mark.parametrize(
    "mutate",
    [
        without_the_records,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (with_cells_at_two_members, without_references)),
    ],
)
def test_a_wrong_root_is_caught(monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="EventId"):
        churn_of(range(8))
