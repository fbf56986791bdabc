"""Events as Arrow columns, and back. `events_from_batch(batch_from_events(e))` has the attributes of e.

Columns come in through the door (see `weft.model.column`), structs flattened with '.'. A value that cannot be an
attribute's raises EventError, which names the column and the row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from weft.errors import EventError
from weft.model.batch_size import oversized
from weft.model.column import TypedColumn, columns_of, elements_of_column, listed, set_aside
from weft.model.door import WELL_KNOWN, shown
from weft.model.event import Event
from weft.model.lists import AttributeValue
from weft.model.schema import Attribute, Schema, did_you_mean
from weft.model.value import Type, Value, from_micros, type_of

if TYPE_CHECKING:
    import pyarrow as pa

_FLOAT_MAX = int(sys.float_info.max)
_PYTHON: dict[Type, type] = {
    Type.BOOL: bool,
    Type.INT: int,
    Type.FLOAT: float,
    Type.STRING: str,
    Type.TIMESTAMP: datetime,
}
_PLAIN = {python: kind for kind, python in _PYTHON.items()}


def events_from_batch(rows: pa.RecordBatch | pa.Table, *, payload: str | None = None) -> list[Event]:
    """The events of the rows, one each; the column `payload`, of any type, becomes their payloads.

    >>> import pyarrow as pa
    >>> rows = pa.table({"magnitude": [5.2, None], "place": [{"country": "Chile"}, {"country": "Peru"}]})
    >>> [event.attributes for event in events_from_batch(rows)]
    [{'magnitude': 5.2, 'place.country': 'Chile'}, {'place.country': 'Peru'}]

    Cost: O(rows x columns).
    """
    return list(chain.from_iterable(_events(batch, payload) for batch in _batches(rows)))


def batch_from_events(
    events: Iterable[Event], schema: Schema | None = None, *, payload: str | None = None
) -> pa.RecordBatch:
    """One row per event: columns in the schema's order, then undeclared attributes as they first appear.

    A schema's columns are always there, and events conform to it first. Payloads are left out,
    or become the column `payload` as Arrow understands them.

    >>> batch = batch_from_events([Event.of(magnitude=5), Event.of(magnitude=5.5, felt=True)])
    >>> batch.to_pydict()
    {'magnitude': [5.0, 5.5], 'felt': [None, True]}

    Cost: O(rows x columns).
    """
    import pyarrow as pa

    events = list(events)
    given = [event.attributes for event in events]
    declared = schema or Schema()
    names = dict.fromkeys(chain(declared, chain.from_iterable(given)))
    columns = {name: _array(name, [a.get(name) for a in given], declared.get(name)) for name in names}
    if payload is not None:
        if payload in columns:
            raise EventError(f"{payload!r} is already an attribute; choose another name for the payload", payload)
        columns[payload] = _built(payload, [event.payload for event in events], None)
    if not columns:
        rows: Any = pa.array(given, pa.struct([]))
        return pa.RecordBatch.from_struct_array(rows)  # keeps the number of rows
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def infer_schema(rows: pa.RecordBatch | pa.Table, most_categories: int) -> Schema:
    """What `Schema.infer` promises."""
    seen: dict[str, _Seen] = {}
    for batch in _batches(rows):
        for name, column in columns_of(batch):
            elements = elements_of_column(name, column) if column.lists else column
            if elements.type is not None:
                seen.setdefault(name, _Seen(elements.type)).take(elements, most_categories)
    return Schema(tuple(found.attribute(name) for name, found in seen.items()))


def list_columns(rows: pa.RecordBatch | pa.Table) -> tuple[frozenset[str], dict[str, int]]:
    """The attributes of a table that are lists, and those whose lists are ignored, with the number of rows."""
    lists: set[str] = set()
    ignored: dict[str, int] = {}
    for batch in _batches(rows):
        for name, column in columns_of(batch):
            if column.ignored:
                ignored[name] = ignored.get(name, 0) + column.ignored
            elif column.lists and not column.absent.all():
                lists.add(name)
    return frozenset(lists - ignored.keys()), ignored


def _batches(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if not isinstance(rows, pa.Table):
        raise EventError(f"a batch must be an Arrow RecordBatch or Table, not {shown(rows)}")
    # An empty table has no batches; one empty batch still has its columns checked.
    return rows.to_batches() or [
        pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in rows.schema], schema=rows.schema)
    ]


def _events(batch: pa.RecordBatch, payload: str | None) -> list[Event]:
    import numpy as np

    payloads = None if payload is None else _payloads(batch, payload)
    seen = batch if payload is None else batch.drop_columns([payload])
    set_aside(oversized(seen), None)
    cells: dict[str, list[AttributeValue | None]] = {}
    gaps = np.zeros(batch.num_rows, np.bool_)
    for name, column in columns_of(seen):
        set_aside(column.bad, None)
        if column.type is not None or column.lists:
            cells[name] = listed(column)
            gaps |= column.absent
    keys = list(cells)
    rows: list[Any] = [dict(zip(keys, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    if not cells:
        rows = [{} for _ in range(batch.num_rows)]
    for i in np.flatnonzero(gaps).tolist():
        rows[i] = {name: value for name, value in rows[i].items() if value is not None}
    return list(map(Event, rows)) if payloads is None else list(map(Event, rows, payloads))


def _payloads(batch: pa.RecordBatch, name: str) -> list[Any]:
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        hint = did_you_mean(name, batch.schema.names) if not found else "; rename one"
        raise EventError(f"there are {len(found)} columns named {name!r} for the payload{hint}", name)
    return batch.column(found[0]).to_pylist()


@dataclass(slots=True)
class _Seen:
    """What a column has shown so far, chunk by chunk; `words` is None when there are too many."""

    type: Type
    low: Any = None
    high: Any = None
    words: set[str] | None = field(default_factory=set)
    count: int = 0

    def take(self, column: TypedColumn, most_words: int) -> None:
        """Learn from one more chunk."""
        import numpy as np

        values = column.values[~column.absent]
        self.count += len(values)
        if self.type is Type.STRING and self.words is not None:
            self.words.update(values.tolist())
            self.words = self.words if len(self.words) <= most_words else None
        if self.type is Type.FLOAT:
            values = values[np.isfinite(values)]
        if self.type not in (Type.STRING, Type.BOOL) and len(values):
            low, high = values.min().item(), values.max().item()
            self.low = low if self.low is None else min(low, self.low)
            self.high = high if self.high is None else max(high, self.high)

    def attribute(self, name: str) -> Attribute:
        """The attribute that fits all that was seen."""
        low, high = self.low, self.high
        if self.type is Type.TIMESTAMP and low is not None:
            low, high = from_micros(low), from_micros(high)
        repeats = self.words is not None and len(self.words) <= self.count / 2
        return Attribute(name, self.type, low, high, categories=tuple(sorted(self.words or ())) if repeats else ())


def _array(name: str, values: list[Any], declared: Attribute | None) -> pa.Array[Any]:
    """An attribute's column, of its declared type or of the one type that its values have."""
    if list in set(map(type, values)):
        return _list_array(name, values, declared)
    python = set(map(type, values)) - {type(None)}
    if declared is not None:
        kind: Type | None = declared.type
        if python - {_PYTHON[declared.type]}:
            values = [None if value is None else declared.conform(value) for value in values]
    elif len(python) <= 1 and python <= _PLAIN.keys():
        kind = _PLAIN[next(iter(python))] if python else None
    else:
        kind = _common(name, values)
        values = [None if type_of(value) is None else value for value in values]
    fixed = WELL_KNOWN.get(name, kind)
    if kind is not fixed and kind is not None:
        raise EventError(f"attribute {name!r} must be a {fixed}, but some event has a {kind}", name)
    if kind is Type.FLOAT and python - {float}:
        values = [_exact_float(name, value) if type(value) is int else value for value in values]
    return _built(name, values, kind)


