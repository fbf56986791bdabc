"""Tables that the driver reads itself. Law: the rows and columns are those that Spark would read, or None is returned.

A job that collects a small table takes longer than reading its files. In a session on this machine the driver does so
where nothing can be understood in two ways: plain Parquet files without partitions or options, and columns whose types
in the files are those of the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from weft.spark.shipped_index import sees_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES = 64  # at most; Spark opens more of them at a time
_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}


def read_local(frame: DataFrame, names: Sequence[str]) -> pa.Table | None:
    """Columns of a frame, if the driver can read them as Spark would."""
    wanted = [(name, _TYPES.get(frame.schema[name].dataType.simpleString())) for name in names]
    if any(kind is None for _, kind in wanted) or (files := _plain_files(frame)) is None:
        return None
    tables = []
    for file in files:
        try:
            with pq.ParquetFile(file) as source:
                schema = source.schema_arrow
                if any(schema.names.count(name) != 1 or schema.field(name).type != kind for name, kind in wanted):
                    return None
                tables.append(source.read([name for name, _ in wanted], use_threads=True))
        except (OSError, ValueError):  # Spark knows better what is wrong with it, or reads it after all
            return None
    return pa.concat_tables([table.select(list(names)) for table in tables])


def _plain_files(frame: DataFrame) -> list[str] | None:
    """The Parquet files that a frame is, on this machine; None if it is anything else."""
    if not hasattr(frame, "_jdf") or not sees_files(frame.sparkSession.sparkContext.master or ""):
        return None
    plan = frame._jdf.queryExecution().analyzed()
    if plan.nodeName() != "LogicalRelation":
        return None
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    if relation.fileFormat().toString() != "Parquet" or not relation.partitionSchema().isEmpty():
        return None
    if str(relation.options().keySet().mkString(",")) not in ("", "path", "paths"):
        return None
    places = [urlparse(file) for file in frame.inputFiles()]
    if not 0 < len(places) <= _FILES or any(place.scheme != "file" for place in places):
        return None
    return [unquote(place.path) for place in places]
