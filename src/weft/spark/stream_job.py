"""A stream from files, or from a broker's log, to a folder: what `weft stream` runs. A job that is started again with
the same checkpoint continues. Commands in files take effect in the order of the files, by time and name, and line by
line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.log.schema import DATABASE
from weft.model.schema import Schema
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.file_names import data_files, format_of, has_files, plain_path
from weft.pipeline.preflight import check_files, check_folders
from weft.spark.broker_sink import BrokerSink
from weft.spark.broker_target import BrokerTarget
from weft.spark.files import read_frame, read_stream
from weft.spark.formats import register
from weft.spark.log_columns import ABOUT_LOG, LogColumns
from weft.spark.stream import MatchStream, Watermark, match_stream
from weft.spark.stream_journal import DATABASE as JOURNAL
from weft.spark.stream_journal import BatchMetrics
from weft.spark.subscription_changes import write_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "events.json"  # in the checkpoint: the columns that the stream began with
SUBSCRIPTIONS = "subscriptions.digest"  # in the checkpoint: a hash of those that the stream began with
_ORDER = "__weft_order"
_LOOK = 0.5  # seconds between looks at whether to stop


@dataclass(frozen=True, slots=True)
class StreamJob:
    """What a stream reads and writes."""

    events: str
    checkpoint: str
    out: str
    subscriptions: str | None = None
    commands: str | None = None
    output: str = "pairs"
    carry: tuple[str, ...] | None = None
    watermark: Watermark | None = None
    once: bool = False
    interval: str | None = None
    first: int = 0  # offset in a log
    token_file: str = ""  # for brokers
    authority: str = ""
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.subscriptions is None and self.commands is None:
            raise PipelineError("a stream needs rules: name a file after the events, or a folder with --commands")


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What a stream did while it ran."""

    batches: int
    events: int
    matches: int
    refused: int  # events that were set aside
    commands_left_out: int
    subscriptions_left_out: int
    version: int
    subscriptions: int
    seconds: float  # of matching and committing

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def check_job(job: StreamJob, master: str | None = None) -> None:
    """Raise PipelineError for what would fail only when Spark has started: a missing file, a folder not writable."""
    reads = (job.events, job.subscriptions, job.commands)
    check_files([path for path in reads if path is not None and not is_broker(path)], master=master)
    check_folders([path for path in (job.out, job.checkpoint) if not is_broker(path)], master=master)


def wait_for_files(job: StreamJob, note: Callable[[str], None], stopping: Event) -> bool:
    """Wait until a folder of events that is empty has a file: that tells the format and the columns.

    Returns whether there is one, or none is needed. Raises PipelineError if the job is to end with what is there now.
    """
    place = plain_path(job.events)
    known = _named(place) and Path(job.checkpoint, COLUMNS).exists()
    if known or is_log(place) or not Path(place).is_dir() or has_files(place):
        return True
    if job.once:
        raise PipelineError(f"{job.events} has no files, so the columns of the events are not known: move one there")
    note(f"{job.events} is empty: waiting for the first file")
    while not has_files(place):
        if stopping.wait(_LOOK):
            return False
    return True


def run_stream(
    spark: SparkSession,
    job: StreamJob,
    tell: Callable[[BatchMetrics], None],
    stopping: Event,
    note: Callable[[str], None] | None = None,
) -> StreamReport:
    """Run a job until it has ended, or is told to stop; `note` gets what the user should know. Raises PipelineError."""
    seen: list[BatchMetrics] = []
    totals = dict.fromkeys(("batches", "events", "matches", "refused"), 0)
    seconds = 0.0

    def count(metrics: BatchMetrics) -> None:
        nonlocal seconds
        totals["batches"] += 1
        for name in ("events", "matches", "refused"):
            totals[name] += getattr(metrics, name) or 0
        seconds += metrics.seconds or 0
        seen[:] = [metrics]
        tell(metrics)

    stream = start(spark, job, count, note)
    while not stream.wait(_LOOK):
        if stopping.is_set():
            stream.stop()
            break
    last = seen[0] if seen else BatchMetrics(-1, 0, 0.0)
    return StreamReport(
        **totals,
        commands_left_out=stream.commands_left_out,
        subscriptions_left_out=stream.subscriptions_left_out,
        version=last.version,
        subscriptions=last.subscriptions or 0,
        seconds=seconds,
    )


