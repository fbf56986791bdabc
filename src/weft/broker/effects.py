"""Effects: what a broker asks its driver to do, and when. The driver carries them out in order.

`Send` and `Close` concern one connection, and their order on it matters. `Persist` concerns the log: the groups of all
`Persist` effects are committed in their order, any number of them in one `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, NewType, TypeAlias

import msgspec

from weft.broker.delivery_run import DeliveryRun
from weft.log.base import Group
from weft.protocol.link_messages import LinkMessage
from weft.protocol.messages import BrokerMessage

ConnectionId = NewType("ConnectionId", str)  # chosen by the driver, never for two connections
Ticket = NewType("Ticket", int)  # ascending


class Now(NamedTuple):
    """The time by two clocks, in microseconds."""

    monotonic: int  # never goes back; timers run by it
    utc: int  # may jump


Outgoing: TypeAlias = BrokerMessage | LinkMessage | DeliveryRun


class Send(msgspec.Struct, frozen=True):
    """Send messages, in this order, after those sent on this connection before."""

    connection: ConnectionId
    messages: list[Outgoing]


class Persist(msgspec.Struct, frozen=True):
    """Commit a group, then call `committed(ticket)`. One that is not urgent may wait for the next that is."""

    ticket: Ticket
    group: Group
    urgent: bool = True


class SetTimer(msgspec.Struct, frozen=True):
    """Call `tick` at this monotonic time, or soon after. It replaces the timer that was set before."""

    at: int


class Close(msgspec.Struct, frozen=True):
    """Close a connection after sending what was sent on it; the core no longer knows it."""

    connection: ConnectionId


class Relayed(msgspec.Struct, frozen=True):
    """Another broker has sent something to this one, by `relay`."""

    source: str
    body: bytes


Effect = Send | Persist | SetTimer | Close | Relayed


class Outbox:
    """Collects the effects of one call: groups to store first, then one `Send` for each connection."""

    def __init__(self) -> None:
        self.persists: list[Persist] = []  # groups to store
        self._sends: dict[ConnectionId, list[Outgoing]] = {}
        self._relayed: list[Relayed] = []
        self._closed: list[ConnectionId] = []

    def send(self, connection: ConnectionId, message: Outgoing) -> None:
        """Send a message on a connection."""
        sends = self._sends.get(connection)
        if sends is None:
            self._sends[connection] = [message]
        else:
            sends.append(message)

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

    def relayed(self, effect: Relayed) -> None:
        """Hand something to the driver."""
        self._relayed.append(effect)

    def drain(self, timer: SetTimer | None) -> list[Effect]:
        """The effects of the turn, the timer last."""
        effects: list[Effect] = [*self.persists]
        if self.persists:
            self.persists = []
        if self._sends:
            effects += map(Send, self._sends.keys(), self._sends.values())
            self._sends = {}
        if self._closed or self._relayed:
            effects += map(Close, self._closed)
            effects += self._relayed
            self._closed, self._relayed = [], []
        if timer is not None:
            effects.append(timer)
        return effects


class Timers:
    """Actions that are due later.

    >>> timers, done = Timers(), []
    >>> timers.add(5, lambda now: done.append(now.monotonic))
    >>> timers.next(), timers.run(Now(7, 0)), done, timers.next()
    (SetTimer(at=5), None, [7], None)
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Now], None] | None]] = []
        self._count = 0
        self._set: int | None = None  # the timer that the driver has

    def add(self, due: int, action: Callable[[Now], None] | None) -> None:
        """Run an action at a monotonic time, or soon after; None only has the broker's `tick` called then."""
        self._count += 1
        heappush(self._heap, (due, self._count, action))

    def run(self, now: Now) -> None:
        """Run the actions that are due."""
        self._set = None
        due = []
        while self._heap and self._heap[0][0] <= now.monotonic:
            due.append(heappop(self._heap)[2])
        for action in due:
            if action is not None:
                action(now)

    def next(self) -> SetTimer | None:
        """The timer that the driver must set; None if it has it already."""
        due = self._heap[0][0] if self._heap else None
        if due is None or due == self._set:
            return None
        self._set = due
        return SetTimer(due)
