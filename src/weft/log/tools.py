"""Tools for a log in use: verify, summarize, copy and search it, also while a broker writes to it.

A seat's lag, in a summary, is the number of stored events that it gets and has not acknowledged, as far as that is
stored. A copy is marked as one, and gets a new log id when it is opened.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weft.errors import LogError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.log.base import NEVER, Log, Offset, SeatColumn, SeatId, SubRow
from weft.log.codec import SEATS_ONLY, GroupRow, SeatOwners, check_seats, open_offsets
from weft.log.data_directory import DirectoryLock, make_directory, read_identity, sync_directory
from weft.log.opening import RecoveryProgress, check_groups_from, nothing
from weft.log.retention import floors
from weft.log.rows import check_dead, put_meta, read_meta, read_state
from weft.log.schema import (
    DAMAGE,
    DATABASE,
    check_format,
    open_reader,
    open_writer,
    pragma,
    reading,
    unreadable,
    used_pages,
)

_SHOWN = 20  # problems
_PAGES = 1000  # copied at a time
FIRST = Offset(1)

HeadDecoder = Callable[[bytes], Mapping[str, Any]]  # the attributes in an event's head, as the broker's codec wrote it


def _database(directory: Path) -> Path:
    path = directory / DATABASE
    if not path.exists():
        raise LogError(f"{directory} has no log: there is no {DATABASE} in it")
    return path


# -- verifying -------------------------------------------------------------------------------------


class LogReport(msgspec.Struct, frozen=True):
    """What `verify` found; the log is sound if there are no problems."""

    groups: int
    events: int
    rows: int
    first: int
    next: int
    problems: tuple[str, ...]


def verify(directory: Path, progress: RecoveryProgress = nothing) -> LogReport:
    """Check everything in a log, also while a broker writes to it: its pages, every group, every row.

    Raises LogError if there is no log, or it cannot be opened at all.
    """
    path = _database(directory)
    identity = read_identity(directory)  # before the database: it is never ahead of it
    problems = _check_header(directory)
    facts = {"groups": 0, "events": 0, "rows": 0, "first": 0, "next": 0}
    with reading(path):
        connection = open_reader(path)
    try:
        connection.execute("BEGIN")  # one state throughout
        check_format(connection, path)
        progress("checking pages", 0, 0)
        for (found,) in connection.execute(f"PRAGMA integrity_check({_SHOWN})"):
            if found != "ok":
                problems.append(f"the database is damaged: {found}")
        try:
            facts |= _check_rows(connection, progress, problems)
        except LogError as error:
            problems.append(str(error))
        try:
            facts |= check_groups_from(connection, Offset(0), progress, problems.append)._asdict()
        except LogError as error:
            problems.append(str(error))
        if identity is not None and identity.next > facts["next"] > 0 and not _is_copy(connection, identity.log_id):
            problems.append(
                f"events up to offset {identity.next - 1} were acknowledged, but the log ends at {facts['next'] - 1}"
            )
    except DAMAGE as error:
        problems.append(f"the database is damaged: {error}")
    finally:
        connection.close()
    return LogReport(**facts, problems=tuple(problems[:_SHOWN]))


def _check_header(directory: Path) -> list[str]:
    """What is wrong with the first bytes, which SQLite does not look at while it reads.

    Only where nobody has the log open: closing a file that SQLite has open in this process would end its locks.
    """
    try:
        lock = DirectoryLock(directory)
    except (LogError, OSError):
        return []
    try:
        with (directory / DATABASE).open("rb") as file:
            head = file.read(20)
    finally:
        lock.release()
    return [] if head[:16] == b"SQLite format 3\0" and head[18:] == b"\2\2" else ["the database's header is damaged"]


def _check_rows(connection: sqlite3.Connection, progress: RecoveryProgress, problems: list[str]) -> dict[str, int]:
    progress("checking rows", 0, 0)
    state = read_state(connection, "", 0)
    for seat, floor in floors(state).items():
        if state.next < floor != NEVER:
            problems.append(f"seat {seat} has the floor {floor}, but the next offset is {state.next}")
    rows = len(state.meta) + len(state.sessions) + len(state.subs) + len(state.adverts) + len(state.links)
    rows += len(state.heard) + len(state.profiles) + len(state.shown)
    return {
        "rows": rows + check_dead(connection),
        "first": state.first,
        "next": state.next,
    }


def _is_copy(connection: sqlite3.Connection, log_id: str) -> bool:
    meta = read_meta(connection)
    return "weft.backup" in meta or meta.get("weft.log") != log_id.encode()


# -- summarizing -----------------------------------------------------------------------------------


class SeatLag(msgspec.Struct, frozen=True):
    """A queue, a subscription or a link, and how far behind it is."""

    seat: int
    kind: str  # queue, subscription or link
    owner: str  # the session's name, or the peer's
    filter: str  # none for a queue or a link
    floor: int | None  # none for a subscription of a queue: the queue has it
    lag: int  # events
    dead: int


class SeatPosition(NamedTuple):
    """What a seat has acknowledged: everything below its floor, and ranges above it."""

    floor: Offset
    above: Sequence[tuple[int, int]] = ()


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


QueueOf = Callable[[SubRow], SeatId]
RangesOf = Callable[[SubRow], Sequence[tuple[int, int]]]


def summarize(directory: Path, queue_of: QueueOf, ranges_of: RangesOf) -> LogSummary:
    """The numbers, also while a broker writes. `queue_of` gives the seat of the queue of a subscription that has no
    floor of its own, `ranges_of` what one has acknowledged above its floor. Raises LogError. Cost: linear in rows, and
    in events that lag.
    """
    path = _database(directory)
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("BEGIN")
            return _summary(connection, path, queue_of, ranges_of)
    except (*DAMAGE, KeyError) as error:
        raise unreadable(path, error) from error


def _summary(connection: sqlite3.Connection, path: Path, queue_of: QueueOf, ranges_of: RangesOf) -> LogSummary:
    version = check_format(connection, path)
    meta = read_meta(connection)
    state = read_state(connection, meta["weft.log"].decode("ascii"), int(meta["weft.incarnation"]))
    sizes = "count(*), sum(n), sum(length(seats) + length(origins) + length(heads) + length(payloads))"
    groups, events, size = connection.execute(f"SELECT {sizes} FROM grp").fetchone()
    queues = {row.seat: queue_of(row) for row in state.subs.values() if row.floor == NEVER}
    positions = {seat: SeatPosition(floor) for seat, floor in floors(state).items()}
    positions |= {seat: SeatPosition(row.floor, ranges_of(row)) for seat, row in state.subs.items() if not row.filter}
    lags = count_lags(connection, positions, queues)
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
            "profiles": len(state.profiles),
            "profiles shown": len(state.shown),
        },
        schema=meta["weft.schema"].decode(),
        seats=[
            SeatLag(seat, kind, owner, text, None if floor == NEVER else floor, lags[seat], state.dead.get(seat, 0))
            for kind, seat, owner, text, floor in sorted(seats, key=lambda each: (-lags[each[1]], each[1]))
        ],
    )


def count_lags(
    connection: sqlite3.Connection, positions: Mapping[SeatId, SeatPosition], queues: Mapping[SeatId, SeatId]
) -> dict[SeatId, int]:
    """How many stored events that it has not acknowledged each seat gets; an event of several subscriptions of a queue
    counts once, for the queue. Cost: about 50 nanoseconds for each pair.
    """
    owners = SeatOwners({seat: queues.get(seat, seat) for seat in positions})
    counts = dict.fromkeys(positions, 0)
    lowest = min((position.floor for position in positions.values()), default=0)
    statement = f"SELECT {SEATS_ONLY} FROM grp WHERE first + n > ? ORDER BY first"
    for row in map(GroupRow._make, connection.execute(statement, (lowest,)) if positions else ()):
        for owner, offsets in owners.own(SeatColumn(Offset(row.first), *check_seats(row))):
            counts[SeatId(owner)] += len(open_offsets(offsets, *positions[SeatId(owner)]))
    return counts


# -- copying ---------------------------------------------------------------------------------------


def back_up(directory: Path, to: Path, progress: RecoveryProgress = nothing) -> None:
    """Copy the log of one directory into another, which has none: all groups that were committed before the call.

    To restore it, use the copy as a data directory, or move its files into one that is empty.
    """
    source, target = _database(directory), to / DATABASE
    if target.exists():
        raise LogError(f"{to} already has a log; choose an empty directory")
    make_directory(to)
    draft = to / f"{DATABASE}.part"
    draft.unlink(missing_ok=True)
    try:
        _copy(source, draft, progress)
    except sqlite3.Error as error:
        draft.unlink(missing_ok=True)
        raise unreadable(source, error) from error
    draft.rename(target)
    sync_directory(to)


def _copy(source: Path, draft: Path, progress: RecoveryProgress) -> None:
    with closing(open_reader(source)) as reader, closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        check_format(reader, source)
        reader.execute("BEGIN")  # one state throughout, whatever is committed meanwhile
        reader.execute("SELECT count(*) FROM tip").fetchone()
        reader.backup(copy, pages=_PAGES, progress=lambda _, left, of: progress("copying pages", of - left, of))
    with closing(open_writer(draft)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        put_meta(writer, "weft.backup", b"1")
        writer.execute("COMMIT")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# -- searching -------------------------------------------------------------------------------------


class FoundEvent(NamedTuple):
    """An event that matches."""

    offset: Offset
    at: int  # of its group
    attributes: Mapping[str, Any]
    head: bytes
    payload: bytes


def read_matching(
    log: Log, filter: Filter, decode: HeadDecoder, first: Offset = FIRST, limit: int | None = None
) -> Iterator[FoundEvent]:
    """The stored events from an offset on that match, at most `limit` of them, in order.

    Cost: about 3 microseconds for each event that is looked at.
    """
    return islice(_matching(log, filter, decode, first), limit)


def _matching(log: Log, filter: Filter, decode: HeadDecoder, first: Offset) -> Iterator[FoundEvent]:
    for group in log.read(first, NEVER):
        events = group.events
        for at, head in enumerate(events.heads):
            attributes = decode(head)
            if matches(filter, attributes):
                yield FoundEvent(Offset(events.first + at), group.at, attributes, head, events.payloads[at])
