"""What comes in from neighbours. Laws: an event of a neighbour is stored once, with the offset that it has there;
whatever breaks the protocol ends the session, and nothing else.
"""

from __future__ import annotations

from weft.broker.effects import Now
from weft.broker.link import Neighbour
from weft.broker.link_greeting import LinkGreeting
from weft.broker.link_messages import (
    IncomingMessage,
    LinkAhead,
    LinkDigest,
    LinkEvents,
    LinkHave,
    LinkHello,
    LinkLoose,
    LinkPing,
    LinkProgress,
    LinkReach,
    LinkRelay,
    LinkUpdate,
)
from weft.broker.linking import Linking
from weft.broker.messages import Bye
from weft.broker.sessions import CloseConnection, Connection
from weft.broker.state import BrokerState
from weft.errors import EventError, RemoteProtocolError
from weft.log.base import NEVER, MoveGot

_STEPS = 4  # of what is pending, for each item that may be learnt: they are much cheaper


class LinkTraffic:
    """Handles the messages of neighbours."""

    def __init__(self, state: BrokerState, linking: Linking, greeting: LinkGreeting, close: CloseConnection) -> None:
        self._state = state
        self._linking = linking
        self._greeting = greeting
        self._close = close

    # -- messages -------------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        """A message on a connection that is a link, or is about to become one."""
        try:
            if isinstance(connection.link, Neighbour):
                self._receive(connection, connection.link, message, now)
            elif isinstance(message, LinkHello):
                self._hello(connection, message, now)
            elif isinstance(message, Bye):
                self._bye(connection, message, now)
            else:
                raise RemoteProtocolError("a link begins with a hello")
        except RemoteProtocolError as error:
            self.fail(connection, str(error), now)

    def fail(self, connection: Connection, reason: str, now: Now) -> None:
        """A neighbour has broken the protocol, or does not have what it should have: the next session mends it."""
        self._state.counts["link sessions failed"] += 1
        self._close(connection, "protocol", reason, now)

    def _hello(self, connection: Connection, theirs: LinkHello, now: Now) -> None:
        neighbour = self._greeting.hello(connection, theirs, now)
        if neighbour is None:
            return
        known = theirs.peer_log == self._state.log_id
        self._linking.begun(neighbour, connection, theirs.log_id, theirs.got, known)
        self._beat_later(neighbour, connection, now)

    def _bye(self, connection: Connection, message: Bye, now: Now) -> None:
        peer = connection.dialled if connection.link is None else connection.link.peer
        neighbour = None if peer is None else self._state.neighbours.get(peer)
        self._close(connection, "goodbye", "the neighbour ended the connection", now)
        if neighbour is not None:
            neighbour.reason = message.reason

    def _receive(self, connection: Connection, neighbour: Neighbour, message: IncomingMessage, now: Now) -> None:
        match message:
            case LinkEvents():
                self._events(neighbour, message)
            case LinkProgress():
                neighbour.sender.marks.progress(message.heard, message.completed)
                self._linking.sending.acknowledged(neighbour, message.got)
            case LinkAhead(upto):
                self._linking.sending.dealt_with(neighbour, upto)
            case LinkUpdate() | LinkDigest():
                neighbour.receiver.receive(message, neighbour.received)
            case LinkHave():
                if neighbour.sender.have(message):
                    self._linking.resync(neighbour)
            case LinkLoose():
                attributes, head, expires = self._admitted(neighbour, message.head)
                if expires > self._state.at:
                    self._state.draft.loose.append((attributes, head, message.payload, neighbour.peer))
            case LinkReach():
                self._linking.reached(neighbour, message)
            case LinkRelay():
                self._linking.relay(message, now)
            case Bye():
                self._bye(connection, message, now)
            case LinkPing():
                pass
            case _:
                raise RemoteProtocolError(f"a neighbour does not send {type(message).__name__}")

    # -- events ---------------------------------------------------------------------------------------

    def _events(self, neighbour: Neighbour, message: LinkEvents) -> None:
        draft, first = self._state.draft, len(self._state.draft.attributes)
        before = neighbour.received
        for event in message.events:
            if event.offset <= neighbour.received:
                self._state.counts["link duplicates"] += 1
                continue
            attributes, head, expires = self._admitted(neighbour, event.head)
            neighbour.received = event.offset
            if expires <= self._state.at:
                self._state.counts["expired"] += 1
                continue
            draft.attributes.append(attributes)
            draft.heads.append(head)
            draft.payloads.append(event.payload)
            draft.expires.append(expires)
            draft.expiring = draft.expiring or expires != NEVER
            draft.origins.append((event.session, event.epoch, event.sequence, 1))
        if neighbour.received == before:
            return
        if len(draft.attributes) > first:
            draft.foreign.append((first, len(draft.attributes), neighbour.peer))
        self._got(neighbour)

    def _got(self, neighbour: Neighbour) -> None:
        """Store how much of the neighbour's log is here, together with it."""
        draft, log, got = self._state.draft, neighbour.peer_log, neighbour.received
        draft.changes.append(MoveGot(neighbour.seat, got))
        draft.urgent = True

        def committed(_: Now) -> None:
            if neighbour.peer_log == log:
                neighbour.got = max(neighbour.got, got)
            elif log in neighbour.former_logs:
                neighbour.former_logs[log] = max(neighbour.former_logs[log], got)

        def rejected(reason: str, now: Now) -> None:
            if neighbour.peer_log == log:
                neighbour.received = neighbour.got
            if neighbour.connection is not None:  # perhaps a newer one, which was told that these events are here
                self._close(neighbour.connection, "full", reason, now)

        draft.committed.append(committed)
        draft.rejected.append(rejected)

    def _admitted(self, neighbour: Neighbour, head: bytes) -> tuple[dict[str, object], bytes, int]:
        try:
            return self._state.door.relayed(head)
        except EventError as error:
            raise RemoteProtocolError(f"{neighbour.peer} sends an event that cannot be read: {error}") from None

    # -- time -----------------------------------------------------------------------------------------

    def work(self, now: Now) -> None:
        """A turn of table work."""
        neighbour = self._linking.work(_STEPS * self._state.limits.slice)
        if neighbour is None:
            return
        try:
            self._linking.learn(neighbour)
        except RemoteProtocolError as error:
            if neighbour.connection is not None:
                self.fail(neighbour.connection, str(error), now)

    def _beat_later(self, neighbour: Neighbour, connection: Connection, now: Now) -> None:
        due = now.monotonic + self._state.limits.heartbeat
        self._state.timers.add(due, lambda later: self._beat(neighbour, connection, later))

    def _beat(self, neighbour: Neighbour, connection: Connection, now: Now) -> None:
        """Say that we are here, and see whether the neighbour is; compare what it holds from time to time."""
        state, limits = self._state, self._state.limits
        if neighbour.connection is not connection or state.connections.get(connection.id) is not connection:
            return
        if now.monotonic - connection.heard > limits.link_silence:
            state.counts["closed as silent"] += 1
            self._close(connection, "idle", "the connection was silent for too long", now)
            return
        self._beat_later(neighbour, connection, now)
        state.out.send(connection.id, LinkPing())
        neighbour.beats += 1
        if not neighbour.receiver.audit(limits.audit):
            state.counts["items mended"] += 1
            self.fail(connection, f"an item of {neighbour.peer} was not what it had told; it is compared anew", now)
        elif neighbour.beats % limits.digests == 0 and not neighbour.sender.resyncing:
            state.out.send(connection.id, LinkDigest(neighbour.sender.marks.number, *neighbour.sender.digest()))
            self._linking.improve()
