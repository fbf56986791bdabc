"""CloudEvents 1.0 as events, and back. `to_cloudevent(from_cloudevent(m)) == m` for every valid m.

The context attributes of a CloudEvent, extensions included, are the attributes of the event; its data is the
payload. A schema with data paths promotes values from JSON data to attributes, where filters see them.
What the event alone would spell otherwise (an offset, nanoseconds, a null) is kept beside the data.

What no extension can hold (a float, an integer beyond 32 bits, a list, a dotted name) is written into the data, if the
schema has a path for it, and otherwise as an extension that is marked: the extension `weftdata` is a JSON object that
says what each marked extension means, as in {"magnitude": "float", "geolat": "float geo.lat", "id": "absent"}. A marked
list is JSON, in which {"timestamp": "..."} and {"float": "inf"} stand for what JSON has no values for.
`from_cloudevent(to_cloudevent(e))` has the attributes of e, for every event e.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET

from weft.errors import EventError
from weft.model.door import as_value, check_name, check_path, shown
from weft.model.event import Event, check_event_size
from weft.model.limits import MAX_DEPTH
from weft.model.lists import AttributeValue
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
_MARKS = "weftdata"  # the extension that says what others mean
_ABSENT = "absent"  # the mark of an attribute that the event does not have, and CloudEvents require
_RESERVED = frozenset({*_TEXTS, "specversion", "data", "time", _MARKS})
_KINDS = {bool: "bool", int: "int", float: "float", str: "text", datetime: "timestamp", list: "list"}
_JSON_TYPE = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE | re.DOTALL)


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
    read: dict[str, AttributeValue] = {}


def from_cloudevent(
    message: Mapping[str, Any] | bytes | str, schema: Schema | None = None, *, exact: bool = True
) -> Event:
    """The event of a CloudEvent in JSON's structured form. Raises EventError, and nothing else.

    A schema gives extensions their types (otherwise a timestamp stays text) and promotes values from the data,
    unless the message itself has an attribute of that name; a value of another type is absent. An event that is not
    `exact` is read in half the time, and does not remember what it would spell otherwise.

    Cost: O(size of the message + attributes of the schema).

    >>> schema = Schema.of(Attribute("depth", Type.FLOAT, data="where.depth"))
    >>> text = '{"specversion":"1.0", "id":"1", "source":"/", "type":"quake", "data":{"where":{"depth":10}}}'
    >>> from_cloudevent(text, schema).attributes
    {'id': '1', 'source': '/', 'type': 'quake', 'depth': 10}
    """
    if isinstance(message, bytes | str):
        message = read_json(message)
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
    attributes: dict[str, AttributeValue] = {}
    spelled: dict[str, Any] = {}
    read: dict[str, AttributeValue] = {}
    marks = _marks(message[_MARKS], message) if _MARKS in message else {}
    is_plain = not exact and not schema.attributes
    for name, given in message.items():
        if name in ("specversion", "data", "data_base64"):
            continue
        if name in marks:
            spelled[name] = given
            kind, _, meant = marks[name].partition(" ")
            if kind != _ABSENT:
                _add_marked(attributes, kind, meant or name, given, schema)
                read |= {each: attributes[each] for each in (meant or name,) if each in attributes}
            continue
        if marks and name in attributes:
            raise _twice(name)
        value = _context(name, given)
        if is_plain:
            if value is not None:
                attributes[name] = value
            continue
        declared = schema.get(name)
        if declared is not None and value is not None:
            value = _typed(declared, value)
        if value is not None:
            attributes[name] = value
        if (declared is not None and declared.data) or not _is_natural(name, value, given, declared):
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


def to_cloudevent(
    event: Event, schema: Schema | None = None, defaults: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The CloudEvent of an event, as JSON's structured form has it. Raises EventError.

    An event that was read from a CloudEvent is written as it came (pass the schema that it was read with, or none).
    In any other event, an attribute with a data path is written into the data and replaces what is there; other
    attributes become extensions, marked in `weftdata` where an extension cannot hold them. `defaults` has context
    attributes for events that lack them; they are marked as absent. A payload of bytes is base64 data, None is no data,
    anything else data.

    Cost: O(attributes + bytes of the payload); an attribute that is written into the data copies the objects around it.

    >>> to_cloudevent(Event.of(id="1", source="/usgs", type="quake", tsunami=True, payload="text"))
    {'specversion': '1.0', 'id': '1', 'source': '/usgs', 'type': 'quake', 'tsunami': True, 'data': 'text'}
    >>> to_cloudevent(Event.of(id="1", source="/usgs", type="quake", magnitude=6.1))["weftdata"]
    '{"magnitude":"float"}'
    """
    payload = event.payload
    if not isinstance(payload, CloudData):
        payload = CloudData(UNSET if payload is None else payload)
    schema = schema or _NO_SCHEMA
    data = payload.data
    message: dict[str, Any] = {"specversion": "1.0"}
    marked: dict[str, AttributeValue] = {}  # what no extension can hold
    for name, value in event.attributes.items():
        if type_of(value) is None and not isinstance(value, list):
            continue
        if name in payload.read and _is_same(payload.read[name], value):
            if name in payload.spelled:
                message[name] = payload.spelled[name]
            continue
        declared = schema.get(name)
        if declared is not None and declared.data and (placed := _placed(data, declared, value)) is not None:
            data = placed[0]
        elif (written := _extension(name, value, declared)) is not None:
            message[name] = written
        else:
            marked[name] = value
    # What the event could not say goes back too: a null, or a value of another type than declared.
    message |= {n: given for n, given in payload.spelled.items() if n not in payload.read and n not in event}
    if marked or defaults:
        _mark(message, marked, defaults or {})
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


