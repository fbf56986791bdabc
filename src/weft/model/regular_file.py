"""Files that somebody else may have written. Only a regular file of a bounded size is read, never a pipe or a device,
which may have no end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:  # a pipe is opened without waiting for its other end
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return data
