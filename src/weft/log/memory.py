"""A log in memory, which fails on demand. A crash keeps every synced transaction, and may lose the rest.

It is the twin of the log on disk, for brokers without one and for simulations: the same groups are accepted and
refused, read and trimmed. `commit` is `write` and `sync` together, as on disk; a simulation may call the two apart, and
crash between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from weft.errors import LogError, LogFailedError, LogFullError
from weft.log.base import (
    EMPTY,
    KEYS,
    DeadRow,
    Group,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    Offset,
    Put,
    Remove,
    Row,
    SeatId,
    SessionRow,
    SetMeta,
    State,
    StateChange,
    SubRow,
    Tip,
    check_groups,
)
from weft.log.codec import GroupReader, GroupRow, encode_group

ROW_BYTES = 128  # what a row counts as
_ROWS = 64  # groups fetched at a time


class _Unsynced(NamedTuple):
    """A transaction that was written and not synced: what to take back if it is lost."""

    rows: Undo
    groups: int  # how many there were before it
    tip: Tip
    total: int


class MemoryLog(GroupReader):
    """A log that lives as long as the process, and crashes when told to."""

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
        tables, tip = self._tables, self._tip
        sorted_rows = (dict(sorted(rows.items())) for rows in tables.rows.values())
        sessions, subs, adverts, links, heard, dead, moves, profiles, shown = sorted_rows
        letters = Counter(seat for seat, _ in dead)
        first = Offset(self._groups[0].first) if self._groups else tip.next
        rows = (dict(tables.meta), sessions, subs, adverts, links, heard, dict(letters))
        end = first, tip.next, tip.next_seat, tip.at
        return State(self.log_id, self.incarnation, *rows, *end, moves, profiles, shown)

    def commit(self, groups: Sequence[Group]) -> None:
        """Store the groups, in order, in one transaction. On return they are durable. Raises as `Log.commit` does."""
        self.write(groups)
        self.sync()

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

    def dead(self, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
        """Dead letters of a seat above an offset, by offset."""
        self._check_alive()
        rows = self._tables.rows[DeadRow]
        found = sorted(key for key in rows if key[0] == seat and key[1] > after)
        return [rows[key] for key in found[: max(0, limit)]]

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

    def fail_syncs(self) -> None:
        """Make the next sync raise LogFailedError; after that the log refuses everything."""
        self._failed_syncs += 1

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
        """The log as it is found when a backup that was made now is restored later (see `data_directory`)."""
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

    def _fetch(self, first: Offset, limit: int = _ROWS) -> Sequence[GroupRow]:
        self._check_alive()
        at = bisect_left(self._groups, first + 1, key=_end)
        return self._groups[at : min(at + limit, at + _ROWS, self._committed())]

    def _fetch_seats(self, first: Offset) -> tuple[Sequence[GroupRow], Offset]:
        return self._fetch(first), self._offset(self._committed())

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


Undo = list[tuple[dict[Any, Any], Any, Any]]  # a table, a key, and what was there, or None

_KEY_OF = {kind: attrgetter(*names) for kind, names in KEYS.items()}
_NAME_OF = {SessionRow: attrgetter("name"), LinkRow: attrgetter("peer")}  # names that only one row may have
_SAME_SEATS = {SubRow: (LinkRow, "link"), LinkRow: (SubRow, "subscription")}  # the rows that may not have the same seat


class RowTables:
    """Everything a log holds but its events. What a transaction changed can be undone, in reverse."""

    def __init__(self) -> None:
        self.meta: dict[str, bytes] = {}
        self.rows: dict[type, dict[Any, Any]] = {kind: {} for kind in KEYS}  # by key
        self._owners: dict[tuple[type, str], Any] = {}  # the keys of rows, by their names

    def __len__(self) -> int:
        return len(self.meta) + sum(map(len, self.rows.values()))

    def copy(self) -> RowTables:
        """The same rows, to be changed apart."""
        twin = RowTables()
        twin.meta, twin._owners = dict(self.meta), dict(self._owners)
        twin.rows = {kind: dict(table) for kind, table in self.rows.items()}
        return twin

    def apply(self, changes: Iterable[StateChange]) -> Undo:
        """Change the rows, all or none. Raises LogError for a name or seat that another row has."""
        undo: Undo = []
        try:
            for change in changes:
                self._apply(change, undo)
        except LogError:
            self.take_back(undo)
            raise
        return undo

    def take_back(self, undo: Undo) -> None:
        """Bring back the rows as they were before `apply`."""
        for table, key, before in reversed(undo):
            if before is None:
                del table[key]
            else:
                table[key] = before

    def _apply(self, change: StateChange, undo: Undo) -> None:
        match change:
            case Put(row):
                self._put(row, undo)
            case Remove(kind, key):
                self._remove(kind, key if len(key) > 1 else key[0], undo)
            case MoveFloor(seat, floor, above, attempts):
                self._move(SubRow, seat, undo, floor=floor, above=above, attempts=attempts)
                self._move(LinkRow, seat, undo, floor=floor)
            case MovePublisher(session, pub_epoch, pub_seq):
                self._move(SessionRow, session, undo, pub_epoch=pub_epoch, pub_seq=pub_seq)
            case MoveGot(link, got):
                self._move(LinkRow, link, undo, got=got)
            case SetMeta(name, value):
                _store(self.meta, name, value, undo)

    def _put(self, row: Row, undo: Undo) -> None:
        kind, key = type(row), _KEY_OF[type(row)](row)
        if kind in _SAME_SEATS and key in self.rows[_SAME_SEATS[kind][0]]:
            raise LogError(f"seat {key} already belongs to a {_SAME_SEATS[kind][1]}")
        if kind in _NAME_OF:
            name = _NAME_OF[kind](row)
            if self._owners.get((kind, name), key) != key:
                raise LogError(f"the name {name!r} already belongs to {self._owners[kind, name]}")
            self._remove(kind, key, undo)
            _store(self._owners, (kind, name), key, undo)
        _store(self.rows[kind], key, row, undo)

    def _remove(self, kind: type, key: Any, undo: Undo) -> None:
        row = self.rows[kind].get(key)
        if row is not None:
            _store(self.rows[kind], key, None, undo)
            if kind in _NAME_OF:
                _store(self._owners, (kind, _NAME_OF[kind](row)), None, undo)

    def _move(self, kind: type, key: Any, undo: Undo, **fields: Any) -> None:
        row = self.rows[kind].get(key)
        if row is not None:
            _store(self.rows[kind], key, replace(row, **fields), undo)


def _store(table: dict[Any, Any], key: Any, row: Any, undo: Undo) -> None:
    """Store a row, or remove it with None."""
    undo.append((table, key, table.get(key)))
    if row is None:
        del table[key]
    else:
        table[key] = row
