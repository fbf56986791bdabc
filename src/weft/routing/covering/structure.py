"""The forest of covering: nodes and edges, the index of its roots, and answers of `covers`.

Answers of `covers` about the newest filter of a table. A pair of normal forms is compared once. True is given only
when proven.

The forest of a table and the merged sets of its links ask the same questions about a filter that was added. Forms are
known by identity. Answers are forgotten when the next filter is added, so that no form is kept for long.

Nodes of covering forests, and the edges between them. Both ends of an edge know it, with the same links.

The nodes that are told to any link, in an index. A search for some links finds every node that is told to one of
them and may cover, or be covered. `covers` is True only when proven.

A mask of links is a tag of 64 bits in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.algebra.box import NormalForm, required_memberships
from weft.algebra.budget import Budget
from weft.algebra.relate import as_form, covers_within
from weft.model.paged_dict import PagedDict
from weft.model.schema import Schema
from weft.order.cover_index import CoverIndex, CoverRow
from weft.routing.covering.space import Extents
from weft.routing.interface import TableInterface
from weft.routing.routed_filter import AxisSpan, RoutedFilter

_MOST = 1_024  # pairs
_NONE: frozenset[str] = frozenset()


class FormPairs:
    """Pairs of forms that were compared, and whether the first covers the second."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._known: dict[tuple[int, int], tuple[NormalForm, NormalForm, bool]] = {}  # holds them: ids stay theirs

    def __len__(self) -> int:
        return len(self._known)

    def covers(self, wide: NormalForm, narrow: NormalForm, budget: Budget) -> bool:
        """Whether a form surely covers another: as it was found before, or within the budget of a search."""
        key = id(wide), id(narrow)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = wide, narrow, covers_within(wide, narrow, self._schema, budget)
        return known[2]

    def clear(self) -> None:
        """Forget all answers."""
        self._known.clear()


LinkMask = int  # a set of links, one bit per link


class CoverNode:
    """A filter by its canonical key: its holders, the links that are told it, and its place for the other links."""

    __slots__ = (
        *("above", "below", "form", "holders", "hull", "item", "key", "leaving", "members", "number", "row", "told"),
    )

    def __init__(self, number: int, routed: RoutedFilter) -> None:
        self.number = number  # of no other node, ever
        self.item = routed.item
        self.key = routed.key
        self.form = routed.form  # if it is not a box
        self.hull = None if routed.exact else routed.spans
        self.members = _NONE if routed.form is None else required_memberships(routed.form)
        self.holders: dict[TableInterface[Any, Any], int] = {}
        self.told: LinkMask = 0
        self.leaving: LinkMask = 0  # still told, until all nodes below have another place
        self.above: dict[CoverNode, LinkMask] = {}  # its witnesses
        self.below: dict[CoverNode, LinkMask] | None = None
        self.row: CoverRow = -1

    def __repr__(self) -> str:
        return f"CoverNode({self.item!s}, told {self.told:b})"

    @property
    def hung(self) -> LinkMask:
        """The links for which it is below another node."""
        mask = 0
        for some in self.above.values():
            mask |= some
        return mask

    @property
    def bearing(self) -> LinkMask:
        """The links for which other nodes are below it."""
        mask = 0
        for some in (self.below or {}).values():
            mask |= some
        return mask


def hang(witness: CoverNode, node: CoverNode, mask: LinkMask) -> None:
    """Place a node below a witness, for some links."""
    if witness.below is None:
        witness.below = {}
    witness.below[node] = witness.below.get(node, 0) | mask
    node.above[witness] = node.above.get(witness, 0) | mask


def unhang(witness: CoverNode, node: CoverNode, mask: LinkMask) -> None:
    """Remove a node from below a witness, for some links."""
    assert witness.below is not None
    left = witness.below[node] & ~mask
    if left:
        witness.below[node] = node.above[witness] = left
    else:
        del witness.below[node], node.above[witness]
        if not witness.below:
            witness.below = None


def splice_out(ghost: CoverNode, child: CoverNode) -> None:
    """Place the only node below a ghost below the witnesses of the ghost."""
    assert ghost.below is not None
    mask = ghost.below[child]
    unhang(ghost, child, mask)
    for witness, some in ghost.above.items():
        if some & mask:
            hang(witness, child, some & mask)


_TAGGED = 63  # links with a bit of their own in the index; all others share the last
_SHARED = 1 << _TAGGED


class RootIndex:
    """The roots of all links."""

    def __init__(self, schema: Schema | None, extents: Extents) -> None:
        self.index = CoverIndex()
        self.nodes: PagedDict[CoverRow, CoverNode] = PagedDict()
        self.pairs = FormPairs(schema)
        self._schema = schema
        self._extents = extents

    def tag(self, node: CoverNode, spans: Sequence[AxisSpan] | None = None) -> None:
        """Update the index, which contains the nodes that are told."""
        if node.told:
            if node.row < 0:
                node.row = self.index.add(self.spans(node) if spans is None else spans, node.form is None)
                self.nodes[node.row] = node
            self.index.tag(node.row, tag_of(node.told & ~node.leaving))
        elif node.row >= 0:
            self.index.discard(node.row)
            del self.nodes[node.row]
            node.row = -1

    def may_cover(self, wide: CoverNode, narrow: CoverNode) -> bool:
        """False only if `covers` is, by the values that lists must have: there may be very many. Cost: O(values)."""
        return wide.members <= narrow.members

    def covers(self, wide: CoverNode, narrow: CoverNode, budget: Budget) -> bool:
        """Whether a node surely covers another; when the budget of the search is used up, none does."""
        for node in (wide, narrow):
            if node.form is None:  # its normal form is made anew
                budget.charge(len(self._extents.spans(node.key)))
        if budget.left <= 0:
            return False
        return self.pairs.covers(self._form(wide), self._form(narrow), budget)

    def _form(self, node: CoverNode) -> NormalForm:
        return as_form(node.item, self._schema) if node.form is None else node.form

    def spans(self, node: CoverNode) -> Sequence[AxisSpan]:
        """The hull of a node, which is exact if there is no form."""
        return self._extents.spans(node.key) if node.hull is None else node.hull

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.index.check()
        assert len(self.index) == len(self.nodes)


def tag_of(mask: LinkMask) -> int:
    """A mask as a 64-bit tag."""
    return mask if mask < _SHARED else mask & (_SHARED - 1) | _SHARED
