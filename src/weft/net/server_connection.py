"""The broker's end of one connection. Laws: everything that one read brought is handed on together; everything that is
sent in one turn is written together; a peer that does not read is neither written to nor read from without bound.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from weft.broker.codec import client_messages
from weft.broker.effects import ConnectionId
from weft.errors import RemoteProtocolError
from weft.net.addresses import Address
from weft.net.first_frame import FirstFrame

if TYPE_CHECKING:
    from weft.net.node import BrokerNode

HIGH, LOW = 256 << 10, 64 << 10  # bytes that wait to be written: above, deliveries stop; below, they go on
MOST = 4 << 20  # bytes that wait to be written above which nothing is read, either
LINGER = 5.0  # seconds that a peer has to read the last bytes of a connection that ends


class RemoteEnd(NamedTuple):
    """Who is at the other end, as far as the transport knows."""

    address: str  # host and port, or empty for a Unix socket
    certificate: dict[str, Any] | None = None  # as `ssl.SSLSocket.getpeercert` has it; None without one
    der: bytes | None = None  # the same certificate as bytes

    @property
    def host(self) -> str:
        """The address without its port; empty for a Unix socket."""
        return self.address.rpartition(":")[0]


class Door(NamedTuple):
    """Where connections are accepted."""

    address: Address
    trusted: bool = False  # whoever can connect may do everything


class ServerConnection(asyncio.Protocol):
    """A connection that a client or another broker has opened, or that was dialled to a neighbour."""

    def __init__(self, node: BrokerNode, id: ConnectionId, neighbour: str = "", door: Door | None = None) -> None:
        self.id = id
        self.neighbour = neighbour  # to whom it was dialled; empty if it was accepted
        self.door = door  # where it was accepted; None if it was dialled
        self.gone = asyncio.Event()
        self.peer = RemoteEnd("")
        self.ended = False  # the core no longer knows it
        self.received = 0  # bytes
        self.sent = 0
        self._node = node
        self._first = (
            None if neighbour else FirstFrame(links=bool(node.core.links()))
        )  # until the peer has said who it is
        self._reader = client_messages()
        self._parts: list[bytes] = []  # to be written at the end of the turn
        self._transport: asyncio.Transport | None = None
        self._held: set[str] = set()  # why nothing is read
        self._paused = False  # nothing is read
        self._abort: asyncio.TimerHandle | None = None

    # -- what the transport says -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open, and encrypted if it is to be."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(HIGH, LOW)
        self.peer = _peer(self._transport)
        self._node.opened(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
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
            self._node.hearing.add(self, messages, len(data))

    def _begin(self, first: FirstFrame, data: bytes) -> bytes:
        """Read the hello, and have it answered. Returns what came behind it, if that is to be read."""
        try:
            hello = first.feed(data)
        except RemoteProtocolError as error:
            self._node.garbled(self, error)
            return b""
        if hello is None:
            return b""
        self._first = None
        self._node.hearing.greeted(self, hello)
        return b"" if self.ended else first.rest

    def eof_received(self) -> bool:
        """The peer sends nothing more: the connection is closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is gone."""
        if self._abort is not None:
            self._abort.cancel()
        self._parts.clear()
        self._transport = None
        self.gone.set()
        self._node.lost(self)

    def pause_writing(self) -> None:
        """Much waits to be written."""
        self._node.paused(self)

    def resume_writing(self) -> None:
        """Little waits to be written."""
        self.read_on("full")
        self._node.resumed(self)

    # -- what the node says ----------------------------------------------------------------------------

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
        """A reason not to read is gone."""
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


def _peer(transport: asyncio.Transport) -> RemoteEnd:
    name = transport.get_extra_info("peername")
    address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
    secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if secured is None:
        return RemoteEnd(address)
    return RemoteEnd(address, secured.getpeercert() or None, secured.getpeercert(binary_form=True))
