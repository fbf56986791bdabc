"""A batch of events, column by column: an Arrow batch, or a list of events. The codes of a column are those of its
values, one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import EventError
from weft.index.column_plan import ColumnPlan
from weft.index.dimension import ABSENT, FALSE, TRUE, CodeDimension, Codes
from weft.model.column import TypedColumn, listed
from weft.model.door import PlainEvents, are_plain
from weft.model.event import Event, attributes_of
from weft.model.frame import AnyEvent
from weft.model.lists import AttributeValue
from weft.model.schema import Attribute, Schema
from weft.model.value import Type, Value

if TYPE_CHECKING:
    import pyarrow as pa

_EXACT = 2**53
_FEW_NAMES = 64
_SPARSE = 8  # values of columns for each that an event has
_FLOATS, _TEXTS = {float, type(None)}, {str, type(None)}


class SparseValues(NamedTuple):
    """The values of an attribute that few events have, and which events these are."""

    rows: list[int]
    values: list[Any]


class EventColumns:
    """The columns of a batch that an index looks at."""

    def __init__(
        self,
        size: int,
        columns: Mapping[str, TypedColumn],
        strings: Mapping[str, Any],
        texts: Mapping[str, list[Any]],
        mixed: Mapping[str, list[Any]],
    ) -> None:
        self.size = size
        self.columns = columns
        self.strings = strings  # columns that are strings in Arrow
        self.texts = texts  # columns that are lists of strings; None where there is none
        self.mixed = mixed  # columns with values of several types
        self.sparse: Mapping[str, SparseValues] = {}  # columns that few of the events have
        self.rows: Sequence[Mapping[str, Any]] | None = None  # the events as mappings, if that is what they were
        self._lists: dict[str, list[AttributeValue | None]] = {**texts, **mixed}

    @staticmethod
    def of(
        batch: pa.RecordBatch | Sequence[AnyEvent],
        names: Collection[str],
        schema: Schema | None = None,
        aside: dict[int, EventError] | None = None,
    ) -> EventColumns:
        """The named columns of a batch, as they conform to a schema.

        An event that cannot be read raises EventError; or, where `aside` is given, goes there by its position, and
        all its attributes are absent from the columns.
        """
        if isinstance(batch, Sequence):
            return _of_events(_rows(batch, schema, aside), names)
        if not hasattr(batch, "schema"):
            raise EventError(f"a batch must be an Arrow RecordBatch or a list of events, not {type(batch).__name__}")
        strings, columns = ColumnPlan.of(batch, names).read(batch, aside)
        if schema is not None:
            strings = {name: array for name, array in strings.items() if _is(schema, name, Type.STRING)}
            columns = {name: _conformed_column(column, schema.get(name)) for name, column in columns.items()}
        return EventColumns(batch.num_rows, columns, strings, {}, {})

    def has(self, name: str) -> bool:
        """Whether any event may have the attribute."""
        return name in self.columns or name in self.strings or name in self._lists or name in self.sparse

    def write(self, name: str, dimension: CodeDimension, codes: Codes, dim: int) -> None:
        """The codes of a column into codes[:, dim], which are ABSENT so far; what the batch does not have stays so."""
        if name in self.sparse:
            rows, values = self.sparse[name]
            codes[rows, dim] = [dimension.code(value) for value in values]
            return
        if name in self.strings:
            codes[:, dim] = dimension.codes_of_strings(self.strings[name])
            return
        if name in self.texts:
            known, code = dimension.texts, dimension.code_of_string
            texts = self.texts[name]
            codes[:, dim] = [known.get(text) or (ABSENT if text is None else code(text)) for text in texts]
            return
        if name in self.mixed:
            codes[:, dim] = [dimension.code(value) for value in self.mixed[name]]
            return
        column = self.columns.get(name)
        if column is None or column.type is None:
            codes[:, dim] = ABSENT
            return
        match column.type:
            case Type.FLOAT:
                dimension.write_numbers(column.values, codes, dim)
            case Type.INT:
                if len(column.values) and (column.values.max() > _EXACT or column.values.min() < -_EXACT):
                    codes[:, dim] = [dimension.code_of_number(value) for value in column.values.tolist()]
                else:
                    dimension.write_numbers(column.values.astype(np.float64), codes, dim)
            case Type.STRING:
                code = dimension.code_of_string
                codes[:, dim] = [ABSENT if text is None else code(text) for text in column.values.tolist()]
            case Type.BOOL:
                codes[:, dim] = np.where(column.values, TRUE, FALSE)
            case Type.TIMESTAMP:
                codes[:, dim] = dimension.codes_of_moments(column.values.astype(np.int64))
        if np.count_nonzero(column.absent):
            codes[column.absent, dim] = ABSENT

    def values(self, name: str) -> list[Value | None]:
        """A column's values as ordinary tests see them; None where there is none, or a list."""
        found = self.with_lists(name)
        if list not in set(map(type, found)):
            return found  # type: ignore[return-value]
        return [None if isinstance(value, list) else value for value in found]

    def with_lists(self, name: str) -> list[AttributeValue | None]:
        """A column's values, lists among them; None where there is none."""
        if name not in self._lists:
            column = self.columns.get(name)
            if name in self.sparse:
                listed_values: list[AttributeValue | None] = [None] * self.size
                for row, value in zip(*self.sparse[name], strict=True):
                    listed_values[row] = value
                self._lists[name] = listed_values
            elif name in self.strings:
                self._lists[name] = self.strings[name].to_pylist()
            else:
                self._lists[name] = [None] * self.size if column is None else listed(column)
        return self._lists[name]

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """A column of numbers with NaN for none, if floats hold them all exactly; else None."""
        column = self.columns.get(name)
        if column is None or column.type not in (Type.FLOAT, Type.INT):
            return None
        if column.type is Type.INT and len(column.values) and np.abs(column.values).max() > _EXACT:
            return None
        return np.where(column.absent, np.nan, column.values)


