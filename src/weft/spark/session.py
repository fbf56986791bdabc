"""A session of Spark. Law: the caller's own is taken as it is; one that we start is local, quiet and uses this Python.

No session is made at import.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from weft.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH = 50_000  # rows of an Arrow batch: Spark's 10,000 is too few to keep the kernels busy
_ANOTHERS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # spark-submit or Connect chose


def session(
    master: str | None = None, *, ui: bool = False, memory: str | None = None, options: dict[str, str] | None = None
) -> SparkSession:
    """The session there is, or a new one: of `master`, of what spark-submit or Connect said, or of this machine.

    `memory` is that of the driver (a quarter of the machine's unless told), `options` are Spark's own. Raises
    PipelineError that says what is missing.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("Spark is not installed: pip install 'weft[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take the first python3 of the PATH
    builder = SparkSession.builder.appName("weft")
    remote = os.environ.get("SPARK_REMOTE") if master is None else master if master.startswith("sc://") else None
    if remote is not None:
        builder = builder.remote(remote)
        settings = {}
    else:
        from weft.spark.java import java_home

        settings = _settings(ui, memory or _memory())
        if not any(name in os.environ for name in _ANOTHERS):
            os.environ["JAVA_HOME"] = str(java_home())
            master = master or "local[*]"
        if master is not None:
            builder = builder.master(master)
            if master.startswith("local"):  # no name service is needed to talk to oneself
                settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in {**settings, **(options or {})}.items():
        builder = builder.config(name, value)
    try:
        started = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        first = str(error).strip().partition("\n")[0]
        raise PipelineError(f"Spark does not start on {master or remote or 'this machine'}: {first}") from error
    if remote is None:
        started.sparkContext.setLogLevel("ERROR")
    return started


def _settings(ui: bool, memory: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.maxResultSize": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
        "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 2))),
    }


def _memory() -> str:
    """A quarter of the machine's memory, one to eight gigabytes."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        whole = 0
    return f"{min(8, max(1, whole // 2**32))}g"