def _context(name: object, given: object) -> AttributeValue | None:
    """The value of one context attribute, checked; None for a null, which is not an attribute."""
    if name not in _names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise EventError(f"{shown(name)} cannot name a CloudEvents attribute; use a-z and 0-9")
        if len(_names) < _MOST_NAMES and len(name) <= 64:
            _names.add(name)
    kind = type(given)
    if given is None or kind is bool:
        if name not in _TEXTS and name != "time":
            return given  # type: ignore[return-value]
        if given is None:
            return None
    elif kind is str and given and name != "time" and given.isascii():  # type: ignore[attr-defined]
        return given  # type: ignore[return-value]
    if name in _TEXTS and not (isinstance(given, str) and given):
        raise EventError(f"{name!r} of a CloudEvent must be text that is not empty, not {shown(given)}")
    if name == "time" and not (isinstance(given, str) and _RFC3339.fullmatch(given)):
        raise EventError(f"'time' of a CloudEvent must be an RFC 3339 timestamp, not {shown(given)}")
    if not isinstance(given, _SCALARS) or given in (math.inf, -math.inf):
        raise EventError(f"the extension {name!r} must be a boolean, an integer or text; put it in the data")
    return as_value(name, given)


def _is_natural(name: str, value: AttributeValue | None, given: object, declared: Attribute | None) -> bool:
    """Whether the event alone would write the value as it was given. A float is read all the same, and is not."""
    return value is not None and _is_same(_extension(name, value, declared), given)


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and one == other


def _typed(declared: Attribute, given: object) -> AttributeValue | None:
    """The value as the schema declares it; None where it is of another type."""
    try:
        if declared.type is Type.TIMESTAMP and isinstance(given, str):
            return from_micros(parse_timestamp(given))
        if declared.type is Type.TIMESTAMP and isinstance(given, list):
            given = [from_micros(parse_timestamp(each)) if isinstance(each, str) else each for each in given]
        value = as_value(declared.name, given)
    except ValueError:  # EventError too: a number beyond 64 bits
        return None
    return None if value is None else declared.conform(value)


def _extension(name: str, value: AttributeValue, declared: Attribute | None) -> bool | int | str | None:
    """The value of a context attribute as JSON; None where CloudEvents have no place for it."""
    if isinstance(value, datetime):
        known = name == "time" or (declared is not None and declared.type is Type.TIMESTAMP)
        fits = known and name not in _TEXTS
        return format_timestamp(to_micros(value)) if fits and _NAME.fullmatch(name) else None
    if name in _RESERVED and not (name in _TEXTS and isinstance(value, str) and value):
        return None
    if not _NAME.fullmatch(name) or isinstance(value, float | list) or (type(value) is int and value not in _INT32):
        return None
    return value


