"""Flooding: every event goes everywhere, and subscriptions go nowhere. Nothing is ever told.

The other baseline: no table to maintain, and the most events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.algebra.box import NormalForm
from weft.errors import RemoteProtocolError
from weft.index.base import AnyEvent
from weft.model.change import Change
from weft.routing.engine import TableEngine
from weft.routing.filter_table import FilterOverlap
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.table import Exactness, Item, ItemId, Items, Link, Places, Routes, Update, WantedItem


class FloodingTable(TableEngine[int, bool]):
    """Links, and nothing else.

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

    def prepare(self, wanted: WantedItem | NormalForm) -> bool:  # noqa: ARG002 - the same for everything
        """A marker that there is a subscription."""
        return True

    def prepare_update(
        self, interface: TableInterface[int, bool], update: Update, news: Change[Items, Items]
    ) -> Mapping[ItemId, bool]:
        """Reject any items. Raises RemoteProtocolError."""
        if news.drop or news.add or update.notes:
            raise RemoteProtocolError(
                f"{interface.link} sent what it wants, but events are flooded here; use the same model at both ends"
            )
        return {}

    def item(self, key: int) -> Item:
        """Nothing is told."""
        raise AssertionError(f"a flooding table tells nothing, and yet {key}")

    def revise(self, source: TableInterface[int, bool], drop: Sequence[bool], add: Sequence[bool]) -> Job:  # noqa: ARG002
        """Nothing to tell."""
        return iter(())

    def tell_everything(self, interface: TableInterface[int, bool]) -> Job:  # noqa: ARG002
        """A new neighbour is told nothing."""
        return iter(())

    def link_removed(self, interface: TableInterface[int, bool]) -> Job:  # noqa: ARG002
        """Nothing to forget."""
        return iter(())

    def wanting(self, event: AnyEvent) -> set[Link]:  # noqa: ARG002 - the same for everything
        """All links."""
        return set(self.links)

    def wanting_batch(self, events: Sequence[AnyEvent], places: Places | None) -> Routes:  # noqa: ARG002
        """All events to all links."""
        return {link: np.arange(len(events)) for link in self.links}
