"""Nodes of a ring under simulated faults, and what must hold afterwards (`weft sim faults --ring`).

The nodes are those of the product. Messages are delayed, lost for a while, or cut off between parts of the ring, also
in one direction only; nodes join, several at once, leave, die, are paused, and are started again at the same address,
with their disk or without. An application stands for the broker at each node: what it has subscribed to and published
is on its disk, and it publishes again what is owed when a node has returned.

No more faults occur at once than the promise allows: fewer than `replicas` nodes are killed, paused or cut off one by
one within one repair. When the last fault is over, everything is started again. Then every event that was published
after a subscription was complete must have reached it, once, and nobody else; every leave has ended; and there is one
ring, in which every key has one owner.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.algebra.normalize import normalize
from weft.index.scan import ScanIndex
from weft.language.meaning import matches
from weft.language.text import parse
from weft.ring.chord import ChordNode, quiet_ring
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping, Semantics, partially_matches
from weft.ring.keys_in_hand import Life
from weft.ring.load_sharing import Sharing, SharingRule
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.rendezvous import RendezvousNode
from weft.ring.rendezvous_messages import (
    Delivered,
    EventId,
    JoinedRing,
    JoiningFailed,
    LeftRing,
    Offered,
    PublicationDone,
    Returned,
    RingEffect,
    RingMessage,
    RingSend,
    Subscribed,
    Unsubscribed,
)
from weft.ring.ring_settings import RingSettings
from weft.ring.topics import SuperTopics, TopicTree
from weftlab.engine import Engine
from weftlab.faults.campaign import Campaign
from weftlab.faults.trace import RunTrace

SECOND = 1_000_000
MILLI = 1_000
_TICK = 100 * MILLI
_REPAIR = 8 * SECOND  # after which a fault has been repaired
_HEALED = 100  # seconds that everything has at the end, at most
_LOOK = 5  # seconds between two looks whether everything holds
_LEAVE = 100  # and that the last leaves have
MODES = ("direct", "groups", "merging", "replication", "partition", "partial", "topics")
_SPACE = IdSpace(1 << 16)
_CUTS = {name: Intervals(name, 0, 10, 5) for name in ("x", "y")}
_FILTERS = (
    "x < 4",
    "x BETWEEN 3 AND 6 AND y > 2",
    "y = 7",
    "x = 1 OR y BETWEEN 0 AND 3",
    "name LIKE 'a%'",
    "name = 'ab' AND x > 2",
    "x >= 0",
    "NOT (x > 3)",
    "x IS NULL",
    "TRUE",
    "x > 5 AND x < 3",
)
_TREE = TopicTree({"all": ["t", "sport"], "sport": ["u", "v"]})
_TOPICS = {"groups": ("t", "u"), "merging": ("t", "u", "v"), "topics": ("t", "u", "v", "sport", "all")}


@dataclass(frozen=True, slots=True)
class RingPlan:
    """What happens in a run: drawn from a seed before it begins."""

    seed: int
    mode: str
    nodes: int
    replicas: int
    steps: int

    def __str__(self) -> str:
        return f"a ring of {self.nodes} nodes ({self.mode}), {self.replicas} replicas"


@dataclass(slots=True)
class RingRun:
    """How a run ended; `failure` is empty if everything held."""

    plan: RingPlan
    failure: str
    events: int
    deliveries: int
    counts: Counter[str]
    trace: RunTrace


@dataclass(slots=True)
class _Wanted:
    """A subscription of an application, over all lives of its node."""

    topics: tuple[str, ...]
    text: str
    number: int
    ready: int | None = None
    ended: int | None = None


@dataclass(slots=True)
class _Event:
    topic: str
    attributes: dict[str, Any]
    publisher: str
    time: int
    done: bool = False  # it has visited all of its keys, perhaps owing it to some
    owed: set[NodeAddress] = field(default_factory=set)
    lost: bool = False  # its publisher's disk was lost before it was done


@dataclass(slots=True)
class _Application:
    """What a node's disk has."""

    address: str
    id: int
    wanted: dict[int, _Wanted] = field(default_factory=dict)  # by an identity of its own
    events: dict[EventId, _Event] = field(default_factory=dict)  # published here, not done or owed
    seen: set[EventId] = field(default_factory=set)
    members: list[NodeRef] = field(default_factory=list)
    life: int = 0
    up: bool = False
    left: bool = False