def conformed(event: AnyEvent, schema: Schema) -> Event:
    """The event as the schema has it. Raises EventError."""
    return schema.conform(event if isinstance(event, Event) else Event(attributes_of(event)))  # type: ignore[arg-type]


def _rows(
    events: Sequence[AnyEvent], schema: Schema | None, aside: dict[int, EventError] | None
) -> Sequence[Mapping[str, Any]]:
    """The attributes of each event; none where an event is set aside."""
    if schema is None and _are_plain(events):
        return events  # type: ignore[return-value]
    rows: list[Mapping[str, Any]] = []
    for at, event in enumerate(events):
        try:
            rows.append(attributes_of(event) if schema is None else conformed(event, schema).attributes)
        except EventError as error:
            if aside is None:
                raise error.at(at) from None
            aside[at] = error
            rows.append({})
    return rows


def _are_plain(events: Sequence[AnyEvent]) -> bool:
    """Whether events are the attributes that the door would make of them."""
    if type(events) is PlainEvents:
        return True
    return all(type(event) is dict for event in events) and are_plain(events)  # type: ignore[arg-type]


def _is(schema: Schema, name: str, kind: Type) -> bool:
    declared = schema.get(name)
    return declared is None or declared.type is kind


def _conformed_column(column: TypedColumn, declared: Attribute | None) -> TypedColumn:
    """What `Schema.conform` does to each value: those of another type become absent."""
    if column.lists and declared is not None:
        for row in np.flatnonzero(~column.absent).tolist():
            column.values[row] = declared.conform(column.values[row])
        return column
    if declared is None or column.type is None or declared.type is column.type:
        return column
    if declared.type is Type.FLOAT and column.type is Type.INT:
        return column
    if declared.type is Type.INT and column.type is Type.FLOAT:
        whole = (column.values == np.floor(column.values)) & (column.values >= -(2.0**63)) & (column.values < 2.0**63)
        return column._replace(absent=column.absent | ~whole)
    return column._replace(type=None, absent=np.ones(len(column.absent), bool))


def _of_events(rows: Sequence[Mapping[str, Any]], names: Collection[str]) -> EventColumns:
    if len(names) > _FEW_NAMES:
        names = frozenset(names)
        present = names & frozenset[str]().union(*rows)
        if len(present) * len(rows) > _SPARSE * sum(map(len, rows)):
            return _of_sparse_events(rows, present)
        names = present
    columns: dict[str, TypedColumn] = {}
    texts: dict[str, list[Any]] = {}
    mixed: dict[str, list[Any]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = set(map(type, values))
        if kinds <= _FLOATS:
            floats = np.array(values, np.float64)
            columns[name] = TypedColumn(Type.FLOAT, floats + 0.0, np.isnan(floats))
        elif kinds <= _TEXTS:
            texts[name] = values
        else:
            mixed[name] = values
    made = EventColumns(len(rows), columns, {}, texts, mixed)
    made.rows = rows
    return made


def _of_sparse_events(rows: Sequence[Mapping[str, Any]], names: frozenset[str]) -> EventColumns:
    """The columns of events that have few attributes each, and many together. Cost: O(attributes of the events)."""
    sparse = {name: SparseValues([], []) for name in names}
    for at, row in enumerate(rows):
        for name, value in row.items():
            if name in names and value is not None:
                sparse[name].rows.append(at)
                sparse[name].values.append(value)
    made = EventColumns(len(rows), {}, {}, {}, {})
    made.rows, made.sparse = rows, sparse
    return made
