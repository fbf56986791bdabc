"""Advertisements of clients, from the session to three brokers."""

from __future__ import annotations

import pytest

import weft
from client.client_lab import Lab, Line
from client.test_client_session import in_the_log, publish, stored
from weft.broker.delivery_run import one_by_one
from weft.broker.limits import ClientLimits
from weft.client.advertisements import advert_number
from weft.client.effects import Notice, Replied, Stored
from weft.client.publisher import NotStored
from weft.client.session import ClientSession
from weft.errors import FilterError, PublishError, RequestError
from weft.network.cores import BrokerNetwork
from weft.protocol.messages import (
    Advertise,
    BrokerMessage,
    Complete,
    Publish,
    SubNumber,
    Subscribe,
    Unadvertise,
)
from weft.server.config import BrokerConfig
from weft.testing import broker

SMALL = advert_number("x < 10")
ADVERTISED = BrokerConfig(advertised=True)


def advertise(session: ClientSession, filter: str = "x < 10") -> None:
    session.request(lambda _: Advertise(advert_number(filter), filter), f"advertised {filter}")


def unadvertise(session: ClientSession, filter: str = "x < 10") -> None:
    session.request(lambda _: Unadvertise(advert_number(filter)), f"withdrawn {filter}")


def answers(notices: list[Notice]) -> list[tuple[object, str]]:
    return [(each.request.waiter, each.code) for each in notices if isinstance(each, Replied)]


def sent(line: Line) -> list[object]:
    """What the broker has read about advertisements, and the events."""
    return [each for each in line.said if isinstance(each, (Advertise, Unadvertise, Publish))]


class Talk:
    """A session that is connected to a broker of a network."""

    def __init__(self, network: BrokerNetwork, where: str, session: ClientSession) -> None:
        self.network, self.broker, self.session = network, network[where], session
        session.start(0)
        self.number = session.connection
        self.id = f"{where}-{self.number}"
        self.back: list[BrokerMessage] = []
        session.opened(self.number, 0)
        self.broker.connect(self.id, receiver=lambda messages: self.back.extend(one_by_one(messages or [])))

    def run(self) -> list[Notice]:
        """Let everything travel until nothing moves."""
        notices: list[Notice] = []
        while True:
            messages = self.session.take()
            if messages:
                self.broker.say(self.id, *messages)
            self.network.settle()
            back, self.back = self.back, []
            notices += self.session.received(self.number, back, 0)
            self.session.check()
            if not messages and not back:
                return notices

    def cut(self) -> None:
        self.broker.cut(self.id)
        self.session.closed(self.number, 0)


def three_brokers() -> BrokerNetwork:
    """A subscriber at one end; its two subscriptions are known to every broker."""
    network = BrokerNetwork("a", "b", "c", model="simple", advertised=True, checked=True).chain()
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x BETWEEN 6 AND 8"), Subscribe(SubNumber(2), "x > 20"))
    network.settle()
    return network


def attracted(network: BrokerNetwork) -> list[bytes]:
    """The subscriptions that have come to the publisher's broker."""
    return network["c"].interest("b")[1]


# -- through three brokers ---------------------------------------------------------------------------------------


def test_what_is_not_advertised_attracts_no_subscriptions():
    network = three_brokers()
    assert attracted(network) == []
    talk = Talk(network, "c", ClientSession("p"))
    advertise(talk.session, "x < 10")
    assert answers(talk.run()) == [("advertised x < 10", "")]
    (first,) = attracted(network)  # x > 20 and the advertisement have no event in common
    publish(talk.session, 3, 7, 12)
    notices = talk.run()
    (refused,) = [each for each in notices if isinstance(each, NotStored)]
    assert (len(refused.events), refused.code, stored(notices)) == (1, "advertisement", 2)
    assert len(network["a"].got("s")) == 1  # x = 7
    advertise(talk.session, "x > 30")
    talk.run()
    assert len(attracted(network)) == 2
    unadvertise(talk.session, "x < 10")
    assert answers(talk.run()) == [("withdrawn x < 10", "")]
    assert len(attracted(network)) == 1
    assert first not in attracted(network)


def test_it_is_answered_when_every_broker_knows_it():
    network = three_brokers()
    network.cut("a", "b")
    talk = Talk(network, "c", ClientSession())
    advertise(talk.session)
    assert answers(talk.run()) == []
    network.dial("a", "b")
    assert answers(talk.run()) == [("advertised x < 10", "")]


def test_after_a_reconnection_events_wait_until_every_broker_knows_it_again():
    network, session = three_brokers(), ClientSession()
    talk = Talk(network, "c", session)
    advertise(session)
    talk.run()
    talk.cut()
    publish(session, 7)
    network.settle()
    network.cut("a", "b")
    talk = Talk(network, "c", session)
    assert not [each for each in talk.run() if isinstance(each, (Stored, NotStored))]
    assert (attracted(network), session.publisher.waiting) == ([], 1)
    network.dial("a", "b")
    assert stored(talk.run()) == 1
    assert len(network["a"].got("s")) == 1


