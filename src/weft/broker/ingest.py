"""Ingest: from publishers into the log.

Law: an event is stored once, in the order of its publisher. An event that is refused ends its epoch, so that no later
event of the publisher is stored before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from weft.broker.after_commit import ConfirmationDue
from weft.broker.delivery import Delivery
from weft.broker.effects import ConnectionId, Now
from weft.broker.journal import PublisherMark
from weft.broker.limits import RefusalError, refusal_code
from weft.broker.links.events import EventForwarding, with_links
from weft.broker.parts import BrokerParts
from weft.broker.recent import EventBatch
from weft.broker.sessions import Connection, Session, session_of
from weft.errors import AccessError, EventError
from weft.log.base import NEVER, Offset
from weft.model.door import PlainEvents
from weft.protocol.messages import OFFSETS, REPORTS, NewEpoch, Publish, Published, PublishedAt, PublishPlaced, Refused
from weft.routing.table import ClientId


class Ingest:
    """Events of clients. `advertised` if the table has advertisements: then only what is advertised is accepted."""

    def __init__(self, parts: BrokerParts, delivery: Delivery, forwarding: EventForwarding, advertised: bool) -> None:
        self._journal, self._sessions, self._matcher = parts.journal, parts.sessions, parts.matcher
        self._access, self._decoder, self._out, self._limits = parts.access, parts.decoder, parts.out, parts.limits
        self._counts, self._places = parts.counts, parts.places
        self._delivery, self._forwarding, self.is_advertised = delivery, forwarding, advertised

    def publish(  # noqa: PLR0915 - every event passes here: calls would be slower
        self, connection: Connection, messages: Sequence[Publish], now: Now
    ) -> None:
        """Events of one publisher, in order, all with places or none. Those with a sequence are confirmed when they are
        stored.
        """
        session = connection.session
        assert session is not None
        journal, write, decoder = self._journal, self._journal.write, self._decoder
        mark = write.marks.get(session) or PublisherMark(connection.id, session.pub_epoch, session.pub_received)
        at = journal.at
        admit = decoder.admit if connection.version >= REPORTS else decoder.admit_values
        rules, who = self._access.rules, connection.principal
        grant = rules.of(who) if rules.is_personal else rules.grants.get(who, rules.default)
        plain = grant.publishes_all and not self.is_advertised and session.bucket is None
        received, epoch = session.pub_received, session.pub_epoch
        repeated = 0
        attributes, heads, payloads, expiries = write.attributes, write.heads, write.payloads, write.expires
        first = received + 1
        for message in messages:
            sequence = message.sequence
            if sequence and (sequence <= received or session.pub_over):
                repeated += sequence <= received
                continue
            try:
                if sequence > received + 1:
                    raise RefusalError("sequence", f"event {received + 1} is missing before event {sequence}")
                admitted, head, expires = admit(message, at)
                if not plain:
                    self._check(session, connection, admitted, now)
            except (EventError, AccessError, RefusalError) as error:
                self._refuse(session, connection, sequence, error)
                continue
            if decoder.has_schema:
                for name in decoder.absent:
                    session.absent[name] = session.absent.get(name, 0) + 1
            if not sequence:
                write.add_transient(admitted, head, message.payload, None)
                continue
            received = sequence
            attributes.append(admitted)
            heads.append(head)
            payloads.append(message.payload)
            expiries.append(expires)
            if expires != NEVER:
                write.expiring = True
        session.accept(received, len(messages) - repeated, at)
        new = received + 1 - first
        if repeated:
            self._counts["duplicates"] += repeated
        if new:
            write.origins.append((session.id, epoch, first, new))
            write.urgent = True
            if new == len(messages) and type(messages[0]) is PublishPlaced:
                placed = cast("Sequence[PublishPlaced]", messages)
                write.placed += self._places.published(session.id, placed, len(attributes) - new)
            write.marks[session] = mark
            write.stored[session] = epoch, received
        elif repeated:
            self._confirm_repeated(session, connection.id)

    def _check(self, session: Session, connection: Connection, attributes: dict[str, object], now: Now) -> None:
        self._access.of(connection.principal).check_publish(attributes)
        if session.bucket is not None and not session.bucket.take(now.monotonic):
            raise RefusalError("rate", f"more than {self._limits.rate:g} events per second; publish more slowly")
        if self.is_advertised and not self._matcher.table.admitted([attributes], ClientId(str(session.id)))[0]:
            reason = "no advertisement of this session matches the event; advertise it first"
            raise RefusalError("advertisement", reason)

    def _refuse(self, session: Session, connection: Connection, sequence: int, error: Exception) -> None:
        code = refusal_code(error)
        self._counts[f"refused: {code}"] += 1
        if sequence:
            session.pub_over = True
        self._out.send(connection.id, Refused(session.pub_epoch, sequence, code, str(error)))

    def new_epoch(self, connection: Connection, message: NewEpoch) -> None:
        """Begin an epoch. Raises LookupError for one that is not above the last, or comes too early."""
        session = session_of(connection)
        if message.pub_epoch <= session.pub_epoch:
            raise LookupError(f"publisher epoch {message.pub_epoch} is not above {session.pub_epoch}, the last one")
        journal = self._journal
        if session in journal.write.stored or any(session in group.stored for group in journal.groups):
            raise LookupError("a publisher begins an epoch when every event before it is confirmed or refused")
        session.pub_epoch, session.pub_received, session.pub_over = message.pub_epoch, 0, False

    # -- matching -------------------------------------------------------------------------------------

    def match(self, now: Now) -> None:
        """Match the events that wait, with the subscriptions as they are now, and give each its offset."""
        journal = self._journal
        write = journal.write
        if write.attributes:
            matched = self._matcher.match(write.attributes, journal.at)
            first = journal.next
            journal.next = Offset(first + len(write.attributes))
            expires = write.expires if write.expiring else None
            if self._forwarding.neighbours:
                origins = write.new_origins()
                routes, places = self._forwarding.route(write.attributes, write.foreign, write.placed, origins)
                stored = journal.at, write.heads, write.payloads, expires
                batch = EventBatch(first, *stored, matched, origins, routes, places)
                write.add_batch(batch, *with_links(matched, routes))
            else:
                batch = EventBatch(first, journal.at, write.heads, write.payloads, expires, matched)
                write.add_batch(batch, matched.starts, matched.consumers)
        if write.transient:
            events, write.transient = write.transient, []
            if self._forwarding.neighbours:
                self._forwarding.send_transient(events)
            plain = PlainEvents(event.attributes for event in events)
            matched = self._matcher.match(plain, journal.at)
            heads, payloads = [event.head for event in events], [event.payload for event in events]
            self._delivery.transient(EventBatch(journal.next, journal.at, heads, payloads, None, matched), now)

    # -- confirmations --------------------------------------------------------------------------------

    def _confirm_repeated(self, session: Session, connection: ConnectionId) -> None:
        """Repeated events are confirmed when the groups that have them are stored, whatever becomes of others."""
        journal = self._journal
        epoch, upto = session.pub_epoch, session.pub_received
        if session in journal.write.stored:
            return
        for group in reversed(journal.groups):
            if session in group.stored:
                group.waiting.append(ConfirmationDue(session, connection, epoch, upto))
                return
        self.confirm(session, connection, epoch, upto)

    def confirm(
        self, session: Session, connection: ConnectionId, epoch: int, upto: int, runs: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Tell a publisher what is stored, and where if that is known, if its connection is still there."""
        there = self._sessions.connections.get(connection)
        if session.connection == connection and there is not None:
            absent, session.absent = session.absent, {}
            if runs and there.version >= OFFSETS:
                self._out.send(connection, PublishedAt(epoch, upto, absent, tuple(runs)))
            else:
                self._out.send(connection, Published(epoch, upto, absent))

    def undo(self, session: Session, mark: PublisherMark, reason: str) -> None:
        """The publisher's events from this mark on were not stored.

        A client that has come back since learns that from its Welcome, and goes on in the same epoch.
        """
        self._counts["refused: full"] += 1
        if session.pub_epoch != mark.epoch:
            return
        session.pub_received = mark.received_before
        if session.connection == mark.connection and mark.connection in self._sessions.connections:
            session.pub_over = True
            refused = Refused(session.pub_epoch, mark.received_before + 1, "full", reason)
            self._out.send(mark.connection, refused)
