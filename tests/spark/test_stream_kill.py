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
from weft.errors import PipelineError
from weft.spark import match_stream
from weft.spark.stream_tables import stored_metrics

DRIVER = Path(__file__).with_name("stream_driver.py")
ROUNDS = 4


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


@pytest.mark.slow
@pytest.mark.parametrize("target", ["python", "everything", "worker"])
def test_a_stream_survives_kill(spark, tmp_path, target):
    rng = random.Random(target)
    files = StreamFiles(spark, tmp_path)
    command = [sys.executable, str(DRIVER), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "text": True}
    log = tmp_path / "driver.log"
    kills = 0
    for _ in range(ROUNDS):
        feed(files, rng, 4)
        arguments = [*command, "on", "0" if target == "worker" else "1000"]
        with log.open("ab") as said, subprocess.Popen(arguments, **pipes, stderr=said, env=env) as driver:
            wanted = rng.randrange(1, 4)
            for line in driver.stdout:
                feed(files, rng, 1)
                wanted -= line.startswith("batch")
                if wanted <= 0:
                    break
            time.sleep(rng.random())  # a random point
            assert driver.poll() is None, log.read_text()  # it must be alive to be killed
            below = descendants(driver.pid)
            if target == "worker":
                kills += sum(map(kill, workers(driver.pid)[:2]))
                next(driver.stdout, None)
            kills += kill(driver.pid)
            if target != "python":
                for each in below:
                    kill(each)
        until_gone(below)
    ended = subprocess.run([*command, "once", "0"], check=False, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    assert kills >= ROUNDS
    files.check()
    versions = [path.name for path in (files.checkpoint / "versions").iterdir()]
    assert len(versions) == 1
    assert all(row.events is not None for row in stored_metrics(files.checkpoint))


def until_gone(pids):
    """Wait for the processes of a driver that was killed: the next one must not meet them."""
    for each in pids:
        deadline = time.monotonic() + 120
        while Path(f"/proc/{each}/stat").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_after_a_micro_batch_when_it_is_told(spark, tmp_path, number):
    files = StreamFiles(spark, tmp_path)
    files.command("subscribe", "a", "x > 5").event(10).flush()
    command = [sys.executable, "-m", "weft", "stream", f"{tmp_path}/events", "--commands", f"{tmp_path}/commands"]
    command += ["--checkpoint", str(files.checkpoint), "--out", str(files.out), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as running:
        for line in running.stderr:
            if line.startswith("batch 0"):
                break
        running.send_signal(number)
        shown = running.stdout.read()
        assert running.wait() == 0
    assert json.loads(shown)["events"] == 10
    files.check()
