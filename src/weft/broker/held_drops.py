"""Withdrawals that must not overtake events. Law: one is sent behind every event that came in before it.

A neighbour that hears that an advertisement is gone may stop asking others for its events: whatever was published
under it, and still waits for the link, would then be routed no further.
"""

from __future__ import annotations

from collections import deque

from weft.log.base import Offset


class HeldDrops:
    """Items of one neighbour, by wire id, that are withdrawn once the events below an offset are sent.

    >>> held = HeldDrops()
    >>> held.add(Offset(5), 1)
    >>> held.add(Offset(9), 2)
    >>> held.take(Offset(7), 100), len(held)
    ([1], 1)
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: deque[tuple[Offset, int]] = deque()  # offsets never decrease

    def __len__(self) -> int:
        return len(self._held)

    def add(self, offset: Offset, wire: int) -> None:
        """Withdraw an item behind the events below an offset."""
        if self._held:
            offset = max(offset, self._held[-1][0])
        self._held.append((offset, wire))

    def take(self, reached: Offset, most: int) -> list[int]:
        """Those that may be withdrawn when all events below `reached` are sent; they are no longer in it."""
        taken: list[int] = []
        while self._held and self._held[0][0] <= reached and len(taken) < most:
            taken.append(self._held.popleft()[1])
        return taken

    def clear(self) -> None:
        """Forget them: a comparison finds them again."""
        self._held.clear()

    def wires(self) -> set[int]:
        """Which are held."""
        return {wire for _, wire in self._held}
