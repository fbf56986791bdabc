"""Deliveries, acknowledgements, redeliveries, dead letters, slow connections."""

from __future__ import annotations

import pytest

from broker.harness import Broker, deliveries
from weft.broker.effects import ConnectionId
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.errors import LocalProtocolError
from weft.log.base import Offset, SeatId
from weft.protocol.messages import (
    Ack,
    AcksStored,
    AskStored,
    Bye,
    DeadDone,
    DeadLetters,
    DropDead,
    Dropped,
    Failed,
    Gap,
    Hello,
    ListDead,
    Nack,
    Ping,
    Pong,
    Publish,
    QueueNumber,
    RetryDead,
    SubNumber,
    Subscribe,
    Unsubscribe,
    Welcome,
)

ONE, TWO, Q = SubNumber(1), SubNumber(2), QueueNumber(0)
SECOND = 1_000_000


def events(*sequences: int) -> list[Publish]:
    return [Publish.of(sequence, {"x": 1}) for sequence in sequences]


def ack(floor: int, *ranges: tuple[int, int], queue: QueueNumber = Q) -> Ack:
    return Ack(queue, Offset(floor), ranges)  # type: ignore[arg-type]


def nack(offset: int, attempt: int = 1, queue: QueueNumber = Q) -> Nack:
    return Nack(queue, ((Offset(offset), attempt),), "no")


def subscribed(ordered: bool = True, **limits: int) -> Broker:
    broker = Broker(limits=ClientLimits(ack_delay=0, **limits))  # type: ignore[arg-type]
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1", ordered=ordered))
    return broker


# -- windows -----------------------------------------------------------------------------------------


def test_a_window_is_filled_and_goes_on_when_it_is_acknowledged() -> None:
    broker = subscribed(window_events=2)
    assert [o for o, _, _ in deliveries(broker.say("s", *events(1, 2, 3, 4)))] == [1, 2]
    assert [o for o, _, _ in deliveries(broker.say("s", ack(2)))] == [3]
    assert [o for o, _, _ in deliveries(broker.say("s", ack(4)))] == [4]


def test_a_window_is_limited_in_bytes_but_one_event_always_fits() -> None:
    broker = Broker()
    broker.hello("s", window_bytes=200)
    broker.say("s", Subscribe(ONE, "x = 1"))
    large = [Publish.of(n, {"x": 1}, b"x" * 200) for n in (1, 2, 3)]
    assert [o for o, _, _ in deliveries(broker.say("s", *large))] == [1]
    assert [o for o, _, _ in deliveries(broker.say("s", ack(2)))] == [2]


def test_ranges_above_the_floor_are_acknowledged_and_survive_a_restart() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2, 3, 4))
    broker.say("s", ack(0, (2, 4)))
    broker.restart()
    assert deliveries(broker.hello("s")) == [(1, 2, [1]), (4, 2, [1])]


@pytest.mark.parametrize(("newest", "again"), [(2, [1, 2, 3, 4]), (3, [1, 4])])
def test_ranges_count_for_what_another_connection_was_sent_from_version_3_on(newest: int, again: list[int]) -> None:
    broker = subscribed(window_events=1)
    broker.say("s", *events(1, 2, 3, 4))
    broker.restart()
    seen = deliveries(broker.hello("s", versions=(2, newest)))
    broker.say("s", ack(0, (2, 4)))
    for offset in (1, 2, 3, 4):
        seen += deliveries(broker.say("s", ack(offset + 1)))
    assert [offset for offset, _, _ in seen] == again


def test_acknowledgements_are_called_stored_when_they_are_and_the_client_has_asked() -> None:
    broker = Broker(at_once=False, limits=ClientLimits(ack_delay=0))
    broker.hello("s", versions=(2, 3))
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.say("s", *events(1, 2, 3))
    broker.commit(len(broker.persists))
    broker.say("s", ack(2))
    assert broker.commit() == [], "it has not asked"
    assert broker.say("s", AskStored(Q)) == [AcksStored(Q, 1)]
    assert broker.say("s", ack(3), AskStored(Q), ack(4)) == []
    broker.reject()
    broker.wait(2_000_000)
    assert [each for _, each in broker.commit()] == [AcksStored(Q, 3)]


