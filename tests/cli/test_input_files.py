"""Files of filters and events as users have them: of odd types, endless, damaged, or far larger than they look."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from weft.cli import input_files
from weft.cli.app import app
from weft.cli.event_files import read_events, read_seen
from weft.cli.filter_files import read_filter_file, read_filter_texts
from weft.cli.input_files import ParquetRows, open_table
from weft.errors import EventError, FilterError, WeftError
from weft.language.predicate import Predicates


def saved(folder: Path, name: str, columns: dict[str, Any] | pa.Table, **options: Any) -> str:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    parquet.write_table(table, folder / name, **options)
    return str(folder / name)


def nothing() -> bytes:
    return b""


ODD = {
    "binary": pa.array([b"x > 1"]),
    "timestamp": pa.array([datetime(2020, 1, 1)]),
    "decimal": pa.array([Decimal("1.5")]),
    "list": pa.array([["x > 1"]]),
    "struct": pa.array([{"exact": {"type": "a"}}]),
    "int64": pa.array([5]),
    "bool": pa.array([True]),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("command", [["filter", "lint"], ["order", "show"], ["models", "compare"]])
def test_a_column_of_filters_that_is_not_text_is_refused_by_its_type(
    tmp_path: Path, kind: str, command: list[str]
) -> None:
    path = saved(tmp_path, "rules.parquet", {"filter": ODD[kind]})
    events = tmp_path / "events.jsonl"
    events.write_text('{"x": 1}')
    ran = CliRunner().invoke(app, [*command, *([str(events)] if command[0] == "models" else []), path])
    assert ran.exit_code != 0
    assert isinstance(ran.exception, SystemExit), "a traceback"
    assert f"the column 'filter' of {path} is of type {kind}" in " ".join(ran.output.split())


def test_filters_may_be_strings_however_they_are_stored(tmp_path: Path) -> None:
    texts = pa.array(["x > 1", None, "y = 'a'"])
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        path = saved(tmp_path, "rules.parquet", {"filter": texts.cast(kind), "id": [7, 8, None]})
        assert read_filter_texts(path, nothing) == [("7", "x > 1"), ("8", ""), ("3", "y = 'a'")]
        read = read_filter_file(path, nothing, Predicates([]))
        assert [wanted.interface for wanted in read.read] == ["7", "3"]
        assert [each.place for each in read.refused] == ["row 2"]


@pytest.mark.parametrize("name", ["filter", "id", "interface"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    names = ["filter", "id", "interface", name]
    path = saved(tmp_path, "rules.parquet", pa.Table.from_arrays([pa.array(["x > 1"])] * 4, names=names))
    other = tmp_path / "rules.csv"
    other.write_text(",".join(names) + "\nx > 1,1,I1,x > 2\n")
    for file in (path, str(other)):
        with pytest.raises(FilterError, match=f"2 columns '{name}'"):
            read_filter_texts(file, nothing)


# -- files without an end, and files that grow -----------------------------------------------------------


@pytest.mark.parametrize("name", ["endless.txt", "endless.jsonl", "endless.csv", "endless.parquet"])
def test_a_file_without_an_end_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_MOST_PIPED", 1 << 20)
    endless = tmp_path / name
    endless.symlink_to("/dev/zero")
    reads: list[Callable[[], Any]] = [
        lambda: read_filter_texts(str(endless), nothing),
        lambda: read_events(str(endless), nothing, None, np.random.default_rng(1)),
        lambda: read_seen(str(endless), nothing, None),
    ]
    for read in reads:
        with pytest.raises(WeftError, match=r"endless\.\w+ (has more than 1,048,576 bytes|is not a regular file)"):
            read()


def test_what_is_piped_in_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_MOST_PIPED", 10)
    os.mkfifo(tmp_path / "pipe")
    keep = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(keep, b"x > 1\ny > 2")
    with pytest.raises(FilterError, match="pipe has more than 10 bytes"):
        read_filter_texts(str(tmp_path / "pipe"), nothing)
    os.close(keep)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MOST_BYTES", 10)
    (tmp_path / "rules.txt").write_text("x > 1\ny > 2")
    with pytest.raises(FilterError, match="more than 10 bytes; split it"):
        read_filter_texts(str(tmp_path / "rules.txt"), nothing)


def test_a_parquet_file_that_decodes_to_much_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MOST_BYTES", 1 << 22)
    long = "x" * 100_000
    path = saved(tmp_path, "small.parquet", {"a": pa.array([long] * 400), "n": range(400)})
    assert Path(path).stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(EventError, match=r"small\.parquet decodes to more than 4,194,304 bytes; split it"):
        read_events(path, nothing, None, np.random.default_rng(1))
    assert pa.total_allocated_bytes() - before < 1 << 22
    filters = saved(tmp_path, "rules.parquet", {"filter": pa.array([f"s = '{long}'"] * 400)})
    with pytest.raises(FilterError, match=r"rules\.parquet decodes to more than"):
        read_filter_texts(filters, nothing)


def test_lint_looks_at_the_columns_of_a_parquet_file_and_not_at_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "MOST_BYTES", 1 << 16)
    path = saved(tmp_path, "events.parquet", {"n": range(100_000), "s": ["a"] * 100_000, "l": [[1]] * 100_000})
    seen = read_seen(path, nothing, None)
    assert (sorted(seen), seen.lists) == (["l", "n", "s"], {"l"})


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_a_damaged_file_is_named(tmp_path: Path, compression: str) -> None:
    rng = np.random.default_rng(1)
    columns = {"x": rng.integers(0, 1 << 40, 5_000), "filter": [f"x > {n}" for n in range(5_000)]}
    path = Path(saved(tmp_path, "damaged.parquet", columns, compression=compression))
    data = bytearray(path.read_bytes())
    for at in range(200, len(data) - 2_000, 97):
        data[at] ^= 0x5A
    path.write_bytes(data)
    reads: list[Callable[[], Any]] = [
        lambda: read_filter_texts(str(path), nothing),
        lambda: read_events(str(path), nothing, None, np.random.default_rng(1)),
    ]
    for read in reads:
        try:
            read()
        except WeftError as error:
            assert "damaged.parquet" in str(error) or "UTF-8" in str(error)  # noqa: PT017 - or it can be read
    for content in (b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", bytes(data[: len(data) // 2])):
        path.write_bytes(content)
        for read in reads:
            with pytest.raises(WeftError, match=r"damaged\.parquet is not a Parquet file, or is damaged"):
                read()


def test_batches_are_the_rows_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "_MOST_ROWS", 64)
    table = pa.table(
        {
            "s": pa.array([None if n % 7 == 0 else f"text {n % 13}" for n in range(1_000)]),
            "d": pa.array([f"word {n % 3}" for n in range(1_000)]).dictionary_encode(),
            "b": pa.array([b"raw"] * 1_000),
            "n": pa.array(range(1_000)),
            "l": pa.array([[n] for n in range(1_000)]),
            "t": pa.array([{"x": n, "y": "z"} for n in range(1_000)]),
        }
    )
    path = saved(tmp_path, "rows.parquet", table, row_group_size=300)
    with open_table(path, EventError) as file:
        rows = ParquetRows(file, path, EventError)
        assert rows.table().equals(table)
        assert max(batch.num_rows for batch in rows.batches(["n", "s"])) <= 64


def test_lint_counts_the_lists_of_mappings_in_lines_and_names_those_of_a_table(tmp_path: Path) -> None:
    lines = ['{"tags": ["rock"], "items": [{"price": 9}]}', '{"items": [{}]}', '{"items": [{}], "x": }']
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines))
    seen = read_seen(str(path), nothing, None)
    assert (seen.lists, dict(seen.ignored)) == ({"tags"}, {"items": 2})
    table = saved(tmp_path, "events.parquet", {"tags": [["a"]] * 3, "items": [[{"price": 1}]] * 3})
    seen = read_seen(table, nothing, None)
    assert (seen.lists, dict(seen.ignored)) == ({"tags"}, {"items": 0})
