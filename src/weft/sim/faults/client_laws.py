"""What must hold of what clients receive: the laws of the oracle about deliveries, gaps, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from weft.broker.effects import ConnectionId
from weft.broker.messages import Deliver, Head
from weft.log.base import NEVER
from weft.sim.faults.views import Logged, LossyView, QueueView, SubView
from weft.sim.faults.violation import require

_head = msgspec.msgpack.Decoder(Head)


class ClientLaws:
    """The part of the oracle that sees what clients receive."""

    def __init__(self) -> None:
        self.history: dict[int, Logged] = {}
        self.next = 1
        self.withheld: Callable[[str, int, Logged], bool] = lambda *_: False  # events that rules keep from a principal
        self._dead: set[int] = set()  # offsets that are a dead letter of some queue
        self._revived: set[int] = set()  # events that had expired when the broker crashed, and are not known to have

    def delivered(
        self, connection: ConnectionId, message: Deliver, subs: Sequence[SubView], view: QueueView, *, ordered: bool
    ) -> None:
        """A client receives a durable delivery."""
        who = connection
        offset, event = message.offset, self.history[message.offset]
        named = set(message.numbers)
        for sub in subs:
            if sub.number in named:
                named.discard(sub.number)
                require(
                    sub.may_match(offset, event),
                    f"{who}: subscription {sub.number} gets event {event.uid} at {offset}, which it does not match",
                )
            else:
                require(
                    sub.ended or not sub.must_match(offset, event),
                    f"{who}: a delivery of event {event.uid} at {offset} leaves out subscription {sub.number}",
                )
        require(not named, f"{who}: a delivery names unknown subscriptions {sorted(named)}")
        if message.attempt == 1:
            require(offset not in view.first, f"{who}: event {event.uid} at {offset} returns with attempt 1")
            view.first.add(offset)
        if ordered and offset not in view.seen:
            late = offset in self._revived or (offset in view.lost and message.attempt > 1)
            require(offset > view.highest or late, f"{who}: event {event.uid} at {offset} comes after {view.highest}")
        view.highest = max(view.highest, offset)
        view.seen[offset] = view.seen.get(offset, 0) + 1

    def delivered_once(self, who: str, message: Deliver, subs: Sequence[SubView]) -> None:
        """A client receives an event that it does not acknowledge: not durable itself, or for such a queue."""
        head, uid = _head.decode(message.head), bytes(message.payload).decode()
        offset = message.offset or self.next
        known = self.history.get(message.offset, Logged(uid, head.attributes, head.expires, (0, 0, 0)))
        require(known.uid == uid, f"{who}: {uid} is delivered as offset {message.offset}, which is {known.uid}")
        for sub in subs:
            if sub.number in message.numbers:
                # an event without an offset was matched at any time since it was published
                right = sub.may_match(offset, known) if message.offset else sub.ever_matched(known)
                require(right, f"{who}: subscription {sub.number} gets event {uid}, which it does not match")
            elif message.offset:
                left_out = not sub.ended and sub.must_match(offset, known)
                require(not left_out, f"{who}: a delivery of event {uid} at {offset} leaves out {sub.number}")

    def lost_once(self, subs: Sequence[SubView], view: LossyView, principal: str) -> int:
        """How many events a queue that is not durable should have had on its connection, and neither had nor lost."""
        wanted = {
            offset
            for offset, event in self.history.items()
            if event.expires == NEVER
            and any(not sub.ended and sub.must_match(offset, event) for sub in subs)
            and not self.withheld(principal, offset, event)
        }
        return max(0, len(wanted - view.got) - view.dropped)

    def gap(self, who: str, view: QueueView, first: int, end: int) -> None:
        """A client is told that events are lost to a queue."""
        allowed = end <= view.begins or (view.lag > 0 and end <= self.next - view.lag)
        require(allowed, f"{who}: events {first} to {end} are lost to it; the log began with {view.begins}")
        view.excused |= set(range(first, end))
        view.lost |= set(range(first, end))

    def missing(self, subs: Sequence[SubView], view: QueueView, utc: int) -> list[int]:
        """The events that a queue must have had acknowledged, and has not. Expired ones are not required."""
        live = [sub for sub in subs if not sub.ended]
        return [
            offset
            for offset, event in self.history.items()
            if offset not in view.acked
            and offset not in view.excused
            and not (offset in view.refused and offset in self._dead)
            and event.expires > utc
            and any(sub.must_match(offset, event) for sub in live)
            and not self.withheld(view.principal, offset, event)
        ]
