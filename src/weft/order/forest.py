"""Poset-derived forests (thesis 3.3): each filter is placed below one that covers it. Siblings are incomparable
(sibling purity), so the roots are the minimal cover, whatever the order of insertion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, Generic, Literal, TypeVar

from weft.errors import OptionError
from weft.order.node import Interface, Node
from weft.order.relation import Relation, Standing
from weft.order.structure import RootChange, Structure

T = TypeVar("T")
Weight = tuple[int, dict[Interface, int] | None]  # size of a subtree, and how often each interface wants a node in it


class Forest(Structure[T], Generic[T]):
    """The poset-derived forest (PF): fast additions and deletions, keeps redundant filters; meant for local clients.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Forest
    >>> forest = Forest(FilterRelation())
    >>> for text in ("x BETWEEN 5 AND 9", "x < 10", "x BETWEEN 8 AND 15"):
    ...     change = forest.add(parse(text), "a client")
    >>> [str(node.thing) for node in forest.roots]
    ['x BETWEEN 8 AND 15', 'x < 10']
    """

    def _place(self, node: Node[T], standing: Standing[T]) -> None:
        self._hang(node, standing, self.top)

    def _hang(self, node: Node[T], standing: Standing[T], current: Node[T]) -> None:
        """Algorithm 3, from step 2: place the node below the last node of one path down, and above what it covers
        there.
        """
        inside = self._choose(standing, current, node)
        while inside is not None:
            current = inside
            inside = self._choose(standing, current, node)
        own = _weight(node)
        for smaller in list(standing.below(current)):  # compare all before anything moves
            if smaller is not node:
                self._unlink(current, smaller)
                self._link(node, smaller)
                _add(node, *_weight(smaller), sign=1)
        self._attach(current, node, own)

    def _choose(self, standing: Standing[T], current: Node[T], node: Node[T]) -> Node[T] | None:
        """A child that covers the node: the one with the smallest subtree."""
        return next((child for child in standing.above(current) if child is not node), None)

    def _displace(self, node: Node[T]) -> None:
        """Algorithm 3, del: place every child of the node again, starting at the parent, each with its subtree.

        No child covers a sibling of the node, because then the node would cover that sibling too.
        """
        parent = node.parent
        self._unlink(parent, node)
        self._carry(parent, _weight(node), sign=-1)
        orphans = list(node.children)
        for orphan in orphans:
            self._unlink(node, orphan)
        for orphan in orphans:
            standing = self._places.standing(orphan.made, orphan.kind)
            inside = self._choose(standing, parent, orphan)
            if inside is None:
                self._attach(parent, orphan, _weight(orphan))
            else:
                self._hang(orphan, standing, inside)

    def _attach(self, parent: Node[T], child: Node[T], weight: Weight) -> None:
        self._link(parent, child)
        self._carry(parent, weight, sign=1)

    def _carry(self, node: Node[T], weight: Weight, sign: int) -> None:
        """Propagate a change below a node up to its root."""
        while node is not self.top:
            above = node.parent
            above.children.take(node)
            _add(node, *weight, sign=sign)
            above.children.put(node)
            node = above

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for node in self:
            assert len(node.parents) == 1, "a node of a forest has one parent"
            assert node.size == 1 + sum(child.size for child in node.children), "sizes count what is below"


class BalancedForest(Forest[T], Generic[T]):
    """The balanced forest (BF): every node knows which interfaces want something below it (Definition 3.11), so that
    filters of one interface are placed close together and are found quickly.
    """

    def _node(self, thing: T, made: Any, kind: Hashable | None) -> Node[T]:
        node = super()._node(thing, made, kind)
        node.reach = {}
        return node

    def _choose(self, standing: Standing[T], current: Node[T], node: Node[T]) -> Node[T] | None:
        """A child that covers the node: preferably one that leads to the same interface, then the smallest."""
        interface = next(iter(node.interfaces), None)
        return next((child for child in standing.above(current, interface) if child is not node), None)

    def _want(self, node: Node[T], interface: Interface) -> None:
        super()._want(node, interface)
        self._carry(node.parent, (0, {interface: 1}), sign=1)

    def _unwant(self, node: Node[T], interface: Interface) -> None:
        if interface in node.interfaces:
            self._carry(node.parent, (0, {interface: 1}), sign=-1)
        super()._unwant(node, interface)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for node in self:
            below = Counter(interface for other in node.below() for interface in other.interfaces)
            assert node.reach == below, "a node knows the interfaces below it"


class NonRedundantForest(BalancedForest[T], Generic[T]):
    """The non-redundant forest (NRF): drops filters that a wider filter of the same interface covers; meant for
    routers.

    `spare_on` determines when a redundant filter is removed: when the wider filter is added ("add"; the size is that of
    the filters poset), or when the wider one is discarded ("discard"; additions are simpler, the forest is larger).

    >>> from weft import parse
    >>> from weft.order import FilterRelation, NonRedundantForest
    >>> forest = NonRedundantForest(FilterRelation())
    >>> for text, neighbour in (("x > 5", "north"), ("x > 0", "north"), ("x > 7", "south"), ("x > 2", "north")):
    ...     change = forest.add(parse(text), neighbour)
    >>> sorted(str(node.thing) for node in forest)
    ['x > 0', 'x > 7']
    """

    redundant = False

    def __init__(self, relation: Relation[T], spare_on: Literal["add", "discard"] = "add") -> None:
        if spare_on not in ("add", "discard"):
            raise OptionError(f"spare_on is {spare_on!r}; use 'add' or 'discard'")
        super().__init__(relation)
        self.spare_on = spare_on

    def _spare(self, node: Node[T], standing: Standing[T], interface: Interface) -> None:
        if self.spare_on == "add":
            super()._spare(node, standing, interface)

    def discard(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """Remove an interface's filter, and with it the filters that it made redundant."""
        node = self.find(thing) if self.spare_on == "discard" else None
        if node is not None and interface in node.interfaces:
            super()._spare(node, self._places.standing(node.made, node.kind), interface)
        return super().discard(thing, interface)


def _weight(node: Node[T]) -> Weight:
    if node.reach is None:
        return node.size, None
    reach = dict(node.reach)
    for interface in node.interfaces:
        reach[interface] = reach.get(interface, 0) + 1
    return node.size, reach


def _add(node: Node[T], size: int, reach: dict[Interface, int] | None, sign: int) -> None:
    node.size += sign * size
    if reach is not None and node.reach is not None:
        for interface, times in reach.items():
            left = node.reach.get(interface, 0) + sign * times
            if left:
                node.reach[interface] = left
            else:
                del node.reach[interface]
