"""The benchmark of hostile filters runs, tiny."""

from __future__ import annotations

import pytest

from weft.bench import hostile


def test_the_hostile_benchmark_measures_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "_TEXT", 1_000)
    told: list[str] = []
    results = hostile.run(quick=True, progress=told.append, sizes=(2, 3, 4))
    cases = {case.name for case in hostile.CASES}
    assert {result.name.split("/")[0] for result in results} == cases | {"parse_shapes"}
    assert {result.name.split("/")[2] for result in results} == {"cpu", "growth", "peak_memory"}
    assert len(told) == len(cases) + 1
    assert all(result.value is not None for result in results)
    assert {size for case in hostile.CASES for size in case.before} <= {size for c in hostile.CASES for size in c.sizes}
