"""The format `weft` in a session of Spark. Nothing of Spark is imported before a session asks for the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("weft")` and its siblings known to a session; once is enough."""
    from weft.spark.log_source import WeftSource

    spark.dataSource.register(WeftSource)
