"""Stored filters under another event schema. Law: every filter that may mean something else is listed, none is dropped.

An event's value that is not of the declared type is absent. So a filter means the same under two schemas if they
declare its attributes with the same types; bounds, precision and categories do not change what it matches. Events that
are stored stay as they are: they were read under the schema of their time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import chain

import msgspec

from weft.algebra.relate import is_empty
from weft.errors import FilterError, LogError, SchemaError
from weft.language.ast import attributes
from weft.language.predicate import Predicates
from weft.language.text import parse
from weft.log.row_reader import read_adverts, read_subs
from weft.model.schema import Schema

UNDECLARED = ""  # the event schema of a log that has none


class AffectedFilter(msgspec.Struct, frozen=True):
    """A stored filter that may not mean what it meant."""

    kind: str  # subscription or advertisement
    id: int  # its seat or its id
    session: int
    filter: str
    reason: str


def schema_text(schema: Schema | None) -> str:
    """The one text of a schema, whatever the order of its attributes.

    >>> schema_text(Schema.of(x="int", y="float")) == schema_text(Schema.of(y="float", x="int"))
    True
    """
    return UNDECLARED if schema is None else json.dumps(schema.to_dict(), sort_keys=True, ensure_ascii=False)


def read_schema_text(text: str) -> Schema | None:
    """The schema of its text. Raises LogError."""
    if text == UNDECLARED:
        return None
    try:
        return Schema.from_dict(json.loads(text))
    except (ValueError, SchemaError) as error:
        raise LogError(f"the event schema in the log is damaged: {error}") from error


def affected_filters(
    connection: sqlite3.Connection, before: str, now: Schema | None, predicates: Predicates
) -> tuple[AffectedFilter, ...]:
    """The stored subscriptions and advertisements that the change of schema concerns, with the reason."""
    changed = _changes(read_schema_text(before), now)
    stored = chain(
        (("subscription", int(sub.seat), int(sub.session), sub.filter) for sub in read_subs(connection)),
        (("advertisement", row.id, int(row.session), row.filter) for row in read_adverts(connection)),
    )
    found: Iterator[AffectedFilter] = (
        AffectedFilter(kind, number, session, text, reason)
        for kind, number, session, text in stored
        if (reason := _reason(text, changed, now, predicates))
    )
    return tuple(found)


def _changes(before: Schema | None, now: Schema | None) -> dict[str, str]:
    """What happened to the types of attributes."""
    old, new = before or Schema(), now or Schema()
    told = {}
    for name in sorted({*old, *new}):
        was = str(old[name].type) if name in old else "undeclared"
        becomes = str(new[name].type) if name in new else "undeclared"
        if was != becomes:
            told[name] = f"{name!r} was {was} and is {becomes}"
    return told


def _reason(text: str, changed: dict[str, str], now: Schema | None, predicates: Predicates) -> str:
    try:
        wanted = parse(text, predicates)
        named = [changed[name] for name in sorted(attributes(wanted)) if name in changed]
        if is_empty(wanted, now):
            named.append("it matches nothing under the new schema")
    except FilterError as error:
        return f"it cannot be used: {str(error).splitlines()[0]}"
    return "; ".join(named)
