"""The local engine: results are those of `matches` and of DuckDB, an output is whole or absent, memory is bounded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from random_files import FORMATS, KINDS, LIST_FORMATS, RandomFiles, random_files, random_lists
from weft.errors import PipelineError
from weft.index.bound_rows import bounds_of
from weft.lint import SeenAttributes
from weft.lint.lint_counts import EXAMPLES, LintCounts, lint_counts
from weft.lint.lint_report import report_of
from weft.pipeline.bound_lint import lint_bounds
from weft.pipeline.boxes import Reading
from weft.pipeline.local_match import match_locally
from weft.pipeline.match_job import MatchEngine, MatchJob, MatchReport, chosen_engine
from weft.pipeline.subscription_rows import as_texts
from weft.pipeline.tables import open_table


def run(**job: Any) -> MatchReport:
    return match_locally(MatchJob(**job), perf_counter)


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    assert Path(path, "_SUCCESS").exists()
    read = list(open_table(str(path)))
    assert not any(corrupt for _, corrupt in read)
    return [row for rows, _ in read for row in rows.to_pylist()]


def put(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# -- what is found -------------------------------------------------------------------------------------


def pairs_of(given: RandomFiles) -> list[tuple[int, int]]:
    """The matches by the meaning of filters."""
    parsed = {key: weft.parse(text) for key, text in given.filters.items()}
    return sorted((row["n"], key) for row in given.rows for key, each in parsed.items() if weft.matches(each, row))


def duckdb_pairs(given: RandomFiles) -> list[tuple[int, int]]:
    """The matches as DuckDB evaluates the same texts."""
    duckdb = pytest.importorskip("duckdb")
    happened = pa.Table.from_pylist(given.rows, schema=KINDS)
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        base.register("happened", happened)
        return sorted(
            (n, key)
            for key, text in given.filters.items()
            for (n,) in base.execute(f"SELECT n FROM happened WHERE {text}").fetchall()
        )


@pytest.mark.parametrize("kind", FORMATS)
def test_results_are_those_of_the_meaning_and_of_duckdb(tmp_path, kind):
    for seed in range(6):
        given = random_files(tmp_path / str(seed), seed, kind)
        wanted = pairs_of(given)
        assert duckdb_pairs(given) == wanted
        for form, name in (("pairs", "out.parquet"), ("lists", "out.jsonl"), ("counts", "out.csv")):
            out, errors = tmp_path / f"{seed}-{name}", tmp_path / f"{seed}-{form}-errors.jsonl"
            job = {"events": given.events, "subscriptions": given.subscriptions, "out": str(out), "output": form}
            report = run(**job, errors=str(errors), lint=False)
            assert (report.events, report.subscriptions) == (len(given.rows), len(given.filters))
            assert (report.matches, report.matched) == (len(wanted), len({n for n, _ in wanted}))
            assert report.errors == given.bad
            assert Counter(row["side"] for row in rows_of(errors)) == Counter(given.bad)
            found = rows_of(out)
            if form == "pairs":
                assert sorted((row["n"], row["subscription"]) for row in found) == wanted
                kept = {row["n"]: row for row in given.rows}
                assert all({**kept[row["n"]], "subscription": row["subscription"]} == row for row in found)
            elif form == "lists":
                assert sorted((row["n"], each) for row in found for each in row["subscriptions"]) == wanted
                assert len(found) == len(given.rows)
            else:
                assert {row["n"]: row["matches"] for row in found} == {
                    row["n"]: sum(n == row["n"] for n, _ in wanted) for row in given.rows
                }


@pytest.mark.parametrize("kind", LIST_FORMATS)
def test_lists_are_matched_as_they_are_by_the_meaning(tmp_path, kind):
    for seed in range(12):
        given = random_lists(tmp_path / str(seed), seed, kind)
        out, errors = tmp_path / f"{seed}.parquet", tmp_path / f"{seed}-errors.jsonl"
        report = run(
            events=given.events, subscriptions=given.subscriptions, out=str(out), errors=str(errors), lint=False
        )
        assert sorted((row["n"], row["subscription"]) for row in rows_of(out)) == pairs_of(given)
        assert report.errors == given.bad
        assert [row["reason"] for row in rows_of(errors)] == ["'tags' is a list of more than 10,000 values"]


def test_lists_that_no_event_can_have_are_left_out(tmp_path):
    texts = pa.Array.from_buffers(pa.string(), 2, [None, *pa.array(["é", "a"]).buffers()[1:]], 0)
    raw = bytearray(texts.buffers()[2].to_pybytes())
    raw[0] = 0xFF
    texts = pa.Array.from_buffers(pa.string(), 2, [None, texts.buffers()[1], pa.py_buffer(bytes(raw))], 0)
    moments = pa.array([[0], [10**18, None], None], pa.list_(pa.timestamp("us", "UTC")))
    tags = pa.ListArray.from_arrays(pa.array([0, 0, 1, 2], pa.int32()), texts)
    pq.write_table(pa.table({"n": [1, 2, 3], "tags": tags, "t": moments}), tmp_path / "events.parquet")
    put(tmp_path / "subs.csv", "id,filter\n1,n > 0\n")
    errors = tmp_path / "errors.jsonl"
    report = run(events=str(tmp_path / "events.parquet"), subscriptions=str(tmp_path / "subs.csv"), errors=str(errors))
    assert (report.events, report.matches) == (2, 2)
    assert [row["reason"] for row in rows_of(errors)] == ["the text of 'tags' is not valid UTF-8"]
    pq.write_table(pa.table({"n": [1, 2, 3], "t": moments}), tmp_path / "events.parquet")
    report = run(events=str(tmp_path / "events.parquet"), subscriptions=str(tmp_path / "subs.csv"))
    assert [each["reason"] for each in report.first] == ["'t' is outside the years 1 to 9999"]


def test_lint_knows_lists_and_names_those_that_are_ignored(tmp_path):
    put(tmp_path / "events.jsonl", '{"tags":["rock"],"items":[{"price":9}]}\n')
    filters = {1: "tags HAS 'rock'", 2: "tags = 'rock'", 3: "items.price = 9", 4: "tags HAS 7"}
    put(
        tmp_path / "subs.jsonl",
        "".join(json.dumps({"id": key, "filter": text}) + "\n" for key, text in filters.items()),
    )
    notes = run(events=str(tmp_path / "events.jsonl"), subscriptions=str(tmp_path / "subs.jsonl")).notes
    assert notes == [
        "1 subscription names attributes that no event has, such as 3: items.price = 9 "
        "('items' is a list of mappings or of lists, which no filter can test)",
        "2 subscriptions compare unlike types, such as 2: tags = 'rock' "
        "('tags' is a list, which only HAS can test; write tags HAS 'rock')",
        "'items' is a list of mappings or of lists, which is ignored: no filter can test it",
    ]


def test_what_was_written_is_read_back_unchanged(tmp_path):
    rows = {
        "s": [" lead", "trail ", 'a "b", c', "back\\slash", "é", None],
        "d": [1e10, 3.0, 0.0001, -0.1, 123456.789, None],
        "i": [1, -(2**60), None, 0, 5, 7],
        "t": pa.array([1_517_472_000_123_456, None, 0, -1, 10**15, 5], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "b": [True, False, None, True, None, False],
    }
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "events.parquet")
    put(tmp_path / "subs.csv", "id,filter\n1,TRUE\n")
    for name in ("out.parquet", "out.csv", "out.jsonl"):
        run(events=str(tmp_path / "events.parquet"), subscriptions=str(tmp_path / "subs.csv"), out=str(tmp_path / name))
        found = [{**row, "subscription": None} for row in rows_of(tmp_path / name)]
        assert found == [{**row, "subscription": None} for row in table.to_pylist()]


def test_structs_lists_and_folders_with_names(tmp_path):
    put(tmp_path / "e" / "day=7" / "a.jsonl", '{"n":1,"in":{"y":2},"l":[1,2]}\n')
    put(tmp_path / "e" / "day=8" / "b.jsonl", '{"n":2,"in":{"y":5}}\n')
    put(tmp_path / "e" / "_SUCCESS", "")
    put(tmp_path / "subs.csv", 'id,filter\n1,"""in.y"" > 3"\n2,day = 7\n')
    out = tmp_path / "out.jsonl"
    report = run(events=str(tmp_path / "e"), subscriptions=str(tmp_path / "subs.csv"), out=str(out), output="lists")
    assert [(row["n"], row["day"], row["subscriptions"]) for row in rows_of(out)] == [(1, 7, [2]), (2, 8, [1])]
    assert [row["l"] for row in rows_of(out)] == [[1, 2], None]
    assert report.errors == {"event": 0, "subscription": 0}
    with pytest.raises(PipelineError, match="cannot hold lists or structs"):
        run(events=str(tmp_path / "e"), subscriptions=str(tmp_path / "subs.csv"), out=str(tmp_path / "out.csv"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "out.jsonl", "subs.csv"]


def test_parquet_files_with_other_columns_and_types_are_joined_or_refused(tmp_path):
    (tmp_path / "e").mkdir()
    pq.write_table(
        pa.table({"x": pa.array([1], pa.uint16()), "s": pa.array(["a"]).dictionary_encode()}), tmp_path / "e/a.parquet"
    )
    pq.write_table(pa.table({"x": pa.array([2], pa.int32()), "y": [1.5]}), tmp_path / "e/b.parquet")
    put(tmp_path / "subs.csv", "id,filter\n1,x > 1 OR s = 'a'\n")
    report = run(events=str(tmp_path / "e"), subscriptions=str(tmp_path / "subs.csv"))
    assert report.matches == 2
    pq.write_table(pa.table({"x": ["text"]}), tmp_path / "e" / "c.parquet")
    with pytest.raises(PipelineError, match="the column 'x' is int32 in one file and string in another"):
        run(events=str(tmp_path / "e"), subscriptions=str(tmp_path / "subs.csv"))


def test_text_that_is_not_utf8_and_subscriptions_that_share_an_id_are_left_out(tmp_path):
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array(["é", "a"]).buffers(), 0)
    raw = bytearray(bad.buffers()[2].to_pybytes())
    raw[0] = 0xFF
    texts = pa.Array.from_buffers(pa.string(), 2, [None, bad.buffers()[1], pa.py_buffer(bytes(raw))], 0)
    pq.write_table(pa.table({"n": [1, 2], "s": texts}), tmp_path / "events.parquet")
    put(tmp_path / "subs.jsonl", '{"id":1,"filter":"n > 0"}\n{"id":2,"filter":"n > 1"}\n{"id":2,"filter":"n > 0"}\n')
    errors = tmp_path / "errors.parquet"
    report = run(
        events=str(tmp_path / "events.parquet"), subscriptions=str(tmp_path / "subs.jsonl"), errors=str(errors)
    )
    assert (report.events, report.matches, report.subscriptions) == (1, 1, 1)
    assert [(row["side"], row["reason"]) for row in rows_of(errors)] == [
        ("subscription", "duplicate id"),
        ("subscription", "duplicate id"),
        ("event", "the text of 's' is not valid UTF-8"),
    ]


