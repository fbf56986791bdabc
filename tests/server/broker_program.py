"""`weft serve` as a process of its own, for tests that kill it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from weft.protocol.addresses import Address


class BrokerProgram:
    """A broker process. `start` returns when it is ready; the same addresses are used again after a restart."""

    def __init__(
        self, data: Path, *options: str, listen: str = "weft://127.0.0.1:0", prefix: Sequence[str] = ()
    ) -> None:
        self.data = data
        self.prefix = prefix  # a command that runs it
        self.options = options
        self.listen = listen
        self.lines: list[str] = []
        self.http = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> Address:
        return Address.parse(self.listen)

    def start(self) -> None:
        command = [
            *self.prefix,
            sys.executable,
            "-m",
            "weft",
            "serve",
            "--listen",
            self.listen,
            "--data",
            str(self.data),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self._process = subprocess.Popen(
            [*command, *self.options], stderr=subprocess.PIPE, encoding="utf-8", env=environment
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if (found := re.search(r" listening address=(\S+)", line)) and self.listen.endswith(":0"):
                self.listen = found[1]
            if found := re.search(r" http address=(\S+)", line):
                self.http = found[1]
            if " info ready " in line and ("--workers" not in self.options or "workers=" in line):
                return
        raise AssertionError(f"the broker did not start: {self.lines}")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it, and return its exit code."""
        process = self._process
        if process is None:
            return 0
        self._process = None
        process.send_signal(number)
        assert process.stderr is not None
        self.lines += process.stderr.read().splitlines()
        process.stderr.close()
        return process.wait()

    def stop(self) -> int:
        return self.kill(signal.SIGTERM)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> BrokerProgram:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
