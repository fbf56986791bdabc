"""Lists and HAS between brokers: a neighbour of an earlier version, which has neither, is told why its link ends."""

from __future__ import annotations

from functools import partial, reduce
from operator import or_
from typing import Any, get_args

import msgspec
import pytest

from broker.network import Node
from weft.broker.effects import ConnectionId
from weft.network.cores import BrokerNetwork
from weft.protocol.link_messages import IncomingMessage, LinkFeatures
from weft.protocol.messages import Complete, Publish, Refused, SubNumber, Subscribe

OLD = msgspec.msgpack.Decoder(reduce(or_, [each for each in get_args(IncomingMessage) if each is not LinkFeatures]))
WHY = "b runs an older version of Weft without lists and HAS; update it"


class OldNode(Node):
    """A broker that reads what the version before lists could read."""

    def read(self, connection: ConnectionId, data: bytes) -> None:
        try:
            OLD.decode(data[4:])
        except msgspec.ValidationError as error:
            self._do(partial(self.driver.garbled, connection, str(error)))
        else:
            super().read(connection, data)


def pair(old: bool = True, **options: Any) -> BrokerNetwork:
    def make(name: str, **given: Any) -> Node:
        return (OldNode if old and name == "b" else Node)(name, **given)

    return BrokerNetwork("a", "b", make_broker=make, **options).chain()


def announced(network: BrokerNetwork) -> bool:
    return network["a"].core._neighbours["b"].needs_lists  # type: ignore[index]


def test_nothing_is_announced_where_nothing_has_lists() -> None:
    network = pair(old=False)
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x = 'one HAS more'"))
    network.settle()
    network["b"].hello("p")
    network["b"].say("p", Publish.of(1, {"x": "one HAS more"}, b"yes"))
    network.settle()
    assert network["a"].got("s") == [b"yes"]
    assert not announced(network)


@pytest.mark.parametrize("ttl", [0, 3_600_000_000])
def test_filters_with_has_and_events_with_lists_cross_a_link(ttl: int) -> None:
    network = pair(old=False)
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "tags HAS 'rock'"))
    network.settle()
    assert network["b"].heard("a") == ["tags HAS 'rock'"]
    assert any(isinstance(each, Complete) for each in network["a"].messages("s"))
    network["b"].hello("p", versions=(2, 3))
    events = [{"tags": ["pop", "rock"]}, {"tags": "rock"}, {"tags": ["pop"]}]
    network["b"].say("p", *(Publish.of(at + 1, each, b"%d" % at, ttl=ttl) for at, each in enumerate(events)))
    network["b"].say("p", Publish.of(0, events[0], b"transient"))
    network.settle()
    assert sorted(network["a"].got("s")) == [b"0", b"1", b"transient"]
    network.check()


def test_a_neighbour_without_lists_is_refused_a_filter_with_has_and_gets_it_after_an_update() -> None:
    network = pair()
    network["a"].hello("s")
    network["a"].say("s", Subscribe(SubNumber(1), "x = 1"))
    network.settle()
    assert network["b"].heard("a") == ["x = 1"]
    network["a"].say("s", Subscribe(SubNumber(2), "tags HAS 'rock'"))
    network.settle()
    link = network["a"].link("b")
    assert (link.connected, link.reason) == (False, WHY)
    assert sum(isinstance(each, Complete) for each in network["a"].messages("s")) == 1, "not that of the HAS"
    network.dial("a", "b")
    network.settle()
    assert network["a"].link("b").reason == WHY, "whenever it tries again"
    assert network["b"].heard("a") == ["x = 1"]
    network["b"].__class__ = Node  # it is updated
    network.dial("b", "a")
    network.settle()
    assert network["b"].heard("a") == ["tags HAS 'rock'", "x = 1"]
    assert sum(isinstance(each, Complete) for each in network["a"].messages("s")) == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_an_event_with_a_list_waits_for_the_update_of_a_neighbour(restarted: bool) -> None:
    network = pair()
    network["b"].hello("s")
    network["b"].say("s", Subscribe(SubNumber(1), "x > 0"))
    network.settle()
    network["a"].hello("p", versions=(2, 3))
    events = [{"x": 1}, {"x": 0, "tags": ["not wanted"]}, {"x": 2, "tags": ["rock"]}, {"x": 3}]
    network["a"].say("p", *(Publish.of(at + 1, each, b"%d" % at) for at, each in enumerate(events[:2])))
    network.settle()
    assert network["b"].got("s") == [b"0"]
    assert network["a"].link("b").connected, "the list goes nowhere"
    network["a"].say("p", *(Publish.of(at + 3, each, b"%d" % (at + 2)) for at, each in enumerate(events[2:])))
    network.settle()
    assert network["a"].link("b").reason == WHY
    if restarted:
        network["a"].restart()
        network.dial("a", "b")
        network.settle()
        assert network["a"].link("b").reason == WHY
    network["b"].__class__ = Node
    network.dial("a", "b")
    network.settle()
    assert network["b"].got("s") == [b"0", b"2", b"3"]
    network.check()


def test_a_feature_of_a_later_version_is_refused_with_a_sentence() -> None:
    network = pair(old=False)
    [wire] = [end.connection for end in network.wires if end.broker == "a"]
    network["a"].receive(ConnectionId(wire), [LinkFeatures(("lists", "sets"))])
    network.settle()
    assert network["b"].link("a").reason == "a runs an older version of Weft without sets; update it"


def test_a_client_of_version_2_is_refused_lists_as_before() -> None:
    node = Node("a")
    for version in (2, 3):
        node.hello(f"p{version}", versions=(2, version))
        node.say(f"p{version}", Publish.of(1, {"x": 1, "tags": ["rock"]}))
    reasons = [[each.reason for each in node.messages(f"p{n}") if isinstance(each, Refused)] for n in (2, 3)]
    assert reasons == [["attribute 'tags' is of type list, which filters cannot test; put it in the payload"], []]
