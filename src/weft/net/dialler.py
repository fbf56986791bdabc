"""Links to neighbours are dialled, and dialled again. Laws: a neighbour that is gone is tried for ever, less and less
often; at most one connection to a neighbour is being opened at a time.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import TYPE_CHECKING

from weft.net.addresses import Address
from weft.net.server_connection import ServerConnection

if TYPE_CHECKING:
    from weft.net.node import BrokerNode

FIRST, LONGEST = 0.05, 5.0  # seconds between attempts
_LOOK = 0.5  # seconds after which a link that the neighbour has opened is looked at again
_PATIENCE = 10.0  # seconds until an address counts as dead
_STEADY = 10.0  # seconds after which a link counts as good, and the next attempt comes soon again


class Dialler:
    """Keeps one link up."""

    def __init__(self, node: BrokerNode, peer: str, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self._node = node
        self._peer = peer
        self._address = address
        self._tls = tls
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Dial for ever."""
        wait = FIRST
        while not self._node.stopping:
            if self._connected:
                wait = FIRST
                await asyncio.sleep(_LOOK)
                continue
            begun = self._loop.time()
            try:
                async with asyncio.timeout(_PATIENCE):
                    connection = await self._dial()
            except (OSError, TimeoutError) as error:
                self._node.lines.warning("no link", peer=self._peer, address=self._address, reason=error or "no answer")
            else:
                await connection.gone.wait()
                if self._loop.time() - begun > _STEADY:
                    wait = FIRST
                self._node.lines.info("link ended", peer=self._peer, reason=self._reason)
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, LONGEST)

    async def _dial(self) -> ServerConnection:
        def opened() -> ServerConnection:
            return self._node.new_connection(self._peer)

        address = self._address
        if address.unix:
            _, connection = await self._loop.create_unix_connection(opened, address.path)
        else:
            secured = self._tls if address.tls else None
            _, connection = await self._loop.create_connection(opened, address.host, address.port, ssl=secured)
        return connection

    @property
    def _connected(self) -> bool:
        return any(link.connected for link in self._node.core.links() if link.peer == self._peer)

    @property
    def _reason(self) -> str:
        return next((link.reason for link in self._node.core.links() if link.peer == self._peer), "")