class RingWorld:
    """One run."""

    def __init__(self, plan: RingPlan, make: Callable[..., RendezvousNode] = RendezvousNode) -> None:
        self.plan, self._make = plan, make
        self.rng = np.random.default_rng([plan.seed, 44])
        self.engine = Engine()
        self.trace = RunTrace()
        semantics = Semantics.PARTIAL if plan.mode == "partial" else Semantics.EXACT
        sharing = {"replication": Sharing.REPLICATION, "partition": Sharing.PARTITION}.get(plan.mode, Sharing.NONE)
        merging = SuperTopics(2, 1, period=4 * SECOND) if plan.mode == "merging" else None
        grouped = plan.mode in ("groups", "merging")
        self.settings = RingSettings(
            KeyMapping(_SPACE, _CUTS, semantics),
            replicas=plan.replicas,
            sharing=SharingRule(sharing, nodes=3, threshold=3),
            reissue=20 * SECOND,
            keep=3600 * SECOND,
            confirmed=True,
            index=ScanIndex,
            groups=GroupRule(3, lease=15 * SECOND, period=10 * SECOND, merging=merging) if grouped else None,
            topics=_TREE if plan.mode == "topics" else TopicTree(),
            abandon=40 * SECOND,
        )
        self.nodes: dict[str, RendezvousNode] = {}
        self.applications: dict[str, _Application] = {}
        self.events: dict[EventId, _Event] = {}
        self.delivered: Counter[tuple[EventId, str, int]] = Counter()
        self.counts: Counter[str] = Counter()
        self._last: dict[tuple[str, str], int] = {}
        self._cuts: list[Callable[[str, str], bool]] = []
        self._frozen: dict[str, int] = {}
        self._loss = self._slow = 0.0
        self._faults: deque[int] = deque()
        self._busy_until = 0  # of a partition: nobody is killed meanwhile
        self._over_at = 0  # when the last fault is over
        self._numbers = 0
        self._leaving: dict[str, int] = {}
        self.watch_sent: Callable[[str, str, RingMessage], None] | None = None  # sees messages while a run is recorded

    # -- time and messages -----------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The time, in microseconds."""
        return self.engine.now

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.engine.run(until=self.now + int(seconds * SECOND))

    def note(self, what: str, *about: object) -> None:
        """A line of the trace."""
        self.counts[what] += 1
        self.trace.say(self.now, str(about[0]) if about else "", f"{what} {' '.join(map(str, about[1:]))}".rstrip())

    def _tick(self, node: RendezvousNode) -> None:
        address = node.me.address
        if self.nodes.get(address) is node:
            woken = self._frozen.get(address, 0)
            if woken > self.now:
                self.engine.at(woken, lambda: self._tick(node))
                return
            self.perform(node, node.tick(self.now))
            self.engine.after(_TICK, lambda: self._tick(node))

    def perform(self, node: RendezvousNode, effects: list[RingEffect]) -> None:
        """What a node wants done."""
        here = node.me.address
        for effect in effects:
            match effect:
                case RingSend(to, message):
                    self._send(node, to, message)
                case Offered(event):
                    self._offered(node, event.id, event.topic, dict(event.attributes))
                case Delivered():
                    raise AssertionError("an application that confirms is offered events")
                case Subscribed(number):
                    self._subscribed(here, number)
                case PublicationDone(id, silent):
                    self._published(node, id, set(silent))
                case Returned(address):
                    self._returned(node, address)
                case LeftRing():
                    self._leaving.pop(here, None)
                    self.note("left", here)
                    self.applications[here].left = True
                    self._stop(here)
                case JoiningFailed():
                    self.engine.after(SECOND, lambda: self._join(node))
                case JoinedRing():
                    self.note("joined", here)
                case Unsubscribed():
                    pass

    def _send(self, node: RendezvousNode, to: str, message: RingMessage) -> None:
        here = node.me.address
        delay = 1 if here == to else int(self.rng.integers(1, 50)) * MILLI
        if here != to and self._loss and self.rng.random() < self._loss:
            return
        if here != to and self._slow and self.rng.random() < self._slow:
            delay += int(self.rng.integers(50, 900)) * MILLI
        if self.watch_sent is not None and here != to:
            self.watch_sent(here, to, message)
        time = max(self.now + delay, self._last.get((here, to), 0) + 1)
        self._last[here, to] = time
        sender = node.me
        self.engine.at(time, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: NodeRef, to: str, message: RingMessage) -> None:
        target = self.nodes.get(to)
        if target is None or any(cut(sender.address, to) for cut in self._cuts):
            return
        woken = self._frozen.get(to, 0)
        if woken > self.now:
            self.engine.at(woken, lambda: self._arrive(sender, to, message))
            return
        self.perform(target, target.receive(sender, [message], self.now))

    # -- applications ----------------------------------------------------------------------------------

    def _topics(self) -> tuple[str, ...]:
        return _TOPICS.get(self.plan.mode, ("t",))

    def subscribe(self, address: str) -> None:
        """A new subscription."""
        application = self.applications[address]
        topics = self._topics()
        count = int(self.rng.integers(1, 3)) if len(topics) > 1 else 1
        chosen = tuple(sorted(self.rng.choice(topics, min(count, len(topics)), replace=False).tolist()))
        wanted = _Wanted(chosen, str(self.rng.choice(_FILTERS)), 0)
        self._numbers += 1
        application.wanted[self._numbers] = wanted
        self.note("subscribe", address, self._numbers, chosen, wanted.text)
        self._store(self.nodes[address], wanted)

    def _store(self, node: RendezvousNode, wanted: _Wanted) -> None:
        used = {each.number for each in self.applications[node.me.address].wanted.values() if each is not wanted}
        first = 1000 * node.me.life  # as brokers have it: no number of an earlier life is used again
        wanted.number = next(n for n in range(first + 1, first + 1000) if n not in used and n not in node.own._removing)
        self.perform(node, node.subscribe(wanted.number, wanted.topics, wanted.text, self.now))

    def _subscribed(self, address: str, number: int) -> None:
        for wanted in self.applications[address].wanted.values():
            if wanted.number == number and wanted.ended is None and wanted.ready is None:
                wanted.ready = self.now

    def unsubscribe(self, address: str, identity: int) -> None:
        """Remove a subscription."""
        wanted = self.applications[address].wanted[identity]
        wanted.ended = self.now
        self.note("unsubscribe", address, identity)
        self.perform(self.nodes[address], self.nodes[address].unsubscribe(wanted.number, self.now))
        wanted.number = 0

    def publish(self, address: str) -> None:
        """A new event."""
        application = self.applications[address]
        attributes: dict[str, Any] = {
            name: int(self.rng.integers(-1, 12)) for name in ("x", "y") if self.rng.random() < 0.8
        }
        if self.rng.random() < 0.5:
            attributes["name"] = str(self.rng.choice(["a", "ab", "b"]))
        event = _Event(str(self.rng.choice(self._topics())), attributes, address, self.now)
        event_id = EventId(address, len(self.events) + 1)
        self.events[event_id] = application.events[event_id] = event
        self.note("publish", event_id.source, event_id.number, event.topic, attributes)
        self._publish(self.nodes[address], event_id, event)

    def _publish(self, node: RendezvousNode, id: EventId, event: _Event) -> None:
        if node.life not in (Life.FINISHING, Life.LEAVING, Life.LEFT):
            _, effects = node.publish(event.topic, event.attributes, self.now, id)
            self.perform(node, effects)

    def _published(self, node: RendezvousNode, id: EventId, silent: set[NodeAddress]) -> None:
        application = self.applications[node.me.address]
        event = application.events.get(id)
        if event is None:
            return
        event.done, event.owed = True, silent
        if not silent:
            del application.events[id]
        self._owe(node)

    def _owe(self, node: RendezvousNode) -> None:
        events = self.applications[node.me.address].events.values()
        node.owe({address for event in events for address in event.owed}, self.now)

    def _returned(self, node: RendezvousNode, address: NodeAddress) -> None:
        for event_id, event in list(self.applications[node.me.address].events.items()):
            if event.done and address in event.owed:
                self._publish(node, event_id, event)

    def _offered(self, node: RendezvousNode, id: EventId, topic: str, attributes: dict[str, Any]) -> None:
        application = self.applications[node.me.address]
        if id not in application.seen:
            application.seen.add(id)
            for identity, wanted in application.wanted.items():
                if wanted.ended is None and self._wants(wanted, self.events[id]):
                    self.delivered[id, application.address, identity] += 1
            del topic, attributes
        self.perform(node, node.confirm(id))

    def _wants(self, wanted: _Wanted, event: _Event) -> bool:
        leaves = self.settings.topics.leaves
        topics = {leaf for topic in wanted.topics for leaf in leaves(topic)}
        if topics.isdisjoint(leaves(event.topic)):
            return False
        if self.settings.mapping.semantics is Semantics.PARTIAL:
            return partially_matches(normalize(parse(wanted.text)), event.attributes)
        return matches(parse(wanted.text), event.attributes)

    # -- nodes -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The nodes that are there from the beginning."""
        ids = sorted(self.rng.choice(_SPACE.size, self.plan.nodes, replace=False).tolist())
        for chord in quiet_ring(_SPACE, ids, 4):
            self.applications[chord.me.address] = _Application(chord.me.address, chord.me.id)
            self._start(chord)

    def _start(self, chord: ChordNode) -> RendezvousNode:
        address = chord.me.address
        node = self._make(chord, self.settings, np.random.default_rng([self.plan.seed, chord.me.id, chord.me.life]))
        self.nodes[address] = node
        self.applications[address].up, self.applications[address].left = True, False
        self.engine.after(int(self.rng.integers(_TICK)), lambda: self._tick(node))
        return node

    def start(self, address: str) -> None:
        """Start a node, for the first time or again."""
        application = self.applications[address]
        application.life += 1
        self.note("start", address, application.life)
        chord = ChordNode(_SPACE, address, application.id, 4, application.life)
        node = self._start(chord)
        node.wait(application.members)
        for wanted in application.wanted.values():
            wanted.number = 0
        self._join(node)
        for wanted in application.wanted.values():
            if wanted.ended is None:
                self._store(node, wanted)
        node.own.all_known = False
        for event_id, event in list(application.events.items()):
            event.done, event.owed = False, set()
            self._publish(node, event_id, event)

    def _join(self, node: RendezvousNode) -> None:
        if self.nodes.get(node.me.address) is not node or node.life is not Life.JOINING:
            return
        others = [address for address in self.nodes if address != node.me.address]
        if others:
            known = others[int(self.rng.integers(len(others)))]
            self.perform(node, node.join(NodeAddress(known), self.now))
        else:
            self.engine.after(SECOND, lambda: self._join(node))

    def _stop(self, address: str) -> None:
        node = self.nodes.pop(address)
        application = self.applications[address]
        application.up = False
        application.members = [member.node for member in node.chord.members.values()]
        self._frozen.pop(address, None)

    def join(self) -> None:
        """A new node, or one that has left."""
        gone = [a for a, each in self.applications.items() if each.left and not each.up]
        if gone and self.rng.random() < 0.5:
            self.start(gone[int(self.rng.integers(len(gone)))])
            return
        self._join_at(int(self.rng.integers(_SPACE.size)))

    def _join_at(self, id: int) -> None:
        if id not in {each.id for each in self.applications.values()}:
            self.applications[f"n{id}"] = _Application(f"n{id}", id)
            self.start(f"n{id}")

    def leave(self, address: str) -> None:
        """A node leaves in order."""
        self.note("leave", address)
        self._leaving[address] = self.now
        self.perform(self.nodes[address], self.nodes[address].leave(self.now))

    def kill(self, address: str, disk: bool) -> None:
        """A node dies, perhaps with its disk."""
        self.note("kill" if disk else "kill without disk", address)
        self._leaving.pop(address, None)
        self._stop(address)
        if not disk:
            application = self.applications[address]
            for wanted in application.wanted.values():
                wanted.ended = self.now if wanted.ended is None else wanted.ended
            for event in application.events.values():
                event.lost = True
            application.events.clear()
            application.members = []

    # -- faults ----------------------------------------------------------------------------------------

    def _may_fail(self) -> bool:
        """Whether one more node may fail, within the promise."""
        while self._faults and self._faults[0] < self.now - _REPAIR:
            self._faults.popleft()
        return len(self._faults) < self.plan.replicas - 1 and self.now > self._busy_until

    def _up(self) -> list[str]:
        return [address for address, node in self.nodes.items() if node.life is Life.SERVING]

    def step(self) -> None:
        """Something happens."""
        choice, up = self.rng.random(), self._up()

        def pick() -> str:
            return up[int(self.rng.integers(len(up)))]

        if not up:
            pass
        elif choice < 0.16:
            self.subscribe(pick())
        elif choice < 0.20:
            address = pick()
            mine = [i for i, each in self.applications[address].wanted.items() if each.ended is None and each.number]
            if mine:
                self.unsubscribe(address, mine[int(self.rng.integers(len(mine)))])
        elif choice < 0.55:
            for _ in range(int(self.rng.integers(1, 4))):
                self.publish(pick())
        elif choice < 0.62 and len(self.nodes) < 14:
            for _ in range(int(self.rng.choice([1, 1, 2, 4]))):
                self.join()
        elif choice < 0.69 and len(up) > 3:
            self.leave(pick())
        elif choice < 0.78 and len(up) > 3:
            self._fail(pick())
        elif choice < 0.86 and len(up) > 3:
            self._cut(up)
        elif choice < 0.90:
            self._rough()
        elif choice < 0.95 and len(up) > 3 and len(self.nodes) < 14:
            self._join_before_death(max(up, key=lambda address: self.nodes[address].keeper.load))
        self.run(float(self.rng.choice([0.01, 0.2, 1.0, 3.0])))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        """A fault is over, or a node is started again, after a while."""
        self._over_at = max(self._over_at, self.now + int(seconds * SECOND))
        self.engine.after(int(seconds * SECOND), action)

    def _fail(self, address: str) -> None:
        """A death, or a pause."""
        if not self._may_fail():
            return
        self._faults.append(self.now)
        if self.rng.random() < 0.4:
            pause = float(self.rng.choice([0.5, 2.0, 6.0, 20.0]))
            self.note("pause", address, pause)
            self._frozen[address] = self.now + int(pause * SECOND)
            self._over_at = max(self._over_at, self._frozen[address])
            self._faults.append(self._frozen[address])
            self._busy_until = max(self._busy_until, self._frozen[address] + _REPAIR)
            return
        self._die(address)

    def _join_before_death(self, address: str) -> None:
        """New nodes between one that is about to die and those that have its copies."""
        if not self._may_fail():
            return
        here, successor = self.nodes[address].me.id, self.nodes[address].chord.successor.id
        room = _SPACE.distance(here, successor)
        for _ in range(int(self.rng.integers(1, 3))):
            self._join_at((here + 1 + int(self.rng.integers(max(1, room - 1)))) % _SPACE.size)
        self.run(float(self.rng.choice([0.05, 0.3, 0.6, 1.2])))
        if address in self.nodes and self._may_fail():
            self._faults.append(self.now)
            self._die(address)
            for _ in range(3):
                up = self._up()
                self.publish(up[int(self.rng.integers(len(up)))])

    def _die(self, address: str) -> None:
        """A death, perhaps with the disk; perhaps it is started again."""
        disk = bool(self.rng.random() < 0.8)
        self.kill(address, disk)
        if self.rng.random() < 0.7:
            after = float(self.rng.choice([0.1, 1.0, 5.0, 15.0]))
            self._after(after, lambda: self._restart(address))

    def _restart(self, address: str) -> None:
        if address not in self.nodes:
            self.start(address)

    def _cut(self, up: list[str]) -> None:
        """The ring is cut into two parts, or one node cannot be heard."""
        while self._faults and self._faults[0] < self.now - _REPAIR:
            self._faults.popleft()
        if self._faults or self.now <= self._busy_until or self._loss:
            return
        part = set(self.rng.choice(up, int(self.rng.integers(1, len(up) // 2 + 1)), replace=False).tolist())
        seconds = float(self.rng.choice([0.5, 2.0, 5.0, 12.0, 30.0]))
        one_way = bool(self.rng.random() < 0.2)

        def cut(sender: str, to: str) -> bool:
            if one_way:
                return sender in part and to not in part
            return (sender in part) != (to in part)

        def heal() -> None:
            self._cuts.remove(cut)
            self.note("healed")

        self.note("cut one way" if one_way else "cut", sorted(part), seconds)
        self._cuts.append(cut)
        self._busy_until = self.now + int(seconds * SECOND) + 2 * _REPAIR
        self._after(seconds, heal)

    def _rough(self) -> None:
        """Messages are lost or late for a while."""
        if self._faults or self.now <= self._busy_until:
            return
        seconds = float(self.rng.choice([1.0, 5.0]))
        lossy = bool(self.rng.random() < 0.5)
        self._loss, self._slow = (0.05, 0.0) if lossy else (0.0, 0.3)
        self.note("messages are lost" if lossy else "messages are late", seconds)
        self._busy_until = self.now + int(seconds * SECOND) + 2 * _REPAIR

        def calm() -> None:
            self._loss = self._slow = 0.0

        self._after(seconds, calm)

    # -- the end ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everything works again, and everybody who has a disk is back."""
        self.run(max(0, self._over_at - self.now) / SECOND + 1)
        self.note("calm")
        for _ in range(_LEAVE):  # a leave may have to wait until keys that nobody has are abandoned
            if self._leaving:
                self.run(1)
        for address, application in list(self.applications.items()):
            waits = application.events or any(each.ended is None for each in application.wanted.values())
            if not application.up and waits:
                self.start(address)
        gone = [address for address, application in self.applications.items() if not application.up]
        for node in self.nodes.values():
            for address in gone:
                self.perform(node, node.forget(NodeAddress(address)))
        self._settle(_HEALED)
        for address in list(self.nodes):
            self.publish(address)
        self._settle(_HEALED)

    def _settle(self, seconds: int) -> None:
        """Let time pass until everything holds, and a little more: nothing may come twice."""
        for _ in range(seconds // _LOOK):
            self.run(_LOOK)
            if not self.failure():
                break
        self.run(_LOOK)

    def failure(self) -> str:
        """What does not hold; empty if everything does."""
        for check in (self._leaves, self._one_ring, self._ready, self._done, self._deliveries):
            if found := check():
                return found
        return ""

    def _leaves(self) -> str:
        return f"{', '.join(self._leaving)}: the leave has not ended" if self._leaving else ""

    def _one_ring(self) -> str:
        nodes = sorted(self.nodes.values(), key=lambda node: node.me.id)
        for before, node in zip([nodes[-1], *nodes], nodes, strict=False):
            address = node.me.address
            if node.life is not Life.SERVING:
                return f"{address} is {node.life.value}"
            if len(nodes) > 1 and (before.chord.successor != node.me or node.chord.predecessor != before.me):
                return f"there is more than one ring: {before.me.address} is not followed by {address}"
            if node.keys.after != before.me.id:
                return f"{address} answers for the keys after {node.keys.after}, not after {before.me.id}"
        return ""

    def _ready(self) -> str:
        for address, application in self.applications.items():
            for identity, wanted in application.wanted.items():
                if application.up and wanted.ended is None and wanted.ready is None:
                    return f"subscription {identity} of {address} has never become complete"
        return ""

    def _done(self) -> str:
        for event_id, event in self.events.items():
            if self.applications[event.publisher].up and not event.lost:
                if not event.done:
                    return f"event {event_id.number} has never been done"
                if event.owed:
                    return f"event {event_id.number} is still owed to {', '.join(sorted(event.owed))}"
        return ""

    def _deliveries(self) -> str:
        lost = 0
        first = ""
        for event_id, event in self.events.items():
            for address, application in self.applications.items():
                for identity, wanted in application.wanted.items():
                    got = self.delivered[event_id, address, identity]
                    if got > 1:
                        return f"event {event_id.number} has reached subscription {identity} {got} times"
                    sure = wanted.ready is not None and wanted.ready <= event.time and wanted.ended is None
                    if not got and sure and application.up and not event.lost and self._wants(wanted, event):
                        lost += 1
                        first = first or f"event {event_id.number} was lost for subscription {identity} of {address}"
        return f"{first} ({lost} in all)" if lost else ""


def plan_of(seed: int, mode: str | None = None, steps: int = 60) -> RingPlan:
    """The plan of a seed."""
    rng = np.random.default_rng([seed, 43])
    drawn = str(rng.choice(MODES))
    return RingPlan(seed, mode or drawn, int(rng.integers(4, 9)), int(rng.integers(1, 4)), steps)


def run_ring_seeds(
    seeds: Iterable[int], mode: str | None, steps: int, report: Callable[[str, int, int], None] | None = None
) -> Campaign:
    """Run many seeds and add up what occurred."""
    found, todo = Campaign(), list(seeds)
    for done, seed in enumerate(todo):
        if report is not None:
            report(f"seed {seed}, {len(found.failures)} failed", done, len(todo))
        outcome = run_ring(plan_of(seed, mode, steps))
        found.seeds += 1
        found.events += outcome.events
        found.deliveries += outcome.deliveries
        found.counts += outcome.counts
        if outcome.failure:
            found.failures[seed] = outcome.failure
    return found


def run_ring(plan: RingPlan, make: Callable[..., RendezvousNode] = RendezvousNode) -> RingRun:
    """Run a plan."""
    return run_ring_world(RingWorld(plan, make))


def run_ring_world(world: RingWorld) -> RingRun:
    """Run a world that has not begun."""
    plan = world.plan
    world.begin()
    failure = ""
    try:
        world.run(2)
        for _ in range(plan.steps):
            world.step()
        world.finish()
        failure = world.failure()
    except AssertionError as error:
        failure = f"assertion: {error}"
    return RingRun(plan, failure, len(world.events), world.delivered.total(), world.counts, world.trace)
