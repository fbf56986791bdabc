"""The log on disk. Laws: `commit` returns when its groups are on the disk; an error of the disk is never retried.

SQLite in WAL mode: one connection writes and checkpoints, and syncs at every commit; others only read. After a failed
write or sync nobody knows what the disk holds: the kernel may have dropped what it could not write, and a second sync
would succeed without it. So the log then refuses everything, and what is true is found out by the next `open`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import DeadRow, Group, Offset, SeatId, State, StoredGroup
from weft.log.data_directory import DirectoryLock
from weft.log.group_codec import GroupRow, encode_group
from weft.log.identity import IdentityFile
from weft.log.row_codec import put_meta, store_changes
from weft.log.row_reader import put_tip, read_state, read_tip
from weft.log.row_rules import check_groups
from weft.log.schema import DATABASE
from weft.log.sqlite_reader import SqliteReader, pragma, used_pages

CHECKPOINT = 1 << 23  # bytes in the WAL with which a commit has to wait for a checkpoint
EARLY = 1 << 19  # bytes in the WAL that are worth a checkpoint while nobody waits
VACUUM = 256  # pages given back to the file system in one call of trim, at most
_INSERT = "INSERT INTO grp VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REJECTED = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_BUSY}


class LogFiles(NamedTuple):
    """What a log holds open."""

    directory: Path
    connection: sqlite3.Connection
    lock: DirectoryLock
    identity: IdentityFile


class SqliteLog:
    """A log in a directory of its own; `weft.log.opening.open_log` opens it.

    `quota` bounds the database in bytes; the WAL comes on top of it, with a little more than CHECKPOINT bytes.
    """

    def __init__(self, files: LogFiles, log_id: str, incarnation: int, quota: int | None = None) -> None:
        self.directory = files.directory
        self.log_id = log_id
        self.incarnation = incarnation
        self._connection = connection = files.connection
        self._lock = files.lock
        self._identity = files.identity
        self._tip, self._total = read_tip(connection)
        self._wal = 0  # bytes since the last checkpoint, about
        self._ended = ""  # why nothing is accepted any more
        self._page_size = pragma(connection, "page_size")
        self._most_pages = None if quota is None else max(1, quota // self._page_size)
        self._reserve = 0 if self._most_pages is None else max(16, self._most_pages // 16)
        if self._most_pages is not None:
            connection.execute(f"PRAGMA max_page_count={self._most_pages}").fetchall()
        self._reader = SqliteReader(self.directory / DATABASE)

    # -- what a log does -----------------------------------------------------------------------------

    def restore(self) -> State:
        """The state after the last group that was committed. Cost: about 4 microseconds a row."""
        self._check_alive()
        with self._transaction():
            return read_state(self._connection, self.log_id, self.incarnation)

    def commit(self, groups: Sequence[Group]) -> None:
        """Store the groups, in order, in one transaction. On return they are durable. Raises as `Log` says."""
        self._check_alive()
        tip = check_groups(groups, self._tip)
        total, rows = self._total, list[GroupRow]()
        for group in groups:
            if group.events is not None:
                rows.append(encode_group(group.at, group.events, total))
                total = rows[-1].total
        changes = [change for group in groups for change in group.changes]
        if rows:
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
        self._check_alive()
        if self._wal >= EARLY:
            self._checkpoint()

    def read(self, first: Offset, limit: int) -> Iterator[StoredGroup]:
        """The stored events from offset `first` on, at most `limit` of them, whole or cut groups, in order."""
        self._check_alive()
        return self._reader.read(first, limit)

    def find(self, at: int) -> Offset:
        """The offset of the first event whose group has this time or a later one, or the next offset."""
        self._check_alive()
        return self._reader.find(at)

    def find_size(self, size: int) -> Offset:
        """The lowest offset from which on the events take at most `size` bytes, at the start of a group."""
        self._check_alive()
        return self._reader.find_size(size)

    def seek(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> Offset:
        """The first offset from `first` on of an event that any of these seats gets, or where to go on."""
        self._check_alive()
        return self._reader.seek(seats, first, limit)

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""
        self._check_alive()
        return self._reader.dead(seat, after, limit)

    def size(self) -> int:
        """The bytes in use; pages that are free are not counted."""
        self._check_alive()
        return self._reader.size()

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
            self._give_back()
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
            self._reader.close()
            self._connection.close()  # nothing happens if it failed: it is closed already
            self._identity.close()
            self._lock.release()

    # -- parts ---------------------------------------------------------------------------------------

    def _give_back(self) -> None:
        """Give free pages back to the file system."""
        try:  # a script, since it runs the statement to its end; `execute` would stop after one page
            self._connection.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({VACUUM}); COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._failure(error) from error
        self._wal += VACUUM * self._page_size

    def _check_alive(self) -> None:
        if self._ended:
            raise LogFailedError(f"the log in {self.directory} cannot be used: {self._ended}")

    def _check_quota(self, rows: Sequence[GroupRow]) -> None:
        """Raise LogFullError if events do not fit, while some pages are left for changes of state."""
        if self._most_pages is None:
            return
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
