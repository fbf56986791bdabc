"""Files that are huge, deep, endless or random: each gives an answer or an error of Weft's own."""

from __future__ import annotations

import io
import json
import math
import os
import random
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli import event_source
from weft.cli.event_files import read_events
from weft.cli.event_source import EventSource
from weft.cli.filter_files import read_filter_file
from weft.errors import EventError, OptionError, TuningError, WeftError
from weft.index.base import SubId
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.model.schema import Schema
from weft.routing import Link, make_table
from weft.routing.dls.space import MOST_ALLOWED, LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.server.initial_load import InitialTable
from weft.server.security.access_file import read_access
from weft.server.settings import _read as read_settings
from weft.space.content import ContentSpace
from weft.space.curve_groups import CurveGroups
from weft.space.grid import Grid
from weft.tuning import parameters
from weft.tuning.budget import CostBudget, LinkFigures
from weft.tuning.parameters import Tuned

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


# -- tuning files ------------------------------------------------------------------------------------

FLOATS = Schema.from_dict(
    {"attributes": {"x": {"type": "float", "bounds": [0, 10]}, "s": {"type": "string", "categories": ["a", "b"]}}}
)
FIGURES = LinkFigures(0.1, 10, 100)
TUNINGS: dict[str, Tuned[Any]] = {
    "dls": Tuned("dls", LabelSpace.of(FLOATS, 8), FilterShape(64), 0.1, FIGURES, 10, CostBudget(), 3),
    "mics": Tuned("mics", ContentSpace(Grid.uniform(FLOATS, 8)), None, 1.0, FIGURES, 10, CostBudget(), 3),
    "groups": Tuned(
        "mics",
        CurveGroups([ContentSpace(Grid.uniform(FLOATS, 8, [name])) for name in "xs"]),
        *(None, 1.0, FIGURES, 10, CostBudget(), 3),
    ),
}
WRONG: list[Any] = [None, True, -1, 0, 7, 2**31, 2**62, 2**64, 10**400, 1e300, math.inf, math.nan, "", "x" * 3_000]
WRONG += [[], {}, [[]], {"a": 1}, [None] * 9, "categories", "line", "bool", ["b", 7], 0.5]


def places(form: Any) -> list[tuple[Any, ...]]:
    """The ways to all parts of a JSON value."""
    named = form.items() if isinstance(form, dict) else enumerate(form) if isinstance(form, list) else ()
    return [(), *((name, *way) for name, part in named for way in places(part))]


def replaced(form: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    copied = copy(form)
    copied[way[0]] = replaced(form[way[0]], way[1:], value)
    return copied


@pytest.mark.parametrize("name", TUNINGS)
def test_a_changed_tuning_file_gives_a_table_or_an_error(name: str) -> None:
    form = json.loads(TUNINGS[name].to_json())
    assert Tuned.from_json(json.dumps(form)) == TUNINGS[name]
    subs = [parse(text) for text in ("x > 5", "x IN (1, 9) OR s = 'a'", "s LIKE 'b%'", "TRUE")]
    made = 0
    for way in places(form):
        for value in WRONG:
            try:
                found = Tuned.from_json(json.dumps(replaced(form, way, value)))
            except TuningError:
                continue
            assert found.space.countable is False or found.space.most <= MOST_ALLOWED  # type: ignore[attr-defined]
            assert found.shape is None or found.shape.nbytes <= 1 << 28
            if way[0] not in ("space", "filter", "rate"):
                continue
            options = {"spaces": found.space.groups} if found.model == "mics" else {"space": found.space}
            table = make_table(found.model, FLOATS, **options)
            table.attach(Link("north"))
            for sub, tree in enumerate(subs):
                table.change({SubId(sub): tree}, ())
            made += 1
    assert made


@pytest.mark.parametrize("content", [DEEP, '{"form":' * 20_000, "9" * 10_000, RANDOM, "null", '"weft tuning"', b"\xff"])
def test_a_tuning_file_of_anything_else_is_an_error(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(TuningError):
        Tuned.load(put(tmp_path, "tuning.json", content))
    put(tmp_path, "facts.json", content)
    put(tmp_path, "subscriptions.parquet", b"")
    with pytest.raises(OptionError):
        InitialTable.open(tmp_path)


def test_a_tuning_is_read_from_a_regular_file_of_some_size_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "endless.json"):
        with pytest.raises(TuningError, match="not a regular file"):
            Tuned.load(tmp_path / name)
    monkeypatch.setattr(parameters, "_MOST_BYTES", 1_000)
    with pytest.raises(TuningError, match="larger than 1,000 bytes"):
        Tuned.load(put(tmp_path, "large.json", TUNINGS["dls"].to_json() + " " * 1_000))
