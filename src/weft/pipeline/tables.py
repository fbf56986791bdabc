"""Tables in files of this machine. A line that cannot be read fails no job, and is set aside. Rows come in batches, so
that no more than one is in memory.

Which files a path names, which columns they have and what their values are is what `weft.spark.files.read_frame` says:
hidden files are left out, folders such as `day=7` are columns, all files of a folder determine the columns.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.model.value import Type
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.csv_lines import CsvLines, CsvReader, cells, is_blank
from weft.pipeline.file_names import format_of, open_unpacked, plain_path
from weft.pipeline.json_lines import JsonLines, JsonReader
from weft.pipeline.text_values import DECLARED, DOUBLE, NULL, STRING, TIMESTAMP, ArrowKind, kind_of, reader_of, united

_BLOCK = 4 << 20  # bytes of lines that are read together, about
_ROWS = 1 << 16  # of a Parquet file, that are read together
_BOM = b"\xef\xbb\xbf"
_NOWHERE = "__HIVE_DEFAULT_PARTITION__"
_WRITE_LINES = "write one JSON object per line, or CSV with a header"


class DataFile(NamedTuple):
    """A file, and the values that the folders around it state."""

    path: Path
    stated: dict[str, str]


class TableRows(NamedTuple):
    """Some rows of a table, and lines among them that cannot be read."""

    rows: pa.RecordBatch
    corrupt: list[str]


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table: its format, its columns, and how its rows are read, any number of times."""

    path: str
    format: str
    columns: pa.Schema
    files: tuple[DataFile, ...]
    data: pa.Schema  # the columns that are in the files
    unused: tuple[str, ...] = ()  # keys of JSON that are no columns

    def __iter__(self) -> Iterator[TableRows]:
        for file in self.files:
            with _named(file.path):
                for rows, corrupt in self._rows(file.path):
                    yield TableRows(self._stated(rows, file.stated), corrupt)

    def _rows(self, path: Path) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
        if self.format == "parquet":
            for batch in _parquet_batches(path):
                yield _conformed(batch, self.data), []
            return
        if self.format == "json":
            reader = JsonReader(self.data, self.unused)
            for block in _blocks(path):
                yield reader.read(block)
            return
        for block in _csv_blocks(path, self.data.names):
            yield CsvReader(self.data).read(block)

    def _stated(self, rows: pa.RecordBatch, stated: dict[str, str]) -> pa.RecordBatch:
        """The rows with the columns that folders state."""
        if self.columns is self.data:
            return rows
        arrays = []
        for field in self.columns:
            if field.name in stated:
                text = stated[field.name]
                value = None if text == _NOWHERE else _stated_reader(field.type)(text)
                arrays.append(pa.array([value], field.type).take(pa.array([0] * rows.num_rows, pa.int8())))
            else:
                arrays.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)

    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.path.stat().st_size for file in self.files)


def open_table(path: str, schema: Schema | None = None) -> FileTable:
    """The table of a file, a folder or a pattern. Raises PipelineError.

    Columns of CSV and JSON have the types that a schema declares, or else a type that fits all values. Cost: these are
    read as a whole to find the types.
    """
    kind = format_of(path)
    files = table_files(path)
    unused: tuple[str, ...] = ()
    with _named(Path(path)):
        if kind == "parquet":
            files = [file for file in files if file.path.stat().st_size]
            data = _parquet_columns(path, files)
        else:
            found, unused = _line_columns(path, kind, files)
            data = _declared(found, schema)
    stated = {name: [file.stated[name] for file in files] for name in (files[0].stated if files else ())}
    if not stated:
        return FileTable(path, kind, data, tuple(files), data, unused)
    others = [field for field in data if field.name not in stated]
    parts = [pa.field(name, _stated_kind(texts)) for name, texts in stated.items()]
    return FileTable(path, kind, pa.schema([*others, *parts]), tuple(files), data, unused)


# -- files ---------------------------------------------------------------------------------------------


def table_files(path: str) -> list[DataFile]:
    """The files that a path names, in order. Raises PipelineError if there is nothing of this name."""
    plain = plain_path(path)
    roots = (
        [Path(plain)] if Path(plain).exists() else [Path(name) for each in _alternatives(plain) for name in glob(each)]
    )
    if not roots:
        raise PipelineError(f"there is no file {path}")
    if has_magic(plain) and not Path(plain).exists():
        roots = [root for root in roots if not _is_hidden(root.name)]
    return sorted(file for root in roots for file in _files_of(path, root))


