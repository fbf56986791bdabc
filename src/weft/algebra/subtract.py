"""Boxes minus boxes. The pieces are disjoint and, with what was removed, make up the whole. A subtrahend with a
residual of its own removes nothing.

A piece is cut first by the cutter that reaches into it by the fewest attributes: one that leaves a single attribute
open shrinks the piece without splitting it. A cutter is compared again only where the piece has changed, so boxes with
a thousand attributes cost no more than the attributes that are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weft.algebra.box import Box, universe
from weft.algebra.budget import Budget
from weft.algebra.valueset import ValueSet
from weft.model.schema import Schema

if TYPE_CHECKING:
    from weft.algebra.relate import Region


def subtract(
    region: Region, others: Sequence[Region], schema: Schema | None = None, budget: Budget | None = None
) -> list[Box]:
    """Boxes that hold what is in the region and in none of the others; disjoint except for residuals.

    Raises FilterTooComplexError when the budget is used up; then nothing should be removed.

    Cost: at most the steps of the budget. Filters are normalised first.

    >>> len(subtract("x BETWEEN 0 AND 9", ["x BETWEEN 3 AND 5"])), subtract("x = 4", ["x BETWEEN 3 AND 5"])
    (1, [])
    """
    if isinstance(region, Box) and all(isinstance(other, Box) for other in others):
        return list(remainder(region, others, schema, budget))  # type: ignore[arg-type]
    from weft.algebra.relate import as_form

    given = (others,) if isinstance(others, str) else others
    cutters = [box for other in given for box in as_form(other, schema).boxes]
    budget = budget or Budget()
    boxes = as_form(region, schema).boxes
    return [piece for at, box in enumerate(boxes) for piece in remainder(box, [*cutters, *boxes[:at]], schema, budget)]


class _Cutter(NamedTuple):
    """A box to cut with, and the attributes by which a piece may lie outside it."""

    sets: Mapping[str, ValueSet]
    open: tuple[str, ...]


class _Piece(NamedTuple):
    """What is left of a box: its changed sets, the attributes to compare again, and the cutters that may overlap it."""

    changed: dict[str, ValueSet]
    fresh: tuple[str, ...] | None  # None: all
    cutters: list[_Cutter]


def remainder(
    box: Box, others: Sequence[Box], schema: Schema | None = None, budget: Budget | None = None
) -> Iterator[Box]:
    """The pieces of `subtract`, one by one, so that a caller who only needs to know whether there is one can stop.

    A cutter whose residuals every event of the box has cuts as if it had none. Raises FilterTooComplexError when the
    budget is used up.
    """
    budget = budget or Budget()
    cutters = [
        _Cutter(other.sets, tuple(other.sets))
        for other in others
        if not other.residuals or other.residuals_implied_by(box, budget)
    ]
    stack = [_Piece({}, None, cutters)]
    while stack:
        piece = stack.pop()
        met = _met(box, piece, schema, budget)
        if met is None:
            continue
        if not met:
            yield Box({**box.sets, **piece.changed}, box.residuals) if piece.changed else box
            continue
        sharpest = min(met, key=_openness)
        rest = [cutter for cutter in met if cutter is not sharpest]
        changed = dict(piece.changed)
        fresh: tuple[str, ...] = ()
        for name in sharpest.open:
            mine = changed.get(name) or box.sets.get(name) or universe(name, schema)
            values = sharpest.sets[name]
            budget.spend(20 + len(changed) // 8 + (mine.cuts + values.cuts) // 2)
            fresh = (*fresh, name)
            outside = mine.intersect(values.complement(budget), budget)
            if outside:
                stack.append(_Piece({**changed, name: outside}, fresh, rest))
            changed[name] = mine.intersect(values, budget)
            if not changed[name]:
                break


def _openness(cutter: _Cutter) -> int:
    return len(cutter.open)


def _met(box: Box, piece: _Piece, schema: Schema | None, budget: Budget) -> list[_Cutter] | None:
    """The cutters that overlap the piece; None if one of them covers it."""
    met = []
    fresh = None if piece.fresh is None else frozenset(piece.fresh)
    for cutter in piece.cutters:
        left = []
        for name in cutter.open:
            if fresh is not None and name not in fresh:
                left.append(name)
                continue
            values = cutter.sets[name]
            mine = piece.changed.get(name) or box.sets.get(name) or universe(name, schema)
            budget.spend(6 + (mine.cuts + values.cuts) // 4)
            if not values.overlaps(mine, budget):
                break
            if not values.covers(mine, budget):
                left.append(name)
        else:
            if not left:
                return None
            met.append(cutter if len(left) == len(cutter.open) else _Cutter(cutter.sets, tuple(left)))
    return met


def cut(box: Box, cutter: Box, schema: Schema | None = None) -> list[Box]:
    """The box without the value sets of the cutter, as disjoint boxes, at most one for each attribute."""
    sets = dict(box.sets)
    pieces = []
    for name, values in cutter.sets.items():
        mine = sets.get(name) or universe(name, schema)
        outside = mine.intersect(values.complement())
        if outside:
            pieces.append(Box({**sets, name: outside}, box.residuals))
        sets[name] = mine.intersect(values)
        if not sets[name]:
            break
    return pieces
