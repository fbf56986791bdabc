"""What a driver asks of a broker about its neighbours. Law: a neighbour is there from `attach` to `detach`,
connected or not.
"""

from __future__ import annotations

from weft.broker.core_calls import CoreCalls
from weft.broker.effects import Effect, Now
from weft.broker.link import LinkStatus
from weft.broker.link_messages import LinkRelay
from weft.broker.linking import Linking
from weft.broker.publishing import Publishing
from weft.errors import LocalProtocolError
from weft.routing.table import Link, Role
from weft.space.label_space import LabelSpace


class LinkCalls(CoreCalls):
    """The part of a core that is about its neighbours."""

    _linking: Linking
    _publishing: Publishing

    def attach(self, peer: str, role: Role, now: Now) -> list[Effect]:
        """Make a neighbour; `role` is what it is to this broker. It is waited for until it is there, or detached.

        Raises LocalProtocolError for one that exists, or a role that it cannot have.
        """
        self._begin(now)
        self._publishing.match(now)
        self._linking.attach(Link(peer), role)
        return self._finish(now)

    def detach(self, peer: str, now: Now) -> list[Effect]:
        """End a neighbour, with everything that it told; nobody waits for it any more. Raises LocalProtocolError."""
        self._begin(now)
        self._linking.detach(Link(peer))
        return self._finish(now)

    def retune(self, space: LabelSpace, now: Now) -> list[Effect]:
        """Give the whole network another label space, from one broker. Raises LocalProtocolError if it has none."""
        self._begin(now)
        self._publishing.match(now)
        self._linking.retune(space)
        return self._finish(now)

    def links(self) -> list[LinkStatus]:
        """How the links are, by name."""
        return [each.status(self._state.end) for _, each in sorted(self._state.neighbours.items())]

    def path(self, broker: str) -> list[str]:
        """The brokers on the way to one, this one first; empty if it is not known."""
        return self._linking.reach.path(broker)

    def relay(self, destination: str, body: bytes, now: Now) -> list[Effect]:
        """Send something to any broker of the network, at most once. Raises LocalProtocolError if there is no way."""
        self._begin(now)
        name = self._linking.reach.name
        if not self._linking.relay(LinkRelay(destination, name, body), now):
            raise LocalProtocolError(f"there is no way from {name} to {destination} now; try again later")
        return self._finish(now)
