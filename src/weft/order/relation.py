"""The relation of what is ordered: how two things compare. `covers` is True only when proven. It need not be
transitive. Every comparison is counted.

A structure finds the position of a new thing among its nodes through a `Standing`. The plain one compares with node
after node, from the roots down (thesis 3.2.2, 3.3). For filters that are boxes, it queries an index once
(`filter_relation`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from weft.order.node import Interface, Node, Roots

T = TypeVar("T")


class Standing(Protocol[T]):
    """The position of a thing among the nodes of one structure."""

    def above(self, parent: Node[T], first: Interface | None = None) -> Iterator[Node[T]]:
        """The children of a node that cover the thing, smallest subtree first. If an interface is given, children that
        lead to it come first.
        """

    def below(self, parent: Node[T]) -> Iterator[Node[T]]:
        """The children of a node that the thing covers."""

    def all_above(self, top: Node[T]) -> Iterator[Node[T]]:
        """Every node that is found to cover the thing."""

    def has_above(self, top: Node[T], interface: Interface) -> bool:
        """Whether an interface wants a node that is found to cover the thing."""

    def all_below(self, top: Node[T], interface: Interface | None = None) -> Iterator[Node[T]]:
        """Every node below `top` that the thing covers; with an interface, only those that can lead to it."""


class Relation(Generic[T]):
    """Things with `covers`: filters, attribute filters, rates, anything.

    >>> ranges = Relation(lambda wide, narrow: wide[0] <= narrow[0] and narrow[1] <= wide[1])
    >>> ranges.covers((0, 10), (5, 9)), ranges.covers((0, 10), (8, 15)), ranges.comparisons
    (True, False, 2)
    """

    def __init__(
        self,
        covers: Callable[[Any, Any], bool],
        *,
        make: Callable[[T], Any] | None = None,
        key: Callable[[Any], Hashable] | None = None,
        kind: Callable[[Any], Hashable | None] | None = None,
        transitive: bool = True,
    ) -> None:
        self.comparisons = 0
        self.transitive = transitive  # if False, a node's subtree lies in it, but `covers` may not prove that
        self._covers = covers
        self._make = make
        self._key = key
        self._kind = kind

    def make(self, thing: T) -> Any:
        """The thing in the form in which it is compared, computed once."""
        return thing if self._make is None else self._make(thing)

    def key(self, made: Any) -> Hashable:
        """The identity of a thing: things with equal keys share one node."""
        return made if self._key is None else self._key(made)

    def kind(self, made: Any) -> Hashable | None:
        """The event type that a thing is confined to, or None. Things of different kinds never cover each other."""
        return None if self._kind is None else self._kind(made)

    def covers(self, wide: Any, narrow: Any) -> bool:
        """True only if all of `narrow` is proven to be in `wide`."""
        self.comparisons += 1
        return self._covers(wide, narrow)

    def places(self) -> NodePlaces[T]:
        """The nodes of one structure by position; each structure has its own."""
        return Walks(self)


class NodePlaces(Protocol[T]):
    """The nodes of one structure, and the position of a thing among them."""

    def standing(self, made: Any, kind: Hashable | None) -> Standing[T]:
        """The position of a thing."""

    def placed(self, node: Node[T]) -> None:
        """Called for every node that is added to the structure."""

    def rewanted(self, node: Node[T]) -> None:
        """Called for every node whose interfaces change."""

    def removed(self, node: Node[T]) -> None:
        """Called for every node that is removed from the structure."""


class Walks(Generic[T]):
    """Places without an index: every thing walks the structure."""

    def __init__(self, relation: Relation[T]) -> None:
        self._relation = relation

    def standing(self, made: Any, kind: Hashable | None) -> Standing[T]:
        """A walk that has not started."""
        return Walk(self._relation, made, kind)

    def placed(self, node: Node[T]) -> None:
        """Nothing to store."""

    def rewanted(self, node: Node[T]) -> None:
        """Nothing to store."""

    def removed(self, node: Node[T]) -> None:
        """Nothing to remove."""


class Walk(Generic[T]):
    """A thing that is compared with node after node, at most once per node and direction."""

    def __init__(self, relation: Relation[T], made: Any, kind: Hashable | None) -> None:
        self._relation = relation
        self._made = made
        self._kind = kind
        self._covered: dict[Node[T], bool] = {}
        self._covering: dict[Node[T], bool] = {}

    def above(self, parent: Node[T], first: Interface | None = None) -> Iterator[Node[T]]:
        """The children that cover the thing, compared lazily."""
        children: Iterable[Node[T]] = parent.children
        if isinstance(children, Roots):
            children = children.of_kind(self._kind)
        if first is not None:
            children = sorted(children, key=lambda child: not reaches(child, first))
        for child in children:
            if self._is_below(child):
                yield child

    def below(self, parent: Node[T]) -> Iterator[Node[T]]:
        """The children that the thing covers."""
        children = parent.children
        for child in list(children.within_kind(self._kind) if isinstance(children, Roots) else children):
            if self._is_above(child):
                yield child

    def all_above(self, top: Node[T]) -> Iterator[Node[T]]:
        """All nodes that cover the thing, found along chains of such nodes: the nodes above them cover it too."""
        seen: set[Node[T]] = set()
        open_ = [top]
        while open_:
            for node in self.above(open_.pop()):
                if node not in seen:
                    seen.add(node)
                    yield node
                    open_.append(node)

    def has_above(self, top: Node[T], interface: Interface) -> bool:
        """Whether an interface wants one of the nodes that cover the thing."""
        return any(interface in node.interfaces for node in self.all_above(top))

    def all_below(self, top: Node[T], interface: Interface | None = None) -> Iterator[Node[T]]:
        """All nodes that the thing covers. The nodes below one of them are covered too and are not compared."""
        seen: set[Node[T]] = set()
        children = top.children
        typed = isinstance(children, Roots) and self._kind is not None
        open_ = list(children.of_kind(self._kind) if typed else children)  # type: ignore[union-attr]
        while open_:
            node = open_.pop()
            if node in seen or not reaches(node, interface):
                continue
            seen.add(node)
            if self._is_above(node):
                yield node
                for deeper in node.below():
                    if deeper not in seen:
                        seen.add(deeper)
                        yield deeper
            else:
                open_ += node.children

    def _is_below(self, node: Node[T]) -> bool:
        known = self._covering.get(node)
        if known is None:
            known = self._covering[node] = self._relation.covers(node.made, self._made)
        return known

    def _is_above(self, node: Node[T]) -> bool:
        known = self._covered.get(node)
        if known is None:
            known = self._covered[node] = self._relation.covers(self._made, node.made)
        return known


def reaches(node: Node[T], interface: Interface | None) -> bool:
    """Whether an interface may want the node or one below it."""
    return interface is None or node.reach is None or interface in node.interfaces or interface in node.reach
