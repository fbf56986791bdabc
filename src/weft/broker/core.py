"""One broker, without sockets and clocks: messages in, effects out. Law: nothing is confirmed or delivered before it is
stored, and everything that is stored is delivered until it is acknowledged.

The driver (a node on a network, or a simulation) does the following, all in one thread:

- It opens a log, and makes `Core(log, log.restore(), ...)`. The core reads older events from the log (`read`, `find`,
  `dead`) and never writes to it. Then it calls `tick` once, so that what was restored goes on.
- A connection comes: `connected`. Messages come: `receive`, with all that one read brought. The connection goes:
  `closed`. Its write buffer is full: `paused`; it has room again: `resumed`.
- `Persist(ticket, group)`: it commits the groups in order, as many as there are together. Then it calls
  `committed(ticket)` for each, in order. On LogFullError it calls `rejected(ticket)` for the first group that was not
  stored, and throws away every group that it holds: the core has forgotten the later ones, too. On LogFailedError the
  process ends. A `Persist` that is not urgent may wait for the next urgent one; nobody waits for it.
- `SetTimer(at)`: it calls `tick` when the monotonic clock is past `at`. Only the last timer counts. A timer in the past
  means that there is more to do: `tick` at once, after what has arrived.
- `Send`, `Close`: it sends and closes. `closed` need not be called after a `Close`, but may be.
- A client may ask for more than is done in one call: while `is_behind`, the driver should read nothing more from it.

Links to neighbouring brokers:

- `attach(peer, role)` makes a neighbour, once; it is stored, with what it told, and is there again after a restart.
  `detach(peer)` ends it. `links()` says how they are.
- One of the two brokers dials, whenever there is no connection: `dialled(connection, peer)` in place of `connected`,
  for a connection that it has opened. The other one calls `connected` as for a client. Everything else is as for
  clients; the same reader (`codec.client_messages`) reads both kinds of connection.
- `relay(destination, body)` sends something to any broker of the network, where the driver gets `Relayed`.

Each method returns the effects, in order. The same calls with the same arguments return the same effects.
Retention: the log may be trimmed below `core.needed`, and no further; then the driver calls `trimmed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from weft.broker.advertising import Advertising
from weft.broker.announcing import Announcing
from weft.broker.commits import Commits
from weft.broker.connection_calls import ConnectionCalls
from weft.broker.dead_letters import Dead
from weft.broker.delivery import Delivery
from weft.broker.dispatch import Dispatch
from weft.broker.effects import ConnectionId, Effect, Now, SetTimer, Ticket
from weft.broker.explaining import Explaining
from weft.broker.fingerprint import fingerprint
from weft.broker.greeting import Greeting, Home
from weft.broker.identity import Authenticate
from weft.broker.intake import Intake
from weft.broker.limits import ClientLimits
from weft.broker.link import Neighbour
from weft.broker.link_calls import LinkCalls
from weft.broker.link_greeting import AuthenticateLink, LinkGreeting
from weft.broker.link_messages import IncomingMessage
from weft.broker.link_traffic import LinkTraffic
from weft.broker.linking import Linking
from weft.broker.messages import SubNumber
from weft.broker.publishing import Publishing
from weft.broker.reach import Reach
from weft.broker.recovery import restore
from weft.broker.revocation import Revocation
from weft.broker.rules import Rules
from weft.broker.seats import LocalSeats
from weft.broker.sessions import Connection, SessionValue, exported
from weft.broker.sharing import SharedQueues
from weft.broker.state import BrokerState
from weft.broker.status import BrokerStatus, status_of
from weft.broker.subscribing import Subscribing
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.log.base import Log, Offset, SessionId, State
from weft.model.schema import Schema
from weft.routing.table import RoutingTable


class Core(ConnectionCalls, LinkCalls):
    """A broker. `draw` returns 63 random bits; `table` is made by `weft.routing.make_table` under the same schema.

    A broker with neighbours has a `name`, by which they know it. `authenticate_link` checks the hello of a neighbour,
    and `link_credentials` are what each neighbour is shown. `predicates` are those that filters may call; the table,
    and rules that call any, are made with the same ones.
    """

    def __init__(  # noqa: PLR0913 - the parts of a broker
        self,
        log: Log,
        state: State,
        table: RoutingTable,
        *,
        draw: Callable[[], int],
        name: str = "",
        schema: Schema | None = None,
        authenticate: Authenticate | None = None,
        authenticate_link: AuthenticateLink | None = None,
        link_credentials: Callable[[str], bytes] | None = None,
        predicates: Predicates = NO_PREDICATES,
        rules: Rules | None = None,
        limits: ClientLimits | None = None,
        advertised: bool = False,
        executor: Executor | None = None,
    ) -> None:
        seats = LocalSeats(table, executor)
        self._state = BrokerState(
            log, state, seats, draw, schema, rules or Rules(), limits or ClientLimits(), predicates
        )
        self._delivery = Delivery(self._state)
        self._announcing = Announcing(self._state)
        self._linking = Linking(self._state, self._announcing, Reach(name), self._close)
        self._publishing = Publishing(self._state, self._delivery, self._linking.sending, advertised)
        self._commits = Commits(self._state, self._delivery, self._publishing, self._linking.sending)
        parts = self._state, self._delivery, self._publishing, self._announcing
        self._subscribing, self._sharing, self._advertising = (
            Subscribing(*parts),
            SharedQueues(*parts),
            Advertising(*parts),
        )
        self._dead = Dead(self._state, self._delivery)
        self._greeting = Greeting(self._subscribing, self._sharing, authenticate, fingerprint(schema, predicates))
        self._explaining = Explaining(self._state, self._linking.reach, self._linking.relay)
        self._linking.explain = self._explaining.receive
        dispatch = Dispatch(
            self._greeting,
            self._dead,
            self._subscribing,
            self._sharing,
            self._advertising,
            self._explaining,
            self.status,
        )
        self.driver: Callable[[], dict[str, Any]] = dict  # what the process around it adds to its status
        self._revocation = Revocation(self._subscribing, self._sharing)
        self._link_greeting = LinkGreeting(
            self._state,
            self._linking.reach,
            link_credentials or (lambda _: b""),
            authenticate_link,
            tuple(sorted(predicates)),
            self._close,
        )
        self._traffic = LinkTraffic(self._state, self._linking, self._link_greeting, self._close)
        self._greeting.link_closed = self._link_closed
        self._intake = Intake(self._state, self._greeting, self._publishing, dispatch, self._traffic)
        restore(self._state, self._delivery.reader, state, self._linking, self._announcing)
        self._revocation.restored()
        self._restored = [each for each in self._state.sessions.values() if each.name]

    # -- messages -------------------------------------------------------------------------------------

    def receive(self, connection: ConnectionId, messages: Sequence[IncomingMessage], now: Now) -> list[Effect]:
        """Messages of one read. A connection that the core has closed is ignored."""
        return self.receive_all([(connection, messages)], now)

    def receive_all(self, reads: Sequence[tuple[ConnectionId, Sequence[IncomingMessage]]], now: Now) -> list[Effect]:
        """Messages of several reads, in order, as one turn: their events are matched and stored together."""
        connections = self._state.connections
        if not any(connection in connections for connection, _ in reads):
            return []
        self._begin(now)
        for connection, messages in reads:
            known = connections.get(connection)
            if known is None:
                continue
            known.heard = now.monotonic
            if known.backlog:
                known.backlog += messages
            else:
                self._intake.handle(known, messages, now)
        return self._finish(now)

    # -- the log --------------------------------------------------------------------------------------

    def committed(self, ticket: Ticket, now: Now) -> list[Effect]:
        """A group is durable. Tickets come in order, each once."""
        group = self._commits.take_first(ticket)
        self._begin(now)
        self._commits.committed(group, now)
        return self._finish(now)

    def rejected(self, ticket: Ticket, reason: str, now: Now) -> list[Effect]:
        """The log is full: neither this group nor any later one was stored.

        Their publishers are told, and their subscriptions and other requests are undone and failed. Acknowledgements
        stay valid, and are stored with the next group.
        """
        lost = self._commits.take_from(ticket)
        self._begin(now)
        self._commits.rejected(lost, reason, now)
        return self._finish(now)

    # -- time -----------------------------------------------------------------------------------------

    def tick(self, now: Now) -> list[Effect]:
        """The timer, or more to do: redeliveries that are due, queues that are behind, connections that are silent."""
        self._begin(now)
        state = self._state
        restored, self._restored = self._restored, []
        for session in restored:
            if session.connection is None:
                self._greeting.expire_later(session, now)
        state.timers.run(now)
        self._revocation.step(now)
        self._intake.go_on(now)
        if state.neighbours:
            self._publishing.match(now)
            self._traffic.work(now)
        ready, state.ready = state.ready, {}
        for queue in ready:
            if queue in state.queues:
                self._delivery.pump(queue, now)
        return self._finish(now)

    def store_floors(self, now: Now) -> list[Effect]:
        """Store every floor that has moved, so that `needed` is as high as possible: call it before trimming."""
        self._begin(now)
        self._commits.store_floors()
        return self._finish(now)

    @property
    def needed(self) -> Offset:
        """The first offset that some queue may still have to read, as far as that is stored."""
        floors = [queue.stored_floor for queue in self._state.queues]
        floors += [each.lane.stored_floor for each in self._state.neighbours.values()]
        return Offset(min(floors, default=self._state.end))

    def trimmed(self, first: Offset, now: Now) -> list[Effect]:
        """The log's oldest event now has this offset. Queues that still needed older ones are told of the gap."""
        self._begin(now)
        self._state.log_first = max(self._state.log_first, first)
        for queue in self._state.queues:
            if queue.floor(self._state.end) < first:
                self._delivery.lag.lose(queue, first)
        return self._finish(now)

    # -- access -------------------------------------------------------------------------------------

    def set_rules(self, rules: Rules, now: Now) -> list[Effect]:
        """These access rules hold from now on, for events that wait to be delivered too.

        Subscriptions that they no longer cover end, also durable ones whose clients are away; their clients are told.
        Links of brokers that may not link any more are closed.
        """
        self._begin(now)
        self._revocation.set_rules(rules)
        for each in list(self._state.connections.values()):
            if each.link is not None and each.principal and "link" not in rules.of(each.principal).rights.further:
                self._greeting.close(
                    each, "refused", "the access rules have changed, and no longer allow this link", now
                )
        self._revocation.step(now)
        return self._finish(now)

    # -- a call ---------------------------------------------------------------------------------------

    def _begin(self, now: Now) -> None:
        self._state.at = max(self._state.at, now.utc)

    def _finish(self, now: Now) -> list[Effect]:
        """Match what waits, store what must be stored, and return the effects."""
        state = self._state
        self._publishing.match(now)
        lag = self._delivery.lag
        while state.fresh or lag.too_slow:
            while state.fresh:
                queue = next(iter(state.fresh))
                del state.fresh[queue]
                if queue in state.queues and queue.flights:
                    self._delivery.pump(queue, now)
            slow, lag.too_slow = lag.too_slow, []
            for connection, reason in slow:
                if state.connections.get(connection.id) is connection:
                    self._greeting.close(connection, "slow", reason, now)
        if state.neighbours or state.completion.finished:
            self._linking.flush(now)
        too_far, state.too_far = state.too_far, []
        for peer in sorted({*too_far} & state.neighbours.keys()):
            if not state.neighbours[peer].leaving:
                state.counts["links too far behind"] += 1
                self._linking.detach(peer)
        if not self._commits.persist(now):
            return self._finish(now)
        effects = state.out.drain()
        more = state.ready or self._revocation.pending or self._linking.busy or self._intake.behind
        timer = SetTimer(now.monotonic) if more else state.timers.next()
        if timer is not None:
            effects.append(timer)
        return effects

    # -- links ---------------------------------------------------------------------------------------

    def _close(self, connection: Connection, code: str, reason: str, now: Now) -> None:
        self._greeting.close(connection, code, reason, now)
        if isinstance(connection.link, Neighbour):
            connection.link.reason = reason

    def _link_closed(self, connection: Connection) -> None:
        for neighbour in self._state.neighbours.values():
            if neighbour.dialling is connection:
                neighbour.dialling = None
            if neighbour.connection is connection:
                self._linking.ended(neighbour, "the connection is gone")

    # -- what is in it --------------------------------------------------------------------------------

    @property
    def table(self) -> RoutingTable:
        """What is wanted here and by neighbours; only the core changes it."""
        return self._state.seats.table

    @property
    def end(self) -> Offset:
        """The offset after the last stored event."""
        return self._state.end

    @property
    def counts(self) -> dict[str, int]:
        """How often things happened, by name."""
        return dict(sorted(self._state.counts.items()))

    def status(self, queues: int = 20) -> BrokerStatus:
        """How it is, with so many of the queues that are furthest behind."""
        return status_of(self._state, queues, self.needed, self.driver())

    def place(self, home: Home) -> None:
        """This broker is one of several that share sessions by their names; `home` says which one has a session."""
        self._greeting.home = home

    def session(self, name: str) -> SessionId | None:
        """The id of a session."""
        known = self._state.names.get(name)
        return None if known is None else known.id

    def subscriptions(self, session: str) -> dict[SubNumber, str]:
        """The filters of a session, by the numbers of its subscriptions; empty if there is none of this name."""
        known = self._state.names.get(session)
        return {} if known is None else {number: sub.text for number, sub in known.subs.items()}

    def export(self, session: SessionId) -> SessionValue:
        """A session as a value that another broker could go on with. Raises KeyError."""
        return exported(self._state.sessions[session], self._state.end)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: linear in everything."""
        from weft.broker.invariants import check

        check(self._state)
