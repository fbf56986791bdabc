"""From publishers into the log. Laws: an event is stored once, in the order of its publisher; an event that is refused
ends its epoch, so that no later event of the publisher is stored before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.broker.delivery import Delivery
from weft.broker.drafts import PublisherMark
from weft.broker.effects import ConnectionId, Now
from weft.broker.link_sending import LinkSending, with_seats
from weft.broker.messages import NewEpoch, Publish, Published, Refused
from weft.broker.sessions import Connection, Session
from weft.broker.state import BrokerState
from weft.broker.tail import EventBatch
from weft.errors import AccessError, EventError
from weft.log.base import NEVER, Offset
from weft.model.door import PlainEvents
from weft.routing.table import ClientId


class Publishing:
    """Takes events in. `advertised` if the table has advertisements: then only what is advertised may be published."""

    def __init__(self, state: BrokerState, delivery: Delivery, sending: LinkSending, advertised: bool) -> None:
        self._state = state
        self._delivery = delivery
        self._sending = sending
        self._advertised = advertised

    def publish(self, connection: Connection, messages: Sequence[Publish], now: Now) -> None:
        """Events of one publisher, in order. Those with a sequence are confirmed when they are stored."""
        session = connection.session
        assert session is not None
        state, draft = self._state, self._state.draft
        mark = draft.marks.get(session) or PublisherMark(session, connection.id)
        admit, at = state.door.admit, state.at
        grant = state.rules.of(connection.principal)
        plain = grant.publishes_all and not self._advertised and session.bucket is None
        received, epoch = session.pub_received, session.pub_epoch
        repeated = 0
        attributes, heads, payloads, expiries = draft.attributes, draft.heads, draft.payloads, draft.expires
        first = received + 1
        for message in messages:
            sequence = message.sequence
            if sequence and (sequence <= received or session.pub_over):
                repeated += sequence <= received
                continue
            try:
                if sequence > received + 1:
                    raise _RefusalError("sequence", f"event {received + 1} is missing before event {sequence}")
                admitted, head, expires = admit(message, at)
                if not plain:
                    self._check(session, connection, admitted, now)
            except (EventError, AccessError, _RefusalError) as error:
                self._refuse(session, connection, sequence, error)
                continue
            if state.schema is not None:
                for name in state.door.absent:
                    session.absent[name] = session.absent.get(name, 0) + 1
            if not sequence:
                draft.loose.append((admitted, head, message.payload, None))
                continue
            received = sequence
            attributes.append(admitted)
            heads.append(head)
            payloads.append(message.payload)
            expiries.append(expires)
            if expires != NEVER:
                draft.expiring = True
        session.pub_received = received
        new = received + 1 - first
        if repeated:
            state.counts["duplicates"] += repeated
        if new:
            draft.origins.append((session.id, epoch, first, new))
            draft.urgent = True
            draft.marks[session] = mark
            draft.stored[session] = epoch, received
        elif repeated:
            self._confirm_later(session, connection.id)

    def _check(self, session: Session, connection: Connection, attributes: dict[str, object], now: Now) -> None:
        self._state.rules.of(connection.principal).check_publish(attributes)
        if session.bucket is not None and not session.bucket.take(now.monotonic):
            raise _RefusalError("rate", f"more than {self._state.limits.rate:g} events per second; publish more slowly")
        if self._advertised and not self._state.seats.table.admitted([attributes], ClientId(str(session.id)))[0]:
            raise _RefusalError(
                "advertisement", "no advertisement of this session matches the event; advertise it first"
            )

    def _refuse(self, session: Session, connection: Connection, sequence: int, error: Exception) -> None:
        if isinstance(error, _RefusalError):
            code = error.code
        else:
            code = "event" if isinstance(error, EventError) else "access"
        self._state.counts[f"refused: {code}"] += 1
        if sequence:
            session.pub_over = True
        self._state.out.send(connection.id, Refused(session.pub_epoch, sequence, code, str(error)))

    def new_epoch(self, connection: Connection, message: NewEpoch) -> None:
        """The publisher begins anew. Raises LookupError for an epoch that is not above the last, or is too early."""
        session = connection.session
        assert session is not None
        if message.pub_epoch <= session.pub_epoch:
            raise LookupError(f"publisher epoch {message.pub_epoch} is not above {session.pub_epoch}, the last one")
        state = self._state
        if session in state.draft.stored or any(session in group.stored for group in state.pending):
            raise LookupError("a publisher begins an epoch when every event before it is confirmed or refused")
        session.pub_epoch, session.pub_received, session.pub_over = message.pub_epoch, 0, False

    def match(self, now: Now) -> None:
        """Match the events that wait, with the subscriptions as they are now."""
        state, draft = self._state, self._state.draft
        if draft.attributes:
            matched = state.seats.match(draft.attributes)
            first = state.next
            state.next = Offset(first + len(draft.attributes))
            expires = draft.expires if draft.expiring else None
            if not state.neighbours:
                batch = EventBatch(first, state.at, draft.heads, draft.payloads, expires, matched)
                draft.add_batch(batch, matched.starts, matched.seats)
            else:
                routes, origins = self._sending.route(draft.attributes, draft.foreign), draft.new_origins()
                batch = EventBatch(first, state.at, draft.heads, draft.payloads, expires, matched, origins, routes)
                draft.add_batch(batch, *with_seats(matched, routes))
        if draft.loose:
            loose, draft.loose = draft.loose, []
            if state.neighbours:
                self._sending.loose(loose)
            matched = state.seats.match(PlainEvents(attributes for attributes, _, _, _ in loose))
            heads, payloads = [head for _, head, _, _ in loose], [payload for _, _, payload, _ in loose]
            self._delivery.loose(EventBatch(state.next, state.at, heads, payloads, None, matched), now)

    # -- confirmations --------------------------------------------------------------------------------

    def _confirm_later(self, session: Session, connection: ConnectionId) -> None:
        """Repeated events are confirmed when the groups that have them are stored, whatever becomes of others."""
        state = self._state
        epoch, upto = session.pub_epoch, session.pub_received
        if session in state.draft.stored:
            return
        for group in reversed(state.pending):
            if session in group.stored:
                group.committed.append(lambda _: self.confirm(session, connection, epoch, upto))
                return
        self.confirm(session, connection, epoch, upto)

    def confirm(self, session: Session, connection: ConnectionId, epoch: int, upto: int) -> None:
        """Tell a publisher what is stored, if its connection is still there."""
        if session.connection == connection and connection in self._state.connections:
            absent, session.absent = session.absent, {}
            self._state.out.send(connection, Published(epoch, upto, absent))

    def undo(self, mark: PublisherMark, reason: str) -> None:
        """The publisher's events from this mark on were not stored."""
        session = mark.session
        session.pub_received, session.pub_over = mark.received_before, True
        self._state.counts["refused: full"] += 1
        if session.connection == mark.connection and mark.connection in self._state.connections:
            refused = Refused(session.pub_epoch, mark.received_before + 1, "full", reason)
            self._state.out.send(mark.connection, refused)


class _RefusalError(Exception):
    """An event that may not be stored, and a code for it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
