"""Both logs behind one face, with the failures that a test wants: a full disk, a failed sync, a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from weft.log.base import Log
from weft.log.memory import MemoryLog
from weft.log.opening import LogOptions, open_log


class MemoryDriver:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = MemoryLog("0" * 32)

    @property
    def log(self) -> Log:
        return self._log

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        self._log.fail_commits()
        yield

    @contextmanager
    def failing_sync(self) -> Iterator[None]:
        self._log.fail_syncs()
        yield

    def crash(self, seed: int) -> None:
        self._log = self._log.crash(np.random.default_rng(seed))

    def reopen(self) -> None:
        self._log.close()
        self._log = self._log.crash()

    def end(self) -> None:
        self._directory.rmdir()


class SqliteDriver:
    """Failures are real: the file descriptor of the WAL is replaced by a device on which writes or syncs fail."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = self._open()

    @property
    def log(self) -> Log:
        return self._log

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        self._log._checkpoint("TRUNCATE")  # nothing has to be read from the device
        with self._wal_is("/dev/full"):  # a write fails with ENOSPC
            yield

    @contextmanager
    def failing_sync(self) -> Iterator[None]:
        with self._wal_is("/dev/null"):  # a write does nothing, fsync fails with EINVAL
            yield

    def crash(self, seed: int) -> None:
        """Bring back the files as they are now, after whatever an orderly end does to them."""
        left = {path.name: path.read_bytes() for path in self.directory.iterdir() if not path.name.endswith("-shm")}
        self._log.close()
        for path in self.directory.iterdir():
            if path.name not in left:
                path.unlink()
        for name, data in left.items():
            (self.directory / name).write_bytes(data)  # in place: the same inode
        self._log = self._open()

    def reopen(self) -> None:
        self._log.close()
        self._log = self._open()

    def end(self) -> None:
        self._log.close()
        shutil.rmtree(self.directory)

    def _open(self):
        opened = open_log(self.directory, LogOptions(entropy=bytes))
        assert not opened.copied, opened.copied
        return opened.log

    @contextmanager
    def _wal_is(self, device: str) -> Iterator[None]:
        wal = str((self.directory / "log.sqlite-wal").resolve())
        handles = [int(name) for name in os.listdir("/proc/self/fd") if _target(name) == wal]
        assert handles
        kept = [(handle, os.dup(handle)) for handle in handles]
        other = os.open(device, os.O_RDWR)
        for handle in handles:
            os.dup2(other, handle)
        os.close(other)
        try:
            yield
        finally:
            for handle, copy in kept:
                os.dup2(copy, handle)
                os.close(copy)


def _target(handle: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""
