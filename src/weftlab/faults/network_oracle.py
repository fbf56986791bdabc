"""What must hold over all brokers together:

- What is stored anywhere was published, as it is, by a client that was allowed to and had advertised it.
- *Complete* is never early: at that instant every path to the subscriber is walked, and each broker on it would hand a
  matching event on. This stays so for as long as the subscription lasts and the tree stands.
- An event published anywhere after *complete* is stored at the subscriber's broker in the end, whatever happens.
- When all is mended, neighbours agree: each has received what the other has sent.

After a backup is restored, events from before that may come again, and out of order.

A link that is detached, or a backup that is restored, takes the promise away from paths through it. It holds again
for a path once its brokers agree.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.routing.table import About, Items, Link
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client import SimClient
from weftlab.faults.shape import EVENTS, Attributes
from weftlab.faults.trace import RunTrace
from weftlab.faults.views import Logged, SubView
from weftlab.faults.violation import require

Sample = int  # some of the 24 events, one bit each
NOTHING, EVERYTHING = 0, (1 << len(EVENTS)) - 1


@lru_cache(maxsize=4096)
def sample_of(filter: Filter) -> Sample:
    """The events that a filter matches."""
    places = [place for place, event in enumerate(EVENTS) if matches(filter, event)]  # type: ignore[arg-type]
    return sum(1 << place for place in places)


class Hop(NamedTuple):
    """A broker on a path, the one before it (None: it publishes there), and the next."""

    broker: str
    source: str | None
    next: str


@dataclass(slots=True)
class CompleteSubscription:
    """A subscription that is complete, from a version on."""

    home: str
    sub: SubView
    version: int
    since: dict[str, int] = field(default_factory=dict)  # broker -> the last offset given there before it was complete

    @property
    def sample(self) -> Sample:
        """The events that all filters match that may be in force since."""
        sample = EVERYTHING
        for version in self.sub.versions[self.version :]:
            sample &= NOTHING if version.filter is None else sample_of(version.filter)
        return sample


@dataclass(slots=True)
class PublishedEvent:
    """An event that a client published."""

    client: SimClient
    attributes: Attributes
    rules: int = 0  # the access rules when it was published
    promises: int = 0  # how much its client had advertised by then
    promised: bool = True  # whether an advertisement that was not yet taken back matched it
    granted: frozenset[int] = frozenset()  # the advertisements that the library had said to be complete, and matched it


class NetworkOracle:
    """Sees all brokers and holds the network to the laws."""

    def __init__(
        self, brokers: Mapping[str, BrokerProcess], clients: Sequence[SimClient], trace: RunTrace, *, advertised: bool
    ) -> None:
        self.completions: list[CompleteSubscription] = []
        self._brokers, self._clients, self._trace, self._advertised = brokers, clients, trace, advertised
        self._rewound: set[str] = set()  # brokers that went back to an older log, until all agree
        self._torn: list[set[str]] = []  # links that were detached and are attached again, until all agree
        self.known: dict[str, PublishedEvent] = {}  # all events, by uid
        for broker in brokers.values():
            broker.oracle.on_stored = self._stored
            broker.oracle.on_complete = partial(self._complete, broker.name)
            broker.oracle.on_undone = self._undone

    # -- events ----------------------------------------------------------------------------------------

    def published(self, client: SimClient, uid: str, attributes: Attributes) -> None:
        """A client publishes an event."""
        views = client.views
        promised = any(not each.gone and matches(each.filter, attributes) for each in views.adverts.values())  # type: ignore[arg-type]
        promised = promised or client.adverts.are_wanted(attributes)
        granted = client.adverts.granting(attributes)
        self.known[uid] = PublishedEvent(client, attributes, client.book.now, len(views.promises), promised, granted)

    def _stored(self, event: Logged) -> None:
        """A broker has stored an event."""
        known = self.known.get(event.uid)
        require(known is not None, f"event {event.uid} is stored, and nobody published it")
        assert known is not None
        same = known.attributes == event.attributes
        client = known.client
        allowed = True in client.book.allows(client.principal, event.attributes, known.rules)
        require(allowed, f"event {event.uid} is stored, and the rules do not allow {client.name} to publish it")
        later = (matches(each, event.attributes) for each in client.views.promises[known.promises :])  # type: ignore[arg-type]
        promised = not self._advertised or known.promised or any(later)
        require(promised, f"event {event.uid} is stored, and {client.name} has not advertised it")
        require(same, f"event {event.uid} is stored as {event.attributes}, published as {known.attributes}")

    @property
    def events(self) -> int:
        """How many events are stored where they were published."""
        return sum(uid in known.client.oracle.offsets for uid, known in self.known.items())

    # -- complete --------------------------------------------------------------------------------------

    def _complete(self, home: str, sub: SubView) -> None:
        """A broker says that a subscription is complete, with the filter that it has there now."""
        self._trace.count("walked: complete")
        new = CompleteSubscription(home, sub, sub.answered)
        ways = self._ways(home)
        starts = [start for start in ways if self._holds(hops_of(ways, start))]
        new.since = {start: self._brokers[start].oracle.assigned for start in starts}
        self._check(new, "is complete too early")
        if not sub.durable:
            return
        known = next((each for each in self.completions if each.sub is sub and each.version == new.version), None)
        if known is None:
            self.completions.append(new)
        else:  # its broker has restarted, and says so again
            known.since = {**new.since, **known.since}

    def _undone(self, sub: SubView) -> None:
        """A full log has undone a change of a subscription: neighbours may have learnt of it, and it is complete when
        its broker says so again.
        """
        for completion in self.completions:
            if completion.sub is sub:
                self._trace.count("promise: withdrawn", len(completion.since))
                completion.since.clear()

    def _holds(self, path: Sequence[Hop]) -> bool:
        """Whether what was complete before is known on a path.

        It may not be, beyond a link that is new or behind a broker that went back to an older log: what covers a new
        subscription was complete before that. But the first broker of a path keeps events for a neighbour that is new.
        """
        torn = [hop for hop in path if self._is_torn(hop)]
        if any({hop.broker, hop.next} & self._rewound for hop in path) or torn[1:] or torn[:1] not in ([], path[:1]):
            return self._is_settled(path)
        return not torn or self._keeps(path[0]) or self._is_settled(path)

    def _keeps(self, hop: Hop) -> bool:
        """Whether a broker keeps all events for a new neighbour: from when it has stored that it is one, as long as it
        cannot know what that one wants.
        """
        broker = self._brokers[hop.broker]
        if self._advertised or broker.core is None or broker.is_committing or hop.next in broker.resynced:
            return False
        return any(row.peer == hop.next for row in broker.log.restore().links.values())

    def _check(self, completion: CompleteSubscription, what: str) -> None:
        """Walk all paths for which a promise holds: each broker on the way would send on what is wanted.

        The walk uses the tables themselves: each broker routes sample events, as if they came from the broker before
        it. One that is down publishes nothing, and one whose link is not synced keeps events until it is.
        """
        wanted, home, ways = completion.sample, completion.home, self._ways(completion.home)
        hops: dict[Hop, Sample] = {}
        for start in ways if wanted else ():
            sample = wanted & self._publishable(start) if start in completion.since else NOTHING
            for hop in hops_of(ways, start) if sample else ():
                hops[hop] = hops.get(hop, NOTHING) | sample
        for hop, sample in hops.items():
            process = self._brokers[hop.broker]
            if process.core is None or not process.is_synced(hop.next):
                continue
            events = [event for place, event in enumerate(EVENTS) if sample >> place & 1]
            source = None if hop.source is None else Link(hop.source)
            passed = process.table.route_batch(events, source).get(Link(hop.next))
            lost = sorted(set(range(len(events))) - set(() if passed is None else passed.tolist()))
            came = "published there" if hop.source is None else f"from {hop.source}"
            broken = f"{hop.broker} would not send {events[lost[0]]}, {came}, to {hop.next}" if lost else ""
            require(not lost, f"subscription {completion.sub.number} at {home} {what}: {broken}, towards {home}")

    def _publishable(self, start: str) -> Sample:
        """What clients of a broker may publish: anything, or what lies within a complete advertisement. One of a client
        without a name may have ended with its connection.
        """
        if not self._advertised:
            return EVERYTHING
        sample = NOTHING
        for client in self._clients:
            for advert in client.views.adverts.values():
                if client.broker.name == start and advert.complete and not client.anonymous:
                    sample |= sample_of(advert.filter)
        return sample

    def _was_advertised(self, offset: int, event: Logged) -> bool:
        """Whether a complete advertisement of its client promised an event when it got its offset."""
        known = self.known[event.uid]
        in_force = (
            advert.since < offset <= advert.until and matches(advert.filter, event.attributes)  # type: ignore[arg-type]
            for advert in known.client.views.adverts.values()
        )
        return not self._advertised or bool(known.granted & known.client.adverts.granted.keys()) or any(in_force)

    # -- changes of the tree ---------------------------------------------------------------------------

    def cut_off(self, one: str, other: str) -> None:
        """A link is about to be detached: nothing is promised over it any more."""
        self._withdraw(lambda hop: {hop.broker, hop.next} == {one, other})

    def joined(self, one: str, other: str) -> None:
        """Two parts of the tree are linked."""
        self._torn.append({one, other})

    def rewound(self, name: str) -> None:
        """A broker goes back to an older log: nothing is promised through it any more."""
        self._rewound.add(name)
        self._withdraw(lambda hop: name in (hop.broker, hop.next))

    def _withdraw(self, is_affected: Callable[[Hop], bool]) -> None:
        for completion in self.completions:
            ways = self._ways(completion.home)
            for start in list(completion.since):
                if any(map(is_affected, hops_of(ways, start))):
                    self._trace.count("promise: withdrawn")
                    del completion.since[start]

    def look(self, draw: int) -> None:
        """Between two steps: walk the paths of one complete subscription, and see which promises hold again."""
        self.resume()
        if self.completions:
            self._trace.count("walked: still complete")
            self._check(self.completions[draw % len(self.completions)], "was complete, and is no longer")

    def resume(self) -> None:
        """Promises hold again where all brokers of a path agree."""
        links = [Hop(one, None, other) for one in self._brokers for other in self._neighbours(one)]
        if (self._rewound or self._torn) and self._is_settled(links):
            self._rewound.clear()
            self._torn.clear()
        for completion in self.completions:
            ways = self._ways(completion.home)
            for start in [each for each in ways if each not in completion.since]:
                path = hops_of(ways, start)
                if self._keeps_for(path, completion) or self._is_settled(path):
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
        if any(map(self._is_torn, beyond)) and not self._is_settled(beyond):
            return False
        self._trace.count("promise: renewed by a cold link")
        return True

    def _is_torn(self, hop: Hop) -> bool:
        return {hop.broker, hop.next} in self._torn

    def _neighbours(self, name: str) -> list[str]:
        """The brokers that a broker is linked to, by the configurations of both ends."""
        return [peer for peer in self._brokers[name].neighbours if name in self._brokers[peer].neighbours]

    def _ways(self, home: str) -> dict[str, str]:
        """For each broker from which `home` can be reached, the next one on the way."""
        found, todo = {home: home}, deque([home])
        while todo:
            here = todo.popleft()
            for there in self._neighbours(here):
                if there not in found:
                    found[there] = here
                    todo.append(there)
        del found[home]
        return found

    def _is_settled(self, hops: Sequence[Hop]) -> bool:
        """Whether all brokers of a path run, are synced, and have stored all interest of the next ones."""
        for hop in hops:
            one, other = self._brokers[hop.broker], self._brokers[hop.next]
            if not one.has_settled_with(other) or not other.has_settled_with(one) or disagreement(one, other):
                return False
        return True

    # -- the end ---------------------------------------------------------------------------------------

    def lacking(self) -> str:
        """An event that must have come to a subscriber's broker and has not, in a sentence; empty if there is none."""
        latest = max(broker.latest for broker in self._brokers.values())
        for completion in self.completions:
            home, sample = self._brokers[completion.home].oracle, completion.sample
            for start, since in completion.since.items():
                for offset, event in self._brokers[start].oracle.history.items():
                    known = self.known[event.uid]
                    if (
                        offset > since
                        and known.client.broker.name == start
                        and event.uid not in home.offsets
                        and event.expires > latest
                        and sample >> EVENTS.index(event.attributes) & 1
                        and self._was_advertised(offset, event)
                    ):
                        sub = completion.sub.number
                        return f"{completion.home} lacks event {event.uid} of {start} for subscription {sub}"
        return ""


def hops_of(ways: Mapping[str, str], start: str) -> list[Hop]:
    """The hops from a broker, by the next one on the way from each."""
    hops, source = list[Hop](), None
    while start in ways:
        hops.append(Hop(start, source, ways[start]))
        source, start = start, ways[start]
    return hops


def disagreement(one: BrokerProcess, other: BrokerProcess) -> str:
    """What one of two neighbours has sent and the other has not received, in a sentence; empty if they agree."""
    for sender, receiver in ((one, other), (other, one)):
        for about in About:
            sent = _bodies(sender, about, sender.table.told(Link(receiver.name), about))
            received = _bodies(receiver, about, receiver.table.heard(Link(sender.name), about))
            if sent != received:
                missing, stale = sorted((sent - received).elements()), sorted((received - sent).elements())
                return f"{receiver.name} has not received {missing} from {sender.name}, and still has {stale}"
    return ""


def _bodies(process: BrokerProcess, about: About, items: Items) -> Counter[bytes]:
    """Items as bytes, which are the same at both ends; their ids are not."""
    return Counter(process.table.codec.encode_item(about, item) for item in items.values())
