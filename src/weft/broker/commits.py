"""From drafts to the log, group by group. Laws: groups are stored in the order in which they were made; what waits for
a group happens once it is stored; if one is rejected, every later one is undone with it, the last one first.

The floors of acknowledgements are worth no group of their own: they wait a while for others.
"""

from __future__ import annotations

from weft.broker.delivery import Delivery
from weft.broker.drafts import Draft, PendingGroup, PublisherMark
from weft.broker.effects import Now, Persist, Ticket
from weft.broker.link_events import EventLane
from weft.broker.link_sending import LinkSending
from weft.broker.publishing import Publishing
from weft.broker.row_options import floor_change
from weft.broker.sessions import Session
from weft.broker.state import BrokerState
from weft.errors import LocalProtocolError
from weft.log.base import MoveFloor

_FULL = 1_000_000  # microseconds after which floors are stored again when the log was full


class Commits:
    """Makes groups of drafts, and carries out what waits for them."""

    def __init__(self, state: BrokerState, delivery: Delivery, publishing: Publishing, sending: LinkSending) -> None:
        self._state = state
        self._delivery, self._publishing, self._sending = delivery, publishing, sending
        self._tickets = 0
        self._floors_at = 0  # monotonic; when acknowledgements that wait are stored; 0: none waits
        self._full_until = 0  # monotonic; until then only what is urgent is stored

    # -- groups ---------------------------------------------------------------------------------------

    def persist(self, now: Now) -> bool:
        """Have the draft stored. Returns False if nothing was to be stored, and what waited for it has happened now."""
        state = self._state
        draft = state.draft
        if state.dirty or state.dirty_lanes:
            self._add_floors(draft, now)
        if draft.is_empty and draft.committed:
            state.draft = Draft()
            if not state.pending:
                for action in draft.committed:
                    action(now)
                return False
            state.pending[-1].committed += draft.committed
            state.pending[-1].rejected += draft.rejected
        elif not draft.is_empty:
            self._tickets += 1
            ticket = Ticket(self._tickets)
            state.out.persist(Persist(ticket, draft.group(state.at), draft.urgent))
            state.pending.append(PendingGroup(ticket, draft))
            state.draft = Draft()
        return True

    def take_first(self, ticket: Ticket) -> PendingGroup:
        """The group that is the next to be stored. Raises LocalProtocolError if the ticket is not its."""
        pending = self._state.pending
        if not pending or pending[0].ticket != ticket:
            raise LocalProtocolError(f"ticket {ticket} is not the next one; groups are committed in order, each once")
        return pending.popleft()

    def committed(self, group: PendingGroup, now: Now) -> None:
        """A group is durable."""
        for queue, floor in group.floors:
            queue.stored_floor = max(queue.stored_floor, floor)
        for action in group.committed:
            action(now)
        for session, (epoch, upto) in group.stored.items():
            self._publishing.confirm(session, group.marks[session].connection, epoch, upto)
        for batch in group.batches:
            self._delivery.stored(batch, now)
            if self._state.neighbours:
                self._sending.stored(batch)

    def take_from(self, ticket: Ticket) -> list[PendingGroup]:
        """This group and every later one, the last one first. Raises LocalProtocolError if there is none."""
        pending = self._state.pending
        if not any(group.ticket == ticket for group in pending):
            raise LocalProtocolError(f"ticket {ticket} is not on its way")
        taken: list[PendingGroup] = []
        while pending and pending[-1].ticket >= ticket:
            taken.append(pending.pop())
        return taken

    def rejected(self, lost: list[PendingGroup], reason: str, now: Now) -> None:
        """The log is full: undo these groups, the last one first."""
        state = self._state
        state.counts["rejected groups"] += 1
        self._full_until = now.monotonic + _FULL
        for group in lost:
            for action in reversed(group.rejected):
                action(reason, now)
            for queue, _ in group.floors:
                if isinstance(queue, EventLane):
                    state.dirty_lanes[queue] = None
                elif queue in state.queues:
                    state.dirty[queue] = None
        marks: dict[Session, PublisherMark] = {}
        for group in lost:
            marks.update(group.marks)  # the earliest of each publisher comes last
        for mark in marks.values():
            self._publishing.undo(mark, reason)
        state.take_back_offsets()
        self._floors_at = 0

    # -- floors ---------------------------------------------------------------------------------------

    def store_floors(self) -> None:
        """Every floor that has moved is stored with the next draft."""
        state = self._state
        for queue in state.queues:
            self._delivery.lag.check(queue)
            if queue.stored and queue.floor(state.end) > queue.stored_floor:
                state.dirty[queue] = None
        for each in state.neighbours.values():
            if each.lane.floor > each.lane.stored_floor:
                state.dirty_lanes[each.lane] = None
        self._floors_at = -1

    def _add_floors(self, draft: Draft, now: Now) -> None:
        """Acknowledgements are stored when the first of them has waited for a while."""
        state = self._state
        if now.monotonic < self._floors_at:
            return
        if self._floors_at == 0 and (state.limits.floors or now.monotonic < self._full_until):
            self._floors_at = max(now.monotonic + state.limits.floors, self._full_until)
            state.timers.add(self._floors_at, lambda _: None)
            return
        self._floors_at = 0
        for queue in state.dirty:
            change = floor_change(queue, state.end)
            draft.changes.append(change)
            draft.floors.append((queue, change.floor))
        for lane in state.dirty_lanes:
            draft.changes.append(MoveFloor(lane.seat, lane.floor))
            draft.floors.append((lane, lane.floor))
        state.dirty, state.dirty_lanes = {}, {}
