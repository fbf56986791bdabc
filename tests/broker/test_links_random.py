"""Brokers on a random tree, cut, crashed and healed: nothing is lost, nothing is wrong, nothing is complete early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from broker.network import Network
from strategies import EXAMPLES
from weft import Schema
from weft.broker.admission import read_head
from weft.broker.limits import ClientLimits
from weft.language.meaning import matches
from weft.language.text import parse
from weft.protocol.messages import Advertise, Complete, Deliver, Publish, SubNumber, Subscribe, Unsubscribe, Welcome
from weft.routing import MODELS
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import FilterShape
from weft.routing.table import Link

LIMITS = ClientLimits(
    slice=2, link_frames=3, link_control=4, link_events=4, turn=3, tail=3_000, window_events=50, backoff=100
)
SCHEMA = Schema.from_dict({"attributes": {name: {"type": "int", "bounds": [0, 8]} for name in ("x", "y")}})
EVENTS = [{"x": x, "y": y} for x in range(8) for y in range(4)]


class World:
    """A subscriber and a publisher at each broker."""

    def __init__(self, seed: int, model: str, advertised: bool = False, **options: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.names = [chr(97 + n) for n in range(2 + self.draw(4))]
        self.advertised = advertised
        at_once = bool(self.draw(2))  # or groups are stored now and then, and a crash loses the rest
        self.network = Network(
            *self.names, model=model, schema=SCHEMA, advertised=advertised, limits=LIMITS, at_once=at_once, **options
        )
        self.edges = [(self.names[self.draw(n)], self.names[n]) for n in range(1, len(self.names))]
        self.subs: dict[tuple[str, int], str] = {}  # by broker and number: the filter
        self.complete: set[tuple[str, int]] = set()
        self.promised: set[str] = set()  # brokers whose advertisement is complete
        self.expected: dict[tuple[str, int], list[bytes]] = {}
        self.events: dict[bytes, dict[str, int]] = {}
        self.stored: dict[tuple[str, int], bytes] = {}  # by publisher and sequence; an event that is lost is replaced
        self.sequence = dict.fromkeys(self.names, 0)
        self.numbers = 0
        self.lives = 0
        self.seen: dict[str, int] = dict.fromkeys(self.names, 0)
        self.delivered: dict[str, set[tuple[bytes, int]]] = {name: set() for name in self.names}
        self.order: dict[str, list[bytes]] = {name: [] for name in self.names}
        for one, other in self.edges:
            self.network.link(one, other)
        for name in self.names:
            self.greet(name)
            if advertised:
                self.say(name, "p", Advertise(1, "x < 8"))
                while self.network[name].persists:
                    self.network.commit(name)

    def draw(self, high: int) -> int:
        return int(self.rng.integers(high))

    def pick(self, things: list[Any]) -> Any:
        return things[self.draw(len(things))]

    def greet(self, name: str) -> None:
        self.lives += 1
        node = self.network[name]
        for client in "sp":
            node.hello(f"{client}{self.lives}", client)
        while node.persists:
            node.commit()
        node.life = self.lives  # type: ignore[attr-defined]
        self.seen[name] = 0
        for to, message in node.sent:
            if isinstance(message, Welcome) and to.startswith("p"):
                for sequence in range(message.pub_seq + 1, self.sequence[name] + 1):
                    del self.stored[name, sequence]
                self.sequence[name] = message.pub_seq
            elif isinstance(message, Welcome):
                for number in [each for at, each in self.subs if at == name and each not in message.subscriptions]:
                    del self.subs[name, number]
                    self.complete.discard((name, number))

    def say(self, name: str, client: str, *messages: Any) -> list[Any]:
        answer = self.network[name].say(f"{client}{self.network[name].life}", *messages)  # type: ignore[attr-defined]
        self.look()
        return answer

    # -- what happens ---------------------------------------------------------------------------------

    def step(self) -> None:
        name = self.pick(self.names)
        kind = self.draw(20)
        if kind < 4:
            self.numbers += 1
            low, wide = self.draw(8), 1 + self.draw(4)
            text = f"x >= {low} AND x < {low + wide}" + (f" AND y = {self.draw(4)}" if self.draw(2) else "")
            self.subs[name, self.numbers] = text
            self.expected[name, self.numbers] = []
            self.say(name, "s", Subscribe(SubNumber(self.numbers), text))
        elif kind < 6 and self.subs:
            name, number = self.pick(sorted(self.subs))
            del self.subs[name, number]
            self.complete.discard((name, number))
            self.say(name, "s", Unsubscribe(SubNumber(number)))
        elif kind < 10:
            self.publish(name)
        elif kind < 11 and self.draw(3) == 0:
            self.network.cut(*self.pick(self.edges))
        elif kind < 12 and self.draw(6) == 0:
            self.network.crash(name)
            self.greet(name)
        elif kind < 14:
            one, other = self.pick(self.edges)
            self.network.dial(*((one, other) if self.draw(2) else (other, one)))
        else:
            for _ in range(self.draw(30)):
                if self.draw(3) == 0:
                    self.network.commit(self.pick(self.names))
                else:
                    self.network.step()
                self.look()

    def publish(self, name: str) -> None:
        event = self.pick(EVENTS)
        self.sequence[name] += 1
        payload = f"{name}{len(self.events)}".encode()
        self.events[payload] = event
        self.stored[name, self.sequence[name]] = payload
        wanted = [key for key in sorted(self.complete) if matches(parse(self.subs[key]), event)]
        if self.advertised and name not in self.promised:
            wanted = [key for key in wanted if key[0] == name]
        self.say(name, "p", Publish.of(self.sequence[name], event, payload))
        for key in wanted:
            self.expected[key].append(payload)

    def retune(self) -> None:
        """Another label space for the whole network, unless it is changing already."""
        tables: list[Any] = [node.table for node in self.network.nodes.values()]
        if not any(table.retuning for table in tables) and len({table.fingerprint for table in tables}) == 1:
            node = self.network[self.pick(self.names)]
            node.do(node.core.retune(LabelSpace.of(SCHEMA, 2 + self.draw(4)), node.now))
            self.look()

    def look(self) -> None:
        """See what brokers have told their clients."""
        for name, node in self.network.nodes.items():
            new, self.seen[name] = node.sent[self.seen[name] :], len(node.sent)
            for to, message in new:
                if isinstance(message, Complete):
                    if message.about == "advertise":
                        self.promised.add(name)
                    elif (name, message.number) in self.subs:
                        self.complete.add((name, message.number))
                        self.walk(name, self.subs[name, message.number])
                elif isinstance(message, Deliver) and to.startswith("s"):
                    event = read_head(bytes(message.head)).attributes
                    assert event == self.events[message.payload]
                    for number in message.numbers:
                        if (name, number) in self.subs:
                            assert matches(parse(self.subs[name, number]), event)
                        if message.attempt == 1:
                            assert (message.payload, number) not in self.delivered[name], "delivered twice"
                        self.delivered[name].add((message.payload, number))
                    if message.attempt == 1:
                        self.order[name].append(message.payload)

    def walk(self, home: str, text: str) -> None:
        """Every broker routes what a subscription wants towards it."""
        wanted = [event for event in EVENTS if matches(parse(text), event)]
        way = {home: home}
        todo = [home]
        while todo:
            at = todo.pop()
            for edge in self.edges:
                if at in edge:
                    other = edge[0] if edge[1] == at else edge[1]
                    if other not in way:
                        way[other] = at
                        todo.append(other)
        for name, towards in way.items():
            if name != home and (not self.advertised or name in self.promised):
                table = self.network[name].table
                for event in wanted:
                    assert Link(towards) in table.route(event, None), f"{name} does not route to {towards}: early"

    # -- the end --------------------------------------------------------------------------------------

    def heal(self) -> None:
        for _ in range(4):
            for one, other in self.edges:
                if not self.network[one].link(other).connected:
                    self.network.dial(one, other)
            self.network.settle()
            self.look()
        for name in self.names:
            node = self.network[name]
            for status in node.core.links():
                assert status.connected, status
                assert status.warm
                assert not status.resyncing
                assert (status.waiting_control, status.waiting_changes, status.in_flight) == (0, 0, 0)
        self.network.check()
        assert self.complete == self.subs.keys()
        kept = {*self.stored.values()}
        for (name, number), payloads in self.expected.items():
            if (name, number) in self.subs:
                missing = [each for each in payloads if each in kept and (each, number) not in self.delivered[name]]
                assert not missing, f"{name} lost {missing}"
        for name, payloads in self.order.items():
            for publisher in self.names:
                mine = [int(each[1:]) for each in payloads if each[:1] == publisher.encode()]
                assert mine == sorted(mine), f"{name} got events of {publisher} out of order"


@pytest.mark.parametrize("advertised", [False, True])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_nothing_is_lost_and_nothing_is_early(model: str, advertised: bool) -> None:
    for seed in range(2 * EXAMPLES) if EXAMPLES > 1 else [sorted(MODELS).index(model) % 2]:
        world = World(seed, model, advertised)
        for _ in range(60):
            world.step()
        world.heal()


@pytest.mark.parametrize("shape", [None, FilterShape(16)])
@pytest.mark.parametrize("advertised", [False, True])
def test_label_spaces_and_filters_change_and_nothing_is_lost(advertised: bool, shape: FilterShape | None) -> None:
    for seed in range(2, 4 * EXAMPLES) if EXAMPLES > 1 else [2 + advertised]:
        world = World(seed, "dls", advertised, table={"shape": shape})
        for _ in range(80):
            world.step()
            if world.draw(8) == 0:
                world.retune()
        world.heal()
        assert not any(node.table.retuning for node in world.network.nodes.values())  # type: ignore[attr-defined]
