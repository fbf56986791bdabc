"""Files that are huge, deep, endless or random: each gives an answer or an error of Weft's own."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from weft.cli import event_source
from weft.cli.event_files import read_events
from weft.cli.event_source import EventSource
from weft.cli.filter_files import read_filter_file
from weft.errors import EventError, OptionError, WeftError
from weft.language.predicate import Predicates
from weft.net.access_file import read_access
from weft.net.settings import _read as read_settings

DEEP = "[" * 20_000 + "]" * 20_000
RANDOM = random.Random(1).randbytes(2_000)


def put(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.parametrize(
    "content", [f"a = {DEEP}", "a = " + "9" * 10_000, "a = {b = " * 5_000, RANDOM, b"\0", "a = 1e"]
)
def test_settings_and_rules_that_are_not_toml_are_an_error(tmp_path: Path, content: str | bytes) -> None:
    for read in (read_settings, read_access):
        with pytest.raises(OptionError):
            read(put(tmp_path, "file.toml", content))


def test_access_rules_are_read_from_a_regular_file_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "endless.toml"):
        with pytest.raises(OptionError, match="not a regular file"):
            read_access(tmp_path / name)


@pytest.mark.parametrize(
    "content", [DEEP, '{"a":' * 20_000, "9" * 10_000, RANDOM, "null", '{"a": NaN}', '{"a": "\\ud800"}']
)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt"])
def test_events_and_filters_of_any_file_are_an_answer_or_an_error(
    tmp_path: Path, content: str | bytes, suffix: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = str(put(tmp_path, f"file{suffix}", content))
    for read in (
        lambda: read_events(file, bytes, None, np.random.default_rng(1)),
        lambda: list(EventSource([file], io.BytesIO(), report=lambda *_: None)),
        lambda: read_filter_file(file, bytes, Predicates([])),
    ):
        try:
            read()
        except WeftError:
            continue
    assert "Traceback" not in capfd.readouterr().err


def test_a_line_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source, "_LONGEST", 1_000)

    class Endless(io.RawIOBase):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size == 1_000
            return b"x" * size

    source = EventSource(["-"], Endless(), report=lambda *_: None)  # type: ignore[arg-type]
    assert list(source) == []
    assert [place for place, _ in source.bad] == ["line 1"]


def test_a_table_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    row = ",".join(f"c{n}" for n in range(5_000))
    with pytest.raises(EventError, match="at most 4,096 columns"):
        read_events(str(put(tmp_path, "wide.csv", f"{row}\n{row}\n")), bytes, None, np.random.default_rng(1))


def test_bounds_of_unlike_values_are_inferred_attribute_by_attribute(tmp_path: Path) -> None:
    """Once for each attribute and each event that has it, not for each pair of an event and an attribute."""
    lines = [json.dumps({f"a{n}": n, "t": "x" if n % 2 else n}) for n in range(20)]
    found = read_events(str(put(tmp_path, "odd.jsonl", "\n".join(lines))), bytes, None, np.random.default_rng(1))
    assert {name: found.observed[name].high for name in found.observed} == {f"a{n}": n for n in range(20)}
    assert len(found.notes) == 1
