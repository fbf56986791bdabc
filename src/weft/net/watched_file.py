"""A file that is read again when it has changed. Laws: a file that became unusable changes nothing: what it last said
holds, and the operator is told once; a file that is still being written is not read: half of one might say less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from weft.errors import WeftError
from weft.net.log_lines import LogLines

V = TypeVar("V")


class WatchedFile(Generic[V]):
    """What a file says. Raises what `read` raises when it is opened, and never again."""

    def __init__(self, file: Path, read: Callable[[Path], V], lines: LogLines) -> None:
        self._file = file
        self._read = read
        self._lines = lines
        self._seen = self._found = _state(file)  # when it was read, and at the last look
        self.value = read(file)

    def poll(self) -> bool:
        """Whether it says something new. A change counts when the next look finds the file as the last one did."""
        state = _state(self._file)
        before, self._found = self._found, state
        if state == self._seen or state != before:
            return False
        self._seen = state  # before it is read: a change while it is read is seen by the next poll
        try:
            self.value = self._read(self._file)
        except WeftError as error:
            self._lines.error("file not reloaded", file=self._file, reason=error)
            return False
        self._lines.info("file reloaded", file=self._file)
        return True


def _state(file: Path) -> tuple[int, ...]:
    """Something that changes with a file; a link to another file counts."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
