"""CloudEvents in HTTP requests and answers: binary, structured and batch (CloudEvents HTTP binding 1.0).

Law: what is published through the gateway, in whatever mode, comes back as an equal CloudEvent: the same attributes,
where a timestamp is an instant in microseconds, and the same data. What a Python client publishes comes back as a
CloudEvent that means the same event; see `weft.model.cloudevents`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from weft.client.events import outgoing
from weft.client.publisher import UnconfirmedEvent
from weft.errors import EventError
from weft.gateway.problems import EVENT, MEDIA, TOO_LARGE, ProblemError
from weft.model.cloudevents import CloudData, data_of, from_cloudevent, read_json, to_cloudevent
from weft.model.door import shown
from weft.model.event import Event
from weft.model.schema import Schema
from weft.model.value import Type

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
MOST_EVENTS = 1_000  # in a batch
MOST_BODY = 8 << 20  # bytes of a request
EVENT_ID = "weftid"  # the extension that has the id of an event in a stream; see `frames`
SOURCE, TYPE = "/weft", "event"  # of events that have none

_CLOUD = "application/cloudevents"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBER = {Type.FLOAT: float, Type.INT: int}
_encode = msgspec.json.Encoder().encode

Headers = Iterable[tuple[bytes, bytes]]  # names in lower case, as ASGI has them


# -- in ------------------------------------------------------------------------------------------------------


def read_events(
    content_type: str, headers: Headers, body: bytes, schema: Schema | None = None, ttl: float | None = None
) -> list[UnconfirmedEvent]:
    """The events of a request, all checked. Raises ProblemError; of a batch, with the place of each bad event."""
    mode = content_type.lower()
    if not mode.startswith(_CLOUD):
        return [outgoing(_binary(content_type, headers, body, schema), ttl=ttl)]
    media = mode.partition(";")[0].strip()
    if media == STRUCTURED:
        return [outgoing(_structured(read_json(body), schema), ttl=ttl)]
    if media != BATCH:
        known = f"{STRUCTURED}, {BATCH}, or any other type with ce- headers"
        raise ProblemError(MEDIA, f"events of the type {media} are not supported; send {known}")
    messages = read_json(body)
    if not isinstance(messages, list):
        raise ProblemError(EVENT, "a batch must be a JSON array of CloudEvents")
    if len(messages) > MOST_EVENTS:
        raise ProblemError(TOO_LARGE, f"a batch has at most {MOST_EVENTS:,} events; send several", limit=MOST_EVENTS)
    events: list[UnconfirmedEvent] = []
    errors: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        try:
            events.append(outgoing(_structured(message, schema), ttl=ttl))
        except EventError as error:
            errors.append({"index": index, "detail": str(error)})
    if errors:
        some = f"{len(errors)} of {len(messages)} events cannot be read; nothing was published"
        raise ProblemError(EVENT, some, errors=errors)
    return events


def read_message(text: str | bytes, schema: Schema | None = None) -> UnconfirmedEvent:
    """The event of one CloudEvent in JSON. Raises EventError."""
    return outgoing(_structured(read_json(text), schema))


def read_event(message: Any, schema: Schema | None = None) -> Event:
    """An event that is asked about: a CloudEvent, or any mapping of names to values. Raises EventError."""
    if isinstance(message, Mapping) and "specversion" in message:
        return _structured(message, schema)
    return Event.of(message)


def _structured(message: Any, schema: Schema | None) -> Event:
    if isinstance(message, dict) and EVENT_ID in message:
        message = {name: value for name, value in message.items() if name != EVENT_ID}
    return from_cloudevent(message, schema, exact=False)


def _binary(content_type: str, headers: Headers, body: bytes, schema: Schema | None) -> Event:
    message: dict[str, Any] = {}
    for raw, value in headers:
        if raw.startswith(b"ce-"):
            name = raw[3:].decode("ascii")
            if name in message:
                raise EventError(f"the header ce-{name} comes twice; keep one")
            text = header_value(value)
            declared = None if schema is None else schema.get(name)
            message[name] = text if declared is None else _typed(declared.type, text)
    message.pop(EVENT_ID, None)
    if "specversion" not in message:
        modes = f"ce- headers, {STRUCTURED} or {BATCH}"
        raise ProblemError(MEDIA, f"the request is not a CloudEvent; send one with {modes}")
    for name in ("datacontenttype", "data"):
        if name in message:
            raise EventError(f"ce-{name} is not a header of CloudEvents; send Content-Type, and the data as the body")
    if content_type:
        message["datacontenttype"] = content_type
    data = data_of(body, content_type) if body else msgspec.UNSET
    if schema is not None and isinstance(data, msgspec.Raw):  # values are promoted from the data
        event = from_cloudevent(message | {"data": json.loads(bytes(data))}, schema)
    else:
        event = from_cloudevent(message, schema)
    if body:
        assert isinstance(event.payload, CloudData)
        event = Event(event.attributes, msgspec.structs.replace(event.payload, data=body))
    return event


def header_value(raw: bytes) -> str:
    """The attribute that a header holds: quotes are removed, then percent-encoding. Raises EventError.

    >>> header_value(b"Euro%20%E2%82%AC"), header_value(b'"a \\\\"b\\\\""')
    ('Euro €', 'a "b"')
    """
    try:
        text = raw.decode("utf-8")
        quoted = _QUOTED.fullmatch(text)
        if quoted is not None:
            text = re.sub(r"\\(.)", r"\1", quoted[1])
        if "%" not in text:
            return text
        if _BAD_ESCAPE.search(text):
            raise EventError(f"{shown(text)} has a % without two hexadecimal digits; write %25")
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise EventError(f"the header value {shown(raw)} is not UTF-8 in percent-encoding") from None


def _typed(kind: Type, text: str) -> Any:
    """A header's text as the schema's type; as it is, where it is none."""
    try:
        if kind in _NUMBER:
            return _NUMBER[kind](text)
    except ValueError:
        return text
    return {"true": True, "false": False}.get(text, text) if kind is Type.BOOL else text


# -- out -----------------------------------------------------------------------------------------------------


def write_event(
    attributes: dict[str, Any], payload: bytes, kind: str, event_id: str, schema: Schema | None = None
) -> bytes:
    """An event as a CloudEvent in JSON, on one line. `event_id` is its id if it has none."""
    defaults = {"id": event_id, "source": SOURCE, "type": TYPE}
    data: Any = data_of(payload, kind)
    if not isinstance(data, msgspec.Raw):
        if kind:
            defaults["datacontenttype"] = kind
    elif kind != "application/json":
        defaults["datacontenttype"] = kind
    elif schema is not None:
        data = json.loads(bytes(data))
    message = to_cloudevent(Event(attributes, CloudData(data)), schema, defaults)
    return _encode(message)
