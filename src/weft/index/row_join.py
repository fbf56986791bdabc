"""Rows of several segments as one. The joined rows hold what the living rows held, no more and no less.

Dimensions are joined too, and only cuts, axes and pieces that a living row uses are kept. Anchors are left behind: they
are chosen anew when a tree is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import ANCHOR, Axis
from weft.index.dimension import CodeDimension
from weft.index.pieces import Piece, Pieces
from weft.index.rows import Checked, FilterRows, needs_of_some


class _Ends(NamedTuple):
    """The living constraints of rows, those of each dimension side by side; without those on the anchor axis."""

    places: NDArray[np.int64]  # where they are in the rows' arrays, by dimension
    starts: NDArray[np.int64]  # of each dimension's
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]

    @staticmethod
    def of(rows: FilterRows, living: NDArray[np.bool_]) -> _Ends:
        here = np.repeat(living[rows.slots], np.diff(rows.starts).astype(np.int64))
        if ANCHOR in rows.axes:
            here &= rows.dims != rows.axes[ANCHOR]
        kept = np.flatnonzero(here)
        dims = rows.dims[kept]
        order = np.argsort(dims, kind="stable")
        places = kept[order]
        starts = dims[order].searchsorted(np.arange(len(rows.dimensions) + 1).astype(dims.dtype, copy=False))
        if len(rows.dimensions) == 2**16:  # the last one's end has no number in 16 bits
            starts[-1] = len(places)
        return _Ends(places, starts, rows.lows[places].astype(np.int32), rows.highs[places].astype(np.int32))

    def here(self, dim: int) -> slice:
        return slice(int(self.starts[dim]), int(self.starts[dim + 1]))


def join_rows(
    parts: Sequence[FilterRows], alive: Sequence[NDArray[np.bool_]], pause: Callable[[], None] = lambda: None
) -> FilterRows:
    """The rows of the living subscriptions of several, under dimensions that have all their cuts.

    `alive` says for each part which places live; a slot lives if any of its subscriptions does. `pause` is called
    often: a thread in the background lets others run there. Cost: O(n log n) for n constraints, and some array
    operations for each axis.
    """
    axes: dict[Axis, int] = {}
    used: list[list[CodeDimension]] = []
    members = [_living(part, places) for part, places in zip(parts, alive, strict=True)]
    slots_alive = [counts > 0 for counts in members]
    ends = [_Ends.of(part, living) for part, living in zip(parts, slots_alive, strict=True)]
    for part, end in zip(parts, ends, strict=True):
        for axis, dim in part.axes.items():
            here = end.here(dim)
            if here.start < here.stop:  # an axis that no living row tests is left behind
                if axis not in axes:
                    axes[axis] = len(axes)
                    used.append([])
                pause()
                used[axes[axis]].append(part.dimensions[dim].only(end.lows[here], end.highs[here]))
    dimensions = [CodeDimension.join(some) for some in used]
    counts, dims, lows, highs, slots, subs = [np.zeros(1, np.int64)], [], [], [], [], []
    boxes: dict[int, Checked] = {}
    shared: set[int] = set()
    sources: dict[int, bytes] = {}
    pieces: dict[Piece, int] = {}
    need_counts, needs = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
    row_count = slot_count = 0
    for part, places, living, end in zip(parts, alive, slots_alive, ends, strict=True):
        new_slot = slot_count + np.cumsum(living) - 1
        kept = living[part.slots]
        low, high, new_dim = end.lows, end.highs, np.zeros(len(end.places), np.int32)
        for axis, dim in part.axes.items():
            here = end.here(dim)
            if here.start < here.stop:
                pause()
                new_dim[here] = axes[axis]
                to_low, to_high = part.dimensions[dim].translation(dimensions[axes[axis]])
                low[here], high[here] = to_low[low[here]], to_high[high[here]]
        back = np.argsort(end.places)  # in the order of rows again
        counts.append(np.diff(part.starts).astype(np.int64)[kept] - (ANCHOR in part.axes))
        dims.append(new_dim[back])
        lows.append(low[back])
        highs.append(high[back])
        slots.append(new_slot[part.slots[kept]])
        subs.append(part.subs[places])
        new_row = row_count + np.cumsum(kept) - 1
        boxes |= {int(new_row[row]): box for row, box in part.boxes.items() if kept[row]}
        shared |= {int(new_slot[slot]) for slot in part.shared if living[slot]}
        sources |= {int(new_slot[slot]): source for slot, source in part.sources.items() if living[slot]}
        _, own = needs_of_some(part, np.flatnonzero(kept))
        need_counts.append(part.need_counts()[kept])
        needs.append(_renumbered_needs(part.pieces, own, pieces))
        row_count += int(kept.sum())
        slot_count += int(living.sum())
    return FilterRows(
        axes,
        dimensions,
        np.cumsum(np.concatenate(counts)),
        np.concatenate(dims).astype(np.int32),
        np.concatenate(lows),
        np.concatenate(highs),
        np.concatenate(slots).astype(np.int32),
        np.cumsum(np.concatenate([np.zeros(1, np.int64), *(counts[counts > 0] for counts in members)])),
        np.concatenate(subs),
        boxes,
        frozenset(shared),
        sources,
        Pieces(pieces),
        np.cumsum(np.concatenate(need_counts)) if pieces else np.zeros(0, np.int64),
        np.concatenate(needs),
    )


def _renumbered_needs(known: Pieces, needs: NDArray[np.int32], numbers: dict[Piece, int]) -> NDArray[np.int32]:
    """The needs under other numbers, which new pieces get in turn."""
    if not len(needs):
        return needs
    used = np.unique(np.where(needs < 0, ~needs, needs))
    new = np.full(len(known), -1, np.int32)
    for number in used.tolist():
        new[number] = numbers.setdefault(known.pieces[number], len(numbers))
    return np.where(needs < 0, ~new[~needs], new[needs])


def _living(rows: FilterRows, alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many subscriptions of each slot live."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(alive)])
    counts: NDArray[np.int64] = np.diff(before[rows.firsts])
    return counts
