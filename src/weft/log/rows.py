"""Rows of state in SQLite, stored and read back.

A row that is read back is the row that was stored, or LogError is raised. A stored row ends with CRC-32 of its table's
name and its values, written as MessagePack. The floor of a seat, the position of a publisher and that of a link are
rows of their own, so that moving one needs none of the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, cast
from zlib import crc32

from msgspec.msgpack import Encoder
from msgspec.structs import astuple

from weft.errors import LogError
from weft.log.base import (
    EMPTY,
    RESERVED,
    AdvertRow,
    DeadRow,
    HeardRow,
    LinkRow,
    MoveFloor,
    MoveGot,
    MovePublisher,
    MoveRow,
    Offset,
    ProfileRow,
    Put,
    Remove,
    SeatId,
    SessionId,
    SessionRow,
    SetMeta,
    ShownRow,
    State,
    StateChange,
    SubRow,
    Tip,
)
from weft.log.codec import SEATS_ONLY, GroupRow, check_seats

_encode = Encoder().encode
_COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of the key, and the others but the checksum
    "meta": (("key",), ("value",)),
    "session": (("id",), ("name", "owner", "epoch", "expires")),
    "publisher": (("session",), ("epoch", "seq")),
    "sub": (("seat",), ("session", "number", "filter", "options", "since")),
    "advert": (("id",), ("session", "filter")),
    "link": (("seat",), ("peer", "role", "peer_log", "lane")),
    "got": (("link",), ("got",)),
    "heard": (("link", "about", "item", "tbl"), ("body",)),
    "dead": (("seat", "offset"), ("attempts", "reason", "at", "body")),
    "move": (("session", "side", "epoch"), ("peer", "start", "cut", "got", "body")),
    "profile": (("id",), ("session", "name", "region", "version", "expires", "token", "payload")),
    "shown": (("seat", "profile"), ("source", "name", "version", "expires", "filter")),
}
_PARTS: dict[type, tuple[str, ...]] = {  # the tables that hold a row, each with the key of the row
    SessionRow: ("session", "publisher"),
    SubRow: ("sub",),
    AdvertRow: ("advert",),
    LinkRow: ("link", "got"),
    HeardRow: ("heard",),
    DeadRow: ("dead",),
    MoveRow: ("move",),
    ProfileRow: ("profile",),
    ShownRow: ("shown",),
}
_FIELDS = {table: attrgetter(*key, *values) for table, (key, values) in _COLUMNS.items()}  # of a row, for each table
_FIELDS |= {"heard": attrgetter("link", "about", "item", "table", "body")}
_FIELDS |= {"publisher": attrgetter("id", "pub_epoch", "pub_seq"), "got": attrgetter("seat", "got")}
_SEAT_KINDS: dict[type, int] = {SubRow: 1, LinkRow: 2}


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
    key, values = _COLUMNS[table][0], (*_COLUMNS[table][1], "crc")
    names, marks = ", ".join((*key, *values)), ", ".join("?" * (len(key) + len(values)))
    moved = ", ".join(f"{name} = excluded.{name}" for name in values)
    return f"INSERT INTO {table}({names}) VALUES({marks}) ON CONFLICT({', '.join(key)}) DO UPDATE SET {moved}"


_UPSERTS = {table: _upsert(table) for table in _COLUMNS}
_DELETES = {
    table: f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}"
    for table, (key, _) in _COLUMNS.items()
}
_PUT_SEAT = (
    "INSERT INTO seat(id, kind, floor, above, attempts, crc) VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET"
    " floor = excluded.floor, above = excluded.above, attempts = excluded.attempts, crc = excluded.crc"
    " WHERE kind = excluded.kind"
)
_DELETE_SEAT = "DELETE FROM seat WHERE id = ? AND kind = ?"
_MOVES: dict[type, tuple[str, str]] = {  # the table, and a statement with the fields of the change and the checksum
    MoveFloor: ("seat", "UPDATE seat SET floor = ?2, above = ?3, attempts = ?4, crc = ?5 WHERE id = ?1"),
    MovePublisher: ("publisher", "UPDATE publisher SET epoch = ?2, seq = ?3, crc = ?4 WHERE session = ?1"),
    MoveGot: ("got", "UPDATE got SET got = ?2, crc = ?3 WHERE link = ?1"),
    SetMeta: ("meta", _UPSERTS["meta"]),
}


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
            table, statement = _MOVES[kind]
            connection.executemany(statement, map(_sealed, repeat(table), map(astuple, several)))


def put_meta(connection: sqlite3.Connection, key: str, value: bytes) -> None:
    """Store an entry of the description, within a transaction of the caller."""
    connection.execute(_UPSERTS["meta"], _sealed("meta", (key, value)))


def _kind(change: StateChange) -> tuple[type, type]:
    if isinstance(change, Put):
        return Put, type(change.row)
    if isinstance(change, Remove):
        return Remove, change.table
    return type(change), type(change)


def _sealed(table: str, values: Sequence[Any]) -> tuple[Any, ...]:
    return *values, crc32(_encode((table, *values)))


def _put(connection: sqlite3.Connection, kind: type, rows: Sequence[Any]) -> None:
    for table in _PARTS[kind]:
        connection.executemany(_UPSERTS[table], map(_sealed, repeat(table), map(_FIELDS[table], rows)))
    if kind in _SEAT_KINDS:
        seats = [(r.seat, r.floor, getattr(r, "above", b""), getattr(r, "attempts", b"")) for r in rows]
        sealed = [(seat[0], _SEAT_KINDS[kind], *seat[1:], checksum("seat", seat)) for seat in seats]
        if connection.executemany(_PUT_SEAT, sealed).rowcount != len(sealed):
            raise LogError("a seat cannot be both a subscription's and a link's")


def _remove(connection: sqlite3.Connection, kind: type, keys: Sequence[tuple[Any, ...]]) -> None:
    for table in _PARTS[kind]:
        connection.executemany(_DELETES[table], keys)
    if kind in _SEAT_KINDS:
        connection.executemany(_DELETE_SEAT, [(seat, _SEAT_KINDS[kind]) for (seat,) in keys])


# -- reading ---------------------------------------------------------------------------------------


_SESSIONS = (
    "SELECT id, name, owner, session.epoch, expires, session.crc, publisher.epoch, seq, publisher.crc FROM session"
    " LEFT JOIN publisher ON publisher.session = session.id ORDER BY id"
)
_SUBS = (
    "SELECT sub.seat, session, number, filter, options, since, sub.crc, kind, floor, above, attempts, seat.crc FROM sub"
    " LEFT JOIN seat ON seat.id = sub.seat ORDER BY sub.seat"
)
_LINKS = (
    "SELECT link.seat, peer, role, peer_log, {lane}link.crc, got, got.crc, kind, floor, above, attempts, seat.crc"
    " FROM link LEFT JOIN seat ON seat.id = link.seat LEFT JOIN got ON got.link = link.seat ORDER BY link.seat"
)


def read_meta(connection: sqlite3.Connection) -> dict[str, bytes]:
    """The description, the log's own entries included."""
    return dict(_checked(connection, "meta", "key, value"))


