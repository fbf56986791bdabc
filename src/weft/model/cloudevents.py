"""CloudEvents 1.0 as events, and back. Law: to_cloudevent(from_cloudevent(m)) == m for every valid m.

The context attributes of a CloudEvent, extensions included, are the attributes of the event; its data is the
payload. A schema with data paths promotes values from JSON data to attributes, where filters see them.
What the event alone would spell otherwise (an offset, nanoseconds, a null) is kept beside the data.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from weft.errors import EventError
from weft.model.door import as_value, shown
from weft.model.event import Event, check_event_size
from weft.model.limits import MAX_DEPTH
from weft.model.schema import Attribute, Schema, repeated
from weft.model.value import Type, Value, format_timestamp, from_micros, parse_timestamp, to_micros, type_of

_REQUIRED = ("id", "source", "type")
_TEXTS = frozenset({*_REQUIRED, "datacontenttype", "dataschema", "subject"})  # never empty where they are
_NAME = re.compile(r"[a-z0-9]+")
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)  # linear, also in text that is no JSON
_NO_SCHEMA = Schema()
_SCALARS = (bool, int, float, str)
_INT32 = range(-(2**31), 2**31)  # all that a CloudEvents integer holds


class CloudData(msgspec.Struct, frozen=True):
    """The payload of an event that was a CloudEvent: bytes, a JSON value, or UNSET where it had no data.

    `spelled` has the context attributes that the event alone would write otherwise, `read` what the event
    made of them, and what it promoted from the data.

    >>> message = {"specversion": "1.0", "id": "1", "source": "/usgs", "type": "quake", "data": {"depth": 10}}
    >>> from_cloudevent(message).payload.data
    {'depth': 10}
    """

    data: Any = UNSET
    spelled: dict[str, Any] = {}
    read: dict[str, Value] = {}


def from_cloudevent(message: Mapping[str, Any] | bytes | str, schema: Schema | None = None) -> Event:
    """The event of a CloudEvent in JSON's structured form. Raises EventError, and nothing else.

    A schema gives extensions their types (otherwise a timestamp stays text) and promotes values from the data,
    unless the message itself has an attribute of that name; a value of another type is absent.

    >>> schema = Schema.of(Attribute("depth", Type.FLOAT, data="where.depth"))
    >>> text = '{"specversion":"1.0", "id":"1", "source":"/", "type":"quake", "data":{"where":{"depth":10}}}'
    >>> from_cloudevent(text, schema).attributes
    {'id': '1', 'source': '/', 'type': 'quake', 'depth': 10}
    """
    if isinstance(message, bytes | str):
        message = _parsed(message)
    if not isinstance(message, Mapping):
        raise EventError(f"a CloudEvent must be a JSON object, not a {type(message).__name__}")
    version = message.get("specversion")
    if version != "1.0":
        raise EventError(f"a CloudEvent must have the specversion '1.0', not {shown(version)}")
    for name in _REQUIRED:
        if message.get(name) is None:
            raise EventError(f"a CloudEvent must have {name!r}; add it")
    schema = schema or _NO_SCHEMA
    data = _data(message)
    attributes: dict[str, Value] = {}
    spelled: dict[str, Any] = {}
    read: dict[str, Value] = {}
    for name, given in message.items():
        if name in ("specversion", "data", "data_base64"):
            continue
        value = _context(name, given)
        declared = schema.get(name)
        if declared is not None and value is not None:
            value = _typed(declared, value)
        if value is not None:
            attributes[name] = value
        if (declared is not None and declared.data) or not _is_natural(name, value, given):
            spelled[name] = given
            if value is not None:
                read[name] = value
    for declared in schema.attributes:
        if declared.data and declared.name not in attributes:
            value = _typed(declared, _at(data, declared.data))
            if value is not None:
                attributes[declared.name] = read[declared.name] = value
    check_event_size(attributes)
    return Event(attributes, CloudData(data, spelled, read))


def to_cloudevent(event: Event, schema: Schema | None = None) -> dict[str, Any]:
    """The CloudEvent of an event, as JSON's structured form has it. Raises EventError.

    An event that was read from a CloudEvent is written as it came (pass the schema that it was read with, or none).
    In any other event, an attribute with a data path is written into the data and replaces what is there; other
    attributes become extensions, if they can. A payload of bytes is base64 data, None is no data, anything else data.

    >>> to_cloudevent(Event.of(id="1", source="/usgs", type="quake", tsunami=True, payload="text"))
    {'specversion': '1.0', 'id': '1', 'source': '/usgs', 'type': 'quake', 'tsunami': True, 'data': 'text'}
    """
    payload = event.payload
    if not isinstance(payload, CloudData):
        payload = CloudData(UNSET if payload is None else payload)
    schema = schema or _NO_SCHEMA
    data = payload.data
    message: dict[str, Any] = {"specversion": "1.0"}
    for name, value in event.attributes.items():
        if type_of(value) is None:
            continue
        if name in payload.read and _is_same(payload.read[name], value):
            if name in payload.spelled:
                message[name] = payload.spelled[name]
            continue
        declared = schema.get(name)
        if declared is not None and declared.data:
            data = _placed(data, declared, value)
        else:
            message[name] = _extension(name, value)
    # What the event could not say goes back too: a null, or a value of another type than declared.
    message |= {n: given for n, given in payload.spelled.items() if n not in payload.read and n not in event}
    for name in _REQUIRED:
        if name not in message:
            raise EventError(f"a CloudEvent must have {name!r}, and this event has none")
    if isinstance(data, bytes):
        message["data_base64"] = b64encode(data).decode()
    elif data is not UNSET:
        message["data"] = data
    return message


def to_json(event: Event, schema: Schema | None = None) -> bytes:
    """The CloudEvent of an event as JSON text in UTF-8, for `from_cloudevent` to read. Raises EventError."""
    message = to_cloudevent(event, schema)
    try:
        text = _ENCODER.encode(message)
        written = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(
            f"event {shown(message['id'])} cannot be written as JSON, {error}; pass its payload as bytes"
        ) from None
    _check_depth(text)
    return written


def _context(name: object, given: object) -> Value | None:
    """The value of one context attribute, checked; None for a null, which is no attribute."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EventError(f"{shown(name)} cannot name a CloudEvents attribute; use a-z and 0-9")
    if given is None:
        return None
    if name in _TEXTS and not (isinstance(given, str) and given):
        raise EventError(f"{name!r} of a CloudEvent must be text that is not empty, not {shown(given)}")
    if name == "time" and not (isinstance(given, str) and _RFC3339.fullmatch(given)):
        raise EventError(f"'time' of a CloudEvent must be an RFC 3339 timestamp, not {shown(given)}")
    if not isinstance(given, _SCALARS) or given in (math.inf, -math.inf):
        raise EventError(f"the extension {name!r} must be a boolean, an integer or text; put it in the data")
    return as_value(name, given)


