"""Streams whose processes are killed: whatever dies and when, every event is in the results once, at its version."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from server.broker_program import BrokerProgram
from spark.stream_driver import WATERMARK, published
from spark.stream_files import StreamFiles
from spark.test_broker_stream import rows
from spark.test_stream import scraped, until
from weft.errors import PipelineError
from weft.spark import match_stream, register
from weft.spark.session import JAVA_HAS_ENDED
from weft.spark.stream_tables import stored_metrics

DRIVER = Path(__file__).with_name("stream_driver.py")
ROUNDS = 4
PATIENCE = 900  # seconds that a driver may take, on a busy machine


def descendants(pid):
    """All processes below one, and what each was started as."""
    below = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(place.name))
            except OSError:
                continue  # it has ended
    found, some = [], [pid]
    while some:
        some = [child for each in some for child in below.get(each, [])]
        found += some
    return found


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def workers(pid):
    """The Python workers below a process: children of a daemon of PySpark."""
    daemons = [each for each in descendants(pid) if b"pyspark.daemon" in command(each)]
    return [each for daemon in daemons for each in descendants(daemon)]


def java(pid):
    """The Java of a driver, which for a moment has copies of itself below it, when it starts a process."""
    return next(each for each in descendants(pid) if b"org.apache.spark.deploy.SparkSubmit" in command(each))


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def feed(files, rng, rounds, watermark=False):
    """Some events, and commands among them, a file at a time; with a watermark, also duplicates and late events."""
    for _ in range(rounds):
        key = rng.randrange(6)
        action = rng.choice(["replace", "replace", "unsubscribe", "subscribe"])
        files.command(action, key, None if action == "unsubscribe" else f"x > {rng.randrange(10)}")
        feed_events(files, rng, watermark)
        files.flush()


def feed_events(files, rng, watermark):
    """Some events; with a watermark, each has an identity, and what must be left out comes with them."""
    if not watermark:
        files.event(rng.randrange(1, 30))
        return
    before = len(files.sent)
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=before)
    for number in range(before, before + rng.randrange(1, 30)):
        files.event(source="a", id=str(number), t=at.isoformat())
    for event in rng.sample(files.sent[:before], min(before, 5)):
        files.repeat(event)
    if (
        len([*(files.root / "events").iterdir()]) > 1
    ):  # Spark leaves out what is late by the micro-batch before the last
        files.repeat({**files.sent[0], "id": f"late-{before}", "t": (at - timedelta(days=1)).isoformat()})


def run(files, watermark=False):
    options = {"order": "nr", "once": True, "driver_rows": 0, "watermark": WATERMARK if watermark else None}
    match_stream(files.events(limit=1), files.commands(), files.checkpoint, files.out, **options).wait()


def test_a_worker_that_is_killed_costs_no_event(spark, tmp_path):
    rng = random.Random(1)
    files = StreamFiles(spark, tmp_path)
    jvm = spark.sparkContext._gateway.proc.pid
    killed = []
    for _ in range(2):
        feed(files, rng, 3)
        ended = threading.Event()

        def killer(ended=ended):
            while not ended.wait(0.05):
                found = workers(jvm)
                if found and kill(rng.choice(found)):
                    killed.append(found)
                    return

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            with suppress(PipelineError):  # this session does not try tasks again
                run(files)
        finally:
            ended.set()
            thread.join()
    run(files)
    assert killed
    files.check()


class KilledDriver(subprocess.Popen):
    """A program with a session and a stream of its own, which runs until it is killed."""

    def __init__(self, root, **options):
        self._log = root / "driver.log"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        program = [sys.executable, str(DRIVER), str(root), json.dumps(options)]
        with self._log.open("ab") as said:
            super().__init__(program, stdout=subprocess.PIPE, text=True, stderr=said, env=env)
        self._watchdog = threading.Timer(PATIENCE, self.end, ["everything"])  # one that hangs fails the test
        self._watchdog.start()

    def line(self, start):
        """Wait until it prints a line that begins so: of a micro-batch that is committed, or of a query that ended."""
        for line in self.stdout:
            if line.startswith(start):
                return line
        raise AssertionError(f"the driver has ended: {self.log()}")

    def log(self):
        return self._log.read_text()

    def end(self, target):
        """Kill the driver's Python, its Java, or everything that it has started; returns whether that was alive."""
        below = descendants(self.pid)
        alive = self.poll() is None and kill(java(self.pid) if target == "java" else self.pid)
        if target == "everything":
            for each in below:
                kill(each)
        if target == "java":
            self.wait()
        until_gone(below)
        return alive

    def __exit__(self, *failure):
        self._watchdog.cancel()
        self.end("everything")
        super().__exit__(*failure)


WITH_AND_WITHOUT = pytest.mark.parametrize("watermark", [False, True], ids=["plain", "watermark"])