def test_the_broker_keeps_it_for_a_client_with_a_name():
    network, session = three_brokers(), ClientSession("p")
    talk = Talk(network, "c", session)
    advertise(session)
    talk.run()
    talk.cut()
    network.cut("a", "b")
    network.settle()
    publish(session, 7)
    assert stored(Talk(network, "c", session).run()) == 1  # nothing is held
    network.dial("a", "b")
    network.settle()
    assert len(network["a"].got("s")) == 1
    assert [each for each in network["c"].messages("c-2") if isinstance(each, Complete)] == []


# -- one broker --------------------------------------------------------------------------------------------------


def lab(**options: object) -> Lab:
    return Lab(advertised=True, **options)


def test_an_advertisement_comes_before_the_events_of_a_new_connection():
    with_adverts, session = lab(), ClientSession()
    line = with_adverts.connect(session)
    advertise(session)
    publish(session, 1)
    line.run()
    line.cut()
    publish(session, 2)
    line = with_adverts.connect(session)
    assert stored(line.run()) == 1
    assert [type(each) for each in sent(line)] == [Advertise, Publish]
    assert in_the_log(with_adverts) == [1, 2]


@pytest.mark.parametrize("name", ["p", ""])
@pytest.mark.parametrize("lost", ["the request", "the answer"])
def test_a_request_whose_answer_is_lost_is_made_again(name, lost):
    with_adverts, session = lab(), ClientSession(name)
    line = with_adverts.connect(session)
    line.run()
    for ask, about in ((advertise, "advertised"), (unadvertise, "withdrawn")):
        ask(session)
        line.flush()
        if lost == "the answer":
            line.to_broker()
        line.cut()
        line = with_adverts.connect(session)
        assert answers(line.run()) == [(f"{about} x < 10", "")]
    assert (session.adverts, with_adverts.log.restore().adverts) == ({}, {})


def test_another_process_of_the_same_name_has_the_same_advertisement():
    with_adverts, first, second = lab(), ClientSession("p"), ClientSession("p")
    advertise(first)
    assert answers(with_adverts.connect(first).run()) == [("advertised x < 10", "")]
    with_adverts.lines.popitem()[1].cut()
    line = with_adverts.connect(second)
    publish(second, 1)
    assert stored(line.run()) == 1  # the broker has kept it
    advertise(second)
    advertise(second, "x > 90")
    assert len(answers(line.run())) == 2
    assert len(with_adverts.log.restore().adverts) == 2
    unadvertise(second)
    line.run()
    publish(second, 1)
    assert [each.code for each in line.run() if isinstance(each, NotStored)] == ["advertisement"]


def test_one_that_is_withdrawn_while_it_is_not_complete_is_answered():
    network = three_brokers()
    network.cut("a", "b")
    talk = Talk(network, "c", ClientSession("p"))
    advertise(talk.session)
    talk.run()
    unadvertise(talk.session)
    assert answers(talk.run()) == [("advertised x < 10", "unknown"), ("withdrawn x < 10", "")]


def test_one_for_which_the_broker_has_no_room_after_a_reconnection_is_made_again():
    with_adverts, session = lab(limits=ClientLimits(requests=1)), ClientSession()
    line = with_adverts.connect(session)
    for x in range(102):  # a burst of 100 requests is allowed
        advertise(session, f"x = {x}")
        line.run()
        with_adverts.tick(2_000_000)
    line.cut()
    publish(session, 1)
    line = with_adverts.connect(session)

    def turns() -> list[Notice]:  # a broker handles a few requests in a turn
        return [notice for _ in range(20) for notice in (with_adverts.tick(), *line.run())[1:]]

    assert stored(turns()) == 0
    with_adverts.tick(10_000_000)
    session.tick(with_adverts.now.monotonic)
    assert stored(turns()) == 1
    assert len(session.adverts) == 102


def test_a_session_that_waits_for_advertisements_closes():
    network = three_brokers()
    network.cut("a", "b")
    talk = Talk(network, "c", ClientSession())
    advertise(talk.session)
    talk.run()
    talk.session.close(0, 5_000_000)
    talk.run()
    assert talk.session.state.value == "leaving"


# -- what users call ---------------------------------------------------------------------------------------------


def test_a_client_advertises_publishes_and_withdraws():
    with (
        broker(config=ADVERTISED) as local,
        local.connect_sync() as client,
        client.subscribe("x >= 0") as events,
    ):
        with pytest.raises(PublishError, match="no advertisement of this session matches"):
            client.publish({"x": 1})
        client.advertise("x<10", timeout=10)
        client.advertise(weft.parse("x < 10"))
        client.publish({"x": 1})
        assert events.receive(timeout=10)["x"] == 1
        client.unadvertise("x < 10")
        client.unadvertise("x < 10")
        with pytest.raises(PublishError):
            client.publish({"x": 1})
        with pytest.raises(FilterError):
            client.advertise("x <")


def test_an_advertisement_that_the_broker_does_not_want_is_refused():
    with broker() as local, local.connect_sync() as client, pytest.raises(RequestError) as caught:
        client.advertise("x < 10")
    assert caught.value.code == "table"
