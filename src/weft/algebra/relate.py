"""Covering and overlap of filters. Laws: `covers` is True only when proven, and complete for numbers with any
disjunctions within the budget; `overlaps` is False only when disproved. A wrong True of `covers` would lose events.
"""

from __future__ import annotations

from weft.algebra.box import Box, NormalForm
from weft.algebra.budget import Budget
from weft.algebra.normalize import conformed, normalize, simplify
from weft.algebra.subtract import remainder
from weft.errors import FilterTooComplexError, SchemaError
from weft.language.any_filter import AnyFilter
from weft.language.ast import Filter
from weft.model.schema import Schema

Region = AnyFilter | Box | NormalForm


def as_form(region: Region, schema: Schema | None = None) -> NormalForm:
    """The normal form of a region; one that is given must have been made under the same schema."""
    if isinstance(region, NormalForm):
        if region.schema != schema:
            raise SchemaError("a normal form is valid only under the schema it was made with; pass that schema")
        return region
    if isinstance(region, Box):
        return NormalForm((region,), schema)
    if not isinstance(region, Filter):
        return normalize(region, schema)
    known = [each for each in _latest if each[0] is region]
    for _, under, form in known:
        if under is schema:
            return form
    plain = next((form for _, under, form in known if under is None), None)
    if plain is not None and schema is not None:
        form = conformed(plain, schema)
    else:
        known, form = [], normalize(region, schema)
    _latest[:] = [*known[:1], (region, schema, form)]
    return form


# those of one filter: a broker adds it to an index and to a table, and compares it with access rules under a schema,
# and to normalize it is most of the work
_latest: list[tuple[Filter, Schema | None, NormalForm]] = []


def covers(wide: Region, narrow: Region, schema: Schema | None = None, budget: Budget | None = None) -> bool:
    """True only if every event that matches `narrow` matches `wide`; False when the budget is used up.

    Cost: O(bounds) for two conjunctions of comparisons with constants; at most the steps of the budget for others.
    Filters are normalised first.

    >>> covers("x < 10", "x BETWEEN 5 AND 9"), covers("x < 10", "x BETWEEN 8 AND 15")
    (True, False)
    """
    outer, inner = as_form(wide, schema), as_form(narrow, schema)
    if len(outer.boxes) == 1 and not outer.boxes[0].sets and not outer.boxes[0].residuals:
        return True  # everything
    if len(outer.boxes) == len(inner.boxes) == 1:
        box = inner.boxes[0]
        if not any(values.strings.terms for values in box.sets.values()):
            if budget is not None:
                budget.charge(_pair(outer.boxes[0], box))
            return outer.boxes[0].covers(box, budget)
    budget = budget or Budget()
    same = {id(box) for box in outer.boxes}
    try:
        return all(id(box) in same or _covered(box, outer, budget) for box in inner.boxes)
    except FilterTooComplexError:
        return False  # not proven


def covers_within(wide: Region, narrow: Region, schema: Schema | None, budget: Budget) -> bool:
    """`covers` as one of many comparisons that share a budget: each gets an eighth of it, or what is left."""
    part = budget.part(budget.steps // 8)
    found = covers(wide, narrow, schema, part)
    budget.charge(part.used)
    return found


def _covered(box: Box, form: NormalForm, budget: Budget) -> bool:
    for other in form.boxes:
        budget.spend(_pair(other, box))
        if other.covers(box, budget):
            return True
    near = []
    for other in form.boxes:
        budget.spend(_pair(other, box))
        if other.overlaps(box, budget):
            near.append(other)
    if len(near) < 2 and not any(part.strings.terms for part in box.sets.values()):
        return False
    return next(remainder(box, near, form.schema, budget), None) is None


def _pair(one: Box, other: Box) -> int:
    """The steps of comparing two boxes: most pairs differ at their first attributes."""
    return 1 + min(len(one.sets), len(other.sets)) // 4


def overlaps(one: Region, other: Region, schema: Schema | None = None, budget: Budget | None = None) -> bool:
    """False only if no event matches both; True when the budget is used up.

    Cost: O(bounds) for two conjunctions of comparisons with constants; at most the steps of the budget for others.
    Filters are normalised first.

    >>> overlaps("x < 10", "x > 5"), overlaps("x < 5", "x > 10")
    (True, False)
    """
    mine, theirs = as_form(one, schema), as_form(other, schema)
    if len(mine.boxes) == len(theirs.boxes) == 1:
        return mine.boxes[0].overlaps(theirs.boxes[0], budget)
    budget = budget or Budget()
    try:
        for a in mine.boxes:
            for b in theirs.boxes:
                budget.spend(_pair(a, b))
                if a.overlaps(b, budget):
                    return True
    except FilterTooComplexError:
        return True  # not disproved
    return False


def equivalent(one: Region, other: Region, schema: Schema | None = None) -> bool:
    """True only if both match the same events. Cost: that of `covers`, twice.

    >>> equivalent("NOT (x < 5)", "x >= 5"), equivalent("x > 5", "x >= 5")
    (True, False)
    """
    mine, theirs = as_form(one, schema), as_form(other, schema)
    return covers(mine, theirs, schema) and covers(theirs, mine, schema)


def is_empty(region: Region, schema: Schema | None = None) -> bool:
    """True only if no event matches. Cost: that of `normalize`; O(1) for a normal form.

    >>> is_empty("x > 5 AND x < 3"), is_empty("x > 5 AND y < 3")
    (True, False)
    """
    return not as_form(region, schema).boxes


def intersect(one: Region, other: Region, schema: Schema | None = None, budget: Budget | None = None) -> NormalForm:
    """The events that match both. Raises FilterTooComplexError when the budget is used up.

    Cost: O(boxes of one * boxes of the other), at most the steps of the budget. Filters are normalised first.

    >>> from weft import to_filter
    >>> print(to_filter(intersect("x > 5", "x <= 9 AND y = 'a'")))
    x > 5 AND x <= 9 AND y = 'a'
    """
    mine, theirs = as_form(one, schema), as_form(other, schema)
    budget = budget or Budget()
    both = []
    for a in mine.boxes:
        for b in theirs.boxes:
            budget.spend(2 + len(a.sets) + len(b.sets))
            box = a.intersect(b, budget)
            if box is not None:
                both.append(box)
    return simplify(both, schema, budget)
