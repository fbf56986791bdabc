"""The status of a broker, as a value: what `StatusReport` carries."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.errors import RemoteProtocolError


class QueueStatus(msgspec.Struct, frozen=True):
    """One queue."""

    session: str  # its name; empty if the queue is shared, or the session has none
    queue: int
    share: str = ""
    durable: bool = True
    behind: int = 0  # its own events that are stored and not acknowledged
    open: int = 0  # events that are delivered and not acknowledged, or held
    subscriptions: int = 0
    connected: bool = False


class BrokerStatus(msgspec.Struct, frozen=True):
    """A broker. `driver` is what the process around it knows: its name, its links, rates, the log's size and so on."""

    log_id: str
    incarnation: int
    first: int  # the oldest event that is kept
    end: int  # the offset after the last
    needed: int  # the first offset that somebody still has to read
    model: str  # of the routing table
    sessions: int
    connections: int
    subscriptions: int
    queues: int
    furthest: tuple[QueueStatus, ...]  # queues that are furthest behind
    pending: int  # groups on their way into the log
    counts: dict[str, int]
    driver: dict[str, Any] = {}
    options: dict[str, Any] = {}  # of the model, as far as they differ from their defaults


_decode = msgspec.msgpack.Decoder(BrokerStatus).decode


def broker_status(body: bytes) -> BrokerStatus:
    """The status that a `StatusReport` carries. Raises RemoteProtocolError."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"the status of the broker cannot be read: {error}") from None
