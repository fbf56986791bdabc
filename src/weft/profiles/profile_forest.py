"""One side of a DoubleForest: profiles or queries in a forest; every node has a slot, every identity a node. A walk
compares only where neither a bound nor the forest has decided (thesis, Algorithms 11 to 13).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from weft.order.filter_relation import IndexedPlaces
from weft.order.forest import Forest
from weft.order.node import Interface, Node, Roots
from weft.order.relation import Relation
from weft.profiles.pairs import PairSlot, ProfilePairs, TopPairs

T = TypeVar("T")
ProfileKey = Hashable
Asks = Callable[[Node[Any]], bool]  # compares the thing that is being matched with a node


class _Placeholder:
    """The identity that holds preloaded things (thesis 7.1)."""

    def __repr__(self) -> str:
        return "(preloaded)"


PLACEHOLDER: Final = _Placeholder()


class Follow(Enum):
    """When a node has the same answer as its parent: if the parent matches, if it does not match, or never."""

    IN = True  # what is below a covered profile is covered
    OUT = False  # what is below a query that does not match does not match either
    NEVER = "never"


class Side(Forest[T], Generic[T]):
    """A poset-derived forest, redundant and unbalanced, whose interfaces are identities."""

    def __init__(self, relation: Relation[T], exact: Callable[[Any], bool]) -> None:
        super().__init__(relation)
        self.nodes: list[Node[T] | None] = []
        self.slots: dict[Node[T], PairSlot] = {}
        self.held: dict[ProfileKey, Node[T]] = {}
        self.inexact = 0  # nodes for which comparisons do not always decide
        self.tops: TopPairs | None = None  # notified of every edge, if present
        self._exact = exact
        self._free: list[PairSlot] = []
        self._taken: Node[T] | None = None
        self._placed = False

    @property
    def index(self) -> IndexedPlaces | None:
        """The index of boxes, if there is one."""
        return self._places if isinstance(self._places, IndexedPlaces) else None

    # -- changes --------------------------------------------------------------------------------------

    def take(self, thing: T, identity: ProfileKey) -> tuple[Node[T], bool]:
        """Add a thing for an identity; returns its node, and whether the node is new."""
        self._taken, self._placed = None, False
        try:
            self.add(thing, identity)
        except BaseException:
            if self._taken is not None and self._placed:
                self._vacate(self._taken)
            raise
        node = self._taken or self.find(thing)
        assert node is not None
        return node, self._placed

    def release(self, node: Node[T], identity: ProfileKey, pairs: ProfilePairs, side: int) -> None:
        """Remove an identity from a node. The last identity removes the node and its pairs."""
        if len(node.interfaces) > 1:
            node.interfaces.discard(identity)
            return
        self._unwant(node, identity)
        self._change()
        pairs.drop(side, self.slots[node])
        self._vacate(node)

    def _vacate(self, node: Node[T]) -> None:
        slot = self.slots.pop(node)
        self.nodes[slot] = None
        self._free.append(slot)
        self.inexact -= not self._exact(node.made)

    def _node(self, thing: T, made: Any, kind: Hashable | None) -> Node[T]:
        node = super()._node(thing, made, kind)
        if self._free:
            slot = self._free.pop()
            self.nodes[slot] = node
        else:
            slot = len(self.nodes)
            self.nodes.append(node)
        self.slots[node] = slot
        self.inexact += not self._exact(made)
        self._taken, self._placed = node, True
        return node

    def _want(self, node: Node[T], interface: Interface) -> None:
        node.interfaces.add(interface)  # no notification: O(1), however many identities share the region
        self._taken = node

    def _link(self, parent: Node[T], child: Node[T]) -> None:
        super()._link(parent, child)
        if self.tops is not None:
            self.tops.hung(parent, child)

    def _unlink(self, parent: Node[T], child: Node[T]) -> None:
        if self.tops is not None:
            self.tops.unhanging(child)
        super()._unlink(parent, child)

    # -- walks: the slots that match --------------------------------------------------------------------

    def walk(self, kind: Hashable | None, asks: Asks, upper: bytes, lower: bytes, on: bool) -> list[PairSlot]:
        """The nodes that match, from the roots down. Below a mismatch, the walk continues only if `on` is set."""
        found, slots = [], self.slots
        roots = self.top.children
        open_ = list(roots.of_kind(kind) if kind is not None and isinstance(roots, Roots) else roots)
        while open_:
            node = open_.pop()
            slot = slots[node]
            if lower[slot] or (upper[slot] and _may_meet(node.kind, kind) and asks(node)):
                found.append(slot)
            elif not on:
                continue
            if node.children:
                open_ += node.children
        return found

    def go_through(
        self, some: Iterable[PairSlot], kind: Hashable | None, asks: Asks, lower: bytes, follow: Follow
    ) -> list[PairSlot]:
        """Those of the given nodes that match, wider ones compared first. The rest of `lower` matches, all others do
        not.

        `follow` states when a node has the same answer as its parent.
        """
        found, slots, top = [], self.slots, self.top
        answers = bytearray(lower)
        nodes = [node for slot in some if (node := self.nodes[slot]) is not None]
        nodes.sort(key=_size, reverse=True)
        for node in nodes:
            (parent,) = node.parents
            above = None if parent is top else bool(answers[slots[parent]])
            if above is follow.value:
                answered = above is True
            else:
                answered = _may_meet(node.kind, kind) and asks(node)
            if answered:
                answers[slots[node]] = 1
                found.append(slots[node])
        return found

    # -- contents ---------------------------------------------------------------------------------------

    def top_down(self) -> Iterator[Node[T]]:
        """Every node, parents first."""
        open_ = list(self.roots)
        while open_:
            node = open_.pop()
            yield node
            open_ += node.children

    def taxonomy(self) -> list[dict[str, Any]]:
        """The forest as nested records of filter, identities and the nodes below, sorted by their texts."""
        return _records(self.top)

    def outline(self) -> str:
        """The forest as text, one line per node, indented by depth."""
        lines = []
        open_ = [(0, record) for record in reversed(self.taxonomy())]
        while open_:
            depth, record = open_.pop()
            names = ", ".join(record["identities"])
            lines.append("  " * depth + record["filter"] + (f"  [{names}]" if names else ""))
            open_ += [(depth + 1, below) for below in reversed(record["below"])]
        return "\n".join(lines)


def identities(node: Node[T]) -> list[ProfileKey]:
    """The identities that hold a node, without the placeholder."""
    return [identity for identity in node.interfaces if identity is not PLACEHOLDER]


def _size(node: Node[Any]) -> int:
    return node.size


def _may_meet(one: Hashable | None, other: Hashable | None) -> bool:
    """Whether kinds allow one to cover or overlap the other: different event types have no event in common."""
    return one is None or other is None or one == other


def _records(top: Node[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    open_ = [(top, found)]
    while open_:
        node, into = open_.pop()
        for child in sorted(node.children, key=lambda child: str(child.thing)):
            below: list[dict[str, Any]] = []
            names = sorted(str(identity) for identity in identities(child))
            into.append({"filter": str(child.thing), "identities": names, "below": below})
            open_.append((child, below))
    return found
