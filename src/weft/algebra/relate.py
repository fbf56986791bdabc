"""Covering and overlap of filters. Laws: `covers` is True only when proven, and complete for numbers with any
disjunctions; `overlaps` is False only when disproved. A wrong True of `covers` would lose events.
"""

from __future__ import annotations

from weft.algebra.box import Box, NormalForm
from weft.algebra.normalize import normalize, simplify
from weft.algebra.subtract import remainder
from weft.errors import FilterTooComplexError, SchemaError
from weft.language.ast import Filter, as_filter
from weft.language.builder import Field
from weft.model.schema import Schema

Region = Filter | Field | Box | NormalForm

_MAX_STEPS = 20_000


def as_form(region: Region, schema: Schema | None = None) -> NormalForm:
    """The region's normal form; one that is made already must have been made under the same schema."""
    if isinstance(region, NormalForm):
        if region.schema != schema:
            raise SchemaError("a normal form holds under the schema it was made with: pass that schema")
        return region
    if isinstance(region, Box):
        return NormalForm((region,), schema)
    return normalize(as_filter(region), schema)


def covers(wide: Region, narrow: Region, schema: Schema | None = None) -> bool:
    """True only if every event that matches `narrow` matches `wide`.

    >>> from weft import parse
    >>> covers(parse("x < 10"), parse("x BETWEEN 5 AND 9")), covers(parse("x < 10"), parse("x BETWEEN 8 AND 15"))
    (True, False)
    """
    outer, inner = as_form(wide, schema), as_form(narrow, schema)
    return all(_covered(box, outer) for box in inner.boxes)


def _covered(box: Box, form: NormalForm) -> bool:
    if any(other.covers(box) for other in form.boxes):
        return True
    near = [other for other in form.boxes if other.overlaps(box)]
    if len(near) < 2 and not any(part.strings.terms for part in box.sets.values()):
        return False
    try:
        return next(remainder(box, near, form.schema, _MAX_STEPS), None) is None
    except FilterTooComplexError:
        return False  # not proven


def overlaps(one: Region, other: Region, schema: Schema | None = None) -> bool:
    """False only if no event matches both.

    >>> from weft import parse
    >>> overlaps(parse("x < 10"), parse("x > 5")), overlaps(parse("x < 5"), parse("x > 10"))
    (True, False)
    """
    mine, theirs = as_form(one, schema), as_form(other, schema)
    return any(a.overlaps(b) for a in mine.boxes for b in theirs.boxes)


def equivalent(one: Region, other: Region, schema: Schema | None = None) -> bool:
    """True only if both match the same events."""
    mine, theirs = as_form(one, schema), as_form(other, schema)
    return covers(mine, theirs, schema) and covers(theirs, mine, schema)


def is_empty(region: Region, schema: Schema | None = None) -> bool:
    """True only if no event matches.

    >>> from weft import parse
    >>> is_empty(parse("x > 5 AND x < 3")), is_empty(parse("x > 5 AND y < 3"))
    (True, False)
    """
    return not as_form(region, schema).boxes


def intersect(one: Region, other: Region, schema: Schema | None = None) -> NormalForm:
    """The events that match both."""
    pairs = [a.intersect(b) for a in as_form(one, schema).boxes for b in as_form(other, schema).boxes]
    return simplify((box for box in pairs if box is not None), schema)
