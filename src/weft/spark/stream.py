"""Matching a stream of events while subscriptions change. Every event is matched once, with one version of the
subscriptions, which is recorded before. The output is the same whatever is killed and started again on the way.

Two queries run on one checkpoint: one turns commands into versions, the other matches events with the newest version.
Commands that are there when a stream starts are applied before its first events.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from weft.errors import LogError, PipelineError
from weft.log.data_directory import DirectoryLock
from weft.model.schema import Schema, did_you_mean
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.file_names import plain_path
from weft.pipeline.output import ResultForm
from weft.spark.batch_folder import BatchFolders
from weft.spark.events import check_frame, judged, quoted
from weft.spark.failures import failures, is_late_worker
from weft.spark.frames import result_schema
from weft.spark.stream_batches import COMMANDS, DRIVER_ROWS, INITIAL, Sink, StreamBatches, StreamOutput
from weft.spark.stream_commands import CommandColumns
from weft.spark.stream_journal import BatchMetrics, StreamJournal, read_metrics
from weft.spark.subscription_changes import write_file
from weft.spark.subscription_versions import SubscriptionVersions
from weft.spark.subscriptions import Subscriptions, subscriptions
from weft.spark.workers import check_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL = 0.5  # seconds between looks at two queries
_COMMIT = 60.0  # seconds that a stop waits for Spark to store that a micro-batch is done
RESTARTS = 5  # of queries, without a micro-batch in between
ABOUT = "_stream.json"  # in a folder of results: which stream's they are, and their columns
COMMANDS_EVERY = "1 second"  # they share the cores with the events


@dataclass(frozen=True, slots=True)
class Watermark:
    """Events are duplicates if they agree in `identity`; `time` and `delay` say for how long that is remembered.

    An event that is older than the newest `time` seen before, by more than `delay`, is late, and is left out. Events
    without an identity, in which one of its attributes is NULL, are all different.
    """

    delay: str  # as Spark writes it: '10 minutes'
    time: str = "time"
    identity: tuple[str, ...] = ("source", "id")


class MatchStream:
    """A running stream. It stops at its end, with `stop`, or when something fails, which `wait` raises."""

    def __init__(self, spark: SparkSession, batches: StreamBatches, lock: DirectoryLock) -> None:
        self._spark = spark
        self._batches = batches
        self._lock = lock
        self._queries: list[Any] = []
        self._starts: list[Callable[[], Any]] = []  # start each of them again, on its checkpoint
        self._note: Callable[[str], None] = logging.getLogger("weft.spark").warning
        self._closed = False
        self._restarts = 0  # since a micro-batch was finished last
        self._finished: int | None = None  # the micro-batch that was finished last when a query was started again

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the stream has ended, at most so long; returns whether it has. Raises PipelineError."""
        end = None if seconds is None else monotonic() + seconds
        with failures("the stream failed"):
            try:
                while self._go_on():
                    left = _POLL if end is None else min(_POLL, end - monotonic())
                    if left <= 0:
                        return False
                    with suppress(_query_error()):  # `_go_on` looks at it
                        self._queries[-1].awaitTermination(max(left, 0.001))  # Spark counts milliseconds
            except BaseException as error:
                self._close()
                self._raise_failure(error)
                if self._batches.stopping and isinstance(error, Exception):
                    return True  # a micro-batch that did not begin
                raise
        self._close()
        self._raise_failure(None)
        return True

    def _go_on(self) -> bool:
        """Whether a query has not ended. Raises what ended one, unless it may be started again."""
        active = False
        for place, query in enumerate(self._queries):
            if query.isActive:
                active = True
                continue
            try:
                query.awaitTermination()  # raises what ended it
            except _query_error() as error:
                if not self._may_restart(error):
                    raise
                self._batches.failure = None
                self._note(
                    f"Spark did not start a Python worker within 10 seconds, perhaps because the machine is busy: the "
                    f"query continues from its checkpoint (attempt {self._restarts} of {RESTARTS})"
                )
                self._queries[place] = self._starts[place]()
                active = True
        return active

    def _may_restart(self, error: Exception) -> bool:
        """Whether a query ended because Spark gave up on a worker, and not too often in a row."""
        if self._batches.stopping or not is_late_worker(error):
            return False
        if self._batches.last != self._finished:
            self._restarts, self._finished = 0, self._batches.last
        self._restarts += 1
        return self._restarts <= RESTARTS

    def _run(self, start: Callable[[], Any]) -> None:
        """Add a query that runs until the stream ends."""
        self._starts.append(start)
        self._queries.append(start())

    def _raise_failure(self, error: BaseException | None) -> None:
        """Raise PipelineError if a micro-batch failed; Spark does not always say so."""
        if self._batches.failure is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            raise PipelineError(f"the stream failed: {self._batches.failure}") from error

    def stop(self) -> None:
        """Stop after the micro-batch that is being worked on, when Spark has stored that it is done."""
        batches = self._batches
        with batches.working:
            batches.stopping = True
            if not self._closed:
                batches.await_commit(lambda: self._queries[-1].isActive, _COMMIT)
        self._close()

    @property
    def active(self) -> bool:
        """Whether micro-batches are still being made."""
        return any(query.isActive for query in self._queries)

    @property
    def version(self) -> int:
        """The newest version: how many commands have been read."""
        return self._batches.versions.newest

    @property
    def commands_left_out(self) -> int:
        """How many commands were set aside since the start; `weft.spark.stream_errors` has them with the reasons."""
        return self._batches.left_out[COMMANDS]

    @property
    def subscriptions_left_out(self) -> int:
        """How many of the subscriptions that a new stream began with were set aside."""
        return self._batches.left_out[INITIAL]

    def metrics(self) -> list[BatchMetrics]:
        """What every micro-batch did, the last 100,000 of them; `weft.spark.stream_metrics` has it as a table."""
        return read_metrics(self._batches.journal.path)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = self._batches.closing = True
        for query in self._queries:
            with suppress(Exception):  # it may have failed, which `wait` says
                query.stop()
        with suppress(Exception):
            self._batches.note_progress()
        self._batches.journal.close()
        self._lock.release()


