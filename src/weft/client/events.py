"""Events as applications publish and receive them.

What cannot be an event is refused by `outgoing`, before anything is sent. A received event is acknowledged or refused
once; later calls have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from weft.client.publisher import UnconfirmedEvent
from weft.client.subscription import LOG_SPAN
from weft.client.subscription_handle import Inbox
from weft.errors import EventError
from weft.model.cloudevents import CloudData, payload_of
from weft.model.door import is_unicode
from weft.model.event import Event, attributes_of
from weft.model.lists import AttributeValue
from weft.model.value import from_micros
from weft.protocol.messages import MAX_EVENT, Deliver, Head, read_head

if TYPE_CHECKING:
    from weft.client.profiles import ProfileNotice

_encode = msgspec.msgpack.Encoder().encode

_position = attrgetter("position")

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_REASON = 1_000  # characters of a reason, as many as the broker keeps

Publishable = Event | Mapping[str, Any] | UnconfirmedEvent  # the last one is what `outgoing` returns


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a published event is stored: the id of the broker's log, and the event's offset in it.

    Both are empty if the event is not durable, or if its place is not known: the confirmation was lost with a
    connection, or the broker is older than version 6 of the protocol.

    >>> receipt = Receipt("9f2c", 17)
    >>> print(receipt)
    stored at offset 17 of log 9f2c
    >>> print(Receipt("", 0))
    its place in the log is not known
    """

    log: str
    offset: int

    def __str__(self) -> str:
        if not self.offset:
            return "its place in the log is not known"
        return f"stored at offset {self.offset} of log {self.log}"


def outgoing(
    event: Publishable, payload: Any = None, datacontenttype: str = "", ttl: float | timedelta | None = None
) -> UnconfirmedEvent:
    """An event as it is sent, checked. Raises EventError. Cost: O(bytes).

    Bytes are sent as they are, a string as UTF-8 text, and anything else as JSON. A received event brings its payload
    along. What this function has returned is returned as it is.

    >>> sent = outgoing({"magnitude": 5.2}, payload={"felt": 12})
    >>> sent.payload, sent.datacontenttype
    (b'{"felt":12}', 'application/json')
    """
    if type(event) is UnconfirmedEvent:
        return event
    attributes = attributes_of(event)  # type: ignore[arg-type]
    for value in attributes.values():
        if type(value) is datetime and value.tzinfo is None:
            attributes = {name: _in_utc(value) for name, value in attributes.items()}
            break
    if payload is None and type(event) is Event:
        payload = event.payload
    elif payload is None and isinstance(event, _Received):
        payload, datacontenttype = event.payload, datacontenttype or event.datacontenttype
    body = b""
    if type(payload) is bytes:
        body = payload
    elif isinstance(payload, CloudData):
        declared = attributes.get("datacontenttype") or payload.spelled.get("datacontenttype")
        body, kind = payload_of(payload.data, declared if isinstance(declared, str) else "")
        datacontenttype = datacontenttype or kind
    elif payload is not None:
        body, kind = _body(payload)
        datacontenttype = datacontenttype or kind
    if datacontenttype and not is_unicode(datacontenttype):
        raise EventError("datacontenttype is not valid Unicode text")
    raw = _encode(attributes if type(attributes) is dict else dict(attributes))
    if len(raw) + len(body) > MAX_EVENT - len(datacontenttype) - 64:
        raise EventError(f"an event has at most {MAX_EVENT:,} bytes; send the payload by other means")
    return UnconfirmedEvent(msgspec.Raw(raw), body, datacontenttype, 0 if ttl is None else _micros(ttl))


def _in_utc(value: object) -> object:
    return value.replace(tzinfo=UTC) if type(value) is datetime and value.tzinfo is None else value