@pytest.mark.slow
@WITH_AND_WITHOUT
@pytest.mark.parametrize("target", ["python", "java", "everything"])
def test_a_driver_that_is_killed_costs_no_event(spark, tmp_path, target, watermark):
    rng = random.Random(f"{target} {watermark}")
    files = StreamFiles(spark, tmp_path)
    for _ in range(ROUNDS):
        feed(files, rng, 3, watermark)
        with KilledDriver(tmp_path, driver_rows=rng.choice([0, 1000]), watermark=watermark) as driver:
            for _ in range(rng.randrange(1, 3)):
                driver.line("batch")
                feed(files, rng, 1, watermark)
            time.sleep(rng.random())  # a random point
            assert driver.end(target)
            if target == "java":
                assert driver.log().rstrip().endswith(JAVA_HAS_ENDED)
    check_the_rest(files, watermark)


@pytest.mark.slow
@WITH_AND_WITHOUT
def test_a_stream_goes_on_when_its_workers_are_killed(spark, tmp_path, watermark):
    rng = random.Random("worker")
    files = StreamFiles(spark, tmp_path)
    feed(files, rng, 3, watermark)
    kills = 0
    with KilledDriver(tmp_path, driver_rows=0, watermark=watermark) as driver:
        driver.line("batch")
        while kills < ROUNDS:
            kills += sum(map(kill, workers(driver.pid))) > 0
            feed(files, rng, 2, watermark)
            driver.line("batch")
            time.sleep(rng.random())  # a random point
    check_the_rest(files, watermark)


def check_the_rest(files, watermark):
    """Match what a killed stream has left, and compare everything with the oracle."""
    run(files, watermark)
    files.check()
    versions = [path.name for path in (files.checkpoint / "versions").iterdir()]
    assert len(versions) == 1
    assert all(row.events is not None for row in stored_metrics(files.checkpoint))


def published_batches(files):
    """How many micro-batches of a query that publishes Spark has stored as done."""
    return len([*(files.checkpoint / "commits").glob("[0-9]*")])


def feed_each(queries, rng, watermark):
    for files in queries.values():
        feed_events(files, rng, watermark)
        files.flush()


@pytest.mark.slow
@WITH_AND_WITHOUT
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_rows_are_published_once_whatever_is_killed(spark, tmp_path, shared, watermark):
    """Two queries, at times with one folder for staging: that belongs to the first, and the second is refused."""
    register(spark)
    rng = random.Random(f"{shared} {watermark}")
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    queries = {name: StreamFiles(spark, tmp_path / name) for name in ("first", "second")}
    staging = str(tmp_path / "staging") if shared else None
    targets = ["python", "java", "everything", "worker", "broker"]
    rng.shuffle(targets)
    with BrokerProgram(tmp_path / "data") as broker:
        for turn, target in enumerate(targets):
            feed_each(queries, rng, watermark)
            options = {"url": broker.listen, "watermark": watermark, "staging": staging}
            folders = [*queries] if turn else ["first"]  # which the folder belongs to from now on
            with KilledDriver(tmp_path, **options, folders=folders) as driver:
                done = published_batches(queries["first"])
                if shared and turn:
                    assert "ended second" in (said := driver.line("ended"))
                    assert "has the rows of another query" in said
                until(lambda done=done: published_batches(queries["first"]) > done)
                feed_each(queries, rng, watermark)
                time.sleep(rng.random())  # a random point
                if target == "worker":
                    for _ in range(20):
                        sum(map(kill, workers(driver.pid)))
                        feed_each(queries, rng, watermark)
                        time.sleep(rng.random() / 5)
                elif target == "broker":  # the query waits for it
                    done = published_batches(queries["first"])
                    broker.kill()
                    feed_each(queries, rng, watermark)
                    broker.start()
                    until(lambda done=done: published_batches(queries["first"]) > done)
                else:
                    assert driver.end(target)
        for name, files in queries.items():
            query = published(spark, files.root, broker.listen, watermark, staging if name == "first" else None)
            query.trigger(availableNow=True).start().awaitTermination()
        sent = [(event["n"],) for files in queries.values() for event in files.sent]
        assert rows(broker.listen, "n bigint") == sorted(sent)


def until_gone(pids):
    """Wait for the processes of a driver that was killed: the next one must not meet them."""
    deadline = time.monotonic() + 120
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_after_a_micro_batch_when_it_is_told(spark, tmp_path, number):
    files = StreamFiles(spark, tmp_path)
    files.command("subscribe", "a", "x > 5").event(10).flush()
    command = [sys.executable, "-m", "weft", "stream", f"{tmp_path}/events", "--commands", f"{tmp_path}/commands"]
    command += ["--checkpoint", str(files.checkpoint), "--out", str(files.out), "--json"]
    command += ["--metrics-port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as running:
        for line in running.stderr:
            if line.startswith("metrics: "):
                port = int(line.split(":")[-1].removesuffix("/metrics\n"))
            if line.startswith("batch 0"):
                break
        until(lambda: scraped(port)["events_total"] == 10)  # while it runs
        running.send_signal(number)
        shown = running.stdout.read()
        assert running.wait() == 0
    assert json.loads(shown)["events"] == 10
    files.check()
