"""The result of an aggregation, as a folder that a broker or another job can read. Law: the folder is complete: it has
`active`, `passive` and `errors` as tables, and `facts` with the model, the parameters of its space and the statistics.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.spark.files import check_free, write_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weft.spark.aggregate import Aggregated

PARTS = ("active.parquet", "passive.parquet", "errors.jsonl", "facts.json")


def check_folder(spark: SparkSession, folder: str, overwrite: bool) -> None:
    """Raise PipelineError if one of the parts exists and must not be overwritten."""
    for part in PARTS:
        check_free(spark, f"{folder}/{part}", overwrite)


def save(aggregated: Aggregated, folder: str, overwrite: bool = False) -> None:
    """Write the parts. Raises PipelineError."""
    frames = (aggregated.active, aggregated.passive, aggregated.errors)
    for part, frame in zip(PARTS, frames, strict=False):
        write_frame(frame, f"{folder}/{part}", overwrite=overwrite)
    spark = aggregated.active.sparkSession
    facts = facts_of(aggregated)
    line = spark.createDataFrame(
        [(name, json.dumps(value)) for name, value in facts.items()], "name string, json string"
    )
    write_frame(line.coalesce(1), f"{folder}/{PARTS[-1]}", overwrite=overwrite)


def facts_of(aggregated: Aggregated) -> dict[str, Any]:
    """The model, its parameters and the statistics, of JSON's types."""
    numbers = asdict(aggregated.statistics)
    checked = aggregated.statistics.checked
    if checked is not None:
        numbers["checked"]["false_positives"] = checked.false_positives
    return {"model": str(aggregated.model), "parameters": json.loads(aggregated.parameters), **numbers}
