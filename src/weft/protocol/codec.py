"""Frames and messages as bytes.

Law: what is read is what was written, however the bytes are cut; anything else raises RemoteProtocolError and nothing
else. A reader never holds more than one frame and one read.

A frame is a length of four bytes, big-endian, and as many bytes after it. The highest bits of the length are always 0
for now, because no frame is longer than 1 MiB; they are reserved (for compression, say). What follows the length is one
MessagePack array: the message's tag, then its fields. Fields at the end that have their default may be
missing. The attributes of an event stay the bytes that the publisher wrote, from its frame to the subscriber's.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.protocol.link_messages import IncomingMessage, LinkMessage
from weft.protocol.messages import BrokerMessage, ClientMessage, Deliver

MAX_FRAME = 1 << 20  # bytes after the length

_LENGTH = Struct(">I")


class FrameReader:
    """Cuts what was received into frames. After an error it accepts nothing more.

    >>> reader = FrameReader()
    >>> [bytes(frame) for frame in reader.feed(b"\\0\\0\\0\\2hi\\0\\0")]
    [b'hi']
    >>> [bytes(frame) for frame in reader.feed(b"\\0\\1!")]
    [b'!']
    """

    def __init__(self, most: int = MAX_FRAME) -> None:
        self._most = most
        self._part = bytearray()  # of a frame that is not complete
        self._need = 4  # how long `_part` must be before there is anything to do
        self._broken = False

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are complete with this data. Raises RemoteProtocolError for a frame that is too long."""
        if self._broken:
            raise RemoteProtocolError("frames follow one that was refused")
        part = self._part
        if part:
            part += data
            if len(part) < self._need:
                return []
            data = bytes(part)
            part.clear()
        view, at, end = memoryview(data), 0, len(data)
        frames: list[memoryview] = []
        self._need = 4
        while end - at >= 4:
            (size,) = _LENGTH.unpack_from(data, at)
            if size > self._most:
                self._broken = True
                raise RemoteProtocolError(f"a frame of {size:,} bytes is longer than {self._most:,}")
            if end - at < 4 + size:
                self._need = 4 + size
                break
            frames.append(view[at + 4 : at + 4 + size])
            at += 4 + size
        part += view[at:]
        return frames


def joined(bodies: Iterable[bytes], most: int = MAX_FRAME) -> bytes:
    """Frames of these bodies, one after the other. Raises LocalProtocolError for one that is too long.

    >>> joined([b"hi", b"!"])
    b'\\x00\\x00\\x00\\x02hi\\x00\\x00\\x00\\x01!'
    """
    bodies = [*bodies]
    sizes = [*map(len, bodies)]
    longest = max(sizes, default=0)
    if longest > most:
        raise LocalProtocolError(f"a frame of {longest:,} bytes is longer than {most:,}")
    parts = [b""] * (2 * len(bodies))
    parts[::2] = map(_LENGTH.pack, sizes)
    parts[1::2] = bodies
    return b"".join(parts)


# -- messages -----------------------------------------------------------------------------------------

M = TypeVar("M")

_encode = msgspec.msgpack.Encoder().encode
_client: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(IncomingMessage)
_broker: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(BrokerMessage)


class MessageReader(Generic[M]):
    """Reads the messages of one connection; see `client_messages` and `broker_messages`."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], most: int) -> None:
        self._decode = decoder.decode
        self._frames = FrameReader(most)

    def feed(self, data: bytes) -> list[M]:
        """The messages that are complete with this data. Raises RemoteProtocolError; the connection is then useless."""
        frames = self._frames.feed(data)
        try:
            return [*map(self._decode, frames)]
        except (ValueError, RecursionError, OverflowError) as error:  # msgspec's errors are ValueErrors
            raise RemoteProtocolError(f"a message that was received cannot be read: {error}") from None


def client_messages() -> MessageReader[IncomingMessage]:
    """A reader of the messages of clients and neighbouring brokers, for any connection of a broker.

    >>> from weft.protocol.messages import Ping
    >>> client_messages().feed(encode([Ping(7)]))
    [Ping(token=7)]
    """
    return MessageReader(_client, MAX_FRAME)


def broker_messages(most: int = MAX_FRAME) -> MessageReader[BrokerMessage]:
    """A reader of the messages of a broker to its clients."""
    return MessageReader(_broker, most)


def encode(messages: Iterable[ClientMessage | BrokerMessage | LinkMessage], most: int = MAX_FRAME) -> bytes:
    """The frames of some messages. A delivery for more subscriptions than a frame has room for becomes several.

    Raises LocalProtocolError for a message that fits no frame.
    """
    messages = [*messages]
    bodies = [*map(_encode, messages)]
    if len(bodies) == 1 and len(bodies[0]) <= most:
        return _LENGTH.pack(len(bodies[0])) + bodies[0]
    if max(map(len, bodies), default=0) > most:
        pairs, bodies = zip(messages, bodies, strict=True), []
        for message, body in pairs:
            bodies += _split(message, most) if len(body) > most and type(message) is Deliver else [body]
    return joined(bodies, most)


def _split(message: Deliver, most: int) -> list[bytes]:
    """Deliveries of one event that each fit a frame."""
    bare = len(_encode(replace(message, packed=b"")))
    some = (most - bare - 4) // 4 * 4  # whole numbers
    if some < 1:
        raise LocalProtocolError(f"an event of {bare:,} bytes does not fit a frame of {most:,}")
    packed = message.packed
    return [_encode(replace(message, packed=packed[at : at + some])) for at in range(0, len(packed), some)]
