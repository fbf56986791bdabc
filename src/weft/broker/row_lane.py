"""Rows on their way into the log. Law: the rows of a lane are stored in the order in which they came; those that a full
log refuses are stored later.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.drafts import Draft
from weft.broker.effects import Now
from weft.broker.outbox import Timers
from weft.log.base import StateChange

_RETRY = 1_000_000  # microseconds after which rows are stored again when the log was full

Stored = Callable[[], None]


class RowLane:
    """The rows of one neighbour, or of the table."""

    __slots__ = ("_draft", "_ended", "_refused", "_serial", "_timers")

    def __init__(self, draft: Callable[[], Draft], timers: Timers) -> None:
        self._draft = draft
        self._timers = timers
        self._serial = 0
        self._refused: dict[int, tuple[list[StateChange], Stored | None]] = {}  # and what came behind them
        self._ended = False

    def put(self, rows: list[StateChange], stored: Stored | None = None) -> None:
        """Store rows, soon if something waits for them; behind those that the log has refused."""
        self._serial += 1
        if self._refused:
            self._refused[self._serial] = rows, stored
        else:
            self._add(self._serial, rows, stored)

    def end(self) -> None:
        """Nothing that was refused is stored any more."""
        self._ended = True

    def _add(self, serial: int, rows: list[StateChange], stored: Stored | None) -> None:
        draft = self._draft()
        draft.changes += rows

        def rejected(_: str, now: Now) -> None:
            if not self._refused:
                self._timers.add(now.monotonic + _RETRY, lambda _: self._again())
            self._refused[serial] = rows, stored

        if stored is not None:
            draft.urgent = True
            draft.committed.append(lambda _: stored())
        draft.rejected.append(rejected)

    def _again(self) -> None:
        refused, self._refused = self._refused, {}
        if not self._ended:
            for serial, (rows, stored) in sorted(refused.items(), key=lambda pair: pair[0]):
                self._add(serial, rows, stored)
