"""Names of files: the format that a name states, and the files that a path names."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Collection, Iterator
from glob import glob
from pathlib import Path
from typing import Any

from weft.errors import PipelineError
from weft.model.schema import did_you_mean

FORMATS = ("parquet", "csv", "json")
_ENDINGS = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
_PACKED: dict[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open}
_UNFINISHED = "_temporary"  # the folder in which Spark writes, until all is written


def plain_path(path: str) -> str:
    """A path without the scheme of this machine's files.

    >>> plain_path("file:///data/events.csv"), plain_path("hdfs://host/events.csv")
    ('/data/events.csv', 'hdfs://host/events.csv')
    """
    return path.removeprefix("file://").removeprefix("file:")


def open_unpacked(path: Path) -> Any:
    """A file opened for reading bytes, unpacked if its name says that it is packed."""
    return _PACKED.get(path.suffix.lower().removeprefix("."), open)(path, "rb")


def format_of(path: str, format: str | None = None) -> str:
    """The format of a file, a folder or a pattern: as given, by its name, or by the files in it.

    >>> format_of("s3a://logs/2024-*.jsonl.gz"), format_of("events", "csv")
    ('json', 'csv')
    """
    if format is not None:
        if format not in FORMATS:
            hint = did_you_mean(format, FORMATS) or f": use one of {', '.join(FORMATS)}"
            raise PipelineError(f"there is no format {format!r}{hint}")
        return format
    named = _ending(path.rstrip("/"))
    if named in _ENDINGS:
        return _ENDINGS[named]
    found = {_ENDINGS.get(_ending(file), "") for file in data_files(path)}
    if len(found) == 1 and (only := found.pop()):
        return only
    raise PipelineError(f"the format of {path} is not clear from its name: end it in .parquet, .csv, .json or .jsonl")


def has_files(path: str) -> bool:
    """Whether a folder of this machine, or a pattern, has a file that Spark would read."""
    return next(data_files(path), None) is not None


def files_without_bytes(path: str) -> list[str]:
    """The Parquet files of this machine that have not even a header: Spark skips them without a word."""
    if "://" in plain_path(path) or format_of(path, None) != "parquet":
        return []
    return sorted(file for file in data_files(path) if Path(file).stat().st_size == 0)


def taken(path: str, names: Collection[str] = ()) -> PipelineError:
    """The error for an output that exists, by the names of the files in it."""
    if set(names) == {_UNFINISHED}:
        return PipelineError(f"{path} has the unfinished output of another run: remove it if that was stopped")
    return PipelineError(f"{path} already exists: choose another name, or allow overwriting (--overwrite)")


def _ending(name: str) -> str:
    parts = name.rpartition("/")[2].lower().split(".")[1:]
    if len(parts) > 1 and parts[-1] in _PACKED:
        parts.pop()
    return parts[-1] if parts else ""


def data_files(path: str) -> Iterator[str]:
    """The files of this machine in a folder, or of a pattern, that Spark would read."""
    for name in glob(plain_path(path)):
        for file in [Path(name), *Path(name).rglob("*")]:
            parts = file.relative_to(Path(name).parent).parts
            if file.is_file() and not any(part.startswith(("_", ".")) for part in parts):
                yield str(file)
