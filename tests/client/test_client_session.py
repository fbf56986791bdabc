"""A client's session against a real broker core, without sockets."""

from __future__ import annotations

import msgspec
import pytest

from client.client_lab import Lab
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.client.effects import Answered, Arrived, Closed, Ended, Missed, Replied, Stored
from weft.client.events import outgoing
from weft.client.publisher import NotStored
from weft.client.session import ClientSession, SessionState
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.protocol.codec import encode
from weft.protocol.messages import (
    STRIDE,
    Ack,
    Deliver,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Ping,
    Publish,
    Replace,
    RetryDead,
    SubNumber,
    Subscribe,
)

ONE = SubNumber(1)


def subscribed(session: ClientSession, filter: str = "x > 0", **options: object) -> SubscriptionState:
    given = SubscriptionOptions(**{"durable": True, **options})  # type: ignore[arg-type]
    state = SubscriptionState(ONE, given, window=1_000, token=session.token)
    session.subscribe(state, SubscriptionRequest("subscribe", filter, "subscribed"))
    return state


def publish(session: ClientSession, *xs: int) -> None:
    session.publisher.add([outgoing({"x": x}) for x in xs])


def shown(notices: list[object]) -> list[tuple[int, int]]:
    """(x, attempt) of every event that the application is shown."""
    found = [message for notice in notices if isinstance(notice, Arrived) for message in notice.messages]
    return [(x_of(message), message.attempt) for message in found]


def x_of(message: Deliver) -> int:
    return int(msgspec.msgpack.decode(message.head)[0]["x"])


def stored(notices: list[object]) -> int:
    return sum(len(notice.events) for notice in notices if isinstance(notice, Stored))


def in_the_log(lab: Lab) -> list[int]:
    heads = [head for group in lab.log.read(lab.log.restore().first, 10_000) for head in group.events.heads]
    return [msgspec.msgpack.decode(head)[0]["x"] for head in heads]


# -- publishing --------------------------------------------------------------------------------------------------


def test_events_are_numbered_confirmed_and_stored_in_order():
    lab, session = Lab(), ClientSession()
    line = lab.connect(session)
    publish(session, 1, 2, 3)
    assert stored(line.run()) == 3
    assert [each.sequence for each in line.said if isinstance(each, Publish)] == [1, 2, 3]
    assert in_the_log(lab) == [1, 2, 3]


def test_what_was_stored_without_a_confirmation_is_not_stored_again():
    lab, session = Lab(), ClientSession("p")
    line = lab.connect(session)
    line.run()
    publish(session, 1, 2)
    line.flush()
    line.to_broker()  # stored, and the confirmation is lost
    line.cut()
    publish(session, 3)
    assert stored(lab.connect(session).run()) == 3
    assert in_the_log(lab) == [1, 2, 3]


def test_without_a_name_it_may_be_stored_twice():
    lab, session = Lab(), ClientSession()
    line = lab.connect(session)
    line.run()
    publish(session, 1)
    line.flush()
    line.to_broker()
    line.cut()
    assert stored(lab.connect(session).run()) == 1
    assert in_the_log(lab) == [1, 1]


def test_a_new_client_of_the_same_name_goes_on_after_the_last_event():
    lab = Lab()
    first, second = ClientSession("p"), ClientSession("p")
    publish(first, 1, 2)
    lab.connect(first).run()
    publish(second, 3)
    line = lab.connect(second)
    assert stored(line.run()) == 1
    assert [each.sequence for each in line.said if isinstance(each, Publish)] == [3]
    assert in_the_log(lab) == [1, 2, 3]


def test_a_refused_event_is_reported_alone_and_the_others_are_stored_in_order():
    lab, session = Lab(Rules({"": Rights(publish=("x != 3",))})), ClientSession("p")
    line = lab.connect(session)
    publish(session, 1, 2, 3, 4, 5)
    notices = line.run()
    (refused,) = [each for each in notices if isinstance(each, NotStored)]
    assert ([msgspec.msgpack.decode(each.attributes)["x"] for each in refused.events], refused.code) == ([3], "access")
    assert stored(notices) == 4
    assert in_the_log(lab) == [1, 2, 4, 5]
    assert [each for each in line.said if isinstance(each, NewEpoch)] == [NewEpoch(2)]


