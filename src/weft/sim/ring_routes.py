"""Routes over a quiet Chord ring. Law: a route ends with the successor of its key, and each hop follows a finger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from weft.ring.identifiers import IdSpace


class RingRoutes:
    """Finger tables of all nodes; nodes are numbered in ascending order of their identifiers.

    >>> routes = RingRoutes(IdSpace(16), [1, 4, 9, 12])
    >>> routes.owner(5), routes.route(0, 5), routes.route(1, 14)
    (2, (1, 2), (3, 0))
    """

    def __init__(self, space: IdSpace, ascending: Sequence[int]) -> None:
        self.space = space
        self.ids = list(ascending)
        self._fingers: list[tuple[list[int], list[int]] | None] = [None] * len(self.ids)  # of nodes that were asked

    def owner(self, key: int) -> int:
        """The node that owns a key. Cost: O(log n)."""
        at = bisect_left(self.ids, key)
        return at if at < len(self.ids) else 0

    def fingers(self, node: int) -> tuple[list[int], list[int]]:
        """How far the distinct fingers of a node are, nearest first, and which nodes they are."""
        known = self._fingers[node]
        if known is None:
            me, size = self.ids[node], self.space.size
            found = {self.owner((me + (1 << bit)) % size) for bit in range(self.space.bits)} - {node}
            pairs = sorted(((self.ids[each] - me) % size, each) for each in found)
            known = self._fingers[node] = [distance for distance, _ in pairs], [each for _, each in pairs]
        return known

    def route(self, start: int, key: int) -> tuple[int, ...]:
        """The nodes after `start` that a message for a key passes, up to its owner. Cost: O(log n) hops.

        Each hop is to the finger nearest before the key, or to the owner if there is none.
        """
        owner, at, size, passed = self.owner(key), start, self.space.size, []
        while at != owner:
            distances, nodes = self.fingers(at)
            place = bisect_left(distances, (key - self.ids[at]) % size)
            at = nodes[place - 1] if place else owner
            passed.append(at)
        return tuple(passed)
