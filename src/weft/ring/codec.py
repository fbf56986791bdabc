"""Messages of the ring as bytes. Law: bytes that are not such messages raise RemoteProtocolError and nothing else.

A frame is a MessagePack array: the sender, and its messages. A node hands whole key ranges over in one message, so
frames may be much longer than between brokers and clients.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from weft.broker.frames import FrameReader, joined
from weft.errors import RemoteProtocolError
from weft.ring.messages import NodeRef
from weft.ring.rendezvous_messages import RingMessage

MAX_RING_FRAME = 64 << 20  # bytes


class RingFrame(msgspec.Struct, frozen=True, array_like=True):
    """What one node sends to another at once."""

    sender: NodeRef
    messages: list[RingMessage]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RingFrame).decode


def encode_ring(sender: NodeRef, messages: Iterable[RingMessage]) -> bytes:
    """A frame of these messages. Raises LocalProtocolError if it is too long."""
    return joined([_encode(RingFrame(sender, list(messages)))], MAX_RING_FRAME)


class RingReader:
    """Reads what one node sends.

    >>> from weft.ring.messages import Address, Ask, Key, Token
    >>> data = encode_ring(NodeRef(Key(5), Address("a")), [Ask(Token(1))])
    >>> [frame.messages for frame in RingReader().feed(data)]
    [[Ask(token=1)]]
    """

    def __init__(self) -> None:
        self._frames = FrameReader(MAX_RING_FRAME)

    def feed(self, data: bytes) -> list[RingFrame]:
        """The frames that are complete with this data. Raises RemoteProtocolError; the connection is then useless."""
        try:
            return [_decode(frame) for frame in self._frames.feed(data)]
        except (ValueError, RecursionError, OverflowError) as error:  # msgspec's errors are ValueErrors
            raise RemoteProtocolError(f"a message of the ring cannot be read: {error}") from None
