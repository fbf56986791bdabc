"""Mistakes of the client that simulated faults have found, each as a sentence."""

from __future__ import annotations

from client.client_lab import Lab, Line
from client.test_client_session import ONE, in_the_log, publish, stored, subscribed
from weft.client.effects import Answered, Arrived, Dial, Ended, HangUp, Ready, SessionEffect, WakeAt
from weft.client.session import ClientSession
from weft.client.subscription import AckBook, SubscriptionRequest
from weft.log.base import Offset
from weft.protocol.messages import (
    Accepted,
    Ack,
    BrokerMessage,
    Complete,
    Deliver,
    Failed,
    Gap,
    Nack,
    Ping,
    Pong,
    QueueNumber,
    Replace,
    Revoked,
    Subscribe,
    Welcome,
)

QUEUE = QueueNumber(1)


def delivery(offset: int, attempt: int = 1) -> Deliver:
    return Deliver(QUEUE, offset, attempt, 0, b"", b"", b"")


def book() -> AckBook:
    tokens = iter(range(1, 100))
    return AckBook(QUEUE, ordered=True, window=10, token=lambda: next(tokens))


def offsets(messages: list[Deliver]) -> list[int]:
    return [message.offset for message in messages]


# -- requests ----------------------------------------------------------------------------------------------------


def receives(session: ClientSession, line: Line, message: BrokerMessage) -> list[SessionEffect]:
    return session.received(line.number, [message], line.lab.now.monotonic)


def test_a_subscription_that_the_broker_has_outlives_a_full_log():
    """A second process goes on with it: the Replace is sent again, and deliveries are not ignored meanwhile."""
    lab = Lab()
    first, second = ClientSession("alerts"), ClientSession("alerts")
    subscribed(first)
    lab.connect(first).run()
    subscribed(second)
    line = lab.connect(second)
    line.to_broker()
    line.to_client()
    assert second.take() == [Replace(ONE, "x > 0")]
    effects = receives(second, line, Failed("replace", ONE, "full", "the disk is full"))
    assert not [each for each in effects if isinstance(each, (Answered, Ended))]
    (arrived,) = receives(second, line, delivery(1))
    assert isinstance(arrived, Arrived)
    second.tick(20_000_000)
    assert Replace(ONE, "x > 0") in second.take()


def test_a_subscription_that_was_complete_when_its_replacement_failed_becomes_complete():
    """What came while the Replace was on its way may be about a filter that others have forgotten since."""
    lab, session = Lab(), ClientSession("alerts")
    subscribed(session)
    line = lab.connect(session)
    line.run()
    state = session.subscriptions[ONE]
    session.ask(ONE, SubscriptionRequest("replace", "x > 1", "first"))
    session.take()
    receives(session, line, Accepted("replace", ONE, 1))
    session.ask(ONE, SubscriptionRequest("replace", "x > 2", "second"))
    session.take()
    assert receives(session, line, Complete(ONE, "replace")) == []
    receives(session, line, Failed("replace", ONE, "access", "no rule allows it"))
    assert not state.is_complete
    line.run()
    assert state.is_complete


def test_what_was_revoked_while_the_client_was_away_does_not_end_what_it_asks_for_now():
    session = ClientSession("alerts")
    subscribed(session)
    lab = Lab()
    line = lab.connect(session)
    line.run()
    line.cut()
    again = lab.connect(session)
    welcome = Welcome(2, session._before.session, 2, 1, 0, True, (), session._before.log_id)
    receives(session, again, welcome)
    assert [type(each) for each in session.take()] == [Subscribe]
    effects = receives(session, again, Revoked(ONE, "the rules have changed"))
    assert not [each for each in effects if isinstance(each, Ended)]
    receives(session, again, Accepted("subscribe", ONE, 5))
    (ended,) = receives(session, again, Revoked(ONE, "the rules have changed again"))
    assert (ended.number, ended.code) == (ONE, "access")


def test_a_subscription_whose_replacement_fails_is_still_there():
    """If it is given up because of that, and asked for again, it is not a new one."""
    lab, session = Lab(), ClientSession("alerts")
    subscribed(session)
    line = lab.connect(session)
    line.run()
    other = ClientSession("alerts")
    subscribed(other, "x >")  # cannot be read
    line = lab.connect(other)
    (answered,) = [each for each in line.run() if isinstance(each, Answered)]
    assert answered.code == "filter"
    subscribed(other, "x > 5")
    answered, _ = [each for each in line.run() if isinstance(each, Answered)]  # and that it is complete
    assert (answered.about, answered.code) == ("subscribe", "")


# -- publishing --------------------------------------------------------------------------------------------------


def test_another_session_of_the_same_name_is_not_the_one_of_before():
    """The old one has expired, and somebody else has begun a new one under its name."""
    lab, session = Lab(), ClientSession("p")
    publish(session, 1, 2, 3)
    line = lab.connect(session)
    line.run()
    line.cut()
    old = session._before
    publish(session, 4)
    line = lab.connect(session)
    (ready,) = receives(session, line, Welcome(2, old.session + 1, 2, 1, 0, True, (), old.log_id))
    assert isinstance(ready, Ready)
    assert not ready.kept
    assert [each.sequence for each in session.take()] == [1]


def test_numbers_that_were_never_sent_do_not_confirm_events():
    """A client whose hello was not answered may take its name back from another that has published meanwhile."""
    lab, first, second = Lab(), ClientSession("p"), ClientSession("p")
    line = lab.connect(first)
    line.run()
    line.cut()
    publish(first, 1)
    publish(second, 7, 8)
    lab.connect(second).run()
    silent = lab.connect(first)
    silent.there.clear()  # the hello is lost
    silent.cut()
    line = lab.connect(first)
    notices = line.run()
    assert stored(notices) == 1
    assert in_the_log(lab) == [7, 8, 1]