def test_a_damaged_file_fails_the_job_and_is_named(tmp_path):
    pq.write_table(pa.table({"x": list(range(5_000))}), tmp_path / "e.parquet")
    raw = bytearray((tmp_path / "e.parquet").read_bytes())
    raw[4:64] = b"\xff" * 60
    put(tmp_path / "e.parquet", bytes(raw))
    put(tmp_path / "subs.csv", "id,filter\n1,x > 1\n")
    with pytest.raises(PipelineError, match=r"e\.parquet cannot be read: "):
        run(events=str(tmp_path / "e.parquet"), subscriptions=str(tmp_path / "subs.csv"), out=str(tmp_path / "o.csv"))
    assert not (tmp_path / "o.csv").exists()


def test_bounds_are_linted_as_their_texts_are():
    rng = np.random.default_rng(3)
    size = 400
    low = np.where(rng.random(size) < 0.3, np.nan, rng.integers(0, 4, size).astype(float))
    high = np.where(rng.random(size) < 0.3, np.nan, rng.integers(0, 4, size).astype(float))
    words = [None if each > 3 else "abcd"[each] for each in rng.integers(0, 5, size)]
    rows = pa.record_batch(
        [pa.array(range(size)), pa.array(low, from_pandas=True), pa.array(high, from_pandas=True), pa.array(words)],
        names=["c0", "c1", "c2", "c3"],
    )
    reading = Reading("c0", bounds=bounds_of([("x_low", "c1"), ("x_high", "c2"), ("zz", "c3")]))
    seen = SeenAttributes({"x": frozenset([weft.Type.STRING]), "z": frozenset([weft.Type.STRING])})
    boxes, refused = reading.read(rows)
    found = report_of(lint_bounds(boxes, len(refused), seen, None), seen, most=1)
    (texts,) = as_texts(reading, iter([rows]))
    counts = lint_counts(texts.column(0).to_pylist(), texts.column(1).to_pylist(), seen, most=EXAMPLES)
    assert found.notes() == report_of(LintCounts.merged([counts], EXAMPLES), seen, most=1).notes()
    assert len(found.counts) == 5  # all but those that are not valid


