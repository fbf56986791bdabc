"""Spark for the duration of a command. A session that is already active is used unchanged and kept. One that is started
here prints nothing and is case-sensitive as filters are. It is gone at the end, with its temporary files and, unless
that was running before, its JVM. Failures are PipelineErrors.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.spark.failures import failures
from weft.spark.session import end_java, java_has_ended, java_runs, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A minute does not repay Java for its optimising compiler, nor for collecting garbage in parallel.
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def command_session(
    master: str | None = None, memory: str | None = None, *, brief: bool = False
) -> Iterator[SparkSession]:
    """A session to work with. A `brief` one is for about a minute: Java starts faster and never reaches full speed.

    Raises PipelineError, whatever Spark raises inside.
    """
    there = _active()
    if there is not None:
        with failures():
            yield there
        return
    others = java_runs()
    scratch = Path(tempfile.mkdtemp(prefix="weft-spark-"))
    try:
        options = {"spark.sql.caseSensitive": "true"}
        if brief:
            options["spark.driver.extraJavaOptions"] = _BRIEF
        spark = session(master, memory=memory, options=options, scratch=scratch)
        try:
            with failures():
                if hasattr(spark, "_jsparkSession"):
                    spark.sparkContext.setLogLevel("OFF")  # a failure is one sentence; Spark would add pages
                yield spark
        finally:
            with _gone():
                spark.stop()
    finally:  # also if Ctrl-C comes while it starts
        if not others:
            end_java()
        shutil.rmtree(scratch, ignore_errors=True)


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


@contextmanager
def _gone() -> Iterator[None]:
    """What is done with a JVM may fail if it was killed."""
    try:
        yield
    except Exception:
        if not java_has_ended():
            raise


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # `session` says it
    return SparkSession.getActiveSession()
