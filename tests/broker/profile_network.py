"""A network of brokers with publishers of profiles and subscribers that are shown them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from weft.network.cores import BrokerNetwork
from weft.protocol.messages import NEWEST, Deliver, read_head

SECOND = 1_000_000


class Shown(NamedTuple):
    """A notice, as a client gets it."""

    number: int  # of the subscription
    change: str
    name: str
    version: int
    reason: str


class ProfileNetwork(BrokerNetwork):
    """Brokers whose clients speak the newest protocol, in chains unless they are linked otherwise."""

    def __init__(self, *names: str, **options: Any) -> None:
        super().__init__(*names, checked=True, **options)
        self.tokens = 0

    def greet(self, broker: str, *clients: str) -> None:
        for client in clients:
            self[broker].hello(client, versions=(2, NEWEST))

    def do(self, broker: str, client: str, *messages: Any) -> list[Any]:
        """Say something, and let everything follow; what the broker has answered by then."""
        before = len(self[broker].messages(client))
        self[broker].say(client, *messages)
        self.settle()
        return self[broker].messages(client)[before:]

    def notices(self, broker: str, client: str) -> list[Shown]:
        """The notices that a connection was sent, each once."""
        found: dict[int, list[Shown]] = {}
        for message in self[broker].messages(client):
            if isinstance(message, Deliver) and message.offset:
                found[message.offset] = [*shown(message)]
        return [notice for _, notices in sorted(found.items()) for notice in notices]

    def shown(self, broker: str, client: str) -> dict[int, set[str]]:
        """The ids of the profiles that each subscription of a client is shown now."""
        now: dict[int, set[str]] = defaultdict(set)
        for notice in self.notices(broker, client):
            names = now[notice.number]
            assert (notice.name in names) == (notice.change != "appeared"), f"{notice} comes twice, or too early"
            (names.discard if notice.change == "ended" else names.add)(notice.name)
        return dict(now)


def shown(message: Deliver) -> list[Shown]:
    found = read_head(message.head).attributes
    name = "weft.profile."
    if f"{name}change" not in found:
        return []
    change, ident, version = (found[name + each] for each in ("change", "id", "version"))
    return [Shown(number, change, ident, version, found.get(f"{name}reason", "")) for number in message.numbers]
