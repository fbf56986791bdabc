"""Advertisements of publishers. Law: as with subscriptions: confirmed when stored, undone when not."""

from __future__ import annotations

from weft.broker.effects import Now
from weft.broker.messages import Accepted, Advertise, Unadvertise
from weft.broker.requests import RequestError, Requests, session_of
from weft.broker.sessions import Connection
from weft.index.base import SubId
from weft.language.text import parse
from weft.log.base import AdvertRow, Put, Remove
from weft.routing.table import ClientId


class Advertising(Requests):
    """Advertisements, for tables that have them."""

    def advertise(self, connection: Connection, message: Advertise, now: Now) -> None:
        """Add an advertisement. Raises LocalProtocolError where the table has none."""
        session, state = session_of(connection), self.state
        if message.number in session.adverts:
            raise RequestError("exists", f"advertisement {message.number} already exists")
        if len(session.adverts) >= state.limits.adverts:
            raise RequestError("limit", f"a session has at most {state.limits.adverts:,} advertisements")
        wanted = parse(message.filter)
        self.publishing.match(now)
        client, stored = ClientId(str(session.id)), int(state.new_seat())
        state.tell(state.seats.table.advertise(client, {SubId(stored): wanted}, ()))
        session.adverts[message.number] = stored, message.filter
        done = Accepted("advertise", message.number, state.next)
        if not session.durable:
            state.out.send(connection.id, done)
            return
        state.draft.changes.append(Put(AdvertRow(stored, session.id, message.filter)))
        self.answer(connection, done)

        def rejected(reason: str, _: Now) -> None:
            if session.adverts.pop(message.number, None) is not None:
                state.tell(state.seats.table.advertise(client, {}, (SubId(stored),)))
            self.fail(connection, "advertise", message.number, reason)

        state.draft.rejected.append(rejected)

    def unadvertise(self, connection: Connection, message: Unadvertise, now: Now) -> None:
        """Remove an advertisement."""
        session, state = session_of(connection), self.state
        if message.number not in session.adverts:
            raise RequestError("unknown", f"there is no advertisement {message.number}")
        self.publishing.match(now)
        stored, text = session.adverts.pop(message.number)
        client = ClientId(str(session.id))
        state.tell(state.seats.table.advertise(client, {}, (SubId(stored),)))
        done = Accepted("unadvertise", message.number, state.next)
        if not session.durable:
            state.out.send(connection.id, done)
            return
        state.draft.changes.append(Remove(AdvertRow, (stored,)))
        self.answer(connection, done)

        def rejected(reason: str, _: Now) -> None:
            state.tell(state.seats.table.advertise(client, {SubId(stored): parse(text)}, ()))
            session.adverts[message.number] = stored, text
            self.fail(connection, "unadvertise", message.number, reason)

        state.draft.rejected.append(rejected)
