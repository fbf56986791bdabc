"""Batches in every form that users have them. A table of any library means what its rows would mean one by one.

A batch is an Arrow RecordBatch, Table, RecordBatchReader or Dataset, a DataFrame of pandas, a DataFrame or LazyFrame of
Polars, anything else that exports Arrow data, the path of a file of events, or an iterable of events. Neither pandas
nor Polars is imported here; their frames are recognised by what they offer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import EventError
from weft.model.column import is_list_type
from weft.model.door import as_value, is_list, shown
from weft.model.event import Event

if TYPE_CHECKING:
    import pyarrow as pa

AnyEvent = Event | Mapping[str, Any]

EVENT_FILES = (".parquet", ".pq", ".arrow", ".feather", ".jsonl", ".ndjson")
_READABLE = f"use one of {', '.join(EVENT_FILES)}, or read it with pandas, Polars or Arrow"
_LIBRARIES = ("numpy", "pandas", "polars", "pyarrow")  # whose other objects are columns and values, not batches


def as_batch(batch: Any) -> pa.RecordBatch | pa.Table | Sequence[AnyEvent]:
    """The batch as Arrow has it, or as a sequence of events. Raises EventError.

    A frame that Arrow cannot hold, such as a column of mixed types, becomes a list of its rows. A reader, a dataset, a
    lazy frame or a file is read whole.

    >>> as_batch(({"x": n} for n in range(2)))
    [{'x': 0}, {'x': 1}]
    """
    if isinstance(batch, list):
        return batch
    if isinstance(batch, Path) or (isinstance(batch, str) and batch.lower().endswith(EVENT_FILES)):
        return _of_file(Path(batch))  # type: ignore[no-any-return]
    if isinstance(batch, str):
        raise EventError(f"{shown(batch)} is not a file of events; {_READABLE}, or match() for one event")
    if isinstance(batch, bytes | Event | Mapping):
        raise EventError(f"a batch must be a table or a list of events, not {shown(batch)}; use match() for one event")
    if isinstance(batch, Sequence) and not hasattr(batch, "_asdict"):
        return batch
    library = type(batch).__module__.partition(".")[0]
    if library == "pyarrow" and hasattr(batch, "num_rows") and hasattr(batch, "schema"):
        return batch  # type: ignore[no-any-return]
    if library == "pyarrow" and (hasattr(batch, "read_all") or hasattr(batch, "to_table")):  # a reader, a dataset
        return batch.read_all() if hasattr(batch, "read_all") else batch.to_table()  # type: ignore[no-any-return]
    if library == "pandas" and hasattr(batch, "columns"):
        return _of_pandas(batch)  # type: ignore[no-any-return]
    if library == "polars" and hasattr(batch, "to_dicts"):
        return _of_polars(batch)  # type: ignore[no-any-return]
    if library == "polars" and hasattr(batch, "collect"):
        return _of_polars(batch.collect())  # type: ignore[no-any-return]
    if hasattr(batch, "collect"):
        raise EventError(f"a batch must be a table or a list of events, not a {type(batch).__name__}; collect() it")
    if library not in _LIBRARIES:
        if hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
            import pyarrow as pa

            return pa.table(batch)
        if isinstance(batch, Iterable):
            return list(batch)
    raise EventError(f"a batch must be a table or a list of events, not {shown(batch)}")


def as_table(rows: Any) -> pa.Table:
    """A table of any library as an Arrow table. Raises EventError for anything else."""
    import pyarrow as pa

    found = as_batch(rows)
    if isinstance(found, pa.RecordBatch):
        return pa.Table.from_batches([found])
    if isinstance(found, pa.Table):
        return found
    raise EventError(f"expected a table, not {shown(rows)}")


def _of_file(path: Path) -> Any:
    """The events of a file, by the end of its name. Raises EventError."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    kind = path.suffix.lower()
    if kind not in EVENT_FILES:
        raise EventError(f"{path} is not a file of events that can be read here; {_READABLE}")
    try:
        with path.open("rb") as file:
            if kind in (".parquet", ".pq"):
                return pq.read_table(file)
            if kind in (".arrow", ".feather"):
                return pa.feather.read_table(file)
            return [_decoded(path, number, line) for number, line in enumerate(file, 1) if not line.isspace()]
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors or OSErrors
        if isinstance(error, EventError):
            raise
        raise EventError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _decoded(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EventError(f"{path}, line {number} is not JSON: {error}") from None


def _of_pandas(frame: Any) -> Any:
    import pyarrow as pa

    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise EventError(f"there are two columns named {str(twice)!r}; rename one", str(twice))
    try:
        made = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        made = None
    objects = [place for place, kind in enumerate(frame.dtypes) if kind.kind == "O"]
    if made is None or any(_is_changed(frame.iloc[:, place], made.schema.field(place).type) for place in objects):
        return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    return made


def _is_changed(cells: Any, kind: Any) -> bool:
    """Whether Arrow may have made other values of Python's objects: a timestamp of a number, or a number of a bool."""
    import pyarrow as pa

    lists = is_list_type(kind)
    element = kind.value_type if lists else kind
    if not (pa.types.is_floating(element) or pa.types.is_timestamp(element) or pa.types.is_date(element)):
        return False
    values = chain.from_iterable(cell for cell in cells if is_list(cell)) if lists else cells
    try:
        kept = [each for each in values if as_value("", each) is not None]
    except EventError:
        return True
    return len({float if type(each) is int else type(each) for each in kept}) > 1


def _of_polars(frame: Any) -> Any:
    import pyarrow as pa

    if any(str(kind) == "Object" for kind in frame.dtypes):  # Python's objects, of which Arrow would see addresses
        return frame.to_dicts()
    try:
        return frame.to_arrow()
    except (pa.ArrowException, ValueError, TypeError, NotImplementedError, RuntimeError):
        return frame.to_dicts()
    except Exception as error:  # Polars' own errors, which share no base with Python's
        if type(error).__module__.partition(".")[0] != "polars":
            raise
        return frame.to_dicts()
