"""The benchmark of label sets runs, tiny, and measures what the paper's tables have."""

from __future__ import annotations

from weft.bench import BENCHES, dls


def test_the_dls_benchmark_measures_every_figure() -> None:
    told: list[str] = []
    results = dls.run(quick=True, progress=told.append, sizes=(1_000, 3_000))
    figures = {result.name: result.value for result in results}
    assert len(figures) == len(results)
    assert all(value is not None and value >= 0 for value in figures.values())
    for draw in dls.DRAWS:
        for dims, granules in dls.GRANULES.items():
            for size in (1_000, 3_000):
                name = f"{draw}-{dims}d-{size}"
                kinds = ("insert/{}/us", "delete/{}/us", "match/{}/us", "match/{}/exact_us", "memory/{}/filter")
                assert {kind.format(name) for kind in kinds} <= figures.keys()
                most = min(size, granules if draw == "tied" else granules**dims)
                assert 0 < (figures[f"forwarded/{name}/labels"] or 0) <= most
    assert figures["false/uniform/best_granules"] == 32  # as in Figure 9
    assert abs((figures["false/uniform-m2^16/filter"] or 0) - (figures["false/uniform-m2^16/expected"] or 0)) < 1.5
    assert len(told) == 2 * 9 + 3 + 1 + 4
    assert BENCHES["dls"]() is dls.run
