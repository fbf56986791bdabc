"""Access rules in a file. Only what a rule allows is allowed; a file with any error is refused as a whole.

[groups]
analysts = ["ann", "bob"]

[[rule]]
for = "analysts"                                    # a group, a principal, "*" for everybody, or a list of these
subscribe = "type = 'quake' AND magnitude >= 3"     # a filter, a list of filters, or true for anything
publish = "owner = '{me}'"                          # {me} is the principal, inside a string or a quoted name
rights = ["history"]                                # of: status, dead-letters, history, link, operate
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from weft.broker.personal_rules import ME
from weft.broker.rules import NOTHING, Grant, Right, Rights, Rules
from weft.errors import OptionError, WeftError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.regular_file import read_regular
from weft.model.schema import Schema

EVERYBODY = "*"
_MOST_BYTES = 64 * 1024 * 1024

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Filters = bool | str | tuple[str, ...]


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[rule]]`."""

    principals: _Name | tuple[_Name, ...] = msgspec.field(name="for")
    subscribe: _Filters = False
    publish: _Filters = False
    rights: tuple[Right, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules."""

    groups: dict[_Name, tuple[_Name, ...]] = {}
    rule: tuple[_Rule, ...] = ()


def read_access(file: Path, schema: Schema | None = None, predicates: Predicates = NO_PREDICATES) -> Rules:
    """The rules of a file. Raises OptionError."""
    try:
        text = read_regular(file, _MOST_BYTES)
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    return parse_access(text, str(file), schema, predicates)


def parse_access(
    text: bytes,
    name: str = "the access rules",
    schema: Schema | None = None,
    predicates: Predicates = NO_PREDICATES,
) -> Rules:
    """The rules of a text. Raises OptionError."""
    try:
        whole = msgspec.toml.decode(text, type=_File)
    except msgspec.ValidationError as error:
        raise OptionError(f"{name}: {error}") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not valid TOML: {error}") from None
    for number, rule in enumerate(whole.rule, 1):
        _check(rule, f"{name}: rule {number}", schema, predicates)
    allowed = [(_listed(rule.principals, whole.groups), _rights(rule)) for rule in whole.rule]
    everybody = _union(NOTHING, (rights for principals, rights in allowed if EVERYBODY in principals))
    named = sorted({each for principals, _ in allowed for each in principals} - {EVERYBODY})
    rights = {name: _union(everybody, (own for principals, own in allowed if name in principals)) for name in named}
    return Rules(rights, default=everybody, schema=schema, predicates=predicates)


def _check(rule: _Rule, place: str, schema: Schema | None, predicates: Predicates) -> None:
    """Raise OptionError for a filter that cannot be used."""
    for field in ("subscribe", "publish"):
        for text in _texts(getattr(rule, field)) or ():
            try:
                Grant(Rights(subscribe=(text,)), schema, predicates)
            except WeftError as error:
                hint = f"; {ME} stands inside a string or a quoted name" if ME in text else ""
                raise OptionError(f"{place}: {field}: {error}{hint}") from None


def _listed(principals: str | tuple[str, ...], groups: dict[str, tuple[str, ...]]) -> set[str]:
    listed = (principals,) if isinstance(principals, str) else principals
    return {each for name in listed for each in groups.get(name, (name,))}


def _rights(rule: _Rule) -> Rights:
    return Rights(_texts(rule.subscribe), _texts(rule.publish), frozenset(rule.rights))


def _texts(filters: _Filters) -> tuple[str, ...] | None:
    """The filters; None for anything."""
    if isinstance(filters, bool):
        return None if filters else ()
    return (filters,) if isinstance(filters, str) else filters


def _union(first: Rights, others: Iterable[Rights]) -> Rights:
    whole = first
    for each in others:
        whole = Rights(
            _joined(whole.subscribe, each.subscribe), _joined(whole.publish, each.publish), whole.further | each.further
        )
    return whole


def _joined(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[Any, ...] | None:
    return None if one is None or other is None else (*one, *(text for text in other if text not in one))
