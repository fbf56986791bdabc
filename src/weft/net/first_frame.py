"""The first frame of a connection. Law: until it has been answered nothing else that the connection sends is looked at;
what an unknown peer can make a broker read is one hello of at most 16 KiB, and what came in the same read.

`LeadingFrame` collects one frame of a bounded size, whatever is in it; nodes of a ring greet with one, too.

The hello of a broker may have 256 KiB, because it carries what its routing table has learnt; only a broker that has
neighbours reads so much.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec

from weft.broker.link_messages import LinkHello
from weft.broker.messages import Hello
from weft.errors import RemoteProtocolError

MOST_HELLO = 16 << 10  # bytes
MOST_LINK_HELLO = 256 << 10

_LENGTH = Struct(">I")
_LINK_TAG = LinkHello.__struct_config__.tag  # the first element of the array, after its own first byte
_client: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Hello)
_both: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Hello | LinkHello)


class LeadingFrame:
    """Collects one frame of at most `most` bytes. `rest` is what came behind it.

    >>> first = LeadingFrame(most=9)
    >>> first.feed(b"\\0\\0\\0"), first.feed(b"\\2hi, there"), first.rest
    (None, b'hi', b', there')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts = bytearray()
        self.rest = b""

    def feed(self, data: bytes) -> bytes | None:
        """The frame, once it is complete; None before. Raises RemoteProtocolError; the connection is then useless."""
        parts = self._parts
        parts += data
        if len(parts) < 4:
            return None
        (size,) = _LENGTH.unpack_from(parts)
        if size > self._most and not self._may_be_longer(size, parts):
            raise RemoteProtocolError(f"a connection begins with a hello of at most {self._most:,} bytes")
        if len(parts) < 4 + size:
            return None
        frame, self.rest = bytes(parts[4 : 4 + size]), bytes(parts[4 + size :])
        parts.clear()
        return frame

    def _may_be_longer(self, size: int, parts: bytearray) -> bool:  # noqa: ARG002 - others may allow more
        """Whether a frame longer than `most` is allowed, going by its first bytes as far as they are here."""
        return False


class FirstFrame:
    """Reads one hello, of a broker only with `links`. `rest` is what came behind it.

    >>> from weft.broker.codec import encode
    >>> from weft.broker.messages import Ping
    >>> first = FirstFrame()
    >>> first.feed(encode([Hello(session="s"), Ping()])[:-2]).session, len(first.rest)
    ('s', 5)
    """

    def __init__(self, links: bool = False, most: int = MOST_HELLO) -> None:
        self._links = links
        self._frame = _HelloFrame(links, most)

    @property
    def rest(self) -> bytes:
        """What came behind the hello."""
        return self._frame.rest

    def feed(self, data: bytes) -> Hello | LinkHello | None:
        """The hello, once it is complete; None before. Raises RemoteProtocolError; the connection is then useless."""
        frame = self._frame.feed(data)
        if frame is None:
            return None
        try:
            hello: Hello | LinkHello = (_both if self._links else _client).decode(frame)
            return hello
        except (ValueError, RecursionError, OverflowError):
            raise RemoteProtocolError("a connection begins with a hello") from None


class _HelloFrame(LeadingFrame):
    """That of a broker may be longer: its tag, the second byte of the frame, tells."""

    def __init__(self, links: bool, most: int) -> None:
        super().__init__(most)
        self._links = links

    def _may_be_longer(self, size: int, parts: bytearray) -> bool:
        return self._links and size <= MOST_LINK_HELLO and (len(parts) < 6 or parts[5] == _LINK_TAG)
