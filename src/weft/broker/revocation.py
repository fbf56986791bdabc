"""Access rules change while a broker runs. Laws: from the moment of a change nothing is delivered that the new rules do
not allow, to anybody; a subscription that they no longer cover ends, for good, and its client is told.

What is certain at once is that each event for a suspect subscription is checked against the rules. Which subscriptions
are still covered is found out a few at a time, so that other clients do not wait. A subscription that ended stays
ended if the log has no room to say so: its rows are removed later, or when the broker starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from weft.broker.effects import Now
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import Deliver, Revoked, SubNumber
from weft.broker.queue import Queue
from weft.broker.requests import Requests
from weft.broker.rules import Rules
from weft.broker.sessions import ClientSubscription, Session
from weft.broker.sharing import SharedQueues
from weft.broker.subscribing import Subscribing
from weft.errors import AccessError
from weft.log.base import NEVER, Offset, Remove, SubRow

_TURN = 50  # subscriptions that are looked at in one turn
_AGAIN = 1_000_000  # microseconds after which rows are removed again when the log was full


class Ending(NamedTuple):
    """A subscription that ended, and why."""

    session: Session
    number: SubNumber
    reason: str


class Revocation(Requests):
    """Ends what new rules no longer allow."""

    def __init__(self, subscribing: Subscribing, sharing: SharedQueues) -> None:
        super().__init__(subscribing.state, subscribing.delivery, subscribing.publishing, subscribing.announcing)
        self._subscribing, self._sharing = subscribing, sharing

    @property
    def pending(self) -> bool:
        """Whether there are subscriptions to look at."""
        return bool(self.state.suspects)

    def set_rules(self, rules: Rules) -> None:
        """These rules hold from now on."""
        before, self.state.rules = self.state.rules, rules
        self._suspect(lambda owner: before.of(owner).rights.subscribe != rules.of(owner).rights.subscribe)

    def restored(self) -> None:
        """The broker has started: the rules may have changed in the meantime."""
        self._suspect(lambda _: True)

    def _suspect(self, changed: Callable[[str], bool]) -> None:
        """Doubt everything of the principals whose rules have changed."""
        state = self.state
        owners = {session.owner for session in state.sessions.values()} | {owner for owner, _ in state.shared}
        owners |= {each.principal for each in state.connections.values()}
        doubted = {owner for owner in owners if not state.rules.of(owner).reads_all and changed(owner)}
        if not doubted:
            return
        for queue in state.queues:
            if state.owner_of(queue) in doubted:
                queue.recheck = Offset(NEVER)
        for session in state.sessions.values():
            if session.owner in doubted:
                for _, sub in sorted(session.subs.items()):
                    if not (isinstance(sub.queue, Queue) and sub.queue.share):
                        state.suspect(session, sub)
                for each in session.queues.values():
                    if isinstance(each, LossyQueue):
                        self._purge(each)
        for _, member in sorted((queue.seat, member) for queue, member in state.shared_members.items()):
            if state.owner_of(member.queue) in doubted:
                state.suspect(None, member)

    def _purge(self, queue: LossyQueue) -> None:
        def allowed(message: Deliver) -> list[SubNumber]:
            return message.numbers if self.delivery.may_read(queue, message.head) else []

        before = len(queue.held)
        queue.keep_only(allowed)
        self.state.counts["withheld by rules"] += before - len(queue.held)

    def step(self, now: Now) -> None:
        """Look at some suspects; after the last one nothing needs to be checked again but what is on its way."""
        state = self.state
        if not state.suspects:
            return
        self.publishing.match(now)
        changes: list[Remove] = []
        endings: list[Ending] = []
        for _ in range(min(_TURN, len(state.suspects))):
            session, sub = state.suspects.popleft()
            if session is None:
                alive = isinstance(sub.queue, Queue) and state.shared_members.get(sub.queue) is sub
            else:
                alive = state.sessions.get(session.id) is session and session.subs.get(sub.number) is sub
            if not alive:
                continue
            try:
                state.rules.of(state.owner_of(sub.queue)).check_subscribe(state.read(sub.text))
            except AccessError as error:
                endings += self._end(session, sub, str(error), changes)
        state.counts["revoked subscriptions"] += len(endings)
        self._tell(endings, changes)
        if not state.suspects:
            for queue in state.seats.queues():
                queue.recheck = Offset(min(queue.recheck, state.next))
            for durable in state.queues:
                durable.recheck = Offset(min(durable.recheck, state.next))

    def _end(self, session: Session | None, sub: ClientSubscription, why: str, changes: list[Remove]) -> list[Ending]:
        """End a subscription in memory, and collect what the log is to forget."""
        reason = f"the access rules have changed, and the subscription has ended: {why}"
        queue = sub.queue
        if session is None:
            assert isinstance(queue, Queue)
            consumers = [
                (each, mine)
                for each in self.state.sessions.values()
                for mine in list(each.subs.values())
                if mine.queue is queue
            ]
            changes += self._sharing.end(queue, sub, consumers)
            return [Ending(each, mine.number, reason) for each, mine in consumers]
        if isinstance(queue, Queue):
            assert sub.seat is not None
            changes.append(Remove(SubRow, (sub.seat,)))
            if len(queue.members) <= len(queue.leaving) + 1 and queue.members.keys() - queue.leaving == {sub.seat}:
                changes += self.rows_of(queue)
        self._subscribing.take_out(session, sub)
        if isinstance(queue, LossyQueue):
            queue.keep_only(lambda held: [number for number in held.numbers if number in queue.members])
        return [Ending(session, sub.number, reason)]

    def _tell(self, endings: list[Ending], changes: list[Remove]) -> None:
        """Tell clients when the log knows, so that they hear of a subscription first that it was accepted."""
        state = self.state

        def tell() -> None:
            for ending in endings:
                here = state.connection_of(ending.session)
                if here is not None:
                    state.out.send(here.id, Revoked(ending.number, ending.reason))
                elif ending.session.durable:
                    ending.session.revoked[ending.number] = ending.reason

        if not changes:
            tell()
            return
        state.draft.changes += changes
        state.draft.urgent = True
        state.draft.committed.append(lambda _: tell())

        def rejected(reason: str, later: Now) -> None:  # noqa: ARG001
            tell()
            state.timers.add(later.monotonic + _AGAIN, lambda _: self._tell([], self._still_gone(changes)))

        state.draft.rejected.append(rejected)

    def _still_gone(self, changes: list[Remove]) -> list[Remove]:
        """Without the rows of queues that have come back, because the end of their last member was not stored."""
        alive = {queue.seat for queue in self.state.queues}
        return [change for change in changes if change.key[0] not in alive]
