"""The processes of a broker with several workers. Laws: a worker that ends on its own is started again, and recovers
from its log; one that cannot start ends them all; all drain when they are told to stop, or when the pool is gone.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from weft.net.addresses import Address
from weft.net.config import BrokerConfig
from weft.net.log_lines import LogLines
from weft.net.server_connection import ServerConnection
from weft.net.workers import home_of, own_address, worker_config

_AGAIN = 0.5  # seconds after which a worker that has ended is started again
_PROGRAM = "from weft.serve import run_worker; run_worker()"
_ANYWHERE = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Which worker a process is, and where the others are."""

    worker: int
    workers: int
    addresses: tuple[Address, ...]  # that clients know
    hub: Address  # where worker 0 waits for the others
    host: str = ""  # by which clients reach this machine

    def home(self, connection: ServerConnection, session: str) -> str:
        """The address of the worker that has a session, empty if it is this one."""
        home = home_of(session, self.workers)
        if home == self.worker or connection.door is None or connection.door.trusted:
            return ""
        came = connection.door.address
        known = [each for each in self.addresses if came in (each, own_address(each, self.worker))]
        address = own_address(known[0], home)
        if address.unix:
            return str(address)
        host = self.host or (connection.host if address.host in _ANYWHERE else address.host)
        return str(Address(address.scheme, host, address.port))


class WorkerPool:
    """Starts and ends workers."""

    def __init__(self, config: BrokerConfig, sockets: Path, lines: LogLines) -> None:
        self._config = config
        self._sockets = sockets
        self._lines = lines
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready = 0
        self._stopping = asyncio.Event()
        self.failed = False

    def stop(self) -> None:
        """Tell all workers to drain."""
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)

    async def run(self) -> None:
        """Run until all have ended."""
        await asyncio.gather(*(self._keep(worker) for worker in range(self._config.workers)))

    async def _keep(self, worker: int) -> None:
        """Keep one worker running."""
        place = WorkerPlace(
            worker,
            self._config.workers,
            tuple(self._config.addresses),
            Address("weft+unix", "", 0, f"{self._sockets}/hub"),
            self._config.host,
        )
        given = pickle.dumps((worker_config(self._config, worker, self._sockets), place))
        while not self._stopping.is_set():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            self._processes[worker] = process
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(given)  # and not closed: a worker whose pool is gone ends
            ready = await process.stdout.readline() == b"ready\n"
            if ready:
                self._ready += 1
                if self._ready == self._config.workers:
                    self._lines.info("ready", workers=self._ready)
            code = await process.wait()
            if self._stopping.is_set():
                self.failed |= code != 0
                return
            self._lines.error("worker ended", worker=worker, code=code)
            if not ready:
                self.failed = True
                self.stop()
                return
            self._ready -= 1
            await asyncio.sleep(_AGAIN)


async def run_pool(config: BrokerConfig, lines: LogLines) -> bool:
    """Run all workers until SIGTERM or SIGINT. Whether none of them failed."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        pool = WorkerPool(config, Path(folder), lines)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, pool.stop)
        await pool.run()
    lines.info("stopped")
    return not pool.failed
