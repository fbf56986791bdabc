"""The filters of the forests thesis (4.1, chapter 8). The same generator state gives the same filters. Every filter can
match. Every schema has one type for each name.

| schema | a filter |
|---|---|
| 2d | a range on each of two attributes |
| 3d | a range on each of three attributes |
| 1-3 | a range on one, two or three of three attributes |

Values are whole numbers in [0, 100]. The ends of a range are drawn uniformly and sorted, since the thesis does not
state otherwise. With a `width`, only the low end is drawn, and values are real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from weft.errors import SchemaError
from weft.language.ast import AttributeRef, Between, Compare, Filter, Operator, conjunction
from weft.language.constant import Constant

T = TypeVar("T")
_Interface = TypeVar("_Interface")

TOP = 100
RANGES = ("[a,b]",)
ANY_PREDICATE = ("<", ">", "<=", ">=", "=", "!=", "[a,b]")


@dataclass(frozen=True, slots=True)
class FilterSchema:
    """How filters are drawn: from `least` to `most` attributes of `names`, with one predicate each.

    >>> for each in SCHEMAS["1-3"].draw(3, np.random.default_rng(8)):
    ...     print(each)
    a BETWEEN 4 AND 87 AND b BETWEEN 39 AND 57 AND c BETWEEN 39 AND 44
    c BETWEEN 48 AND 96
    a BETWEEN 24 AND 85
    """

    names: tuple[str, ...]
    least: int
    most: int
    predicates: tuple[str, ...] = RANGES
    width: float | None = None  # width of a range, as a share of the domain
    kind: str | None = None  # the event type that every filter requires
    top: int = TOP  # the largest value

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= len(self.names):
            raise SchemaError(
                f"a filter has {self.least} to {self.most} attributes, but there are {len(self.names)} to choose from; "
                f"give 1 <= least <= most <= {len(self.names)}"
            )
        if not self.predicates or not set(self.predicates) <= set(ANY_PREDICATE):
            raise SchemaError(f"unknown predicates in {self.predicates}; choose from {', '.join(ANY_PREDICATE)}")
        if self.width is not None and not 0 < self.width <= 1:
            raise SchemaError(f"the width {self.width} is not a share of the domain; give more than 0 and at most 1")
        if self.top < 1:
            raise SchemaError(f"the largest value is {self.top}; give 1 or more")

    def draw(self, n: int, rng: np.random.Generator) -> list[Filter]:
        """Draw n filters. Cost: O(n)."""
        counts = rng.integers(self.least, self.most + 1, n).tolist()
        ranks = rng.permuted(np.broadcast_to(np.arange(len(self.names)), (n, len(self.names))), axis=1).tolist()
        chosen = rng.integers(0, len(self.predicates), (n, len(self.names))).tolist()
        ends = self._ends(n, rng)
        kind = [] if self.kind is None else [Compare(AttributeRef("type"), Operator.EQ, Constant.of(self.kind))]
        return [
            conjunction(
                *kind,
                *(
                    _predicate(name, self.predicates[chosen[row][at]], *ends[row][at])
                    for at, name in enumerate(self.names)
                    if ranks[row][at] < counts[row]
                ),
            )
            for row in range(n)
        ]

    def _ends(self, n: int, rng: np.random.Generator) -> list[list[list[float]]]:
        """For each row and attribute, a low and a high end that leave every predicate satisfiable."""
        if self.width is None:
            pairs = np.sort(rng.integers(0, self.top + 1, (n, len(self.names), 2)), axis=2)
            return pairs.tolist()  # type: ignore[no-any-return]
        low = rng.uniform(0, self.top * (1 - self.width), (n, len(self.names)))
        return np.stack([low, low + self.top * self.width], axis=2).round(6).tolist()  # type: ignore[no-any-return]


SCHEMAS = {
    "2d": FilterSchema(("a", "b"), 2, 2),
    "3d": FilterSchema(("a", "b", "c"), 3, 3),
    "1-3": FilterSchema(("a", "b", "c"), 1, 3),
}


def in_turn(things: Sequence[T], interfaces: Sequence[_Interface]) -> list[tuple[T, _Interface]]:
    """Assign an interface to each thing, round-robin.

    >>> in_turn("xyz", ["north", "south"])
    [('x', 'north'), ('y', 'south'), ('z', 'north')]
    """
    return [(thing, interfaces[at % len(interfaces)]) for at, thing in enumerate(things)]


def _predicate(name: str, predicate: str, low: float, high: float) -> Filter:
    left = AttributeRef(name)
    if predicate == "[a,b]":
        return Between(left, Constant.of(low), Constant.of(high))
    return Compare(left, Operator(predicate), Constant.of(low))
