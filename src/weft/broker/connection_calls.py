"""What a driver says of the connections of a broker. Law: what a connection had not acknowledged when it went is
delivered again, and what it had said before counts.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.broker.core_calls import CoreCalls
from weft.broker.effects import ConnectionId, Effect, Now
from weft.broker.greeting import Greeting
from weft.broker.identity import Authenticate
from weft.broker.intake import Intake
from weft.broker.link import Neighbour
from weft.broker.link_greeting import LinkGreeting
from weft.broker.linking import Linking
from weft.broker.queue import Queue
from weft.broker.sessions import Connection
from weft.errors import LocalProtocolError
from weft.routing.table import Link


class ConnectionCalls(CoreCalls):
    """The part of a core that is about its connections."""

    _greeting: Greeting
    _link_greeting: LinkGreeting
    _linking: Linking
    _intake: Intake

    def connected(self, connection: ConnectionId, now: Now, authenticate: Authenticate | None = None) -> list[Effect]:
        """A connection is there; it must say `Hello` first. `authenticate` knows it, instead of the broker's own."""
        if connection in self._state.connections:
            raise LocalProtocolError(f"connection {connection} already exists; give each connection its own id")
        self._begin(now)
        self._greeting.connected(Connection(connection, now.monotonic, authenticate), now)
        return self._finish(now)

    def dialled(
        self, connection: ConnectionId, peer: str, now: Now, authenticate: Authenticate | None = None
    ) -> list[Effect]:
        """A connection to a neighbour was opened by this side. Raises LocalProtocolError for an unknown neighbour.

        `authenticate` says who has answered; without it the transport must have verified that.
        """
        if connection in self._state.connections:
            raise LocalProtocolError(f"connection {connection} already exists; give each connection its own id")
        self._begin(now)
        known = Connection(connection, now.monotonic, authenticate)
        self._greeting.dialled(known)
        try:
            self._link_greeting.dialled(known, Link(peer), now)
        except LocalProtocolError:
            del self._state.connections[connection]
            raise
        return self._finish(now)

    def closed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection is gone. What it had not acknowledged is delivered again, with a higher attempt."""
        known = self._state.connections.get(connection)
        if known is None:
            return []
        self._begin(now)
        if known.backlog:  # what came before the end counts
            messages, known.backlog = known.backlog, []
            self._intake.handle(known, messages, now, len(messages))
        if self._state.connections.get(connection) is known:
            self._greeting.closed(known, now)
        return self._finish(now)

    def is_behind(self, connection: ConnectionId) -> bool:
        """Whether a connection has said more than was handled: until it is handled, the driver should read no more."""
        known = self._state.connections.get(connection)
        return known is not None and bool(known.backlog)

    def is_stranger(self, connection: ConnectionId) -> bool:
        """Whether a connection has yet to say hello."""
        return connection in self._state.strangers

    def dismiss(self, connection: ConnectionId, code: str, reason: str, now: Now) -> list[Effect]:
        """Close a connection that has done something wrong, and say what, unless it is unknown who it is."""
        known = self._state.connections.get(connection)
        if known is None:
            return []
        self._begin(now)
        self._greeting.close(known, code, reason, now)
        return self._finish(now)

    def paused(self, connection: ConnectionId) -> None:
        """A connection's write buffer is full: nothing is delivered to it until `resumed`."""
        known = self._state.connections.get(connection)
        if known is not None:
            known.paused = True

    def resumed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection's write buffer has room again."""
        known = self._state.connections.get(connection)
        if known is None or not known.paused:
            return []
        self._begin(now)
        known.paused = False
        if isinstance(known.link, Neighbour):
            self._linking.sending.behind[known.link.peer] = None
        for queue, _ in known.flights.values():
            self._state.fresh[queue] = None
        if known.session is not None:
            for each in known.session.queues.values():
                if not isinstance(each, Queue):
                    self._state.out.send_all(known.id, each.release())
        return self._finish(now)

    def distrust(self, keys: Collection[str], now: Now) -> list[Effect]:
        """Some keys are no longer trusted: whoever was let in by one must log in again."""
        self._begin(now)
        for each in list(self._state.connections.values()):
            if each.key in keys:
                self._state.counts["keys distrusted"] += 1
                self._greeting.close(each, "expired", "the key of the credentials is no longer trusted", now)
        return self._finish(now)
