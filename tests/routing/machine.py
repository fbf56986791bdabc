"""The conformance suite's one body: a machine that drives tables on random trees, and the laws after every step.

Sets of events are bit masks over EVENTS, which has every value that the filters can tell apart: so a law about all
events is a few operations on integers, and it is `meaning` that says which bits a filter has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, reduce
from itertools import pairwise
from operator import or_

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from routing.models import KNOWN, Model
from strategies import EVENTS, filters
from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form, covers
from weft.errors import LocalProtocolError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.network.tables import LOCAL, BrokerId, EventNumber, TableNetwork
from weft.routing.adverts import Advertised
from weft.routing.dls.items import LabelSet
from weft.routing.mics.items import CurveRange
from weft.routing.table import About, Exactness, Heard, Item, Kept, Link, Role, RoutingTable

MOST_STEPS = 5_000  # within which every network here comes to rest
ALL = (1 << len(EVENTS)) - 1
_known: dict[int, tuple[Item, int]] = {}  # by identity: hashing a filter costs more


def bits(item: Item) -> int:
    """The events of EVENTS that an item admits."""
    if id(item) not in _known:
        admits = (lambda event: event in item) if isinstance(item, NormalForm) else (lambda event: matches(item, event))
        _known[id(item)] = item, sum(1 << at for at, event in enumerate(EVENTS) if admits(event))
    return _known[id(item)][1]


def union(items: Iterable[Item], admits: Callable[[Item], int] = bits) -> int:
    return reduce(or_, map(admits, items), 0)


class Likeness(Enum):
    """How a new filter is related to one that is there."""

    NONE = 0
    SAME = 1
    NARROWER = 2
    WIDER = 3


Somewhere = tuple[int, Filter, Likeness, int]
brokers = st.integers(0, 11)
wanted_somewhere = st.tuples(brokers, filters(3), st.sampled_from(Likeness), st.integers(0, 20))


@dataclass
class Wish:
    """A subscription: what it was since all was last propagated, and is now; None: it was not."""

    broker: BrokerId
    history: list[Filter | None]

    @property
    def filter(self) -> Filter:
        assert self.history[-1] is not None
        return self.history[-1]


@dataclass
class Promise:
    """An advertisement."""

    broker: BrokerId
    filter: Filter
    complete: bool = False  # everybody knows it


@dataclass
class Published:
    """An event, and who must get it, along which path."""

    at: int
    attachments: int
    due: dict[SubId, list[BrokerId]] = field(default_factory=dict)
    got: set[SubId] = field(default_factory=set)


class RestartingNetwork(TableNetwork):
    """A network in which brokers restart: what they kept comes back, and what was in flight is lost."""

    def restart(self, broker: BrokerId, kept: Kept) -> None:
        at = self._brokers[broker]
        at.table = self._make_table()
        at.table.restore(kept)
        for other, role in at.links.items():
            self._lose((broker, other))
            self._lose((other, broker))
            self._change(broker, partial(at.table.attach, Link(other), role))
            self._change(other, partial(self._brokers[other].table.attach, Link(broker), role.converse))

    def check(self) -> None:
        if not any(at.table.pending for at in self._brokers.values()):
            super().check()
            return
        for at in self._brokers.values():  # what earlier sessions told may still be heard
            at.table.check()


class Network(RuleBasedStateMachine):
    """Subclasses say which table, with advertisements or not, in hierarchies or not."""

    model: Model
    advertised = False
    hierarchical = False
    network: type[RestartingNetwork] = RestartingNetwork

    def make(self) -> RoutingTable:
        return Advertised(self.model.make(), **KNOWN, work=2) if self.advertised else self.model.make()

    @initialize(
        parents=st.lists(st.integers(0, 10), min_size=1, max_size=11),
        seed=st.integers(0, 99),
        wishes=st.lists(wanted_somewhere, min_size=2, max_size=6),
        promises=st.lists(wanted_somewhere, min_size=2, max_size=5),
    )
    def start(self, parents: list[int], seed: int, wishes: list[Somewhere], promises: list[Somewhere]) -> None:
        self.names = [BrokerId(f"b{number:02}") for number in range(len(parents) + 1)]
        self.overlay = self.network(self.names, self.make, np.random.default_rng(seed))
        self.wishes: dict[SubId, Wish] = {}
        self.promises: dict[SubId, Promise] = {}
        self.fresh_links: set[frozenset[BrokerId]] = set()  # attached since all was last propagated
        self.renewed_links: set[frozenset[BrokerId]] = set()  # at which a broker has restarted since then
        self.published: dict[EventNumber, Published] = {}
        self.serial = self.attachments = self.seen = 0
        for number, parent in enumerate(parents):
            self.connect(self.names[number + 1], self.names[parent % (number + 1)], bool(parent % 2))
        for broker, wanted, how, like in wishes:
            self.subscribe(broker, wanted, how, like)
        for broker, promised, how, like in promises if self.advertised else ():
            self.advertise(broker, promised, how, like)
        self.overlay.settle(MOST_STEPS)
        self.look()

    # -- the tree -------------------------------------------------------------------------------

    def top(self, broker: BrokerId) -> BrokerId:
        parent = next((other for other, role in self.overlay.links(broker).items() if role is Role.PARENT), None)
        return broker if parent is None else self.top(parent)

    def connect(self, one: BrokerId, other: BrokerId, up: bool) -> None:
        """Link two parts of the network in a way that roles allow."""
        role = Role.PEER
        if self.hierarchical:
            one = self.top(one)
            if up and Role.PEER not in self.overlay.links(one).values():
                role = Role.PARENT
            else:
                other = self.top(other)
        self.overlay.attach(one, other, role)
        self.fresh_links.add(frozenset((one, other)))
        self.attachments += 1

    def path(self, one: BrokerId, other: BrokerId) -> list[BrokerId] | None:
        """The brokers from one to the other."""
        paths, todo = {one: [one]}, [one]
        for broker in todo:
            for near in self.overlay.links(broker):
                if near not in paths:
                    paths[near] = [*paths[broker], near]
                    todo.append(near)
        return paths.get(other)

    @rule(one=brokers, other=brokers, up=st.booleans())
    def attach(self, one: int, other: int, up: bool) -> None:
        a, b = self.names[one % len(self.names)], self.names[other % len(self.names)]
        if b in self.overlay.reachable(a):
            with pytest.raises(LocalProtocolError, match="tree"):
                self.overlay.attach(a, b)
        else:
            self.connect(a, b, up)

    @rule(which=st.integers(0, 30))
    def detach(self, which: int) -> None:
        links = sorted((a, b) for a in self.names for b in self.overlay.links(a) if a < b)
        if links:
            a, b = links[which % len(links)]
            self.overlay.detach(a, b)
            self.fresh_links.discard(frozenset((a, b)))
            for event in self.published.values():
                cut = [sub for sub, path in event.due.items() if {(a, b), (b, a)} & set(pairwise(path))]
                for sub in cut:
                    del event.due[sub]

    @rule(broker=brokers, events=st.lists(st.tuples(brokers, st.integers(0, len(EVENTS) - 1)), max_size=3))
    def restart(self, broker: int, events: list[tuple[int, int]]) -> None:
        """A broker is told, and told of, all that it was before, and until then no event passes it by."""
        name = self.names[broker % len(self.names)]
        table, links = self.overlay.table(name), self.overlay.links(name)
        heard = {
            Link(link): Heard(role, dict(table.heard(Link(link))), dict(table.heard(Link(link), About.ADVERTISEMENTS)))
            for link, role in links.items()
        }
        promised = {advert: each.filter for advert, each in self.promises.items() if each.broker == name}
        subs = {sub: wish.filter for sub, wish in self.wishes.items() if wish.broker == name}
        self.overlay.restart(name, Kept(subs, {LOCAL: promised} if promised else {}, heard, table.settings))
        self.renewed_links |= {frozenset((name, link)) for link in links}
        for event in self.published.values():  # what was in flight at it is lost
            for sub in [sub for sub, path in event.due.items() if name in path]:
                del event.due[sub]
        for near, at in events:
            nearby = [*links] or [name]
            self.publish(self.names.index(nearby[near % len(nearby)]), at, wanted=True)
            self.overlay.step()
            self.laws_hold()

    # -- clients --------------------------------------------------------------------------------

    def related(self, wanted: Filter, how: Likeness, like: int, own: Filter | None = None) -> Filter:
        """A filter related to one that is there: equal and covering filters must be common."""
        known = [each.filter for each in (*self.wishes.values(), *self.promises.values())]
        if how is Likeness.NONE or not known:
            return wanted
        old = own if own is not None and like % 2 else known[like % len(known)]
        made = {Likeness.SAME: old, Likeness.NARROWER: old & wanted, Likeness.WIDER: old | wanted}[how]
        return made if len(as_form(made).boxes) <= 8 else wanted  # or they would grow without end

    @rule(broker=brokers, wanted=filters(3), how=st.sampled_from(Likeness), like=st.integers(0, 20))
    def subscribe(self, broker: int, wanted: Filter, how: Likeness, like: int) -> None:
        self.serial += 1
        sub, name = SubId(self.serial), self.names[broker % len(self.names)]
        wanted = self.related(wanted, how, like)
        self.overlay.subscribe(name, sub, wanted)
        self.wishes[sub] = Wish(name, [None, wanted])

    @precondition(lambda self: self.wishes)
    @rule(which=st.integers(0, 30), wanted=filters(3), how=st.sampled_from(Likeness), like=st.integers(0, 20))
    def replace(self, which: int, wanted: Filter, how: Likeness, like: int) -> None:
        sub, wish = [*self.wishes.items()][which % len(self.wishes)]
        self.change(sub, wish, self.related(wanted, how, like, wish.filter))

    @precondition(lambda self: self.wishes)
    @rule(which=st.integers(0, 30), wanted=filters(3), near=st.integers(0, 11), times=st.integers(1, 4))
    def replace_under_fire(self, which: int, wanted: Filter, near: int, times: int) -> None:
        """An event that both the old and the new filter want falls through between them at no moment."""
        self.overlay.settle(MOST_STEPS)
        self.look()
        sub, wish = [*self.wishes.items()][which % len(self.wishes)]
        old, nearby = bits(wish.filter), [*self.overlay.links(wish.broker)] or [wish.broker]
        self.change(sub, wish, self.related(wanted, Likeness.WIDER, 1, wish.filter))
        for _ in range(times if old else 0):
            self.overlay.step()
            self.publish(self.names.index(nearby[near % len(nearby)]), old.bit_length() - 1, wanted=False)
            self.laws_hold()

    def change(self, sub: SubId, wish: Wish, wanted: Filter) -> None:
        wish.history.append(wanted)
        self.overlay.replace(wish.broker, sub, wanted)
        for event in self.published.values():
            if sub in event.due and not bits(wish.filter) >> event.at & 1:
                del event.due[sub]

    @precondition(lambda self: len(self.wishes) > 2)
    @rule(which=st.integers(0, 30))
    def unsubscribe(self, which: int) -> None:
        sub, wish = [*self.wishes.items()][which % len(self.wishes)]
        del self.wishes[sub]
        self.overlay.unsubscribe(wish.broker, sub)
        for event in self.published.values():
            event.due.pop(sub, None)

    @rule(broker=brokers, promised=filters(3), how=st.sampled_from(Likeness), like=st.integers(0, 20))
    def advertise(self, broker: int, promised: Filter, how: Likeness, like: int) -> None:
        self.serial += 1
        promised = self.related(promised, how, like)
        advert, name = SubId(self.serial), self.names[broker % len(self.names)]
        if not self.advertised:
            with pytest.raises(LocalProtocolError, match="no advertisements"):
                self.overlay.advertise(name, advert, promised)
            return
        self.overlay.advertise(name, advert, promised)
        self.promises[advert] = Promise(name, promised)

    @precondition(lambda self: len(self.promises) > 1)
    @rule(which=st.integers(0, 30))
    def unadvertise(self, which: int) -> None:
        advert, promise = [*self.promises.items()][which % len(self.promises)]
        del self.promises[advert]
        self.overlay.unadvertise(promise.broker, advert)

    @rule(broker=brokers, at=st.integers(0, len(EVENTS) - 1), wanted=st.booleans())
    def publish(self, broker: int, at: int, wanted: bool) -> None:
        name, at = self.names[broker % len(self.names)], at % len(EVENTS)
        mine = [each for each in self.promises.values() if each.broker == name]
        may = reduce(or_, (bits(each.filter) for each in mine), 0) if self.advertised else ALL
        if wanted:  # an event that somebody wants and that may be published, if there is one
            choice = may & reduce(or_, (bits(wish.filter) for wish in self.wishes.values()), 0)
            at = next((n for n in (*range(at, len(EVENTS)), *range(at)) if choice >> n & 1), at)
        if not may >> at & 1:
            with pytest.raises(LocalProtocolError, match="advertise"):
                self.overlay.publish(name, EVENTS[at])
            table = self.overlay.table(name)
            assert not table.admitted([EVENTS[at]], LOCAL)[0]
            table.route_batch([EVENTS[at]], None)  # where it would go does not depend on who may publish it
            return
        event = Published(at, self.attachments)
        self.published[self.overlay.publish(name, EVENTS[at])] = event
        if not self.advertised or any(each.complete and bits(each.filter) >> at & 1 for each in mine):
            for sub, wish in self.wishes.items():
                path = self.path(name, wish.broker)
                old = path and self.fresh_links.isdisjoint(map(frozenset, pairwise(path)))
                if old and all(each is not None and bits(each) >> at & 1 for each in wish.history):
                    event.due[sub] = path

    @rule(broker=brokers, at=st.integers(0, len(EVENTS) - 1), times=st.integers(1, 8))
    def barrage(self, broker: int, at: int, times: int) -> None:
        """Events between all messages: what a change leaves open for a moment only, one of them falls through."""
        for turn in range(times):
            self.publish(broker, at + turn, wanted=True)
            self.overlay.step()
            self.laws_hold()

    # -- time -----------------------------------------------------------------------------------

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.overlay.step()
            self.laws_hold()

    @rule()
    def settle(self) -> None:
        self.overlay.settle(MOST_STEPS)

    @rule(broker=brokers, budget=st.sampled_from((1, 100)))
    def work(self, broker: int, budget: int) -> None:
        name = self.names[broker % len(self.names)]
        self.overlay.work(name, budget)

    @rule(at=st.lists(st.integers(0, len(EVENTS) - 1), max_size=4))
    def route(self, at: list[int]) -> None:
        """One by one and together, an event goes where the items heard admit it, and never back."""
        for name in self.names:
            table, links = self.overlay.table(name), self.overlay.links(name)
            engine = table.table if isinstance(table, Advertised) else table
            for source in (*map(Link, links), None):
                together = table.route_batch([EVENTS[n] for n in at], source)
                assert all(len(places) for places in together.values())
                for place, n in enumerate(at):
                    assumed = engine.assumed
                    found = table.route(EVENTS[n], source)
                    assert found == {link for link, places in together.items() if place in places.tolist()}
                    wanting = {Link(link) for link in links if self.goes(table, Link(link), links[link], n)}
                    assert source not in found
                    assert wanting - {source} <= found
                    if table.exactness is not Exactness.HASHED and engine.assumed == assumed:
                        assert found == wanting - {source}

    def goes(self, table: RoutingTable, link: Link, role: Role, at: int) -> bool:
        flood = table.exactness is Exactness.FLOOD or role is Role.PARENT
        return flood or bool(union(table.heard(link).values(), self.admits) >> at & 1)

    @rule()
    def check(self) -> None:
        self.overlay.check()

    # -- the laws -------------------------------------------------------------------------------

    @invariant()
    def laws_hold(self) -> None:
        if hasattr(self, "overlay"):
            self.look()
            for name in self.names:
                self.look_at(name)

    def look_at(self, name: BrokerId) -> None:
        """The laws of one table."""
        table, roles = self.overlay.table(name), self.overlay.links(name)
        here = [wish.filter for wish in self.wishes.values() if wish.broker == name]
        heard = {link: union(table.heard(Link(link)).values(), self.admits) for link in roles}
        for link, role in roles.items():
            if not self.overlay.in_flight(name, link):  # (1)
                for about in About:
                    told_now, theirs = table.told(Link(link), about), self.overlay.table(link).heard(Link(name), about)
                    if table.pending and frozenset((name, link)) in self.renewed_links:
                        assert told_now.items() <= theirs.items(), "(1) told is not heard"
                    else:
                        assert dict(told_now) == dict(theirs), "(1) told is not heard"
            if role is Role.CHILD:
                assert not table.told(Link(link))
                continue
            beyond = reduce(or_, (heard[other] for other in roles if other != link), 0)
            wanted = beyond | union(here)
            may = union(table.heard(Link(link), About.ADVERTISEMENTS).values()) if self.restricted(role) else ALL
            flood = table.exactness is Exactness.FLOOD
            told = ALL if flood else union(table.told(Link(link)).values(), self.admits)
            assert not wanted & may & ~told or self.joining(name, link), "(2) what is wanted is not told"
            if table.exactness in (Exactness.EXACT, Exactness.CELLS) and not table.pending and not self.model.loose:
                assert not told & ~(beyond | union(here, self.admits)), "(3) what is told is not wanted"
            silent = self.restricted(role) and not table.heard(Link(link), About.ADVERTISEMENTS)
            if not wanted and not self.maybe_wanted(table, name, link) and not table.pending:
                assert not table.told(Link(link)), "(4) nothing is wanted, and yet something told"
            if silent and not table.pending:
                assert not table.told(Link(link)), "(4) nothing is advertised, and yet something told"

    def joining(self, name: BrokerId, link: BrokerId) -> bool:
        """Whether a link is new, or its advertisements are, and what it should know is pending."""
        new = frozenset((name, link)) in self.fresh_links | self.renewed_links or self.advertised
        return self.overlay.table(name).pending and new

    def admits(self, item: Item) -> int:
        """What a table takes an item for."""
        return (self.model.admits or bits)(item)

    def restricted(self, role: Role) -> bool:
        return self.advertised and role is Role.PEER

    def maybe_wanted(self, table: RoutingTable, name: BrokerId, link: BrokerId) -> bool:
        """Whether there are wishes which no event of EVENTS has, but another may."""
        items = [wish.filter for wish in self.wishes.values() if wish.broker == name]
        items += [i for other in self.overlay.links(name) if other != link for i in table.heard(Link(other)).values()]
        return any(isinstance(item, CurveRange | LabelSet) or bool(as_form(item)) for item in items)

    def look(self) -> None:
        """The law of the network: who must get an event gets it once, and nobody else does."""
        for number, broker, sub in self.overlay.deliveries[self.seen :]:
            event, wish = self.published[number], self.wishes[sub]
            assert wish.broker == broker
            assert bits(wish.filter) >> event.at & 1, "delivered where it does not match"
            if event.attachments == self.attachments:  # a tree that changes may carry an event twice to one broker
                assert sub not in event.got, "delivered twice"
            event.got.add(sub)
            event.due.pop(sub, None)
        self.seen = len(self.overlay.deliveries)
        if self.overlay.quiet:
            assert not any(event.due for event in self.published.values()), "an event was lost"
            for wish in self.wishes.values():
                wish.history = [wish.filter]
            for promise in self.promises.values():
                promise.complete = True
            self.fresh_links.clear()
            self.renewed_links.clear()

    def teardown(self) -> None:
        if hasattr(self, "overlay"):
            self.overlay.settle(MOST_STEPS)
            self.laws_hold()
            self.check()
            if self.model.proves and not self.advertised:
                self.look_for_proofs()
            self.everybody_leaves()

    def everybody_leaves(self) -> None:
        """When nobody wants anything any more, nobody knows anything any more."""
        while self.wishes:
            self.unsubscribe(0)
        self.overlay.settle(MOST_STEPS)
        self.laws_hold()
        assert all(self.overlay.sizes(name) == (0, 0) for name in self.names)

    def look_for_proofs(self) -> None:
        for name in self.names:
            table, roles = self.overlay.table(name), self.overlay.links(name)
            for link, role in roles.items():
                wanted = [wish.filter for wish in self.wishes.values() if wish.broker == name]
                wanted += [i for other in roles if other != link for i in table.heard(Link(other)).values()]
                told = table.told(Link(link)).values()
                for item in wanted if role is not Role.CHILD else ():
                    assert not as_form(item) or any(covers(wide, item) for wide in told), f"{item} is not covered"


def network(model: Model, advertised: bool = False, hierarchical: bool = False) -> type[Network]:
    """The machine of one table."""
    options = {"model": model, "advertised": advertised, "hierarchical": hierarchical}
    return type("Network", (Network,), options)
