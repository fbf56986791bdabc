"""The files of a snapshot. Only regular files that lie in the directory itself are read, never through a link. A file's
size and checksum are known before anything in it is used, if it is not trusted.

An array is a file of a line that says what it is, and its bytes, little-endian; it is mapped into memory and copied
only where it is written to.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import SnapshotError

META = "index.json"
_MOST_META = 1 << 31  # bytes
_HEAD = 64  # bytes


def write_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Write a directory whole, in place of an older snapshot if there is one. Raises SnapshotError."""
    if path.exists() and not (path / META).exists():
        raise SnapshotError(f"{path} exists and is not a snapshot; choose another place")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        write(draft)
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
        if path.exists():
            os.replace(path, old / "snapshot")
        os.replace(draft, path)
        shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def write_array(folder: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
    """Write an array; returns its entry in `index.json`."""
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).view(np.uint8).data
    head = _head(array.dtype.name, len(array))
    with (folder / f"{name}.bin").open("wb") as file:
        file.write(head)
        file.write(data)
    return {"type": array.dtype.name, "length": len(array), "checksum": zlib.crc32(data, zlib.crc32(head))}


def _head(kind: str, length: int) -> bytes:
    """The first bytes of an array's file: a line, as long as the widest vector, so that all of them lie aligned."""
    return f"weft array {kind} {length}".encode().ljust(_HEAD - 1) + b"\n"


def write_meta(folder: Path, meta: Mapping[str, Any]) -> None:
    """Write `index.json`, sealed with its checksum."""
    text = json.dumps(meta, ensure_ascii=False, allow_nan=False)
    sealed = json.dumps({"checksum": zlib.crc32(text.encode()), "index": text}, ensure_ascii=False)
    (folder / META).write_text(sealed, encoding="utf-8")


@contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """A snapshot's directory. Raises SnapshotError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise SnapshotError(f"{path} is not a snapshot: there is no {META} in it") from None
    except OSError as error:
        raise SnapshotError(f"{path} cannot be read: {error}") from error
    try:
        yield Folder(path, handle)
    finally:
        os.close(handle)


class Folder:
    """The directory of a snapshot, open for reading."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def meta(self) -> Any:
        """The contents of `index.json`. Raises SnapshotError."""
        try:
            with self._file(META) as (file, size):
                if size > _MOST_META:
                    raise SnapshotError(f"{self.path / META} is too large: {size} bytes")
                with os.fdopen(os.dup(file), "rb") as source:
                    sealed = json.loads(source.read(size), parse_constant=_refused)
            text = sealed["index"]
            if zlib.crc32(text.encode()) != sealed["checksum"]:
                raise SnapshotError(f"{self.path} is damaged: its checksum differs; write the snapshot again")
            return json.loads(text, parse_constant=_refused)
        except FileNotFoundError:
            raise SnapshotError(f"{self.path} is not a snapshot: there is no {META} in it") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SnapshotError(f"{self.path} is not a snapshot of an index, or is damaged: {error}") from error

    def array(self, name: str, said: Any, types: tuple[str, ...], trusted: bool = False) -> NDArray[Any]:
        """An array of one of some types, mapped into memory. Raises SnapshotError.

        Of a `trusted` one only the size is checked, so that nothing is read until it is needed.
        """
        place = self.path / f"{name}.bin"
        try:
            if said["type"] not in types or type(said["length"]) is not int or said["length"] < 0:
                raise SnapshotError(f"{place} is said to be {said!r}, which it cannot be")
            kind = np.dtype(said["type"])
            with self._file(f"{name}.bin") as (file, size):
                if size != _HEAD + said["length"] * kind.itemsize:
                    raise SnapshotError(f"{place} is damaged: it has {size} bytes; write the snapshot again")
                data = mmap.mmap(file, size, access=mmap.ACCESS_COPY)
            head = _head(said["type"], said["length"])
            if not trusted and (zlib.crc32(data) != said["checksum"] or data[:_HEAD] != head):
                raise SnapshotError(f"{place} is damaged: its checksum differs; write the snapshot again")
        except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise SnapshotError(f"{place} cannot be read: {error}; write the snapshot again") from error
        array: NDArray[Any] = np.frombuffer(data, kind, offset=_HEAD)
        return array if sys.byteorder == "little" else array.byteswap()

    @contextmanager
    def _file(self, name: str) -> Iterator[tuple[int, int]]:
        """A regular file of the directory, as its handle and size."""
        # Without waiting: the other end of a FIFO may never come.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._handle)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise SnapshotError(f"{self.path / name} is not a regular file")
            yield file, status.st_size
        finally:
            os.close(file)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not a number that a snapshot has")
