"""The common part of posets and forests: nodes by canonical form, the root set, and interfaces. Laws: every node has at
least one interface; the root set covers everything; `add` and `discard` return how the root set changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from weft.model.change import Change
from weft.order.node import Interface, Node, Roots
from weft.order.relation import NodePlaces, Relation, Standing

T = TypeVar("T")
RootChange = Change[tuple[T, ...], tuple[T, ...]]  # the filters that stopped being roots, and the new roots


class Structure(ABC, Generic[T]):
    """Filters in their covering order; `redundant` states whether an interface keeps a filter that another of its own
    covers.

    Without redundancy, the minimum interface property holds (thesis, Property 3.2): no interface wants two nodes of
    which one lies below the other. A filter that its interface does not need is not added, and a filter that it no
    longer needs is removed. When the covering filter is discarded, the caller must add the covered one again.
    """

    redundant = True

    def __init__(self, relation: Relation[T]) -> None:
        self.relation = relation
        self.top: Node[T] = Node(None, None, None)  # the imaginary root
        self.top.children = Roots()
        self._places: NodePlaces[T] = relation.places()
        self._nodes: dict[Hashable, Node[T]] = {}
        self._entered: dict[Node[T], None] = {}
        self._left: dict[Node[T], None] = {}
        self._touched: dict[Node[T], bool] | None = None  # changed nodes, if a caller tracks them

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node[T]]:
        return iter(self._nodes.values())

    def __contains__(self, thing: T) -> bool:
        return self.find(thing) is not None

    # -- changes --------------------------------------------------------------------------------------

    def add(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """Add a filter that an interface wants. A filter that is already present only gains the interface.

        An interface wants a filter once, however it is written and however often it is added.
        """
        made = self.relation.make(thing)
        key = self.relation.key(made)
        node = self._nodes.get(key)
        if node is not None and interface in node.interfaces:
            return _UNCHANGED
        kind = self.relation.kind(made)
        standing = self._places.standing(made, kind)
        if not self.redundant and standing.has_above(self.top, interface):
            return _UNCHANGED  # Algorithm 1, step 1
        if node is not None:
            self._want(node, interface)
        else:
            node = self._node(thing, made, kind)
            node.interfaces.add(interface)
            self._place(node, standing)
            self._nodes[key] = node
            self._places.placed(node)
            self._touch(node, wanted=True)
        if not self.redundant:
            self._spare(node, standing, interface)
        return self._change()

    def discard(self, thing: T, interface: Interface = 0) -> RootChange[T]:
        """Remove an interface's filter. Removing one that it did not have is not an error."""
        node = self.find(thing)
        if node is not None:
            self._unwant(node, interface)
        return self._change()

    def discard_interface(self, interface: Interface) -> RootChange[T]:
        """Remove everything that an interface wants. Cost: O(nodes)."""
        for node in [node for node in self if interface in node.interfaces]:
            self._unwant(node, interface)
        return self._change()

    # -- questions ------------------------------------------------------------------------------------

    def find(self, thing: T) -> Node[T] | None:
        """The node of a filter, by its canonical form."""
        return self._nodes.get(self.relation.key(self.relation.make(thing)))

    @property
    def roots(self) -> Iterator[Node[T]]:
        """The minimal cover: the filters that no other filter covers (thesis, Corollary 3.8)."""
        return iter(self.top.children)

    def covering(self, thing: T) -> list[Node[T]]:
        """The nodes that are found to cover a filter, including an equal one."""
        return list(self.standing(thing).all_above(self.top))

    def covered(self, thing: T) -> list[Node[T]]:
        """The nodes that are found to be covered by a filter, including an equal one."""
        return list(self.standing(thing).all_below(self.top))

    def standing(self, thing: T) -> Standing[T]:
        """The position that a filter has, or would have, among the nodes."""
        made = self.relation.make(thing)
        return self._places.standing(made, self.relation.kind(made))

    @property
    def depth(self) -> int:
        """The number of nodes on the longest path down from a root. Cost: O(nodes and edges)."""
        depths: dict[Node[T], int] = {}
        open_ = list(self)
        while open_:
            node = open_[-1]
            above = [parent for parent in node.parents if parent is not self.top]
            unknown = [parent for parent in above if parent not in depths]
            if unknown:
                open_ += unknown
                continue
            depths[node] = 1 + max((depths[parent] for parent in above), default=0)
            open_.pop()
        return max(depths.values(), default=0)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Compares without counting."""
        before = self.relation.comparisons
        reached = set(self.top.below())
        assert reached == set(self), "every node hangs below a root, and no other does"
        for key, node in self._nodes.items():
            assert self.relation.key(node.made) == key, "nodes are found by their canonical form"
            assert node.interfaces, "somebody wants every node"
            assert node.parents, "every node hangs somewhere"
            for parent in node.parents:
                assert any(child is node for child in parent.children), "parents know their children"
                if parent is not self.top and self.relation.transitive:
                    assert self.relation.covers(parent.made, node.made), "parents cover"
            assert node not in set(node.below()), "nothing hangs below itself"
        self.relation.comparisons = before

    # -- differences between structures -------------------------------------------------------------------

    @abstractmethod
    def _place(self, node: Node[T], standing: Standing[T]) -> None:
        """Insert a new node, which equals no other, at its position."""

    @abstractmethod
    def _displace(self, node: Node[T]) -> None:
        """Remove a node, and insert the nodes below it at their new positions."""

    def _node(self, thing: T, made: Any, kind: Hashable | None) -> Node[T]:
        """A new node that is not linked yet."""
        return Node(thing, made, kind)

    # -- interfaces ---------------------------------------------------------------------------------------

    def _spare(self, node: Node[T], standing: Standing[T], interface: Interface) -> None:
        """Remove an interface from every node that the node covers (Algorithm 1, steps 2 and 3)."""
        covered = [other for other in standing.all_below(self.top, interface) if interface in other.interfaces]
        for other in covered:
            if other is not node:
                self._unwant(other, interface)

    def _want(self, node: Node[T], interface: Interface) -> None:
        node.interfaces.add(interface)
        self._places.rewanted(node)
        self._touch(node, wanted=True)

    def _unwant(self, node: Node[T], interface: Interface) -> None:
        """Remove an interface from a node, and the node itself if no interface is left."""
        if interface not in node.interfaces:
            return
        node.interfaces.discard(interface)
        self._touch(node, wanted=True)
        if node.interfaces:
            self._places.rewanted(node)
        else:
            del self._nodes[self.relation.key(node.made)]
            self._places.removed(node)
            self._displace(node)

    # -- edges ----------------------------------------------------------------------------------------

    def _link(self, parent: Node[T], child: Node[T]) -> None:
        child.parents[parent] = None
        parent.children.put(child)
        self._touch(child)
        if parent is self.top:
            self._entered[child] = None

    def _unlink(self, parent: Node[T], child: Node[T]) -> None:
        parent.children.take(child)
        del child.parents[parent]
        self._touch(child)  # perhaps only one neighbour still wants what covers it
        if parent is self.top:
            if child in self._entered:
                del self._entered[child]
            else:
                self._left[child] = None

    def touched(self) -> dict[Node[T], bool]:
        """The nodes that changed since the last call: True if their interfaces changed or they were added or removed,
        False if they only moved.
        """
        nodes = self._touched or {}
        self._touched = {}
        return nodes

    def _touch(self, node: Node[T], wanted: bool = False) -> None:
        if self._touched is not None:
            self._touched[node] = wanted or self._touched.get(node, False)

    def _change(self) -> RootChange[Any]:
        if not self._entered and not self._left:
            return _UNCHANGED
        entered = tuple(node.thing for node in self._entered if node not in self._left)
        left = tuple(node.thing for node in self._left if node not in self._entered)
        self._entered, self._left = {}, {}
        return Change(left, entered)


_UNCHANGED: RootChange[Any] = Change((), ())
