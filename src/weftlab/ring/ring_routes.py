"""Routes over a quiet Chord ring. A route ends with the successor of its key, and each hop follows a finger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
        self._all: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

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

    def hops(self, starts: NDArray[np.int64], keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lengths of the routes from many nodes, each to a key of its own."""
        ids, size = np.array(self.ids, np.int64), self.space.size
        owners = np.searchsorted(ids, keys) % len(ids)
        distances, nodes = self._tables()
        at, counts = starts.copy(), np.zeros(len(keys), np.int64)
        away = np.flatnonzero(at != owners)
        while len(away):
            near = at[away]
            place = (distances[near] < ((keys[away] - ids[near]) % size)[:, None]).sum(axis=1)
            at[away] = np.where(place, nodes[near, place - 1], owners[away])
            counts[away] += 1
            away = away[at[away] != owners[away]]
        return counts

    def _tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The fingers of all nodes as arrays; a row that has fewer ends with distances that no key is beyond."""
        if self._all is None:
            rows = [self.fingers(node) for node in range(len(self.ids))]
            width = max(len(nodes) for _, nodes in rows)
            distances = np.full((len(rows), width), self.space.size, np.int64)
            nodes = np.zeros_like(distances)
            for at, (far, others) in enumerate(rows):
                distances[at, : len(far)], nodes[at, : len(others)] = far, others
            self._all = distances, nodes
        return self._all
