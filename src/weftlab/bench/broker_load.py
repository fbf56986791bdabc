"""A load for brokers over real sockets, and its cost. The broker is a process of its own, whose processor time is
counted. A run is over when every delivery that is due has arrived. The load is encoded beforehand.

Ten connections share the subscriptions, one publisher sends. Brokers that do not filter by content get the event to
whoever subscribed to its symbol; what their consumers then have to filter is counted only where the figure says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol, cast

from weft.errors import RemoteProtocolError

_PATIENCE = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds of the clock, of the broker's processor, and of the processor for publisher and consumers."""

    events: int
    deliveries: int
    wall: float
    cpu: float
    clients: float = 0.0

    @property
    def micros(self) -> float:
        """Microseconds of the broker's processor for each event."""
        return 1e6 * self.cpu / self.events

    @property
    def micros_of_all(self) -> float:
        """Microseconds of the processor for each event, of broker and clients."""
        return 1e6 * (self.cpu + self.clients) / self.events

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.wall


def cpu_of(pids: Sequence[int]) -> float:
    """Seconds of processor time that processes have used, in all their threads that still run."""
    total = 0.0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
            except OSError:  # the thread has ended
                continue
    return total


def rss_of(pids: Sequence[int]) -> int:
    """Bytes of memory that processes hold."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


class Reader(Protocol):
    """What reads one connection of a protocol: it counts deliveries, and may answer."""

    deliveries: int

    def feed(self, data: bytes) -> bytes:
        """What is to be sent back."""


class LoadWire(asyncio.Protocol):
    """One connection of a load. Waiters are notified when it is lost, or when the broker sends something wrong."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.transport = cast("asyncio.Transport", None)
        self.news = asyncio.Event()
        self.free = asyncio.Event()
        self.free.set()
        self._failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(1 << 20)

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        try:
            answer = self.reader.feed(data)
        except Exception as error:
            self._failure = error
            self.transport.abort()
            return
        if answer:
            self.transport.write(answer)
        self.news.set()

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._failure = self._failure or ConnectionError(
            f"the broker closed a connection: {error or 'no reason given'}"
        )
        self.news.set()
        self.free.set()

    def pause_writing(self) -> None:
        """Much waits to be written."""
        self.free.clear()

    def resume_writing(self) -> None:
        """Little waits to be written."""
        self.free.set()

    def check(self) -> None:
        """Raise why it is gone, if it is."""
        if self._failure is not None:
            raise self._failure

    async def until(self, done: Callable[[], Any], patience: float = 120.0) -> None:
        """Wait for something that the reader sees. Raises TimeoutError, and why the connection is gone."""
        try:
            async with asyncio.timeout(patience):
                while not done():
                    self.check()
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise TimeoutError(f"the broker did not answer within {patience:g} s") from None


async def open_wire(host: str, port: int, reader: Reader) -> LoadWire:
    """A connection."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(lambda: LoadWire(reader), host, port))[1]


class Flood:
    """Subscribed consumers, and a publisher with events that are ready to be sent, as often as is wanted."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a load
        self,
        publisher: LoadWire,
        consumers: Sequence[LoadWire],
        parts: Sequence[tuple[int, bytes]],
        due: int,
        pids: Sequence[int],
        confirmed: Callable[[], int] | None = None,
    ) -> None:
        self._publisher, self._consumers, self._parts = publisher, consumers, parts
        self._due, self._pids, self._confirmed = due, pids, confirmed

    async def run(self) -> Measured:
        """Publish everything once, and wait until it has arrived."""
        return await flood(self._publisher, self._consumers, self._parts, self._due, self._pids, self._confirmed)

    def close(self) -> None:
        """Cut every connection."""
        for wire in [*self._consumers, self._publisher]:
            wire.transport.abort()


def in_parts(made: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Encoded events, a hundred at a time."""
    size = 100
    return [(len(made[at : at + size]), b"".join(made[at : at + size])) for at in range(0, len(made), size)]


async def flood(  # noqa: PLR0913, PLR0917 - the parts of a load
    publisher: LoadWire,
    consumers: Sequence[LoadWire],
    parts: Sequence[tuple[int, bytes]],
    due: int,
    pids: Sequence[int],
    confirmed: Callable[[], int] | None = None,
    window: int = 4_000,
) -> Measured:
    """Publish all parts, each a number of events as bytes, and wait until every delivery that is due has arrived."""
    before = sum(wire.reader.deliveries for wire in consumers)
    sent, cpu, clients, start = 0, cpu_of(pids), process_time(), perf_counter()
    base = confirmed() if confirmed is not None else 0
    for count, data in parts:
        if confirmed is not None:
            allowed = sent - window
            await publisher.until(lambda allowed=allowed: confirmed() - base > allowed)  # type: ignore[misc]
        await publisher.free.wait()
        publisher.check()
        publisher.transport.write(data)
        sent += count
    if confirmed is not None:
        await publisher.until(lambda: confirmed() - base >= sent)

    def arrived() -> int:
        return sum(wire.reader.deliveries for wire in consumers) - before

    deadline = perf_counter() + _PATIENCE
    while arrived() < due:
        for wire in consumers:
            wire.check()
        if perf_counter() > deadline:
            raise TimeoutError(f"only {arrived():,} of {due:,} deliveries arrived within {_PATIENCE:g} s")
        await asyncio.sleep(0.002)
    if arrived() > due:
        raise RemoteProtocolError(f"{arrived():,} deliveries arrived, but only {due:,} were due")
    wall = perf_counter() - start
    return Measured(sent, arrived(), wall, cpu_of(pids) - cpu, process_time() - clients)
