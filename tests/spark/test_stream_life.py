"""The life of a stream's queries, without Spark: which ends are restarts, and which cause is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from pyspark.errors import StreamingQueryException

from weft.errors import PipelineError
from weft.spark import failures as told
from weft.spark.failures import failures, reason
from weft.spark.stream import RESTARTS, MatchStream
from weft.spark.stream_batches import StoppedError, StreamBatches
from weft.spark.stream_job import StreamJob, changed_subscriptions, wait_for_files
from weft.spark.stream_journal import StreamJournal, is_network_folder

LATE = "[STREAM_FAILED] ... SparkException: Python worker failed to connect back."


class Query:
    """A query that has ended, perhaps with an error, or that goes on until it is stopped."""

    def __init__(self, error=None, *, active=False, at_stop=lambda: None):
        self.error, self.isActive, self._at_stop = error, active, at_stop
        self.lastProgress = None

    def awaitTermination(self, _=None):
        if not self.isActive and self.error is not None:
            raise StreamingQueryException(message=self.error)

    def stop(self):
        self.isActive = False
        self._at_stop()


class Lock:
    def release(self):
        pass


@pytest.fixture
def batches(tmp_path):
    journal = StreamJournal(tmp_path)
    yield StreamBatches(tmp_path, journal, None, None)
    journal.close()


def stream_of(batches, *lives):
    """A stream of queries, each of which lives through some queries, one after another."""
    stream, notes = MatchStream(None, batches, Lock()), []
    stream._note = notes.append
    for life in lives:
        stream._run(iter(life).__next__)
    return stream, notes


def test_a_query_goes_on_after_a_worker_that_was_late(batches):
    stream, notes = stream_of(batches, [Query(LATE), Query(LATE), Query()])
    assert stream.wait()
    assert [note.partition("(")[2] for note in notes] == [f"attempt {at} of {RESTARTS})" for at in (1, 2)]
    assert "continues from its checkpoint" in notes[0]


def test_workers_that_are_always_late_end_a_stream(batches):
    stream, notes = stream_of(batches, [Query(LATE) for _ in range(RESTARTS + 1)])
    with pytest.raises(PipelineError, match=r"the stream failed: .*failed to connect back"):
        stream.wait()
    assert len(notes) == RESTARTS


def test_restarts_are_counted_anew_after_a_micro_batch(batches):
    many = 3 * RESTARTS

    def starts():
        for batch in range(many):
            batches.last = batch
            yield Query(LATE)
        yield Query()

    stream, notes = stream_of(batches, starts())
    assert stream.wait()
    assert len(notes) == many


def test_any_other_end_is_an_error_and_no_restart(batches):
    stream, notes = stream_of(batches, [Query("the disk is on fire"), Query()])
    with pytest.raises(PipelineError, match="the stream failed: the disk is on fire"):
        stream.wait()
    assert notes == []


def test_the_end_of_the_other_query_does_not_hide_the_cause(batches):
    @batches.guarded
    def interrupted(frame, batch):
        raise OSError("the job was cancelled")

    def at_stop():
        with pytest.raises(PipelineError):
            interrupted(None, 0)

    stream, _ = stream_of(batches, [Query("the source is gone")], [Query(active=True, at_stop=at_stop)])
    with pytest.raises(PipelineError, match=r"^the stream failed: the source is gone$"):
        stream.wait()


def test_a_micro_batch_that_begins_while_a_stream_stops_is_no_failure(batches):
    stream, _ = stream_of(batches, [Query(active=True)])
    stream.stop()
    with pytest.raises(StoppedError):
        batches.guarded(batches.events)(None, 1)
    assert batches.failure is None
    assert stream.wait()


def test_a_long_reason_keeps_its_end():
    said = reason(ValueError("begin " + "x" * 5_000 + " because of this"))
    assert len(said) < 1_100
    assert said.startswith("begin ")
    assert said.endswith(" because of this")


def test_a_stopped_context_and_a_killed_java_are_named(monkeypatch):
    from py4j.protocol import Py4JError

    with pytest.raises(PipelineError, match="its master cannot be reached, or has ended this application"), failures():
        raise Py4JError("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at: ...")
    for ended, kind in ((True, PipelineError), (False, ConnectionRefusedError)):
        monkeypatch.setattr(told, "java_has_ended", lambda ended=ended: ended)
        with pytest.raises(kind) as caught, failures():
            raise ConnectionRefusedError(111, "Connection refused")
        assert ("the Java process of Spark has ended" in str(caught.value)) == ended


# -- a job -------------------------------------------------------------------------------------------


def job_of(tmp_path, **options):
    given = {"subscriptions": str(tmp_path / "rules.csv"), "out": str(tmp_path / "out")} | options
    return StreamJob(events=str(tmp_path / "incoming"), checkpoint=str(tmp_path / "state"), **given)


def test_an_empty_folder_is_waited_for(tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    (folder / "_hidden.json").touch()
    with pytest.raises(PipelineError, match=r"incoming has no files, so the columns of the events are not known"):
        wait_for_files(job_of(tmp_path, once=True), lambda _: None, threading.Event())
    said = []

    def note(text):
        said.append(text)
        (folder / "first.jsonl").write_text('{"x": 1}')

    assert wait_for_files(job_of(tmp_path), note, threading.Event())
    assert said == [f"{folder} is empty: waiting for the first file"]
    assert wait_for_files(job_of(tmp_path, once=True), note, threading.Event())
    (folder / "first.jsonl").unlink()
    stopping = threading.Event()
    assert not wait_for_files(job_of(tmp_path), lambda _: stopping.set(), stopping)


def test_subscriptions_that_have_changed_since_the_start_are_noted(tmp_path):
    from weft.spark.stream_job import SUBSCRIPTIONS, _digest

    job = job_of(tmp_path)
    (tmp_path / "rules.csv").write_text("id,filter\n1,x > 1\n")
    assert changed_subscriptions(job) == ""  # an older checkpoint does not know
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / SUBSCRIPTIONS).write_text(_digest(job.subscriptions))
    assert changed_subscriptions(job) == ""
    (tmp_path / "rules.csv").write_text("id,filter\n1,x > 2\n")
    assert "is not read: it continues with the subscriptions of its checkpoint" in changed_subscriptions(job)


@pytest.mark.parametrize(("kind", "shared"), [("nfs4", True), ("ext4", False), ("fuse.sshfs", True)])
def test_a_journal_on_a_network_file_system_has_no_wal(tmp_path, monkeypatch, kind, shared):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / xfs rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\nproc /proc proc rw 0 0\n")
    assert is_network_folder(tmp_path / "state", mounts) == shared
    assert not is_network_folder(tmp_path, tmp_path / "nowhere")
    monkeypatch.setattr("weft.spark.stream_journal.is_network_folder", lambda _: shared)
    journal = StreamJournal(tmp_path)
    (mode,) = journal._connection.execute("PRAGMA journal_mode").fetchone()
    journal.close()
    assert mode == ("delete" if shared else "wal")


LATE_WORKER = """
import sys
from pathlib import Path
from weft.spark import match_stream, register, session, stream_results
from weft.testing import broker

place = Path(sys.argv[1])
spark = session("local[2]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
register(spark)
with broker(place / "data") as local:
    with local.connect_sync() as client:
        client.publish_many({"n": n} for n in range(50))
    events = spark.readStream.format("weft").option("url", local.address).schema("n bigint").load()
    initial = spark.createDataFrame([(1, "n > 9")], "id int, filter string")
    notes = []
    stream = match_stream(
        events, None, place / "state", place / "out", initial=initial, once=True, note=notes.append
    )
    assert stream.wait()
    assert stream_results(spark, place / "out").count() == 40
    assert notes and all("continues from its checkpoint" in note for note in notes), notes
spark.stop()
print("it went on")
"""


@pytest.mark.slow
def test_a_stream_goes_on_when_spark_gives_up_on_a_worker(tmp_path):
    late, python = tmp_path / "was-late", tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *python_streaming_source_runner*) [ -e {late} ] || {{ touch {late}; sleep 15; }};; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text(LATE_WORKER)
    env = {**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)
    assert done.stdout.endswith("it went on\n"), done.stderr[-3000:]
    assert late.exists()
