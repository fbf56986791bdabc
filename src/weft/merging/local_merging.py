"""Merging inside a structure (thesis 8.3.1, 8.3.2). Only filters of the same interface merge (Definition 8.1). Filters
are added and discarded as if nothing merged. The structure lets through what it would without merging.

The six rules hold for each interface. A filter that another filter or merger of the interface covers is removed from
the structure and remembered (rules 1 to 4), and it returns when the covering one is removed (rule 5). A merger that is
covered is removed together with its components, which are remembered too (rule 6).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from weft.merging.merge_parts import MergeChange, MergeItem
from weft.merging.mergeability import Merging
from weft.merging.merged_set import MergedSet
from weft.model.change import Change
from weft.order.node import Interface
from weft.order.structure import RootChange, Structure

T = TypeVar("T")


class LocalMerging(Generic[T]):
    """A structure that holds the merged filters of each interface.

    >>> from weft import to_filter, parse
    >>> from weft.order import FilterRelation, Forest
    >>> from weft.merging.mergeability import FilterMerging
    >>> table = LocalMerging(Forest(FilterRelation()), FilterMerging())
    >>> for text, interface in (("x < 10", "north"), ("x >= 10", "north"), ("x >= 5", "south")):
    ...     change = table.add(parse(text), interface)
    >>> [(str(to_filter(node.thing)), *node.interfaces) for node in table.structure.roots]
    [('x < 0 OR x >= 0', 'north')]
    """

    def __init__(self, structure: Structure[T], merging: Merging[T]) -> None:
        self.structure = structure
        self.merging = merging
        self._merged: dict[Interface, MergedSet[T]] = {}

    def add(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """Add a filter that an interface wants; returns how the root set changed."""
        key = self._key(thing)  # rejects a filter that matches nothing, before anything changes
        merged = self._merged.get(interface)
        if merged is None:
            merged = self._merged[interface] = MergedSet(self.structure.relation, self.merging)
        return self._place(interface, merged.add(key, thing))

    def discard(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """Remove an interface's filter, merged or not. Removing one that it did not have is not an error."""
        merged = self._merged.get(interface)
        if merged is None:
            return Change((), ())
        change = self._place(interface, merged.discard(self._key(thing)))
        if not merged:
            del self._merged[interface]
        return change

    def discard_interface(self, interface: Interface) -> RootChange[T]:
        """Remove everything that an interface wants. Cost: O(nodes)."""
        self._merged.pop(interface, None)
        return self.structure.discard_interface(interface)

    def items(self, interface: Interface) -> Iterator[MergeItem[T]]:
        """What the structure holds for an interface: its filters and mergers."""
        return iter(self._merged.get(interface, ()))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.structure.check()
        held: dict[Interface, set[Hashable]] = {}
        for node in self.structure:
            for interface in node.interfaces:
                held.setdefault(interface, set()).add(self.structure.relation.key(node.made))
        assert held.keys() == self._merged.keys(), "nothing is held for anybody else"
        for interface, merged in self._merged.items():
            merged.check()
            keys = {self._key(item.thing) for item in merged}
            assert held[interface] <= keys, "the structure holds filters and mergers of the interface"
            assert held[interface] == keys or not self.structure.redundant, "and all of them"

    def _place(self, interface: Interface, change: MergeChange[T]) -> RootChange[T]:
        """Apply a change, removals first: a structure without redundancy accepts no part while its merger is
        present.
        """
        changes = [self.structure.discard(item.thing, interface) for item in change.drop]
        changes += [self.structure.add(item.thing, interface) for item in change.add]
        if change.drop and not self.structure.redundant:
            # Such a structure may have removed more than a pairwise comparison shows, because covering need not be
            # transitive.
            changes += [self.structure.add(item.thing, interface) for item in self.items(interface)]
        return self._net([each for each in changes if each])

    def _net(self, changes: Iterable[RootChange[T]]) -> RootChange[T]:
        """Combine many changes of the root set into one."""
        changes = list(changes)
        if len(changes) < 2:
            return changes[0] if changes else Change((), ())
        entered: dict[Hashable, T] = {}
        left: dict[Hashable, T] = {}
        for change in changes:
            for from_, to, things in ((entered, left, change.drop), (left, entered, change.add)):
                for thing in things:
                    key = self._key(thing)
                    if from_.pop(key, None) is None:
                        to[key] = thing
        return Change(tuple(left.values()), tuple(entered.values()))

    def _key(self, thing: T) -> Hashable:
        relation = self.structure.relation
        return relation.key(relation.make(thing))
