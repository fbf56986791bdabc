"""The contract of every index. Law: an event matches exactly the subscriptions whose filter `meaning` finds TRUE.

Adding an id that exists raises; discarding one that does not exist is allowed; `replace` does both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NewType, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.algebra.box import NormalForm
from weft.errors import EventError
from weft.language.any_filter import AnyFilter
from weft.model.frame import AnyEvent as AnyEvent  # noqa: PLC0414 - exported

SubId = NewType("SubId", int)  # 64 bits

Ids = NDArray[np.int64]
_NO_IDS = np.zeros(0, np.int64)
AnyBatch = Any  # what `weft.model.frame.as_batch` takes: a table of Arrow, pandas or Polars, or a list of events


class Matches:
    """The subscriptions of each event of a batch: those of event i are ids[offsets[i]:offsets[i + 1]].

    `errors` has the events that could not be read, by position, with the reason; these match nothing. Ids
    are written out when they are first used, so `counts` alone costs less.

    >>> found = Matches(np.array([0, 2, 2]), np.array([7, 9]))
    >>> len(found), found[0].tolist(), found[1].tolist()
    (2, [7, 9], [])
    """

    __slots__ = ("_ids", "errors", "offsets")

    def __init__(
        self,
        offsets: NDArray[np.int64],
        ids: Ids | Callable[[], Ids],
        errors: Mapping[int, EventError] | None = None,
    ) -> None:
        self.offsets = offsets
        self._ids = ids
        self.errors: Mapping[int, EventError] = {} if errors is None else errors

    @property
    def ids(self) -> Ids:
        """The subscriptions of all events, one event after another. Cost: O(matches) when it is first used, then O(1).

        >>> Matches.of([[7, 9], [], [8]]).ids.tolist()
        [7, 9, 8]
        """
        ids = self._ids
        if not isinstance(ids, np.ndarray):
            ids = self._ids = ids()
        return ids

    def __reduce__(self) -> tuple[Any, ...]:
        return Matches, (self.offsets, self.ids, self.errors)

    def __repr__(self) -> str:
        return f"<Matches: {int(self.offsets[-1]):,} matches in {len(self):,} events>"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, event: int) -> Ids:
        if not 0 <= event < len(self):
            raise IndexError(event)
        return self.ids[self.offsets[event] : self.offsets[event + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[event] for event in range(len(self)))

    @staticmethod
    def of(found: Iterable[ArrayLike]) -> Matches:
        """The matches of events, given for each event. Cost: O(events + matches).

        >>> Matches.of([[7, 9], []]).offsets.tolist()
        [0, 2, 2]
        """
        every = [np.asarray(ids, np.int64) for ids in found]
        return Matches(np.cumsum([0, *map(len, every)], dtype=np.int64), np.concatenate([_NO_IDS, *every]))

    @staticmethod
    def merged(parts: Iterable[Matches], events: int) -> Matches:
        """The matches of a number of events from all parts, for each event part after part.

        Cost: O(matches), and O(events) for each part.

        >>> one, other = Matches.of([[7, 9], []]), Matches.of([[8], [6]])
        >>> [ids.tolist() for ids in Matches.merged([one, other], 2)]
        [[7, 9, 8], [6]]
        """
        some = [part for part in parts if part.offsets[-1]]
        if len(some) == 1:
            return some[0]
        counts = sum((part.counts for part in some), np.zeros(events, np.int64))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ids = np.empty(int(offsets[-1]), np.int64)
        free = offsets[:-1].copy()
        for part in some:
            ids[np.repeat(free - part.offsets[:-1], part.counts) + np.arange(len(part.ids))] = part.ids
            free += part.counts
        return Matches(offsets, ids)

    @staticmethod
    def chained(parts: Iterable[Matches]) -> Matches:
        """The matches of batches that follow each other. Cost: O(events + matches).

        >>> one, other = Matches.of([[7, 9], []]), Matches.of([[8]])
        >>> [ids.tolist() for ids in Matches.chained([one, other])]
        [[7, 9], [], [8]]
        """
        some = list(parts)
        if len(some) == 1:
            return some[0]
        ends = np.cumsum([0, *(int(part.offsets[-1]) for part in some)])
        offsets = [np.zeros(1, np.int64), *(part.offsets[1:] + end for part, end in zip(some, ends, strict=False))]
        return Matches(np.concatenate(offsets), np.concatenate([_NO_IDS, *(part.ids for part in some)]))

    def without(self, errors: Mapping[int, EventError]) -> Matches:
        """The matches without those of some events, which could not be read. Cost: O(events + matches).

        >>> found = Matches.of([[7, 9], [8]]).without({0: EventError("not an event")})
        >>> [ids.tolist() for ids in found], str(found.errors[0])
        ([[], [8]], 'event 0: not an event')
        """
        if not errors:
            return self
        counts = self.counts
        keep = np.ones(len(self), bool)
        keep[list(errors)] = False
        ids = self.ids[np.repeat(keep, counts)]
        offsets = np.concatenate([[0], np.cumsum(np.where(keep, counts, 0))])
        return Matches(offsets, ids, {row: errors[row].at(row) for row in sorted(errors)})

    def checked(self) -> Matches:
        """The same matches, if every event could be read. Raises EventError for the first that could not. Cost: O(1).

        >>> Matches.of([[7], [8]]).without({1: EventError("not an event")}).checked()
        Traceback (most recent call last):
            ...
        weft.errors.EventError: event 1: not an event
        """
        for error in self.errors.values():
            raise error
        return self

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many subscriptions each event has. Cost: O(events).

        >>> Matches.of([[7, 9], []]).counts.tolist()
        [2, 0]
        """
        return np.diff(self.offsets)


class MatchIndex(Protocol):
    """Filters by subscription, and the events' matches among them."""

    def add(self, sub: SubId, filter: AnyFilter) -> None:
        """Add a subscription. Raises SubscriptionError or FilterError."""
        ...

    def add_texts(self, subs: Iterable[int], texts: Iterable[str]) -> None:
        """Add many, all or none."""
        ...

    def add_forms(self, subs: Iterable[int], forms: Sequence[NormalForm]) -> None:
        """Add many as normal forms, made under the index's schema, all or none."""
        ...

    def add_columns(self, subs: Iterable[int], bounds: Mapping[str, Any]) -> None:
        """Add many as columns of bounds, all or none; see `BoxColumns.from_bounds`."""
        ...

    def discard_many(self, subs: Iterable[int]) -> None:
        """Remove many subscriptions."""
        ...

    def discard(self, sub: SubId) -> None:
        """Remove a subscription, if there is one with this id."""
        ...

    def replace(self, sub: SubId, filter: AnyFilter) -> None:
        """Give a subscription another filter; no match sees both or none."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, sub: object) -> bool: ...

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches, in no order, each once. Raises EventError."""
        ...

    def match_batch(self, batch: AnyBatch) -> Matches:
        """The subscriptions of each event; events that cannot be read are set aside, with the reason."""
        ...

    def count_batch(self, batch: AnyBatch) -> NDArray[np.int64]:
        """How many subscriptions each event matches. Raises EventError for an event that cannot be read."""
        ...

    def any_batch(self, batch: AnyBatch) -> NDArray[np.bool_]:
        """Whether any subscription matches each event. Raises EventError for an event that cannot be read."""
        ...

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        ...