def _alternatives(path: str) -> list[str]:
    """The patterns that a pattern with {a,b} stands for."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        return [path]
    return [
        each
        for choice in found[1].split(",")
        for each in _alternatives(path[: found.start()] + choice + path[found.end() :])
    ]


def _files_of(path: str, root: Path) -> list[DataFile]:
    if root.is_file():
        return [DataFile(root, {})]
    beside = [each for each in root.iterdir() if not _is_hidden(each.name)]
    here = [DataFile(each, {}) for each in beside if each.is_file()]
    below: list[DataFile] = []
    for folder in beside:
        name, sign, value = folder.name.partition("=")
        if folder.is_dir() and sign and name:
            inside = _files_of(path, folder)
            below += [DataFile(file.path, {unquote(name): unquote(value), **file.stated}) for file in inside]
    if below and (here or len({tuple(file.stated) for file in below}) > 1):
        raise PipelineError(f"{path}: its folders state different columns: name one of them")
    return below or here


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Failures to read a file become PipelineErrors that name it."""
    try:
        yield
    except PermissionError:
        raise PipelineError(f"{path} cannot be read: permission denied") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise PipelineError(f"{path} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from None


# -- lines ---------------------------------------------------------------------------------------------


def _blocks(path: Path) -> Iterator[bytes]:
    """The lines of a file, many at a time; each ends with a newline, whatever it ends with in the file."""
    with open_unpacked(path) as file:
        waiting: list[bytes] = []
        first = True
        while chunk := file.read(_BLOCK):
            if first:
                chunk, first = chunk.removeprefix(_BOM), False
            if waiting and waiting[-1].endswith(b"\r"):
                chunk = waiting.pop() + chunk
            carried = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk.removesuffix(b"\r")
            if b"\r" in chunk:
                chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            end = chunk.rfind(b"\n") + 1
            if end:
                yield b"".join([*waiting, chunk[:end]])
                waiting = []
            if rest := chunk[end:] + carried:
                waiting.append(rest)
        if last := b"".join(waiting):
            yield last.removesuffix(b"\r") + b"\n"


def _csv_blocks(path: Path, names: list[str] | None = None) -> Iterator[bytes]:
    """The lines below the header, which is checked if names are given; else the header comes first, alone."""
    seen = False
    for raw in _blocks(path):
        try:
            raw.decode()
            block = raw
        except UnicodeDecodeError:
            block = raw.decode("utf-8", "replace").encode()
        if seen:
            yield block
            continue
        lines = block.split(b"\n")
        at = next((at for at, line in enumerate(lines) if not is_blank(line.decode())), None)
        if at is None:
            continue
        seen = True
        if names is None:
            yield lines[at]
        elif (found := cells(lines[at].decode())) != names:
            raise _other_header(path, found, names)
        yield b"\n".join(lines[at + 1 :])


def _other_header(path: Path, found: list[str], names: list[str]) -> PipelineError:
    return PipelineError(
        f"{path} cannot be read: its CSV header does not conform to the schema: it has {', '.join(found)}, and "
        f"{', '.join(names)} are expected"
    )


def _line_columns(path: str, kind: str, files: list[DataFile]) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns of CSV or JSON files, and the keys that are no columns. Raises PipelineError if there are none."""
    if kind == "json":
        lines = JsonLines()
        for file in files:
            with _named(file.path):
                for block in _blocks(file.path):
                    lines.learn(block)
        columns = lines.columns()
        found = pa.schema([field for field in columns if field.name != CORRUPT])
        if not len(found):
            what = "no readable line" if lines.corrupt else "no rows"
            raise PipelineError(f"{path} has {what}: {_WRITE_LINES}")
        return found, tuple(name for name in lines.fields if name not in found.names)
    known: CsvLines | None = None
    for file in files:
        with _named(file.path):
            blocks = _csv_blocks(file.path)
            header = next(blocks, None)
            if header is None:
                continue
            if known is None:
                known = CsvLines(header.decode())
            for block in blocks:
                known.learn(block)
    if known is None:
        raise PipelineError(f"{path} has no rows: {_WRITE_LINES}")
    if len({*known.names}) < len(known.names) or "" in known.names:
        raise PipelineError(f"{path} cannot be read: its CSV header has a column without a name, or a name twice")
    return known.columns(), ()


def _declared(found: pa.Schema, schema: Schema | None) -> pa.Schema:
    """The columns with the types that a schema declares."""

    def kind_at(name: str, kind: ArrowKind) -> ArrowKind:
        nested = pa.types.is_struct(kind)
        if schema is not None and name in schema and (not nested or schema[name].type is Type.STRING):
            return DECLARED[schema[name].type]
        if nested:
            return pa.struct([(field.name, kind_at(f"{name}.{field.name}", field.type)) for field in kind])
        return kind

    return pa.schema([(field.name, kind_at(field.name, field.type)) for field in found])


# -- what folders state ----------------------------------------------------------------------------------


def _stated_kind(texts: list[str]) -> ArrowKind:
    """The type of a column whose values are names of folders."""
    kinds = {_stated_kind_of(text) for text in texts}
    made = (
        reduce(united, kinds)
        if not any(pa.types.is_date(kind) for kind in kinds) or len(kinds - {NULL}) > 1
        else pa.date32()
    )
    return STRING if pa.types.is_null(made) else made


def _stated_kind_of(text: str) -> ArrowKind:
    if text == _NOWHERE:
        return NULL
    kind = kind_of(text)
    if kind == TIMESTAMP:
        return pa.date32() if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else STRING
    return kind if kind == DOUBLE or pa.types.is_integer(kind) or pa.types.is_decimal(kind) else STRING


def _stated_reader(kind: ArrowKind) -> Callable[[str], Any]:
    if pa.types.is_date(kind):
        return lambda text: (reader_of(TIMESTAMP)(text) or 0) // 86_400_000_000
    return reader_of(kind)


# -- Parquet ---------------------------------------------------------------------------------------------


def _parquet_columns(path: str, files: list[DataFile]) -> pa.Schema:
    """The columns of all files together. Raises PipelineError."""
    kinds: dict[str, ArrowKind] = {}
    for file in files:
        with _named(file.path):
            try:
                opened = _open_parquet(file.path)
            except pa.ArrowInvalid:
                raise PipelineError(f"{file.path} is not a Parquet file") from None
            with opened:
                found, leaves = opened.schema_arrow, opened.schema
                moments = {
                    leaf.path for leaf in map(leaves.column, range(len(leaves))) if leaf.physical_type == "INT96"
                }
        for field in found:
            kind = _plain_kind(field.type, field.name, moments)
            if found.names.count(field.name) > 1:
                raise PipelineError(f"there are two columns {field.name!r}: rename one")
            both = _joined(kinds.get(field.name, NULL), kind)
            if both is None:
                raise PipelineError(
                    f"{path} cannot be read: the column {field.name!r} is {kinds[field.name]} in one file and {kind} "
                    "in another"
                )
            kinds[field.name] = both
    if not kinds:
        raise PipelineError(f"{path} has no rows")
    return pa.schema([(name, _without_nulls(kind)) for name, kind in kinds.items()])


def _joined(one: ArrowKind, other: ArrowKind) -> ArrowKind | None:
    """The type of a column that has two types in two files; None if there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if not (pa.types.is_struct(one) and pa.types.is_struct(other)):
        return None
    fields = {field.name: field.type for field in one}
    for field in other:
        both = _joined(fields.get(field.name, NULL), field.type)
        if both is None:
            return None
        fields[field.name] = both
    return pa.struct(list(fields.items()))


def _plain_kind(kind: Any, path: str, moments: Collection[str]) -> ArrowKind:
    """The type in which values of a type are held: as Spark does, which has fewer types.

    `moments` are the paths of timestamps in the form that Spark and Hive write: these are UTC.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_kind(kind.storage_type, path, moments)
    if pa.types.is_dictionary(kind):
        return _plain_kind(kind.value_type, path, moments)
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[kind.bit_width]
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is not None or path in moments else pa.timestamp("us")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return STRING
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain_kind(field.type, f"{path}.{field.name}", moments)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_kind(kind.value_type, f"{path}.list.element", moments))
    return kind


def _without_nulls(kind: Any) -> ArrowKind:
    """The type of a column that has no value in any file: Spark takes it for integers."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_nulls(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    return pa.int32() if pa.types.is_null(kind) else kind


def _open_parquet(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")  # nanoseconds would end in 2262


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with _open_parquet(path) as file:
        yield from file.iter_batches(_ROWS, use_threads=True)


def _conformed(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """A batch with all columns of a table, in their types."""
    if batch.schema.equals(columns):
        return batch
    arrays = [
        _held(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _held(array: Any, kind: ArrowKind) -> Any:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        parts = [
            _held(array.field(field.name), field.type) if field.name in names else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    return array.cast(kind, safe=not (pa.types.is_timestamp(kind) or pa.types.is_list(kind)))
