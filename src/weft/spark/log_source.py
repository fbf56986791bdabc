"""`spark.read.format("weft")` and `spark.readStream.format("weft")`: the events of a broker's log as a table. The rows
between two offsets are always the same. Events that were removed before they were read are an error, not a gap.

`weft.spark.register` makes the format known. The option `path` is a broker's data directory, which is opened to be read
only, also while the broker runs; the machine must be the broker's. The option `url` is the address of a running broker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from weft.errors import LogError, PipelineError
from weft.log.base import Offset
from weft.log.opening import read_schema_text
from weft.log.rows import read_meta, read_tip
from weft.log.schema import DAMAGE, DATABASE, check_format, open_reader, unreadable
from weft.log.sqlite import SqliteReader
from weft.model.schema import Schema, did_you_mean
from weft.pipeline.file_names import plain_path
from weft.spark.broker_log import BrokerLog
from weft.spark.broker_target import BrokerTarget, check_publishable
from weft.spark.log_columns import LogColumns, LogEvent, events_of, inferred

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OPTIONS = (
    *("path", "url", "name", "token", "tokenfile", "authority", "patience", "order", "staging"),
    *("first", "maxrows", "rowsperpartition", "failondataloss"),
)
_SPARKS = ("checkpointlocation", "queryname", "outputmode", "__partition_columns")  # options of every query
_LOOKED_AT = 10_000  # events by which types are inferred
_ROWS = 50_000  # events of a partition
_MOST = 1_000_000  # events of a micro-batch, unless told otherwise


@dataclass(frozen=True)
class LogSlice(InputPartition):
    """The events from one offset to before another."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log in a data directory, read while its broker may be running."""

    directory: str

    @property
    def path(self) -> Path:
        """The database. Raises PipelineError if there is none."""
        path = Path(plain_path(self.directory), DATABASE)
        if not path.exists():
            raise PipelineError(f"{self.directory} has no log: there is no {DATABASE} in it")
        return path

    def position(self) -> tuple[str, int, int]:
        """The log's id, the offset of the oldest event that is stored, and the next offset. Raises LogError."""
        path = self.path
        try:
            with closing(open_reader(path)) as connection:
                connection.execute("BEGIN")
                check_format(connection, path)
                log_id = read_meta(connection)["weft.log"].decode("ascii")
                after = int(read_tip(connection)[0].next)
                oldest = connection.execute("SELECT min(first) FROM grp").fetchone()[0]
        except (*DAMAGE, KeyError, sqlite3.Error) as error:
            raise unreadable(path, error) from error
        return log_id, after if oldest is None else int(oldest), after

    def schema(self) -> Schema | None:
        """The event schema that the log was made with."""
        with closing(open_reader(self.path)) as connection:
            return read_schema_text(read_meta(connection)["weft.schema"].decode())

    def read(self, first: int, end: int) -> Iterator[LogEvent]:
        """The events from one offset to before another, in order."""
        with closing(SqliteReader(self.path)) as reader:
            for group in reader.read(Offset(first), end - first):
                yield from (event for event in events_of(group) if event.offset < end)

    def read_all(self, first: int, end: int) -> Iterator[LogEvent]:
        """The same. Raises LogError if the oldest of them were removed, perhaps while they were read."""
        yield from self.read(first, end)
        self.check_stored(first, end)

    def check_stored(self, first: int, end: int) -> str:
        """The log's id. Raises LogError if events from an offset on, before another, are no longer stored."""
        log_id, oldest, _ = self.position()
        if first < min(oldest, end):
            raise LogError(
                f"the events from offset {first} to {min(oldest, end) - 1} were removed from the log before they were "
                "read; set the option failOnDataLoss to false to go on without them"
            )
        return log_id


