"""Opening a log on disk: lock, format, identity, event schema, recovery. Law: a log is opened whole or not at all.

Every open increases the incarnation. A database that is a copy gets a new log id (see `identity`); a log with another
event schema is refused, unless it is to be migrated (see `migration`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from weft.errors import LogError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.log.base import Offset
from weft.log.data_directory import DirectoryLock, make_directory, sync_directory
from weft.log.identity import IDENTITY, IdentityFile, LogIdentity, read_identity, why_copied
from weft.log.migration import AffectedFilter, affected_filters, schema_text
from weft.log.recovery import CheckedGroups, Progress, check_groups_from, nothing
from weft.log.row_codec import put_meta
from weft.log.row_reader import put_tip, read_meta, read_tip
from weft.log.row_rules import EMPTY
from weft.log.schema import DATABASE, check_format, create_tables, is_new, open_reader, open_writer, upgrade
from weft.log.sqlite import LogFiles, SqliteLog
from weft.log.sqlite_reader import DAMAGE, unreadable
from weft.model.schema import Schema


class LogOptions(NamedTuple):
    """How a log is opened."""

    schema: Schema | None = None  # of events
    any_schema: bool = False  # do not look at the schema, and leave the stored one
    quota: int | None = None  # bytes of the database; None is what the disk holds
    migrate: bool = False  # accept another event schema
    restore: bool = False  # this is a restored backup: give it a new log id
    predicates: Predicates = NO_PREDICATES  # of stored filters; needed to migrate
    entropy: Callable[[int], bytes] = os.urandom  # for the log's id
    progress: Progress = nothing


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
    """Open the log in a directory, or make one. Raises LogError, and leaves everything as it was.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     opened = open_log(place)
    ...     opened.log.close()
    >>> opened.created, opened.log.incarnation
    (True, 1)
    """
    place = Path(directory)
    make_directory(place)
    lock = DirectoryLock(place)
    connections: list[sqlite3.Connection] = []  # closed in reverse
    try:
        path = place / DATABASE
        identity = read_identity(place)
        if identity is not None and not path.exists():
            raise LogError(f"{place} has the file {IDENTITY!r}, but {DATABASE} is missing; restore it from a backup")
        try:
            if path.exists():  # or the writer is the last to close, and checkpoints a log that was refused
                with suppress(sqlite3.Error):  # a log whose making was interrupted cannot be read yet
                    connections.append(open_reader(path))
            connections.append(open_writer(path))
            opened = _opened(place, connections[-1], lock, identity, options)
        except DAMAGE as error:
            raise unreadable(path, error) from error
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
    put_meta(connection, "weft.log", log_id.encode())
    put_meta(connection, "weft.incarnation", str(incarnation + 1).encode())
    put_meta(connection, "weft.schema", schema.encode())
    put_meta(connection, "weft.checked", str(tip.next).encode())
    connection.execute("DELETE FROM meta WHERE key = 'weft.backup'")
    connection.execute("COMMIT")
    log = SqliteLog(LogFiles(place, connection, lock, file), log_id, incarnation + 1, options.quota)
    return OpenedLog(log, created, upgraded, copied, checked, affected)


def _create(connection: sqlite3.Connection, options: LogOptions) -> None:
    connection.execute("BEGIN IMMEDIATE")
    create_tables(connection)
    put_tip(connection, EMPTY, 0)
    put_meta(connection, "weft.log", options.entropy(16).hex().encode())
    put_meta(connection, "weft.incarnation", b"0")
    put_meta(connection, "weft.schema", schema_text(options.schema).encode())
    put_meta(connection, "weft.checked", b"1")
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the database alone is a log from now on


def _described(path: Path, meta: dict[str, bytes]) -> tuple[str, int, Offset, str]:
    """The log's id, its incarnation, up to where it was checked, and its event schema."""
    try:
        return (
            meta["weft.log"].decode("ascii"),
            int(meta["weft.incarnation"]),
            Offset(int(meta["weft.checked"])),
            meta["weft.schema"].decode(),
        )
    except (KeyError, ValueError) as error:
        raise LogError(f"{path} is damaged: its description lacks {error}") from error
