"""Boxes minus boxes. Laws: the pieces are disjoint and, with what was taken, make up the whole; a subtrahend with a
residual of its own takes nothing away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.algebra.box import Box, universe
from weft.errors import FilterTooComplexError
from weft.model.schema import Schema

MAX_STEPS = 100_000


def subtract(box: Box, others: Sequence[Box], schema: Schema | None = None) -> list[Box]:
    """Disjoint boxes that hold what is in the box and in none of the others.

    >>> from weft import parse
    >>> from weft.algebra.normalize import normalize
    >>> (whole,), (hole,) = (normalize(parse(t)).boxes for t in ("x BETWEEN 0 AND 9", "x BETWEEN 3 AND 5"))
    >>> len(subtract(whole, [hole])), subtract(hole, [whole])
    (1, [])
    """
    return list(remainder(box, others, schema))


def remainder(
    box: Box, others: Sequence[Box], schema: Schema | None = None, max_steps: int = MAX_STEPS
) -> Iterator[Box]:
    """The pieces of `subtract`, one by one, so that a caller who only asks whether there is one can stop.

    A cutter whose residuals every event of the box has cuts as if it had none. Raises FilterTooComplexError past
    `max_steps` cuts.
    """
    cutters = [other for other in others if not other.residuals or other.residuals_implied_by(box)]
    stack = [(box, 0)]
    steps = 0
    while stack:
        piece, at = stack.pop()
        while at < len(cutters) and not _meets(piece, cutters[at]):
            at += 1
        if at == len(cutters):
            yield piece
            continue
        steps += 1
        if steps > max_steps:
            raise FilterTooComplexError(f"the difference takes more than {max_steps} cuts")
        stack.extend((part, at + 1) for part in cut(piece, cutters[at], schema))


def cut(box: Box, cutter: Box, schema: Schema | None = None) -> list[Box]:
    """The box without the value sets of the cutter, as disjoint boxes, one for each attribute at most."""
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


def _meets(box: Box, cutter: Box) -> bool:
    mine = box.sets
    return all(name not in mine or values.overlaps(mine[name]) for name, values in cutter.sets.items())
