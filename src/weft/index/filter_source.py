"""Filters by id from wherever users keep them: a mapping, pairs, a table or a file. An error names the entry.

A table has the columns `id` and `filter`, or `id` and bounds: `x_low` and `x_high` for an attribute x, or `x` itself
for equality (see `weft.index.bound_rows`). A file is .csv (ids are text), .jsonl or .ndjson (one object per line),
.json (an object of filters by id, or a list of objects) or .parquet.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
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


def entries_of(source: Any) -> Entries | BoundTable:
    """(id, filter) for each entry of a source, or its table of bounds. Raises SubscriptionError or FilterError.

    >>> entries_of({"rule-1": "x > 5"}), entries_of([("rule-1", "x > 5")])
    ([('rule-1', 'x > 5')], [('rule-1', 'x > 5')])
    """
    if isinstance(source, Mapping):
        return list(source.items())
    if isinstance(source, str | Path):
        return _of_file(Path(source))
    if hasattr(source, "columns") or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        try:
            return _of_table(as_table(source), "the table")
        except EventError as error:
            raise SubscriptionError(str(error)) from None
    if isinstance(source, Iterable):
        return [_pair(at, each) for at, each in enumerate(source)]
    raise SubscriptionError(f"filters come as a mapping, pairs, a table or a file, not {shown(source)}")


def _pair(at: int, given: Any) -> tuple[Any, Any]:
    if isinstance(given, Mapping):
        return _entry(given, f"entry {at}", at)
    try:
        name, filter = given  # noqa: A001
    except (TypeError, ValueError):
        raise SubscriptionError(f"entry {at} must be a pair (id, filter), not {shown(given)}", position=at) from None
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
    if "filter" not in names and names.count("id") == 1 and any(name.endswith(("_low", "_high")) for name in names):
        return BoundTable(table, place)
    for name in ("id", "filter"):
        if table.column_names.count(name) != 1:
            hint = did_you_mean(name, table.column_names)
            raise SubscriptionError(f"{place} must have one column {name!r}{hint}")
    pairs = zip(table.column("id").to_pylist(), table.column("filter").to_pylist(), strict=True)
    return [_entry({"id": name, "filter": text}, f"row {at}", at) for at, (name, text) in enumerate(pairs)]


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
        lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [_entry(_decoded(path, at, line), f"{path}, line {at}", n) for n, (at, line) in enumerate(lines)]
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


def _of_json(path: Path, form: Any) -> Entries:
    if isinstance(form, Mapping):
        return list(form.items())
    if isinstance(form, list):
        return [_entry(each, f"{path}, entry {at}", at) for at, each in enumerate(form)]
    raise SubscriptionError(f"{path} must have an object of filters by id, or a list of objects")


def _of_csv(path: Path, text: str) -> Entries:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    for name in ("id", "filter"):
        if [*(rows.fieldnames or ())].count(name) != 1:
            hint = did_you_mean(name, rows.fieldnames or ())
            raise SubscriptionError(f"{path} must have one column {name!r}{hint}")
    return [_entry(row | {"id": row["id"] or None}, f"{path}, line {rows.line_num}", at) for at, row in enumerate(rows)]
