"""A copy of a log, made while it is written. Law: a copy is marked as one, and gets a new log id when it is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from weft.errors import LogError
from weft.log.data_directory import make_directory, sync_directory
from weft.log.recovery import Progress, nothing
from weft.log.row_codec import put_meta
from weft.log.schema import DATABASE, check_format, open_reader, open_writer
from weft.log.sqlite_reader import unreadable

_PAGES = 1000  # copied at a time


def back_up(directory: Path, to: Path, progress: Progress = nothing) -> None:
    """Copy the log of one directory into another, which has none: all groups that were committed before the call.

    To restore it, use the copy as a data directory, or move its files into one that is empty.
    """
    source, target = directory / DATABASE, to / DATABASE
    if not source.exists():
        raise LogError(f"{directory} has no log: there is no {DATABASE} in it")
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


def _copy(source: Path, draft: Path, progress: Progress) -> None:
    reader = open_reader(source)
    try:
        check_format(reader, source)
        reader.execute("BEGIN")  # one state throughout, whatever is committed meanwhile
        reader.execute("SELECT count(*) FROM tip").fetchone()
        copy = sqlite3.connect(draft, isolation_level=None)
        try:
            reader.backup(copy, pages=_PAGES, progress=lambda _, left, of: progress("copying pages", of - left, of))
        finally:
            copy.close()
    finally:
        reader.close()
    writer = open_writer(draft)
    try:
        writer.execute("BEGIN IMMEDIATE")
        put_meta(writer, "weft.backup", b"1")
        writer.execute("COMMIT")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        writer.close()
