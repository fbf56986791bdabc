"""Routing tables on a tree of brokers, with FIFO links and nothing else.

Updates and events queue on each direction of a link and move one at a time. With a generator, the generator draws which
one moves next, so the same seed gives the same run. Without one, the oldest message moves first, and tables do their
pending work when nothing is in flight.

With a `clock`, nothing moves by itself: the clock is told of every message that is put on a link, and its owner calls
`arrive` when the time has come. So a simulator decides how long messages take. It can also `post` notes of its own,
which travel in order with updates and events and are handed to `read`. Such a network does not count false positives.

Two functions can watch a network. `run` gets every piece of work that changes a table, and runs it: a benchmark
measures the time there. `send` gets every update that is sent, and returns the update that travels: it can count items
and bytes, or pass the update through a codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, NewType

import numpy as np

from weft.errors import LocalProtocolError, ProtocolError
from weft.index.base import AnyEvent, MatchIndex, SubId
from weft.index.scan import ScanIndex
from weft.language.ast import Filter
from weft.routing.table import About, ClientId, Link, Role, RoutingTable, Source, Tell, Update

BrokerId = NewType("BrokerId", str)
EventNumber = NewType("EventNumber", int)
Direction = tuple[BrokerId, BrokerId]  # the sender and the receiver

RunWork = Callable[[BrokerId, Callable[[], list[Tell]]], list[Tell]]
SendUpdate = Callable[[Direction, Update], Update]
Clock = Callable[[Direction, "TableMessage"], None]
ReadNote = Callable[[Direction, object], None]

LOCAL = ClientId("local")  # the default client that advertises and publishes at a broker


class Carried(NamedTuple):
    """An event in flight."""

    number: EventNumber
    event: AnyEvent


class Posted(NamedTuple):
    """A note in flight: a message of whoever drives the network, in order with updates and events."""

    note: object


TableMessage = Update | Carried | Posted


class TableDelivery(NamedTuple):
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
    """The number of items that a broker's table has sent and received, summed over its links."""

    sent: int
    received: int


@dataclass(slots=True)
class _Broker:
    table: RoutingTable
    local: MatchIndex | None  # the matcher of local subscriptions
    links: dict[BrokerId, Role] = field(default_factory=dict)
    clients: int = 0  # subscriptions and advertisements


