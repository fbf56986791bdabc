"""Flooding: every event goes everywhere, and no subscription anywhere. Law: nothing is ever told.

The other yardstick: no table to keep, and the most events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from weft.errors import LocalProtocolError, RemoteProtocolError
from weft.index.base import AnyEvent, SubId
from weft.routing.ledger import NOTHING_NEW, Ledger
from weft.routing.local import check_change
from weft.routing.table import About, Exactness, Filters, Items, Link, Role, Routes, Source, Tell, Update


class FloodingTable:
    """Links, and nothing about them.

    >>> table = FloodingTable()
    >>> table.attach(Link("north")), table.attach(Link("south"))
    ([], [])
    >>> table.route({"x": 1}, Link("north"))
    {'south'}
    """

    model = "flooding"
    exactness = Exactness.FLOOD
    parameters: Mapping[str, object] = MappingProxyType({})

    def __init__(self) -> None:
        self._ledger: Ledger[int] = Ledger()
        self._subs: set[SubId] = set()

    def attach(self, link: Link, role: Role = Role.PEER) -> list[Tell]:
        """A neighbour is there."""
        self._ledger.attach(link, role)
        return []

    def detach(self, link: Link) -> list[Tell]:
        """A neighbour is gone."""
        self._ledger.detach(link)
        return []

    def change(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:
        """Nobody needs to know. Raises LocalProtocolError."""
        check_change(self._subs, add.keys(), drop)
        self._subs = self._subs.difference(drop).union(add)
        return []

    def advertise(self, add: Filters, drop: Collection[SubId]) -> list[Tell]:  # noqa: ARG002
        """Refused: events go everywhere anyway."""
        raise LocalProtocolError("a flooding network has no advertisements: publish without")

    def learn(self, link: Link, update: Update) -> list[Tell]:
        """Refused, if it says anything. Raises RemoteProtocolError."""
        if self._ledger.news(link, update) != NOTHING_NEW:
            raise RemoteProtocolError(f"{link} tells what it wants, but events are flooded here: set up both alike")
        return []

    def route(self, event: AnyEvent, source: Source) -> set[Link]:  # noqa: ARG002 - whatever it is
        """Everybody but the source."""
        return set(self._ledger.links) - {source}

    def route_batch(self, events: Sequence[AnyEvent], source: Source) -> Routes:
        """Everything to everybody but the source."""
        links = [link for link in self._ledger.links if link != source] if len(events) else []
        return dict.fromkeys(links, np.arange(len(events)))

    def tidy(self, budget: int) -> list[Tell]:  # noqa: ARG002
        """There is nothing to tidy."""
        return []

    def told(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:  # noqa: ARG002
        """Nothing."""
        return self._ledger.told(link)

    def heard(self, link: Link, about: About = About.SUBSCRIPTIONS) -> Items:  # noqa: ARG002
        """Nothing."""
        return self._ledger.heard(link)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self._ledger.check()
