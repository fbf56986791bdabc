"""Reading a log on disk, while another connection writes. Law: no read blocks the writer or holds back its checkpoints
for longer than a few groups.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from weft.errors import LogError, LogFullError
from weft.log.base import DeadRow, Offset, SeatId, StoredGroup
from weft.log.group_codec import GroupRow, SeatsRow, decode_group
from weft.log.group_slices import cut
from weft.log.row_reader import read_dead, read_tip
from weft.log.schema import open_reader
from weft.log.seat_scan import SeatScan

_COLUMNS, _SEATS = ", ".join(GroupRow._fields), ", ".join(SeatsRow._fields)
DAMAGE = (sqlite3.Error, OverflowError, TypeError, ValueError)  # what reading a damaged database can raise
_BYTES, _ROWS = 1 << 22, 64  # fetched at a time


class SqliteReader:
    """A connection of its own that only reads; it may be used from several threads.

    A group that was committed before a call is seen by it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        try:
            self._connection = open_reader(path)
        except sqlite3.Error as error:
            raise unreadable(path, error) from error

    def read(self, first: Offset, limit: int) -> Iterator[StoredGroup]:
        """The stored events from offset `first` on, at most `limit` of them, whole or cut groups, in order."""
        while limit > 0:
            rows = self._fetch(first, limit)
            if not rows:
                return
            for row in rows:
                group = cut(decode_group(row), first, limit)
                limit -= len(group.events)
                first = Offset(group.events.first + len(group.events))
                yield group

    def find(self, at: int) -> Offset:
        """The offset of the first event whose group has this time or a later one, or the next offset.

        Cost: O(log of the number of offsets) lookups.
        """
        return self._search(lambda group: group[1] >= at)

    def find_size(self, size: int) -> Offset:
        """The lowest offset from which on the events take at most `size` bytes, at the start of a group."""
        with self._reading():
            spare = read_tip(self._connection)[1] - size
        return self._search(lambda group: group[2] - group[3] >= spare)

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""
        with self._reading():
            return read_dead(self._connection, seat, after, limit)

    def size(self) -> int:
        """The bytes in use; pages that are free are not counted."""
        with self._reading():
            return used_pages(self._connection) * pragma(self._connection, "page_size")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def seek(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> Offset:
        """The first offset from `first` on of an event that any of these seats gets, or where to go on.

        Only the seats are read. Cost: .1 to .3 microseconds for an event with 10 seats.
        """
        scan = SeatScan(seats, first, limit)
        while not scan.ended:
            with self._reading():
                statement = f"SELECT {_SEATS} FROM grp WHERE first >= ? ORDER BY first LIMIT {_ROWS}"
                rows = self._connection.execute(statement, (self._begin(scan.next),)).fetchall()
                end = read_tip(self._connection)[0].next
            if not rows:
                return end
            for row in map(SeatsRow._make, rows):
                scan.look(row)
        return scan.next

    def _begin(self, first: Offset) -> int:
        """Where the group begins that has this offset; the offset itself if none has it."""
        before = "SELECT first, n FROM grp WHERE first <= ? ORDER BY first DESC LIMIT 1"
        nearest, n = self._connection.execute(before, (first,)).fetchone() or (first, 0)
        return int(nearest if nearest + n > first else first)

    def _fetch(self, first: Offset, limit: int) -> list[GroupRow]:
        """Some groups, beginning with the one that has the first event from an offset on."""
        rows, number, size = list[GroupRow](), 0, 0
        with self._reading():
            statement = f"SELECT {_COLUMNS} FROM grp WHERE first >= ? ORDER BY first"
            cursor = self._connection.execute(statement, (self._begin(first),))
            for row in map(GroupRow._make, cursor):
                rows.append(row)
                number += row.n
                size += row.size
                if number >= limit or size >= _BYTES or len(rows) >= _ROWS:
                    break
            cursor.close()
        return rows

    def _search(self, late: Callable[[tuple[int, int, int, int]], bool]) -> Offset:
        """The offset of the first group that is late, where all after a late one are; else the next offset."""
        statement = (
            "SELECT first, at, total, length(seats) + length(origins) + length(heads) + length(payloads) FROM grp"
            " WHERE first >= ? ORDER BY first LIMIT 1"
        )
        with self._reading():
            high = int(read_tip(self._connection)[0].next)
            low = self._connection.execute("SELECT min(first) FROM grp").fetchone()[0] or high
            while low < high:  # the answer lies in [low, high]
                middle = (low + high) // 2
                group = self._connection.execute(statement, (middle,)).fetchone()
                if group is None or late(group):
                    high = middle
                else:
                    low = group[0] + 1
            group = self._connection.execute(statement, (low,)).fetchone()
            return Offset(group[0]) if group is not None else read_tip(self._connection)[0].next

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One thread at a time, one state of the log, and errors of SQLite as errors of logs."""
        with self._lock:
            try:
                self._connection.execute("BEGIN")
                try:
                    yield
                finally:
                    self._connection.execute("ROLLBACK")  # nothing was written
            except DAMAGE as error:
                raise unreadable(self.path, error) from error


def unreadable(path: Path, error: Exception) -> LogError:
    """What is raised for an error of SQLite while reading."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return LogFullError(f"{path} cannot be opened: the disk is full")
    return LogError(f"{path} cannot be read: {error}; check it with 'weft log verify'")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """A number that SQLite keeps."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def used_pages(connection: sqlite3.Connection) -> int:
    """The pages that are not free."""
    return pragma(connection, "page_count") - pragma(connection, "freelist_count")
