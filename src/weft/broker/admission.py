"""Admission of events: each is checked against the schema, and stored as its publisher wrote it.

A value that the schema does not admit becomes absent, and its name is reported. Only then, and where the publisher did
not write an event as Weft writes it (nested maps, text for `time`), are the attributes written anew.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from weft.errors import EventError
from weft.log.base import NEVER
from weft.model.door import WELL_KNOWN, untestable
from weft.model.event import Event, attributes_of, too_large
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.model.value import INT_MAX
from weft.protocol.messages import MAX_EVENT, Head, Publish, read_head

__all__ = ["MAX_EVENT", "Admission", "Admitted", "expiry", "read_head"]

_Plain = bool | Annotated[int, msgspec.Meta(le=INT_MAX)] | float | str | None
_plain = msgspec.msgpack.Decoder(dict[str, _Plain]).decode
_any = msgspec.msgpack.Decoder(dict[str, Any])
_heads = msgspec.msgpack.Decoder(Head)
_plain_heads = msgspec.msgpack.Decoder(tuple[dict[str, _Plain]])  # without content type and expiry
_encode = msgspec.msgpack.Encoder().encode

_ONE = b"\x91"  # an array of one: a head without content type and expiry
_MOST_SHAPES = 4096
_MAP_16, _MAP_32 = 0xDE, 0xDF  # MessagePack's maps of more than 15 entries


Admitted = tuple[dict[str, Any], bytes, int]  # attributes, head, and when it expires in UTC microseconds


class Admission:
    """Checks the events of one broker. `absent` has the names whose values the schema did not admit, of the last event.

    >>> admission = Admission(Schema.of(x="int"))
    >>> admission.admit(Publish.of(1, {"x": "five", "y": 2}), at=0), admission.absent
    (({'y': 2}, b'\\x91\\x81\\xa1y\\x02', 9223372036854775807), ('x',))
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self._schema = schema
        self.has_schema = schema is not None  # without one, no value becomes absent
        self._shapes: set[tuple[str, ...]] = set()  # names of earlier events that need no closer look
        self.absent: tuple[str, ...] = ()
        self.lists = False  # whether any event had a list

    def admit(self, message: Publish, at: int) -> Admitted:
        """The event of a message. Raises EventError. Cost: about a microsecond, where the attributes are plain."""
        raw = message.attributes
        if len(memoryview(raw)) > LIMITS.attributes and _count(raw) > LIMITS.attributes:
            raise too_large(many=True)
        try:
            attributes: dict[str, Any] = _plain(raw)
            shape = tuple(attributes)
            head = _ONE + raw if shape in self._shapes else b""
            if not head or head[1] != 0x80 | len(shape):  # or a name comes twice, or the map could be shorter
                attributes, head = self._looked_at(attributes)
        except msgspec.ValidationError:
            attributes, head = self._looked_at(_decoded(raw))
        except (ValueError, RecursionError) as error:
            raise EventError(f"the attributes of an event cannot be read: {error}") from None
        if len(head) + len(message.payload) > MAX_EVENT:
            raise EventError(f"an event has at most {MAX_EVENT:,} bytes; send the payload by other means")
        if self._schema is not None:
            self.absent = ()
            kept = self._schema.conform(Event(attributes)).attributes
            if kept is not attributes:
                self.absent = tuple(name for name in attributes if name not in kept)
                attributes, head = kept, _ONE + _encode(kept)
        if not message.ttl and not message.datacontenttype:
            return attributes, head, NEVER
        expires = min(at + message.ttl, NEVER) if message.ttl else NEVER
        return attributes, b"\x93" + head[1:] + _encode(message.datacontenttype) + _encode(expires), expires

    def admit_values(self, message: Publish, at: int) -> Admitted:
        """The event of a client of version 2, in which lists are refused. Raises EventError. Cost: as `admit`."""
        admitted = self.admit(message, at)
        if self.lists:
            for name, value in admitted[0].items():
                if type(value) is list:
                    raise untestable(name, "list")
        return admitted

    def relayed(self, raw: bytes) -> Admitted:
        """An event that another broker has admitted, by its head. Raises EventError. Cost: as `admit`."""
        try:
            (attributes,) = _plain_heads.decode(raw)
            if tuple(attributes) in self._shapes:
                return attributes, bytes(raw), NEVER
        except (ValueError, RecursionError):
            pass  # a closer look will tell
        try:
            head = _heads.decode(raw)
        except (ValueError, RecursionError) as error:
            raise EventError(f"the head of an event cannot be read: {error}") from None
        if attributes_of(head.attributes) is not head.attributes:
            raise EventError("the attributes of an event are not as a broker writes them")
        self._remember(tuple(head.attributes))
        self.lists = self.lists or list in map(type, head.attributes.values())
        return head.attributes, bytes(raw), head.expires

    def _looked_at(self, attributes: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """What the event is when one looks at each attribute."""
        event = Event.of(attributes).attributes
        self.lists = self.lists or list in map(type, event.values())
        shape = tuple(attributes)
        if tuple(event) == shape:
            self._remember(shape)
        return event, _ONE + _encode(event)

    def _remember(self, shape: tuple[str, ...]) -> None:
        """These names are harmless, whatever plain values they have, if they are few and none has a fixed type."""
        if len(shape) <= 15 and WELL_KNOWN.keys().isdisjoint(shape) and sum(map(len, shape)) <= LIMITS.name:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes.add(shape)


def _count(raw: msgspec.Raw) -> int:
    """The attributes of a map, by its first bytes: those of a map of very many are not decoded."""
    first = bytes(memoryview(raw)[:5])
    if first[0] == _MAP_32:
        return int.from_bytes(first[1:5], "big")
    return int.from_bytes(first[1:3], "big") if first[0] == _MAP_16 else 0


def _decoded(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return _any.decode(raw)
    except (ValueError, RecursionError) as error:
        raise EventError(f"the attributes of an event cannot be read: {error}") from None


def has_list(head: bytes) -> bool:
    """Whether an event that was stored has a list."""
    return list in map(type, _heads.decode(head).attributes.values())


def expiry(head: bytes) -> int:
    """When an event that was stored expires. Cost: nothing, for one that does not."""
    return NEVER if head[:1] == _ONE else _heads.decode(head).expires
