"""Models of routing side by side: the same brokers, clients and events for each. A lost event is an error. The same
scenario and seed give the same figures, except for the seconds.

Clients subscribe one after another, some leave again, then events are published. Each of these steps spreads until
nothing is in flight before the next begins. The expected deliveries are computed without any table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.errors import ProtocolError
from weft.index.base import AnyEvent, SubId
from weft.index.events import conformed
from weft.index.scan import ScanIndex
from weft.language.ast import Filter, predicates_of
from weft.language.text import parse
from weft.model.progress import RunProgress
from weft.model.schema import Schema
from weft.network.tables import BrokerId, Direction, EventNumber, TableDelivery, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.covering.table import CoveredTable
from weft.routing.engine import TableEngine
from weft.routing.incoming import table_index
from weft.routing.registry import MODELS as REGISTRY
from weft.routing.registry import make_table
from weft.routing.table import About, Role, RoutingTable
from weftlab.overlay.trees import Paths, TreeLinks, brokers

MakeTable = Callable[[Schema | None], RoutingTable]

MODELS: dict[str, MakeTable] = {name: partial(make_table, name) for name in REGISTRY}
NEED_BOUNDS = frozenset(name for name, entry in REGISTRY.items() if entry.bounded)  # they need a schema with bounds

_SCANNED = 1_000_000  # filters evaluated one by one to check the expectations
_REPORT = 50  # steps between two progress reports
_EVERYTHING = parse("TRUE")


class PlacedSubscription(NamedTuple):
    """A subscription and its broker."""

    broker: BrokerId
    filter: Filter


class PlacedEvent(NamedTuple):
    """An event and the broker that publishes it."""

    broker: BrokerId
    event: AnyEvent


@dataclass(frozen=True, slots=True)
class Scenario:
    """Brokers, subscriptions, which of these leave, and the events.

    With `hierarchy`, each broker's neighbour towards the root is its parent; otherwise all are peers. With
    `advertised`, the brokers that publish advertise everything, so that nothing is told towards brokers behind which no
    one publishes.
    """

    links: TreeLinks
    clients: Sequence[PlacedSubscription]
    leaving: Sequence[SubId]  # positions of clients
    publications: Sequence[PlacedEvent]
    schema: Schema | None = None
    hierarchy: bool = False
    advertised: bool = False

    @property
    def brokers(self) -> list[BrokerId]:
        """All brokers: a tree has one more broker than links."""
        return brokers(len(self.links) + 1)


@dataclass(frozen=True, slots=True)
class OverlayTraffic:
    """What a phase has sent over links, and how long it took, including local indexes and queues."""

    updates: int = 0
    told: int = 0
    dropped: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """The figures of one model."""

    model: str
    subscribing: OverlayTraffic
    leaving: OverlayTraffic
    advertising: OverlayTraffic
    told: int  # items in all tables, at the end
    heard: int
    largest: int  # the largest number that one broker has heard
    comparisons: int | None  # of filters, in all tables; None if the model does not count them
    messages: int  # events over links
    ideal: int  # the fewest that deliver everything
    flooded: int  # the number that flooding needs
    false_positives: int  # messages that no client behind the link wanted
    deliveries: int
    publishing_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON."""
        ratios = {"of_flooding": ratio(self.messages, self.flooded), "of_ideal": ratio(self.messages, self.ideal)}
        return {**asdict(self), **ratios, "missed": 0}  # otherwise there would be no outcome


def ratio(one: float, other: float) -> float | None:
    """The ratio of one to the other, or None if it is not a number."""
    return one / other if other else None


