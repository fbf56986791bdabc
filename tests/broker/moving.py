"""Clients that move between brokers in memory: raw messages, as the client library sends them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from broker.network import Network, Node
from weft.broker.moves import arrivals, departures
from weft.log.base import SessionId
from weft.protocol.messages import (
    MOVES,
    NEWEST,
    Ack,
    Deliver,
    Hello,
    HomeBroker,
    Offset,
    Publish,
    QueueNumber,
    SubNumber,
    Subscribe,
    Welcome,
    Whereabouts,
    next_epoch,
)
from weft.protocol.move_messages import tokens_of


def network_of(*names: str, chained: bool = True, make_broker: type[Node] = Node, **options: Any) -> Network:
    """Brokers, in a row if `chained`. Sessions have the same id at every broker, so no two brokers draw the same."""
    ids = count(1001)
    network = Network(*names, make_broker=make_broker, draw=lambda: next(ids), **options)
    return network.chain() if chained else network


def in_small_parts(patch: pytest.MonkeyPatch) -> None:
    """Let everything that a session has travel in many parts."""
    for name, value in (("CHUNK", 60), ("_MOST_EVENTS", 2), ("_LETTERS", 2), ("PART", 20), ("_SEEN_AT_ONCE", 1)):
        patch.setattr(departures, name, value)
    patch.setattr(departures, "_LOOKED_AT", 3)
    patch.setattr(arrivals, "_POURED", 2)


class Mover:
    """One client with a name: what it has published and received, and where it is."""

    def __init__(self, network: Network, name: str, home: str) -> None:
        self.network, self.name, self.home = network, name, home
        self.epoch, self.published, self.numbers = 0, 0, count(1)
        self.connection, self.id = "", SessionId(0)
        self.welcome: Welcome | None = None
        self.shown: list[bytes] = []  # payloads, as an application sees them
        self.done: set[tuple[str, int]] = set()  # under which numbers it has processed them
        self.hints: list[str] = []
        self.read = 0
        self.pending: tuple[str, str] | None = None  # a connection that is not welcome yet, and its broker
        self.greet(home)
        network.settle()
        self.look()

    def greet(self, broker: str, *, whence: bool = True, abandon: int | None = None, **fields: Any) -> str:
        """Say hello to a broker, on a new connection."""
        self.epoch = next_epoch(self.epoch)
        connection = f"{self.name}-{next(self.numbers)}"
        versions = (MOVES if self.id and whence else 2, NEWEST)
        numbers = {"epoch": self.epoch, "pub_epoch": 1 if self.welcome is None else self.welcome.pub_epoch}
        messages: list[Any] = [Hello(versions=versions, session=self.name, **numbers, **fields)]
        if self.id and whence:
            assert self.welcome is not None
            messages.append(Whereabouts(self.id, self.home, tuple(self.hints), self.welcome.epoch, abandon))
        self.network[broker].connect(connection)
        self.pending = connection, broker
        self.hints = [broker, *(each for each in self.hints if each != broker)]
        self.network[broker].say(connection, *messages)
        return connection

    def move(self, broker: str, *, make_before_break: bool = False) -> None:
        """Go to another broker; the old connection stays until the new one is welcome, or goes first."""
        if not make_before_break and self.connection:
            self.network[self.home].cut(self.connection)
            self.connection = ""
        self.greet(broker)

    def say(self, *messages: Any) -> None:
        self.network[self.home].say(self.connection, *messages)

    def publish(self, **attributes: Any) -> None:
        self.published += 1
        self.say(Publish.of(self.published, attributes, b"%s %d" % (self.name.encode(), self.published)))

    def subscribe(self, number: int, text: str, **options: Any) -> None:
        self.say(Subscribe(SubNumber(number), text, QueueNumber(number), **options))

    @property
    def is_welcome(self) -> bool:
        return self.pending is None

    def look(self, *, ack: bool = True) -> None:
        """Read what the broker has sent; show and acknowledge deliveries that are new."""
        if self.pending is not None:
            connection, broker = self.pending
            found = [each for each in self.network[broker].messages(connection) if isinstance(each, Welcome)]
            if found:
                if self.connection:
                    self.network[self.home].cut(self.connection)
                self.connection, self.home, self.pending, self.read = connection, broker, None, 0
                names = [each for each in self.network[broker].messages(connection) if isinstance(each, HomeBroker)]
                assert {each.broker for each in names} == {broker}
                self.id, self.epoch, self.welcome = found[0].session, max(self.epoch, found[0].epoch), found[0]
                self.hints = []
        if not self.connection:
            return
        messages = self.network[self.home].messages(self.connection)
        assert self.welcome is not None
        log = self.welcome.log_id
        for message in messages[self.read :]:
            if isinstance(message, Deliver):
                tokens = {(log, int(message.offset)), *tokens_of(message.head)}
                if not tokens & self.done:
                    self.shown.append(message.payload)
                if ack:
                    self.done |= tokens
                    self.say(Ack(message.queue, Offset(0), ((message.offset, Offset(message.offset + 1)),)))
        self.read = len(messages)


def settle(network: Network, *movers: Mover, rounds: int = 3) -> None:
    """Let everything happen, with some time for what is repeated."""
    for _ in range(rounds):
        network.wait(500_000)
        for mover in movers:
            mover.look()
        network.settle()
