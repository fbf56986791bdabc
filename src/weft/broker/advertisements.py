"""Advertisements of publishers, for tables that have them.

As with subscriptions, a change is confirmed when it is stored, and undone when it cannot be.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.broker.after_commit import AdvertAdded, AdvertRemoved
from weft.broker.effects import Now
from weft.broker.ingest import Ingest
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.sessions import Connection, Session, session_of
from weft.broker.subscriptions import ClientSubscriptions
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.log.base import AdvertRow, Put, Remove
from weft.protocol.messages import Accepted, Advertise, Unadvertise
from weft.routing.table import ClientId

_NUMBER_BITS = 31  # an advertisement is stored under a consumer id and the client's number in one


def split_id(stored: int) -> tuple[int, int]:
    """The consumer id under which an advertisement was stored, and the client's number of it."""
    return divmod(stored, 1 << _NUMBER_BITS)


class ClientAdvertisements:
    """Adds and removes the advertisements of sessions."""

    def __init__(self, parts: BrokerParts, ingest: Ingest, links: Links, subscriptions: ClientSubscriptions) -> None:
        self._journal, self._completion, self._access = parts.journal, parts.completion, parts.access
        self._out, self._limits, self._parse, self._table = parts.out, parts.limits, parts.parse, parts.matcher.table
        self._ingest, self._links, self._subscriptions = ingest, links, subscriptions

    def advertise(self, connection: Connection, message: Advertise, now: Now) -> None:
        """Add an advertisement, or say again when it is complete to a client that comes back.

        Raises what `REFUSALS` lists; LocalProtocolError where the table has none.
        """
        session, number, limit = session_of(connection), message.number, self._limits.adverts
        _, known = session.adverts.get(number, (0, None))
        if known is not None and known != message.filter:
            raise RefusalError("exists", f"advertisement {number} already exists, with another filter")
        if known is None and len(session.adverts) >= limit:
            raise RefusalError("limit", f"a session has at most {limit:,} advertisements")
        if number >= 1 << _NUMBER_BITS:
            raise RefusalError("limit", f"the number of an advertisement has at most {_NUMBER_BITS} bits")
        stored, changes = 0, []
        if known is None:
            promised = self._parse(message.filter)
            self._access.of(connection.principal).check_advertise(promised)
            self._ingest.match(now)
            stored = self._journal.new_consumer() << _NUMBER_BITS | number
            self._change(session, {SubId(stored): promised})
            session.adverts[number] = stored, message.filter
            changes = [Put(AdvertRow(stored, session.id, message.filter))]
        accepted = Accepted("advertise", number, self._journal.next)
        if not session.durable:
            self._subscriptions.answer_now(connection, accepted)
            return
        announcement = self._completion.announce(session, "advertise", number)
        waiting = AdvertAdded(connection, number, stored, accepted, announcement)
        self._journal.write.require(changes, waiting)

    def undo_advertise(self, added: AdvertAdded, reason: str) -> None:
        """An advertisement could not be stored."""
        session = session_of(added.connection)
        if added.stored and session.adverts.pop(added.number, None) is not None:
            self._change(session, {}, (SubId(added.stored),))
        self._subscriptions.fail(added.connection, "advertise", added.number, reason)

    def unadvertise(self, connection: Connection, message: Unadvertise, now: Now) -> None:
        """Remove an advertisement. Raises RefusalError."""
        session, number = session_of(connection), message.number
        if number not in session.adverts:
            raise RefusalError("unknown", f"there is no advertisement {number}")
        self._ingest.match(now)
        stored, text = session.adverts.pop(number)
        self._change(session, {}, (SubId(stored),))
        accepted = Accepted("unadvertise", number, self._journal.next)
        if not session.durable:
            self._out.send(connection.id, accepted)
            return
        waiting = AdvertRemoved(connection, number, stored, text, accepted)
        self._journal.write.require([Remove(AdvertRow, (stored,))], waiting)

    def undo_unadvertise(self, removed: AdvertRemoved, reason: str) -> None:
        """The end of an advertisement could not be stored."""
        session = session_of(removed.connection)
        self._change(session, {SubId(removed.stored): self._parse(removed.text)})
        session.adverts[removed.number] = removed.stored, removed.text
        self._subscriptions.fail(removed.connection, "unadvertise", removed.number, reason)
        self._completion.renew(session, "advertise", removed.number)

    def install(self, session: Session, number: int, text: str, promised: Filter) -> int:
        """Add an advertisement of a session that moves here; returns the id under which it is to be stored."""
        stored = self._journal.new_consumer() << _NUMBER_BITS | number
        self._change(session, {SubId(stored): promised})
        session.adverts[number] = stored, text
        return stored

    def drop_all(self, session: Session) -> None:
        """Remove the advertisements of a session that is gone from the table."""
        if session.adverts:
            self._change(session, {}, [SubId(stored) for stored, _ in session.adverts.values()])

    def _change(self, session: Session, added: dict[SubId, Filter], removed: Sequence[SubId] = ()) -> None:
        self._links.tell(self._table.advertise(ClientId(str(session.id)), added, removed))
