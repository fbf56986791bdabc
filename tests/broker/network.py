"""A driver for tests of links: brokers in one process, whose connections carry real frames, one at a time."""

from __future__ import annotations

from collections import deque
from itertools import count, pairwise
from typing import Any

from msgspec.msgpack import decode

from broker.harness import Broker
from weft.broker.codec import client_messages, encode
from weft.broker.effects import ConnectionId, Effect, Now, Relayed
from weft.broker.messages import Deliver
from weft.log.memory import MemoryLog
from weft.routing.table import About, Items, Link, Role, RoutingTable

CONVERSE = {Role.PEER: Role.PEER, Role.MASTER: Role.SLAVE, Role.SLAVE: Role.MASTER}


class Node(Broker):
    """A broker with a name, whose messages to neighbours wait until the network takes them."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.relayed: list[Relayed] = []
        self.taken = 0  # of what was sent
        super().__init__(MemoryLog(f"log of {name}"), name=name, **options)

    def take(self, effects: Any) -> None:
        self.relayed += [effect for effect in effects if isinstance(effect, Relayed)]
        super().take(effects)

    def restart(self) -> None:
        super().restart()
        self.taken = 0

    def attach(self, peer: str, role: Role = Role.PEER) -> None:
        self.do(self.core.attach(peer, role, self.now))

    def do(self, effects: list[Effect], name: str = "") -> Any:  # type: ignore[override]
        """As in `Broker`, but a timer that is due runs only when the network settles."""
        before = len(self.sent)
        self.take(effects)
        while self.at_once and self.persists:
            self.commit()
        self.core.check()
        return [message for to, message in self.sent[before:] if to == name]

    @property
    def table(self) -> RoutingTable:
        return self.core._state.seats.table

    def told(self, peer: str, about: About = About.SUBSCRIPTIONS) -> list[str]:
        return self._written(self.table.told(Link(peer), about), about)

    def heard(self, peer: str, about: About = About.SUBSCRIPTIONS) -> list[str]:
        return self._written(self.table.heard(Link(peer), about), about)

    def _written(self, items: Items, about: About) -> list[str]:
        values = [decode(self.table.codec.encode_item(about, item)) for item in items.values()]
        return sorted(each if isinstance(each, str) else repr(each) for each in values)

    def got(self, client: str) -> list[bytes]:
        """The payloads that a client was delivered."""
        return [each.payload for to, each in self.sent if to == client and isinstance(each, Deliver)]

    def link(self, peer: str) -> Any:
        return next(each for each in self.core.links() if each.peer == peer)


class Network:
    """Brokers and the wires between them."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.nodes = {name: Node(name, **options) for name in names}
        self.options = options
        self.numbers = count(1)
        self.wires: dict[tuple[str, str], tuple[str, str]] = {}  # an end of a connection, and the other
        self.flying: deque[tuple[tuple[str, str], bytes]] = deque()
        self.readers: dict[tuple[str, str], Any] = {}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def chain(self) -> Network:
        """Link all brokers in a row."""
        names = [*self.nodes]
        for one, other in pairwise(names):
            self.link(one, other)
        self.settle()
        return self

    def link(self, one: str, other: str, role: Role = Role.PEER) -> None:
        """Attach two brokers to each other, and dial; `role` is what the other is to the one."""
        self[one].attach(other, role)
        self[other].attach(one, CONVERSE[role])
        self.dial(one, other)

    def dial(self, one: str, other: str) -> None:
        wire = f"link{next(self.numbers)}"
        a, b = (one, wire), (other, wire)
        self.wires[a], self.wires[b] = b, a
        self.readers[a], self.readers[b] = client_messages(), client_messages()
        self[other].connect(wire)
        self[one].do(self[one].core.dialled(ConnectionId(wire), other, self[one].now))

    def cut(self, one: str, other: str) -> None:
        """Cut the connection between two brokers; what is on the way is lost."""
        for a, b in [pair for pair in self.wires.items() if (pair[0][0], pair[1][0]) == (one, other)]:
            self.close(a, b)

    def close(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        self.wires.pop(a, None), self.wires.pop(b, None)
        self.collect()
        for end in (a, b):
            self[end[0]].cut(end[1])
        self.flying = deque(each for each in self.flying if each[0] not in (a, b))

    def crash(self, name: str) -> None:
        """A broker crashes and starts again; its connections are gone."""
        for a, b in [pair for pair in self.wires.items() if pair[0][0] == name]:
            self.wires.pop(a), self.wires.pop(b)
            self.flying = deque(each for each in self.flying if each[0] not in (a, b))
            self[b[0]].cut(b[1])
        self[name].restart()

    def collect(self) -> None:
        """Take what brokers have sent to each other."""
        for name, node in self.nodes.items():
            for to, message in node.sent[node.taken :]:
                other = self.wires.get((name, to))
                if other is not None:
                    self.flying.append((other, encode([message])))
            node.taken = len(node.sent)

    def commit(self, name: str) -> None:
        """Let a broker store the next group."""
        if self[name].persists:
            self[name].commit()
            self[name].core.check()
            self.sweep(self[name])

    def step(self, but: str = "") -> bool:
        """Let one frame arrive, or one broker work or store a group, but for one; whether there was anything."""
        self.collect()
        if self.flying:
            (name, wire), data = self.flying.popleft()
            node = self[name]
            if (name, wire) in self.wires:
                messages = self.readers[name, wire].feed(data)
                node.do(node.core.receive(ConnectionId(wire), messages, node.now))
                self.sweep(node)
            return True
        for node in self.nodes.values():
            if node.timer is not None and node.timer <= node.now.monotonic:
                node.timer = None
                node.do(node.core.tick(node.now))
                self.sweep(node)
                return True
        for name, node in self.nodes.items():
            if node.persists and name != but:
                self.commit(name)
                return True
        return False

    def sweep(self, node: Node) -> None:
        """Close what a broker has closed, after what was sent on it."""
        closed, node.closed = node.closed, []
        for wire in closed:
            end = (node.name, wire)
            if end not in self.wires:
                continue
            self.collect()
            other = self.wires[end]
            last = [each for each in self.flying if each[0] == other]
            self.flying = deque(each for each in self.flying if each[0] not in (end, other))
            for _, data in last:
                peer = self[other[0]]
                peer.do(peer.core.receive(ConnectionId(wire), self.readers[other].feed(data), peer.now))
            self.wires.pop(end, None), self.wires.pop(other, None)
            self[other[0]].cut(wire)

    def settle(self, most: int = 100_000, but: str = "") -> None:
        """Until there is nothing to do, except for groups of one broker that are not stored."""
        for _ in range(most):
            if not self.step(but):
                return
        raise AssertionError("the brokers never come to rest")

    def wait(self, micros: int) -> None:
        """Let time pass at all brokers, some of it at a time."""
        for _ in range(10):
            for node in self.nodes.values():
                node.now = Now(node.now.monotonic + micros // 10, node.now.utc + micros // 10)
            self.settle()

    def check(self) -> None:
        """Neighbours agree on what was told, and every table is sound."""
        for name, node in self.nodes.items():
            node.table.check()
            for status in node.core.links():
                for about in About:
                    assert node.told(status.peer, about) == self[status.peer].heard(name, about)
