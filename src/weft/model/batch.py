"""Events as Arrow columns, and back. Law: events_from_batch(batch_from_events(e)) has e's attributes.

Columns are converted whole: five types on both sides, NULL and NaN are absent, structs flatten with '.',
timestamps of every unit and zone become microseconds in UTC, floored. What has no place raises EventError
that names the column; nothing is dropped or rounded in silence, except that decimals become floats.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.errors import EventError
from weft.model.batch_size import check_batch_size
from weft.model.event import WELL_KNOWN, Event, check_path, shown
from weft.model.limits import MAX_DEPTH
from weft.model.schema import Attribute, Schema, did_you_mean
from weft.model.value import MICROS_MAX, MICROS_MIN, Type, Value, from_micros, type_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_FLOAT_MAX = int(sys.float_info.max)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PYTHON: dict[Type, type] = {
    Type.BOOL: bool,
    Type.INT: int,
    Type.FLOAT: float,
    Type.STRING: str,
    Type.TIMESTAMP: datetime,
}
_PLAIN = {python: kind for kind, python in _PYTHON.items()}
_MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1, "D": 86_400_000_000}


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
            raise EventError(f"{payload!r} is an attribute already: name the payload's column otherwise")
        columns[payload] = _built(payload, [event.payload for event in events], None)
    if not columns:
        rows: Any = pa.array(given, pa.struct([]))
        return pa.RecordBatch.from_struct_array(rows)  # keeps the number of rows
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def infer_schema(rows: pa.RecordBatch | pa.Table, most_categories: int) -> Schema:
    """What `Schema.infer` promises."""
    seen: dict[str, _Seen] = {}
    for batch in _batches(rows):
        names: set[str] = set()
        for name, column in _columns(batch):
            _check_once(name, names)
            if column is not None and column.type is not None:
                seen.setdefault(name, _Seen(column.type)).take(column, most_categories)
    return Schema(tuple(found.attribute(name) for name, found in seen.items()))


def typed_columns(rows: pa.RecordBatch, wanted: Collection[str]) -> dict[str, TypedColumn]:
    """The wanted attributes among the columns, as numpy has them; others are not read. Raises EventError.

    >>> import pyarrow as pa
    >>> rows = pa.record_batch({"x": [1.5, None], "y": [[1], [2]]})
    >>> {name: column.absent.tolist() for name, column in typed_columns(rows, {"x", "z"}).items()}
    {'x': [False, True]}
    """
    check_batch_size(rows)
    found: dict[str, TypedColumn] = {}
    names: set[str] = set()
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        if name in wanted or any(each.startswith(name + ".") for each in wanted):
            for leaf, column in _leaves(name, array, 1):
                _check_once(leaf, names)
                if leaf in wanted:
                    if column is None:
                        raise EventError(f"no filter sees the type of column {leaf!r}: leave it out")
                    found[leaf] = column
    return found


class TypedColumn(NamedTuple):
    """A column as numpy has it: int64, float64, bool, microseconds or str objects. No type: all absent."""

    type: Type | None
    values: npt.NDArray[Any]
    absent: npt.NDArray[np.bool_]


def _batches(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if not isinstance(rows, pa.Table):
        raise EventError(f"a batch is an Arrow RecordBatch or Table: convert the {type(rows).__name__}")
    # An empty table has no batches; one empty batch still has its columns checked.
    return rows.to_batches() or [
        pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in rows.schema], schema=rows.schema)
    ]


def _events(batch: pa.RecordBatch, payload: str | None) -> list[Event]:
    import numpy as np

    payloads = None if payload is None else _payloads(batch, payload)
    check_batch_size(batch, payload)
    names: set[str] = set()
    cells: dict[str, list[Value | None]] = {}
    gaps = np.zeros(batch.num_rows, np.bool_)
    for name, column in _columns(batch, payload):
        _check_once(name, names)
        if column is None:
            raise EventError(f"no filter sees the type of column {name!r}: name it as payload or leave it out")
        fixed = WELL_KNOWN.get(name, column.type)
        if column.type is None:
            continue
        if column.type is not fixed:
            raise EventError(f"column {name!r} is a {column.type}, but {name!r} is always a {fixed}: cast it")
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
        hint = did_you_mean(name, batch.schema.names) if not found else ": rename one"
        raise EventError(f"there are {len(found)} columns {name!r} for the payload{hint}")
    return batch.column(found[0]).to_pylist()


def _check_once(name: str, names: set[str]) -> None:
    if not name:
        raise EventError("a column has an empty name: give it one")
    if name in names:
        raise EventError(f"there are two columns {name!r}: rename one")
    names.add(name)


def _columns(batch: pa.RecordBatch, without: str | None = None) -> Iterator[tuple[str, TypedColumn | None]]:
    """Every column in order, structs flattened; None for a type that no attribute has."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name != without:
            yield from _leaves(name, array, 1)


def _leaves(name: str, array: Any, depth: int) -> Iterator[tuple[str, TypedColumn | None]]:
    import pyarrow as pa

    check_path(name)
    if not pa.types.is_struct(array.type):
        yield name, _read(name, array)
        return
    if depth > MAX_DEPTH:
        raise EventError(f"column {name[:40]!r} is nested deeper than {MAX_DEPTH}: name it as the payload")
    for part, child in zip(array.type, array.flatten(), strict=True):
        yield from _leaves(f"{name}.{part.name}" if name and part.name else "", child, depth + 1)


