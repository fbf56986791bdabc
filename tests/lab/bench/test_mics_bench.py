"""The benchmark of curve ranges runs, tiny: its figures are there, and its checks hold."""

from __future__ import annotations

from weftlab.bench import mics


def test_the_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    results = [
        *mics._mapping("zipf", 2, 40, told.append),
        *mics._growth("uniform", 3, (50, 100), told.append),
        *mics._covering("zipf", 300, told.append),
    ]
    found = {result.name: result for result in results}
    assert len(found) == len(results)
    assert all(result.value is not None for result in results)
    assert {name for name, result in found.items() if result.goal is not None} == {
        *("uniform-3d/50/insert_us", "uniform-3d/100/insert_us", "uniform-3d/50/match_us", "uniform-3d/100/match_us"),
        *("uniform-3d/100/insert_growth", "zipf-3d/300/cover_vs_scan"),
    }
    assert told
