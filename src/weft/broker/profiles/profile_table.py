"""The second table of a link: profiles in the place of subscriptions, queries in that of advertisements.

A profile is sent to a neighbour if it overlaps a query that was received from there (thesis 6.7). That is the safe side
for both meetings: the subscriber's broker decides exactly. Queries are sent by covering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.language.predicate import Predicates
from weft.model.schema import Schema
from weft.routing.adverts import Advertised
from weft.routing.covering.table import CoveringTable
from weft.routing.identity.table import IdentityTable
from weft.routing.table import About, Item, Kept, Link, Tell, Update

HeardProfiles = Callable[[Link, Iterable[Item], Iterable[Item]], None]  # gets what was dropped, and what was added


class ProfileTable(Advertised):
    """Profiles and queries. `heard_profiles` gets the profiles that neighbours add and drop."""

    def __init__(self, schema: Schema | None, predicates: Predicates) -> None:
        profiles = IdentityTable(schema, predicates=predicates)
        super().__init__(profiles, CoveringTable(schema, predicates=predicates), predicates=predicates)
        self.heard_profiles: HeardProfiles = lambda _, __, ___: None

    def restore(self, kept: Kept) -> None:
        """Restore what a broker stored."""
        super().restore(kept)
        for link, heard in kept.links.items():
            self.heard_profiles(link, (), heard.subscriptions.values())

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Apply an update of a neighbour."""
        if update.about is not About.SUBSCRIPTIONS:
            return super().learn(link, update)
        heard = self.heard(link)
        gone = [heard[each] for each in (heard if update.fresh else update.drop) if each in heard]
        tells = super().learn(link, update)
        self.heard_profiles(link, gone, update.add.values())
        return tells

    def detach(self, link: Link) -> list[Tell]:
        """Forget a neighbour."""
        gone = [*self.heard(link).values()]
        tells = super().detach(link)
        self.heard_profiles(link, gone, ())
        return tells
