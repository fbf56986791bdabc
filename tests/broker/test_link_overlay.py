"""The tree of brokers: joining and leaving while events flow, cycles, the way to a broker, label spaces that change."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest

from broker.network import Network
from broker.test_link_sessions import completes
from broker.test_links import subscribed
from broker.test_links_random import SCHEMA
from weft.broker.effects import Relayed
from weft.broker.limits import RefusalError
from weft.errors import LocalProtocolError
from weft.protocol.link_messages import LinkEvents, LinkHello, LinkRelay, LinkUpdate
from weft.protocol.messages import Advertise, Bye, Complete, Publish, SubNumber, Subscribe
from weft.routing import MODELS
from weft.routing.adverts import Tunable
from weft.routing.dls.space import LabelSpace


def publish(network: Network, broker: str, first: int, many: int) -> None:
    for sequence in range(first, first + many):
        network[broker].say("p", Publish.of(sequence, {"x": 7}, str(sequence).encode()))


def test_a_broker_joins_and_another_leaves_while_events_flow() -> None:
    network = Network("a", "b", "c")
    network.link("a", "b")
    network.settle()
    subscribed(network, "c", "s", "x > 5")
    subscribed(network, "a", "s", "x > 5")
    network["b"].hello("p")
    publish(network, "b", 1, 3)
    network.link("b", "c")
    publish(network, "b", 4, 3)
    network.settle()
    assert network["a"].got("s") == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert network["c"].got("s") == [b"4", b"5", b"6"], "from the moment at which b has attached it"
    for one, other in (("a", "b"), ("b", "a")):
        network[one].do(network[one].core.detach(other, network[one].now))
    network.settle()
    publish(network, "b", 7, 1)
    network.settle()
    assert network["a"].got("s")[-1] == b"6"
    assert network["c"].got("s")[-1] == b"7"
    assert network["b"].core._links.reach.path("a") == []


def test_everybody_knows_the_way_to_everybody() -> None:
    network = Network("a", "b", "c", "d").chain()
    assert network["a"].core._links.reach.path("d") == ["a", "b", "c", "d"]
    assert network["c"].core._links.reach.path("a") == ["c", "b", "a"]
    network.crash("c")
    network.dial("c", "b")
    network.dial("d", "c")
    network.settle()
    assert network["d"].core._links.reach.path("a") == ["d", "c", "b", "a"]


def test_a_link_that_would_close_a_cycle_is_refused_with_the_way() -> None:
    network = Network("a", "b", "c").chain()
    with pytest.raises(LocalProtocolError, match="c is already reachable: a - b - c"):
        network["a"].attach("c")


def test_two_links_that_close_a_cycle_together_are_found() -> None:
    network = Network("a", "b", "c")
    network["a"].attach("b")
    network["b"].attach("a")
    network["b"].attach("c")
    network["c"].attach("b")
    network["c"].attach("a")
    network["a"].attach("c")
    network.dial("a", "b")
    network.dial("b", "c")
    network.settle()
    network.dial("c", "a")
    network.settle()
    reasons = {name: link.reason for name in "abc" for link in network[name].core.links() if not link.connected}
    assert sorted(reasons) == ["a", "c"]
    assert "these make a cycle: a - b - c - a" in reasons["a"]


def test_a_relay_goes_behind_events_and_updates_and_before_what_comes_later() -> None:
    network = Network("a", "b", "c").chain()
    subscribed(network, "c", "s", "x > 5")
    network["a"].hello("p")
    network["a"].at_once = False
    network["a"].say("p", Publish.of(1, {"x": 7}, b"before"))
    network["a"].hello("t", "")
    network["a"].say("t", Subscribe(SubNumber(1), "y = 1"))
    network["a"].do(network["a"].core.relay("c", b"hello", network["a"].now))
    network["a"].say("p", Publish.of(2, {"x": 7}, b"after"))
    network.settle()
    assert network["c"].relayed == [Relayed("a", b"hello")]
    lane = [message for to, message in network["a"].sent if isinstance(message, LinkEvents | LinkUpdate | LinkRelay)]
    kinds = [type(message).__name__ for message in lane[-4:]]
    assert kinds == ["LinkUpdate", "LinkEvents", "LinkRelay", "LinkEvents"]
    with pytest.raises(LocalProtocolError, match="no way from a to z"):
        network["a"].core.relay("z", b"", network["a"].now)


@pytest.mark.parametrize("settings", ["[]", "7", '{"side": 1, "coming": []}', "[" * 100_000])
def test_a_neighbour_with_another_label_space_and_settings_that_are_nonsense_is_refused(settings: str) -> None:
    node = Network("a", "b", model="dls", schema=SCHEMA).chain()["a"]
    another = json.dumps({**json.loads(node.table.fingerprint), "side": 1, "space": 7})
    node.connect("w")
    hello = LinkHello(name="b", to="a", role="peer", log_id="b", fingerprint=another, settings=settings)
    predicates = node.core._links._predicates
    answer = node.say("w", msgspec.structs.replace(hello, predicates=predicates))[-1]
    assert isinstance(answer, Bye)
    assert answer.code == "refused"


@pytest.mark.parametrize("advertised", [False, True])
def test_a_network_changes_its_label_space_over_links(advertised: bool) -> None:
    network = Network("a", "b", "c", model="dls", schema=SCHEMA, advertised=advertised).chain()
    network["c"].hello("p")
    if advertised:
        network["c"].say("p", Advertise(1, "x < 8"))
        network.settle()
    subscribed(network, "a", "s", "x > 5")
    space = LabelSpace.of(SCHEMA, 4)
    network["a"].do(network["a"].core.retune(space, network["a"].now))
    for _ in range(5):
        network.step()
    network.cut("b", "c")
    network.settle()
    network.crash("c")
    network.dial("b", "c")
    network.settle()
    for name in "abc":
        table = network[name].table
        assert isinstance(table, Tunable)
        assert not table.retuning
    network["c"].hello("p2", "p")
    network["c"].say("p2", Publish.of(1, {"x": 7}, b"1"))
    network.settle()
    assert network["a"].got("s") == [b"1"]
    network.crash("b")
    network.dial("b", "a")
    network.dial("b", "c")
    network.settle()
    network["c"].say("p2", Publish.of(2, {"x": 6}, b"2"))
    network.settle()
    assert network["a"].got("s") == [b"1", b"2"]
    assert Complete(SubNumber(1)) in completes(network["a"], "s")
    network.check()


@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_subscription_that_nobody_covers_reaches_every_broker_that_must_know_it_and_no_other(
    model: str, advertised: bool
) -> None:
    """Every other broker; with advertisements, those on the way to a broker whose clients may publish what it wants."""
    names = "abcdefg"
    edges = ["ab", "bc", "bd", "ae", "ef", "fg"]
    network = Network(*names, model=model, schema=SCHEMA, advertised=advertised)
    for one, other in edges:
        network.link(one, other)
    network.settle()
    if advertised:
        for publisher, promise in (("f", "x < 2"), ("d", "x > 5"), ("b", "x > 5")):
            network[publisher].hello("p")
            network[publisher].say("p", Advertise(1, promise))
        network.settle()
    subscribed(network, "c", "s", "x BETWEEN 0 AND 1")
    assert Complete(SubNumber(1)) in completes(network["c"], "s")
    must = {hop for way in ("cba", "cbd", "cbaefg") for hop in pairwise(way)}
    if advertised:
        must = {*pairwise("cbaef")}
    if model == "flooding":
        must = set()
    links = [*edges, *(other + one for one, other in edges)]
    assert {(one, other) for one, other in links if network[other].heard(one)} == must
    for one, other in must:
        assert one in network[other].table.route({"x": 0, "y": 0}, None)
        assert one not in network[other].table.route({"x": 6, "y": 0}, None)
    network.check()


def retuned_before_b_has_stored_it() -> Network:
    """A label space that b has learnt, and not stored."""
    network = Network("a", "b", model="dls", schema=SCHEMA).chain()
    network["b"].at_once = False
    network["a"].do(network["a"].core.retune(LabelSpace.of(SCHEMA, 4), network["a"].now))
    network.settle(but="b")
    assert network["b"].persists
    return network


def at_rest(network: Network) -> bool:
    tables = [network[name].table for name in "ab"]
    assert all(isinstance(table, Tunable) for table in tables)
    return not any(table.retuning for table in tables) and len({table.fingerprint for table in tables}) == 1  # type: ignore[attr-defined]


def test_a_label_space_is_confirmed_when_it_is_stored() -> None:
    network = retuned_before_b_has_stored_it()
    network.crash("b")
    network["b"].at_once = True
    network.dial("b", "a")
    network.settle()
    assert network["a"].link("b").connected, "both still agree on what they have in common"
    assert at_rest(network)


def test_a_label_space_that_a_full_log_refuses_is_stored_later() -> None:
    network = retuned_before_b_has_stored_it()
    network["b"].reject()
    network.settle(but="b")
    assert not at_rest(network)
    network["b"].at_once = True
    network["b"].wait(2_000_000)
    network.settle()
    assert at_rest(network)
    network.crash("b")
    network.dial("b", "a")
    network.settle()
    assert network["a"].link("b").connected
    assert at_rest(network)


def test_two_brokers_never_begin_two_label_spaces() -> None:
    """Neighbours that changed to different ones would refuse each other for ever."""
    network = Network("a", "b", "c", model="dls", schema=SCHEMA).chain()
    network.settle()
    for name in "bc":
        with pytest.raises(RefusalError, match="a begins all re-tunings of this network"):
            network[name].core._links.check_leader()  # as whoever asks for it finds out
    network.cut("b", "c")  # c still knows who begins
    with pytest.raises(RefusalError, match="a begins all re-tunings"):
        network["c"].core._links.check_leader()
    network.crash("c")  # and knows it no more
    with pytest.raises(LocalProtocolError, match="b has not been here since this broker started"):
        network["c"].core._links.check_leader()
    network["a"].core._links.check_leader()
    network["a"].do(network["a"].core.retune(LabelSpace.of(SCHEMA, 8), network["a"].now))
    network.dial("b", "c")
    network.settle()
    for name in "abc":
        assert network[name].table.settings == network["a"].table.settings
    network.check()
