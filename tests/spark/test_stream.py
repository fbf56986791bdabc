"""Streams on Spark: each micro-batch equals `match` at its recorded version, and nothing is lost or written twice."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request

import pytest

from spark.stream_files import StreamFiles, shown
from weft.errors import PipelineError
from weft.spark import Watermark, match, match_stream, stream_errors, stream_metrics, stream_results
from weft.spark.stream_prometheus import StreamExporter
from weft.spark.stream_tables import stored_metrics


@pytest.fixture
def files(spark, tmp_path):
    return StreamFiles(spark, tmp_path)


def run(files, sink=None, **options):
    options = {"order": "nr", "once": True} | options
    stream = match_stream(files.events(), files.commands(), files.checkpoint, sink or files.out, **options)
    assert stream.wait()
    return stream


def test_every_micro_batch_equals_match_at_its_version(files):
    files.command("subscribe", 1, "x > 5").command("subscribe", 2, "s = 's1'").flush()
    files.event(20).flush()
    run(files)
    files.command("replace", 1, "x = 0").command("unsubscribe", 2).command("subscribe", 3, "x < 4 OR s = 's0'").flush()
    files.event(20).flush()
    lines = []
    run(files, tell=lambda metrics: lines.append(metrics.line()))
    files.check()
    assert [(row.batch, row.version, row.subscriptions, row.events) for row in stored_metrics(files.checkpoint)] == [
        (0, 2, 2, 20),
        (1, 5, 2, 20),
    ]
    assert len(lines) == 1
    assert lines[0].startswith("batch 1: 20 events, ")
    plain = files.spark.read.parquet(str(files.out))  # whoever knows nothing of manifests sees the same
    assert plain.count() == stream_results(files.spark, files.out).count() > 0
    metrics = stream_metrics(files.spark, files.checkpoint)
    assert metrics.where("trigger_seconds > 0").count() == 2


def test_a_micro_batch_that_runs_again_is_the_same(files):
    files.command("subscribe", 1, "x > 5").flush()
    files.event(15).flush()
    run(files)
    before = files.rows()
    for lost in (True, False):  # crashed before the results were committed, or after
        for name in ("0", ".0.crc"):
            (files.checkpoint / "events" / "commits" / name).unlink()
            (files.checkpoint / "commands" / "commits" / name).unlink(missing_ok=True)
        if lost:
            shutil.rmtree(files.out / "batch=0")
        files.command("replace", 1, f"x > {int(lost)}").flush()  # comes later than the micro-batch began
        run(files)
        assert files.rows() == before
    files.event(15).flush()
    run(files)
    files.check()
    assert [row.version for row in stored_metrics(files.checkpoint)] == [1, 3]
    assert not (files.checkpoint / "events" / "state").exists()  # so nothing was evaluated twice


def test_malformed_commands_and_events_are_in_the_errors_table(files):
    files.command("subscribe", 1, "x > 5").command("subscribe", 2, "x >").line("commands", "{not JSON").flush()
    files.event(3).line("events", '{"n": "many"}').line("events", json.dumps({"n": 4, "t": "+12345-01-01"})).flush()
    stream = run(files)
    assert (stream.commands_left_out, stream.subscriptions_left_out) == (2, 0)
    found = {(row.side, row.row): row.reason for row in stream_errors(files.spark, files.checkpoint).collect()}
    assert found[("command", "{not JSON")] == "it cannot be read"
    assert found[("event", '{"n": "many"}')] == "it cannot be read"
    (reason,) = (reason for (side, row), reason in found.items() if side == "command" and '"x >"' in row)
    assert reason.startswith("expected an attribute")
    assert len(found) == 4
    (metrics,) = stored_metrics(files.checkpoint)
    assert (metrics.events, metrics.refused) == (3, 2)
    files.check()


def test_the_driver_matches_small_micro_batches_as_workers_do(files):
    files.command("subscribe", 1, "x > 5").command("subscribe", 2, "s = 's1'").flush()
    bad = json.dumps({"n": 4, "t": "+12345-01-01"})
    for many in (9, 5, 30, 7):
        files.event(many).line("events", bad).flush()
    stream = match_stream(
        files.events(limit=1), files.commands(), files.checkpoint, files.out, order="nr", once=True, driver_rows=20
    )
    assert stream.wait()
    files.check()
    assert [(row.events, row.refused) for row in stored_metrics(files.checkpoint)] == [(9, 1), (5, 1), (30, 1), (7, 1)]
    assert stream_errors(files.spark, files.checkpoint).count() == 4
    alone = [(files.out / f"batch={batch}" / "part-00000.parquet").exists() for batch in range(4)]
    assert alone == [False, True, True, False]  # the first, and the one after thirty, were the workers'


def test_a_sink_gets_the_same_rows_until_it_has_returned(files):
    files.command("subscribe", "ä", "x > 3").command("subscribe", "b", "s = 's1'").flush()
    files.event(12).flush()
    seen = []

    def sink(frame, batch):
        seen.append((batch, [tuple(row) for row in frame.collect()]))
        if len(seen) == 1:
            raise OSError("the sink is away")

    with pytest.raises(PipelineError, match="the stream failed: the sink is away"):
        run(files, sink, carry=["n"])
    files.command("replace", "b", "x = 1").flush()
    run(files, sink, carry=["n"])
    assert seen[0] == seen[1]
    assert [batch for batch, _ in seen] == [0, 0]
    assert {key for _, key in seen[0][1]} == {"ä", "b"}
    files.event(5).flush()
    run(files, sink, carry=["n"])
    assert [batch for batch, _ in seen] == [0, 0, 1]
    assert [path.name for path in (files.checkpoint / "staged").glob("batch=*")] == ["batch=1"]


def test_late_and_duplicate_events_are_left_out(files):
    files.command("subscribe", 1, "TRUE").flush()
    known = {"source": "a", "id": "1", "t": "2024-01-01T00:10:00Z"}
    files.event(1, **known).event(1, **known).event(1, **(known | {"id": "2"})).flush()
    files.event(1, t="2024-01-01T00:10:00Z").event(1, t="2024-01-01T00:10:00Z").flush()  # without identity
    watermark = Watermark("1 minute", time="t")
    run(files, watermark=watermark, output="counts")
    files.event(1, **known).event(1, **(known | {"id": "9", "t": "2024-01-01T00:11:30Z"})).flush()
    run(files, watermark=watermark, output="counts")
    files.event(1, **(known | {"id": "3", "t": "2024-01-01T00:01:00Z"})).event(1, source="b", id="7").flush()
    run(files, watermark=watermark, output="counts")
    rows = stream_results(files.spark, files.out).collect()
    assert sorted((row.id or "", row.source or "", row.matches) for row in rows) == [
        ("", "", 1),
        ("", "", 1),
        ("1", "a", 1),
        ("2", "a", 1),
        ("7", "b", 1),
        ("9", "a", 1),
    ]
    metrics = stored_metrics(files.checkpoint)
    assert sum(row.late or 0 for row in metrics) == 1
    assert sum(row.duplicates or 0 for row in metrics) == 2


def test_with_a_watermark_a_stream_goes_on_after_a_stop_and_after_a_kill(files):
    files.command("subscribe", 1, "TRUE").flush()
    known = {"source": "a", "id": "1", "t": "2024-01-01T00:10:00Z"}
    files.event(1, **known).flush()
    options = {"watermark": Watermark("1 minute", time="t"), "carry": ["n"]}
    run(files, **options)
    commits = files.checkpoint / "events" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):  # as if it had been killed between our commit and Spark's
        (commits / name).unlink()
    files.event(1, **known).event(1, **(known | {"id": "2"})).flush()
    finished = []
    options |= {"order": "nr", "tell": lambda metrics: finished.append(metrics.batch)}
    stream = match_stream(files.events(), files.commands(), files.checkpoint, files.out, **options)
    until(lambda: not stream.active or sum(row.matches or 0 for row in stored_metrics(files.checkpoint)) == 2)
    stream.stop()
    assert (commits / f"{finished[-1]}").exists()  # Spark knows that it is done
    assert files.rows() == [(0, 1), (2, 1)]


def test_subscriptions_change_while_a_stream_runs(files):
    initial = files.spark.createDataFrame([(1, "x > 5"), (2, "x < ")], "id int, filter string")
    files.event(5).flush()
    exporter = StreamExporter(0)
    options = {"initial": initial, "tell": exporter.tell}
    stream = match_stream(files.events(), files.commands(), files.checkpoint, files.out, **options)
    until(lambda: scraped(exporter.port)["batches_total"] == 1)
    assert scraped(exporter.port)["events_total"] == 5
    with pytest.raises(PipelineError, match="is in use by process"):
        match_stream(files.events(), files.commands(), files.checkpoint, files.out)
    files.command("subscribe", 7, "x < 3").flush()
    until(lambda: stream.version == 1)
    files.event(10).flush()
    until(lambda: scraped(exporter.port)["batches_total"] == 2)
    shown_there = scraped(exporter.port)
    exporter.close()
    (refused,) = stream_errors(files.spark, files.checkpoint).collect()
    assert (refused.side, refused.row) == ("subscription", '{"id":2,"filter":"x < "}')
    assert (stream.commands_left_out, stream.subscriptions_left_out) == (0, 1)
    assert stream.active
    assert not stream.wait(0.1)
    stream.stop()
    assert not stream.active
    files.check({1: "x > 5"})
    metrics = stored_metrics(files.checkpoint)
    assert (shown_there["events_total"], shown_there["batch_seconds_count"]) == (15, 2)
    assert shown_there["matches_total"] == sum(row.matches for row in metrics) == len(files.rows()) > 0
    assert shown_there["refused_total"] == 0
    assert (shown_there["version"], shown_there["subscriptions"]) == (1, 2)
    assert shown_there["batch_seconds_sum"] == pytest.approx(sum(row.seconds for row in metrics))
    with pytest.raises(PipelineError, match="has the results of another checkpoint: choose another folder"):
        match_stream(files.events(), files.commands(), files.root / "new", files.out)


def test_a_stream_that_cannot_run_says_why(files):
    spark, events, commands = files.spark, files.events(), files.commands()
    still = spark.createDataFrame([(1, "x > 5")], "id int, filter string")
    for why, arguments, options in [
        ("the events are not a stream", (still, commands, files.checkpoint, files.out), {}),
        ("the commands are not a stream.*pass `initial`", (events, still, files.checkpoint, files.out), {}),
        ("the commands have no column 'action'", (events, events, files.checkpoint, files.out), {}),
        (
            "no column 'number', only action, id, filter, nr$",
            (events, commands, files.checkpoint, files.out),
            {"order": "number"},
        ),
        ("differ in type", (events, files.commands("string"), files.checkpoint, files.out), {"initial": still}),
        ("no column 'tiem'", (events, commands, files.checkpoint, files.out), {"watermark": Watermark("1 s", "tiem")}),
        (
            "no column 'when', which the watermark needs, only n, x, s, source, id, t$",
            (events, commands, files.checkpoint, files.out),
            {"watermark": Watermark("1 s", "when")},
        ),
        ("of type string", (events, commands, files.checkpoint, files.out), {"watermark": Watermark("1 s", "s")}),
        ("is not a folder", (events, commands, "s3a://bucket/checkpoint", files.out), {}),
        ("a column 'batch'", (events.withColumnRenamed("x", "batch"), commands, files.checkpoint, files.out), {}),
    ]:
        with pytest.raises(PipelineError, match=why):
            match_stream(*arguments, **options)
    with pytest.raises(PipelineError, match="use match_stream"):
        match(events, commands)
    with pytest.raises(PipelineError, match="omit strict"):
        match(events, still, strict=True)
    with pytest.raises(PipelineError, match="use the strategy index"):
        match(events, still, strategy="partitioned")
    with pytest.raises(PipelineError, match="is not the checkpoint of a stream"):
        stream_metrics(spark, files.root / "nowhere")
    with pytest.raises(PipelineError, match="has no results of a stream"):
        stream_results(spark, files.root / "nowhere")


def test_match_takes_a_stream_with_fixed_subscriptions(files):
    files.event(10).flush()
    still = files.spark.createDataFrame([(1, "x > 5"), (2, "s = 's1'")], "id int, filter string")
    for strategy in ("index", "sql"):
        name = f"fixed_{strategy}"
        found = match(files.events(), still, strategy=strategy)
        query = found.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = files.spark.table(name).collect()
        assert shown(rows) == files.expected({1: "x > 5", 2: "s = 's1'"}, files.sent)


def until(holds):
    deadline = time.monotonic() + 600  # Spark takes minutes to start where twenty others want the processor
    while not holds():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def scraped(port):
    """What Prometheus would read from a stream, by the name after the prefix."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.removeprefix("weft_stream_").split() for line in lines if line.startswith("weft_stream_"))
    return {name: float(value) for name, value in found if "{" not in name}
