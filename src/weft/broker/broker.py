"""One broker, without sockets and clocks: messages in, effects out.

Law: nothing is confirmed or delivered before it is stored, and everything that is stored is delivered until it is
acknowledged.

The driver (`weft.broker.driver`, in a node on a network or in a simulation) does the following, all in one thread:

- It opens a log, and makes `Core(log, log.restore(), ...)`. The core reads older events from the log (`read`, `find`,
  `dead`) and never writes to it. Then it calls `tick` once, so that what was restored goes on.
- A connection comes: `connected`. Messages come: `receive`, with all that one read brought. The connection goes:
  `closed`. Its write buffer is full: `paused`; it has room again: `resumed`.
- `Persist(ticket, group)`: it commits the groups in order, as many as there are together. Then it calls
  `committed(ticket)` for each, in order. On LogFullError it calls `rejected(ticket)` for the first group that was not
  stored, and throws away every group that it holds: the core returns those that it keeps again. On LogFailedError the
  process ends. A `Persist` that is not urgent may wait for the next urgent one; nobody waits for it.
- `SetTimer(at)`: it calls `tick` when the monotonic clock is past `at`. Only the last timer counts. A timer in the past
  means that there is more to do: `tick` at once, after what has arrived.
- `Send`, `Close`: it sends and closes. `closed` need not be called after a `Close`, but may be.
- A client may ask for more than is done in one call: while `is_behind`, the driver should read nothing more from it.

Links to neighbouring brokers:

- `attach(peer, role)` makes a neighbour, once; it is stored, with what it sent, and is there again after a restart.
  `detach(peer)` ends it. `links()` has their states.
- One of the two brokers dials, whenever there is no connection: `dialled(connection, peer)` in place of `connected`,
  for a connection that it has opened. The other one calls `connected` as for a client. Everything else is as for
  clients; the same reader (`codec.client_messages`) reads both kinds of connection.
- `relay(destination, body)` sends something to any broker of the network, where the driver gets `Relayed`.

Each method returns the effects, in order. The same calls with the same arguments return the same effects.
Retention: the log may be trimmed below `core.needed`, and no further; then the driver calls `trimmed`.

Every call is one turn, and ends with these steps:

1. Match: the events that came in are matched with the subscriptions as they are now, get their offsets, and are routed
   to neighbours. Transient events are delivered and sent. Notices of profiles follow.
2. Serve: queues that have room or a consumer now get what they may have.
3. Close connections that are too slow. What they gave back may serve others, so step 2 follows again.
4. Link: each neighbour is sent the progress, events and control frames that its windows allow; changes that every
   neighbour has completed are announced.
5. Detach neighbours that are too far behind.
6. Store: the pending write becomes a group for the log. If nothing is to be stored, what waited for it happens now, and
   the turn begins again.
7. Tell clients that map events if their space has changed. Return the effects, and the timer.

When a group is stored (`committed`), what waited for it happens, publishers are confirmed, and its events are delivered
and forwarded; then the same steps follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from heapq import nlargest
from typing import Any

from weft.broker.advertisements import ClientAdvertisements
from weft.broker.commit import Commit
from weft.broker.dead_letters import FailedDeliveries
from weft.broker.delivery import Delivery
from weft.broker.dispatch import Dispatch
from weft.broker.effects import ConnectionId, Effect, Now, Relayed, SetTimer, Ticket
from weft.broker.explain import Explainer
from weft.broker.hello import ClientConnections, Home
from weft.broker.history import HistoryReads
from weft.broker.identity import Authenticate
from weft.broker.ingest import Ingest
from weft.broker.invariants import Invariants
from weft.broker.limits import BalanceLimits, ClientLimits
from weft.broker.links.events import EventForwarding
from weft.broker.links.handshake import AuthenticateLink
from weft.broker.links.links import Links
from weft.broker.links.neighbour import LinkStatus
from weft.broker.moves.moves import Moves
from weft.broker.parts import BrokerParts
from weft.broker.profiles.home import HomeProfiles
from weft.broker.profiles.moved_profiles import MovedProfiles
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.questions.asking import Questions
from weft.broker.questions.operations import Operations
from weft.broker.queue import Queue
from weft.broker.recovery import Recovery
from weft.broker.revocation import Revocation
from weft.broker.rules import Rules
from weft.broker.sessions import Connection, SessionValue, exported
from weft.broker.subscriptions import ClientSubscriptions
from weft.broker.transient_queue import TransientQueue
from weft.errors import LocalProtocolError
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.predicate_modules import agreed_predicates
from weft.log.base import NEVER, Log, Offset, SessionId, State
from weft.model.schema import Schema
from weft.protocol.fingerprint import fingerprint
from weft.protocol.link_messages import IncomingMessage, LinkRelay
from weft.protocol.messages import SubNumber
from weft.protocol.status import BrokerStatus, QueueStatus
from weft.routing.dls.space import LabelSpace
from weft.routing.registry import engine_of
from weft.routing.table import Link, Role, RoutingTable

_QUIET = 20_000  # microseconds without a change after which the indexes are flushed, if there is a tick then

_JUMP = 1_000_000  # microseconds; smaller jumps of a clock are not mentioned
_CATCH_UP, _LONGEST = 59, 10_000_000  # how much faster the log's time may pass, for how long between two calls


class LogClock:
    """The time of a log: UTC, but it never goes back, never stands still, and follows a jump in small steps.

    It passes a minute in a second to catch up with a clock that has jumped ahead, and runs half as fast while it is
    ahead of one that was set back. When a broker starts, it follows its clock at once.

    >>> clock = LogClock(0)
    >>> clock.follow(Now(monotonic=0, utc=5_000_000)), clock.at
    (0, 5000000)
    >>> clock.follow(Now(monotonic=1_000_000, utc=106_000_000)), clock.at
    (100000000, 65000000)
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self._monotonic, self._utc = -1, 0  # when it was last followed

    def follow(self, now: Now) -> int:
        """The time is what the clocks show. Returns by how much UTC has jumped, and 0 for less than a second."""
        monotonic, utc = now
        passed, at = monotonic - self._monotonic, self.at
        jump = utc - self._utc - passed
        if self._monotonic < 0:
            jump, self.at = min(0, utc - at), max(at, utc)
        elif utc < at:
            self.at = at + passed // 2
        elif utc <= at + passed:
            self.at = utc
        else:
            self.at = min(utc, at + passed + _CATCH_UP * min(passed, _LONGEST))
        self._monotonic, self._utc = monotonic, utc
        return 0 if -_JUMP < jump < _JUMP else jump


