"""Events as rows of a DataFrame. A column of a type that filters do not know is kept in the results and absent for
filters. A row with a value that no event can have is set aside with the reason.

Structs are flattened with '.', as everywhere. A row may hold what an event cannot: timestamps outside the years 1 to
9999, and text that is not valid UTF-8. Spark finds both itself, before a row leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.model.limits import LIMITS, MAX_DEPTH
from weft.model.schema import repeated
from weft.model.value import MICROS_MAX, MICROS_MIN
from weft.pipeline.attributes import CORRUPT, UNREADABLE
from weft.spark.left_out import ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import DataType, StructType

_MOMENTS = ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")


def check_frame(frame: Any, what: str) -> None:
    """Raise PipelineError for anything but a DataFrame of Spark."""
    if hasattr(frame, "sparkSession") and hasattr(frame, "mapInArrow"):
        return
    kind = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    hint = ": call its to_spark()" if hasattr(frame, "to_spark") else ": convert it with spark.createDataFrame"
    if not hasattr(frame, "columns"):
        hint = ""
    raise PipelineError(f"the {what} must be a Spark DataFrame, not a {kind}{hint}")


def check_columns(frame: DataFrame, what: str = "events") -> None:
    """Raise PipelineError if two columns have a name that Spark, or a filter, cannot tell apart."""
    check_frame(frame, what)
    fold = str if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true" else str.lower
    for names in (map(fold, frame.columns), (name for name, _, _ in fields(frame.schema))):
        if (twice := repeated(names)) is not None:
            raise PipelineError(f"there are two columns {twice!r}: rename one")


def readable_events(events: DataFrame, counted: Observation | None = None) -> DataFrame:
    """The rows that are events; `counted` counts the others on the way."""
    from pyspark.sql import functions as sf

    check_columns(events)
    known = _reasons(events)
    if not known:
        return events
    reason = sf.coalesce(*known)
    if counted is not None:
        events = events.observe(counted, sf.count_if(reason.isNotNull()).alias(ROWS))
    return events.where(reason.isNull()).drop(CORRUPT)


def event_errors(events: DataFrame) -> DataFrame:
    """The rows that are not events, as `row` (JSON) and `reason`."""
    from pyspark.sql import functions as sf

    check_columns(events)
    known = _reasons(events)
    if not known:
        return events.select(sf.lit("").alias("row"), sf.lit("").alias("reason")).limit(0)
    reason = sf.coalesce(*known)
    whole = sf.col(CORRUPT) if CORRUPT in events.columns else sf.lit(None).cast("string")
    row = sf.coalesce(whole, as_json(events.columns))
    return events.where(reason.isNotNull()).select(row.alias("row"), reason.alias("reason"))


def may_be_left_out(events: DataFrame) -> bool:
    """Whether the columns are such that a row may be left out."""
    return bool(_reasons(events))


def _reasons(events: DataFrame) -> list[Column]:
    """For everything that may be wrong with a row the reason, NULL if all is well."""
    from pyspark.sql import functions as sf

    known = [reason for each in fields(events.schema) if (reason := _reason(*each)) is not None]
    if CORRUPT in events.columns:
        known.insert(0, sf.when(sf.col(CORRUPT).isNotNull(), sf.lit(UNREADABLE)))
    return known


_SEEN_NAMES = frozenset(
    ["byte", "short", "integer", "long", "float", "double", "decimal", "string", "char", "varchar", "boolean"]
).union(["timestamp", "timestamp_ntz", "date"])


def is_seen(kind: DataType) -> bool:
    """Whether filters see the values of a column of Spark."""
    if kind.typeName() == "array":
        element: DataType = kind.elementType  # type: ignore[attr-defined]
        return element.typeName() in (*_SEEN_NAMES, "array", "struct", "map")
    return kind.typeName() in _SEEN_NAMES


def fields(schema: StructType, prefix: str = "", inside: str = "", depth: int = 1) -> Iterator[tuple[str, Any, str]]:
    """Name, type and quoted path of each column, structs flattened."""
    from pyspark.sql.types import StructType

    for field in schema.fields:
        path = inside + quoted(field.name)
        if isinstance(field.dataType, StructType):
            if depth < MAX_DEPTH:
                yield from fields(field.dataType, f"{prefix}{field.name}.", f"{path}.", depth + 1)
        else:
            yield prefix + field.name, field.dataType, path


def by_place(frame: DataFrame) -> DataFrame:
    """The same columns under names that need no quotes, which Spark forgets in its functions over batches."""
    if all(name.isidentifier() and name.isascii() and not name.startswith("__") for name in frame.columns):
        return frame
    return frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))


def as_json(columns: Sequence[str]) -> Column:
    """A whole row as text, without the line that could not be read."""
    from pyspark.sql import functions as sf

    names = [name for name in columns if name != CORRUPT] or columns
    return sf.to_json(sf.struct(*(sf.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def decodable(text: Column) -> Column:
    """A column of texts; text that is not valid UTF-8, which Python could not read, becomes what is not a filter."""
    from pyspark.sql import functions as sf

    return sf.when(text.isNull() | sf.is_valid_utf8(text), text).otherwise(
        sf.concat(sf.lit("not UTF-8: "), sf.make_valid_utf8(text))
    )


def judged(events: DataFrame) -> DataFrame:
    """All rows, their columns by place (`c0`, `c1`, ...), and at the end `reason` and `row` (JSON) of those that are no
    events, NULL for the others.
    """
    from pyspark.sql import functions as sf

    check_columns(events)
    nothing = sf.lit(None).cast("string")
    reasons = _reasons(events)
    whole = as_json(events.columns)
    if CORRUPT in events.columns:
        whole = sf.coalesce(sf.col(CORRUPT), whole)
    reason = sf.coalesce(nothing, *reasons)
    row = sf.when(reason.isNotNull(), sf.make_valid_utf8(whole)) if reasons else nothing
    names = [name for name in events.columns if name != CORRUPT]
    places = [sf.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(names)]
    return events.select(*places, reason.alias("reason"), row.alias("row"))


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _reason(name: str, kind: DataType, path: str) -> Column | None:
    """What is wrong with a column's value, NULL if nothing is; None where nothing can be."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column = sf.col(path)
    if isinstance(kind, st.ArrayType):
        return _reason_of_list(name, kind.elementType, column)
    if isinstance(kind, st.StringType) and name != CORRUPT:
        return sf.when(~sf.is_valid_utf8(column), sf.lit(f"the text of {name!r} is not valid UTF-8"))
    edges = _edges(kind)
    if edges is None:
        return None
    return sf.when((column < edges[0]) | (column > edges[1]), sf.lit(f"{name!r} is outside the years 1 to 9999"))


