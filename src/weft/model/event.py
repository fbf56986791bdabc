"""Events: one flat set of attributes and an opaque payload. Absent and NULL are the same.

An attribute has a value, or a list of values (see `weft.model.lists`).

`Event(...)` trusts its caller and costs next to nothing. `Event.of(...)` takes values as they come, through the door
(see `weft.model.door`): nested mappings become dotted names, every value is of one of the five types, every timestamp
is in UTC. `id`, `source`, `type` and `time` are attributes like any other, except that their types are fixed.
The size of an event that comes through the door is bounded: see `weft.model.limits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from weft.errors import EventError
from weft.model.door import as_value, check_name, check_path, is_ignored, is_plain, shown
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.lists import AttributeValue

_LEAVES = frozenset({type(None), bool, int, float, str, datetime})  # surely not mappings


class Event(msgspec.Struct, frozen=True):
    """What is published: attributes that filters see, and a payload that they do not.

    >>> event = Event.of(magnitude=5.2, place={"country": "Chile", "town": None}, payload=b"...")
    >>> event.attributes
    {'magnitude': 5.2, 'place.country': 'Chile'}
    >>> event["magnitude"], event["place.town"], "place.town" in event
    (5.2, None, False)
    """

    attributes: dict[str, AttributeValue]
    payload: Any = None

    @staticmethod
    def of(mapping: Mapping[str, Any] | None = None, /, payload: Any = None, **attributes: Any) -> Event:
        """An event from values of any supported type. Raises EventError, which names the attribute.

        None, NaN, and pandas' NA and NaT are left out. A date is midnight in UTC, and a naive datetime is in UTC.
        Decimal and Fraction become float, and numpy's scalars what they are in Python. `time` may be ISO 8601 text.
        A list, tuple, set or array of values is a list, which HAS tests; lists of mappings or of lists are left out.
        A UUID is text. Bytes belong in the payload. An event beyond a limit is refused: too many attributes or elements
        of a list, names or strings that are too long, nesting that is too deep.

        Cost: O(bytes of names and values).

        >>> Event.of({"place": {"country": "Chile"}}, depth=None, time="2018-01-31").attributes
        {'place.country': 'Chile', 'time': datetime.datetime(2018, 1, 31, 0, 0, tzinfo=datetime.timezone.utc)}
        """
        flat: dict[str, AttributeValue] = {}
        absent: set[str] = set()
        if mapping is not None and not isinstance(mapping, Mapping):
            raise EventError(f"attributes must be a mapping of names to values, not {shown(mapping)}")
        for given in (mapping or {}, attributes):
            if len(given) > LIMITS.attributes:
                raise too_large(many=True)
            for name, value in _flattened(given):
                if len(flat) + len(absent) >= LIMITS.attributes:
                    raise too_large(many=True)
                if name in flat or name in absent:
                    raise EventError(f"attribute {name!r} is given twice; keep one of them", name)
                kept = as_value(name, value)
                if kept is None:
                    absent.add(name)
                else:
                    flat[name] = kept
        check_event_size(flat)
        return Event(flat, payload)

    def __getitem__(self, name: str) -> AttributeValue | None:
        return self.attributes.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def get(self, name: str, default: AttributeValue | None = None) -> AttributeValue | None:
        """The value of an attribute, or `default` when it is absent. Cost: O(1).

        >>> event = Event.of(magnitude=5.2)
        >>> event.get("magnitude"), event.get("depth"), event.get("depth", 0)
        (5.2, None, 0)
        """
        return self.attributes.get(name, default)

    @property
    def identity(self) -> tuple[AttributeValue | None, AttributeValue | None]:
        """(source, id): two events with the same identity are the same event. Cost: O(1).

        >>> Event.of(source="/usgs", id="17", magnitude=5.2).identity
        ('/usgs', '17')
        """
        return self.attributes.get("source"), self.attributes.get("id")


def as_event(event: Event | Mapping[str, Any]) -> Event:
    """The event itself, or `Event.of` a mapping or a row of a table. Raises EventError for anything else.

    >>> as_event({"x": 1})
    Event(attributes={'x': 1}, payload=None)
    """
    return event if isinstance(event, Event) else Event.of(_mapping(event))


def attributes_of(event: Event | Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of an event or a mapping, as `Event.of` makes them. Raises EventError as it does.

    A mapping that is plain already is returned as it is; absent values may be in it as None or NaN.

    >>> from decimal import Decimal
    >>> attributes_of({"x": Decimal(1), "y": {"z": 2}})
    {'x': 1.0, 'y.z': 2}
    """
    if type(event) is dict:  # the commonest, and the quickest to tell
        return event if is_plain(event) else Event.of(event).attributes
    if isinstance(event, Event):
        return event.attributes
    known = _mapping(event)
    return known if is_plain(known) else Event.of(known).attributes


def _mapping(event: Any) -> Mapping[str, Any]:
    """An event's attributes by name, whatever kind of row it is."""
    if isinstance(event, Mapping):
        return event
    if isinstance(event, tuple) and hasattr(event, "_asdict"):  # a named tuple
        return event._asdict()  # type: ignore[no-any-return]
    if type(event).__module__.startswith("pandas.") and hasattr(event, "to_dict") and getattr(event, "ndim", 0) == 1:
        return event.to_dict()  # type: ignore[no-any-return] # a row of a DataFrame
    several = "; give several events to match_batch() or publish_many()"
    hint = "; read JSON with json.loads()" if isinstance(event, str | bytes) else several
    hint = hint if hasattr(event, "__len__") else ""
    raise EventError(f"an event must be an Event or a mapping of names to values, not {shown(event)}{hint}")


def check_event_size(attributes: Mapping[str, AttributeValue]) -> None:
    """Raise EventError if an event with these attributes is past a limit. Cost: O(attributes)."""
    if len(attributes) > LIMITS.attributes:
        raise too_large(many=True)
    texts = [*attributes, *[value for value in attributes.values() if type(value) is str]]
    for value in attributes.values():
        if type(value) is list:
            texts += [each for each in value if type(each) is str]
    if 4 * sum(map(len, texts)) <= LIMITS.event:
        return  # also if every character takes four bytes
    if sum(len(text) if text.isascii() else len(text.encode()) for text in texts) > LIMITS.event:
        raise too_large(many=False)


def ignored_lists(mapping: Mapping[str, Any]) -> list[str]:
    """The names of the lists of mappings, or of lists, in what `Event.of` takes. Raises EventError.

    >>> ignored_lists({"tags": ["a"], "order": {"items": [{"price": 9}]}})
    ['order.items']
    """
    return [name for name, value in _flattened(mapping) if type(value) not in _LEAVES and is_ignored(value)]


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
            # a map of Arrow is a Mapping that cannot be iterated as one; it is no value, either
            if type(value) not in _LEAVES and isinstance(value, Mapping) and type(value).__name__ != "MapScalar":
                if len(stack) >= MAX_DEPTH:
                    raise EventError(f"attributes are nested deeper than {MAX_DEPTH} levels; use the payload", name)
                stack.append((f"{name}.", iter(value.items())))
                break
            yield name, value
        else:
            stack.pop()


def too_large(*, many: bool) -> EventError:
    """The error for an event past a limit: too `many` attributes, or too many bytes."""
    if many:
        return EventError(f"an event has at most {LIMITS.attributes:,} attributes; put the others in the payload")
    return EventError(
        f"the names and strings of an event have at most {LIMITS.event:,} bytes; put long texts in the payload"
    )
