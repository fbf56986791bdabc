"""The benchmark of label sets runs, tiny, and measures what the paper's tables have."""

from __future__ import annotations

from itertools import product

import pytest

from weftlab.bench import BENCHES, dls, dls_granules, dls_printed


def test_the_dls_benchmark_measures_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dls_printed, "SIZES", (256, 1024))  # the third has a test of its own
    told: list[str] = []
    results = dls.run(quick=True, progress=told.append, sizes=(300, 900))
    figures = {result.name: result.value for result in results}
    assert len(figures) == len(results)
    assert None not in figures.values()
    assert all(value > 0 for name, value in figures.items() if name.startswith("memory/"))  # times may be differences
    for draw in dls.DRAWS:
        for dims, granules in dls.GRANULES.items():
            for size in (300, 900):
                name = f"{draw}-{dims}d-{size}"
                kinds = ("insert/{}/us", "delete/{}/us", "match/{}/us", "match/{}/exact_us", "memory/{}/filter")
                assert {kind.format(name) for kind in kinds} <= figures.keys()
                most = min(size, granules if draw == "tied" else granules**dims)
                assert 0 < (figures[f"forwarded/{name}/labels"] or 0) <= most
    assert figures["false/uniform/best_granules"] == 32  # as in Figure 9
    assert abs((figures["false/uniform-m2^16/filter"] or 0) - (figures["false/uniform-m2^16/expected"] or 0)) < 1.5
    for draw, size in product(("uniform", "zipf"), dls_granules.SIZES):
        for what, model in product(("insert", "match"), ("dls", "mics")):
            name = f"{what}/{draw}-4-{size}"
            ours, ratio = (figures[f"{name}-g256/{model}_{unit}"] or 0 for unit in ("us", "vs_paper"))
            assert abs(ratio * dls_granules.PAPER[what, draw, model][-1] - ours) < 1e-9
            first, last = (figures[f"{name}-g{granules}/{model}_us"] or 0 for granules in (16, 256))
            assert figures[f"{name}/{model}_growth"] == last / first
    for size in dls_printed.SIZES:
        assert figures[f"lost/m{size}/ours"] == 0
    assert (figures["lost/m256/printed"] or 0) > (figures["lost/m1024/printed"] or 0) > 0
    for kind, part in product(("printed", "ours-filter", "ours-exact"), ("receiver", "sender", "clients")):
        assert (figures[f"memory/6/{kind}/{part}"] or 0) > 0
    assert len(told) == 2 * 9 + 3 + 1 + 4 + 2 * 2 * 5 + 2
    assert BENCHES["dls"]() is dls.run
