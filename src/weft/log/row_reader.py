"""Rows of state, read back. Law: every row is checked against its checksum, and no part of a row is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from weft.errors import LogError
from weft.log.base import (
    AdvertRow,
    DeadRow,
    HeardRow,
    LinkRow,
    Offset,
    SeatId,
    SessionId,
    SessionRow,
    State,
    SubRow,
)
from weft.log.group_codec import SeatsRow, check_seats
from weft.log.row_codec import LINK_SEAT, SUB_SEAT, check_row, checksum
from weft.log.row_rules import EMPTY, RESERVED, Tip

_SESSIONS = (
    "SELECT id, name, owner, session.epoch, expires, session.crc, publisher.epoch, seq, publisher.crc FROM session"
    " LEFT JOIN publisher ON publisher.session = session.id ORDER BY id"
)
_SUBS = (
    "SELECT sub.seat, session, number, filter, options, since, sub.crc, kind, floor, above, attempts, seat.crc FROM sub"
    " LEFT JOIN seat ON seat.id = sub.seat ORDER BY sub.seat"
)
_LINKS = (
    "SELECT link.seat, peer, role, peer_log, link.crc, got, got.crc, kind, floor, above, attempts, seat.crc FROM link"
    " LEFT JOIN seat ON seat.id = link.seat LEFT JOIN got ON got.link = link.seat ORDER BY link.seat"
)


def read_meta(connection: sqlite3.Connection) -> dict[str, bytes]:
    """The description, the log's own entries included."""
    return dict(_checked(connection, "meta", "key, value"))


def read_tip(connection: sqlite3.Connection) -> tuple[Tip, int]:
    """Where the log ends, and the bytes of all groups that were ever stored."""
    tip, total = EMPTY, 0
    for _, after, at, next_seat, stored in _checked(connection, "tip", "id, next, at, next_seat, total"):
        tip, total = Tip(Offset(after), at, SeatId(next_seat)), stored
    last = connection.execute(f"SELECT {', '.join(SeatsRow._fields)} FROM grp ORDER BY first DESC LIMIT 1").fetchone()
    if last is not None:
        row = SeatsRow._make(last)
        check_seats(row)
        after, at = max(row.first + row.n, tip.next), max(row.at, tip.at)
        tip, total = Tip(Offset(after), at, tip.next_seat), max(row.total, total)
    return tip, total


def put_tip(connection: sqlite3.Connection, tip: Tip, total: int) -> None:
    """Store where the log ends, within a transaction of the caller."""
    values = (1, *tip, total)
    connection.execute("INSERT OR REPLACE INTO tip VALUES(?, ?, ?, ?, ?, ?)", (*values, checksum("tip", values)))


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
        heard={
            (link, about, item): HeardRow(link, about, item, body)
            for link, about, item, body in _checked(connection, "heard", "link, about, item, body")
        },
        dead={SeatId(seat): n for seat, n in connection.execute("SELECT seat, count(*) FROM dead GROUP BY seat")},
        first=tip.next if oldest is None else Offset(oldest),
        next=tip.next,
        next_seat=tip.next_seat,
        at=tip.at,
    )
    _check_parts(connection, state)
    return state


def read_subs(connection: sqlite3.Connection) -> Iterator[SubRow]:
    """Durable subscriptions and shared names, by seat."""
    for seat, session, number, wanted, options, since, crc, *place in connection.execute(_SUBS):
        check_row("sub", (seat, session, number, wanted, options, since), crc)
        floor, above, attempts = _floor(seat, SUB_SEAT, place)
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
    for seat, peer, role, peer_log, crc, got, got_crc, *place in connection.execute(_LINKS):
        check_row("link", (seat, peer, role, peer_log), crc)
        check_row("got", (seat, got), got_crc)
        floor, _, _ = _floor(seat, LINK_SEAT, place)
        yield LinkRow(seat, peer, role, peer_log, got, floor)


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
