"""Trees of brokers. Every tree is connected and has no cycle; a link goes from the broker nearer to the root.

>>> [f"{near}-{far}" for near, far in tree("binary", 5, np.random.default_rng(1))]
['b1-b2', 'b1-b3', 'b2-b4', 'b2-b5']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

import numpy as np

from weft.network.tables import BrokerId

TreeLinks = list[tuple[BrokerId, BrokerId]]  # the one nearer to the root first

# the earlier broker to which each broker is linked
SHAPES: dict[str, Callable[[int, np.random.Generator], int]] = {
    "chain": lambda number, _: number - 1,
    "star": lambda _, __: 0,
    "binary": lambda number, _: (number - 1) // 2,
    "random": lambda number, rng: int(rng.integers(number)),
}


def brokers(size: int) -> list[BrokerId]:
    """Their names; the first is the root."""
    return [BrokerId(f"b{number}") for number in range(1, size + 1)]


def tree(shape: str, size: int, rng: np.random.Generator) -> TreeLinks:
    """The links of a tree of a shape."""
    names = brokers(size)
    return [(names[SHAPES[shape](number, rng)], names[number]) for number in range(1, size)]


class Paths:
    """Distances between brokers.

    >>> chain = Paths(tree("chain", 4, np.random.default_rng(1)))
    >>> chain.fewest(BrokerId("b2"), [BrokerId("b1"), BrokerId("b4")])
    3
    """

    def __init__(self, links: TreeLinks) -> None:
        self._next: dict[BrokerId, list[BrokerId]] = {}
        for near, far in links:
            self._next.setdefault(near, []).append(far)
            self._next.setdefault(far, []).append(near)
        self._ways: dict[BrokerId, dict[BrokerId, BrokerId]] = {}

    def fewest(self, source: BrokerId, targets: Collection[BrokerId]) -> int:
        """The number of links over which a message must go from the source to reach all targets, each link once."""
        return len(self._passed(self._way_back(source), targets))

    def _way_back(self, source: BrokerId) -> dict[BrokerId, BrokerId]:
        if source not in self._ways:
            way, todo = {source: source}, deque([source])
            while todo:
                here = todo.popleft()
                for there in self._next.get(here, ()):
                    if there not in way:
                        way[there] = here
                        todo.append(there)
            self._ways[source] = way
        return self._ways[source]

    def _passed(self, way: dict[BrokerId, BrokerId], targets: Iterable[BrokerId]) -> set[BrokerId]:
        passed: set[BrokerId] = set()  # the far ends of links
        for target in targets:
            here = target
            while here not in passed and way[here] != here:
                passed.add(here)
                here = way[here]
        return passed