def test_a_cut_between_a_refusal_and_the_new_epoch_loses_and_repeats_nothing():
    lab, session = Lab(Rules({"": Rights(publish=("x != 3",))})), ClientSession("p")
    line = lab.connect(session)
    publish(session, 1, 2, 3, 4, 5)
    line.flush()
    line.to_broker()
    line.to_client()
    line.flush()
    line.to_broker()
    notices = line.to_client()
    assert session.publisher.epoch == 1
    line.flush()  # the new epoch is on its way, and lost
    assert session.publisher.epoch == 2
    line.cut()
    notices += lab.connect(session).run()
    assert stored(notices) == 4
    assert in_the_log(lab) == [1, 2, 4, 5]


def test_a_full_log_fails_whatever_waits_and_the_next_event_is_stored():
    lab, session = Lab(), ClientSession("p")
    line = lab.connect(session)
    line.run()
    lab.full = True
    publish(session, 1, 2, 3)
    notices = line.run()
    (refused,) = [each for each in notices if isinstance(each, NotStored)]
    assert (len(refused.events), refused.code) == (3, "full")
    lab.full = False
    publish(session, 4)
    assert stored(line.run()) == 1
    assert in_the_log(lab) == [4]


def test_a_full_log_after_a_refusal_fails_the_events_before_it_too():
    lab, session = Lab(Rules({"": Rights(publish=("x != 2",))})), ClientSession("p")
    line = lab.connect(session)
    line.run()
    lab.commits, lab.full = False, True
    publish(session, 1, 2, 3)
    line.flush()
    line.to_broker()
    notices = line.to_client()  # 2 is refused; 1 is on its way into the log
    lab.commit()
    lab.commits, lab.full = True, False
    notices += line.run()
    codes = [(each.code, len(each.events)) for each in notices if isinstance(each, NotStored)]
    assert codes == [("access", 1), ("full", 2)]
    assert session.publisher.waiting == 0


def test_too_many_events_a_second_are_sent_again_later():
    lab, session = Lab(limits=ClientLimits(rate=10.0, burst=2)), ClientSession("p")
    line = lab.connect(session)
    publish(session, *range(5))
    notices = line.run()
    for _ in range(10):
        lab.tick(100_000)
        session.tick(lab.now.monotonic)
        notices += line.run()
    assert not [each for each in notices if isinstance(each, NotStored)]
    assert stored(notices) == 5
    assert in_the_log(lab) == [0, 1, 2, 3, 4]


def test_events_that_are_not_durable_are_handed_on_and_not_stored():
    lab, session = Lab(), ClientSession()
    line = lab.connect(session)
    subscribed(session, durable=False)
    line.run()
    session.publish_transient([outgoing({"x": 7})])
    assert shown(line.run()) == [(7, 1)]
    assert len(session.handed) == 1
    assert in_the_log(lab) == []


# -- sessions ----------------------------------------------------------------------------------------------------


def test_the_newest_client_of_a_name_holds_it_and_the_older_one_does_not_fight():
    lab = Lab()
    older, newer = ClientSession("alerts"), ClientSession("alerts")
    line = lab.connect(older)
    line.run()
    line.cut()
    lab.connect(newer).run()
    back = lab.connect(older)
    (closed,) = [each for each in back.run() if isinstance(each, Closed)]
    assert (closed.code, closed.final) == ("refused", True)
    assert newer.welcome is not None


def test_a_client_whose_welcome_was_lost_comes_back():
    lab, session = Lab(), ClientSession("alerts")
    line = lab.connect(session)
    line.run()
    line.cut()
    again = lab.connect(session)
    again.to_broker()  # welcome, but it never hears of it
    again.cut()
    last = lab.connect(session)
    last.run()
    assert session.welcome is not None
    assert [each.epoch for each in last.said if isinstance(each, Hello)] == [3 * STRIDE]


# -- subscriptions -----------------------------------------------------------------------------------------------


