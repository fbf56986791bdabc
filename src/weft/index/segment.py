"""A segment: a partition tree over rows, never changed once built. It finds what its rows hold.

What dies later is not in the segment but beside it (see `tree`), so that many threads and processes can share one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.index.anchors import anchored, anchors_of
from weft.index.axis import ANCHOR
from weft.index.row_needs import RowNeeds
from weft.index.rows import FilterRows, renumbered, united
from weft.kernels import leaves, partition, search
from weft.kernels.partition import PartitionTree
from weft.model.lists import AttributeValue

__all__ = ["DEFAULT", "PartitionTree", "Segment", "TreeShape", "settle"]

_FEW = 4096
_WIDEST = 16.0


class TreeShape(NamedTuple):
    """How a tree is cut: rows of a leaf, width of a cell in mean ranges, cells that a row may lie in."""

    leaf: int = 256
    alpha: float = 2.0
    most_cells: int = 4


DEFAULT = TreeShape()


class SpecialKinds(NamedTuple):
    """Of each special row: whether its box is evaluated, and whether its slot has other rows."""

    asked: NDArray[np.bool_]
    shared: NDArray[np.bool_]

    @staticmethod
    def of(rows: FilterRows, special: NDArray[np.int32]) -> SpecialKinds:
        """The kinds of rows."""
        shared = np.zeros(rows.slot_count, bool)
        shared[list(rows.shared)] = True
        asked = np.zeros(len(rows), bool)
        asked[list(rows.boxes)] = True
        return SpecialKinds(asked[special], shared[rows.slots[special]])


def special_rows(rows: FilterRows) -> NDArray[np.int32]:
    """The rows that are not decided by the tree alone."""
    shared = np.zeros(rows.slot_count, bool)
    shared[list(rows.shared)] = True
    odd = shared[rows.slots] if len(rows) else np.zeros(0, bool)
    odd[list(rows.boxes)] = True
    if len(rows.needs):
        told = rows.lows[rows.dims == rows.axes[ANCHOR]] > 0  # by the anchor
        odd |= rows.need_counts() > told
    return np.flatnonzero(odd).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Segment:
    """Rows, the tree over them, and the special ones among them: those that share a slot, have a box to evaluate, or
    need more pieces than their anchor.
    """

    rows: FilterRows
    tree: PartitionTree
    special: NDArray[np.int32]  # the rows that the tree's negative names stand for: row special[~name]
    sorted_subs: NDArray[np.int64]
    sorted_places: NDArray[np.int32]
    shape: TreeShape
    known: dict[int, int] | None = None  # places by subscription, where they are few
    kinds: SpecialKinds = field(init=False)
    needs: RowNeeds = field(init=False)
    anchors: NDArray[np.bool_] = field(init=False)  # which pieces are
    singles: int = field(init=False)  # so many slots, the first ones, have one subscription each

    def __post_init__(self) -> None:
        kinds = SpecialKinds.of(self.rows, self.special)
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "needs", RowNeeds.of(self.rows, self.special, kinds.asked | kinds.shared))
        object.__setattr__(self, "anchors", anchors_of(self.rows))
        several = np.diff(self.rows.firsts) != 1
        object.__setattr__(self, "singles", int(several.argmax()) if several.any() else len(several))

    @staticmethod
    def build(rows: FilterRows, shape: TreeShape = DEFAULT, budget: float = math.inf) -> Segment:
        """The segment of rows, equal filters united; cells grow until matching needs at most `budget` bytes a
        subscription.
        """
        rows = anchored(united(rows))
        made = Segment._built(rows, shape)
        while made.nbytes > budget * len(rows.subs) and len(rows.subs) > _FEW and made.shape.alpha < _WIDEST:
            made = Segment._built(rows, shape._replace(alpha=2 * made.shape.alpha))
        return made

    @staticmethod
    def _built(rows: FilterRows, shape: TreeShape) -> Segment:
        names = rows.slots.copy()
        special = special_rows(rows)
        names[special] = ~np.arange(len(special), dtype=np.int32)
        sizes = np.array([dimension.size for dimension in rows.dimensions] or [1], np.int64)
        constraints = rows.starts, rows.dims, rows.lows, rows.highs
        tree: PartitionTree = partition.build(
            *constraints, names, sizes, shape.leaf, float(shape.alpha), shape.most_cells
        )
        alone = rows.alone
        by_sub = np.argsort(rows.subs, kind="stable") if alone else None  # before they are renamed: often sorted
        sorted_subs = rows.subs if by_sub is None else rows.subs[by_sub]
        rows, special, new_slot = _near(rows, tree, special)
        if by_sub is not None:
            places = new_slot[by_sub]
        else:
            places = np.argsort(rows.subs, kind="stable").astype(np.int32)
            sorted_subs = rows.subs[places]
        return Segment(rows.packed(), tree, special, sorted_subs, places, shape, known_places(rows))

    def place(self, sub: int) -> int:
        """The place of a subscription, or -1."""
        if self.known is not None:
            return self.known.get(sub, -1)
        at = bisect_left(self.sorted_subs.data, sub)  # for one number much quicker than numpy's
        return int(self.sorted_places[at]) if at < len(self.sorted_subs) and self.sorted_subs[at] == sub else -1

    def without(self, tree: PartitionTree, slots: Iterable[int]) -> PartitionTree:
        """The tree when these slots are dead too."""
        rows, tree = self.rows, tree._replace(live=tree.live.copy())
        for slot in slots:
            for row in rows.rows_of(slot):
                at = int(self.special.searchsorted(np.int32(row)))
                name = ~at if at < len(self.special) and self.special[at] == row else slot
                search.kill(tree, *rows.constraints(row), name)
        return tree

    @property
    def nbytes(self) -> int:
        """The bytes of everything that matching reads."""
        dims = sum(d.numbers.nbytes + d.sides.nbytes + d.moments.nbytes + d.table.nbytes for d in self.rows.dimensions)
        members = self.rows.subs.nbytes + self.rows.firsts.nbytes
        pieces = self.rows.pieces.nbytes + self.needs.nbytes
        return sum(array.nbytes for array in self.tree) + dims + members + self.special.nbytes + pieces

    @property
    def row_bytes(self) -> int:
        """The bytes of what only changes need: rows in code, and where a subscription is."""
        rows = self.rows
        arrays = [rows.starts, rows.dims, rows.lows, rows.highs, rows.slots, rows.need_starts, rows.needs]
        return sum(array.nbytes for array in (*arrays, self.sorted_subs, self.sorted_places))


def known_places(rows: FilterRows) -> dict[int, int] | None:
    """The places by subscription, if they are few: quicker to ask than a sorted array."""
    return {sub: place for place, sub in enumerate(rows.subs.tolist())} if len(rows.subs) <= _FEW else None


def _near(
    rows: FilterRows, tree: PartitionTree, special: NDArray[np.int32]
) -> tuple[FilterRows, NDArray[np.int32], NDArray[np.int32]]:
    """Slots renamed in the order of the tree's leaves, so that what is found together lies together in `subs`; those
    with several subscriptions come after the others.

    The tree's names change in place. Returns the rows, the special ones among them, and the new slots by the old.
    """
    new_slot = np.full(rows.slot_count, -1, np.int32)
    leaves.rename(tree.ids, tree.live, new_slot)
    if not rows.alone:
        several = np.zeros(rows.slot_count, bool)
        several[new_slot] = np.diff(rows.firsts) > 1
        later = np.empty(rows.slot_count, np.int32)  # the place of each slot when those with several come last
        later[np.argsort(several, kind="stable")] = np.arange(rows.slot_count, dtype=np.int32)
        plain = tree.ids >= 0
        tree.ids[plain] = later[tree.ids[plain]]
        new_slot = later[new_slot]
    rows, place = renumbered(rows, new_slot)
    names = np.argsort(place[special])  # special rows in the order of rows again
    renamed = np.empty(len(special), np.int32)
    renamed[names] = ~np.arange(len(special), dtype=np.int32)
    odd = np.flatnonzero(tree.ids < 0)
    tree.ids[odd] = renamed[~tree.ids[odd]]
    return rows, np.sort(place[special]), new_slot


def settle(
    segment: Segment,
    offsets: NDArray[np.int64],
    ids: NDArray[np.int32],
    attributes: Mapping[int, Mapping[str, AttributeValue | None]],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Found names to slots: boxes that must be evaluated are, and each slot is kept once per event.

    `attributes` gives the event of a row number; it is used only where a box is evaluated.
    """
    special = ids < 0
    if not special.any():
        return offsets, ids
    events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    names = ~ids[special]
    rows = segment.special[names]
    keep = np.ones(len(ids), bool)
    boxes = segment.rows.boxes
    places = np.flatnonzero(special)
    asked = segment.kinds.asked[names]
    for place, row in zip(places[asked].tolist(), rows[asked].tolist(), strict=True):
        if not boxes[row].box.admits(attributes[int(events[place])]):
            keep[place] = False
    slots = ids.copy()
    slots[special] = segment.rows.slots[rows]
    # a shared slot may be found through several rows: keep the first
    kept = places[keep[places] & segment.kinds.shared[names]]
    pairs = events[kept] * np.int64(segment.rows.slot_count) + slots[kept]
    _, first = np.unique(pairs, return_index=True)
    again = np.ones(len(kept), bool)
    again[first] = False
    keep[kept[again]] = False
    counts = np.bincount(events[keep], minlength=len(offsets) - 1)
    return np.concatenate([[0], np.cumsum(counts)]), slots[keep]
