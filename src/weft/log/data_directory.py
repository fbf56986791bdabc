"""The directory of a log: the lock of its one process, and the file that tells a log from its copy.

Neighbours know how much of a log they have by its id and an offset. A backup that is restored would use offsets again
that neighbours already have, and its new events would be dropped as old ones. So a log has a second file, `identity`,
which says which database it belongs to (the log's id and the number of the database's file) and the next offset, which
is written after every commit. It is not synced: after a power failure it may be too old, and never too new. A database
that is not the one that was last used here is a copy, and gets a new log id.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from weft.errors import LogError, LogFailedError
from weft.log.base import Offset

LOCK = "lock"
IDENTITY = "identity"
_RECORD = Struct("<8s32sQQ")
_CRC = Struct("<I")
_MAGIC = b"weft-id1"


class DirectoryLock:
    """The right to write in a directory, which is made if there is none, until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            raise LogError("a log on disk needs a Unix system, where a directory can be locked") from None
        make_directory(directory)
        self._file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise LogError(f"{directory} is in use by process {holder}; stop it, or choose another directory") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def make_directory(directory: Path) -> None:
    """Make the directory, so that it survives a crash."""
    if not directory.exists():
        directory.mkdir(parents=True)
        sync_directory(directory.parent)
    elif not directory.is_dir():
        raise LogError(f"{directory} is not a directory; a log is kept in a directory of its own")


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LogIdentity(NamedTuple):
    """The contents of the file `identity`."""

    log_id: str  # 32 hexadecimal digits
    inode: int  # of the database
    next: Offset  # at least this is stored


class IdentityFile:
    """The file, open for writing."""

    def __init__(self, directory: Path, identity: LogIdentity) -> None:
        self._file = os.open(directory / IDENTITY, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._identity = identity
        self.write(identity.next)
        os.fsync(self._file)

    def write(self, after: Offset) -> None:
        """Note the next offset, whose events before it are durable. Cost: one system call."""
        record = _RECORD.pack(_MAGIC, self._identity.log_id.encode(), self._identity.inode, after)
        try:
            os.pwrite(self._file, record + _CRC.pack(crc32(record)), 0)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # where even overwriting needs space; too old is no harm
                raise LogFailedError(f"the file {IDENTITY!r} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Sync and close it."""
        os.fsync(self._file)
        os.close(self._file)


def read_identity(directory: Path) -> LogIdentity | None:
    """The contents of the file; None if there is none, or it is damaged."""
    try:
        data = (directory / IDENTITY).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _RECORD.size + _CRC.size or _CRC.unpack(data[_RECORD.size :])[0] != crc32(data[: _RECORD.size]):
        return None
    magic, log_id, inode, after = _RECORD.unpack(data[: _RECORD.size])
    return LogIdentity(log_id.decode("ascii", "replace"), inode, Offset(after)) if magic == _MAGIC else None


def why_copied(found: LogIdentity | None, database: LogIdentity, marked: bool) -> str:
    """Why a database counts as a copy, empty if it does not.

    `database` is what is there, `marked` whether it was written as a backup. Raises LogError if events are missing
    that were acknowledged; the operator has to confirm that this is a restored backup.
    """
    if marked:
        return "it was written as a backup"
    if found is None:
        return "the file 'identity' is missing or damaged"
    if found.log_id != database.log_id:
        return "the file 'identity' belongs to another log"
    if database.next < found.next:
        raise LogError(
            f"the log ends at offset {database.next - 1}, but events up to {found.next - 1} were acknowledged: "
            f"its database is damaged, or older than the directory, or was copied without its -wal file; "
            f"if it is a restored backup, run 'weft log restore'"
        )
    if found.inode != database.inode:
        return "the database is another file than before"
    return ""