def _body(payload: Any) -> tuple[bytes, str]:
    """A payload as bytes, and its media type."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload), ""
    try:
        if isinstance(payload, str):
            return payload.encode(), _TEXT
        return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(), _JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"the payload is neither bytes, text nor JSON ({error}); encode it yourself") from None


def _micros(ttl: float | timedelta) -> int:
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else float(ttl)
    if not 0 < seconds < 1e12:
        raise EventError(f"ttl is the number of seconds after which the event expires, above 0, not {ttl!r}")
    return max(1, round(seconds * 1e6))


class _Received(Mapping[str, AttributeValue | None]):
    """A received event, as threads use it: a mapping of its attributes. One that is absent is None."""

    __slots__ = ("_done", "_head", "_inbox", "_message")

    def __init__(self, message: Deliver, inbox: Inbox) -> None:
        self._message = message
        self._inbox = inbox
        self._head: Head | None = None
        self._done = not message.offset or not inbox.durable

    def _read(self) -> Head:
        if self._head is None:
            self._head = read_head(self._message.head)
        return self._head

    @property
    def message(self) -> Deliver:
        """The delivery as it was received, with the attributes still encoded. Cost: O(1)."""
        return self._message

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes, by name. Cost: O(bytes of the attributes) when it is first used, then O(1)."""
        return self._read().attributes

    @property
    def payload(self) -> bytes:
        """What the publisher sent besides the attributes. Cost: O(1)."""
        return self._message.payload

    @property
    def datacontenttype(self) -> str:
        """The media type of the payload; empty if the publisher gave none. Cost: as `attributes`."""
        return self._read().datacontenttype

    @property
    def text(self) -> str:
        """The payload as UTF-8 text. Cost: O(bytes) at each use."""
        return self._message.payload.decode()

    def json(self) -> Any:
        """The payload read as JSON. Cost: O(bytes) at each call."""
        return json.loads(self._message.payload)

    @property
    def profile(self) -> ProfileNotice | None:
        """What has become of a profile, if the event says that; None for any other event. Cost: as `attributes`."""
        from weft.client.profiles import profile_notice

        return profile_notice(self._read().attributes)

    @property
    def offset(self) -> int:
        """Its place in the broker's log; 0 for an event that is not durable. Cost: O(1)."""
        return self._message.offset % LOG_SPAN

    @property
    def matched(self) -> tuple[str | int, ...]:
        """Which filters of its subscription it matches: their names, or positions, as given to `subscribe_many`.

        For a subscription of one filter, its name, or its text if it has no name. A filter that an earlier client
        has subscribed to, and this one has not, is not among them. Cost: O(filters that it matches).
        """
        filters = self._inbox.filters
        found = [filters[number] for number in self._message.numbers if number in filters]
        found.sort(key=_position)
        return tuple([each.label for each in found])

    @property
    def attempt(self) -> int:
        """How often it was delivered, including this time, as far as the broker knows. Cost: O(1)."""
        return self._message.attempt

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it. Cost: O(1)."""
        return from_micros(self._message.at)

    def __getitem__(self, name: str) -> AttributeValue | None:
        return self._read().attributes.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._read().attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._read().attributes)

    def __len__(self) -> int:
        """How many attributes there are."""
        return len(self._read().attributes)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or `default` when it is absent. Cost: as `attributes`."""
        return self._read().attributes.get(name, default)

    def __repr__(self) -> str:
        return f"<event {self.offset}: {self.attributes}>"

    def ack(self) -> None:
        """Acknowledge it: the broker does not deliver it again. This is sent within milliseconds.

        Cost: O(1), no round trip.
        """
        if not self._done:
            self._done = True
            self._inbox.ack(self._message.offset)

    def nack(self, reason: str = "") -> None:
        """Report a failure: the broker delivers it again later, and after some failures keeps it as a dead letter.

        Cost: O(1), no round trip.
        """
        if not self._done:
            self._done = True
            said = str(reason)[:_REASON].encode(errors="replace").decode()
            self._inbox.nack(self._message.offset, self._message.attempt, said)


class ReceivedEvent(_Received):
    """An event that a subscription of `weft.connect` yields.

    >>> import asyncio
    >>> from weft.testing import broker
    >>> async def main(local):
    ...     async with local.connect() as client, client.subscribe("x > 0", name="alerts") as alerts:
    ...         await client.publish({"x": 1}, payload="hello")
    ...         event = await anext(alerts)
    ...         await event.ack()
    ...         return event["x"], event.text, event.offset, event.attempt
    >>> with broker() as local:
    ...     asyncio.run(main(local))
    (1, 'hello', 1, 1)
    """

    __slots__ = ()

    async def ack(self) -> None:  # type: ignore[override] # the same call, awaited
        """Acknowledge it: the broker does not deliver it again. This is sent within milliseconds.

        Cost: O(1), no round trip.
        """
        super().ack()

    async def nack(self, reason: str = "") -> None:  # type: ignore[override]
        """Report a failure: the broker delivers it again later, and after some failures keeps it as a dead letter.

        Cost: O(1), no round trip.
        """
        super().nack(reason)


class SyncReceivedEvent(_Received):
    """An event that a subscription of `weft.connect_sync` yields.

    >>> from weft.testing import broker
    >>> with broker() as local, local.connect_sync() as client, client.subscribe("x > 0", name="alerts") as alerts:
    ...     _ = client.publish({"x": 1}, payload=[1, 2])
    ...     event = next(alerts)
    ...     event.ack()
    >>> event.attributes, event.json(), event.datacontenttype
    ({'x': 1}, [1, 2], 'application/json')
    """

    __slots__ = ()
