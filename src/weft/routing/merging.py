"""Merging-based routing (thesis, chapter 8): what a link would be told by covering is told as few mergers. Laws: with
perfect mergers nothing else is admitted; with a budget, at most that share of the domain more; a merger is a new item,
and its parts are dropped in the same update or never told.

Mergers are made of filters with equal forwards sets (aggregate merging, 8.4), and with `overlapping` also of those that
go to some of the same links (Definition 8.2). Local subscriptions may be merged before (`MergedLocal`, Figure 8.2).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from weft.algebra.box import NormalForm
from weft.index.base import SubId
from weft.model.schema import Schema
from weft.order import AggregateMerging, Budget, FilterMerging, Forest, Forwarded, Interface, Merging, RootMerging
from weft.order.told import Item as Told
from weft.order.told import MergeChange
from weft.routing.covering import CoveringTable, HeldFilters
from weft.routing.ledger import Revision
from weft.routing.local import Held, RootChange, changed
from weft.routing.table import Item, Link, Tell


class MergingTable(CoveringTable):
    """Merging over a structure of the order; a key is what is told, a filter or a merger.

    `budget` allows imperfect mergers, under a schema with bounds. A `lazy` table keeps a merger that lost a part until
    `tidy` merges anew: fewer updates, more events that nobody wants meanwhile.

    >>> from weft import express, parse
    >>> table, north = MergingTable(), Link("north")
    >>> _ = table.attach(north)
    >>> _ = table.change({SubId(1): parse("x < 10 AND a"), SubId(2): parse("x >= 10 AND a")}, ())
    >>> [str(express(item)) for item in table.told(north).values()]
    ['(x < 0 OR x >= 0) AND a']
    """

    model = "merging"

    def __init__(
        self,
        *args: Any,
        budget: Budget | None = None,
        overlapping: bool = False,
        lazy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        merging: Merging[Any] = FilterMerging(self.schema, budget=budget)
        self.merged: AggregateMerging[Any] = AggregateMerging(
            self.order, merging, overlapping, math.inf if lazy else 0.0
        )

    def wanted(self, link: Link) -> Mapping[Hashable, Item]:
        """The merged minimal cover of what the others want."""
        return {told: _item(told) for told in self.merged.told(link)}

    def tidy(self, budget: int) -> list[Tell]:
        """Merge anew what lost parts."""
        return self.tell(_revisions(self.merged.tidy(everything=True))) + super().tidy(budget)

    def _revisions(self, changes: Mapping[Interface, Forwarded[Held]]) -> dict[Link, Revision[Hashable]]:
        return _revisions(self.merged.apply(dict(changes)))

    def _join(self, link: Link) -> dict[Link, Revision[Hashable]]:
        return _revisions(self.merged.attach(link))

    def _leave(self, link: Link) -> dict[Link, Revision[Hashable]]:
        return _revisions(self.merged.detach(link))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        self.merged.check()


class MergedLocal:
    """A local part whose roots are merged: root-set merging of local subscriptions (thesis 8.5).

    >>> from weft import express, normalize, parse
    >>> local = MergedLocal()
    >>> filters = [Held(parse(text), normalize(parse(text))) for text in ("x > 5", "x <= 5", "y = 1")]
    >>> change = local.change({SubId(n): held for n, held in enumerate(filters)}, ())
    >>> [str(express(held.form)) for held in local.roots().values()]
    ['x < 0 OR x >= 0', 'y = 1']
    """

    def __init__(self, schema: Schema | None = None, budget: Budget | None = None) -> None:
        relation = HeldFilters(schema)
        merging: Merging[Any] = FilterMerging(schema, budget=budget)
        self._merged: RootMerging[Any] = RootMerging(Forest(relation), merging)
        self._held: dict[SubId, Held] = {}
        self._roots: dict[Told[Any], SubId] = {}
        self._next = 0

    def change(self, add: Mapping[SubId, Held], drop: Collection[SubId]) -> RootChange:
        """Drop, then add; the change of the merged root set only."""
        changes = changed(self._held, self._merged, add, drop)
        gone: list[SubId] = []
        new: dict[SubId, Held] = {}
        for change in changes:
            for told in change.drop:
                root = self._roots.pop(told)
                if new.pop(root, None) is None:
                    gone.append(root)
            for told in change.add:
                self._next += 1
                self._roots[told] = root = SubId(self._next)
                new[root] = _held(told)
        return RootChange(gone, new)

    def roots(self) -> Mapping[SubId, Held]:
        """The merged root set; ids are those of roots, not of subscriptions."""
        return {root: _held(told) for told, root in self._roots.items()}


def _revisions(changes: Mapping[Interface, MergeChange[Any]]) -> dict[Link, Revision[Hashable]]:
    return {
        Link(str(link)): Revision(list(change.drop), {told: _item(told) for told in change.add})
        for link, change in changes.items()
    }


def _item(told: Told[Any]) -> Item:
    item: Item = told.thing.item if isinstance(told.thing, Held) else told.thing
    return item


def _held(told: Told[Any]) -> Held:
    thing: Held | NormalForm = told.thing
    return thing if isinstance(thing, Held) else Held(thing, thing)
