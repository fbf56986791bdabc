"""The mergers that one link is told: the minimal cover of what all others want, as few mergers as possible (thesis,
chapter 8). With perfect mergers nothing else is admitted. A merger is a new item, and its parts are withdrawn in the
same update.

Every link has its own merged set, so that what it is told does not depend on what it wants itself. Mergers shared by
links with equal forwards sets (8.4) do depend on it, and tables that share them may exchange updates forever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from weft.algebra.box import NormalForm
from weft.algebra.budget import Budget
from weft.errors import WeftError
from weft.language.ast import Filter
from weft.merging import FilterMerging, MergeBudget
from weft.merging.merge_parts import MergeChange, MergeItem
from weft.merging.mergeability import Merged
from weft.merging.merged_set import MergedSet
from weft.model.change import Change
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.order.filter_relation import Boxed, FilterRelation
from weft.routing.covering.structure import CoverNode, FormPairs
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


class SharedForms(FilterRelation):
    """The relation of all links of a table: what one link has made of a filter serves the next."""

    def __init__(self, schema: Schema | None, pairs: FormPairs) -> None:
        super().__init__(schema, search=LIMITS.steps // 5)
        self._pairs = pairs  # shared with the forest of the table
        self._recent: dict[int, tuple[Any, Boxed]] = {}  # by the identity of the filter; the oldest goes
        self._room = _MOST_RECENT

    def make(self, thing: Any, form: NormalForm | None = None) -> Boxed:
        """The filter's normal form and hull; `form` is the normal form, if it is known."""
        known = self._recent.get(id(thing))
        if known is not None and known[0] is thing:
            return known[1]
        made = super().make(thing if form is None else form)
        self._recent[id(thing)] = thing, made
        self._room -= _weight(made)
        while self._room < 0:
            self._room += _weight(self._recent.pop(next(iter(self._recent)))[1])
        return made

    def comparing(self) -> Callable[[Boxed, Boxed], bool]:
        """`covers` within the steps of a search; a link gets the answers that the forest and other links got."""
        budget = Budget(self.search)

        def covers_in_search(wide: Boxed, narrow: Boxed) -> bool:
            self.comparisons += 1
            return budget.left > 0 and self._pairs.covers(wide.form, narrow.form, budget)

        return covers_in_search


def _weight(made: Boxed) -> int:
    return 1 + sum([len(box.sets) for box in made.form.boxes])


_MOST_RECENT = 100_000  # value sets of the filters that are remembered


class MergedTold:
    """The nodes that a link must know, and the items that it is told instead. Nodes merge within their group."""

    def __init__(self, relation: SharedForms, budget: MergeBudget | None, lazy: bool, items: ItemCodec) -> None:
        self._merging = SendableMerging(relation.schema, budget, items)
        self._relation = relation
        self._patience = math.inf if lazy else 0.0
        self._merged: dict[Hashable, MergedSet[Any]] = {}
        self._groups: dict[CoverNode, Hashable] = {}  # a node stays in its group as long as it is told
        self._add: dict[CoverNode, Hashable] = {}
        self._drop: dict[CoverNode, None] = {}

    def add(self, node: CoverNode, group: Hashable = None) -> None:
        """Add a node that the link must know, with the next update."""
        if node in self._drop:
            del self._drop[node]
        else:
            self._add[node] = group

    def discard(self, node: CoverNode) -> None:
        """Remove a node that the link no longer needs to know, with the next update."""
        if node in self._add:
            del self._add[node]
        else:
            self._drop[node] = None

    def merge(self) -> MergeChange[Any]:
        """Merge what was added and removed; returns the items to tell and to withdraw."""
        for node in self._add:
            if node.form is not None:
                self._relation.make(node.item, node.form)
        changed: dict[Hashable, tuple[list[CoverNode], list[CoverNode]]] = {}
        for node, group in self._add.items():
            self._groups[node] = group
            changed.setdefault(group, ([], []))[0].append(node)
        for node in self._drop:
            changed.setdefault(self._groups.pop(node), ([], []))[1].append(node)
        self._add, self._drop = {}, {}
        changes = []
        for group, (add, drop) in changed.items():
            merged = self._merged.get(group)
            if merged is None:
                merged = self._merged[group] = MergedSet(self._relation, self._merging, self._patience)
            changes.append(merged.change([(node, node.item) for node in add], drop))
            if not merged:
                del self._merged[group]
        return _joined(changes)

    def tidy(self) -> MergeChange[Any]:
        """Merge again what lost parts."""
        tidied = _joined([merged.tidy(everything=True) for merged in self._merged.values()])
        self._merged = {group: merged for group, merged in self._merged.items() if merged}
        return tidied

    @property
    def changed(self) -> bool:
        """Whether there is something to merge."""
        return bool(self._add or self._drop)

    @property
    def filters(self) -> int:
        """The number of nodes in mergers."""
        return sum(merged.filters for merged in self._merged.values())

    def __contains__(self, node: CoverNode) -> bool:
        return node in self._groups and node in self._merged[self._groups[node]]

    def __iter__(self) -> Iterator[MergedItem]:
        return (item for merged in self._merged.values() for item in merged)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for merged in self._merged.values():
            merged.check()


def _joined(changes: Sequence[MergeChange[Any]]) -> MergeChange[Any]:
    """Changes of several sets as one."""
    if len(changes) == 1:
        return changes[0]
    drop = tuple(item for change in changes for item in change.drop)
    return Change(drop, tuple(item for change in changes for item in change.add))


def told_item(item: MergedItem) -> Filter | NormalForm:
    """The filter or merger that is told."""
    thing: Filter | NormalForm = item.thing
    return thing
