"""The benchmark of tuning runs, tiny, and measures every workload, model and budget."""

from __future__ import annotations

import pytest

from weft.tuning.choices import Options
from weftlab.bench import tune


@pytest.mark.parametrize("workloads", [("tied",), pytest.param((), marks=pytest.mark.slow)])
def test_the_tune_benchmark_measures_every_figure(monkeypatch: pytest.MonkeyPatch, workloads: tuple[str, ...]) -> None:
    if workloads:
        monkeypatch.setattr(tune, "WORKLOADS", {name: tune.WORKLOADS[name] for name in workloads})
    told: list[str] = []
    results = tune.run(quick=True, progress=told.append, size=20, options=Options((16,), (8, 32)))
    figures = {result.name: result.value for result in results}
    assert len(figures) == len(results)
    assert len(told) == len(tune.WORKLOADS) * len(tune.TUNE) * 3
    for workload in tune.WORKLOADS:
        for model in tune.TUNE:
            for limit in ("forwarded", "false_positives", "memory"):
                name = f"{workload}/{model}-{limit}"
                assert (figures[f"{name}/vs_exhaustive"] or 0) > 0
                assert 0 < (figures[f"{name}/measured"] or 0) <= (figures[f"{name}/measured_exhaustive"] or 0)
