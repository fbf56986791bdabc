"""A Spark session. The caller's session is used unchanged; one that is started here is local, quiet and runs this
Python.

Importing this module starts nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_HAS_ENDED = "the Java process of Spark has ended: it was killed, perhaps because the machine has too little memory"
_BATCH = 50_000  # rows of an Arrow batch: Spark's 10,000 is too few to keep the kernels busy
_OPEN_COST = 1 << 17  # bytes that opening a file is worth: with Spark's 4 MB, one task reads files of less than that
_PATIENCE = 30  # seconds that the JVM has to end
_ENDING = 0.2  # seconds between the end of its connections and its own
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ANOTHERS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # spark-submit or Connect chose


def session(
    master: str | None = None,
    *,
    ui: bool = False,
    memory: str | None = None,
    options: dict[str, str] | None = None,
    scratch: Path | None = None,
) -> SparkSession:
    """Return the running session, or start one: on `master`, where spark-submit or Connect says, or on this machine.

    `memory` is the driver's memory, by default a quarter of the machine's. `options` are settings of Spark; options of
    Java among them are added to ours, and settings of spark-submit or of a server are kept. With a `scratch` folder, a
    session that runs on this machine keeps its temporary files there, and its own messages go to the file `java.log` in
    it. Raises PipelineError that says what is missing.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
        from pyspark.sql.utils import is_remote
    except ImportError:
        raise PipelineError("Spark is not installed: pip install 'weft[spark]'") from None
    existing = _existing()
    if existing is not None:
        return existing
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or workers take the first python3 of the PATH
    remote = os.environ.get("SPARK_REMOTE") if master is None else master if master.startswith("sc://") else None
    local = remote is None and not _chosen()
    builder = SparkSession.builder.appName("weft")
    settings: dict[str, str] = {}
    if local or (remote or "").startswith("local"):  # then a JVM is started here
        from weft.spark.java import java_home

        os.environ["JAVA_HOME"] = str(java_home())
    if remote is not None:
        builder = builder.remote(remote)
    elif local:
        master = master or "local[*]"
        settings = _settings(master, ui, memory or _memory(), scratch)
    settings = _joined(settings, options or {})
    if remote is None and master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        if local and scratch is not None:
            _launch(settings, scratch / "java.log")
        started = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as error:
        raise PipelineError(
            f"Spark does not start on {remote or master or 'the configured master'}: {_said(error)}"
        ) from error
    if local and not is_remote():
        started.sparkContext.setLogLevel("ERROR")
    return started


def _launch(settings: dict[str, str], log: Path) -> None:
    """Start the JVM with its output in a file; PySpark itself would leave it on our stderr.

    It has a session of its own: signals that a terminal or a supervisor sends to the whole process group are for the
    command, which ends its work in good order and then the JVM.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    with log.open("wb") as file:
        options = {"stdout": file, "stderr": file, "start_new_session": True}
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def java_runs() -> bool:
    """Whether this process has started a JVM, with or without a session."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def java_has_ended() -> bool:
    """Whether this process has started a JVM that is gone, although it was not ended here."""
    context = sys.modules.get("pyspark.core.context")
    gateway = None if context is None else context.SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_java() -> None:
    """Stop the JVM of this process, if there is one, and wait for its end, so that its files can be removed."""
    context = sys.modules.get("pyspark.core.context")
    gateway = None if context is None else context.SparkContext._gateway
    if context is None or gateway is None or gateway.proc is None:
        return
    context.SparkContext._gateway = context.SparkContext._jvm = context.SparkContext._active_spark_context = None
    with suppress(Exception):  # it may be in the middle of anything
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its input does
    try:
        gateway.proc.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


def _existing() -> SparkSession | None:
    """The session of this thread, or of any other of this process; none of its settings is touched."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:  # another thread's
        return SparkSession.builder.getOrCreate()
    return active


def _chosen() -> bool:
    """Whether the environment sets where to run, and with which settings."""
    return any(name in os.environ for name in _ANOTHERS) or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def _said(error: Exception) -> str:
    """The first line that means something: of an exception of Java its own message, not Py4J's."""
    java = getattr(error, "java_exception", None)
    if java is None and java_has_ended():
        return JAVA_HAS_ENDED
    said = str(error if java is None else java.getMessage()).strip()
    if "on a stopped SparkContext" in said:
        return "the master cannot be reached, or has ended this application"
    return said.partition("\n")[0]


def _settings(master: str, ui: bool, memory: str, scratch: Path | None) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.maxResultSize": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
        "spark.sql.files.openCostInBytes": str(_OPEN_COST),
        "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 2))),
    }
    if master.startswith("local"):  # no name service is needed to talk to oneself
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        java = []
        if "SPARK_CONF_DIR" not in os.environ:
            java.append(f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}")
        if scratch is not None:
            java.append(f"-Djava.io.tmpdir={scratch}")
            settings["spark.local.dir"] = str(scratch)
        if java:
            settings[_JAVA_OPTIONS] = " ".join(java)
    return settings


def _joined(ours: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    """What is given counts; options of Java are for both."""
    java = [each[_JAVA_OPTIONS] for each in (ours, given) if _JAVA_OPTIONS in each]
    return {**ours, **given, **({_JAVA_OPTIONS: " ".join(java)} if java else {})}


def _memory() -> str:
    """A quarter of the machine's memory, one to eight gigabytes."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        whole = 0
    return f"{min(8, max(1, whole // 2**32))}g"
