"""What the covering order is tested with: filters and other things, small enough that coverings are common."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import product
from typing import Any

from weft.algebra.relate import covers
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.event import Event
from weft.order import BalancedForest, FilterRelation, Forest, NonRedundantForest, Poset, Relation, Structure

STRUCTURES: dict[str, Callable[[Relation[Any]], Structure[Any]]] = {
    "poset": Poset,
    "forest": Forest,
    "balanced": BalancedForest,
    "nonredundant": NonRedundantForest,
    "nonredundant-discard": lambda relation: NonRedundantForest(relation, spare_on="discard"),
}
LEAN = ("poset", "nonredundant", "nonredundant-discard")


@dataclass(frozen=True)
class Range:
    """Whole numbers from low to high."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def covers(self, other: Range) -> bool:
        return self.low <= other.low and other.high <= self.high


RANGES = [Range(low, high) for low in range(6) for high in range(low, 6)]
BOXES = [
    parse(" AND ".join(filter(None, (a and f"a BETWEEN {a[0]} AND {a[1]}", b and f"b {b}"))) or "TRUE")
    for a, b in product((None, (0, 3), (0, 1), (1, 3), (2, 2)), (None, "> 0", ">= 1", "= 2", "IN (1, 2)", "= 'x'"))
]
TYPED = [
    parse(text)
    for text in (
        *("type = 'A'", "type = 'B'", "type = 'A' AND x > 0", "type = 'B' AND x > 0", "x > 0", "x > 3", "x < 9"),
        *("type = 'A' AND x > 3", "type IN ('A', 'B')", "type LIKE 'A%'", "type = 'A' OR x > 7", "TRUE", "type > 'A'"),
    )
]


def plain_ranges() -> Relation[Range]:
    """Ranges, compared one by one."""
    return Relation(lambda wide, narrow: wide.covers(narrow))


def halting_ranges() -> Relation[Range]:
    """Ranges with a `covers` that is sound but proves too little: it is not transitive."""
    return Relation(
        lambda wide, narrow: wide.covers(narrow) and (wide.low + wide.high + narrow.low) % 3 != 0, transitive=False
    )


@dataclass(frozen=True)
class Case:
    """Things, the relation that orders them, and whether one contains another in truth."""

    things: list[Any]
    relation: Callable[[], Relation[Any]]
    holds: Callable[[Any, Any], bool]
    complete: bool = True  # covers proves all that holds


def _same(wide: Filter, narrow: Filter) -> bool:
    return covers(wide, narrow)


CASES = {
    "ranges": Case(RANGES, plain_ranges, Range.covers),
    "sound-only": Case(RANGES, halting_ranges, Range.covers, complete=False),
    "boxes": Case(BOXES, FilterRelation, _same),
    "boxes-one-by-one": Case(BOXES, lambda: FilterRelation(indexed=False), _same),
    "typed": Case(TYPED, FilterRelation, _same),
    "typed-one-by-one": Case(TYPED, lambda: FilterRelation(indexed=False), _same),
}


def key(case: Case, thing: Any) -> Hashable:
    """What makes two things one node."""
    relation = case.relation()
    return relation.key(relation.make(thing))


def event(**attributes: Any) -> Event:
    """An event with these attributes."""
    return Event(attributes)
