"""Volumes of boxes. They are additive over disjoint boxes. Only the part within the schema's bounds counts.

Only attributes that a box restricts need bounds; any other attribute without bounds counts as 1. A float or a timestamp
is measured by length (in seconds), an integer, a bool and a category by count; a float with a precision counts its
steps. Absence has no volume: only events that have all attributes, within their bounds, count.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from weft.algebra import interval
from weft.algebra.box import Box, NormalForm
from weft.algebra.budget import Budget
from weft.algebra.interval import Cut, Line
from weft.algebra.relate import Region, as_form
from weft.algebra.subtract import remainder
from weft.algebra.valueset import ValueSet, of_type
from weft.errors import SchemaError
from weft.model.schema import Attribute, Schema
from weft.model.value import Type, to_micros


def volume(region: Region, schema: Schema, budget: Budget | None = None) -> float:
    """The volume of what matches, within the schema's bounds. Raises FilterTooComplexError when the budget is used up.

    >>> from weft import Schema, parse
    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 1000]}}})
    >>> volume(parse("x BETWEEN 175 AND 510 OR x > 900"), schema)
    435.0
    """
    form = as_form(region, schema)
    return math.fsum(_box_volume(piece, schema) for piece in disjoint(form, budget))


def disjoint(form: NormalForm, budget: Budget | None = None) -> list[Box]:
    """The same set as disjoint boxes; residuals are ignored, so that the result may be too large."""
    budget = budget or Budget()
    pieces: list[Box] = []
    seen: list[Box] = []
    for box in form.boxes:
        plain = Box(box.sets)
        pieces.extend(remainder(plain, seen, form.schema, budget))
        seen.append(plain)
    return pieces


def _box_volume(box: Box, schema: Schema) -> float:
    unknown = sorted(set(box.sets) - set(schema))
    if unknown:
        raise SchemaError(f"a volume needs every attribute in the schema; add {', '.join(map(repr, unknown))}")
    return math.prod(_size(box.sets.get(name), schema[name]) for name in schema)


def _size(restricted: ValueSet | None, attribute: Attribute) -> float:
    values = of_type(attribute.type) if restricted is None else restricted
    match attribute.type:
        case Type.BOOL:
            return float(len(values.bools))
        case Type.STRING if attribute.categories:
            return float(sum(category in values.strings for category in attribute.categories))
    if attribute.low is None or attribute.high is None:
        if restricted is None:
            return 1.0
        what = "categories" if attribute.type is Type.STRING else "bounds"
        raise SchemaError(f"a volume needs {what} for {attribute.name!r}; add them to the schema")
    low, high = _number(attribute.low), _number(attribute.high)
    line = values.timestamps if attribute.type is Type.TIMESTAMP else values.numbers
    within = interval.intersect(line, ((low, 0), (high, 1)))
    step = 1 if attribute.type is Type.INT else attribute.precision
    return math.fsum(_length(within, step)) / (1e6 if attribute.type is Type.TIMESTAMP else 1)


def _length(line: Line, step: float | None) -> list[float]:
    ends = [(low, high) for low, high in interval.intervals(line) if high is not None]
    if step is None:
        return [float(high[0] - low[0]) for low, high in ends]
    return [float(_steps_below(high, step) - _steps_below(low, step)) for low, high in ends]


def _steps_below(cut: Cut, step: float) -> int:
    """The number of multiples of the step below a cut, from an arbitrary origin."""
    value, side = cut
    if step == 1 and isinstance(value, int):
        return value + side
    ratio: float = value / step
    if math.isclose(ratio, round(ratio), rel_tol=1e-12, abs_tol=1e-9):
        return round(ratio) + side
    return math.floor(ratio) + 1


def _number(bound: Any) -> Any:
    return to_micros(bound) if isinstance(bound, datetime) else bound
