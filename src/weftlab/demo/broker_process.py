"""A broker in a process of its own, for the demo. When the block ends, neither process nor data are left."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from weft.errors import BrokerError


class DemoBroker:
    """`weft serve` on a free port of this machine, with a temporary data directory; perhaps with a gateway."""

    def __init__(self, *, gateway: bool = False) -> None:
        self.address = "weft://127.0.0.1:0"
        self.gateway = "http://127.0.0.1:0" if gateway else ""  # its address, when it has started
        self._folder = tempfile.TemporaryDirectory(prefix="weft-demo-")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, on the same port as before if it ran before; returns when it is ready."""
        data = Path(self._folder.name) / "data"
        command = [sys.executable, "-m", "weft", "serve", "--listen", self.address, "--data", str(data)]
        if self.gateway:
            command += ["--gateway", self.gateway.removeprefix("http://")]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said: list[str] = []
        is_ready, awaited = False, bool(self.gateway)
        for line in self._process.stderr:
            said.append(line)
            if found := re.search(r" listening address=(\S+)", line):
                self.address = found[1]
            if found := re.search(r" gateway address=(\S+)", line):
                self.gateway, awaited = found[1], False
            is_ready = is_ready or " info ready " in line
            if is_ready and not awaited:
                Thread(target=self._process.stderr.read, daemon=True).start()  # so that the pipe never fills up
                return
        raise BrokerError(f"the broker of the demo did not start: {''.join(said[-3:]).strip()}")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._folder.cleanup()
