"""A set of filters to look at: generated as in the thesis (4.1, 4.6) or given as text, and changed step by step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from weft.algebra.box import NormalForm
from weft.algebra.normalize import normalize
from weft.errors import FilterError, OptionError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.schema import Schema
from weft.workloads.thesis import ANY_PREDICATE, FilterSchema, in_turn

MOST_FILTERS = 2_000
_NAMES = "abcdefgh"


class Generator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How filters are drawn: the controls of the thesis's PosetBrowser."""

    filters: Annotated[int, Meta(ge=0, le=MOST_FILTERS)] = 40
    seed: Annotated[int, Meta(ge=0, le=1 << 31)] = 1
    names: Annotated[int, Meta(ge=1, le=len(_NAMES))] = 2
    least: Annotated[int, Meta(ge=1, le=len(_NAMES))] = 2
    most: Annotated[int, Meta(ge=1, le=len(_NAMES))] = 2
    top: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    predicates: tuple[str, ...] = ("[a,b]",)
    interfaces: Annotated[int, Meta(ge=1, le=40)] = 3
    notifications: Annotated[int, Meta(ge=0, le=500)] = 50

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of attributes."""
        return tuple(_NAMES[: self.names])

    def draw(self) -> list[tuple[Filter, str]]:
        """The filters, each with its interface, round-robin. Raises SchemaError."""
        if not set(self.predicates) <= set(ANY_PREDICATE):
            raise OptionError(f"predicates are some of {', '.join(ANY_PREDICATE)}")
        schema = FilterSchema(self.attributes, self.least, self.most, self.predicates, top=self.top)
        drawn = schema.draw(self.filters, np.random.default_rng(self.seed))
        return in_turn(drawn, [f"I{number}" for number in range(1, self.interfaces + 1)])

    def events(self, names: Sequence[str], low: float = 0, high: float | None = None) -> list[dict[str, int]]:
        """Notifications: every attribute has a whole number between the bounds."""
        rng = np.random.default_rng([self.seed, 1])
        least, most = math.floor(low), math.ceil(self.top if high is None else high)
        values = rng.integers(least, max(most, least) + 1, (self.notifications, len(names))).tolist()
        return [dict(zip(names, row, strict=True)) for row in values]


class FilterSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where filters come from, what was changed by hand, and how many of the changes are shown.

    `rules` are filters, one per line, instead of generated ones; a line may begin with an interface and a tab. An edit
    is `+INTERFACE FILTER` or `-NUMBER`. Steps are additions in order, then edits.
    """

    generator: Generator = Generator()
    rules: Annotated[str, Meta(max_length=1 << 18)] = ""
    edits: Annotated[tuple[Annotated[str, Meta(max_length=1 << 14)], ...], Meta(max_length=500)] = ()
    step: Annotated[int, Meta(ge=0)] | None = None  # None: all


class FilterChange(NamedTuple):
    """One step: a filter is added, or removed. Filters are numbered as they are added."""

    adds: bool
    number: int
    filter: Filter
    interface: str

    @property
    def text(self) -> str:
        """For people."""
        return f"{'add' if self.adds else 'remove'} #{self.number} ({self.interface}): {self.filter}"


class FilterSteps(NamedTuple):
    """All changes, those that are shown, and what could not be used."""

    changes: list[FilterChange]
    shown: int
    notes: list[str]

    def present(self) -> dict[int, FilterChange]:
        """The filters that are there after the steps shown, by number."""
        found: dict[int, FilterChange] = {}
        for change in self.changes[: self.shown]:
            if change.adds:
                found[change.number] = change
            else:
                found.pop(change.number, None)
        return found


def filter_steps(source: FilterSource) -> FilterSteps:
    """The steps of a source. Raises FilterSyntaxError for an edit that cannot be read; unusable rules are noted."""
    notes: list[str] = []
    given = list(_rules(source.rules, source.generator.interfaces, notes)) if source.rules else source.generator.draw()
    changes = [FilterChange(True, number, *each) for number, each in enumerate(given, 1)]
    known = {change.number: change for change in changes}
    for edit in source.edits:
        sign, rest = edit[:1], edit[1:].strip()
        if sign == "-" and rest.isdecimal():
            if int(rest) in known:
                changes.append(known.pop(int(rest))._replace(adds=False))
        elif sign == "+" and " " in rest:
            interface, text = rest.split(" ", 1)
            number = 1 + max((change.number for change in changes), default=0)
            known[number] = FilterChange(True, number, usable(text), interface)
            changes.append(known[number])
        else:
            raise OptionError(f"{edit!r} is not an edit; write +INTERFACE FILTER or -NUMBER")
    shown = len(changes) if source.step is None else min(source.step, len(changes))
    return FilterSteps(changes, shown, notes)


def usable(text: str) -> Filter:
    """A filter that can be ordered. Raises FilterError."""
    found = parse(text)
    if not normalize(found).boxes:
        raise FilterError(f"{text} matches nothing, so it has no place in an order")
    return found


def _rules(text: str, interfaces: int, notes: list[str]) -> Iterator[tuple[Filter, str]]:
    """Filters of lines; a line that cannot be used is noted."""
    number = 0
    for line, rule in enumerate(text.splitlines(), 1):
        if not rule.strip() or rule.lstrip().startswith("#"):
            continue
        interface, _, body = rule.rpartition("\t")
        if number >= MOST_FILTERS:
            notes.append(f"only the first {MOST_FILTERS:,} filters are shown")
            return
        try:
            found = usable(body.strip())
        except FilterError as error:
            notes.append(f"line {line} is left out: {str(error).splitlines()[0]}")
            continue
        number += 1
        yield found, interface.strip() or f"I{(number - 1) % interfaces + 1}"


# -- the domain ---------------------------------------------------------------------------------------------


def domain_of(source: FilterSource, forms: Sequence[NormalForm]) -> Schema | None:
    """A schema with bounds around the filters, so that volumes and grids exist; None if an attribute has no numbers."""
    if not source.rules and not source.edits:
        return _schema({name: (0.0, float(source.generator.top)) for name in source.generator.attributes}, "int")
    ends: dict[str, list[float]] = {}
    for form in forms:
        for box in form.boxes:
            if box.residuals:
                return None
            for name, values in box.sets.items():
                if values.strings or values.bools or values.timestamps or values.absent or not values.numbers:
                    return None
                ends.setdefault(name, []).extend(float(value) for value, _ in values.numbers if math.isfinite(value))
    if not ends or not all(ends.values()):
        return None
    bounds = {name: (min(found), max(found)) for name, found in ends.items()}
    return _schema({name: (low, high if high > low else low + 1) for name, (low, high) in bounds.items()}, "float")


def _schema(bounds: dict[str, tuple[float, float]], kind: str) -> Schema:
    whole = kind == "int"
    attributes: dict[str, Any] = {
        name: {"type": kind, "bounds": [int(low), int(high)] if whole else [low, high]}
        for name, (low, high) in bounds.items()
    }
    return Schema.from_dict({"attributes": attributes})