def _list_array(name: str, values: list[Any], declared: Attribute | None) -> pa.Array[Any]:
    """A column of lists. Raises EventError if some values are lists and others are not."""
    import numpy as np
    import pyarrow as pa

    if any(value is not None and type(value) is not list for value in values):
        raise EventError(f"attribute {name!r} is a list in some events and a value in others; use one of them", name)
    flat = _array(name, [each for value in values for each in value or ()], declared)
    lengths = [len(value or ()) for value in values]
    ends: Any = pa.array(np.cumsum([0, *lengths]), pa.int32(), mask=np.array([*(v is None for v in values), False]))
    made: pa.Array[Any] = pa.ListArray.from_arrays(ends, flat)
    return made


def _common(name: str, values: list[Value | None]) -> Type | None:
    """The one type of values that look unlike: int and float are numbers, a subclass is what it extends."""
    for value in values:
        if value is not None and type_of(value) is None and not isinstance(value, float):
            odd = type(value).__name__
            raise EventError(f"attribute {name!r} is of type {odd} in some event; make events with Event.of", name)
    kinds = {kind for kind in map(type_of, values) if kind is not None}
    if kinds == {Type.INT, Type.FLOAT}:
        return Type.FLOAT
    if len(kinds) > 1:
        found = ", ".join(sorted(kinds))
        raise EventError(f"attribute {name!r} has values of several types ({found}); declare one in a schema", name)
    return kinds.pop() if kinds else None


def _exact_float(name: str, value: int) -> float:
    """The float that equals an int; Arrow itself would look no further than 2**53."""
    if abs(value) <= _FLOAT_MAX and float(value) == value:
        return float(value)
    raise EventError(f"attribute {name!r} is a float, but no float equals {shown(value)}; use one type", name)


def _built(name: str, values: list[Any], kind: Type | None) -> pa.Array[Any]:
    import pyarrow as pa

    arrow: dict[Type | None, Any] = {
        Type.INT: pa.int64(),
        Type.FLOAT: pa.float64(),
        Type.STRING: pa.string(),
        Type.BOOL: pa.bool_(),
        Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
    try:
        built: pa.Array[Any] = pa.array(values, arrow.get(kind), from_pandas=kind is not None)  # NaN is NULL
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise EventError(f"column {name!r} cannot be built: {error}", name) from None
    return built
