"""Covering-based routing: a filter is not told if one that covers it is (thesis 3.2 to 3.5). What is told to a link is
a minimal cover of what all others want, as far as covering is proven.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from weft.algebra.box import NormalForm
from weft.language.ast import Filter
from weft.routing.covering.incoming import BudgetMatcher
from weft.routing.covering.outgoing import LinkCovers
from weft.routing.covering.structure import CoverNode
from weft.routing.filter_table import FilterTable
from weft.routing.interface import K, TableInterface
from weft.routing.jobs import Job
from weft.routing.routed_filter import RoutedFilter
from weft.routing.table import Exactness, Item, Link, Placed, Source, WantedItem


class CoveredTable(FilterTable[K, CoverNode]):
    """What tables on minimal covers have in common. A subclass decides what happens to nodes that are told and
    withdrawn.
    """

    def __init__(self, *args: Any, structure: Literal["forest", "poset"] = "forest", **options: Any) -> None:
        super().__init__(*args, **options)
        self.covers = LinkCovers(self.schema, self.rooted, self.unrooted, every=structure == "poset")

    @abstractmethod
    def rooted(self, interface: TableInterface[K, CoverNode], node: CoverNode) -> None:
        """Called when a link must know a node."""

    @abstractmethod
    def unrooted(self, interface: TableInterface[K, CoverNode], node: CoverNode) -> None:
        """Called when a link no longer needs to know a node."""

    def prepare(self, wanted: WantedItem | NormalForm) -> RoutedFilter | None:
        """A filter, its hull and its key."""
        return self.covers.extents.of(wanted.filter if isinstance(wanted, Placed) else wanted)

    def store(self, new: RoutedFilter) -> CoverNode:
        """The node of the filter, which equal filters share."""
        if new.key is None:  # of a neighbour
            compared = self.covers.extents.of(new.item, new.form)
            assert compared is not None
            new = compared
        return self.covers.node(new)

    def revise(self, source: TableInterface[K, CoverNode], drop: Sequence[CoverNode], add: Sequence[CoverNode]) -> Job:
        """Update the covers."""
        for gathering in [self.covers.add(source, node) for node in add]:
            yield from gathering
        for node in drop:
            yield from self.covers.discard(source, node)
        self.covers.extents.forget_unused()

    def tell_everything(self, interface: TableInterface[K, CoverNode]) -> Job:
        """The minimal cover of what the others want."""
        return self.covers.listen(interface)

    def link_removed(self, interface: TableInterface[K, CoverNode]) -> Job:
        """Remove the link's forest and its items."""
        clearing = super().link_removed(interface)
        yield from self.covers.silence(interface)
        yield from clearing

    def holders(self, item: Item) -> Mapping[Source, int]:
        """Who holds the node of the filter."""
        new = self.prepare(item) if isinstance(item, Filter | NormalForm) else None
        node = None if new is None else self.covers.find(new)
        return {} if node is None else {source.link: count for source, count in node.holders.items()}

    def witness(self, link: Link, item: Item) -> Item | None:
        """A root of the link's forest that covers the filter."""
        new = self.prepare(item) if isinstance(item, Filter | NormalForm) else None
        root = None if new is None else self.covers.witness(self._interface(link), new)
        return None if root is None else root.item

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        self.covers.check(not self.pending)
        if not self.pending:
            held: dict[CoverNode, dict[Any, int]] = {}
            for source in (self.here, *self.links.values()):
                for node in source.held.values():
                    if node is not None:
                        holders = held.setdefault(node, {})
                        holders[source] = holders.get(source, 0) + 1
            assert held == {node: node.holders for node in self.covers.nodes.values() if node.holders}


class CoveringTable(CoveredTable[CoverNode]):
    """The table for covering. A key is a filter by its canonical form.

    With `tests`, an event is compared with at most so many filters; then all other links count as interested.

    >>> from weft import parse
    >>> from weft.index.base import SubId
    >>> from weft.routing import Link
    >>> table, north = CoveringTable(), Link("north")
    >>> _ = table.attach(north)
    >>> _ = table.change({SubId(1): parse("x > 0"), SubId(2): parse("x > 5")}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x > 0']
    >>> [[str(item) for item in tell.update.add.values()] for tell in table.change({}, [SubId(1)])]
    [['x > 5']]
    """

    model = "covering"

    def __init__(self, *args: Any, tests: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self._budget = BudgetMatcher(tests, self.schema) if tests else None
        if self._budget is not None:
            self._matcher = self._budget  # type: ignore[assignment] # the same calls

    @property
    def exactness(self) -> Exactness:
        """Exact, unless the tests of an event are bounded."""
        return Exactness.EXACT if self._budget is None else Exactness.WIDER

    @property
    def assumed(self) -> int:
        """The events whose tests were used up, so that links were assumed to want them."""
        return 0 if self._budget is None else self._budget.assumed

    def rooted(self, interface: TableInterface[CoverNode, CoverNode], node: CoverNode) -> None:
        """Tell the node unchanged."""
        self.tell(interface, node)

    def unrooted(self, interface: TableInterface[CoverNode, CoverNode], node: CoverNode) -> None:
        """Withdraw the node."""
        self.withdraw(interface, node)

    def item(self, key: CoverNode) -> Item:
        """The first filter with this form."""
        return key.item

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for interface in self.listening():
            assert set(interface.ledger.ids) == set(self.covers.roots(interface))