def scenario(  # noqa: PLR0913 - a scenario has many sides
    links: TreeLinks,
    filters: Sequence[Filter],
    events: Sequence[AnyEvent],
    rng: np.random.Generator,
    *,
    places: Sequence[BrokerId] | None = None,
    publishers: int | None = None,
    churn: float = 0.0,
    **options: Any,
) -> Scenario:
    """Clients and events at brokers drawn by the generator; `places` assigns the clients instead.

    `publishers` brokers publish, all if it is None; the fraction `churn` of the clients leaves. Events conform to the
    schema, if there is one, as those of a broker do.
    """
    schema = options.get("schema")
    happened = events if schema is None else [conformed(event, schema) for event in events]
    names = brokers(len(links) + 1)
    homes = [names[n] for n in rng.integers(len(names), size=len(filters))] if places is None else places
    speaking = [names[n] for n in rng.permutation(len(names))[:publishers]]
    chosen = rng.integers(len(speaking), size=len(events))
    gone = rng.permutation(len(filters))[: round(churn * len(filters))]
    return Scenario(
        links,
        [PlacedSubscription(home, wanted) for home, wanted in zip(homes, filters, strict=True)],
        [SubId(int(sub)) for sub in gone],
        [PlacedEvent(speaking[at], event) for at, event in zip(chosen, happened, strict=True)],
        **options,
    )


