"""What neighbours told, on its way into the log. Law: rows of a neighbour are stored in the order in which they came;
those that a full log refuses are stored later.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.effects import Now
from weft.broker.link import Neighbour
from weft.broker.state import BrokerState
from weft.log.base import StateChange

_RETRY = 1_000_000  # microseconds after which rows are stored again when the log was full

Stored = Callable[[], None]


class LinkStore:
    """Stores the rows of all neighbours of a broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._serial = 0  # of rows on their way into the log

    def put(self, neighbour: Neighbour, rows: list[StateChange], stored: Stored | None = None) -> None:
        """Store rows, soon if something waits for them."""
        self._serial += 1
        if neighbour.unstored:  # in order, behind those that the log has refused
            neighbour.unstored[self._serial] = rows, stored
            return
        self._add(neighbour, self._serial, rows, stored)
        if stored is not None:
            self._state.draft.urgent = True

    def _add(self, neighbour: Neighbour, serial: int, rows: list[StateChange], stored: Stored | None) -> None:
        draft = self._state.draft
        draft.changes += rows

        def rejected(_: str, now: Now) -> None:
            if not neighbour.unstored:
                self._state.timers.add(now.monotonic + _RETRY, lambda _: self._again(neighbour))
            neighbour.unstored[serial] = rows, stored

        if stored is not None:
            draft.committed.append(lambda _: stored())
        draft.rejected.append(rejected)

    def _again(self, neighbour: Neighbour) -> None:
        unstored, neighbour.unstored = neighbour.unstored, {}
        if self._state.neighbours.get(neighbour.peer) is neighbour:
            for serial, (rows, stored) in sorted(unstored.items(), key=lambda pair: pair[0]):
                self._add(neighbour, serial, rows, stored)
