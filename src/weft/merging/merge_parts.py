"""The parts that neighbours are told, found by covering and by mergeability. An item keeps its identity as long as
something of the same canonical form is told. A change never adds what it also drops.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from weft.model.change import Change
from weft.order.node import Node, Roots
from weft.order.relation import Relation

T = TypeVar("T")

DEEP = 64  # levels of a merger, above which it may be a chain


@dataclass(frozen=True, slots=True, eq=False)
class MergeItem(Generic[T]):
    """Something that neighbours are told, with an identity of its own: a filter, or a merger of several filters."""

    thing: T


MergeChange = Change[tuple[MergeItem[T], ...], tuple[MergeItem[T], ...]]  # items to withdraw, and items to tell


class MergePart(Generic[T]):
    """A filter, or a merger of two parts, and what it covers. A part without an owner is a whole, and is told."""

    __slots__ = (
        *("breadth", "covered", "deep", "false", "ghost", "height", "item", "key", "kind", "leaves", "live", "made"),
        *("node", "owner", "parts", "signatures", "thing", "waste"),
    )

    def __init__(
        self, thing: T, relation: Relation[T], parts: tuple[MergePart[T], ...] = (), waste: float = 0.0
    ) -> None:
        self.thing = thing
        self.made: Any = relation.make(thing)
        self.key = relation.key(self.made)
        self.kind = relation.kind(self.made)
        self.parts = parts
        self.covered: dict[MergePart[T], None] = {}
        self.owner: MergePart[T] | None = None
        self.waste: float = waste + sum(part.waste for part in parts)  # upper bound, as a share of all events
        self.false: float = sum(part.false for part in parts)  # false positives that were counted
        self.live: int = sum(part.live for part in parts) if parts else 1  # its filters that are still wanted
        self.deep: int = max(part.deep for part in parts) if parts else DEEP
        self.height: int = 1 + max(part.height for part in parts) if parts else 0
        self.leaves: int = sum(part.leaves for part in parts) if parts else 1  # the filters that it is made of
        self.breadth: float | None = None  # None until it is computed
        self.ghost = False  # a filter that is no longer wanted, in a merger that stays for a while
        self.signatures: tuple[Hashable, ...] = ()
        self.node: Node[T] | None = None
        self.item: MergeItem[T] | None = None
        for part in parts:
            part.owner = self

    def filters(self) -> Iterator[MergePart[T]]:
        """The filters that it is made of (CO)."""
        open_ = [self]
        while open_:
            part = open_.pop()
            if part.parts:
                open_ += part.parts
            else:
                yield part

    def everything(self) -> Iterator[MergePart[T]]:
        """All parts in it, including those in what it covers."""
        open_ = [self]
        while open_:
            part = open_.pop()
            yield part
            open_ += (*part.parts, *part.covered)

    @property
    def whole(self) -> MergePart[T]:
        """The part without an owner that contains this one."""
        part = self
        while part.owner is not None:
            part = part.owner
        return part

    def adopt(self, part: MergePart[T]) -> None:
        """Store a part that this one covers."""
        part.owner = self
        self.covered[part] = None
        self.weigh(part.live)

    def disown(self, part: MergePart[T]) -> None:
        """Release a part that this one covers."""
        part.owner = None
        del self.covered[part]
        self.weigh(-part.live)

    def weigh(self, live: int) -> None:
        """Change the number of wanted filters in this part and its owners. Cost: O(depth)."""
        part: MergePart[T] | None = self
        while part is not None:
            part.live += live
            part = part.owner


class ToldParts(Generic[T]):
    """The wholes that are told. A change or a query costs as much as it does in the relation's places."""

    def __init__(self, relation: Relation[T]) -> None:
        self.waste = 0.0
        self.items: dict[MergeItem[T], MergePart[T]] = {}
        self._top: Node[T] = Node(None, None, None)
        self._top.children = Roots()
        self._places = relation.places()
        self._parts: dict[Node[T], MergePart[T]] = {}
        self._alike: dict[Hashable, dict[MergePart[T], None]] = {}
        self._appeared: dict[MergePart[T], None] = {}
        self._gone: dict[MergePart[T], None] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[MergePart[T]]:
        return iter(self._parts.values())

    def around(self, part: MergePart[T]) -> tuple[MergePart[T] | None, list[MergePart[T]]]:
        """One whole that covers a part; if there is none, the wholes that the part covers."""
        standing = self._places.standing(part.made, part.kind)
        for node in standing.all_above(self._top):
            return self._parts[node], []
        return None, [self._parts[node] for node in standing.all_below(self._top)]

    def alike(self, signatures: Iterable[Hashable], tries: int) -> Iterator[MergePart[T]]:
        """The wholes that share a signature: at most `tries` for each, the latest first."""
        for signature in signatures:
            for part, _ in zip(reversed(self._alike.get(signature, {})), range(tries), strict=False):
                yield part

    def tell(self, part: MergePart[T]) -> None:
        """Add a whole."""
        node = part.node = Node(part.thing, part.made, part.kind)
        node.parents[self._top] = None
        self._top.children.put(node)
        self._places.placed(node)
        self._parts[node] = part
        self.waste += part.waste
        for signature in part.signatures:
            self._alike.setdefault(signature, {})[part] = None
        if part in self._gone:
            del self._gone[part]
        else:
            self._appeared[part] = None

    def withdraw(self, part: MergePart[T]) -> None:
        """Remove a whole."""
        node, part.node = part.node, None
        assert node is not None
        self._top.children.take(node)
        self._places.removed(node)
        del self._parts[node]
        self.waste = self.waste - part.waste if self._parts else 0.0
        for signature in dict.fromkeys(part.signatures):
            same = self._alike[signature]
            del same[part]
            if not same:
                del self._alike[signature]
        if part in self._appeared:
            del self._appeared[part]
        else:
            self._gone[part] = None

    def changes(self) -> MergeChange[T]:
        """The changes since the last call. An item that passes to another part of the same canonical form is not told
        again.
        """
        if not self._appeared and not self._gone:
            return Change((), ())
        left: dict[Hashable, list[MergeItem[T]]] = {}
        for part in self._gone:
            assert part.item is not None
            left.setdefault(part.key, []).append(part.item)
            part.item = None
        added = []
        for part in self._appeared:
            same = left.get(part.key)
            item = part.item = same.pop() if same else MergeItem(part.thing)
            if item not in self.items:
                added.append(item)
            self.items[item] = part
        dropped = tuple(item for items in left.values() for item in items)
        for item in dropped:
            del self.items[item]
        self._appeared, self._gone = {}, {}
        return Change(dropped, tuple(added))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert {part for same in self._alike.values() for part in same} <= set(self)
        assert abs(self.waste - sum(part.waste for part in self)) < 1e-9, "waste is counted"
        assert set(self.items.values()) == set(self), "every item stands for what is told"
        assert all(part.item is item for item, part in self.items.items()), "and that for the item"
        assert not {*self._appeared, *self._gone}, "every change was asked for"
