"""Events that some subscribers' nodes do not have yet, because they do not answer. Law: an event is owed until all of
its nodes have it, or it is given up, which is counted: after `keep` microseconds, or when more than `most` are owed.

The broker's log keeps what is owed: it may forget only what lies below `first`. So nothing but offsets is kept here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from weft.ring.messages import Address


@dataclass(slots=True)
class _Debt:
    homes: set[Address]
    since: int


class OwedEvents:
    """Offsets in the broker's log, each with the nodes that it is owed to.

    >>> owed = OwedEvents(keep=60_000_000, most=2)
    >>> owed.owe(7, ["b", "c"], now=0)
    >>> owed.paid(7, "b")
    >>> owed.first, owed.homes(), owed.to(7)
    (7, ['c'], ['c'])
    >>> for offset in (9, 12):
    ...     owed.owe(offset, ["c"], now=0)
    >>> owed.offsets, owed.given_up
    ([9, 12], 1)
    """

    def __init__(self, keep: int, most: int = 100_000) -> None:
        self._keep, self._most = keep, most
        self._debts: dict[int, _Debt] = {}
        self.offsets: list[int] = []  # ascending
        self.given_up = 0  # events that some node has never got

    def __len__(self) -> int:
        return len(self.offsets)

    def __contains__(self, offset: int) -> bool:
        return offset in self._debts

    @property
    def first(self) -> int | None:
        """The lowest offset."""
        return self.offsets[0] if self.offsets else None

    def homes(self) -> list[Address]:
        """All nodes that are owed something."""
        return sorted({home for debt in self._debts.values() for home in debt.homes})

    def to(self, offset: int) -> list[Address]:
        """The nodes that an event is owed to."""
        debt = self._debts.get(offset)
        return [] if debt is None else sorted(debt.homes)

    def owe(self, offset: int, homes: Iterable[Address], now: int) -> None:
        """These nodes do not have an event."""
        debt = self._debts.get(offset)
        if debt is None:
            debt = self._debts[offset] = _Debt(set(), now)
            insort(self.offsets, offset)
        debt.homes.update(homes)
        while len(self.offsets) > self._most:
            self.give_up(self.offsets[0])

    def paid(self, offset: int, home: Address) -> None:
        """A node has an event."""
        debt = self._debts.get(offset)
        if debt is not None:
            debt.homes.discard(home)
            if not debt.homes:
                self._remove(offset)

    def give_up(self, offset: int) -> None:
        """Nobody can have an event any more."""
        if offset in self._debts:
            self._remove(offset)
            self.given_up += 1

    def expire(self, now: int) -> None:
        """Give up what has been owed for too long."""
        for offset in [offset for offset, debt in self._debts.items() if now - debt.since > self._keep]:
            self.give_up(offset)

    def _remove(self, offset: int) -> None:
        del self._debts[offset]
        del self.offsets[bisect_left(self.offsets, offset)]
