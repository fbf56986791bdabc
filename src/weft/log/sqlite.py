"""The log on disk: the writer, and its readers.

SQLite in WAL mode: one connection writes and checkpoints, and syncs at every commit; others only read. After a failed
write or sync nobody knows what the disk holds: the kernel may have dropped what it could not write, and a second sync
would succeed without it. So an error of the disk is never retried: the log then refuses everything, and what is true is
found out by the next `open`. No read blocks the writer or holds back its checkpoints for longer than a few groups.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import DeadRow, Group, Offset, SeatId, State, check_groups
from weft.log.codec import COLUMNS, SEATS_ONLY, GroupReader, GroupRow, encode_group
from weft.log.data_directory import DirectoryLock, IdentityFile
from weft.log.rows import put_meta, put_tip, read_dead, read_state, read_tip, store_changes
from weft.log.schema import DAMAGE, DATABASE, open_reader, pragma, reading, unreadable, used_pages

CHECKPOINT = 1 << 23  # bytes in the WAL with which a commit has to wait for a checkpoint
EARLY = 1 << 19  # bytes in the WAL that are worth a checkpoint while nobody waits
VACUUM = 256  # pages given back to the file system in one call of trim, at most
_CHANGES = attrgetter("changes")
_INSERT = "INSERT INTO grp VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REJECTED = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_BUSY}
_BYTES, _ROWS = 1 << 22, 64  # fetched at a time


class SqliteReader(GroupReader):
    """A connection that only reads, in any thread. A group that was committed before a call is seen by it."""

    def __init__(self, path: Path) -> None:
        self.path, self.directory = path, path.parent
        self._ended = ""  # why nothing is accepted any more
        self._one_reads = Lock()
        with reading(path):
            self._reader = open_reader(path)

    def find(self, at: int) -> Offset:
        """The offset of the first event whose group has this time or a later one, or the next offset.

        Cost: O(log of the number of offsets) lookups.
        """
        return self._search(lambda group: group[1] >= at)

    def find_size(self, size: int) -> Offset:
        """The lowest offset from which on the events take at most `size` bytes, at the start of a group."""
        with self._reading():
            spare = read_tip(self._reader)[1] - size
        return self._search(lambda group: group[2] - group[3] >= spare)

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""
        with self._reading():
            return read_dead(self._reader, seat, after, limit)

    def size(self) -> int:
        """The bytes in use; pages that are free are not counted."""
        with self._reading():
            return used_pages(self._reader) * pragma(self._reader, "page_size")

    def close(self) -> None:
        """Close the connection."""
        with self._one_reads:
            self._reader.close()

    def _fetch_seats(self, first: Offset) -> tuple[list[GroupRow], Offset]:
        """Some groups without their bodies, and the next offset."""
        with self._reading():
            statement = f"SELECT {SEATS_ONLY} FROM grp WHERE first >= ? ORDER BY first LIMIT {_ROWS}"
            rows = self._reader.execute(statement, (self._begin(first),)).fetchall()
            return [*map(GroupRow._make, rows)], read_tip(self._reader)[0].next

    def _begin(self, first: Offset) -> int:
        """Where the group begins that has this offset; the offset itself if none has it."""
        before = "SELECT first, n FROM grp WHERE first <= ? ORDER BY first DESC LIMIT 1"
        nearest, n = self._reader.execute(before, (first,)).fetchone() or (first, 0)
        return int(nearest if nearest + n > first else first)

    def _fetch(self, first: Offset, limit: int) -> list[GroupRow]:
        """Some groups, beginning with the one that has the first event from an offset on."""
        rows, number, size = list[GroupRow](), 0, 0
        with self._reading():
            statement = f"SELECT {COLUMNS} FROM grp WHERE first >= ? ORDER BY first"
            cursor = self._reader.execute(statement, (self._begin(first),))
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
            high = int(read_tip(self._reader)[0].next)
            low = self._reader.execute("SELECT min(first) FROM grp").fetchone()[0] or high
            while low < high:  # the answer lies in [low, high]
                middle = (low + high) // 2
                group = self._reader.execute(statement, (middle,)).fetchone()
                if group is None or late(group):
                    high = middle
                else:
                    low = group[0] + 1
            group = self._reader.execute(statement, (low,)).fetchone()
            return Offset(group[0]) if group is not None else read_tip(self._reader)[0].next

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One thread at a time, one state of the log, and errors of SQLite as errors of logs."""
        self._check_alive()
        with self._one_reads:
            try:
                self._reader.execute("BEGIN")
                try:
                    yield
                finally:
                    self._reader.execute("ROLLBACK")  # nothing was written
            except DAMAGE as error:
                raise unreadable(self.path, error) from error

    def _check_alive(self) -> None:
        if self._ended:
            raise LogFailedError(f"the log in {self.directory} cannot be used: {self._ended}")


class LogFiles(NamedTuple):
    """The open files of a log."""

    directory: Path
    connection: sqlite3.Connection
    lock: DirectoryLock
    identity: IdentityFile


