"""The read loop of a broker: what connections send, handed to the driver in turns, and the limits on what is read.

- Nothing that a connection sends after its hello is looked at before the hello is answered. The hello of a broker may
  be longer, because it carries what its routing table has learnt; only a broker that has neighbours reads so much.
- A turn that stores events costs some half of a millisecond, however few they are. So while the thread is busy such
  turns begin at most every WINDOW, with all events and acknowledgements that were read meanwhile. Everything else is
  handed on at once, and nothing waits while the thread has time to spare.
- Back-pressure on publishers: reading stops while more than `most` bytes wait for the log, and resumes at half of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from time import thread_time
from typing import TYPE_CHECKING, Any

import msgspec

from weft.broker.driver import Driver
from weft.errors import RemoteProtocolError
from weft.protocol.link_messages import IncomingMessage, LinkEvents, LinkHello
from weft.protocol.messages import Ack, Hello, Publish
from weft.server.clock import PreciseTimer

if TYPE_CHECKING:
    from weft.server.connection import ServerConnection

WINDOW = 0.003  # seconds between the beginnings of two turns that store events, under load
EAGER = 256 << 10  # bytes that are handed on at once, whatever the window says
_LOOK = 0.010  # seconds over which the load is measured
_BUSY, _IDLE = 0.5, 0.25  # parts of a processor: above, turns become rarer; below, more frequent

MOST_HELLO = 16 << 10  # bytes
MOST_LINK_HELLO = 256 << 10

_LENGTH = Struct(">I")
_LINK_TAG = LinkHello.__struct_config__.tag  # the first element of the array, after its own first byte
_client: Callable[[bytes], Any] = msgspec.msgpack.Decoder(Hello).decode
_both: Callable[[bytes], Any] = msgspec.msgpack.Decoder(Hello | LinkHello).decode


def acknowledges_only(messages: Sequence[IncomingMessage]) -> bool:
    """Whether there is nothing but acknowledgements."""
    return all(type(message) is Ack for message in messages)


class Reads:
    """Hands what was read to a driver, and holds publishers back while much waits for the log."""

    def __init__(self, driver: Driver, most: int) -> None:
        self.events = 0  # received from clients so far
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._bytes = 0  # of what the driver holds
        self._timer = PreciseTimer(self.hand_on)
        self._begun = 0.0  # when events were last handed on
        self._window = 0.0  # seconds between two turns that store events
        self._looked = self._spent = 0.0  # when the load was last measured, and the thread's processor time then
        self._most = most
        self._publishers: dict[ServerConnection, None] = {}
        self.backlogged = False  # publishers are not read
        self._closed = False

    # -- turns -----------------------------------------------------------------------------------------

    def add(self, connection: ServerConnection, messages: Sequence[IncomingMessage], size: int) -> None:
        """Add what one read of `size` bytes brought, at least one message."""
        if self._closed:
            return
        driver, stored = self._driver, False
        for message in messages:
            if isinstance(message, Publish):
                self.events += 1
                stored = stored or message.sequence > 0
            elif isinstance(message, LinkEvents):
                stored = True
        if stored and connection not in self._publishers:
            self._publishers[connection] = None
            if self.backlogged:
                connection.hold("log")
        held = bool(driver.held)
        first = messages[0]
        if isinstance(first, LinkEvents) or (isinstance(first, Publish) and first.sequence > 0):
            hold = held or self._must_wait()
        else:
            hold = held and acknowledges_only(messages)
        if driver.receive(connection.id, messages, hold=hold):
            self._bytes = size + (self._bytes if held else 0)
            if self._bytes >= EAGER:
                self.hand_on()
        elif self._soon is None:
            self._soon = self._loop.call_soon(self._hand_on_ready)

    def _must_wait(self) -> bool:
        """Whether the next turn that stores events is still to come; else it begins now."""
        now = self._loop.time()
        if now - self._looked >= _LOOK:  # wait longer if the thread was busy, and less if it was not
            spent = thread_time()
            busy = (spent - self._spent) / (now - self._looked)
            self._looked, self._spent = now, spent
            if busy > _BUSY:
                self._window = min(WINDOW, self._window + WINDOW / 4)
            elif busy < _IDLE:
                self._window = max(0.0, self._window - WINDOW / 4)
        due = self._begun + self._window
        if due > now:
            self._timer.set(due)
            return True
        self._begun = now
        return False

    def _hand_on_ready(self) -> None:
        self._soon = None
        if not self._closed:
            self._driver.handle_ready()

    def hand_on(self) -> None:
        """Hand on whatever waits."""
        self._timer.cancel()
        if self._driver.held:
            self._begun = self._loop.time()
        self._driver.handle_all()

    def close(self) -> None:
        """Hand on nothing any more."""
        self._closed = True
        self._timer.close()

    # -- back-pressure ---------------------------------------------------------------------------------

    def forget(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        self._publishers.pop(connection, None)

    def watch(self, waiting: int) -> None:
        """Stop or resume reading: `waiting` bytes are to be committed."""
        if not self.backlogged and waiting > self._most:
            self.backlogged = True
            for connection in self._publishers:
                connection.hold("log")
        elif self.backlogged and waiting <= self._most // 2:
            self.backlogged = False
            for connection in self._publishers:
                connection.read_on("log")


class FirstFrame:
    """Reads the first frame of a connection, a hello of at most `most` bytes; `rest` is what came behind it.

    With `links` it may be the hello of a broker. Nodes of a ring greet with a frame that is decoded by `decode`.
    """

    def __init__(
        self, links: bool = False, most: int = MOST_HELLO, decode: Callable[[bytes], Any] | None = None
    ) -> None:
        self._links = links
        self._most = most
        self._decode = decode or (_both if links else _client)
        self._parts = bytearray()
        self.rest = b""

    def feed(self, data: bytes) -> Any:
        """The hello, once it is complete; None before. Raises RemoteProtocolError; the connection is then useless."""
        parts = self._parts
        parts += data
        if len(parts) < 4:
            return None
        (size,) = _LENGTH.unpack_from(parts)
        if size > self._most and not (self._links and _is_link_hello(size, parts)):
            raise RemoteProtocolError(f"a connection begins with a hello of at most {self._most:,} bytes")
        if len(parts) < 4 + size:
            return None
        frame, self.rest = bytes(parts[4 : 4 + size]), bytes(parts[4 + size :])
        parts.clear()
        try:
            return self._decode(frame)
        except (ValueError, RecursionError, OverflowError):
            raise RemoteProtocolError("a connection begins with a hello") from None


def _is_link_hello(size: int, parts: bytearray) -> bool:
    """Whether a frame may be the hello of a broker: the second byte of it is the tag."""
    return size <= MOST_LINK_HELLO and (len(parts) < 6 or parts[5] == _LINK_TAG)
