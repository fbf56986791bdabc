"""Merging-based routing (thesis, chapter 8): what a link would be told by covering is told as few mergers. The laws of
`table` hold: EXACT with perfect mergers; WIDER with a budget, by at most that share of the domain, or while a lazy
table waits.

Local subscriptions can be merged beforehand (`MergedLocal`, Figure 8.2).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from weft.merging import MergeBudget
from weft.merging.merge_parts import MergeChange
from weft.routing.covering.structure import CoverNode
from weft.routing.covering.table import CoveredTable
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.merging.outgoing import MergedItem, MergedTold, SharedForms, told_item
from weft.routing.table import About, Exactness, Item

MergeScope = Literal["root-set", "local", "aggregate"]
MergedInterface = TableInterface[MergedItem, CoverNode]


class MergingTable(CoveredTable[MergedItem]):
    """The table for merging. A key is what is told: a filter or a merger.

    `budget` allows imperfect mergers, under a schema with bounds. A `lazy` table keeps a merger that lost a part until
    `step` finds nothing else to do: fewer updates, but more unwanted events in the meantime. `scope` says what may be
    merged with each other: everything that a link is told, what one source wants, or what the same sources want.

    >>> from weft import to_filter, parse
    >>> from weft.routing import Link
    >>> table, north = MergingTable(), Link("north")
    >>> _ = table.attach(north)
    >>> _ = table.change({1: parse("x < 10 AND a"), 2: parse("x >= 10 AND a")}, ())
    >>> [str(to_filter(item)) for item in table.told(north).values()]
    ['(x < 0 OR x >= 0) AND a']
    """

    model = "merging"

    def __init__(
        self,
        *args: Any,
        budget: MergeBudget | None = None,
        lazy: bool = False,
        scope: MergeScope = "root-set",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.scope = scope
        self.budget = budget
        self.lazy = lazy
        self.outgoing: dict[MergedInterface, MergedTold] = {}
        self._forms = SharedForms(self.schema, self.covers.pairs)

    @property
    def exactness(self) -> Exactness:
        """Exact, unless mergers may admit more."""
        return Exactness.WIDER if self.lazy or (self.budget is not None and self.budget.share) else Exactness.EXACT

    @property
    def agreed(self) -> Mapping[str, object]:
        """How mergers are made."""
        return {"budget": None if self.budget is None else asdict(self.budget), "lazy": self.lazy}

    def item(self, key: MergedItem) -> Item:
        """A filter, or the form of a merger."""
        return told_item(key)

    def rooted(self, interface: MergedInterface, node: CoverNode) -> None:
        """Merge the node with others."""
        self.outgoing[interface].add(node, self._group(interface, node))

    def _group(self, interface: MergedInterface, node: CoverNode) -> Hashable:
        """What the node merges with: everything, what has the same source, or the same sources (thesis 8.3, 8.4).

        The link itself does not count as a source: what it is told must not depend on what it wants (law 5).
        """
        if self.scope == "root-set":
            return None
        sources = frozenset(source for source in node.holders if source is not interface)
        return sources if len(sources) == 1 or self.scope == "aggregate" else node

    def unrooted(self, interface: MergedInterface, node: CoverNode) -> None:
        """Remove the node, and mergers with it."""
        self.outgoing[interface].discard(node)

    def tell_everything(self, interface: MergedInterface) -> Job:
        """The merged minimal cover of what the others want."""
        self.outgoing[interface] = MergedTold(
            self._forms, self.budget, self.lazy, self.codec.kinds[About.SUBSCRIPTIONS]
        )
        return super().tell_everything(interface)

    def link_removed(self, interface: MergedInterface) -> Job:
        """Remove the link's mergers, its forest, and its items."""
        self.outgoing.pop(interface, None)
        return super().link_removed(interface)

    def before_flush(self, interface: MergedInterface) -> None:
        """Merge what was added and removed since the last update."""
        told = self.outgoing.get(interface)
        if told is not None and told.changed:
            self._tell(interface, told.merge())

    def improve(self, budget: int) -> None:  # noqa: ARG002 - mergers that lost parts are few
        """Merge again what lost parts."""
        for interface, told in self.outgoing.items():
            self._tell(interface, told.tidy())

    def _tell(self, interface: MergedInterface, change: MergeChange[Any]) -> None:
        for item in change.drop:
            self.withdraw(interface, item)
        for item in change.add:
            self.tell(interface, item)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        assert set(self.outgoing) == set(self.listening())
        for interface, told in self.outgoing.items():
            told.check()
            assert not told.changed, "something was not merged"
            assert all(node in told for node in self.covers.roots(interface)), "a root is not in a merger"
            assert told.filters == sum(1 for _ in self.covers.roots(interface))
            assert set(interface.ledger.ids) == {*told}, f"{interface.link} knows other items than it should"