def test_a_dead_letter_on_its_way_into_the_log_is_gone_if_another_consumer_had_handled_it() -> None:
    broker = Broker(limits=ClientLimits(failures=1))
    shared = Subscribe(ONE, "x = 1", Q, share="workers")
    broker.hello("a", versions=(2, 3))
    broker.say("a", shared)
    broker.say("a", *events(1))
    broker.cut("a")
    broker.hello("b", versions=(2, 3))
    assert deliveries(broker.say("b", shared)) == [(1, 2, [1])]
    broker.hello("a2", "a", versions=(2, 3))
    broker.say("a2", shared)
    broker.at_once = False
    broker.say("b", Nack(Q, ((Offset(1), 2),), "cannot"))
    broker.say("a2", ack(0, (1, 2)))  # what it had handled, and could not say
    while broker.persists:
        broker.commit()
    assert not any(broker.log.dead(SeatId(seat), Offset(0), 10) for seat in range(1, 20))


def test_what_was_not_acknowledged_returns_with_a_higher_attempt() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2))
    broker.say("s", ack(2))
    broker.cut("s")
    assert deliveries(broker.hello("t", "s")) == [(2, 2, [1])]
    broker.cut("t")
    assert deliveries(broker.hello("u", "s")) == [(2, 3, [1])]


def test_its_twin_what_was_acknowledged_does_not() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2))
    broker.say("s", ack(3))
    broker.cut("s")
    assert deliveries(broker.hello("t", "s")) == []
    broker.restart()
    assert deliveries(broker.hello("s")) == []


def test_a_queue_collects_while_nobody_is_connected() -> None:
    broker = subscribed()
    broker.cut("s")
    broker.hello("p")
    broker.say("p", *events(1, 2))
    assert deliveries(broker.hello("t", "s")) == [(1, 1, [1]), (2, 1, [1])]


def test_a_queue_that_is_far_behind_reads_from_the_log_in_turns() -> None:
    broker = Broker(limits=ClientLimits(tail=1, turn=3))
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.cut("s")
    broker.hello("p")
    for sequence in range(1, 21):
        broker.say("p", Publish.of(sequence, {"x": sequence % 2}))
    before = len(broker.sent)
    broker.hello("t", "s")
    found = deliveries([message for to, message in broker.sent[before:] if to == "t"])
    assert found == [(offset, 1, [1]) for offset in range(1, 21, 2)]


# -- failures ----------------------------------------------------------------------------------------


