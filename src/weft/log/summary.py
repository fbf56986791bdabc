"""What a log holds, in numbers, and how far behind each seat is. Law: reading them changes nothing.

A seat's lag is the number of stored events that it gets and that lie at or above its floor. Events above the floor that
it acknowledged out of order are counted too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from weft.errors import LogError
from weft.log.base import NEVER, Offset, SeatId, SubRow
from weft.log.group_codec import SeatsRow, check_seats
from weft.log.retention import floors
from weft.log.row_reader import read_meta, read_state
from weft.log.schema import DATABASE, check_format, open_reader
from weft.log.sqlite_reader import DAMAGE, pragma, unreadable, used_pages


class SeatLag(msgspec.Struct, frozen=True):
    """A queue, a subscription or a link, and how far behind it is. A subscription of a queue has no floor: the queue
    has it.
    """

    seat: int
    kind: str  # queue, subscription or link
    owner: str  # the session's name, or the peer's
    filter: str  # none for a queue or a link
    floor: int | None
    lag: int  # events
    dead: int


class LogSummary(msgspec.Struct, frozen=True):
    """What a log holds."""

    log_id: str
    incarnation: int
    format: int
    first: int
    next: int
    at: int  # of the last group, UTC microseconds
    groups: int
    events: int
    event_bytes: int
    used_bytes: int
    file_bytes: int
    rows: dict[str, int]
    schema: str
    seats: list[SeatLag]


def summarize(directory: Path, queue_of: Callable[[SubRow], SeatId]) -> LogSummary:
    """The numbers, also while a broker writes. `queue_of` gives the seat of the queue of a subscription that has no
    floor of its own. Raises LogError. Cost: linear in rows, and in events that lag.
    """
    path = directory / DATABASE
    if not path.exists():
        raise LogError(f"{directory} has no log: there is no {DATABASE} in it")
    try:
        connection = open_reader(path)
        try:
            connection.execute("BEGIN")
            return _summary(connection, path, queue_of)
        finally:
            connection.close()
    except (*DAMAGE, KeyError) as error:
        raise unreadable(path, error) from error


def _summary(connection: sqlite3.Connection, path: Path, queue_of: Callable[[SubRow], SeatId]) -> LogSummary:
    version = check_format(connection, path)
    meta = read_meta(connection)
    state = read_state(connection, meta["weft.log"].decode("ascii"), int(meta["weft.incarnation"]))
    sizes = "count(*), sum(n), sum(length(seats) + length(origins) + length(heads) + length(payloads))"
    groups, events, size = connection.execute(f"SELECT {sizes} FROM grp").fetchone()
    queues = {row.seat: queue_of(row) for row in state.subs.values() if row.floor == NEVER}
    lags = count_lags(connection, floors(state), queues)
    names = {session.id: session.name for session in state.sessions.values()}
    seats = [
        *(
            ("subscription" if s.filter else "queue", s.seat, names.get(s.session, ""), s.filter, s.floor)
            for s in state.subs.values()
        ),
        *(("link", k.seat, k.peer, "", k.floor) for k in state.links.values()),
    ]
    page_size = pragma(connection, "page_size")
    return LogSummary(
        log_id=state.log_id,
        incarnation=state.incarnation,
        format=version,
        first=state.first,
        next=state.next,
        at=state.at,
        groups=groups,
        events=events or 0,
        event_bytes=size or 0,
        used_bytes=used_pages(connection) * page_size,
        file_bytes=pragma(connection, "page_count") * page_size,
        rows={
            "sessions": len(state.sessions),
            "queues": sum(not row.filter for row in state.subs.values()),
            "subscriptions": sum(bool(row.filter) for row in state.subs.values()),
            "advertisements": len(state.adverts),
            "links": len(state.links),
            "heard": len(state.heard),
            "dead letters": sum(state.dead.values()),
        },
        schema=meta["weft.schema"].decode(),
        seats=[
            SeatLag(seat, kind, owner, text, None if floor == NEVER else floor, lags[seat], state.dead.get(seat, 0))
            for kind, seat, owner, text, floor in sorted(seats, key=lambda each: (-lags[each[1]], each[1]))
        ],
    )


def count_lags(
    connection: sqlite3.Connection, floors: Mapping[SeatId, Offset], queues: Mapping[SeatId, SeatId]
) -> dict[SeatId, int]:
    """How many stored events at or above its floor each seat gets; an event of several subscriptions of a queue counts
    once, for the queue. Cost: about 20 nanoseconds for each pair.
    """
    known = np.array(sorted(floors), np.int64)
    wanted = np.array([queues.get(SeatId(seat), seat) for seat in known.tolist()], np.int64)
    holders = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    bounds = np.array([floors[SeatId(seat)] for seat in known.tolist()], np.int64)[holders]
    counts = np.zeros(len(known), np.int64)
    lowest = int(bounds.min()) if len(bounds) else 0
    statement = f"SELECT {', '.join(SeatsRow._fields)} FROM grp WHERE first + n > ? ORDER BY first"
    for row in map(SeatsRow._make, connection.execute(statement, (lowest,)) if len(known) else ()):
        starts, seats = check_seats(row)
        events = np.repeat(np.arange(row.n), np.diff(starts))
        at = np.minimum(np.searchsorted(known, seats), len(known) - 1)
        behind = (known[at] == seats) & (row.first + events >= bounds[at])
        pairs = np.unique(events[behind] * len(known) + holders[at[behind]])
        counts += np.bincount(pairs % len(known), minlength=len(known))
    return {SeatId(seat): count for seat, count in zip(known.tolist(), counts.tolist(), strict=True)}
