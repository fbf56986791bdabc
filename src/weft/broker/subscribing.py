"""Subscriptions. Laws: a change holds from an exact offset on, and is stored with the events around it; until it is
stored, what was matched before is delivered as before.
"""

from __future__ import annotations

from weft.broker.announcing import still_subscribed
from weft.broker.effects import Now
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import Accepted, Replace, SubNumber, Subscribe, Unsubscribe
from weft.broker.queue import Queue
from weft.broker.requests import RefusalError, Requests, session_of
from weft.broker.row_options import floor_change, member_row, queue_row
from weft.broker.sessions import AnyQueue, ClientSubscription, Connection, Session
from weft.language.ast import Filter
from weft.log.base import Offset, Put, Remove, SubRow


class Subscribing(Requests):
    """Subscriptions of a session's own queues; `Sharing` has those of shared queues."""

    # -- subscribe ------------------------------------------------------------------------------------

    def subscribe(self, connection: Connection, message: Subscribe, now: Now) -> None:
        """Add a subscription, and a queue if there is none of its number. Raises what `REFUSALS` lists."""
        session, state = session_of(connection), self.state
        wanted = self.check_new(connection, message)
        self.publishing.match(now)
        known = session.queues.get(message.queue)
        if known is not None:
            _check_agrees(known, message)
        queue = self._new_queue(connection, message) if known is None else known
        seat = state.new_seat() if isinstance(queue, Queue) else None
        slot, tells = state.seats.add(wanted, seat, queue, message.number)
        state.tell(tells)
        sub = ClientSubscription(message.number, message.filter, slot, seat, queue, state.next)
        session.subs[sub.number] = sub
        session.queues[message.queue] = queue
        if isinstance(queue, LossyQueue):
            queue.members[sub.number] = sub.start
            done = Accepted("subscribe", sub.number, sub.start)
            self.answer_change(connection, done, still_subscribed(session, sub), stored=False)
            return
        assert seat is not None
        queue.members[seat] = sub.number
        if known is None:
            self._begin(queue, sub, wanted, message)
        state.draft.changes.append(Put(member_row(session.id, sub)))
        done = Accepted("subscribe", sub.number, sub.start)
        self.answer_change(connection, done, still_subscribed(session, sub))
        self.attach_when_stored(connection, sub, message.queue)

        def rejected(reason: str, _: Now) -> None:
            if session.subs.get(sub.number) is sub:
                del session.subs[sub.number]
                state.tell(state.seats.discard(sub.slot))
            self._leave(session, sub)
            self.fail(connection, "subscribe", sub.number, reason)

        state.draft.rejected.append(rejected)

    def check_new(self, connection: Connection, message: Subscribe) -> Filter:
        """The filter of a new subscription. Raises what `REFUSALS` lists."""
        session, limit = session_of(connection), self.state.limits.subscriptions
        if message.since is not None or message.since_time is not None:
            self.state.rules.of(connection.principal).check("history")
        if message.number in session.subs:
            raise RefusalError("exists", f"subscription {message.number} already exists; replace or unsubscribe it")
        if message.number >= 1 << 32:
            raise RefusalError("limit", "the number of a subscription has at most 32 bits")
        if len(session.subs) >= limit:
            raise RefusalError("limit", f"a session has at most {limit:,} subscriptions")
        return self.read_filter(connection, message.filter)

    def _new_queue(self, connection: Connection, message: Subscribe) -> AnyQueue:
        session, limits = session_of(connection), self.state.limits
        if len(session.queues) >= limits.queues:
            raise RefusalError("limit", f"a session has at most {limits.queues:,} queues")
        durable = session.durable if message.durable is None else message.durable
        if not durable:
            if message.since is not None or message.since_time is not None:
                raise RefusalError("since", "older events need a durable queue; give the session a name")
            most = min(message.lag or limits.held, limits.held)
            return LossyQueue(message.queue, connection, most, limits.held_bytes, message.disconnect)
        if not session.durable:
            raise RefusalError("durable", "a durable queue needs a session with a name")
        return Queue(
            self.state.new_seat(),
            message.queue,
            cursor=self.state.next,
            ordered=message.ordered,
            session=session.id,
            lag=min(message.lag or limits.lag, limits.lag),
            disconnect=message.disconnect,
        )

    def _begin(self, queue: Queue, sub: ClientSubscription, wanted: Filter, message: Subscribe) -> None:
        """A new durable queue begins now, or with older events."""
        state = self.state
        state.queues[queue] = None
        since = message.since if message.since_time is None else state.log.find(message.since_time)
        replay = None
        if since is not None and since < sub.start:
            first = Offset(max(since, state.log_first))
            if 0 < since < first:
                queue.gap = Offset(since), first
            if first < sub.start:
                assert sub.seat is not None
                queue.cursor, queue.replay_until, replay = first, sub.start, sub.seat
                self.delivery.reader.replays[queue] = sub.seat, wanted
        queue.stored_floor = queue.cursor
        state.draft.changes.append(Put(queue_row(queue, state.end, replay)))

    # -- replace --------------------------------------------------------------------------------------

    def replace(self, connection: Connection, message: Replace, now: Now) -> None:
        """Give a subscription another filter, from the next event on."""
        session, state = session_of(connection), self.state
        sub = self.known(session, message.number)
        wanted = self.read_filter(connection, message.filter)
        queue = sub.queue
        if wanted == state.read(sub.text):  # a client that comes back says what it wants
            self.publishing.match(now)
            done = Accepted("replace", sub.number, state.next)
            self.answer_change(connection, done, still_subscribed(session, sub), stored=sub.seat is not None)
            if sub.seat is not None:
                state.draft.rejected.append(lambda reason, _: self.fail(connection, "replace", sub.number, reason))
            return
        if isinstance(queue, Queue):
            if queue.share:
                raise RefusalError("share", "the filter of a shared queue cannot be replaced; use another name")
            if self.delivery.reader.replays.get(queue, (None, None))[0] == sub.seat:
                if queue.floor(state.end) < queue.replay_until:
                    raise RefusalError(
                        "replaying", "some older events are not acknowledged; replace the filter after that"
                    )
                change = floor_change(queue, state.end)  # after a restart the new filter must not find older events
                state.draft.changes.append(change)
                state.draft.floors.append((queue, change.floor))
        self.publishing.match(now)
        state.tell(state.seats.replace(sub.slot, wanted))
        before, sub.text = sub.text, message.filter
        sub.version += 1
        done = Accepted("replace", sub.number, state.next)
        if sub.seat is None:
            self.answer_change(connection, done, still_subscribed(session, sub), stored=False)
            return
        state.draft.changes.append(Put(member_row(session.id, sub)))
        self.answer_change(connection, done, still_subscribed(session, sub))

        def rejected(reason: str, _: Now) -> None:
            if session.subs.get(sub.number) is not sub:
                return  # revoked in the meantime
            state.tell(state.seats.replace(sub.slot, state.read(before)))
            sub.text = before
            sub.version += 1
            state.suspect(session, sub)
            self.fail(connection, "replace", sub.number, reason)
            self.announcing.renew(session, "subscribe", sub.number, still_subscribed(session, sub))

        state.draft.rejected.append(rejected)

    # -- unsubscribe ----------------------------------------------------------------------------------

    def unsubscribe(self, connection: Connection, message: Unsubscribe, now: Now) -> None:
        """End a subscription: it matches nothing from now on, and is gone when that is stored."""
        session, state = session_of(connection), self.state
        sub = self.known(session, message.number)
        self.publishing.match(now)
        gone = Accepted("unsubscribe", sub.number, state.next)
        del session.subs[sub.number]
        state.tell(state.seats.discard(sub.slot))
        queue = sub.queue
        if isinstance(queue, LossyQueue):
            self._leave(session, sub)
            state.out.send(connection.id, gone)
            return
        assert sub.seat is not None
        queue.leaving.add(sub.seat)
        last = queue.leaving == queue.members.keys()
        if last:
            del session.queues[queue.number]
            self.remove_rows(queue)
        state.draft.changes.append(Remove(SubRow, (sub.seat,)))
        self.answer(connection, gone)

        def rejected(reason: str, _: Now) -> None:
            assert sub.seat is not None
            sub.slot, tells = state.seats.add(state.read(sub.text), sub.seat, queue, sub.number)
            state.tell(tells)
            session.subs[sub.number] = sub
            sub.version += 1
            state.suspect(session, sub)
            queue.leaving.discard(sub.seat)
            if last:
                session.queues[queue.number] = queue
                here = state.connection_of(session)
                if here is not None and queue.stored:
                    self.attach(here, queue, queue.number, sub.number)
            self.fail(connection, "unsubscribe", sub.number, reason)
            self.announcing.renew(session, "subscribe", sub.number, still_subscribed(session, sub))

        state.draft.committed.append(lambda _: self._leave(session, sub))
        state.draft.rejected.append(rejected)

    def known(self, session: Session, number: SubNumber) -> ClientSubscription:
        """A subscription of a session. Raises RequestError."""
        sub = session.subs.get(number)
        if sub is None:
            raise RefusalError("unknown", f"there is no subscription {number}")
        return sub

    def take_out(self, session: Session, sub: ClientSubscription) -> None:
        """Remove a subscription at once."""
        del session.subs[sub.number]
        self.state.tell(self.state.seats.discard(sub.slot))
        self._leave(session, sub)

    def _leave(self, session: Session, sub: ClientSubscription) -> None:
        """A subscription is no longer a member of its queue; a queue without members goes."""
        queue = sub.queue
        queue.changed = self.state.next
        if isinstance(queue, LossyQueue):
            queue.members.pop(sub.number, None)
        else:
            assert sub.seat is not None
            queue.members.pop(sub.seat, None)
            queue.leaving.discard(sub.seat)
            if self.delivery.reader.replays.get(queue, (None, None))[0] == sub.seat:
                queue.advance(max(queue.cursor, queue.replay_until))
                queue.replay_until = Offset(0)
                del self.delivery.reader.replays[queue]
        if queue.members:
            return
        if session.queues.get(queue.number) is queue:
            del session.queues[queue.number]
        if isinstance(queue, Queue):
            self.drop_queue(queue)


def _check_agrees(queue: AnyQueue, message: Subscribe) -> None:
    """Raise RequestError if a subscription asks of an existing queue what it is not."""
    durable = isinstance(queue, Queue)
    if isinstance(queue, Queue) and queue.share:
        raise RefusalError("queue", f"queue {message.queue} is shared, and has only one filter")
    if message.since is not None or message.since_time is not None:
        raise RefusalError("since", f"older events need a queue of their own; queue {message.queue} exists")
    if message.durable is not None and message.durable is not durable:
        raise RefusalError("queue", f"queue {message.queue} is {'' if durable else 'not '}durable")
