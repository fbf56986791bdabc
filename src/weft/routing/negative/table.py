"""Subsumption-based routing by negative space (Jafarpour et al.). What is told to a link covers what all others want,
and consists of some of their items, unchanged.

Each listening link has its own space of what all others want (errata, negative space 6). An item that the told ones
together cover is not told, but kept, and it is told when they no longer cover it. With a limit, the spaces are
approximate: smaller and faster, and slightly more is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from weft.model.change import Change
from weft.routing.filter_table import FilterTable
from weft.routing.interface import TableInterface
from weft.routing.jobs import Job
from weft.routing.negative.space import SharedFilters
from weft.routing.negative.structure import Limit, NegativeSpace
from weft.routing.routed_filter import RoutedFilter
from weft.routing.table import Item

_TOGETHER = 4  # items added to a new link's space as one piece of work
_STEP = 16  # comparisons of a space in one piece of work

FilterInterface = TableInterface[RoutedFilter, RoutedFilter]


class NegativeTable(FilterTable[RoutedFilter, RoutedFilter]):
    """The table for negative space. A key is an item of a source; `space` are options of a `NegativeSpace`.

    >>> from weft import parse
    >>> from weft.index.base import SubId
    >>> from weft.routing import Link
    >>> table, north = NegativeTable(), Link("north")
    >>> _ = table.attach(north)
    >>> filters = ["x BETWEEN 0 AND 6", "x BETWEEN 4 AND 9", "x BETWEEN 2 AND 8"]
    >>> _ = table.change({SubId(n): parse(text) for n, text in enumerate(filters)}, ())
    >>> [str(item) for item in table.told(north).values()]
    ['x BETWEEN 0 AND 6', 'x BETWEEN 4 AND 9']
    >>> [[str(item) for item in tell.update.add.values()] for tell in table.change({}, [SubId(0)])]
    [['x BETWEEN 2 AND 8']]
    """

    model = "negative"

    def __init__(
        self,
        *args: Any,
        limit: Limit | None = None,
        space: Mapping[str, Any] | None = None,
        rebuild: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._rebuild = rebuild
        self.limit = limit
        self.spaces: dict[FilterInterface, NegativeSpace[RoutedFilter]] = {}
        self._options = {"shared": SharedFilters(), **(space or {})}
        self._waiting: dict[FilterInterface, dict[RoutedFilter, None]] = {}  # not yet in the space of a new link
        self._untidy: dict[FilterInterface, None] = {}  # changed since the last rebuild, the longest waiting first

    def item(self, key: RoutedFilter) -> Item:
        """Each item unchanged."""
        return key.item

    def revise(self, source: FilterInterface, drop: Sequence[RoutedFilter], add: Sequence[RoutedFilter]) -> Job:
        """Update which items are active and passive in each space. Cost: that of finding the negative boxes that they
        meet.
        """
        for interface in self.listening(source):
            if source.ended and interface.began > source.ended:
                continue  # it was attached after the source had left
            waiting = self._waiting.get(interface, {})
            known = [each for each in drop if each not in waiting]
            for each in drop:
                waiting.pop(each, None)
            self._tell(interface, self.spaces[interface].change({each: each.normal_form for each in add}, known))
        for interface in [*self.listening(source)]:
            yield from self._settle(interface)

    def _settle(self, interface: FilterInterface) -> Job:
        """Continue what a change of a space left pending. Several jobs may do so without harm."""
        while (space := self.spaces.get(interface)) is not None and space.pending:
            yield
            self._tell(interface, space.step(_STEP))

    def _tell(
        self, interface: FilterInterface, change: Change[Collection[RoutedFilter], Collection[RoutedFilter]]
    ) -> None:
        self._untidy.setdefault(interface)
        for key in change.add:
            self.tell(interface, key)
        for key in change.drop:
            self.withdraw(interface, key)

    def tell_everything(self, interface: FilterInterface) -> Job:
        """Build a space of what all others want, some items at a time."""
        space = self.spaces[interface] = NegativeSpace(self.schema, self.limit, **self._options)
        waiting = self._waiting[interface] = dict.fromkeys(self.holding(interface))
        while waiting:
            some = [*islice(waiting, _TOGETHER)]
            for each in some:
                del waiting[each]
            self._tell(interface, space.change({each: each.normal_form for each in some}))
            yield from self._settle(interface)
            yield
        self._waiting.pop(interface, None)

    def link_removed(self, interface: FilterInterface) -> Job:
        """Remove the link's space and its items."""
        self.spaces.pop(interface, None)
        self._untidy.pop(interface, None)
        self._waiting.get(interface, {}).clear()
        return super().link_removed(interface)

    def improve(self, budget: int) -> None:
        """Rebuild at least one of the spaces that have changed; boxes are coalesced as far as the budget then
        allows.
        """
        if not self._rebuild:
            return
        for number, interface in enumerate([*self._untidy]):
            space = self.spaces[interface]
            if number and budget < len(space):
                break
            self._tell(interface, space.rebuild())
            del self._untidy[interface]
            budget -= len(space)
            space.coalesce(max(0, budget))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        assert set(self.spaces) == set(self.listening())
        for interface, space in self.spaces.items():
            space.check()
            if not self.pending:
                assert {*space.active, *space.passive} == {*self.holding(interface)}, "a space has what others want"
            assert set(interface.ledger.ids) == {*space.told}, f"{interface.link} knows other items than it should"
