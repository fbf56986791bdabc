"""The places where a design of the ring stores subscriptions and takes events. The route to a place ends with the node
that stores it, and depends only on the start, the topic and the interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.ring.group_placement import GroupTree, GroupView
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import Selection
from weftlab.ring.ring_design import RingDesign
from weftlab.ring.ring_routes import RingRoutes
from weftlab.ring.ring_workload import DOMAIN, RingWorkload


@dataclass(frozen=True, slots=True)
class StoredAt:
    """The node that stores an interval. A message is routed to the owner of `key`, then passes the nodes `onward`."""

    node: int
    key: int
    onward: tuple[int, ...] = ()


class RingPlaces:
    """The places of a workload's subscriptions and events; `seed` chooses the attributes of subscriptions."""

    def __init__(self, workload: RingWorkload, design: RingDesign, seed: int) -> None:
        s = workload.settings
        self.routes = RingRoutes(IdSpace(s.ring), workload.node_ids)
        self.views = self._groups(workload, design) if design.clusters else {}
        self._workload, self._clusters = workload, design.clusters
        self._cuts = [Intervals(f"a{at}", 0, DOMAIN - 1, s.intervals) for at in range(s.schema)]
        self._intervals = [self._cuts[0].of(value) for value in range(DOMAIN)]  # those of all attributes are alike
        self._columns = _selected(workload, design.selection, np.random.default_rng(seed)).tolist()
        self._stored: dict[tuple[int, int, int], StoredAt] = {}

    def _groups(self, workload: RingWorkload, design: RingDesign) -> dict[int, GroupView]:
        """The groups of topics: their members are the nodes that subscribe."""
        space, views = self.routes.space, {}
        for topic in range(workload.settings.topics):
            homes = np.unique(workload.homes[workload.topics == topic])
            if len(homes):
                tree = GroupTree(space, space.hash(f"t{topic}"), design.depth, design.rotation, design.remap)
                views[topic] = GroupView(tree, tuple(self.routes.ids[home] for home in homes))
        return views

    def registrations(self) -> Iterator[tuple[int, ...]]:
        """The ways on which members register at the region servers of all levels."""
        for view in self.views.values():
            for member in view.members:
                for server in dict.fromkeys(view.registrations(member)):
                    yield self.routes.route(self.routes.owner(member), server)

    def of_subscriptions(self, rows: range) -> Iterator[tuple[int, StoredAt, int]]:
        """Rows, where each is stored, and after how many hops; a row comes once for each interval of its attribute."""
        w, intervals = self._workload, self._intervals
        chosen = self._columns[rows.start : rows.stop]
        at = np.arange(rows.start, rows.stop), chosen
        topics = w.topics[rows.start : rows.stop]
        attributes = w.topic_attributes[topics, chosen]
        found: list[tuple[int, StoredAt]] = []
        for row, topic, attribute, low, high in zip(
            rows, topics.tolist(), attributes.tolist(), w.low[at].tolist(), w.high[at].tolist(), strict=True
        ):
            met = range(intervals[low], intervals[high] + 1)
            found += [(row, self._stored_at(topic, attribute, interval)) for interval in met]
        homes = w.homes[np.array([row for row, _ in found], np.int64)]
        hops = self.routes.hops(homes, np.array([place.key for _, place in found], np.int64))
        for (row, place), away in zip(found, hops.tolist(), strict=True):
            yield row, place, away + len(place.onward)

    def of_event(self, event: int) -> list[tuple[int, ...]]:
        """The ways of an event to the distinct nodes that it visits, each beginning with the publisher."""
        w = self._workload
        topic, start = int(w.event_topics[event]), int(w.publishers[event])
        ways: dict[int, tuple[int, ...]] = {}
        for attribute, value in zip(w.topic_attributes[topic].tolist(), w.values[event].tolist(), strict=True):
            place = self._stored_at(topic, attribute, self._intervals[value])
            if place.node not in ways:
                ways[place.node] = start, *self.routes.route(start, place.key), *place.onward
        return list(ways.values())

    def _stored_at(self, topic: int, attribute: int, interval: int) -> StoredAt:
        known = self._stored.get((topic, attribute, interval))
        if known is None:
            # a group's tree already depends on the topic (003, 3.2)
            key = self._cuts[attribute].key(interval, self.routes.space, "" if self._clusters else f"t{topic}")
            known = self._in_group(topic, key) if self._clusters else StoredAt(self.routes.owner(key), key)
            self._stored[topic, attribute, interval] = known
        return known

    def _in_group(self, topic: int, key: int) -> StoredAt:
        """Region servers are asked from the leaf up; the last one sends the message to the member itself."""
        place = self.views[topic].place(key)
        first, *others = place.servers
        at = self.routes.owner(first)
        onward: list[int] = []
        for server in others:
            onward += self.routes.route(at, server)
            at = self.routes.owner(server)
        member = self.routes.owner(place.member)
        return StoredAt(member, first, tuple(onward if member == at else [*onward, member]))


def _selected(workload: RingWorkload, selection: Selection, rng: np.random.Generator) -> NDArray[np.int64]:
    """The column of each subscription by which it is stored: any, or one with a narrow range rather than a wide one."""
    given = workload.low >= 0
    if selection is Selection.RANDOM:
        weights, drawn = given * 1.0, rng.integers(0, given.sum(axis=1)) + 0.0
    else:
        weights = given / (workload.high - workload.low + 1.0)
        drawn = rng.random(len(weights)) * weights.sum(axis=1)
    chosen: NDArray[np.int64] = (weights.cumsum(axis=1) <= drawn[:, None]).sum(axis=1)
    return chosen
