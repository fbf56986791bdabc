"""The connections of a broker: its end of each one, the listeners that accept them, and the dialling of neighbours.

Everything that one read brought is handed on together, and everything that is sent in one turn of the loop is written
together. A peer that does not read is neither written to nor read from without bound.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from weft.broker.effects import ConnectionId
from weft.errors import OptionError, RemoteProtocolError
from weft.protocol.addresses import Address
from weft.protocol.codec import client_messages
from weft.server.reads import FirstFrame

if TYPE_CHECKING:
    from weft.broker.links.neighbour import LinkStatus
    from weft.server.node import BrokerNode

HIGH, LOW = 256 << 10, 64 << 10  # bytes that wait to be written: above, deliveries stop; below, they go on
MOST = 4 << 20  # bytes that wait to be written above which nothing is read, either
LINGER = 5.0  # seconds that a peer has to read the last bytes of a connection that ends
BACKLOG = 1_024  # connections that may wait to be accepted
HANDSHAKE = 10.0  # seconds that a TLS handshake may take
FIRST, LONGEST = 0.05, 5.0  # seconds between attempts to dial a neighbour
_LOOK = 0.5  # seconds after which a link that the neighbour has opened is checked again
_PATIENCE = 10.0  # seconds until an address counts as dead
_STEADY = 10.0  # seconds after which a link counts as good, and the next attempt comes soon again


class RemoteEnd(NamedTuple):
    """The peer, as far as the transport knows it."""

    address: str  # host and port, or empty for a Unix socket
    certificate: dict[str, Any] | None = None  # as `ssl.SSLSocket.getpeercert` has it; None without one
    der: bytes | None = None  # the same certificate as bytes

    @property
    def host(self) -> str:
        """The address without its port; empty for a Unix socket."""
        return self.address.rpartition(":")[0]


class ListenAddress(NamedTuple):
    """Where a connection was accepted."""

    address: Address
    trusted: bool = False  # peers are not authenticated, and may do everything


class ServerConnection(asyncio.Protocol):
    """A connection that a client or another broker has opened, or that was dialled to a neighbour."""

    def __init__(
        self, node: BrokerNode, id: ConnectionId, neighbour: str = "", accepted: ListenAddress | None = None
    ) -> None:
        self.id = id
        self.neighbour = neighbour  # to which it was dialled; empty if it was accepted
        self.accepted = accepted  # where it was accepted; None if it was dialled
        self.gone = asyncio.Event()
        self.peer = RemoteEnd("")
        self.ended = False  # the core no longer knows it
        self.received = 0  # bytes
        self.sent = 0
        self._node = node
        self._first = None if neighbour else FirstFrame(links=bool(node.core.links()))  # until the hello is complete
        self._reader = client_messages()
        self._parts: list[bytes] = []  # to be written at the end of the turn
        self._transport: asyncio.Transport | None = None
        self._held: set[str] = set()  # why nothing is read
        self._paused = False  # nothing is read
        self._abort: asyncio.TimerHandle | None = None

    # -- calls of the transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open, and encrypted if it is to be."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(HIGH, LOW)
        name = transport.get_extra_info("peername")
        self.peer = RemoteEnd(f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "")
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secured is not None:
            certificate, der = secured.getpeercert() or None, secured.getpeercert(binary_form=True)
            self.peer = self.peer._replace(certificate=certificate, der=der)
        self._node.opened(self)

    def data_received(self, data: bytes) -> None:
        """Decode bytes, and hand the messages on."""
        if self.ended:
            return
        self.received += len(data)
        if self._first is not None:
            data = self._begin(self._first, data)
            if not data:
                return
        try:
            messages = self._reader.feed(data)
        except RemoteProtocolError as error:
            self._node.garbled(self, error)
            return
        if messages:
            self._node.reads.add(self, messages, len(data))

    def _begin(self, first: FirstFrame, data: bytes) -> bytes:
        """Read the hello, and have it handled. Returns what came behind it, if that is to be read."""
        try:
            hello = first.feed(data)
        except RemoteProtocolError as error:
            self._node.garbled(self, error)
            return b""
        if hello is None:
            return b""
        self._first = None
        self._node.driver.receive(self.id, [hello])
        return b"" if self.ended else first.rest

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The connection is gone."""
        if self._abort is not None:
            self._abort.cancel()
        self._parts.clear()
        self._transport = None
        self.gone.set()
        self._node.lost(self)

    def pause_writing(self) -> None:
        """The write buffer is full."""
        if not self.ended:
            self._node.core.paused(self.id)

    def resume_writing(self) -> None:
        """The write buffer has room."""
        self.read_on("full")
        if not self.ended:
            self._node.driver.do(self._node.core.resumed, self.id)

    # -- calls of the node -----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send at the end of the turn."""
        self._parts.append(data)

    def flush(self) -> None:
        """Write what was sent in this turn."""
        transport, parts = self._transport, self._parts
        if transport is None or not parts:
            return
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if transport.is_closing():
            return
        self.sent += len(data)
        transport.write(data)
        if transport.get_write_buffer_size() > MOST:
            self.hold("full")

    def hold(self, why: str) -> None:
        """Read nothing more until `read_on` was called for every reason."""
        transport = self._transport
        self._held.add(why)
        if transport is not None and not self._paused and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def read_on(self, why: str) -> None:
        """Remove a reason not to read."""
        self._held.discard(why)
        transport = self._transport
        if transport is not None and self._paused and not self._held and not transport.is_closing():
            self._paused = False
            transport.resume_reading()

    def close(self) -> None:
        """Close it when what was sent is written; a peer that does not read it is cut off after LINGER."""
        self.ended = True
        self.flush()
        if self._transport is not None:
            self._transport.close()
            if self._abort is None:
                self._abort = asyncio.get_running_loop().call_later(LINGER, self.cut)

    def cut(self) -> None:
        """Close it at once."""
        self.ended = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def host(self) -> str:
        """The address of this machine that the peer has connected to; empty for a Unix socket."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def unsent(self) -> int:
        """Bytes that wait to be written."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size() + sum(map(len, self._parts))


