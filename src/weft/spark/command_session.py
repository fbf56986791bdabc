"""Spark for the time of a command. Laws: a session that is there already is used as it is and stays; one that is
started here is quiet, tells names apart by case as filters do, and is stopped at the end; failures are PipelineErrors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.spark.failures import failures
from weft.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def command_session(master: str | None = None, memory: str | None = None) -> Iterator[SparkSession]:
    """A session to work with. Raises PipelineError, whatever Spark raises inside."""
    there = _active()
    spark = there or session(master, memory=memory, options={"spark.sql.caseSensitive": "true"})
    try:
        with failures():
            if there is None and hasattr(spark, "_jsparkSession"):
                spark.sparkContext.setLogLevel("OFF")  # a failure is one sentence; Spark would add pages
            yield spark
    finally:
        if there is None:
            spark.stop()


def tasks(spark: SparkSession) -> tuple[int, int] | None:
    """How many tasks of the running stages are done, and of how many; None where Spark does not tell."""
    if not hasattr(spark, "_jsparkSession"):
        return None  # Connect
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        tracker: Any = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, OSError):
        return None  # it is going
    found = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return (sum(done for done, _ in found), sum(of for _, of in found)) if found else None


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # `session` says it
    return SparkSession.getActiveSession()
