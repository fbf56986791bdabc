"""The open decisions of a negative space, and the changes that its neighbour is sent. A removed subscription is
withdrawn only after all those that it may have subsumed are decided; decisions are first in, first out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft.interest.tiles import Owner
from weft.model.change import Change

DecisionKey = TypeVar("DecisionKey", bound=Hashable)


class Telling(Generic[DecisionKey]):
    """What a neighbour must be told in one update. A subscription added and removed within it is not told at all.

    >>> telling = Telling()
    >>> telling.add("new"), telling.drop("old", "new")
    (None, None)
    >>> telling.change()
    Change(drop=['old'], add=[])
    """

    def __init__(self) -> None:
        self._drop: dict[DecisionKey, None] = {}
        self._add: dict[DecisionKey, None] = {}

    def add(self, key: DecisionKey) -> None:
        """Tell a subscription from now on."""
        self._add[key] = None

    def drop(self, *keys: DecisionKey) -> None:
        """Withdraw some subscriptions."""
        for key in keys:
            if key in self._add:
                del self._add[key]
            else:
                self._drop[key] = None

    def change(self) -> Change[list[DecisionKey], list[DecisionKey]]:
        """The whole update."""
        return Change(list(self._drop), list(self._add))


@dataclass(frozen=True, slots=True)
class Farewell(Generic[DecisionKey]):
    """Subscriptions that may be withdrawn once everything before this is decided."""

    keys: tuple[DecisionKey, ...]


class Undecided(Generic[DecisionKey]):
    """The owners to be decided, in order, with the farewells among them."""

    def __init__(self) -> None:
        self._queue: deque[Owner | Farewell[DecisionKey]] = deque()
        self.leaving: dict[DecisionKey, None] = {}  # no longer wanted, but told until their farewell

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __iter__(self) -> Iterator[Owner]:
        return (each for each in self._queue if not isinstance(each, Farewell))

    @property
    def first(self) -> Owner | Farewell[DecisionKey] | None:
        """The next entry, or None."""
        return self._queue[0] if self._queue else None

    def put(self, owner: Owner) -> None:
        """Append an owner to be decided."""
        self._queue.append(owner)

    def leave(self, owners: Iterable[Owner], keys: Iterable[DecisionKey]) -> None:
        """Schedule the removal of `keys` after the `owners` are decided."""
        leaving = tuple(keys)
        self._queue += owners
        self._queue.append(Farewell(leaving))
        self.leaving.update(dict.fromkeys(leaving))

    def pop(self) -> None:
        """Remove the first entry, which is decided."""
        self._queue.popleft()
