"""Lines of CSV as rows, under a header. Every line is a row, nothing (a blank line) or an error.

The rules are those of Spark's reader: a line ends a row, whatever its quotes; an empty cell, quoted or not, is NULL; a
line with more or fewer cells than the header, or with a cell that does not fit its column, is an error, but has its say
in the types of columns. Blocks without odd quotes are read by Arrow, others line by line.
"""

from __future__ import annotations

import io
import re
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from weft.pipeline.text_values import NULL, STRING, ArrowKind, column_kind, converted, reader_of, widened

_TRIMMED = "".join(map(chr, range(33)))  # what Java trims
_WELL_QUOTED = re.compile(rb'(?:(?>"(?:[^"\n]++|"")*+"|[^",\n]*+)(?:,|\n|\Z))*+')


class CsvRows(NamedTuple):
    """The rows of some lines, and the lines that cannot be read."""

    rows: pa.RecordBatch
    corrupt: list[str]


def cells(line: str) -> list[str]:
    """The cells of a line.

    >>> cells('a,"b, ""c"" d",,"e"f')
    ['a', 'b, "c" d', '', '"e"f']
    """
    if '"' not in line:
        return line.split(",")
    found: list[str] = []
    at = 0
    while True:
        if line[at : at + 1] == '"':
            text, at = _quoted(line, at + 1)
        else:
            end = line.find(",", at)
            end = len(line) if end < 0 else end
            text, at = line[at:end], end
        found.append(text)
        if at >= len(line):
            return found
        at += 1  # the comma


def _quoted(line: str, at: int) -> tuple[str, int]:
    """A cell from behind its first quote, and where it ends."""
    parts: list[str] = []
    while True:
        end = line.find('"', at)
        if end < 0:
            return "".join([*parts, line[at:]]) or '"', len(line)
        parts.append(line[at:end])
        if line[end + 1 : end + 2] == '"':
            parts.append('"')
            at = end + 2
            continue
        after = end + 1
        while after < len(line) and line[after] in " \t":
            after += 1
        if after >= len(line) or line[after] == ",":
            return "".join(parts), after
        stop = line.find(",", end)  # a quote that should have been written twice: the cell is taken as it is
        stop = len(line) if stop < 0 else stop
        return '"' + "".join(parts) + line[end:stop], stop


def is_blank(line: str) -> bool:
    """Whether a line is no row."""
    return not line.strip(_TRIMMED)


class CsvLines:
    """Lines of CSV under a header: their columns, as far as they are known."""

    def __init__(self, header: str) -> None:
        self.header = header
        self.names = cells(header)
        self.kinds: list[ArrowKind] = [NULL] * len(self.names)

    def learn(self, block: bytes) -> None:
        """Widen the types by the lines of a block."""
        head = self.header.encode()
        if head in block:  # further headers have no say
            block = b"\n".join(line for line in block.split(b"\n") if line != head)
        if all(kind == STRING for kind in self.kinds):
            return
        parsed = _parsed(block, len(self.names))
        if parsed is None:
            for line in block.decode().split("\n"):
                if not is_blank(line):
                    self._learn(cells(line))
            return
        columns, others = parsed
        self.kinds = [column_kind(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]
        for line in others:
            self._learn(cells(line))

    def _learn(self, row: list[str]) -> None:
        for place, (text, kind) in enumerate(zip(row, self.kinds, strict=False)):
            if kind != STRING and text:
                self.kinds[place] = widened(kind, text)

    def columns(self) -> pa.Schema:
        """The columns that were found."""
        kinds = (STRING if pa.types.is_null(kind) else kind for kind in self.kinds)
        return pa.schema(list(zip(self.names, kinds, strict=True)))


class CsvReader:
    """Reads blocks of lines as rows of given columns."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._readers = [reader_of(kind) for kind in columns.types]

    def read(self, block: bytes) -> CsvRows:
        """The rows of a block of whole lines."""
        parsed = _parsed(block, len(self._readers))
        if parsed is not None:
            columns, corrupt = parsed
            made = [converted(column, kind) for column, kind in zip(columns, self._columns.types, strict=True)]
            if all(bad is None for _, bad in made):
                return CsvRows(pa.RecordBatch.from_arrays([array for array, _ in made], schema=self._columns), corrupt)
        rows: list[list[Any]] = [[] for _ in self._readers]
        wrong: list[str] = []
        for line in block.decode().split("\n"):
            if is_blank(line):
                continue
            values = self._row(cells(line))
            if values is None:
                wrong.append(line)
                continue
            for column, value in zip(rows, values, strict=True):
                column.append(value)
        arrays = [pa.array(column, kind) for column, kind in zip(rows, self._columns.types, strict=True)]
        return CsvRows(pa.RecordBatch.from_arrays(arrays, schema=self._columns), wrong)

    def _row(self, row: list[str]) -> list[Any] | None:
        if len(row) != len(self._readers):
            return None
        values = [read(text) if text else None for read, text in zip(self._readers, row, strict=True)]
        fits = all(value is not None or not text for value, text in zip(values, row, strict=True))
        return values if fits else None


def _parsed(block: bytes, columns: int) -> tuple[list[Any], list[str]] | None:
    """The cells of a block by columns, and the lines with more or fewer; None if it must be read line by line."""
    if b'"' in block and (columns == 1 or _WELL_QUOTED.fullmatch(block) is None):
        return None
    if not block.strip():
        return [pa.array([], STRING)] * columns, []
    others: list[str] = []

    def wrong(row: csv.InvalidRow) -> Literal["skip"]:
        if not is_blank(row.text):
            others.append(row.text)
        return "skip"

    names = [f"c{place}" for place in range(columns)]
    try:
        table = csv.read_csv(
            io.BytesIO(block),
            csv.ReadOptions(use_threads=False, column_names=names, block_size=max(len(block), 1) + 1),
            csv.ParseOptions(newlines_in_values=False, invalid_row_handler=wrong),
            csv.ConvertOptions(column_types=dict.fromkeys(names, STRING), strings_can_be_null=False),
        ).combine_chunks()
    except pa.ArrowException:
        return None
    found: list[Any] = [column.chunk(0) if column.num_chunks else pa.array([], STRING) for column in table.columns]
    if columns == 1:
        kept = pc.not_equal(pc.utf8_trim(found[0], _TRIMMED), pa.scalar(""))
        found = [found[0].filter(kept)]
    return found, others
