"""Rows of code ranges: what a partition tree is built from. Law: joining or renaming rows changes nothing they hold.

A row has one range of codes for each of some axes, and belongs to a subscription, which may have several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.index.axis import Axis
from weft.index.dimension import Codes, Dimension
from weft.index.events import EventColumns
from weft.kernels.partition import regroup
from weft.model.value import Value


class Checked(NamedTuple):
    """A box that is asked with a row, and its number among the boxes of the row's slot."""

    box: Box
    number: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of ranges, the subscriptions they belong to, and the axes' dimensions.

    Rows are in the order of their slots. Those of row r are dims, lows, highs[starts[r]:starts[r + 1]]; it belongs to
    subs[slots[r]]. `boxes` has the box of each row that must be checked with it, `shared` the slots with rows that one
    event may meet together, and `sources` the boxes, as bytes, of slots whose ranges do not tell them.
    """

    axes: dict[Axis, int]
    dimensions: list[Dimension]
    starts: NDArray[Any]
    dims: NDArray[Any]
    lows: NDArray[Any]
    highs: NDArray[Any]
    slots: Codes
    subs: NDArray[np.int64]
    boxes: dict[int, Checked] = field(default_factory=dict)
    shared: frozenset[int] = frozenset()
    sources: dict[int, bytes] = field(default_factory=dict)
    names: frozenset[str] = field(init=False)  # the attributes that any axis or box looks at

    def __post_init__(self) -> None:
        looked_at = [axis.names for axis in self.axes] + [checked.box.names for checked in self.boxes.values()]
        object.__setattr__(self, "names", frozenset(name for names in looked_at for name in names))

    def __len__(self) -> int:
        return len(self.slots)

    def packed(self) -> Rows:
        """The same rows in the smallest integers that hold them."""
        dims = self.dims.astype(np.uint16) if len(self.dimensions) <= 2**16 else self.dims
        small = all(dimension.size <= 2**16 for dimension in self.dimensions)
        lows, highs = (ends.astype(np.uint16) if small else ends for ends in (self.lows, self.highs))
        starts = self.starts.astype(np.uint32) if self.starts[-1] < 2**32 else self.starts
        return replace(self, starts=starts, dims=dims, lows=lows, highs=highs)

    def constraints(self, row: int) -> tuple[Codes, Codes, Codes]:
        """A row's dimensions, lows and highs."""
        here = slice(int(self.starts[row]), int(self.starts[row + 1]))
        dims, lows, highs = (part[here].astype(np.int32) for part in (self.dims, self.lows, self.highs))
        return dims, lows, highs

    def box(self, row: int) -> Box:
        """The box of a row whose axes are all attributes."""
        axes = {dim: axis for axis, dim in self.axes.items()}
        ranges = zip(*(part.tolist() for part in self.constraints(row)), strict=True)
        return Box({axes[dim].name: self.dimensions[dim].values(low, high) for dim, low, high in ranges})

    def rows_of(self, slot: int) -> range:
        """The rows of a slot."""
        first, last = self.slots.searchsorted(np.array((slot, slot + 1), np.int32))  # of its own type: no copy
        return range(int(first), int(last))

    def encode(self, events: EventColumns) -> Codes:
        """The codes of events, an event a row."""
        codes = np.zeros((events.size, max(1, len(self.dimensions))), np.int32)
        for axis, dim in self.axes.items():
            axis.write(self.dimensions[dim], events, codes, dim)
        return codes

    def encode_one(self, event: Mapping[str, Value | None]) -> Codes:
        """The codes of one event. Cost: O(log cuts) for each axis."""
        codes = [axis.code(self.dimensions[dim], event) for axis, dim in self.axes.items()] or [0]
        return np.array([codes], np.int32)


def by_slot(rows: Rows) -> Rows:
    """The rows in the order of their slots, so that those of a slot are found by bisection."""
    if (np.diff(rows.slots) >= 0).all():
        return rows
    return _reordered(rows, np.argsort(rows.slots, kind="stable"))[0]


