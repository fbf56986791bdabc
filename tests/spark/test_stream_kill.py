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
from pathlib import Path

import pytest

from spark.stream_files import StreamFiles
from spark.test_stream import scraped, until
from weft.errors import PipelineError
from weft.spark import match_stream
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


def workers(pid):
    """The Python workers below a process: children of a daemon of PySpark."""

    def command(each):
        try:
            return Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            return b""

    daemons = [each for each in descendants(pid) if b"pyspark.daemon" in command(each)]
    return [each for daemon in daemons for each in descendants(daemon)]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def feed(files, rng, rounds):
    """Some events, and commands among them, a file at a time."""
    for _ in range(rounds):
        key = rng.randrange(6)
        action = rng.choice(["replace", "replace", "unsubscribe", "subscribe"])
        files.command(action, key, None if action == "unsubscribe" else f"x > {rng.randrange(10)}")
        files.event(rng.randrange(1, 30)).flush()


def run(files):
    options = {"order": "nr", "once": True, "driver_rows": 0}
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

    def __init__(self, files, driver_rows):
        self._log = files.root / "driver.log"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, str(DRIVER), str(files.root), str(driver_rows)]
        with self._log.open("ab") as said:
            super().__init__(command, stdout=subprocess.PIPE, text=True, stderr=said, env=env)
        self._watchdog = threading.Timer(PATIENCE, self.end)  # one that hangs is killed, and fails the test
        self._watchdog.start()

    def batch(self):
        """Wait until another micro-batch is committed."""
        for line in self.stdout:
            if line.startswith("batch"):
                return
        raise AssertionError(f"the driver has ended: {self._log.read_text()}")

    def end(self, *, everything=True):
        """Kill it, perhaps with all that it has started; returns whether it was alive."""
        below = descendants(self.pid)
        alive = self.poll() is None and kill(self.pid)
        if everything:
            for each in below:
                kill(each)
        until_gone(below)
        return alive

    def __exit__(self, *failure):
        self._watchdog.cancel()
        self.end()
        super().__exit__(*failure)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["python", "everything"])
def test_a_driver_that_is_killed_costs_no_event(spark, tmp_path, target):
    rng = random.Random(target)
    files = StreamFiles(spark, tmp_path)
    for _ in range(ROUNDS):
        feed(files, rng, 3)
        with KilledDriver(files, driver_rows=rng.choice([0, 1000])) as driver:
            for _ in range(rng.randrange(1, 3)):
                driver.batch()
                feed(files, rng, 1)
            time.sleep(rng.random())  # a random point
            assert driver.end(everything=target == "everything")
    check_the_rest(files)


@pytest.mark.slow
def test_a_stream_goes_on_when_its_workers_are_killed(spark, tmp_path):
    rng = random.Random("worker")
    files = StreamFiles(spark, tmp_path)
    feed(files, rng, 3)
    kills = 0
    with KilledDriver(files, driver_rows=0) as driver:
        driver.batch()
        while kills < ROUNDS:
            kills += sum(map(kill, workers(driver.pid))) > 0
            feed(files, rng, 2)
            driver.batch()
            time.sleep(rng.random())  # a random point
    check_the_rest(files)


def check_the_rest(files):
    """Match what a killed stream has left, and compare everything with the oracle."""
    run(files)
    files.check()
    versions = [path.name for path in (files.checkpoint / "versions").iterdir()]
    assert len(versions) == 1
    assert all(row.events is not None for row in stored_metrics(files.checkpoint))


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
