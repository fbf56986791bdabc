"""Spark's failures in one sentence. Law: every error of Spark becomes a PipelineError; its reason is the innermost
cause, without stack trace and codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import PipelineError

_MOST = 300  # characters of a reason
_CODES = re.compile(r"^\[[A-Z0-9_.]+\] | SQLSTATE: \w+")
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (?=\S)", re.MULTILINE)


@contextmanager
def failures(what: str = "Spark failed") -> Iterator[None]:
    """Spark's errors inside become PipelineErrors that begin with `what`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"{what}: {reason(error)}") from error


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
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def _of_java(error: Any) -> str:
    """The message of the innermost cause that has one."""
    said = ""
    while error is not None:
        said = error.getMessage() or said
        error = error.getCause()
    return str(said)
