"""A client for tests of brokers: it speaks the protocol, and remembers what it was told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from weft.broker.broker import Core
from weft.broker.limits import ClientLimits
from weft.log.base import Log
from weft.log.memory import MemoryLog
from weft.protocol.addresses import Address
from weft.protocol.codec import broker_messages, encode
from weft.protocol.messages import BrokerMessage, ClientMessage, Deliver, Hello, Published, Welcome
from weft.routing.registry import make_table
from weft.server.node import BrokerNode, NodeOptions

M = TypeVar("M")
ANY_PORT = Address.parse("weft://127.0.0.1:0")
ANYBODY = Hello()
PATIENCE = 60.0  # a test that hangs fails; nothing is measured by it


_OPEN: list[Wire] = []  # connections of the test that runs


async def until(done: Callable[[], Any]) -> None:
    """Wait for something that becomes true soon, and that nobody tells of."""
    async with asyncio.timeout(PATIENCE):
        while not done():
            await asyncio.sleep(0.01)


def run(body: Coroutine[Any, Any, M]) -> M:
    """Run a test, and close the connections that it leaves open."""

    async def tidy() -> M:
        try:
            return await body
        finally:
            for wire in _OPEN:
                wire.transport.abort()
            for wire in _OPEN:
                await wire.gone()
            _OPEN.clear()

    return asyncio.run(tidy())


class Wire(asyncio.Protocol):
    """One connection to a broker. `messages` has everything that came, in order."""

    def __init__(self) -> None:
        self.messages: list[BrokerMessage] = []
        self.closed = False
        self.transport: Any = None
        self._reader = broker_messages()
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        _OPEN.append(self)

    def data_received(self, data: bytes) -> None:
        self.messages += self._reader.feed(data)
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self in _OPEN:
            _OPEN.remove(self)
        self._news.set()

    def send(self, *messages: ClientMessage) -> None:
        self.transport.write(encode(messages))

    async def until(self, done: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not done():
                assert not self.closed or done(), self.messages[-3:]
                self._news.clear()
                await self._news.wait()

    async def get(self, kind: type[M], number: int = 1) -> M:
        """The message of a kind that came as the n-th of its kind."""
        await self.until(lambda: len(self.all(kind)) >= number)
        return self.all(kind)[number - 1]

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, kind)]

    async def published(self, upto: int) -> None:
        await self.until(lambda: any(each.upto >= upto for each in self.all(Published)))

    async def delivered(self, number: int) -> list[Deliver]:
        await self.until(lambda: len(self.all(Deliver)) >= number)
        return self.all(Deliver)

    async def gone(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.closed:
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        self.transport.close()
        await self.gone()


async def connect(address: Address, hello: Hello | None = ANYBODY, tls: ssl.SSLContext | None = None) -> Wire:
    """A connection, welcome already unless `hello` is None."""
    loop = asyncio.get_running_loop()
    if address.unix:
        _, wire = await loop.create_unix_connection(Wire, address.path)
    else:
        _, wire = await loop.create_connection(Wire, address.host, address.port, ssl=tls if address.tls else None)
    if hello is not None:
        wire.send(hello)
        await wire.get(Welcome)
    return wire


def make_core(log: Log, limits: ClientLimits | None = None, **options: Any) -> Core:
    from random import Random

    rng = Random(1)
    return Core(log, log.restore(), make_table("covering"), draw=lambda: rng.getrandbits(63), limits=limits, **options)


@asynccontextmanager
async def a_node(
    log: Log | None = None,
    limits: ClientLimits | None = None,
    options: NodeOptions | None = None,
    tls: ssl.SSLContext | None = None,
):
    """A broker on a free port; in memory unless a log is given."""
    log = MemoryLog("a1") if log is None else log
    async with BrokerNode(make_core(log, limits), log, options) as node:
        await node.listen(ANY_PORT if tls is None else Address("weft+tls", "localhost", 0), tls)
        yield node


def certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """How a broker and a client speak TLS with each other."""
    import trustme

    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client
