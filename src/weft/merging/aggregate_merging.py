"""Merging of the filters that neighbours are told (thesis 8.3.3, 8.4). With perfect mergers, each neighbour is told
filters that let through exactly what the unmerged ones would. The structure itself is not changed.

Filters with equal forwards sets are merged once for all neighbours in the set. A neighbour is then told the results of
all sets that it belongs to, except those that another of them covers (Equation 8.1). If filters whose forwards sets
merely overlap may merge, the results are merged once more for each neighbour. The merger then goes to the intersection
(Definition 8.2), and each part remains for the other neighbours.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from weft.merging.merge_parts import MergeChange, MergeItem
from weft.merging.mergeability import Merging, never
from weft.merging.merged_set import MergedSet
from weft.order.forwards import ForwardChange, Forwarding
from weft.order.node import Interface, Node

T = TypeVar("T")
Forwards = frozenset[Interface]


class AggregateMerging(Generic[T]):
    """Forwarded filters, merged for each neighbour; `overlapping` also merges across different forwards sets.

    >>> from weft import to_filter, parse
    >>> from weft.order import FilterRelation, Forwarding, Poset
    >>> from weft.merging.mergeability import FilterMerging
    >>> told = AggregateMerging(Forwarding(Poset(FilterRelation()), ["I1", "I2", "I3"]), FilterMerging())
    >>> changes = told.add(parse("x < 10"), "I1")
    >>> changes = told.add(parse("x >= 10"), "I1")
    >>> {neighbour: [str(to_filter(item.thing)) for item in change.add] for neighbour, change in changes.items()}
    {'I2': ['x < 0 OR x >= 0'], 'I3': ['x < 0 OR x >= 0']}
    """

    def __init__(self, forwarding: Forwarding[T], merging: Merging[T], overlapping: bool = False) -> None:
        self.forwarding = forwarding
        self.merging = merging
        self.overlapping = overlapping
        self._relation = forwarding.structure.relation
        self._groups: dict[Forwards, MergedSet[T]] = {}
        self._places: dict[Node[T], Forwards] = {}
        self._told: dict[Interface, MergedSet[T]] = {}
        for neighbour in forwarding.neighbours:
            self._listen(neighbour)
        self._regroup(forwarding.structure)

    def add(self, thing: T, interface: Interface) -> dict[Interface, MergeChange[T]]:
        """Add a filter; returns how the filters told to each neighbour change."""
        return self.apply(self.forwarding.add(thing, interface))

    def discard(self, thing: T, interface: Interface) -> dict[Interface, MergeChange[T]]:
        """Remove a filter; returns how the filters told to each neighbour change."""
        return self.apply(self.forwarding.discard(thing, interface))

    def change(
        self, add: Iterable[tuple[T, Interface]], drop: Iterable[tuple[T, Interface]]
    ) -> dict[Interface, MergeChange[T]]:
        """Apply removals, then additions, as one change."""
        return self.apply(self.forwarding.change(add, drop))

    def attach(self, neighbour: Interface) -> dict[Interface, MergeChange[T]]:
        """Add a neighbour; returns what it must be told, and how the filters told to others change. Cost: O(nodes)."""
        self.forwarding.attach(neighbour)
        self._listen(neighbour)
        return self._regroup(self.forwarding.structure)

    def detach(self, neighbour: Interface) -> dict[Interface, MergeChange[T]]:
        """Remove a neighbour and everything that it wanted. Cost: O(nodes)."""
        self.forwarding.detach(neighbour)
        self._told.pop(neighbour, None)
        return self._regroup([*self._places, *self.forwarding.structure])

    def apply(self, changes: dict[Interface, ForwardChange[T]]) -> dict[Interface, MergeChange[T]]:
        """Update after changes made directly to the forwarding; returns how the filters told to each
        neighbour change.
        """
        return self._regroup(node for told in changes.values() for node in (*told.drop, *told.add))

    def tidy(self, everything: bool = False) -> dict[Interface, MergeChange[T]]:
        """Merge again whatever lost components, where too many false positives were counted, or everywhere."""
        return self._spread({forwards: group.tidy(everything) for forwards, group in self._groups.items()})

    def told(self, neighbour: Interface) -> list[MergeItem[T]]:
        """Everything that a neighbour is told. Cost: O(told)."""
        return list(self._told[neighbour])

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.forwarding.check()
        kept = {node: node.forwards for node in self.forwarding.structure if node.forwards}
        assert self._places == kept, "every node is in the group of its forwards set"
        for forwards, group in self._groups.items():
            group.check()
            members = [node for node, place in kept.items() if place == forwards]
            assert members, "no group is empty"
            assert all(node in group for node in members), "a group holds its nodes"
        assert self._told.keys() == self.forwarding.neighbours.keys(), "every neighbour is told"
        for neighbour, told in self._told.items():
            told.check()
            items = {item for forwards, group in self._groups.items() if neighbour in forwards for item in group}
            assert all(item in told for item in items), "a neighbour is told what its groups give"

    def _listen(self, neighbour: Interface) -> None:
        self._told[neighbour] = MergedSet(self._relation, self.merging if self.overlapping else never())

    def _regroup(self, nodes: Iterable[Node[T]]) -> dict[Interface, MergeChange[T]]:
        """Move nodes to the groups of their forwards sets; returns the resulting change for each neighbour."""
        joins: dict[Forwards, list[tuple[Hashable, T]]] = {}
        leaves: dict[Forwards, list[Hashable]] = {}
        for node in dict.fromkeys(nodes):
            old, new = self._places.get(node), node.forwards
            if old == (new or None):
                continue
            if old is not None:
                leaves.setdefault(old, []).append(node)
                del self._places[node]
            if new and node.thing is not None:
                joins.setdefault(new, []).append((node, node.thing))
                self._places[node] = new
        return self._spread(
            {
                forwards: self._group(forwards).change(joins.get(forwards, ()), leaves.get(forwards, ()))
                for forwards in dict.fromkeys((*joins, *leaves))
            }
        )

    def _spread(self, groups: dict[Forwards, MergeChange[T]]) -> dict[Interface, MergeChange[T]]:
        """Turn changes of groups into changes of what each neighbour is told."""
        added: dict[Interface, list[tuple[Hashable, T]]] = {}
        dropped: dict[Interface, list[Hashable]] = {}
        for forwards, change in groups.items():
            for neighbour in forwards & self._told.keys():
                added.setdefault(neighbour, []).extend((item, item.thing) for item in change.add)
                dropped.setdefault(neighbour, []).extend(change.drop)
            if not self._groups[forwards]:
                del self._groups[forwards]
        changes = {
            neighbour: told.change(added.get(neighbour, ()), dropped.get(neighbour, ()))
            for neighbour, told in self._told.items()
            if neighbour in added or neighbour in dropped
        }
        return {neighbour: change for neighbour, change in changes.items() if change}

    def _group(self, forwards: Forwards) -> MergedSet[T]:
        group = self._groups.get(forwards)
        if group is None:
            group = self._groups[forwards] = MergedSet(self._relation, self.merging)
        return group
