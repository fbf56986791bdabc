"""Revocation: access rules that change while a broker runs.

From the change on, nothing is delivered that the new rules do not allow. A subscription that they no longer cover ends
for good, and its client is notified.

Each event for a doubtful subscription is checked against the rules at once. Which subscriptions are still covered is
found out a few at a time, so that other clients do not wait. A subscription that has ended stays ended if the log has
no room to say so: its rows are removed later, or when the broker starts again.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.broker.after_commit import Ending, Revocations
from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.ingest import Ingest
from weft.broker.parts import BrokerParts
from weft.broker.queue import Queue
from weft.broker.rules import Rules
from weft.broker.sessions import ClientSubscription, Session
from weft.broker.subscriptions import ClientSubscriptions
from weft.broker.transient_queue import TransientQueue
from weft.errors import AccessError
from weft.log.base import NEVER, Offset, Remove, SubRow
from weft.protocol.messages import Revoked

_TURN = 50  # subscriptions that are checked in one turn
_AGAIN = 1_000_000  # microseconds after which rows are removed again when the log was full


class Revocation:
    """Ends what new rules no longer allow."""

    def __init__(
        self, parts: BrokerParts, subscriptions: ClientSubscriptions, delivery: Delivery, ingest: Ingest
    ) -> None:
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._matcher, self._access, self._out, self._timers = parts.matcher, parts.access, parts.out, parts.timers
        self._counts, self._parse = parts.counts, parts.parse
        self._subscriptions, self._delivery, self._ingest = subscriptions, delivery, ingest
        self.changed: Callable[[Session], None] = lambda _: None  # a subscription has ended without its client

    def set_rules(self, rules: Rules) -> None:
        """These rules hold from now on."""
        before, self._access.rules = self._access.rules, rules
        self._doubt(lambda owner: before.of(owner).rights.subscribe != rules.of(owner).rights.subscribe)

    def restored(self) -> None:
        """The broker has started: the rules may have changed in the meantime."""
        self._doubt(lambda _: True)

    def _doubt(self, changed: Callable[[str], bool]) -> None:
        """Doubt everything of the principals whose rules have changed."""
        access, queues, sessions = self._access, self._queues, self._sessions
        owners = {session.owner for session in sessions.by_id.values()} | {owner for owner, _ in queues.shared}
        owners |= {each.principal for each in sessions.connections.values()}
        doubted = {owner for owner in owners if not access.of(owner).reads_all and changed(owner)}
        if not doubted:
            return
        for queue in queues.all:
            if queues.owner_of(queue) in doubted:
                queue.recheck = Offset(NEVER)
        for session in sessions.by_id.values():
            if session.owner in doubted:
                for _, sub in sorted(session.subs.items()):
                    if not sub.queue.share:
                        access.recheck(session, sub)
                for each in session.queues.values():
                    if isinstance(each, TransientQueue):
                        self._purge(each)
        for _, member in sorted((queue.consumer_id, each) for queue, each in queues.shared_members.items()):
            if queues.owner_of(member.queue) in doubted:
                access.recheck(None, member)

    def _purge(self, queue: TransientQueue) -> None:
        before = len(queue.held)
        queue.keep_only(lambda held: held.numbers if self._delivery.may_read(queue, held.head) else [])
        self._counts["withheld by rules"] += before - len(queue.held)

    def step(self, now: Now) -> None:
        """Check some subscriptions; after the last one nothing needs to be checked again but what is on its way."""
        access, queues, sessions = self._access, self._queues, self._sessions
        if not access.unchecked:
            return
        self._ingest.match(now)
        changes: list[Remove] = []
        endings: list[Ending] = []
        for _ in range(min(_TURN, len(access.unchecked))):
            session, sub = access.unchecked.popleft()
            if session is None:
                alive = isinstance(sub.queue, Queue) and queues.shared_members.get(sub.queue) is sub
            else:
                alive = sessions.by_id.get(session.id) is session and session.subs.get(sub.number) is sub
            if not alive or (session is not None and (session.arrival or session.cutting)):
                continue  # it is checked again when it is here, or stays here
            try:
                access.of(queues.owner_of(sub.queue)).check_subscribe(self._parse(sub.text))
            except AccessError as error:
                reason = f"the access rules have changed, and the subscription has ended: {error}"
                endings += self._end(session, sub, reason, changes)
        self._counts["revoked subscriptions"] += len(endings)
        self._finish(endings, changes)
        if not access.unchecked:
            following = self._journal.next
            for queue in self._matcher.queues():
                queue.recheck = Offset(min(queue.recheck, following))
            for durable in queues.all:
                durable.recheck = Offset(min(durable.recheck, following))

    def end(self, session: Session, sub: ClientSubscription, reason: str) -> None:
        """End one subscription; its client is notified. A shared one ends for all its consumers."""
        changes: list[Remove] = []
        shared = self._queues.shared_members.get(sub.queue) if isinstance(sub.queue, Queue) else None
        endings = (
            self._end(session, sub, reason, changes) if shared is None else self._end(None, shared, reason, changes)
        )
        self._finish(endings, changes)

    def _end(
        self, session: Session | None, sub: ClientSubscription, reason: str, changes: list[Remove]
    ) -> list[Ending]:
        """End a subscription in memory, and collect what the log is to forget."""
        queue = sub.queue
        if session is None:
            assert isinstance(queue, Queue)
            sessions = self._sessions.by_id.values()
            consumers = [(each, mine) for each in sessions for mine in each.subs.values() if mine.queue is queue]
            changes += self._subscriptions.end_shared(queue, sub, consumers)
            return [Ending(each, mine.number, reason) for each, mine in consumers]
        if isinstance(queue, Queue):
            assert sub.consumer_id is not None
            self.changed(session)
            changes.append(Remove(SubRow, (sub.consumer_id,)))
            few = len(queue.members) <= len(queue.leaving) + 1
            if few and queue.members.keys() - queue.leaving == {sub.consumer_id}:
                changes += self._queues.rows_of(queue)
        self._subscriptions.take_out(session, sub)
        if isinstance(queue, TransientQueue):
            queue.keep_only(lambda held: [number for number in held.numbers if number in queue.members])
        return [Ending(session, sub.number, reason)]

    def _finish(self, endings: list[Ending], changes: list[Remove]) -> None:
        """Tell clients when the log knows."""
        if not changes:
            self.tell(endings)
            return
        self._journal.write.require(changes, Revocations(endings, changes))

    def tell(self, endings: list[Ending]) -> None:
        """Tell clients, now or when they are welcome again, that their subscriptions have ended."""
        for ending in endings:
            ending.session.remember_end(ending.number, ending.reason)
            here = self._sessions.connection_of(ending.session)
            if here is not None and here.welcomed:
                self._out.send(here.id, Revoked(ending.number, ending.reason))
            elif ending.session.durable:
                ending.session.revoked[ending.number] = ending.reason

    def undo(self, revocations: Revocations, now: Now) -> None:
        """The log has no room for the end of subscriptions: they stay ended, and are stored and told later."""
        self._timers.add(now.monotonic + _AGAIN, lambda _: self._finish_later(revocations))

    def _finish_later(self, revocations: Revocations) -> None:
        """Store again that subscriptions have ended. Those that their clients have made anew meanwhile are others."""
        endings = [each for each in revocations.endings if each.number not in each.session.subs]
        self._finish(endings, self._still_gone(revocations.changes))

    def _still_gone(self, changes: list[Remove]) -> list[Remove]:
        """Without the rows of queues that have come back, because the end of their last member was not stored."""
        alive = {queue.consumer_id for queue in self._queues.all}
        return [change for change in changes if change.key[0] not in alive]
