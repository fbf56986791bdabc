"""Merging of a root set (thesis 8.5). The items told let through what the structure does, and with perfect mergers
nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from weft.merging.merge_parts import MergeChange
from weft.merging.mergeability import Merging
from weft.merging.merged_set import MergedSet
from weft.model.change import Change
from weft.order.node import Interface
from weft.order.structure import RootChange, Structure

T = TypeVar("T")


class RootMerging(Generic[T]):
    """The merged root set of a structure (thesis 8.5): what a router with a single upstream neighbour tells it.

    >>> from weft import to_filter, parse
    >>> from weft.order import FilterRelation, Forest
    >>> from weft.merging.mergeability import FilterMerging
    >>> roots = RootMerging(Forest(FilterRelation()), FilterMerging())
    >>> for number, text in enumerate(("x < 10", "x < 5", "x >= 10")):
    ...     change = roots.add(parse(text), number)
    >>> [str(to_filter(item.thing)) for item in change.add], [str(item.thing) for item in change.drop]
    (['x < 0 OR x >= 0'], ['x < 10'])
    """

    def __init__(self, structure: Structure[T], merging: Merging[T]) -> None:
        self.structure = structure
        self.merged: MergedSet[T] = MergedSet(structure.relation, merging)
        self.apply(Change((), tuple(node.thing for node in structure.roots if node.thing is not None)))

    def add(self, thing: T, interface: Interface = 0) -> MergeChange[T]:
        """Add a filter that an interface wants; returns how the items told change."""
        return self.apply(self.structure.add(thing, interface))

    def discard(self, thing: T, interface: Interface = 0) -> MergeChange[T]:
        """Remove a filter that an interface wanted."""
        return self.apply(self.structure.discard(thing, interface))

    def discard_interface(self, interface: Interface) -> MergeChange[T]:
        """Remove everything that an interface wants. Cost: O(nodes)."""
        return self.apply(self.structure.discard_interface(interface))

    def apply(self, change: RootChange[T]) -> MergeChange[T]:
        """Update after a change made directly to the structure; returns how the items told change."""
        if not change:
            return Change((), ())
        return self.merged.change([(self._key(thing), thing) for thing in change.add], map(self._key, change.drop))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.structure.check()
        self.merged.check()
        roots = {self._key(node.thing) for node in self.structure.roots if node.thing is not None}
        assert all(key in self.merged for key in roots), "every root is told"
        assert self.merged.filters == len(roots), "and nothing else"

    def _key(self, thing: T) -> Hashable:
        relation = self.structure.relation
        return relation.key(relation.make(thing))
