"""kill -9 of a process that appends: every group that was acknowledged is there and whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from log.appender import SEATS, event
from log.log_cases import plain
from weft.log.opening import open_log
from weft.log.tools import verify


class Killer:
    """Starts the process, lets it run for a while, kills it; the last offset that it acknowledged is kept."""

    def __init__(self, directory: Path) -> None:
        here = Path(__file__).parent
        paths = [str(here.parent), str(Path(sys.modules["weft"].__file__).parent.parent)]
        self._process = subprocess.Popen(
            [sys.executable, str(here / "appender.py"), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self.acknowledged = 1

    def run(self, seconds: float, appending: bool) -> int:
        """How many commits were acknowledged; the time counts from the first one, or from the start."""
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        commits, pid, timer = 0, 0, None
        for line in self._process.stdout:
            if line == b"ended\n":
                break
            if line.startswith(b"pid"):
                pid = int(line.split()[1])
            else:
                self.acknowledged = int(line)
                commits += 1
            if timer is None and pid and (commits or not appending):
                timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
                timer.start()
        timer.join()
        return commits

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def kill_repeatedly(directory: Path, times: int, seed: int) -> None:
    rng, killer, commits = np.random.default_rng(seed), Killer(directory), 0
    log_id, incarnation = None, 0
    try:
        for turn in range(times):
            commits += killer.run(float(rng.uniform(0, 0.1)), appending=turn % 3 > 0)
            opened = open_log(directory)
            log, state = opened.log, opened.log.restore()
            assert not opened.copied, opened.copied
            assert log_id in (None, state.log_id)
            assert state.incarnation > incarnation
            log_id, incarnation = state.log_id, state.incarnation
            assert state.next >= killer.acknowledged, "an acknowledged group is lost"
            found = plain(list(log.read(state.first, 1 << 30)))
            assert [each[1] for each in found] == list(range(state.first, state.next))
            for _, offset, origin, head, payload, seats in found:
                assert (head, payload, seats) == event(offset)
                assert origin == (7, 1, offset)
            if state.subs:
                assert {sub.floor for sub in state.subs.values()} == {state.next}, "a group is stored in part"
                assert len(state.subs) == SEATS
                assert state.sessions[7].pub_seq == state.next - 1
            log.close()
        assert commits >= times * 2 // 3
        assert not verify(directory).problems
    finally:
        killer.close()


def test_what_was_acknowledged_survives_ten_kills(tmp_path):
    kill_repeatedly(tmp_path, 10, seed=1)


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_hundred_kills(tmp_path):
    kill_repeatedly(tmp_path, 100, seed=2)