# -- which engine ----------------------------------------------------------------------------------------


def test_small_jobs_of_this_machine_run_here(tmp_path, monkeypatch):
    for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    events, subs = put(tmp_path / "e.csv", "x\n1\n"), put(tmp_path / "s.csv", "id,filter\n1,x > 0\n")
    job = MatchJob(events, subs)
    assert chosen_engine("auto", job) is MatchEngine.LOCAL
    assert chosen_engine("spark", job) is MatchEngine.SPARK
    assert chosen_engine("auto", job, master="local[2]") is MatchEngine.SPARK
    assert chosen_engine("auto", MatchJob(events, subs, strategy="sql")) is MatchEngine.SPARK
    assert chosen_engine("auto", MatchJob("hdfs://host/e.csv", subs)) is MatchEngine.SPARK
    with pytest.raises(PipelineError, match="not a file of this machine"):
        chosen_engine("local", MatchJob("hdfs://host/e.csv", subs))
    with pytest.raises(PipelineError, match="--master"):
        chosen_engine("local", job, master="local[2]")
    with pytest.raises(PipelineError, match="no strategy sql"):
        run(events=events, subscriptions=subs, strategy="sql")
    monkeypatch.setattr("weft.pipeline.match_job.MOST_BYTES", 10)
    assert chosen_engine("auto", job) is MatchEngine.SPARK
    assert chosen_engine("local", job) is MatchEngine.LOCAL
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert chosen_engine("auto", job) is MatchEngine.LOCAL