class TableNetwork:
    """The tables of brokers, and the messages in flight between them.

    >>> from weft import parse
    >>> from weft.routing.simple.table import SimpleTable
    >>> west, east = BrokerId("west"), BrokerId("east")
    >>> network = TableNetwork([west, east], SimpleTable, np.random.default_rng(7))
    >>> network.attach(west, east)
    >>> network.subscribe(east, SubId(1), parse("x > 5"))
    >>> _ = network.settle()
    >>> _ = network.publish(west, {"x": 6}), network.settle()
    >>> network.deliveries
    [TableDelivery(number=0, broker='east', sub=1)]

    `pieces` is how much pending work a table does in one step. Without a `matcher`, events are routed and never
    delivered: `arrivals` works, and `publish` does not.
    """

    def __init__(  # noqa: PLR0913 - all but the tables have defaults
        self,
        brokers: Iterable[BrokerId],
        table: Callable[[], RoutingTable],
        rng: np.random.Generator | None = None,
        *,
        matcher: Callable[[], MatchIndex] | None = ScanIndex,
        pieces: int = 8,
        run: RunWork = lambda _, work: work(),
        send: SendUpdate = lambda _, update: update,
        clock: Clock | None = None,
        read: ReadNote = lambda _, __: None,
    ) -> None:
        self._make_table, self._rng, self._pieces, self._run, self._travels = table, rng, pieces, run, send
        self._clock, self._read = clock, read
        self._brokers = {broker: _Broker(table(), matcher and matcher()) for broker in brokers}
        self._queues: dict[Direction, deque[TableMessage]] = {}
        self._oldest: deque[Direction] = deque()  # of each message in flight, if no generator draws
        self._numbers = 0
        self._changes = 0  # of local subscriptions
        self._wanting: dict[EventNumber, tuple[int, frozenset[BrokerId]]] = {}
        self.counters = Counters()
        self.deliveries: list[TableDelivery] = []

    # -- the tree -------------------------------------------------------------------------------

    def attach(self, one: BrokerId, other: BrokerId, role: Role = Role.PEER) -> None:
        """Link two brokers; `role` is what the other is to the one. Raises LocalProtocolError for a cycle."""
        if other in self.reachable(one):
            raise LocalProtocolError(f"{one} and {other} are already connected; links must form a tree")
        here, there = self._brokers[one], self._brokers[other]
        tells = self._run(one, partial(here.table.attach, Link(other), role))
        try:
            answers = self._run(other, partial(there.table.attach, Link(one), role.converse))
        except LocalProtocolError:
            here.table.detach(Link(other))
            raise
        here.links[other], there.links[one] = role, role.converse
        self._queues[one, other], self._queues[other, one] = deque(), deque()
        self._send(one, tells)
        self._send(other, answers)

    def detach(self, one: BrokerId, other: BrokerId) -> None:
        """Cut a link at both ends. Messages in flight on it are lost."""
        if other not in self._brokers[one].links:
            raise LocalProtocolError(f"{one} and {other} are not linked; attach them first")
        both = (one, other), (other, one)
        for a, b in both:
            self._lose((a, b))
            del self._queues[a, b], self._brokers[a].links[b]
        for a, b in both:
            self._change(a, partial(self._brokers[a].table.detach, Link(b)))

    def renew(self, broker: BrokerId) -> None:
        """Give a broker an empty table, to which neighbours send everything; what is in flight on its links is lost.

        Raises LocalProtocolError if it has clients.
        """
        at = self._brokers[broker]
        if at.clients:
            raise LocalProtocolError(f"{broker} has {at.clients} clients; remove them first")
        at.table = self._make_table()
        for other, role in at.links.items():
            self._lose((broker, other))
            self._lose((other, broker))
            self._change(broker, partial(at.table.attach, Link(other), role))
            self._change(other, partial(self._brokers[other].table.attach, Link(broker), role.converse))

    def _lose(self, direction: Direction) -> None:
        self.counters.lost += len(self._queues[direction])
        self._queues[direction].clear()
        self._oldest = deque(each for each in self._oldest if each != direction)

    def reachable(self, start: BrokerId, without: BrokerId | None = None) -> set[BrokerId]:
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
        self.change(broker, {sub: filter}, ())

    def replace(self, broker: BrokerId, sub: SubId, filter: Filter) -> None:
        """Replace its filter in one step."""
        self.change(broker, {sub: filter}, (sub,))

    def unsubscribe(self, broker: BrokerId, sub: SubId) -> None:
        """Remove the subscription."""
        self.change(broker, {}, (sub,))

    def change(self, broker: BrokerId, add: Mapping[SubId, Filter], drop: Collection[SubId] = ()) -> None:
        """Remove and add any number of subscriptions of local clients of the broker, in one step."""
        at = self._brokers[broker]
        tells = self._run(broker, partial(at.table.change, add, drop))
        if at.local is not None:
            at.local.discard_many(drop)
            for sub, wanted in add.items():
                at.local.add(sub, wanted)
        at.clients += len(add) - len(drop)
        self._changes += 1
        self._send(broker, tells)

    def advertise(self, broker: BrokerId, advert: SubId, filter: Filter, client: ClientId = LOCAL) -> None:
        """Add an advertisement of a local client of the broker."""
        self._change(broker, partial(self._brokers[broker].table.advertise, client, {advert: filter}, ()))
        self._brokers[broker].clients += 1

    def unadvertise(self, broker: BrokerId, advert: SubId, client: ClientId = LOCAL) -> None:
        """Remove the advertisement."""
        self._change(broker, partial(self._brokers[broker].table.advertise, client, {}, (advert,)))
        self._brokers[broker].clients -= 1

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

    def arrivals(self, events: Sequence[AnyEvent], broker: BrokerId) -> list[set[BrokerId]]:
        """The brokers that each event would reach now, in one batch, if the broker published it."""
        reached = [{broker} for _ in events]
        todo: list[tuple[BrokerId, Source, list[int]]] = [(broker, None, [*range(len(events))])]
        while todo:
            at, source, positions = todo.pop()
            routes = self._brokers[at].table.route_batch([events[place] for place in positions], source)
            for link, chosen in routes.items():
                going = [positions[place] for place in chosen.tolist()]
                for place in going:
                    reached[place].add(BrokerId(link))
                todo.append((BrokerId(link), Link(at), going))
        return reached

    def work(self, broker: BrokerId, budget: int) -> None:
        """Let the broker's table continue pending work, or improve what it sends."""
        self._change(broker, partial(self._brokers[broker].table.step, budget))

    def _change(self, broker: BrokerId, work: Callable[[], list[Tell]]) -> None:
        self._send(broker, self._run(broker, work))

    # -- messages -------------------------------------------------------------------------------

    def step(self) -> Direction | BrokerId | None:
        """Move one message to the other end of its link, or let a table work; None if there is nothing to do."""
        if self._rng is None and not self._oldest:
            worked = None
            for broker, at in self._brokers.items():
                while at.table.pending:
                    self.work(broker, self._pieces)
                    worked = broker
            return worked
        if self._rng is None:
            direction = self._oldest.popleft()
        else:
            busy = [direction for direction, queue in self._queues.items() if queue]
            working = [broker for broker, at in self._brokers.items() if at.table.pending]
            if not busy and not working:
                return None
            drawn = int(self._rng.integers(len(busy) + len(working)))
            if drawn >= len(busy):
                self.work(working[drawn - len(busy)], self._pieces)
                return working[drawn - len(busy)]
            direction = busy[drawn]
        self._arrive(direction, self._queues[direction].popleft())
        return direction

    def arrive(self, direction: Direction) -> TableMessage:
        """Move the oldest message of a link to its other end, and let the table there finish its work. Returns it."""
        message = self._queues[direction].popleft()
        self._arrive(direction, message)
        while self._brokers[direction[1]].table.pending:
            self.work(direction[1], self._pieces)
        return message

    def post(self, direction: Direction, note: object) -> None:
        """Put a note on a link, behind everything that is on its way there."""
        self._queue(direction, Posted(note))

    def settle(self, most: int = 1_000_000) -> int:
        """Step until there is nothing to do; returns the number of steps. Raises ProtocolError after `most` steps."""
        steps = 0
        while self.step() is not None:
            steps += 1
            if steps > most:
                raise ProtocolError(f"the tables still exchange messages after {most} steps; one of them never stops")
        return steps

    def _arrive(self, direction: Direction, message: TableMessage) -> None:
        sender, broker = direction
        if isinstance(message, Posted):
            self._read(direction, message.note)
            return
        if isinstance(message, Carried):
            self.counters.events += 1
            if self._clock is None:
                self.counters.false_positives += self._wanted_at(message).isdisjoint(self.reachable(broker, sender))
            self._carry(broker, message, Link(sender))
            return
        self.counters.updates[message.about] += 1
        self.counters.items_added[message.about] += len(message.add)
        self.counters.items_dropped[message.about] += len(message.drop)
        self._change(broker, partial(self._brokers[broker].table.learn, Link(sender), message))

    def _carry(self, broker: BrokerId, carried: Carried, source: Source) -> None:
        at = self._brokers[broker]
        if at.local is None:
            raise LocalProtocolError("a network without a matcher delivers nothing; give it one, or use arrivals()")
        links = at.table.route(carried.event, source)
        subs = sorted(at.local.match(carried.event).tolist())
        self.deliveries += [TableDelivery(carried.number, broker, SubId(sub)) for sub in subs]
        for link in sorted(links):
            self._queue((broker, BrokerId(link)), carried)

    def _send(self, broker: BrokerId, tells: Iterable[Tell]) -> None:
        for tell in tells:
            direction = broker, BrokerId(tell.link)
            self._queue(direction, self._travels(direction, tell.update))

    def _queue(self, direction: Direction, message: TableMessage) -> None:
        self._queues[direction].append(message)
        if self._clock is not None:
            self._clock(direction, message)
        elif self._rng is None:
            self._oldest.append(direction)

    def _wanted_at(self, carried: Carried) -> frozenset[BrokerId]:
        """The brokers with a subscription that matches the event now."""
        changes, wanting = self._wanting.get(carried.number, (-1, frozenset[BrokerId]()))
        if changes != self._changes:
            wanting = frozenset(
                name
                for name, at in self._brokers.items()
                if at.local is not None and len(at.local.match(carried.event))
            )
            self._wanting[carried.number] = self._changes, wanting
        return wanting

    # -- contents -------------------------------------------------------------------------------

    @property
    def brokers(self) -> Collection[BrokerId]:
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
        """How many items the broker's table has sent and received."""
        table, links = self._brokers[broker].table, [Link(link) for link in self._brokers[broker].links]
        return Sizes(sum(len(table.told(link)) for link in links), sum(len(table.heard(link)) for link in links))

    def check(self) -> None:
        """Raise AssertionError if an invariant of a table is broken, or neighbours disagree with nothing in flight."""
        for broker, at in self._brokers.items():
            at.table.check()
            for other in at.links:
                if any(isinstance(message, Update) for message in self._queues[broker, other]):
                    continue
                for about in About:
                    sent = dict(at.table.told(Link(other), about))
                    received = dict(self._brokers[other].table.heard(Link(broker), about))
                    assert sent == received, f"{other} has received other {about.value} than {broker} has sent"
