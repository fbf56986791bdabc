"""What a routing table must find again after a restart, besides its items. Law: neighbours are told nothing that
depends on it before it is stored; what a full log refuses is stored later.

Otherwise a neighbour could change to a label space that this broker has confirmed, and forgotten in a crash.
"""

from __future__ import annotations

from weft.broker.effects import Now
from weft.broker.link_rows import SETTINGS
from weft.broker.state import BrokerState
from weft.log.base import SetMeta

_RETRY = 1_000_000  # microseconds after which they are stored again when the log was full


class TableSettings:
    """The settings of a broker's table, on their way into the log."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._table = state.seats.table
        self._latest = self._stored = self._table.settings
        self._refused = False  # by a full log, and not yet tried again

    @property
    def stored(self) -> bool:
        """Whether the log has what the table would need."""
        return self._stored == self._latest

    def restored(self) -> None:
        """The table has its settings from the log."""
        self._latest = self._stored = self._table.settings

    def keep(self) -> None:
        """Store the settings, if the table has changed them. Only a table whose updates have notes does."""
        if self._table.codec.noted and self._table.settings != self._latest:
            self._latest = self._table.settings
            self._write()

    def _write(self) -> None:
        draft, settings = self._state.draft, self._latest

        def committed(_: Now) -> None:
            self._stored = settings

        def rejected(_: str, now: Now) -> None:
            if not self._refused:
                self._refused = True
                self._state.timers.add(now.monotonic + _RETRY, lambda _: self._again())

        draft.changes.append(SetMeta(SETTINGS, settings.encode()))
        draft.urgent = True
        draft.committed.append(committed)
        draft.rejected.append(rejected)

    def _again(self) -> None:
        self._refused = False
        if not self.stored:
            self._write()
