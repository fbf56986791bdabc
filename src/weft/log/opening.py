"""Opening a log on disk: lock, format, identity, event schema, and checks of what was stored since a clean stop.

A log is opened whole or not at all. Every open increases the incarnation. A database that is a copy gets a new log id
(see `data_directory`).

A log with another event schema is refused, unless it is to be migrated: then every stored filter that may mean
something else is listed, and none is dropped. A filter means the same under two schemas if they declare its attributes
with the same types, since a value of another type is absent. Events that are stored stay as they are.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from weft.algebra.relate import is_empty
from weft.errors import FilterError, LogError, SchemaError
from weft.language.ast import attributes
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.log.base import EMPTY, Offset
from weft.log.codec import COLUMNS, GroupRow, check_group
from weft.log.data_directory import DirectoryLock, IdentityFile, LogIdentity, read_identity, sync_directory, why_copied
from weft.log.rows import put_meta, put_tip, read_adverts, read_meta, read_subs, read_tip
from weft.log.schema import DATABASE, check_format, create_tables, is_new, open_reader, open_writer, reading, upgrade
from weft.log.sqlite import LogFiles, SqliteLog
from weft.model.schema import Schema

RecoveryProgress = Callable[[str, int, int], None]  # what is being done, how many of how many
_DESCRIPTION = ("log", "incarnation", "checked", "schema")  # keys of a log about itself, after "weft."
UNDECLARED = ""  # the event schema of a log that has none


class AffectedFilter(msgspec.Struct, frozen=True):
    """A stored filter that may not mean what it meant."""

    kind: str  # subscription or advertisement
    id: int  # its seat or its id
    session: int
    filter: str
    reason: str


class CheckedGroups(NamedTuple):
    """The numbers of groups and events that were checked."""

    groups: int
    events: int


def nothing(what: str, done: int, of: int) -> None:
    """Ignore progress."""


def refuse(problem: str) -> None:
    """Raise LogError."""
    raise LogError(problem)


def check_groups_from(
    connection: sqlite3.Connection, first: Offset, progress: RecoveryProgress, report: Callable[[str], None] = refuse
) -> CheckedGroups:
    """Check all groups with events from an offset on, and report each problem. Raises LogError for the first unless
    told otherwise. Cost: about .2 microseconds an event of 300 bytes.
    """
    tip, total = read_tip(connection)
    groups = events = 0
    after, at, stored = 0, 0, None
    statement = f"SELECT {COLUMNS} FROM grp WHERE first >= ? ORDER BY first"
    for row in map(GroupRow._make, connection.execute(statement, (first,))):
        wrong = ""
        try:
            _, seats, _, _ = check_group(row)
            if len(seats) and int(seats.max()) >= tip.next_seat:
                wrong = f"it names seat {int(seats.max())}, but the next seat is {tip.next_seat}"
        except LogError as error:
            wrong = str(error)
        if not wrong and (row.first < after or row.at < at):
            wrong = "it does not come after the group before it"
        if not wrong and stored is not None and row.total - row.size != stored:
            wrong = "groups before it are missing"
        if wrong:
            report(wrong if "group at offset" in wrong else f"the group at offset {row.first} is damaged: {wrong}")
        after, at, stored = row.first + max(1, row.n), row.at, row.total
        groups, events = groups + 1, events + row.n
        progress("checking events", row.first, tip.next)
    if stored is not None and stored != total:
        report("the last groups are missing")
    return CheckedGroups(groups, events)


class LogOptions(NamedTuple):
    """How a log is opened."""

    schema: Schema | None = None  # of events
    any_schema: bool = False  # do not look at the schema, and leave the stored one
    quota: int | None = None  # bytes of the database; None is what the disk holds
    migrate: bool = False  # accept another event schema
    restore: bool = False  # this is a restored backup: give it a new log id
    predicates: Predicates = NO_PREDICATES  # of stored filters; needed to migrate
    entropy: Callable[[int], bytes] = os.urandom  # for the log's id
    progress: RecoveryProgress = nothing


DEFAULTS = LogOptions()


class OpenedLog(NamedTuple):
    """A log, and what was found and done when it was opened."""

    log: SqliteLog
    created: bool
    upgraded: int  # formats
    copied: str  # why it has a new log id, or empty
    checked: CheckedGroups  # what recovery had to check
    affected: tuple[AffectedFilter, ...]  # by another event schema


def open_log(directory: str | Path, options: LogOptions = DEFAULTS) -> OpenedLog:
    """Open the log in a directory, or make one. Raises LogError, and leaves everything as it was."""
    place = Path(directory)
    lock = DirectoryLock(place)
    connections: list[sqlite3.Connection] = []  # closed in reverse
    try:
        path = place / DATABASE
        identity = read_identity(place)
        if identity is not None and not path.exists():
            raise LogError(f"{place} has the file 'identity', but {DATABASE} is missing; restore it from a backup")
        with reading(path):
            if path.exists():  # or the writer is the last to close, and checkpoints a log that was refused
                with suppress(sqlite3.Error):  # a log whose making was interrupted cannot be read yet
                    connections.append(open_reader(path))
            connections.append(open_writer(path))
            opened = _opened(place, connections[-1], lock, identity, options)
    except BaseException:
        for connection in reversed(connections):
            with suppress(sqlite3.Error):
                connection.close()
        lock.release()
        raise
    for guard in connections[:-1]:
        guard.close()
    return opened


def _opened(
    place: Path, connection: sqlite3.Connection, lock: DirectoryLock, identity: LogIdentity | None, options: LogOptions
) -> OpenedLog:
    path = place / DATABASE
    created = is_new(connection)
    if created:
        if identity is not None:
            raise LogError(f"{path} is empty, but a log was here; restore it from a backup")
        _create(connection, options)
        sync_directory(place)
    check_format(connection, path)
    upgraded = upgrade(connection)
    meta = read_meta(connection)
    log_id, incarnation, checked_to, told = _described(path, meta)
    tip, _ = read_tip(connection)
    inode = path.stat().st_ino
    copied = ""
    if options.restore:
        copied = "it is restored"
    elif incarnation or identity is not None:  # it was opened before
        copied = why_copied(identity, LogIdentity(log_id, inode, tip.next), "weft.backup" in meta)
    schema = told if options.any_schema else schema_text(options.schema)
    affected: tuple[AffectedFilter, ...] = ()
    if told != schema:
        if not options.migrate:
            raise LogError(f"the log in {place} has another event schema; run 'weft log migrate' or pass migrate=True")
        affected = affected_filters(connection, told, options.schema, options.predicates)
    checked = check_groups_from(connection, checked_to, options.progress)
    log_id = options.entropy(16).hex() if copied else log_id
    # the file first: if this is interrupted, the database has another id, and is taken for a copy once more
    file = IdentityFile(place, LogIdentity(log_id, inode, tip.next))
    sync_directory(place)
    connection.execute("BEGIN IMMEDIATE")
    _describe(connection, log_id, incarnation + 1, tip.next, schema)
    connection.execute("DELETE FROM meta WHERE key = 'weft.backup'")
    connection.execute("COMMIT")
    log = SqliteLog(LogFiles(place, connection, lock, file), log_id, incarnation + 1, options.quota)
    return OpenedLog(log, created, upgraded, copied, checked, affected)


def _create(connection: sqlite3.Connection, options: LogOptions) -> None:
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    put_tip(connection, EMPTY, 0)
    _describe(connection, options.entropy(16).hex(), 0, Offset(1), schema_text(options.schema))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the database alone is a log from now on


def _describe(connection: sqlite3.Connection, log_id: str, incarnation: int, checked: Offset, schema: str) -> None:
    for name, value in zip(_DESCRIPTION, (log_id, incarnation, checked, schema), strict=True):
        put_meta(connection, f"weft.{name}", str(value).encode())


def _described(path: Path, meta: dict[str, bytes]) -> tuple[str, int, Offset, str]:
    """The log's id, its incarnation, up to where it was checked, and its event schema."""
    try:
        log_id, incarnation, checked, schema = (meta[f"weft.{name}"] for name in _DESCRIPTION)
        return log_id.decode("ascii"), int(incarnation), Offset(int(checked)), schema.decode()
    except (KeyError, ValueError) as error:
        raise LogError(f"{path} is damaged: its description lacks {error}") from error


