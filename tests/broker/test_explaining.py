"""Where an event goes, and why: brokers are asked one after another, and say what they then do."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from broker.network import Network, Node
from broker.test_links import subscribed
from broker.test_links_random import EVENTS, SCHEMA
from weft.broker.effects import ConnectionId
from weft.broker.explain import MOST_BYTES, HopAnswer
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.protocol.explanation import BrokerHop, Explanation
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Explain, Explained, Failed, Publish, SubNumber, Subscribe
from weft.routing import MODELS
from weft.routing.dls.structure import FilterShape
from weft.routing.table import Link, Role

LATE = ClientLimits().explain


def ask(node: Node, attributes: dict[str, Any], client: str = "q") -> None:
    if ConnectionId(client) not in node.core._sessions.connections:
        node.hello(client, "")
    node.say(client, Explain(1, msgspec.Raw(msgspec.msgpack.encode(attributes))))


def answers(node: Node, client: str = "q") -> list[Explanation]:
    bodies = [each.body for to, each in node.sent if to == client and isinstance(each, Explained)]
    return [msgspec.msgpack.decode(body, type=Explanation) for body in bodies]


def explained(network: Network, broker: str, attributes: dict[str, Any]) -> Explanation:
    ask(network[broker], attributes)
    network.settle()
    return answers(network[broker])[-1]


def test_the_way_of_an_event_over_three_brokers_is_told_hop_by_hop() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "c", "alerts", "x > 5")
    subscribed(network, "b", "all", "x > 100")
    assert str(explained(network, "a", {"x": 7})).splitlines() == [
        "a, where it is published",
        "  *  no subscription here matches",
        "  >  b: it wants x > 5",
        "b, from a",
        "  *  no subscription here matches",
        "  >  c: it wants x > 5",
        "c, from b",
        "  *  subscription 1 of alerts: x > 5",
    ]


def test_an_event_stops_where_nobody_wants_it_and_the_answer_says_why() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "c", "s", "x > 5")
    found = explained(network, "a", {"x": 3})
    assert found.is_whole
    assert str(found).splitlines() == [
        "a, where it is published",
        "  *  no subscription here matches",
        "  x  b: none of the 1 items that it told matches",
    ]
    assert "c: it told nothing" not in str(found)
    assert [link.reason for link in explained(network, "b", {"x": 3}).hops[0].links] == [
        "it told nothing",
        "none of the 1 items that it told matches",
    ]


def test_nothing_is_published_and_nothing_is_stored() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "b", "s", "x > 5")
    ends = [node.core.end for node in network.nodes.values()]
    explained(network, "a", {"x": 7})
    assert [node.core.end for node in network.nodes.values()] == ends
    assert network["b"].got("s") == []


def test_a_link_that_is_down_ends_the_way_and_is_named() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "c", "s", "x > 5")
    network.cut("b", "c")
    found = explained(network, "a", {"x": 7})
    assert found.brokers == ["a", "b"]
    assert str(found).endswith("  >  c: it wants x > 5; the link is down, and it waits until it is up")


def test_a_broker_that_does_not_answer_is_named_after_a_while() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "c", "s", "x > 5")
    ask(network["a"], {"x": 7})
    arrive = network.arrive
    network.arrive = lambda end, data: None if end.broker == "c" else arrive(end, data)  # it hears nothing
    network.settle()
    network.arrive = arrive
    assert answers(network["a"]) == []
    network["a"].wait(LATE)
    network.settle()
    (found,) = answers(network["a"])
    assert not found.is_whole
    assert str(found.hops[-1].problem) == "no answer within 2 s by way of a - b - c"


def test_an_answer_that_comes_too_late_or_is_not_asked_for_does_no_harm() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "b", "s", "x > 5")
    node = network["a"]
    late = msgspec.msgpack.encode(HopAnswer(1, BrokerHop("b")))
    for body in (late, b"", b"\xc1", msgspec.msgpack.encode([1])):
        for kind in (RelayKind.QUESTION, RelayKind.ANSWER):
            node.core._dispatch._relay(LinkRelay("a", "b", body, kind=kind), node.now)
    assert node.core.counts["explanations not read"] == 7
    assert explained(network, "a", {"x": 7}).brokers == ["a", "b"]


def test_a_neighbour_that_is_not_warm_yet_gets_the_event_later() -> None:
    network = Network("a", "b")
    network["a"].attach("b")
    found = explained(network, "a", {"x": 7})
    (link,) = found.hops[0].links
    assert (link.sent, link.why, link.state) == (True, "cold", "down")
    assert found.brokers == ["a"]


def test_a_master_gets_every_event() -> None:
    network = Network("root", "leaf")
    network.link("leaf", "root", Role.PARENT)
    network.settle()
    found = explained(network, "leaf", {"x": 7})
    assert [link.why for link in found.hops[0].links] == ["master"]
    assert found.brokers == ["leaf", "root"]


def test_it_needs_the_right_to_read_the_status() -> None:
    network = Network("a", rules=Rules({}, default=Rights(further=frozenset())))
    ask(network["a"], {"x": 7})
    (failed,) = [each for _, each in network["a"].sent if isinstance(each, Failed)]
    assert (failed.about, failed.number, failed.code) == ("explain", 1, "access")


@pytest.mark.parametrize(
    ("attributes", "code"),
    [(b"\xc1", "event"), (msgspec.msgpack.encode({"x": "y" * 70_000}), "event")],
)
def test_what_is_not_an_event_is_refused(attributes: bytes, code: str) -> None:
    network = Network("a")
    network["a"].hello("q", "")
    (failed,) = network["a"].say("q", Explain(1, msgspec.Raw(attributes)))
    assert isinstance(failed, Failed)
    assert failed.code == code


def test_few_are_explained_at_a_time_and_an_asker_that_has_gone_is_forgotten() -> None:
    network = Network("a", "b").chain()
    subscribed(network, "b", "s", "x > 5")
    node = network["a"]
    for _ in range(16):
        ask(node, {"x": 7})
    ask(node, {"x": 7})
    assert [each.code for _, each in node.sent if isinstance(each, Failed)] == ["busy"]
    node.cut("q")
    network.settle()
    assert answers(node) == []
    assert explained(network, "a", {"x": 7}).brokers == ["a", "b"]


def test_many_long_subscriptions_fit_an_answer() -> None:
    network = Network("a", limits=ClientLimits(subscriptions=10_000))
    node = network["a"]
    node.hello("s", "n" * 200)
    node.say("s", *(Subscribe(SubNumber(n), f"x > 5 AND y != '{n}{'z' * 300}'") for n in range(1_000)))
    network.settle()
    found = explained(network, "a", {"x": 7, "y": "a"})
    assert found.matched == 1_000
    assert len(found.hops[0].subscriptions) == 10
    assert "and 990 more subscriptions" in str(found)
    assert len(msgspec.msgpack.encode(found)) < MOST_BYTES / 100


@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_an_explanation_says_what_publishing_then_does(model: str, advertised: bool) -> None:
    """On a random tree: the event is stored at the brokers that were named, and delivered where subscriptions were."""
    from weft.protocol.messages import Advertise

    seed = [*MODELS].index(model)
    rng = np.random.default_rng(seed)
    names = "abcde"
    network = Network(*names, model=model, schema=SCHEMA, advertised=advertised)
    for at in range(1, len(names)):
        network.link(names[int(rng.integers(at))], names[at])
    network.settle()
    for name in names:
        low = int(rng.integers(7))
        subscribed(network, name, "s", f"x BETWEEN {low} AND {low + int(rng.integers(3))}")
        network[name].hello("p")
        if advertised:
            network[name].say("p", Advertise(1, "x < 8"))
        network.settle()
    for sequence, at in enumerate(rng.integers(len(EVENTS), size=8).tolist(), 1):
        event, home = EVENTS[at], names[sequence % len(names)]
        found = explained(network, home, event)
        assert found.is_whole
        before = {name: (network[name].core.end, len(network[name].got("s"))) for name in names}
        network[home].say("p", Publish.of((sequence - 1) // len(names) + 1, event))
        network.settle()
        after = {name: (network[name].core.end, len(network[name].got("s"))) for name in names}
        assert {hop.broker for hop in found.hops} == {name for name in names if after[name][0] > before[name][0]}
        got = {name: after[name][1] - before[name][1] for name in names if after[name][1] > before[name][1]}
        assert {hop.broker: hop.matched for hop in found.hops if hop.matched} == got
        for hop in found.hops:
            sent = {link.peer for link in hop.links if link.sent}
            assert sent == {each.broker for each in found.hops if each.source == hop.broker}
            exact = model not in ("flooding",)
            assert all(bool(link.items) == (link.sent and exact) for link in hop.links)


def test_a_hashed_filter_that_passes_an_event_by_chance_is_said_to() -> None:
    coarse = {"shape": FilterShape(2, hashes=1), "rate": 0.9}
    network = Network("a", "b", model="dls", schema=SCHEMA, table=coarse).chain()
    subscribed(network, "b", "s", "x = 5 AND y = 1")
    table = network["a"].table
    chance = [event for event in EVENTS if table.route(event, None) and not table.reasons(event, Link("b"), 1)]
    assert chance, "a filter of two counters passes about half of all events"
    (link,) = explained(network, "a", chance[0]).hops[0].links
    assert link.reason == f"none of its {link.heard} items matches, but the filter that is used instead of them does"