def test_a_subscription_is_accepted_and_complete():
    lab, session = Lab(), ClientSession("alerts")
    subscribed(session)
    notices = [each for each in lab.connect(session).run() if isinstance(each, Answered)]
    assert [(each.about, each.waiter, each.code) for each in notices] == [
        ("subscribe", "subscribed", ""),
        ("complete", None, ""),
    ]


def test_a_request_whose_answer_was_lost_is_settled_after_the_reconnection():
    lab, session = Lab(), ClientSession("alerts")
    line = lab.connect(session)
    line.run()
    subscribed(session)
    line.flush()
    line.to_broker()
    line.cut()
    back = lab.connect(session)
    answers = [each.about for each in back.run() if isinstance(each, Answered)]
    assert answers == ["subscribe", "complete"]
    assert [type(each) for each in back.said[1:]] == [Replace]


def test_a_client_that_resumes_a_name_says_which_filter_it_wants():
    lab = Lab()
    first, second = ClientSession("alerts"), ClientSession("alerts")
    subscribed(first, "x > 0")
    line = lab.connect(first)
    line.run()
    line.cut()
    publish(second, 5, 50)
    subscribed(second, "x > 10")
    back = lab.connect(second)
    notices = back.run()
    publish(second, 6, 60)
    notices += back.run()
    assert 50 in [x for x, _ in shown(notices)]
    assert [x for x, _ in shown(notices)][-1] == 60
    assert 6 not in [x for x, _ in shown(notices)]


def test_requests_wait_for_each_other_and_survive_a_cut():
    lab, session = Lab(), ClientSession("alerts")
    subscribed(session, "x = 1")
    for text in ("x = 2", "x = 3"):
        session.ask(ONE, SubscriptionRequest("replace", text, text))
    line = lab.connect(session)
    line.to_broker()
    line.to_client()
    line.flush()
    line.to_broker()
    line.cut()
    answers = [each for each in lab.connect(session).run() if isinstance(each, Answered)]
    assert [each.waiter for each in answers if each.about != "complete"] == ["subscribed", "x = 2", "x = 3"]
    assert answers[-1].about == "complete"
    assert session.subscriptions[ONE].filter == "x = 3"


def test_a_refused_subscription_ends_and_leaves_nothing_behind():
    lab, session = Lab(Rules({"": Rights(subscribe=("x > 5",))})), ClientSession()
    subscribed(session, durable=False)
    (answer,) = [each for each in lab.connect(session).run() if isinstance(each, Answered)]
    assert answer.code == "access"
    assert "nearest rule is x > 5" in answer.reason
    assert session.subscriptions == {}


def test_unsubscribing_is_answered_also_if_it_was_done_before_the_cut():
    lab, session = Lab(), ClientSession("alerts")
    line = lab.connect(session)
    subscribed(session)
    line.run()
    session.ask(ONE, SubscriptionRequest("unsubscribe", "", "gone"))
    line.flush()
    line.to_broker()
    line.cut()
    notices = lab.connect(session).run()
    assert [each.waiter for each in notices if isinstance(each, Answered)] == ["gone"]
    assert [each for each in notices if isinstance(each, Ended)]
    assert session.subscriptions == {}


def test_a_subscription_that_is_not_durable_is_made_again():
    lab, session = Lab(), ClientSession()
    line = lab.connect(session)
    subscribed(session, durable=False)
    line.run()
    line.cut()
    back = lab.connect(session)
    publish(session, 4)
    notices = back.run()
    publish(session, 5)
    notices += back.run()
    assert shown(notices)[-1] == (5, 1)
    assert not [each for each in notices if isinstance(each, Answered) and each.about == "subscribe"]


def test_older_events_are_asked_for_once():
    lab, session = Lab(), ClientSession("replay")
    publish(session, 1, 2)
    line = lab.connect(session)
    line.run()
    state = subscribed(session, since=0)
    assert shown(line.run()) == [(1, 1), (2, 1)]
    assert state.book is not None
    state.book.ack([1, 2])
    line.run()
    line.cut()
    back = lab.connect(session)
    assert shown(back.run()) == []
    assert not [each for each in back.said if isinstance(each, Subscribe)]


