"""Routing tables on a tree of brokers, with FIFO links and nothing else. Law: the same seed gives the same run.

There is no broker, network or clock: updates and events queue on each direction of a link and move one at a time, in an
order that the generator draws. Cutting a link loses the messages in flight on it; attaching it again tells everything
fresh.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

import numpy as np

from weft.errors import LocalProtocolError, ProtocolError
from weft.index.base import AnyEvent, MatchIndex, SubId
from weft.index.scan import ScanIndex
from weft.language.ast import Filter
from weft.routing.table import About, ClientId, Link, Role, RoutingTable, Source, Tell, Update

BrokerId = NewType("BrokerId", str)
EventNumber = NewType("EventNumber", int)
Direction = tuple[BrokerId, BrokerId]

LOCAL = ClientId("local")  # the default client that advertises and publishes at a broker
_PIECES = 8  # of pending work per step


class Carried(NamedTuple):
    """An event in flight."""

    number: EventNumber
    event: AnyEvent


class OverlayDelivery(NamedTuple):
    """An event that reached a subscription."""

    number: EventNumber
    broker: BrokerId
    sub: SubId


@dataclass(slots=True)
class Counters:
    """What has passed over links since the start."""

    updates: dict[About, int] = field(default_factory=lambda: dict.fromkeys(About, 0))
    items_added: dict[About, int] = field(default_factory=lambda: dict.fromkeys(About, 0))
    items_dropped: dict[About, int] = field(default_factory=lambda: dict.fromkeys(About, 0))
    events: int = 0
    false_positives: int = 0  # events that arrived where no client behind the link wants them, or no longer does
    lost: int = 0  # messages in flight on links that were cut


class Sizes(NamedTuple):
    """The size of a broker's table, summed over its links."""

    told: int
    heard: int


@dataclass(slots=True)
class _Broker:
    table: RoutingTable
    local: MatchIndex  # the matcher of local subscriptions
    links: dict[BrokerId, Role] = field(default_factory=dict)


