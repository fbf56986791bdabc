"""Tables that the driver reads itself. The rows and columns are those that Spark would read; where that is not certain,
None is returned.

A job that collects a small table takes longer than reading its files. In a session on this machine the driver does so
where nothing can be understood in two ways: plain Parquet files without partitions or options, and columns whose types
in the files are those of the frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import numpy as np
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
    try:
        with _opened(frame, names) as files:
            tables = [file.read(list(names), use_threads=True) for file in files or ()]
    except (OSError, ValueError):  # Spark knows better what is wrong with it, or reads it after all
        return None
    return pa.concat_tables([table.select(list(names)) for table in tables]) if tables else None


def draw_local(frame: DataFrame, names: Sequence[str], most: int, seed: int) -> tuple[pa.Table, int] | None:
    """At most `most` rows, each equally likely, and how many there are; if the driver can read them as Spark would.

    Cost: all rows are read, a row group at a time.
    """
    try:
        with _opened(frame, names) as files:
            groups = [(file, group) for file in files or () for group in range(file.num_row_groups)]
            if not groups:
                return None
            ends = np.cumsum([file.metadata.row_group(group).num_rows for file, group in groups])
            many = int(ends[-1])
            drawn = np.sort(np.random.default_rng(seed).choice(many, min(most, many), replace=False))
            parts: list[pa.Table] = []
            for (file, group), end in zip(groups, ends.tolist(), strict=True):
                first = end - file.metadata.row_group(group).num_rows
                mine = drawn[np.searchsorted(drawn, first) : np.searchsorted(drawn, end)]
                if len(mine) or not parts:
                    parts.append(file.read_row_group(group, list(names)).select(list(names)).take(mine - first))
    except (OSError, ValueError):
        return None
    return pa.concat_tables(parts), many


@contextmanager
def _opened(frame: DataFrame, names: Sequence[str]) -> Iterator[list[pq.ParquetFile] | None]:
    """The files of a frame that have these columns as Spark has them; None if it is more than plain files."""
    wanted = [(name, _TYPES.get(frame.schema[name].dataType.simpleString())) for name in names]
    paths = None if any(kind is None for _, kind in wanted) else _plain_files(frame)
    with ExitStack() as stack:
        files: list[pq.ParquetFile] = []
        for path in paths or ():
            files.append(stack.enter_context(pq.ParquetFile(path)))
            schema = files[-1].schema_arrow
            if any(schema.names.count(name) != 1 or schema.field(name).type != kind for name, kind in wanted):
                paths = None
                break
        yield None if paths is None else files


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
    return sorted(unquote(place.path) for place in places)
