"""What a filter matches, and why. Law: a trace says of every part of a filter what `truth` says of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from weft.algebra.box import Box
from weft.algebra.express import express_values
from weft.algebra.measure import volume
from weft.algebra.merge import Merger
from weft.errors import EventError, SchemaError
from weft.language.ast import And, Attribute, Constant, Filter, Is, Not, Or, attributes
from weft.language.format import format_constant
from weft.language.meaning import truth
from weft.model.cloudevents import from_cloudevent
from weft.model.event import Event
from weft.model.schema import Schema, did_you_mean
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
        case Is(operand) if not isinstance(operand, Attribute):  # an attribute that IS NULL is no condition
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


def conditions(box: Box, schema: Schema | None = None) -> list[tuple[str, Filter]]:
    """What a box asks of each attribute, and of attributes together.

    >>> from weft import normalize, parse
    >>> [(name, str(test)) for name, test in conditions(normalize(parse("NOT x < 5 AND a > b")).boxes[0])]
    [('x', 'x >= 5'), ('a', 'a IS NOT NULL'), ('b', 'b IS NOT NULL'), ('a, b', 'a > b')]
    """
    alone = [(name, express_values(name, values, schema)) for name, values in box.sets.items()]
    together = [
        (", ".join(subject.names), subject.express(allowed)) for subject, allowed in box.residuals.items()
    ]
    return alone + together


def undeclared(filters: Iterable[Filter], schema: Schema | None) -> list[str]:
    """A sentence for each attribute that the schema does not have: more often a slip than not.

    >>> from weft import parse
    >>> undeclared([parse("magntude > 5")], Schema.of(magnitude="float"))
    ["'magntude' is not in the schema: did you mean 'magnitude'?"]
    """
    if schema is None:
        return []
    names = frozenset().union(*map(attributes, filters)) - set(schema)
    return [f"{name!r} is not in the schema{did_you_mean(name, schema)}" for name in sorted(names)]


def measured_by(filters: Iterable[Filter], schema: Schema | None) -> Schema | None:
    """The part of a schema that the filters look at: in it volumes need no bounds of other attributes."""
    if schema is None:
        return None
    names = frozenset().union(*map(attributes, filters))
    return Schema(tuple(attribute for attribute in schema.attributes if attribute.name in names))


def cost(merger: Merger, schema: Schema | None) -> tuple[float | None, str]:
    """The share of a merger's volume that its parts do not have, and why it is not known if it is None."""
    if merger.perfect:
        return 0.0, ""
    if schema is None:
        return None, "a schema with bounds (--schema FILE) tells how much it adds"
    try:
        whole = volume(merger.form, schema)
    except SchemaError as error:
        return None, str(error)
    if merger.added is None:
        return None, "the parts have no volume under this schema"
    return merger.added / whole if whole else 0.0, ""


def plain_values(values: Mapping[str, Value | None]) -> dict[str, Any]:
    """Values in JSON's types: a timestamp is text, and so are the infinities."""
    return {name: _plain(value) for name, value in values.items()}


def show_value(value: Value | None) -> str:
    """A value as a filter would write it; NULL where there is none."""
    if value is None:
        return "NULL"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return format_constant(Constant.of(value))


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
