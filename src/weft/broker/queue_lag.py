"""Queues that are too far behind. Law: such a queue loses its connection or its oldest events, and whoever consumes it
is told which events are lost.
"""

from __future__ import annotations

from weft.broker.messages import Gap
from weft.broker.queue import Queue
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState
from weft.log.base import Offset


class QueueLag:
    """Keeps the queues of a broker within their limits."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.too_slow: list[tuple[Connection, str]] = []  # to be closed

    def check(self, queue: Queue) -> None:
        """A queue that is too far behind loses its connection, or its oldest events.

        With the first policy it may fall further behind while it has no connection, up to the limit of the broker.
        """
        end = self._state.end
        behind = end - queue.floor(end)
        if behind <= queue.lag:
            return
        if queue.disconnect and behind <= self._state.limits.lag:
            self._state.counts["closed as too slow"] += len(queue.flights)
            self.too_slow += [
                (each, f"queue {queue.number} is more than {queue.lag:,} events behind")
                for each in self._state.consumers(queue)
            ]
            return
        self.lose(queue, Offset(end - (self._state.limits.lag if queue.disconnect else queue.lag)))

    def lose(self, queue: Queue, below: Offset) -> None:
        """Events below an offset are lost to a queue; its consumers are told."""
        if queue.drop_below(below, self._state.end) is None:
            return
        self._state.counts["gaps"] += 1
        self._state.dirty[queue] = None
        self._state.fresh[queue] = None  # what was lost in flight has made room
        self.tell_gap(queue)

    def tell_gap(self, queue: Queue) -> None:
        """Tell each connection once what is lost; a client that may not have heard it is told again on the next."""
        if queue.gap is None:
            return
        for flight in queue.flights:
            if flight.told_gap < queue.gap[1]:
                flight.told_gap = queue.gap[1]
                self._state.out.send(flight.connection, Gap(flight.queue_number, *queue.gap))
