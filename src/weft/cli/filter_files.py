"""Files of filters, each with its subscriber. A filter that cannot be read is kept with its place and the reason, and
the others are still read; a file of another format fails as a whole.

| file | a filter |
|---|---|
| .csv, .parquet, .pq | a row: `filter`, and if there are such columns `id` and `interface` |
| .jsonl, .ndjson | a line: {"filter": text or JSON, "id": ..., "interface": ...}, or the filter alone |
| any other, or - | a line: a filter's text or JSON; blank lines and comments (# or --) are skipped |

Without an interface, the id is used or else the number of the line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.cli.arguments import read_filter
from weft.cli.input_files import ParquetRows, open_table, read_bytes
from weft.errors import FilterError
from weft.language.any_filter import as_filter
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.order.node import Interface

_COLUMNS = ("filter", "id", "interface")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class WantedFilter:
    """A filter, who wants it, and where it stands."""

    filter: Filter
    interface: Interface
    place: str


@dataclass(frozen=True, slots=True)
class RefusedFilter:
    """A filter that cannot be used, and why."""

    place: str
    text: str
    error: FilterError


@dataclass(frozen=True, slots=True)
class FilterFile:
    """What a file holds."""

    read: list[WantedFilter] = field(default_factory=list)
    refused: list[RefusedFilter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Entry:
    filter: Any  # a text, or a JSON tree
    place: str
    id: str
    interface: str | None = None


def read_filter_file(
    path: str, stdin: Callable[[], bytes], predicates: Predicates, interfaces: Sequence[Interface] = ()
) -> FilterFile:
    """The filters of a file, or with `-` of standard input; `interfaces` are given in turn to those that have none.

    >>> wishes = read_filter_file("-", lambda: b"# two\\nx > 1\\nx => 2\\ny = 3", Predicates([]), ["north", "south"])
    >>> [(str(wish.filter), wish.interface) for wish in wishes.read], [each.place for each in wishes.refused]
    ([('x > 1', 'north'), ('y = 3', 'south')], ['line 3'])
    """
    wishes = FilterFile()
    for entry in _entries(path, stdin, wishes.refused):
        try:
            found = _filter(entry.filter, predicates)
        except FilterError as error:
            shown = entry.filter if isinstance(entry.filter, str) else json.dumps(entry.filter, ensure_ascii=False)
            wishes.refused.append(RefusedFilter(entry.place, shown, error))
            continue
        turn = interfaces[len(wishes.read) % len(interfaces)] if interfaces else entry.id
        wishes.read.append(WantedFilter(found, turn if entry.interface is None else entry.interface, entry.place))
    return wishes


def read_filter_texts(path: str, stdin: Callable[[], bytes]) -> list[tuple[str, str]]:
    """The ids and texts of a file's filters, whether they can be read or not. Raises FilterError.

    >>> read_filter_texts("-", lambda: b"# two\\nx > 1\\n\\nx => 2")
    [('2', 'x > 1'), ('4', 'x => 2')]
    """
    wrong: list[RefusedFilter] = []
    found = [
        (entry.id, entry.filter if isinstance(entry.filter, str) else json.dumps(entry.filter, ensure_ascii=False))
        for entry in _entries(path, stdin, wrong)
    ]
    return found + [(each.place, each.text) for each in wrong]


def _entries(path: str, stdin: Callable[[], bytes], refused: list[RefusedFilter]) -> Iterator[_Entry]:
    name, suffix = "standard input" if path == "-" else path, Path(path).suffix.lower()
    if suffix in PARQUET:
        yield from _parquet_rows(path)
        return
    try:
        text = read_bytes(path, stdin, FilterError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FilterError(f"{name} is not valid UTF-8; convert it first") from None
    if suffix == ".csv":
        yield from _rows(name, text)
        return
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line or line.startswith(("#", "--")):
            continue
        place = f"line {number}"
        if suffix not in JSON_LINES:
            yield _Entry(line, place, str(number))
            continue
        try:
            tree = json.loads(line)
        except (ValueError, RecursionError) as error:
            refused.append(RefusedFilter(place, line, FilterError(f"it is not JSON: {error}")))
            continue
        if isinstance(tree, dict) and "filter" in tree:
            wanted = tree.get("interface")
            given = str(tree.get("id", number)), None if wanted is None else str(wanted)
            yield _Entry(tree["filter"], place, *given)
        else:
            yield _Entry(tree, place, str(number))


def _rows(name: str, text: str) -> Iterator[_Entry]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns = list(rows.fieldnames or ())
        if "filter" not in columns:
            known = f"it has {', '.join(columns)}" if columns else "it is empty"
            raise FilterError(f"{name} has no column 'filter', {known}: name it in the header")
        _check_once(name, columns)
        for number, row in enumerate(rows, 1):
            yield _Entry(
                row["filter"] or "", f"line {rows.line_num}", row.get("id") or str(number), row.get("interface") or None
            )
    except csv.Error as error:
        raise FilterError(f"{name} is not CSV after line {rows.line_num}: {error}") from None


def _parquet_rows(path: str) -> Iterator[_Entry]:
    from weft.model.column import is_text

    with open_table(path, FilterError) as file:
        held = ParquetRows(file, path, FilterError)
        columns = held.schema.names
        if "filter" not in columns:
            raise FilterError(f"{path} has no column 'filter', only {', '.join(columns)}: rename one")
        _check_once(path, columns)
        kind = held.schema.field("filter").type
        if not is_text(kind):
            raise FilterError(f"the column 'filter' of {path} is of type {kind}; write filters as strings")
        number = 0
        for batch in held.batches([name for name in _COLUMNS if name in columns]):
            for row in batch.to_pylist():
                number += 1
                given, wanted = row.get("id"), row.get("interface")
                own = str(number if given is None else given)
                yield _Entry(row["filter"] or "", f"row {number}", own, None if wanted is None else str(wanted))


def _check_once(name: str, columns: Sequence[str]) -> None:
    for column in _COLUMNS:
        if columns.count(column) > 1:
            raise FilterError(f"{name} has {columns.count(column)} columns {column!r}; rename all but one")


def _filter(entry: Any, predicates: Predicates) -> Filter:
    if isinstance(entry, str):
        return read_filter(entry, "", predicates)
    if isinstance(entry, dict | list):
        return as_filter(entry, predicates)
    raise FilterError("a filter must be text, or a JSON object or list")
