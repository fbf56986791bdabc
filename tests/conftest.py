"""What holds for all tests: those that need Spark run in one process, so that only one session has to start."""

from __future__ import annotations

import pytest

SPARK = ("tests/spark/", "tests/demo/test_pipeline_chapter", "tests/bench/test_spark_bench")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(SPARK):
        item.add_marker(pytest.mark.xdist_group("spark"))
