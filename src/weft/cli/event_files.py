"""Files of events. An event that cannot be read is kept with its place and the reason, and the others are still read; a
file of another format fails as a whole.

| file | an event |
|---|---|
| .parquet, .pq | a row; columns of types that no filter sees are left out |
| .csv | a row; a blank cell is absent; types are the schema's, or else what the cells look like |
| any other, or - | a line: a JSON object or a CloudEvent; blank lines and # comments are skipped |

In a CSV file a whole number in a column of timestamps is milliseconds since 1970. Without a schema the events suggest
one: `observed` has the types, bounds and categories of all that were read, even where only some are kept.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from weft.cli.arguments import read_event
from weft.cli.filter_files import PARQUET
from weft.cli.input_files import ParquetRows, open_table, read_bytes
from weft.errors import EventError, SchemaError
from weft.lint.seen_attributes import SeenAttributes
from weft.model.event import Event
from weft.model.limits import LIMITS
from weft.model.schema import Attribute, Schema
from weft.model.value import INT_MAX, INT_MIN, Type, Value, from_micros, parse_timestamp

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class BadEvent:
    """An event that cannot be read, and why."""

    place: str
    error: EventError


@dataclass(slots=True)
class EventFile:
    """What a file holds: the events that were kept, of how many, and what all of them suggest."""

    events: list[Event] = field(default_factory=list)
    of: int = 0
    observed: Schema = field(default_factory=Schema)
    refused: list[BadEvent] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)  # lists of mappings


def read_events(
    path: str,
    stdin: Callable[[], bytes],
    schema: Schema | None,
    rng: np.random.Generator,
    most: int | None = None,
) -> EventFile:
    """The events of a file, or with `-` of standard input, `most` of them at most. Raises EventError.

    >>> import numpy as np
    >>> found = read_events("-", lambda: b'{"x": 3}\\n{"x": \\n{"x": 5}', None, np.random.default_rng(1))
    >>> [event["x"] for event in found.events], found.observed["x"].high, [bad.place for bad in found.refused]
    ([3, 5], 5, ['line 2'])
    """
    suffix, found = Path(path).suffix.lower(), EventFile()
    if path == "-" or suffix not in (".csv", *PARQUET):
        every = list(_lines(path, stdin, schema, found))
        found.of, found.observed = len(every), _observed(every, found.notes)
        found.events = [every[at] for at in drawn(len(every), most, rng)]
    else:
        rows = _csv_rows(path, schema, found.refused) if suffix == ".csv" else _parquet_rows(path)
        rows = _seen(rows, found.notes)
        found.of, found.observed = rows.num_rows, Schema.infer(rows)
        found.events = _events(_taken(rows, drawn(rows.num_rows, most, rng)), schema)
    if not found.of:
        why = f": {found.refused[0].place}: {found.refused[0].error}" if found.refused else ": write one per line"
        raise EventError(f"{'standard input' if path == '-' else path} has no readable event{why}")
    return found


def read_seen(path: str, stdin: Callable[[], bytes], schema: Schema | None) -> SeenAttributes:
    """The attributes that the events of a file have, and their types. Raises EventError."""
    import numpy as np

    suffix = "" if path == "-" else Path(path).suffix.lower()
    if suffix in PARQUET:
        head = _seen(_parquet_columns(path), [])
        if not head.num_rows:
            raise EventError(f"{path} has no readable event: it has no rows")
        seen = SeenAttributes.of_table(head)
        return replace(seen, ignored=dict.fromkeys(seen.ignored, 0))  # of all rows, their number is not known
    rows = suffix == ".csv"  # then the columns say it
    found = read_events(path, stdin, schema, np.random.default_rng(0), most=1 if rows else None)
    seen = SeenAttributes.of_events(found.events)
    if not rows:
        return replace(seen, ignored=found.ignored)
    return SeenAttributes({each.name: frozenset([each.type]) for each in found.observed.attributes}).merged(seen)


def drawn(size: int, most: int | None, rng: np.random.Generator) -> list[int]:
    """The positions of a sample without repetition, ascending; all, if there are no more than `most`."""
    if most is None or size <= most:
        return list(range(size))
    return sorted(rng.permutation(size)[:most].tolist())


# -- JSON lines --------------------------------------------------------------------------------------


def _lines(path: str, stdin: Callable[[], bytes], schema: Schema | None, found: EventFile) -> Iterator[Event]:
    refused = found.refused
    try:
        text = read_bytes(path, stdin, EventError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise EventError(f"{'standard input' if path == '-' else path} is not valid UTF-8; convert it first") from None
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line or line.startswith(("#", "@")):
            if line.startswith("@"):  # on the command line it names a file; a file names no other
                refused.append(BadEvent(f"line {number}", EventError("the event is not a JSON object")))
            continue
        try:
            yield read_event(line, schema, found.ignored)
        except EventError as error:
            refused.append(BadEvent(f"line {number}", error))


def _observed(events: list[Event], notes: list[str]) -> Schema:
    """What the events suggest; an attribute whose values are of unlike types has no place in it."""
    from weft.model.batch import batch_from_events

    try:
        return Schema.infer(batch_from_events(events))
    except (EventError, SchemaError):
        pass
    columns: dict[str, list[Event]] = {}
    for event in events:
        for name, value in event.attributes.items():
            columns.setdefault(name, []).append(Event({name: value}))
    found: list[Attribute] = []
    for column in columns.values():
        try:
            found += Schema.infer(batch_from_events(column)).attributes
        except (EventError, SchemaError) as error:
            notes.append(f"no bounds could be inferred from the events: {error}")
    return Schema(tuple(found))


# -- rows --------------------------------------------------------------------------------------------


def _parquet_rows(path: str) -> pa.Table:
    with open_table(path, EventError) as file:
        return ParquetRows(file, path, EventError).table()


def _parquet_columns(path: str) -> pa.Table:
    with open_table(path, EventError) as file:
        return ParquetRows(file, path, EventError).head()


def _csv_rows(path: str, schema: Schema | None, refused: list[BadEvent]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    declared = schema or Schema()

    def wrong(row: csv.InvalidRow) -> Literal["skip"]:
        what = f"it has {row.actual_columns} cells, but the header names {row.expected_columns}"
        refused.append(BadEvent(f"row {row.number}", EventError(what)))
        return "skip"

    kinds: dict[str, pa.DataType] = dict.fromkeys(declared, pa.string())
    with open_table(path, EventError) as file:
        _check_utf8(file, path)
        try:
            rows = csv.read_csv(
                file,
                csv.ReadOptions(use_threads=False),  # or rows have no numbers
                csv.ParseOptions(newlines_in_values=True, invalid_row_handler=wrong),
                csv.ConvertOptions(column_types=kinds, null_values=[""], strings_can_be_null=True),
            )
        except pa.ArrowException as error:
            raise EventError(f"{path} is not a CSV file with a header: {error}") from None
    bad: set[int] = set()
    for at, name in enumerate(rows.column_names):
        if name in declared:
            kind, texts = declared[name].type, enumerate(rows[at].to_pylist())
            column = [_cell(name, text, kind, row, bad, refused) for row, text in texts]
            rows = rows.set_column(at, name, _typed(column, kind))
    return _taken(rows, [row for row in range(rows.num_rows) if row not in bad]) if bad else rows


def _check_utf8(file: BinaryIO, path: str) -> None:
    """Raise EventError unless a file is UTF-8; Arrow would print a traceback for a bad row that is not."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        while piece := file.read(1 << 20):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise EventError(f"{path} is not valid UTF-8; convert it first") from None
    file.seek(0)


