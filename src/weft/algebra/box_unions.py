"""Unions of boxes, combined into unions of few boxes. `any_of`, `all_of` and `join` are exact. They spend a budget, and
a union of too many boxes raises FilterTooComplexError.

A union is a list of boxes. Boxes that differ in one attribute or residual only are joined into one box, round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any, TypeVar

from weft.algebra.box import EVERYTHING, Box
from weft.algebra.budget import Budget
from weft.algebra.residual import Outcomes, Subject
from weft.algebra.valueset import ValueSet
from weft.errors import FilterTooComplexError
from weft.model.limits import LIMITS
from weft.model.schema import Schema

_SHARED = 16  # attributes that boxes must share before it pays to leave these out

T = TypeVar("T")


class BoxUnions:
    """Unions and intersections under a schema, within a budget."""

    def __init__(self, schema: Schema | None, budget: Budget) -> None:
        self.schema = schema
        self.budget = budget

    def any_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        """What is in any of the unions."""
        return self.join([box for part in parts for box in part])

    def all_of(self, parts: Sequence[list[Box]]) -> list[Box]:
        """What is in all of the unions."""
        if not all(parts):
            return []
        if len(parts) == 1:
            return parts[0]
        whole = self._meet([part[0] for part in parts if len(part) == 1])
        if whole is None:
            return []
        rest = [part for part in parts if len(part) > 1]
        if whole == EVERYTHING:
            return _balanced(self._product, rest) if rest else [EVERYTHING]
        first = next(at for at, part in enumerate(parts) if len(part) == 1)
        return _balanced(self._product, [*rest[:first], [whole], *rest[first:]])

    def _meet(self, boxes: Sequence[Box]) -> Box | None:
        """The box of what is in all of them; None if that is proven empty."""
        if len(boxes) < 2:
            return boxes[0] if boxes else EVERYTHING
        sets: dict[str, list[ValueSet]] = {}
        residuals: dict[Subject, Outcomes] = {}
        for box in boxes:
            self.budget.spend(_weight(box))
            for name, values in box.sets.items():
                sets.setdefault(name, []).append(values)
            for subject, allowed in box.residuals.items():
                residuals[subject] = residuals[subject] & allowed if subject in residuals else allowed
        both = {name: ValueSet.intersection_of(some, self.budget) for name, some in sets.items()}
        return Box.of(both, residuals, budget=self.budget)

    def _product(self, one: list[Box], other: list[Box]) -> list[Box]:
        pairs = sum(map(_weight, one)) * len(other) + sum(map(_weight, other)) * len(one)
        self.budget.spend(2 * len(one) * len(other) + pairs // 4)
        both = [box for a in one for b in other if (box := a.intersect(b, self.budget)) is not None]
        return both if len(both) < 2 else self.join(both)

    def join(self, boxes: list[Box]) -> list[Box]:
        """Repeatedly join boxes that differ in one attribute or residual only. Raises past the limit of boxes."""
        if EVERYTHING in boxes:
            return [EVERYTHING]
        shared = self._shared(boxes)
        boxes = self._different(boxes, shared)
        while len(boxes) > 1:
            groups: dict[tuple[str | Subject, int], list[Box]] = {}
            self.budget.spend(5 * sum([_weight(box, shared) for box in boxes]))
            for box in boxes:
                own_parts = (item for item in box.sets.items() if item[0] not in shared) if shared else box.sets.items()
                hashes = {part: hash((part, held)) for part, held in (*own_parts, *box.residuals.items())}
                whole = reduce(int.__xor__, hashes.values(), 0)
                for part, own in hashes.items():
                    groups.setdefault((part, whole ^ own), []).append(box)
            joined = self._join_groups(boxes, groups)
            if len(joined) == len(boxes):
                break
            boxes = joined
        if len(boxes) > LIMITS.boxes:
            raise FilterTooComplexError(f"the filter is a union of more than {LIMITS.boxes} boxes; split it")
        return boxes

    def _shared(self, boxes: list[Box]) -> frozenset[str]:
        """The attributes for which all boxes have one and the same set: no two boxes differ there."""
        if len(boxes) < 2:
            return frozenset()
        self.budget.spend(sum([len(box.sets) for box in boxes]) // 8)
        names = dict(boxes[0].sets)
        for box in boxes:
            if len(names) < _SHARED:
                return frozenset()
            theirs = box.sets
            names = {name: values for name, values in names.items() if theirs.get(name) is values}
        return frozenset(names)

    def _different(self, boxes: list[Box], shared: frozenset[str]) -> list[Box]:
        """Of equal boxes the first."""
        if not shared:
            return list(dict.fromkeys(boxes))
        found: dict[object, Box] = {}
        for box in boxes:
            sets = frozenset([item for item in box.sets.items() if item[0] not in shared])
            found.setdefault((sets, frozenset(box.residuals.items())), box)
        return list(found.values())

    def _join_groups(self, boxes: list[Box], groups: dict[tuple[str | Subject, int], list[Box]]) -> list[Box]:
        """One round of joins; a box takes part in at most one join."""
        left: dict[int, Box] = {id(box): box for box in boxes}
        result: list[Box] = []
        for (part, _), group in groups.items():
            free = [box for box in group if id(box) in left]
            if len(free) > 1:
                self.budget.spend(sum(map(_weight, free)))
            alike = [box for box in free if _rest(box, part) == _rest(free[0], part)] if len(free) > 1 else []
            if len(alike) > 1:
                for box in alike:
                    del left[id(box)]
                sets, residuals = dict(alike[0].sets), dict(alike[0].residuals)
                if isinstance(part, str):
                    sets[part] = ValueSet.union_of([box.sets[part] for box in alike], self.budget)
                else:
                    residuals[part] = frozenset[Any]().union(*(box.residuals[part] for box in alike))
                whole = Box.of(sets, residuals, self.schema, self.budget)
                if whole is not None:
                    result.append(whole)
        return self._different([*left.values(), *result], self._shared([*left.values(), *result]))


def _weight(box: Box, shared: Collection[str] = ()) -> int:
    """The steps of going through a box once, without the attributes that it shares."""
    sets = [values for name, values in box.sets.items() if name not in shared] if shared else box.sets.values()
    cuts = sum([len(values.numbers) + len(values.strings.line) for values in sets])
    return 2 + len(sets) + 2 * len(box.residuals) + cuts // 8


def _rest(box: Box, part: str | Subject) -> tuple[object, object]:
    """All of a box but one attribute or residual."""
    return (
        {name: values for name, values in box.sets.items() if name != part},
        {subject: allowed for subject, allowed in box.residuals.items() if subject != part},
    )


def _balanced(combine: Callable[[T, T], T], items: Sequence[T]) -> T:
    """Combine neighbours, round by round: sizes stay similar, which keeps the total cost low."""
    row = list(items)
    while len(row) > 1:
        pairs = [combine(row[at], row[at + 1]) for at in range(0, len(row) - 1, 2)]
        row = pairs + row[len(pairs) * 2 :]
    return row[0]
