"""A log in memory, which fails when it is told to. Law: a crash keeps every synced transaction, and may lose the rest.

It is the twin of the log on disk for simulations: the same groups are accepted and refused, read and trimmed. `commit`
is `write` and `sync` together, as on disk; a simulation may call the two apart, and crash between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import DeadRow, Group, Offset, SeatId, State, StoredGroup
from weft.log.group_codec import GroupRow, decode_group, encode_group
from weft.log.group_slices import cut
from weft.log.row_rules import EMPTY, Tip, check_groups
from weft.log.row_tables import RowTables, Undo
from weft.log.seat_scan import SeatScan

ROW_BYTES = 128  # what a row counts as


class _Unsynced(NamedTuple):
    """A transaction that was written and not synced: what to take back if it is lost."""

    rows: Undo
    groups: int  # how many there were before it
    tip: Tip
    total: int


class MemoryLog:
    """A log that lives as long as the process, and crashes when told to.

    >>> log = MemoryLog("a1")
    >>> log.write([Group(at=1)])
    >>> log = log.crash()
    >>> log.restore().incarnation
    2
    """

    def __init__(self, log_id: str = "memory", quota: int | None = None) -> None:
        self.log_id = log_id
        self.incarnation = 1
        self.quota = quota  # bytes; None is unlimited
        self._tables = RowTables()
        self._groups: list[GroupRow] = []
        self._tip = EMPTY
        self._total = 0  # bytes of all groups ever stored
        self._unsynced: list[_Unsynced] = []
        self._refused_commits = 0
        self._failed_syncs = 0
        self._ended = ""  # why nothing is accepted any more

    # -- what a log does -----------------------------------------------------------------------------

    def restore(self) -> State:
        """The state after the last group that was committed."""
        self._check_alive()
        tables, dead = self._tables, dict[SeatId, int]()
        for seat, _ in tables.dead:
            dead[seat] = dead.get(seat, 0) + 1
        return State(
            log_id=self.log_id,
            incarnation=self.incarnation,
            meta=dict(tables.meta),
            sessions=dict(sorted(tables.sessions.items())),
            subs=dict(sorted(tables.subs.items())),
            adverts=dict(sorted(tables.adverts.items())),
            links=dict(sorted(tables.links.items())),
            heard=dict(sorted(tables.heard.items())),
            dead=dict(sorted(dead.items())),
            first=Offset(self._groups[0].first) if self._groups else self._tip.next,
            next=self._tip.next,
            next_seat=self._tip.next_seat,
            at=self._tip.at,
        )

    def commit(self, groups: Sequence[Group]) -> None:
        """Store the groups, in order, in one transaction. On return they are durable. Raises as `Log` says."""
        self.write(groups)
        self.sync()

    def read(self, first: Offset, limit: int) -> Iterator[StoredGroup]:
        """The committed events from offset `first` on, at most `limit` of them, whole or cut groups, in order."""
        while limit > 0:
            self._check_alive()
            at = bisect_left(self._groups, first + 1, key=_end)
            if at >= self._committed():
                return
            group = cut(decode_group(self._groups[at]), first, limit)
            limit -= len(group.events)
            first = Offset(group.events.first + len(group.events))
            yield group

    def find(self, at: int) -> Offset:
        """The offset of the first event whose group has this time or a later one, or the next offset."""
        self._check_alive()
        return self._offset(bisect_left(self._groups, at, hi=self._committed(), key=lambda row: row.at))

    def find_size(self, size: int) -> Offset:
        """The lowest offset from which on the events take at most `size` bytes, at the start of a group."""
        self._check_alive()
        low, high = 0, self._committed()
        spare = (self._groups[high - 1].total if high else 0) - size
        return self._offset(bisect_left(self._groups, spare, low, high, key=lambda row: row.total - row.size))

    def seek(self, seats: NDArray[np.uint32], first: Offset, limit: int) -> Offset:
        """The first offset from `first` on of an event that any of these seats gets, or where to go on."""
        self._check_alive()
        scan = SeatScan(seats, first, limit)
        at, end = bisect_left(self._groups, first + 1, key=_end), self._committed()
        while not scan.ended:
            if at >= end:
                return self._offset(end)
            scan.look(self._groups[at].who)
            at += 1
        return scan.next

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""
        self._check_alive()
        found = sorted(key for key in self._tables.dead if key[0] == seat and key[1] > after)
        return [self._tables.dead[key] for key in islice(found, max(0, limit))]

    def size(self) -> int:
        """The bytes of its events, and a fixed number for each row."""
        kept = self._total - (self._groups[0].total - self._groups[0].size) if self._groups else 0
        return kept + ROW_BYTES * len(self._tables)

    def checkpoint(self) -> None:
        """There is nothing to do."""

    def trim(self, below: Offset, most: int = 100) -> int:
        """Remove whole groups that lie below an offset, at most `most`, the oldest first. Returns how many events."""
        self._check_alive()
        if self._unsynced:
            raise LogError("sync what was written before trimming")
        gone = min(bisect_left(self._groups, below + 1, key=_end), max(0, most))
        removed = sum(row.n for row in self._groups[:gone])
        del self._groups[:gone]
        return removed

    def close(self) -> None:
        """Mark a clean stop and release the log; `crash` opens it again."""
        self._check_alive()
        self.sync()
        self._ended = "it was closed"

    # -- what a simulation does ----------------------------------------------------------------------

    def write(self, groups: Sequence[Group]) -> None:
        """The first half of `commit`: the groups are stored, but a crash may lose them. Raises LogFullError."""
        self._check_alive()
        tip = check_groups(groups, self._tip)
        total, rows = self._total, list[GroupRow]()
        for group in groups:
            if group.events is not None:
                rows.append(encode_group(group.at, group.events, total))
                total = rows[-1].total
        if self._refused_commits:
            self._refused_commits -= 1
            raise LogFullError("the disk is full (as the simulation wants it); nothing was stored")
        if self.quota is not None and rows and self.size() + total - self._total > self.quota:
            raise LogFullError(f"the log has reached its quota of {self.quota:,} bytes; nothing was stored")
        undo = self._tables.apply([change for group in groups for change in group.changes])
        self._unsynced.append(_Unsynced(undo, len(self._groups), self._tip, self._total))
        self._groups += rows
        self._tip, self._total = tip, total

    def sync(self) -> None:
        """The second half of `commit`: everything that was written is durable. Raises LogFailedError."""
        self._check_alive()
        if self._failed_syncs:
            self._failed_syncs -= 1
            self._ended = "a sync failed"
            raise LogFailedError("a sync failed (as the simulation wants it); the process must end and recover")
        self._unsynced.clear()

    def fail_commits(self, number: int = 1) -> None:
        """Make the next commits raise LogFullError."""
        self._refused_commits += number

    def fail_syncs(self, number: int = 1) -> None:
        """Make the next sync raise LogFailedError; after that the log refuses everything."""
        self._failed_syncs += number

    def crash(self, rng: np.random.Generator | None = None) -> MemoryLog:
        """The log as it is found after a crash and opened again; this one refuses everything from now on.

        Of the transactions that were written and not synced, `rng` draws how many of the first survive; without it
        none does.
        """
        kept = 0 if rng is None else int(rng.integers(len(self._unsynced) + 1))
        for lost in reversed(self._unsynced[kept:]):
            self._tables.take_back(lost.rows)
            del self._groups[lost.groups :]
            self._tip, self._total = lost.tip, lost.total
        found = self._opened(self.log_id, self._tables, self._groups)
        self._ended = "it crashed"
        return found

    def backup(self, log_id: str) -> MemoryLog:
        """The log as it is found when a backup that was made now is restored later, under a new id.

        With the old id neighbours would take its new offsets for the old ones.
        """
        self._check_alive()
        if self._unsynced:
            raise LogError("sync what was written before making a backup")
        return self._opened(log_id, self._tables.copy(), list(self._groups))

    def _opened(self, log_id: str, tables: RowTables, groups: list[GroupRow]) -> MemoryLog:
        found = MemoryLog(log_id, self.quota)
        found.incarnation = self.incarnation + 1
        found._tables, found._groups, found._tip, found._total = tables, groups, self._tip, self._total
        return found

    # -- parts ---------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._ended:
            raise LogFailedError(f"this log cannot be used: {self._ended}")

    def _committed(self) -> int:
        """How many groups are synced."""
        return self._unsynced[0].groups if self._unsynced else len(self._groups)

    def _offset(self, at: int) -> Offset:
        """The offset at which a committed group begins; after the last, the next offset."""
        if at < self._committed():
            return Offset(self._groups[at].first)
        return self._unsynced[0].tip.next if self._unsynced else self._tip.next


def _end(row: GroupRow) -> int:
    return row.first + row.n
