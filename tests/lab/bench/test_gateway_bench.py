"""The benchmark of the gateway runs, tiny, and says what it must."""

from __future__ import annotations

from weftlab.bench import BENCHES, gateway


def test_the_benchmark_of_the_gateway_measures_every_figure() -> None:
    results = gateway.run(quick=True, progress=lambda _: None)
    assert {result.name for result in results} == {
        "echo/posts_per_cpu_s",
        "echo/posts_per_s",
        "post/posts_per_cpu_s",
        "post/posts_per_s",
        "post/of_echo",
        "batch/events_per_cpu_s",
        "batch/events_per_s",
        "sse/deliveries_per_cpu_s",
        "ndjson/deliveries_per_cpu_s",
        "broker/publish_p99_ms",
        "broker/publish_p99_ms_beside_echo",
        "broker/publish_p99_ms_native_load",
        "broker/publish_p99_ms_gateway_load",
        "broker/gateway_load",
        "broker/publish_p99_ratio",
    }
    assert all(result.value is not None and result.value > 0 for result in results)
    assert BENCHES["gateway"]() is gateway.run
