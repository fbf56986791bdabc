"""Rows of state as rows of SQLite. Law: a row that is read back is the row that was stored, or LogError is raised.

A stored row ends with CRC-32 of its table's name and its values, written as MessagePack. The floor of a seat, the
position of a publisher and that of a link are rows of their own, so that moving one needs none of the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, cast
from zlib import crc32

from msgspec.msgpack import Encoder

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
    SessionRow,
    SetMeta,
    StateChange,
    SubRow,
)

SUB_SEAT, LINK_SEAT = 1, 2  # kinds of seats

_encode = Encoder().encode
_KEYS: dict[str, tuple[str, ...]] = {
    "meta": ("key",),
    "session": ("id",),
    "publisher": ("session",),
    "sub": ("seat",),
    "advert": ("id",),
    "link": ("seat",),
    "got": ("link",),
    "heard": ("link", "about", "item"),
    "dead": ("seat", "offset"),
}
_VALUES: dict[str, tuple[str, ...]] = {
    "meta": ("value",),
    "session": ("name", "owner", "epoch", "expires"),
    "publisher": ("epoch", "seq"),
    "sub": ("session", "number", "filter", "options", "since"),
    "advert": ("session", "filter"),
    "link": ("peer", "role", "peer_log"),
    "got": ("got",),
    "heard": ("body",),
    "dead": ("attempts", "reason", "at", "body"),
}
_PARTS: dict[type, tuple[str, ...]] = {  # the tables that hold a row, each with the key of the row
    SessionRow: ("session", "publisher"),
    SubRow: ("sub",),
    AdvertRow: ("advert",),
    LinkRow: ("link", "got"),
    HeardRow: ("heard",),
    DeadRow: ("dead",),
}


def checksum(table: str, values: Sequence[Any]) -> int:
    """What stands at the end of a row."""
    return crc32(_encode((table, *values)))


def check_row(table: str, values: Sequence[Any], crc: object) -> None:
    """Raise LogError if a row that was read is not the one that was stored."""
    try:
        fine = checksum(table, values) == crc
    except (TypeError, ValueError, OverflowError):  # half a surrogate pair, say
        fine = False
    if not fine:
        raise LogError(f"a row of the table {table!r} is damaged: its checksum is wrong; its key is {values[0]!r}")


# -- writing -----------------------------------------------------------------------------------------


def _upsert(table: str) -> str:
    keys, values = _KEYS[table], (*_VALUES[table], "crc")
    names = ", ".join((*keys, *values))
    marks = ", ".join("?" * (len(keys) + len(values)))
    moved = ", ".join(f"{name} = excluded.{name}" for name in values)
    return f"INSERT INTO {table}({names}) VALUES({marks}) ON CONFLICT({', '.join(keys)}) DO UPDATE SET {moved}"


_UPSERTS = {table: _upsert(table) for table in _KEYS}
_DELETES = {t: f"DELETE FROM {t} WHERE {' AND '.join(f'{key} = ?' for key in keys)}" for t, keys in _KEYS.items()}
_PUT_SEAT = (
    "INSERT INTO seat(id, kind, floor, above, attempts, crc) VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET"
    " floor = excluded.floor, above = excluded.above, attempts = excluded.attempts, crc = excluded.crc"
    " WHERE kind = excluded.kind"
)
_DELETE_SEAT = "DELETE FROM seat WHERE id = ? AND kind = ?"
_MOVE_SEAT = "UPDATE seat SET floor = ?, above = ?, attempts = ?, crc = ? WHERE id = ?"
_MOVE_PUBLISHER = "UPDATE publisher SET epoch = ?, seq = ?, crc = ? WHERE session = ?"
_MOVE_GOT = "UPDATE got SET got = ?, crc = ? WHERE link = ?"


def store_changes(connection: sqlite3.Connection, changes: Iterable[StateChange]) -> None:
    """Carry out the changes, in order, within a transaction of the caller.

    Raises LogError for a seat of another kind, sqlite3.IntegrityError for a name that another row has.
    Cost: 2 to 5 microseconds each where changes of one kind follow one another.
    """
    for (kind, about), run in groupby(changes, key=_kind):
        several = list(run)
        if kind is Put:
            _put(connection, about, [cast(Put, change).row for change in several])
        elif kind is Remove:
            _remove(connection, about, [cast(Remove, change).key for change in several])
        else:
            statement, values = _MOVES[kind]
            connection.executemany(statement, [values(change) for change in several])


def put_meta(connection: sqlite3.Connection, key: str, value: bytes) -> None:
    """Store an entry of the description, within a transaction of the caller."""
    connection.execute(_UPSERTS["meta"], _sealed("meta", key, value))


def _kind(change: StateChange) -> tuple[type, type]:
    if isinstance(change, Put):
        return Put, type(change.row)
    if isinstance(change, Remove):
        return Remove, change.table
    return type(change), type(change)


def _sealed(table: str, *values: Any) -> tuple[Any, ...]:
    return *values, crc32(_encode((table, *values)))


_MOVES: dict[type, tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    MoveFloor: (
        _MOVE_SEAT,
        lambda to: (
            to.floor,
            to.above,
            to.attempts,
            crc32(_encode(("seat", to.seat, to.floor, to.above, to.attempts))),
            to.seat,
        ),
    ),
    MovePublisher: (
        _MOVE_PUBLISHER,
        lambda to: (
            to.pub_epoch,
            to.pub_seq,
            crc32(_encode(("publisher", to.session, to.pub_epoch, to.pub_seq))),
            to.session,
        ),
    ),
    MoveGot: (_MOVE_GOT, lambda to: (to.got, crc32(_encode(("got", to.link, to.got))), to.link)),
    SetMeta: (_UPSERTS["meta"], lambda to: _sealed("meta", to.key, to.value)),
}


def _put(connection: sqlite3.Connection, kind: type, rows: Sequence[Any]) -> None:
    for table in _PARTS[kind]:
        connection.executemany(_UPSERTS[table], [_sealed(table, *values) for values in _columns(table, rows)])
    if kind is SubRow or kind is LinkRow:
        seats = [
            (r.seat, SUB_SEAT, r.floor, r.above, r.attempts)
            if isinstance(r, SubRow)
            else (r.seat, LINK_SEAT, r.floor, b"", b"")
            for r in rows
        ]
        sealed = [(*seat, checksum("seat", (seat[0], *seat[2:]))) for seat in seats]
        if connection.executemany(_PUT_SEAT, sealed).rowcount != len(sealed):
            raise LogError("a seat cannot be both a subscription's and a link's")


def _columns(table: str, rows: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The part of rows that a table holds."""
    if table == "session":
        return ((r.id, r.name, r.owner, r.epoch, r.expires) for r in rows)
    if table == "publisher":
        return ((r.id, r.pub_epoch, r.pub_seq) for r in rows)
    if table == "got":
        return ((r.seat, r.got) for r in rows)
    names = (*_KEYS[table], *_VALUES[table])
    return (tuple([getattr(r, name) for name in names]) for r in rows)


def _remove(connection: sqlite3.Connection, kind: type, keys: Sequence[tuple[Any, ...]]) -> None:
    for table in _PARTS[kind]:
        connection.executemany(_DELETES[table], keys)
    if kind is SubRow or kind is LinkRow:
        seat_kind = SUB_SEAT if kind is SubRow else LINK_SEAT
        connection.executemany(_DELETE_SEAT, [(seat, seat_kind) for (seat,) in keys])