def _is_natural(name: str, value: Value | None, given: object) -> bool:
    """Whether the event alone would write the value as it was given."""
    try:
        return value is not None and _is_same(_extension(name, value), given)
    except EventError:  # a float, or an integer beyond 32 bits: read all the same
        return False


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _typed(declared: Attribute, given: object) -> Value | None:
    """The value as the schema declares it; None where it is of another type."""
    try:
        if declared.type is Type.TIMESTAMP and isinstance(given, str):
            return from_micros(parse_timestamp(given))
        value = as_value(declared.name, given)
    except ValueError:  # EventError too: a list, a number beyond 64 bits
        return None
    return None if value is None else declared.conform(value)


def _extension(name: str, value: Value) -> bool | int | str:
    """The value of a context attribute as JSON, where CloudEvents have a place for it."""
    if name in _TEXTS and not (isinstance(value, str) and value):
        raise EventError(f"{name!r} of a CloudEvent must be text that is not empty, not {shown(value)}")
    if name == "time" and not isinstance(value, datetime):
        raise EventError(f"'time' of a CloudEvent must be a timestamp, not {shown(value)}")
    if not _NAME.fullmatch(name) or name in ("data", "specversion"):
        raise _no_extension(name, "has a name that")
    if isinstance(value, float):
        raise _no_extension(name, "is a float, which")
    if type(value) is int and value not in _INT32:
        raise _no_extension(name, "is an integer beyond 32 bits, which")
    return format_timestamp(to_micros(value)) if isinstance(value, datetime) else value


def _no_extension(name: str, why: str) -> EventError:
    hint = "give it a data path in the schema"
    return EventError(f"attribute {name!r} {why} no CloudEvents extension can have; {hint}")


def _at(data: object, path: str) -> object:
    """The value at a dotted path in JSON data; None where there is none."""
    for step in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(step)
    return data


def _placed(data: Any, declared: Attribute, value: Value) -> Any:
    """The data with the attribute at its path; copied on the way, never changed in place."""
    name, path = declared.name, declared.data or ""
    if _is_same(_typed(declared, _at(data, path)), value):
        return data
    if isinstance(value, float) and not math.isfinite(value):
        raise EventError(f"attribute {name!r} is {value}, which JSON data cannot hold; leave it out")
    root: dict[str, Any] = {"": {} if data is UNSET or data is None else data}
    here, last = root, ""
    for step in path.split("."):
        inner = here.get(last, {})
        if not isinstance(inner, Mapping):
            raise EventError(f"attribute {name!r} belongs at {path!r} in the data, which has no object there")
        here[last] = dict(inner)
        here, last = here[last], step
    if isinstance(here.get(last), Mapping):
        raise EventError(f"attribute {name!r} belongs at {path!r} in the data, which has an object there")
    here[last] = format_timestamp(to_micros(value)) if isinstance(value, datetime) else value
    return root[""]


def _data(message: Mapping[str, Any]) -> Any:
    """The data: bytes, a JSON value, or UNSET."""
    if "data_base64" not in message:
        data = message.get("data", UNSET)
        if isinstance(data, bytes | bytearray | memoryview):
            raise EventError("'data' of a CloudEvent must be JSON; pass bytes as base64 text in 'data_base64'")
        return data
    if "data" in message:
        raise EventError("a CloudEvent has 'data' or 'data_base64', not both")
    text = message["data_base64"]
    try:
        data = b64decode(text, validate=True)
    except (TypeError, ValueError):
        data = None
    if data is None or b64encode(data).decode() != text:  # the one spelling, so that it can be written again
        raise EventError("'data_base64' of a CloudEvent is not base64 text")
    return data


def _parsed(text: bytes | str) -> Any:
    """The JSON value of a text in which no name is repeated and no number is lost."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        _check_depth(text)
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            _ENCODER.encode(value).encode()
    except EventError:
        raise
    except ValueError as error:
        raise EventError(f"a CloudEvent must be JSON text in UTF-8: {error}") from None
    return value


def _check_depth(text: str) -> None:
    """Raise where JSON is nested too deep, so that no parser, ours or another's, runs out of stack."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise EventError(f"JSON is nested deeper than {MAX_DEPTH} levels; send it as bytes")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise EventError(f"the JSON object has {repeated(name for name, _ in pairs)!r} twice; keep one")
    return table


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise EventError(f"the JSON number {digits[:40]} does not fit in a float; send it as text")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
