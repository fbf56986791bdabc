"""What a routing table must find again after a restart, besides its items. Law: neighbours are told nothing that
depends on it before it is stored.

Otherwise a neighbour could change to a label space that this broker has confirmed, and forgotten in a crash.
"""

from __future__ import annotations

from weft.broker.link_rows import SETTINGS
from weft.broker.row_lane import RowLane
from weft.log.base import SetMeta
from weft.routing.table import RoutingTable


class TableSettings:
    """The settings of a broker's table, on their way into the log."""

    def __init__(self, table: RoutingTable, rows: RowLane) -> None:
        self._table = table
        self._rows = rows
        self._latest = self._stored = table.settings

    @property
    def stored(self) -> bool:
        """Whether the log has what the table would need."""
        return self._stored == self._latest

    def restored(self) -> None:
        """The table has its settings from the log."""
        self._latest = self._stored = self._table.settings

    def keep(self) -> None:
        """Store the settings, if the table has changed them. Only a table whose updates have notes does."""
        if not self._table.codec.noted or self._table.settings == self._latest:
            return
        self._latest = settings = self._table.settings

        def stored() -> None:
            self._stored = settings

        self._rows.put([SetMeta(SETTINGS, settings.encode())], stored)
