"""Simple routing: every subscription is told to every neighbour (thesis 2.3). Each is an item of its own.

The baseline of the other models: each broker knows every subscription of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.algebra.box import NormalForm
from weft.algebra.satisfiable import plainly_satisfiable
from weft.language.ast import Filter
from weft.routing.filter_table import FilterTable
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.routed_filter import RoutedFilter
from weft.routing.table import Item, Placed, WantedItem

_TOLD_TOGETHER = 16  # to a new neighbour, as one piece of work


class Copy:
    """A filter of one source; equal filters of other sources are other copies."""

    __slots__ = ("item", "wanted")

    def __init__(self, item: Filter | NormalForm) -> None:
        self.item = item
        self.wanted = True  # until it is dropped


class SimpleTable(FilterTable[Copy, Copy]):
    """The simple table. A key is a subscription, or an item of a neighbour.

    >>> from weft import parse
    >>> from weft.routing import Link, Update
    >>> table, north, south = SimpleTable(), Link("north"), Link("south")
    >>> _ = table.attach(north), table.attach(south)
    >>> [tell.link for tell in table.learn(north, Update(add={1: parse("x > 5")}))]
    ['south']
    >>> table.route({"x": 7}, south), table.route({"x": 7}, north)
    ({'north'}, set())
    """

    model = "simple"

    def prepare(self, wanted: WantedItem | NormalForm) -> Copy | RoutedFilter | None:
        """The filter unchanged. Its normal form is made only if it may be too complex, or never match."""
        item = wanted.filter if isinstance(wanted, Placed) else wanted
        if self.schema is None and isinstance(item, Filter) and plainly_satisfiable(item):
            return Copy(item)
        held: RoutedFilter | None = super().prepare(item)
        return held

    def store(self, new: Copy | RoutedFilter) -> Copy:
        """The filter unchanged."""
        return new if isinstance(new, Copy) else Copy(new.item)

    def item(self, key: Copy) -> Item:
        """The filter unchanged."""
        return key.item

    def revise(self, source: TableInterface[Copy, Copy], drop: Sequence[Copy], add: Sequence[Copy]) -> Job:
        """Apply the same change at every link. Cost: O(links x changes)."""
        for copy in drop:
            copy.wanted = False
        for interface in self.listening(source):
            for copy in add:
                self.tell(interface, copy)
            for copy in drop:
                self.withdraw(interface, copy)
        return iter(())

    def tell_everything(self, interface: TableInterface[Copy, Copy]) -> Job:
        """Everything from other sources."""
        for number, copy in enumerate([*self.holding(interface)]):
            if copy.wanted:
                self.tell(interface, copy)
            if number % _TOLD_TOGETHER == 0:
                yield
