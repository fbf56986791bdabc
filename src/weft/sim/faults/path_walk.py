"""Every path of the tree walked at one instant. Law: if a walk finds nothing, no event that is published now and wanted
there is lost: each broker on the way would hand it on.

The walk asks the tables themselves: each broker routes sample events that come from where they would come from.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.routing.table import About, Items, Link
from weft.sim.faults.broker_process import BrokerProcess

Attributes = dict[str, object]
Sample = int  # some of the events below, one bit each
Wanted = Callable[[str], Sample]  # what a broker may publish now that is wanted there

EVENTS: tuple[Attributes, ...] = tuple(
    {"x": x} if y is None else {"x": x, "y": y} for x in range(8) for y in ("a", "b", None)
)
NOTHING, EVERYTHING = 0, (1 << len(EVENTS)) - 1


@lru_cache(maxsize=4096)
def sample_of(filter: Filter) -> Sample:
    """The sample events that a filter matches."""
    places = [place for place, event in enumerate(EVENTS) if matches(filter, event)]  # type: ignore[arg-type]
    return sum(1 << place for place in places)


class Hop(NamedTuple):
    """A broker on a path, the one before it (None: it publishes there), and the next."""

    broker: str
    source: str | None
    next: str


class Tree:
    """The links that are configured at both ends."""

    def __init__(self, brokers: Mapping[str, BrokerProcess]) -> None:
        self._brokers = brokers

    def neighbours(self, name: str) -> list[str]:
        """The brokers that a broker is linked to."""
        return [peer for peer in self._brokers[name].neighbours if name in self._brokers[peer].neighbours]

    def ways(self, home: str) -> dict[str, str]:
        """For each broker from which `home` can be reached, the next one on the way."""
        found, todo = {home: home}, deque([home])
        while todo:
            here = todo.popleft()
            for there in self.neighbours(here):
                if there not in found:
                    found[there] = here
                    todo.append(there)
        del found[home]
        return found

    def path(self, start: str, home: str) -> list[Hop]:
        """The hops from a broker to `home`; none if they are apart."""
        return hops_of(self.ways(home), start)


def hops_of(ways: Mapping[str, str], start: str) -> list[Hop]:
    """The hops from a broker, by the next one on the way from each."""
    hops, source = list[Hop](), None
    while start in ways:
        hops.append(Hop(start, source, ways[start]))
        source, start = start, ways[start]
    return hops


def broken_hop(brokers: Mapping[str, BrokerProcess], tree: Tree, home: str, wanted: Wanted) -> str:
    """A broker that would not hand an event on towards `home`, in a sentence; empty if there is none.

    A broker that is down publishes nothing, and one whose link is cold keeps events until it knows more.
    """
    hops: dict[Hop, Sample] = {}
    ways = tree.ways(home)
    for start in ways:
        sample = wanted(start)
        for hop in hops_of(ways, start) if sample else ():
            hops[hop] = hops.get(hop, NOTHING) | sample
    for hop, sample in hops.items():
        process = brokers[hop.broker]
        if process.core is None or not process.is_warm(hop.next):
            continue
        events = [event for place, event in enumerate(EVENTS) if sample >> place & 1]
        source = None if hop.source is None else Link(hop.source)
        passed = process.table.route_batch(events, source).get(Link(hop.next))
        lost = sorted(set(range(len(events))) - set(() if passed is None else passed.tolist()))
        if lost:
            came = "published there" if hop.source is None else f"from {hop.source}"
            return f"{hop.broker} would not send {events[lost[0]]}, {came}, to {hop.next}, towards {home}"
    return ""


def is_settled(brokers: Mapping[str, BrokerProcess], hops: Sequence[Hop]) -> bool:
    """Whether all brokers of a path run, are warm, and have stored all that the next ones told."""
    for hop in hops:
        here, there = brokers[hop.broker], brokers[hop.next]
        if here.core is None or there.core is None or not here.is_warm(hop.next) or not there.is_warm(hop.broker):
            return False
        if not here.is_heard(hop.next) or not there.is_heard(hop.broker):
            return False
        if here.table.pending or there.table.pending or disagreement(here, there):
            return False
    return True


def disagreement(one: BrokerProcess, other: BrokerProcess) -> str:
    """What one of two neighbours told and the other has not heard, in a sentence; empty if they agree."""
    for teller, hearer in ((one, other), (other, one)):
        for about in About:
            told = _bodies(teller, about, teller.table.told(Link(hearer.name), about))
            heard = _bodies(hearer, about, hearer.table.heard(Link(teller.name), about))
            if told != heard:
                unheard, stale = sorted((told - heard).elements()), sorted((heard - told).elements())
                return f"{hearer.name} has not heard {unheard} from {teller.name}, and still has {stale}"
    return ""


def _bodies(process: BrokerProcess, about: About, items: Items) -> Counter[bytes]:
    """Items as bytes, which are the same at both ends; their ids are not."""
    return Counter(process.table.codec.encode_item(about, item) for item in items.values())