class Expected:
    """Where each event should go: as an index of all subscriptions decides and, for the first events, a scan too.

    Raises ProtocolError if the two differ.
    """

    def __init__(self, given: Scenario) -> None:
        gone = set(given.leaving)
        staying = {sub: client for sub, client in enumerate(given.clients) if sub not in gone}
        every, scan = table_index(given.schema), ScanIndex(given.schema)
        for sub, client in staying.items():
            every.add(SubId(sub), client.filter)
            scan.add(SubId(sub), client.filter)
        events = [publication.event for publication in given.publications]
        found = every.match_batch(events).checked() if events else ()
        self.scanned = min(len(events), max(1, _SCANNED // max(1, len(staying))))
        paths = Paths(given.links)
        self.deliveries: set[TableDelivery] = set()
        self.messages = 0
        for number, subs in enumerate(found):
            if number < self.scanned and sorted(subs.tolist()) != sorted(scan.match(events[number]).tolist()):
                raise ProtocolError(f"the index and a scan differ on event {number}; this is a bug, please report it")
            places = [staying[sub].broker for sub in subs.tolist()]
            self.messages += paths.fewest(given.publications[number].broker, places)
            self.deliveries |= {
                TableDelivery(EventNumber(number), place, SubId(sub))
                for place, sub in zip(places, subs.tolist(), strict=True)
            }


class RunWatch(Protocol):
    """Sees a run as it happens."""

    def began(self, phase: str, done: int) -> None:
        """A client has subscribed or left, or an event was published: number `done` of its phase."""
        ...

    def moved(self, network: TableNetwork, what: Direction | BrokerId) -> None:
        """A message has arrived, or a table has worked."""
        ...


def simulate(  # noqa: PLR0913
    given: Scenario,
    model: str,
    expected: Expected,
    *,
    seed: int = 1,
    check: bool = False,
    progress: RunProgress | None = None,
    models: Mapping[str, MakeTable] = MODELS,
    watch: RunWatch | None = None,
) -> ModelOutcome:
    """Run a scenario with one model. Raises ProtocolError if an event is lost, or delivered where it should not be.

    With `check`, every table's invariants are checked too, before anything is published: AssertionError. `watch` sees
    every change and every message.
    """
    make = models[model]
    if models is MODELS:
        make = partial(make_table, model, predicates=predicates_of(client.filter for client in given.clients))
    run = _Run(given, model, make, np.random.default_rng(seed), check, progress or (lambda *_: None), watch)
    return run.outcome(expected)


@dataclass(slots=True)
class _Run:
    given: Scenario
    model: str
    make: MakeTable
    rng: np.random.Generator
    check: bool
    progress: RunProgress
    watch: RunWatch | None = None
    overlay: TableNetwork = field(init=False)
    advertises: bool = field(init=False)

    def __post_init__(self) -> None:
        self.advertises = self.given.advertised and self.model != "flooding"
        schema = self.given.schema
        self.overlay = TableNetwork(self.given.brokers, self._table, self.rng, matcher=partial(table_index, schema))
        for near, far in self.given.links:
            self.overlay.attach(far, near, Role.PARENT if self.given.hierarchy else Role.PEER)

    def _table(self) -> RoutingTable:
        table = self.make(self.given.schema)
        if not self.advertises:
            return table
        assert isinstance(table, TableEngine)
        predicates = predicates_of(client.filter for client in self.given.clients)
        return Advertised(table, predicates=predicates)

    def outcome(self, expected: Expected) -> ModelOutcome:
        overlay, given = self.overlay, self.given
        overlay.settle()
        publishers = sorted({publication.broker for publication in given.publications}) if self.advertises else []
        advertising = self._phase("advertisements", About.ADVERTISEMENTS, self._advertise(publishers), len(publishers))
        subscribing = self._phase("subscriptions", About.SUBSCRIPTIONS, self._subscribe(), len(given.clients))
        leaving = self._phase("unsubscriptions", About.SUBSCRIPTIONS, self._leave(), len(given.leaving))
        if self.check:
            self.progress(f"{self.model}: checking tables", 0, 0)
            overlay.check()
        publishing = self._phase("events", About.SUBSCRIPTIONS, self._publish(), len(given.publications))
        self._compare(expected)
        sizes = [overlay.sizes(broker) for broker in overlay.brokers]
        return ModelOutcome(
            self.model,
            subscribing,
            leaving,
            advertising,
            told=sum(size.sent for size in sizes),
            heard=sum(size.received for size in sizes),
            largest=max(size.received for size in sizes),
            comparisons=self._comparisons(),
            messages=overlay.counters.events,
            ideal=expected.messages,
            flooded=len(given.links) * len(given.publications),
            false_positives=overlay.counters.false_positives,
            deliveries=len(overlay.deliveries),
            publishing_seconds=publishing.seconds,
        )

    def _phase(self, what: str, about: About, steps: Iterator[None], of: int) -> OverlayTraffic:
        counters = self.overlay.counters
        before = counters.updates[about], counters.items_added[about], counters.items_dropped[about]
        start = perf_counter()
        for done, _ in enumerate(steps):
            self._settle(what, done)
            if done % _REPORT == 0:
                self.progress(f"{self.model}: {what}", done, of)
        seconds = perf_counter() - start
        return OverlayTraffic(
            counters.updates[about] - before[0],
            counters.items_added[about] - before[1],
            counters.items_dropped[about] - before[2],
            seconds,
        )

    def _settle(self, what: str, done: int) -> None:
        if self.watch is None:
            self.overlay.settle()
            return
        self.watch.began(what, done)
        while (moved := self.overlay.step()) is not None:
            self.watch.moved(self.overlay, moved)

    def _advertise(self, publishers: Sequence[BrokerId]) -> Iterator[None]:
        for number, broker in enumerate(publishers):
            self.overlay.advertise(broker, SubId(number), _EVERYTHING)
            yield

    def _subscribe(self) -> Iterator[None]:
        for sub, client in enumerate(self.given.clients):
            self.overlay.subscribe(client.broker, SubId(sub), client.filter)
            yield

    def _leave(self) -> Iterator[None]:
        for sub in self.given.leaving:
            self.overlay.unsubscribe(self.given.clients[sub].broker, sub)
            yield

    def _publish(self) -> Iterator[None]:
        for publication in self.given.publications:
            self.overlay.publish(*publication)
            yield

    def _compare(self, expected: Expected) -> None:
        got = set(self.overlay.deliveries)
        if missed := expected.deliveries - got:
            raise ProtocolError(
                f"{self.model} lost {len(missed)} deliveries, among them {min(missed)}; this is a bug, please report it"
            )
        if len(got) != len(self.overlay.deliveries) or got != expected.deliveries:
            raise ProtocolError(
                f"{self.model} delivered an event that no client wants, or twice; this is a bug, please report it"
            )
        needed = self.overlay.counters.events - self.overlay.counters.false_positives
        if needed != expected.messages:
            raise ProtocolError(
                f"{self.model} needed {needed} messages, but the tree {expected.messages}; "
                "this is a bug, please report it"
            )

    def _comparisons(self) -> int | None:
        """The total of the tables that count them, or None."""
        tables = [self.overlay.table(broker) for broker in self.overlay.brokers]
        plain = [table.table if isinstance(table, Advertised) else table for table in tables]
        counts = [table.covers.compared for table in plain if isinstance(table, CoveredTable)]
        return sum(counts) if counts else None
