"""The benchmark of hostile filters runs, tiny."""

from __future__ import annotations

import pytest

from weft.bench import hostile
from weft.bench.hostile_index import INDEX_ROWS


def test_the_hostile_benchmark_measures_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "_TEXT", 1_000)
    monkeypatch.setattr(hostile, "INDEX_ROWS", [row for row in INDEX_ROWS if row.name == "index_list"])
    told: list[str] = []
    results = hostile.run(quick=True, progress=told.append, sizes=(2, 3, 4))
    cases = {case.name for case in hostile.CASES}
    assert {result.name.split("/")[0] for result in results} == cases | {"parse_shapes", "index_list"}
    figures = {result.name.split("/")[2] for result in results if result.name.split("/")[0] != "index_list"}
    assert figures == {"cpu", "growth", "peak_memory", "peak_memory_growth", "peak_memory_before"}
    assert len(told) == len(cases) + 2
    assert all(result.value is not None for result in results)
    assert {size for case in hostile.CASES for size in case.before} <= {size for c in hostile.CASES for size in c.sizes}