def match_stream(  # noqa: PLR0913 - each has a default that serves
    events: DataFrame,
    commands: DataFrame | None,
    checkpoint: str | Path,
    sink: str | Path | Sink,
    *,
    initial: DataFrame | Subscriptions | None = None,
    schema: Schema | None = None,
    output: str = "pairs",
    carry: Sequence[str] | None = None,
    order: str | None = None,
    watermark: Watermark | None = None,
    once: bool = False,
    interval: str | None = None,
    tell: Callable[[BatchMetrics], None] | None = None,
    driver_rows: int = DRIVER_ROWS,
    note: Callable[[str], None] | None = None,
) -> MatchStream:
    """Start to match a stream of events with subscriptions that a stream of commands changes.

    `commands` has the columns `action` (subscribe, unsubscribe or replace), `id` and `filter`; `order` names the column
    by which the commands of a micro-batch are ordered. `initial` are the subscriptions that a new checkpoint begins
    with. `sink` is a folder, in which every micro-batch becomes a folder of parquet files at once, or a function of a
    DataFrame and the number of the micro-batch: it may be called again with the same rows and number after a failure.

    With `once` the stream ends when it has read what is there now. Otherwise it runs until it is stopped, and makes a
    micro-batch as soon as there are events, or every `interval` ('5 seconds'); commands are read every second, or every
    `interval`. `tell` is called after each micro-batch. `checkpoint` is a folder that the driver and all executors see.
    After a micro-batch of at most `driver_rows` rows, the driver matches the next one itself, which saves the time to
    start tasks on workers; 0 leaves all of them to the workers. `note` is called with a sentence if a query had to be
    started again, which `wait` does some times where Spark gave up on a Python worker; otherwise that is logged as a
    warning. Raises PipelineError.
    """
    spark = _checked(events, commands)
    folder = _local(checkpoint)
    columns = None if commands is None else CommandColumns.of(commands, order)
    given = None if initial is None else subscriptions(initial, schema)
    if isinstance(given, Path):
        raise PipelineError("a stream begins with a frame of subscriptions, not with a snapshot")
    numbered = columns.numbered if columns is not None else given.reading.numbered if given is not None else True
    if given is not None and given.reading.numbered != numbered:
        raise PipelineError("the ids of the initial subscriptions and of the commands differ in type: cast one")
    plain = deduplicated(events, watermark)
    made = _output(plain, numbered, folder, sink, ResultForm.of(output, _names(plain), carry))
    check_workers(spark)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = DirectoryLock(folder)
    except LogError as error:
        raise PipelineError(str(error)) from None
    journal = None
    try:
        journal = StreamJournal(folder)
        journal.agree("ids", "integers" if numbered else "strings", "ids that are")
        journal.agree("results", made.schema.simpleString(), "the results")
        journal.agree("schema", str(None if schema is None else schema.to_dict()), "the schema")
        if made.sink is None:
            _claim(made, journal.identity())
        elif hasattr(made.sink, "bound"):  # it must tell this stream from others
            made = replace(made, sink=made.sink.bound(journal.identity()))
        versions = SubscriptionVersions(folder / "versions", journal, numbered, schema)
        batches = StreamBatches(folder, journal, versions, made, tell, driver_rows=driver_rows)
        if versions.empty:
            boxes, refused = (None, 0) if given is None else given.gathered()
            if given is not None and refused:
                batches.refuse(INITIAL, 0, [(row.row, row.reason) for row in given.errors().collect()])
            versions.begin(boxes)
        stream = MatchStream(spark, batches, lock)
        if note is not None:
            stream._note = note
    except BaseException:
        if journal is not None:
            journal.close()
        lock.release()
        raise
    try:
        with failures("the stream cannot start"):
            _start(stream, plain, commands, columns, schema, folder, once, interval)
    except BaseException:
        stream._close()
        raise
    return stream


