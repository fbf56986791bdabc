"""Events of few files spread over all cores. The rows are the same; a file that enough tasks can read is left as it is.

Spark reads a small file in one task, a Parquet file in at most as many as it has row groups, and a compressed file of
lines always in one. Matching takes longer than reading, so the rows of such files are dealt out first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from weft.spark.frames import plan_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WORTH = 1 << 18  # bytes of events that are worth another stage
_FILES = 64  # of which the row groups are counted, at most


def spread(events: DataFrame) -> DataFrame:
    """The events in at least as many partitions as there are cores, if Spark would read them in fewer.

    Frames that are already shuffled, streams, and frames of Connect are returned unchanged.
    """
    if events.isStreaming or not hasattr(events, "_jdf"):
        return events
    cores = int(events.sparkSession.sparkContext.defaultParallelism)
    if cores == 1 or (plan_bytes(events) or 0) < _WORTH:
        return events
    execution = events._jdf.queryExecution()
    if "Adaptive" in execution.executedPlan().nodeName():  # it shuffles: asking for its partitions would run it
        return events
    if min(int(execution.toRdd().getNumPartitions()), _row_groups(events, cores)) >= cores:
        return events
    return events.repartition(cores)


def _row_groups(events: DataFrame, enough: int) -> int:
    """How many tasks may find rows, as far as it is known: each row group of a Parquet file is read by one."""
    count = 0
    for file in events.inputFiles()[:_FILES]:
        place = urlparse(file)
        if place.scheme not in ("", "file"):
            return enough
        try:
            count += pq.ParquetFile(unquote(place.path)).metadata.num_row_groups
        except (OSError, ValueError):  # another format
            return enough
        if count >= enough:
            break
    return count or enough
