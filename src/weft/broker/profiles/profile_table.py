"""The second table of a link: profiles in the place of subscriptions, queries in that of advertisements.

A profile is sent to a neighbour if it overlaps a query that was received from there (thesis 6.7). That is the safe side
for both meetings: the subscriber's broker decides exactly. Queries are sent by covering.

After a restart, profiles that a neighbour sent before are unconfirmed: they may have been withdrawn, and others may
know that already. They count again when the neighbour has said what is left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from msgspec.structs import replace

from weft.language.predicate import Predicates
from weft.model.schema import Schema
from weft.routing.adverts import Advertised
from weft.routing.covering.table import CoveringTable
from weft.routing.identity.table import IdentityTable
from weft.routing.table import About, Item, ItemId, Items, Kept, Link, Tell, Update

HeardProfiles = Callable[[Link, Iterable[Item], Iterable[Item]], None]  # gets what was dropped, and what was added


class ProfileTable(Advertised):
    """Profiles and queries. `heard_profiles` gets the profiles that neighbours add and drop."""

    def __init__(self, schema: Schema | None, predicates: Predicates) -> None:
        profiles = IdentityTable(schema, predicates=predicates)
        super().__init__(profiles, CoveringTable(schema, predicates=predicates), predicates=predicates)
        self.heard_profiles: HeardProfiles = lambda _, __, ___: None
        self._unconfirmed: dict[Link, dict[ItemId, Item]] = {}
        self._ids: dict[Link, dict[ItemId, ItemId]] = {}  # of neighbours' profiles in the table, whose ids must ascend
        self._last = 0

    def restore(self, kept: Kept) -> None:
        """Restore what a broker stored; profiles of neighbours are unconfirmed."""
        self._unconfirmed = {link: dict(heard.subscriptions) for link, heard in kept.links.items()}
        links = {link: heard._replace(subscriptions={}) for link, heard in kept.links.items()}
        super().restore(kept._replace(links=links))

    def confirm(self, link: Link) -> list[Tell]:
        """What is left of a neighbour's unconfirmed profiles counts again."""
        left = self._unconfirmed.pop(link, {})
        return self.learn(link, Update(About.SUBSCRIPTIONS, add=left)) if left else []

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Apply an update of a neighbour."""
        if update.about is not About.SUBSCRIPTIONS:
            return super().learn(link, update)
        unconfirmed, ids = self._unconfirmed.get(link, {}), self._ids.setdefault(link, {})
        heard, drop = super().heard(link), [each for each in update.drop if unconfirmed.pop(each, None) is None]
        gone = [ids.pop(each) for each in drop]
        dropped = [heard[each] for each in gone]
        added: dict[ItemId, Item] = {}
        for wire, item in update.add.items():
            self._last += 1
            ids[wire] = ItemId(self._last)
            added[ids[wire]] = item
        tells = super().learn(link, replace(update, drop=tuple(gone), add=added))
        self.heard_profiles(link, dropped, update.add.values())
        return tells

    def detach(self, link: Link) -> list[Tell]:
        """Forget a neighbour."""
        self._unconfirmed.pop(link, None)
        self._ids.pop(link, None)
        gone = [*super().heard(link).values()]
        tells = super().detach(link)
        self.heard_profiles(link, gone, ())
        return tells

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us, by its own ids, unconfirmed profiles too."""
        heard = super().heard(link, about)
        if about is About.ADVERTISEMENTS:
            return heard
        return _ByWire(heard, self._ids.get(link, {}), self._unconfirmed.get(link, {}))


class _ByWire(Mapping[ItemId, Item]):
    """Profiles of a neighbour by its own ids: those in the table, and those that are unconfirmed."""

    def __init__(self, heard: Items, ids: Mapping[ItemId, ItemId], unconfirmed: Items) -> None:
        self._heard, self._ids, self._unconfirmed = heard, ids, unconfirmed

    def __getitem__(self, wire: ItemId) -> Item:
        return self._heard[self._ids[wire]] if wire in self._ids else self._unconfirmed[wire]

    def __iter__(self) -> Iterator[ItemId]:
        return chain(self._ids, self._unconfirmed)

    def __len__(self) -> int:
        return len(self._ids) + len(self._unconfirmed)
