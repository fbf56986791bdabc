"""Samples of both sides of a join, by which its groups are planned. Each row is equally likely, and the same rows are
drawn from the same files.

Where the driver can read the files itself it does so, which takes less than a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.model.column import FREE
from weft.spark.events import quoted
from weft.spark.frames import drawn, one_batch
from weft.spark.left_out import ROWS
from weft.spark.local_tables import draw_local
from weft.spark.subscriptions import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_SEED = 1


class SampledEvents(NamedTuple):
    """Some events: the attributes that may decide, and the hashes of whole rows; and how many events there are."""

    attributes: pa.RecordBatch
    hashes: NDArray[np.uint64]
    many: int


def sampled_subscriptions(subscriptions: Subscriptions, most: int) -> pa.RecordBatch:
    """Rows of the columns that are read. Cost: one job, or reading the files."""
    if (local := draw_local(subscriptions.frame, subscriptions.names, most, _SEED)) is None:
        return one_batch(drawn(subscriptions.columns(), most, _SEED))
    return one_batch(local[0].rename_columns([f"c{place}" for place in range(len(subscriptions.names))]))


def sampled_events(  # noqa: PLR0913, PLR0917
    events: DataFrame,
    kept: Sequence[str],
    source: DataFrame,
    names: Sequence[str],
    paths: Mapping[str, str],
    most: int,
) -> SampledEvents:
    """Events with these attributes, of which `source` has the columns that are kept, under other names. Cost: as above.

    `paths` has the places of the attributes in the source.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    if (local := draw_local(events, kept, most, _SEED)) is not None:
        table, many = local
        seen = attributes(names, one_batch(table.select(list(names))).columns, table.num_rows)
        again = source.sparkSession.createDataFrame(table.rename_columns(source.columns), source.schema)
        return SampledEvents(seen, _numbers(again.select(row_hash(again)).toArrow().column(0)), many)
    counted = Observation()
    columns = [sf.col(paths[name]).alias(f"c{at}") for at, name in enumerate(names)]
    frame = source.observe(counted, sf.count(sf.lit(1)).alias(ROWS)).select(row_hash(source).alias("hash"), *columns)
    sample = one_batch(drawn(frame, most, _SEED))
    hashes = _numbers(sample.column(0))
    return SampledEvents(attributes(names, sample.columns[1:], len(hashes)), hashes, int(counted.get[ROWS]))


def attributes(names: Sequence[str], columns: Sequence[Any], rows: int) -> pa.RecordBatch:
    """Columns as events have them."""
    if not names:
        return pa.record_batch([pa.nulls(rows)], names=[""])  # or the number of rows were lost
    return pa.record_batch(list(columns), names=list(names)).replace_schema_metadata(FREE)


def row_hash(frame: DataFrame) -> Column:
    """A number that only equal rows share: where a row goes must depend on nothing else."""
    from pyspark.sql import functions as sf

    parts: list[Column] = []
    for field in frame.schema.fields:
        column = sf.col(quoted(field.name))
        if _is_nested(field.dataType):
            column = sf.to_json(sf.struct(column), {"ignoreNullFields": "false"})
        parts += [column, column.isNull()]  # a NULL alone would leave no trace
    return sf.xxhash64(*parts)


def _is_nested(kind: DataType) -> bool:
    return any(word in kind.simpleString() for word in ("map<", "struct<", "array<", "variant"))


def _numbers(hashes: Any) -> NDArray[np.uint64]:
    found: NDArray[np.uint64] = hashes.to_numpy().view(np.uint64)
    return found
