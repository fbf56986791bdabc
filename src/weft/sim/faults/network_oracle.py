"""What must hold over all brokers together. Laws:

- What is stored anywhere was published, as it is, by a client that was allowed to and had advertised it.
- *Complete* is never early: at that instant every path to the subscriber is walked, and each broker on it would hand a
  matching event on. This stays so for as long as the subscription lasts and the tree stands.
- An event published anywhere after *complete* is stored at the subscriber's broker in the end, whatever happens.
- When all is mended, neighbours agree: what one told, the other has heard.

After a backup is restored, events from before that may come again, and out of order.

A link that is detached, or a backup that is restored, takes the promise away from paths through it. It holds again
for a path once its brokers agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from weft.language.meaning import matches
from weft.sim.faults.broker_process import BrokerProcess
from weft.sim.faults.client import SimClient
from weft.sim.faults.path_walk import (
    EVERYTHING,
    NOTHING,
    Attributes,
    Hop,
    Sample,
    Tree,
    broken_hop,
    hops_of,
    is_settled,
    sample_of,
)
from weft.sim.faults.trace import RunTrace
from weft.sim.faults.views import Logged, SubView
from weft.sim.faults.violation import require


@dataclass(slots=True)
class CompleteSubscription:
    """A subscription that is complete, from a version on."""

    home: str
    sub: SubView
    version: int
    since: dict[str, int] = field(default_factory=dict)  # broker -> the last offset given there before it was complete

    def wants(self, attributes: Attributes) -> bool:
        """Whether all filters that may be in force since match an event."""
        return all(
            version.filter is not None and matches(version.filter, attributes)  # type: ignore[arg-type]
            for version in self.sub.versions[self.version :]
        )

    @property
    def sample(self) -> Sample:
        """The sample events that it wants."""
        sample = EVERYTHING
        for version in self.sub.versions[self.version :]:
            sample &= NOTHING if version.filter is None else sample_of(version.filter)
        return sample


@dataclass(slots=True)
class PublishedEvent:
    """An event that a client published."""

    home: str
    client: str
    attributes: Attributes
    rules: int = 0  # the access rules when it was published
    promises: int = 0  # how much its client had advertised by then
    promised: bool = True  # whether an advertisement that was not yet taken back matched it


class NetworkOracle:
    """Sees all brokers and holds the network to the laws."""

    def __init__(
        self, brokers: Mapping[str, BrokerProcess], clients: Sequence[SimClient], trace: RunTrace, *, advertised: bool
    ) -> None:
        self.tree = Tree(brokers)
        self.completions: list[CompleteSubscription] = []
        self._brokers = brokers
        self._trace = trace
        self._advertised = advertised
        self._rewound: set[str] = set()  # brokers that went back to an older log, until all agree
        self._torn: list[set[str]] = []  # links that were detached and are attached again, until all agree
        self._published: dict[str, PublishedEvent] = {}
        self._clients = {client.name: client for client in clients}
        for broker in brokers.values():
            broker.oracle.on_stored = self._stored
            broker.oracle.on_complete = partial(self._complete, broker.name)

    # -- events ----------------------------------------------------------------------------------------

    def published(self, client: SimClient, uid: str, attributes: Attributes) -> None:
        """A client publishes an event."""
        adverts = client.state.adverts.values()
        promised = any(not advert.gone and matches(advert.filter, attributes) for advert in adverts)  # type: ignore[arg-type]
        self._published[uid] = PublishedEvent(
            client.broker.name, client.name, attributes, client.book.now, len(client.state.promises), promised
        )

    @property
    def published_so_far(self) -> set[str]:
        """All events."""
        return {*self._published}

    def _stored(self, event: Logged) -> None:
        """A broker has stored an event."""
        known = self._published.get(event.uid)
        require(known is not None, f"event {event.uid} is stored, and nobody published it")
        assert known is not None
        same = known.attributes == event.attributes
        client = self._clients[known.client]
        allowed = client.book.allows(client.principal, event.attributes, known.rules)
        require(allowed, f"event {event.uid} is stored, and the rules do not allow {client.name} to publish it")
        later = (matches(each, event.attributes) for each in client.state.promises[known.promises :])  # type: ignore[arg-type]
        promised = not self._advertised or known.promised or any(later)
        require(promised, f"event {event.uid} is stored, and {client.name} has not advertised it")
        require(same, f"event {event.uid} is stored as {event.attributes}, published as {known.attributes}")

    @property
    def events(self) -> int:
        """How many events are stored where they were published."""
        oracles = {name: broker.oracle for name, broker in self._brokers.items()}
        return sum(oracles[known.home].offset_of(uid) is not None for uid, known in self._published.items())

    # -- complete --------------------------------------------------------------------------------------

    def _complete(self, home: str, sub: SubView) -> None:
        """A broker says that a subscription is complete, with the filter that it has there now."""
        self._trace.count("walked: complete")
        new = CompleteSubscription(home, sub, sub.answered)
        ways = self.tree.ways(home)
        starts = [start for start in ways if self._holds(hops_of(ways, start))]
        new.since = {start: self._brokers[start].oracle.assigned for start in starts}
        self.check(new, "is complete too early")
        if not sub.durable:
            return
        known = next((each for each in self.completions if each.sub is sub and each.version == new.version), None)
        if known is None:
            self.completions.append(new)
        else:  # its broker has restarted, and says so again
            known.since = {**new.since, **known.since}

    def _holds(self, path: Sequence[Hop]) -> bool:
        """Whether what was complete before is known on a path.

        It may not be, beyond a link that is new or behind a broker that went back to an older log: what covers a new
        subscription was complete before that. But the first broker of a path keeps events for a neighbour that is new.
        """
        torn = [hop for hop in path if self._is_torn(hop)]
        if any({hop.broker, hop.next} & self._rewound for hop in path) or torn[1:] or torn[:1] not in ([], path[:1]):
            return is_settled(self._brokers, path)
        return not torn or self._keeps(path[0]) or is_settled(self._brokers, path)

    def _keeps(self, hop: Hop) -> bool:
        """Whether a broker keeps all events for a new neighbour: from when it has stored that it is one, as long as it
        cannot know what that one wants.
        """
        broker = self._brokers[hop.broker]
        if self._advertised or broker.core is None or broker.commits.busy or hop.next in broker.resynced:
            return False
        return any(row.peer == hop.next for row in broker.log.restore().links.values())

    def check(self, completion: CompleteSubscription, what: str) -> None:
        """Walk all paths for which a promise holds."""

        sample = completion.sample

        def wanted(start: str) -> Sample:
            return sample & self._publishable(start) if sample and start in completion.since else NOTHING

        broken = broken_hop(self._brokers, self.tree, completion.home, wanted)
        sub = completion.sub
        require(not broken, f"subscription {sub.number} at {completion.home} {what}: {broken}")

    def _publishable(self, start: str) -> Sample:
        """What clients of a broker may publish: anything, or what lies within a complete advertisement."""
        if not self._advertised:
            return EVERYTHING
        sample = NOTHING
        for client in self._clients.values():
            if client.broker.name == start:
                for advert in client.state.adverts.values():
                    sample |= sample_of(advert.filter) if advert.complete else NOTHING
        return sample

    def _was_advertised(self, offset: int, event: Logged) -> bool:
        """Whether a complete advertisement of its client promised an event when it got its offset."""
        return not self._advertised or any(
            advert.since < offset <= advert.until and matches(advert.filter, event.attributes)  # type: ignore[arg-type]
            for advert in self._clients[self._published[event.uid].client].state.adverts.values()
        )

    # -- changes of the tree ---------------------------------------------------------------------------

    def cut_off(self, one: str, other: str) -> None:
        """A link is about to be detached: nothing is promised over it any more."""
        for completion in self.completions:
            for start in list(completion.since):
                if any({hop.broker, hop.next} == {one, other} for hop in self.tree.path(start, completion.home)):
                    self._withdraw(completion, start)

    def joined(self, one: str, other: str) -> None:
        """Two parts of the tree are linked."""
        self._torn.append({one, other})

    def rewound(self, name: str) -> None:
        """A broker goes back to an older log: nothing is promised through it any more."""
        self._rewound.add(name)
        for completion in self.completions:
            for start in list(completion.since):
                if any(name in (hop.broker, hop.next) for hop in self.tree.path(start, completion.home)):
                    self._withdraw(completion, start)

    def _withdraw(self, completion: CompleteSubscription, start: str) -> None:
        self._trace.count("promise: withdrawn")
        del completion.since[start]

    def look(self, draw: int) -> None:
        """Between two steps: walk the paths of one complete subscription, and see which promises hold again."""
        self.resume()
        if self.completions:
            self._trace.count("walked: still complete")
            self.check(self.completions[draw % len(self.completions)], "was complete, and is no longer")

    def resume(self) -> None:
        """Promises hold again where all brokers of a path agree."""
        links = [Hop(one, None, other) for one in self._brokers for other in self.tree.neighbours(one)]
        if (self._rewound or self._torn) and is_settled(self._brokers, links):
            self._rewound.clear()
            self._torn.clear()
        for completion in self.completions:
            ways = self.tree.ways(completion.home)
            for start in [each for each in ways if each not in completion.since]:
                path = hops_of(ways, start)
                if self._keeps_for(path, completion) or is_settled(self._brokers, path):
                    self._trace.count("promise: renewed")
                    completion.since[start] = self._brokers[start].oracle.assigned

    def _keeps_for(self, path: Sequence[Hop], completion: CompleteSubscription) -> bool:
        """Whether the first broker of a path keeps events for a new neighbour, from which the promise holds.

        That neighbour must know the subscription, rather than keep events for a new neighbour itself: when it says what
        it wants, they are no longer kept.
        """
        first, beyond = path[0], path[1:]
        if not self._is_torn(first) or not self._keeps(first) or (beyond and first.next not in completion.since):
            return False
        if any(map(self._is_torn, beyond)) and not is_settled(self._brokers, beyond):
            return False
        self._trace.count("promise: renewed by a cold link")
        return True

    def _is_torn(self, hop: Hop) -> bool:
        return {hop.broker, hop.next} in self._torn

    # -- the end ---------------------------------------------------------------------------------------

    def lacking(self) -> str:
        """An event that must have come to a subscriber's broker and has not, in a sentence; empty if there is none."""
        latest = max(broker.latest for broker in self._brokers.values())
        for completion in self.completions:
            home = self._brokers[completion.home].oracle
            for start, since in completion.since.items():
                for offset, event in self._brokers[start].oracle.history.items():
                    known = self._published[event.uid]
                    if (
                        offset > since
                        and known.home == start
                        and home.offset_of(event.uid) is None
                        and event.expires > latest
                        and completion.wants(event.attributes)
                        and self._was_advertised(offset, event)
                    ):
                        sub = completion.sub.number
                        return f"{completion.home} lacks event {event.uid} of {start} for subscription {sub}"
        return ""