def test_a_broker_that_has_forgotten_a_subscription_is_told_and_the_application_too():
    lab, session = Lab(), ClientSession("alerts")
    line = lab.connect(session)
    subscribed(session)
    line.run()
    line.cut()
    other = Lab()
    notices = other.connect(session).run()
    assert [each for each in notices if isinstance(each, Missed)] == [Missed(ONE, 0, 0, 0)]
    assert session.subscriptions[ONE].is_complete


# -- acknowledgements --------------------------------------------------------------------------------------------


def consumer(**options: object):
    lab, session = Lab(), ClientSession("alerts")
    state = subscribed(session, **options)
    line = lab.connect(session)
    line.run()
    assert state.book is not None
    return lab, session, line, state.book


def test_acknowledgements_are_a_floor_and_ranges():
    _, session, line, book = consumer()
    publish(session, 1, 2, 3, 4, 5)
    line.run()
    book.ack([1, 2, 5])
    line.run()
    assert [each for each in line.said if isinstance(each, Ack)] == [Ack(1, 3, ((5, 6),))]
    book.ack([3, 4])
    line.run()
    assert line.said[-1] == Ack(1, 6)


def test_without_order_only_exact_ranges_are_acknowledged():
    _, session, line, book = consumer(ordered=False)
    publish(session, 1, 2, 3, 4)
    line.run()
    book.ack([1, 2, 4])
    line.run()
    assert line.said[-1] == Ack(1, 0, ((1, 3), (4, 5)))


def test_an_acknowledgement_that_never_arrived_is_repeated_and_the_event_is_not_shown_again():
    lab, session, line, book = consumer()
    publish(session, 1, 2)
    assert shown(line.run()) == [(1, 1), (2, 1)]
    book.ack([1])
    line.flush()
    line.cut()
    back = lab.connect(session)
    assert shown(back.run()) == [(2, 2)]
    assert Ack(1, 2, ((1, 2),)) in back.said


def test_what_is_acknowledged_after_the_cut_is_not_shown_again():
    lab, session, line, book = consumer()
    publish(session, 1)
    assert shown(line.run()) == [(1, 1)]
    line.cut()
    book.ack([1])
    back = lab.connect(session)
    assert shown(back.run()) == []
    assert Ack(1, 2, ((1, 2),)) in back.said


def test_acknowledgements_that_are_lost_again_and_again_do_not_make_others_forgotten():
    lab, session = Lab(limits=ClientLimits(window_events=2)), ClientSession("alerts")
    state = SubscriptionState(ONE, SubscriptionOptions(durable=True, ordered=False), window=2, token=session.token)
    session.subscribe(state, SubscriptionRequest("subscribe", "x > 0"))
    line = lab.connect(session)
    line.run()
    publish(session, 1, 2, 3, 4)
    assert shown(line.run()) == [(1, 1), (2, 1)]
    lab.commits = False  # what is acknowledged from now on is lost when the broker restarts
    state.book.ack([1, 2])
    assert shown(line.run()) == [(3, 1), (4, 1)]
    state.book.ack([3, 4])
    line.run()
    lab.restart()
    lab.commits = True
    for _ in range(9):  # 1 and 2 are delivered, and their acknowledgements are lost on the way
        line = lab.connect(session)
        line.to_broker()
        line.to_client()
        line.flush()
        line.cut()
    assert shown(lab.connect(session).run()) == []


def slow_disk(window: int = 2, *, events: int = 200, **options: object):
    """A consumer of many events, whose broker stores nothing more until the test says so."""
    lab, session = Lab(limits=ClientLimits(window_events=window, ack_delay=0)), ClientSession("alerts")
    given = SubscriptionOptions(**{"durable": True, **options})  # type: ignore[arg-type]
    state = SubscriptionState(ONE, given, window=window, token=session.token)
    session.subscribe(state, SubscriptionRequest("subscribe", "x > 0"))
    line = lab.connect(session)
    line.run()
    lab.commits = False
    publish(session, *range(1, events + 1))
    line.run()
    lab.commit()
    return lab, session, line, state.book


def consume(line, book) -> list[int]:
    """Acknowledge whatever is shown, until nothing more is; returns the xs."""
    seen: list[int] = []
    idle = 0
    while idle < 3:
        now = [x for x, _ in shown(line.run())]
        seen += now
        book.ack(now)  # the xs are the offsets, too
        idle = 0 if now else idle + 1
        line.lab.tick()
    return seen


