"""The paper's simulation: what subscriptions and events cost on a ring, and how long a match takes. Every message
passes a node's queue in the order of arrival. Every matching pair is found, or `missed` counts it.

A hop takes two seconds, and the node that a message arrives at takes some time to look up where it goes next, or to
store or examine subscriptions; it does one thing after the other. The management cost is the time that nodes work: the
paper's "time consumed", read such that matching counts (next to two seconds for each hop it hardly would); `elapsed`
adds the hops. The latency of a match is the time from publishing to the moment at which the subscription has been
examined. Subscriptions are stored before the first event, so that they wait for nobody. A node examines all that it
stores, as in the paper, or only the subscriptions of the event's topic.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.ring.load_sharing import Sharing
from weftlab.ring.ring_design import ENVIRONMENTS, HOP, RingDesign, RingOutcome
from weftlab.ring.ring_places import RingPlaces
from weftlab.ring.ring_workload import DOMAIN, RingWorkload

_Progress = Callable[[int, int], None]  # how many are done, of how many

_CHUNK = 50_000  # subscriptions whose places are found together


@dataclass(slots=True)
class _Shelf:
    """Subscriptions at a node that are examined together, in their order."""

    rows: list[int] = field(default_factory=list)
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


class RingWatch(Protocol):
    """Sees a run as it happens."""

    def stored(self, node: int, row: int) -> None:
        """A node has stored a subscription."""
        ...

    def hopped(self, time: float, event: int, sender: int, node: int) -> None:
        """An event leaves a node for another one, at a time in seconds."""
        ...

    def examined(self, time: float, event: int, node: int, found: int) -> None:
        """A node has examined an event, and found so many more of its matches."""
        ...


class RingModel:
    """One run: subscriptions are stored, then events are published."""

    watch: RingWatch | None = None

    def __init__(self, workload: RingWorkload, design: RingDesign, seed: int) -> None:
        s = workload.settings
        self.workload, self.design = workload, design
        self.environment = ENVIRONMENTS[design.environment]
        self.places = RingPlaces(workload, design, seed)
        self.outcome = RingOutcome()
        self._shelves: dict[tuple[int, int], _Shelf] = defaultdict(_Shelf)  # of node and topic: the owner's
        self._held: dict[tuple[int, int, int], _Shelf] = defaultdict(_Shelf)  # of holder, owner and topic
        self._loads = [0] * s.nodes
        self._holders: dict[int, list[int]] = {}
        self._turns: dict[int, int] = defaultdict(int)

    def run(self, progress: _Progress | None = None, storing: _Progress | None = None) -> RingOutcome:
        """Simulate everything; `progress` is told of events, `storing` of subscriptions."""
        for way in self.places.registrations():
            self.outcome.registration += self._travel(len(way))
        self._store(storing)
        self._publish(progress)
        out = self.outcome
        out.events = len(self.workload.event_topics)
        out.loads = self._loads
        out.rendezvous = sum(load > 0 for load in self._loads)
        return out

    def stored(self) -> dict[int, set[int]]:
        """The subscriptions that each node stores, its own and those that it holds for others."""
        rows: dict[int, set[int]] = defaultdict(set)
        for (node, _), shelf in self._shelves.items():
            rows[node].update(shelf.rows)
        for (holder, _, _), shelf in self._held.items():
            rows[holder].update(shelf.rows)
        return {node: held for node, held in rows.items() if held}

    # -- storing -----------------------------------------------------------------------------------------

    def _store(self, progress: _Progress | None) -> None:
        count = len(self.workload.topics)
        topics = self.workload.topics.tolist()
        for first in range(0, count, _CHUNK):
            rows = range(first, min(first + _CHUNK, count))
            for row, place, hops in self.places.of_subscriptions(rows):
                self.outcome.storing += self._travel(hops)
                self._put(place.node, topics[row], row)
            if progress is not None:
                progress(rows.stop, count)

    def _travel(self, hops: int) -> float:
        self.outcome.other_hops += hops
        return hops * self.environment.look_up

    def _put(self, node: int, topic: int, row: int) -> None:
        group, topic = topic, self._shelf_of(topic)
        shelf = self._shelves[node, topic]
        if row in shelf.rows[-1:]:
            return  # two of its keys are at one node
        holders = self._sharers(node, group)
        if self.design.sharing is Sharing.PARTITION and holders:
            self._turns[node] = turn = (self._turns[node] + 1) % (len(holders) + 1)
            if turn:
                self._give(holders[turn - 1], node, topic, row)
                return
        elif self.design.sharing is Sharing.REPLICATION:
            for holder in holders:
                self._give(holder, node, topic, row)
        self._take(node, shelf, row)

    def _shelf_of(self, topic: int) -> int:
        return topic if self.design.by_topic else -1

    def _take(self, node: int, shelf: _Shelf, row: int) -> None:
        shelf.rows.append(row)
        self._loads[node] += 1
        self.outcome.storing += self.environment.examine
        if self.watch is not None:
            self.watch.stored(node, row)

    def _give(self, holder: int, owner: int, topic: int, row: int) -> None:
        self.outcome.other_hops += 1
        self._take(holder, self._held[holder, owner, topic], row)

    def _sharers(self, node: int, topic: int) -> list[int]:
        """The nodes that share an overloaded node's load: neighbours that are not overloaded."""
        design = self.design
        if design.sharing is Sharing.NONE or node in self._holders or self._loads[node] <= design.threshold:
            return self._holders.get(node, [])
        near = [other for other in self._neighbours(node, topic) if self._loads[other] <= design.threshold]
        chosen = self._holders[node] = near[: design.sharers - 1]
        if design.sharing is Sharing.REPLICATION:  # erratum 8: what was stored before is copied first
            for (at, shelved), shelf in list(self._shelves.items()):
                if at == node:
                    for holder in chosen:
                        for row in shelf.rows:
                            self._give(holder, node, shelved, row)
        return chosen

    def _neighbours(self, node: int, topic: int) -> list[int]:
        """Fingers; in a group, those registered at the same region server, of the smallest region that has others."""
        routes = self.places.routes
        if not self.design.clusters:
            return routes.fingers(node)[1]
        return [routes.owner(peer) for peer in self.places.views[topic].peers(routes.ids[node])]

    # -- publishing --------------------------------------------------------------------------------------

    def _publish(self, progress: _Progress | None) -> None:
        """Messages in the order of their arrivals: (time, sequence, event, the way, where on it, the owner)."""
        w, free_at = self.workload, [0.0] * self.workload.settings.nodes
        look_up, sequence, total_latency = self.environment.look_up, 0, 0.0
        heap: list[tuple[float, int, int, tuple[int, ...], int, int]] = []
        published = np.cumsum(w.gaps) * self.environment.arrival
        found: list[set[int]] = [set() for _ in range(len(published))]
        ahead = 0
        while heap or ahead < len(published):
            if ahead < len(published) and (not heap or published[ahead] <= heap[0][0]):
                for way in self.places.of_event(ahead):
                    sequence += 1
                    heapq.heappush(heap, (float(published[ahead]), sequence, ahead, way, 0, -1))
                ahead += 1
                if progress is not None:
                    progress(ahead, len(published))
                continue
            time, _, event, way, at, owner = heapq.heappop(heap)
            node = way[at]
            start = max(time, free_at[node])
            if at + 1 < len(way):
                free_at[node] = start + look_up
                sequence += 1
                self.outcome.delivery += look_up
                self.outcome.hops += 1
                if self.watch is not None:
                    self.watch.hopped(start + look_up, event, node, way[at + 1])
                heapq.heappush(heap, (start + look_up + HOP, sequence, event, way, at + 1, owner))
                continue
            topic = self._shelf_of(int(w.event_topics[event]))
            if owner < 0:
                shelf, onward = self._examined_at(node, topic)
                for other in onward:
                    sequence += 1
                    self.outcome.hops += 1
                    if self.watch is not None:
                        self.watch.hopped(start + look_up, event, node, other)
                    heapq.heappush(heap, (start + look_up + HOP, sequence, event, (other,), 0, node))
            else:
                shelf = self._held[node, owner, topic]
            known = len(found[event])
            busy, latency = self._examine(shelf, event, start + look_up - float(published[event]), found[event])
            if self.watch is not None:
                self.watch.examined(start + look_up + busy, event, node, len(found[event]) - known)
            self.outcome.delivery += look_up
            free_at[node] = start + look_up + busy
            total_latency += latency
        out = self.outcome
        out.matches = sum(map(len, found))
        out.latency = total_latency / max(out.matches, 1)
        out.missed = sum(len(w.matches(event)) - len(found[event]) for event in range(len(found)))

    def _examined_at(self, node: int, topic: int) -> tuple[_Shelf, list[int]]:
        """What a node examines itself, and to which nodes it passes an event on."""
        holders, sharing = self._holders.get(node, []), self.design.sharing
        shelf = self._shelves[node, topic]
        if not holders or sharing is Sharing.NONE:
            return shelf, []
        if sharing is Sharing.PARTITION:
            return shelf, [holder for holder in holders if self._held[holder, node, topic].rows]
        self._turns[node] = turn = (self._turns[node] + 1) % (len(holders) + 1)
        return (_Shelf(), [holders[turn - 1]]) if turn else (shelf, [])

    def _examine(self, shelf: _Shelf, event: int, since: float, found: set[int]) -> tuple[float, float]:
        """Time that it takes, and the sum of the latencies of what is found for the first time."""
        count = len(shelf.rows)
        if not count:
            return 0.0, 0.0
        w, each = self.workload, self.environment.examine
        if shelf.bounds is None or len(shelf.bounds[0]) != count:
            low, high = w.low[shelf.rows], w.high[shelf.rows]
            shelf.bounds = low, np.where(low < 0, DOMAIN, high)
        low, high = shelf.bounds
        values = w.values[event]
        self.outcome.examined += count
        self.outcome.matching += count * each
        latency = 0.0
        for place in np.flatnonzero(((low <= values) & (values <= high)).all(axis=1)).tolist():
            if shelf.rows[place] not in found and w.topics[shelf.rows[place]] == w.event_topics[event]:
                found.add(shelf.rows[place])
                latency += since + (place + 1) * each
        return count * each, latency