class SqliteLog(SqliteReader):
    """A log in a directory of its own; `weft.log.opening.open_log` opens it.

    `quota` bounds the database in bytes; the WAL comes on top of it, with a little more than CHECKPOINT bytes.
    """

    def __init__(self, files: LogFiles, log_id: str, incarnation: int, quota: int | None = None) -> None:
        super().__init__(files.directory / DATABASE)
        self.log_id = log_id
        self.incarnation = incarnation
        self._connection = connection = files.connection
        self._lock = files.lock
        self._identity = files.identity
        self._tip, self._total = read_tip(connection)
        self._wal = 0  # bytes since the last checkpoint, about
        self._page_size = pragma(connection, "page_size")
        self._most_pages = None if quota is None else max(1, quota // self._page_size)
        self._reserve = 0 if self._most_pages is None else max(16, self._most_pages // 16)
        if self._most_pages is not None:
            connection.execute(f"PRAGMA max_page_count={self._most_pages}").fetchall()

    # -- what a log does -----------------------------------------------------------------------------

    def restore(self) -> State:
        """The state after the last group that was committed. Cost: about 4 microseconds a row."""
        self._check_alive()
        with self._transaction():
            return read_state(self._connection, self.log_id, self.incarnation)

    def commit(self, groups: Sequence[Group]) -> None:
        """Store the groups, in order, in one transaction. On return they are durable. Raises as `Log.commit` does."""
        if self._ended:
            self._check_alive()
        tip = check_groups(groups, self._tip)
        total, rows = self._total, list[GroupRow]()
        for group in groups:
            if group.events is not None:
                rows.append(encode_group(group.at, group.events, total))
                total = rows[-1].total
        changes = [*chain.from_iterable(map(_CHANGES, groups))]
        if rows and self._most_pages is not None:
            self._check_quota(rows)
        with self._transaction():
            if rows:
                self._connection.executemany(_INSERT, rows)
            if changes:
                store_changes(self._connection, changes)
            told = bool(groups) and groups[-1].events is not None  # the last row tells the time and the next offset
            if tip.next_seat != self._tip.next_seat or (not told and tip != self._tip):
                put_tip(self._connection, tip, total)
            self._wal += total - self._total + (2 + 2 * len(changes) + len(rows)) * self._page_size
            self._tip, self._total = tip, total  # before COMMIT: see _transaction
        if rows:
            self._identity.write(tip.next)
        if self._wal >= CHECKPOINT:
            self._checkpoint()

    def checkpoint(self) -> None:
        """Move what was committed from the WAL to the database, if there is enough of it."""
        if self._wal >= EARLY or self._ended:
            self._check_alive()
            self._checkpoint()

    def trim(self, below: Offset, most: int = 100) -> int:
        """Remove whole groups that lie below an offset, at most `most`, the oldest first. Returns how many events.

        Their pages are used again. Where more than a quarter of the file is free, some of them go back to the file
        system, at most VACUUM in one call.
        """
        self._check_alive()
        removed = last = 0
        oldest = "SELECT first, n FROM grp ORDER BY first LIMIT ?"
        with self._transaction():
            for first, number in self._connection.execute(oldest, (max(0, most),)).fetchall():
                if first + number > below:
                    break
                removed, last = removed + number, first
            if removed:
                self._connection.execute("DELETE FROM grp WHERE first <= ?", (last,))
                put_tip(self._connection, self._tip, self._total)
        self._wal += 8 * self._page_size
        if 4 * pragma(self._connection, "freelist_count") > pragma(self._connection, "page_count"):
            try:  # a script, since it runs the statement to its end; `execute` would stop after one page
                self._connection.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({VACUUM}); COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise self._failure(error) from error
            self._wal += VACUUM * self._page_size
        if self._wal >= CHECKPOINT:
            self._checkpoint()
        return removed

    def close(self) -> None:
        """Mark a clean stop and release the log. Closing it again does nothing."""
        if self._ended == "it is closed":
            return
        try:
            if not self._ended:
                with suppress(LogFullError), self._transaction():  # without the mark, the next start checks more
                    put_meta(self._connection, "weft.checked", str(self._tip.next).encode())
                self._checkpoint("TRUNCATE")
        finally:
            self._ended = "it is closed"
            super().close()
            self._connection.close()  # nothing happens if it failed: it is closed already
            self._identity.close()
            self._lock.release()

    # -- parts ---------------------------------------------------------------------------------------

    def _check_quota(self, rows: Sequence[GroupRow]) -> None:
        """Raise LogFullError if events do not fit, while some pages are left for changes of state."""
        assert self._most_pages is not None
        needed = sum(row.size // (self._page_size - 64) + 2 for row in rows)
        if used_pages(self._connection) + needed > self._most_pages - self._reserve:
            raise LogFullError(
                f"the log in {self.directory} has reached its quota of {self._most_pages * self._page_size:,} bytes; "
                f"nothing was stored"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, durable at the end; the tip is as before where nothing was stored."""
        before = self._tip, self._total
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._tip, self._total = before
            self._roll_back()
            raise self._failure(error) from error
        except Exception:
            self._tip, self._total = before
            self._roll_back()
            raise
        except BaseException:  # Ctrl-C, at any place
            self._ended = "a call was interrupted"
            raise

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._fail(error) from error

    def _failure(self, error: sqlite3.Error) -> LogError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return LogFullError(f"the disk or the quota of {self.directory} is full; nothing was stored")
        if code in _REJECTED:
            return LogError(f"the log in {self.directory} refuses this: {error}; nothing was stored")
        return self._fail(error)

    def _fail(self, error: sqlite3.Error) -> LogFailedError:
        self._ended = f"{error} ({getattr(error, 'sqlite_errorname', 'unknown')})"
        with suppress(sqlite3.Error):
            self._connection.close()  # while the reader is open: the last connection would checkpoint, and so retry
        return LogFailedError(
            f"the log in {self.directory} failed: {self._ended}; it is unknown what is stored, so this process must end"
        )

    def _checkpoint(self, mode: str = "PASSIVE") -> None:
        """Move pages from the WAL to the database. Explicit, because SQLite hides errors of automatic checkpoints.

        Where the disk has no room for them they stay in the WAL, which has everything: it is tried again after the next
        commit. Nothing was synced then, so nothing that was synced is in doubt.
        """
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error as error:
            if isinstance(failure := self._failure(error), LogFullError):
                return
            raise failure from error
        self._wal = 0
