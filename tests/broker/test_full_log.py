"""A log that has no room for events has room for everything else: requests beside refused events are granted."""

from __future__ import annotations

import pytest

from broker.harness import Broker, deliveries
from broker.network import Network
from broker.test_links import subscribed
from weft.broker.limits import ClientLimits
from weft.log.base import Offset
from weft.log.memory import MemoryLog
from weft.network.cores import MemoryBroker
from weft.protocol.messages import (
    Accepted,
    Ack,
    Bye,
    ClientMessage,
    DeadDone,
    DropDead,
    Goodbye,
    Nack,
    NewEpoch,
    Publish,
    Published,
    QueueNumber,
    Refused,
    Replace,
    SubNumber,
    Subscribe,
    Unsubscribe,
    Welcome,
)

Q, ONE, TWO = QueueNumber(0), SubNumber(1), SubNumber(2)


def event(sequence: int, x: int = 1) -> Publish:
    return Publish.of(sequence, {"x": x}, b"%d" % sequence)


def full(broker: Broker) -> Broker:
    """A broker with two clients, a subscription and a dead letter, whose log has no room for events."""
    broker.hello("p")
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    broker.say("p", event(1))
    broker.say("s", Nack(Q, ((Offset(1), 1),), "bad"))
    broker.log.quota = 0
    broker.at_once = False
    return broker


def settle(broker: MemoryBroker) -> None:
    """Commit everything together, and again what is left."""
    while broker.driver.waiting or broker.is_due:
        if broker.driver.waiting:
            broker.commit(len(broker.driver.waiting))
        else:
            broker.tick()
        broker.core.check()


REQUESTS: dict[str, tuple[ClientMessage, object]] = {
    "subscribe": (Subscribe(TWO, "x = 2", QueueNumber(2)), Accepted("subscribe", 2, Offset(2))),
    "share": (Subscribe(TWO, "x = 2", QueueNumber(2), share="both"), Accepted("subscribe", 2, Offset(2))),
    "replace": (Replace(ONE, "x = 2"), Accepted("replace", 1, Offset(2))),
    "replace by the same": (Replace(ONE, "x = 1"), Accepted("replace", 1, Offset(1))),
    "unsubscribe": (Unsubscribe(ONE), Accepted("unsubscribe", 1, Offset(2))),
    "drop dead letters": (DropDead(7, Q, (Offset(1),)), DeadDone(7, (Offset(1),))),
    "forget the session": (Goodbye(forget=True), Bye("forgotten", "the session was removed")),
}


