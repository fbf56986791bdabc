"""The metrics of a stream for Prometheus. Every micro-batch is counted once, when it is committed."""

from __future__ import annotations

from weft.errors import PipelineError
from weft.spark.stream_journal import BatchMetrics

_COUNTED = {"events": "events that were matched", "matches": "matches", "refused": "events that could not be read"}


class StreamExporter:
    """An endpoint with what a stream has done since it was started."""

    def __init__(self, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
        except ImportError:
            raise PipelineError("prometheus-client is not installed: pip install 'weft[broker]'") from None
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"weft_stream_{name}", f"Number of {what}.", registry=self._registry)
            for name, what in _COUNTED.items()
        }
        self._batches = Counter("weft_stream_batches", "Number of micro-batches.", registry=self._registry)
        self._version = Gauge("weft_stream_version", "Commands that have been read.", registry=self._registry)
        self._size = Gauge("weft_stream_subscriptions", "Subscriptions.", registry=self._registry)
        self._seconds = Histogram(
            "weft_stream_batch_seconds", "Time to match and commit a micro-batch.", registry=self._registry
        )
        try:
            self._server, _ = start_http_server(port, addr="127.0.0.1", registry=self._registry)
        except OSError as error:
            raise PipelineError(f"metrics cannot be served on port {port}: {error.strerror}") from None

    @property
    def port(self) -> int:
        """Where it listens, on this machine only."""
        return int(self._server.server_port)

    def tell(self, metrics: BatchMetrics) -> None:
        """Count a micro-batch."""
        for name, counter in self._counters.items():
            counter.inc(getattr(metrics, name) or 0)
        self._batches.inc()
        self._version.set(metrics.version)
        self._size.set(metrics.subscriptions or 0)
        self._seconds.observe(metrics.seconds or 0)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
