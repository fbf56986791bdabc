"""Markers: a relayed message is handed on when everything that came before it on its link is learnt and stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.network import Network, Node
from broker.test_links_random import LIMITS, SCHEMA
from weft.broker.effects import Relayed
from weft.broker.limits import ClientLimits
from weft.protocol.link_messages import LinkRelay
from weft.protocol.messages import Advertise, Publish, SubNumber, Subscribe
from weft.routing import MODELS
from weft.routing.table import About, Role

MANY = 119


def until(network: Network, done: Callable[[], bool], but: str = "") -> bool:
    while not done():
        if not network.step(but):
            return done()
    return True


def relay(node: Node, destination: str, body: bytes = b"marker") -> None:
    node.do(node.core.relay(destination, body, node.now))


def interval(number: int) -> Subscribe:
    return Subscribe(SubNumber(number), f"x BETWEEN {20 * number} AND {20 * number + 10}")


def test_a_marker_does_not_overtake_interest_that_is_learnt_later() -> None:
    network = Network("b", "m", "a").chain()
    node = network["b"]
    node.hello("s")
    network.settle()
    node.say("s", *map(interval, range(1, MANY + 1)))
    while node.is_due:
        node.tick()
    relay(node, "a")
    assert until(network, lambda: bool(network["a"].relayed))
    assert (len(node.told("m")), len(network["m"].heard("b")), len(network["a"].heard("m"))) == (MANY, MANY, MANY)


@pytest.mark.parametrize("model", ["simple", "covering"])
def test_a_marker_does_not_overtake_interest_that_is_compared_again(model: str) -> None:
    """A queue that is full is replaced by a comparison, behind which the marker would have to be sent."""
    limits = ClientLimits(link_control=20, link_frames=1)
    network = Network("b", "a", model=model, limits=limits).chain()
    node = network["b"]
    node.hello("s")
    network.settle()
    for numbers in range(1, 11), range(11, MANY + 1):
        node.say("s", *map(interval, numbers))
        while node.is_due:
            node.tick()
        if numbers.start == 1:
            relay(node, "a")
    network.settle()
    node.say("s", Subscribe(SubNumber(0), "x = 5"))  # what an empty update has held up goes in the next turn
    network.settle()
    assert node.core.counts["control queues overflown"] > 0
    assert len(network["a"].heard("b")) == len(node.told("a"))
    assert not network["a"].relayed, "it is lost, and whoever waits for it sends it again"
    relay(node, "a")
    assert until(network, lambda: bool(network["a"].relayed))


def test_a_marker_is_lost_with_the_events_before_it_that_a_full_log_refuses() -> None:
    network = Network("a", "m", "b").chain()
    a, m, b = network["a"], network["m"], network["b"]
    b.hello("s")
    b.say("s", Subscribe(SubNumber(1), "TRUE"))
    a.hello("p")
    network.settle()
    m.at_once = False
    a.say("p", *[Publish.of(n, {"x": n}, b"%d" % n) for n in range(1, 4)])
    relay(a, "b")
    network.settle(but="m")
    assert not b.relayed, "the events before it are not stored"
    m.reject()
    m.at_once = True
    network.settle()
    assert (b.relayed, b.got("s")) == ([], [])
    network.dial("a", "m")
    network.settle()
    assert (b.relayed, b.got("s")) == ([], [b"1", b"2", b"3"]), "whoever waits for it must send it again"
    relay(a, "b")
    network.settle()
    assert b.relayed == [Relayed("a", b"marker")]


def test_a_marker_waits_until_what_was_learnt_before_it_is_stored() -> None:
    network = Network("b", "m", "a").chain()
    b, m, a = network["b"], network["m"], network["a"]
    b.hello("s")
    a.hello("p")
    network.settle()
    m.at_once = False
    b.say("s", Subscribe(SubNumber(1), "x > 5"))
    relay(b, "a")
    network.settle(but="m")
    assert not a.relayed, "m could crash now, and would not know the subscription"
    network.crash("m")
    network["m"].at_once = True
    network.dial("m", "a")
    network.settle()
    assert not a.relayed
    network.dial("b", "m")
    network.settle()
    relay(b, "a")
    network.settle()
    assert a.relayed == [Relayed("b", b"marker")]
    a.say("p", Publish.of(1, {"x": 9}, b"nine"))
    network.settle()
    assert b.got("s") == [b"nine"]


def test_markers_that_wait_do_not_count_as_control_frames_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.broker.links.interest_in._MOST_RELAYS", 40)
    network = Network("a", "m", "b", limits=LIMITS).chain()
    network["b"].hello("s")
    network["b"].say("s", Subscribe(SubNumber(1), "TRUE"))
    network["a"].hello("p")
    network.settle()
    network["m"].at_once = False
    network["a"].say("p", Publish.of(1, {"x": 1}, b"event"))
    for number in range(50):
        relay(network["a"], "b", b"%d" % number)
    network.settle(but="m")
    assert network["m"].core.counts["relays dropped"] == 10
    network["m"].at_once = True
    network.settle()
    assert [each.body for each in network["b"].relayed] == [b"%d" % number for number in range(40)]
    assert network["b"].got("s") == [b"event"]


@pytest.mark.parametrize("role", [Role.PEER, Role.PARENT])
@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_no_marker_passes_anything_of_its_link(model: str, advertised: bool, role: Role) -> None:
    """At each hop, what was told before a marker is learnt and stored when the marker is handed on."""
    network = Network("b", "m", "n", "a", model=model, schema=SCHEMA, advertised=advertised, limits=LIMITS)
    for one, other in (("b", "m"), ("m", "n"), ("n", "a")):
        network.link(one, other, role)
    network.settle()
    b, a = network["b"], network["a"]
    for node in (b, a):
        node.hello("c")
        if advertised:
            node.say("c", Advertise(1, "TRUE"))
    network.settle()
    for number in range(1, 12):
        b.say("c", Subscribe(SubNumber(number), f"x = {number % 8} AND y < {1 + number % 3}"))
        told = {about: network["b"].interest("m", about)[0] for about in About}
        relay(b, "a", b"%d" % number)
        if number % 4 == 0:
            network.cut("m", "n")
            network.dial("m", "n")
        if until(network, lambda: bool(a.relayed)):
            for about in About:
                assert set(told[about]) <= set(network["m"].interest("b", about)[1])
                stored = network["m"].log.restore()
                link = next(seat for seat, row in stored.links.items() if row.peer == "b")
                kept = {row.body for row in stored.heard.values() if row.link == link}
                assert set(told[about]) <= kept
            a.say("c", Publish.of(number, {"x": number % 8, "y": 0}, b"%d" % number))
            a.relayed.clear()
        else:
            a.say("c", Publish.of(number, {"x": 7, "y": 7}, b"no marker"))
    network.settle()
    got = [each for each in b.got("c") if each != b"no marker"]
    assert got == sorted({*got}, key=int), "each once, in order"
    assert len(got) >= 8, "an event that is published behind a marker finds the subscription before it"
    assert not any(isinstance(message, LinkRelay) for _, message in network.in_flight)
