"""A workload: subscriptions as columns of bounds, and a table of events. Bounds and texts mean the same.

A subscription is a conjunction with at most one predicate per attribute. An attribute without a predicate may have any
value or be absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pyarrow as pa

from weft.errors import SchemaError
from weft.kernels.arrays import Floats, Ints
from weft.language.constant import Constant
from weft.language.format import format_constant, format_name

RangeColumns = tuple[Floats, Floats]  # low and high, inclusive; NaN: no bound on that side
Words = Any  # an Arrow array of strings; NULL: no predicate. pyarrow's stubs have no short name for it
Bounds = dict[str, RangeColumns | Words]
MakeWorkload = Callable[..., "Workload"]  # (n, events, seed)


@dataclass(frozen=True, slots=True)
class Workload:
    """n subscriptions and some events.

    >>> low, high = np.array([1.0, np.nan]), np.array([5.0, 7.5])
    >>> bounds = {"x": (low, high), "kind": pa.array(["quake", None])}
    >>> Workload("mine", bounds, pa.record_batch({"x": [2.0], "kind": ["quake"]})).texts()
    ["x BETWEEN 1 AND 5 AND kind = 'quake'", 'x <= 7.5']
    """

    name: str
    bounds: Bounds
    table: pa.RecordBatch

    def __post_init__(self) -> None:
        sizes = {len(column[0]) if isinstance(column, tuple) else len(column) for column in self.bounds.values()}
        if len(sizes) != 1:
            raise SchemaError(
                f"all attributes of a workload need the same number of bounds, not {sorted(sizes)}; "
                "give each one bound per subscription"
            )

    def __len__(self) -> int:
        """The number of subscriptions."""
        column = next(iter(self.bounds.values()))
        return len(column[0]) if isinstance(column, tuple) else len(column)

    def texts(self, first: int | None = None) -> list[str]:
        """The subscriptions as filters, all or the first few. Cost: O(n x attributes)."""
        size = len(self) if first is None else min(first, len(self))
        columns = [_predicates(name, column, size) for name, column in self.bounds.items()]
        return [" AND ".join(filter(None, row)) or "TRUE" for row in zip(*columns, strict=True)]

    def batches(self, size: int) -> list[pa.RecordBatch]:
        """The events in batches of the given size; the last one may be shorter. Nothing is copied."""
        return [self.table.slice(start, size) for start in range(0, self.table.num_rows, size)]


def zipf(rng: np.random.Generator, values: int, size: int) -> Ints:
    """Draws from 0..values-1 in which value v has a probability proportional to 1 / (v + 1): Zipf with exponent 1."""
    weights = 1 / np.arange(1, values + 1)
    return rng.choice(values, size, p=weights / weights.sum())


def ranges(low: Ints, width: int | Ints, top: int) -> RangeColumns:
    """Ranges of `width` values starting at `low`, clipped at `top`."""
    return low.astype(np.float64), np.minimum(low + width - 1, top).astype(np.float64)


def words(prefix: str, values: int, codes: Ints) -> Words:
    """The strings prefix0..prefix<values - 1> that the codes refer to; a negative code is NULL."""
    names = pa.array([f"{prefix}{value}" for value in range(values)])
    rows: Any = pa.array(codes, mask=codes < 0)
    return names.take(rows)


def _predicates(name: str, column: RangeColumns | Words, size: int) -> list[str | None]:
    """The text of one attribute's predicate in each of the first subscriptions; None where there is none."""
    shown = format_name(name)
    if isinstance(column, tuple):
        low, high = column
        return [_range(shown, *pair) for pair in zip(low[:size].tolist(), high[:size].tolist(), strict=True)]
    values = column.slice(0, size).to_pylist()
    texts = {value: f"{shown} = {format_constant(Constant.of(value))}" for value in set(values) - {None}}
    return [texts.get(value) for value in values]


def _range(name: str, low: float, high: float) -> str | None:
    if isnan(low):
        return None if isnan(high) else f"{name} <= {_number(high)}"
    if isnan(high):
        return f"{name} >= {_number(low)}"
    return f"{name} BETWEEN {_number(low)} AND {_number(high)}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
