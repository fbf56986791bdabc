"""The second table of a link: profiles in the place of subscriptions, queries in that of advertisements.

A profile is sent to a neighbour if it overlaps a query that was received from there (thesis 6.7). That is the safe side
for both meetings: the subscriber's broker decides exactly. Queries are sent by covering.

After a restart, profiles that a neighbour sent before are unconfirmed: they may have been withdrawn, and others may
know that already. They count again when the neighbour has said what is left of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        unconfirmed = self._unconfirmed.get(link, {})
        drop = tuple(each for each in update.drop if unconfirmed.pop(each, None) is None)
        heard = super().heard(link)
        gone = [heard[each] for each in drop if each in heard]
        tells = super().learn(link, replace(update, drop=drop))
        self.heard_profiles(link, gone, update.add.values())
        return tells

    def detach(self, link: Link) -> list[Tell]:
        """Forget a neighbour."""
        self._unconfirmed.pop(link, None)
        gone = [*self.heard(link).values()]
        tells = super().detach(link)
        self.heard_profiles(link, gone, ())
        return tells

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:
        """What the neighbour has told us, unconfirmed profiles too."""
        unconfirmed = self._unconfirmed.get(link) if about is About.SUBSCRIPTIONS else None
        return {**super().heard(link, about), **unconfirmed} if unconfirmed else super().heard(link, about)