def _reason_of_list(name: str, kind: DataType, column: Column) -> Column | None:
    """What is wrong with a list: it is too long, or has an element that cannot be read."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    too_long = sf.when(
        sf.size(column) > LIMITS.elements, sf.lit(f"{name!r} is a list of more than {LIMITS.elements:,} values")
    )
    if isinstance(kind, st.StringType):
        wrong = sf.exists(column, lambda each: ~sf.is_valid_utf8(each))
        return sf.coalesce(too_long, sf.when(wrong, sf.lit(f"the text of {name!r} is not valid UTF-8")))
    edges = _edges(kind)
    if edges is None:
        return too_long
    outside = sf.exists(column, lambda each: (each < edges[0]) | (each > edges[1]))
    return sf.coalesce(too_long, sf.when(outside, sf.lit(f"{name!r} is outside the years 1 to 9999")))


def _edges(kind: DataType) -> tuple[Column, Column] | None:
    """The first and the last timestamp of a type; None for another type."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    if isinstance(kind, st.TimestampType):  # in UTC, whatever the zone of the session
        first, last = (sf.timestamp_micros(sf.lit(edge)) for edge in (MICROS_MIN, MICROS_MAX))
    elif isinstance(kind, st.TimestampNTZType | st.DateType):
        first, last = (sf.lit(edge).cast("timestamp_ntz").cast(kind.simpleString()) for edge in _MOMENTS)
    else:
        return None
    return first, last
