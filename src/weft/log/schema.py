"""The tables of a log on disk, and connections to them.

Every row has a checksum of its own (see `rows`), because SQLite has none in its pages. What changes with every
acknowledgement (floors, positions of publishers and links) stands in narrow tables apart from filters and names, so
that few pages are written. `at` and `total` ascend with `first`: no index is needed to search by time or by size. A
newer format is refused.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from msgspec.msgpack import Encoder

from weft.errors import LogError, LogFullError

DAMAGE = (sqlite3.Error, OverflowError, TypeError, ValueError)  # what reading a damaged database can raise
DATABASE = "log.sqlite"
APPLICATION = 0x57656674  # "Weft"
FORMAT = 4  # 1 had no moves; 2 had one table and one lane on a link, and no profiles; 3 had no filters of what is shown
OLDEST = (3, 37, 0)  # the first SQLite with strict tables

_TABLES = """
CREATE TABLE meta(key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tip(id INTEGER PRIMARY KEY, next INTEGER NOT NULL, at INTEGER NOT NULL, next_seat INTEGER NOT NULL,
    total INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;
CREATE TABLE grp(first INTEGER PRIMARY KEY, n INTEGER NOT NULL, at INTEGER NOT NULL, total INTEGER NOT NULL,
    crc INTEGER NOT NULL, body_crc INTEGER NOT NULL, seats BLOB NOT NULL, origins BLOB NOT NULL, heads BLOB NOT NULL,
    payloads BLOB NOT NULL) STRICT;
CREATE TABLE seat(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, floor INTEGER NOT NULL, above BLOB NOT NULL,
    attempts BLOB NOT NULL, crc INTEGER NOT NULL) STRICT;
CREATE TABLE session(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, epoch INTEGER NOT NULL,
    expires INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;
CREATE TABLE publisher(session INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
    crc INTEGER NOT NULL) STRICT;
CREATE TABLE sub(seat INTEGER PRIMARY KEY, session INTEGER NOT NULL, number INTEGER NOT NULL, filter TEXT NOT NULL,
    options BLOB NOT NULL, since INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;
CREATE TABLE advert(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, filter TEXT NOT NULL,
    crc INTEGER NOT NULL) STRICT;
CREATE TABLE got(link INTEGER PRIMARY KEY, got INTEGER NOT NULL, crc INTEGER NOT NULL) STRICT;
CREATE TABLE dead(seat INTEGER NOT NULL, offset INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL,
    at INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY(seat, offset)) STRICT;
"""
_MOVES = """
CREATE TABLE move(session INTEGER NOT NULL, side INTEGER NOT NULL, epoch INTEGER NOT NULL, peer TEXT NOT NULL,
    start INTEGER NOT NULL, cut INTEGER NOT NULL, got INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY(session, side, epoch)) STRICT;
"""

_LINKS = """
CREATE TABLE link(seat INTEGER PRIMARY KEY, peer TEXT NOT NULL, role TEXT NOT NULL, peer_log TEXT NOT NULL,
    lane INTEGER NOT NULL, crc INTEGER NOT NULL, UNIQUE(peer, lane)) STRICT;
"""
_HEARD = """
CREATE TABLE heard(link INTEGER NOT NULL, about INTEGER NOT NULL, item INTEGER NOT NULL, tbl INTEGER NOT NULL,
    body BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY(link, about, item, tbl)) STRICT, WITHOUT ROWID;
"""
_PROFILES = """
CREATE TABLE profile(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, name TEXT NOT NULL, region TEXT NOT NULL,
    version INTEGER NOT NULL, expires INTEGER NOT NULL, token INTEGER NOT NULL, payload BLOB NOT NULL,
    crc INTEGER NOT NULL) STRICT;
"""
_SHOWN_IN_3 = """
CREATE TABLE shown(seat INTEGER NOT NULL, profile INTEGER NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL,
    version INTEGER NOT NULL, expires INTEGER NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY(seat, profile)) STRICT, WITHOUT ROWID;
"""
_SHOWN = """
CREATE TABLE shown(seat INTEGER NOT NULL, profile INTEGER NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL,
    version INTEGER NOT NULL, expires INTEGER NOT NULL, filter INTEGER NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY(seat, profile)) STRICT, WITHOUT ROWID;
"""

_encode = Encoder().encode
Upgrade = Callable[[sqlite3.Connection], None]  # from one format to the next, within a transaction


def _add_moves(connection: sqlite3.Connection) -> None:
    connection.execute(_MOVES)


def _add_tables(connection: sqlite3.Connection) -> None:
    """Several tables and lanes on a link, and profiles. Rows keep what they say; their checksums cover more columns."""
    _widen(connection, "link", "seat, peer, role, peer_log", 4, _LINKS)
    _widen(connection, "heard", "link, about, item, body", 3, _HEARD)
    _execute(connection, _PROFILES + _SHOWN_IN_3)


def _add_filters(connection: sqlite3.Connection) -> None:
    """The filters with which subscriptions met the profiles that they were shown; of old rows they are not known."""
    _widen(connection, "shown", "seat, profile, source, name, version, expires", 6, _SHOWN)


def _widen(connection: sqlite3.Connection, table: str, columns: str, added: int, statement: str) -> None:
    """Make a table again, with one more column, which is 0 in the rows that are there."""
    connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _execute(connection, statement)
    rows = connection.execute(f"SELECT {columns}, crc FROM old_{table}")
    marks = ", ".join("?" * (len(columns.split()) + 2))
    connection.executemany(f"INSERT INTO {table} VALUES({marks})", (_widened(table, row, added) for row in rows))
    connection.execute(f"DROP TABLE old_{table}")


def _widened(table: str, row: tuple[Any, ...], added: int) -> tuple[Any, ...]:
    """A row with a 0 at a place, and the checksum of that; a damaged row stays damaged."""
    *values, crc = row
    wide = (*values[:added], 0, *values[added:])
    whole = crc32(_encode((table, *values))) == crc
    return *wide, crc32(_encode((table, *wide))) ^ (not whole)


UPGRADES: Mapping[int, Upgrade] = {
    1: _add_moves,
    2: _add_tables,
    3: _add_filters,
}  # by the format they start from


def open_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes and checkpoints. Every commit is on the disk when it returns."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise LogError(f"a log on disk needs SQLite 3.37 or newer, but this Python has {sqlite3.sqlite_version}")
    settings = ["journal_mode=WAL", "synchronous=FULL"]
    settings += ["wal_autocheckpoint=0"]  # its errors would not be reported; see SqliteLog
    if not path.exists() or not path.stat().st_size:
        settings = ["page_size=8192", "auto_vacuum=INCREMENTAL", *settings]  # the second writes, whatever the mode was
    if sys.platform == "darwin":
        settings += ["fullfsync=ON", "checkpoint_fullfsync=ON"]  # or a commit ends in the drive's cache
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    return _set_up(connection, settings)


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can neither write nor checkpoint."""
    wal = path.with_name(f"{path.name}-wal")
    untouched = not os.access(path.parent, os.W_OK) and not wal.exists()  # SQLite cannot make its files there
    uri = f"{path.resolve().as_uri()}?{'immutable=1' if untouched else 'mode=ro'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)
    return _set_up(connection, [], touch=True)


def _set_up(connection: sqlite3.Connection, settings: list[str], touch: bool = False) -> sqlite3.Connection:
    """The connection, closed if that fails; once touched, it counts as open for all others."""
    try:
        for setting in (*settings, "trusted_schema=OFF", "cell_size_check=ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        if touch:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_new(connection: sqlite3.Connection) -> bool:
    """Whether nothing was ever stored."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return not tables and pragma(connection, "user_version") == 0


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables, within a transaction of the caller."""
    _execute(connection, _TABLES + _MOVES + _LINKS + _HEARD + _PROFILES + _SHOWN)
    connection.execute(f"PRAGMA application_id={APPLICATION}")
    connection.execute(f"PRAGMA user_version={FORMAT}")


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def check_format(connection: sqlite3.Connection, path: Path) -> int:
    """The format of a log. Raises LogError for what is not a log, or a newer one."""
    found = pragma(connection, "user_version")
    if pragma(connection, "application_id") != APPLICATION or found < 1:
        raise LogError(f"{path} is not a Weft log")
    if found > FORMAT:
        raise LogError(f"{path} was written by a newer Weft (format {found}, known {FORMAT}); update Weft")
    return found


def upgrade(connection: sqlite3.Connection, steps: Mapping[int, Upgrade] = UPGRADES, to: int = FORMAT) -> int:
    """Bring an older format up to date in place, each step in a transaction of its own. Returns how many there were."""
    begun = found = pragma(connection, "user_version")
    while found < to:
        connection.execute("BEGIN IMMEDIATE")
        try:
            steps[found](connection)
            found += 1
            connection.execute(f"PRAGMA user_version={found}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return found - begun


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of SQLite, and of a damaged database, as LogError."""
    try:
        yield
    except DAMAGE as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> LogError:
    """What is raised for an error of SQLite while reading."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return LogFullError(f"{path} cannot be opened: the disk is full")
    return LogError(f"{path} cannot be read: {error}; check it with 'weft log verify'")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """A number that SQLite keeps."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def used_pages(connection: sqlite3.Connection) -> int:
    """The pages that are not free."""
    return pragma(connection, "page_count") - pragma(connection, "freelist_count")
