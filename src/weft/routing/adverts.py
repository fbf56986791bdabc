"""Advertisements, which can be added to any table (thesis 3.6, Algorithms 4 and 5). What a link L is told is restricted
to the items that may overlap an advertisement received from L.

Advertisements travel by a routing table of their own, of any exact model; whether they are covered or merged is up to
that table. A parent tells a child nothing, so there is nothing to restrict by, and the parent is told everything as
before. `admitted` decides who may publish what; where an event goes does not depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.relate import as_form
from weft.errors import LocalProtocolError
from weft.index.base import AnyEvent, SubId
from weft.index.events import conformed
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.model.event import attributes_of
from weft.model.schema import Schema
from weft.routing.digest import digest
from weft.routing.dls.space import LabelSpace
from weft.routing.engine import TableEngine
from weft.routing.identity.table import IdentityTable
from weft.routing.incoming import MakeIndex, table_index
from weft.routing.jobs import PIECES, Job, Jobs
from weft.routing.ledger import Ledger, check_change
from weft.routing.table import (
    About,
    ClientId,
    Exactness,
    Filters,
    Item,
    ItemId,
    Items,
    Kept,
    Link,
    Overlap,
    Placed,
    Places,
    Role,
    Routes,
    Source,
    Tell,
    Update,
    UpdateCodec,
)

as_advertisements = partial(msgspec.structs.replace, about=About.ADVERTISEMENTS)
as_subscriptions = partial(msgspec.structs.replace, about=About.SUBSCRIPTIONS)

_TOGETHER = 8  # comparisons of an item with an advertisement that form one piece of work


@runtime_checkable
class Tunable(Protocol):
    """A table whose label space can be changed while it runs."""

    @property
    def retuning(self) -> bool:
        """Whether the old space is still present."""
        ...

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Replace the label space in use."""
        ...


class _Seen(NamedTuple):
    """An item or an advertisement, and the part of it that is compared."""

    item: Item
    seen: object


class _Page:
    """What is compared at one link: everything that the table would tell it, suppressed or not, and what it
    advertises.
    """

    def __init__(self, role: Role, numbers: Any) -> None:
        self.role = role
        self.items: dict[ItemId, _Seen] = {}
        self.adverts: dict[ItemId, _Seen] = {}
        self.ledger: Ledger[ItemId] = Ledger(numbers)  # the items that are really told, and their ids


