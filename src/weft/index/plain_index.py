"""What the plain indexes share: subscriptions in a dictionary, and batches event by event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.to_filter import to_filter
from weft.index.base import AnyEvent, Ids, Matches
from weft.language.ast import FALSE, Filter, as_filter, disjunction
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse, parse_many
from weft.model.batch import events_from_batch
from weft.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Held = TypeVar("Held")


class PlainIndex(ABC, Generic[Held]):
    """Subscriptions by id; a subclass says what it holds of a filter and how it matches."""

    def __init__(self, schema: Schema | None = None, *, predicates: Predicates = NO_PREDICATES) -> None:
        self.schema = schema
        self.predicates = predicates
        self.held: dict[int, Held] = {}

    @abstractmethod
    def hold(self, filter: Filter) -> Held:
        """What is kept of a filter."""

    @abstractmethod
    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once."""

    def changed(self) -> None:
        """The subscriptions are other ones now."""

    def add(self, sub: int, filter: Filter | str) -> None:
        """Take in a subscription. Raises KeyError if it is known."""
        self._check_new([sub])
        self.replace(sub, filter)

    def replace(self, sub: int, filter: Filter | str) -> None:
        """Give a subscription another filter, known or not."""
        self.held[sub] = self.hold(parse(filter, self.predicates) if isinstance(filter, str) else as_filter(filter))
        self.changed()

    def discard(self, sub: int) -> None:
        """Forget a subscription, if it is known."""
        self.held.pop(sub, None)
        self.changed()

    def discard_many(self, subs: Iterable[int]) -> None:
        """Forget many subscriptions."""
        for sub in subs:
            self.held.pop(int(sub), None)
        self.changed()

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Take in many filters as texts, all or none."""
        self._add_many(subs, parse_many(texts, self.predicates))

    def add_forms(self, subs: Iterable[int], forms: Sequence[NormalForm]) -> None:
        """Take in many filters as normal forms, all or none."""
        self._add_many(subs, list(map(to_filter, forms)))

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Take in many filters as columns; see `BoxColumns.from_bounds`."""
        ids = [int(sub) for sub in subs]
        columns = BoxColumns.from_bounds(bounds)
        boxes: dict[int, list[Filter]] = {}
        for row, owner in enumerate(columns.owners.tolist()):
            boxes.setdefault(owner, []).append(to_filter(columns.box(row)))
        self._add_many(ids, [disjunction(*boxes[n]) if n in boxes else FALSE for n in range(len(ids))])

    def _add_many(self, subs: Iterable[int], filters: Sequence[Filter]) -> None:
        ids = [int(sub) for sub in subs]
        if len(ids) != len(filters):
            raise ValueError(f"{len(ids)} subscriptions for {len(filters)} filters")
        if len(set(ids)) != len(ids):
            raise KeyError("a subscription comes twice in one call")
        self._check_new(ids)
        held = list(map(self.hold, filters))  # all of them, before any is kept
        self.held.update(zip(ids, held, strict=True))
        self.changed()

    def _check_new(self, subs: Iterable[int]) -> None:
        for sub in subs:
            if sub in self.held:
                raise KeyError(f"subscription {sub} is known: use replace")

    def __len__(self) -> int:
        return len(self.held)

    def __contains__(self, sub: object) -> bool:
        return sub in self.held

    def match_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> Matches:
        """The subscriptions of each event."""
        events = batch if isinstance(batch, Sequence) else events_from_batch(batch)
        return Matches.of(self.match(event) for event in events)

    def count_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> NDArray[np.int64]:
        """How many subscriptions each event matches."""
        return self.match_batch(batch).counts

    def any_batch(self, batch: pa.RecordBatch | pa.Table | Sequence[AnyEvent]) -> NDArray[np.bool_]:
        """Whether anybody wants each event."""
        return self.match_batch(batch).counts > 0

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
