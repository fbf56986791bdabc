"""The mobility benchmark runs, tiny: its figures are there, and a move costs as much as its path is long."""

from __future__ import annotations

from weftlab.bench import mobility


def test_the_mobility_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    results = {result.name: result for result in mobility.run(quick=True, progress=told.append, size=6)}
    for name in ("ping-pong", "acyclic", "rp", "weft", "weft-cores"):
        value = results[f"busy/24/{name}"].value
        assert value is not None
        assert value > 0
    assert results["grows/20/signals per link"].ok
    assert results["grows/40/signals per link"].ok
    assert len(told) == 8
