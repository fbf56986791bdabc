"""The Python of Spark's workers. Workers that cannot run Weft are found before a job, and reported in one sentence.

Workers that run the very Python of the driver are fine. Others are tried once for each session, with a function that
travels by value: it needs nothing of Weft to arrive.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from weft.errors import PipelineError
from weft.spark.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIED: set[str] = set()  # sessions whose workers are fine
_PROBE = """
def probe(batches):
    import sys
    import pyarrow
    try:
        import weft
        said = ""
    except ImportError as error:
        said = f"{sys.executable}: {error}"
    for batch in batches:
        yield pyarrow.record_batch({"said": [said] * batch.num_rows})
"""


def check_workers(spark: SparkSession) -> None:
    """Raise PipelineError if the workers of a session cannot import Weft. Cost: one small job, once for a session."""
    name = _session_name(spark)
    if name in _TRIED or _same_python(spark):
        return
    space: dict[str, Any] = {"__name__": "__main__"}  # what is of __main__ is pickled by value
    exec(_PROBE, space)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        said = spark.range(1).mapInArrow(space["probe"], "said string").collect()[0].said
    except (PySparkException, Py4JError) as error:
        said = reason(error)
    if said:
        raise PipelineError(
            f"the workers of this Spark session cannot run weft ({said}): install weft there, or set PYSPARK_PYTHON "
            f"to {sys.executable} before the session starts"
        )
    _TRIED.add(name)


def _session_name(spark: SparkSession) -> str:
    if hasattr(spark, "_jsparkSession"):
        return str(spark.sparkContext.applicationId)
    return str(getattr(spark, "session_id", id(spark)))


def _same_python(spark: SparkSession) -> bool:
    """Whether workers on this machine run the driver's own Python."""
    if not hasattr(spark, "_jsparkSession") or not str(spark.sparkContext.master).startswith("local"):
        return False
    found = shutil.which(spark.sparkContext.pythonExec or "")
    return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)
