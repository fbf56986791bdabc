"""Checks of files before Spark starts. Only what would certainly fail is refused, and only where paths are those of
this machine.

Spark takes many seconds to start, and reports only at the end of a job that its output cannot be written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

from weft.errors import PipelineError
from weft.pipeline.file_names import format_of, open_unpacked, plain_path, taken

_FIRST_LINE = 1 << 16  # bytes of a header that are looked at
_ELSEWHERE = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")


def check_files(
    reads: Iterable[str], writes: Iterable[str] = (), *, overwrite: bool = False, master: str | None = None
) -> None:
    """Raise PipelineError for an input that is missing or unreadable, and for an output that cannot be written."""
    if not is_here(master):
        return
    for path in reads:
        if (place := local_path(path)) is not None:
            _check_input(path, place)
    for path in writes:
        if (place := local_path(path)) is not None:
            check_output(path, place, overwrite)


def check_folders(folders: Iterable[str], *, master: str | None = None) -> None:
    """Raise PipelineError for a folder that is to be made, or added to, and cannot be written."""
    for path in folders if is_here(master) else ():
        if (place := local_path(path)) is not None:
            if place.exists() and not place.is_dir():
                raise PipelineError(f"{path} is a file, not a folder: name another")
            _check_writable(path, place if place.is_dir() else place.absolute().parent)


def check_output(path: str, place: Path, overwrite: bool) -> None:
    """Raise PipelineError if something is there that must stay, or if nothing can be written there.

    An empty folder is nothing: a run that was stopped leaves one.
    """
    if place.exists() and not overwrite and (not place.is_dir() or any(place.iterdir())):
        raise taken(path, os.listdir(place) if place.is_dir() else ())
    _check_writable(path, place.absolute().parent)


def _check_writable(path: str, folder: Path) -> None:
    while not folder.exists():
        folder = folder.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".weft-", dir=folder))
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {folder}: {error.strerror}") from None


def is_here(master: str | None) -> bool:
    """Whether paths without a scheme are surely this machine's."""
    if master is None:
        return not any(os.environ.get(name) for name in _ELSEWHERE)
    return master.startswith("local") and not master.startswith("local-cluster")


def local_path(path: str) -> Path | None:
    """The path on this machine, None if it names another file system."""
    plain = plain_path(path)
    return None if plain == path and "://" in path else Path(plain)


def _check_input(path: str, place: Path) -> None:
    if has_magic(str(place)):
        if not place.exists() and not glob(str(place)) and "{" not in path:  # Hadoop has alternatives, glob has not
            raise PipelineError(f"there is no file {path}")
        return
    if not place.exists():
        raise PipelineError(f"there is no file {path}")
    if not os.access(place, os.R_OK):
        raise PipelineError(f"{path} cannot be read: permission denied")
    if place.is_file():
        kind = format_of(path)
        if kind == "csv":
            _check_header(path, place)
        elif kind == "parquet" and _head(place, 4) != b"PAR1":
            raise PipelineError(f"{path} is not a Parquet file")


def _check_header(path: str, place: Path) -> None:
    try:
        head = _head(place, _FIRST_LINE)
    except (OSError, EOFError):
        raise PipelineError(f"{path} cannot be uncompressed") from None
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    if head and not line.strip():
        return  # Spark skips blank lines
    try:
        names = line.decode("utf-8", errors="strict" if len(line) < _FIRST_LINE - 4 else "ignore")
    except UnicodeDecodeError:
        raise PipelineError(f"{path} is not a CSV file: its first line is not valid UTF-8") from None
    if any(not (char.isprintable() or char in "\t\r") for char in names):
        raise PipelineError(f"{path} is not a CSV file: its first line has control characters")


def _head(place: Path, size: int) -> bytes:
    with open_unpacked(place) as file:
        return bytes(file.read(size))