# -- negative acknowledgements -----------------------------------------------------------------------------------


def test_what_is_delivered_between_a_nack_and_its_ping_is_shown():
    """The broker may read them apart. A higher attempt shows that it knew of the Nack."""
    ordered = book()
    assert offsets(ordered.delivered([delivery(1), delivery(2), delivery(3)])) == [1, 2, 3]
    ordered.nack(1, 1, "no")
    assert ordered.delivered([delivery(4)]) == []  # sent before the broker knew
    assert offsets(ordered.delivered([delivery(2, 2), delivery(3, 2)])) == [2, 3]  # 1 has become a dead letter
    ordered.pong(1)
    assert offsets(ordered.delivered([delivery(4, 2)])) == [4]
    ordered.ack([2, 3, 4])
    ordered.check()
    assert ordered.take()[-1] == Ack(QUEUE, 5)


def test_a_delivery_shows_which_of_those_put_aside_do_not_come_again():
    ordered = book()
    ordered.delivered([delivery(1)])
    ordered.nack(1, 1, "no")
    assert ordered.delivered([delivery(2)]) == []
    ordered.pong(1)
    assert offsets(ordered.delivered([delivery(3)])) == [2, 3]  # 1 is a dead letter, and 2 was sent after that
    ordered.ack([2, 3])
    assert ordered.take()[-1] == Ack(QUEUE, 4)
    ordered.check()


def test_what_was_put_aside_twice_is_shown_once():
    ordered = book()
    ordered.delivered([delivery(1)])
    ordered.nack(1, 1, "no")
    assert ordered.delivered([delivery(2), delivery(2, 2)]) == []  # before the broker knew, and between Nack and Ping
    ordered.pong(1)
    assert ordered.delivered([delivery(3)]) == [delivery(2, 2), delivery(3)]
    ordered.ack([2, 3])
    assert ordered.take()[-1] == Ack(QUEUE, 4)
    ordered.check()


def test_of_two_nacks_the_later_takes_back_what_the_earlier_brought_again():
    ordered = book()
    ordered.delivered([delivery(offset) for offset in (1, 2, 3)])
    ordered.nack(3, 1, "no")
    ordered.nack(2, 1, "no")
    assert ordered.delivered([delivery(3, 2)]) == []  # the broker may not know of the second
    ordered.pong(1)
    assert ordered.delivered([delivery(4)]) == []
    ordered.pong(2)
    assert offsets(ordered.delivered([delivery(2, 2), delivery(3, 3), delivery(4, 2)])) == [2, 3, 4]
    ordered.check()


def test_without_another_delivery_the_client_connects_again():
    """Nobody knows whether what was put aside comes again."""
    session = ClientSession("alerts")
    state = subscribed(session)
    lab = Lab()
    line = lab.connect(session)
    line.run()
    receives(session, line, delivery(1))
    state.book.nack(1, 1, "no")
    assert [type(each) for each in session.take()] == [Nack, Ping]
    receives(session, line, delivery(2))
    receives(session, line, Pong(1))
    beat = 10_000_000
    assert not [each for each in session.tick(beat) if isinstance(each, HangUp)]
    session._last_read = 2 * beat  # the broker is there
    assert [type(each) for each in session.tick(2 * beat) if isinstance(each, (HangUp, Dial))] == [HangUp, Dial]


def test_a_gap_over_a_failed_event_makes_the_client_connect_again():
    """The broker may have lost it before or after it heard that it failed, and taken back what is behind, or not."""
    ordered = book()
    ordered.delivered([delivery(offset) for offset in (1, 2, 3, 4)])
    ordered.nack(3, 1, "no")
    ordered.nack(1, 1, "no")
    ordered.gap(1, 2)
    ordered.pong(2)
    assert ordered.delivered([delivery(3, 2)]) == []  # 2 may still be at the client as the broker sees it
    ordered.ack([2])
    assert ordered.take()[-1] == Ack(QUEUE, 3)
    assert ordered.is_overdue(0)
    ordered.lost()
    assert not ordered.is_overdue(0)
    assert offsets(ordered.delivered([delivery(2, 2), delivery(3, 3)])) == [3]  # 2 was acknowledged
    ordered.check()


def test_a_client_that_must_connect_again_after_a_gap_does_so_at_once():
    session = ClientSession("alerts")
    state = subscribed(session)
    line = Lab().connect(session)
    line.run()
    receives(session, line, delivery(1))
    assert state.book is not None
    state.book.nack(1, 1, "no")
    assert [type(each) for each in session.take()] == [Nack, Ping]
    now = line.lab.now.monotonic + 5
    (_, wake) = session.received(line.number, [Gap(QUEUE, Offset(1), Offset(2))], now)
    assert wake == WakeAt(now)
    session.check()
    assert [type(each) for each in session.tick(now) if isinstance(each, (HangUp, Dial))] == [HangUp, Dial]


def test_a_gap_after_the_broker_knew_of_the_failure_changes_nothing():
    ordered = book()
    ordered.delivered([delivery(offset) for offset in (1, 2)])
    ordered.nack(1, 1, "no")
    ordered.pong(1)
    ordered.gap(1, 2)
    assert not ordered.is_overdue(0)
    assert offsets(ordered.delivered([delivery(2, 2)])) == [2]
