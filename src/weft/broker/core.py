"""One broker, without sockets and clocks: messages in, effects out. Law: nothing is confirmed or delivered before it is
stored, and everything that is stored is delivered until it is acknowledged.

The driver (a node on a network, or a simulation) does the following, all in one thread:

- It opens a log, and makes `Core(log, log.restore(), ...)`. The core reads older events from the log (`read`, `find`,
  `dead`) and never writes to it.
- A connection comes: `connected`. Messages come: `receive`, with all that one read brought. The connection goes:
  `closed`. Its write buffer is full: `paused`; it has room again: `resumed`.
- `Persist(ticket, group)`: it commits the groups in order, as many as there are together. Then it calls
  `committed(ticket)` for each, in order. On LogFullError it calls `rejected(ticket)` for the first group that was not
  stored, and throws away every group that it holds: the core has forgotten the later ones, too. On LogFailedError the
  process ends. A `Persist` that is not urgent may wait for the next urgent one; nobody waits for it.
- `SetTimer(at)`: it calls `tick` when the monotonic clock is past `at`. Only the last timer counts. A timer in the past
  means that there is more to do: `tick` at once, after what has arrived.
- `Send`, `Close`: it sends and closes. `closed` need not be called after a `Close`, but may be.

Each method returns the effects, in order. The same calls with the same arguments return the same effects.
Retention: the log may be trimmed below `core.needed`, and no further; then the driver calls `trimmed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.broker.effects import ConnectionId, Effect, Now, Ticket
from weft.broker.limits import ClientLimits
from weft.broker.messages import ClientMessage, Hello
from weft.broker.rules import Rules
from weft.log.base import Log, Offset, SessionId, State
from weft.model.schema import Schema
from weft.routing.table import RoutingTable

Authenticate = Callable[[Hello], str]  # the principal of a connection; raises AccessError


class Core:
    """A broker. `draw` returns 63 random bits; `table` is made by `weft.routing.make_table` under the same schema."""

    def __init__(
        self,
        log: Log,
        state: State,
        table: RoutingTable,
        *,
        draw: Callable[[], int],
        schema: Schema | None = None,
        authenticate: Authenticate | None = None,
        rules: Rules | None = None,
        limits: ClientLimits | None = None,
    ) -> None: ...

    def connected(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection is there; it must say `Hello` first."""

    def receive(self, connection: ConnectionId, messages: Sequence[ClientMessage], now: Now) -> list[Effect]:
        """Messages of one read. A connection that the core has closed is ignored."""

    def closed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection is gone. What it had not acknowledged is delivered again, with a higher attempt."""

    def paused(self, connection: ConnectionId) -> None:
        """A connection's write buffer is full: nothing is delivered to it until `resumed`."""

    def resumed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection's write buffer has room again."""

    def committed(self, ticket: Ticket, now: Now) -> list[Effect]:
        """A group is durable. Tickets come in order, each once."""

    def rejected(self, ticket: Ticket, reason: str, now: Now) -> list[Effect]:
        """The log is full: neither this group nor any later one was stored.

        Their publishers are told, and their subscriptions and other requests are undone and failed. Acknowledgements
        stay valid, and are stored with the next group.
        """

    def tick(self, now: Now) -> list[Effect]:
        """The timer, or more to do: redeliveries that are due, queues that are behind, connections that are silent."""

    @property
    def needed(self) -> Offset:
        """The first offset that some queue may still have to read."""

    def trimmed(self, first: Offset, now: Now) -> list[Effect]:
        """The log's oldest event now has this offset."""

    def export(self, session: SessionId) -> SessionValue:
        """A session as a value that another broker can take in."""

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: linear in everything."""