@pytest.mark.parametrize(("request_", "answer"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_behind_events_that_do_not_fit_is_granted(request_: ClientMessage, answer: object) -> None:
    broker = full(Broker(limits=ClientLimits(failures=1)))
    broker.say("p", event(2), event(3))
    broker.say("s", request_)
    broker.say("p", event(4))
    settle(broker)
    assert answer in broker.messages("s")
    assert [each.sequence for each in broker.messages("p") if isinstance(each, Refused)] == [2]
    broker.log.quota = None
    broker.say("p", NewEpoch(2), Publish.of(1, {"x": 2}, b"two"))
    settle(broker)
    wanted = isinstance(request_, Subscribe | Replace) and "2" in request_.filter
    assert broker.got("s") == [b"1", *([b"two"] if wanted else [])]


@pytest.mark.parametrize(("request_", "answer"), REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("first", [True, False], ids=["before its events", "behind its events"])
def test_a_request_that_comes_with_events_that_do_not_fit_is_granted(
    request_: ClientMessage, answer: object, first: bool
) -> None:
    broker = full(Broker(limits=ClientLimits(failures=1)))
    broker.say("s", *([request_, event(1)] if first else [event(1), request_]))
    settle(broker)
    answers = broker.messages("s")
    assert answer in answers
    gone = isinstance(request_, Goodbye) and first  # then nobody is there to be told
    assert gone or [each.code for each in answers if isinstance(each, Refused)] == ["full"]


def test_a_subscription_behind_events_that_do_not_fit_begins_with_the_next_event_also_after_a_restart() -> None:
    broker = full(Broker())
    broker.say("p", *map(event, range(2, 9)))
    broker.say("s", Subscribe(TWO, "x = 2", QueueNumber(2), since=Offset(2)))
    broker.say("s", Subscribe(SubNumber(3), "x = 2", QueueNumber(3), share="both"))
    settle(broker)
    broker.log.quota = None
    broker.at_once = True
    broker.restart()
    broker.hello("s")
    broker.say("s", Subscribe(SubNumber(4), "x = 2", QueueNumber(4), share="both"))
    broker.hello("q")
    broker.say("q", event(1, 2), event(2, 2))
    assert deliveries(broker.messages("s"))[-4:] == [(2, 1, [2]), (3, 1, [2]), (2, 1, [4]), (3, 1, [4])]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_client_that_comes_back_behind_its_refused_events_learns_what_is_stored(restarted: bool) -> None:
    broker = full(Broker())
    broker.say("p", event(2), event(3))
    broker.cut("p")
    broker.hello("q", "p", epoch=2, pub_epoch=1)
    settle(broker)
    assert [each.pub_seq for each in broker.messages("q") if isinstance(each, Welcome)] == [1]
    broker.log.quota = None
    broker.at_once = True
    if restarted:
        broker.restart()
        (welcome,) = broker.hello("q", "p", epoch=3, pub_epoch=1)
        assert isinstance(welcome, Welcome)
        assert welcome.pub_seq == 1
    assert broker.say("q", event(2), event(3)) == [Published(1, 3)]


def test_a_client_that_begins_an_epoch_behind_its_refused_events_begins_with_the_first() -> None:
    broker = full(Broker())
    broker.say("p", event(2), event(3))
    broker.hello("q", "p", epoch=2, pub_epoch=2)
    broker.say("q", event(1))
    settle(broker)
    assert [each.pub_seq for each in broker.messages("q") if isinstance(each, Welcome)] == [0]
    assert [each.sequence for each in broker.messages("q") if isinstance(each, Refused)] == [1]
    broker.log.quota = None
    broker.at_once = True
    assert broker.say("q", NewEpoch(3), event(1)) == [Published(3, 1)]


def test_acknowledgements_that_were_stored_beside_refused_events_count() -> None:
    broker = full(Broker(limits=ClientLimits(ack_delay=0)))
    broker.say("s", Ack(Q, Offset(2)))
    broker.say("p", event(2))
    broker.say("s", Unsubscribe(ONE))
    settle(broker)
    assert broker.log.restore().subs == {}


def test_requests_are_granted_while_publishers_try_again_and_again() -> None:
    """Each commit has events that do not fit, before the requests and behind them."""
    broker = full(Broker())
    broker.hello("q")
    for epoch in range(2, 30):
        broker.say("p", NewEpoch(epoch), event(1))
        broker.say("s", Subscribe(SubNumber(epoch), "x = 2", QueueNumber(epoch)))
        broker.say("q", NewEpoch(epoch), event(1))
        while any(each.group.events is not None for each in broker.persists):
            broker.commit(len(broker.persists))
    settle(broker)
    for name, answer, number in (("s", Accepted, 29), ("p", Refused, 28), ("q", Refused, 28)):
        assert len([each for each in broker.messages(name) if isinstance(each, answer)]) == number


def test_the_end_of_a_session_that_cannot_be_stored_is_answered() -> None:
    broker = full(Broker())
    broker.say("s", Goodbye(forget=True))
    assert ("s", Bye("full", "the log is full")) in broker.reject()
    assert "s" in broker.closed
    broker.at_once = True
    (welcome, *_) = broker.hello("t", "s")
    assert isinstance(welcome, Welcome)
    assert welcome.subscriptions == (ONE,)


# -- links ----------------------------------------------------------------------------------------------------


def test_a_neighbour_attached_behind_events_that_do_not_fit_gets_the_next_event() -> None:
    network = Network("a", "b")
    broker = network["a"]
    broker.hello("p")
    broker.at_once, broker.log.quota = False, 0
    broker.say("p", *map(event, range(1, 8)))
    broker.attach("b")
    settle(broker)
    broker.log.quota, broker.at_once = None, True
    broker.restart()
    broker.hello("p")
    broker.say("p", NewEpoch(2), event(1), event(2))
    network["b"].attach("a")
    subscribed(network, "b", "s", "x = 1")
    network.dial("a", "b")
    network.settle()
    assert network["b"].got("s") == [b"1", b"2"]


def test_what_a_neighbour_wants_is_stored_behind_its_refused_events_which_come_again() -> None:
    network = Network("a", "b")
    broker = network["b"]
    for name, other in ("ab", "ba"):
        network[name].attach(other)
    broker.hello("s")
    broker.say("s", Subscribe(ONE, "x = 1"))
    network["a"].hello("p")
    network["a"].say("p", event(1), event(2))
    broker.at_once, broker.log.quota = False, 0
    network.dial("a", "b")
    network.settle()
    while broker.persists or network.in_flight or broker.is_due:
        settle(broker)
        network.settle()
    network.crash("b")
    assert [row.got for row in broker.log.restore().links.values()] == [0]
    broker.log.quota, broker.at_once = None, True
    broker.hello("s")
    network.dial("a", "b")
    network.settle()
    assert broker.got("s") == [b"1", b"2"]


def test_a_log_in_memory_at_its_quota_refuses_events_only() -> None:
    broker = Broker(MemoryLog("a1", quota=0))
    broker.hello("s")
    assert isinstance(broker.say("s", Subscribe(ONE, "x = 1"))[0], Accepted)
    assert isinstance(broker.say("s", event(1))[0], Refused)
