"""The benchmark of streams runs, tiny."""

from __future__ import annotations

import pytest

from weftlab.bench import BENCHES, streaming


@pytest.mark.slow
def test_the_streaming_benchmark_measures_every_figure() -> None:
    sizes = streaming.StreamSizes(subscriptions=((500, 50),), events=20, many=100, batches=3, log=300, long=5)
    results = streaming.run(quick=True, progress=lambda _: None, sizes=sizes)
    figures = {result.name: result.value for result in results}
    assert len(figures) == len(results)
    wanted = {
        "W1/500/floor",
        "W1/500/over_floor",
        "W1/500/rate",
        "log/300/vs_direct",
        "W1/2000/5_batches/workers/bases",
    }
    assert wanted <= figures.keys()
    assert (figures["W1/500/latency"] or 0) > 0


def test_it_can_be_asked_for() -> None:
    assert BENCHES["streaming"]() is streaming.run
