"""The directory of a log, used by one process. Law: a second process is refused, and told which one is the first."""

from __future__ import annotations

import os
from pathlib import Path

from weft.errors import LogError

LOCK = "lock"


class DirectoryLock:
    """The right to write in a directory; it ends with `release`, or with the process, whatever ended it."""

    def __init__(self, directory: Path) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            raise LogError("a log on disk needs a Unix system, where a directory can be locked") from None
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
        """Let others in."""
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
