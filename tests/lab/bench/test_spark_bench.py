"""The benchmark of the pipeline runs, tiny, and all peers find the same pairs."""

from __future__ import annotations

import pytest

from weftlab.bench import BENCHES, spark
from weftlab.bench.spark_scale import ScaleSizes


@pytest.mark.slow
def test_the_spark_benchmark_measures_every_figure() -> None:
    notes: list[str] = []
    scale = ScaleSizes(uneven=2_000, wide=500, attributes=50, events=1_000, subscriptions=2_000, turns=1)
    many = {"many": 1_000, "partitioned": 3_000, "job": (2_000, 500), "job_turns": 1}
    sizes = spark.BenchSizes(cubes=(800,), plain=(20, 60), **many, cells=(8,), turns=1, scale=scale)
    results = spark.run(quick=True, progress=lambda _: None, note=notes.append, sizes=sizes)
    figures = {result.name: result.value for result in results}
    assert len(figures) == len(results)
    assert {"cubes/800/vs_grid_join", "cubes/800/vs_plain_join", "W1/1000/vs_bare", "W1/1000/growth"} <= figures.keys()
    assert 5 < (figures["cubes/800/matches"] or 0) < 15
    assert (figures["W1/3000/partitioned_peak"] or 0) > 0
    assert "grid join" in notes[0]
    assert (figures["engines/2000x500/vs_spark"] or 0) > 1
    uneven = {f"{name}/2000/partitioned_vs_index" for name in ("skew", "nulls")}
    uneven |= {"skew/2000/partitioned_vs_index_pairs", "skew/2000/largest_task", "wide/500/bytes_per_filter"}
    assert uneven | {"W1/2000/partitioned_counts_seconds", "W1/2000/partitioned_counts_peak"} <= figures.keys()
    assert 20 < (figures["wide/500/bytes_per_filter"] or 0) < 1_000


def test_it_can_be_asked_for() -> None:
    assert BENCHES["spark"]() is spark.run
