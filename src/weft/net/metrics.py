"""The figures of a broker for Prometheus. Law: they are read when somebody asks, and cost nothing otherwise.

Every name begins with `weft_`; what only grows ends with `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.broker.status import BrokerStatus
from weft.errors import OptionError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from weft.net.node import BrokerNode

QUEUES = 20  # that are furthest behind and shown one by one
_NODE = {
    "connections": ("connections_opened", "Connections that were opened."),
    "refused connections": ("connections_refused", "Connections beyond the limit."),
    "garbled connections": ("connections_garbled", "Connections that sent something unreadable."),
    "events received": ("events_received", "Events that clients published."),
    "events delivered": ("events_delivered", "Deliveries of events to clients."),
    "logins": ("logins", "Clients and neighbours that were authenticated."),
    "logins refused": ("logins_refused", "Clients and neighbours that were refused, or sent no valid first message."),
    "logins not tried": ("logins_not_tried", "Connections refused because their address has failed too often."),
    "turns": ("turns", "Turns of the event loop that had work."),
}


class Collector:
    """Reads a node's figures; registered with Prometheus's client library."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return metrics_of(self._node.core.status(QUEUES))


def metrics_of(status: BrokerStatus) -> list[Metric]:
    """The metrics of a status."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    def gauge(name: str, help: str, value: float) -> Metric:
        return GaugeMetricFamily(f"weft_{name}", help, value=value)

    def counter(name: str, help: str, value: float) -> Metric:
        return CounterMetricFamily(f"weft_{name}", help, value=value)

    driver = status.driver
    metrics = [
        gauge("sessions", "Sessions, connected or not.", status.sessions),
        gauge("connections", "Open connections.", driver["open connections"]),
        gauge("subscriptions", "Subscriptions of clients.", status.subscriptions),
        gauge("queues", "Queues of clients.", status.queues),
        gauge("log_first_offset", "The oldest event that is kept.", status.first),
        gauge("log_needed_offset", "The first event that somebody still has to read.", status.needed),
        gauge("log_bytes", "Bytes that the log takes.", driver["log bytes"]),
        gauge("log_waiting_bytes", "Bytes that wait for the log.", driver["bytes waiting"]),
        gauge("unsent_bytes", "Bytes that wait to be written to clients.", driver["bytes unsent"]),
        gauge("uptime_seconds", "Seconds since the start.", driver["uptime"] / 1e6),
        counter("log_events", "Events that were ever stored.", status.end - 1),
        counter("commits", "Commits of the log.", driver["commits"]),
        counter("commit_groups", "Groups that were committed.", driver["groups"]),
        counter("commit_seconds", "Seconds spent in commits.", driver["commit seconds"]),
        counter("received_bytes", "Bytes received.", driver["bytes received"]),
        counter("sent_bytes", "Bytes sent.", driver["bytes sent"]),
    ]
    metrics += [counter(*_NODE[name], value) for name, value in driver["counts"].items() if name in _NODE]
    happened = CounterMetricFamily("weft_happened", "Counters, by what happened.", labels=["what"])
    for what, times in status.counts.items():
        happened.add_metric([what], times)
    behind = GaugeMetricFamily(
        "weft_queue_behind", "Events that a queue has yet to acknowledge.", labels=["session", "queue", "share"]
    )
    for queue in status.furthest:
        if queue.durable:
            behind.add_metric([queue.session, str(queue.queue), queue.share], queue.behind)
    warm = GaugeMetricFamily("weft_link_warm", "Whether a link is ready.", labels=["peer"])
    lag = GaugeMetricFamily("weft_link_behind", "Events that a neighbour has yet to confirm.", labels=["peer"])
    for link in driver["links"]:
        warm.add_metric([link["peer"]], float(link["warm"]))
        lag.add_metric([link["peer"]], link["lag"])
    return [*metrics, happened, behind, warm, lag]


def exposition(node: BrokerNode) -> tuple[bytes, str]:
    """The metrics as text, and its content type. Raises OptionError without the extra `broker`."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.exposition import CONTENT_TYPE_LATEST
    except ImportError:
        raise OptionError("/metrics needs the extra `broker`: install weft[broker]") from None
    registry = CollectorRegistry()
    registry.register(Collector(node))
    return generate_latest(registry), CONTENT_TYPE_LATEST
