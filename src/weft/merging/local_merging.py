"""Merging inside a structure (thesis 8.3.1, 8.3.2). Laws: only filters of one interface merge (Definition 8.1); filters
may be added and discarded as if nothing merged; the structure lets through what it would without merging.

The six rules hold for each interface: what one of its filters or mergers covers is taken out of the structure and
remembered (rules 1 to 4), and comes back when that goes (rule 5); a merger that is covered goes with its components,
which are remembered too (rule 6).
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
    """A structure that holds, for each interface, its filters merged.

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
        """Take in a filter that an interface wants; how the root set changed."""
        key = self._key(thing)  # refuses what has no place, before anything changes
        merged = self._merged.get(interface)
        if merged is None:
            merged = self._merged[interface] = MergedSet(self.structure.relation, self.merging)
        return self._place(interface, merged.add(key, thing))

    def discard(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """An interface no longer wants a filter, merged or not; one that it did not have is no error."""
        merged = self._merged.get(interface)
        if merged is None:
            return Change((), ())
        change = self._place(interface, merged.discard(self._key(thing)))
        if not merged:
            del self._merged[interface]
        return change

    def discard_interface(self, interface: Interface) -> RootChange[T]:
        """An interface no longer wants anything. Cost: O(nodes)."""
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
        """Drops first: a structure without redundancy takes in no part while its merger is there."""
        changes = [self.structure.discard(item.thing, interface) for item in change.drop]
        changes += [self.structure.add(item.thing, interface) for item in change.add]
        if change.drop and not self.structure.redundant:
            # such a structure may have let go more than a comparison of two shows, where covering is not transitive
            changes += [self.structure.add(item.thing, interface) for item in self.items(interface)]
        return self._net([each for each in changes if each])

    def _net(self, changes: Iterable[RootChange[T]]) -> RootChange[T]:
        """Many changes of the root set as one."""
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
