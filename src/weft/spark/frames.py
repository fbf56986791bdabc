"""What frames of subscriptions and of events must have. Laws: a frame that lacks a column is refused before any job
starts; events are flat, with a column for each attribute, under the name that filters use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.model.value import Type
from weft.spark.events import check_frame, fields
from weft.spark.subscriptions import Subscriptions, subscriptions
from weft.spark.workers import check_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame

_TYPES = {
    "byte": Type.INT,
    "short": Type.INT,
    "integer": Type.INT,
    "long": Type.INT,
    "float": Type.FLOAT,
    "double": Type.FLOAT,
    "decimal": Type.FLOAT,
    "string": Type.STRING,
    "char": Type.STRING,
    "varchar": Type.STRING,
    "boolean": Type.BOOL,
    "timestamp": Type.TIMESTAMP,
    "timestamp_ntz": Type.TIMESTAMP,
    "date": Type.TIMESTAMP,
}


def subscriptions_of(source: DataFrame | Subscriptions) -> DataFrame:
    """Subscriptions, rows of texts or of bounds, as `id` and `filter`. Raises PipelineError for what are none."""
    given = subscriptions(source)
    assert isinstance(given, Subscriptions), "only a path is a snapshot"
    check_workers(given.frame.sparkSession)
    return given.texts()


def attribute_types(events: DataFrame) -> dict[str, Type]:
    """The attributes of events and their types; columns that filters cannot see, as lists, are left out."""
    return {name: kind for name, _, kind in _leaves(events)}


def flat(events: DataFrame) -> DataFrame:
    """The events with a column for each attribute, parts of structs by their dotted names. Raises PipelineError."""
    leaves = list(_leaves(events))
    if not leaves:
        raise PipelineError(
            "the events have no column of numbers, strings, bools or timestamps, which are all that filters see"
        )
    return events.select(*(column.alias(name) for name, column, _ in leaves))


def drawn(frame: DataFrame, most: int, seed: int) -> pa.Table:
    """At most so many rows, each as likely, in an order as good as random; the same for the same seed and layout."""
    from pyspark.sql import functions as sf

    mark = "__drawn"
    return frame.withColumn(mark, sf.rand(seed)).orderBy(mark).limit(most).drop(mark).toArrow()


def plan_bytes(frame: DataFrame) -> int | None:
    """About how many bytes a frame reads, by its plan alone; None where Spark does not tell."""
    if not hasattr(frame, "_jdf"):
        return None  # Connect
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def one_batch(table: pa.Table) -> RecordBatch:
    """A table as one batch."""
    import pyarrow as pa

    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _leaves(events: DataFrame) -> Iterator[tuple[str, Column, Type]]:
    from pyspark.sql import functions as sf

    check_frame(events, "events")

    for name, kind, path in fields(events.schema):
        if kind.typeName() in _TYPES:
            yield name, sf.col(path), _TYPES[kind.typeName()]
