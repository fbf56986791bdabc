"""Tables in files, whose names state the format. A line that cannot be read fails no job, and is in the column
`_corrupt_record`, alone in its row. Which lines these are does not depend on the query.

Spark's own readers have traps, which are avoided here: CSV and JSON are read with a schema that was inferred before;
times of day and years are not timestamps; names that differ in case are two names; a CSV file whose columns are in
another order than those of its neighbours is refused; all files of a Parquet folder determine the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.model.schema import Schema
from weft.model.value import Type
from weft.pipeline.attributes import CORRUPT
from weft.pipeline.file_names import format_of, taken
from weft.pipeline.match_job import LIST_TEXT, list_note, number_note
from weft.spark.events import quoted
from weft.spark.failures import condition, failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_CASE = "spark.sql.caseSensitive"
_TIMESTAMP = "yyyy-MM-dd[['T'][ ]HH:mm[:ss[.SSSSSSSSS]][XXX]]"
_READ: dict[str, Any] = {"timestampFormat": _TIMESTAMP, "timeZone": "UTC", "mode": "PERMISSIVE"}
_READ_CSV: dict[str, Any] = {"header": True, "escape": '"', "preferDate": False}
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # Spark's own format has milliseconds
_WRITE_LINES: dict[str, Any] = {
    "timeZone": "UTC",
    "timestampFormat": f"{_MICROS}XXX",
    "timestampNTZFormat": _MICROS,
}
_AS_IT_IS: dict[str, Any] = {"ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}
_WRITE: dict[str, dict[str, Any]] = {
    "parquet": {},
    "csv": {"header": True, "escape": '"', **_AS_IT_IS, **_WRITE_LINES},
    "json": {"ignoreNullFields": False, **_WRITE_LINES},
}
_LOOKED_AT = 100_000  # rows in which numbers and lists among texts are looked for


def read_frame(spark: SparkSession, path: str, format: str | None = None, schema: Schema | None = None) -> DataFrame:
    """Read the rows of a file, of a folder or of all files of a pattern. Raises PipelineError.

    Columns of CSV and JSON have the types that a schema declares, or else a type that fits all values. Such frames have
    a column `_corrupt_record`: the line, if it cannot be read as a row of these types; all other columns are then NULL.
    """
    kind = format_of(path, format)
    with failures(f"{path} cannot be read"):
        try:
            if kind == "parquet":
                return spark.read.option("mergeSchema", True).parquet(path)
            with _case_sensitive(spark):
                found = _inferred(spark, path, kind)
        except Exception as error:
            if condition(error) == "PATH_NOT_FOUND":
                raise PipelineError(f"there is no file {path}") from None
            if condition(error) == "UNABLE_TO_INFER_SCHEMA":
                raise PipelineError(f"{path} has no rows") from None
            raise
        return _lines(spark.read, path, kind, _declared(_checked(spark, path, found), schema))


def read_stream(
    spark: SparkSession, path: str, format: str | None = None, columns: StructType | None = None
) -> DataFrame:
    """Read the files of a folder, and those that are put there later, as a stream. Raises PipelineError.

    The columns are those of the present files, or `columns`. A file must appear whole: write it elsewhere on
    the same file system, and move it. Lines that cannot be read are in `_corrupt_record`.
    """
    kind = format_of(path, format)
    known = columns or read_frame(spark, path, format).drop(CORRUPT).schema
    with failures(f"{path} cannot be read"):
        if kind == "parquet":
            return spark.readStream.schema(known).parquet(path)
        return _lines(spark.readStream, path, kind, known)


def write_frame(frame: DataFrame, path: str, format: str | None = None, overwrite: bool = False) -> None:
    """Write rows as a folder of files, as Spark does. Raises PipelineError, also if the folder has files."""
    kind = format_of(path, format)
    replaced = check_free(frame.sparkSession, path, overwrite)
    with failures(f"{path} cannot be written"):
        try:
            mode = "overwrite" if replaced else "error"
            frame.write.options(**_WRITE[kind]).mode(mode).format(kind).save(path)
        except Exception as error:
            if condition(error) == "PATH_ALREADY_EXISTS":
                raise taken(path) from None
            if condition(error) == "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE":
                raise PipelineError(
                    f"{path}: a CSV file cannot hold lists or structs: write .parquet or .json"
                ) from None
            raise


def check_free(spark: SparkSession, path: str, overwrite: bool) -> bool:
    """Whether what is there may be replaced: all if so told, else an empty folder, which a run that was stopped leaves.

    Raises PipelineError if the output exists and must stay: before a long job, not after it.
    """
    if overwrite or not hasattr(spark, "_jsparkSession"):  # through Connect only writing tells
        return overwrite
    with failures(f"{path} cannot be written"):
        place = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(place):
            return False
        names = [status.getPath().getName() for status in system.listStatus(place)]
        if names or not system.getFileStatus(place).isDirectory():
            raise taken(path, names)
        return True


def doubtful_texts(frame: DataFrame, schema: Schema | None = None) -> list[str]:
    """Notes on text columns whose values are mostly numbers, which no comparison with a number matches, or of which
    some are lists, whose elements no HAS sees; by the first rows.
    """
    from pyspark.sql import functions as sf

    names = [field.name for field in frame.schema.fields if field.dataType.simpleString() == "string"]
    names = [name for name in names if name != CORRUPT and name not in (schema or {})]
    if not names:
        return []
    columns = [sf.col(quoted(name)) for name in names]
    numbers = [sf.count(column.try_cast("double")) for column in columns]
    lists = [sf.count_if(column.startswith("[") & column.rlike(LIST_TEXT)) for column in columns]
    row = frame.limit(_LOOKED_AT).agg(*numbers, *map(sf.count, columns), *lists).head()
    assert row is not None
    size = len(names)
    parts = [*zip(names, row[:size], row[size : 2 * size], row[2 * size :], strict=True)]
    notes = [number_note(name) for name, found, every, _ in parts if every and 2 * found > every]
    return notes + [list_note(name) for name, _, _, some in parts if some]


# -- lines -------------------------------------------------------------------------------------------


def _inferred(spark: SparkSession, path: str, kind: str) -> StructType:
    """The columns and types that fit all lines."""
    reader = spark.read.options(**_READ, columnNameOfCorruptRecord=CORRUPT)
    if kind == "csv":
        return reader.options(**_READ_CSV, inferSchema=True).csv(path).schema
    reader = reader.option("inferTimestamp", True)
    try:
        return reader.json(path).schema
    except Exception as error:
        if condition(error) != "COLUMN_ALREADY_EXISTS":
            raise
    return _once(reader.json(spark.read.text(path)).schema)  # a line has a key twice: the last counts


def _once(schema: StructType) -> StructType:
    """A schema with every name once; what has two types is text."""
    from pyspark.sql.types import StringType, StructField, StructType

    kinds: dict[str, DataType] = {}
    for field in schema.fields:
        kind = _once(field.dataType) if isinstance(field.dataType, StructType) else field.dataType
        kinds[field.name] = kind if kinds.get(field.name, kind) == kind else StringType()
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def _checked(spark: SparkSession, path: str, found: StructType) -> StructType:
    """The columns that were found, if there are any and the session tells them apart."""
    from pyspark.sql.types import StructType

    fields = [field for field in found.fields if field.name != CORRUPT]
    if not fields:
        what = "no readable line" if found.fields else "no rows"
        raise PipelineError(f"{path} has {what}: write one JSON object per line, or CSV with a header")
    if spark.conf.get(_CASE) != "true":
        seen: dict[str, str] = {}
        for field in fields:
            other = seen.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise PipelineError(
                    f"{path} has columns {other!r} and {field.name!r}: set {_CASE} to true, or rename one"
                )
    return StructType(fields)


def _declared(found: StructType, schema: Schema | None, prefix: str = "") -> StructType:
    """The columns with the types that a schema declares."""
    from pyspark.sql.types import StructField, StructType

    def kind_of(field: StructField) -> DataType:
        name = prefix + field.name
        nested = isinstance(field.dataType, StructType)
        if schema is not None and name in schema and (not nested or schema[name].type is Type.STRING):
            return _spark_type(schema[name].type)
        return (
            _declared(field.dataType, schema, f"{name}.") if isinstance(field.dataType, StructType) else field.dataType
        )

    return StructType([StructField(field.name, kind_of(field)) for field in found.fields])


def _spark_type(kind: Type) -> DataType:
    from pyspark.sql import types as st

    return {
        Type.INT: st.LongType(),
        Type.FLOAT: st.DoubleType(),
        Type.STRING: st.StringType(),
        Type.BOOL: st.BooleanType(),
        Type.TIMESTAMP: st.TimestampType(),
    }[kind]


def _lines(source: Any, path: str, kind: str, columns: StructType) -> DataFrame:
    """The lines as rows of these columns, and CORRUPT."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructField, StructType

    whole = StructType([*columns.fields, StructField(CORRUPT, StringType())])
    reader = source.options(**_READ, columnNameOfCorruptRecord=CORRUPT).schema(whole)
    rows: DataFrame = reader.options(**_READ_CSV, enforceSchema=False).csv(path) if kind == "csv" else reader.json(path)
    each = {field.name: sf.col(quoted(field.name)) for field in columns.fields}
    # A line is corrupt if one of the columns that are read does not fit, so all are always read: this never holds, but
    # Spark cannot know.
    never = sf.bit_count(sf.xxhash64(*each.values())) > 64
    corrupt = sf.coalesce(sf.col(CORRUPT), sf.when(never, sf.lit("")))
    fine = corrupt.isNull()
    return rows.select(*(sf.when(fine, column).alias(name) for name, column in each.items()), corrupt.alias(CORRUPT))


@contextmanager
def _case_sensitive(spark: SparkSession) -> Iterator[None]:
    """Names are told apart by case: else Spark drops, unsaid, what differs in case only."""
    before = spark.conf.get(_CASE) or "false"
    spark.conf.set(_CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(_CASE, before)