def read_tip(connection: sqlite3.Connection) -> tuple[Tip, int]:
    """Where the log ends, and the bytes of all groups that were ever stored."""
    tip, total = EMPTY, 0
    for _, after, at, next_seat, stored in _checked(connection, "tip", "id, next, at, next_seat, total"):
        tip, total = Tip(Offset(after), at, SeatId(next_seat)), stored
    last = connection.execute(f"SELECT {SEATS_ONLY} FROM grp ORDER BY first DESC LIMIT 1").fetchone()
    if last is not None:
        row = GroupRow._make(last)
        check_seats(row)
        after, at = max(row.first + row.n, tip.next), max(row.at, tip.at)
        tip, total = Tip(Offset(after), at, tip.next_seat), max(row.total, total)
    return tip, total


def put_tip(connection: sqlite3.Connection, tip: Tip, total: int) -> None:
    """Store where the log ends, within a transaction of the caller."""
    connection.execute("INSERT OR REPLACE INTO tip VALUES(?, ?, ?, ?, ?, ?)", _sealed("tip", (1, *tip, total)))


def read_state(connection: sqlite3.Connection, log_id: str, incarnation: int) -> State:
    """Everything but the events. Raises LogError if a row is damaged. Cost: about 4 microseconds a row."""
    tip, _ = read_tip(connection)
    oldest = connection.execute("SELECT min(first) FROM grp").fetchone()[0]
    state = State(
        log_id=log_id,
        incarnation=incarnation,
        meta={key: value for key, value in read_meta(connection).items() if not key.startswith(RESERVED)},
        sessions={row.id: row for row in _sessions(connection)},
        subs={row.seat: row for row in read_subs(connection)},
        adverts={row.id: row for row in read_adverts(connection)},
        links={row.seat: row for row in _links(connection)},
        heard={row[:4]: HeardRow(row[0], row[1], row[2], row[4], row[3]) for row in _heard(connection)},
        dead={SeatId(seat): n for seat, n in connection.execute("SELECT seat, count(*) FROM dead GROUP BY seat")},
        first=tip.next if oldest is None else Offset(oldest),
        next=tip.next,
        next_seat=tip.next_seat,
        at=tip.at,
        moves={row[:3]: MoveRow(*row) for row in _moves(connection)},
        profiles={row[0]: ProfileRow(*row) for row in _added(connection, "profile")},
        shown={row[:2]: ShownRow(*row) for row in _shown(connection)},
    )
    _check_parts(connection, state)
    return state


