"""Brokers in memory as the tests of links use them: checked after every call; each frame arrives alone."""

from __future__ import annotations

from typing import Any

from msgspec.msgpack import decode

from broker.harness import Broker
from weft.network.cores import BrokerNetwork
from weft.routing.table import About, RoutingTable


class Node(Broker):
    """A broker with a name, and what it has exchanged with its neighbours, as text."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name=name, **options)

    @property
    def table(self) -> RoutingTable:
        return self.core.table

    def told(self, peer: str, about: About = About.SUBSCRIPTIONS) -> list[str]:
        return _written(self.interest(peer, about)[0])

    def heard(self, peer: str, about: About = About.SUBSCRIPTIONS) -> list[str]:
        return _written(self.interest(peer, about)[1])


def _written(items: list[bytes]) -> list[str]:
    values = [decode(each) for each in items]
    return sorted(each if isinstance(each, str) else repr(each) for each in values)


class Network(BrokerNetwork):
    """Brokers and the wires between them."""

    brokers: dict[str, Node]

    def __init__(self, *names: str, **options: Any) -> None:
        super().__init__(*names, **{"make_broker": Node, **options})

    @property
    def nodes(self) -> dict[str, Node]:
        return self.brokers

    def __getitem__(self, name: str) -> Node:
        return self.brokers[name]

    def chain(self) -> Network:
        super().chain()
        return self
