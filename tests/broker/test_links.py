"""Links: brokers that tell each other what is wanted, and hand events on."""

from __future__ import annotations

from broker.network import Network
from weft.broker.messages import Ack, Complete, Publish, QueueNumber, SubNumber, Subscribe


def subscribed(network: Network, broker: str, client: str, text: str, number: int = 1) -> None:
    node = network[broker]
    if client not in node.core._state.connections:
        node.hello(client)
    node.say(client, Subscribe(SubNumber(number), text))
    network.settle()


def test_a_subscription_reaches_every_broker_and_events_come_back() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "a", "s", "x > 5")
    assert network["c"].heard("b") == ["x > 5"]
    network["c"].hello("p")
    network["c"].say("p", Publish.of(1, {"x": 7}, b"seven"), Publish.of(2, {"x": 3}, b"three"))
    network.settle()
    assert network["a"].got("s") == [b"seven"]
    assert [network[name].core.end for name in "abc"] == [2, 2, 3], "only what is wanted crosses a link"
    network.check()


def test_complete_comes_when_the_last_broker_has_it() -> None:
    network = Network("a", "b", "c").chain()
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x > 5"))
    seen = []
    while network.step():
        done = any(isinstance(message, Complete) for to, message in network["a"].sent if to == "s")
        seen.append((done, network["c"].heard("b")))
    assert seen[-1] == (True, ["x > 5"])
    assert all(heard == ["x > 5"] for done, heard in seen if done)


def test_a_link_resumes_after_a_cut_and_loses_nothing() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network["b"].hello("p")
    network["b"].say("p", Publish.of(1, {"x": 7}, b"1"))
    network.cut("a", "b")
    network["b"].say("p", Publish.of(2, {"x": 8}, b"2"))
    network.settle()
    assert network["a"].got("s") == []
    network.dial("b", "a")
    network.settle()
    assert network["a"].got("s") == [b"1", b"2"]
    network["b"].say("p", Publish.of(3, {"x": 9}, b"3"))
    network.settle()
    network.cut("a", "b")
    network.dial("a", "b")
    network.settle()
    assert network["a"].got("s") == [b"1", b"2", b"3"]
    network["a"].say("s", Ack(QueueNumber(0), network["a"].core.end))
    network.check()
