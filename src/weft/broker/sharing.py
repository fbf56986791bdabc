"""Shared queues: several connections consume one queue together. Laws: the queue is durable and belongs to its owner,
not to a session; each event goes to one consumer at a time; the queue ends when its last consumer unsubscribes.

A consumer is one for as long as its connection lasts: after a reconnection it subscribes again.
"""

from __future__ import annotations

from weft.broker.announcing import still_subscribed
from weft.broker.effects import Now
from weft.broker.messages import Accepted, SubNumber, Subscribe
from weft.broker.queue import Queue
from weft.broker.requests import RefusalError, Requests, session_of
from weft.broker.row_options import SHARED, member_row, queue_row
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.language.ast import Filter
from weft.log.base import Put, Remove, SubRow


class SharedQueues(Requests):
    """The shared queues of a broker."""

    def subscribe(self, connection: Connection, message: Subscribe, wanted: Filter, now: Now) -> None:
        """Consume a shared queue, which is made if there is none of its name. Raises what `REFUSALS` lists."""
        session, state = session_of(connection), self.state
        if message.queue in session.queues:
            raise RefusalError("queue", f"queue {message.queue} exists; a shared queue needs a number of its own")
        if message.since is not None or message.since_time is not None:
            raise RefusalError("since", "a shared queue begins with new events")
        if message.durable is False or len(message.share) > state.limits.name:
            most = state.limits.name
            raise RefusalError("share", f"a shared queue is durable, and its name has at most {most} characters")
        self.publishing.match(now)
        queue = state.shared.get((session.owner, message.share)) or self._new(session, message, wanted)
        member = state.shared_members[queue]
        if state.read(member.text) != wanted:
            reason = f"the shared queue {message.share!r} has another filter: {member.text}; use that, or another name"
            raise RefusalError("filter", reason)
        sub = ClientSubscription(message.number, message.filter, member.slot, None, queue, state.next)
        session.subs[message.number] = sub
        session.queues[message.queue] = queue
        done = Accepted("subscribe", sub.number, state.next)
        self.answer_change(connection, done, still_subscribed(session, sub))
        self.attach_when_stored(connection, sub, message.queue)

        def rejected(reason: str, _: Now) -> None:
            if session.subs.get(sub.number) is sub:
                self.leave(session, sub)
            self.fail(connection, "subscribe", sub.number, reason)

        state.draft.rejected.append(rejected)

    def _new(self, session: Session, message: Subscribe, wanted: Filter) -> Queue:
        state = self.state
        seat = state.new_seat()
        queue = Queue(
            state.new_seat(),
            message.queue,
            cursor=state.next,
            share=message.share,
            owner=session.owner,
            lag=min(message.lag or state.limits.lag, state.limits.lag),
            disconnect=message.disconnect,
        )
        slot, tells = state.seats.add(wanted, seat, queue, SubNumber(0))
        state.tell(tells)
        member = ClientSubscription(SubNumber(0), message.filter, slot, seat, queue, state.next)
        queue.members[seat] = SubNumber(0)
        state.queues[queue] = None
        state.shared[session.owner, message.share] = queue
        state.shared_members[queue] = member
        state.draft.changes += [Put(queue_row(queue, state.end)), Put(member_row(SHARED, member))]

        def rejected(reason: str, now: Now) -> None:  # noqa: ARG001
            self._retire(queue, member)
            self.drop_queue(queue)

        state.draft.rejected.append(rejected)
        return queue

    def unsubscribe(self, connection: Connection, sub: ClientSubscription, now: Now) -> None:
        """Stop consuming; the last consumer removes the queue."""
        session, state, queue = session_of(connection), self.state, sub.queue
        assert isinstance(queue, Queue)
        self.publishing.match(now)
        self.leave(session, sub)
        gone = Accepted("unsubscribe", sub.number, state.next)
        if any(queue in other.queues.values() for other in state.sessions.values()):
            state.out.send(connection.id, gone)
            return
        member = state.shared_members[queue]
        assert member.seat is not None
        self._retire(queue, member)
        self.remove_rows(queue)
        state.draft.changes.append(Remove(SubRow, (member.seat,)))
        self.answer(connection, gone)

        def rejected(reason: str, _: Now) -> None:
            assert member.seat is not None
            member.slot, tells = state.seats.add(state.read(member.text), member.seat, queue, SubNumber(0))
            state.tell(tells)
            state.shared[queue.owner, queue.share] = queue
            state.shared_members[queue] = member
            state.suspect(None, member)
            self.fail(connection, "unsubscribe", sub.number, reason)

        def committed(_: Now) -> None:
            queue.members.clear()
            self.drop_queue(queue)

        state.draft.committed.append(committed)
        state.draft.rejected.append(rejected)

    def leave(self, session: Session, sub: ClientSubscription) -> None:
        """A session no longer consumes a queue: what it has not acknowledged goes to others."""
        state, queue = self.state, sub.queue
        assert isinstance(queue, Queue)
        del session.subs[sub.number]
        here = state.connection_of(session)
        for number in [number for number, each in session.queues.items() if each is queue]:
            del session.queues[number]
            if here is not None and number in here.flights:
                _, flight = here.flights.pop(number)
                queue.detach(flight, state.end)
        state.fresh[queue] = None

    def end(
        self, queue: Queue, member: ClientSubscription, consumers: list[tuple[Session, ClientSubscription]]
    ) -> list[Remove]:
        """Remove a shared queue at once, for all its consumers; what the log is to forget."""
        assert member.seat is not None
        for session, sub in consumers:
            self.leave(session, sub)
        changes = [*self.rows_of(queue), Remove(SubRow, (member.seat,))]
        self._retire(queue, member)
        queue.members.clear()
        self.drop_queue(queue)
        return changes

    def _retire(self, queue: Queue, member: ClientSubscription) -> None:
        """New events do not reach the queue, and its name is free."""
        state = self.state
        if state.shared_members.get(queue) is not member:
            return
        state.tell(state.seats.discard(member.slot))
        del state.shared_members[queue]
        del state.shared[queue.owner, queue.share]
