"""The benchmark of links runs, tiny, and says what it must."""

from __future__ import annotations

import pytest

from weft.errors import LocalProtocolError
from weftlab.bench import BENCHES, links


def test_the_benchmark_of_links_measures_every_figure() -> None:
    results = links.run(quick=True, progress=lambda _: None, size=120)
    assert {result.name for result in results} == {
        "chain/120/subscribe_us",
        "chain/120/change_us",
        "chain/120/longest_learn_ms",
        "chain/120/longest_change_ms",
        "events/120/per_cpu_s",
        "events/120/hop_us",
        "events/120/crossed",
        "resync/120/equal_s",
        "resync/120/24_different_s",
        "restart/120/warm_s",
    }
    assert all(result.value is not None and result.value > 0 for result in results)
    assert BENCHES["links"]() is links.run
    with pytest.raises(LocalProtocolError, match="at least 100"):
        links.run(quick=True, progress=lambda _: None, size=5)
