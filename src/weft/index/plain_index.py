"""The common part of the plain indexes: subscriptions in a dictionary, and batches event by event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.algebra.bounds import bounds_size
from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.to_filter import to_filter
from weft.errors import EventError, FilterError
from weft.index.base import AnyBatch, Ids, Matches
from weft.index.events import EventColumns, conformed
from weft.index.subscription_ids import already_exists, check_id, check_ids, check_new_ids
from weft.language.any_filter import AnyFilter, as_filter
from weft.language.ast import FALSE, Filter, disjunction
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse_many
from weft.model.event import attributes_of
from weft.model.frame import AnyEvent, as_batch
from weft.model.schema import Schema

_Held = TypeVar("_Held")


class PlainIndex(ABC, Generic[_Held]):
    """Subscriptions by id; a subclass says what it holds of a filter and how it matches."""

    def __init__(self, schema: Schema | None = None, *, predicates: Predicates = NO_PREDICATES) -> None:
        self.schema = schema
        self.predicates = predicates
        self.held: dict[int, _Held] = {}

    @abstractmethod
    def hold(self, filter: Filter) -> _Held:
        """What is kept of a filter."""

    @abstractmethod
    def names(self) -> set[str]:
        """The attributes that any filter looks at."""

    @abstractmethod
    def find(self, values: Mapping[str, Any]) -> Ids:
        """The subscriptions that an event with these attributes matches."""

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once. Raises EventError."""
        return self.find(attributes_of(event if self.schema is None else conformed(event, self.schema)))

    def changed(self) -> None:
        """Note that the subscriptions have changed."""

    def add(self, sub: int, filter: AnyFilter) -> None:
        """Add a subscription. Raises SubscriptionError or FilterError."""
        if (sub := check_id(sub)) in self.held:
            raise already_exists(sub)
        self.replace(sub, filter)

    def replace(self, sub: int, filter: AnyFilter) -> None:
        """Give a subscription another filter, or add it."""
        sub = check_id(sub)
        self.held[sub] = self.hold(as_filter(filter, self.predicates))
        self.changed()

    def discard(self, sub: int) -> None:
        """Remove a subscription, if there is one with this id."""
        self.held.pop(check_id(sub), None)
        self.changed()

    def discard_many(self, subs: Iterable[int]) -> None:
        """Remove many subscriptions."""
        for sub in check_ids(subs).tolist():
            self.held.pop(sub, None)
        self.changed()

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Add many filters as texts, all or none."""
        self._add_many(subs, parse_many(texts, self.predicates))

    def add_forms(self, subs: Iterable[int], forms: Sequence[NormalForm]) -> None:
        """Add many filters as normal forms, all or none."""
        self._add_many(subs, list(map(to_filter, forms)))

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Add many filters as columns; see `BoxColumns.from_bounds`."""
        ids = check_ids(subs)
        columns = BoxColumns.from_bounds(bounds)
        boxes: dict[int, list[Filter]] = {}
        for row, owner in enumerate(columns.owners.tolist()):
            boxes.setdefault(owner, []).append(to_filter(columns.box(row)))
        self._add_many(ids, [disjunction(*boxes[n]) if n in boxes else FALSE for n in range(bounds_size(bounds))])

    def _add_many(self, subs: Iterable[int], filters: Sequence[Filter]) -> None:
        ids: list[int] = check_new_ids(subs, len(filters)).tolist()
        for at, sub in enumerate(ids):
            if sub in self.held:
                raise already_exists(sub, at)
        held = []
        for at, each in enumerate(filters):  # all of them, before any is kept
            try:
                held.append(self.hold(each))
            except FilterError as error:
                raise error.at(at) from None
        self.held.update(zip(ids, held, strict=True))
        self.changed()

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return f"<weft.{type(self).__name__}: {len(self):,} filters>"

    def __contains__(self, sub: object) -> bool:
        return isinstance(sub, int | np.integer) and not isinstance(sub, bool) and sub in self.held

    def match_batch(self, batch: AnyBatch) -> Matches:
        """The subscriptions of each event; events that cannot be read are set aside, with the reason."""
        errors: dict[int, EventError] = {}
        return Matches.of([self.find(row) for row in self._rows(batch, errors)]).without(errors)

    def count_batch(self, batch: AnyBatch) -> NDArray[np.int64]:
        """How many subscriptions each event matches. Raises EventError for an event that cannot be read."""
        return Matches.of([self.find(row) for row in self._rows(batch, None)]).counts

    def any_batch(self, batch: AnyBatch) -> NDArray[np.bool_]:
        """Whether any subscription matches each event. Raises EventError for an event that cannot be read."""
        return self.count_batch(batch) > 0

    def _rows(self, batch: AnyBatch, errors: dict[int, EventError] | None) -> list[dict[str, Any]]:
        """The attributes of each event that any filter looks at."""
        names = sorted(self.names())
        rows: list[dict[str, Any]] = []
        found = as_batch(batch)
        for part in found.to_batches() if hasattr(found, "to_batches") else (found,):
            bad: dict[int, EventError] | None = None if errors is None else {}
            events = EventColumns.of(part, names, self.schema, bad)
            if errors is not None and bad:
                errors.update({len(rows) + row: error for row, error in bad.items()})
            columns = [events.with_lists(name) for name in names]
            if names:
                rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            else:
                rows += [{} for _ in range(events.size)]
        return rows

    def __copy__(self) -> Self:
        """An index of what is in this one now, which then goes its own way."""
        made = type(self)(self.schema, predicates=self.predicates)
        made.held = dict(self.held)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()  # what is held is never changed

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.schema, self.predicates, self.held)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert all(isinstance(sub, int) for sub in self.held)


def _unpickled(kind: Any, schema: Schema | None, predicates: Predicates, held: dict[int, Any]) -> Any:
    index = kind(schema, predicates=predicates)
    index.held = held
    return index
