"""Places of events in networks of brokers: the same deliveries with and without, and what becomes of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from weft.broker.effects import ConnectionId
from weft.client.event_mapping import mapping_of
from weft.client.publisher import UnconfirmedEvent
from weft.log.base import Offset
from weft.model.schema import Schema
from weft.network.cores import BrokerNetwork, LinkEnd, Travelling
from weft.protocol.link_messages import PLACES_WANTED, LinkEvent, LinkEvents, PlacedLinkEvents
from weft.protocol.messages import AskSpace, OfferedSpace, Publish, PublishPlaced, SubNumber, Subscribe
from weft.routing.dls.space import LabelSpace

MODELS = ("mics", "dls")
SCHEMA = Schema.from_dict(
    {"attributes": {"x": {"type": "int", "bounds": [0, 7]}, "y": {"type": "string", "categories": ["a", "b"]}}}
)
FILTERS = ("x > 3", "x BETWEEN 2 AND 5 AND y = 'a'", "y = 'b'", "x = 7", "x IS NULL", "TRUE", "x < 2 OR y = 'c'")
EVENTS: list[dict[str, Any]] = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    for x in (*range(8), -5, 99, "seven", 3.0, 2.5, None)
    for y in ("a", "b", "c", None)
]


class Draws:
    """What brokers draw: ids of sessions, and which places are examined besides the first; none, or all `now`."""

    def __init__(self) -> None:
        self.drawn, self.now = 0, False

    def __call__(self) -> int:
        self.drawn += 32
        return self.drawn + (not self.now)


class Publisher:
    """A client with a session of its own, which publishes at a broker; it maps its events with what it is offered."""

    def __init__(self, network: BrokerNetwork, broker: str, name: str, *, maps: bool) -> None:
        self.network, self.broker, self.name, self.sequence = network, network[broker], name, 0
        self.broker.hello(name, versions=(2, 7 if maps else 6))
        if maps:
            self.broker.say(name, AskSpace())

    @property
    def offers(self) -> list[OfferedSpace]:
        """The spaces that it was offered."""
        return [each for each in self.broker.messages(self.name) if isinstance(each, OfferedSpace)]

    def publish(self, *events: dict[str, Any], settle: bool = True, **wrong: Any) -> None:
        """Publish events together, with what is `wrong` about their places."""
        made = [UnconfirmedEvent(msgspec.Raw(msgspec.msgpack.encode(event))) for event in events]
        mapping = mapping_of(self.offers[-1].number, self.offers[-1].packed) if self.offers else None
        places = None if mapping is None else mapping.places(made)
        said: list[Publish] = []
        for at, event in enumerate(made):
            self.sequence += 1
            payload = f"{self.name} {self.sequence}".encode()
            if mapping is None or places is None:
                said.append(Publish(self.sequence, event.attributes, payload))
            else:
                place = {"space": mapping.number, "place": places[at], **wrong}
                said.append(PublishPlaced(self.sequence, event.attributes, payload, **place))
        self.broker.say(self.name, *said)
        if settle:
            self.network.settle()


class Network(BrokerNetwork):
    """With `old` neighbours, nobody understands that a broker asks for places."""

    old = False

    def arrive(self, end: LinkEnd, data: Travelling | None) -> None:
        if not (self.old and isinstance(data, bytes) and PLACES_WANTED in data):
            super().arrive(end, data)


def tree(model: str, size: int, seed: int = 1, **options: Any) -> Network:
    """Brokers in a random tree."""
    rng, names = Random(seed), [f"b{number}" for number in range(size)]
    network = Network(*names, model=model, schema=SCHEMA, checked=True, **options)
    for at in range(1, size):
        network.link(names[rng.randrange(at)], names[at])
    network.settle()
    return network


def chain(model: str, *names: str, **options: Any) -> Network:
    network = Network(*names, model=model, schema=SCHEMA, **options)
    network.chain()
    return network


def subscribe(network: BrokerNetwork, broker: str, name: str, *filters: str) -> None:
    network[broker].hello(name)
    network[broker].say(name, *(Subscribe(SubNumber(at), text) for at, text in enumerate(filters, 1)))
    network.settle()


def count(network: BrokerNetwork, broker: str, what: str) -> int:
    return network[broker].core.counts.get(what, 0)


def placed_frames(network: BrokerNetwork, broker: str) -> list[bool]:
    """Of the frames of events that a broker has sent to neighbours: whether they had places."""
    return [type(each) is PlacedLinkEvents for _, each in network[broker].sent if isinstance(each, LinkEvents)]


def deliveries(model: str, seed: int, mapping: Sequence[bool], *, old: bool = False) -> dict[str, list[bytes]]:
    """What each subscriber of a random tree gets; `mapping` says which publishers map."""
    rng = Random(seed)
    network = tree(model, rng.randrange(2, 6), seed)
    network.old = old
    names = [*network.brokers]
    for at in range(4):
        subscribe(network, rng.choice(names), f"s{at}", *rng.sample(FILTERS, 2))
    publishers = [Publisher(network, rng.choice(names), f"p{at}", maps=maps) for at, maps in enumerate(mapping)]
    for _ in range(12):
        publisher = rng.choice(publishers)
        publisher.publish(*rng.sample(EVENTS, rng.choice((1, 2, 7, 20))), settle=rng.random() < 0.7)
    network.settle()
    network.check()
    assert not any(count(network, name, "wrong places") for name in names)
    return {f"s{at}": sorted(got) for at in range(4) for got in [delivered(network, f"s{at}")]}


def delivered(network: BrokerNetwork, client: str) -> list[bytes]:
    return [payload for broker in network.brokers.values() for payload in broker.got(client)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_is_delivered_whoever_maps(model: str, seed: int) -> None:
    plain = deliveries(model, seed, (False, False, False), old=True)
    assert any(plain.values())
    for mapping in ((False, False, False), (True, True, True), (True, False, True)):
        assert deliveries(model, seed, mapping) == plain
    assert deliveries(model, seed, (True, False, True), old=True) == plain


@pytest.mark.parametrize("model", MODELS)
def test_only_what_is_examined_is_mapped_again(model: str) -> None:
    """Neither the broker of the publisher nor one in the middle maps events; the first run of each is examined."""
    network = chain(model, "a", "b", "c", draw=Draws())
    subscribe(network, "c", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=True)
    for _ in range(5):
        publisher.publish(*EVENTS[:10])
    assert len(network["c"].got("s")) == 50
    assert [count(network, name, "events mapped") for name in "abc"] == [10, 10, 0]
    assert [count(network, name, "places examined") for name in "abc"] == [10, 10, 0]
    assert placed_frames(network, "a") == [True] * 5
    assert placed_frames(network, "b") == [False] * 5, "the last broker has no use for places, and did not ask"


@pytest.mark.parametrize("model", MODELS)
def test_a_broker_maps_once_for_all_behind_it(model: str) -> None:
    network = chain(model, "a", "b", "c", draw=Draws())
    subscribe(network, "c", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=False)
    for _ in range(5):
        publisher.publish(*EVENTS[:10])
    assert [count(network, name, "events mapped") for name in "abc"] == [50, 10, 0]
    assert publisher.offers == []


def test_neighbours_that_do_not_know_places_get_frames_as_before() -> None:
    old, new = (chain("mics", "a", "b", "c") for _ in range(2))
    old.old = True
    for network in (old, new):
        network.cut("a", "b")
        network.dial("a", "b")
        network.settle()
        subscribe(network, "c", "s", "x > 3")
        for maps in (False, True):
            Publisher(network, "a", f"p{maps}", maps=maps).publish(*EVENTS[10:30])
    assert not any(placed_frames(old, "a"))
    assert all(placed_frames(new, "a"))
    assert old["c"].got("s") == new["c"].got("s") != []


@pytest.mark.parametrize("model", ["covering", "simple", "mics-exact"])
def test_a_model_without_places_offers_no_space_and_asks_for_no_places(model: str) -> None:
    network = chain(model, "a", "b", "c")
    subscribe(network, "c", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:5])
    assert [each.packed for each in publisher.offers] == [b""]
    assert len(network["c"].got("s")) == 5
    relays = [
        each for broker in network.brokers.values() for _, each in broker.sent if PLACES_WANTED in repr(each).encode()
    ]
    assert relays == []


# -- wrong places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_a_wrong_place_harms_the_events_of_its_publisher_and_no_others(model: str) -> None:
    """Subscribers at the publisher's own broker get every event. The first wrong place that is examined is the last
    one that is used.
    """
    draws = Draws()
    network = chain(model, "a", "b", "c", draw=draws)
    subscribe(network, "a", "here", "x = 7")
    subscribe(network, "c", "there", "x = 7")
    honest, liar = (Publisher(network, "a", name, maps=True) for name in ("honest", "liar"))
    for publisher in (honest, liar):
        publisher.publish(*[{"x": 7}] * 4)
    made = mapping_of(liar.offers[-1].number, liar.offers[-1].packed)
    assert made is not None
    (elsewhere,) = made.places([UnconfirmedEvent(msgspec.Raw(msgspec.msgpack.encode({"x": 0})))]) or ()
    for publisher, wrong in ((liar, {"place": elsewhere}), (honest, {})) * 3:
        publisher.publish({"x": 7}, **wrong)
    lost = {f"liar {n}".encode() for n in (5, 6, 7)}
    draws.now = True
    liar.publish({"x": 7}, place=elsewhere)
    draws.now = False
    liar.publish(*[{"x": 7}] * 3, place=elsewhere)
    everything = {f"honest {n + 1}".encode() for n in range(honest.sequence)}
    everything |= {f"liar {n + 1}".encode() for n in range(liar.sequence)}
    assert {*network["a"].got("here")} == everything
    assert {*network["c"].got("there")} == everything - lost
    assert count(network, "a", "wrong places") == 1


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("place", [b"", b"\xff" * 16, b"\xff\xff\xff"])
def test_what_is_no_place_is_counted_and_ignored(model: str, place: bytes) -> None:
    network = chain(model, "a", "b", draw=Draws())
    subscribe(network, "b", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:4])
    publisher.publish(*EVENTS[:4], place=place)
    publisher.publish(*EVENTS[:4])
    assert len(network["b"].got("s")) == 12
    assert count(network, "a", "wrong places") == 4
    assert count(network, "a", "events mapped") == 12, "nothing that it sends is used any more"


def test_places_of_another_space_are_ignored() -> None:
    network = chain("mics", "a", "b", draw=Draws())
    subscribe(network, "b", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:4], space=17)
    assert count(network, "a", "places of another space") == 4
    assert count(network, "a", "wrong places") == 0
    assert len(network["b"].got("s")) == 4


@pytest.mark.parametrize("space", [b"", b"elsewher"])
def test_a_neighbour_may_send_any_bytes_as_places(space: bytes) -> None:
    """They are ignored, whatever they are; and so are wrong ones once they are examined."""
    network = chain("dls", "a", "b", "c", draw=Draws())
    subscribe(network, "c", "s", "TRUE")
    (end,) = (end for end, other in network.wires.items() if (end.broker, other.broker) == ("b", "a"))
    known = network["b"].core._parts.places.wanted
    head = msgspec.Raw(msgspec.msgpack.encode([{"x": 7}]))
    for at, (name, places) in enumerate(((space, b""), (known, b""), (known, b"\xff" * 2), (known, b"\0" * 2)), 1):
        events = (LinkEvent(Offset(at), 5, 1, at, head, b"%d" % at),)
        network["b"].receive(ConnectionId(end.connection), [PlacedLinkEvents(events, space=name, places=places)])
        network.settle()
    assert network["c"].got("s") == [b"1", b"2", b"3", b"4"]
    assert count(network, "b", "wrong places") == 3
    assert count(network, "b", "places of another space") == 1


# -- spaces that change --------------------------------------------------------------------------------------------


def test_a_space_is_offered_while_there_are_neighbours() -> None:
    network = Network("a", "b", model="mics", schema=SCHEMA)
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:3])
    assert [bool(each.packed) for each in publisher.offers] == [False]
    network.link("a", "b")
    network.settle()
    assert [bool(each.packed) for each in publisher.offers] == [False, True]
    subscribe(network, "b", "s", "TRUE")
    publisher.publish(*EVENTS[:3])
    assert len(network["b"].got("s")) == 3
    assert count(network, "a", "places examined") == 3


@pytest.mark.parametrize("later", [False, True])
def test_a_client_learns_the_space_of_a_network_that_was_retuned(later: bool) -> None:
    network = chain("dls", "a", "b", "c", draw=Draws())
    subscribe(network, "c", "s", "x > 3")
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:20])
    before = publisher.offers[-1]
    network["b"].call(network["b"].core.retune, LabelSpace.of(SCHEMA, 4))
    if later:
        publisher.publish(*EVENTS[:20], settle=False)  # which are mapped in the old space
    network.settle()
    assert [bool(each.packed) for each in publisher.offers] == [True, False, True]
    assert publisher.offers[-1].packed != before.packed
    mapped = count(network, "a", "events mapped")
    publisher.publish(*EVENTS[20:40])
    publisher.publish(*EVENTS[40:])
    assert count(network, "a", "events mapped") == mapped + 20, "the first run in the new space is examined"
    assert placed_frames(network, "a")[-1]
    publisher.publish(*EVENTS[:20], space=before.number)
    assert count(network, "a", "places of another space") == 20
    due = sum(1 for event in (*EVENTS, *EVENTS[:20], *(EVENTS[:20] if later else ())) if matches_x(event))
    assert len(network["c"].got("s")) == due
    assert not any(count(network, name, "wrong places") for name in "abc")


def matches_x(event: dict[str, Any]) -> bool:
    value = event.get("x")
    return isinstance(value, int) and value > 3


def test_events_from_the_log_are_sent_without_places() -> None:
    """A link that was down gets them from the log, or from memory with the places that they came with."""
    network = chain("mics", "a", "b", "c")
    subscribe(network, "c", "s", "TRUE")
    publisher = Publisher(network, "a", "p", maps=True)
    publisher.publish(*EVENTS[:3])
    network.cut("a", "b")
    publisher.publish(*EVENTS[:3])
    network.crash("a")
    network.dial("a", "b")
    network.settle()
    assert placed_frames(network, "a") == [False]
    assert len(network["c"].got("s")) == 6