class Advertised:
    """A table that tells a neighbour only what the neighbour's side may publish.

    `table` decides what is wanted, `advertisements` which advertisements are told; neither knows about the other. Both
    are under the table's schema, unless another is given: an event must be within an advertisement by the same values
    by which it is routed.

    >>> from weft import parse
    >>> from weft.routing.simple.table import SimpleTable
    >>> table, north = Advertised(SimpleTable()), Link("north")
    >>> _ = table.attach(north), table.change({SubId(1): parse("x > 5")}, ())
    >>> dict(table.told(north))
    {}
    >>> _ = table.learn(north, Update(About.ADVERTISEMENTS, add={ItemId(1): parse("x > 0")}))
    >>> [str(item) for item in table.told(north).values()]
    ['x > 5']
    """

    def __init__(  # noqa: PLR0913 - two tables and what both need
        self,
        table: TableEngine[Any, Any],
        advertisements: TableEngine[Any, Any] | None = None,
        *,
        schema: Schema | None = None,
        predicates: Predicates = NO_PREDICATES,
        index: MakeIndex = table_index,
        work: int = PIECES,
    ) -> None:
        schema = table.schema if schema is None else schema
        self.table = table
        self.advertisements: TableEngine[Any, Any] = (
            IdentityTable(schema, predicates=predicates, index=index) if advertisements is None else advertisements
        )
        self._schema = schema
        self._own: dict[ClientId, dict[SubId, NormalForm]] = {}
        self._numbers = count(1)
        self._pages: dict[Link, _Page] = {}
        self._jobs = Jobs(work)

    @property
    def model(self) -> str:
        """The model of the table, with advertisements."""
        return f"{self.table.model} with advertisements"

    @property
    def exactness(self) -> Exactness:
        """The exactness of the table."""
        return self.table.exactness

    @property
    def schema(self) -> Schema | None:
        """That of the table."""
        return self.table.schema

    @property
    def fingerprint(self) -> str:
        """The fingerprints of both tables."""
        both = [json.loads(each.fingerprint) for each in (self.table, self.advertisements)]
        return json.dumps({"table": both[0], "advertisements": both[1]}, sort_keys=True, separators=(",", ":"))

    @property
    def overlap(self) -> Overlap:
        """The overlap of the table."""
        return self.table.overlap

    # -- links ----------------------------------------------------------------------------------

    def restore(self, kept: Kept) -> None:
        """Restore what a broker stored, in both tables."""
        adverts = {advert: promised for some in kept.advertisements.values() for advert, promised in some.items()}
        subscribed = {link: heard._replace(advertisements={}) for link, heard in kept.links.items()}
        advertised = {
            link: heard._replace(subscriptions=heard.advertisements, advertisements={})
            for link, heard in kept.links.items()
        }
        self.table.restore(kept._replace(advertisements={}, links=subscribed))
        self.advertisements.restore(Kept(adverts, {}, advertised))
        for client, some in kept.advertisements.items():
            self._own[client] = {advert: self._form(promised) for advert, promised in some.items()}
        for link, heard in kept.links.items():
            page = self._pages[link] = _Page(heard.role, self._numbers)
            page.adverts = {each: self._promise(item) for each, item in self.advertisements.heard(link).items()}

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """Send our advertisements first, so that the neighbour answers with what it wants of them."""
        tells = _advertised(self.advertisements.attach(link, role))  # rejects whatever the table would reject
        page = self._pages.setdefault(link, _Page(role, self._numbers))
        try:
            attached = self.table.attach(link, role)
        except LocalProtocolError:
            if not page.items and not page.adverts:
                del self._pages[link]
                self.advertisements.detach(link)
            raise
        return tells + self._restricted(attached)

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what no other source wants or advertises."""
        tells = self.table.detach(link)
        del self._pages[link]
        return _advertised(self.advertisements.detach(link)) + self._restricted(tells)

    # -- changes --------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions."""
        return self._restricted(self.table.change(add, drop))

    def advertise(self, client: ClientId, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change a client's advertisements. Every neighbour is told all of them, because any could want the events."""
        own = self._own.get(client, {})
        check_change(own, add, drop)
        forms = {advert: self._form(promised) for advert, promised in add.items()}
        tells = self.advertisements.change(add, drop)
        own = {advert: form for advert, form in own.items() if advert not in set(drop)} | forms
        if own:
            self._own[client] = own
        else:
            self._own.pop(client, None)
        return _advertised(tells)

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Apply an update of a neighbour about what it wants or advertises. It is told what matches its new
        advertisements.
        """
        if update.about is About.SUBSCRIPTIONS:
            return self._restricted(self.table.learn(link, update))
        tells = _advertised(self.advertisements.learn(link, as_subscriptions(update)))
        page = self._pages[link]
        heard = self.advertisements.heard(link)
        went = [each for each in page.adverts if heard.get(each) is not page.adverts[each].item]
        changed = [page.adverts.pop(each) for each in went]
        for each, item in heard.items():
            if each not in page.adverts:
                page.adverts[each] = self._promise(item)
                changed.append(page.adverts[each])
        if changed and page.role is Role.PEER:
            self._jobs.run(self._compare(page, changed))
        return tells + self._flush(link, page)

    def step(self, budget: int) -> list[Tell]:
        """Continue pending work here and in both tables, or improve both."""
        if self._jobs:
            self._jobs.work(budget)
            return [tell for link, page in self._pages.items() for tell in self._flush(link, page)]
        return _advertised(self.advertisements.step(budget)) + self._restricted(self.table.step(budget))

    def rest(self) -> bool:
        """Flush what the indexes of both tables have buffered."""
        waiting = self.table.rest()
        return self.advertisements.rest() or waiting

    def settle(self) -> None:
        """Wait for the indexes of both tables."""
        self.table.settle()
        self.advertisements.settle()

    @property
    def pending(self) -> bool:
        """Whether a change has consequences that have not been told yet."""
        return bool(self._jobs) or self.table.pending or self.advertisements.pending

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Replace the label space of the table. Raises LocalProtocolError if it has none."""
        if not isinstance(self.table, Tunable):
            raise LocalProtocolError(f"a table of {self.table.model} has no label space; there is nothing to re-tune")
        return self._restricted(self.table.retune(space))

    @property
    def retuning(self) -> bool:
        """Whether the table temporarily has two label spaces."""
        return isinstance(self.table, Tunable) and self.table.retuning

    # -- what is told ---------------------------------------------------------------------------

    def _restricted(self, tells: Iterable[Tell]) -> list[Tell]:
        """What the table tells, restricted to what each link may publish."""
        return [told for tell in tells for told in self._restrict(tell.link, tell.update)]

    def _restrict(self, link: Link, update: Update) -> list[Tell]:
        page = self._pages[link]
        for item_id in [each for each in page.items if each not in update.add] if update.fresh else update.drop:
            del page.items[item_id]
            if page.ledger.knows(item_id):  # others were never told
                page.ledger.withdraw(item_id)
        for item_id, item in update.add.items():
            if item_id not in page.items:
                page.items[item_id] = _Seen(item, self.table.overlap.see(item))
                if self._is_due(page, item_id):
                    page.ledger.tell(item_id)
        page.ledger.fresh = page.ledger.fresh or update.fresh
        page.ledger.partial = update.partial
        page.ledger.notes += update.notes  # even if no items accompany them
        return self._flush(link, page)

    def _compare(self, page: _Page, changed: Sequence[_Seen]) -> Job:
        """Tell and withdraw items according to the changed advertisements. Cost: O(items x advertisements)."""
        compared = 0
        for item_id in [*page.items]:
            item = page.items.get(item_id)
            if item is None:
                continue
            known = page.ledger.knows(item_id)
            if self._meets_any(item, changed) and self._is_due(page, item_id) != known:
                if known:
                    page.ledger.withdraw(item_id)
                else:
                    page.ledger.tell(item_id)
            compared += len(changed)
            if compared >= _TOGETHER:
                compared = 0
                yield

    def _flush(self, link: Link, page: _Page) -> list[Tell]:
        return [Tell(link, page.ledger.flush(lambda each: page.items[each].item))] if page.ledger.changed else []

    def _is_due(self, page: _Page, item_id: ItemId) -> bool:
        return page.role is Role.PARENT or self._meets_any(page.items[item_id], page.adverts.values())

    def _meets_any(self, item: _Seen, adverts: Iterable[_Seen]) -> bool:
        meets = self.table.overlap.meets
        return any(meets(item.seen, advert.seen) for advert in adverts)

    def _promise(self, advertisement: Item) -> _Seen:
        return _Seen(advertisement, self.table.overlap.promise(advertisement))

    # -- events ---------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """As in the table."""
        return self.table.route(event, source)

    def route_batch(self, events: Sequence[AnyEvent], source: Source, places: Places | None = None) -> Routes:
        """As in the table."""
        return self.table.route_batch(events, source, places)

    def reasons(self, event: AnyEvent, link: Link, most: int) -> list[Item]:
        """As in the table."""
        return self.table.reasons(event, link, most)

    def holders(self, item: Item) -> Mapping[Source, int]:
        """As in the table."""
        return self.table.holders(item)

    def witness(self, link: Link, item: Item) -> Item | None:
        """As in the table."""
        return self.table.witness(link, item)

    def place(self, events: Sequence[AnyEvent]) -> Places | None:
        """As in the table."""
        return self.table.place(events)

    @property
    def place_limits(self) -> tuple[int, ...]:
        """Those of the table."""
        return self.table.place_limits

    def admitted(self, events: Sequence[AnyEvent], client: ClientId) -> NDArray[np.bool_]:
        """Which events lie within a client's advertisements. Cost: O(events x its advertisements)."""
        forms = self._own.get(client, {}).values()
        return np.array([any(self._values(event) in form for form in forms) for event in events], bool)

    def _values(self, event: AnyEvent) -> Mapping[str, Any]:
        return attributes_of(event if self._schema is None else conformed(event, self._schema))

    def _form(self, promised: Any) -> NormalForm:
        return as_form(promised.filter if isinstance(promised, Placed) else promised, self._schema)

    # -- what is in it --------------------------------------------------------------------------

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour was told."""
        if about is About.ADVERTISEMENTS:
            return self.advertisements.told(link)
        self.table.told(link)  # raises for an unknown link
        page = self._pages[link]
        return page.ledger.told(lambda each: page.items[each].item)

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us."""
        return self.table.heard(link) if about is About.SUBSCRIPTIONS else self.advertisements.heard(link)

    @property
    def codec(self) -> UpdateCodec:
        """The codec of the table, which handles advertisements too."""
        return self.table.codec

    def digest(self, link: Link, about: About = About.SUBSCRIPTIONS) -> tuple[int, int]:
        """The digests of what is really told, and heard."""
        if about is About.ADVERTISEMENTS:
            return self.advertisements.digest(link)
        kind = self.table.codec.kinds[about]
        return digest(self.told(link), kind), digest(self.heard(link), kind)

    @property
    def settings(self) -> str:
        """The settings of the table."""
        return self.table.settings

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.table.check()
        self.advertisements.check()
        for link, page in self._pages.items():
            page.ledger.check()
            told = self.table.told(link)
            assert page.items.keys() == told.keys()
            assert {each: advert.item for each, advert in page.adverts.items()} == self.advertisements.heard(link)
            if not self.pending:
                due = {each for each in told if self._is_due(page, each)}
                assert set(page.ledger.ids) == due, f"{link} is told other items than its advertisements ask for"


def _advertised(tells: Iterable[Tell]) -> list[Tell]:
    return [Tell(tell.link, as_advertisements(tell.update)) for tell in tells]