class Core:
    """A broker. `draw` returns 63 random bits; `table` is made by `weft.routing.make_table` under the same schema.

    A broker with neighbours has a `name`, by which they know it. `authenticate_link` checks the hello of a neighbour,
    and `link_credentials` are what each neighbour is shown. `predicates` are those that filters may call; the table,
    and rules that call any, are made with the same ones. `no_profiles` says why there can be no profiles, if so.
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
        no_profiles: str = "",
    ) -> None:
        parts = BrokerParts(log, state, table, draw, schema, predicates, rules, limits, executor)
        journal, sessions, neighbours = parts.journal, parts.sessions, parts.neighbours
        # from publishers to subscribers and neighbours
        delivery = Delivery(parts)
        forwarding = EventForwarding(
            journal,
            parts.recent,
            table,
            neighbours,
            parts.due,
            parts.out,
            parts.limits,
            parts.counts,
            parts.decoder,
            parts.places,
            state.next,
        )
        ingest = Ingest(parts, delivery, forwarding, advertised)
        knows = journal, sessions, parts.tables, neighbours, forwarding, parts.completion, parts.access, parts.decoder
        agreed = link_credentials or (lambda _: b""), authenticate_link, agreed_predicates(predicates)
        links = Links(name, *knows, parts.out, parts.timers, parts.limits, parts.counts, parts.places, *agreed)
        # what clients ask for
        subscribing = ClientSubscriptions(parts, ingest, links)
        adverts = ClientAdvertisements(parts, ingest, links, subscribing)
        notices = ProfileNotices(parts, ingest, links)
        explainer, history = Explainer(parts, links, notices), HistoryReads(parts)
        homes = HomeProfiles(parts, links, subscribing, notices, no_profiles)
        subscribing.notices, subscribing.homes = notices, homes
        clients = ClientConnections(parts, subscribing, adverts, homes, authenticate, fingerprint(schema, predicates))
        failed = FailedDeliveries(parts, delivery, clients)
        revocation = Revocation(parts, subscribing, delivery, ingest)
        clients.moves = moves = Moves(parts, ingest, links, subscribing, adverts, clients)
        revocation.changed = moves.departures.changed
        moves.departures.profiles = moves.arrivals.profiles = MovedProfiles(homes, notices, parts.journal)
        links.linked, links.bounced = moves.linked, moves.bounced
        operations = Operations(parts, links, clients, subscribing, revocation, notices)
        questions = Questions(parts, ingest, links, history, explainer, operations, notices)
        # turns
        asked, answers = (clients, subscribing, adverts, failed), (explainer, questions, history)
        self._dispatch = Dispatch(parts, ingest, delivery, *asked, *answers, links, moves, homes, self.status)
        done = forwarding, revocation, links
        self._commit = Commit(parts, ingest, delivery, *asked, *done, operations, moves, homes, notices)
        self._homes, self._notices = homes, notices
        self.driver: Callable[[], dict[str, Any]] = dict  # what the process around it adds to its status
        self.clock_jumped: Callable[[int], None] = lambda _: None  # gets by how many microseconds UTC has jumped
        self._journal, self._sessions, self._queues, self._delivery = journal, sessions, parts.queues, delivery
        self._ingest, self._forwarding, self._links, self._neighbours = ingest, forwarding, links, neighbours
        self._clients, self._revocation, self._unchecked = clients, revocation, parts.access.unchecked
        self._parts, self._completion, self._out, self._timers = parts, parts.completion, parts.out, parts.timers
        self._backlog, self._clock, self._moves, self._questions = parts.backlog, LogClock(state.at), moves, questions
        Recovery(parts, links, moves, homes, notices, predicates).restore(state)
        revocation.restored()
        parts.backlog.begin(parts.queues.all, journal.end)
        self._restored = [each for each in sessions.by_id.values() if each.name]  # until the first tick
        self.behind = self._dispatch.behind  # connections that have said more than was handled
        self._rest_at = 0  # monotonic; when the indexes may be flushed, if they have not changed until then

    # -- connections ----------------------------------------------------------------------------------

    def connected(self, connection: ConnectionId, now: Now, authenticate: Authenticate | None = None) -> list[Effect]:
        """A connection is there; it must say `Hello` first. `authenticate` is used instead of the broker's own."""
        self._check_new(connection)
        self._begin(now)
        self._clients.connected(Connection(connection, now.monotonic, authenticate), now)
        return self._finish(now)

    def dialled(
        self, connection: ConnectionId, peer: str, now: Now, authenticate: Authenticate | None = None
    ) -> list[Effect]:
        """A connection to a neighbour was opened by this side. Raises LocalProtocolError for an unknown neighbour.

        `authenticate` says who has answered; without it the transport must have verified that.
        """
        self._check_new(connection)
        self._begin(now)
        self._links.dialled(Connection(connection, now.monotonic, authenticate), Link(peer), now)
        return self._finish(now)

    def _check_new(self, connection: ConnectionId) -> None:
        if connection in self._sessions.connections:
            raise LocalProtocolError(f"connection {connection} already exists; give each connection its own id")

    def receive(self, connection: ConnectionId, messages: Sequence[IncomingMessage], now: Now) -> list[Effect]:
        """Messages of one read. A connection that the core has closed is ignored."""
        return self.receive_all([(connection, messages)], now)

    def receive_all(self, reads: Sequence[tuple[ConnectionId, Sequence[IncomingMessage]]], now: Now) -> list[Effect]:
        """Messages of several reads, in order, as one turn: their events are matched and stored together."""
        connections = self._sessions.connections
        found = False
        for connection, messages in reads:
            known = connections.get(connection)
            if known is None:
                continue
            if not found:
                found = True
                self._begin(now)
            known.last_read = now.monotonic
            if known.backlog:
                known.backlog += messages
            else:
                self._dispatch.handle(known, messages, now)
        return self._finish(now) if found else []

    def closed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection is gone. What it had not acknowledged is delivered again, with a higher attempt."""
        known = self._sessions.connections.get(connection)
        if known is None:
            return []
        self._begin(now)
        if known.backlog:  # what came before the end counts
            messages, known.backlog = known.backlog, []
            self._dispatch.handle(known, messages, now, len(messages))
        if self._sessions.is_open(known):
            if known.is_link:
                self._links.closed(known)
            else:
                self._clients.closed(known, now)
        return self._finish(now)

    def is_behind(self, connection: ConnectionId) -> bool:
        """Whether a connection has said more than was handled: until it is handled, the driver should read no more."""
        known = self._sessions.connections.get(connection)
        return known is not None and bool(known.backlog)

    def is_stranger(self, connection: ConnectionId) -> bool:
        """Whether a connection has yet to say hello."""
        return connection in self._sessions.unauthenticated

    def dismiss(self, connection: ConnectionId, code: str, reason: str, now: Now) -> list[Effect]:
        """Close a connection that has done something wrong, and say what, unless it is unknown who it is."""
        known = self._sessions.connections.get(connection)
        if known is None:
            return []
        self._begin(now)
        self._close(known, code, reason, now)
        return self._finish(now)

    def _close(self, connection: Connection, code: str, reason: str, now: Now) -> None:
        if connection.is_link:
            self._links.close(connection, code, reason, now)
        else:
            self._clients.close(connection, code, reason, now)

    def paused(self, connection: ConnectionId) -> None:
        """A connection's write buffer is full: nothing is delivered to it until `resumed`."""
        known = self._sessions.connections.get(connection)
        if known is not None:
            known.paused = True

    def resumed(self, connection: ConnectionId, now: Now) -> list[Effect]:
        """A connection's write buffer has room again."""
        known = self._sessions.connections.get(connection)
        if known is None or not known.paused:
            return []
        self._begin(now)
        known.paused = False
        self._dispatch.resumed(known, now)
        if known.link is not None:
            self._links.resumed(known.link)
        for queue, _ in known.windows.values():
            self._queues.serve_now[queue] = None
        if known.session is not None:
            for each in known.session.queues.values():
                if not isinstance(each, Queue):
                    self._out.send_all(known.id, each.release())
        return self._finish(now)

    def distrust(self, keys: Collection[str], now: Now) -> list[Effect]:
        """Some keys are no longer trusted: connections whose credentials they signed must log in again."""
        self._begin(now)
        for each in list(self._sessions.connections.values()):
            if each.key in keys:
                self._parts.counts["keys distrusted"] += 1
                self._close(each, "expired", "the key of the credentials is no longer trusted", now)
        return self._finish(now)

    # -- the log --------------------------------------------------------------------------------------

    def committed(self, ticket: Ticket, now: Now) -> list[Effect]:
        """A group is durable. Tickets come in order, each once."""
        self._begin(now)
        self._commit.committed(ticket, now)
        return self._finish(now)

    def rejected(self, ticket: Ticket, reason: str, now: Now) -> list[Effect]:
        """The log is full: neither this group nor any later one was stored.

        Publishers of events are notified. If this group has events, the requests in the later ones are stored again;
        otherwise requests are undone and failed. Acknowledgements stay valid, and are stored with the next group.
        """
        groups = self._commit.take_from(ticket)
        self._begin(now)
        self._commit.rejected(groups, reason, now)
        return self._finish(now)

    def store_floors(self, now: Now) -> list[Effect]:
        """Store everything that was acknowledged, so that `needed` is as high as possible: call it before trimming."""
        self._begin(now)
        self._commit.store_watermarks()
        return self._finish(now)

    @property
    def needed(self) -> Offset:
        """The first offset that some queue may still have to read, as far as that is stored."""
        below = [queue.stored_below for queue in self._queues.all]
        below += [each.window.stored_below for each in self._neighbours.values()]
        below.append(min(self._moves.needed, self._journal.end))
        return Offset(min(below, default=self._journal.end))

    def trimmed(self, first: Offset, now: Now) -> list[Effect]:
        """The log's oldest event now has this offset. Consumers of queues that still needed older ones get a gap."""
        self._begin(now)
        self._journal.first = max(self._journal.first, first)
        for queue in self._queues.all:
            queue.pass_over(self._journal.end)
            if queue.acked_below(self._journal.end) < first:
                self._delivery.lose(queue, first)
        return self._finish(now)

    # -- time -----------------------------------------------------------------------------------------

    def tick(self, now: Now) -> list[Effect]:
        """The timer, or more to do: redeliveries that are due, queues that are behind, connections that are silent."""
        self._begin(now)
        restored, self._restored = self._restored, []
        for session in restored:
            if session.connection is None:
                self._clients.expire_restored(session, now)
        if self._moves.is_restored:
            self._moves.begin(now)
        self._timers.run(now)
        if self._unchecked:
            self._revocation.step(now)
        if self._backlog.queues:
            self._backlog.step()
        if self._dispatch.behind:
            self._dispatch.go_on(now)
        if self._questions.waiting:
            self._questions.go_on(now)
        if self._neighbours and (self._links.table_pending or self._links.learning):
            self._ingest.match(now)
            self._links.work(now)
        if self._links.table_changed and now.monotonic >= self._rest_at:
            self._links.table_changed = self._parts.matcher.rest()
            self._rest_at = now.monotonic + _QUIET
        queues = self._queues
        later, queues.serve_later = queues.serve_later, {}
        for queue in later:
            if queue in queues.all and queue.windows:
                self._delivery.pump(queue, now)
            elif queue in queues.all:
                self._delivery.pass_over(queue)
        return self._finish(now)

    # -- access ---------------------------------------------------------------------------------------

    def set_rules(self, rules: Rules, now: Now) -> list[Effect]:
        """These access rules hold from now on, for events that wait to be delivered too.

        Subscriptions that they no longer cover end, also durable ones whose clients are away; clients are notified.
        Links of brokers that may not link any more are closed.
        """
        self._begin(now)
        self._revocation.set_rules(rules)
        for each in list(self._sessions.connections.values()):
            if each.link is not None and each.principal and "link" not in rules.of(each.principal).rights.further:
                reason = "the access rules have changed, and no longer allow this link"
                self._links.close(each, "refused", reason, now)
        self._revocation.step(now)
        return self._finish(now)

    # -- links ----------------------------------------------------------------------------------------

    def attach(self, peer: str, role: Role, now: Now) -> list[Effect]:
        """Make a neighbour; `role` is what it is to this broker. It is waited for until it is there, or detached.

        Raises LocalProtocolError for one that exists, or a role that it cannot have.
        """
        self._begin(now)
        self._ingest.match(now)
        self._links.attach(Link(peer), role)
        return self._finish(now)

    def detach(self, peer: str, now: Now) -> list[Effect]:
        """End a neighbour, with everything that it sent; nobody waits for it any more. Raises LocalProtocolError."""
        self._begin(now)
        self._links.detach(Link(peer))
        return self._finish(now)

    def retune(self, space: LabelSpace, now: Now) -> list[Effect]:
        """Give the whole network another label space, from one broker at a time. Raises LocalProtocolError if it has
        none.
        """
        self._begin(now)
        self._ingest.match(now)
        self._links.retune(space)
        return self._finish(now)

    def links(self) -> list[LinkStatus]:
        """The states of the links, by name."""
        return [each.status(self._journal.end) for _, each in sorted(self._neighbours.items())]

    def relay(self, destination: str, body: bytes, now: Now) -> list[Effect]:
        """Send something to any broker of the network, at most once. Raises LocalProtocolError if there is no way."""
        self._begin(now)
        name = self._links.reach.name
        if destination == name:
            self._out.relayed(Relayed(name, body))
        elif not self._links.relay(LinkRelay(destination, name, body), now):
            raise LocalProtocolError(f"there is no way from {name} to {destination} now; try again later")
        return self._finish(now)

    def invite(self, session: str, broker: str, address: str, now: Now) -> list[Effect]:
        """Move a session to another broker; its client is told the address. Raises LocalProtocolError."""
        self._begin(now)
        self._moves.invite(session, broker, address, now)
        return self._finish(now)

    def balance(self, enabled: bool, address: str, limits: BalanceLimits | None, now: Now) -> list[Effect]:
        """Share the load with other brokers, or not. `address` is where clients reach this one."""
        self._begin(now)
        self._moves.balance.configure(enabled, address, limits, now)
        return self._finish(now)

    # -- the turn -------------------------------------------------------------------------------------

    def _begin(self, now: Now) -> None:
        """Every call begins so: the time of the log goes on."""
        self._dispatch.questioned = False
        jump = self._clock.follow(now)
        self._journal.at = self._clock.at
        if jump:
            self._parts.counts["clock jumps"] += 1
            self.clock_jumped(jump)

    def _finish(self, now: Now) -> list[Effect]:
        """The steps with which every call ends, numbered as in the module's docstring."""
        journal, queues, delivery, links = self._journal, self._queues, self._delivery, self._links
        while True:
            if journal.write.attributes or journal.write.transient:
                self._ingest.match(now)  # 1
            self._show_profiles(now)
            while queues.serve_now or delivery.too_slow:
                self._serve(now)  # 2
                self._close_slow(now)  # 3
            if links.due or links.behind or self._completion.finished:
                links.send(now)  # 4
            if self._forwarding.too_far:
                links.detach_slow()  # 5
            if self._commit.persist(now):  # 6
                break
        self._parts.places.tell()
        more = bool(queues.serve_later or self._unchecked or self._dispatch.behind or self._backlog.queues)
        more = more or bool(self._questions.waiting) or self._notices.behind(now)
        if not more and (links.behind or links.table_pending or links.learning):
            more = links.busy
        return self._out.drain(SetTimer(now.monotonic) if more else self._timers.next())  # 7

    def _show_profiles(self, now: Now) -> None:
        """Profiles that have expired end, and subscriptions get the notices that are due."""
        notices, at = self._notices, self._journal.at
        ends = min(self._homes.next_end, notices.next_end)
        if ends <= at:
            notices.expire()
            self._homes.expire()
            ends = min(self._homes.next_end, notices.next_end)
        if notices.left_over:
            self._journal.write.changes += notices.left_over
            notices.left_over = []
        if notices.due:
            notices.write(now)
        if ends != NEVER:
            notices.wake(ends, now)

    def _serve(self, now: Now) -> None:
        queues = self._queues
        while queues.serve_now:
            queue = next(iter(queues.serve_now))
            del queues.serve_now[queue]
            if queue.windows and queue in queues.all:
                self._delivery.pump(queue, now)

    def _close_slow(self, now: Now) -> None:
        slow, self._delivery.too_slow = self._delivery.too_slow, []
        for connection, reason in slow:
            if self._sessions.is_open(connection):
                self._clients.close(connection, "slow", reason, now)

    # -- what is in it --------------------------------------------------------------------------------

    @property
    def table(self) -> RoutingTable:
        """What is wanted here and by neighbours; only the core changes it."""
        return self._parts.matcher.table

    @property
    def end(self) -> Offset:
        """The offset after the last stored event."""
        return self._journal.end

    @property
    def time(self) -> int:
        """The time of the log, UTC microseconds: it may lag behind a clock that has jumped, or be ahead of it."""
        return self._journal.at

    @property
    def counts(self) -> dict[str, int]:
        """How often things happened, by name."""
        return dict(sorted(self._parts.counts.items()))

    def status(self, queues: int = 20) -> BrokerStatus:
        """The broker's status, with the `queues` queues that lag most. Cost: O(queues), whatever the events."""
        parts, journal = self._parts, self._journal
        engine = engine_of(self.table)
        assumed = {"assumed": engine.assumed} if engine.assumed else {}  # events whose tests were used up
        suppressed = {"suppressed": parts.matcher.suppressed} if parts.matcher.suppressed else {}  # by rates
        found = [*map(self._durable_status, parts.queues.all)]
        for session in parts.sessions.by_id.values():
            for queue in session.queues.values():
                if isinstance(queue, TransientQueue):
                    held, size = len(queue.held), len(queue.members)
                    found.append(QueueStatus(session.name, queue.number, "", False, held, held, size, connected=True))
        return BrokerStatus(
            journal.log_id,
            journal.incarnation,
            journal.first,
            journal.end,
            self.needed,
            self.table.model,
            len(parts.sessions.by_id),
            sum(1 for each in parts.sessions.connections.values() if each.session is not None),
            len(parts.matcher),
            len(found),
            tuple(nlargest(queues, found, key=lambda each: (each.behind, each.open))),
            len(journal.groups),
            {**self.counts, **self._moves.figures, **self._profile_figures(), **assumed, **suppressed},
            self.driver(),
            dict(engine.chosen),
        )

    @property
    def averages(self) -> dict[str, float]:
        """Moving averages per second: of the events that come in, and of their matches here."""
        matcher, second = self._parts.matcher, self._journal.at // 1_000_000
        return {"events": matcher.events.per_second(second), "matches": matcher.matches.per_second(second)}

    def _profile_figures(self) -> dict[str, int]:
        """How many profiles and queries there are, unless there are none."""
        figures = {
            "profiles published here": len(self._homes),
            "profiles living": len(self._notices.living),
            "queries for profiles": len(self._notices.queries),
        }
        return {name: value for name, value in figures.items() if value}

    def _durable_status(self, queue: Queue) -> QueueStatus:
        owner = None if queue.session is None else self._sessions.by_id.get(queue.session)
        name, opened, here = "" if owner is None else owner.name, len(queue.open()), bool(queue.windows)
        return QueueStatus(name, queue.number, queue.share, True, queue.behind, opened, len(queue.members), here)

    def place(self, home: Home) -> None:
        """This broker is one of several that share sessions by their names; `home` says which one has a session."""
        self._clients.home = home

    def session(self, name: str) -> SessionId | None:
        """The id of a session."""
        known = self._sessions.by_name.get(name)
        return None if known is None else known.id

    def subscriptions(self, session: str) -> dict[SubNumber, str]:
        """The filters of a session, by the numbers of its subscriptions; empty if there is none of this name."""
        known = self._sessions.by_name.get(session)
        return {} if known is None else {number: sub.text for number, sub in known.subs.items()}

    def is_leaving(self, peer: str) -> bool:
        """Whether a neighbour was detached, and that is not stored yet."""
        known = self._neighbours.get(Link(peer))
        return known is not None and known.leaving

    def is_attached(self, peer: str) -> bool:
        """Whether a neighbour is attached, and is not about to be detached."""
        known = self._neighbours.get(Link(peer))
        return known is not None and not known.leaving

    @property
    def begins_retunings(self) -> bool:
        """Whether this broker begins the re-tunings of its network. A broker that cannot know yet does not."""
        return self._links.begins_retunings

    def is_acknowledged(self, peer: str) -> bool:
        """Whether a neighbour has stored every control frame that it was sent in this session."""
        known = self._neighbours.get(Link(peer))
        return known is not None and not known.sender.marks.unacked

    def export(self, session: SessionId) -> SessionValue:
        """A session as a value that another broker could go on with. Raises KeyError."""
        return exported(self._sessions.by_id[session], self._journal.end)

    def settle(self) -> None:
        """Wait until no part of an index is being joined in the background, for measurements."""
        self._parts.matcher.settle()

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Cost: linear in everything."""
        Invariants(self._parts).check()
        self._notices.check()