# -- killed in the middle --------------------------------------------------------------------------------

FORMS = ("parquet", "csv", "jsonl")

KILLED = """
import os, signal, sys
from weft.pipeline import result_folder, tables
tables._ROWS = 100
place, at = sys.argv[1], sys.argv[2]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if at == "rows":
    kept, calls = result_folder.ResultFolder.write, []
    def write(self, rows):
        calls.append(kept(self, rows))
        if len(calls) == 3: die()
    result_folder.ResultFolder.write = write
elif at == "files":
    result_folder._sync = die
elif at == "name":
    kept = os.rename
    os.rename = lambda a, b: kept(a, b) if str(b).endswith("-old") else die()
from weft.cli import main
sys.argv = ["weft", "match", f"{place}/events.parquet", f"{place}/subs.csv", "--out", f"{place}/out.parquet",
            "--errors", f"{place}/errors.csv", "--engine", "local", *sys.argv[3:]]
main()
"""


@pytest.fixture
def jobs(tmp_path) -> Path:
    pq.write_table(pa.table({"x": range(1000)}), tmp_path / "events.parquet")
    put(tmp_path / "subs.csv", "id,filter\n1,x >= 0\n2,x > 500\n")
    return tmp_path


def killed(place: Path, at: str, *more: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
    command = [sys.executable, "-c", KILLED, str(place), at, *more]
    assert subprocess.run(command, env=environment, check=False, capture_output=True).returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", ["rows", "files", "name"])
def test_a_run_that_is_killed_leaves_no_output_that_looks_whole(jobs, at):
    killed(jobs, at)
    assert not (jobs / "out.parquet").exists()
    assert not (jobs / "errors.csv").exists()
    report = run(
        events=str(jobs / "events.parquet"), subscriptions=str(jobs / "subs.csv"), out=str(jobs / "out.parquet")
    )
    assert (report.matches, len(rows_of(jobs / "out.parquet"))) == (1499, 1499)


@pytest.mark.parametrize("at", ["rows", "files", "name"])
def test_a_run_that_is_killed_does_not_mix_with_what_was_there(jobs, at):
    given = {"events": str(jobs / "events.parquet"), "subscriptions": str(jobs / "subs.csv")}
    run(**given, out=str(jobs / "out.parquet"), errors=str(jobs / "errors.csv"))
    killed(jobs, at, "--overwrite")
    assert not (jobs / "out.parquet").exists() or len(rows_of(jobs / "out.parquet")) == 1499
    assert at == "name" or (jobs / "out.parquet").exists()
    run(**given, out=str(jobs / "out.parquet"), overwrite=True)
    assert len(rows_of(jobs / "out.parquet")) == 1499


@pytest.mark.parametrize(
    ("form", "rounds"), [("csv", 3), *(pytest.param(form, 60, marks=pytest.mark.slow) for form in FORMS)]
)
def test_a_run_that_is_killed_at_any_time_leaves_the_rows_of_one_run_or_none(tmp_path, form, rounds):
    """Two jobs overwrite each other's results, and each may be killed: what is there is of one of them, all of it."""
    rng = Random(f"{form} {rounds}")
    pq.write_table(pa.table({"x": range(20_000)}), tmp_path / "events.parquet")
    out, errors = tmp_path / f"out.{form}", tmp_path / "errors.jsonl"
    jobs: list[list[str]] = []
    whole: list[dict[str, list[Any]]] = []  # what each job writes, by the name of the folder
    for number, shown in enumerate((500, 700)):
        texts = "".join(f"{key},x >= {shown * key}\n" for key in range(10)) + "bad,x >\n" * shown
        subscriptions = put(tmp_path / f"subs-{number}.csv", "id,filter\n" + texts)
        given = {"events": str(tmp_path / "events.parquet"), "subscriptions": subscriptions}
        run(**given, out=str(out), errors=str(errors), overwrite=True)
        whole.append({each.name: rows_of(each) for each in (out, errors)})
        command = [sys.executable, "-m", "weft", "match", *given.values(), "--out", str(out), "--errors", str(errors)]
        jobs.append([*command, "--engine", "local", "--overwrite", "--no-lint"])
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
    longest, kills = 0.3, 0
    for turn in range(rounds):
        with subprocess.Popen(jobs[turn % 2], env=environment, stdout=subprocess.PIPE) as running:
            while not [*tmp_path.glob(f".*.weft-{running.pid}-*")] and running.poll() is None:
                sleep(0.002)
            begun = perf_counter()
            sleep(longest * rng.random())  # a random point of the time in which it writes
            running.kill()
            kills += running.wait() == -signal.SIGKILL
            longest = longest if running.returncode else max(longest, perf_counter() - begun)
        for place in (out, errors):
            assert not place.exists() or rows_of(place) in [each[place.name] for each in whole]
    assert kills
    assert subprocess.run(jobs[0], env=environment, check=False, capture_output=True).returncode == 0
    assert (rows_of(out), rows_of(errors)) == (whole[0][out.name], whole[0][errors.name])
    assert not [*tmp_path.glob(".*")]  # nothing is left of those that were killed


def test_a_run_that_fails_leaves_nothing(jobs):
    put(jobs / "bad.jsonl", '{"x":1}\n{"x":')
    with pytest.raises(PipelineError, match="it cannot be read"):
        run(events=str(jobs / "bad.jsonl"), subscriptions=str(jobs / "subs.csv"), out=str(jobs / "o.csv"), strict=True)
    assert sorted(path.name for path in jobs.iterdir()) == ["bad.jsonl", "events.parquet", "subs.csv"]


# -- memory ----------------------------------------------------------------------------------------------


def peak_of(*arguments: str) -> tuple[dict[str, Any], int]:
    """What a command of its own reports, and the most memory that it took."""
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parent.parent)}
    code = (
        "import json, resource, subprocess, sys;"
        "done = subprocess.run([sys.executable, '-m', 'weft', *sys.argv[1:]], capture_output=True, text=True);"
        "assert done.returncode == 0, done.stderr;"
        "print(json.dumps([json.loads(done.stdout), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))"
    )
    command = [sys.executable, "-c", code, *arguments]
    facts, peak = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    return facts, peak