def test_in_an_ordered_queue_a_failure_holds_everything_behind_it() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2, 3))
    assert deliveries(broker.say("s", nack(2))) == []
    assert deliveries(broker.say("s", *events(4))) == []
    before = len(broker.sent)
    broker.wait(SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == [(2, 2, [1]), (3, 2, [1]), (4, 1, [1])]


def test_in_an_unordered_queue_only_the_failed_event_waits() -> None:
    broker = subscribed(ordered=False)
    broker.say("s", *events(1, 2, 3))
    broker.say("s", nack(2))
    assert deliveries(broker.say("s", *events(4))) == [(4, 1, [1])]
    before = len(broker.sent)
    broker.wait(SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == [(2, 2, [1])]


def test_each_failure_doubles_the_wait() -> None:
    broker = subscribed()
    broker.say("s", *events(1))
    for failure, wait in enumerate((SECOND, 2 * SECOND, 4 * SECOND), 2):
        broker.say("s", nack(1, failure - 1))
        broker.wait(wait - 1)
        before = len(broker.sent)
        broker.wait(1)
        assert deliveries([m for _, m in broker.sent[before:]]) == [(1, failure, [1])]


def test_an_acknowledgement_after_a_failure_counts() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2))
    broker.say("s", nack(1))
    broker.say("s", ack(0, (1, 3)))
    before = len(broker.sent)
    broker.wait(10 * SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == []
    assert deliveries(broker.say("s", *events(3))) == [(3, 1, [1])]


def fail_often(broker: Broker, offset: int, times: int, first: int = 1) -> None:
    for attempt in range(first, first + times):
        broker.say("s", nack(offset, attempt))
        broker.wait(60 * SECOND)


@pytest.mark.parametrize("ordered", [True, False])
def test_after_five_failures_an_event_is_a_dead_letter_and_the_queue_goes_on(ordered: bool) -> None:
    broker = subscribed(ordered)
    broker.say("s", *events(1, 2))
    broker.say("s", ack(0, (2, 3)))
    fail_often(broker, 1, 5)
    (letters,) = broker.say("s", ListDead(7, Q))
    assert isinstance(letters, DeadLetters)
    assert [(each.offset, each.failures, each.reason) for each in letters.letters] == [(1, 5, "no")]
    assert deliveries(broker.say("s", *events(3))) == [(3, 1, [1])]
    broker.say("s", ack(4))
    broker.restart()
    assert deliveries(broker.hello("s")) == []
    assert broker.say("s", ListDead(8, Q)) == [DeadLetters(8, letters.letters, False)]


def test_failures_are_counted_across_a_restart() -> None:
    broker = subscribed()
    broker.say("s", *events(1))
    fail_often(broker, 1, 4)
    broker.restart()
    assert deliveries(broker.hello("s")) == [(1, 2, [1])]
    fail_often(broker, 1, 1, first=2)
    (letters,) = broker.say("s", ListDead(7, Q))
    assert isinstance(letters, DeadLetters)
    assert len(letters.letters) == 1


def test_a_dead_letter_that_is_tried_again_and_acknowledged_is_gone() -> None:
    broker = subscribed()
    broker.say("s", *events(1))
    fail_often(broker, 1, 5)
    answers = broker.say("s", RetryDead(1, Q, (Offset(1), Offset(9))))
    assert deliveries(answers) == [(1, 6, [1])]
    assert answers[-1] == DeadDone(1, (Offset(1),))
    broker.say("s", ack(0, (1, 2)))
    assert broker.say("s", ListDead(2, Q)) == [DeadLetters(2, (), False)]


def test_a_dead_letter_that_fails_again_leaves_room_for_the_next_event() -> None:
    broker = subscribed(window_events=1)
    broker.say("s", *events(1))
    fail_often(broker, 1, 5)
    assert deliveries(broker.say("s", RetryDead(1, Q, (Offset(1),)))) == [(1, 6, [1])]
    assert deliveries(broker.say("s", *events(2))) == [], "the window is full"
    assert deliveries(broker.say("s", nack(1, 6))) == [(2, 1, [1])]


@pytest.mark.parametrize("stored", [True, False])
def test_an_attempt_that_succeeds_after_an_earlier_one_failed_too_often_removes_the_dead_letter(
    stored: bool,
) -> None:
    """An application may have two copies of an event in hand, and fail with the later one first."""
    broker = subscribed(failures=1)
    broker.say("s", *events(1))
    broker.at_once = stored
    broker.say("s", nack(1))
    broker.say("s", ack(0, (1, 2)))
    broker.at_once = True
    broker.wait(10_000_000)
    assert broker.say("s", ListDead(2, Q)) == [DeadLetters(2, (), False)]
    assert deliveries(broker.say("s", RetryDead(3, Q, (Offset(1),)))) == []


def test_its_twin_one_that_fails_again_stays() -> None:
    broker = subscribed()
    broker.say("s", *events(1))
    fail_often(broker, 1, 5)
    broker.say("s", RetryDead(1, Q, (Offset(1),)))
    broker.say("s", nack(1, 6))
    (letters,) = broker.say("s", ListDead(2, Q))
    assert isinstance(letters, DeadLetters)
    assert len(letters.letters) == 1
    assert broker.say("s", DropDead(3, Q, (Offset(1),))) == [DeadDone(3, (Offset(1),))]
    assert broker.say("s", ListDead(4, Q)) == [DeadLetters(4, (), False)]


def test_a_full_log_refuses_to_remove_a_dead_letter() -> None:
    broker = subscribed(failures=1)
    broker.say("s", *events(1))
    broker.say("s", nack(1))
    broker.log.fail_commits(1)
    (failed,) = broker.say("s", DropDead(3, Q, (Offset(1),)))
    assert isinstance(failed, Failed)
    assert (failed.about, failed.number, failed.code) == ("drop dead", 3, "full")
    (letters,) = broker.say("s", ListDead(4, Q))
    assert isinstance(letters, DeadLetters)
    assert [letter.offset for letter in letters.letters] == [1]


def test_a_negative_acknowledgement_that_crosses_the_next_attempt_is_ignored() -> None:
    broker = subscribed(failures=2)
    broker.say("s", *events(1, 2))
    broker.say("s", nack(1))  # takes event 2 back, too
    broker.wait(SECOND)  # both are on their way again
    before = len(broker.sent)
    broker.say("s", nack(2), nack(2))  # was sent before
    broker.wait(60 * SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == []
    assert broker.say("s", ListDead(1, Q)) == [DeadLetters(1, (), False)]
    broker.say("s", ack(3))
    broker.restart()
    assert deliveries(broker.hello("s")) == []


def test_its_twin_one_about_the_latest_attempt_counts() -> None:
    broker = subscribed(failures=2)
    broker.say("s", *events(1, 2))
    broker.say("s", nack(1))
    broker.wait(SECOND)
    before = len(broker.sent)
    broker.say("s", nack(2, 2))
    broker.wait(60 * SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == [(2, 3, [1])]


def test_a_late_answer_to_an_attempt_before_a_dead_letter_is_not_taken_for_one_to_its_retry() -> None:
    broker = subscribed(failures=1)
    broker.say("s", *events(1, 2))
    broker.say("s", nack(1))  # event 2 goes back without having failed
    broker.wait(SECOND)
    broker.say("s", nack(2, 2))
    assert deliveries(broker.say("s", RetryDead(1, Q, (Offset(2),)))) == [(2, 3, [1])]
    broker.say("s", nack(2, 2))
    broker.say("s", ack(0, (2, 3)))
    (letters,) = broker.say("s", ListDead(2, Q))
    assert isinstance(letters, DeadLetters)
    assert [each.offset for each in letters.letters] == [1]


def test_when_the_log_is_full_a_dead_letter_is_not_lost() -> None:
    broker = subscribed(failures=1)
    broker.say("s", *events(1))
    broker.at_once = False
    broker.say("s", nack(1))
    broker.reject()
    broker.at_once = True
    before = len(broker.sent)
    broker.wait(60 * SECOND)
    assert deliveries([m for _, m in broker.sent[before:]]) == [(1, 2, [1])]


# -- shared queues -----------------------------------------------------------------------------------


def sharing() -> Broker:
    broker = Broker(limits=ClientLimits(ack_delay=0))
    for name in ("a", "b"):
        broker.connect(name)
        broker.say(name, Hello())
        broker.say(name, Subscribe(ONE, "x = 1", share="work"))
    return broker


def test_consumers_of_a_shared_queue_take_turns() -> None:
    broker = sharing()
    broker.hello("p")
    before = len(broker.sent)
    broker.say("p", *events(1, 2, 3, 4))
    got = {name: [m.offset for to, m in broker.sent[before:] if to == name] for name in "ab"}  # type: ignore[union-attr]
    assert sorted(got["a"] + got["b"]) == [1, 2, 3, 4]
    assert len(got["a"]) == len(got["b"]) == 2


def test_what_a_consumer_leaves_behind_goes_to_another() -> None:
    broker = sharing()
    broker.hello("p")
    broker.say("p", *events(1, 2))
    before = len(broker.sent)
    broker.cut("a")
    ((to, message),) = broker.sent[before:]
    assert (to, deliveries([message])[0][1]) == ("b", 2)


def test_a_shared_queue_outlives_its_consumers_and_restarts() -> None:
    broker = sharing()
    broker.cut("a")
    broker.cut("b")
    broker.hello("p")
    broker.say("p", *events(1))
    broker.restart()
    broker.connect("c")
    broker.say("c", Hello())
    assert deliveries(broker.say("c", Subscribe(TWO, "x = 1", share="work"))) == [(1, 2, [2])]


def test_the_last_consumer_that_unsubscribes_ends_a_shared_queue() -> None:
    broker = sharing()
    broker.say("a", Unsubscribe(ONE))
    assert len(broker.log.restore().subs) == 2
    broker.say("b", Unsubscribe(ONE))
    assert broker.log.restore().subs == {}


def test_all_consumers_of_a_shared_queue_have_one_filter() -> None:
    broker = sharing()
    broker.connect("c")
    broker.say("c", Hello())
    (answer,) = broker.say("c", Subscribe(ONE, "x = 2", share="work"))
    reason = "the shared queue 'work' has another filter: x = 1; use that, or another name"
    assert answer == Failed("subscribe", ONE, "filter", reason)
    assert len(broker.log.restore().subs) == 2, "nothing has changed"


# -- slow connections --------------------------------------------------------------------------------


def test_a_paused_connection_gets_nothing_until_it_is_resumed() -> None:
    broker = subscribed()
    broker.core.paused(ConnectionId("s"))
    assert deliveries(broker.say("s", *events(1))) == []
    assert deliveries(broker.do(broker.core.resumed(ConnectionId("s"), broker.now), "s")) == [(1, 1, [1])]


def lossy(**options: bool) -> Broker:
    broker = Broker(limits=ClientLimits(held=2))
    broker.connect("s")
    broker.say("s", Hello(), Subscribe(ONE, "x = 1", **options))  # type: ignore[arg-type]
    broker.hello("p")
    broker.core.paused(ConnectionId("s"))
    return broker


def test_a_queue_that_is_not_durable_drops_its_oldest_events_and_counts_them() -> None:
    broker = lossy()
    broker.say("p", *events(1, 2, 3, 4))
    answers = broker.do(broker.core.resumed(ConnectionId("s"), broker.now), "s")
    assert answers[0] == Dropped(Q, 2)
    assert [o for o, _, _ in deliveries(answers)] == [3, 4]


def test_or_its_connection_is_closed_and_the_publisher_notices_nothing() -> None:
    broker = lossy(disconnect=True)
    answers = broker.say("p", *events(1, 2, 3, 4))
    assert len(answers) == 1
    assert broker.closed == ["s"]


def test_a_durable_queue_that_is_too_far_behind_loses_its_oldest_events_and_is_told() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1", lag=3))
    broker.cut("s")
    broker.hello("p")
    for sequence in range(1, 7):
        broker.say("p", *events(sequence))
    answers = broker.hello("t", "s")
    assert Gap(Q, Offset(1), Offset(4)) in answers
    assert [o for o, _, _ in deliveries(answers)] == [4, 5, 6]


def test_or_its_connection_is_closed_and_nothing_is_lost() -> None:
    broker = Broker(limits=ClientLimits(window_events=1))
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1", lag=3, disconnect=True))
    broker.hello("p")
    for sequence in range(1, 6):
        broker.say("p", *events(sequence))
    assert broker.closed == ["s"]
    assert deliveries(broker.hello("t", "s"))[0] == (1, 2, [1])


# -- connections -------------------------------------------------------------------------------------


def test_a_newer_connection_takes_the_session_over_and_the_older_is_closed() -> None:
    broker = subscribed()
    broker.say("s", *events(1))
    answers = broker.hello("t", "s")
    assert isinstance(answers[0], Welcome)
    assert answers[0].epoch == 2
    assert deliveries(answers) == [(1, 2, [1])]
    assert broker.closed == ["s"]
    assert broker.say("s", ack(2)) == []
    broker.cut("t")
    assert deliveries(broker.hello("u", "s")) == [(1, 3, [1])]


def test_an_older_epoch_does_not() -> None:
    broker = subscribed()
    broker.hello("t", "s", epoch=5)
    (bye,) = broker.hello("u", "s", epoch=5)
    assert isinstance(bye, Bye)
    assert broker.closed == ["s", "u"]


def test_a_session_belongs_to_whom_created_it() -> None:
    broker = Broker(authenticate=lambda credentials: Identity(credentials.decode()))
    broker.hello("s", credentials=b"ann")
    (bye,) = broker.hello("t", "s", credentials=b"bob")
    assert isinstance(bye, Bye)
    assert broker.closed == ["t"]


def test_a_connection_begins_with_a_hello() -> None:
    broker = Broker()
    broker.connect("s")
    (bye,) = broker.say("s", Ping(1))
    assert isinstance(bye, Bye)
    broker.connect("t")
    broker.wait(11 * SECOND)
    assert broker.closed == ["s", "t"]


def test_a_silent_connection_is_closed_and_a_ping_keeps_it() -> None:
    broker = Broker(limits=ClientLimits(idle=10 * SECOND))
    broker.hello("s")
    broker.wait(9 * SECOND)
    assert broker.say("s", Ping(3)) == [Pong(3)]
    broker.wait(9 * SECOND)
    assert broker.closed == []
    broker.wait(2 * SECOND)
    assert broker.closed == ["s"]


def test_a_principal_has_a_number_of_connections() -> None:
    broker = Broker(limits=ClientLimits(connections=1))
    broker.hello("s")
    (bye,) = broker.hello("t")
    assert bye == Bye("refused", "a principal has at most 1 connections")
    assert broker.closed == ["t"]


def test_a_driver_that_breaks_the_rules_is_told() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.hello("t")
    with pytest.raises(LocalProtocolError, match="not the next"):
        broker.core.committed(broker.persists[1].ticket, broker.now)
    with pytest.raises(LocalProtocolError, match="not on its way"):
        broker.core.rejected(broker.persists[1].ticket + 1, "", broker.now)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="already"):
        broker.core.connected(ConnectionId("s"), broker.now)


# -- retention ---------------------------------------------------------------------------------------


def test_the_log_is_needed_from_the_lowest_stored_floor_on() -> None:
    broker = subscribed()
    broker.say("s", *events(1, 2, 3))
    assert broker.core.needed == 1
    broker.say("s", ack(3))
    assert broker.core.needed == 3


def test_a_queue_that_nothing_matches_does_not_hold_the_log() -> None:
    broker = subscribed()
    broker.hello("p")
    broker.say("p", *[Publish.of(n, {"x": 2}) for n in (1, 2, 3)])
    broker.do(broker.core.store_floors(broker.now))
    assert broker.core.needed == 4
    broker.restart()
    assert deliveries(broker.hello("s")) == []


def test_a_queue_that_reads_from_the_log_does_not_see_groups_that_the_core_does_not_know_to_be_stored() -> None:
    broker = Broker(at_once=False, limits=ClientLimits(tail=1, window_events=3))
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit(2)
    broker.say("s", *events(1, 2, 3, 4))
    broker.say("s", *events(5))
    broker.say("s", *events(6))
    first, second, third = broker.persists
    broker.log.commit([each.group for each in broker.persists])  # one transaction; the core hears of it one by one
    broker.take(broker.core.committed(first.ticket, broker.now))
    broker.take(broker.core.committed(second.ticket, broker.now))
    assert [o for o, _, _ in deliveries(broker.say("s", ack(4)))] == [4, 5]
    broker.take(broker.core.committed(third.ticket, broker.now))
    assert deliveries([message for _, message in broker.sent])[-1] == (6, 1, [1])
    broker.core.check()


def test_what_a_slow_connection_may_have_waiting_is_limited_in_bytes_too() -> None:
    broker = Broker(limits=ClientLimits(held_bytes=1_000))
    broker.connect("s")
    broker.say("s", Hello(), Subscribe(ONE, "x = 1"))
    broker.hello("p")
    broker.core.paused(ConnectionId("s"))
    broker.say("p", *[Publish.of(n, {"x": 1}, b"x" * 400) for n in (1, 2, 3, 4)])
    answers = broker.do(broker.core.resumed(ConnectionId("s"), broker.now), "s")
    assert answers[0] == Dropped(Q, 2)
    assert [o for o, _, _ in deliveries(answers)] == [3, 4]


# -- gaps that a client may not have heard of ----------------------------------------------------------


def behind() -> Broker:
    """A queue that may be one event behind, and has lost three."""
    broker = Broker(limits=ClientLimits(ack_delay=0))
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1", lag=1))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", *events(1, 2, 3, 4))
    return broker


def gaps(messages: list[object]) -> list[object]:
    return [message for message in messages if isinstance(message, Gap)]


def test_a_gap_is_told_on_each_connection_until_what_follows_is_acknowledged() -> None:
    broker = behind()
    lost = [Gap(Q, Offset(1), Offset(4))]
    assert gaps(broker.hello("s1", "s")) == lost  # type: ignore[arg-type]
    broker.cut("s1")
    assert gaps(broker.hello("s2", "s")) == lost  # type: ignore[arg-type]
    broker.say("s2", ack(5))
    broker.cut("s2")
    assert gaps(broker.hello("s3", "s")) == []  # type: ignore[arg-type]


def test_a_gap_is_told_after_a_restart() -> None:
    broker = behind()
    broker.restart()
    assert gaps(broker.hello("t", "s")) == [Gap(Q, Offset(1), Offset(4))]  # type: ignore[arg-type]
    broker.say("t", ack(5))
    broker.restart()
    assert gaps(broker.hello("u", "s")) == []  # type: ignore[arg-type]


def test_a_dead_letter_on_its_way_is_not_lost_when_its_queue_is_too_far_behind() -> None:
    broker = Broker(at_once=False, limits=ClientLimits(ack_delay=0, failures=1))
    broker.hello("s")
    broker.commit()
    broker.say("s", Subscribe(ONE, "x = 1", lag=1))
    broker.hello("p")
    broker.commit(2)
    broker.say("p", *events(1))
    broker.commit()
    broker.say("p", *events(2, 3, 4))
    broker.say("s", nack(1))  # it is to become a dead letter
    broker.commit()  # the events: the queue is too far behind
    broker.reject()  # the dead letter is not stored
    broker.wait(60 * SECOND)
    broker.at_once = True
    broker.do([])
    broker.wait(60 * SECOND)
    sent = deliveries([message for to, message in broker.sent if to == "s"])
    assert (1, 2, [1]) in sent, "it is neither a dead letter nor in a gap, so it returns"