every_kind = pytest.mark.parametrize("options", [{}, {"ordered": False}, {"share": "all"}], ids=str)


@every_kind
def test_an_acknowledged_event_is_not_shown_again_however_many_are_not_yet_stored(options):
    lab, session, line, book = slow_disk(**options)
    seen = consume(line, book)
    assert len(seen) > 50
    lab.restart()
    lab.commits = True
    seen += consume(lab.connect(session), book)
    assert seen == [*range(1, 201)]


@every_kind
def test_a_broker_that_stores_nothing_is_sent_no_more_acknowledgements_after_a_while(options):
    lab, _, line, book = slow_disk(**options)
    seen = consume(line, book)
    assert len(seen) < 80
    book.check()
    lab.commit()
    lab.commits = True
    seen += consume(line, book)
    assert seen == [*range(1, 201)]
    assert not book.unstored


@every_kind
def test_an_acknowledgement_of_an_earlier_connection_is_sent_at_once(options):
    lab, session, line, book = slow_disk(events=1, **options)
    assert shown(line.run()) == [(1, 1)]
    lab.commits = True
    line.cut()
    book.ack([1])
    back = lab.connect(session)
    lab.core.paused(back.id)  # the event does not come again
    back.run()
    assert [each for each in back.said if isinstance(each, Ack)] == [Ack(1, 0, ((1, 2),))]
    assert not book.unstored
    back.cut()
    again = ClientSession("alerts")
    subscribed(again, **options)
    assert shown(lab.connect(again).run()) == []


def test_a_quiet_client_asks_with_its_heartbeat_which_acknowledgements_are_stored():
    lab, session, line, book = slow_disk(events=1)
    lab.commits = True
    assert consume(line, book) == [1]
    assert book.unstored == [1]
    session.tick(lab.now.monotonic + 10_000_000)
    line.run()
    lab.tick()
    line.run()
    assert book.unstored == []


def test_what_is_acknowledged_is_sent_when_the_session_closes_whatever_the_broker_has_stored():
    lab, session, line, book = slow_disk()
    seen = consume(line, book)
    session.close(lab.now.monotonic, patience=1_000_000)
    line.run()
    lab.commit()
    lab.commits = True
    again = ClientSession("alerts")
    other = subscribed(again)
    assert seen + consume(lab.connect(again), other.book) == [*range(1, 201)]


@every_kind
def test_a_broker_of_the_previous_version_works_as_it_did(options, monkeypatch):
    monkeypatch.setattr("weft.broker.hello.NEWEST", 2)
    lab, session, line, book = slow_disk(**options)
    assert consume(line, book) == [*range(1, 201)]
    assert session.welcome.version == 2
    assert len(book.unstored) < 10, "it remembers some"
    line.cut()
    lab.commits = True
    assert consume(lab.connect(session), book) == []


def test_a_failed_event_holds_an_ordered_queue_and_everything_behind_it_comes_again_in_order():
    lab, session, line, book = consumer()
    publish(session, 1, 2, 3)
    line.run()
    assert book.nack(1, 1, "no") == {1, 2, 3}
    publish(session, 4)
    session.publisher.add([])
    assert shown(line.run()) == []
    assert [each for each in line.said if isinstance(each, (Nack, Ping))] == [Nack(1, ((1, 1),), "no"), Ping(1)]
    lab.tick(1_100_000)
    assert shown(line.run()) == [(1, 2), (2, 2), (3, 2), (4, 1)]
    book.ack([1, 2, 3, 4])
    line.run()
    assert line.said[-1] == Ack(1, 5)


def test_a_failure_of_a_delivery_that_was_withdrawn_is_not_said():
    lab, session, line, book = consumer()
    publish(session, 1, 2)
    line.run()
    book.nack(1, 1, "no")  # takes event 2 back, too
    line.run()
    lab.tick(1_100_000)
    assert shown(line.run()) == [(1, 2), (2, 2)]
    assert book.nack(2, 1, "no") == set()
    assert book.nack(2, 2, "no") == {2}
    line.run()
    assert [each for each in line.said if isinstance(each, Nack)] == [
        Nack(1, ((1, 1),), "no"),
        Nack(1, ((2, 2),), "no"),
    ]


