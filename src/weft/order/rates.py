"""Rate control on the covering order (thesis 3.8). A larger rate covers a smaller one. Each filter has its own counter,
so an exhausted filter is not sent while those below it are still examined.

The thesis skips everything below an exhausted filter, which loses events (erratum): twenty events with x = 1 exhaust (x
> 0, 20 per second), and the first event with x = 101 would not reach (x > 100, 10 per second).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from weft.algebra.relate import Region
from weft.errors import EventError
from weft.model.rate import Rate, RateAverage
from weft.model.schema import Schema
from weft.order.event_search import type_of_event
from weft.order.filter_relation import Boxed, FilterRelation
from weft.order.forest import Forest
from weft.order.node import Interface, Node, Roots
from weft.order.relation import Relation, Standing
from weft.order.structure import RootChange


@dataclass(frozen=True, slots=True)
class Rated:
    """A filter, and the rate at which its events are wanted."""

    filter: Region
    rate: Rate


@dataclass(slots=True)
class Meter:
    """Counts the events of one filter: those of this period, and their moving average."""

    rate: Rate
    since: float
    sent: int = 0
    average: RateAverage = field(default_factory=RateAverage)

    def admits(self, now: float) -> bool:
        """Whether another event may pass now. If so, it is counted."""
        self.advance(now)
        if self.sent >= self.rate.events:
            return False
        self.sent += 1
        self.average.count(1, now)
        return True

    def advance(self, now: float) -> None:
        """Begin a new period if the current one is over. A clock that goes backwards changes nothing."""
        if not math.isfinite(now):
            raise EventError(f"the time is {now}; pass a finite number of seconds")
        over = int((now - self.since) // self.rate.period)
        if over > 0:
            self.since += over * self.rate.period
            self.sent = 0


class RateControl:
    """Rated filters in a forest. Each event goes to the interfaces that want it and whose filters are not exhausted.

    >>> from weft import parse
    >>> control = RateControl()
    >>> control.add(Rated(parse("x > 0"), Rate(2)), "a", now=0.0)
    >>> [sorted(control.deliver({"x": 1}, now)) for now in (0.1, 0.2, 0.3, 1.0)]
    [['a'], ['a'], [], ['a']]
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self.forest = _RatedForest(_rated(schema))
        self._meters: dict[Node[Rated], Meter] = {}

    def add(self, rated: Rated, interface: Interface, now: float) -> None:
        """Add a filter that an interface wants at a rate."""
        self.forest.add(rated, interface)
        node = self.forest.find(rated)
        assert node is not None
        self._meters.setdefault(node, Meter(rated.rate, now))

    def discard(self, rated: Rated, interface: Interface) -> RootChange[Rated]:
        """Remove a filter that an interface wanted."""
        node = self.forest.find(rated)
        change = self.forest.discard(rated, interface)
        if node is not None and not node.interfaces:
            del self._meters[node]
        return change

    def deliver(self, event: Any, now: float) -> set[Interface]:
        """The interfaces to which an event is sent. Every matching filter that is not exhausted counts it."""
        chosen: set[Interface] = set()
        roots = self.forest.top.children
        assert isinstance(roots, Roots)
        waiting = list(roots.of_kind(type_of_event(event)))
        while waiting:
            node = waiting.pop()
            if event in node.made[0].form:
                if self._meters[node].admits(now):
                    chosen |= node.interfaces
                waiting += node.children
        return chosen

    def load(self, now: float) -> dict[Rated, float]:
        """The moving average of events per second of each filter, for load balancing."""
        loads = {}
        for node, meter in self._meters.items():
            assert node.thing is not None
            loads[node.thing] = meter.average.per_second(now)
        return loads


class _RatedForest(Forest[Rated]):
    """A forest in which a filter is placed below the covering filter with the closest rate."""

    def _choose(self, standing: Standing[Rated], current: Node[Rated], node: Node[Rated]) -> Node[Rated] | None:
        found = [child for child in standing.above(current) if child is not node]
        return min(found, key=lambda child: child.made[1].per_second, default=None)


def _rated(schema: Schema | None) -> Relation[Rated]:
    filters = FilterRelation(schema, indexed=False)

    def covers(wide: tuple[Boxed, Rate], narrow: tuple[Boxed, Rate]) -> bool:
        return wide[1].covers(narrow[1]) and filters.covers(wide[0], narrow[0])

    return Relation(
        covers,
        make=lambda rated: (filters.make(rated.filter), rated.rate),
        key=lambda made: (filters.key(made[0]), made[1]),
        kind=lambda made: filters.kind(made[0]),
    )
