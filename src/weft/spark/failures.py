"""Failures of Spark in one sentence. Every error of Spark becomes a PipelineError that names what is at fault: the file
that cannot be read, the disk that is full, Java that was killed, or else what was being done. Its reason is the
innermost cause, without stack trace and codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from weft.errors import PipelineError, WeftError
from weft.pipeline.file_names import plain_path
from weft.spark.session import JAVA_HAS_ENDED, java_has_ended

_MOST = 1_000  # characters of a reason
_LATE = "Python worker failed to connect back"  # Spark waits 10 seconds, which no setting changes
_STOPPED = "on a stopped SparkContext"
STOPPED = (
    "Spark has stopped: its master cannot be reached, or has ended this application; check the address, and whether "
    "the master is running"
)
_CODES = re.compile(r"^\[[A-Z0-9_.]+\] | SQLSTATE: \w+")
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (?=\S)", re.MULTILINE)
_READING = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] [^\n]*? file[s]? (\S+?)\.?(?=\s|$)")
_FULL = "No space left on device"
_TEMPORARY = re.compile(r"\.shuffle\.|[sS]pill|ExternalSorter|ExternalAppendOnly|DiskBlockObjectWriter|DiskStore")


@contextmanager
def failures(what: str = "Spark failed") -> Iterator[None]:
    """Spark's errors inside become PipelineErrors that begin with `what`, or with what is at fault instead."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(fault(error) or f"{what}: {reason(error)}") from error
    except ConnectionError as error:  # to Java, if that has ended
        if isinstance(error, WeftError) or not java_has_ended():
            raise
        raise PipelineError(JAVA_HAS_ENDED) from error


def condition(error: Exception) -> str:
    """Spark's own name of an error, empty if it has none."""
    return getattr(error, "getCondition", lambda: None)() or ""


def reason(error: Exception) -> str:
    """Why, in one line: what a worker's Python raised, or the innermost cause of what Java raised."""
    text = _of_java(getattr(error, "java_exception", None)) or str(error)
    raised = list(_RAISED.finditer(text))
    if raised and "Traceback" in text:
        text = text[raised[-1].end() :]
    text = " ".join(_CODES.sub("", text.partition("\n\tat ")[0]).split())
    half = _MOST // 2  # the cause is often at the end
    return text if len(text) <= _MOST else f"{text[:half]} … {text[-half:]}"


def is_late_worker(error: Exception) -> bool:
    """Whether Spark gave up on a Python worker that did not start in time: the same may succeed the next time."""
    return _LATE in _told(error)


def fault(error: Exception) -> str | None:
    """What is at fault if it is not what was being done: an input, the disk of Spark's own files, or a killed JVM."""
    if getattr(error, "java_exception", None) is None and java_has_ended():
        return JAVA_HAS_ENDED
    told = _told(error)
    if _STOPPED in told:
        return STOPPED
    if (reading := _READING.search(told)) is not None:
        path = plain_path(unquote(reading[1]))
        return f"{path} cannot be read: {reason(error)}"
    if _FULL in told and _TEMPORARY.search(told):
        return (
            "no space is left for Spark's temporary files: free some, or choose another disk with spark.local.dir, "
            "for a command with TMPDIR"
        )
    return None


def _of_java(error: Any) -> str:
    """The message of the innermost cause that has one."""
    said = ""
    while error is not None:
        said = error.getMessage() or said
        error = error.getCause()
    return str(said)


def _told(error: Exception) -> str:
    """Everything that is known: the message of each cause, and where in Spark the innermost was raised."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts = [str(error)]
    while java is not None:
        parts.append(java.getMessage() or "")
        frames = java.getStackTrace() if java.getCause() is None else ()
        parts += [f"{frame.getClassName()}.{frame.getMethodName()}" for frame in frames]
        java = java.getCause()
    return "\n".join(parts)
