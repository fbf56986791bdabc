"""A simulated consumer. Law: each delivery is acknowledged, or refused, once; then it is forgotten.

Acknowledgements say how far the client is: a floor, and ranges above it; dead letters that another session has had
delivered again are acknowledged by ranges only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.broker.effects import ConnectionId
from weft.broker.messages import (
    Ack,
    DeadDone,
    DeadLetters,
    Deliver,
    DropDead,
    ListDead,
    Nack,
    QueueNumber,
    Range,
    RetryDead,
    SubNumber,
)
from weft.log.base import Offset
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.views import LossyView, QueueView
from weft.sim.faults.violation import require

if TYPE_CHECKING:
    from weft.sim.faults.client import SimClient

SHARE = "workers"
SHARED = SubNumber(900)  # the number of the shared subscription in each session
SHARED_QUEUE = QueueNumber(SHARED)
_THINK = 6_000  # between a delivery and its acknowledgement, at most


class _Listing(NamedTuple):
    """Whose dead letters were asked for."""

    queue: QueueNumber
    session: str
    share: str
    view: QueueView


class Consumer:
    """What a client does with deliveries and dead letters."""

    def __init__(self, world: ClientWorld, state: ClientState, connection: ClientConnection) -> None:
        self.nacks = 0.0  # the part of the deliveries that it cannot handle
        self.acking = True
        self._world, self._state, self._connection = world, state, connection
        self._request = 0
        self._listed: dict[int, _Listing] = {}  # requests for dead letters

    def delivered(self, message: Deliver) -> None:
        """An event comes."""
        world, state = self._world, self._state
        subs = [sub for sub in state.subs.values() if sub.queue == message.queue]
        if message.queue not in state.queues:
            self._delivered_once(message)
            return
        if not message.offset:
            world.trace.count("delivered: not durable, into a durable queue")
            world.oracle.delivered_once(world.name, message, subs)
            return
        world.trace.count("delivered")
        if message.attempt > 1:
            world.trace.count("delivered again")
        connection = self._connection.id
        assert connection is not None
        ordered = state.ordered[message.queue]
        world.oracle.delivered(connection, message, subs, state.queues[message.queue], ordered=ordered)
        state.open.setdefault(message.queue, {})[message.offset] = message.attempt
        world.soon(_THINK, lambda: self._decide(connection, message.queue, message.offset))

    def _delivered_once(self, message: Deliver) -> None:
        """An event of a queue that is not durable."""
        name, state = self._world.name, self._state
        self._world.trace.count("delivered: not durable")
        for number in message.numbers:
            require(number in state.subs, f"{name}: a delivery for unknown subscription {number}")
        self._world.oracle.delivered_once(name, message, [s for s in state.subs.values() if s.queue == message.queue])
        view = state.lossy.setdefault(message.queue, LossyView())
        if message.offset:
            require(message.offset > view.highest, f"{name}: {message.offset} comes after {view.highest}")
            view.highest = message.offset
            view.got.add(message.offset)
        uid = bytes(message.payload).decode()
        once = (message.queue, uid)
        again = once in state.once and not self._world.oracle.repeats
        require(not again, f"{name}: {uid} was delivered twice to queue {message.queue}")
        state.once.add(once)

    def _decide(self, connection: ConnectionId, queue: QueueNumber, offset: Offset) -> None:
        waiting = self._state.open.get(queue, {})
        if connection != self._connection.id or offset not in waiting or not self._connection.welcomed:
            return
        view = self._state.queues[queue]
        if not self.acking:
            self._world.engine.after(_THINK, lambda: self._decide(connection, queue, offset))
        elif self._world.rng.random() < self.nacks and offset not in view.acked:
            self._world.trace.count("op: nack")
            view.refused.add(offset)
            self._connection.tell(Nack(queue, ((offset, waiting.pop(offset)),), "cannot handle it"))
        else:
            del waiting[offset]
            view.acked.add(offset)
            if self._world.rng.random() < 0.5 or not waiting:
                self._acknowledge(queue)

    def _acknowledge(self, queue: QueueNumber) -> None:
        waiting, view = self._state.open.get(queue, {}), self._state.queues[queue]
        floor = min(waiting, default=max(view.acked) + 1)
        if not all(offset in view.acked for offset in view.seen if offset < floor):
            floor = min(offset for offset in view.seen if offset not in view.acked)
        above = sorted(offset for offset in view.acked if offset >= floor or offset in view.lent)
        ranges: list[Range] = []
        for offset in above:
            if ranges and ranges[-1][1] == offset:
                ranges[-1] = (ranges[-1][0], Offset(offset + 1))
            else:
                ranges.append((Offset(offset), Offset(offset + 1)))
        self._connection.tell(Ack(queue, Offset(floor), tuple(ranges)))

    # -- dead letters ----------------------------------------------------------------------------------

    def look_for_dead(self, queue: QueueNumber, action: str, of: SimClient | None = None) -> None:
        """Ask for dead letters, of this session or another one; those that come are retried or dropped."""
        self._request += 1
        request = self._request * 3 + ("list", "retry", "drop").index(action)
        share = SHARE if queue == SHARED_QUEUE and of is None else ""
        session = "" if of is None else of.name
        view = (self._state if of is None else of.state).queues[queue]
        self._listed[request] = _Listing(queue, session, share, view)
        self._connection.tell(ListDead(request, queue, session=session, share=share))

    def dead_letters(self, message: DeadLetters) -> None:
        """Dead letters come; retry or drop them, as was planned."""
        offsets = tuple(letter.offset for letter in message.letters)
        self._world.trace.count("dead letters", len(offsets))
        listing = self._listed.get(message.request)
        if listing is None or not offsets:
            return
        queue, session, share, view = listing
        who = f"{self._world.name}: dead letter"
        for letter in message.letters:
            require(letter.offset in view.refused, f"{who} {letter.offset} never failed")
            require(letter.offset not in view.dropped, f"{who} {letter.offset} is seen after it was removed")
        view.excused |= set(offsets)
        action = message.request % 3
        if action:
            self._world.trace.count(("", "op: retry dead", "op: drop dead")[action])
            if action == 1 and session:
                view.lent |= set(offsets)
            do = RetryDead if action == 1 else DropDead
            self._connection.tell(do(message.request, queue, offsets, session, share))

    def dead_done(self, message: DeadDone) -> None:
        """Dead letters were tried again, or are gone for good."""
        listing = self._listed.get(message.request)
        if listing is None:
            return
        if message.request % 3 == 2:
            listing.view.dropped |= set(message.offsets)
        elif not listing.session and not listing.share:
            lacking = [offset for offset in message.offsets if offset not in listing.view.seen]
            require(not lacking, f"{self._world.name}: dead letters {lacking} are tried again, and did not come")
