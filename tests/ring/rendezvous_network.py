"""Rendezvous nodes on a simulated clock, with messages that take random times, and an oracle of deliveries."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from weft.algebra.normalize import normalize
from weft.index.scan import ScanIndex
from weft.language.meaning import matches
from weft.language.text import parse
from weft.ring.chord import ChordNode, quiet_ring
from weft.ring.key_mapping import KeyMapping, Semantics, partially_matches
from weft.ring.messages import NodeAddress
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    Delivered,
    EventId,
    JoinedRing,
    JoiningFailed,
    LeftRing,
    PublicationDone,
    Reshaped,
    Returned,
    RingEffect,
    RingSend,
    Subscribed,
    Unsubscribed,
)
from weft.ring.ring_settings import RingSettings
from weftlab.engine import Engine

Topics = tuple[str, ...]
MILLI = 1_000
TICK = 100 * MILLI


class RendezvousNetwork:
    """Nodes by address. A message takes 1 to 50 ms; a node that is gone answers nothing."""

    def __init__(self, mapping: KeyMapping, ids: list[int], seed: int, **settings: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.engine = Engine()
        self.settings = RingSettings(mapping, **{"index": ScanIndex, **settings})
        self.nodes: dict[NodeAddress, RendezvousNode] = {}
        self.sent = 0
        self.lives = 0
        self.effects: list[tuple[NodeAddress, RingEffect]] = []
        self.delivered: Counter[tuple[EventId, NodeAddress, int]] = Counter()
        self.active: dict[tuple[NodeAddress, int], tuple[Topics, str]] = {}  # Subscribed, and not removed
        self._asked: dict[tuple[NodeAddress, int], tuple[Topics, str]] = {}
        self._ever_asked: dict[tuple[NodeAddress, int], set[tuple[Topics, str]]] = defaultdict(set)
        self.expected: dict[EventId, set[tuple[NodeAddress, int]]] = {}
        self.unpublished: set[EventId] = set()
        self.published: dict[EventId, tuple[str, dict[str, Any]]] = {}
        self.owed: dict[NodeAddress, dict[EventId, set[NodeAddress]]] = defaultdict(dict)  # by publisher
        self.cut_off: set[NodeAddress] = set()  # they reach each other, and nobody else
        for chord in quiet_ring(mapping.space, ids, 4):
            self._start(chord)

    def _start(self, chord: ChordNode) -> RendezvousNode:
        node = RendezvousNode(chord, self.settings, self.rng)
        self.nodes[chord.me.address] = node
        self.engine.after(int(self.rng.integers(TICK)), lambda: self._tick(node))
        return node

    def _tick(self, node: RendezvousNode) -> None:
        if self.nodes.get(node.me.address) is node:
            self.perform(node, node.tick(self.engine.now))
            self.engine.after(TICK, lambda: self._tick(node))

    def perform(self, node: RendezvousNode, effects: list[RingEffect]) -> None:
        for effect in effects:
            if isinstance(effect, RingSend):
                self.sent += 1
                delay = int(self.rng.integers(1, 50)) * MILLI
                self.engine.after(delay, lambda effect=effect: self._arrive(node, effect))
                continue
            here = node.me.address
            self.effects.append((here, effect))
            match effect:
                case Delivered(number, event):
                    self.delivered[event.id, here, number] += 1
                case Subscribed(number):
                    if (here, number) in self._asked:
                        self.active[here, number] = self._asked[here, number]
                case PublicationDone(id, silent):
                    self.unpublished.discard(id)
                    self._owe(node, id, set(silent))
                case Returned(address):
                    for each, owed in list(self.owed[here].items()):
                        if address in owed:
                            topic, event = self.published[each]
                            self.perform(node, node.publish(topic, event, self.engine.now, each)[1])
                case LeftRing() | JoiningFailed():
                    del self.nodes[here]
                case Unsubscribed() | JoinedRing() | Reshaped():
                    pass

    def _owe(self, node: RendezvousNode, id: EventId, silent: set[NodeAddress]) -> None:
        """An event is published again when a node that it is owed to has returned."""
        owed = self.owed[node.me.address]
        owed.pop(id, None)
        if silent and id in self.published:
            owed[id] = silent
        node.owe({address for addresses in owed.values() for address in addresses}, self.engine.now)

    def _arrive(self, sender: RendezvousNode, effect: RingSend) -> None:
        target = self.nodes.get(effect.to)
        cut = (sender.me.address in self.cut_off) != (effect.to in self.cut_off)
        if target is not None and not cut:
            self.perform(target, target.receive(sender.me, [effect.message], self.engine.now))

    # -- what a test does --------------------------------------------------------------------------------

    def join(self, id: int, known: NodeAddress) -> None:
        self.lives += 1
        node = self._start(ChordNode(self.settings.mapping.space, f"n{id}", id, 4, self.lives))
        self.perform(node, node.join(known, self.engine.now))

    def is_one_ring(self) -> bool:
        """Whether every node is followed by the next one, and answers for the keys between."""
        nodes = sorted(self.nodes.values(), key=lambda node: node.me.id)
        pairs = zip([nodes[-1], *nodes], nodes, strict=False)
        return all(a.chord.successor == b.me and b.keys.after == a.me.id for a, b in pairs)

    def leave(self, address: NodeAddress) -> None:
        self.perform(self.nodes[address], self.nodes[address].leave(self.engine.now))

    def fail(self, address: NodeAddress) -> None:
        del self.nodes[address]

    def subscribe(self, address: NodeAddress, number: int, topic: str | Topics, filter: str) -> None:
        self._asked[NodeAddress(address), number] = asked = (topic,) if isinstance(topic, str) else topic, filter
        self._ever_asked[NodeAddress(address), number].add(asked)
        self.perform(self.nodes[address], self.nodes[address].subscribe(number, topic, filter, self.engine.now))

    def unsubscribe(self, address: NodeAddress, number: int) -> None:
        self.active.pop((address, number), None)
        self._asked.pop((address, number), None)
        for wanted in self.expected.values():
            wanted.discard((address, number))  # on its way: it may come or not
        self.perform(self.nodes[address], self.nodes[address].unsubscribe(number, self.engine.now))

    def publish(self, address: NodeAddress, topic: str, event: dict[str, Any]) -> EventId:
        event_id, effects = self.nodes[address].publish(topic, event, self.engine.now)
        self.unpublished.add(event_id)
        self.published[event_id] = topic, event
        self.expected[event_id] = {sub for sub, wanted in self.active.items() if self._wants(wanted, topic, event)}
        self.perform(self.nodes[address], effects)
        return event_id

    def _wants(self, wanted: tuple[Topics, str], topic: str, event: dict[str, Any]) -> bool:
        topics, text = wanted
        leaves = [leaf for each in topics for leaf in self.settings.topics.leaves(each)]
        if not set(leaves) & set(self.settings.topics.leaves(topic)):
            return False
        if self.settings.mapping.semantics is Semantics.PARTIAL:
            return partially_matches(normalize(parse(text)), event)
        return matches(parse(text), event)

    def run(self, seconds: float) -> None:
        self.engine.run(until=self.engine.now + int(seconds * 1_000_000))

    def check(self) -> None:
        """Every event came to whoever wanted it, once, and to nobody else."""
        assert not self.unpublished, f"{len(self.unpublished)} events are still on their way"
        came: dict[EventId, set[tuple[NodeAddress, int]]] = defaultdict(set)
        for (event_id, home, number), times in self.delivered.items():
            assert times == 1, "delivered twice"
            came[event_id].add((home, number))
            if event_id in self.published:
                asked = self._ever_asked[home, number]
                assert any(self._wants(each, *self.published[event_id]) for each in asked), "nobody wanted it"
        for event_id, wanted in self.expected.items():
            missed = {sub for sub in wanted if sub[0] in self.nodes} - came[event_id]
            assert not missed, (event_id, self.published[event_id], missed)
