"""The first frame of a connection. Law: until it has been answered nothing else that the connection sends is looked at;
what an unknown peer can make a broker read is one hello of at most 16 KiB, and what came in the same read.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec

from weft.broker.link_messages import LinkHello
from weft.broker.messages import Hello
from weft.errors import RemoteProtocolError

MOST_HELLO = 16 << 10  # bytes

_LENGTH = Struct(">I")
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Hello | LinkHello)


class FirstFrame:
    """Reads one hello. `rest` is what came behind it.

    >>> from weft.broker.codec import encode
    >>> from weft.broker.messages import Ping
    >>> first = FirstFrame()
    >>> first.feed(encode([Hello(session="s"), Ping()])[:-2]).session, len(first.rest)
    ('s', 5)
    """

    def __init__(self, most: int = MOST_HELLO) -> None:
        self._most = most
        self._parts = bytearray()
        self.rest = b""

    def feed(self, data: bytes) -> Hello | LinkHello | None:
        """The hello, once it is complete; None before. Raises RemoteProtocolError; the connection is then useless."""
        parts = self._parts
        parts += data
        if len(parts) < 4:
            return None
        (size,) = _LENGTH.unpack_from(parts)
        if size > self._most:
            raise RemoteProtocolError(f"a connection begins with a hello of at most {self._most:,} bytes")
        if len(parts) < 4 + size:
            return None
        frame, self.rest = bytes(parts[4 : 4 + size]), bytes(parts[4 + size :])
        parts.clear()
        try:
            hello: Hello | LinkHello = _decoder.decode(frame)
            return hello
        except (ValueError, RecursionError, OverflowError):
            raise RemoteProtocolError("a connection begins with a hello") from None
