"""A TCP proxy that cuts connections after a random number of bytes, in either direction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from weft.protocol.addresses import Address
from weft.server.connection import Listener


class Proxy:
    """`async with Proxy(address, rng) as proxy`: clients connect to `proxy.address`. `most`: bytes of a mean life."""

    def __init__(self, target: str, rng: Random, most: int = 20_000) -> None:
        self.target = Address.parse(target)
        self.cutting = True
        self.cuts = 0
        self._thaw = asyncio.Event()
        self._thaw.set()
        self._rng, self._most = rng, most
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"weft://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listener = Listener(server, Address.parse(self.address))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Pass nothing on over the connections that there are, and do not close them; new ones work."""
        self._thaw.clear()
        self._thaw = asyncio.Event()
        self._thaw.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await self._connect(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(asyncio.current_task())  # type: ignore[arg-type]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.target.host, self.target.port)
        except OSError:
            return
        lefts = [self._rng.randrange(200, 2 * self._most), self._rng.randrange(200, 2 * self._most)]
        both = [
            asyncio.ensure_future(self._pass(reader, back, lefts, 0)),
            asyncio.ensure_future(self._pass(there, writer, lefts, 1)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            back.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lefts: list[int], at: int
    ) -> None:
        thaw = self._thaw
        with suppress(OSError):
            while data := await reader.read(self._rng.choice([7, 512, 65_536])):
                if self.cutting and len(data) > lefts[at]:
                    writer.write(data[: lefts[at]])
                    self.cuts += 1
                    await writer.drain()
                    return
                await thaw.wait()
                lefts[at] -= len(data)
                writer.write(data)
                await writer.drain()
