"""Matching from files to files, with a report. Laws: every number is counted while matching, none is estimated; every
row of the inputs is either matched or among the errors.

Lists of subscriptions are made even where pairs are wanted, and Spark unfolds them. So the events that match something
are counted without another pass, and fewer rows leave Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.index.tree import TreeIndex
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.spark.events import quoted
from weft.spark.files import check_free, files_without_bytes, format_of, numbers_in_texts, read_frame, write_frame
from weft.spark.left_out import LeftOut
from weft.spark.match import Prepared, Strategy, prepare
from weft.spark.output import Output
from weft.spark.subscription_lint import lint_notes, lint_subscriptions
from weft.spark.subscriptions import FILTER, ID, Subscriptions, subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_SHOWN = 3  # errors
_ROWS = 8  # of a sample


@dataclass(frozen=True, slots=True)
class MatchJob:
    """What is matched with what, and where the results go. Raises PipelineError if the job cannot be done.

    >>> MatchJob("events.jsonl", "subscriptions.csv", out="matches.csv", output="lists")
    Traceback (most recent call last):
    weft.errors.PipelineError: matches.csv: a CSV file cannot hold lists: write .parquet or .json
    """

    events: str
    subscriptions: str  # rows, or the folder of a snapshot
    out: str | None = None  # without it results are only counted, and some shown
    output: str = "pairs"
    strategy: str = "auto"
    schema: Schema | None = None
    errors: str | None = None
    strict: bool = False
    id: str = ID
    filter: str = FILTER
    overwrite: bool = False
    lint: bool = True  # note subscriptions that are probably mistakes

    @property
    def written(self) -> list[str]:
        """What the job writes."""
        return [path for path in (self.out, self.errors) if path is not None]

    def __post_init__(self) -> None:
        Output.named(self.output)
        if self.strategy not in set(Strategy):
            raise PipelineError(f"there is no strategy {self.strategy!r}: use one of {', '.join(Strategy)}")
        if self.out is not None and self.output == Output.LISTS and format_of(self.out) == "csv":
            raise PipelineError(f"{self.out}: a CSV file cannot hold lists: write .parquet or .json")
        for path in self.written:
            format_of(path)
        if len({*map(_place, self.written)}) < len(self.written):
            raise PipelineError("results and errors cannot be written to the same path: name two")
        for path in self.written:
            for given in (self.events, self.subscriptions):
                if _place(path) == _place(given) or _place(path) in _place(given).parents:
                    raise PipelineError(f"{path} contains an input: write elsewhere")


@dataclass(frozen=True, slots=True)
class MatchReport:
    """What happened."""

    strategy: str
    output: str
    out: str | None
    events: int  # that were matched, with whatever result
    subscriptions: int
    matches: int
    matched: int  # events that match at least one subscription
    errors: dict[str, int]  # rows left out, of each side
    first: list[dict[str, str]]  # errors: side, row, reason
    seconds: dict[str, float]
    sample: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events matched and written per second."""
        return self.events / max(self.seconds["matching"], 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """The facts, of JSON's types."""
        return {
            **{name: getattr(self, name) for name in self.__slots__ if name not in ("sample", "seconds")},
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "events_per_second": round(self.rate, 1),
        }


class _Phases:
    """The seconds of each part of a job, by the caller's clock."""

    def __init__(self, clock: Callable[[], float], tell: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._tell, self._start = clock, tell, clock()

    def begin(self, what: str) -> None:
        self._start = self._clock()
        self._tell(what)

    def end(self, name: str) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - self._start


def match_files(
    spark: SparkSession, job: MatchJob, clock: Callable[[], float], tell: Callable[[str], None] = lambda _: None
) -> MatchReport:
    """Match the events of a job and write the results. Raises PipelineError; with `strict`, also for a bad row."""
    for path in job.written:
        check_free(spark, path, job.overwrite)
    phases = _Phases(clock, tell)
    phases.begin("reading the files")
    given, schema = _subscriptions(spark, job)
    events = read_frame(spark, job.events, schema=schema)
    notes = [
        f"the column {name!r} of the events is text although most of its values are numbers, and text never matches a "
        "comparison with a number: declare its type in a schema"
        for name in (numbers_in_texts(events, schema) if format_of(job.events) != "parquet" else [])
    ]
    for path in (job.events, *((job.subscriptions,) if isinstance(given, Subscriptions) else ())):
        notes += [
            f"{file} has 0 bytes and was skipped: it may be a copy that was not finished"
            for file in files_without_bytes(path)
        ]
    phases.end("reading")
    phases.begin("preparing the subscriptions")
    ready = prepare(given, strategy=job.strategy, spark=spark)
    if job.strict and (wrong := ready.errors(events).head()) is not None:
        raise PipelineError(f"{wrong.side} {wrong.row}: {wrong.reason}")
    phases.end("preparing")
    phases.begin("matching")
    results, counted, left_out = _observed(ready, events, Output.named(job.output))
    if job.out is None:
        results.write.format("noop").mode("overwrite").save()
    else:
        write_frame(results, job.out, overwrite=job.overwrite)
    phases.end("matching")
    found = counted.get
    sample = [row.asDict(recursive=True) for row in results.limit(_ROWS).collect()] if job.out is None else []
    phases.begin("looking for rows that were left out")
    errors, first = _errors(ready, events, job, left_out)
    notes += _lint(ready, events, job)
    phases.end("errors")
    return MatchReport(
        strategy=str(ready.strategy),
        output=job.output,
        out=job.out,
        events=found["events"],
        subscriptions=_size(ready, errors),
        matches=found["matches"] or 0,
        matched=found["matched"] or 0,
        errors=errors,
        first=first,
        seconds=phases.seconds,
        sample=sample,
        notes=notes,
    )


def read_subscriptions(
    spark: SparkSession, path: str, schema: Schema | None = None, *, id: str = ID, filter: str = FILTER
) -> Subscriptions:
    """Read the subscriptions of a file; filters are read as text, whatever they look like. Raises PipelineError."""
    frame = read_frame(spark, path, schema=Schema((Attribute(filter, Type.STRING),)))
    if format_of(path) == "csv" and id in frame.columns:
        frame = _ids_as_written(spark, path, frame, id, filter)
    given = subscriptions(frame, schema, id=id, filter=filter)
    assert isinstance(given, Subscriptions)
    return given


def _ids_as_written(spark: SparkSession, path: str, frame: DataFrame, id: str, filter: str) -> DataFrame:
    """The frame with ids as texts, unless all are integers in their usual spelling: 01 and 1 are two."""
    from pyspark.sql import functions as sf

    texts = read_frame(spark, path, schema=Schema((Attribute(id, Type.STRING), Attribute(filter, Type.STRING))))
    whole = sf.col(quoted(id)).try_cast("bigint")
    odd = texts.where(sf.col(quoted(id)).isNotNull() & ~whole.cast("string").eqNullSafe(sf.col(quoted(id))))
    return frame if odd.isEmpty() else texts


def _subscriptions(spark: SparkSession, job: MatchJob) -> tuple[Subscriptions | str, Schema | None]:
    """What the job names, and the schema of events."""
    if not Path(job.subscriptions, "index.json").is_file():
        return read_subscriptions(spark, job.subscriptions, job.schema, id=job.id, filter=job.filter), job.schema
    if job.schema is not None:
        raise PipelineError("a snapshot has its own schema: omit the schema")
    return job.subscriptions, TreeIndex.open(job.subscriptions, verify=False).schema


def _observed(ready: Prepared, events: DataFrame, output: Output) -> tuple[DataFrame, Observation, LeftOut]:
    """The results, and what is counted when they are written: of them, and of rows that are left out."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    made = Output.LISTS if output is Output.PAIRS else output
    if output.column.lower() in map(str.lower, events.columns):
        raise PipelineError(f"the events have a column {output.column!r}, which the results need: rename it")
    (results, left_out), counted = ready.match_counting(events, made), Observation()
    column = sf.col(made.column)
    each = column if made is Output.COUNTS else sf.size(column)
    results = results.observe(
        counted,
        sf.count(sf.lit(1)).alias("events"),
        sf.sum(each).alias("matches"),
        sf.count_if(each > 0).alias("matched"),
    )
    if output is Output.PAIRS:
        others = [sf.col(quoted(name)) for name in results.columns if name != made.column]
        results = results.select(*others, sf.explode(column).alias(output.column))
    return results, counted, left_out


def _errors(
    ready: Prepared, events: DataFrame, job: MatchJob, left_out: LeftOut
) -> tuple[dict[str, int], list[dict[str, str]]]:
    """How many rows of each side were left out, and the first of them; written where the job says.

    Cost: none if matching has left out none and nothing is to be written, else a pass over the sides that have any.
    """
    sides = left_out.sides()
    if not sides and job.errors is None:
        return {"event": 0, "subscription": 0}, []
    found = ready.errors(events, sides).persist()
    try:
        counts = {row.side: row["count"] for row in found.groupBy("side").count().collect()}
        first = [row.asDict() for row in found.limit(_SHOWN).collect()] if counts else []
        if job.errors is not None:
            write_frame(found, job.errors, overwrite=job.overwrite)
    finally:
        found.unpersist()
    return {side: counts.get(side, 0) for side in ("event", "subscription")}, first


def _lint(ready: Prepared, events: DataFrame, job: MatchJob) -> list[str]:
    """What is odd about the subscriptions, seen with these events."""
    if ready.given is None or not job.lint:
        return []
    few = ready.strategy is not Strategy.PARTITIONED  # else there may be more hashes than the driver can hold
    if not few and ready.given.reading.bounds is not None:
        return []  # millions of bounds would have to become texts first
    return lint_notes(lint_subscriptions(ready.given.texts(), events, job.schema, duplicates=few))


def _size(ready: Prepared, errors: dict[str, int]) -> int:
    """How many subscriptions were matched with."""
    if ready.shipped is not None:
        return len(TreeIndex.open(ready.shipped.path, verify=False))  # the driver's own: it may be no executor
    assert ready.given is not None
    rows = ready.given.frame.count() if ready.census is None else ready.census.rows
    return rows - errors["subscription"]


def _place(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:")).absolute()
