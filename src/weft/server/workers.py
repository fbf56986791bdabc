"""Several processes on one machine that look like one broker, and the pool that keeps them running.

A session lives at the worker that the hash of its name says, so the number of workers is stored with the data, and
another number is refused. Worker 0 is linked to all others over a Unix socket that only this user can reach. Each
worker listens at the address that clients know (the system hands out connections) and at one of its own, to which
clients are redirected: the port plus one plus its number, or the path with its number. A worker that ends on its own is
started again, and recovers from its log. One that cannot start at all ends them all at once; one that was ready before
has MOST_STARTS attempts to become ready again. All drain when they get the signal to stop, or when the pool is gone.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from weft.errors import OptionError
from weft.log.schema import DATABASE
from weft.protocol.addresses import Address
from weft.server.config import BrokerConfig, LinkConfig, http_place
from weft.server.connection import ServerConnection
from weft.server.log_lines import LogLines

COUNT = "workers"  # the file that says how many there are
_AGAIN = 0.5  # seconds after which a worker that has ended is started again; twice as long after each failed start
MOST_STARTS = 5  # failed starts in a row that a worker may have which has been ready before
_PROGRAM = "from weft.server.serve import run_worker; run_worker()"
_ANYWHERE = ("0.0.0.0", "::", "")


def home_of(session: str, workers: int) -> int:
    """The worker that has a session.

    >>> [home_of(f"session-{n}", 4) for n in range(8)]
    [3, 0, 1, 0, 0, 3, 0, 2]
    """
    digest = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % workers


def own_address(address: Address, worker: int) -> Address:
    """The address where one worker alone listens."""
    if address.unix:
        return replace(address, path=f"{address.path}.{worker}")
    return address.at(address.port + 1 + worker)


def check_count(data: Path, workers: int) -> None:
    """Store the number of workers with the data. Raises OptionError if it was another."""
    file = data / COUNT
    if (data / DATABASE).exists():
        stored = 1
    elif file.exists():
        text = file.read_text(encoding="ascii", errors="replace").strip()
        stored = int(text) if text.isdecimal() else 0
        if not stored:
            raise OptionError(f"{file} is damaged: it should have the number of workers that {data} was made with")
    else:
        stored = workers
    if stored != workers:
        raise OptionError(
            f"{data} was made with {stored} worker{'' if stored == 1 else 's'}, and that number decides where "
            f"sessions live: run it with workers = {stored}, or choose another data directory"
        )
    if workers > 1 and not file.exists():
        data.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{workers}\n", encoding="ascii")


def worker_name(config: BrokerConfig, worker: int) -> str:
    """The name of a worker among its neighbours."""
    return f"{config.name or 'worker'}-{worker}" if worker else config.name or "worker-0"


def worker_config(config: BrokerConfig, worker: int, sockets: Path) -> BrokerConfig:
    """The settings of one worker. Raises OptionError where they cannot be shared out."""
    for address in config.addresses:
        if not address.unix and not 0 < address.port <= 65_535 - config.workers - 1:
            raise OptionError(f"{address}: several workers need a fixed port, with as many free ports above it")
    hub = f"weft+unix://{sockets}/hub"
    if worker:
        links = {worker_name(config, 0): LinkConfig(hub)}
    else:
        links = {worker_name(config, each): LinkConfig() for each in range(1, config.workers)} | dict(config.links)
    http = config.http
    if http:
        host, port = http_place(http)
        http = f"[{host}]:{port + worker if port else 0}"
    return replace(
        config,
        name=worker_name(config, worker),
        data=config.data / f"worker-{worker}",
        listen=(*config.listen, *(str(own_address(address, worker)) for address in config.addresses)),
        http=http,
        links=links,
        workers=1,
    )


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The number of a worker, and the addresses of the others."""

    worker: int
    workers: int
    addresses: tuple[Address, ...]  # that clients know
    hub: Address  # where worker 0 waits for the others
    host: str = ""  # by which clients reach this machine

    def home(self, connection: ServerConnection, session: str) -> str:
        """The address of the worker that has a session, empty if it is this one."""
        home = home_of(session, self.workers)
        if home == self.worker or connection.accepted is None or connection.accepted.trusted:
            return ""
        came = connection.accepted.address
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
        """Make all workers drain."""
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
        was_ready, failures = False, 0
        while not self._stopping.is_set():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            self._processes[worker] = process
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(given)  # and not closed: a worker whose pool is gone ends
            if self._stopping.is_set():
                process.terminate()
            ready = await process.stdout.readline() == b"ready\n"
            if ready:
                self._ready += 1
                if self._ready == self._config.workers:
                    self._lines.info("ready", workers=self._ready)
            code = await process.wait()
            if self._stopping.is_set():
                self.failed |= ready and code != 0
                return
            self._lines.error("worker ended", worker=worker, code=code)
            self._ready -= ready
            was_ready, failures = was_ready or ready, 0 if ready else failures + 1
            if failures >= (MOST_STARTS if was_ready else 1):
                self.failed = True
                self.stop()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN * 2**failures):
                    await self._stopping.wait()


async def run_pool(config: BrokerConfig, lines: LogLines) -> bool:
    """Run all workers until SIGTERM or SIGINT. Returns whether none of them failed."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        pool = WorkerPool(config, Path(folder), lines)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, pool.stop)
        await pool.run()
    lines.info("stopped")
    return not pool.failed
