"""The bench of the log runs, tiny, and every figure was measured."""

from __future__ import annotations

from weftlab.bench.log_groups import log_results


def test_every_figure_is_measured():
    results = log_results(quick=True, size=3)
    assert all(result.value is not None and result.value >= 0 for result in results)
    names = [result.name for result in results]
    assert len(set(names)) == len(names)
    goals = {result.name for result in results if result.goal is not None}
    assert goals == {"log/500/wall_vs_plain_file", "log/500/cpu_per_event"}
