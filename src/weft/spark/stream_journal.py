"""The journal of a stream: what it has decided and done, in one small database. A micro-batch has one version, which is
on disk before anything is matched. The commands of a micro-batch are applied once. What is decided here survives a
crash.

Only the driver opens it. `metrics` reads it, also while a stream runs.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from threading import RLock

from weft.errors import PipelineError

DATABASE = "stream.sqlite"
FORMAT = 1
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gluster", "fuse")  # how their types begin
KEPT = 100_000  # micro-batches whose metrics are kept

_TABLES = """
CREATE TABLE setting(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE generation(base INTEGER PRIMARY KEY, size INTEGER NOT NULL) STRICT;
CREATE TABLE version(version INTEGER PRIMARY KEY, batch INTEGER NOT NULL UNIQUE, changes INTEGER NOT NULL,
    refused INTEGER NOT NULL, size INTEGER NOT NULL) STRICT;
CREATE TABLE batch(batch INTEGER PRIMARY KEY, version INTEGER NOT NULL, at REAL NOT NULL, subscriptions INTEGER,
    events INTEGER, matches INTEGER, refused INTEGER, late INTEGER, duplicates INTEGER, seconds REAL,
    trigger_seconds REAL) STRICT;
"""


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """What is known about one micro-batch. `late` and `duplicates` are 0 without a watermark.

    `seconds` is the time from the start of matching to the commit, `trigger_seconds` what Spark needed for the whole
    micro-batch; both, and the counts, are None as long as they are unknown.
    """

    batch: int
    version: int
    at: float  # when it began first, seconds since 1970 UTC
    subscriptions: int | None = None
    events: int | None = None
    matches: int | None = None
    refused: int | None = None
    late: int | None = None
    duplicates: int | None = None
    seconds: float | None = None
    trigger_seconds: float | None = None

    def line(self) -> str:
        """One line of progress."""
        rate = f", {self.events / self.seconds:,.0f} events/s" if self.events and self.seconds else ""
        extra = "".join(
            f", {count:,} {what}"
            for what, count in (("refused", self.refused), ("late", self.late), ("duplicates", self.duplicates))
            if count
        )
        return (
            f"batch {self.batch}: {self.events or 0:,} events, {self.matches or 0:,} matches, version {self.version} "
            f"({self.subscriptions or 0:,} subscriptions), {1000 * (self.seconds or 0):,.0f} ms{rate}{extra}"
        )


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version: the state after a number of commands. `changes` is 0 where these changed nothing."""

    version: int
    batch: int  # of the commands
    changes: int
    refused: int
    size: int  # subscriptions


class StreamJournal:
    """The journal of one checkpoint; it may be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE
        self._lock = RLock()
        try:
            self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5)
            mode = "DELETE" if is_network_folder(folder) else "WAL"  # a WAL needs memory that processes share
            self._connection.execute(f"PRAGMA journal_mode={mode}").fetchall()
            (found,) = self._connection.execute("PRAGMA user_version").fetchone()
            if not found:
                with self._writing():
                    for statement in _TABLES.split(";\n"):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version={FORMAT}")
        except sqlite3.Error as error:
            raise PipelineError(f"{self.path} cannot be opened: {error}") from error
        if found > FORMAT:
            self._connection.close()
            raise PipelineError(f"{self.path} was written by a newer Weft (format {found}); update Weft")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    # -- settings -------------------------------------------------------------------------------

    def agree(self, name: str, value: str, what: str) -> None:
        """Store a setting the first time. Raises PipelineError if a stream began with another one."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO setting VALUES(?, ?)", (name, value))
            (stored,) = connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        if stored != value:
            raise PipelineError(
                f"this checkpoint belongs to a stream with {what} {stored}, not {value}: use another checkpoint"
            )

    def identity(self) -> str:
        """The identity of this stream."""
        with self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO setting VALUES('stream', ?)", (uuid.uuid4().hex,))
            (found,) = connection.execute("SELECT value FROM setting WHERE name = 'stream'").fetchone()
        return str(found)

    # -- versions -------------------------------------------------------------------------------

    def generations(self) -> list[tuple[int, int]]:
        """The versions that are bases, ascending, with their numbers of subscriptions."""
        with self._lock:
            return self._connection.execute("SELECT base, size FROM generation ORDER BY base").fetchall()

    def add_generation(self, base: int, size: int) -> None:
        """A base is complete on disk."""
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO generation VALUES(?, ?)", (base, size))

    def versions(self, after: int = -1) -> list[VersionRow]:
        """The versions after one, ascending."""
        names = ", ".join(field.name for field in fields(VersionRow))
        with self._lock:
            found = self._connection.execute(
                f"SELECT {names} FROM version WHERE version > ? ORDER BY version", (after,)
            )
            return [VersionRow(*row) for row in found]

    def command_batch(self, batch: int) -> VersionRow | None:
        """The version that the commands of a micro-batch led to, if they were applied."""
        names = ", ".join(field.name for field in fields(VersionRow))
        with self._lock:
            row = self._connection.execute(f"SELECT {names} FROM version WHERE batch = ?", (batch,)).fetchone()
        return None if row is None else VersionRow(*row)

    def add_version(self, row: VersionRow) -> None:
        """The commands of a micro-batch are applied: its changes are complete on disk."""
        with self._writing() as connection:
            connection.execute("INSERT INTO version VALUES(?, ?, ?, ?, ?)", tuple(asdict(row).values()))

    def forget(self, below: int, keep_batch: int) -> None:
        """Remove the generations below a base and the versions before it, but not the last batch of commands."""
        with self._writing() as connection:
            connection.execute("DELETE FROM generation WHERE base < ?", (below,))
            connection.execute("DELETE FROM version WHERE version < ? AND batch < ?", (below, keep_batch))

    # -- micro-batches --------------------------------------------------------------------------

    def begin(self, batch: int, version: int, at: float) -> int:
        """The version of a micro-batch: the one that it had before, or else this one, from now on."""
        with self._writing() as connection:
            (last,) = connection.execute("SELECT max(batch) FROM batch").fetchone()
            if last is not None and batch < last:  # Spark only repeats the last one
                raise PipelineError(
                    f"Spark begins micro-batch {batch}, but {last} had begun before: the folder 'events' beside "
                    f"{self.path} was changed; use another checkpoint"
                )
            connection.execute("INSERT OR IGNORE INTO batch(batch, version, at) VALUES(?, ?, ?)", (batch, version, at))
            (found,) = connection.execute("SELECT version FROM batch WHERE batch = ?", (batch,)).fetchone()
            connection.execute("DELETE FROM batch WHERE batch <= ?", (batch - KEPT,))
        return int(found)

    def finish(self, metrics: BatchMetrics) -> None:
        """What a micro-batch did; its version stays. It is on disk when the next micro-batch begins."""
        with self._writing(durable=False) as connection:
            connection.execute(
                "UPDATE batch SET subscriptions = ?, events = ?, matches = ?, refused = ?, seconds = ? WHERE batch = ?",
                (
                    metrics.subscriptions,
                    metrics.events,
                    metrics.matches,
                    metrics.refused,
                    metrics.seconds,
                    metrics.batch,
                ),
            )

    def measured(self, batch: int, late: int, duplicates: int, trigger_seconds: float) -> None:
        """What Spark reported about a micro-batch afterwards. It is on disk when the next micro-batch begins."""
        with self._writing(durable=False) as connection:
            connection.execute(
                "UPDATE batch SET late = ?, duplicates = ?, trigger_seconds = ? WHERE batch = ?",
                (late, duplicates, trigger_seconds, batch),
            )

    @contextmanager
    def _writing(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise


def is_network_folder(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a folder is on a network file system, as far as the machine tells."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return False
    place = folder.resolve()
    under = [(len(point), kind) for _, point, kind, *_ in lines if place.is_relative_to(point.replace("\\040", " "))]
    return max(under, default=(0, ""))[1].startswith(_NETWORK)


def read_metrics(path: Path) -> list[BatchMetrics]:
    """The metrics in a journal, by micro-batch, also while its stream runs. Raises PipelineError."""
    names = ", ".join(field.name for field in fields(BatchMetrics))
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute(f"SELECT {names} FROM batch ORDER BY batch").fetchall()
    except sqlite3.Error as error:
        raise PipelineError(f"{path} cannot be read: {error}") from error
    return [BatchMetrics(*row) for row in found]
