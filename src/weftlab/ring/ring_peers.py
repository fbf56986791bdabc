"""The paper's peers, for its Table 1: how many brokers a subscription and an event are hashed to, and how many brokers
meet them in all. In every scheme a matching event and subscription share a broker.

| scheme | a subscription | an event |
|---|---|---|
| Ferry | the attribute name whose broker follows the subscriber | the brokers of all names of the schema |
| eFerry | the set of its names | every set of its names |
| Baldoni et al. | every value of one attribute | every value that it has |
| Meghdoot | a point of a space with two dimensions for each attribute of the schema | the region that it satisfies |
| Weft's intervals | the intervals of one attribute | the interval of every value |

Meghdoot's space is divided like CAN's: zone by zone is halved, dimension after dimension, until every broker has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weftlab.ring.ring_routes import RingRoutes
from weftlab.ring.ring_workload import DOMAIN, RingWorkload

BrokerSet = set[int]
OfSubscription = Callable[[int], BrokerSet]
OfEvent = Callable[[int], BrokerSet]


@dataclass(frozen=True, slots=True)
class SchemeCounts:
    """A row of Table 1, measured."""

    scheme: str
    per_subscription: float
    per_event: float
    rendezvous: int
    missed: int  # matching pairs without a common broker

    def to_dict(self) -> dict[str, float | int | str]:
        """For JSON."""
        return {
            "scheme": self.scheme,
            "per_subscription": self.per_subscription,
            "per_event": self.per_event,
            "rendezvous": self.rendezvous,
            "missed": self.missed,
        }


def compare_schemes(workload: RingWorkload, seed: int, events: int | None = None) -> list[SchemeCounts]:
    """Table 1 for a workload; `events` of it are hashed, or all."""
    schemes = {
        "Ferry": _ferry,
        "eFerry": _eferry,
        "Baldoni et al.": _baldoni,
        "Meghdoot": _meghdoot,
        "intervals": _intervals,
    }
    routes = RingRoutes(IdSpace(workload.settings.ring), workload.node_ids)
    count = len(workload.event_topics) if events is None else min(events, len(workload.event_topics))
    rows = []
    for name, scheme in schemes.items():
        of_subscription, of_event = scheme(workload, routes, np.random.default_rng(seed))
        stored = [of_subscription(row) for row in range(len(workload.topics))]
        visited = [of_event(row) for row in range(count)]
        missed = sum(not stored[sub] & visited[row] for row in range(count) for sub in workload.matches(row))
        per_subscription, per_event = (float(np.mean([len(each) for each in sets])) for sets in (stored, visited))
        rendezvous = len(set().union(*stored, *visited))
        rows.append(SchemeCounts(name, per_subscription, per_event, rendezvous, missed))
    return rows


def _name(attribute: int) -> str:
    return f"a{attribute}"


def _named(workload: RingWorkload, row: int) -> list[int]:
    given = np.flatnonzero(workload.low[row] >= 0)
    return [int(a) for a in workload.topic_attributes[workload.topics[row]][given]]


def _ferry(workload: RingWorkload, routes: RingRoutes, _: np.random.Generator) -> tuple[OfSubscription, OfEvent]:
    keys = [routes.space.hash(_name(a)) for a in range(workload.settings.schema)]
    every = {routes.owner(key) for key in keys}

    def of_subscription(row: int) -> BrokerSet:
        home = routes.ids[workload.homes[row]]
        return {routes.owner(min(keys, key=lambda key: routes.space.distance(home, key)))}

    return of_subscription, lambda _: every


def _eferry(workload: RingWorkload, routes: RingRoutes, _: np.random.Generator) -> tuple[OfSubscription, OfEvent]:
    def broker(names: tuple[int, ...]) -> int:
        return routes.owner(routes.space.hash("+".join(map(_name, sorted(names)))))

    by_topic = [
        {broker(some) for size in range(len(names) + 1) for some in combinations(names, size)}
        for names in workload.topic_attributes.tolist()
    ]
    return (
        lambda row: {broker(tuple(_named(workload, row)))},
        lambda row: by_topic[workload.event_topics[row]],
    )


def _baldoni(workload: RingWorkload, routes: RingRoutes, rng: np.random.Generator) -> tuple[OfSubscription, OfEvent]:
    def broker(attribute: int, value: int) -> int:
        return routes.owner(routes.space.hash(f"{_name(attribute)}={value}"))

    def of_subscription(row: int) -> BrokerSet:
        column = int(rng.choice(np.flatnonzero(workload.low[row] >= 0)))
        attribute = int(workload.topic_attributes[workload.topics[row]][column])
        return {broker(attribute, v) for v in range(workload.low[row][column], workload.high[row][column] + 1)}

    def of_event(row: int) -> BrokerSet:
        names = workload.topic_attributes[workload.event_topics[row]].tolist()
        return {broker(a, v) for a, v in zip(names, workload.values[row].tolist(), strict=True)}

    return of_subscription, of_event


def _intervals(workload: RingWorkload, routes: RingRoutes, rng: np.random.Generator) -> tuple[OfSubscription, OfEvent]:
    cuts = [Intervals(_name(a), 0, DOMAIN - 1, workload.settings.intervals) for a in range(workload.settings.schema)]

    def broker(topic: int, attribute: int, number: int) -> int:
        return routes.owner(cuts[attribute].key(number, routes.space, f"t{topic}"))

    def of_subscription(row: int) -> BrokerSet:
        topic, column = int(workload.topics[row]), int(rng.choice(np.flatnonzero(workload.low[row] >= 0)))
        attribute = int(workload.topic_attributes[topic][column])
        cells = cuts[attribute].of_range(workload.low[row][column], workload.high[row][column])
        return {broker(topic, attribute, cell) for cell in cells}

    def of_event(row: int) -> BrokerSet:
        topic = int(workload.event_topics[row])
        names = workload.topic_attributes[topic].tolist()
        return {broker(topic, a, cuts[a].of(v)) for a, v in zip(names, workload.values[row].tolist(), strict=True)}

    return of_subscription, of_event


# -- Meghdoot ----------------------------------------------------------------------------------------------

_Zone = list[tuple[float, float]]  # of the dimensions that have been halved


def _zones(brokers: int, dimensions: int) -> list[_Zone]:
    """Zones of [0, 1) in each dimension: the oldest of the largest is halved until there are enough."""
    zones: list[tuple[int, _Zone]] = [(0, [])]  # how often it was halved
    while len(zones) < brokers:
        at = min(range(len(zones)), key=lambda i: zones[i][0])
        depth, zone = zones.pop(at)
        dimension = depth % dimensions
        low, high = zone[dimension] if dimension < len(zone) else (0.0, 1.0)
        middle = (low + high) / 2
        halves = ((low, middle), (middle, high))
        zones += [(depth + 1, [*zone[:dimension], half, *zone[dimension + 1 :]]) for half in halves]
    return [zone for _, zone in zones]


def _can_hold_a_range(zone: _Zone) -> bool:
    """Whether some low end in the zone is at most some high end, in each attribute."""
    pairs = zip(zone[::2], [*zone[1::2], (0.0, 1.0)], strict=False)
    return all(low[0] < high[1] for low, high in pairs)


def _meghdoot(workload: RingWorkload, _: RingRoutes, __: np.random.Generator) -> tuple[OfSubscription, OfEvent]:
    every = _zones(workload.settings.nodes, 2 * workload.settings.schema)
    zones = [zone for zone in every if _can_hold_a_range(zone)]  # only these brokers ever meet anything
    used = max(map(len, zones))
    lows = np.array([[d[0] for d in zone] + [0.0] * (used - len(zone)) for zone in zones])
    highs = np.array([[d[1] for d in zone] + [1.0] * (used - len(zone)) for zone in zones])

    def of_subscription(row: int) -> BrokerSet:
        point = np.zeros(used + 1)
        point[1::2] = (DOMAIN - 1) / DOMAIN
        for column in np.flatnonzero(workload.low[row] >= 0):
            attribute = int(workload.topic_attributes[workload.topics[row]][column])
            if 2 * attribute < used:
                point[2 * attribute] = workload.low[row][column] / DOMAIN
                point[2 * attribute + 1] = workload.high[row][column] / DOMAIN
        inside = (lows <= point[:used]) & (point[:used] < highs)
        return {int(np.flatnonzero(inside.all(axis=1))[0])}

    def of_event(row: int) -> BrokerSet:
        least, most = np.zeros(used + 1), np.ones(used + 1)
        for attribute, value in zip(
            workload.topic_attributes[workload.event_topics[row]].tolist(), workload.values[row].tolist(), strict=True
        ):
            if 2 * attribute < used:
                most[2 * attribute] = value / DOMAIN  # the low end is at most the value
                least[2 * attribute + 1] = value / DOMAIN
        met = (lows <= most[:used]) & (least[:used] < highs)
        return set(np.flatnonzero(met.all(axis=1)).tolist())

    return of_subscription, of_event
