"""Effects of one call, and timers. Laws: messages to one connection keep their order; the next timer is always set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from weft.broker.effects import Close, ConnectionId, Effect, Now, Outgoing, Persist, Relayed, Send, SetTimer


class Outbox:
    """Collects the effects of a call: groups to store first, then one `Send` for each connection."""

    def __init__(self) -> None:
        self._persists: list[Persist] = []
        self._sends: dict[ConnectionId, list[Outgoing]] = {}
        self._relayed: list[Relayed] = []
        self._closed: list[ConnectionId] = []

    def send(self, connection: ConnectionId, *messages: Outgoing) -> None:
        """Send messages on a connection."""
        self.send_all(connection, messages)

    def send_all(self, connection: ConnectionId, messages: Sequence[Outgoing]) -> None:
        """Send many messages on a connection."""
        sends = self._sends.get(connection)
        if sends is None:
            self._sends[connection] = list(messages)
        else:
            sends.extend(messages)

    def close(self, connection: ConnectionId) -> None:
        """Close a connection, after what is sent on it."""
        self._closed.append(connection)

    def persist(self, effect: Persist) -> None:
        """Store a group."""
        self._persists.append(effect)

    def relayed(self, effect: Relayed) -> None:
        """Hand something to the driver."""
        self._relayed.append(effect)

    def drain(self) -> list[Effect]:
        """The effects so far."""
        if not (self._persists or self._sends or self._closed or self._relayed):
            return []
        effects: list[Effect] = [*self._persists]
        effects += [Send(connection, messages) for connection, messages in self._sends.items()]
        effects += map(Close, self._closed)
        effects += self._relayed
        self._persists, self._sends, self._closed, self._relayed = [], {}, [], []
        return effects


class Timers:
    """What is to be done later.

    >>> timers, done = Timers(), []
    >>> timers.add(5, lambda now: done.append(now.monotonic))
    >>> timers.next(), timers.run(Now(7, 0)), done, timers.next()
    (SetTimer(at=5), None, [7], None)
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Now], None]]] = []
        self._count = 0
        self._told: int | None = None

    def add(self, due: int, action: Callable[[Now], None]) -> None:
        """Do something at a monotonic time, or soon after."""
        self._count += 1
        heappush(self._heap, (due, self._count, action))

    def run(self, now: Now) -> None:
        """Do what is due."""
        self._told = None
        due = []
        while self._heap and self._heap[0][0] <= now.monotonic:
            due.append(heappop(self._heap)[2])
        for action in due:
            action(now)

    def next(self) -> SetTimer | None:
        """The timer that the driver must set; None if it has it already."""
        due = self._heap[0][0] if self._heap else None
        if due is None or due == self._told:
            return None
        self._told = due
        return SetTimer(due)
