"""Events at the corners of filters, where bugs are most likely. The same generator gives the same events. Each value
has the type that its filter compares with, and the schema's type if there is a schema.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns
from weft.algebra.valueset import ValueSet
from weft.model.schema import Schema
from weft.model.value import MICROS_MAX, MICROS_MIN, Type, Value, from_micros

_ABSENT = 0.05  # share of the attributes of an event
_TOP = float(2**52)


def corner_events(
    columns: BoxColumns, count: int, rng: np.random.Generator, schema: Schema | None = None
) -> list[dict[str, Value | None]]:
    """The given number of events at, next to and inside the ends of randomly drawn boxes; none if there are no boxes.

    >>> from weft.algebra.bulk import columns_of_texts
    >>> corner_events(columns_of_texts(["x = 5"]), 3, np.random.default_rng(2))
    [{'x': 5}, {'x': 6}, {'x': 5}]
    """
    rows = rng.integers(0, len(columns), count).tolist() if len(columns) else []
    return [_event(columns.box(row), rng, schema) for row in rows]


def _event(box: Box, rng: np.random.Generator, schema: Schema | None) -> dict[str, Value | None]:
    event: dict[str, Value | None] = {}
    for name, values in box.sets.items():
        declared = None if schema is None else schema.get(name)
        value = _value(values, rng, declared is not None and declared.type is Type.INT)
        if value is not None and rng.random() >= _ABSENT:
            event[name] = value
    return event


def _value(values: ValueSet, rng: np.random.Generator, whole: bool) -> Value | None:
    choices: list[Value] = list(values.bools)
    if values.numbers:
        choices.append(_number(values.numbers, rng, whole))
    if values.timestamps:
        micros = int(_number(values.timestamps, rng, whole=True))
        choices.append(from_micros(min(max(micros, MICROS_MIN), MICROS_MAX)))
    for text, _ in values.strings.line:
        choices += [text, text + "a"]
    for term in values.strings.terms:
        heads = [pattern.segments[0][0] for pattern in term.musts]
        choices += ["".join(heads), "a"]
    return choices[int(rng.integers(0, len(choices)))] if choices else None


def _number(line: tuple[Any, ...], rng: np.random.Generator, whole: bool) -> float:
    """An end of an interval, a step beside an end, or the middle of two ends."""
    ends = [float(cut[0]) for cut in line if math.isfinite(cut[0]) and abs(cut[0]) < _TOP] or [0.0]
    first, second = (ends[int(rng.integers(0, len(ends)))] for _ in range(2))
    number = (first, first - 1, first + 1, (first + second) / 2)[int(rng.choice(4, p=(0.4, 0.15, 0.15, 0.3)))]
    return round(number) if whole or number.is_integer() else number
