"""A whole ring made at once, as it is when nobody has joined or left for a while. Law: stabilising changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import RingError
from weft.ring.chord import ChordNode
from weft.ring.identifiers import IdSpace, successor


def quiet_ring(space: IdSpace, ids: Iterable[int], successors: int = 8) -> list[ChordNode]:
    """The nodes of a ring with these identifiers, in ascending order; a node's address is "n" and its identifier.

    Cost: O(n log n bits).

    >>> one, other = quiet_ring(IdSpace(16), [9, 3])
    >>> one.me, one.successor.id, other.owns(7)
    (NodeRef(id=3, address='n3'), 9, True)
    """
    ascending = sorted(ids)
    if len(set(ascending)) < len(ascending):
        raise RingError("two nodes have the same identifier; each needs its own")
    nodes = [ChordNode(space, f"n{each}", each, successors) for each in ascending]
    by_id = {node.me.id: node.me for node in nodes}
    if len(nodes) == 1:
        return nodes
    for at, node in enumerate(nodes):
        following = nodes[at + 1 : at + 1 + successors]
        following += nodes[: min(successors - len(following), at)]
        node.successors = [other.me for other in following]
        node.predecessor = nodes[at - 1].me
        for bit in range(space.bits):
            node.fingers[bit] = by_id[successor((node.me.id + (1 << bit)) % space.size, ascending)]
    return nodes