def test_what_was_sent_before_the_broker_heard_of_the_failure_is_put_aside():
    lab, session, line, book = consumer()
    publish(session, 1)
    line.run()
    publish(session, 2)
    line.flush()
    line.to_broker()  # 2 is on its way to the client
    book.nack(1, 1, "no")
    assert shown(line.run()) == []
    lab.tick(1_100_000)
    assert shown(line.run()) == [(1, 2), (2, 2)]


def test_a_queue_that_begins_again_before_the_broker_has_read_the_ping_is_shown_in_order():
    lab, session, line, book = consumer()
    publish(session, 1, 2, 3)
    line.run()
    book.nack(1, 1, "no")
    line.flush()
    line.to_broker(len(encode([Nack(1, ((1, 1),), "no")])))  # the Ping is behind it
    assert [type(each) for each in line.said[-1:]] == [Nack]
    lab.tick(1_100_000)
    assert shown(line.to_client()) == [(1, 2), (2, 2), (3, 2)]
    assert shown(line.run()) == []  # the Pong comes late
    book.ack([1, 2, 3])
    line.run()
    assert line.said[-1] == Ack(1, 4)


def test_a_second_failure_is_not_taken_for_known_by_what_the_first_one_brings_back():
    lab, session, line, book = consumer()
    publish(session, 1, 2, 3)
    line.run()
    book.nack(2, 1, "no")
    line.flush()
    line.to_broker()
    lab.tick(1_100_000)  # 2 and 3 are on their way again
    assert book.nack(1, 1, "no") == {1}
    assert shown(line.run()) == []
    lab.tick(1_100_000)
    assert [x for x, _ in shown(line.run())] == [1, 2, 3]


def dead_before_the_ping():
    """An event has failed for good, and the next one is delivered before the broker has read the Ping."""
    lab, session, other = Lab(limits=ClientLimits(failures=1)), ClientSession("alerts"), ClientSession("p")
    state = subscribed(session)
    line, publishing = lab.connect(session), lab.connect(other)
    line.run()
    publish(other, 1)
    publishing.run()
    assert shown(line.run()) == [(1, 1)]
    state.book.nack(1, 1, "no")
    line.flush()
    line.to_broker(len(encode([Nack(1, ((1, 1),), "no")])))
    publish(other, 2)
    publishing.run()
    assert shown(line.run()) == []  # it could come again, behind the failed event
    session.check()
    return lab, line, other, publishing, state.book


def test_an_event_that_was_put_aside_and_does_not_come_again_is_shown_before_the_next():
    _, line, other, publishing, book = dead_before_the_ping()
    publish(other, 3)
    publishing.run()
    assert shown(line.run()) == [(2, 1), (3, 1)]
    book.ack([3])
    line.run()
    assert line.said[-1] == Ack(1, 2, ((3, 4),))  # 2 is not done


def test_an_event_that_was_put_aside_and_is_the_last_one_comes_again_on_a_new_connection():
    lab, line, *_ = dead_before_the_ping()
    session, start = line.session, lab.now.monotonic
    session.tick(start + 10_000_000)
    assert session.state is SessionState.READY
    line.run()
    session.tick(start + 20_000_000)
    assert session.state is SessionState.DIALLING
    line.cut()
    assert shown(lab.connect(session).run()) == [(2, 2)]


def test_what_was_put_aside_is_not_shown_before_the_failed_event():
    lab, session, line, book = consumer()
    publish(session, 1)
    line.run()
    publish(session, 2)
    line.flush()
    line.to_broker()  # 2 is on its way to the client
    book.nack(1, 1, "no")
    assert shown(line.run()) == []
    session.check()
    lab.tick(1_100_000)
    publish(session, 3)
    assert shown(line.run()) == [(1, 2), (2, 2), (3, 1)]


def test_the_floor_stays_below_a_failed_event():
    lab, session, line, book = consumer(ordered=False)
    publish(session, 1, 2)
    line.run()
    assert book.nack(1, 1, "no") == {1}
    book.ack([2])
    line.run()
    lab.tick(1_100_000)
    assert shown(line.run()) == [(1, 2)]


