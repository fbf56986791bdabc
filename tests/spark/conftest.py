"""One session for all tests of Spark in a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from weft.spark import session

    options = {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true"}
    started = session("local[2]", memory="1g", options=options)
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def names_of_any_case(request: pytest.FixtureRequest) -> None:
    """Names are case-insensitive at the start of every test: a session that a command began may have said otherwise."""
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").conf.set("spark.sql.caseSensitive", "false")
