"""Commit: from pending writes to the log, and what happens when a group is stored or refused.

Law: groups are stored in the order in which they were made. What waits for a group happens once it is stored.

A group has events, or changes that somebody waits for, never both. If one is refused:

- One without events is undone, and so is every later group, the last one first: nothing has room in such a log.
- One with events is undone, and so is every later group with events: events are stored in the order in which they came,
  and each has its offset. A group without events is kept. It depends on refused events in what it says about places
  only: an offset beyond the last stored event means the next event, and so do a publisher's sequence and a neighbour's
  offset beyond what is stored. These are corrected, in memory and in its rows, and the group is given to the log again.

What queues and neighbours have acknowledged is worth no group of its own: it waits a while for others.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec.structs import replace

from weft.broker import after_commit
from weft.broker.advertisements import ClientAdvertisements
from weft.broker.after_commit import AdvertAdded, AfterCommit, FilterReplaced, SubscriptionAdded
from weft.broker.dead_letters import FailedDeliveries
from weft.broker.delivery import Delivery
from weft.broker.effects import Now, Persist, Ticket
from weft.broker.hello import ClientConnections
from weft.broker.ingest import Ingest
from weft.broker.journal import PendingWrite, PublisherMark
from weft.broker.links.events import EventForwarding
from weft.broker.links.links import Links
from weft.broker.moves.arrivals import corrected_step
from weft.broker.moves.moves import Moves
from weft.broker.moves.states import MoveSide
from weft.broker.parts import BrokerParts
from weft.broker.profiles.home import HomeProfiles
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.questions.operations import Operations
from weft.broker.queue import Queue
from weft.broker.revocation import Revocation
from weft.broker.sessions import Connection, Session, session_of
from weft.broker.subscriptions import ClientSubscriptions
from weft.broker.transient_queue import TransientQueue
from weft.errors import LocalProtocolError
from weft.log.base import NEVER, LinkRow, MoveFloor, MoveRow, Offset, Put, SessionRow, StateChange, SubRow
from weft.protocol.messages import AcksStored, BrokerMessage, Failed
from weft.routing.table import Link

PublisherMarks: TypeAlias = dict[tuple[Session, int], PublisherMark]  # by session and epoch

_FULL = 1_000_000  # microseconds after which acknowledgements are stored again when the log was full


class Commit:
    """Makes groups of pending writes, and applies or undoes what waits for them."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it hands on to
        self,
        parts: BrokerParts,
        ingest: Ingest,
        delivery: Delivery,
        clients: ClientConnections,
        subscriptions: ClientSubscriptions,
        advertisements: ClientAdvertisements,
        failed: FailedDeliveries,
        forwarding: EventForwarding,
        revocation: Revocation,
        links: Links,
        operations: Operations,
        moves: Moves,
        homes: HomeProfiles,
        notices: ProfileNotices,
    ) -> None:
        self._operations, self._homes, self._notices = operations, homes, notices
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._completion, self._out, self._timers = parts.completion, parts.out, parts.timers
        self._backlog, self._limits, self._counts = parts.backlog, parts.limits, parts.counts
        self._ingest, self._delivery, self._forwarding, self._clients = ingest, delivery, forwarding, clients
        self._subscriptions, self._advertisements = subscriptions, advertisements
        self._revocation, self._failed, self._links, self._moves = revocation, failed, links, moves
        self._tickets = 0
        self._watermarks_at = 0  # monotonic; when acknowledgements that wait are stored; 0: none waits
        self._full_until = 0  # monotonic; until then only what is urgent is stored

    # -- groups ---------------------------------------------------------------------------------------

    def persist(self, now: Now) -> bool:
        """Have the pending write stored. Returns False if there was nothing to store, and what waited has happened."""
        journal = self._journal
        write = journal.write
        if journal.moved or journal.moved_windows:
            self._add_watermarks(write, now)
        groups = journal.groups
        alone = write.waiting and groups and groups[-1].has_events  # it does not wait for somebody's events
        if write.changes or write.batches or write.watermarks or write.arrivals or write.notices or alone:
            rest = write.split() if write.waiting and write.has_events else None
            self._give(write)
            if rest is not None:
                self._give(rest)
            journal.write = PendingWrite()
        elif write.waiting:
            journal.write = PendingWrite()
            if not groups:
                for value in write.waiting:
                    self._apply(value, now)
                return False
            groups[-1].waiting += write.waiting
        return True

    def _give(self, write: PendingWrite) -> None:
        """Give a write to the log, as a group."""
        self._tickets += 1
        write.ticket = Ticket(self._tickets)
        self._out.persists.append(Persist(write.ticket, write.group(self._journal.at), write.urgent))
        self._journal.groups.append(write)

    def committed(self, ticket: Ticket, now: Now) -> None:
        """A group is durable: apply what waited for it, confirm its events, deliver and forward them.

        Raises LocalProtocolError if the ticket is not that of the next group.
        """
        groups = self._journal.groups
        if not groups or groups[0].ticket != ticket:
            raise LocalProtocolError(f"ticket {ticket} is not the next one; groups are committed in order, each once")
        group = groups.popleft()
        for queue, below in group.watermarks:
            queue.stored_below = max(queue.stored_below, below)
        for window, acks in group.acks:
            window.acks_stored = acks
            if window.reports and 0 < window.acks_asked <= acks:
                window.acks_asked = 0
                self._out.send(window.connection, AcksStored(window.queue_number, acks))
        for value in group.waiting:
            self._apply(value, now)
        for arrival in group.arrivals:
            self._links.events_stored(arrival)
        runs = group.runs() if group.stored else {}
        for session, (epoch, upto) in group.stored.items():
            self._ingest.confirm(session, group.marks[session].connection, epoch, upto, runs.get(session.id, ()))
        for batch in group.batches:
            self._delivery.stored(batch, now)
            if self._forwarding.neighbours:
                self._forwarding.stored(batch)
        for copies in group.copies:
            self._moves.arrivals.copied(copies, now)

    def take_from(self, ticket: Ticket) -> list[PendingWrite]:
        """Take out this group and every later one. Raises LocalProtocolError if there is none."""
        groups = self._journal.groups
        if not any(group.ticket == ticket for group in groups):
            raise LocalProtocolError(f"ticket {ticket} is not on its way")
        taken: list[PendingWrite] = []
        while groups and groups[-1].ticket >= ticket:
            taken.append(groups.pop())
        return taken[::-1]

    def rejected(self, groups: list[PendingWrite], reason: str, now: Now) -> None:
        """The log is full: undo the first of these groups, and the others as the law says."""
        journal = self._journal
        self._counts["rejected groups"] += 1
        self._full_until = now.monotonic + _FULL
        marks: PublisherMarks = {}
        kept = [group for group in groups if not group.has_events] if groups[0].has_events else []
        for group in reversed([group for group in groups if group.has_events] if kept else groups):
            for session, mark in group.marks.items():  # the last connection of each publisher, and its first event
                later = marks.get((session, mark.epoch), mark)
                marks[session, mark.epoch] = mark._replace(connection=later.connection)
            for value in reversed(group.waiting):
                self._undo(value, reason, now)
            for copies in group.copies:
                self._moves.arrivals.undo_copies(copies, now)
            for notices in reversed(group.notices):
                self._notices.undo(notices, now)
            for arrival in group.arrivals:
                self._links.undo_events(arrival, reason, now)
            for queue, _ in group.watermarks:
                if not isinstance(queue, Queue):
                    journal.moved_windows[queue] = None
                elif queue in self._queues.all:
                    journal.moved[queue] = None
        for (session, _), mark in marks.items():
            self._ingest.undo(session, mark, reason)
        following = self._take_back_offsets()
        for group in kept:
            self._counts["groups kept"] += 1
            group.changes = [self._corrected_row(change, following, marks) for change in group.changes]
            group.waiting = [self._corrected(value, following, marks) for value in group.waiting]
            self._give(group)
        self._links.all_due()  # what waited for events behind which it must come need not wait for them any more
        self._watermarks_at = 0

    def _take_back_offsets(self) -> Offset:
        """The next event gets the first offset that was not stored, which nobody has seen; returns it.

        If offsets were skipped, a broker that restarts would not know, and give them to events that queues do not
        expect.
        """
        batches = [batch for group in self._journal.groups for batch in group.batches]
        following = self._journal.next = batches[-1].end if batches else self._journal.end
        for session in self._sessions.by_id.values():
            for queue in session.queues.values():
                queue.changed = Offset(min(queue.changed, following))
                if isinstance(queue, TransientQueue):
                    queue.members = {number: Offset(min(start, following)) for number, start in queue.members.items()}
        return following

    # -- groups that are kept behind events that were refused ------------------------------------------

    def _corrected_row(self, change: StateChange, following: Offset, marks: PublisherMarks) -> StateChange:
        """A change without places beyond what is stored."""
        row = change.row if isinstance(change, Put) else None
        match row:
            case SessionRow():
                session = self._sessions.by_id.get(row.id)
                mark = None if session is None else marks.get((session, row.pub_epoch))
                return change if mark is None else Put(replace(row, pub_seq=min(row.pub_seq, mark.received_before)))
            case SubRow():
                below = row.floor if row.floor == NEVER else Offset(min(row.floor, following))
                return Put(replace(row, since=Offset(min(row.since, following)), floor=below))
            case MoveRow(side=MoveSide.ARRIVAL):
                return Put(replace(row, cut=min(row.cut, following)))
            case LinkRow():
                got = min(row.got, self._links.got(Link(row.peer), row.peer_log))
                return Put(replace(row, got=got, floor=Offset(min(row.floor, following))))
            case _:
                return change

    @staticmethod
    def _corrected(value: AfterCommit, following: Offset, marks: PublisherMarks) -> AfterCommit:
        """What waits for a group, without places beyond what is stored; so is what it has made in memory."""
        match value:
            case after_commit.Welcomed(_, session, welcome):
                mark = marks.get((session, welcome.pub_epoch))
                if mark is not None:
                    welcome = replace(welcome, pub_seq=min(welcome.pub_seq, mark.received_before))
                return value._replace(welcome=welcome)
            case after_commit.SubscriptionAdded() | after_commit.FilterReplaced():
                value.sub.begin_by(following)
            case after_commit.SharedQueueCreated(_, member):
                member.begin_by(following)
            case after_commit.MoveStored():
                return corrected_step(value, following)
            case after_commit.NeighbourAttached(neighbour):
                neighbour.window.begin_by(following)
        accepted = getattr(value, "accepted", None)
        if accepted is not None and accepted.offset > following:
            value = value._replace(accepted=replace(accepted, offset=following))  # type: ignore[call-arg]
        return value

    # -- what waits -----------------------------------------------------------------------------------

    def _apply(self, value: AfterCommit, now: Now) -> None:
        """The group of a value is stored."""
        match value:
            case after_commit.RowsPending():
                self._links.rows_stored(value)
            case after_commit.MoveStored():
                self._moves.stored(value, now)
            case after_commit.ConfirmationDue(session, connection, epoch, upto):
                self._ingest.confirm(session, connection, epoch, upto)
            case after_commit.Welcomed():
                self._clients.welcomed(value.connection, value.welcome)
            case after_commit.SessionForgotten(session):
                self._clients.forgotten(session, now)
            case after_commit.SubscriptionAdded():
                self._answer(value.connection, value.accepted)
                self._query(value)
                self._completion.accepted(value.announcement)
                self._consume(value)
            case after_commit.ProfileStored() | after_commit.ProfileRemoved():
                self._homes.stored(value)
            case after_commit.FilterReplaced() | after_commit.AdvertAdded():
                self._answer(value.connection, value.accepted)
                self._query(value)
                self._completion.accepted(value.announcement)
            case after_commit.SubscriptionEnded():
                self._answer(value.connection, value.accepted)
                self._notices.ended(value.sub)
                self._subscriptions.leave_queue(session_of(value.connection), value.sub)
            case after_commit.SharedQueueRetired():
                self._answer(value.connection, value.accepted)
                self._subscriptions.remove_shared(value.queue)
            case after_commit.AdvertRemoved():
                self._answer(value.connection, value.accepted)
            case after_commit.Revocations():
                self._revocation.tell(value.endings)
            case after_commit.OperationStored():
                self._operations.stored(value, now)
            case after_commit.DeadLettersAdded(queue, offsets):
                self._failed.added(queue, offsets, now)
            case after_commit.DeadLettersRemoved(queue, gone):
                queue.forgotten -= gone
            case after_commit.DeadLettersDropped(dropped_by, message):
                if dropped_by in self._sessions.connections:
                    self._out.send(dropped_by, message)
            case after_commit.NeighbourDetached(neighbour):
                self._links.gone(neighbour, now)
            case after_commit.SharedQueueCreated() | after_commit.NeighbourAttached() | after_commit.PeerLogChanged():
                pass
            case _:
                assert_never(value)

    def _undo(self, value: AfterCommit, reason: str, now: Now) -> None:
        """The group of a value was not stored."""
        match value:
            case after_commit.RowsPending():
                self._links.undo_rows(value, now)
            case after_commit.MoveStored():
                self._moves.undo(value, reason, now)
            case after_commit.Welcomed():
                self._clients.undo_welcome(value, reason, now)
            case after_commit.SessionForgotten(session):
                self._clients.undo_forget(session, reason, now)
            case after_commit.SubscriptionAdded(connection, sub):
                self._subscriptions.undo_subscribe(connection, sub, reason)
            case after_commit.FilterReplaced(connection, sub, before):
                self._subscriptions.undo_replace(connection, sub, before, reason)
            case after_commit.SubscriptionEnded(connection, sub, last):
                self._subscriptions.undo_unsubscribe(connection, sub, last, reason)
            case after_commit.SharedQueueCreated(queue, member):
                self._subscriptions.undo_create(queue, member)
            case after_commit.SharedQueueRetired():
                self._subscriptions.undo_retire(value, reason)
            case after_commit.AdvertAdded():
                self._advertisements.undo_advertise(value, reason)
            case after_commit.AdvertRemoved():
                self._advertisements.undo_unadvertise(value, reason)
            case after_commit.ProfileStored():
                self._homes.undo_publish(value, reason)
            case after_commit.ProfileRemoved():
                self._homes.undo_withdraw(value, reason)
            case after_commit.Revocations():
                self._revocation.undo(value, now)
            case after_commit.OperationStored():
                self._operations.undo(value, reason, now)
            case after_commit.DeadLettersAdded(queue, offsets):
                self._failed.undo_add(queue, offsets, now)
            case after_commit.DeadLettersRemoved(queue, gone):
                self._failed.remove(queue, gone)
            case after_commit.NeighbourAttached(neighbour):
                self._links.gone(neighbour, now)
            case after_commit.NeighbourDetached(neighbour):
                self._links.undo_detach(neighbour)
            case after_commit.PeerLogChanged():
                self._links.undo_new_log(value, reason, now)
            case after_commit.DeadLettersDropped(dropped_by, message):
                if dropped_by in self._sessions.connections:
                    self._out.send(dropped_by, Failed("drop dead", message.request, "full", reason))
            case after_commit.ConfirmationDue():
                pass
            case _:
                assert_never(value)

    def _query(self, value: SubscriptionAdded | FilterReplaced | AdvertAdded) -> None:
        """A subscription is stored: it is shown profiles from now on, if it wants to."""
        if not isinstance(value, AdvertAdded) and value.sub.profiles:
            self._notices.stored(session_of(value.connection), value.sub, value.announcement)

    def _answer(self, connection: Connection, message: BrokerMessage) -> None:
        """Answer the connection that asked, if it still holds its session."""
        if self._sessions.holds_session(connection):
            self._out.send(connection.id, message)

    def _consume(self, subscribed: SubscriptionAdded) -> None:
        """A queue is stored: its connection consumes it, unless either has gone meanwhile."""
        connection, queue, number = subscribed.connection, subscribed.sub.queue, subscribed.queue
        assert isinstance(queue, Queue)
        queue.stored = True
        if self._sessions.holds_session(connection) and session_of(connection).queues.get(number) is queue:
            self._queues.attach(connection, queue, number, subscribed.sub.number)

    # -- what is acknowledged -------------------------------------------------------------------------

    def store_watermarks(self) -> None:
        """Everything that was acknowledged since it was last stored is stored with the next write."""
        journal = self._journal
        for queue in self._queues.all:
            queue.pass_over(journal.end)
            if not queue.windows and queue.cursor < queue.replay_until:
                self._queues.serve_later[queue] = None
            if queue.behind > queue.lag:
                self._delivery.check_lag(queue)
            if queue.stored and queue.acked_below(journal.end) > queue.stored_below:
                journal.moved[queue] = None
        for neighbour in self._links.neighbours.values():
            if neighbour.window.acked_below > neighbour.window.stored_below:
                journal.moved_windows[neighbour.window] = None
        self._backlog.begin(self._queues.all, journal.end)
        self._watermarks_at = -1

    def _add_watermarks(self, write: PendingWrite, now: Now) -> None:
        """Store acknowledgements when the first of them has waited for a while."""
        journal, delay = self._journal, self._limits.ack_delay
        if now.monotonic < self._watermarks_at:
            return
        if self._watermarks_at == 0 and (delay or now.monotonic < self._full_until):
            self._watermarks_at = max(now.monotonic + delay, self._full_until)
            self._timers.add(self._watermarks_at, None)
            return
        self._watermarks_at = 0
        for queue in journal.moved:
            write.move(queue, journal.end)
        for window in journal.moved_windows:
            write.changes.append(MoveFloor(window.link_id, window.acked_below))
            write.watermarks.append((window, window.acked_below))
        journal.moved, journal.moved_windows = {}, {}
