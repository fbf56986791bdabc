"""What the process around a broker knows, for its status and its metrics. Law: every number that
only grows counts from the start, so that whoever asks twice has a rate.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from weft.errors import WeftError
from weft.net.clock import clock

if TYPE_CHECKING:
    from weft.net.node import BrokerNode


def facts_of(node: BrokerNode) -> dict[str, Any]:
    """The facts of a node. Cost: O(connections)."""
    now, committer = clock(), node.committer
    return {
        "name": node.name,
        "addresses": [str(address) for address in node.addresses],
        "process": os.getpid(),
        "at": now.utc,
        "uptime": now.monotonic - node.started.monotonic,
        "counts": dict(node.counts) | ({} if node.gate is None else dict(node.gate.counts)),
        "bytes received": node.bytes_received,
        "bytes sent": node.bytes_sent,
        "bytes unsent": sum(connection.unsent for connection in node.connections.values()),
        "open connections": len(node.connections),
        "commits": committer.commits,
        "groups": committer.groups,
        "commit seconds": round(committer.seconds, 6),
        "bytes waiting": committer.bytes,
        "log bytes": _size(node),
        "stopping": node.stopping,
        "links": links_of(node),
    }


def links_of(node: BrokerNode) -> list[dict[str, Any]]:
    """How the links to neighbours are."""
    return [to_builtins(link) for link in node.core.links()]


def _size(node: BrokerNode) -> int:
    try:
        return node.log.size()
    except WeftError:
        return 0