# -- marked extensions ---------------------------------------------------------------------------------------


def _mark(message: dict[str, Any], marked: Mapping[str, AttributeValue], defaults: Mapping[str, str]) -> None:
    """Add what no extension can hold, and what the event lacks; `weftdata` says so."""
    known = message.get(_MARKS)
    marks = {} if known is None else _marks(known, message)
    for name, value in marked.items():
        written = name if name not in _RESERVED and _NAME.fullmatch(name) else _spare_name(name, message, marked)
        kind = _KINDS[type(value)]
        marks[written] = kind if written == name else f"{kind} {name}"
        if isinstance(value, list):
            message[written] = _ENCODER.encode([_element(each) for each in value])
        elif isinstance(value, datetime):
            message[written] = format_timestamp(to_micros(value))
        elif isinstance(value, float):
            message[written] = repr(value)
        else:
            message[written] = str(value) if type(value) is int and value not in _INT32 else value
    for name, default in defaults.items():
        if name not in message:
            message[name], marks[name] = default, _ABSENT
    if marks:
        message[_MARKS] = _ENCODER.encode(marks)


def _element(value: Value) -> bool | int | float | str | dict[str, str]:
    """An element of a list as JSON."""
    if isinstance(value, datetime):
        return {"timestamp": format_timestamp(to_micros(value))}
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _element_of(given: Any) -> Any:
    """An element of a list from JSON. Raises ValueError, TypeError."""
    if not isinstance(given, dict):
        return given
    ((kind, text),) = given.items()
    if kind not in ("timestamp", "float"):
        raise ValueError(f"an element of a list cannot be a {kind}")
    return from_micros(parse_timestamp(text)) if kind == "timestamp" else float(text)


def _spare_name(name: str, message: Mapping[str, Any], marked: Mapping[str, AttributeValue]) -> str:
    """A free name for an extension, like another name."""
    like = "".join(_NAME.findall(name.lower()))[:20] or "attribute"
    names = (like if not number else f"{like}{number}" for number in count())
    return next(each for each in names if each not in message and each not in marked and each not in _RESERVED)


def _marks(text: object, message: Mapping[str, Any]) -> dict[str, str]:
    """What a message says about its extensions; nothing, if that is not for us."""
    try:
        found = _DECODER.decode(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # EventError too
        return {}
    if not isinstance(found, dict) or not found:
        return {}
    for name, mark in found.items():
        kind = mark.partition(" ")[0] if isinstance(mark, str) else ""
        known = kind in _KINDS.values() or mark == _ABSENT
        if not known or name not in message or name in ("specversion", "data", "data_base64", _MARKS):
            return {}
    return {**found, _MARKS: _ABSENT}


def _add_marked(attributes: dict[str, AttributeValue], kind: str, name: str, given: Any, schema: Schema) -> None:
    """Add the attribute that a marked extension means. Raises EventError."""
    value: object = given
    try:
        if kind in ("float", "int") and isinstance(given, str):
            value = float(given) if kind == "float" else int(given)
        elif kind == "timestamp":
            value = from_micros(parse_timestamp(given))
        elif kind == "list" and isinstance(given, str):
            value = [_element_of(each) for each in _DECODER.decode(given)]
        if _KINDS.get(type(value)) != kind:
            raise ValueError(f"it is not of the kind {kind}")
    except (ValueError, TypeError, RecursionError):
        raise EventError(f"{name!r} of a CloudEvent is {shown(given)}, which weftdata calls a {kind}") from None
    check_path(check_name(name))
    if name in attributes:
        raise _twice(name)
    declared = schema.get(name)
    kept = as_value(name, value) if declared is None else _typed(declared, value)
    if kept is not None:
        attributes[name] = kept


def _twice(name: str) -> EventError:
    return EventError(f"the attribute {name!r} comes twice in a CloudEvent; keep one", name)


# -- data ----------------------------------------------------------------------------------------------------


def payload_of(data: Any, datacontenttype: str = "") -> tuple[bytes, str]:
    """The data of a CloudEvent as bytes, and their media type. Raises EventError.

    Data is a JSON value, unless the CloudEvent declares another type: then it is text.

    >>> payload_of({"felt": 12}), payload_of("<quake/>", "text/xml"), payload_of(b"...")
    ((b'{"felt":12}', 'application/json'), (b'<quake/>', 'text/xml'), (b'...', ''))
    """
    if data is UNSET:
        return b"", ""
    if isinstance(data, bytes):
        return data, datacontenttype
    if datacontenttype and not _JSON_TYPE.fullmatch(datacontenttype):
        if not isinstance(data, str):
            raise EventError(f"data of the type {shown(datacontenttype)} must be text, or bytes in 'data_base64'")
        return data.encode(), datacontenttype
    try:
        return _ENCODER.encode(data).encode(), datacontenttype or _JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"the data of a CloudEvent is not JSON: {error}; pass it as bytes") from None


