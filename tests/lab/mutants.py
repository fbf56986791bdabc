"""Faults planted into the broker: each breaks one promise, and the simulation must notice it.

A mutant patches one method. The names are those of the reference of faults for one broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from weft.broker.backlog import BacklogCounter
from weft.broker.broker import Core
from weft.broker.commit import Commit
from weft.broker.completion import Completion
from weft.broker.dead_letters import FailedDeliveries
from weft.broker.delivery import Delivery
from weft.broker.effects import Now
from weft.broker.hello import ClientConnections
from weft.broker.ingest import Ingest
from weft.broker.journal import Journal
from weft.broker.limits import TokenBucket
from weft.broker.queue import Queue
from weft.broker.rules import Grant
from weft.broker.sessions import ClientSubscription, Queues
from weft.broker.subscriptions import ClientSubscriptions
from weft.broker.transient_queue import TransientQueue
from weft.errors import LogFailedError
from weft.log.base import NEVER, Offset, Put
from weft.log.memory import MemoryLog
from weft.protocol.messages import Ack, AcksStored, DeadDone, Replace

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


@mutant
def acknowledge_before_sync(patch: Patch) -> None:
    publish = Ingest.publish

    def early(self, connection, messages, now):
        publish(self, connection, messages, now)
        session = connection.session
        self.confirm(session, connection.id, session.pub_epoch, session.pub_received)

    patch.setattr(Ingest, "publish", early)


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
    change, accepted = ClientSubscriptions.replace, Completion.accepted
    waiting: dict[int, list] = {}

    def late(self, connection, message: Replace, now: Now):
        matcher, put_off = self._matcher, []
        real = matcher.replace
        matcher.replace = lambda *args: put_off.append(args) or []
        try:
            change(self, connection, message, now)
        finally:
            matcher.replace = real
        for value in self._journal.write.waiting[-1:] if put_off else ():
            waiting[id(value.announcement)] = [value.announcement, self, real, *put_off[0]]

    def stored(self, announcement):
        if id(announcement) in waiting:
            _, subscriptions, real, *args = waiting.pop(id(announcement))
            subscriptions._links.tell(real(*args))
        accepted(self, announcement)

    patch.setattr(ClientSubscriptions, "replace", late)
    patch.setattr(Completion, "accepted", stored)


@mutant
def a_consumer_id_is_used_again(patch: Patch) -> None:
    new_consumer, init = Journal.new_consumer, Queues.__init__

    def knows_its_queues(self, journal, *args):
        init(self, journal, *args)
        journal.queues = self

    def again(self):
        used = {each for queue in self.queues.all for each in (queue.consumer_id, *queue.members)}
        free = [each for each in range(1, self.next_consumer) if each not in used]
        return free[0] if free else new_consumer(self)

    patch.setattr(Queues, "__init__", knows_its_queues)
    patch.setattr(Journal, "new_consumer", again)


@mutant
def ranges_of_an_acknowledgement_are_ignored(patch: Patch) -> None:
    ack = Delivery.ack
    patch.setattr(Delivery, "ack", lambda self, queue, window, m: ack(self, queue, window, Ack(m.queue, m.floor)))


@mutant
def a_floor_is_one_too_high(patch: Patch) -> None:
    ack = Queue.ack
    patch.setattr(Queue, "ack", lambda self, window, below, ranges, end: ack(self, window, below + 1, ranges, end))


@mutant
def an_acknowledgement_of_an_earlier_connection_is_ignored(patch: Patch) -> None:
    patch.setattr(Queue, "_ack_elsewhere", lambda self, ranges, end: [])


@mutant
def acknowledgements_are_called_stored_before_they_are(patch: Patch) -> None:
    ack = Delivery.ack

    def early(self, queue, window, message):
        ack(self, queue, window, message)
        self._out.send(window.connection, AcksStored(window.queue_number, window.acks))

    patch.setattr(Delivery, "ack", early)


@mutant
def retention_removes_what_is_not_acknowledged(patch: Patch) -> None:
    patch.setattr(Core, "needed", property(lambda self: self.end))


@mutant
def an_old_connection_is_not_fenced(patch: Patch) -> None:
    hello = ClientConnections.hello

    def lenient(self, connection, message, now):
        session = self._sessions.by_name.get(message.session)
        old = session.connection if session is not None else None
        if old is not None:
            session.connection = None
        hello(self, connection, message, now)

    patch.setattr(ClientConnections, "hello", lenient)


@mutant
def duplicates_of_publishers_are_stored(patch: Patch) -> None:
    hello = ClientConnections.hello

    def forgetful(self, connection, message, now):
        session = self._sessions.by_name.get(message.session)
        if session is not None:
            session.pub_received = 0
        hello(self, connection, message, now)

    patch.setattr(ClientConnections, "hello", forgetful)


@mutant
def a_redelivery_looks_like_a_first_one(patch: Patch) -> None:
    patch.setattr(Queue, "attempt", lambda self, offset: 1)


@mutant
def a_late_negative_acknowledgement_counts(patch: Patch) -> None:
    nack = Queue.nack

    def late(self, window, attempts, most):
        return nack(self, window, [(offset, self.attempt(offset)) for offset, _ in attempts], most)

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

    def careless(self, window, end: Offset):
        window.take_from(0)
        detach(self, window, end)

    patch.setattr(Queue, "detach", careless)


@mutant
def expired_events_are_delivered(patch: Patch) -> None:
    send_new = Delivery._send_new

    def blind(self, queue, entries, after):
        send_new(self, queue, [entry._replace(expires=NEVER) for entry in entries], after)

    patch.setattr(Delivery, "_send_new", blind)


@mutant
def a_gap_is_not_told(patch: Patch) -> None:
    lose = Delivery.lose

    def silent(self, queue, below, unsent=None):
        lose(self, queue, below, unsent)
        queue.gap = None

    patch.setattr(Delivery, "lose", silent)


@mutant
def lag_counts_the_events_of_others(patch: Patch) -> None:
    def by_offset(self, queue):
        self.lose(queue, Offset(self._journal.end - self._lag_of(queue)))

    patch.setattr(Delivery, "check_lag", by_offset)


@mutant
def events_before_a_restart_are_not_counted(patch: Patch) -> None:
    def blind(self, queues, end):
        for queue in queues:
            queue.counted = True

    patch.setattr(BacklogCounter, "begin", blind)


@mutant
def a_rejected_subscription_stays(patch: Patch) -> None:
    patch.setattr(Commit, "_undo", lambda self, value, reason, now: None)


# -- what clients may do -------------------------------------------------------------------------------


@mutant
def a_refused_event_undoes_every_later_group(patch: Patch) -> None:
    rejected = Commit.rejected

    def everything(self, groups, reason, now):
        for group in groups:
            group.first = group.first or Offset(1)
        rejected(self, groups, reason, now)

    patch.setattr(Commit, "rejected", everything)


@mutant
def a_subscription_behind_refused_events_begins_too_late(patch: Patch) -> None:
    patch.setattr(ClientSubscription, "begin_by", lambda *_: None)


@mutant
def a_session_behind_refused_events_has_their_sequence(patch: Patch) -> None:
    corrected = Commit._corrected_row

    def rows_only(self, change, following, marks):
        return corrected(self, change, following, {})

    patch.setattr(Commit, "_corrected_row", rows_only)
    patch.setattr(Commit, "_corrected", staticmethod(lambda value, *_: value))


@mutant
def an_old_epoch_is_accepted(patch: Patch) -> None:
    patch.setattr(ClientConnections, "_check_resume", lambda self, session, message, principal: None)


@mutant
def a_filter_outside_the_rules_is_accepted(patch: Patch) -> None:
    patch.setattr(Grant, "check_subscribe", lambda self, wanted: None)


@mutant
def an_event_outside_the_rules_is_stored(patch: Patch) -> None:
    patch.setattr(Grant, "check_publish", lambda self, attributes: None)


@mutant
def an_event_that_was_not_advertised_is_stored(patch: Patch) -> None:
    check = Ingest._check

    def trusting(self, *args):
        self.is_advertised = False
        check(self, *args)

    patch.setattr(Ingest, "_check", trusting)


@mutant
def a_rate_is_not_limited(patch: Patch) -> None:
    patch.setattr(TokenBucket, "take", lambda self, monotonic: True)


@mutant
def a_limit_of_subscriptions_is_ignored(patch: Patch) -> None:
    check_new = ClientSubscriptions.check_new

    def generous(self, connection, message):
        limits = self._limits
        self._limits = replace(limits, subscriptions=1 << 30)
        try:
            return check_new(self, connection, message)
        finally:
            self._limits = limits

    patch.setattr(ClientSubscriptions, "check_new", generous)


@mutant
def a_forgotten_session_keeps_its_dead_letters(patch: Patch) -> None:
    rows_of = Queues.rows_of
    patch.setattr(Queues, "rows_of", lambda self, queue: rows_of(self, queue)[:1])


@mutant
def a_session_expires_too_early(patch: Patch) -> None:
    closed = ClientConnections.closed

    def hasty(self, connection, now):
        if connection.session is not None:
            connection.session.keep //= 10
        closed(self, connection, now._replace(utc=now.utc - 3_600_000_000))

    patch.setattr(ClientConnections, "closed", hasty)


@mutant
def events_are_dropped_and_nobody_is_told(patch: Patch) -> None:
    release = TransientQueue.release

    def silent(self):
        self.dropped = 0
        return release(self)

    patch.setattr(TransientQueue, "release", silent)


@mutant
def a_connection_that_reads_again_gets_nothing(patch: Patch) -> None:
    patch.setattr(Core, "resumed", lambda self, connection, now: [])


@mutant
def a_removed_dead_letter_stays(patch: Patch) -> None:
    def pretend(self, connection, message, _):
        queue = self._queue(connection, message)
        gone = tuple(offset for offset in message.offsets if self._row(queue, offset) is not None)
        self._out.send(connection.id, DeadDone(message.request, gone))

    patch.setattr(FailedDeliveries, "drop", pretend)


@mutant
def older_events_begin_one_too_late(patch: Patch) -> None:
    find = MemoryLog.find
    patch.setattr(MemoryLog, "find", lambda self, at: find(self, at) + 1)


@mutant
def expiry_goes_by_a_clock_that_goes_back(patch: Patch) -> None:
    def now_and_then(self, now):
        self._journal.at = now.utc

    patch.setattr(Core, "_begin", now_and_then)


@mutant
def a_session_that_was_not_stored_comes_back(patch: Patch) -> None:
    undo = ClientConnections.undo_welcome

    def careless(self, welcomed, reason, now):
        undo(self, welcomed, reason, now)
        self._journal.write.changes.append(Put(welcomed.session.row()))

    patch.setattr(ClientConnections, "undo_welcome", careless)
