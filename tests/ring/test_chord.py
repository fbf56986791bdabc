"""A Chord ring: after joins, leaves and failures every look-up finds the owner, in few hops."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ring.network import Network, check
from strategies import EXAMPLES
from weft.errors import LocalProtocolError
from weft.ring.chord import ChordNode
from weft.ring.identifiers import IdSpace, Key, successor
from weft.ring.messages import Joined, JoinFailed, NodeAddress, NodeRef, OwnershipChanged


def ring_of(*ids: int, size: int = 64, successors: int = 4) -> Network:
    network = Network(size, successors)
    first = network.add(ids[0])
    for other in ids[1:]:
        network.add(other, first)
        network.settle(2)
    network.settle(2 * network.space.bits)
    return network


def test_a_node_alone_owns_everything() -> None:
    node = Network(8).add(3)
    assert all(node.owns(key) for key in range(8))


def test_every_key_has_one_owner_and_every_node_finds_it() -> None:
    ids = [1, 9, 20, 33, 50, 51]
    network = ring_of(*ids)
    for node in network.nodes.values():
        check(node)
        for key in range(64):
            owner = network.nodes[network.lookup(node, key).owner.address]
            assert owner.me.id == successor(key, ids)
            assert owner.owns(key)
            assert network.lookup(node, key, recursive=True).owner == owner.me


def test_a_second_node_with_the_same_identifier_is_refused() -> None:
    network = ring_of(1, 9)
    twin = ChordNode(network.space, "twin", 9)
    network.nodes[twin.me.address] = twin
    network.perform(twin, twin.join(next(iter(network.nodes)), network.now))
    assert (
        twin.me.address,
        JoinFailed("identifier 9 is taken by n9; give this node another address"),
    ) in network.events


def test_a_node_that_is_started_again_at_once_says_nothing_until_it_has_joined() -> None:
    network = ring_of(1, 9, 30)
    again = ChordNode(network.space, "n9", 9, life=network.nodes["n9"].me.life)  # nobody can tell them apart
    network.nodes["n9"] = again
    network.perform(again, again.join("n1", network.now))
    assert ("n9", JoinFailed("the ring has not yet noticed that this node was started again")) in network.events
    network.nodes["n9"] = again
    network.settle(4)
    assert again.successors == [], "others have told it of themselves, but it has not joined"
    network.perform(again, again.join("n1", network.now))
    network.settle(4)
    assert again.successor.address == "n30"
    assert network.nodes["n1"].successor == again.me


def test_a_successor_that_others_mention_in_a_former_life_is_known_in_its_latest() -> None:
    node = ChordNode(IdSpace(64), "a", 5)
    node.remember(NodeRef(Key(9), NodeAddress("b"), 2))
    node.follow([NodeRef(Key(9), NodeAddress("b"), 1), NodeRef(Key(20), NodeAddress("c"), 1)])
    assert node.successors == [NodeRef(Key(9), NodeAddress("b"), 2), NodeRef(Key(20), NodeAddress("c"), 1)]


def test_a_node_joins_once() -> None:
    network = ring_of(1, 9)
    node = network.nodes["n9"]
    with pytest.raises(LocalProtocolError, match="part of a ring"):
        node.join("n1", 0)


def test_joining_through_a_dead_node_fails() -> None:
    network = Network(16)
    node = network.add(3)
    network.perform(node, node.join("nobody", network.now))
    network.settle(9)
    assert ("n3", JoinFailed("no node of the ring could be reached")) in network.events


def test_a_join_moves_the_keys_between_its_predecessor_and_itself() -> None:
    network = ring_of(10, 30)
    network.events.clear()
    node = network.add(20, network.nodes["n10"])
    network.settle()
    told = dict(network.events)
    assert told["n20"] in (Joined(), OwnershipChanged(None, network.nodes["n10"].me))
    assert ("n30", OwnershipChanged(network.nodes["n10"].me, node.me)) in network.events


def test_a_graceful_leave_is_known_at_once() -> None:
    network = ring_of(10, 20, 30)
    network.leave(network.nodes["n20"])
    assert network.nodes["n10"].successor.id == 30
    assert network.nodes["n30"].predecessor.id == 10


def test_look_ups_take_half_of_log2_n_hops_on_average() -> None:
    ids = [i * 4096 // 128 + i % 7 for i in range(128)]
    network = Network(4096, 8)
    nodes = [network.add(each) for each in ids]
    for at, node in enumerate(nodes):  # a ring that is quiet, made at once
        others = nodes[at + 1 :] + nodes[:at]
        node.successors = [other.me for other in others[:8]]
        node.predecessor = others[-1].me
        for bit in range(12):
            owner = successor((node.me.id + (1 << bit)) % 4096, ids)
            node.fingers[bit] = network.nodes[f"n{owner}"].me
    hops = [network.lookup(node, key).hops for node in nodes[::8] for key in range(0, 4096, 61)]
    assert sum(hops) / len(hops) <= log2(128)
    assert max(hops) <= 2 * log2(128)


class Ring(RuleBasedStateMachine):
    """Nodes join, leave and fail; at most three of four successors at once."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network(64, 4)
        self.network.add(0)
        self.failed = 0

    @rule(id=st.integers(1, 63), known=st.integers(0, 99))
    def join(self, id: int, known: int) -> None:
        nodes = self.network.members()
        if f"n{id}" not in self.network.nodes:
            self.network.add(id, nodes[known % len(nodes)])
            self.network.settle(2)

    @precondition(lambda self: len(self.network.members()) > 1)
    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        nodes = self.network.members()
        self.network.leave(nodes[which % len(nodes)])
        self.network.settle(2)

    @precondition(lambda self: len(self.network.members()) > 1 and self.failed < 3)
    @rule(which=st.integers(0, 99))
    def fail(self, which: int) -> None:
        nodes = self.network.members()
        self.failed += 1
        self.network.fail(nodes[which % len(nodes)])

    @rule()
    def settle(self) -> None:
        self.network.settle(18)
        self.failed = 0
        ids = sorted(node.me.id for node in self.network.nodes.values())
        for node in self.network.nodes.values():
            at = ids.index(node.me.id)
            others = ids[at + 1 :] + ids[:at]
            assert [s.id for s in node.successors] == others[:4]
            assert (node.predecessor and node.predecessor.id) == (others[-1] if others else None)
            for key in (0, 13, 40, node.me.id):
                assert self.network.lookup(node, key).owner.id == successor(key, ids)

    @invariant()
    def nodes_are_whole(self) -> None:
        for node in self.network.nodes.values():
            check(node)

    def teardown(self) -> None:
        self.settle()


Ring.TestCase.settings = settings(
    max_examples=60 * EXAMPLES, stateful_step_count=15, deadline=None, derandomize=EXAMPLES == 1
)
TestRing = Ring.TestCase
