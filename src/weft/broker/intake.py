"""What connections say, handled in the order in which it was said. Law: in one turn a connection changes only so many
subscriptions; what it said behind them waits, and connections that wait take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.broker.dispatch import Dispatch
from weft.broker.effects import Now
from weft.broker.greeting import Greeting
from weft.broker.link_messages import IncomingMessage, LinkHello
from weft.broker.link_traffic import LinkTraffic
from weft.broker.messages import Advertise, Publish, Replace, Subscribe, Unadvertise, Unsubscribe
from weft.broker.publishing import Publishing
from weft.broker.sessions import Connection
from weft.broker.state import BrokerState

CHANGES = frozenset({Subscribe, Replace, Unsubscribe, Advertise, Unadvertise})


class Intake:
    """Hands messages to the parts of a broker: events in runs, anything else one by one."""

    def __init__(
        self,
        state: BrokerState,
        greeting: Greeting,
        publishing: Publishing,
        dispatch: Dispatch,
        traffic: LinkTraffic,
    ) -> None:
        self._state = state
        self._greeting, self._publishing, self._dispatch, self._traffic = greeting, publishing, dispatch, traffic
        self.behind: dict[Connection, None] = {}  # that have said more than was handled

    def handle(self, known: Connection, messages: Sequence[IncomingMessage], now: Now, most: int = 0) -> None:
        """Handle messages in order, up to so many changes of subscriptions; the rest is handled in later turns.

        Without `most`, a change that takes long is the last one of a turn.
        """
        at, size, connection = 0, len(messages), known.id
        seats, pours = self._state.seats, self._state.seats.pours if not most else -1
        most = most or self._state.limits.changes
        while at < size and connection in self._state.connections:
            message = messages[at]
            if type(message) in CHANGES:
                most -= 1
                if most < 0 or -1 < pours < seats.pours:
                    known.backlog = [*messages[at:]]
                    self.behind[known] = None
                    self._state.counts["requests put off"] += 1
                    return
            if type(message) is Publish and known.session is not None:
                first = at
                while at < size and type(messages[at]) is Publish:
                    at += 1
                events = messages if at - first == size else messages[first:at]
                self._publishing.publish(known, events, now)  # type: ignore[arg-type]
                continue
            if known.link is not None or known.dialled is not None or type(message) is LinkHello:
                if known.session is not None:
                    self._greeting.close(known, "protocol", "a connection begins with one hello", now)
                    break
                self._traffic.receive(known, message, now)
            else:
                self._dispatch.handle(known, message, now)
            at += 1

    def go_on(self, now: Now) -> None:
        """Handle more of what one connection has said; the one that has waited longest comes first."""
        known = next(iter(self.behind), None)
        if known is None:
            return
        del self.behind[known]
        messages, known.backlog = known.backlog, []
        if self._state.connections.get(known.id) is known:
            self.handle(known, messages, now)
