"""Messages that a join, a leave, a subscription and an event cost on a ring, from few nodes to many, counted.

The nodes are those of the product, on a network that takes no time. What Chord sends to mend the ring goes on whatever
happens, and is not counted. Growth is fitted: direct storing is to cost O(log n), a topic group O(log^2 n).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np

from weft.index.scan import ScanIndex
from weft.ring.chord import ChordNode, quiet_ring
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping
from weft.ring.messages import Ask, Find, LookupStep, Neighbours, NodeAddress, NodeRef, Notify
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import JoinedRing, LeftRing, PublicationDone, RingEffect, RingMessage, RingSend
from weft.ring.ring_settings import RingSettings
from weftlab.bench.report import Result

_SPACE = IdSpace(1 << 32)
_MAPPING = KeyMapping(_SPACE, {"x": Intervals("x", 0, 100, 50)})
_TICK = 100_000
_SAMPLES = 8
_UPKEEP = (Ask, Neighbours, Notify)
_FINGERS = (Find, LookupStep)  # upkeep while time passes: nothing else looks up then


class CountedRing:
    """Nodes on a network that takes no time. Only nodes that are named pass time."""

    def __init__(self, nodes: int, groups: GroupRule | None) -> None:
        self.rng = np.random.default_rng(1)
        self.settings = RingSettings(_MAPPING, replicas=2, index=ScanIndex, groups=groups)
        ids = self.rng.choice(_SPACE.size, nodes, replace=False).tolist()
        self.nodes = {
            chord.me.address: RendezvousNode(chord, self.settings, self.rng) for chord in quiet_ring(_SPACE, ids, 4)
        }
        self.now = 0
        self.sent = 0
        self._upkeep: tuple[type, ...] = _UPKEEP
        self.notices: list[RingEffect] = []

    def perform(self, node: RendezvousNode, effects: list[RingEffect]) -> None:
        """What a node wants done, and all that follows at once."""
        waiting: deque[tuple[NodeRef, NodeAddress, RingMessage]] = deque()
        self._queue(node, effects, waiting)
        while waiting:
            sender, to, message = waiting.popleft()
            target = self.nodes.get(to)
            if target is not None:
                self._queue(target, target.receive(sender, [message], self.now), waiting)

    def _queue(
        self,
        node: RendezvousNode,
        effects: list[RingEffect],
        waiting: deque[tuple[NodeRef, NodeAddress, RingMessage]],
    ) -> None:
        for effect in effects:
            if isinstance(effect, RingSend):
                self.sent += effect.to != node.me.address and not isinstance(effect.message, self._upkeep)
                waiting.append((node.me, effect.to, effect.message))
            else:
                self.notices.append(effect)

    def pass_work(self, seconds: float) -> None:
        """Let time pass for what was begun, and for nothing else."""
        for _ in range(round(seconds * 1_000_000 / _TICK)):
            self.now += _TICK
            for node in list(self.nodes.values()):
                if node.work.busy:
                    self.perform(node, node.work.tick(self.now))

    def pass_time(self, addresses: Iterable[NodeAddress], seconds: float) -> None:
        """Let time pass for some nodes."""
        self._upkeep = _UPKEEP + _FINGERS
        for _ in range(round(seconds * 1_000_000 / _TICK)):
            self.now += _TICK
            for address in addresses:
                if address in self.nodes:
                    self.perform(self.nodes[address], self.nodes[address].tick(self.now))
        self._upkeep = _UPKEEP

    def count(self, action: Callable[[], None]) -> int:
        """The messages that an action costs."""
        before = self.sent
        action()
        return self.sent - before

    def home(self) -> RendezvousNode:
        """Any node."""
        return list(self.nodes.values())[int(self.rng.integers(len(self.nodes)))]

    def subscribe(self, node: RendezvousNode, number: int) -> None:
        """Store a subscription under one key."""
        value = int(self.rng.integers(50))
        self.perform(node, node.subscribe(number, "t", f"x = {value}", self.now))
        self.pass_work(3 if self.settings.groups is not None else 0)

    def publish(self, node: RendezvousNode) -> None:
        """Publish an event with two keys that nobody wants: deliveries are not the ring's cost."""
        self.perform(node, node.publish("t", {"x": int(self.rng.integers(50, 100))}, self.now)[1])
        self.pass_work(3 if self.settings.groups is not None else 0)
        assert isinstance(self.notices[-1], PublicationDone)


