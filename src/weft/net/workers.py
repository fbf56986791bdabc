"""Several brokers on one machine that look like one. Laws: a session lives for ever at the worker that the hash of its
name says; the number of workers is stored with the data, and another number is refused.

Worker 0 is linked to all others over a Unix socket that only this user can reach. Each worker listens at the address
that clients know (the system hands out connections) and at one of its own, which clients are redirected to: the port
plus one plus its number, or the path with its number.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from weft.errors import OptionError
from weft.log.schema import DATABASE
from weft.net.addresses import Address
from weft.net.config import BrokerConfig, LinkConfig, http_place

COUNT = "workers"  # the file that says how many there are


def home_of(session: str, workers: int) -> int:
    """The worker that has a session.

    >>> [home_of(f"session-{n}", 4) for n in range(8)]
    [3, 0, 1, 0, 0, 3, 0, 2]
    """
    digest = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % workers


def own_address(address: Address, worker: int) -> Address:
    """Where one worker alone listens.

    >>> str(own_address(Address.parse("weft://localhost:9338"), 1))
    'weft://localhost:9340'
    """
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