def deduplicated(events: DataFrame, watermark: Watermark | None) -> DataFrame:
    """The events without late ones and duplicates. Raises PipelineError if a column is missing."""
    if watermark is None:
        return events
    from pyspark.sql import functions as sf

    for name in (watermark.time, *watermark.identity):
        if name not in events.columns:
            hint = did_you_mean(name, _names(events)) or f", only {', '.join(_names(events))}"
            raise PipelineError(f"the events have no column {name!r}, which the watermark needs{hint}")
    kind = events.schema[watermark.time].dataType.simpleString()
    if kind != "timestamp":
        raise PipelineError(f"the column {watermark.time!r} of the watermark is of type {kind}: cast it to timestamp")
    parts = [sf.col(quoted(name)) for name in watermark.identity]
    known = sf.lit(True)
    for part in parts:
        known &= part.isNotNull()
    key = "__weft_identity"
    marked = events.withColumn(key, sf.when(known, sf.to_json(sf.struct(*parts))).otherwise(sf.uuid()))
    return marked.withWatermark(watermark.time, watermark.delay).dropDuplicatesWithinWatermark([key]).drop(key)


def _start(  # noqa: PLR0913, PLR0917 - what a stream consists of
    stream: MatchStream,
    events: DataFrame,
    commands: DataFrame | None,
    columns: CommandColumns | None,
    schema: Schema | None,
    folder: Path,
    once: bool,
    interval: str | None,
) -> None:
    batches = stream._batches
    if commands is not None and columns is not None:
        writer = columns.projected(commands).writeStream.foreachBatch(
            batches.guarded(partial(batches.commands, columns, schema))
        )
        writer = writer.option("checkpointLocation", str(folder / "commands"))
        writer.trigger(availableNow=True).start().awaitTermination()
        stream._raise_failure(None)
        if not once:
            stream._run(lambda: _triggered(writer, False, interval or COMMANDS_EVERY).start())
    query = judged(events).writeStream.foreachBatch(batches.guarded(batches.events))
    query = query.option("checkpointLocation", str(folder / "events"))
    stream._run(lambda: _triggered(query, once, interval).start())
    batches.progress = lambda: stream._queries[-1].lastProgress


def _query_error() -> type[Exception]:
    from pyspark.errors import StreamingQueryException

    return StreamingQueryException


def _triggered(writer: Any, once: bool, interval: str | None) -> Any:
    if once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=interval or "0 seconds")


def _checked(events: DataFrame, commands: DataFrame | None) -> SparkSession:
    check_frame(events, "events")
    if not events.isStreaming:
        raise PipelineError("the events are not a stream: read them with spark.readStream, or use match()")
    if commands is not None:
        check_frame(commands, "commands")
        if not commands.isStreaming:
            raise PipelineError("the commands are not a stream: read them with spark.readStream, or pass `initial`")
    if not hasattr(events.sparkSession, "_jsparkSession"):
        raise PipelineError("match_stream needs a session of its own, not Spark Connect: run it on the driver")
    return events.sparkSession


def _local(path: str | Path) -> Path:
    plain = plain_path(str(path))
    if "://" in plain:
        raise PipelineError(f"{path} is not a folder: name one that the driver and all executors see")
    return Path(plain).absolute()


def _names(events: DataFrame) -> list[str]:
    return [name for name in events.columns if name != CORRUPT]


def _output(events: DataFrame, numbered: bool, folder: Path, sink: str | Path | Sink, form: ResultForm) -> StreamOutput:
    schema = result_schema(form, events.drop(CORRUPT).schema, numbered)
    if callable(sink):
        return StreamOutput(BatchFolders(folder / "staged"), form, schema, sink)
    if "batch" in (name.lower() for name in schema.fieldNames()):
        raise PipelineError("the events have a column 'batch', which the results need: rename it, or do not carry it")
    return StreamOutput(BatchFolders(_local(sink)), form, schema)


def _claim(output: StreamOutput, identity: str) -> None:
    """Note in the folder whose results it has. Raises PipelineError if they are another stream's.

    Otherwise a new stream would take the micro-batches of the old one for its own, and skip them.
    """
    place = output.results.root
    place.mkdir(parents=True, exist_ok=True)
    stored = place / ABOUT
    if stored.exists():
        if json.loads(stored.read_text(encoding="utf-8"))["stream"] != identity:
            raise PipelineError(f"{place} has the results of another checkpoint: choose another folder")
    elif any(place.glob("batch=*")):
        raise PipelineError(f"{place} has results, but not those of a stream: choose another folder")
    else:
        write_file(stored, json.dumps({"stream": identity, "schema": output.schema.jsonValue()}).encode())
