"""What a node knows of the others on its ring. Laws: successors ascend clockwise, and a node is never among its own.

The list of successors alone makes look-ups right; fingers make them short.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ring.identifiers import IdSpace, Key
from weft.ring.messages import NodeRef


class ChordTable:
    """A node's predecessor, its next `length` successors, and its fingers: for each i, the owner of its id + 2**i.

    >>> table = ChordTable(IdSpace(16), NodeRef(5, "a"), 4)
    >>> table.follow([NodeRef(9, "b"), NodeRef(2, "c"), NodeRef(5, "a"), NodeRef(9, "b")])
    >>> [node.address for node in table.successors], [node.address for node in table.nearer(3)]
    (['b', 'c'], ['c', 'b'])
    """

    def __init__(self, space: IdSpace, me: NodeRef, length: int) -> None:
        self.space = space
        self.me = me
        self.predecessor: NodeRef | None = None
        self.successors: list[NodeRef] = []
        self.fingers: list[NodeRef | None] = [None] * space.bits
        self._length = length

    @property
    def successor(self) -> NodeRef:
        """The next node, clockwise; itself when it is alone."""
        return self.successors[0] if self.successors else self.me

    def owns(self, key: int) -> bool:
        """Whether a key is this node's, as far as it knows."""
        if self.predecessor is None:
            return not self.successors or key == self.me.id
        return self.space.between(key, self.predecessor.id, self.me.id)

    def owner(self, key: int) -> NodeRef | None:
        """The owner of a key, if it is this node or the next."""
        if self.owns(key):
            return self.me
        return self.successor if self.space.between(key, self.me.id, self.successor.id) else None

    def neighbours(self) -> list[NodeRef]:
        """The distinct other nodes it knows: successors first, then fingers."""
        known = [*self.successors, *(finger for finger in self.fingers if finger is not None)]
        return list(dict.fromkeys(node for node in known if node != self.me))

    def nearer(self, key: int) -> list[NodeRef]:
        """Known nodes between this one and a key, the nearest to the key first. Cost: O(fingers)."""
        reach = self.space.distance(self.me.id, key) or self.space.size
        known = {node for node in self.neighbours() if 0 < self.space.distance(self.me.id, node.id) < reach}
        return sorted(known, key=lambda node: self.space.distance(node.id, key))

    def finger_key(self, finger: int) -> Key:
        """The key whose owner a finger is."""
        return Key((self.me.id + (1 << finger)) % self.space.size)

    def set_finger(self, key: Key, owner: NodeRef) -> None:
        """The owner of a finger's key is known."""
        self.fingers[self.space.distance(self.me.id, key).bit_length() - 1] = owner

    def follow(self, successors: Sequence[NodeRef]) -> None:
        """Take this list of successors, without this node and whatever comes after it."""
        found: list[NodeRef] = []
        for node in dict.fromkeys(successors):
            if node.id == self.me.id:
                break
            found.append(node)
        self.successors = found[: self._length]

    def is_before(self, node: NodeRef, end: NodeRef) -> bool:
        """Whether a node lies strictly between this one and another."""
        return node not in (self.me, end) and self.space.between(node.id, self.me.id, end.id)

    def is_nearer_predecessor(self, node: NodeRef) -> bool:
        """Whether a node is a nearer predecessor than the one that is known."""
        distance = self.space.distance
        return self.predecessor is None or (distance(node.id, self.me.id) < distance(self.predecessor.id, self.me.id))

    def drop(self, node: NodeRef) -> bool:
        """A node is dead, as far as can be told; whether it was the predecessor."""
        self.successors = [other for other in self.successors if other != node]
        self.fingers = [None if finger == node else finger for finger in self.fingers]
        if not self.successors:  # whoever is still known: stabilising finds the nearest
            self.successors = sorted(self.neighbours(), key=lambda n: self.space.distance(self.me.id, n.id))[:1]
        if node != self.predecessor:
            return False
        self.predecessor = None
        return True

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        distances = [self.space.distance(self.me.id, node.id) for node in self.successors]
        assert distances == sorted(set(distances)), "successors ascend, clockwise"
        assert 0 not in distances, "a node does not succeed itself in its list"
        assert len(self.successors) <= self._length
        assert self.predecessor != self.me
