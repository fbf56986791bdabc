"""Nodes of a ring joined by messages that take no time, for tests."""

from __future__ import annotations

from collections import deque

from weft.ring.chord import ANSWER, PERIOD, ChordNode
from weft.ring.identifiers import IdSpace
from weft.ring.messages import ChordEffect, JoinFailed, LookedUp, NodeAddress, NodeRef, SendTo


class Network:
    """Nodes by address; a node that is not there answers nothing."""

    def __init__(self, size: int, successors: int = 4) -> None:
        self.space = IdSpace(size)
        self.successors = successors
        self.nodes: dict[NodeAddress, ChordNode] = {}
        self.now = 0
        self.events: list[tuple[NodeAddress, ChordEffect]] = []
        self.sent = 0
        self._lives = 0
        self._flying: deque[tuple[NodeRef, SendTo]] = deque()

    def add(self, id: int, known: ChordNode | None = None) -> ChordNode:
        self._lives += 1
        node = ChordNode(self.space, f"n{id}", id, self.successors, self._lives)
        self.nodes[node.me.address] = node
        if known is not None:
            self.perform(node, node.join(known.me.address, self.now))
        return node

    def perform(self, node: ChordNode, effects: list[ChordEffect]) -> None:
        self._take(node, effects)
        while self._flying:
            sender, send = self._flying.popleft()
            self.sent += 1
            target = self.nodes.get(send.to)
            if target is not None:
                self._take(target, target.receive(sender, [send.message], self.now))

    def _take(self, node: ChordNode, effects: list[ChordEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                self._flying.append((node.me, effect))
                continue
            self.events.append((node.me.address, effect))
            if isinstance(effect, JoinFailed):  # it is not part of the ring; its user would try another node
                del self.nodes[node.me.address]

    def leave(self, node: ChordNode) -> None:
        self.perform(node, node.leave())
        del self.nodes[node.me.address]

    def fail(self, node: ChordNode) -> None:
        del self.nodes[node.me.address]

    def members(self) -> list[ChordNode]:
        """The nodes of the ring: not those that are still joining."""
        return [node for node in self.nodes.values() if not node.joining]

    def settle(self, rounds: int = 4) -> None:
        """Rounds of stabilisation, with time for what is dead to be noticed."""
        for _ in range(rounds):
            self.now += max(PERIOD, ANSWER) + 1
            for node in list(self.nodes.values()):
                self.perform(node, node.tick(self.now))

    def lookup(self, node: ChordNode, key: int, *, recursive: bool = False) -> LookedUp:
        token, effects = node.lookup(key, self.now, recursive=recursive)
        before = len(self.events)
        self.perform(node, effects)
        for _ in range(20):
            for who, effect in self.events[before:]:
                if who == node.me.address and isinstance(effect, LookedUp) and effect.token == token:
                    return effect
            self.now += ANSWER + 1
            self.perform(node, node.tick(self.now))
        raise AssertionError("a look-up never ended")


def check(node: ChordNode) -> None:
    """The invariants of what a node knows."""
    distances = [node.space.distance(node.me.id, other.id) for other in node.successors]
    assert distances == sorted(set(distances)), "successors ascend, clockwise"
    assert 0 not in distances, "a node does not succeed itself in its list"
    assert len(node.successors) <= node._length
    assert node.predecessor != node.me
