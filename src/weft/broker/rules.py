"""Access rules are filters. Laws: a principal may subscribe iff its rules together cover the filter, and publish iff
one of its rules matches the event; so whatever is delivered matches a rule of its subscriber.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from weft.algebra.relate import as_form, covers, overlaps
from weft.errors import AccessError
from weft.language.ast import Filter, disjunction
from weft.language.meaning import matches
from weft.language.text import parse
from weft.model.event import Event
from weft.model.schema import Schema


class Rights(NamedTuple):
    """What a principal may do, as texts of filters; None is anything."""

    subscribe: tuple[str, ...] | None = None
    publish: tuple[str, ...] | None = None


class Grant:
    """The rules of one principal, read.

    >>> grant = Grant(Rights(subscribe=("x < 5", "x >= 5 AND y = 1"), publish=()))
    >>> grant.check_subscribe(parse("x < 7 AND y = 1"))
    >>> grant.check_subscribe(parse("x < 7"))
    Traceback (most recent call last):
    ...
    weft.errors.AccessError: no rule allows all of x < 7; the nearest rule is x < 5
    """

    def __init__(self, rights: Rights, schema: Schema | None = None) -> None:
        self._schema = schema
        self._subscribe = None if rights.subscribe is None else [parse(text) for text in rights.subscribe]
        self._publish = None if rights.publish is None else [parse(text) for text in rights.publish]
        if self._subscribe is not None:
            self._wide = as_form(disjunction(*self._subscribe), schema)

    def check_subscribe(self, wanted: Filter) -> None:
        """Raise AccessError unless the rules cover a filter."""
        if self._subscribe is None or covers(self._wide, wanted, self._schema):
            return
        near = next((rule for rule in self._subscribe if overlaps(rule, wanted, self._schema)), None)
        hint = "" if near is None else f"; the nearest rule is {near}"
        raise AccessError(f"no rule allows all of {_short(wanted)}{hint}")

    @property
    def publishes_all(self) -> bool:
        """Whether every event may be published."""
        return self._publish is None

    def check_publish(self, attributes: Mapping[str, Any]) -> None:
        """Raise AccessError unless a rule matches an event."""
        if self._publish is None:
            return
        event = Event(dict(attributes))
        if not any(matches(rule, event) for rule in self._publish):
            raise AccessError("no rule allows this event; publish only what your rules match")


class Rules:
    """The rules of all principals; `default` is for those that have none of their own.

    >>> rules = Rules({"analyst": Rights(publish=())}, default=Rights((), ()))
    >>> rules.of("analyst").publishes_all, rules.of("analyst") is rules.of("analyst")
    (False, True)
    """

    def __init__(
        self, rights: Mapping[str, Rights] | None = None, default: Rights | None = None, schema: Schema | None = None
    ) -> None:
        self._rights = dict(rights or {})
        self._default = Grant(default or Rights(), schema)
        self._schema = schema
        self._grants = {principal: Grant(each, schema) for principal, each in self._rights.items()}

    def of(self, principal: str) -> Grant:
        """The rules of a principal."""
        return self._grants.get(principal, self._default)

    def principals(self) -> Iterable[str]:
        """Those that have rules of their own."""
        return sorted(self._rights)


def _short(wanted: Filter) -> str:
    text = str(wanted)
    return text if len(text) <= 100 else text[:97] + "..."
