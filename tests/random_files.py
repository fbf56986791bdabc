"""Random events and filters, written to files of every format, with rows that cannot be read."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FORMATS = ("parquet", "parquet folder", "csv", "csv.gz", "csv folder", "jsonl", "jsonl.bz2", "json folder")
TESTS = (
    "x > {number}",
    "x <= {number}",
    "x BETWEEN -2 AND {number}",
    "x IN (1, {number})",
    "s = '{text}'",
    "s LIKE '%{text}%'",
    "s <> '{text}'",
    "b",
    "NOT b",
    "x IS NULL",
    "t >= TIMESTAMP '2020-01-0{day} 00:00:00'",
    "n > {number}",
    "i > {integer}",
    "i <= {integer}",
    "i = {integer}",
    "i < x",
    '"dotted.name" > {number}',
    '"dotted.name" IN (1, {number})',
    "d >= {number}.25",
    "none > {number}",
    "none IS NULL",
)
INTEGERS = (0, 3, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, 1 - 2**63)
TEXTS = ("a", "b, c", "é", 'say "hi"', " lead", "trail ", "long " * 5)
KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("i", pa.int64()),
        ("dotted.name", pa.int64()),
        ("d", pa.decimal128(12, 2)),
        ("none", pa.float64()),
    ]
)


@dataclass(frozen=True)
class RandomFiles:
    """Paths of events and subscriptions, what they hold, and how many rows of them cannot be read."""

    events: str
    subscriptions: str
    rows: list[dict[str, Any]]
    filters: dict[int, str]
    bad: dict[str, int]


def random_files(place: Path, seed: int, kind: str) -> RandomFiles:
    """Files of one kind."""
    rng = Random(seed)
    rows = [
        {
            "n": number,
            "x": rng.choice([None, -3.0, -1.5, 0.0, 1.0, 2.25, 7.0, 1e10]),
            "s": rng.choice([None, *TEXTS]),
            "b": rng.choice([None, True, False]),
            "t": rng.choice([None, datetime(2020, 1, rng.randint(1, 9), tzinfo=UTC) + timedelta(microseconds=7)]),
            "i": rng.choice([None, *INTEGERS]),
            "dotted.name": rng.choice([None, -1, 0, 1, 5]),
            "d": rng.choice([None, Decimal("-1.25"), Decimal("0.00"), Decimal("4.25"), Decimal("99.75")]),
            "none": None,
        }
        for number in range(rng.randint(1, 40))
    ]
    filters = {number: _filter(rng) for number in range(rng.randint(1, 12))}
    texts: dict[int, str | None] = {**filters, 100: "x >", 101: None}
    place.mkdir(parents=True, exist_ok=True)
    wrong = rng.randint(0, 2)
    events = _write(place / "events", kind, rows, wrong)
    subscriptions = place / f"subscriptions.{kind.split(maxsplit=1)[0]}"
    if kind.startswith("parquet"):
        pq.write_table(pa.table({"id": list(texts), "filter": list(texts.values())}), subscriptions)
    else:
        given = [{"id": key, "filter": text} for key, text in texts.items()]
        _put(subscriptions, _lines(given, "csv" if kind.startswith("csv") else "json"))
    return RandomFiles(events, str(subscriptions), rows, filters, {"event": wrong, "subscription": 2})


LIST_FORMATS = ("parquet", "jsonl")
LIST_TESTS = (
    "tags HAS '{text}'",
    "tags HAS ANY ('{text}', 'b', 5)",
    "tags HAS ALL ('{text}', 'b')",
    "NOT tags HAS '{text}'",
    "tags = '{text}'",
    "tags IS NULL",
    "(tags HAS '') IS NULL",
    "x HAS {number}",
    "in.y HAS ANY ({number}, 1.5)",
    "items HAS 1",
    "(items HAS 1) IS NULL",
    "t HAS TIMESTAMP '2020-01-0{day} 00:00:00'",
    "n >= {number}",
)
LIST_KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("in", pa.struct([("y", pa.list_(pa.float64()))])),
        ("items", pa.list_(pa.struct([("price", pa.int64())]))),
        ("t", pa.list_(pa.timestamp("us", "UTC"))),
    ]
)


def random_lists(place: Path, seed: int, kind: str) -> RandomFiles:
    """Files with lists of values and of mappings; one list is too long."""
    rng = Random(seed)

    def some(*values: Any) -> list[Any] | None:
        return rng.choice([None, [], rng.choices([None, *values], k=rng.randint(1, 4))])

    rows: list[dict[str, Any]] = [
        {
            "n": number,
            "x": rng.choice([None, 1.0, 2.0, 3.5]),
            "tags": some("a", "b", "é", "", "a" * 300),
            "in": rng.choice([None, {"y": some(1.0, 1.5, 2.0)}]),
            "items": some({"price": 1}),
            "t": some(*(datetime(2020, 1, day, tzinfo=UTC) for day in (1, 5, 9))),
        }
        for number in range(rng.randint(1, 40))
    ]
    filters = {
        number: rng.choice((" AND ", " OR ")).join(
            test.format(
                number=rng.randint(0, 3), text=rng.choice(["a", "b", "é", "a" * 300]), day=rng.choice((1, 5, 9))
            )
            for test in rng.sample(LIST_TESTS, rng.randint(1, 3))
        )
        for number in range(rng.randint(8, 20))
    }
    place.mkdir(parents=True, exist_ok=True)
    long = {**dict.fromkeys(LIST_KINDS.names), "n": 1_000, "tags": ["a"] * 10_001}
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([*rows, long], schema=LIST_KINDS), place / "events.parquet")
    else:
        lines = [json.dumps(row, default=datetime.isoformat) for row in (*rows, long)]
        _put(place / f"events.{kind}", lines)
    given = [{"id": key, "filter": text} for key, text in filters.items()]
    _put(place / "subscriptions.jsonl", _lines(given, "json"))
    subscriptions = str(place / "subscriptions.jsonl")
    return RandomFiles(str(place / f"events.{kind}"), subscriptions, rows, filters, {"event": 1, "subscription": 0})


def _filter(rng: Random) -> str:
    tests = [
        rng.choice(TESTS).format(
            number=rng.randint(-3, 8),
            integer=rng.choice(INTEGERS),
            text=rng.choice(["a", "b", "é"]),
            day=rng.randint(1, 9),
        )
        for _ in range(rng.randint(1, 3))
    ]
    return f" {rng.choice(['AND', 'OR'])} ".join(f"({test})" for test in tests)


def _write(place: Path, kind: str, rows: list[dict[str, Any]], wrong: int) -> str:
    if kind.startswith("parquet"):
        # a row that is no event: its timestamp is after the year 9999
        micros = [None if row["t"] is None else _micros(row["t"]) for row in rows] + [10**18] * wrong
        stamps = pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns = [
            stamps if each.name == "t" else pa.array([row[each.name] for row in rows] + [None] * wrong, each.type)
            for each in KINDS
        ]
        table = pa.table(columns, schema=KINDS)
        if kind == "parquet":
            pq.write_table(table, f"{place}.parquet", row_group_size=7)
            return f"{place}.parquet"
        half = len(rows) // 2
        place.mkdir(exist_ok=True)
        parts = {"a": table.slice(0, half), "_hidden": table, "c": table.slice(half), "d": table.slice(0, 0)}
        for name, part in parts.items():
            pq.write_table(part, place / f"{name}.parquet")
        (place / "e.parquet").touch()
        return str(place)
    form = "csv" if kind.startswith("csv") else "json"
    lines = _lines(rows, form)
    for at in range(wrong):
        lines.insert(len(lines) - at, "5" if form == "csv" else '{"n": 5, "x":')
    if kind.endswith("folder"):
        place.mkdir(exist_ok=True)
        head = lines[:1] if form == "csv" else []
        half = len(lines) // 2 + 1
        _put(place / f"a.{form}", lines[:half])
        _put(place / f"b.{form}.gz", [*head, *lines[half:]])
        _put(place / f"c.{form}", head)
        return str(place)
    return _put(Path(f"{place}.{kind}"), lines)


def _lines(rows: list[dict[str, Any]], form: str) -> list[str]:
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    if form == "json":
        return [json.dumps(row, ensure_ascii=False) for row in plain]
    made = io.StringIO()
    writer = csv.DictWriter(made, list(plain[0]), lineterminator="\n")
    writer.writeheader()
    for row in plain:
        writer.writerow({name: str(cell).lower() if isinstance(cell, bool) else cell for name, cell in row.items()})
    return made.getvalue().splitlines()


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _put(path: Path, lines: list[str]) -> str:
    text = "".join(f"{line}\n" for line in lines).encode()
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(packed(text))
    return str(path)


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
