"""Flooding: every event goes everywhere, and no subscription anywhere. Law: nothing is ever told.

The other yardstick: no table to keep, and the most events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.algebra.box import NormalForm
from weft.errors import RemoteProtocolError
from weft.index.base import AnyEvent
from weft.model.change import Change
from weft.routing.engine import TableEngine, TableInterface
from weft.routing.filter_table import FilterOverlap
from weft.routing.jobs import Job
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Places, Routes, Update, Wanted


class FloodingTable(TableEngine[int, bool]):
    """Links, and nothing about them.

    >>> table = FloodingTable()
    >>> table.attach(Link("north")), table.attach(Link("south"))
    ([], [])
    >>> table.route({"x": 1}, Link("north"))
    {'south'}
    """

    model = "flooding"

    @property
    def exactness(self) -> Exactness:
        """Everything."""
        return Exactness.FLOOD

    @property
    def agreed(self) -> Mapping[str, object]:
        """Nothing."""
        return {}

    @property
    def overlap(self) -> FilterOverlap:
        """There are no items to compare."""
        return FilterOverlap(self.schema)

    def hold(self, wanted: Wanted | NormalForm) -> bool:  # noqa: ARG002 - whatever it is
        """That there is a subscription."""
        return True

    def receive(
        self, interface: TableInterface[int, bool], update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, bool]:
        """Refused, if it says anything. Raises RemoteProtocolError."""
        if news.drop or news.add or update.notes:
            raise RemoteProtocolError(
                f"{interface.link} tells what it wants, but events are flooded here; set up both alike"
            )
        return {}

    def item(self, key: int) -> Item:
        """Nothing is told."""
        raise AssertionError(f"a flooding table tells nothing, and yet {key}")

    def revise(self, source: TableInterface[int, bool], drop: Sequence[bool], add: Sequence[bool]) -> Job:  # noqa: ARG002
        """Nobody needs to know."""
        return iter(())

    def listen(self, interface: TableInterface[int, bool]) -> Job:  # noqa: ARG002
        """A neighbour is there, and is told nothing."""
        return iter(())

    def silence(self, interface: TableInterface[int, bool]) -> Job:  # noqa: ARG002
        """A neighbour is gone."""
        return iter(())

    def wanting(self, event: AnyEvent) -> set[Link]:  # noqa: ARG002 - whatever it is
        """Everybody."""
        return set(self.links)

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:  # noqa: ARG002
        """Everything to everybody."""
        return {link: np.arange(len(events)) for link in self.links}
