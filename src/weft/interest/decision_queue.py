"""What a negative space has still to decide, and what it tells. Law: a subscription that went is withdrawn only when
all those that it may have subsumed are decided; first come, first decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from weft.interest.tiles import Owner
from weft.model.change import Change

Key = TypeVar("Key", bound=Hashable)


class Telling(Generic[Key]):
    """What a neighbour is to be told in one update: what comes and goes within it is not told at all.

    >>> telling = Telling()
    >>> telling.add("new"), telling.drop("old", "new")
    (None, None)
    >>> telling.change()
    Change(drop=['old'], add=[])
    """

    def __init__(self) -> None:
        self._drop: dict[Key, None] = {}
        self._add: dict[Key, None] = {}

    def add(self, key: Key) -> None:
        """Tell a subscription from now on."""
        self._add[key] = None

    def drop(self, *keys: Key) -> None:
        """Tell some no longer."""
        for key in keys:
            if key in self._add:
                del self._add[key]
            else:
                self._drop[key] = None

    def change(self) -> Change[list[Key], list[Key]]:
        """All of it."""
        return Change(list(self._drop), list(self._add))


@dataclass(frozen=True, slots=True)
class Farewell(Generic[Key]):
    """Those that may be withdrawn when everything before this is decided."""

    keys: tuple[Key, ...]


class Undecided(Generic[Key]):
    """The owners that are to be decided, in order, and among them the farewells."""

    def __init__(self) -> None:
        self._queue: deque[Owner | Farewell[Key]] = deque()
        self.leaving: dict[Key, None] = {}  # no longer wanted, but told until their farewell

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __iter__(self) -> Iterator[Owner]:
        return (each for each in self._queue if not isinstance(each, Farewell))

    @property
    def first(self) -> Owner | Farewell[Key] | None:
        """What is next, if anything is."""
        return self._queue[0] if self._queue else None

    def put(self, owner: Owner) -> None:
        """One more is to be decided."""
        self._queue.append(owner)

    def leave(self, owners: Iterable[Owner], keys: Iterable[Key]) -> None:
        """Some go, when others are decided."""
        leaving = tuple(keys)
        self._queue += owners
        self._queue.append(Farewell(leaving))
        self.leaving.update(dict.fromkeys(leaving))

    def pop(self) -> None:
        """The first is decided."""
        self._queue.popleft()
