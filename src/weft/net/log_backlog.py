"""Publishers are read only while little waits for the log. Law: above so many bytes every publisher is held, and each
is read again at half as many.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.net.server_connection import ServerConnection


class LogBacklog:
    """The connections that publish, held while more than `most` bytes wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._publishers: dict[ServerConnection, None] = {}
        self._backlogged = False

    def add(self, connections: Iterable[ServerConnection]) -> None:
        """These connections publish."""
        self._publishers |= dict.fromkeys(connections)

    def forget(self, connection: ServerConnection) -> None:
        """A connection publishes nothing any more."""
        self._publishers.pop(connection, None)

    def watch(self, waiting: int) -> None:
        """So many bytes wait for the log."""
        if not self._backlogged and waiting > self._most:
            self._backlogged = True
            for connection in self._publishers:
                connection.hold("log")
        elif self._backlogged and waiting <= self._most // 2:
            self._backlogged = False
            for connection in self._publishers:
                connection.read_on("log")
