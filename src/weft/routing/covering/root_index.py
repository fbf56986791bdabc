"""The nodes that are told to any link, in an index. A search for some links finds every node that is told to one of
them and may cover, or be covered. `covers` is True only when proven.

A mask of links is a tag of 64 bits in the index.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.algebra.box import NormalForm
from weft.algebra.budget import Budget
from weft.algebra.relate import as_form
from weft.model.paged_dict import PagedDict
from weft.model.schema import Schema
from weft.order.cover_index import CoverIndex, CoverRow
from weft.routing.covering.cover_node import CoverNode, LinkMask
from weft.routing.covering.extent import AxisSpan, Extents
from weft.routing.covering.form_pairs import FormPairs

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