# -- another event schema ----------------------------------------------------------------------------


def schema_text(schema: Schema | None) -> str:
    """The one text of a schema, whatever the order of its attributes.

    >>> schema_text(Schema.of(x="int", y="float")) == schema_text(Schema.of(y="float", x="int"))
    True
    """
    return UNDECLARED if schema is None else json.dumps(schema.to_dict(), sort_keys=True, ensure_ascii=False)


def read_schema_text(text: str) -> Schema | None:
    """The schema of its text. Raises LogError."""
    if text == UNDECLARED:
        return None
    try:
        return Schema.from_dict(json.loads(text))
    except (ValueError, SchemaError) as error:
        raise LogError(f"the event schema in the log is damaged: {error}") from error


def affected_filters(
    connection: sqlite3.Connection, before: str, now: Schema | None, predicates: Predicates
) -> tuple[AffectedFilter, ...]:
    """The stored subscriptions and advertisements that the change of schema concerns, with the reason."""
    changed = _changes(read_schema_text(before), now)
    stored = chain(
        (("subscription", int(sub.seat), int(sub.session), sub.filter) for sub in read_subs(connection)),
        (("advertisement", row.id, int(row.session), row.filter) for row in read_adverts(connection)),
    )
    return tuple(
        AffectedFilter(kind, number, session, text, reason)
        for kind, number, session, text in stored
        if (reason := _reason(text, changed, now, predicates))
    )


def _changes(before: Schema | None, now: Schema | None) -> dict[str, str]:
    """What happened to the types of attributes."""
    old, new = before or Schema(), now or Schema()
    told = {}
    for name in sorted({*old, *new}):
        was = str(old[name].type) if name in old else "undeclared"
        becomes = str(new[name].type) if name in new else "undeclared"
        if was != becomes:
            told[name] = f"{name!r} was {was} and is {becomes}"
    return told


def _reason(text: str, changed: dict[str, str], now: Schema | None, predicates: Predicates) -> str:
    try:
        wanted = parse(text, predicates)
        named = [changed[name] for name in sorted(attributes(wanted)) if name in changed]
        if is_empty(wanted, now):
            named.append("it matches nothing under the new schema")
    except FilterError as error:
        return f"it cannot be used: {str(error).splitlines()[0]}"
    return "; ".join(named)
