"""The metrics and the health of a broker: in its status, and over HTTP at `/metrics` (Prometheus) and `/health`.

Nothing here changes the broker, and metrics are collected only when they are requested. Every metric begins with
`weft_`; counters, which count from the start, end with `_total`. A broker is healthy when it accepts events and all its
links are synced.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from weft.errors import OptionError, WeftError
from weft.protocol.status import BrokerStatus
from weft.server.clock import clock
from weft.server.http import MISSING, http_serving

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from weft.server.node import BrokerNode


def process_metrics(node: BrokerNode) -> dict[str, Any]:
    """What the process around a core adds to its status. Cost: O(connections)."""
    now, committer, size = clock(), node.committer, 0
    with contextlib.suppress(WeftError):
        size = node.log.size()
    return {
        "name": node.name,
        "addresses": [str(address) for address in node.addresses],
        "process": os.getpid(),
        "at": now.utc,
        "uptime": now.monotonic - node.started.monotonic,
        "counts": dict(node.counts)
        | {"events received": node.reads.events}
        | ({} if node.authenticator is None else dict(node.authenticator.counts)),
        "averages": node.core.averages,
        "bytes received": node.bytes_received,
        "bytes sent": node.bytes_sent,
        "bytes unsent": sum(connection.unsent for connection in node.connections.values()),
        "open connections": len(node.connections),
        "commits": committer.commits,
        "groups": committer.groups,
        "commit seconds": round(committer.seconds, 6),
        "bytes waiting": committer.bytes,
        "log bytes": size,
        "stopping": node.stopping,
        "links": to_builtins(node.core.links()),
    }


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
        gauge("profiles", "Living profiles that the broker knows.", status.counts.get("profiles living", 0)),
        gauge("profile_queries", "Subscriptions to profiles.", status.counts.get("queries for profiles", 0)),
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
    metrics += [counter(*described, driver["counts"].get(name, 0)) for name, described in _NODE.items()]
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


@contextlib.asynccontextmanager
async def http_server(node: BrokerNode, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Serve the pages until the block ends. Yields host and port. Raises OptionError."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import CounterMetricFamily
        from prometheus_client.exposition import CONTENT_TYPE_LATEST
        from prometheus_client.registry import Collector
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise OptionError(f"{MISSING}, or leave out the setting http") from None

    refused: Counter[str] = Counter()

    class NodeMetrics(Collector):
        def collect(self) -> Iterable[Metric]:
            http = CounterMetricFamily("weft_http_refused", "HTTP requests that were refused.", labels=["reason"])
            for reason, times in refused.items():
                http.add_metric([reason], times)
            return [*metrics_of(node.core.status(QUEUES)), http]

    async def metrics(_: Request) -> Response:
        registry = CollectorRegistry()
        registry.register(NodeMetrics())
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        links = node.core.links()
        cold = [link.peer for link in links if not link.warm]
        ready = not node.stopping and not node.ended.done() and not cold
        body = {"ready": ready, "stopping": node.stopping, "links": len(links), "cold links": cold}
        body |= node.more_health()
        return JSONResponse(body, status_code=200 if ready else 503)

    pages = Starlette(routes=[Route("/metrics", metrics), Route("/health", health)])
    async with http_serving(pages, host, port, refused) as place:
        yield place
