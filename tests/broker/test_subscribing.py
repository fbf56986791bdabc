"""Subscriptions, and the offsets from which they hold."""

from __future__ import annotations

import pytest

from broker.harness import Broker, deliveries
from weft.broker.effects import ConnectionId, Now
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.log.base import Offset
from weft.model.schema import Schema
from weft.protocol.messages import (
    Accepted,
    Ack,
    BrokerMessage,
    Bye,
    Complete,
    Deliver,
    Failed,
    Gap,
    Goodbye,
    Hello,
    Publish,
    Published,
    QueueNumber,
    Replace,
    SubNumber,
    Subscribe,
    Unsubscribe,
    Welcome,
)

ONE, TWO = SubNumber(1), SubNumber(2)
Q_ONE, Q_TWO = QueueNumber(1), QueueNumber(2)
REQUESTS = ClientLimits().changes


def event(sequence: int, x: int = 1) -> Publish:
    return Publish.of(sequence, {"x": x})


def failed(messages: list[BrokerMessage]) -> str:
    (answer,) = messages
    assert isinstance(answer, Failed)
    return answer.code


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.hello("s")
    return made


def test_a_subscription_is_accepted_when_it_is_stored_and_complete_without_links() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.commit()
    assert broker.say("s", Subscribe(ONE, "x = 1")) == []
    assert [each for _, each in broker.commit()] == [Accepted("subscribe", 1, Offset(1)), Complete(ONE)]


def test_a_subscription_holds_from_its_offset_on_also_within_one_read(broker: Broker) -> None:
    answers = broker.say("s", event(1), Subscribe(ONE, "x = 1"), event(2))
    assert answers[:2] == [Published(1, 1), Accepted("subscribe", 1, Offset(2))]
    assert deliveries(answers) == [(2, 1, [1])]


