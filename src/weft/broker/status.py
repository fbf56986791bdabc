"""How a broker is, as a value. Law: reading it changes nothing; its cost grows with queues, not with events."""

from __future__ import annotations

from heapq import nlargest
from typing import Any

import msgspec

from weft.broker.lossy_queue import LossyQueue
from weft.broker.queue import Queue
from weft.broker.state import BrokerState


class QueueStatus(msgspec.Struct, frozen=True):
    """One queue."""

    session: str  # its name; empty if the queue is shared, or the session has none
    queue: int
    share: str = ""
    durable: bool = True
    behind: int = 0  # offsets from the oldest event that is not acknowledged to the end of the log
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


def status_of(state: BrokerState, most: int, needed: int, driver: dict[str, Any]) -> BrokerStatus:
    """The status of a broker, with so many queues."""
    queues = [_durable(state, queue) for queue in state.queues]
    for session in state.sessions.values():
        for queue in session.queues.values():
            if isinstance(queue, LossyQueue):
                held = len(queue.held)
                queues.append(
                    QueueStatus(session.name, queue.number, "", False, held, held, len(queue.members), connected=True)
                )
    return BrokerStatus(
        state.log_id,
        state.incarnation,
        state.log_first,
        state.end,
        needed,
        state.seats.table.model,
        len(state.sessions),
        sum(1 for each in state.connections.values() if each.session is not None),
        len(state.seats),
        len(queues),
        tuple(nlargest(most, queues, key=lambda each: (each.behind, each.open))),
        len(state.pending),
        dict(sorted(state.counts.items())),
        driver,
    )


def _durable(state: BrokerState, queue: Queue) -> QueueStatus:
    owner = None if queue.session is None else state.sessions.get(queue.session)
    behind = state.end - queue.floor(state.end)
    name = "" if owner is None else owner.name
    opened = len(queue.open())
    return QueueStatus(name, queue.number, queue.share, True, behind, opened, len(queue.members), bool(queue.flights))