def _direct(nodes: int) -> dict[str, float]:
    ring = CountedRing(nodes, None)
    for number in range(nodes):
        ring.subscribe(ring.home(), number)
    found = {
        "subscription": np.mean([ring.count(lambda n=n: ring.subscribe(ring.home(), nodes + n)) for n in range(40)]),  # type: ignore[misc]
        "event": np.mean([ring.count(lambda: ring.publish(ring.home())) for _ in range(40)]),
    }
    joins, leaves = [], []
    for _ in range(_SAMPLES):
        new = int(ring.rng.integers(_SPACE.size))
        node = RendezvousNode(ChordNode(_SPACE, f"n{new}", new, 4, 1), ring.settings, ring.rng)
        before = ring.home()
        after = min(ring.nodes.values(), key=lambda each: _SPACE.distance(new, each.me.id))
        near = [after.me.address, *(each.address for each in after.chord.successors[:1])]
        if after.chord.predecessor is not None:
            near.append(after.chord.predecessor.address)
        ring.pass_time(near, 2)
        ring.nodes[node.me.address] = node
        near.append(node.me.address)
        join = ring.count(lambda: ring.perform(node, node.join(before.me.address, ring.now)))  # noqa: B023
        joins.append(join + ring.count(lambda: ring.pass_time(near, 2)))  # noqa: B023 - it is called at once
        assert any(isinstance(notice, JoinedRing) for notice in ring.notices)
        leave = ring.count(lambda: ring.perform(node, node.leave(ring.now)))  # noqa: B023
        leaves.append(leave + ring.count(lambda: ring.pass_time(near, 2)))  # noqa: B023
        assert any(isinstance(notice, LeftRing) for notice in ring.notices)
        ring.nodes.pop(node.me.address, None)
        ring.notices.clear()
    return {**{name: float(value) for name, value in found.items()}, "join": _mean(joins), "leave": _mean(leaves)}


def _grouped(nodes: int) -> dict[str, float]:
    ring = CountedRing(nodes, GroupRule(depth=max(1, nodes.bit_length() - 3)))
    members = list(ring.nodes.values())
    for node in members[:-_SAMPLES]:
        ring.subscribe(node, 1)
    return {
        "member": _mean([ring.count(lambda n=node: ring.subscribe(n, 1)) for node in members[-_SAMPLES:]]),  # type: ignore[misc]
        "subscription": _mean([ring.count(lambda n=node: ring.subscribe(n, 2)) for node in members[:_SAMPLES]]),  # type: ignore[misc]
        "event": _mean([ring.count(lambda: ring.publish(ring.home())) for _ in range(40)]),
    }


def _mean(counts: Iterable[float]) -> float:
    return float(np.mean(list(counts)))


def growth(sizes: Iterable[int], counts: Iterable[float]) -> float:
    """The power of log n with which counts grow: the slope of their logarithms over those of log2 n.

    >>> round(growth([16, 64, 256], [16, 36, 64]), 6)
    2.0
    """
    logs = np.log(np.log2(np.array(list(sizes), dtype=float)))
    return float(np.polyfit(logs, np.log(np.maximum(1.0, np.array(list(counts), dtype=float))), 1)[0])


def message_results(sizes: tuple[int, ...], progress: Callable[[str], None]) -> list[Result]:
    """Messages by size, and how they grow."""
    results = []
    for name, measure, power in (("direct", _direct, 1.0), ("groups", _grouped, 2.0)):
        found: dict[str, list[float]] = {}
        for nodes in sizes:
            progress(f"messages of {nodes:,} nodes, {name}")
            for what, count in measure(nodes).items():
                found.setdefault(what, []).append(count)
                results.append(Result(f"messages/{nodes}/{name}_{what}", count, "messages", better="lower"))
        if len(sizes) > 1:
            for what, counts in found.items():
                place = f"messages/growth/{name}_{what}"
                results.append(Result(place, growth(sizes, counts), "power of log n", power, "lower"))
    return results
