"""The benchmark of negative space runs, tiny, and says what it must."""

from __future__ import annotations

from weftlab.bench import negative


def test_every_figure_is_measured() -> None:
    told: list[str] = []
    results = negative.run(quick=True, progress=told.append, size=80)
    names = {result.name for result in results}
    for dims, size in ((2, 80), (3, 80), (4, 80), (5, 20)):
        figures = "exact_redundant bound_redundant k50_redundant covering_redundant exact_dearer k50_rate"
        for figure in figures.split():
            assert f"{dims}d/{size}/{figure}" in names
        assert sum(name.startswith(f"{dims}d/") and name.endswith("exact_boxes") for name in names) == 5
    assert {name.split("/")[0] for name in names if name.startswith("limit-")} == {
        "limit-k10",
        "limit-k50",
        "limit-k100",
        "limit-dynamic10",
        "limit-k10-benefit",
        "limit-k10-cost",
    }
    assert len(names) == len(results)
    assert all(result.value is not None for result in results)
    assert {"mixed/80/boxes", "mixed/80/megabytes", "steps/800/longest"} <= names
    assert len(told) == 16 + 3 + 6 + 2 + 2
