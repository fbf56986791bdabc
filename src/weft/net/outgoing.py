"""Events as applications publish them. Law: what cannot be an event is refused here, before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from weft.broker.admission import MAX_EVENT
from weft.errors import EventError
from weft.model.cloudevents import CloudData
from weft.model.door import is_unicode
from weft.model.event import Event, attributes_of
from weft.net.publisher import UnconfirmedEvent

_encode = msgspec.msgpack.Encoder().encode

_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


def outgoing(
    event: Event | Mapping[str, Any],
    payload: Any = None,
    datacontenttype: str = "",
    ttl: float | timedelta | None = None,
) -> UnconfirmedEvent:
    """The event of a mapping or an `Event`. Raises EventError.

    Bytes are sent as they are, a string as UTF-8 text, and anything else as JSON.

    >>> sent = outgoing({"magnitude": 5.2}, payload={"felt": 12})
    >>> sent.payload, sent.datacontenttype
    (b'{"felt":12}', 'application/json')
    """
    attributes = attributes_of(event)
    for value in attributes.values():
        if type(value) is datetime and value.tzinfo is None:
            attributes = {name: _in_utc(value) for name, value in attributes.items()}
            break
    if payload is None and type(event) is Event:
        payload = event.payload
    body = b""
    if type(payload) is bytes:
        body = payload
    elif payload is not None:
        body, kind = _body(payload)
        datacontenttype = datacontenttype or kind
    if datacontenttype and not is_unicode(datacontenttype):
        raise EventError("datacontenttype is not valid Unicode text")
    raw = _encode(attributes)
    if len(raw) + len(body) > MAX_EVENT - len(datacontenttype) - 64:
        raise EventError(f"an event has at most {MAX_EVENT:,} bytes; send the payload by other means")
    return UnconfirmedEvent(msgspec.Raw(raw), body, datacontenttype, 0 if ttl is None else _micros(ttl))


def _in_utc(value: object) -> object:
    return value.replace(tzinfo=UTC) if type(value) is datetime and value.tzinfo is None else value


def _body(payload: Any) -> tuple[bytes, str]:
    """A payload as bytes, and its media type."""
    if isinstance(payload, CloudData):
        if payload.data is msgspec.UNSET:
            return b"", ""
        payload = payload.data
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
