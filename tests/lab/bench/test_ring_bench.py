"""The ring benchmark runs, tiny: its figures are there, and nothing is missed."""

from __future__ import annotations

from weftlab.bench import ring


def test_the_ring_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    results = {result.name: result for result in ring.run(quick=True, progress=told.append, size=60)}
    for design in ring.DESIGNS:
        assert results[f"designs/60/{design}_missed"].value == 0
        assert results[f"designs/60/{design}_events_per_s"].value > 0
        assert 0 < results[f"designs/60/{design}_gini"].value < 1
    assert results["look-up/64/hops"].ok
    assert results["large/1200/missed"].value == 0
    assert results["against/32/flooding_messages"].value == 31
    for name in ("ring", "one_broker", "covering"):
        assert 0 < results[f"against/32/{name}_messages"].value < 60
        assert results[f"against/32/{name}_bytes"].value > results[f"against/32/{name}_messages"].value
    assert results["schemes/32/ferry_per_subscription"].value == 1
    assert len(told) > 8