def test_subscriptions_of_one_queue_share_a_delivery(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x >= 1"), Subscribe(TWO, "x >= 2"))
    assert deliveries(broker.say("s", event(1, 1), event(2, 2))) == [(1, 1, [1]), (2, 1, [1, 2])]


def test_subscriptions_of_two_queues_do_not(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x >= 1"), Subscribe(TWO, "x >= 1", QueueNumber(2)))
    found = [each for each in broker.say("s", event(1)) if isinstance(each, Deliver)]
    assert [(each.queue, each.numbers) for each in found] == [(0, [1]), (2, [2])]


def test_a_replaced_filter_holds_from_an_exact_offset_on(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"))
    answers = broker.say("s", event(1, 1), Replace(ONE, "x = 2"), event(2, 1), event(3, 2))
    assert Accepted("replace", 1, Offset(2)) in answers
    assert deliveries(answers) == [(1, 1, [1]), (3, 1, [1])]


@pytest.mark.parametrize("durable", [True, False])
def test_a_repeated_replacement_is_answered_with_the_offset_from_which_the_filter_holds(
    broker: Broker, durable: bool
) -> None:
    broker.say("s", Subscribe(ONE, "x = 1", durable=durable))
    broker.say("s", event(1), Replace(ONE, "x = 2"), event(2))
    assert Accepted("replace", 1, Offset(2)) in broker.say("s", Replace(ONE, "x = 2"))
    if durable:
        broker.restart()
        broker.hello("s")
        assert Accepted("replace", 1, Offset(2)) in broker.say("s", Replace(ONE, "x = 2"))


def test_what_matched_the_old_filter_is_delivered_after_the_replacement(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.cut("s")
    broker.hello("p")
    broker.say("p", event(1, 1))
    broker.hello("t", "s")
    broker.cut("t")
    broker.hello("u", "s")
    broker.say("u", Replace(ONE, "x = 2"))
    broker.cut("u")
    assert deliveries(broker.hello("v", "s")) == [(1, 3, [1])]


def test_an_unsubscribed_filter_matches_nothing_from_its_offset_on(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"), Subscribe(TWO, "x = 1"))
    answers = broker.say("s", event(1), Unsubscribe(ONE), event(2))
    assert Accepted("unsubscribe", 1, Offset(2)) in answers
    assert deliveries(answers)[-1] == (2, 1, [2])


def test_a_number_can_be_used_again_and_old_events_do_not_reach_the_new_subscription(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"), Subscribe(TWO, "x = 9"))
    broker.core.paused("s")  # type: ignore[arg-type]
    broker.say("s", event(1))
    broker.say("s", Unsubscribe(ONE))
    broker.say("s", Subscribe(ONE, "x = 2"))
    broker.say("s", event(2, 2))
    assert deliveries(broker.do(broker.core.resumed("s", broker.now), "s")) == [(2, 1, [1])]  # type: ignore[arg-type]


def test_the_last_subscription_takes_its_queue_along(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1", QueueNumber(5)))
    broker.say("s", event(1))
    broker.say("s", Unsubscribe(ONE))
    assert broker.log.restore().subs == {}
    assert deliveries(broker.say("s", Subscribe(ONE, "x = 1", QueueNumber(5)), event(2))) == [(2, 1, [1])]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Subscribe(ONE, "x = 1"), "exists"),
        (Subscribe(TWO, "x ="), "filter"),
        (Subscribe(TWO, "x = 1", since=Offset(1)), "since"),
        (Subscribe(TWO, "x = 1", durable=False), "queue"),
        (Subscribe(TWO, "x = 1", QueueNumber(0), share="work"), "queue"),
        (Replace(TWO, "x = 1"), "unknown"),
        (Replace(ONE, "x ="), "filter"),
        (Unsubscribe(TWO), "unknown"),
    ],
)
def test_a_request_that_fails_says_why_and_changes_nothing(broker: Broker, message: object, code: str) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"))
    before = broker.log.restore()
    assert failed(broker.say("s", message)) == code  # type: ignore[arg-type]
    assert broker.log.restore() == before
    assert deliveries(broker.say("s", event(1))) == [(1, 1, [1])]


def test_a_session_without_a_name_has_no_durable_queue() -> None:
    broker = Broker()
    broker.connect("s")
    broker.say("s", Hello())
    assert failed(broker.say("s", Subscribe(ONE, "x = 1", durable=True))) == "durable"
    assert [type(each) for each in broker.say("s", Subscribe(ONE, "x = 1"))] == [Accepted, Complete]


def test_when_the_log_is_full_a_subscription_is_undone() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.commit()
    broker.say("s", Subscribe(ONE, "x = 1"))
    assert broker.reject() == [("s", Failed("subscribe", 1, "full", "the log is full"))]
    broker.say("s", event(1))
    assert deliveries([each for _, each in broker.commit()]) == []
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit()


def test_when_the_log_is_full_a_replacement_is_undone() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit(2)
    broker.say("s", Replace(ONE, "x = 2"))
    broker.reject()
    broker.say("s", event(1, 1), event(2, 2), Replace(ONE, "x = 1"))
    answers = [each for _, each in broker.commit(len(broker.persists))]
    assert deliveries(answers) == [(1, 1, [1])]
    assert Accepted("replace", 1, Offset(1)) in answers


def test_when_the_log_is_full_an_end_is_undone_and_acknowledgements_in_between_hold() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.say("s", event(1), event(2))
    broker.commit(3)
    broker.say("s", Unsubscribe(ONE))
    broker.say("s", Ack(QueueNumber(0), Offset(2)))
    assert Failed("unsubscribe", 1, "full", "the log is full") in [each for _, each in broker.reject()]
    broker.cut("s")
    broker.hello("t", "s")
    assert deliveries([each for _, each in broker.commit()]) == [(2, 2, [1])]


def test_a_client_may_subscribe_to_what_its_rules_together_cover() -> None:
    broker = Broker(rules=Rules(default=Rights(subscribe=("x < 5", "x >= 5 AND y = 1"))))
    broker.hello("s")
    assert failed(broker.say("s", Subscribe(ONE, "x < 7"))) == "access"
    assert failed(broker.say("s", Subscribe(ONE, "x > 5"))) == "access"
    assert isinstance(broker.say("s", Subscribe(ONE, "x < 7 AND y = 1"))[0], Accepted)
    assert failed(broker.say("s", Replace(ONE, "x < 7"))) == "access"


def test_limits_are_named() -> None:
    broker = Broker(limits=ClientLimits(subscriptions=2, queues=1, filter=10))
    broker.hello("s")
    assert failed(broker.say("s", Subscribe(ONE, "x = 1 AND y = 1"))) == "filter"
    broker.say("s", Subscribe(ONE, "x = 1"))
    assert failed(broker.say("s", Subscribe(TWO, "x = 1", QueueNumber(1)))) == "limit"
    broker.say("s", Subscribe(TWO, "x = 1"))
    assert failed(broker.say("s", Subscribe(SubNumber(3), "x = 1"))) == "limit"


# -- older events ------------------------------------------------------------------------------------


def test_since_delivers_older_events_that_match_and_then_new_ones(broker: Broker) -> None:
    broker.say("s", *[event(n, n) for n in range(1, 7)])
    answers = broker.say("s", Subscribe(ONE, "x >= 3", since=Offset(2)))
    assert answers[0] == Accepted("subscribe", 1, Offset(7))
    assert [offset for offset, _, _ in deliveries(answers)] == [3, 4, 5, 6]
    assert deliveries(broker.say("s", event(7, 8))) == [(7, 1, [1])]


def test_since_a_time_begins_with_the_first_event_stored_then(broker: Broker) -> None:
    broker.say("s", event(1))
    broker.wait(1_000)
    broker.say("s", event(2))
    answers = broker.say("s", Subscribe(ONE, "x = 1", since_time=broker.now.utc))
    assert [offset for offset, _, _ in deliveries(answers)] == [2]


def test_a_replay_that_was_interrupted_goes_on_after_a_restart() -> None:
    broker = Broker(limits=ClientLimits(window_events=2, ack_delay=0))
    broker.hello("s")
    broker.say("s", *[event(n, n % 2) for n in range(1, 10)])
    answers = broker.say("s", Subscribe(ONE, "x = 1", since=Offset(1)))
    assert deliveries(answers) == [(1, 1, [1]), (3, 1, [1])]
    broker.say("s", Ack(QueueNumber(0), Offset(2)))
    broker.restart()
    answers = broker.hello("s")
    assert deliveries(answers) == [(3, 2, [1]), (5, 2, [1])]
    assert failed(broker.say("s", Replace(ONE, "x = 2"))) == "replaying"
    assert deliveries(broker.say("s", Ack(QueueNumber(0), Offset(6)))) == [(7, 2, [1]), (9, 2, [1])]
    broker.say("s", event(10, 1))
    assert deliveries(broker.say("s", Ack(QueueNumber(0), Offset(10)))) == [(10, 1, [1])]


def test_events_that_the_log_no_longer_has_are_a_gap(broker: Broker) -> None:
    broker.say("s", event(1))
    broker.say("s", event(2))
    broker.log.trim(Offset(2))
    broker.do(broker.core.trimmed(Offset(2), broker.now))
    answers = broker.say("s", Subscribe(ONE, "x = 1", since=Offset(1)))
    assert Gap(QueueNumber(0), Offset(1), Offset(2)) in answers
    assert deliveries(answers) == [(2, 1, [1])]


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_keeps_its_subscriptions_through_a_restart(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"), Subscribe(TWO, "x = 2", QueueNumber(3)))
    broker.restart()
    (welcome,) = broker.hello("s")
    assert isinstance(welcome, Welcome)
    assert (welcome.subscriptions, welcome.resumed) == ((1, 2), True)
    assert [(offset, attempt) for offset, attempt, _ in deliveries(broker.say("s", event(1, 2)))] == [(1, 1)]


def test_a_forgotten_session_is_gone_with_everything(broker: Broker) -> None:
    broker.say("s", Subscribe(ONE, "x = 1"), event(1))
    broker.say("s", Goodbye(forget=True))
    state = broker.log.restore()
    assert (state.sessions, state.subs, broker.closed) == ({}, {}, ["s"])
    (welcome,) = broker.hello("t", "s")
    assert isinstance(welcome, Welcome)
    assert not welcome.resumed


def test_an_expired_session_is_forgotten() -> None:
    broker = Broker()
    broker.hello("s", expires=2)
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.cut("s")
    broker.wait(1_500_000)
    assert broker.core.session("s") is not None
    broker.wait(1_000_000)
    assert broker.core.session("s") is None
    assert broker.log.restore().subs == {}


def test_a_session_is_a_value() -> None:
    broker = Broker()
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"), event(1), event(2))
    broker.say("s", Ack(QueueNumber(0), Offset(2)))
    session = broker.core.session("s")
    assert session is not None
    value = broker.core.export(session)
    assert (value.name, value.epoch, value.pub_epoch, value.pub_seq) == ("s", 1, 1, 2)
    assert [(each.number, each.floor) for each in value.queues] == [(0, 2)]
    assert [(each.number, each.filter, each.queue) for each in value.subscriptions] == [(1, "x = 1", 0)]


def test_a_session_that_is_being_forgotten_takes_no_more_requests() -> None:
    broker = Broker(at_once=False)
    broker.hello("s", expires=1)
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit(2)
    broker.say("s", Goodbye(forget=True))
    assert failed(broker.say("s", Replace(ONE, "x = 2"))) == "leaving"
    broker.cut("s")
    (bye,) = broker.hello("t", "s")
    assert isinstance(bye, Bye)
    while broker.persists:
        broker.commit()
    broker.restart()
    assert (broker.log.restore().sessions, broker.log.restore().subs) == ({}, {})


def test_when_the_log_is_full_a_session_is_not_forgotten() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit(2)
    broker.say("s", Goodbye(forget=True))
    broker.reject()
    broker.at_once = True
    broker.hello("t", "s")
    assert deliveries(broker.say("t", event(1))) == [(1, 1, [1])]


def test_a_session_that_could_not_be_stored_leaves_nothing_in_the_log() -> None:
    broker = Broker(at_once=False)
    broker.hello("s", expires=1)
    broker.reject()
    broker.at_once = True
    broker.do([])
    assert broker.log.restore().sessions == {}
    (welcome,) = broker.hello("t", "s", expires=1)
    assert isinstance(welcome, Welcome)


def test_no_session_is_kept_for_longer_than_the_broker_keeps_any() -> None:
    broker = Broker(limits=ClientLimits(expires=2_000_000))
    broker.hello("s", expires=3_600)
    broker.cut("s")
    broker.wait(2_500_000)
    assert broker.core.session("s") is None


def test_a_session_whose_connection_was_lost_in_a_crash_expires() -> None:
    broker = Broker(limits=ClientLimits(expires=2_000_000))
    broker.hello("s")
    broker.restart()
    broker.do(broker.core.tick(broker.now))
    broker.wait(1_500_000)
    assert broker.core.session("s") is not None
    broker.wait(1_000_000)
    assert broker.core.session("s") is None


def test_replacing_a_filter_by_itself_fails_when_what_is_before_it_is_not_stored() -> None:
    broker = Broker(at_once=False)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.commit(2)
    broker.say("s", Replace(ONE, "x = 2"))
    broker.say("s", Replace(ONE, "x = 2"))
    answers = [each for _, each in broker.reject()]
    assert [each.code for each in answers if isinstance(each, Failed)] == ["full", "full"]


def test_a_client_that_was_back_has_its_whole_time_again_whatever_the_clock_does() -> None:
    broker = Broker()
    broker.hello("s", expires=2)
    broker.cut("s")
    broker.wait(1_500_000)
    broker.hello("t", "s", expires=2)
    broker.now = Now(broker.now.monotonic, broker.now.utc - 3_600_000_000)
    broker.cut("t")
    broker.now = Now(broker.now.monotonic, broker.now.utc + 3_600_000_000)
    broker.wait(1_000_000)  # the time since it left first is over
    assert broker.core.session("s") is not None
    broker.wait(1_500_000)
    assert broker.core.session("s") is None


# -- many requests at once ---------------------------------------------------------------------------


def many(broker: Broker, number: int) -> list[int]:
    """Send many subscriptions and an event in one read; how many subscriptions there are after each call.

    The event has a turn of its own.
    """
    subscriptions = [Subscribe(SubNumber(n), f"x = {n}") for n in range(number)]
    broker.take(broker.core.receive(ConnectionId("s"), [*subscriptions, event(1)], broker.now))
    sizes = [broker.core.status().subscriptions]
    while broker.core.is_behind(ConnectionId("s")):
        assert broker.timer == broker.now.monotonic, "the broker wants to go on at once"
        broker.take(broker.core.tick(broker.now))
        sizes.append(broker.core.status().subscriptions)
    return sizes


def test_many_requests_of_one_read_are_handled_in_several_turns_and_in_order() -> None:
    broker = Broker()
    broker.hello("s")
    assert many(broker, 2 * REQUESTS + 1) == [REQUESTS, 2 * REQUESTS, 2 * REQUESTS + 1, 2 * REQUESTS + 1]
    broker.commit(len(broker.persists))
    answers = [message for _, message in broker.sent if isinstance(message, Accepted)]
    assert [each.number for each in answers] == [*range(2 * REQUESTS + 1)]
    assert [event.numbers for _, event in broker.sent if isinstance(event, Deliver)] == [[1]], (
        "it came after all of them"
    )


def test_subscriptions_join_the_index_some_at_a_time_and_that_ends_a_turn() -> None:
    """Otherwise the first event after 100,000 subscriptions would wait for all of them."""
    broker = Broker(limits=ClientLimits(changes=1_000))
    broker.hello("s")
    assert many(broker, 300) == [257, 300, 300]
    broker.commit(len(broker.persists))
    assert [event.numbers for _, event in broker.sent if isinstance(event, Deliver)] == [[1]]
    broker.core.check()


def test_what_is_said_while_requests_wait_is_handled_behind_them() -> None:
    broker, s = Broker(), ConnectionId("s")
    broker.hello("s")
    wanted = [Subscribe(SubNumber(n), f"x = {n}") for n in range(REQUESTS + 1)]
    broker.take(broker.core.receive(s, wanted, broker.now))
    broker.take(broker.core.receive(s, [Unsubscribe(SubNumber(REQUESTS))], broker.now))
    assert broker.core.status().subscriptions == REQUESTS
    broker.do(broker.core.tick(broker.now))
    assert not [message for _, message in broker.sent if isinstance(message, Failed)]
    assert broker.core.status().subscriptions == REQUESTS


def test_requests_that_wait_when_their_connection_goes_are_handled_first() -> None:
    broker, s = Broker(), ConnectionId("s")
    broker.hello("s")
    wanted = [Subscribe(SubNumber(n), f"x = {n}") for n in range(3 * REQUESTS)]
    broker.take(broker.core.receive(s, wanted, broker.now))
    broker.do(broker.core.closed(s, broker.now))
    assert broker.core.status().subscriptions == 3 * REQUESTS
    assert not broker.core.is_behind(s)


def test_clients_that_wait_take_turns() -> None:
    broker = Broker()
    for name in "st":
        broker.hello(name)
    for name in "st":
        wanted = [Subscribe(SubNumber(n), f"x = {n}") for n in range(3 * REQUESTS)]
        broker.take(broker.core.receive(ConnectionId(name), wanted, broker.now))
    for _ in range(2):
        broker.take(broker.core.tick(broker.now))
    left = [len(broker.core._sessions.connections[ConnectionId(name)].backlog) for name in "st"]
    assert left == [REQUESTS, REQUESTS]


@pytest.mark.parametrize("schema", [None, Schema.of(x="int", s="string")])
@pytest.mark.parametrize("model", ["simple", "covering", "merging"])
def test_after_a_restart_every_filter_matches_as_before(model: str, schema: Schema | None) -> None:
    broker = Broker(model=model, schema=schema)
    broker.hello("s")
    texts = (
        *(f"x >= {low} AND x < {low + 2}" for low in range(6)),  # of one shape, many enough to be read together
        *(f"x > {low} AND x < {low + 1}" for low in range(6)),  # without integers: never, under the schema
        *("x > 3 AND x < 2", "s = 'a' AND x = 1", "s LIKE '%b%' OR x IN (1, 3)", "x IS NULL", "NOT x > 2", "s = x"),
    )
    for number, text in enumerate(texts):
        broker.say("s", Subscribe(SubNumber(number), text))
    events = [{"x": 1}, {"x": 1, "s": "a"}, {"x": 2.5}, {"s": "abc"}, {"x": 3, "s": "b"}, {"x": "y"}, {}]

    def numbers(first: int) -> list[list[int]]:
        told = broker.say("s", *[Publish.of(first + n, event) for n, event in enumerate(events)])
        return [numbers for _, _, numbers in deliveries(told)]

    before = numbers(1)
    assert len(before) > 4
    broker.say("s", Ack(QueueNumber(0), Offset(len(events) + 1)))
    broker.restart()
    broker.hello("s")
    assert [sorted(each) for each in numbers(len(events) + 1)] == [sorted(each) for each in before]


# -- one name, shared or not ---------------------------------------------------------------------------------------


def test_a_name_is_shared_or_not() -> None:
    broker = Broker()
    for session in ("work", "", "jobs"):
        broker.hello(session or "nameless", session=session)
    assert broker.say("nameless", Subscribe(ONE, "x = 1", Q_ONE, share="work"))[0] == Accepted(
        "subscribe", 1, Offset(1)
    )
    (answer,) = broker.say("work", Subscribe(ONE, "x = 1"))
    assert isinstance(answer, Failed)
    assert (answer.code, "'work' is shared" in answer.reason) == ("share", True)
    broker.say("jobs", Subscribe(ONE, "x = 1"))
    (answer,) = broker.say("nameless", Subscribe(TWO, "x = 1", Q_TWO, share="jobs"))
    assert isinstance(answer, Failed)
    assert (answer.code, "'jobs' belongs to a subscription" in answer.reason) == ("share", True)
    broker.say("jobs", Unsubscribe(ONE))
    assert broker.say("nameless", Subscribe(TWO, "x = 1", Q_TWO, share="jobs"))[0] == Accepted(
        "subscribe", 2, Offset(1)
    )


def test_a_publisher_may_have_the_name_of_a_shared_queue() -> None:
    broker = Broker()
    broker.hello("work")
    broker.hello("nameless", session="")
    assert broker.say("nameless", Subscribe(ONE, "x = 1", Q_ONE, share="work"))[0] == Accepted(
        "subscribe", 1, Offset(1)
    )
    assert broker.say("work", event(1)) == [Published(1, 1)]
