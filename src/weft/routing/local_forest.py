"""Local subscriptions in a poset-derived forest (thesis 4.8, 8.5). The external table sees the root set of the forest,
plain or merged, so that changes below the roots cost the table nothing.

This is the local table of Figure 4.13: with a poset outside (a), with a non-redundant forest (b), or with a parent and
slaves (c). The index that delivers to clients is separate (Figure 4.14).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

from weft.algebra.relate import Region, as_form
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.merging import FilterMerging, MergeBudget, RootMerging
from weft.model.change import Change
from weft.model.schema import Schema
from weft.order import FilterRelation, Forest
from weft.routing.ledger import check_change
from weft.routing.local import Root, RootSetChange


class _LocalOrder:
    """Local subscriptions in an order that reports changes of its roots; a filter that never matches has no place in
    it.
    """

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema
        self._filters: dict[SubId, Filter] = {}
        self._roots: dict[Hashable, tuple[SubId, Root]] = {}
        self._next = 0

    def _rooted(self, gone: Iterable[tuple[Hashable, Root]], new: Iterable[tuple[Hashable, Root]]) -> RootSetChange:
        """The roots removed and added; a root that is removed and added again keeps its id."""
        before = {key: self._roots.pop(key) for key, _ in gone}
        add: dict[SubId, Root] = {}
        for key, root in new:
            old = before.pop(key, None)
            if old is None:
                self._next += 1
                old = SubId(self._next), root
                add[old[0]] = root
            self._roots[key] = old
        return Change([root_id for root_id, _ in before.values()], add)

    def _change(self, order: Any, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> list[Any]:
        check_change(self._filters, add, drop)
        changes = []
        for sub in drop:
            gone = self._filters.pop(sub)
            if as_form(gone, self.schema):
                changes.append(order.discard(gone, sub))
        for sub, new in add.items():
            self._filters[sub] = new
            if as_form(new, self.schema):
                changes.append(order.add(new, sub))
        return changes

    def roots(self) -> Mapping[SubId, Root]:
        """The root set; ids are those of roots, not of subscriptions."""
        return dict(self._roots.values())


class ForestLocal(_LocalOrder):
    """A local part whose roots are the minimal cover of all local subscriptions.

    >>> from weft import parse
    >>> local = ForestLocal()
    >>> change = local.change({SubId(n): parse(text) for n, text in enumerate(("x > 5", "x > 0", "x > 9"))}, ())
    >>> [str(root) for root in local.roots().values()]
    ['x > 0']
    """

    def __init__(self, schema: Schema | None = None) -> None:
        super().__init__(schema)
        self._relation = FilterRelation(schema)
        self._forest: Forest[Region] = Forest(self._relation)

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        """Remove, then add; returns the change of the root set. Cost: that of the forest."""
        gone: dict[Hashable, Root] = {}
        new: dict[Hashable, Root] = {}
        for change in self._change(self._forest, add, drop):
            for old in change.drop:
                key = self._key(old)
                if new.pop(key, None) is None:
                    gone[key] = old
            for root in change.add:
                new[self._key(root)] = root
        return self._rooted(gone.items(), new.items())

    def _key(self, root: Root) -> Hashable:
        return self._relation.key(self._relation.make(root))


class MergedLocal(_LocalOrder):
    """A local part whose roots are merged: root-set merging of local subscriptions.

    >>> from weft import to_filter, normalize, parse
    >>> local = MergedLocal()
    >>> change = local.change({SubId(n): parse(text) for n, text in enumerate(("x > 5", "x <= 5", "y = 1"))}, ())
    >>> [str(to_filter(normalize(root) if isinstance(root, Filter) else root)) for root in local.roots().values()]
    ['x < 0 OR x >= 0', 'y = 1']
    """

    def __init__(self, schema: Schema | None = None, budget: MergeBudget | None = None) -> None:
        super().__init__(schema)
        merging = FilterMerging(schema, budget=budget)
        self._merged: RootMerging[Any] = RootMerging(Forest(FilterRelation(schema)), merging)

    def change(self, add: Mapping[SubId, Filter], drop: Collection[SubId]) -> RootSetChange:
        """Remove, then add; returns the change of the merged root set."""
        gone: dict[Hashable, Root] = {}
        new: dict[Hashable, Root] = {}
        for change in self._change(self._merged, add, drop):
            for told in change.drop:
                if new.pop(told, None) is None:
                    gone[told] = told.thing
            for told in change.add:
                new[told] = told.thing
        return self._rooted(gone.items(), new.items())
