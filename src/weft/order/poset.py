"""The filters poset of Siena (thesis 3.2): every node knows its immediate predecessors and successors. A path leads
down from one node to another only if the first covers the second; if covering is transitive, there is a path whenever
covering is proven.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from weft.order.node import Node
from weft.order.relation import Standing
from weft.order.structure import Structure

T = TypeVar("T")


class Poset(Structure[T], Generic[T]):
    """The filters poset (FP): the whole covering relation, without redundancy; additions cost more than in a forest.

    >>> from weft import parse
    >>> from weft.order import FilterRelation, Poset
    >>> poset = Poset(FilterRelation())
    >>> for number, text in enumerate(("x < 10", "x > 0", "x BETWEEN 2 AND 3")):
    ...     change = poset.add(parse(text), number)
    >>> sorted(str(node.thing) for node in poset.find(parse("x BETWEEN 2 AND 3")).parents)
    ['x < 10', 'x > 0']
    """

    redundant = False

    def _place(self, node: Node[T], standing: Standing[T]) -> None:
        parents, covering = self._predecessors(standing)
        start = min(parents, key=lambda parent: len(parent.children), default=self.top)
        below = {other for other in standing.all_below(start) if other not in covering}  # an equal one is above only
        successors = [other for other in below if below.isdisjoint(other.parents)]
        for parent in parents or [self.top]:
            self._link(parent, node)
        above = {self.top, *node.above()}
        for child in successors:
            for parent in above.intersection(child.parents):
                self._unlink(parent, child)
            self._link(node, child)

    def _predecessors(self, standing: Standing[T]) -> tuple[list[Node[T]], set[Node[T]]]:
        """The last covering node on every path down, and all covering nodes on the way."""
        seen: set[Node[T]] = set()
        last = []
        open_ = [self.top]
        while open_:
            node = open_.pop()
            inside = list(standing.above(node))
            if not inside and node is not self.top:
                last.append(node)
            for child in inside:
                if child not in seen:
                    seen.add(child)
                    open_.append(child)
        return last, seen

    def _displace(self, node: Node[T]) -> None:
        """Connect predecessors with successors where no other path connects them."""
        parents = [parent for parent in node.parents if parent is not self.top]
        children = list(node.children)
        for parent in list(node.parents):
            self._unlink(parent, node)
        for child in children:
            self._unlink(node, child)
        for child in children:
            above = set(child.above())
            for parent in parents:
                if parent not in above:
                    self._link(parent, child)
            if not child.parents:
                self._link(self.top, child)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        super().check()
        for node in self:
            for parent in node.parents:
                others = [other for other in node.parents if other is not parent]
                if self.relation.transitive:
                    assert all(parent not in set(other.above()) for other in others), "predecessors are immediate"
                assert parent is not self.top or not others, "a root has no predecessor"
