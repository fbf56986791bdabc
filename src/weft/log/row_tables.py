"""Rows in memory, changed by groups. Law: what a transaction changed can be taken back, in reverse.

>>> tables = RowTables()
>>> before = tables.apply([Put(AdvertRow(1, SessionId(7), "x > 5"))])
>>> list(tables.adverts)
[1]
>>> tables.take_back(before)
>>> list(tables.adverts)
[]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from weft.errors import LogError
from weft.log.base import (
    AdvertRow,
    DeadRow,
    HeardRow,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    Put,
    Remove,
    Row,
    SeatId,
    SessionId,
    SessionRow,
    SetMeta,
    StateChange,
    SubRow,
)

Undo = list[tuple[dict[Any, Any], Any, Any]]  # a table, a key, and the row that was there, or None


class RowTables:
    """Everything a log holds but its events."""

    def __init__(self) -> None:
        self.meta: dict[str, bytes] = {}
        self.sessions: dict[SessionId, SessionRow] = {}
        self.subs: dict[SeatId, SubRow] = {}
        self.adverts: dict[int, AdvertRow] = {}
        self.links: dict[SeatId, LinkRow] = {}
        self.heard: dict[tuple[SeatId, int, int], HeardRow] = {}
        self.dead: dict[tuple[SeatId, int], DeadRow] = {}
        self._names: dict[str, SessionId] = {}
        self._peers: dict[str, SeatId] = {}

    def __len__(self) -> int:
        rows = (self.sessions, self.subs, self.adverts, self.links, self.heard, self.dead)
        return len(self.meta) + sum(len(table) for table in rows)

    def copy(self) -> RowTables:
        """The same rows, to be changed apart."""
        twin = RowTables()
        for name, table in vars(self).items():
            setattr(twin, name, dict(table))
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
        if isinstance(change, Put):
            self._put(change.row, undo)
        elif isinstance(change, Remove):
            self._remove(change, undo)
        elif isinstance(change, MoveFloor):
            seat, floor = change.seat, change.floor
            if seat in self.subs:
                moved = replace(self.subs[seat], floor=floor, above=change.above, attempts=change.attempts)
                _store(self.subs, seat, moved, undo)
            elif seat in self.links:
                _store(self.links, seat, replace(self.links[seat], floor=floor), undo)
        elif isinstance(change, MovePublisher):
            session = self.sessions.get(change.session)
            if session is not None:
                moved_on = replace(session, pub_epoch=change.pub_epoch, pub_seq=change.pub_seq)
                _store(self.sessions, session.id, moved_on, undo)
        elif isinstance(change, MoveGot):
            if change.link in self.links:
                _store(self.links, change.link, replace(self.links[change.link], got=change.got), undo)
        elif isinstance(change, SetMeta):
            _store(self.meta, change.key, change.value, undo)

    def _put(self, row: Row, undo: Undo) -> None:
        if isinstance(row, SessionRow):
            old = self.sessions.get(row.id)
            _rename(self._names, old.name if old else None, row.name, row.id, undo)
            _store(self.sessions, row.id, row, undo)
        elif isinstance(row, SubRow):
            if row.seat in self.links:
                raise LogError(f"seat {row.seat} already belongs to a link")
            _store(self.subs, row.seat, row, undo)
        elif isinstance(row, AdvertRow):
            _store(self.adverts, row.id, row, undo)
        elif isinstance(row, LinkRow):
            if row.seat in self.subs:
                raise LogError(f"seat {row.seat} already belongs to a subscription")
            link = self.links.get(row.seat)
            _rename(self._peers, link.peer if link else None, row.peer, row.seat, undo)
            _store(self.links, row.seat, row, undo)
        elif isinstance(row, HeardRow):
            _store(self.heard, (row.link, row.about, row.item), row, undo)
        else:
            _store(self.dead, (row.seat, row.offset), row, undo)

    def _remove(self, change: Remove, undo: Undo) -> None:
        table, key = self._table(change.table), change.key if len(change.key) > 1 else change.key[0]
        row = table.get(key)
        if row is None:
            return
        if isinstance(row, SessionRow):
            _discard(self._names, row.name, undo)
        elif isinstance(row, LinkRow):
            _discard(self._peers, row.peer, undo)
        _discard(table, key, undo)

    def _table(self, kind: type[Row]) -> dict[Any, Any]:
        tables: dict[type[Row], dict[Any, Any]] = {
            SessionRow: self.sessions,
            SubRow: self.subs,
            AdvertRow: self.adverts,
            LinkRow: self.links,
            HeardRow: self.heard,
            DeadRow: self.dead,
        }
        return tables[kind]


def _rename(names: dict[str, Any], old: str | None, name: str, id: int, undo: Undo) -> None:
    """Take a name for a row. Raises LogError if another row has it."""
    if names.get(name, id) != id:
        raise LogError(f"the name {name!r} already belongs to {names[name]}")
    if old is not None and old != name:
        _discard(names, old, undo)
    _store(names, name, id, undo)


def _store(table: dict[Any, Any], key: Any, row: Any, undo: Undo) -> None:
    undo.append((table, key, table.get(key)))
    table[key] = row


def _discard(table: dict[Any, Any], key: Any, undo: Undo) -> None:
    undo.append((table, key, table.pop(key)))
