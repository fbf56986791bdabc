"""One session for all tests of Spark in a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from strategies import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Few rows never repay Java for compiling a program for each query: without that the tests of commands took 67 s of
# processor time instead of 75, the two longest of matching 48 instead of 58. Longer runs execute queries as users do.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from weft.spark import session

    options = {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true"}
    if EXAMPLES == 1:
        options |= INTERPRETED
    started = session("local[2]", memory="1g", options=options)
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def names_of_any_case(request: pytest.FixtureRequest) -> None:
    """Names are case-insensitive at the start of every test: a session that a command began may have said otherwise."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").conf.set("spark.sql.caseSensitive", "false")