def _cell(  # noqa: PLR0913, PLR0917 - where it is, and where it is put
    name: str, text: str | None, kind: Type, row: int, bad: set[int], refused: list[BadEvent]
) -> Value | None:
    """The value of a cell of a declared type."""
    if text is None or kind is Type.STRING:
        return text
    try:
        return _value(text.strip(), kind)
    except (ValueError, KeyError, OverflowError):
        if row not in bad:
            bad.add(row)
            refused.append(
                BadEvent(f"event {row + 1}", EventError(f"{name!r} has {text!r}, which is not a valid {kind}"))
            )
        return None


def _value(text: str, kind: Type) -> Value:
    if kind is Type.BOOL:
        return _TRUTHS[text.lower()]
    if kind is Type.TIMESTAMP:
        return from_micros(1_000 * int(text) if text.lstrip("-").isdecimal() else parse_timestamp(text))
    if "_" in text:
        raise ValueError("Python's own spelling of numbers")
    if kind is Type.FLOAT:
        return float(text)
    number = int(text) if text.lstrip("+-").isdecimal() else float(text)
    if number != int(number) or not INT_MIN <= number <= INT_MAX:
        raise ValueError("no integer of 64 bits")
    return int(number)


def _typed(column: list[Value | None], kind: Type) -> pa.Array[Any]:
    import pyarrow as pa

    kinds: dict[Type, pa.DataType] = {
        Type.INT: pa.int64(),
        Type.FLOAT: pa.float64(),
        Type.STRING: pa.string(),
        Type.BOOL: pa.bool_(),
        Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
    return pa.array(column, kinds[kind])


def _taken(rows: pa.Table, positions: list[int]) -> pa.Table:
    import pyarrow as pa

    return rows.take(pa.array(positions, pa.int64()))  # none at all would have no type


def _seen(rows: pa.Table, notes: list[str]) -> pa.Table:
    """The rows without the columns that no filter sees, each of which is noted."""
    from weft.model.column import check_columns

    seen = []
    if rows.num_columns > LIMITS.attributes:
        raise EventError(f"a table of events has at most {LIMITS.attributes:,} columns, not {rows.num_columns:,}")
    for at, name in enumerate(rows.column_names):
        try:
            Schema.infer(rows.select([at]))
            check_columns(rows.select([at]))
            seen.append(at)
        except (EventError, SchemaError) as error:
            notes.append(f"column {name!r} is left out: {error}")
    return rows.select(seen)


def _events(rows: pa.Table, schema: Schema | None) -> list[Event]:
    from weft.model.batch import events_from_batch

    events = events_from_batch(rows)
    return events if schema is None else [schema.conform(event) for event in events]
