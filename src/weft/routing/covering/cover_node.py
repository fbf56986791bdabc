"""Nodes of covering forests, and the edges between them. Both ends of an edge know it, with the same links."""

from __future__ import annotations

from typing import Any

from weft.algebra.box import NormalForm
from weft.language.ast import Filter
from weft.order.cover_index import CoverRow
from weft.routing.covering.extent import Extent
from weft.routing.interface import TableInterface

LinkMask = int  # a set of links, one bit per link


class CoverNode:
    """A filter by its canonical key: its holders, the links that are told it, and its place for the other links."""

    __slots__ = ("above", "below", "form", "holders", "hull", "item", "key", "leaving", "number", "row", "told")

    def __init__(self, number: int, item: Filter | NormalForm, extent: Extent) -> None:
        self.number = number  # of no other node, ever
        self.item = item
        self.key = extent.key
        self.form = extent.form  # if it is not a box
        self.hull = None if extent.exact else extent.spans
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
