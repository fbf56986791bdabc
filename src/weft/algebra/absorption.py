"""Boxes that other boxes cover, dropped from a union. The union stays the same. A box is dropped only if another is
proven to cover it.

Comparing boxes spends a quarter of the budget at most, or half of what is left, and many boxes are compared in columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.algebra.box import Box
from weft.algebra.budget import Budget
from weft.errors import FilterTooComplexError

_FEW = 32  # so many boxes are always compared pair by pair
_FEW_ALIKE = 8  # boxes that test an attribute, of which each is compared with each
_PAIR = 7  # steps of comparing two boxes with residuals, at least


def absorb(boxes: list[Box], budget: Budget) -> list[Box]:
    """The boxes that no other box covers; all boxes are kept if comparing them takes too many steps."""
    part = budget.part(min(budget.steps // 4, budget.left // 2))  # giving up must not make a filter too complex
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
        alike = _alike(boxes)
        if alike is not None:
            return _absorb_alike(boxes, alike, budget)
        if _PAIR * _pairs_of_residuals(boxes) > budget.left:
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


def _alike(boxes: list[Box]) -> list[list[int]] | None:
    """For each box those that test its rarest attribute: all that it covers are among them. None if there are many."""
    testing: dict[str, list[int]] = {}
    for row, box in enumerate(boxes):
        for name in box.sets:
            testing.setdefault(name, []).append(row)
    found: list[list[int]] = []
    for box in boxes:
        least = min([testing[name] for name in box.sets], key=len, default=None)
        if least is None or len(least) > _FEW_ALIKE:
            return None
        found.append(least)
    return found


def _absorb_alike(boxes: list[Box], alike: list[list[int]], budget: Budget) -> list[Box]:
    """The same where each box can cover only a few others."""
    left = [True] * len(boxes)
    for row, (box, others) in enumerate(zip(boxes, alike, strict=True)):
        budget.spend(2)
        for other in others if left[row] else ():
            if other != row and left[other]:
                budget.spend(2 + len(box.sets) // 4)
                left[other] = not box.covers(boxes[other], budget)
    return [box for box, kept in zip(boxes, left, strict=True) if kept]


def _pairs_of_residuals(boxes: list[Box]) -> int:
    """How many pairs of boxes have residuals and test the same attributes: those are compared in full."""
    counts = Counter(frozenset(box.sets) for box in boxes if box.residuals)
    return sum([count * count for count in counts.values()])


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
