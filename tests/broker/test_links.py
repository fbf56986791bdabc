"""Links: brokers that tell each other what is wanted, and hand events on."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from broker.network import Network, Node
from weft.broker.admission import read_head
from weft.broker.effects import ConnectionId
from weft.broker.limits import ClientLimits
from weft.errors import AccessError, RemoteProtocolError
from weft.log.base import Offset, SessionId
from weft.protocol.link_messages import LinkEvent, LinkEvents, LinkHave, LinkHello, LinkLoose, LinkPing, LinkUpdate
from weft.protocol.messages import (
    Ack,
    Advertise,
    Bye,
    ClientMessage,
    Complete,
    Deliver,
    Hello,
    Publish,
    QueueNumber,
    Replace,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from weft.routing.table import About, Link


def subscribed(network: Network, broker: str, client: str, text: str, number: int = 1) -> None:
    node = network[broker]
    if client not in node.core._sessions.connections:
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


def _completions(network: Network, about: About = About.SUBSCRIPTIONS) -> list[bool]:
    """Whether the neighbour has `x > 5`, after each step from `Complete` on."""
    seen = []
    while network.step():
        done = any(isinstance(message, Complete) for to, message in network["a"].sent if to == "s")
        seen.append((done, network["b"].heard("a", about) == ["x > 5"]))
    assert seen[-1] == (True, True), "it is complete in the end"
    return [there for done, there in seen if done]


def test_a_filter_that_comes_back_is_not_complete_because_it_was_on_its_way_before() -> None:
    network = Network("a", "b").chain()
    network["a"].hello("s")
    for message in (Subscribe(SubNumber(1), "x > 5"), Replace(SubNumber(1), "x < 1"), Replace(SubNumber(1), "x > 5")):
        network["a"].say("s", message)
    assert all(_completions(network))


@pytest.mark.parametrize("last", [Replace(SubNumber(1), "x < 1"), Unsubscribe(SubNumber(1))], ids=["replace", "end"])
def test_a_filter_that_a_full_log_brings_back_is_complete_when_every_broker_has_it_again(last: ClientMessage) -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    node.hello("s")
    node.say("s", Subscribe(SubNumber(1), "x > 5"))
    _rejected(node, last)
    assert all(_completions(network))


def test_an_advertisement_that_a_full_log_brings_back_is_complete_when_every_broker_has_it_again() -> None:
    network = Network("a", "b", model="simple", advertised=True).chain()
    node = network["a"]
    node.hello("s")
    node.say("s", Advertise(1, "x > 5"))
    _rejected(node, Unadvertise(1))
    assert all(_completions(network, About.ADVERTISEMENTS))


def _rejected(node: Node, message: ClientMessage) -> None:
    """The client asks for something that the log has no room for."""
    node.at_once = False
    node.say("s", message)
    node.reject()
    node.at_once = True


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


def test_events_that_are_not_durable_cross_at_most_once() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "a", "s", "x > 5")
    network["c"].hello("p")
    network["c"].say("p", Publish.of(0, {"x": 7}, b"loose"), Publish.of(0, {"x": 1}, b"unwanted"))
    network.settle()
    assert network["a"].got("s") == [b"loose"]
    assert [network[name].core.end for name in "abc"] == [1, 1, 1], "nothing is stored"
    assert sum(isinstance(message, LinkLoose) for _, message in network["b"].sent) == 1
    network.cut("a", "b")
    network["c"].say("p", Publish.of(0, {"x": 7}, b"lost"))
    network.settle()
    network.dial("a", "b")
    network.settle()
    assert network["a"].got("s") == [b"loose"]


def test_an_expiry_crosses_as_an_absolute_time() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "a", "s", "x > 5")
    network["b"].hello("p")
    network["b"].say("p", Publish.of(1, {"x": 7}, b"1", ttl=1_000_000), Publish.of(2, {"x": 7}, b"2"))
    expires = network["b"].now.utc + 1_000_000
    network.settle()
    delivered = [message for to, message in network["a"].sent if isinstance(message, Deliver)]
    assert read_head(bytes(delivered[0].head)).expires == expires
    network.cut("a", "b")
    network["b"].say("p", Publish.of(3, {"x": 7}, b"3", ttl=1_000_000), Publish.of(4, {"x": 7}, b"4"))
    network.wait(2_000_000)
    network.dial("a", "b")
    network.settle()
    assert network["a"].got("s") == [b"1", b"2", b"4"]
    assert network["b"].core.counts["expired"] == 1


def test_origins_are_kept() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "a", "s", "x > 5")
    network["c"].hello("p")
    network["c"].say("p", Publish.of(1, {"x": 1}), Publish.of(2, {"x": 7}))
    network.settle()
    session = network["c"].core.session("p")
    [group] = network["a"].log.read(1, 10)  # type: ignore[arg-type]
    assert group.events.origins.tolist() == [[session, 1, 2]]


def test_a_link_is_authenticated() -> None:
    def strict(hello: LinkHello) -> None:
        if hello.credentials != b"secret":
            raise AccessError("the secret of the link is wrong; check both ends")

    def half(peer: str) -> bytes:
        return b"secret" if peer == "a" else b""

    network = Network("a", "b", authenticate_link=strict, link_credentials=half)
    network.link("a", "b")
    network.settle()
    assert network["a"].link("b").reason == "the secret of the link is wrong; check both ends"
    network.dial("b", "a")
    network.settle()
    assert not network["a"].link("b").connected, "a shows no secret either"
    for node in network.nodes.values():
        node.options = {**node.options, "link_credentials": lambda _: b"secret"}
        node.restart()
    network.dial("a", "b")
    network.settle()
    assert network["a"].link("b").connected


def test_messages_of_links_are_refused_from_clients_and_messages_of_clients_from_links() -> None:
    network = Network("a", "b").chain()
    node = network["a"]
    node.connect("early")
    assert isinstance(node.say("early", LinkPing())[-1], Bye)
    node.hello("client")
    assert isinstance(node.say("client", LinkUpdate(1))[-1], Bye)
    node.hello("other")
    assert isinstance(node.say("other", LinkHello(name="b", to="a"))[-1], Bye)
    [wire] = [end[1] for end in network.wires if end[0] == "a"]
    for wrong in (Hello(), LinkUpdate(7), LinkEvents((LinkEvent(1, 1, 1, 1, msgspec.Raw(b"\xc0"), b""),))):  # type: ignore[arg-type]
        node.do(node.core.receive(ConnectionId(wire), [wrong], node.now))
        assert not node.link("b").connected
        assert node.closed[-1] == wire
        network.dial("a", "b")
        network.settle()
        assert node.link("b").connected
        [wire] = [end[1] for end in network.wires if end[0] == "a"]


def test_events_before_one_that_cannot_be_read_are_stored_and_do_not_go_back() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "b", "s", "TRUE")
    network["b"].say("s", Publish.of(1, {"x": 1}, b"one"))
    network.settle()
    node = network["a"]
    [wire] = [end[1] for end in network.wires if end[0] == "a"]
    good = LinkEvent(Offset(1), SessionId(1), 1, 1, msgspec.Raw(msgspec.msgpack.encode([{"x": 7}])), b"seven")
    bad = msgspec.structs.replace(good, offset=Offset(2), head=msgspec.Raw(b"\xc0"))
    node.do(node.core.receive(ConnectionId(wire), [LinkEvents((good, bad))], node.now))
    assert not node.link("b").connected
    assert node.core.end == 2
    node.restart()
    network.dial("a", "b")
    network.settle()
    assert network["b"].got("s") == [b"one"]
    assert node.core._neighbours[Link("b")].got == 1, "it is stored together with its offset"
    network.check()


@pytest.mark.parametrize(("wires", "highest"), [((3, 3), 3), ((3, 1 << 63), 3)])
def test_a_list_of_items_that_cannot_be_is_refused(wires: tuple[int, ...], highest: int) -> None:
    sender = Network("a", "b").chain()["a"].core._neighbours[Link("b")].sender
    sender.begin()
    listed = LinkHave(0, np.array(wires, "<u8").tobytes(), bytes(8 * len(wires)), highest)
    with pytest.raises(RemoteProtocolError):
        sender.receive_have(listed)


def test_two_brokers_that_dial_each_other_at_once_have_one_link() -> None:
    network = Network("a", "b")
    network["a"].attach("b")
    network["b"].attach("a")
    network.dial("a", "b")
    network.dial("b", "a")
    network.settle()
    assert network["a"].link("b").connected
    assert network["b"].link("a").connected
    assert len(network.wires) == 2
    network.dial("b", "a")
    network.settle()
    assert len(network.wires) == 2, "a link that is there is not dialled again"


@pytest.mark.parametrize("limits", [{"link_events": 3}, {"link_bytes": 250}])
def test_no_more_events_are_on_their_way_than_the_window_allows(limits: dict[str, int]) -> None:
    network = Network("a", "b", limits=ClientLimits(**limits)).chain()  # type: ignore[arg-type]
    subscribed(network, "b", "s", "x > 5")
    network["a"].hello("p")
    network["a"].say("p", *(Publish.of(n, {"x": 7}, bytes([n]) * 100) for n in range(1, 21)))
    assert network["a"].link("b").in_flight == 3, "the third of 100 bytes and a head is the first beyond 250 bytes"
    network.settle()
    assert [each[0] for each in network["b"].got("s")] == [*range(1, 21)]
    assert network["a"].link("b").in_flight == 0


@pytest.mark.parametrize("fault", ["none", "cut", "crash", "many"])
def test_a_withdrawn_advertisement_does_not_overtake_the_events_published_under_it(fault: str) -> None:
    limits = ClientLimits(link_events=1, link_control=2)
    network = Network("a", "b", "c", model="simple", advertised=True, limits=limits, at_once=False).chain()
    network["c"].hello("p")
    network["c"].say("p", Advertise(1, "x > 0"))
    network.settle()
    subscribed(network, "a", "s", "x > 5")
    if fault in {"cut", "crash"}:
        network.cut("b", "c")
    network["c"].say("p", *(Publish.of(number, {"x": 7}, bytes([number])) for number in range(1, 6)))
    network["c"].say("p", Unadvertise(1))
    if fault == "many":  # more withdrawals than may be held
        for number in range(2, 9):
            network["c"].say("p", Advertise(number, f"x > {number}"))
            network["c"].say("p", Unadvertise(number))
    if fault == "crash":
        while network["c"].persists:
            network.commit("c")
        network.crash("c")
    if fault in {"cut", "crash"}:
        network.dial("c", "b")
    network.settle()
    assert network["a"].got("s") == [bytes([number]) for number in range(1, 6)]
    assert not network["a"].heard("b", About.ADVERTISEMENTS)
    assert not network["c"].heard("b"), "and then nobody asks for such events any more"
    network.check()


def test_a_withdrawn_advertisement_waits_until_the_events_before_it_are_stored() -> None:
    network = Network("a", "b", "c", model="simple", advertised=True).chain()
    network["c"].hello("p")
    network["c"].say("p", Advertise(1, "x > 0"))
    network.settle()
    subscribed(network, "a", "s", "x > 5")
    network["b"].at_once = False
    network["c"].say("p", Publish.of(1, {"x": 7}, b"1"), Unadvertise(1))
    network.settle(but="b")
    network["b"].reject()  # its log is full: the event must come again
    network.settle()
    network.dial("c", "b")
    network.settle()
    assert network["a"].got("s") == [b"1"]
    assert not network["a"].heard("b", About.ADVERTISEMENTS)
    network.check()