class WeftSource(DataSource):
    """The format `weft`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options: MutableMapping[str, str] = dict(options.items())
        known = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS}
        for name in known:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or f": use {', '.join(_OPTIONS)}"
                raise PipelineError(f"the format weft has no option {name!r}{hint}")
        if ("path" in known) == ("url" in known):
            raise PipelineError("name the broker's data directory with the option 'path', or its address with 'url'")
        self._target = BrokerTarget(
            known.get("url", ""),
            known.get("name", ""),
            known.get("token", ""),
            known.get("tokenfile", ""),
            known.get("authority", ""),
            float(_number(known, "patience", 30)),
        )
        self._log: LogFile | BrokerLog = LogFile(known["path"]) if "path" in known else BrokerLog(self._target)
        self._order = known.get("order", "")
        self._staging = known.get("staging") or _given(options, "checkpointlocation")
        self._first = _number(known, "first", 0)
        self._most = _number(known, "maxrows", _MOST)
        self._rows = _number(known, "rowsperpartition", _ROWS)
        self._strict = known.get("failondataloss", "true").lower() != "false"

    @classmethod
    def name(cls) -> str:
        """As in `format("weft")`."""
        return "weft"

    def schema(self) -> str:
        """The attributes, as the log declares them or its oldest events have them, and the columns about the log."""
        _, oldest, end = self._log.position()
        events = islice(self._log.read(oldest, end), _LOOKED_AT)
        return LogColumns.all(inferred(events, self._log.schema())).ddl()

    def reader(self, schema: StructType) -> LogReader:
        """For a batch: the events that are stored now."""
        return LogReader(self._log, _columns(schema), self._first, self._rows)

    def streamReader(self, schema: StructType) -> LogStream:  # noqa: N802 - Spark's name
        """For a stream: the events that are stored, and then those that come."""
        log = replace(self._log, patient=True) if isinstance(self._log, BrokerLog) else self._log
        return LogStream(log, _columns(schema), self._first, self._rows, self._most, self._strict)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - a log has no such thing
        """For a batch: publish its rows."""
        from weft.spark.broker_writer import BrokerWriter

        return BrokerWriter(self._publisher(schema), self._order)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        """For a stream: publish its rows."""
        from weft.spark.broker_writer import BrokerStreamWriter

        return BrokerStreamWriter(self._publisher(schema), self._staging, self._order)

    def _publisher(self, schema: StructType) -> BrokerTarget:
        if not self._target.address:
            raise PipelineError("rows are published into a running broker: give its address with the option 'url'")
        check_publishable((field.name, field.dataType) for field in schema.fields)
        if self._order and self._order not in schema.fieldNames():
            hint = did_you_mean(self._order, schema.fieldNames()) or f", only {', '.join(schema.fieldNames())}"
            raise PipelineError(f"the rows have no column {self._order!r} to be ordered by{hint}")
        return self._target


class LogReader(DataSourceReader):
    """A batch over a log."""

    def __init__(self, log: LogFile | BrokerLog, columns: LogColumns, first: int, rows: int) -> None:
        self._log, self._columns, self._first, self._rows = log, columns, first, rows

    def partitions(self) -> Sequence[LogSlice]:
        """Slices of what is stored now."""
        _, oldest, end = self._log.position()
        return slices(max(oldest, self._first), end, self._rows) or [LogSlice(end, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a slice."""
        assert isinstance(partition, LogSlice)
        yield from self._columns.batches(self._log.read(partition.first, partition.end))


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over a log; its position is the next offset, and the log that it is of.

    With the trigger `availableNow` it ends where the log ended when the query began, after as many micro-batches as
    that takes.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its options
        self, log: LogFile | BrokerLog, columns: LogColumns, first: int, rows: int, most: int, strict: bool
    ) -> None:
        self._log, self._columns, self._first = log, columns, first
        self._rows, self._most, self._strict = rows, most, strict
        self._until: int | None = None  # where it ends

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what is stored now, and no more."""
        self._until = self._log.position()[2]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The oldest event that is stored, or the first that is wanted."""
        log_id, oldest, _ = self._log.position()
        return {"log": log_id, "next": max(oldest, self._first)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of events in a micro-batch."""
        return ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends."""
        log_id, _, end = self._log.position()
        self._check_log(start, log_id)
        end = end if self._until is None else min(end, self._until)
        most = end if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self._most)
        return {"log": log_id, "next": max(start["next"], min(end, start["next"] + most))}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the log ends."""
        log_id, _, end = self._log.position()
        return {"log": log_id, "next": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LogSlice]:
        """Slices of the events between two positions, the same at every call."""
        check = self._log.check_stored if self._strict else lambda *_: self._log.position()[0]
        self._check_log(start, check(start["next"], end["next"]))
        return slices(start["next"], end["next"], self._rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a slice."""
        assert isinstance(partition, LogSlice)
        read = self._log.read_all if self._strict else self._log.read
        yield from self._columns.batches(read(partition.first, partition.end))

    def _check_log(self, start: dict[str, Any], log_id: str) -> None:
        if start["log"] != log_id:
            raise LogError("the log is not the one that this stream began with: use another checkpoint")


def slices(first: int, end: int, rows: int) -> list[LogSlice]:
    """A range of offsets in slices of a given size.

    >>> [(each.first, each.end) for each in slices(5, 12, 3)]
    [(5, 8), (8, 11), (11, 12)]
    """
    return [LogSlice(at, min(at + rows, end)) for at in range(first, end, rows)]


def _columns(schema: StructType) -> LogColumns:
    return LogColumns.of([(field.name, field.dataType.simpleString()) for field in schema.fields])


def _given(options: Mapping[str, str], wanted: str) -> str:
    return next((value for name, value in options.items() if name.lower() == wanted), "")


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or (name != "first" and text == "0"):
        raise PipelineError(f"the option {name} of the format weft is a number, not {text!r}")
    return int(text)
