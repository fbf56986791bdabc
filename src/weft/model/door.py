"""The one conversion of users' values to attributes. A value means the same in a mapping, a row and a column of a
table.

`as_value` decides what becomes of one value, `as_column` of an Arrow column; docs/guides/filters.md has the rules.
A value that a filter can test becomes one of the five types, or a list of these. A value that says "nothing here" is
absent, and so is a list of mappings. Anything else is a mistake of the caller, and an EventError names the attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from weft.errors import EventError
from weft.model.limits import LIMITS
from weft.model.lists import AttributeValue, ListValue
from weft.model.value import INT_MAX, INT_MIN, Type, from_micros, parse_timestamp, to_micros, type_of

WELL_KNOWN: Final[Mapping[str, Type]] = MappingProxyType(
    {"id": Type.STRING, "source": Type.STRING, "type": Type.STRING, "time": Type.TIMESTAMP}
)
_FIXED = frozenset(WELL_KNOWN)
_PLAIN = frozenset({type(None), bool, int, float, str, datetime})
_UNCHECKED = frozenset({type(None), bool, float})  # plain, and right whatever they are
_ELEMENTS = _PLAIN - {type(None)}
_FIXED_KINDS = {
    name: frozenset({type(None), datetime if fixed is Type.TIMESTAMP else str}) for name, fixed in WELL_KNOWN.items()
}
_MOST_NAMES, _LONG_NAME = 10_000, 256  # of names that are remembered: how many, and how long they may be

_names: set[str] = set()  # names that were checked, without the well-known ones


class PlainEvents(list[dict[str, Any]]):
    """The attributes of events that have come through the door, one by one, so that they need not be checked again.

    A slice of it is an ordinary list.
    """


def as_value(name: str, value: object) -> AttributeValue | None:
    """The value of attribute `name`, exactly of one of the five types or a list of these; None if it is absent. Raises
    EventError.

    >>> as_value("price", Decimal("9.5")), as_value("price", float("nan")), as_value("day", date(2018, 2, 1))
    (9.5, None, datetime.datetime(2018, 2, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """
    kept = _CONVERTERS.get(type(value), _other)(name, value)
    if kept is None or name not in _FIXED:
        return kept
    if name == "time" and isinstance(kept, str):
        return from_micros(time_of_text(kept))
    if type_of(kept) is not WELL_KNOWN[name]:
        raise wrong_type(name, shown(kept))
    return kept


def is_plain(event: Mapping[Any, Any]) -> bool:
    """Whether a mapping is what the door would make of it, absent values aside. Cost: under 0.1 us for each attribute.

    False is the safe side: then every value goes through `as_value`.
    """
    if len(event) > LIMITS.attributes or (not _names.issuperset(event) and not _are_names(event)):
        return False
    size = 0
    for value in event.values():
        kind = type(value)
        if kind is float:
            continue
        if kind is str:
            if not value.isascii() and not is_unicode(value):
                return False
            size += len(value)
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:
                return False
        elif kind is datetime:
            if value.tzinfo is not None and value.tzinfo is not UTC:
                return False
        elif kind is list:
            if not _is_plain_list(value):
                return False
            size += sum([len(each) for each in value if type(each) is str])
        elif value is not None and kind is not bool:
            return False
    return _is_small(len(event), size)


def _is_plain_list(value: list[Any]) -> bool:
    """Whether a list is what the door would make of it, NaN aside."""
    kinds = set(map(type, value))
    if not kinds <= _ELEMENTS or len(value) > LIMITS.elements:
        return False
    if str in kinds and not is_unicode("".join([each for each in value if type(each) is str])):
        return False
    if int in kinds and not all(INT_MIN <= each <= INT_MAX for each in value if type(each) is int):
        return False
    return datetime not in kinds or {each.tzinfo for each in value if type(each) is datetime} <= {UTC}


def are_plain(events: Sequence[Mapping[Any, Any]]) -> bool:
    """Whether all these mappings are plain; quicker than `is_plain` for each."""
    if max(map(len, events), default=0) > LIMITS.attributes:
        return False
    names: set[Any] = set().union(*events)
    if not _names.issuperset(names) and not all(map(_are_names, events)):
        return False
    values = list(chain.from_iterable([event.values() for event in events]))
    kinds = set(map(type, values))
    most = 1  # values of an attribute
    if list in kinds:
        lists = [value for value in values if type(value) is list]
        elements = list(chain.from_iterable(lists))
        most = max(1, *map(len, lists))
        kinds_of_elements = set(map(type, elements))
        if most > LIMITS.elements or not kinds_of_elements <= _ELEMENTS or datetime in kinds_of_elements:
            return all(map(is_plain, events))
        values = [*elements, *[value for value in values if type(value) is not list]]
        kinds = (kinds - {list}) | kinds_of_elements
    if kinds <= _UNCHECKED:
        return _is_small(len(names), 0)
    if not kinds <= _PLAIN:
        return False
    if int in kinds:
        whole = [value for value in values if type(value) is int]
        if min(whole) < INT_MIN or max(whole) > INT_MAX:
            return False
    if datetime in kinds and not {value.tzinfo for value in values if type(value) is datetime} <= {UTC, None}:
        return False
    if str in kinds:
        texts = [value for value in values if type(value) is str]
        return is_unicode("".join(texts)) and _is_small(len(names), len(names) * most * max(map(len, texts)))
    return _is_small(len(names), 0)


def _is_small(attributes: int, size: int) -> bool:
    """Whether these numbers of attributes and characters are within the limits, however long the names are."""
    return attributes <= LIMITS.attributes and 8 * max(size, _LONG_NAME * attributes) <= LIMITS.event


def _are_names(event: Mapping[Any, Any]) -> bool:
    """Whether the names are good ones and the well-known ones have their types. Good names are remembered."""
    for name in event:
        if name in _names:
            continue
        if name in _FIXED:
            if type(event[name]) not in _FIXED_KINDS[name]:
                return False
        elif type(name) is str and name and len(name) <= _LONG_NAME <= LIMITS.name and is_unicode(name):
            if len(_names) >= _MOST_NAMES:
                _names.clear()
            _names.add(name)
        else:
            return False
    return True


def time_of_text(text: str) -> int:
    """The microseconds of a `time` that is text. Raises EventError."""
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise EventError(f"attribute 'time' is {shown(text)}, which is not a timestamp: {error}", "time") from None


def wrong_type(name: str, what: str) -> EventError:
    """The error of a well-known attribute that has another type than its own."""
    return EventError(f"attribute {name!r} must be a {WELL_KNOWN[name]}, not {what}", name)


def untestable(name: str, kind: str) -> EventError:
    """The error of a value that no filter can test."""
    return EventError(f"attribute {name!r} is of type {kind}, which filters cannot test; put it in the payload", name)


def too_long(name: str) -> EventError:
    """The error of a list that is too long."""
    return EventError(f"attribute {name!r} is a list of more than {LIMITS.elements:,} values; use the payload", name)


def beyond_int(name: str) -> EventError:
    """The error of an integer that is too large."""
    return EventError(f"attribute {name!r} is an integer beyond 64 bits; pass it as a float or as text", name)


def out_of_time(name: str) -> EventError:
    """The error of a timestamp that is none of ours."""
    return EventError(f"attribute {name!r} is outside the years 1 to 9999 in UTC; leave it out", name)


def not_unicode(name: str) -> EventError:
    """The error of a string that cannot be written."""
    return EventError(f"attribute {name!r} is not valid Unicode text; put it in the payload", name)


def broken_column(name: str) -> EventError:
    """The error of a column whose parts do not lie in its buffers."""
    return EventError(f"attribute {name!r} is a column with offsets outside its buffers; write it again", name)


def check_name(name: object) -> str:
    """The name itself, if it can be an attribute's: text that is not empty. Raises EventError."""
    if not isinstance(name, str) or not name:
        raise EventError(f"an attribute's name must be a string that is not empty, not {shown(name)}")
    if not is_unicode(name):
        raise EventError(f"the attribute name {name!r} is not valid Unicode text", name)
    return name


def check_path(path: str) -> None:
    """Raise EventError if a dotted name is longer than the limit."""
    if len(path) > LIMITS.name:
        raise EventError(
            f"the attribute name {path[:40]!r}... is longer than {LIMITS.name:,} characters; use the payload", path
        )


def shown(value: object) -> str:
    """A value as errors show it: cut short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def is_unicode(text: str) -> bool:
    """Whether text can be encoded: no half of a surrogate pair in it. Cost: next to none for ASCII."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- one function for each kind of value -------------------------------------------------------------


def _as_it_is(_: str, value: Any) -> Any:
    return value


def _text(name: str, value: Any) -> str:
    if not is_unicode(value):
        raise not_unicode(name)
    return value if type(value) is str else str.__str__(value)


def _whole(name: str, value: Any) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise beyond_int(name)
    return int(value)


def _real(_: str, value: Any) -> float | None:
    return None if math.isnan(value) else float(value) + 0.0  # -0.0 + 0.0 is 0.0


def _quotient(name: str, value: Any) -> float | None:
    """A Decimal or Fraction as the nearest float."""
    if isinstance(value, Decimal) and value.is_nan():
        return None
    try:
        near = float(value) + 0.0
    except OverflowError:
        near = math.inf
    if math.isinf(near) and not (isinstance(value, Decimal) and value.is_infinite()):
        raise EventError(f"attribute {name!r} is beyond the range of a float; pass it as text", name)
    return near


def _instant(name: str, value: Any) -> datetime | None:
    if value.tzinfo is UTC and type(value) is datetime:
        return value
    if value != value:  # noqa: PLR0124 - pandas' NaT is a datetime
        return None
    try:
        if value.utcoffset() is None:
            value = value.replace(tzinfo=UTC)
        return from_micros(to_micros(value))
    except (OverflowError, ValueError):  # pandas has other years
        raise out_of_time(name) from None


def _midnight(_: str, value: Any) -> datetime:
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _uuid(_: str, value: UUID) -> str:
    return str(value)


def _list(name: str, values: Any) -> ListValue | None:
    """The values of a list, without NULL; None if there is a mapping or a list in it."""
    kept: ListValue = []
    for count, value in enumerate(values):
        if count >= LIMITS.elements:
            raise too_long(name)
        if isinstance(value, Mapping) or is_list(value):
            if getattr(value, "is_valid", True) is False:  # a NULL of Arrow
                continue
            return None
        element = _CONVERTERS.get(type(value), _other)(name, value)
        if isinstance(element, list):
            return None
        if element is not None:
            kept.append(element)
    return kept


def _set(name: str, values: Any) -> ListValue | None:
    """The values of a set, in an order that every process agrees on."""
    if len(values) > LIMITS.elements:
        raise too_long(name)
    kept = _list(name, values)
    return None if kept is None else sorted(kept, key=repr)


def is_ignored(value: object) -> bool:
    """Whether a value is a list of mappings or of lists, which is ignored: no filter can test it.

    >>> is_ignored([{"a": 1}]), is_ignored(["a"]), is_ignored([])
    (True, False, False)
    """
    if not is_list(value):
        return False
    try:
        return as_value("", value) is None
    except EventError:
        return False


def is_list(value: object) -> bool:
    """Whether a value is a list of any kind: a list, tuple or set, or a one-dimensional array of numpy or Arrow.

    >>> is_list(["a"]), is_list("a"), is_list(b"a")
    (True, False, False)
    """
    return isinstance(value, list | tuple | set | frozenset) or _is_array(value)


def _is_array(value: object) -> bool:
    whose = type(value).__module__.partition(".")[0]
    if whose == "numpy":
        return len(getattr(value, "shape", ())) >= 1
    return whose in ("pyarrow", "polars", "pandas") and (
        hasattr(value, "to_pylist") or hasattr(value, "to_list") or type(value).__name__ in _LIST_SCALARS
    )


_LIST_SCALARS = frozenset(
    ("ListScalar", "LargeListScalar", "FixedSizeListScalar", "ListViewScalar", "LargeListViewScalar")
)


def _array(name: str, value: Any) -> ListValue | None:
    if hasattr(value, "as_py"):
        return _list(name, value.values) if value.is_valid else None
    if type(value).__module__.startswith("numpy"):
        return _list(name, value) if value.ndim == 1 else None
    return _list(name, value)


def _other(name: str, value: Any) -> AttributeValue | None:
    """Subclasses of the known types; scalars of numpy, pandas and Arrow, none of which is imported here."""
    if _is_array(value):
        return _array(name, value)
    for base, convert in _CONVERTERS.items():  # bool comes before int, and datetime before date
        if isinstance(value, base):
            return convert(name, value)
    kind = getattr(getattr(value, "dtype", None), "kind", "") if getattr(value, "shape", None) == () else ""
    if kind == "f":  # float(): a longdouble's .item() is a longdouble
        return _real(name, float(value))
    if kind == "M":
        if value != value:  # noqa: PLR0124 - NaT
            return None
        if not 1 <= 1970 + int(value.astype("datetime64[Y]").astype("int64")) <= 9999:
            raise out_of_time(name)  # in numpy it would wrap around
        return _instant(name, value.astype("datetime64[us]").item())  # nanoseconds are floored
    if kind in ("b", "i", "u", "U"):
        return as_value(name, value.item())
    whose, what = type(value).__module__.partition(".")[0], type(value).__name__
    if whose == "pandas" and what == "NAType":
        return None
    if whose == "pyarrow" and hasattr(value, "as_py"):
        from weft.model.column import value_of_scalar

        return value_of_scalar(name, value)
    raise untestable(name, what)


_CONVERTERS: dict[type, Callable[[str, Any], AttributeValue | None]] = {
    type(None): _as_it_is,
    bool: _as_it_is,
    str: _text,
    float: _real,
    int: _whole,
    datetime: _instant,
    date: _midnight,
    Decimal: _quotient,
    Fraction: _quotient,
    UUID: _uuid,
    list: _list,
    tuple: _list,
    set: _set,
    frozenset: _set,
}
