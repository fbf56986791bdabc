"""What one link is told by merging: the minimal cover of what all others want, as few mergers (thesis, chapter 8).
Laws: with perfect mergers nothing else is admitted; a merger is a new item, and its parts are withdrawn in the same
update.

Every link has its own merged set, so that what it is told does not depend on what it wants itself. Mergers shared by
links with equal forwards sets (8.4) do depend on it, and tables that share them may exchange updates forever.
"""

from __future__ import annotations

import math
from typing import Any

from weft.algebra.box import NormalForm
from weft.errors import WeftError
from weft.language.ast import Filter
from weft.merging import FilterMerging, MergeBudget
from weft.merging.merge_parts import MergeChange, MergeItem
from weft.merging.mergeability import Merged
from weft.merging.merged_set import MergedSet
from weft.model.schema import Schema
from weft.order import FilterRelation
from weft.routing.covering.outgoing import CoverNode
from weft.routing.item_codec import ItemCodec

MergedItem = MergeItem[Any]


class SendableMerging(FilterMerging):
    """Mergers that can be sent: a merger whose text is too long to be sent or parsed is rejected."""

    def __init__(self, schema: Schema | None, budget: MergeBudget | None, items: ItemCodec) -> None:
        super().__init__(schema, budget=budget)
        self._items = items

    def merged(self, one: Any, other: Any, room: float) -> Merged[Any] | None:
        """What two filters merge into, if that can be sent."""
        found = super().merged(one, other, room)
        try:
            if found is not None:
                assert isinstance(found.thing, Filter | NormalForm)
                self._items.refuse(found.thing)
        except WeftError:
            return None
        return found


class MergedTold:
    """The nodes that a link must know, and the items that it is told instead."""

    def __init__(self, schema: Schema | None, budget: MergeBudget | None, lazy: bool, items: ItemCodec) -> None:
        merging = SendableMerging(schema, budget, items)
        self.merged: MergedSet[Any] = MergedSet(FilterRelation(schema), merging, math.inf if lazy else 0.0)
        self._add: dict[CoverNode, None] = {}
        self._drop: dict[CoverNode, None] = {}

    def add(self, node: CoverNode) -> None:
        """Add a node that the link must know, with the next update."""
        if node in self._drop:
            del self._drop[node]
        else:
            self._add[node] = None

    def discard(self, node: CoverNode) -> None:
        """Remove a node that the link no longer needs to know, with the next update."""
        if node in self._add:
            del self._add[node]
        else:
            self._drop[node] = None

    def merge(self) -> MergeChange[Any]:
        """Merge what was added and removed; returns the items to tell and to withdraw."""
        change = self.merged.change([(node, node.item) for node in self._add], self._drop)
        self._add, self._drop = {}, {}
        return change

    def tidy(self) -> MergeChange[Any]:
        """Merge again what lost parts."""
        return self.merged.tidy(everything=True)

    @property
    def changed(self) -> bool:
        """Whether there is something to merge."""
        return bool(self._add or self._drop)


def told_item(item: MergedItem) -> Filter | NormalForm:
    """The filter or merger that is told."""
    thing: Filter | NormalForm = item.thing
    return thing
