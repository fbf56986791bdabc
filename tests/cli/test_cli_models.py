"""`weft models compare`: tables for people, JSON for machines, any file, bad rows, failures as sentences."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from weft.cli import progress
from weft.cli.app import app
from weft.cli.event_files import drawn, read_events
from weft.cli.filter_files import read_filter_file
from weft.errors import EventError, FilterError
from weft.language.predicate import Predicates
from weft.model.schema import Schema
from weft.model.value import Type
from weft.models import evidence
from weft.models.candidates import CANDIDATES

FILTERS = ["x > 0", "x > 5", "x BETWEEN 2 AND 3 AND kind = 'a'", "kind IN ('a', 'b')"]
EVENTS = [{"x": n / 2, "kind": "abc"[n % 3]} for n in range(24)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(evidence, "compare", partial(evidence.compare, warm=0))  # no time is looked at here
    monkeypatch.setattr(progress, "EVERY", float("inf"))


@pytest.fixture
def files(tmp_path):
    wanted, happened = tmp_path / "alerts.txt", tmp_path / "happened.jsonl"
    wanted.write_text("\n".join(FILTERS), encoding="utf-8")
    happened.write_text("\n".join(map(json.dumps, EVENTS)), encoding="utf-8")
    return str(happened), str(wanted)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["models", "compare", *arguments], input=stdin)


def answer(*arguments: str, stdin: str | None = None):
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


# -- what is shown -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["80", pytest.param("120", marks=pytest.mark.slow)])
def test_tables_and_an_advice(files, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    result = run(*files)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("4 subscriptions, 24 events, 24 of them match a subscription")
    tables = result.stdout.partition("\nrecommended: ")[0].splitlines()
    rows = [line.split() for line in tables if line.startswith(tuple(CANDIDATES))]
    assert [row[0] for row in rows] == [*CANDIDATES, *CANDIDATES]
    assert "…" not in result.stdout, "it fits a terminal"
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    assert "recommended: " in result.stdout
    assert "of the bytes of all subscriptions" in said(result.stdout)
    assert result.stderr == ""


def test_the_same_as_json(files):
    facts = answer(*files, "--models", "covering,identity, mics", "--cells", "8")
    assert [each["model"] for each in facts["models"]] == ["identity", "covering", "mics"]
    identity, covering, mics = facts["models"]
    assert (identity["forwarded"], covering["forwarded"]) == (4, 2)
    assert identity["unwanted"] == covering["unwanted"] == 0
    assert mics["unwanted_share"] >= 0
    assert facts["subscriptions"] == {"used": 4, "of": 4, "refused": []}
    assert (facts["events"]["used"], facts["events"]["wanted"]) == (24, 24)
    assert facts["recommendation"]["model"] in {"identity", "covering", "mics"}
    assert set(facts["recommendation"]["points"]) == {"identity", "covering", "mics"}
    assert facts["not_run"] == facts["notes"] == []


def test_what_filters_nothing_says_so(tmp_path):
    wanted, happened = tmp_path / "alerts.txt", tmp_path / "happened.jsonl"
    wanted.write_text("place LIKE 'a%'\nplace LIKE '%b' AND x >= 0", encoding="utf-8")
    happened.write_text("\n".join(json.dumps({"x": n, "place": f"p{n}"}) for n in range(90)), encoding="utf-8")
    result = run(str(happened), str(wanted), "--models", "flooding,covering,mics")
    assert result.exit_code == 0, result.output
    assert "mics filters nothing: 100.0% of the unwanted events pass" in said(result.stdout)
    assert "recommended: covering" in result.stdout
    facts = answer(str(happened), str(wanted), "--models", "flooding,covering,mics")
    assert facts["recommendation"]["filter_nothing"] == ["flooding", "mics"]
    assert [each["filters_nothing"] for each in facts["models"]] == [True, False, True]


def test_progress_is_plain_lines_where_there_is_no_terminal(files, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    result = run(*files, "--models", "covering", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["models"][0]["model"] == "covering"
    lines = result.stderr.splitlines()
    assert all(line.startswith("weft: ") for line in lines)
    assert any("covering: inserting" in line for line in lines)


def test_plain_lines_come_now_and_then(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 5.0)
    times, lines = iter([0.0, 1.0, 4.9, 5.0, 6.0, 11.0]), []
    tell = progress.PlainLines(lambda: next(times), lines.append)
    for done in range(5):
        tell("counting", done, 8 if done < 4 else 0)
    assert lines == ["weft: 5 s: counting, 25%", "weft: 11 s: counting"]


def test_a_sample_is_drawn_by_the_seed(files):
    facts = answer(*files, "--sample", "3", "--sample-events", "10", "--models", "identity")
    assert (facts["subscriptions"]["used"], facts["subscriptions"]["of"]) == (3, 4)
    assert (facts["events"]["used"], facts["events"]["of"]) == (10, 24)
    assert answer(*files, "--sample", "0", "--models", "identity")["subscriptions"]["used"] == 4
    assert "3 subscriptions (sampled from 4), 10 events (sampled from 24)" in run(
        *files, "--sample", "3", "--sample-events", "10", "--models", "identity"
    ).stdout  # fmt: skip


def test_models_without_bounds_say_why(tmp_path):
    wanted, happened = tmp_path / "alerts.txt", tmp_path / "happened.jsonl"
    wanted.write_text("place = 'here'\nplace LIKE '%x'\nplce = 'y'", encoding="utf-8")
    happened.write_text('{"place": "here"}\n{"place": "there"}\n', encoding="utf-8")
    result = run(str(happened), str(wanted), "--models", "covering,mics,dls")
    assert result.exit_code == 0, result.output
    for model in ("mics", "dls"):
        assert f"{model} has no figures: it needs bounds or categories" in said(result.stdout)
    assert "recommended: covering" in result.stdout
    assert "no event has 'plce': did you mean 'place'?" in result.stderr
    assert "mics and dls cannot see 'place', 'plce'" in result.stderr
    nothing = run(str(happened), str(wanted), "--models", "mics")
    assert nothing.exit_code == 1
    assert "no model can run on this data" in nothing.stdout
    assert answer(str(happened), str(wanted), "--models", "identity")["not_run"] == []


def test_a_schema_says_what_the_events_do_not(files, tmp_path):
    schema = tmp_path / "schema.json"
    Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 100]}}}).save(schema)
    facts = answer(*files, "--schema", str(schema), "--models", "mics", "--cells", "4")
    assert "mics cannot see 'kind': no bounds or categories are known, so more events are sent" in facts["notes"]
    assert "'kind' is not in the schema" in facts["notes"]


# -- what is wrong -----------------------------------------------------------------------------------


def test_what_cannot_be_used_is_counted_and_named(files, tmp_path):
    wanted, happened = tmp_path / "bad.txt", tmp_path / "bad.jsonl"
    wanted.write_text("\n".join(["x > 0", *["x => 1"] * 7]), encoding="utf-8")
    happened.write_text(
        '{"x": 1}\n[1]\n{"x": \n@/etc/passwd\n{"x": {"y": 10000000000000000000000}}\n{"x": 2}', encoding="utf-8"
    )
    result = run(str(happened), str(wanted), "--models", "covering")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 subscription, 2 events")
    assert result.stderr.count("unknown operator") == 5
    assert "7 filters left out" in result.stderr
    assert "line 4: the event is not a JSON object" in result.stderr
    assert "4 events left out" in result.stderr
    facts = answer(str(happened), str(wanted), "--models", "covering")
    assert [each["place"] for each in facts["events"]["refused"]] == ["line 2", "line 3", "line 4", "line 5"]
    assert len(facts["subscriptions"]["refused"]) == 7
    strict = run(str(happened), str(wanted), "--strict")
    assert strict.exit_code == 1
    assert "7 filters cannot be used, and --strict was given; the first is line 2" in said(strict.stderr)
    strict = run(str(happened), files[1], "--strict")
    assert "4 events cannot be used" in said(strict.stderr)


@pytest.mark.parametrize("name", ["empty.txt", "empty.csv", "empty.jsonl", "empty.parquet"])
@pytest.mark.parametrize("which", [0, 1])
def test_empty_files(files, tmp_path, name, which):
    empty = tmp_path / name
    empty.write_bytes(b"")
    given = [str(empty) if at == which else file for at, file in enumerate(files)]
    result = run(*given)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"weft: {empty}")
    assert "Traceback" not in result.stderr


def test_a_failure_is_json_too(files, tmp_path):
    result = run(str(tmp_path / "none.jsonl"), files[1], "--json")
    assert result.exit_code == 1
    assert "none.jsonl" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--models", "covring"), "negative-approximate"),
        (("--cells", "1"), "cells"),
        (("--sample", "-1"), "sample"),
    ],
)
def test_wrong_usage(files, arguments, why):
    result = run(*files, *arguments)
    assert result.exit_code == 2
    assert why in said(result.stderr)


def test_standard_input_is_one_of_them(files):
    assert run("-", "-").exit_code == 2
    assert answer(files[0], "-", "--models", "identity", stdin="x > 1\n")["subscriptions"]["used"] == 1
    assert answer("-", files[1], "--models", "identity", stdin='{"x": 1}\n')["events"]["used"] == 1


def test_patience_is_an_option(files):
    result = run(*files, "--models", "covering", "--patience", "0")
    assert result.exit_code == 1
    assert "took more than 0 seconds" in said(result.stdout)


# -- files -------------------------------------------------------------------------------------------


def events_of(path, schema=None, most=None):
    return read_events(str(path), lambda: b"", schema, np.random.default_rng(1), most)


def test_every_kind_of_file_has_the_same_events(tmp_path):
    table = pa.Table.from_pylist(EVENTS)
    parquet.write_table(table, tmp_path / "e.parquet")
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, EVENTS)), encoding="utf-8")
    lines = ["x,kind", *(f"{event['x']},{event['kind']}" for event in EVENTS)]
    (tmp_path / "e.csv").write_text("\n".join(lines), encoding="utf-8")
    found = [events_of(tmp_path / name) for name in ("e.parquet", "e.jsonl", "e.csv")]
    for each in found:
        assert [event.attributes for event in each.events] == EVENTS
        assert (each.observed["x"].low, each.observed["x"].high) == (0.0, 11.5)
        assert each.observed["kind"].categories == ("a", "b", "c")
        assert not each.refused
        assert not each.notes
    few = [events_of(tmp_path / name, most=5) for name in ("e.parquet", "e.jsonl", "e.csv")]
    for each in few:
        assert len(each.events) == 5
        assert each.of == 24
        assert each.observed["x"].high == 11.5, "bounds are those of all"
        assert each.events == few[0].events


def test_every_kind_of_file_has_the_same_filters(tmp_path):
    rows = [{"id": f"s{n}", "filter": text} for n, text in enumerate(FILTERS)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "f.parquet")
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    lines = ["id,filter", *(f'{row["id"]},"{row["filter"]}"' for row in rows)]
    (tmp_path / "f.csv").write_text("\n".join(lines), encoding="utf-8")
    for name in ("f.parquet", "f.jsonl", "f.csv"):
        wishes = read_filter_file(str(tmp_path / name), lambda: b"", Predicates([]))
        assert [(str(wish.filter), wish.interface) for wish in wishes.read] == [
            (text, f"s{n}") for n, text in enumerate(FILTERS)
        ]
    parquet.write_table(pa.table({"filter": ["x >", None, "x > 1"], "interface": [1, 2, 3]}), tmp_path / "g.parquet")
    wishes = read_filter_file(str(tmp_path / "g.parquet"), lambda: b"", Predicates([]))
    assert [(wish.interface, wish.place) for wish in wishes.read] == [("3", "row 3")]
    assert [each.place for each in wishes.refused] == ["row 1", "row 2"]
    parquet.write_table(pa.table({"text": ["x > 1"]}), tmp_path / "h.parquet")
    with pytest.raises(FilterError, match="no column 'filter', only text"):
        read_filter_file(str(tmp_path / "h.parquet"), lambda: b"", Predicates([]))
    (tmp_path / "i.parquet").write_text("no parquet", encoding="utf-8")
    with pytest.raises(FilterError, match="is not a Parquet file"):
        read_filter_file(str(tmp_path / "i.parquet"), lambda: b"", Predicates([]))


def test_cells_of_a_csv_are_of_the_declared_types(tmp_path):
    schema = Schema.of(n="int", f="float", ok="bool", when="timestamp", code="string")
    rows = [
        "n,f,ok,when,code,other",
        "1,2,true,2018-02-01,007,5",
        "2.0,1e3,0,1517443200000,,x",
        ",,,,,",
        "x,1,1,2018-02-01,a,b",
        "1,1,maybe,2018-02-01,a,b",
        "1,1,1,yesterday,a,b",
        "99999999999999999999,1_0,1,2018-02-01,a,b",
        "1,2",
    ]
    path = tmp_path / "e.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    found = events_of(path, schema)
    day = datetime(2018, 2, 1, tzinfo=UTC)
    assert [event.attributes for event in found.events] == [
        {"n": 1, "f": 2.0, "ok": True, "when": day, "code": "007", "other": "5"},
        {"n": 2, "f": 1000.0, "ok": False, "when": day, "other": "x"},
        {},
    ]
    assert len(found.refused) == 5
    assert "2 cells, but the header names 6" in str(found.refused[0].error)
    assert {each.place for each in found.refused[1:]} == {"event 4", "event 5", "event 6", "event 7"}


def test_columns_that_no_filter_sees_are_left_out(tmp_path):
    path = tmp_path / "e.parquet"
    parquet.write_table(
        pa.table({"x": [1, 2], "raw": [b"a", b"b"], "tags": [["a"], ["b"]], "time": [5, 6], "at": [{"y": 1}, None]}),
        path,
    )
    found = events_of(path)
    assert [event.attributes for event in found.events] == [{"x": 1, "tags": ["a"], "at.y": 1}, {"x": 2, "tags": ["b"]}]
    assert found.observed["at.y"].type is Type.INT
    assert len(found.notes) == 2
    assert "column 'raw' is left out" in found.notes[0]
    assert "column 'time' is left out" in found.notes[1]


def test_attributes_of_unlike_types_have_no_bounds(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text('{"x": 1, "y": 2}\n{"x": "one", "y": 2.5}\n', encoding="utf-8")
    found = events_of(path)
    assert list(found.observed) == ["y"]
    assert (found.observed["y"].low, found.observed["y"].high) == (2.0, 2.5)
    assert "'x'" in found.notes[0]
    assert len(found.events) == 2


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("e.jsonl", b"\xff\xfe\x00", "not valid UTF-8"),
        ("e.jsonl", b"[1]\n", "has no readable event: line 1"),
        ("e.csv", b"x,y\n", "has no readable event"),
        ("e.parquet", b"PAR1", "is not a Parquet file"),
    ],
)
def test_files_that_are_none(tmp_path, name, content, why):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EventError, match=why):
        events_of(path)


def test_a_sample_has_nothing_twice():
    rng = np.random.default_rng(1)
    some = drawn(100, 30, rng)
    assert len(set(some)) == 30
    assert some == sorted(some)
    assert drawn(3, 5, rng) == drawn(3, None, rng) == [0, 1, 2]
