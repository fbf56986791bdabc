"""A broker's log as a Spark table: every event one row, the same rows for the same offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from spark.log_events import WrittenLog
from weft import Schema
from weft.cli.app import app
from weft.errors import LogError, PipelineError
from weft.log.base import Offset
from weft.spark import register, stream_results
from weft.spark.log_columns import LogColumns
from weft.spark.log_source import LogFile, LogStream, WeftSource, slices
from weft.spark.stream_job import StreamJob, read_events

TIME = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def log(tmp_path):
    written = WrittenLog(tmp_path / "data")
    yield written
    written.close()


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "data")


def rows(directory, columns="", first=1, end=100):
    wanted = LogColumns.of([tuple(each.split()) for each in columns.split(", ")])
    return [row for batch in wanted.batches(LogFile(directory).read(first, end)) for row in batch.to_pylist()]


def test_an_event_is_a_row(log, directory):
    log.append(
        {"id": "7", "source": "here", "time": TIME, "x": 3, "y": 1.5, "ok": True}, payload=b"p", content_type="t"
    )
    log.append({"x": 2**53 + 1, "y": 4}, {"x": "text", "y": True, "ok": 1})
    columns = "x bigint, _offset bigint, y double, ok boolean, time timestamp, id string, _payload binary"
    found = rows(directory, f"{columns}, _content_type string, _session bigint, _epoch bigint, _sequence bigint")
    assert [row["x"] for row in found] == [3, 2**53 + 1, None]  # a value of another type is absent
    assert [row["y"] for row in found] == [1.5, 4.0, None]
    assert [row["ok"] for row in found] == [True, None, None]
    assert [row["_offset"] for row in found] == [1, 2, 3]
    assert found[0]["time"] == TIME
    assert (found[0]["_payload"], found[0]["_content_type"], found[1]["_content_type"]) == (b"p", "t", None)
    assert (found[1]["_session"], found[1]["_epoch"], found[1]["_sequence"]) == (77, 2, 2)


def test_types_are_declared_or_inferred(log, directory, tmp_path):
    log.append({"x": 1, "s": "a"}, {"x": 1.5, "t": TIME, "b": False})
    ddl = WeftSource({"path": directory}).schema()
    assert ddl.startswith("`x` double, `s` string, `t` timestamp, `b` boolean, `_offset` bigint, `_at` timestamp")
    log.append({"s": 5})
    with pytest.raises(PipelineError, match="'s' is string in some events and int in others: give a schema"):
        WeftSource({"path": directory}).schema()
    declared = WrittenLog(tmp_path / "declared", Schema.of(s="string", n="int"))
    declared.append({"s": 5, "other": 1})
    declared.close()
    assert WeftSource({"path": str(tmp_path / "declared")}).schema().startswith("`n` bigint, `s` string, `_offset`")


def test_an_event_that_cannot_be_decoded_is_a_broken_row(log, directory):
    log.append({"x": 1}, heads=[b"\x91\x81\xa1x\x05", b"garbage"])
    assert [row["_corrupt_record"] for row in rows(directory, "x bigint, _corrupt_record string")] == [
        None,
        f"the event at offset 2: {b'garbage'.hex()}",
    ]
    with pytest.raises(LogError, match="the event at offset 2 cannot be decoded"):
        rows(directory, "x bigint")


def test_slices_hold_every_offset_once(log, directory):
    for size in (1, 4, 2):
        log.append(*({"x": n} for n in range(size)))
    found = [
        [event.offset for event in LogFile(directory).read(each.first, each.end)] for each in slices(1, log.next, 3)
    ]
    assert found == [[1, 2, 3], [4, 5, 6], [7]]


def test_a_stream_that_reads_what_is_there_now_takes_several_micro_batches_and_ends(log, directory):
    stream = LogStream(LogFile(directory), LogColumns.of([("x", "bigint")]), 0, 3, 3, True)
    log.append(*({"x": n} for n in range(7)))
    stream.prepareForTriggerAvailableNow()
    at, seen = stream.initialOffset(), []
    for _ in range(5):
        log.append({"x": 100})  # comes later
        at = stream.latestOffset(at, stream.getDefaultReadLimit())
        seen.append(at["next"])
    assert seen == [4, 7, 8, 8, 8]


def test_what_was_removed_is_not_passed_over(log, directory):
    stream = LogStream(LogFile(directory), LogColumns.of([("x", "bigint")]), 0, 3, 5, True)
    for _ in range(4):
        log.append({"x": 1}, {"x": 2})
    start = stream.initialOffset()
    assert start["next"] == 1
    assert stream.latestOffset(start, stream.getDefaultReadLimit())["next"] == 6
    end = stream.reportLatestOffset()
    assert [(each.first, each.end) for each in stream.partitions(start, end)] == [(1, 4), (4, 7), (7, 9)]
    log.log.trim(Offset(5))
    with pytest.raises(LogError, match=r"from offset 1 to 4 were removed.*failOnDataLoss"):
        stream.partitions(start, end)
    with pytest.raises(LogError, match="from offset 4 to 4 were removed"):
        list(stream.read(slices(4, 6, 3)[0]))
    lenient = LogStream(LogFile(directory), LogColumns.of([("x", "bigint")]), 0, 3, 5, False)
    assert sum(b.num_rows for s in lenient.partitions(start, end) for b in lenient.read(s)) == 4
    assert [b.num_rows for b in stream.read(slices(5, 8, 3)[0])] == [3]
    with pytest.raises(LogError, match="not the one that this stream began with"):
        stream.latestOffset({"log": "other", "next": 5}, stream.getDefaultReadLimit())


def test_options_that_are_wrong_are_named(log, directory, tmp_path):
    for options, why in [
        ({}, "name the broker's data directory"),
        ({"path": directory, "frist": "3"}, "no option 'frist'.*did you mean 'first'"),
        ({"path": directory, "maxRows": "0"}, "the option maxrows of the format weft is a number, not '0'"),
    ]:
        with pytest.raises(PipelineError, match=why):
            WeftSource(options)
    with pytest.raises(PipelineError, match=r"has no log: there is no log\.sqlite"):
        WeftSource({"path": str(tmp_path)}).schema()
    with pytest.raises(PipelineError, match="'x' is of type array<int>: attributes are of type bigint"):
        LogColumns.of([("x", "array<int>")])
    with pytest.raises(PipelineError, match="the column '_offset' of a log is of type bigint, not int"):
        LogColumns.of([("_offset", "int")])


def test_spark_reads_the_log(spark, log, directory):
    register(spark)
    for n in range(6):
        log.append({"x": n, "s": f"s{n}"}, {"x": n + 0.5})
    table = spark.read.format("weft").option("rowsPerPartition", 5).load(directory)
    assert table.rdd.getNumPartitions() == 3
    assert [(row.x, row.s) for row in table.orderBy("_offset").collect()][:3] == [(0, "s0"), (0.5, None), (1, "s1")]
    assert table.where("x > 4").count() == 3
    few = spark.read.format("weft").schema("s string, _offset bigint").option("first", 9).load(directory)
    assert [tuple(row) for row in few.orderBy("_offset").collect()] == [("s4", 9), (None, 10), ("s5", 11), (None, 12)]


def test_a_stream_over_an_empty_log_needs_a_schema(spark, log, directory, tmp_path):
    job = StreamJob(directory, str(tmp_path / "state"), str(tmp_path / "out"), commands=str(tmp_path))
    with pytest.raises(PipelineError, match="is empty, so the attributes of its events are not known"):
        read_events(spark, job)
    declared = replace(job, schema=Schema.of(x="int", s="string"))
    assert read_events(spark, declared).columns[:2] == ["x", "s"]
    assert read_events(spark, job).columns[:2] == ["x", "s"]  # the checkpoint knows them now


@pytest.mark.slow
def test_the_command_matches_a_log_and_files(spark, log, directory, tmp_path):
    invoke = CliRunner().invoke
    rules = tmp_path / "rules.csv"
    rules.write_text("id,filter\n1,x > 2\n2,s = 's1'\n3,x >\n")
    changes = tmp_path / "changes"
    changes.mkdir()
    for n in range(4):
        log.append({"x": n, "s": f"s{n % 2}"})
    out, state = tmp_path / "out", tmp_path / "state"
    arguments = ["stream", directory, str(rules), "--commands", str(changes), "--out", str(out)]
    arguments += ["--checkpoint", str(state), "--once", "--json", "--carry", "x,s,_offset", "--metrics-port", "0"]
    done = invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["events"], facts["commands_left_out"], facts["subscriptions_left_out"]) == (4, 0, 1)
    assert "batch 0: 4 events, 3 matches, version 0 (2 subscriptions)" in done.stderr
    for name, lines in [
        ("a.json", [("replace", 1, "x = 0"), ("replace", 2, "TRUE")]),
        ("b.json", [("unsubscribe", 2)]),
    ]:
        rows = (dict(zip(("action", "id", "filter"), line, strict=False)) for line in lines)
        (changes / name).write_text("\n".join(map(json.dumps, rows)) + "\n")
    log.append({"x": 0, "s": "s1", "later": 5})
    assert invoke(app, arguments, catch_exceptions=False).exit_code == 0
    found = sorted((row.x, row.subscription, row.batch) for row in stream_results(spark, out).collect())
    assert found == [(0, 1, 1), (1, 2, 0), (3, 1, 0), (3, 2, 0)]
    wrong = invoke(app, ["stream", directory, "--out", str(out), "--checkpoint", str(state)])
    assert wrong.exit_code == 1
    assert isinstance(wrong.exception, SystemExit)
