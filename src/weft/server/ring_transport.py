"""Messages between nodes of a ring over TCP.

Messages to one node keep their order while a connection lasts, and nothing is sent twice. Whatever cannot be sent is
lost, because the ring repeats what is not answered. Each node dials the nodes that it sends to. A connection begins
with a `RingGreeting`: it carries a key that all nodes of the ring share, and what they must agree on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hmac import compare_digest
from typing import cast

import msgspec

from weft.errors import OptionError, RemoteProtocolError
from weft.protocol.addresses import Address
from weft.protocol.codec import FrameReader, joined
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.rendezvous_messages import RingFrame, RingMessage, RingReader, encode_ring
from weft.server.connection import Listener
from weft.server.reads import FirstFrame
from weft.server.ring_config import RingConfig

MOST_WAITING = 32 << 20  # bytes that wait for one node; what comes then is lost
DIAL = 2.0  # seconds to connect
SILENT = 5.0  # seconds until a connection that was accepted must have greeted
_GREETING = 4096  # bytes, at most


class RingGreeting(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first frame of a connection. With `asks`, the sender requests a report and sends nothing else.

    With `forgets`, the node at that address will never come back.
    """

    key: bytes
    agreement: str = ""
    asks: bool = False
    forgets: str = ""


class RingRefusal(msgspec.Struct, frozen=True, tag=True):
    """The answer to a greeting that was refused."""

    reason: str


_encode = msgspec.msgpack.Encoder().encode
_greeting = msgspec.msgpack.Decoder(RingGreeting).decode
_refusal = msgspec.msgpack.Decoder(RingRefusal).decode


class RingTransport:
    """The connections of one node. `receive` gets what others send, `report` gives the node's report, `refused` is
    called with the reason if another node refuses this one, and `forget` with the address of a node that is gone.
    """

    def __init__(
        self,
        config: RingConfig,
        receive: Callable[[RingFrame], None],
        report: Callable[[], bytes],
        refused: Callable[[str], None],
        forget: Callable[[str], object],
    ) -> None:
        self._key, self._agreement = config.key, config.agreement
        self.greeting = joined([_encode(RingGreeting(self._key, self._agreement))])  # what a connection begins with
        self.receive, self.report, self.refused, self.forget = receive, report, refused, forget
        self._out: dict[NodeAddress, _Outgoing] = {}
        self.incoming: set[_Incoming] = set()
        self._listener: Listener | None = None
        self.closed = False
        self.lost = 0  # messages

    async def listen(self, host: str, port: int) -> int:
        """Accept other nodes; returns the port. Raises OptionError."""
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: _Incoming(self), host, port)
        except OSError as error:
            raise OptionError(f"the ring cannot listen at {host}:{port}: {error.strerror or error}") from error
        taken = int(server.sockets[0].getsockname()[1])
        self._listener = Listener(server, Address("weft", host, taken))
        return taken

    def send(self, me: NodeRef, to: NodeAddress, message: RingMessage) -> None:
        """Send a message, at the end of the loop's turn; messages to this node itself arrive then, too."""
        if self.closed:
            return
        if to == me.address:
            asyncio.get_running_loop().call_soon(self.receive, RingFrame(me, [message]))
            return
        out = self._out.get(to)
        if out is None or out.ended:
            out = self._out[to] = _Outgoing(self, to)
        out.send(me, message)

    def check(self, greeting: RingGreeting) -> str:
        """Why a greeting is refused; empty if it is not."""
        if not compare_digest(greeting.key, self._key):
            return "the key is not that of this ring"
        if not greeting.asks and greeting.agreement != self._agreement:
            return f"the nodes differ: this ring has {self._agreement}, the other node {greeting.agreement}"
        return ""

    def close(self) -> None:
        """End everything at once."""
        self.closed = True
        if self._listener is not None:
            self._listener.stop()
        for out in list(self._out.values()):
            out.end()
        for each in list(self.incoming):
            each.cut()
        self._out.clear()


class _Outgoing(asyncio.Protocol):
    """A connection to another node, and what waits for it."""

    def __init__(self, ring: RingTransport, to: NodeAddress) -> None:
        self._ring = ring
        self._to = to
        self.ended = False
        self._parts: list[bytes] = []
        self._size = 0
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(_GREETING)
        self._flushing = False
        self._task = asyncio.get_running_loop().create_task(self._dial(), name="weft-ring-dial")

    async def _dial(self) -> None:
        try:
            address = Address.parse(self._to)
            async with asyncio.timeout(DIAL):
                await asyncio.get_running_loop().create_connection(lambda: self, address.host, address.port)
        except (OSError, TimeoutError, OptionError):
            self.end()

    def send(self, me: NodeRef, message: RingMessage) -> None:
        """Send a message when the connection is there."""
        data = encode_ring(me, [message])
        waiting = self._size + (0 if self._transport is None else self._transport.get_write_buffer_size())
        if waiting + len(data) > MOST_WAITING:
            self._ring.lost += 1
            return
        self._parts.append(data)
        self._size += len(data)
        if self._transport is not None and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is not None and self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()
            self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._ring.greeting)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """The other node only ever refuses on this connection."""
        try:
            for frame in self._frames.feed(data):
                self._ring.refused(f"{self._to} refuses this node: {_refusal(frame).reason}")
        except (RemoteProtocolError, ValueError):
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self.end()

    def end(self) -> None:
        """Give the connection up, with what waits."""
        self.ended = True
        self._ring.lost += len(self._parts)
        self._parts.clear()
        self._size = 0
        self._task.cancel()
        if self._transport is not None:
            self._transport.abort()


class _Incoming(asyncio.Protocol):
    """A connection that another node has opened."""

    def __init__(self, ring: RingTransport) -> None:
        self._ring = ring
        self._first: FirstFrame | None = FirstFrame(most=_GREETING, decode=_greeting)
        self._reader = RingReader()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._ring.closed:  # it was accepted in the same turn
            self.cut()
            return
        self._ring.incoming.add(self)
        self._timer = asyncio.get_running_loop().call_later(SILENT, self.cut)

    def data_received(self, data: bytes) -> None:
        try:
            if self._first is not None:
                data = self._greeted(self._first, data)
            for frame in self._reader.feed(data) if data else ():
                self._ring.receive(frame)
        except (RemoteProtocolError, ValueError):
            self.cut()

    def _greeted(self, first: FirstFrame, data: bytes) -> bytes:
        """What follows the greeting."""
        greeting: RingGreeting | None = first.feed(data)
        if greeting is None:
            return b""
        self._first = None
        if self._timer is not None:
            self._timer.cancel()
        refusal = self._ring.check(greeting)
        if greeting.forgets and not refusal:
            self._ring.forget(greeting.forgets)
        if refusal or greeting.asks:
            assert self._transport is not None
            self._transport.write(joined([_encode(RingRefusal(refusal)) if refusal else self._ring.report()]))
            self._transport.close()
            return b""
        return first.rest

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._timer is not None:
            self._timer.cancel()
        self._ring.incoming.discard(self)
        self._transport = None

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