def _moves(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Moves of sessions; a log of format 1 that is only read has no such table."""
    return _added(connection, "move")


def _added(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that logs of older formats, which are only read, do not have."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone() is None:
        return iter(())
    key, values = _COLUMNS[table]
    return _checked(connection, table, ", ".join((*key, *values)))


def _shown(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """What subscriptions were shown; logs of format 3, which are only read, do not have the filters."""
    columns = [row[1] for row in connection.execute("PRAGMA table_info(shown)")]
    if columns and "filter" not in columns:
        return _checked(connection, "shown", "seat, profile, source, name, version, expires")
    return _added(connection, "shown")


def _heard(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """What neighbours told: link, kind, item, table and body. Older formats, which are only read, have one table."""
    if _is_older(connection):
        rows = _checked(connection, "heard", "link, about, item, body")
        return ((*row[:3], 0, row[3]) for row in rows)
    return _checked(connection, "heard", "link, about, item, tbl, body")


def _is_older(connection: sqlite3.Connection) -> bool:
    """Whether a log has one table and one lane for each link."""
    return not any(row[1] == "lane" for row in connection.execute("PRAGMA table_info(link)"))


def read_subs(connection: sqlite3.Connection) -> Iterator[SubRow]:
    """Durable subscriptions and shared names, by seat."""
    for seat, session, number, wanted, options, since, crc, *place in connection.execute(_SUBS):
        check_row("sub", (seat, session, number, wanted, options, since), crc)
        floor, above, attempts = _floor(seat, _SEAT_KINDS[SubRow], place)
        yield SubRow(seat, session, number, wanted, options, since, floor, above, attempts)


def read_adverts(connection: sqlite3.Connection) -> Iterator[AdvertRow]:
    """Advertisements, by id."""
    for number, session, within in _checked(connection, "advert", "id, session, filter"):
        yield AdvertRow(number, SessionId(session), within)


def read_dead(connection: sqlite3.Connection, seat: SeatId, after: Offset, limit: int) -> list[DeadRow]:
    """Dead letters of a seat above an offset, by offset."""
    where = "WHERE seat = ? AND offset > ? ORDER BY offset LIMIT ?"
    rows = _checked(connection, "dead", "seat, offset, attempts, reason, at, body", where, (seat, after, max(0, limit)))
    return [DeadRow(*row) for row in rows]


def check_dead(connection: sqlite3.Connection) -> int:
    """How many dead letters there are. Raises LogError if one is damaged."""
    return sum(1 for _ in _checked(connection, "dead", "seat, offset, attempts, reason, at, body"))


def _checked(
    connection: sqlite3.Connection, table: str, columns: str, where: str = "", parameters: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    for *values, crc in connection.execute(f"SELECT {columns}, crc FROM {table} {where}", parameters):
        check_row(table, values, crc)
        yield tuple(values)


def _sessions(connection: sqlite3.Connection) -> Iterator[SessionRow]:
    for session, name, owner, epoch, expires, crc, pub_epoch, pub_seq, pub_crc in connection.execute(_SESSIONS):
        check_row("session", (session, name, owner, epoch, expires), crc)
        check_row("publisher", (session, pub_epoch, pub_seq), pub_crc)
        yield SessionRow(session, name, owner, epoch, pub_epoch, pub_seq, expires)


def _links(connection: sqlite3.Connection) -> Iterator[LinkRow]:
    older = _is_older(connection)
    for (
        seat,
        peer,
        role,
        peer_log,
        *lane,
        crc,
        got,
        got_crc,
        kind,
        floor,
        above,
        attempts,
        seat_crc,
    ) in connection.execute(_LINKS.format(lane="" if older else "lane, ")):
        check_row("link", (seat, peer, role, peer_log, *lane), crc)
        check_row("got", (seat, got), got_crc)
        below, _, _ = _floor(seat, _SEAT_KINDS[LinkRow], [kind, floor, above, attempts, seat_crc])
        yield LinkRow(seat, peer, role, peer_log, got, below, *lane)


def _floor(seat: SeatId, wanted: int, place: list[Any]) -> tuple[Offset, bytes, bytes]:
    kind, floor, above, attempts, crc = place
    if kind != wanted:
        raise LogError(f"seat {seat} is damaged: its kind is {kind!r}, not {wanted}")
    check_row("seat", (seat, floor, above, attempts), crc)
    return floor, above, attempts


def _check_parts(connection: sqlite3.Connection, state: State) -> None:
    """Raise LogError if parts of rows are left over."""
    for table, wanted in (
        ("seat", len(state.subs) + len(state.links)),
        ("publisher", len(state.sessions)),
        ("got", len(state.links)),
    ):
        (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        if found != wanted:
            raise LogError(f"the table {table!r} is damaged: it has {found} rows, and {wanted} belong to others")
    used = max((seat for seats in (state.subs, state.links) for seat in seats), default=0)
    if used >= state.next_seat:
        raise LogError(f"seat {used} is in use, but the next seat is {state.next_seat}: the table 'tip' is damaged")
