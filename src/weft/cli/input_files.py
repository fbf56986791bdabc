"""Files that users name, read within a bound. A file may be a pipe or a device without an end, and a Parquet file may
decode to ten thousand times its size: either is refused before it has taken all memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from weft.errors import WeftError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

T = TypeVar("T")

MOST_BYTES = 1 << 30  # of a file, and of what a Parquet file decodes to
_MOST_PIPED = 1 << 28  # bytes of a pipe or a device
_BATCH_BYTES = 1 << 24  # of a batch of rows, as far as the file's own figures are right
_LEAST_ROWS, _MOST_ROWS = 64, 1 << 16  # of a batch


def standard_input() -> bytes:
    """The bytes of standard input. Raises WeftError if there are too many."""
    import typer

    return _bounded(typer.get_binary_stream("stdin"), "standard input", WeftError)


def read_bytes(path: str, stdin: Callable[[], bytes], error: type[WeftError]) -> bytes:
    """The bytes of a file, or with `-` of standard input. Raises OSError, or `error` if there are too many."""
    if path == "-":
        return stdin()
    with Path(path).open("rb") as file:
        return _bounded(file, path, error)


def _bounded(file: BinaryIO, name: str, error: type[WeftError]) -> bytes:
    try:
        found = os.fstat(file.fileno())
    except (OSError, AttributeError):  # it is in memory
        return file.read()
    most = MOST_BYTES if stat.S_ISREG(found.st_mode) else _MOST_PIPED
    data = b"" if stat.S_ISREG(found.st_mode) and found.st_size > most else file.read(most + 1)
    if len(data) > most or (not data and found.st_size > most):
        raise error(f"{name} has more than {most:,} bytes; split it")
    return data


def open_table(path: str, error: type[WeftError]) -> BinaryIO:
    """A file of rows, opened for reading. Raises OSError, or `error` if it is a pipe or a device."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(handle, "rb")  # a pipe is opened without waiting for its other end
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise error(f"{path} is not a regular file; save the rows to one first")
    return file


class ParquetRows:
    """The rows of a Parquet file, batch by batch. What cannot be read raises `error`, with the file's name.

    Strings are read as dictionaries, so that one that is repeated takes memory once, and then decoded if there is room.
    """

    def __init__(self, file: BinaryIO, path: str, error: type[WeftError]) -> None:
        self._path, self._error = path, error
        self._file, self.schema = self._reading(lambda: _opened(file))

    def batches(self, columns: Collection[str] | None = None, together: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows in batches, of some columns; `together` in a batch, or as many as are reasonable. More than
        MOST_BYTES, decoded, are an error.
        """
        wanted, size = None if columns is None else list(columns), together or self._rows_together()
        batches = self._reading(lambda: self._file.iter_batches(size, columns=wanted))
        total = 0
        while (batch := self._reading(lambda: next(batches, None))) is not None:
            total += sum(map(_decoded_size, batch.columns))
            if total > MOST_BYTES:
                raise self._error(f"{self._path} decodes to more than {MOST_BYTES:,} bytes; split it")
            yield self._reading(lambda: self._decoded(batch))

    def table(self) -> pa.Table:
        """All rows."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema.remove_metadata())

    def head(self) -> pa.Table:
        """A few rows, which have all columns."""
        import pyarrow as pa

        return pa.Table.from_batches(islice(self.batches(together=_LEAST_ROWS), 1), self.schema.remove_metadata())

    def _rows_together(self) -> int:
        """How many rows are decoded at once: few, if the file says that rows are large."""
        about = self._file.metadata
        size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        return max(_LEAST_ROWS, min(_MOST_ROWS, _BATCH_BYTES * about.num_rows // max(1, size)))

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        kinds = [self.schema.field(name).type for name in batch.schema.names] if self._unique else batch.schema.types
        columns = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(batch.columns, kinds, strict=True)
        ]
        fields = [pa.field(name, kind) for name, kind in zip(batch.schema.names, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    @property
    def _unique(self) -> bool:
        return len({*self.schema.names}) == len(self.schema.names)

    def _reading(self, read: Callable[[], T]) -> T:
        import pyarrow as pa

        try:
            return read()
        except MemoryError:  # Arrow's is one, too
            raise self._error(f"{self._path} takes more memory than there is; split it") from None
        except (pa.ArrowException, OSError, ValueError) as error:  # a page that is damaged is an OSError
            raise self._error(f"{self._path} is not a Parquet file, or is damaged: {error}") from None


def _opened(file: BinaryIO) -> tuple[parquet.ParquetFile, pa.Schema]:
    """A file whose columns of strings are read as dictionaries, and the schema that it has otherwise."""
    import pyarrow as pa
    from pyarrow import parquet

    found = parquet.ParquetFile(file)
    schema: pa.Schema = found.schema_arrow
    texts = [each.name for each in schema if pa.types.is_string(each.type) or pa.types.is_binary(each.type)]
    if not texts or len({*schema.names}) < len(schema.names):
        return found, schema
    return parquet.ParquetFile(file, read_dictionary=texts), schema


def _decoded_size(column: Any) -> int:
    """The bytes of a column when a dictionary of strings is decoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_a = pa.types
    if not is_a.is_dictionary(column.type):
        return int(column.nbytes)
    if not is_a.is_string(column.type.value_type) and not is_a.is_binary(column.type.value_type):
        return int(column.nbytes)
    lengths = pc.call_function("binary_length", [column.dictionary]).cast(pa.int64())
    return int(column.indices.nbytes) + int(pc.call_function("sum", [lengths.take(column.indices)]).as_py() or 0)
