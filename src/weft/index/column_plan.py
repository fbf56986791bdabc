"""The plan for reading the columns of Arrow batches, made once for all batches of a schema. A plan reads what
`typed_columns` reads.

Looking at a schema takes longer than reading the columns of a small batch. Plain columns of strings and of float64 are
most of what users have: their places are known from the plan, and nothing else is asked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.errors import EventError
from weft.model.batch_size import SchemaSize, oversized
from weft.model.column import TypedColumn, is_free, set_aside, typed_columns, unreadable
from weft.model.door import WELL_KNOWN
from weft.model.value import Type

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 8  # plans


class ColumnPlan(NamedTuple):
    """Where the wanted columns of a schema are."""

    schema: pa.Schema
    names: frozenset[str]  # the wanted attributes
    size: SchemaSize | None  # None where events have no limits
    strings: tuple[tuple[str, int], ...]
    floats: tuple[tuple[str, int], ...]
    others: frozenset[str]  # to be read by their types, if there are any

    @staticmethod
    def of(batch: pa.RecordBatch, names: Collection[str]) -> ColumnPlan:
        """The plan for a batch. Raises EventError for structs that are nested too deeply."""
        schema, wanted = batch.schema, frozenset(names)
        for plan in _RECENT.plans:
            if plan.names == wanted and plan.schema.equals(schema, check_metadata=True):
                return plan
        plan = _planned(batch, wanted)
        _RECENT.plans = (plan, *_RECENT.plans[: _KEPT - 1])
        return plan

    def read(
        self, batch: pa.RecordBatch, aside: dict[int, EventError] | None
    ) -> tuple[dict[str, Any], dict[str, TypedColumn]]:
        """The columns that stay strings of Arrow, and the others. Events that cannot be read are set aside, or raise
        EventError if there is no place for them.
        """
        if self.size is not None:
            set_aside(oversized(batch, self.size), aside)
        strings: dict[str, Any] = {}
        columns: dict[str, TypedColumn] = {}
        others = self.others
        for name, place in self.strings:
            array = batch.column(place)
            if unreadable(array):
                others |= {name}
            else:
                strings[name] = array
        for name, place in self.floats:
            array = batch.column(place)
            if array.null_count:
                others |= {name}
            else:
                numbers = array.to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
                columns[name] = TypedColumn(Type.FLOAT, numbers, np.isnan(numbers))
        return strings, columns | typed_columns(batch, others, aside) if others else columns


def _planned(batch: pa.RecordBatch, wanted: frozenset[str]) -> ColumnPlan:
    import pyarrow as pa

    schema, free = batch.schema, is_free(batch)
    names = schema.names
    there = {name for name in wanted if name in names or "." in name}  # a struct may have it
    nested = any(each.startswith(name + ".") for name in names for each in there)
    strings, floats = [], []
    for name in sorted(there):
        places = schema.get_all_field_indices(name)
        if len(places) != 1 or nested:  # `typed_columns` finds out what is there twice
            continue
        kind = schema.field(places[0]).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            if WELL_KNOWN.get(name, Type.STRING) is Type.STRING:
                strings.append((name, places[0]))
        elif pa.types.is_float64(kind) and name not in WELL_KNOWN:
            floats.append((name, places[0]))
    others = there - {name for name, _ in (*strings, *floats)}
    return ColumnPlan(
        schema, wanted, None if free else SchemaSize.of(schema), tuple(strings), tuple(floats), frozenset(others)
    )


class _RecentPlans:
    """The plans that were made last, for all threads: the tuple is replaced, and never changed."""

    plans: tuple[ColumnPlan, ...] = ()


_RECENT = _RecentPlans()
