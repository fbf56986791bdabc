"""The rows of hostile input that concern an index run, tiny."""

from __future__ import annotations

import pytest

from weftlab.bench.hostile_index import INDEX_ROWS, IndexRow, churn, strings_remembered


@pytest.mark.parametrize("row", [row for row in INDEX_ROWS if "strings" not in row.name], ids=lambda row: row.name)
def test_every_row_runs(row: IndexRow) -> None:
    figures = churn(200, changes=100) if row.work is churn else row.work(5)
    assert figures
    assert all(figure >= 0 for figure in figures.values())


def test_nothing_is_kept_of_long_strings() -> None:
    assert strings_remembered(5, length=10_000)["bytes_an_event"] < 1_000