@pytest.mark.slow
def test_memory_is_bounded_whatever_the_events(tmp_path):
    rng = np.random.default_rng(1)
    size, many = 3_000_000, 100_000
    events = {axis: rng.integers(0, 1000, size) for axis in "xyz"}
    pq.write_table(pa.table({"n": np.arange(size), **events}), tmp_path / "events.parquet")
    low = {axis: rng.integers(0, 900, many) for axis in "xyz"}
    ends = {f"{axis}_low": low[axis] for axis in "xyz"} | {f"{axis}_high": low[axis] + 40 for axis in "xyz"}
    pq.write_table(pa.table({"id": np.arange(many), **ends}), tmp_path / "subs.parquet")
    given = (str(tmp_path / "events.parquet"), str(tmp_path / "subs.parquet"), "--out", str(tmp_path / "o.parquet"))
    facts, peak = peak_of("match", *given, "--engine", "local", "--json")
    assert facts["events"] == size
    assert facts["matches"] > 5 * size
    assert peak < 1.5e9


@pytest.mark.slow
def test_memory_is_bounded_where_every_event_matches_everything(tmp_path):
    pq.write_table(pa.table({"x": np.arange(1_000)}), tmp_path / "events.parquet")
    rows = "".join(f"{number},x >= 0 OR x < {number}\n" for number in range(20_000))
    put(tmp_path / "subs.csv", "id,filter\n" + rows)
    given = (str(tmp_path / "events.parquet"), str(tmp_path / "subs.csv"), "--out", str(tmp_path / "o.parquet"))
    facts, peak = peak_of("match", *given, "--engine", "local", "--json")
    assert facts["matches"] == 1_000 * 20_000
    assert peak < 1.5e9
