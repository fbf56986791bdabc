"""Operations: what an operator does to the things of others. Each needs the right `operate`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from weft.broker.after_commit import OperationStored
from weft.broker.effects import Now
from weft.broker.hello import ClientConnections
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.questions.listings import Page
from weft.broker.revocation import Revocation
from weft.broker.sessions import Connection, Session
from weft.broker.subscriptions import ClientSubscriptions
from weft.errors import LocalProtocolError, SchemaError
from weft.protocol.questions import (
    BalanceReport,
    ChangeSubscription,
    DetachLink,
    Disconnect,
    MoveSession,
    Operation,
    OperationDone,
    PreloadQueries,
    Retune,
    SetBalance,
)
from weft.routing.dls.space import LabelSpace
from weft.routing.table import Link


class Asker(NamedTuple):
    """Who asks: a client by its connection, or another broker."""

    principal: str
    request: int
    connection: Connection | None
    broker: str = ""


class SendReply(Protocol):
    """Sends an answer, or why there is none; `broker` is whose it is, if not this one's."""

    def __call__(self, asker: Asker, found: Page | Exception, now: Now, broker: str | None = None) -> None:
        """Send it."""


class Operations:
    """Carries out operations, and answers when they are stored."""

    def __init__(  # noqa: PLR0913, PLR0917 - what an operator may change
        self,
        parts: BrokerParts,
        links: Links,
        clients: ClientConnections,
        subscriptions: ClientSubscriptions,
        revocation: Revocation,
        notices: ProfileNotices,
    ) -> None:
        self._sessions, self._journal, self._counts = parts.sessions, parts.journal, parts.counts
        self._links, self._clients, self._subscriptions = links, clients, subscriptions
        self._revocation, self._notices = revocation, notices
        self.reply: SendReply = lambda *_, **__: None

    def carry_out(self, asker: Asker, operation: Operation, now: Now) -> None:
        """Do it; the answer is sent now, or when it is stored. Raises what `REFUSALS` lists."""
        self._counts["operations"] += 1
        match operation:
            case Disconnect(session, reason):
                known = self._session(session)
                here = self._sessions.connection_of(known)
                if here is None:
                    raise RefusalError("away", f"the session {session!r} has no connection; there is nothing to close")
                why = f"an operator has closed the connection{f': {reason}' if reason else ''}"
                self._clients.close(here, "operator", why, now)
                self.reply(asker, Page(OperationDone(f"the connection of {session!r} is closed")), now)
            case DetachLink(link):
                self._links.detach(Link(link))
                self._answer_when_stored(asker, f"{link} is detached")
            case MoveSession(session, to, address):
                try:
                    self._clients.moves.invite(session, to, address, now)
                except LocalProtocolError as error:
                    raise RefusalError("move", str(error)) from None
                self.reply(asker, Page(OperationDone(f"{to} takes the session {session!r} over")), now)
            case SetBalance(enabled):
                balance = self._clients.moves.balance
                if enabled and not balance.name:
                    raise RefusalError("name", "this broker has no name, so no session can leave it; give it one")
                balance.configure(enabled, "", None, now)
                self.reply(asker, Page(OperationDone(f"balancing is {'on' if enabled else 'off'}")), now)
            case PreloadQueries(filters, meeting):
                self._notices.preload([self._subscriptions.parse(text) for text in filters], meeting)
                self.reply(asker, Page(OperationDone(f"{len(filters)} queries are preloaded")), now)
            case ChangeSubscription(session, number, None):
                known = self._session(session)
                sub = known.subs.get(number)
                if sub is None:
                    raise RefusalError("unknown", f"the session {session!r} has no subscription {number}")
                self._revocation.end(known, sub, "an operator has ended the subscription")
                self._answer_when_stored(asker, f"subscription {number} of {session!r} has ended")
            case ChangeSubscription(session, number, str() as text):
                self._subscriptions.change(self._session(session), number, text, now)
                self._answer_when_stored(asker, f"subscription {number} of {session!r} has another filter")

            case Retune(""):
                self.reply(asker, Page(OperationDone(self._links.label_space())), now)
            case Retune(text):
                try:
                    space = LabelSpace.from_json(text)
                except SchemaError as error:
                    raise RefusalError("space", str(error)) from None
                self._links.check_leader()
                self._links.retune(space)
                self._answer_when_stored(asker, "the network changes to the new label space")

    def balance(self, now: Now) -> BalanceReport:
        """The loads of all brokers, as this one knows them."""
        return self._clients.moves.balance.report(now)

    def _session(self, name: str) -> Session:
        known = self._sessions.by_name.get(name)
        if known is None:
            raise RefusalError("unknown", f"there is no session {name!r} here; `weft sessions` lists all")
        return known

    def _answer_when_stored(self, asker: Asker, text: str) -> None:
        self._journal.write.require([], OperationStored(asker, text))

    def stored(self, operation: OperationStored, now: Now) -> None:
        """What was done is in the log."""
        self.reply(operation.asker, Page(OperationDone(operation.text)), now)

    def undo(self, operation: OperationStored, reason: str, now: Now) -> None:
        """What was done could not be stored, and is undone by those who did it."""
        self.reply(operation.asker, RefusalError("full", reason), now)
