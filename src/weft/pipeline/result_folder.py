"""Results as a folder of files, as Spark writes it. Law: the folder has all rows, or does not exist.

Rows are written to a hidden folder beside it, which takes its name at the end. A process that is killed leaves only the
hidden folder, which the next run with the same output removes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from weft.errors import PipelineError
from weft.pipeline.file_names import format_of, plain_path, taken
from weft.pipeline.row_text import csv_column, json_column, string_text

_GROUP = 500_000  # rows of a row group, about
_GROUP_BYTES = 64 << 20  # about the most that waits to be a row group
_ROWS_TEXT = 100_000  # rows that are written as text together


class RowFile(Protocol):
    """A file of rows."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""

    def close(self) -> None:
        """Write what waits."""


class ResultFolder:
    """A folder that is being written: `with` it, or none of it remains."""

    def __init__(self, path: str, columns: pa.Schema, overwrite: bool = False) -> None:
        kind = format_of(path)
        self._path, self._overwrite = path, overwrite
        self._place = Path(plain_path(path)).resolve()
        self._draft, self._lock = _new_folder(self._place, path)
        name = self._draft / f"part-00000.{'snappy.parquet' if kind == 'parquet' else kind}"
        self._part = name
        try:
            self._file: RowFile = _FILES[kind](name, columns)
        except BaseException as error:
            shutil.rmtree(self._draft, ignore_errors=True)
            self._unlock()
            if isinstance(error, OSError):
                raise self._failed(error) from None
            raise
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="weft-writer")
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._draft.exists():  # nothing was committed
            with suppress(Exception):
                self._file.close()
            shutil.rmtree(self._draft, ignore_errors=True)
        self._unlock()

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, written while the caller goes on; at most one batch waits. Raises PipelineError."""
        if rows.num_rows:
            self._settle()
            self._pending = self._pool.submit(self._file.write, rows)

    def commit(self) -> None:
        """Give the folder its name. Raises PipelineError, also if another has it by now."""
        self._settle()
        try:
            self._file.close()
            _sync(self._part)
            (self._draft / "_SUCCESS").touch()
            _sync(self._draft)
            self._set_aside()
            os.rename(self._draft, self._place)
            _sync(self._place.parent)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None
        _remove_leftovers(self._place)

    def _set_aside(self) -> None:
        """Move what has the name out of the way."""
        if not self._place.exists():
            return
        if not self._overwrite:
            if not self._place.is_dir() or any(self._place.iterdir()):
                raise taken(self._path)
            self._place.rmdir()
        else:
            os.rename(self._place, self._draft.with_name(self._draft.name + "-old"))

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def _settle(self) -> None:
        try:
            if self._pending is not None:
                self._pending.result()
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from None
        except PipelineError as error:
            raise PipelineError(f"{self._path}: {error}") from None
        finally:
            self._pending = None

    def _failed(self, error: Exception) -> PipelineError:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        return PipelineError(f"{self._path} cannot be written: {why}")


def _new_folder(place: Path, path: str) -> tuple[Path, int | None]:
    """A hidden folder beside a place, and the lock that shows that a process is writing in it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            draft = place.with_name(f".{place.name}.weft-{os.getpid()}-{number}")
            with suppress(FileExistsError):
                draft.mkdir()
                lock = _locked(draft, wait=True)
                if draft.exists():  # else another run took it for a leftover
                    return draft, lock
            number += 1
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror}") from None


def _locked(folder: Path, wait: bool = False) -> int | None:
    """The lock of a folder, until its process ends; None if another process has it, or there is none."""
    if sys.platform == "win32":  # which has no such locks
        return None
    import fcntl

    with suppress(OSError), ExitStack() as stack:
        handle = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        stack.pop_all()
        return handle
    return None


def _remove_leftovers(place: Path) -> None:
    """Remove results that were replaced, and what is left of runs that were killed."""
    for left in place.parent.glob(f".{escape(place.name)}.weft-*"):
        if left.name.endswith("-old"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        elif (lock := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _sync(path: Path) -> None:
    """Put a file or the names of a folder on disk, where the system lets us."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# -- formats ---------------------------------------------------------------------------------------------


class _ParquetFile:
    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self._columns = columns
        self._writer = pq.ParquetWriter(path, columns)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _GROUP or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).cast(self._columns)
            self._writer.write_table(table, row_group_size=max(self._rows, 1))
        self._waiting, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _TextFile:
    """Lines of text, made column by column."""

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self._columns = columns
        self._file = path.open("wb")

    def write(self, rows: pa.RecordBatch) -> None:
        for first in range(0, rows.num_rows, _ROWS_TEXT):
            some = rows.slice(first, _ROWS_TEXT)
            lines = self._lines(some.columns)
            self._file.write(_bytes_of(lines))

    def _lines(self, columns: list[Any]) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._file.close()


class _JsonFile(_TextFile):
    def _lines(self, columns: list[Any]) -> Any:
        parts: list[Any] = []
        for place, (name, column) in enumerate(zip(self._columns.names, columns, strict=True)):
            parts += [f"{',' if place else '{'}{string_text(name)}:", json_column(column)]
        return pc.binary_join_element_wise(*parts, "}\n", "")


class _CsvFile(_TextFile):
    def __init__(self, path: Path, columns: pa.Schema) -> None:
        for field in columns:
            csv_column(pa.array([], field.type))  # it can be written
        super().__init__(path, columns)
        names = csv_column(pa.array(columns.names, pa.string())).to_pylist()
        self._file.write((",".join(names) + "\n").encode())

    def _lines(self, columns: list[Any]) -> Any:
        parts: list[Any] = []
        for place, column in enumerate(columns):
            parts += [",", csv_column(column)] if place else [csv_column(column)]
        return pc.binary_join_element_wise(*parts, "\n", "")


_FILES: dict[str, Callable[[Path, pa.Schema], RowFile]] = {
    "parquet": _ParquetFile,
    "csv": _CsvFile,
    "json": _JsonFile,
}


def _bytes_of(texts: Any) -> Any:
    """All texts of a column, one after another."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if not len(texts):
        return b""
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(texts.type) else "i")
    return memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]
