"""Matching from files to files, with a report. Every number is counted while matching, none is estimated. Every row of
the inputs is either matched or among the errors.

Lists of subscriptions are made even where pairs are wanted, and Spark unfolds them. So the events that match something
are counted without another pass, and fewer rows leave Python.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.index.tree import TreeIndex
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.pipeline.file_names import format_of
from weft.pipeline.match_job import (
    FILTER,
    ID,
    SAMPLED,
    SHOWN,
    MatchJob,
    MatchReport,
    Phases,
    Strategy,
    file_notes,
)
from weft.pipeline.output import Output
from weft.pipeline.predicate_settings import environment_predicates
from weft.pipeline.subscription_rows import lint_notes
from weft.spark.events import quoted
from weft.spark.files import check_free, doubtful_texts, read_frame, write_frame
from weft.spark.left_out import LeftOut
from weft.spark.match import Prepared, prepare
from weft.spark.subscription_lint import lint_subscriptions
from weft.spark.subscriptions import Subscriptions, subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession


def match_files(
    spark: SparkSession, job: MatchJob, clock: Callable[[], float], tell: Callable[[str], None] = lambda _: None
) -> MatchReport:
    """Match the events of a job and write the results. Raises PipelineError; with `strict`, also for a bad row."""
    for path in job.written:
        check_free(spark, path, job.overwrite)
    phases = Phases(clock, tell)
    phases.begin("reading the files")
    given, schema = _subscriptions(spark, job)
    events = read_frame(spark, job.events, schema=schema)
    notes = doubtful_texts(events, schema) if format_of(job.events) != "parquet" else []
    notes += file_notes((job.events, *((job.subscriptions,) if isinstance(given, Subscriptions) else ())))
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
    found, sides = dict(counted.get), left_out.sides()  # now: over Connect, every later query counts anew
    sample = [row.asDict(recursive=True) for row in results.limit(SAMPLED).collect()] if job.out is None else []
    phases.begin("looking for rows that were left out")
    errors, first = _errors(ready, events, job, sides)
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
    return job.subscriptions, TreeIndex.open(
        job.subscriptions, verify=False, predicates=environment_predicates()
    ).schema


def _observed(ready: Prepared, events: DataFrame, output: Output) -> tuple[DataFrame, Observation, LeftOut]:
    """The results, and what is counted when they are written: of them, and of rows that are left out."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    made = Output.LISTS if output is Output.PAIRS else output
    output.check(events.columns)
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
    ready: Prepared, events: DataFrame, job: MatchJob, sides: list[str]
) -> tuple[dict[str, int], list[dict[str, str]]]:
    """How many rows of each side were left out, and the first of them; written where the job says.

    Cost: none if matching has left out none and nothing is to be written, else a pass over the sides that have any.
    """
    if not sides and job.errors is None:
        return {"event": 0, "subscription": 0}, []
    found = ready.errors(events, sides).persist()
    try:
        counts = {row.side: row["count"] for row in found.groupBy("side").count().collect()}
        first = [row.asDict() for row in found.limit(SHOWN).collect()] if counts else []
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
        return len(
            TreeIndex.open(ready.shipped.path, verify=False, predicates=environment_predicates())
        )  # the driver's own: it may be no executor
    assert ready.given is not None
    rows = ready.given.frame.count() if ready.census is None else ready.census.rows
    return rows - errors["subscription"]
