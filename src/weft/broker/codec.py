"""Messages as bytes. Laws: what is read is what was written, however the bytes are cut; anything else raises
RemoteProtocolError and nothing else, and takes memory in proportion to one frame.

A frame is one MessagePack array: the message's tag, then its fields. Fields at the end that have their default may be
missing. The attributes of an event stay the bytes that the publisher wrote, from its frame to the subscriber's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from weft.broker.delivery_run import DeliveryRun
from weft.broker.effects import Outgoing
from weft.broker.frames import MAX_FRAME, FrameReader, joined
from weft.broker.link_messages import IncomingMessage, LinkMessage
from weft.broker.messages import BrokerMessage, ClientMessage, Deliver
from weft.errors import LocalProtocolError, RemoteProtocolError

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

    @property
    def between(self) -> bool:
        """Whether everything received was complete messages."""
        return self._frames.between


def client_messages(most: int = MAX_FRAME) -> MessageReader[IncomingMessage]:
    """A reader of what a client or a neighbouring broker says: for every connection of a broker, accepted or dialled.

    >>> from weft.broker.messages import Ping
    >>> client_messages().feed(encode([Ping(7)]))
    [Ping(token=7)]
    """
    return MessageReader(_client, most)


def broker_messages(most: int = MAX_FRAME) -> MessageReader[BrokerMessage]:
    """A reader of what a broker says."""
    return MessageReader(_broker, most)


def encode(messages: Iterable[ClientMessage | BrokerMessage | LinkMessage], most: int = MAX_FRAME) -> bytes:
    """The frames of some messages. A delivery for more subscriptions than a frame has room for becomes several.

    Raises LocalProtocolError for a message that fits no frame.
    """
    messages = [*messages]
    bodies = [*map(_encode, messages)]
    if max(map(len, bodies), default=0) > most:
        pairs, bodies = zip(messages, bodies, strict=True), []
        for message, body in pairs:
            bodies += _split(message, most) if len(body) > most and type(message) is Deliver else [body]
    return joined(bodies, most)


def encode_all(messages: Iterable[Outgoing], most: int = MAX_FRAME) -> bytes:
    """The frames of what a broker sends, runs of deliveries included. Raises as `encode`."""
    parts: list[bytes] = []
    between: list[Any] = []
    for message in messages:
        if type(message) is DeliveryRun:
            written = message.frames() if most == MAX_FRAME else None
            if written is None:
                between += message.deliveries()
                continue
            if between:
                parts.append(encode(between, most))
                between = []
            parts.append(written)
        else:
            between.append(message)
    if between:
        parts.append(encode(between, most))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def one_by_one(messages: Iterable[Outgoing]) -> Iterator[BrokerMessage | LinkMessage]:
    """The same messages, with each delivery of a run as one of its own."""
    for message in messages:
        if isinstance(message, DeliveryRun):
            yield from message.deliveries()
        else:
            yield message


def _split(message: Deliver, most: int) -> list[bytes]:
    """Deliveries of one event that each fit a frame."""
    bare = len(_encode(replace(message, packed=b"")))
    some = (most - bare - 4) // 4 * 4  # whole numbers
    if some < 1:
        raise LocalProtocolError(f"an event of {bare:,} bytes does not fit a frame of {most:,}")
    packed = message.packed
    return [_encode(replace(message, packed=packed[at : at + some])) for at in range(0, len(packed), some)]
