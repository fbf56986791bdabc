"""A filter's position in a covering order. A node covers everything below it. Siblings are visited smallest subtree
first (thesis 3.4), and of the roots only those whose kind can matter (thesis 6.3).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Interface = Hashable  # who wants a filter: a neighbour or a local client


class Children(Generic[T]):
    """Nodes sorted by the size of their subtrees. Cost: O(1) to add, to remove, or to move by one size."""

    __slots__ = ("_by_size", "_count")

    def __init__(self) -> None:
        self._by_size: dict[int, dict[Node[T], None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Node[T]]:
        if len(self._by_size) == 1:
            yield from next(iter(self._by_size.values()))
            return
        for size in sorted(self._by_size):
            yield from self._by_size[size]

    def put(self, node: Node[T]) -> None:
        """Add a node."""
        self._by_size.setdefault(node.size, {})[node] = None
        self._count += 1

    def take(self, node: Node[T]) -> None:
        """Remove a node. Its size must not have changed since it was added."""
        same = self._by_size[node.size]
        del same[node]
        if not same:
            del self._by_size[node.size]
        self._count -= 1


class Node(Generic[T]):
    """A filter, the interfaces that want it, and the nodes below it.

    `made` is the filter as its relation compares it; `kind` is the event type that it is confined to, or None. A node
    of a poset has many parents, a node of a forest one. The parent of a root is the imaginary root (thesis 3.3), whose
    `thing` is None.
    """

    __slots__ = ("children", "forwards", "interfaces", "kind", "made", "parents", "reach", "size", "thing")

    def __init__(self, thing: T | None, made: Any, kind: Hashable | None) -> None:
        self.thing = thing
        self.made = made
        self.kind = kind
        self.interfaces: set[Interface] = set()
        self.parents: dict[Node[T], None] = {}
        self.children: Children[T] | Roots[T] = Children()
        self.size = 1  # of the subtree; always 1 in a poset
        self.reach: dict[Interface, int] | None = None  # the interfaces below, with counts, if tracked
        self.forwards: frozenset[Interface] = frozenset()  # the neighbours to which it is forwarded

    def __repr__(self) -> str:
        return f"Node({self.thing!s}, {sorted(map(str, self.interfaces))})"

    @property
    def parent(self) -> Node[T]:
        """The only parent, in a forest."""
        (parent,) = self.parents
        return parent

    def below(self) -> Iterator[Node[T]]:
        """Every node below, each once. Cost: O(nodes below)."""
        seen: set[Node[T]] = set()
        open_ = list(self.children)
        while open_:
            node = open_.pop()
            if node not in seen:
                seen.add(node)
                yield node
                open_ += node.children

    def above(self) -> Iterator[Node[T]]:
        """Every node above except the imaginary root, each once. Cost: O(nodes above)."""
        seen: set[Node[T]] = set()
        open_ = list(self.parents)
        while open_:
            node = open_.pop()
            if node not in seen and node.parents:
                seen.add(node)
                yield node
                open_ += node.parents


class Roots(Generic[T]):
    """The root set, partitioned by the event types that its filters are confined to."""

    __slots__ = ("_by_kind", "_count")

    def __init__(self) -> None:
        self._by_kind: dict[Hashable | None, Children[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Node[T]]:
        for roots in self._by_kind.values():
            yield from roots

    def of_kind(self, kind: Hashable | None) -> Iterator[Node[T]]:
        """The roots below which a filter or an event of a type can be: those of the type, and those of any type."""
        for wanted in dict.fromkeys((kind, None)):
            yield from self._by_kind.get(wanted, ())

    def within_kind(self, kind: Hashable | None) -> Iterator[Node[T]]:
        """The roots that a filter confined to a type can cover; without a type, all."""
        yield from self if kind is None else self._by_kind.get(kind, ())

    def put(self, node: Node[T]) -> None:
        """Add a root."""
        self._by_kind.setdefault(node.kind, Children()).put(node)
        self._count += 1

    def take(self, node: Node[T]) -> None:
        """Remove a root."""
        same = self._by_kind[node.kind]
        same.take(node)
        self._count -= 1
        if not same:
            del self._by_kind[node.kind]
