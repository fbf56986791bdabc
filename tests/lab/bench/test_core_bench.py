"""The bench of the broker core runs, tiny."""

from __future__ import annotations

from weft.protocol.messages import Publish
from weftlab.bench import BENCHES
from weftlab.bench.core import Bench, _memory, _recovery, _throughput, events, subscriptions


def test_every_figure_is_measured() -> None:
    results = [*_throughput(200, 1_010), _memory(100), *_recovery(300, "covering", 15)]
    assert {result.name.split("/")[0] for result in results} == {"core", "recovery"}
    assert all(result.value is not None for result in results)
    assert "core" in BENCHES


def test_the_bench_delivers_what_it_says() -> None:
    bench = Bench(subscriptions(500), "simple")
    published = [Publish.of(n + 1, each, b"x" * 130) for n, each in enumerate(events(100))]
    bench.round(published)
    bench.core.check()
    assert bench.core.end == 101
    assert bench.core.needed <= 101
