"""Why a filter matches an event. Law: a trace says of every part of a filter what `truth` says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.errors import EventError
from weft.language.ast import And, Attribute, Constant, Filter, Is, Not, Or, attributes
from weft.language.format import format_constant
from weft.language.meaning import truth
from weft.model.cloudevents import from_cloudevent
from weft.model.event import Event
from weft.model.schema import Schema
from weft.model.value import Type, Value, format_timestamp, from_micros, parse_timestamp, to_micros


@dataclass(frozen=True, slots=True)
class Trace:
    """A part of a filter, its truth for an event, the values that a test looked at, and the parts of the part.

    >>> from weft import parse
    >>> found = trace(parse("x > 5 AND y IS NULL"), Event.of(x=7))
    >>> found.truth, [(str(part.filter), part.truth, part.values) for part in found.parts]
    (True, [('x > 5', True, {'x': 7}), ('y IS NULL', True, {'y': None})])
    """

    filter: Filter
    truth: bool | None
    values: Mapping[str, Value | None]
    parts: tuple[Trace, ...]

    def to_dict(self) -> dict[str, Any]:
        """The trace in JSON's types; NULL is null, a timestamp is text."""
        told: dict[str, Any] = {"filter": str(self.filter), "truth": self.truth}
        if self.values:
            told["values"] = plain_values(self.values)
        if self.parts:
            told["parts"] = [part.to_dict() for part in self.parts]
        return told


def trace(filter: Filter, event: Event) -> Trace:  # noqa: A002 - the field's word
    """The truth of the filter and of every part of it."""
    parts: tuple[Filter, ...] = ()
    match filter:
        case And(operands) | Or(operands):
            parts = operands
        case Not(operand):
            parts = (operand,)
        case Is(operand) if not isinstance(operand, Attribute):  # what IS NULL asks of an attribute is no condition
            parts = (operand,)
    values = {} if parts else {name: event[name] for name in sorted(attributes(filter))}
    return Trace(filter, truth(filter, event), values, tuple(trace(part, event) for part in parts))


def read_event(text: str, schema: Schema | None = None) -> Event:
    """The event of a JSON object, or of a CloudEvent in JSON; a schema says what is a timestamp. Raises EventError.

    >>> read_event('{"magnitude": 6.1, "time": "2018-02-04"}')["time"]
    datetime.datetime(2018, 2, 4, 0, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EventError(f"the event is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise EventError('an event is a JSON object: write {"name": value, ...}')
    if "specversion" in given:
        return from_cloudevent(text, schema)
    event = Event.of(given)
    if schema is None:
        return event
    declared = (attribute.name for attribute in schema.attributes if attribute.type is Type.TIMESTAMP)
    moments = {name: _moment(event[name]) for name in declared if isinstance(event[name], str)}
    return schema.conform(Event({**event.attributes, **moments}))


def show_value(value: Value | None) -> str:
    """A value as a filter would write it; NULL where there is none."""
    if value is None:
        return "NULL"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return format_constant(Constant.of(value))


def plain_values(values: Mapping[str, Value | None]) -> dict[str, Any]:
    """Values in JSON's types: a timestamp is text, and so are the infinities."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Value | None) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(to_micros(value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _moment(value: Value | None) -> Value:
    """The instant that a text names; what names none stays text, which is of another type and so absent."""
    try:
        return from_micros(parse_timestamp(str(value)))
    except ValueError:
        return str(value)