def test_a_dead_letter_is_listed_retried_and_gone_when_it_is_acknowledged():
    lab, session, line, book = consumer()
    publish(session, 1, 2)
    seen = shown(line.run())
    for attempt in range(1, 6):
        book.nack(1, attempt, "cannot")
        seen += shown(line.run())
        lab.tick(20_000_000)
        seen += shown(line.run())
    assert [x for x, _ in seen] == [1, 2] * 5 + [2]
    book.ack([2])
    line.run()

    def ask(kind: str, *offsets: int):
        def message_of(number: int):
            return ListDead(number, 1) if kind == "list" else RetryDead(number, 1, offsets)

        session.request(message_of, kind, ONE)
        notices = line.run()
        (letters,) = [each for each in notices if isinstance(each, Replied)]
        return letters.answer, shown(notices)

    answer, _ = ask("list")
    assert [(each.offset, each.failures, each.reason) for each in answer.letters] == [(1, 5, "cannot")]
    answer, again = ask("retry", 1)
    assert ([*answer.offsets], [x for x, _ in again]) == ([1], [1])
    publish(session, 3)
    line.run()
    book.ack([3])
    line.run()
    assert ask("list")[0].letters  # acknowledging 3 has not acknowledged the letter below it
    book.ack([1])
    line.run()
    assert ask("list")[0].letters == ()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_dead_letter_that_another_session_retries_is_gone_when_a_consumer_that_is_back_acknowledges_it(ordered):
    lab = Lab(limits=ClientLimits(failures=1))
    first, operator, consumer = ClientSession("alerts"), ClientSession("operator"), ClientSession("alerts")
    state, line = subscribed(first, ordered=ordered), lab.connect(first)
    publish(first, 1)
    line.run()
    state.book.nack(1, 1, "a bug")
    line.run()
    line.cut()
    state, line, desk = subscribed(consumer, ordered=ordered), lab.connect(consumer), lab.connect(operator)
    line.run()

    def ask(kind: type, *arguments: object) -> list[int]:
        operator.request(lambda number: kind(number, 1, *arguments, session="alerts"), kind)
        (reply,) = [each for each in desk.run() if isinstance(each, Replied)]
        return [*reply.answer.offsets] if kind is RetryDead else [each.offset for each in reply.answer.letters]

    assert ask(RetryDead, (1,)) == [1]
    publish(operator, 2)
    desk.run()
    assert shown(line.run()) == [(1, 2), (2, 1)]
    assert state.book.nack(1, 2, "another bug") == {1}, "what is behind a dead letter does not come again"
    line.run()
    assert ask(RetryDead, (1,)) == ask(ListDead) == [1]
    assert shown(line.run()) == [(1, 2)]
    state.book.ack([1, 2])
    line.run()
    assert ask(ListDead) == ask(RetryDead, (1,)) == []


@pytest.mark.parametrize("late", [False, True])
def test_events_that_the_broker_gave_up_are_reported_as_a_gap(late):
    lab = Lab(limits=ClientLimits(lag=3, window_events=2))
    session = ClientSession("alerts")
    state = subscribed(session)
    line = lab.connect(session)
    line.run()
    publish(session, 1, 2, 3)
    seen = line.run()
    if late:
        state.book.nack(1, 1, "no")  # the broker may hear of it before or after it gives the event up
    publish(session, *range(4, 9))
    seen += line.run()
    lab.tick(1_100_000)
    seen += line.run()
    assert [each for each in seen if isinstance(each, Missed)]
    while True:
        opened = sorted(state.book._open)
        if not opened:
            break
        state.book.ack(opened)
        seen += line.run()
    assert shown(seen)[-1][0] == 8
    session.check()


def test_decisions_are_said_in_their_order():
    _, session, line, book = consumer()
    publish(session, 1, 2)
    line.run()
    book.nack(1, 1, "no")
    book.ack([1])  # a second copy of the same event
    line.run()
    assert [each for each in line.said if isinstance(each, (Ack, Nack))] == [Nack(1, ((1, 1),), "no"), Ack(1, 2)]