def start(
    spark: SparkSession,
    job: StreamJob,
    tell: Callable[[BatchMetrics], None],
    note: Callable[[str], None] | None = None,
) -> MatchStream:
    """Start the stream of a job."""
    is_new = not Path(job.checkpoint, JOURNAL).exists()
    if not is_new and note is not None and (changed := changed_subscriptions(job)):
        note(changed)
    events = read_events(spark, job)
    initial = None if job.subscriptions is None else read_frame(spark, job.subscriptions)
    kind = "string" if initial is None else initial.schema["id"].dataType.simpleString() if _has_id(initial) else ""
    commands = None if job.commands is None else read_commands(spark, job.commands, kind)
    stream = match_stream(
        events,
        commands,
        job.checkpoint,
        _sink(job),
        initial=initial,
        schema=job.schema,
        output=job.output,
        carry=job.carry,
        order=None if commands is None else _ORDER,
        watermark=job.watermark,
        once=job.once,
        interval=job.interval,
        tell=tell,
        note=note,
    )
    if is_new and job.subscriptions is not None and (digest := _digest(job.subscriptions)):
        write_file(Path(job.checkpoint, SUBSCRIPTIONS), digest.encode())
    return stream


def changed_subscriptions(job: StreamJob) -> str:
    """What to say if the subscriptions that a stream began with are others now; empty if they are the same."""
    stored = Path(job.checkpoint, SUBSCRIPTIONS)
    if job.subscriptions is None or not stored.exists() or stored.read_text() == _digest(job.subscriptions):
        return ""
    return (
        f"{job.subscriptions} is not what this stream began with, and is not read: it continues with the subscriptions "
        "of its checkpoint; change them with --commands, or use another checkpoint"
    )


def _digest(path: str) -> str:
    """A hash of what is in the files of a path; empty if they are not on this machine."""
    place = plain_path(path)
    if "://" in place or not has_files(place):
        return ""
    whole = blake2b(digest_size=16)
    for file in sorted(data_files(place)):
        with open(file, "rb") as content:
            whole.update(file_digest(content, "sha256").digest())
    return whole.hexdigest()


def _sink(job: StreamJob) -> str | BrokerSink:
    if not is_broker(job.out):
        return job.out
    return BrokerSink(BrokerTarget(job.out, "weft-stream", token_file=job.token_file, authority=job.authority))


def read_events(spark: SparkSession, job: StreamJob) -> DataFrame:
    """The events of a job, with the columns that its stream began with. Raises PipelineError."""
    from pyspark.sql.types import StructType

    stored = Path(job.checkpoint, COLUMNS)
    known = StructType.fromJson(json.loads(stored.read_text(encoding="utf-8"))) if stored.exists() else None
    if is_log(job.events) or is_broker(job.events):
        register(spark)
        reader = spark.readStream.format("weft").option("first", job.first)
        if is_broker(job.events):
            reader = reader.options(url=job.events, tokenFile=job.token_file, authority=job.authority)
        else:
            reader = reader.option("path", job.events)
        if known is not None:
            reader = reader.schema(known)
        elif job.schema is not None:
            reader = reader.schema(LogColumns.all({name: job.schema[name].type for name in job.schema}).ddl())
        frame = reader.load()
        if ABOUT_LOG.issuperset(frame.columns):  # nothing would ever match
            raise PipelineError(
                f"the log of {job.events} is empty, so the attributes of its events are not known: declare them with "
                "--schema, or start again when there are events"
            )
    else:
        if known is None and job.schema is not None:
            known = read_frame(spark, job.events, schema=job.schema).drop(CORRUPT).schema
        frame = read_stream(spark, job.events, columns=known)
        if CORRUPT in frame.columns:
            known = frame.drop(CORRUPT).schema
    if not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        write_file(stored, (known or frame.schema).json().encode())
    return frame


def read_commands(spark: SparkSession, path: str, id_type: str) -> DataFrame:
    """Commands in the files of a folder, with the column by which they are ordered. Raises PipelineError."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    if format_of(path, None if _named(path) else "json") == "parquet":
        raise PipelineError(f"{path}: commands must be JSON lines or CSV, so that their order is known")
    numbered = id_type in ("tinyint", "smallint", "int", "bigint")
    kinds = {"action": StringType(), "id": LongType() if numbered else StringType(), "filter": StringType()}
    columns = StructType([StructField(name, kind) for name, kind in kinds.items()])
    frame = read_stream(spark, path, None if _named(path) else "json", columns)
    place = [sf.col(f"_metadata.{name}") for name in ("file_modification_time", "file_path", "file_block_start")]
    return frame.withColumn(_ORDER, sf.struct(*place))


def is_log(path: str) -> bool:
    """Whether events come from a broker's data directory."""
    return Path(path, DATABASE).exists()


def is_broker(path: str) -> bool:
    """Whether a path is the address of a broker."""
    return path.startswith(("weft://", "weft+tls://", "weft+unix://"))


def _named(path: str) -> bool:
    """Whether the format of a folder is clear; an empty folder without a suffix is to have JSON lines."""
    try:
        format_of(path)
    except PipelineError:
        return False
    return True


def _has_id(frame: DataFrame) -> bool:
    return "id" in frame.columns
