"""The engine of every routing table: links, roles, what is held, what is told. A model only decides what to tell a link
and which links want an event; everything else is implemented here, once.

A model works in jobs: generators that call `tell` and `withdraw`, and yield after each small piece of work (`jobs`). A
call works on its own job for some pieces; the rest is pending, and `step` continues it. A job tells its additions
before it first yields, and withdraws last, so that nothing is lost in between (law 2).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import LocalProtocolError
from weft.index.base import AnyEvent, SubId
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.event import attributes_of
from weft.model.paged_dict import PagedDict
from weft.model.schema import Schema
from weft.routing.codec import Codec
from weft.routing.digest import Digests, digest
from weft.routing.interface import H, K, TableInterface
from weft.routing.item_codec import FilterItems
from weft.routing.jobs import PIECES, Job, Jobs
from weft.routing.ledger import check_change
from weft.routing.local import Local
from weft.routing.model_hooks import ModelHooks
from weft.routing.table import (
    About,
    ClientId,
    Exactness,
    Filters,
    Heard,
    Item,
    Items,
    Kept,
    Link,
    Placed,
    Places,
    Role,
    Routes,
    Source,
    Tell,
    Update,
)

_CHUNK = 4  # items released together as one piece of work


class TableEngine(ModelHooks[K, H]):
    """What all tables have in common. `local` is a local part, which may find few roots for many subscriptions.

    With `refresh`, `step` sends a parent everything again: a child's whole root set replaces the old one, which repairs
    a master that has lost it (thesis 2.2). `work` is the number of pieces of work that a call does before the rest is
    pending.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        predicates: Predicates = NO_PREDICATES,
        local: Local | None = None,
        refresh: bool = False,
        work: int = PIECES,
    ) -> None:
        self.schema = schema
        self.codec = Codec(FilterItems(schema, predicates), self.cell_items())
        self._numbers = count(1)  # shared by all links, so that no id is used twice, even if a link returns
        self.here: TableInterface[K, H] = TableInterface(None, Role.PEER, self._numbers)
        self.links: dict[Link, TableInterface[K, H]] = {}
        self._parent: TableInterface[K, H] | None = None  # of the links, the one to a master
        self._local = local
        self._refresh = refresh
        self._jobs = Jobs(work)
        self._sessions = count(1)
        self._chosen: Mapping[str, Any] = {}
        self._fingerprint = ""  # as it was computed last; empty if it has changed since

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The options that differ from their defaults."""
        return self._chosen

    @chosen.setter
    def chosen(self, options: Mapping[str, Any]) -> None:
        self._chosen, self._fingerprint = options, ""

    @property
    def assumed(self) -> int:
        """Events for which links were assumed to be interested, because a bound on work was reached."""
        return 0

    # -- for models -----------------------------------------------------------------------------

    def tell(self, interface: TableInterface[K, H], key: K) -> None:
        """Tell a link a key."""
        interface.ledger.tell(key)

    def withdraw(self, interface: TableInterface[K, H], key: K) -> None:
        """Withdraw a key from a link. A new neighbour may not know it yet."""
        if interface.ledger.knows(key):
            interface.ledger.withdraw(key)

    def listening(self, source: TableInterface[K, H] | None = None) -> Iterator[TableInterface[K, H]]:
        """The links that are told anything, except the source."""
        return (each for each in self.links.values() if each.listening and each is not source)

    def holding(self, but: TableInterface[K, H]) -> Iterator[H]:
        """Everything that is held, except by one interface."""
        for each in (self.here, *self.links.values()):
            if each is not but:
                yield from (held for held in each.held.values() if held is not None)

    # -- links ------------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """Everything that the neighbour should know, fresh. What it told us remains valid until it tells us again."""
        interface = self.links.get(link)
        if interface is None:
            self._check_role(link, role)
            interface = self._meet(link, role)
        elif interface.role is not role:
            raise LocalProtocolError(f"{link} is attached as {interface.role}; detach it before it becomes {role}")
        new = not interface.attached
        if new:
            interface.attached, interface.began = True, next(self._sessions)
        if interface.listening:
            interface.ledger.fresh = self.exactness is not Exactness.FLOOD
            if new:
                self._jobs.run(self._introduce(interface))
        self.session_begun(interface)
        return self._flush()

    def _introduce(self, interface: TableInterface[K, H]) -> Job:
        """Tell a new neighbour what all others want. Updates are partial until that is done."""
        interface.ledger.partial = True
        yield from self.tell_everything(interface)
        interface.ledger.partial = False

    def _meet(self, link: Link, role: Role) -> TableInterface[K, H]:
        interface = self.links[link] = TableInterface(link, role, self._numbers)
        if role is Role.PARENT:
            self._parent = interface
        self.link_added(interface)
        return interface

    def _check_role(self, link: Link, role: Role) -> None:
        """Raise LocalProtocolError for an impossible role. A broker does not know what is wanted above its parent, so a
        peer or a second parent would miss that.
        """
        if not link:
            raise LocalProtocolError("the link has no name; give it one")
        roles = {each.role for each in self.links.values()}
        above = Role.PARENT in roles and role is not Role.CHILD
        if above or (role is Role.PARENT and Role.PEER in roles):
            raise LocalProtocolError(
                f"{link} cannot be a {role}: a broker with a parent may only have children; attach it elsewhere"
            )

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what no other source wants."""
        interface = self._interface(link)
        del self.links[link]
        if interface is self._parent:
            self._parent = None
        interface.attached, interface.ended = False, next(self._sessions)
        self._jobs.run(self._depart(interface))
        return self._flush()

    def _depart(self, interface: TableInterface[K, H]) -> Job:
        yield from self.link_removed(interface)
        held, interface.held = interface.held, PagedDict()
        left = (each for each in held.values() if each is not None)
        while some := [*islice(left, _CHUNK)]:
            yield from self.revise(interface, some, ())
            yield

    def restore(self, kept: Kept) -> None:
        """Restore what a broker stored. Raises LocalProtocolError if the table is already in use."""
        if self.links or self.here.held:
            raise LocalProtocolError("the table is already in use; restore a new one before anything else")
        if kept.advertisements:
            raise _no_advertisements()
        self.resume(kept.settings)
        self._change(kept.subscriptions, ())
        for link, heard in kept.links.items():
            self._check_role(link, heard.role)
            self._recall(link, heard)
        self._jobs.finish()

    def _recall(self, link: Link, heard: Heard) -> None:
        if heard.advertisements:
            raise _no_advertisements()
        self._learn(self._meet(link, heard.role), Update(fresh=True, add=dict(heard.subscriptions)))

    # -- changes ----------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions. Raises LocalProtocolError or FilterTooComplexError; nothing has changed in that
        case.
        """
        self._change(add, drop)
        return self._flush()

    def _change(self, add: Filters, drop: Collection[SubId]) -> None:
        new = {
            sub: self.prepare(wanted) for sub, wanted in add.items()
        }  # refuses what is too complex, before it is written
        refuse = self.codec.kinds[About.ADVERTISEMENTS].refuse
        for wanted in add.values():
            refuse(wanted.filter if isinstance(wanted, Placed) else wanted)
        if self._local is None:
            check_change(self.here.held, add, drop)
            self._changed(self.here, drop, new)
            return
        plain = {sub: wanted.filter if isinstance(wanted, Placed) else wanted for sub, wanted in add.items()}
        roots = self._local.change(plain, drop)
        self._changed(self.here, roots.drop, {root: self.prepare(wanted) for root, wanted in roots.add.items()})

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Apply an update of a neighbour."""
        self._learn(self._interface(link), update)
        return self._flush()

    def _learn(self, interface: TableInterface[K, H], update: Update) -> None:
        assert interface.link is not None
        news = interface.ledger.news(interface.link, interface.role, update)
        new = self.prepare_update(interface, update, news)
        interface.ledger.hear(update, news)
        self.apply_update(interface, update, news, new)
        self._changed(interface, news.drop, new)
        self.after_update(interface)

    def _changed(self, source: TableInterface[K, H], drop: Collection[int], add: Mapping[Any, Any]) -> None:
        gone = [held for each in drop if (held := source.held.pop(each, None)) is not None]
        new = []
        for each, what in add.items():
            kept = None if what is None else self.store(what)
            if kept is not None:
                new.append(kept)
            source.held[each] = kept  # None: a subscription that never matches is recorded, too
        if gone or new:
            self._jobs.run(self.revise(source, gone, new))

    def advertise(self, client: ClientId, add: Filters, drop: Collection[SubId]) -> list[Tell]:  # noqa: ARG002
        """Rejected: see `adverts.Advertised`."""
        raise _no_advertisements()

    # -- jobs -------------------------------------------------------------------------------------

    def step(self, budget: int) -> list[Tell]:
        """Continue pending work; if there is none, improve what is told and refresh the parent."""
        if not self._jobs:
            self.improve(budget)
            parent = self._parent
            if self._refresh and parent is not None:
                parent.ledger.fresh = True
        self._jobs.work(budget)
        return self._flush()

    @property
    def pending(self) -> bool:
        """Whether a change has consequences that have not been told yet."""
        return bool(self._jobs)

    def rest(self) -> bool:
        """Nothing to flush: a model that has an index flushes it."""
        return False

    def settle(self) -> None:
        """Nothing to wait for: a model that has an index waits for it."""

    def _flush(self) -> list[Tell]:
        tells = []
        if not self._jobs:
            self.nothing_pending()
        for link, each in self.links.items():
            ledger = each.ledger
            self.before_flush(each)
            if ledger.changed:
                tells.append(Tell(link, ledger.flush(self.item)))
        return tells

    # -- events -----------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """The neighbours that want the event, and the parent."""
        attributes_of(event)
        links = self.wanting(event)
        parent = self._parent
        if parent is not None and parent.link is not None:
            links.add(parent.link)
        links.discard(source)
        return links

    def route_batch(self, events: Sequence[AnyEvent], source: Source, places: Places | None = None) -> Routes:
        """`route` for many events at once."""
        if not len(events):
            return {}
        if places is not None and (places.fingerprint != self.fingerprint or len(places.keys) != len(events)):
            places = None
        routes = self.wanting_batch(events, places)
        parent = self._parent
        if parent is not None and parent.link is not None:
            routes[parent.link] = np.arange(len(events))
        routes.pop(source, None)  # type: ignore[arg-type]
        return routes

    def reasons(self, event: AnyEvent, link: Link, most: int) -> list[Item]:
        """Some of the items heard that admit an event."""
        return [*islice(self.admitting(self._interface(link), event), most)]

    def holders(self, item: Item) -> Mapping[Source, int]:  # noqa: ARG002
        """Nobody, unless the model knows."""
        return {}

    def witness(self, link: Link, item: Item) -> Item | None:  # noqa: ARG002
        """None, unless the model knows."""
        self._interface(link)
        return None

    def place(self, events: Sequence[AnyEvent]) -> Places | None:  # noqa: ARG002
        """None, unless the model maps events."""
        return None

    @property
    def place_limits(self) -> tuple[int, ...]:
        """None, unless the model's places travel with events."""
        return ()

    def admitted(self, events: Sequence[AnyEvent], client: ClientId) -> NDArray[np.bool_]:  # noqa: ARG002
        """All: there are no advertisements."""
        return np.ones(len(events), bool)

    # -- contents ---------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Model, exactness, schema and what the model's neighbours must agree on."""
        if self._fingerprint:
            return self._fingerprint
        schema = None if self.schema is None else self.schema.to_dict()
        agreed = {"model": self.model, "exactness": self.exactness.value, "schema": schema, **self.agreed}
        if self.chosen:
            agreed["options"] = dict(self.chosen)
        self._fingerprint = json.dumps(agreed, sort_keys=True, separators=(",", ":"))
        return self._fingerprint

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour was told."""
        return self._interface(link).ledger.told(self.item) if about is About.SUBSCRIPTIONS else {}

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us."""
        return self._interface(link).ledger.heard if about is About.SUBSCRIPTIONS else {}

    def digest(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Digests:
        """One number for what the neighbour was told, and one for what it has told us. Cost: one hash per item."""
        kind = self.codec.kinds[about]
        return Digests(digest(self.told(link, about), kind), digest(self.heard(link, about), kind))

    def _interface(self, link: Link) -> TableInterface[K, H]:
        try:
            return self.links[link]
        except KeyError:
            raise LocalProtocolError(f"there is no link {link}; attach it first") from None

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for interface in self.links.values():
            interface.ledger.check()
            assert interface.held.keys() <= interface.ledger.heard.keys(), "something is held that was not heard"
            assert interface.listening or not interface.ledger.ids, "a link was told something that must not be"


def _no_advertisements() -> LocalProtocolError:
    sentence = "this network has no advertisements; publish without them, or set `advertised = true` at every broker"
    return LocalProtocolError(sentence)
