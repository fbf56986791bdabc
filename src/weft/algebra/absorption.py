"""Boxes that other boxes cover, dropped from a union. Laws: the union stays the same; a box is dropped only if another
is proven to cover it.

Comparing boxes spends a quarter of the budget at most, and many boxes are compared in columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.algebra.box import Box
from weft.algebra.budget import Budget
from weft.errors import FilterTooComplexError

_FEW = 32  # so many boxes are always compared pair by pair


def absorb(boxes: list[Box], budget: Budget) -> list[Box]:
    """The boxes that no other box covers; all boxes are kept if comparing them takes too many steps."""
    part = budget.part(budget.steps // 4)
    try:
        return _absorb_within(boxes, part)
    except FilterTooComplexError:
        return boxes
    finally:
        budget.charge(min(part.used, part.steps))


def _absorb_within(boxes: list[Box], budget: Budget) -> list[Box]:
    """The same within a budget; many boxes with patterns are all kept, since comparing them is expensive."""
    if len(boxes) > _FEW:
        if any(values.strings.terms for box in boxes for values in box.sets.values()):
            return boxes
        if len(boxes) > _FEW + 16 * min(len(box.sets) for box in boxes):
            return _absorb_many(boxes, budget)
    kept: list[Box] = []
    for box in boxes:
        budget.spend(len(kept) * 3)
        if not any(other.covers(box, budget) for other in kept):
            kept = [other for other in kept if not box.covers(other, budget)]
            kept.append(box)
    return kept


def _absorb_many(boxes: list[Box], budget: Budget) -> list[Box]:
    """The same for many: one box against all boxes in columns, and the others pair by pair."""
    from weft.algebra.columns import BoxColumns  # imports numpy

    all_of_them = BoxColumns.of(boxes)
    odd = all_of_them.odd
    columns = BoxColumns(all_of_them.columns, all_of_them.owners, {}, all_of_them.strings)
    left = [True] * len(boxes)
    long = [sum([n for values in box.sets.values() if (n := values.cuts) > 16]) for box in boxes]
    for row, box in enumerate(boxes):
        if not left[row]:
            continue
        covered: Iterable[int] = range(len(boxes))
        if row not in odd:
            budget.spend(40 + 20 * len(box.sets))
            for other in columns.covered_by(box).nonzero()[0].tolist():
                left[other] = left[other] and (other == row or other in odd)
            covered = odd
        budget.spend(len(boxes) if row in odd else len(odd))
        names = box.sets.keys()
        for other in covered:
            if left[other] and other != row and names <= boxes[other].sets.keys():
                budget.spend(2 + len(names) // 4 + long[other] // 2)
                left[other] = not box.covers(boxes[other], budget)
    return [box for box, kept in zip(boxes, left, strict=True) if kept]
