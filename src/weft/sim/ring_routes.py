"""Routes over a quiet Chord ring. Law: a route ends with the successor of its key, and each hop follows a finger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from weft.ring.identifiers import IdSpace


class RingRoutes:
    """Finger tables of all nodes; nodes are numbered in ascending order of their identifiers.

    >>> routes = RingRoutes(IdSpace(16), [1, 4, 9, 12])
    >>> routes.owner(5), routes.route(0, 5), routes.route(0, 14)
    (2, (2,), (3, 0))
    """

    def __init__(self, space: IdSpace, ascending: Sequence[int]) -> None:
        self.space = space
        self.ids = list(ascending)
        self._fingers: dict[int, list[tuple[int, int]]] = {}  # of nodes that were asked: (distance, node), ascending
        self._next: dict[tuple[int, int], int] = {}

    def owner(self, key: int) -> int:
        """The node that owns a key. Cost: O(log n)."""
        at = bisect_left(self.ids, key)
        return at if at < len(self.ids) else 0

    def fingers(self, node: int) -> list[tuple[int, int]]:
        """The distinct fingers of a node and how far they are, nearest first."""
        known = self._fingers.get(node)
        if known is None:
            me, size = self.ids[node], self.space.size
            found = {self.owner((me + (1 << bit)) % size) for bit in range(self.space.bits)} - {node}
            known = self._fingers[node] = sorted(((self.ids[each] - me) % size, each) for each in found)
        return known

    def route(self, start: int, key: int) -> tuple[int, ...]:
        """The nodes after `start` that a message for a key passes, up to its owner."""
        owner, at, passed = self.owner(key), start, []
        while at != owner:
            at = self._hop(at, key, owner)
            passed.append(at)
        return tuple(passed)

    def _hop(self, at: int, key: int, owner: int) -> int:
        """The finger that is nearest before the key, or the owner if it is next."""
        place = (at, key)
        known = self._next.get(place)
        if known is None:
            reach = (key - self.ids[at]) % self.space.size
            known = owner
            if reach > self.fingers(at)[0][0]:
                for distance, node in self.fingers(at):
                    if distance >= reach:
                        break
                    known = node
            self._next[place] = known
        return known
