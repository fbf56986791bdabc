"""Filters by id from wherever users keep them: a mapping, pairs, a table or a file. An error names the entry.

A table has the columns `id` and `filter`, or `id` and bounds: `x_low` and `x_high` for an attribute x, or `x` itself
for equality (see `weft.index.bound_rows`). A file is .csv (ids are text), .jsonl or .ndjson (one object per line),
.json (an object of filters by id, or a list of objects) or .parquet; it is a table, too.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft.errors import EventError, FilterError, SubscriptionError
from weft.model.door import shown
from weft.model.frame import as_table
from weft.model.schema import did_you_mean

Entries = list[tuple[Any, Any]]


class BoundTable(NamedTuple):
    """A table of filters whose bounds are in columns; `place` says where it is from, for errors."""

    table: Any  # an Arrow table
    place: str


FILES = (".csv", ".json", ".jsonl", ".ndjson", ".parquet")
_TABLES = ("collect", "columns", "__arrow_c_stream__", "__arrow_c_array__")  # a lazy frame computes its columns
_BOUNDS = ("_low", "_high")


def entries_of(source: Any) -> Entries | BoundTable:
    """(id, filter) for each entry of a source, or its table of bounds. Raises SubscriptionError or FilterError.

    >>> entries_of({"rule-1": "x > 5"}), entries_of([("rule-1", "x > 5")])
    ([('rule-1', 'x > 5')], [('rule-1', 'x > 5')])
    """
    if isinstance(source, Mapping):
        return list(source.items())
    if isinstance(source, str | Path):
        return _of_file(Path(source))
    if any(hasattr(source, name) for name in _TABLES):
        try:
            return _of_table(as_table(source), "the table")
        except EventError as error:
            raise SubscriptionError(str(error)) from None
    if hasattr(source, "items"):  # another index, a series of pandas
        return list(source.items())
    if isinstance(source, Iterable):
        return [_pair(at, each) for at, each in enumerate(source)]
    raise SubscriptionError(f"filters come as a mapping, pairs, a table or a file, not {shown(source)}")


def _pair(at: int, given: Any) -> tuple[Any, Any]:
    if isinstance(given, Mapping):
        return _entry(given, f"entry {at}", at)
    try:
        name, filter = given  # noqa: A001
    except (TypeError, ValueError):
        hint = "; pass a mapping such as {'rule-1': 'x > 5'}" if isinstance(given, str) else ""
        raise SubscriptionError(
            f"entry {at} must be a pair (id, filter), not {shown(given)}{hint}", position=at
        ) from None
    return name, filter


def _entry(given: Any, place: str, at: int) -> tuple[Any, Any]:
    """The pair of an object with an id and a filter."""
    if not isinstance(given, Mapping):
        raise SubscriptionError(f"{place} must be an object with 'id' and 'filter', not {shown(given)}", position=at)
    for name in ("id", "filter"):
        if given.get(name) is None:
            hint = did_you_mean(name, [str(key) for key in given if key not in ("id", "filter")])
            raise SubscriptionError(f"{place} has no {name!r}{hint}", given.get("id"), at)
    return given["id"], given["filter"]


def _of_table(table: Any, place: str) -> Entries | BoundTable:
    names = table.column_names
    is_bounds = _are_bounds(names)
    _check_columns(names, place, ("id",) if is_bounds else ("id", "filter"))
    if is_bounds:
        return BoundTable(table, place)
    pairs = zip(table.column("id").to_pylist(), table.column("filter").to_pylist(), strict=True)
    return [_entry({"id": name, "filter": text}, f"row {at}", at) for at, (name, text) in enumerate(pairs)]


def _are_bounds(names: Iterable[str]) -> bool:
    return "filter" not in names and any(name.endswith(_BOUNDS) for name in names)


def _check_columns(names: Sequence[str], place: str, wanted: Sequence[str]) -> None:
    """Raise SubscriptionError unless each wanted column is there, once."""
    for name in wanted:
        if names.count(name) != 1:
            hint = did_you_mean(name, names) or (", or bounds such as 'x_low' and 'x_high'" if name == "filter" else "")
            raise SubscriptionError(f"{place} must have one column {name!r}{hint}")


def _of_file(path: Path) -> Entries | BoundTable:
    kind = path.suffix.lower()
    if kind not in FILES:
        raise SubscriptionError(f"{path} is not a file of filters that can be read; use one of {', '.join(FILES)}")
    try:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            return _of_table(pq.read_table(path), str(path))
        text = path.read_text(encoding="utf-8-sig")
        if kind == ".csv":
            return _of_csv(path, text)
        if kind == ".json":
            return _of_json(path, json.loads(text))
        lines = [(at, _decoded(path, at, line)) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
        return _of_objects([each for _, each in lines], [f"{path}, line {at}" for at, _ in lines], path)
    except (SubscriptionError, FilterError):
        raise
    except (OSError, ValueError, RecursionError, csv.Error) as error:  # Arrow's errors are ValueErrors or OSErrors
        reason = getattr(error, "strerror", None) or error
        raise SubscriptionError(f"{path} cannot be read: {reason}") from error


def _decoded(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SubscriptionError(f"{path}, line {line} is not JSON: {error}") from None


def _of_json(path: Path, form: Any) -> Entries | BoundTable:
    if isinstance(form, Mapping):
        return list(form.items())
    if isinstance(form, list):
        return _of_objects(form, [f"{path}, entry {at}" for at in range(len(form))], path)
    raise SubscriptionError(f"{path} must have an object of filters by id, or a list of objects")


def _of_objects(given: list[Any], places: list[str], path: Path) -> Entries | BoundTable:
    """The entries of JSON objects, at these places."""
    names = dict.fromkeys(name for each in given if isinstance(each, Mapping) for name in each)
    if not _are_bounds(names) or not all(isinstance(each, Mapping) for each in given):
        return [_entry(each, place, at) for at, (each, place) in enumerate(zip(given, places, strict=True))]
    import pyarrow as pa

    return _of_table(pa.table({name: [each.get(name) for each in given] for name in names}), str(path))


def _of_csv(path: Path, text: str) -> Entries | BoundTable:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    names = [*(rows.fieldnames or ())]
    if _are_bounds(names):
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions, read_csv

        options = ConvertOptions(column_types={"id": pa.string()}, null_values=[""], strings_can_be_null=True)
        return _of_table(read_csv(io.BytesIO(text.encode()), convert_options=options), str(path))
    _check_columns(names, str(path), ("id", "filter"))
    return [_entry(row | {"id": row["id"] or None}, f"{path}, line {rows.line_num}", at) for at, row in enumerate(rows)]
