"""Brokers on a simulated ring: each has a core with a log in memory, a bridge and a node of the ring."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from broker.harness import UTC, Broker
from weft.broker.effects import Now
from weft.language.text import parse
from weft.log.base import Offset
from weft.log.memory import MemoryLog
from weft.protocol.messages import Complete, Publish, Subscribe
from weft.ring.bridge import RING, BridgeClosed, BridgeEffect, RingBridge, ToBroker
from weft.ring.chord import ChordNode
from weft.ring.key_mapping import KeyMapping
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import JoiningFailed, RingEffect, RingReader, RingSend, encode_ring
from weft.ring.ring_settings import RingSettings
from weft.ring.topics import TopicAttribute
from weft.routing.table import About
from weftlab.engine import Engine

TICK = 100_000
SPACE_BITS = 10


class RingBroker:
    """One process: what is lost when it is killed is everything but the log."""

    def __init__(self, ring: BrokerRing, name: str, log: MemoryLog) -> None:
        self.ring, self.name = ring, name
        life = next(ring.lives)
        ids = count(life << 32)  # sessions of different brokers have different ids
        self.broker = Broker(log, name=name, model="simple", draw=lambda: next(ids))
        self.links = count(1)
        self.link = ""
        self.taken = 0
        chord = ChordNode(ring.settings.mapping.space, name, successors=4, life=life)
        node = RendezvousNode(chord, ring.settings, ring.rng)
        codec = self.broker.core.table.codec
        everything = codec.encode_item(About.SUBSCRIPTIONS, parse("TRUE"))
        log_id = f"bridge {name} {life}"
        had = [(a, b, c) for group in log.read(Offset(1), 1000) for a, b, c in group.events.origins.tolist()]
        self.bridge = RingBridge(
            node,
            log_id,
            everything,
            lambda body: codec.decode_item(About.SUBSCRIPTIONS, body),  # type: ignore[arg-type, return-value]
            ring.topics,
            had,
            ring.keep,
        )

    @property
    def now(self) -> int:
        return self.ring.engine.now

    def start(self, known: str | None) -> None:
        self.at()
        if not self.broker.core.links():
            self.broker.attach(RING)
        if known is None:
            self.bridge.joined = True
        else:
            self.join(known)
        self.dial()
        self.ring.engine.after(int(self.ring.rng.integers(TICK)), self.tick)

    def join(self, known: str) -> None:
        if self.ring.brokers.get(self.name) is self:
            self.hear(self.bridge.node.join(NodeAddress(known), self.now))

    def hear(self, effects: list[RingEffect]) -> None:
        """What the node wants done. One that cannot join tries again: its former life may not be forgotten yet."""
        if any(isinstance(effect, JoiningFailed) for effect in effects):
            known = next(name for name in self.ring.brokers if name != self.name)
            self.ring.engine.after(1_000_000, lambda: self.join(known))
        self.perform(self.bridge.ring(effects, self.now))

    def at(self) -> None:
        self.broker.now = Now(self.now, UTC + self.now)

    def dial(self) -> None:
        self.link = f"link{next(self.links)}"
        self.broker.dial(self.link, RING)

    def tick(self) -> None:
        if self.ring.brokers.get(self.name) is not self:
            return
        self.at()
        self.broker.wait(0)
        self.hear(self.bridge.node.tick(self.now))
        self.perform(self.bridge.tick(self.now))
        self.perform(self.bridge.beat())
        self.flush()
        self.ring.engine.after(TICK, self.tick)

    def flush(self) -> None:
        """Hand what the broker has sent to the bridge."""
        while self.taken < len(self.broker.sent):
            sent = self.broker.sent[self.taken :]
            self.taken = len(self.broker.sent)
            for to, message in sent:
                if to == self.link:
                    self.perform(self.bridge.receive([message], self.now))  # type: ignore[list-item]

    def perform(self, effects: list[BridgeEffect]) -> None:
        for effect in effects:
            match effect:
                case RingSend(to, message):
                    self.ring.send(self.bridge.node.me, to, message)
                case ToBroker(messages):
                    self.at()
                    self.broker.say(self.link, *messages)
                case BridgeClosed():
                    self.broker.cut(self.link)
                    self.taken = len(self.broker.sent)
                    self.dial()

    def say(self, client: str, *messages: Any) -> None:
        self.at()
        if client not in self.broker.driver.connections:
            self.broker.hello(client)
        self.broker.say(client, *messages)
        self.flush()

    def got(self, client: str) -> list[bytes]:
        return self.broker.got(client)

    def numbers(self, client: str) -> list[int]:
        """The payloads in ascending order: a ring keeps no order."""
        return sorted(map(int, self.got(client)))

    def complete(self, client: str) -> bool:
        return any(isinstance(each, Complete) for to, each in self.broker.sent if to == client)

    @property
    def floor(self) -> int:
        """The first offset that the log keeps for the ring."""
        return self.broker.core._neighbours["ring"].window.acked_below


class BrokerRing:
    """All of them; a message takes 1 to 20 ms, and is lost if its receiver is down."""

    def __init__(self, mapping: KeyMapping, names: list[str], seed: int = 0, topic: str = "", **settings: Any) -> None:
        self.topics = TopicAttribute(topic)
        self.rng = np.random.default_rng(seed)
        self.engine = Engine()
        self.settings = RingSettings(mapping, confirmed=True, **settings)
        self.brokers: dict[str, RingBroker] = {}
        self.keep = settings.get("keep", 60_000_000)
        self.lives = count(1)
        self.sequence = count(1)
        for name in names:
            self.add(name)
            self.run(3)

    def add(self, name: str, log: MemoryLog | None = None) -> RingBroker:
        known = next(iter(self.brokers), None)
        made = RingBroker(self, name, log or MemoryLog(f"log of {name}"))
        self.brokers[name] = made
        made.start(known)
        return made

    def send(self, sender: NodeRef, to: str, message: Any) -> None:
        data = encode_ring(sender, [message])
        self.engine.after(int(self.rng.integers(1, 20)) * 1000, lambda: self.arrive(to, data))

    def arrive(self, to: str, data: bytes) -> None:
        target = self.brokers.get(to)
        if target is not None:
            for frame in RingReader().feed(data):
                target.hear(target.bridge.node.receive(frame.sender, frame.messages, self.engine.now))
            target.flush()

    def kill(self, name: str) -> MemoryLog:
        return self.brokers.pop(name).broker.log.crash()

    def run(self, seconds: float) -> None:
        self.engine.run(self.engine.now + int(seconds * 1e6))

    def subscribe(self, name: str, client: str, number: int, text: str, durable: bool = True) -> None:
        self.brokers[name].say(client, Subscribe(number, text, durable=durable))  # type: ignore[arg-type]

    def publish(self, name: str, sequence: int, event: dict[str, Any], payload: bytes) -> None:
        self.brokers[name].say("publisher", Publish.of(sequence, event, payload))

    def publish_numbers(self, name: str, numbers: Iterable[int], every: float = 0.0) -> None:
        """Events with x = number and the number as payload, so many seconds apart."""
        for number in numbers:
            self.publish(name, number, {"x": number}, b"%d" % number)
            self.run(every)

    def come_back(self, name: str, log: MemoryLog, client: str) -> RingBroker:
        """A broker is started again, has time to get what it is owed, and its client connects."""
        again = self.add(name, log)
        self.run(15)
        again.say(client)
        self.run(1)
        return again

    def stored(self) -> set[tuple[str, int]]:
        """Subscriptions that some node answers for: the homes and numbers."""
        nodes = [each.bridge.node for each in self.brokers.values()]
        records = [record for node in nodes for record in node.records if node.keys.serves(record.key)]
        return {(record.sub.home, record.sub.number) for record in records}
