"""Requirements of frames of subscriptions and of events. A frame that lacks a column is refused before any job starts.
Events are flat, with a column for each attribute, under the name that filters use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.model.value import Type
from weft.pipeline.output import Output, ResultForm
from weft.spark.events import check_frame, fields, is_seen
from weft.spark.subscriptions import Subscriptions, subscriptions
from weft.spark.workers import check_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

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
    """Subscriptions, rows of texts or of bounds, as `id` and `filter`. Raises PipelineError if it has neither."""
    given = subscriptions(source)
    assert isinstance(given, Subscriptions), "only a path is a snapshot"
    check_workers(given.frame.sparkSession)
    return given.texts()


def attribute_types(events: DataFrame) -> dict[str, Type]:
    """The attributes of events and their types; columns of lists, and those that filters cannot see, are left out."""
    return {name: kind for name, _, kind in _leaves(events)}


def list_types(events: DataFrame) -> dict[str, Type | None]:
    """The attributes of events that are lists, with the type of their elements; None if these are structs or lists."""
    found: dict[str, Type | None] = {}
    for name, kind, _ in fields(events.schema):
        if is_seen(kind) and kind.typeName() == "array":
            found[name] = _TYPES.get(kind.elementType.typeName())
    return found


def flat(events: DataFrame) -> DataFrame:
    """The events with a column for each attribute, parts of structs by their dotted names. Raises PipelineError."""
    leaves = list(_leaves(events))
    if not leaves:
        raise PipelineError(
            "the events have no column of numbers, strings, bools or timestamps, which are all that filters see"
        )
    return events.select(*(column.alias(name) for name, column, _ in leaves))


def result_schema(form: ResultForm, events: StructType, numbered: bool) -> StructType:
    """The columns of results. Raises PipelineError if the events have the column that is added."""
    from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

    kept = [events.fields[place] for place in form.carried]
    form.output.check(field.name for field in kept)
    id_type: DataType = LongType() if numbered else StringType()
    added = {Output.PAIRS: id_type, Output.LISTS: ArrayType(id_type, False), Output.COUNTS: LongType()}[form.output]
    return StructType([*kept, StructField(form.output.column, added, False)])


def drawn(frame: DataFrame, most: int, seed: int) -> pa.Table:
    """At most `most` rows, each equally likely, in random order; the same for the same seed and layout."""
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
