"""The benchmark of mapping at the client runs, tiny, and says what it must."""

from __future__ import annotations

import pytest

from weftlab.bench import BENCHES, mapping


def test_the_benchmark_of_mapping_measures_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MODELS", ("dls",))
    monkeypatch.setattr(mapping, "QUICK", 16)
    monkeypatch.setattr(mapping, "BATCHES", (1, 16))
    results = {result.name: result.value or 0 for result in mapping.run(quick=True, progress=lambda _: None)}
    whose = [f"mapping/dls/{batch}/{who}" for batch in (1, 16) for who in ("broker_a", "broker_b", "client")]
    ratios = {f"{each}_{way}" for each in whose for way in ("us", "handed_on", "mapped")}
    assert results.keys() == ratios | {f"mapping/dls/broker_{name}_maps" for name in "abc"}
    assert all(results[each] > 0 for each in ratios)
    assert results["mapping/dls/broker_a_maps"] < 100
    assert results["mapping/dls/broker_c_maps"] == 0
    assert BENCHES["mapping"]() is mapping.run
