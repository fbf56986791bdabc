"""Subscriptions of clients, to queues of their own and to shared queues.

A change holds from an exact offset on, and is stored with the events around it. Until it is stored, what was matched
before is delivered as before.

A shared queue, which several connections consume together, is durable and belongs to its owner, not to a session. Each
event goes to one consumer at a time. The queue has one member, with the filter of all consumers, and ends when the last
one unsubscribes. A consumer is one for as long as its connection lasts: after a reconnection it subscribes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.algebra.relate import as_form
from weft.broker.after_commit import (
    FilterReplaced,
    SharedQueueCreated,
    SharedQueueRetired,
    SubscriptionAdded,
    SubscriptionEnded,
)
from weft.broker.effects import ConnectionId, Now
from weft.broker.ingest import Ingest
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.queue import SHARED, Queue, member_row, queue_row
from weft.broker.sessions import ClientQueue, ClientSubscription, Connection, Session, session_of
from weft.broker.transient_queue import TransientQueue
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.lexer import is_longer
from weft.log.base import Offset, Put, Remove, StateChange, SubRow
from weft.model.limits import LIMITS
from weft.model.rate import split_rate, with_rate
from weft.protocol.messages import Accepted, Failed, Replace, SubNumber, Subscribe, SubscribeProfiles, Unsubscribe

if TYPE_CHECKING:
    from weft.broker.profiles.home import HomeProfiles
    from weft.broker.profiles.notices import ProfileNotices


class ClientSubscriptions:
    """Adds, changes and ends subscriptions."""

    def __init__(self, parts: BrokerParts, ingest: Ingest, links: Links) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._reader, self._matcher, self._completion = parts.reader, parts.matcher, parts.completion
        self._access, self._out, self._limits, self._parse = parts.access, parts.out, parts.limits, parts.parse
        self.parse = parts.parse
        self._ingest, self._links, self._backlog = ingest, links, parts.backlog
        self.notices: ProfileNotices  # of subscriptions that are shown profiles
        self.homes: HomeProfiles

    # -- subscribe ------------------------------------------------------------------------------------

    def subscribe(self, connection: Connection, message: Subscribe, now: Now, profiles: str = "") -> None:
        """Add a subscription, and a queue if there is none of its number or name. Raises what `REFUSALS` lists.

        `profiles` says how it meets profiles, if it is shown any.
        """
        session, journal = session_of(connection), self._journal
        wanted = self.check_new(connection, message)
        if profiles:
            self._check_profiles(session, message)
        if message.share:
            self._subscribe_shared(connection, message, wanted, now)
            return
        self._ingest.match(now)
        known = session.queues.get(message.queue)
        if known is not None:
            _check_agrees(known, message)
        elif session.durable and message.durable is not False and (session.owner, session.name) in self._queues.shared:
            reason = f"the name {session.name!r} is shared by several consumers; pass shared=True, or use another name"
            raise RefusalError("share", reason)
        queue = self._new_queue(connection, message) if known is None else known
        consumer = journal.new_consumer() if isinstance(queue, Queue) else None
        slot, tells = self._matcher.add(wanted, consumer, queue, message.number)
        self._limit(slot, message.filter)
        self._links.tell(tells)
        start = journal.next
        sub = ClientSubscription(message.number, message.filter, slot, consumer, queue, start, profiles=profiles)
        session.subs[sub.number] = sub
        session.queues[message.queue] = queue
        if isinstance(queue, TransientQueue):
            queue.members[sub.number] = sub.start
            self.answer_now(connection, Accepted("subscribe", sub.number, sub.start))
            return
        assert consumer is not None
        queue.members[consumer] = sub.number
        if known is None:
            self._begin(queue, sub, wanted, message)
        self._store_new(connection, sub, message, [Put(member_row(session.id, sub))])

    def subscribe_to_profiles(self, connection: Connection, message: SubscribeProfiles, now: Now) -> None:
        """Add a subscription that is also shown profiles. Raises what `REFUSALS` lists."""
        self.subscribe(connection, message.subscribe, now, message.profiles)

    def _check_profiles(self, session: Session, message: Subscribe) -> None:
        """Raise RefusalError if a subscription cannot be shown profiles."""
        self.homes.check_supported()
        if message.share:
            raise RefusalError("share", "a shared queue cannot be shown profiles; use a queue of your own")
        known = session.queues.get(message.queue)
        durable = message.durable is not False if known is None else isinstance(known, Queue)
        if not session.durable or not durable:
            raise RefusalError("durable", "profiles need a durable queue; give the session a name")

    def _limit(self, slot: SubId, text: str) -> None:
        """Give a subscription the rate of its text, or none."""
        self._matcher.limit(slot, split_rate(text)[1], self._journal.at)

    def _store_new(
        self, connection: Connection, sub: ClientSubscription, message: Subscribe, changes: Sequence[StateChange] = ()
    ) -> None:
        announcement = self._completion.announce(session_of(connection), "subscribe", sub.number)
        accepted = Accepted("subscribe", sub.number, sub.start)
        waiting = SubscriptionAdded(connection, sub, message.queue, accepted, announcement)
        self._journal.write.require(changes, waiting)

    def undo_subscribe(self, connection: Connection, sub: ClientSubscription, reason: str) -> None:
        """A subscription, or the queue that was made for it, could not be stored."""
        session = session_of(connection)
        if session.subs.get(sub.number) is sub:
            self.take_out(session, sub)
        elif not sub.queue.share:
            self.leave_queue(session, sub)
        self.fail(connection, "subscribe", sub.number, reason)

    def check_new(self, connection: Connection, message: Subscribe) -> Filter:
        """The filter of a new subscription. Raises what `REFUSALS` lists."""
        session, limit = session_of(connection), self._limits.subscriptions
        if message.since is not None or message.since_time is not None:
            self._access.of(connection.principal).check("history")
        if message.number in session.subs:
            raise RefusalError("exists", f"subscription {message.number} already exists; replace or unsubscribe it")
        if message.number >= 1 << 32:
            raise RefusalError("limit", "the number of a subscription has at most 32 bits")
        if len(session.subs) >= limit:
            raise RefusalError("limit", f"a session has at most {limit:,} subscriptions")
        return self.read_filter(connection, message.filter)

    def read_filter(self, connection: Connection, text: str) -> Filter:
        """A filter that the client may subscribe to. Raises RefusalError, FilterError or AccessError."""
        return self.check_filter(connection.principal, text)

    def check_filter(self, principal: str, text: str) -> Filter:
        """A filter that a principal may subscribe to. Raises RefusalError, FilterError or AccessError."""
        limit = self._limits.filter
        if limit < LIMITS.text and is_longer(text, limit):  # above that, `parse` decides what is too long
            raise RefusalError("filter", f"a filter has at most {limit:,} bytes")
        wanted = self._parse(text)
        as_form(wanted, self._matcher.table.schema)  # as table and index need it: rules then find it normalized
        self._access.of(principal).check_subscribe(wanted)
        return wanted

    def _new_queue(self, connection: Connection, message: Subscribe) -> ClientQueue:
        session, limits = session_of(connection), self._limits
        if len(session.queues) >= limits.queues:
            raise RefusalError("limit", f"a session has at most {limits.queues:,} queues")
        durable = session.durable if message.durable is None else message.durable
        if not durable:
            if message.since is not None or message.since_time is not None:
                raise RefusalError("since", "older events need a durable queue; give the session a name")
            most = min(message.lag or limits.held, limits.held)
            return TransientQueue(message.queue, connection, most, limits.held_bytes, message.disconnect)
        if not session.durable:
            raise RefusalError("durable", "a durable queue needs a session with a name")
        return self._durable_queue(session, message)

    def _durable_queue(self, session: Session, message: Subscribe) -> Queue:
        limit, shared = self._limits.lag, bool(message.share)
        return Queue(
            self._journal.new_consumer(),
            message.queue,
            cursor=self._journal.next,
            ordered=message.ordered,
            session=None if shared else session.id,
            share=message.share,
            owner=session.owner if shared else "",
            lag=min(message.lag or limit, limit),
            disconnect=message.disconnect,
        )

    def _begin(self, queue: Queue, sub: ClientSubscription, wanted: Filter, message: Subscribe) -> None:
        """A new durable queue begins now, or with older events."""
        journal = self._journal
        self._queues.all[queue] = None
        since = message.since if message.since_time is None else journal.log.find(message.since_time)
        replay = None
        if since is not None and since < sub.start:
            first = Offset(max(since, journal.first))
            if 0 < since < first:
                queue.gap = Offset(since), first
            if first < sub.start:
                assert sub.consumer_id is not None
                queue.cursor, queue.replay_until, replay = first, sub.start, sub.consumer_id
                self._reader.replays[queue] = sub.consumer_id, wanted
        queue.stored_below = queue.cursor
        journal.write.changes.append(Put(queue_row(queue, journal.end, replay)))

    # -- replace --------------------------------------------------------------------------------------

    def replace(self, connection: Connection, message: Replace, now: Now) -> None:
        """Give a subscription another filter, from the next event on. Raises what `REFUSALS` lists."""
        session, journal = session_of(connection), self._journal
        sub = _known(session, message)
        before = self._refilter(sub, self.read_filter(connection, message.filter), message.filter, now)
        accepted = Accepted("replace", sub.number, min(sub.start, journal.next))  # offsets may have been taken back
        if sub.consumer_id is None:
            self.answer_now(connection, accepted)
            return
        announcement = self._completion.announce(session, "replace", sub.number)
        changes = [] if before is None else [Put(member_row(session.id, sub))]
        journal.write.require(changes, FilterReplaced(connection, sub, before, accepted, announcement))

    def change(self, session: Session, number: SubNumber, text: str, now: Now) -> None:
        """Give a client's subscription another filter, which its rules allow, for somebody else; its rate stays.

        Raises what `REFUSALS` lists.
        """
        sub = _known(session, Replace(number, text))
        if split_rate(text)[1] is None:
            text = with_rate(text, split_rate(sub.text)[1])  # it keeps its rate
        absent = Connection(ConnectionId(""), now.monotonic)  # nobody is answered
        absent.session, absent.principal = session, session.owner
        before = self._refilter(sub, self.read_filter(absent, text), text, now)
        announcement = self._completion.announce(session, "replace", number)
        if sub.consumer_id is None:
            self._completion.accepted(announcement)
            return
        accepted = Accepted("replace", number, min(sub.start, self._journal.next))
        changes = [] if before is None else [Put(member_row(session.id, sub))]
        self._journal.write.require(changes, FilterReplaced(absent, sub, before, accepted, announcement))

    def _refilter(self, sub: ClientSubscription, wanted: Filter, text: str, now: Now) -> tuple[str, Offset] | None:
        """Another filter for a subscription. Returns the one before and where it began to hold; None if it is the same:
        a client that comes back says the same again. Raises RefusalError, FilterError or LocalProtocolError.
        """
        changed = wanted != self._parse(sub.text)
        rate = split_rate(text)[1]
        if not changed and rate != split_rate(sub.text)[1]:
            if sub.queue.share:
                raise RefusalError("share", "the rate of a shared queue cannot be changed; use another name")
            self._ingest.match(now)
            self._limit(sub.slot, text)
            known, sub.text = (sub.text, sub.start), text
            return known
        if changed and isinstance(sub.queue, Queue):
            self._check_replaceable(sub.queue, sub)
        self._ingest.match(now)
        if not changed:
            return None
        self._links.tell(self._matcher.replace(sub.slot, wanted))
        self._limit(sub.slot, text)
        before, sub.text, sub.start = (sub.text, sub.start), text, self._journal.next
        sub.version += 1
        return before

    def _check_replaceable(self, queue: Queue, sub: ClientSubscription) -> None:
        """Raise RefusalError if the filter of a durable subscription cannot be replaced now."""
        if queue.share:
            raise RefusalError("share", "the filter of a shared queue cannot be replaced; use another name")
        if self._reader.replays.get(queue, (None, None))[0] != sub.consumer_id:
            return
        journal = self._journal
        if queue.acked_below(journal.end) < queue.replay_until:
            raise RefusalError("replaying", "some older events are not acknowledged; replace the filter after that")
        journal.write.move(queue, journal.end)  # after a restart the new filter must not find older events

    def undo_replace(
        self, connection: Connection, sub: ClientSubscription, before: tuple[str, Offset] | None, reason: str
    ) -> None:
        """Another filter could not be stored."""
        session = session_of(connection)
        if before is not None:
            if session.subs.get(sub.number) is not sub:
                return  # revoked in the meantime
            self._links.tell(self._matcher.replace(sub.slot, self._parse(before[0])))
            self._limit(sub.slot, before[0])
            sub.text, sub.start = before
            sub.version += 1
            self._access.recheck(session, sub)
        self.fail(connection, "replace", sub.number, reason)
        if before is not None:
            self._completion.renew(session, "subscribe", sub.number)

    # -- unsubscribe ----------------------------------------------------------------------------------

    def unsubscribe(self, connection: Connection, message: Unsubscribe, now: Now) -> None:
        """End a subscription: it matches nothing from now on, and is gone when that is stored."""
        session = session_of(connection)
        sub = _known(session, message)
        self._ingest.match(now)
        accepted = Accepted("unsubscribe", sub.number, self._journal.next)
        if sub.queue.share:
            self._unsubscribe_shared(connection, sub, accepted)
            return
        del session.subs[sub.number]
        self._links.tell(self._matcher.discard(sub.slot))
        queue = sub.queue
        if isinstance(queue, TransientQueue):
            self.leave_queue(session, sub)
            self._out.send(connection.id, accepted)
            return
        assert sub.consumer_id is not None
        queue.leaving.add(sub.consumer_id)
        last = queue.leaving == queue.members.keys()
        changes = [Remove(SubRow, (sub.consumer_id,))]
        if last:
            del session.queues[queue.number]
            changes = self._queues.rows_of(queue) + changes
        self._journal.write.require(changes, SubscriptionEnded(connection, sub, last, accepted))

    def undo_unsubscribe(self, connection: Connection, sub: ClientSubscription, last: bool, reason: str) -> None:
        """The end of a subscription could not be stored."""
        session, queue = session_of(connection), sub.queue
        assert isinstance(queue, Queue)
        assert sub.consumer_id is not None
        sub.slot, tells = self._matcher.add(self._parse(sub.text), sub.consumer_id, queue, sub.number)
        self._limit(sub.slot, sub.text)
        self._links.tell(tells)
        session.subs[sub.number] = sub
        sub.version += 1
        self._access.recheck(session, sub)
        queue.leaving.discard(sub.consumer_id)
        if last:
            session.queues[queue.number] = queue
            here = self._sessions.connection_of(session)
            if here is not None and queue.stored:
                self._queues.attach(here, queue, queue.number, sub.number)
        self.fail(connection, "unsubscribe", sub.number, reason)
        self._completion.renew(session, "subscribe", sub.number)

    def take_out(self, session: Session, sub: ClientSubscription) -> None:
        """Remove a subscription at once."""
        if sub.queue.share:
            self._leave_shared(session, sub)
            return
        del session.subs[sub.number]
        self._links.tell(self._matcher.discard(sub.slot))
        self.notices.ended(sub)
        self.leave_queue(session, sub)

    def leave_queue(self, session: Session, sub: ClientSubscription) -> None:
        """A subscription is no longer a member of its queue; a queue without members goes."""
        queue = sub.queue
        queue.changed = self._journal.next
        if isinstance(queue, TransientQueue):
            queue.members.pop(sub.number, None)
        else:
            assert sub.consumer_id is not None
            queue.members.pop(sub.consumer_id, None)
            queue.leaving.discard(sub.consumer_id)
            if self._reader.replays.get(queue, (None, None))[0] == sub.consumer_id:
                queue.advance(max(queue.cursor, queue.replay_until))
                queue.replay_until = Offset(0)
                del self._reader.replays[queue]
        if queue.members:
            if isinstance(queue, Queue) and not queue.live:
                self._backlog.doubt(queue)
            return
        if session.queues.get(queue.number) is queue:
            del session.queues[queue.number]
        if isinstance(queue, Queue):
            self._queues.drop(queue)

    # -- shared queues --------------------------------------------------------------------------------

    def _subscribe_shared(self, connection: Connection, message: Subscribe, wanted: Filter, now: Now) -> None:
        session, most = session_of(connection), self._limits.name
        if message.queue in session.queues:
            raise RefusalError("queue", f"queue {message.queue} exists; a shared queue needs a number of its own")
        if message.since is not None or message.since_time is not None:
            raise RefusalError("since", "a shared queue begins with new events")
        if message.durable is False or len(message.share) > most:
            raise RefusalError("share", f"a shared queue is durable, and its name has at most {most} characters")
        self._ingest.match(now)
        queue = self._queues.shared.get((session.owner, message.share)) or self._new_shared(session, message, wanted)
        member = self._queues.shared_members[queue]
        if self._parse(member.text) != wanted or split_rate(member.text)[1] != split_rate(message.filter)[1]:
            reason = f"the shared queue {message.share!r} has another filter: {member.text}; use that, or another name"
            raise RefusalError("filter", reason)
        sub = ClientSubscription(message.number, message.filter, member.slot, None, queue, self._journal.next)
        session.subs[message.number] = sub
        session.queues[message.queue] = queue
        self._store_new(connection, sub, message)

    def _new_shared(self, session: Session, message: Subscribe, wanted: Filter) -> Queue:
        journal, named = self._journal, self._sessions.by_name.get(message.share)
        if named is not None and named.owner == session.owner and any(map(_is_own, named.queues.values())):
            reason = f"the name {message.share!r} belongs to a subscription that is not shared; use another name"
            raise RefusalError("share", reason)
        consumer = journal.new_consumer()
        queue = self._durable_queue(session, message)
        slot, tells = self._matcher.add(wanted, consumer, queue, SubNumber(0))
        self._limit(slot, message.filter)
        self._links.tell(tells)
        member = ClientSubscription(SubNumber(0), message.filter, slot, consumer, queue, journal.next)
        queue.members[consumer] = SubNumber(0)
        self._queues.all[queue] = None
        self._queues.shared[session.owner, message.share] = queue
        self._queues.shared_members[queue] = member
        changes = [Put(queue_row(queue, journal.end)), Put(member_row(SHARED, member))]
        journal.write.require(changes, SharedQueueCreated(queue, member))
        return queue

    def undo_create(self, queue: Queue, member: ClientSubscription) -> None:
        """A shared queue could not be stored."""
        self._retire(queue, member)
        self._queues.drop(queue)

    def _unsubscribe_shared(self, connection: Connection, sub: ClientSubscription, accepted: Accepted) -> None:
        """Stop consuming; the last consumer removes the queue."""
        queue = sub.queue
        assert isinstance(queue, Queue)
        self._leave_shared(session_of(connection), sub)
        if any(queue in other.queues.values() for other in self._sessions.by_id.values()):
            self._out.send(connection.id, accepted)
            return
        member = self._queues.shared_members[queue]
        self._retire(queue, member)
        waiting = SharedQueueRetired(connection, sub.number, queue, member, accepted)
        self._journal.write.require(self._rows_of_shared(queue, member), waiting)

    def _rows_of_shared(self, queue: Queue, member: ClientSubscription) -> list[Remove]:
        assert member.consumer_id is not None
        return [*self._queues.rows_of(queue), Remove(SubRow, (member.consumer_id,))]

    def remove_shared(self, queue: Queue) -> None:
        """The end of a shared queue is stored."""
        queue.members.clear()
        self._queues.drop(queue)

    def undo_retire(self, retired: SharedQueueRetired, reason: str) -> None:
        """The end of a shared queue could not be stored."""
        queue, member = retired.queue, retired.member
        assert member.consumer_id is not None
        member.slot, tells = self._matcher.add(self._parse(member.text), member.consumer_id, queue, SubNumber(0))
        self._limit(member.slot, member.text)
        self._links.tell(tells)
        self._queues.shared[queue.owner, queue.share] = queue
        self._queues.shared_members[queue] = member
        self._access.recheck(None, member)
        self.fail(retired.connection, "unsubscribe", retired.number, reason)

    def _leave_shared(self, session: Session, sub: ClientSubscription) -> None:
        """A session no longer consumes a shared queue: what it has not acknowledged goes to others."""
        queue = sub.queue
        assert isinstance(queue, Queue)
        del session.subs[sub.number]
        here = self._sessions.connection_of(session)
        for number in [number for number, each in session.queues.items() if each is queue]:
            del session.queues[number]
            if here is not None and number in here.windows:
                _, window = here.windows.pop(number)
                queue.detach(window, self._journal.end)
        self._queues.serve_now[queue] = None

    def end_shared(
        self, queue: Queue, member: ClientSubscription, consumers: list[tuple[Session, ClientSubscription]]
    ) -> list[Remove]:
        """Remove a shared queue at once, for all its consumers. Returns what is to be removed from the log."""
        for session, sub in consumers:
            self._leave_shared(session, sub)
        changes = self._rows_of_shared(queue, member)
        self._retire(queue, member)
        self.remove_shared(queue)
        return changes

    def _retire(self, queue: Queue, member: ClientSubscription) -> None:
        """New events do not reach the queue, and its name is free."""
        if self._queues.shared_members.get(queue) is member:
            self._links.tell(self._matcher.discard(member.slot))
            del self._queues.shared_members[queue]
            del self._queues.shared[queue.owner, queue.share]

    # -- answers --------------------------------------------------------------------------------------

    def answer_now(self, connection: Connection, accepted: Accepted) -> None:
        """Answer a request that has changed the table, and that nothing in the log waits for."""
        announcement = self._completion.announce(session_of(connection), accepted.about, accepted.number)
        self._out.send(connection.id, accepted)
        self._completion.accepted(announcement)

    def fail(self, connection: Connection, about: str, number: int, reason: str) -> None:
        """Tell a client that its request could not be stored, if its connection still holds the session."""
        if self._sessions.holds_session(connection):
            self._out.send(connection.id, Failed(about, number, "full", reason))


def _known(session: Session, message: Replace | Unsubscribe) -> ClientSubscription:
    sub = session.subs.get(message.number)
    if sub is None:
        raise RefusalError("unknown", f"there is no subscription {message.number}")
    return sub


def _is_own(queue: ClientQueue) -> bool:
    return isinstance(queue, Queue) and not queue.share


def _check_agrees(queue: ClientQueue, message: Subscribe) -> None:
    """Raise RefusalError if a subscription needs something of an existing queue that it is not."""
    durable = isinstance(queue, Queue)
    if queue.share:
        raise RefusalError("queue", f"queue {message.queue} is shared, and has only one filter")
    if message.since is not None or message.since_time is not None:
        raise RefusalError("since", f"older events need a queue of their own; queue {message.queue} exists")
    if message.durable is not None and message.durable is not durable:
        raise RefusalError("queue", f"queue {message.queue} is {'' if durable else 'not '}durable")
