"""Events: one flat set of attributes and an opaque payload. Law: absent and NULL are the same.

`Event(...)` trusts its caller and costs next to nothing; `Event.of(...)` makes it true, once, at the door:
nested mappings become dotted names, every value is of one of the five types, every instant is in UTC.
`id`, `source`, `type` and `time` are attributes like any other, except that their types are fixed.
What comes through the door has a bounded size: see `weft.model.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import msgspec

from weft.errors import EventError
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.value import INT_MAX, INT_MIN, Type, Value, from_micros, parse_timestamp, to_micros, type_of

WELL_KNOWN: Final[Mapping[str, Type]] = MappingProxyType(
    {"id": Type.STRING, "source": Type.STRING, "type": Type.STRING, "time": Type.TIMESTAMP}
)
_LEAVES = frozenset({type(None), bool, int, float, str, datetime})  # what is surely no mapping


class Event(msgspec.Struct, frozen=True):
    """What is published: attributes that filters see, and a payload that they do not.

    >>> event = Event.of(magnitude=5.2, place={"country": "Chile", "town": None}, payload=b"...")
    >>> event.attributes
    {'magnitude': 5.2, 'place.country': 'Chile'}
    >>> event["magnitude"], event["place.town"], "place.town" in event
    (5.2, None, False)
    """

    attributes: dict[str, Value]
    payload: Any = None

    @staticmethod
    def of(mapping: Mapping[str, Any] | None = None, /, payload: Any = None, **attributes: Any) -> Event:
        """An event that keeps the law, from values as they come; raises EventError where there is none.

        NULL (None and NaN) is left out; a date is its midnight in UTC, a naive datetime is in UTC;
        Decimal becomes float; `time` may be ISO 8601 text. Sequences and bytes belong in the payload. An event past a
        limit is refused: too many attributes, names or strings that are too long, nesting that is too deep.
        """
        flat: dict[str, Value] = {}
        absent: set[str] = set()
        if mapping is not None and not isinstance(mapping, Mapping):
            raise EventError(f"attributes are a mapping of names to values: {shown(mapping)} is none")
        for given in (mapping or {}, attributes):
            for name, value in _flattened(given):
                if name in flat or name in absent:
                    raise EventError(f"attribute {name!r} is given twice: keep one of its spellings")
                kept = as_value(name, value)
                if kept is None:
                    absent.add(name)
                else:
                    flat[name] = kept
        if len(flat) + len(absent) > LIMITS.attributes:
            raise too_large(many=True)
        check_event_size(flat)
        return Event(flat, payload)

    def __getitem__(self, name: str) -> Value | None:
        return self.attributes.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def get(self, name: str, default: Value | None = None) -> Value | None:
        """The value of an attribute, or `default` when it is absent."""
        return self.attributes.get(name, default)

    @property
    def identity(self) -> tuple[Value | None, Value | None]:
        """(source, id): two events with the same identity are the same event."""
        return self.attributes.get("source"), self.attributes.get("id")


def as_value(name: str, value: object) -> Value | None:
    """The value of attribute `name`, exactly of one of the five types; None for NULL. Raises EventError.

    >>> as_value("price", Decimal("9.5")), as_value("price", float("nan"))
    (9.5, None)
    """
    kept = _converted(name, value)
    fixed = WELL_KNOWN.get(name)
    if fixed is None or kept is None:
        return kept
    if fixed is Type.TIMESTAMP and isinstance(kept, str):
        try:
            return from_micros(parse_timestamp(kept))
        except ValueError as error:
            raise EventError(f"attribute 'time' is {shown(kept)}, which is no timestamp: {error}") from None
    if type_of(kept) is not fixed:
        raise EventError(f"attribute {name!r} is always a {fixed}: {shown(kept)} is none")
    return kept


def as_event(event: Event | Mapping[str, Any]) -> Event:
    """The event itself, or `Event.of` a mapping. Raises EventError for anything else.

    >>> as_event({"x": 1})
    Event(attributes={'x': 1}, payload=None)
    """
    if isinstance(event, Event):
        return event
    if not isinstance(event, Mapping):
        raise EventError(f"an event is an Event or a mapping of names to values, not {shown(event)}")
    return Event.of(event)


def attributes_of(event: Event | Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of an event or a mapping, as `Event.of` makes them. Raises EventError as it does.

    A mapping whose values are all of the five types is returned as it is.

    >>> attributes_of({"x": Decimal(1), "y": {"z": 2}})
    {'x': 1.0, 'y.z': 2}
    """
    if isinstance(event, Event):
        return event.attributes
    known = type(event) is dict or isinstance(event, Mapping)  # the first is much quicker
    if known and _LEAVES.issuperset(map(type, event.values())):
        return event
    return as_event(event).attributes


