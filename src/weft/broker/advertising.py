"""Advertisements of publishers. Law: as with subscriptions: confirmed when stored, undone when not."""

from __future__ import annotations

from weft.broker.announcing import still_advertised
from weft.broker.effects import Now
from weft.broker.messages import Accepted, Advertise, Unadvertise
from weft.broker.requests import RefusalError, Requests, session_of
from weft.broker.sessions import Connection
from weft.index.base import SubId
from weft.log.base import AdvertRow, Put, Remove
from weft.routing.table import ClientId

_NUMBER_BITS = 31  # an advertisement is stored under a seat and the client's number in one


def client_number(stored: int) -> int:
    """The client's number of an advertisement that was stored."""
    return stored & ((1 << _NUMBER_BITS) - 1)


def seat_of(stored: int) -> int:
    """The seat under which an advertisement was stored."""
    return stored >> _NUMBER_BITS


class Advertising(Requests):
    """Advertisements, for tables that have them."""

    def advertise(self, connection: Connection, message: Advertise, now: Now) -> None:
        """Add an advertisement. Raises LocalProtocolError where the table has none."""
        session, state = session_of(connection), self.state
        if message.number in session.adverts:
            raise RefusalError("exists", f"advertisement {message.number} already exists")
        if len(session.adverts) >= state.limits.adverts:
            raise RefusalError("limit", f"a session has at most {state.limits.adverts:,} advertisements")
        if message.number >= 1 << _NUMBER_BITS:
            raise RefusalError("limit", f"the number of an advertisement has at most {_NUMBER_BITS} bits")
        wanted = state.read(message.filter)
        state.rules.of(connection.principal).check_advertise(wanted)
        self.publishing.match(now)
        client = ClientId(str(session.id))
        stored = state.new_seat() << _NUMBER_BITS | message.number
        state.tell(state.seats.table.advertise(client, {SubId(stored): wanted}, ()))
        session.adverts[message.number] = stored, message.filter
        done = Accepted("advertise", message.number, state.next)
        still = still_advertised(session, message.number)
        if not session.durable:
            self.answer_change(connection, done, still, stored=False)
            return
        state.draft.changes.append(Put(AdvertRow(stored, session.id, message.filter)))
        self.answer_change(connection, done, still)

        def rejected(reason: str, _: Now) -> None:
            if session.adverts.pop(message.number, None) is not None:
                state.tell(state.seats.table.advertise(client, {}, (SubId(stored),)))
            self.fail(connection, "advertise", message.number, reason)

        state.draft.rejected.append(rejected)

    def unadvertise(self, connection: Connection, message: Unadvertise, now: Now) -> None:
        """Remove an advertisement."""
        session, state = session_of(connection), self.state
        if message.number not in session.adverts:
            raise RefusalError("unknown", f"there is no advertisement {message.number}")
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
            state.tell(state.seats.table.advertise(client, {SubId(stored): state.read(text)}, ()))
            session.adverts[message.number] = stored, text
            self.fail(connection, "unadvertise", message.number, reason)
            still = still_advertised(session, message.number)
            self.announcing.renew(session, "advertise", message.number, still)

        state.draft.rejected.append(rejected)
