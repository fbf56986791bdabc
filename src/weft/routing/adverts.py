"""Advertisements, which any table can wear (thesis 3.6, Algorithms 4 and 5). Laws: told'(L) is told(L) restricted to
the items that may overlap an advertisement heard from L; who publishes outside its own advertisements is refused.

Advertisements travel by a routing table of their own, of any exact model: covering or merging them is a matter of that
table. A master tells a slave nothing, so there is nothing to restrict by: it is told everything, as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from weft.algebra.relate import as_form, overlaps
from weft.errors import LocalProtocolError, WeftError
from weft.index.base import AnyEvent, SubId
from weft.interest.curve_range import CurveRange
from weft.interest.label_set import LabelSet
from weft.model.schema import Schema
from weft.routing.identity import IdentityTable
from weft.routing.ledger import Ledger, Revision
from weft.routing.matcher import MakeIndex, without_tail
from weft.routing.table import (
    About,
    Exactness,
    Filters,
    Item,
    ItemId,
    Items,
    Link,
    Role,
    Routes,
    RoutingTable,
    Source,
    Tell,
    Update,
    noted,
)
from weft.space.label_space import LabelSpace

Seen = Any  # what is compared of an item, made once; None meets everything

as_advertisements = partial(msgspec.structs.replace, about=About.ADVERTISEMENTS)
as_subscriptions = partial(msgspec.structs.replace, about=About.SUBSCRIPTIONS)


class Overlap:
    """Whether an item and an advertisement have an event in common. Law: False only when disproved."""

    def __init__(self, schema: Schema | None = None) -> None:
        self._schema = schema

    def see(self, item: Item) -> Seen:
        """What to compare of an item; tables with items of another kind say it for theirs."""
        try:
            return None if isinstance(item, CurveRange | LabelSet) else as_form(item, self._schema)
        except (WeftError, TypeError):
            return None  # too complex to compare

    def meets(self, item: Seen, advertisement: Seen) -> bool:
        """Whether an event may be in both."""
        return item is None or advertisement is None or overlaps(item, advertisement, self._schema)


@runtime_checkable
class Comparing(Protocol):
    """A table that says itself how its items compare with advertisements."""

    @property
    def overlap(self) -> Overlap:
        """The comparison, which follows the table when it changes."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A table whose label space can be changed while it runs."""

    @property
    def retuning(self) -> bool:
        """Whether the old space is still there."""
        ...

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Put another label space in the place of the one in use."""
        ...


class _Advert(NamedTuple):
    item: Item
    seen: Seen


@dataclass(slots=True)
class _Link:
    """What is compared at one link: all that the table would tell it, suppressed or not, and what it advertises."""

    items: dict[ItemId, Seen] = field(default_factory=dict)
    adverts: dict[ItemId, _Advert] = field(default_factory=dict)


class Advertised:
    """A table that tells a neighbour only what the neighbour's side may publish.

    `table` decides what is wanted, `advertisements` which advertisements are told; neither knows of the other.

    >>> from weft import parse
    >>> from weft.routing.simple import SimpleTable
    >>> table, north = Advertised(SimpleTable()), Link("north")
    >>> _ = table.attach(north), table.change({SubId(1): parse("x > 5")}, ())
    >>> dict(table.told(north))
    {}
    >>> _ = table.learn(north, Update(About.ADVERTISEMENTS, add={ItemId(1): parse("x > 0")}))
    >>> [str(item) for item in table.told(north).values()]
    ['x > 5']
    """

    def __init__(
        self,
        table: RoutingTable,
        advertisements: RoutingTable | None = None,
        *,
        schema: Schema | None = None,
        overlap: Overlap | None = None,
        index: MakeIndex = without_tail,
    ) -> None:
        self.table = table
        self.advertisements = IdentityTable(schema, index=index) if advertisements is None else advertisements
        self._overlap = (
            (table.overlap if isinstance(table, Comparing) else Overlap(schema)) if overlap is None else overlap
        )
        self._own = index(schema)  # the local advertisements
        self._ledger: Ledger[ItemId] = Ledger()  # what of the table's items is really told, and by which id
        self._links: dict[Link, _Link] = {}

    @property
    def model(self) -> str:
        """That of the table, with advertisements."""
        return f"{self.table.model} with advertisements"

    @property
    def parameters(self) -> Mapping[str, object]:
        """Those of both tables."""
        mine, theirs = self.table.parameters, self.advertisements.parameters
        return {**mine, "advertisements": {"model": self.advertisements.model, **theirs}}

    @property
    def exactness(self) -> Exactness:
        """That of the table."""
        return self.table.exactness

    # -- links ----------------------------------------------------------------------------------

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """Our advertisements first, so that the neighbour answers with what it wants of them."""
        self._ledger.attach(link, role)  # refuses what the tables would refuse
        self._links.setdefault(link, _Link())
        return _advertised(self.advertisements.attach(link, role)) + self._restricted(self.table.attach(link, role))

    def detach(self, link: Link) -> list[Tell]:
        """Withdraw what nobody else wants or advertises."""
        self._ledger.detach(link)
        del self._links[link]
        return _advertised(self.advertisements.detach(link)) + self._restricted(self.table.detach(link))

    # -- changes --------------------------------------------------------------------------------

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local subscriptions."""
        return self._restricted(self.table.change(add, drop))

    def advertise(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Change local advertisements; none is kept from a neighbour, for any may have somebody who wants it."""
        tells = self.advertisements.change(add, drop)
        self._own.discard_many(drop)
        for advert, promised in add.items():
            self._own.add(advert, promised)
        return _advertised(tells)

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """A neighbour wants or advertises something; what it may now publish, it is told at once."""
        if update.about is About.SUBSCRIPTIONS:
            return self._restricted(self.table.learn(link, update))
        tells = self.advertisements.learn(link, as_subscriptions(update))
        return _advertised(tells) + self._ledger.tell(link, self._advertisements_changed(link))

    def tidy(self, budget: int) -> list[Tell]:
        """Both tables tidy."""
        return _advertised(self.advertisements.tidy(budget)) + self._restricted(self.table.tidy(budget))

    def retune(self, space: LabelSpace) -> list[Tell]:
        """Put another label space in the place of the table's. Raises LocalProtocolError if it has none."""
        if not isinstance(self.table, Tunable):
            raise LocalProtocolError(f"a table of {self.table.model} has no label space: there is nothing to re-tune")
        return self._restricted(self.table.retune(space))

    @property
    def retuning(self) -> bool:
        """Whether the table has two label spaces for a while."""
        return isinstance(self.table, Tunable) and self.table.retuning

    def _restricted(self, tells: Iterable[Tell]) -> list[Tell]:
        """What the table tells, restricted to what each link may publish."""
        return [told for tell in tells for told in self._restrict(tell.link, tell.update)]

    def _restrict(self, link: Link, update: Update) -> list[Tell]:
        seen, known = self._links[link].items, self._ledger.keys(link)
        for item_id in [*seen] if update.fresh else update.drop:
            if not update.fresh or item_id not in update.add:
                del seen[item_id]
        for item_id, item in update.add.items():
            if item_id not in seen:
                seen[item_id] = self._overlap.see(item)
        if update.fresh:
            tells = [self._ledger.retell(link, {each: update.add[each] for each in seen if self._is_due(link, each)})]
        else:
            drop = [item_id for item_id in update.drop if item_id in known]  # the others were never told
            add = {item_id: item for item_id, item in update.add.items() if self._is_due(link, item_id)}
            tells = self._ledger.tell(link, Revision(drop, add))
        return noted(tells, link, update.notes)  # whether or not items go with them

    def _advertisements_changed(self, link: Link) -> Revision[ItemId]:
        """What is to be told to the link, and no longer. Cost: O(items x advertisements that came or went)."""
        page, known = self._links[link], self._ledger.keys(link)
        heard, before = self.advertisements.heard(link), page.adverts
        same = {each: advert for each, advert in before.items() if heard.get(each) is advert.item}
        came = {each: _Advert(item, self._overlap.see(item)) for each, item in heard.items() if each not in same}
        went = [advert for each, advert in before.items() if each not in same]
        page.adverts = same | came
        if self._ledger.role(link) is not Role.PEER:
            return Revision()
        drop = [each for each in known if self._meets_any(page.items[each], went) and not self._is_due(link, each)]
        fresh = [
            each for each, seen in page.items.items() if each not in known and self._meets_any(seen, came.values())
        ]
        told = self.table.told(link)
        return Revision(drop, {each: told[each] for each in fresh})

    def _is_due(self, link: Link, item_id: ItemId) -> bool:
        page = self._links[link]
        return self._ledger.role(link) is Role.MASTER or self._meets_any(page.items[item_id], page.adverts.values())

    def _meets_any(self, item: Seen, adverts: Iterable[_Advert]) -> bool:
        return any(self._overlap.meets(item, advert.seen) for advert in adverts)

    # -- events ---------------------------------------------------------------------------------

    def route(self, event: AnyEvent, source: Source) -> set[Link]:
        """As the table does. Raises LocalProtocolError for a local event that no local advertisement admits."""
        if source is None and not len(self._own.match(event)):
            raise _outside(0, 1)
        return self.table.route(event, source)

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """As the table does. Raises LocalProtocolError if no local advertisement admits one of local events."""
        if source is None and len(events) and not (admitted := self._own.any_batch(events)).all():
            raise _outside(int(admitted.argmin()), len(events))
        return self.table.route_batch(events, source)

    # -- what is in it --------------------------------------------------------------------------

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour knows from us."""
        return self._ledger.told(link) if about is About.SUBSCRIPTIONS else self.advertisements.told(link)

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us."""
        return self.table.heard(link) if about is About.SUBSCRIPTIONS else self.advertisements.heard(link)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.table.check()
        self.advertisements.check()
        self._ledger.check()
        for link, page in self._links.items():
            told = self.table.told(link)
            assert page.items.keys() == told.keys()
            assert {each: advert.item for each, advert in page.adverts.items()} == self.advertisements.heard(link)
            due = {each for each in told if self._is_due(link, each)}
            assert set(self._ledger.keys(link)) == due, f"{link} is told other items than its advertisements ask for"


def _advertised(tells: Iterable[Tell]) -> list[Tell]:
    return [Tell(tell.link, as_advertisements(tell.update)) for tell in tells]


def _outside(position: int, of: int) -> LocalProtocolError:
    which = "the event is" if of == 1 else f"event {position} of the {of} is"
    return LocalProtocolError(f"{which} outside what is advertised here: advertise a filter that it matches first")