class Overlay:
    """Brokers, and the messages in flight between them.

    >>> from weft import parse
    >>> from weft.routing.simple import SimpleTable
    >>> west, east = BrokerId("west"), BrokerId("east")
    >>> overlay = Overlay([west, east], SimpleTable, np.random.default_rng(7))
    >>> overlay.attach(west, east)
    >>> overlay.subscribe(east, SubId(1), parse("x > 5"))
    >>> _ = overlay.settle()
    >>> _ = overlay.publish(west, {"x": 6}), overlay.settle()
    >>> overlay.deliveries
    [OverlayDelivery(number=0, broker='east', sub=1)]
    """

    def __init__(
        self,
        brokers: Iterable[BrokerId],
        table: Callable[[], RoutingTable],
        rng: np.random.Generator,
        *,
        matcher: Callable[[], MatchIndex] = ScanIndex,
    ) -> None:
        self._brokers = {broker: _Broker(table(), matcher()) for broker in brokers}
        self._rng = rng
        self._queues: dict[Direction, deque[Update | Carried]] = {}
        self._numbers = 0
        self._changes = 0  # of local subscriptions
        self._wanting: dict[EventNumber, tuple[int, frozenset[BrokerId]]] = {}
        self.counters = Counters()
        self.deliveries: list[OverlayDelivery] = []

    # -- the tree -------------------------------------------------------------------------------

    def attach(self, one: BrokerId, other: BrokerId, role: Role = Role.PEER) -> None:
        """Link two brokers; `role` is what the other is to the one. Raises LocalProtocolError for a cycle."""
        if other in self.reached(one):
            raise LocalProtocolError(f"{one} and {other} are already connected; links must form a tree")
        here, there = self._brokers[one], self._brokers[other]
        tells = here.table.attach(Link(other), role)
        try:
            answers = there.table.attach(Link(one), _CONVERSE[role])
        except LocalProtocolError:
            here.table.detach(Link(other))
            raise
        here.links[other], there.links[one] = role, _CONVERSE[role]
        self._queues[one, other], self._queues[other, one] = deque(), deque()
        self._send(one, tells)
        self._send(other, answers)

    def detach(self, one: BrokerId, other: BrokerId) -> None:
        """Cut a link at both ends. Messages in flight on it are lost."""
        for a, b in ((one, other), (other, one)):
            if b not in self._brokers[a].links:
                raise LocalProtocolError(f"{one} and {other} are not linked; attach them first")
        for a, b in ((one, other), (other, one)):
            self.counters.lost += len(self._queues.pop((a, b)))
            del self._brokers[a].links[b]
        for a, b in ((one, other), (other, one)):
            self._send(a, self._brokers[a].table.detach(Link(b)))

    def reached(self, start: BrokerId, without: BrokerId | None = None) -> set[BrokerId]:
        """The brokers that can be reached from `start`, including itself, without passing through `without`."""
        found, todo = {start}, [start]
        while todo:
            new = self._brokers[todo.pop()].links.keys() - found - {without}
            found |= new
            todo += new
        return found

    # -- clients --------------------------------------------------------------------------------

    def subscribe(self, broker: BrokerId, sub: SubId, filter: Filter) -> None:
        """Add a subscription of a local client of the broker."""
        self._change(broker, {sub: filter}, ())

    def replace(self, broker: BrokerId, sub: SubId, filter: Filter) -> None:
        """Replace its filter in one step."""
        self._change(broker, {sub: filter}, (sub,))

    def unsubscribe(self, broker: BrokerId, sub: SubId) -> None:
        """Remove the subscription."""
        self._change(broker, {}, (sub,))

    def _change(self, broker: BrokerId, add: Mapping[SubId, Filter], drop: tuple[SubId, ...]) -> None:
        at = self._brokers[broker]
        tells = at.table.change(add, drop)
        at.local.discard_many(drop)
        for sub, wanted in add.items():
            at.local.add(sub, wanted)
        self._changes += 1
        self._send(broker, tells)

    def advertise(self, broker: BrokerId, advert: SubId, filter: Filter, client: ClientId = LOCAL) -> None:
        """Add an advertisement of a local client of the broker."""
        self._send(broker, self._brokers[broker].table.advertise(client, {advert: filter}, ()))

    def unadvertise(self, broker: BrokerId, advert: SubId, client: ClientId = LOCAL) -> None:
        """Remove the advertisement."""
        self._send(broker, self._brokers[broker].table.advertise(client, {}, (advert,)))

    def publish(self, broker: BrokerId, event: AnyEvent, client: ClientId = LOCAL) -> EventNumber:
        """Send an event. Raises LocalProtocolError if it is outside what the client advertised."""
        if not self._brokers[broker].table.admitted([event], client)[0]:
            raise LocalProtocolError(
                "the event is outside what its client advertised; advertise a filter that it matches"
            )
        number = EventNumber(self._numbers)
        self._carry(broker, Carried(number, event), None)
        self._numbers += 1
        return number

    def work(self, broker: BrokerId, budget: int) -> None:
        """Let the broker's table continue pending work, or improve what it tells."""
        self._send(broker, self._brokers[broker].table.step(budget))

    # -- time -----------------------------------------------------------------------------------

    def step(self) -> Direction | BrokerId | None:
        """Move one message to the other end of its link, or let one table work; None if there is nothing to do."""
        busy = [direction for direction, queue in self._queues.items() if queue]
        working = [broker for broker, at in self._brokers.items() if at.table.pending]
        if not busy and not working:
            return None
        drawn = int(self._rng.integers(len(busy) + len(working)))
        if drawn < len(busy):
            self._arrive(busy[drawn], self._queues[busy[drawn]].popleft())
            return busy[drawn]
        broker = working[drawn - len(busy)]
        self.work(broker, _PIECES)
        return broker

    def settle(self, most: int = 1_000_000) -> int:
        """Step until there is nothing to do; returns the number of steps. Raises ProtocolError after `most` steps."""
        steps = 0
        while self.step() is not None:
            steps += 1
            if steps > most:
                raise ProtocolError(f"the tables still exchange messages after {most} steps; one of them never stops")
        return steps

    def _arrive(self, direction: Direction, message: Update | Carried) -> None:
        sender, broker = direction
        if isinstance(message, Carried):
            self.counters.events += 1
            self.counters.false_positives += self._wanted_at(message).isdisjoint(self.reached(broker, sender))
            self._carry(broker, message, Link(sender))
            return
        self.counters.updates[message.about] += 1
        self.counters.items_added[message.about] += len(message.add)
        self.counters.items_dropped[message.about] += len(message.drop)
        self._send(broker, self._brokers[broker].table.learn(Link(sender), message))

    def _carry(self, broker: BrokerId, carried: Carried, source: Source) -> None:
        at = self._brokers[broker]
        links = at.table.route(carried.event, source)
        subs = sorted(at.local.match(carried.event).tolist())
        self.deliveries += [OverlayDelivery(carried.number, broker, SubId(sub)) for sub in subs]
        for link in sorted(links):
            self._queues[broker, BrokerId(link)].append(carried)

    def _send(self, broker: BrokerId, tells: Iterable[Tell]) -> None:
        for tell in tells:
            self._queues[broker, BrokerId(tell.link)].append(tell.update)

    def _wanted_at(self, carried: Carried) -> frozenset[BrokerId]:
        """The brokers with a client that wants the event now."""
        changes, wanting = self._wanting.get(carried.number, (-1, frozenset[BrokerId]()))
        if changes != self._changes:
            wanting = frozenset(name for name, at in self._brokers.items() if len(at.local.match(carried.event)))
            self._wanting[carried.number] = self._changes, wanting
        return wanting

    # -- contents -------------------------------------------------------------------------------

    @property
    def brokers(self) -> Iterable[BrokerId]:
        """All brokers."""
        return self._brokers.keys()

    def table(self, broker: BrokerId) -> RoutingTable:
        """A broker's table."""
        return self._brokers[broker].table

    def links(self, broker: BrokerId) -> Mapping[BrokerId, Role]:
        """A broker's neighbours, and their roles."""
        return self._brokers[broker].links

    def in_flight(self, sender: BrokerId, receiver: BrokerId) -> int:
        """The number of messages in flight."""
        return len(self._queues[sender, receiver])

    @property
    def quiet(self) -> bool:
        """Whether nothing is in flight and nothing is pending."""
        return not any(self._queues.values()) and not any(at.table.pending for at in self._brokers.values())

    def sizes(self, broker: BrokerId) -> Sizes:
        """How many items the broker's table has told and heard."""
        at = self._brokers[broker]
        links = [Link(link) for link in at.links]
        return Sizes(sum(len(at.table.told(k)) for k in links), sum(len(at.table.heard(k)) for k in links))

    def check(self) -> None:
        """Raise AssertionError if an invariant of a table is broken, or neighbours disagree with nothing in flight."""
        for broker, at in self._brokers.items():
            at.table.check()
            for other in at.links:
                if not any(isinstance(message, Update) for message in self._queues[broker, other]):
                    for about in About:
                        told = at.table.told(Link(other), about)
                        heard = self._brokers[other].table.heard(Link(broker), about)
                        assert dict(told) == dict(heard), f"{other} has heard other {about.value} than {broker} told"


_CONVERSE = {Role.PEER: Role.PEER, Role.MASTER: Role.SLAVE, Role.SLAVE: Role.MASTER}