def _reordered(rows: Rows, order: NDArray[np.int64]) -> tuple[Rows, Codes]:
    """The rows in another order, and the new place of each row."""
    starts, dims, lows, highs = regroup(rows.starts, rows.dims, rows.lows, rows.highs, order)
    place = _inverse(order)
    boxes = {int(place[row]): box for row, box in rows.boxes.items()}
    made = replace(rows, starts=starts, dims=dims, lows=lows, highs=highs, slots=rows.slots[order], boxes=boxes)
    return made, place


def _inverse(order: NDArray[Any]) -> Codes:
    inverse = np.empty(len(order), np.int32)
    inverse[order] = np.arange(len(order), dtype=np.int32)
    return inverse


def renumbered(rows: Rows, new_slot: Codes) -> tuple[Rows, Codes]:
    """The rows with their slots renamed, in the order of the new ones, and the new place of each row."""
    old_slot = _inverse(new_slot)
    first = rows.slots.searchsorted(np.arange(len(rows.subs) + 1, dtype=np.int32))  # of its own type: no copy
    counts = np.diff(first)[old_slot]
    order = np.repeat(first[old_slot] - np.cumsum(counts) + counts, counts) + np.arange(len(rows))
    made, place = _reordered(rows, order)
    renamed = replace(
        made,
        slots=new_slot[made.slots],
        subs=rows.subs[old_slot],
        shared=frozenset(int(new_slot[slot]) for slot in rows.shared),
        sources={int(new_slot[slot]): source for slot, source in rows.sources.items()},
    )
    return renamed, place


def _used(rows: Rows, dim: int, living: NDArray[np.bool_]) -> Dimension:
    """A dimension with the cuts of living rows only."""
    counts: NDArray[np.int64] = np.diff(rows.starts).astype(np.int64)
    kept = np.repeat(living[rows.slots], counts)
    here = kept & (rows.dims == dim)
    return rows.dimensions[dim].only(rows.lows[here].astype(np.int64), rows.highs[here].astype(np.int64))


def join_rows(parts: Sequence[Rows], alive: Sequence[NDArray[np.bool_]]) -> Rows:
    """The rows of the living slots of several, under dimensions that have all their cuts."""
    axes: dict[Axis, int] = {}
    for part in parts:
        for axis in part.axes:
            axes.setdefault(axis, len(axes))
    pairs = list(zip(parts, alive, strict=True))
    dimensions = [
        Dimension.join([_used(part, part.axes[axis], living) for part, living in pairs if axis in part.axes])
        for axis in axes
    ]
    counts, dims, lows, highs, slots, subs = [np.zeros(1, np.int64)], [], [], [], [], []
    boxes: dict[int, Checked] = {}
    shared: set[int] = set()
    sources: dict[int, bytes] = {}
    row_count = sub_count = 0
    for part, living in zip(parts, alive, strict=True):
        new_slot = sub_count + np.cumsum(living) - 1
        kept = living[part.slots]
        starts = part.starts.astype(np.int64)
        constraints = np.repeat(kept, np.diff(starts))
        low, high = part.lows.astype(np.int32), part.highs.astype(np.int32)
        new_dim = np.zeros(len(part.dimensions), np.int32)
        for axis, dim in part.axes.items():
            new_dim[dim] = axes[axis]
            here = part.dims == dim
            to_low, to_high = part.dimensions[dim].translation(dimensions[axes[axis]])
            low[here], high[here] = to_low[low[here]], to_high[high[here]]
        counts.append(np.diff(starts)[kept])
        dims.append(new_dim[part.dims[constraints]])
        lows.append(low[constraints])
        highs.append(high[constraints])
        slots.append(new_slot[part.slots[kept]])
        subs.append(part.subs[living])
        new_row = row_count + np.cumsum(kept) - 1
        boxes |= {int(new_row[row]): box for row, box in part.boxes.items() if kept[row]}
        shared |= {int(new_slot[slot]) for slot in part.shared if living[slot]}
        sources |= {int(new_slot[slot]): source for slot, source in part.sources.items() if living[slot]}
        row_count += int(kept.sum())
        sub_count += int(living.sum())
    return Rows(
        axes,
        dimensions,
        np.cumsum(np.concatenate(counts)),
        np.concatenate(dims).astype(np.int32),
        np.concatenate(lows),
        np.concatenate(highs),
        np.concatenate(slots).astype(np.int32),
        np.concatenate(subs),
        boxes,
        frozenset(shared),
        sources,
    )
