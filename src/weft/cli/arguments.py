"""Filters and events given on the command line or in a pipe."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from weft.cli.input_files import read_bytes
from weft.errors import EventError, FilterError
from weft.language.any_filter import as_filter
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.language.predicate_modules import filter_predicates
from weft.model.cloudevents import from_cloudevent
from weft.model.event import Event, ignored_lists
from weft.model.lists import AttributeValue
from weft.model.schema import Schema
from weft.model.value import Type, Value, from_micros, parse_timestamp
from weft.pipeline.predicate_settings import environment_predicates


def read_texts(given: Sequence[str], stdin: Callable[[], bytes]) -> Iterator[tuple[str, str]]:
    """Each text and, where `-` stands for the lines of stdin, its place; blank lines and # or -- comments are skipped.

    >>> list(read_texts(["x", "-"], lambda: b"# two filters\\ny\\n\\nz"))
    [('x', ''), ('y', 'in line 2 of standard input'), ('z', 'in line 4 of standard input')]
    """
    for text in given:
        if text != "-":
            yield text, ""
            continue
        try:
            lines = stdin().decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise FilterError("standard input is not valid UTF-8; convert it first") from None
        for number, line in enumerate(map(str.strip, lines), 1):
            if line and not line.startswith(("#", "--")):
                yield line, f"in line {number} of standard input"


def read_filter(text: str, place: str, predicates: Predicates) -> Filter:
    """The filter of a text, in any form: see `any_filter`. Raises FilterError, with the place as a note."""
    try:
        return as_filter(text, predicates)
    except FilterError as error:
        if place:
            error.add_note(place)
        raise


def read_predicates(taxonomy: Path | None) -> Predicates:
    """What filters may call: is_a, if there is a taxonomy, and the predicates of modules that the environment names.

    These are the settings `predicates` and `taxonomy` of a broker, from the same variables.
    """
    if taxonomy is None:
        return environment_predicates()
    modules = os.environ.get("WEFT_PREDICATES", "").split(",")
    return filter_predicates([each.strip() for each in modules if each.strip()], [taxonomy])


def read_event(given: str, schema: Schema | None = None, ignored: Counter[str] | None = None) -> Event:
    """The event of a JSON object or CloudEvent, or of `@file`; a schema says what is a timestamp. Raises EventError.

    The lists that are ignored are added to `ignored`.

    >>> read_event('{"magnitude": 6.1, "time": "2018-02-04"}')["time"]
    datetime.datetime(2018, 2, 4, 0, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        text = given
        if given.startswith("@"):
            text = read_bytes(given[1:], lambda: b"", EventError).decode("utf-8-sig")
        tree = json.loads(text)
    except UnicodeDecodeError:
        raise EventError(f"{given[1:]} is not valid UTF-8; convert it first") from None
    except (ValueError, RecursionError) as error:
        raise EventError(f"the event is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise EventError('an event must be a JSON object: write {"name": value, ...}')
    if "specversion" in tree:
        return from_cloudevent(text, schema)
    event = Event.of(tree)
    if ignored is not None:
        ignored.update(ignored_lists(tree))
    if schema is None:
        return event
    declared = (attribute.name for attribute in schema.attributes if attribute.type is Type.TIMESTAMP)
    moments = {name: _moments(event[name]) for name in declared if isinstance(event[name], str | list)}
    return schema.conform(Event({**event.attributes, **moments}))


_AGE = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_age(text: str, option: str) -> timedelta:
    """A length of time such as 90s, 30m, 2h or 7d. Raises BadParameter.

    >>> read_age("2h", "--for")
    datetime.timedelta(seconds=7200)
    """
    age = _AGE.fullmatch(text)
    if age is None or not int(age[1]):
        raise typer.BadParameter(f"{option} is a length of time such as 90s, 30m, 2h or 7d, not {text!r}")
    return timedelta(seconds=int(age[1]) * _SECONDS[age[2]])


def read_position(text: str | None, option: str) -> int | datetime | None:
    """A place in a log: an offset, a time, or an age such as 30m. Raises BadParameter.

    >>> read_position("17", "--since"), read_position("2026-11-16T12:00", "--since").hour
    (17, 12)
    """
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    if (age := _AGE.fullmatch(text)) is not None:
        return datetime.now(UTC) - timedelta(seconds=int(age[1]) * _SECONDS[age[2]])
    try:
        return from_micros(parse_timestamp(text))
    except ValueError:
        wanted = "an offset, a time such as 2026-11-16T12:00, or an age such as 30m"
        raise typer.BadParameter(f"{option} is {wanted}, not {text!r}") from None


def _moments(value: Any) -> AttributeValue:
    """The instants that a text, or those of a list, name; what names none stays text, which is of another type."""
    if isinstance(value, list):
        return [_moment(each) if isinstance(each, str) else each for each in value]
    return _moment(value)


def _moment(text: str) -> Value:
    """The instant that a text names, or the text."""
    try:
        return from_micros(parse_timestamp(text))
    except ValueError:
        return text