def check_event_size(attributes: Mapping[str, Value]) -> None:
    """Raise EventError if an event with these attributes is past a limit. Cost: O(attributes)."""
    if len(attributes) > LIMITS.attributes:
        raise too_large(many=True)
    texts = [*attributes, *[value for value in attributes.values() if type(value) is str]]
    if 4 * sum(map(len, texts)) <= LIMITS.event:
        return  # also if every character takes four bytes
    if sum(len(text) if text.isascii() else len(text.encode()) for text in texts) > LIMITS.event:
        raise too_large(many=False)


def check_name(name: object) -> str:
    """The name itself, if it can be an attribute's: text that is not empty. Raises EventError."""
    if not isinstance(name, str) or not name:
        raise EventError(f"an attribute's name is text and not empty: {shown(name)} is no name")
    if not is_unicode(name):
        raise EventError(f"the attribute name {name!r} has half a surrogate pair: it is no Unicode text")
    return name


def check_path(path: str) -> None:
    """Raise EventError if a dotted name is longer than the limit."""
    if len(path) > LIMITS.name:
        raise EventError(
            f"the attribute name {path[:40]!r}... is longer than {LIMITS.name:,} characters; use the payload"
        )


def shown(value: object) -> str:
    """A value as errors show it: cut short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python likes to print
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _flattened(mapping: Mapping[Any, Any]) -> Iterator[tuple[str, object]]:
    """The leaves of nested mappings in their order, under dotted names; without recursion."""
    stack = [("", iter(mapping.items()))]
    longest = LIMITS.name
    while stack:
        prefix, items = stack[-1]
        for key, value in items:
            name = prefix + check_name(key)
            if len(name) > longest:
                check_path(name)
            if type(value) not in _LEAVES and isinstance(value, Mapping):
                if len(stack) >= MAX_DEPTH:
                    raise EventError(f"attributes are nested deeper than {MAX_DEPTH}: use the payload")
                stack.append((f"{name}.", iter(value.items())))
                break
            yield name, value
        else:
            stack.pop()


def _converted(name: str, value: object) -> Value | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not is_unicode(value):
            raise EventError(f"attribute {name!r} has half a surrogate pair: it is no Unicode text")
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value) + 0.0  # -0.0 + 0.0 is 0.0
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise EventError(f"attribute {name!r} is an int beyond 64 bits: give it as a float or as text")
        return int(value)
    if isinstance(value, datetime):
        return None if value != value else _instant(name, value)  # noqa: PLR0124 (pandas' NaT is a datetime)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value) + 0.0
    if getattr(value, "shape", None) == ():
        return _scalar(name, value)
    raise _no_value(name, value)


def _instant(name: str, value: datetime) -> datetime:
    if value.tzinfo is UTC and type(value) is datetime:
        return value
    if value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    try:
        return from_micros(to_micros(value))
    except OverflowError:
        raise _out_of_time(name) from None


def _scalar(name: str, value: Any) -> Value | None:
    """The value of a numpy scalar, known by its manners: numpy itself is not imported here."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "f":  # float(): a longdouble's .item() is a longdouble
        return _converted(name, float(value))
    if kind == "M":
        if value != value:  # noqa: PLR0124 (NaT)
            return None
        if not 1 <= 1970 + int(value.astype("datetime64[Y]").astype("int64")) <= 9999:
            raise _out_of_time(name)  # in numpy it would wrap around
        return _converted(name, value.astype("datetime64[us]").item())  # nanoseconds are floored
    if kind not in ("b", "i", "u", "U"):
        raise _no_value(name, value)
    return _converted(name, value.item())


def too_large(*, many: bool) -> EventError:
    """What is raised for an event past a limit: with too `many` attributes, or too many bytes."""
    if many:
        return EventError(f"an event has at most {LIMITS.attributes:,} attributes: put the others in the payload")
    return EventError(
        f"the names and strings of an event have at most {LIMITS.event:,} bytes: put long texts in the payload"
    )


def _no_value(name: str, value: object) -> EventError:
    kind = type(value).__name__
    return EventError(f"attribute {name!r} is of type {kind}, which no filter sees: put it in the payload")


def _out_of_time(name: str) -> EventError:
    return EventError(f"attribute {name!r} is outside the years 1 to 9999 in UTC: leave it out")


def is_unicode(text: str) -> bool:
    """Whether text can be written: no half of a surrogate pair in it. Cost: next to none for ASCII."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
