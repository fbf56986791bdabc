"""What merging is tested with: filters, how they merge, and events that tell what a set of them lets through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from order.things import BOXES, RANGES, TYPED, Range
from strategies import EVENTS
from weft.algebra.relate import as_form
from weft.language.text import parse
from weft.merging.mergeability import FilterMerging, MergeBudget, Merging
from weft.model.event import Event
from weft.model.schema import Schema
from weft.order import FilterRelation, Relation

SCHEMA = Schema.from_dict({"attributes": {name: {"type": "int", "bounds": [0, 5]} for name in "ab"}})
GRID = [{"a": a, "b": b} for a, b in product((None, *range(-1, 7)), repeat=2)]
TESTS = ("< 3", "> 2", "<= 1", ">= 4", "= 2", "!= 3", "!= 4", "BETWEEN 1 AND 3", "BETWEEN 4 AND 5", "= 0")
SQUARES = [
    *(parse(f"a {test}") for test in TESTS),
    *(parse(f"b {test}") for test in TESTS),
    *(parse(f"a {one} AND b {other}") for one, other in product(TESTS[:8], repeat=2)),
]
TYPES = [  # as events, which may have a type that is not a string
    Event({name: value for name, value in {"type": kind, "x": x}.items() if value is not None})
    for kind, x in product((None, "A", "AB", "B", "C", 1), (None, 0, 1, 4, 8, 10, "A"))
]


@dataclass(frozen=True)
class MergeCase:
    """Things, how they compare and merge, and what each of them lets through of all events."""

    things: list[Any]
    relation: Callable[[], Relation[Any]]
    merging: Callable[[], Merging[Any]]
    events: list[Any]
    schema: Schema | None = None
    exact: bool = True
    complete: bool = True  # covers proves all that holds

    def through(self, things: Iterable[Any]) -> set[int]:
        """The events, by their numbers, that one of the things lets through."""
        return set().union(*map(self._through, things))

    def _through(self, thing: Any) -> frozenset[int]:
        known = _THROUGH.get((id(self), thing))
        if known is None:
            made = thing if isinstance(thing, Range) else as_form(thing, self.schema)
            known = frozenset(at for at, event in enumerate(self.events) if event in made)
            _THROUGH[id(self), thing] = known
        return known


_THROUGH: dict[tuple[int, Any], frozenset[int]] = {}  # counted once: things recur


def touching(one: Range, other: Range) -> Range | None:
    """Ranges of whole numbers merge if nothing lies between them."""
    if one.low > other.high + 1 or other.low > one.high + 1:
        return None
    return Range(min(one.low, other.low), max(one.high, other.high))


def doubtful() -> Relation[Range]:
    """A `covers` that is sound, proves too little, and is not transitive."""
    return Relation(lambda wide, narrow: wide.covers(narrow) and (wide.low + wide.high + narrow.low) % 3 != 0)


MERGE_CASES = {
    "ranges": MergeCase(
        RANGES, lambda: Relation(Range.covers), lambda: Merging(touching, breadth=lambda r: r.high - r.low), [*range(7)]
    ),
    "sound-only": MergeCase(RANGES, doubtful, lambda: Merging(touching), [*range(7)], complete=False),
    "boxes": MergeCase(BOXES, FilterRelation, FilterMerging, EVENTS),
    "typed": MergeCase(TYPED, FilterRelation, FilterMerging, TYPES),
    "squares": MergeCase(SQUARES, lambda: FilterRelation(SCHEMA), lambda: FilterMerging(SCHEMA), GRID, SCHEMA),
    "squares-widest": MergeCase(
        SQUARES,
        lambda: FilterRelation(SCHEMA, indexed=False),
        lambda: FilterMerging(SCHEMA, choice="widest"),
        GRID,
        SCHEMA,
    ),
    "squares-few-pieces": MergeCase(
        SQUARES, lambda: FilterRelation(SCHEMA), lambda: FilterMerging(SCHEMA, pieces=3, tries=1), GRID, SCHEMA
    ),
    "squares-budget": MergeCase(
        SQUARES,
        lambda: FilterRelation(SCHEMA),
        lambda: FilterMerging(SCHEMA, MergeBudget(0.25, saturation=4)),
        GRID,
        SCHEMA,
        exact=False,
    ),
}