def _read(name: str, array: Any) -> TypedColumn | None:
    """The column as numpy has it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, is_a = array.type, pa.types
    if is_a.is_dictionary(kind):
        words, absent = _read(name, array.dictionary), _nulls(array.indices)
        if words is None:
            return None
        if not len(array.dictionary):  # then every index is NULL
            return TypedColumn(words.type, np.zeros(len(array), words.values.dtype), absent)
        at = array.indices.fill_null(0).to_numpy()
        return TypedColumn(words.type, words.values[at], words.absent[at] | absent)
    if is_a.is_run_end_encoded(kind):
        return _read(name, pc.call_function("run_end_decode", [array]))
    absent = _nulls(array)
    if is_a.is_null(kind):
        return TypedColumn(None, np.zeros(len(array), np.object_), absent)
    if is_a.is_boolean(kind):
        return TypedColumn(Type.BOOL, array.fill_null(False).to_numpy(zero_copy_only=False), absent)
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        try:
            return TypedColumn(Type.STRING, array.to_numpy(zero_copy_only=False), absent)
        except pa.ArrowException:
            raise EventError(f"column {name!r} has text that is no UTF-8: name it as the payload") from None
    if is_a.is_integer(kind):
        try:
            return TypedColumn(Type.INT, array.cast(pa.int64()).fill_null(0).to_numpy(), absent)
        except pa.ArrowInvalid:
            raise EventError(f"column {name!r} has integers beyond 64 bits: cast it to float64") from None
    if is_a.is_decimal(kind):
        array = array.cast(pa.string())  # by way of text: Arrow's own cast is often off by one bit
    if is_a.is_floating(kind) or is_a.is_decimal(kind):
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
        return TypedColumn(Type.FLOAT, numbers, absent | np.isnan(numbers))
    if is_a.is_timestamp(kind):
        return TypedColumn(Type.TIMESTAMP, _micros(name, array, kind.unit), absent)
    if is_a.is_date(kind):
        return TypedColumn(Type.TIMESTAMP, _micros(name, array, "D" if is_a.is_date32(kind) else "ms"), absent)
    return None


def _nulls(array: Any) -> npt.NDArray[np.bool_]:
    import numpy as np

    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _micros(name: str, array: Any, unit: str) -> npt.NDArray[np.int64]:
    """Microseconds since 1970 of a column that counts in `unit`; nanoseconds are floored."""
    import pyarrow as pa

    whole = array.cast(pa.int32()) if pa.types.is_date32(array.type) else array
    counts: npt.NDArray[np.int64] = whole.cast(pa.int64()).fill_null(0).to_numpy()
    if unit == "ns":
        return counts // 1_000  # 64 bits of nanoseconds end in 2262
    step = _MICROS_PER[unit]
    if len(counts) and not (-(-MICROS_MIN // step) <= counts.min() and counts.max() <= MICROS_MAX // step):
        raise EventError(f"column {name!r} has timestamps outside the years 1 to 9999: leave them out")
    return counts * step


def listed(column: TypedColumn) -> list[Value | None]:
    """The values of a column as Python has them; None where there is none."""
    import numpy as np

    if column.type is Type.TIMESTAMP:
        listed: list[Value | None] = [_EPOCH + since for since in column.values.view("m8[us]").tolist()]
    else:
        listed = column.values.tolist()
    for i in np.flatnonzero(column.absent).tolist():
        listed[i] = None
    return listed


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


def _array(name: str, values: list[Value | None], declared: Attribute | None) -> pa.Array[Any]:
    """An attribute's column, of its declared type or of the one type that its values have."""
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
        raise EventError(f"attribute {name!r} is a {kind} in some event, but is always a {fixed}")
    if kind is Type.FLOAT and python - {float}:
        values = [_exact_float(name, value) if type(value) is int else value for value in values]
    return _built(name, values, kind)


def _common(name: str, values: list[Value | None]) -> Type | None:
    """The one type of values that look unlike: int and float are numbers, a subclass is what it extends."""
    for value in values:
        if value is not None and type_of(value) is None and not isinstance(value, float):
            odd = type(value).__name__
            raise EventError(f"attribute {name!r} is of type {odd} in some event: make events with Event.of")
    kinds = {kind for kind in map(type_of, values) if kind is not None}
    if kinds == {Type.INT, Type.FLOAT}:
        return Type.FLOAT
    if len(kinds) > 1:
        found = ", ".join(sorted(kinds))
        raise EventError(f"attribute {name!r} has values of unlike types ({found}): declare one in a schema")
    return kinds.pop() if kinds else None


def _exact_float(name: str, value: int) -> float:
    """The float that equals an int; Arrow itself would look no further than 2**53."""
    if abs(value) <= _FLOAT_MAX and float(value) == value:
        return float(value)
    raise EventError(f"attribute {name!r} is a float, but no float equals {shown(value)}: use one type")


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
        raise EventError(f"column {name!r} cannot be built: {error}") from None
    return built