class Listener:
    """An address where connections are accepted."""

    def __init__(self, server: asyncio.Server, address: Address) -> None:
        self.address = address
        self._server = server
        self._stopped = False

    def stop(self) -> None:
        """Accept nothing more."""
        if self._stopped:
            return
        self._stopped = True
        loop = asyncio.get_running_loop()
        for sock in self._server.sockets:
            loop.remove_reader(sock.fileno())
        # asyncio drops, without closing it, a connection that was accepted in this turn if its server is closed already
        loop.call_soon(self._server.close)
        if self.address.unix:
            with suppress(OSError):
                os.unlink(self.address.path)

    async def close(self) -> None:
        """Accept nothing more; connections that were accepted stay."""
        self.stop()
        for _ in range(3):  # until what was accepted in this turn is known
            await asyncio.sleep(0)


async def listen(
    accept: Callable[[], asyncio.Protocol], address: Address, tls: ssl.SSLContext | None = None, *, shared: bool = False
) -> Listener:
    """Accept connections at an address, which may be shared with other processes. Raises OptionError."""
    if address.tls and tls is None:
        raise OptionError(f"{address} needs a certificate and a key")
    loop = asyncio.get_running_loop()
    try:
        if address.unix:
            _clear(Path(address.path))
            server = await loop.create_unix_server(accept, address.path, backlog=BACKLOG)
            os.chmod(address.path, 0o600)
            return Listener(server, address)
        host = address.host
        if host == "localhost" and not address.port:
            host = "127.0.0.1"  # or two ports are taken, one for each version of IP
        secured, patience = (tls, HANDSHAKE) if address.tls else (None, None)
        server = await loop.create_server(
            accept,
            host,
            address.port,
            backlog=BACKLOG,
            ssl=secured,
            ssl_handshake_timeout=patience,
            reuse_port=True if shared else None,
        )
    except (OSError, UnicodeError) as error:
        raise OptionError(f"cannot listen at {address}: {getattr(error, 'strerror', None) or error}") from error
    return Listener(server, address.at(server.sockets[0].getsockname()[1]))


def _clear(path: Path) -> None:
    """Remove a socket that no process listens on. Raises OptionError for anything else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OptionError(f"{path} exists and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise OptionError(f"another process listens at {path}; stop it, or choose another path")


class Dialler:
    """Keeps one link connected: dials until stopped, with growing pauses, one connection at a time."""

    def __init__(self, node: BrokerNode, peer: str, address: Address, tls: ssl.SSLContext | None = None) -> None:
        self._node = node
        self._peer = peer
        self._address = address
        self._tls = tls
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Dial whenever there is no connection, until the neighbour is detached."""
        wait = FIRST
        while not self._node.stopping:
            if not self._node.core.is_attached(self._peer):
                self._node.lines.warning("link detached", peer=self._peer)
                return
            if (link := self._link()) and link.connected:
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
                link = self._link()
                self._node.lines.info("link ended", peer=self._peer, reason=link.reason if link else "")
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, LONGEST)

    async def _dial(self) -> ServerConnection:
        address, opened = self._address, partial(self._node.new_connection, self._peer)
        if address.unix:
            _, connection = await self._loop.create_unix_connection(opened, address.path)
        else:
            secured = self._tls if address.tls else None
            _, connection = await self._loop.create_connection(opened, address.host, address.port, ssl=secured)
        return connection

    def _link(self) -> LinkStatus | None:
        return next((link for link in self._node.core.links() if link.peer == self._peer), None)
