"""Dispatch: the handler of each message, and how much of what a connection says is handled in one turn.

A message that cannot be granted is answered, and changes nothing. In one turn a connection changes a bounded number of
subscriptions; what it said behind them waits, and connections that wait take turns. So do events behind a request that
waits for the log: they are not stored in one group with it (see `weft.broker.commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from weft.broker.advertisements import ClientAdvertisements
from weft.broker.dead_letters import FailedDeliveries
from weft.broker.delivery import Delivery
from weft.broker.effects import Now, Relayed
from weft.broker.explain import Explainer
from weft.broker.hello import ClientConnections
from weft.broker.history import HistoryReads
from weft.broker.ingest import Ingest
from weft.broker.limits import REFUSALS, RefusalError, refusal_code
from weft.broker.links.links import Links
from weft.broker.moves.moves import Moves
from weft.broker.parts import BrokerParts
from weft.broker.profiles.home import HomeProfiles
from weft.broker.questions.asking import Questions, is_question_relay
from weft.broker.sessions import Connection, session_of
from weft.broker.subscriptions import ClientSubscriptions
from weft.protocol.link_messages import (
    KNOWS_MOVES,
    LINK_EVENTS,
    LINK_MESSAGES,
    PLACES_WANTED,
    PROBE,
    IncomingMessage,
    LinkHello,
    LinkRelay,
    RelayKind,
)
from weft.protocol.messages import (
    PUBLISH,
    Ack,
    Advertise,
    AskSpace,
    AskStatus,
    AskStored,
    DropDead,
    Explain,
    Failed,
    Goodbye,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Pong,
    Publish,
    PublishProfile,
    Question,
    ReadHistory,
    Replace,
    RetryDead,
    StatusReport,
    Subscribe,
    SubscribeProfiles,
    Unadvertise,
    Unsubscribe,
    Whence,
    WithdrawProfile,
)
from weft.protocol.status import BrokerStatus

_PROFILES = {SubscribeProfiles, PublishProfile, WithdrawProfile}
CHANGES = frozenset({Subscribe, Replace, Unsubscribe, Advertise, Unadvertise, *_PROFILES})

Handler = Callable[[Connection, Any, Now], None]
_encode = msgspec.msgpack.Encoder().encode


class Dispatch:
    """Hands messages to the parts of a broker: events in runs, anything else one by one."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it hands on to
        self,
        parts: BrokerParts,
        ingest: Ingest,
        delivery: Delivery,
        clients: ClientConnections,
        subscriptions: ClientSubscriptions,
        advertisements: ClientAdvertisements,
        failed: FailedDeliveries,
        explainer: Explainer,
        questions: Questions,
        history: HistoryReads,
        links: Links,
        moves: Moves,
        homes: HomeProfiles,
        status: Callable[[int], BrokerStatus],
    ) -> None:
        self._sessions, self._matcher, self._access, self._out = parts.sessions, parts.matcher, parts.access, parts.out
        self._limits, self._counts, self._journal = parts.limits, parts.counts, parts.journal
        self._clients, self._ingest, self._delivery, self._failed = clients, ingest, delivery, failed
        self._subscriptions, self._explainer, self._links = subscriptions, explainer, links
        self._status, self._questions, self._moves, self._places = status, questions, moves, parts.places
        links.relayed = self._relay
        self.questioned = False  # a client's question was answered in this turn
        self.behind: dict[Connection, None] = {}  # connections that have said more than was handled
        self._handlers: dict[type, Handler] = {  # of a client that has said hello
            Ack: self._ack,
            AskStored: self._ask_stored,
            Nack: failed.nack,
            Ping: self._ping,
            NewEpoch: self._new_epoch,
            AskSpace: self._ask_space,
            Goodbye: self._goodbye,
        }
        self._requests: dict[type, tuple[str, Handler]] = {  # that may be refused, by the name that answers give them
            Subscribe: ("subscribe", self._subscribe),
            SubscribeProfiles: ("subscribe", subscriptions.subscribe_to_profiles),
            PublishProfile: ("publish profile", homes.publish),
            WithdrawProfile: ("withdraw profile", homes.withdraw),
            Replace: ("replace", subscriptions.replace),
            Unsubscribe: ("unsubscribe", subscriptions.unsubscribe),
            Advertise: ("advertise", advertisements.advertise),
            Unadvertise: ("unadvertise", advertisements.unadvertise),
            AskStatus: ("status", self._report_status),
            Explain: ("explain", self._explain),
            ReadHistory: ("history", history.read),
            Question: ("question", questions.ask),
            ListDead: ("list dead", failed.list),
            RetryDead: ("retry dead", failed.retry),
            DropDead: ("drop dead", failed.drop),
        }

    # -- turns ----------------------------------------------------------------------------------------

    def handle(self, connection: Connection, messages: Sequence[IncomingMessage], now: Now, most: int = 0) -> None:
        """Handle messages in order, up to `most` changes of subscriptions; the rest is handled in later turns.

        Without `most`, a change that takes long is the last one of a turn.
        """
        at, size, connections = 0, len(messages), self._sessions.connections
        gone, reads = bool(most), 0
        flushes = -1 if most else None  # of the index, before the first change; -1: however long they take
        most = most or self._limits.changes
        while at < size and connection.id in connections:
            message = messages[at]
            kind = type(message)
            handler = self._handlers.get(kind)
            if handler is not None and connection.session is not None:
                handler(connection, message, now)
                at += 1
                continue
            if kind in PUBLISH and connection.session is not None:
                if flushes != -1 and self._journal.write.waiting:
                    self._put_off(connection, messages[at:])
                    return
                first = at
                while at < size and type(messages[at]) is kind:
                    at += 1
                events = messages if at - first == size else messages[first:at]
                self._ingest.publish(connection, cast("Sequence[Publish]", events), now)
                continue
            if connection.link is not None:
                if kind in LINK_EVENTS and flushes != -1 and self._journal.write.waiting:
                    self._put_off(connection, messages[at:])
                    return
                self._links.receive(connection, message, now)
                at += 1
                continue
            if kind in CHANGES:
                most -= 1
                if flushes is None:
                    flushes = self._matcher.flushes
                if most < 0 or -1 < flushes < self._matcher.flushes:
                    self._put_off(connection, messages[at:])
                    return
            elif kind is ReadHistory or kind is Question:
                if gone:
                    at += 1  # nobody waits for the answer
                    continue
                if reads or (kind is Question and self.questioned):
                    self._put_off(connection, messages[at:])
                    return
                reads += 1
                self.questioned = self.questioned or kind is Question
            self._one(connection, message, now)
            at += 1

    def _put_off(self, connection: Connection, messages: Sequence[IncomingMessage]) -> None:
        connection.backlog = [*messages]
        self.behind[connection] = None
        self._counts["requests put off"] += 1

    def resumed(self, connection: Connection, now: Now) -> None:
        """A connection's write buffer has room again."""
        message, connection.put_off = connection.put_off, None
        if message is not None:
            self._request(connection, message, now)

    def go_on(self, now: Now) -> None:
        """Handle more of what one connection has said; the one that has waited longest comes first."""
        connection = next(iter(self.behind))
        del self.behind[connection]
        messages, connection.backlog = connection.backlog, []
        if self._sessions.is_open(connection):
            self.handle(connection, messages, now)

    # -- one message ----------------------------------------------------------------------------------

    def _one(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        kind = type(message)
        if connection.session is None and (connection.dialled is not None or kind is LinkHello):
            self._links.receive(connection, message, now)
        elif connection.session is None and isinstance(message, Hello):
            self._clients.hello(connection, message, now)
        elif connection.session is None and isinstance(message, Whence) and connection.dialled is None:
            self._clients.whence(connection, message, now)
        elif connection.session is None or kind is Hello or kind is LinkHello:
            self._clients.close(connection, "protocol", "a connection begins with one hello", now)
        elif kind in LINK_MESSAGES:
            self._clients.close(connection, "protocol", "this connection is not a link", now)
        else:
            self._request(connection, message, now)

    def _ack(self, connection: Connection, message: Ack, _: Now) -> None:
        known = connection.windows.get(message.queue)
        if known is None:
            return  # a queue that is gone, or one that needs no acknowledgement
        queue, window = known
        if window.revived or window.buried:
            self._failed.acknowledged(queue, window, message)
        self._delivery.ack(queue, window, message)
        if window.repeated:
            window.repeated = False
            self._failed.acknowledged_before(queue, message)

    def _ask_stored(self, connection: Connection, message: AskStored, _: Now) -> None:
        known = connection.windows.get(message.queue)
        if known is not None:
            self._delivery.ask_stored(*known)

    def _ping(self, connection: Connection, message: Ping, _: Now) -> None:
        self._out.send(connection.id, Pong(message.token))

    def _ask_space(self, connection: Connection, _: AskSpace, __: Now) -> None:
        self._places.ask(connection)

    def _new_epoch(self, connection: Connection, message: NewEpoch, now: Now) -> None:
        try:
            self._ingest.new_epoch(connection, message)
        except LookupError as error:
            self._clients.close(connection, "protocol", str(error.args[0]), now)

    def _goodbye(self, connection: Connection, message: Goodbye, now: Now) -> None:
        session = session_of(connection)
        if message.forget and session.durable:
            self._clients.forget(session)
        else:
            self._clients.close(connection, "goodbye", "the client said goodbye", now)

    def _relay(self, message: LinkRelay, now: Now) -> None:
        """A relayed message goes to the next broker on its way, or is for this one.

        Everything that came before it on its link is learnt and stored.
        """
        if message.destination != self._links.reach.name:
            self._links.relay(message, now)
        elif message.body in (PROBE, KNOWS_MOVES):
            self._links.probed(message, now)
        elif message.body.startswith(PLACES_WANTED):
            self._links.places_wanted(message)
        elif message.kind is RelayKind.MOVE:
            self._moves.receive(message, now)
        elif message.kind is RelayKind.DRIVER:
            self._out.relayed(Relayed(message.source, message.body))
        elif is_question_relay(message):
            self._questions.receive(message, now)
        else:
            self._explainer.receive(message, now)

    # -- requests that may be refused -----------------------------------------------------------------

    def _request(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        """A request that may fail, and then changes nothing."""
        about, handler = self._requests[type(message)]
        try:
            if connection.requests is not None and not connection.requests.take(now.monotonic):
                raise RefusalError("rate", f"more than {self._limits.requests:g} requests per second; try again later")
            if session_of(connection).leaving:
                raise RefusalError("leaving", "the session is being removed")
            if type(message) in CHANGES and session_of(connection).is_moving:
                raise RefusalError("moving", "the session moves to another broker; try again when it has")
            handler(connection, message, now)
        except REFUSALS as error:
            asked = message.subscribe if isinstance(message, SubscribeProfiles) else message
            number = getattr(asked, "number", getattr(asked, "request", 0))
            self._counts[f"failed: {about}"] += 1
            self._out.send(connection.id, Failed(about, number, refusal_code(error), str(error)))

    def _subscribe(self, connection: Connection, message: Subscribe, now: Now) -> None:
        if not message.share or not self._clients.send_home(connection, message.share, now):
            self._subscriptions.subscribe(connection, message, now)

    def _report_status(self, connection: Connection, message: AskStatus, _: Now) -> None:
        self._access.of(connection.principal).check("status")
        body = msgspec.Raw(_encode(self._status(message.queues)))
        self._out.send(connection.id, StatusReport(message.request, body))

    def _explain(self, connection: Connection, message: Explain, now: Now) -> None:
        self._ingest.match(now)
        self._explainer.ask(connection, message, now)
