"""Forwards sets (thesis 3.2.1, 3.5): the filters that each neighbour must be told. If exact, the filters forwarded to a
neighbour are the minimal cover of what all others want (Theorem 3.1). If approximate, they are that and at most a few
more.

By Equation 3.1, a neighbour is not told a filter that only it wants, nor one that is covered by another filter that it
is told. A filter that others cover is therefore forwarded only if a single neighbour wants all of those, and only to
that neighbour. Only roots and the filters directly below them can be forwarded (Theorem 3.4; a root whose only
subscriber is the only neighbour is forwarded to no one, an erratum).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from weft.model.change import Change
from weft.order.node import Interface, Node
from weft.order.poset import Poset
from weft.order.structure import Structure

T = TypeVar("T")
ForwardChange = Change[list[Node[T]], list[Node[T]]]  # what one neighbour must be told
_NOBODY: frozenset[Interface] = frozenset()


class Forwarding(Generic[T]):
    """A structure whose filters are forwarded to neighbours; other interfaces are local clients.

    With `exact` False, only the relations stored in the forest are considered (thesis 4.5): this is faster, and
    occasionally forwards a filter that is not needed.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Forwarding, Poset
    >>> table = Forwarding(Poset(FilterRelation()), ["I1", "I2", "I3"])
    >>> sent = table.add(parse("x > 0"), "I1")
    >>> {to: [str(node.thing) for node in told.add] for to, told in sent.items()}
    {'I2': ['x > 0'], 'I3': ['x > 0']}
    >>> sent = table.add(parse("x > 5"), "I2")
    >>> {to: [str(node.thing) for node in told.add] for to, told in sent.items()}
    {'I1': ['x > 5']}
    """

    def __init__(self, structure: Structure[T], neighbours: Iterable[Interface] = (), exact: bool = True) -> None:
        self.structure = structure
        self.exact = exact
        self.neighbours: dict[Interface, None] = {}
        self.touched = structure.touched()  # nodes that the last change moved, or that other interfaces want since
        self._told: dict[Interface, dict[Node[T], None]] = {}
        for neighbour in neighbours:
            self.attach(neighbour)

    def add(self, thing: T, interface: Interface) -> dict[Interface, ForwardChange[T]]:
        """Add a filter; returns what each neighbour must now be told."""
        self.structure.add(thing, interface)
        return self._settle()

    def discard(self, thing: T, interface: Interface) -> dict[Interface, ForwardChange[T]]:
        """Remove a filter. Filters that only it had covered are forwarded in the same change (the uncovered set)."""
        self.structure.discard(thing, interface)
        return self._settle()

    def change(
        self, add: Iterable[tuple[T, Interface]], drop: Iterable[tuple[T, Interface]]
    ) -> dict[Interface, ForwardChange[T]]:
        """Apply removals, then additions, as one change."""
        for thing, interface in drop:
            self.structure.discard(thing, interface)
        for thing, interface in add:
            self.structure.add(thing, interface)
        return self._settle()

    def attach(self, neighbour: Interface) -> ForwardChange[T]:
        """Add a neighbour; returns what it must be told. Cost: O(nodes)."""
        self.neighbours[neighbour] = None
        self._told[neighbour] = {}
        return self._settle(everything=True).get(neighbour, Change([], []))

    def detach(self, neighbour: Interface) -> dict[Interface, ForwardChange[T]]:
        """Remove a neighbour, or a client, and everything that it wanted. Cost: O(nodes)."""
        self.neighbours.pop(neighbour, None)
        self._told.pop(neighbour, None)
        for node in self.structure:
            node.forwards -= {neighbour}
        self.structure.discard_interface(neighbour)
        return self._settle(everything=True)

    def told(self, neighbour: Interface) -> list[Node[T]]:
        """Everything that a neighbour is told. Cost: O(told)."""
        return list(self._told[neighbour])

    def forwards(self, node: Node[T]) -> frozenset[Interface]:
        """The neighbours to which a node must be forwarded (Equation 3.1)."""
        if not node.parents:
            return _NOBODY  # removed
        if self.structure.top in node.parents:
            return frozenset(self.neighbours) - (node.interfaces if len(node.interfaces) == 1 else _NOBODY)
        only = _sole(next(iter(node.parents)))
        if only is None or only not in self.neighbours or node.interfaces == {only}:
            return _NOBODY
        return frozenset((only,)) if self._wanted_by_one(node, only) else _NOBODY

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.structure.check()
        before = self.structure.relation.comparisons
        for node in self.structure:
            assert node.forwards == self.forwards(node), f"forwards sets are kept up to date: {node}"
        for neighbour, told in self._told.items():
            assert set(told) == {node for node in self.structure if neighbour in node.forwards}
        self.structure.relation.comparisons = before

    def _wanted_by_one(self, node: Node[T], neighbour: Interface) -> bool:
        """Whether a single neighbour wants all of the nodes that cover this one."""
        if not all(_sole(parent) == neighbour for parent in node.above()):
            return False
        if not self.exact or isinstance(self.structure, Poset):
            return True
        relation, thing = self.structure.relation, node.thing
        assert thing is not None
        return not any(
            _sole(other) != neighbour and other is not node and not relation.covers(node.made, other.made)
            for other in self.structure.standing(thing).all_above(self.structure.top)
        )

    def _settle(self, everything: bool = False) -> dict[Interface, ForwardChange[T]]:
        """Recompute the forwards sets that may have changed: those of all nodes, or of what changed and what
        it covers.
        """
        self.touched = touched = self.structure.touched()
        nodes = dict.fromkeys(touched)
        if everything:
            nodes |= dict.fromkeys(self.structure)
        else:
            nodes |= self._below(touched)
            if self.exact and not isinstance(self.structure, Poset):
                for changed in [node for node, wanted in touched.items() if wanted]:
                    nodes |= dict.fromkeys(self._near_roots(changed))
        changes: dict[Interface, ForwardChange[T]] = {}
        for node in nodes:
            new = self.forwards(node)
            for neighbour in sorted(node.forwards - new, key=str):
                changes.setdefault(neighbour, Change([], [])).drop.append(node)
                del self._told[neighbour][node]
            for neighbour in sorted(new - node.forwards, key=str):
                changes.setdefault(neighbour, Change([], [])).add.append(node)
                self._told[neighbour][node] = None
            node.forwards = new
        return changes

    def _below(self, touched: Iterable[Node[T]]) -> dict[Node[T], None]:
        """The nodes directly covered; with redundancy, also those below a chain of nodes that a single
        neighbour wants.
        """
        found: dict[Node[T], None] = {}
        open_ = list(touched)
        while open_:
            node = open_.pop()
            for child in node.children:
                if child not in found:
                    found[child] = None
                    sole = _sole(child)  # where covering is not transitive, it may want the node above too
                    if sole in self.neighbours and (self.structure.redundant or sole in node.interfaces):
                        open_.append(child)
        return found

    def _near_roots(self, changed: Node[T]) -> list[Node[T]]:
        """The roots and their children that a node covers; a forest need not have placed them below it."""
        top = self.structure.top
        assert changed.thing is not None
        covered = self.structure.standing(changed.thing).all_below(top)
        return [
            node
            for node in covered
            if top in node.parents
            or top in node.parent.parents
            or node.forwards
            or (self.structure.redundant and _sole(node.parent) in self.neighbours)
        ]


def _sole(node: Node[T]) -> Interface | None:
    return next(iter(node.interfaces)) if len(node.interfaces) == 1 else None
