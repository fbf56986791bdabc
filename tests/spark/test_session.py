"""A session starts on this machine, with this Python, whatever Java there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_callers_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert session() is spark


def test_it_is_quiet_and_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