def data_of(payload: bytes, datacontenttype: str) -> Any:
    """The data of a CloudEvent with this payload: a JSON value still encoded, text, bytes, or UNSET. Cost: O(bytes).

    >>> bytes(data_of(b'{"felt": 12}', "application/json")), data_of(b"felt", "text/plain"), data_of(b"", "")
    (b'{"felt": 12}', 'felt', UNSET)
    """
    if not payload and not datacontenttype:
        return UNSET
    is_json = _JSON_TYPE.fullmatch(datacontenttype) is not None
    if not is_json and not datacontenttype.startswith("text/"):
        return payload
    try:
        text = payload.decode()
        if not is_json:
            return text
        _check_depth(text)
        _read_raw(payload)
    except ValueError:  # EventError, UnicodeDecodeError and msgspec's errors
        return payload
    return msgspec.Raw(payload.translate(_ONE_LINE))  # in JSON, line ends are outside of strings


def _at(data: object, path: str) -> object:
    """The value at a dotted path in JSON data; None where there is none."""
    for step in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(step)
    return data


def _placed(data: Any, declared: Attribute, value: AttributeValue) -> tuple[Any] | None:
    """The data with the attribute at its path, copied on the way; None if the data has no place for it."""
    path = declared.data or ""
    if _is_same(_typed(declared, _at(data, path)), value):
        return (data,)
    elements = value if isinstance(value, list) else [value]
    if any(isinstance(each, float) and not math.isfinite(each) for each in elements):
        return None
    root: dict[str, Any] = {"": {} if data is UNSET or data is None else data}
    here, last = root, ""
    for step in path.split("."):
        inner = here.get(last, {})
        if not isinstance(inner, Mapping):
            return None
        here[last] = dict(inner)
        here, last = here[last], step
    if isinstance(here.get(last), Mapping):
        return None
    written = [format_timestamp(to_micros(each)) if isinstance(each, datetime) else each for each in elements]
    here[last] = written if isinstance(value, list) else written[0]
    return (root[""],)


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


def read_json(text: bytes | str) -> Any:
    """The JSON value of a text in which no name is repeated and no number is lost. Raises EventError."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            _ENCODER.encode(value).encode()
        if _is_deep(value):
            raise _too_deep()
    except EventError:
        raise
    except RecursionError:
        raise _too_deep() from None
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
            raise _too_deep()


def _is_deep(value: object) -> bool:
    """Whether a value is nested too deep. Cost: O(values)."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[object] = []
        is_over = True
        for each in level:
            if type(each) is dict:
                is_over = False
                inner += each.values()
            elif type(each) is list:
                is_over = False
                inner += each
        if is_over:
            return False
        level = inner
    return True


def _too_deep() -> EventError:
    return EventError(f"JSON is nested deeper than {MAX_DEPTH} levels; send it as bytes")


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


_JSON = "application/json"
_MOST_NAMES = 10_000
_names: set[str] = set()  # that were checked
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_read_raw = msgspec.json.Decoder(msgspec.Raw).decode
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
