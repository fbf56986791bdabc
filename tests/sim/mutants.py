"""Faults planted into the broker: each breaks one promise, and the simulation must notice it.

A mutant patches one method. The names are those of the reference of faults for one broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from weft.broker.core import Core
from weft.broker.dead_letters import Dead
from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.greeting import Greeting
from weft.broker.limits import TokenBucket
from weft.broker.lossy_queue import LossyQueue
from weft.broker.messages import Ack, DeadDone, Replace
from weft.broker.publishing import Publishing
from weft.broker.queue import Queue
from weft.broker.queue_lag import QueueLag
from weft.broker.requests import Requests
from weft.broker.rules import Grant
from weft.broker.state import BrokerState
from weft.broker.subscribing import Subscribing
from weft.errors import LogFailedError
from weft.log.base import NEVER, Offset, Put
from weft.log.memory import MemoryLog

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


@mutant
def acknowledge_before_sync(patch: Patch) -> None:
    publish = Publishing.publish

    def early(self, connection, messages, now):
        publish(self, connection, messages, now)
        session = connection.session
        self.confirm(session, connection.id, session.pub_epoch, session.pub_received)

    patch.setattr(Publishing, "publish", early)


@mutant
def acknowledge_after_a_failed_sync(patch: Patch) -> None:
    sync = MemoryLog.sync

    def forgiving(self):
        try:
            sync(self)
        except LogFailedError:
            self._ended = ""

    patch.setattr(MemoryLog, "sync", forgiving)


@mutant
def replace_takes_effect_late(patch: Patch) -> None:
    change = Subscribing.replace

    def late(self, connection, message: Replace, now: Now):
        seats, waiting = self.state.seats, []
        real = seats.replace
        seats.replace = lambda *args: waiting.append(args) or []
        try:
            change(self, connection, message, now)
        finally:
            seats.replace = real
        self.state.draft.committed += [lambda _, args=args: self.state.tell(real(*args)) for args in waiting]

    patch.setattr(Subscribing, "replace", late)


@mutant
def a_seat_is_used_again(patch: Patch) -> None:
    new_seat = BrokerState.new_seat

    def again(self):
        used = {seat for queue in self.queues for seat in (queue.seat, *queue.members)}
        free = [seat for seat in range(1, self.next_seat) if seat not in used]
        return free[0] if free else new_seat(self)

    patch.setattr(BrokerState, "new_seat", again)


@mutant
def ranges_of_an_acknowledgement_are_ignored(patch: Patch) -> None:
    ack = Delivery.ack
    patch.setattr(Delivery, "ack", lambda self, c, m, now: ack(self, c, Ack(m.queue, m.floor), now))


@mutant
def a_floor_is_one_too_high(patch: Patch) -> None:
    ack = Queue.ack
    patch.setattr(Queue, "ack", lambda self, flight, floor, ranges: ack(self, flight, floor + 1, ranges))


@mutant
def retention_removes_what_is_not_acknowledged(patch: Patch) -> None:
    patch.setattr(Core, "needed", property(lambda self: self._state.end))


@mutant
def an_old_connection_is_not_fenced(patch: Patch) -> None:
    hello = Greeting.hello

    def lenient(self, connection, message, now):
        session = self._state.names.get(message.session)
        old = session.connection if session is not None else None
        if old is not None:
            session.connection = None
        hello(self, connection, message, now)

    patch.setattr(Greeting, "hello", lenient)


@mutant
def duplicates_of_publishers_are_stored(patch: Patch) -> None:
    hello = Greeting.hello

    def forgetful(self, connection, message, now):
        session = self._state.names.get(message.session)
        if session is not None:
            session.pub_received = 0
        hello(self, connection, message, now)

    patch.setattr(Greeting, "hello", forgetful)


@mutant
def a_redelivery_looks_like_a_first_one(patch: Patch) -> None:
    patch.setattr(Queue, "attempt", lambda self, offset: 1)


@mutant
def a_late_negative_acknowledgement_counts(patch: Patch) -> None:
    nack = Queue.nack

    def late(self, flight, attempts, most):
        return nack(self, flight, [(offset, self.attempt(offset)) for offset, _ in attempts], most)

    patch.setattr(Queue, "nack", late)


@mutant
def a_failed_event_does_not_hold_an_ordered_queue(patch: Patch) -> None:
    patch.setattr(Queue, "is_held", lambda self, monotonic: False)
    delay = Queue.delay

    def apart(self, offset, until):
        self.ordered, before = False, self.ordered
        delay(self, offset, until)
        self.ordered = before

    patch.setattr(Queue, "delay", apart)


@mutant
def what_a_lost_connection_had_does_not_return(patch: Patch) -> None:
    detach = Queue.detach

    def careless(self, flight, end: Offset):
        flight.take_from(0)
        detach(self, flight, end)

    patch.setattr(Queue, "detach", careless)


@mutant
def expired_events_are_delivered(patch: Patch) -> None:
    send_new = Delivery._send_new

    def blind(self, queue, entries, after):
        send_new(self, queue, [entry._replace(expires=NEVER) for entry in entries], after)

    patch.setattr(Delivery, "_send_new", blind)


@mutant
def a_gap_is_not_told(patch: Patch) -> None:
    lose = QueueLag.lose

    def silent(self, queue, below):
        flights, queue.flights = queue.flights, []
        try:
            lose(self, queue, below)
        finally:
            queue.flights, queue.gap = flights, None

    patch.setattr(QueueLag, "lose", silent)


@mutant
def a_rejected_subscription_stays(patch: Patch) -> None:
    rejected = Core.rejected

    def keep(self, ticket, reason, now):
        for group in self._state.pending:
            group.rejected.clear()
        return rejected(self, ticket, reason, now)

    patch.setattr(Core, "rejected", keep)


# -- what clients may do -------------------------------------------------------------------------------


@mutant
def an_old_epoch_is_accepted(patch: Patch) -> None:
    patch.setattr(Greeting, "_check_resume", lambda self, session, message, principal: None)


@mutant
def a_filter_outside_the_rules_is_accepted(patch: Patch) -> None:
    patch.setattr(Grant, "check_subscribe", lambda self, wanted: None)


@mutant
def an_event_outside_the_rules_is_stored(patch: Patch) -> None:
    patch.setattr(Grant, "check_publish", lambda self, attributes: None)


@mutant
def an_event_that_was_not_advertised_is_stored(patch: Patch) -> None:
    check = Publishing._check

    def trusting(self, *args):
        self._advertised = False
        check(self, *args)

    patch.setattr(Publishing, "_check", trusting)


@mutant
def a_rate_is_not_limited(patch: Patch) -> None:
    patch.setattr(TokenBucket, "take", lambda self, monotonic: True)


@mutant
def a_limit_of_subscriptions_is_ignored(patch: Patch) -> None:
    check_new = Subscribing.check_new

    def generous(self, connection, message):
        limits = self.state.limits
        self.state.limits = replace(limits, subscriptions=1 << 30)
        try:
            return check_new(self, connection, message)
        finally:
            self.state.limits = limits

    patch.setattr(Subscribing, "check_new", generous)


@mutant
def a_forgotten_session_keeps_its_dead_letters(patch: Patch) -> None:
    rows_of = Requests.rows_of
    patch.setattr(Requests, "rows_of", lambda self, queue: rows_of(self, queue)[:1])


@mutant
def a_session_expires_too_early(patch: Patch) -> None:
    closed = Greeting.closed

    def hasty(self, connection, now):
        if connection.session is not None:
            connection.session.keep //= 10
        closed(self, connection, now._replace(utc=now.utc - 3_600_000_000))

    patch.setattr(Greeting, "closed", hasty)


@mutant
def events_are_dropped_and_nobody_is_told(patch: Patch) -> None:
    release = LossyQueue.release

    def silent(self):
        self.dropped = 0
        return release(self)

    patch.setattr(LossyQueue, "release", silent)


@mutant
def a_connection_that_reads_again_gets_nothing(patch: Patch) -> None:
    patch.setattr(Core, "resumed", lambda self, connection, now: [])


@mutant
def a_removed_dead_letter_stays(patch: Patch) -> None:
    def pretend(self, connection, message):
        queue = self._queue(connection, message)
        gone = tuple(offset for offset in message.offsets if self._row(queue, offset) is not None)
        self._state.out.send(connection.id, DeadDone(message.request, gone))

    patch.setattr(Dead, "drop", pretend)


@mutant
def older_events_begin_one_too_late(patch: Patch) -> None:
    find = MemoryLog.find
    patch.setattr(MemoryLog, "find", lambda self, at: find(self, at) + 1)


@mutant
def expiry_goes_by_a_clock_that_goes_back(patch: Patch) -> None:
    def now_and_then(self, now):
        self._state.at = now.utc

    patch.setattr(Core, "_begin", now_and_then)


@mutant
def a_session_that_was_not_stored_comes_back(patch: Patch) -> None:
    unwelcome = Greeting._unwelcome

    def careless(self, connection, session, epoch, reason, now):  # noqa: PLR0917
        unwelcome(self, connection, session, epoch, reason, now)
        self._state.draft.changes.append(Put(session.row()))

    patch.setattr(Greeting, "_unwelcome", careless)
