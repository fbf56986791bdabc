"""The results of a stream as tables. A table has what was committed, once, also while the stream runs.

`results` are the rows of a folder, with the micro-batch that wrote each. `errors` are the rows of commands and events
that could not be used. `metrics` has one row for each micro-batch.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import PipelineError
from weft.spark.batch_folder import MANIFEST
from weft.spark.stream import ABOUT
from weft.spark.stream_journal import DATABASE, BatchMetrics, read_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_METRICS = (
    "batch bigint, version bigint, at double, subscriptions bigint, events bigint, matches bigint, refused bigint, "
    "late bigint, duplicates bigint, seconds double, trigger_seconds double"
)


def stream_results(spark: SparkSession, folder: str | Path) -> DataFrame:
    """The results in the folder of a stream, and the column `batch`. Raises PipelineError."""
    from pyspark.sql.types import LongType, StructType

    place = Path(folder)
    try:
        stored = StructType.fromJson(json.loads((place / ABOUT).read_text(encoding="utf-8"))["schema"])
    except FileNotFoundError:
        raise PipelineError(f"{folder} has no results of a stream: there is no {ABOUT} in it") from None
    whole = stored.add("batch", LongType())
    if not any(place.glob("batch=*/*.parquet")):
        return spark.createDataFrame([], whole)
    return spark.read.schema(whole).parquet(str(place))


def stream_errors(spark: SparkSession, checkpoint: str | Path) -> DataFrame:
    """The rows that could not be used: `side` (event, command or subscription), `batch`, `row` and `reason`."""
    place = _existing(checkpoint) / "errors"
    columns = "row string, reason string, side string, batch bigint"
    if not any(place.glob(f"side=*/batch=*/{MANIFEST}")):
        return spark.createDataFrame([], columns).select("side", "batch", "row", "reason")
    return spark.read.schema(columns).parquet(str(place)).select("side", "batch", "row", "reason")


def stream_metrics(spark: SparkSession, checkpoint: str | Path) -> DataFrame:
    """One row for each micro-batch: counts, version, times; see `BatchMetrics`."""
    rows = [astuple(row) for row in stored_metrics(checkpoint)]
    return spark.createDataFrame(rows, _METRICS)


def stored_metrics(checkpoint: str | Path) -> list[BatchMetrics]:
    """The metrics of a stream, also while it runs. Raises PipelineError."""
    return read_metrics(_existing(checkpoint) / DATABASE)


def _existing(checkpoint: str | Path) -> Path:
    place = Path(checkpoint)
    if not (place / DATABASE).exists():
        raise PipelineError(f"{checkpoint} is not the checkpoint of a stream: there is no {DATABASE} in it")
    return place
