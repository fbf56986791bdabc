"""The reasons why a filter matches an event. The truth of every part in a trace is what `truth` gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Protocol

from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import And, AttributeRef, Filter, Is, Not, Or, attributes
from weft.language.constant import Constant
from weft.language.format import format_constant
from weft.language.meaning import all_of, any_of, negation, truth
from weft.model.event import Event, as_event
from weft.model.lists import AttributeValue
from weft.model.value import format_timestamp, to_micros

_SIGNS = {True: "+", False: "-", None: "?"}
_MOST_TEXT = 200  # characters of a part in a line
_LONGEST = 1_000  # characters of a string in a trace that is shown
_MOST_ELEMENTS = 20  # of a list


@dataclass(frozen=True, slots=True)
class Trace:
    """A part of a filter, its truth for an event, the values that a test looked at, and its own parts.

    >>> from weft import parse
    >>> found = trace(parse("x > 5 AND y IS NULL"), Event.of(x=7))
    >>> found.truth, [(str(part.filter), part.truth, part.values) for part in found.parts]
    (True, [('x > 5', True, {'x': 7}), ('y IS NULL', True, {'y': None})])
    """

    filter: Filter
    truth: bool | None
    values: Mapping[str, AttributeValue | None]
    parts: tuple[Trace, ...]

    def __str__(self) -> str:
        return "\n".join(trace_lines(self))

    def _repr_html_(self) -> str:
        return trace_html(self)

    def to_dict(self) -> dict[str, Any]:
        """The trace as JSON values; NULL becomes null, a timestamp becomes text, and a long string ends with "..".

        Every test names its values, so without a limit a long string would be repeated for each.
        """
        told: dict[str, Any] = {"filter": str(self.filter), "truth": self.truth}
        if self.values:
            told["values"] = {name: _short(value) for name, value in plain_values(self.values).items()}
        if self.parts:
            told["parts"] = [part.to_dict() for part in self.parts]
        return told


class TracedPart(Protocol):
    """A part of a filter as a trace has it, here or from a broker."""

    @property
    def filter(self) -> object:
        """Its filter, which `str` writes as text."""

    @property
    def truth(self) -> bool | None:
        """Its truth for the event."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The values that it looked at."""

    @property
    def parts(self) -> Sequence[TracedPart]:
        """Its own parts."""


def trace_lines(part: TracedPart, depth: int = 0) -> Iterator[str]:
    """A line for each part of a filter, with the values that decide it.

    >>> print(trace("x > 5 AND (y = 1 OR z)", Event.of(x=7, z=True)))  # + is TRUE, - FALSE and ? NULL
    +  x > 5 AND (y = 1 OR z)
      +  x > 5   (x is 7)
      +  y = 1 OR z
        ?  y = 1   (y is absent)
        +  z   (z is True)
    """
    values = ", ".join(f"{name} is {'absent' if value is None else repr(value)}" for name, value in part.values.items())
    text = str(part.filter)
    text = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}.."
    yield f"{'  ' * depth}{_SIGNS[part.truth]}  {text}{f'   ({values})' if values else ''}"
    for each in part.parts:
        yield from trace_lines(each, depth + 1)


def trace_html(part: TracedPart) -> str:
    """A trace for notebooks."""
    return f"<pre>{escape(chr(10).join(trace_lines(part)))}</pre>"


def trace(filter: AnyFilter, event: Event | Mapping[str, Any]) -> Trace:
    """The truth of the filter and of each of its parts. Raises EventError for what is not an event."""
    return _trace(as_filter(filter), as_event(event))


def _trace(filter: Filter, event: Event) -> Trace:
    """Cost: each test is evaluated once, however deep it is nested."""
    match filter:
        case And(operands):
            parts = tuple(_trace(part, event) for part in operands)
            return Trace(filter, all_of(*(part.truth for part in parts)), {}, parts)
        case Or(operands):
            parts = tuple(_trace(part, event) for part in operands)
            return Trace(filter, any_of(*(part.truth for part in parts)), {}, parts)
        case Not(operand):
            part = _trace(operand, event)
            return Trace(filter, negation(part.truth), {}, (part,))
        case Is(operand, value) if not isinstance(operand, AttributeRef):  # an attribute is not a condition
            part = _trace(operand, event)
            return Trace(filter, part.truth is value, {}, (part,))
    return Trace(filter, truth(filter, event), {name: event[name] for name in sorted(attributes(filter))}, ())


def show_value(value: AttributeValue | None) -> str:
    """A value as it is written in a filter, a list in brackets; NULL if there is none."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        shown = [show_value(each) for each in value[:_MOST_ELEMENTS]]
        return f"[{', '.join([*shown, '..'] if len(value) > _MOST_ELEMENTS else shown)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return format_constant(Constant.of(value))


def plain_values(values: Mapping[str, AttributeValue | None]) -> dict[str, Any]:
    """Values as JSON values; a timestamp becomes text, and so do infinities."""
    return {name: _plain(value) for name, value in values.items()}


def _short(value: Any) -> Any:
    return value[: _LONGEST - 2] + ".." if isinstance(value, str) and len(value) > _LONGEST else value


def _plain(value: AttributeValue | None) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return format_timestamp(to_micros(value))
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
