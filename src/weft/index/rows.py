"""Rows of code ranges: what a partition tree is built from. Joining or renaming rows changes nothing they hold.

A row has one range of codes for each of some axes, and belongs to a slot, which may have several. A slot is a filter,
and has the subscriptions with this filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.index.axis import ANCHOR, Axis
from weft.index.dimension import CodeDimension, Codes
from weft.index.events import EventColumns
from weft.index.pieces import NO_PIECES, Pieces
from weft.kernels.groups import gather, group_slots
from weft.kernels.partition import regroup
from weft.model.lists import AttributeValue

_FEW_AXES = 40  # are coded one after another, whatever the event has
_FEW_EQUAL = 16  # fewer equal filters than this part of all are not worth uniting


class Checked(NamedTuple):
    """A box that is evaluated for a row, and its number among the boxes of the row's slot."""

    box: Box
    number: int


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Rows of ranges, the slots they belong to, the subscriptions of these, and the axes' dimensions.

    Rows are in the order of their slots. Those of row r are dims, lows, highs[starts[r]:starts[r + 1]]; it belongs to
    slots[r]. The subscriptions of slot s are subs[firsts[s]:firsts[s + 1]]; where one is in `subs` is its place.
    `boxes` has the box of each row that must be checked with it, `shared` the slots with rows that one event may meet
    together, and `sources` the boxes, as bytes, of slots whose ranges do not tell them. Row r needs the pieces
    needs[need_starts[r]:need_starts[r + 1]], and must not have those of which the complement is there; where no row
    needs any, both arrays are empty.
    """

    axes: dict[Axis, int]
    dimensions: list[CodeDimension]
    starts: NDArray[Any]
    dims: NDArray[Any]
    lows: NDArray[Any]
    highs: NDArray[Any]
    slots: Codes
    firsts: NDArray[Any]
    subs: NDArray[np.int64]
    boxes: dict[int, Checked] = field(default_factory=dict)
    shared: frozenset[int] = frozenset()
    sources: dict[int, bytes] = field(default_factory=dict)
    pieces: Pieces = NO_PIECES
    need_starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    needs: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    names: frozenset[str] = field(init=False)  # the attributes that any axis or box looks at
    by_name: dict[str, list[tuple[Axis, int]]] = field(init=False, repr=False, compare=False)  # the axes of each
    alone: bool = field(init=False)  # whether every slot has one subscription, so that a slot is a place
    axis_of: tuple[Axis, ...] = field(init=False, repr=False, compare=False)  # each dimension
    plan: tuple[tuple[str | None, Axis, CodeDimension], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name: dict[str, list[tuple[Axis, int]]] = {}
        for axis, dim in self.axes.items():
            for name in axis.names:
                by_name.setdefault(name, []).append((axis, dim))
        looked_at = {id(checked.box): checked.box.names for checked in self.boxes.values()}
        # of each dimension in order: the attribute that it is, if that is all; for single events
        axis_of = tuple(sorted(self.axes, key=self.axes.__getitem__))
        few = zip(axis_of, self.dimensions, strict=True) if len(axis_of) <= _FEW_AXES else ()
        plan = tuple((axis.name if axis.is_plain else None, axis, dimension) for axis, dimension in few)
        object.__setattr__(self, "axis_of", axis_of)
        object.__setattr__(self, "by_name", by_name)
        object.__setattr__(self, "alone", len(self.subs) == self.slot_count)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "names", frozenset(by_name).union(self.pieces.names, *looked_at.values()))

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def slot_count(self) -> int:
        """How many slots there are: different filters, unless equal ones were not looked for."""
        return len(self.firsts) - 1

    def slot_of(self, place: int) -> int:
        """The slot of a place in `subs`. Cost: O(log slots)."""
        return place if self.alone else int(self.firsts.searchsorted(self.firsts.dtype.type(place), "right")) - 1

    def first_rows(self) -> NDArray[np.int64]:
        """The first row of each slot, and where the last one's end."""
        slots = np.arange(self.slot_count + 1, dtype=np.int32)  # of their own type: no copy
        return self.slots.searchsorted(slots).astype(np.int64)

    def packed(self) -> FilterRows:
        """The same rows in the smallest integers that hold them."""
        dims = self.dims.astype(np.uint16) if len(self.dimensions) <= 2**16 else self.dims
        small = all(dimension.size <= 2**16 for dimension in self.dimensions)
        lows, highs = (ends.astype(np.uint16) if small else ends for ends in (self.lows, self.highs))
        starts = self.starts.astype(np.uint32) if self.starts[-1] < 2**32 else self.starts
        firsts = self.firsts.astype(np.uint32) if len(self.subs) < 2**32 else self.firsts
        return replace(self, starts=starts, dims=dims, lows=lows, highs=highs, firsts=firsts)

    def constraints(self, row: int) -> tuple[Codes, Codes, Codes]:
        """A row's dimensions, lows and highs."""
        here = slice(int(self.starts[row]), int(self.starts[row + 1]))
        dims, lows, highs = (part[here].astype(np.int32) for part in (self.dims, self.lows, self.highs))
        return dims, lows, highs

    def box(self, row: int) -> Box:
        """The box of a row whose axes are all attributes, besides the anchor. Cost: O(constraints of the row)."""
        ranges = zip(*(part.tolist() for part in self.constraints(row)), strict=True)
        told = ((self.axis_of[dim], self.dimensions[dim], low, high) for dim, low, high in ranges)
        return Box({axis.name: dimension.values(low, high) for axis, dimension, low, high in told if axis != ANCHOR})

    def needs_of(self, row: int) -> list[int]:
        """The pieces that a row needs, and the complements of those that it must not have."""
        return self.needs[self.need_starts[row] : self.need_starts[row + 1]].tolist() if len(self.needs) else []

    def need_counts(self) -> NDArray[np.int64]:
        """How many needs each row has."""
        return np.diff(self.need_starts) if len(self.needs) else np.zeros(len(self), np.int64)

    def rows_of(self, slot: int) -> range:
        """The rows of a slot."""
        first, last = self.slots.searchsorted(np.array((slot, slot + 1), np.int32))  # of its own type: no copy
        return range(int(first), int(last))

    def encode(self, events: EventColumns) -> Codes:
        """The codes of events, an event a row."""
        codes = np.zeros((events.size, max(1, len(self.dimensions))), np.int32)
        for axis, dim in self.axes.items():
            if any(map(events.has, axis.names)):  # else it is absent for all of them, which is 0
                axis.write(self.dimensions[dim], events, codes, dim)
        return codes

    def encode_one(self, event: Mapping[str, AttributeValue | None]) -> Codes:
        """The codes of one event. Cost: O(log cuts) for each axis of an attribute that it has."""
        if len(self.axes) <= _FEW_AXES:
            codes = []
            for name, axis, dimension in self.plan:
                if name is None:
                    codes.append(axis.code(dimension, event))
                    continue
                value = event.get(name)
                kind = type(value)
                if kind is float or kind is int:  # the most frequent ones, without another call
                    codes.append(dimension.code_of_number(value))  # type: ignore[arg-type]
                else:
                    codes.append(dimension.code(value))
            return np.array([codes or (0,)], np.int32)
        found = np.zeros((1, len(self.dimensions)), np.int32)  # what is absent is 0
        for name in event if len(event) < len(self.by_name) else self.by_name:
            for axis, dim in self.by_name.get(name, ()):
                found[0, dim] = axis.code(self.dimensions[dim], event)
        return found


def by_slot(rows: FilterRows) -> FilterRows:
    """The rows in the order of their slots, so that those of a slot are found by bisection."""
    if (np.diff(rows.slots) >= 0).all():
        return rows
    return _reordered(rows, np.argsort(rows.slots, kind="stable"))[0]


def _reordered(rows: FilterRows, order: NDArray[np.int64]) -> tuple[FilterRows, Codes]:
    """The rows in another order, and the new place of each row."""
    starts, dims, lows, highs = regroup(rows.starts, rows.dims, rows.lows, rows.highs, order)
    place = _inverse(order)
    boxes = {int(place[row]): box for row, box in rows.boxes.items()}
    made = replace(rows, starts=starts, dims=dims, lows=lows, highs=highs, slots=rows.slots[order], boxes=boxes)
    need_starts, needs = needs_of_some(rows, order)
    return replace(made, need_starts=need_starts, needs=needs), place


def needs_of_some(rows: FilterRows, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The needs of some rows, or of all, in another order: where they start, and they."""
    if not len(rows.needs):
        return rows.need_starts, rows.needs
    counts = np.diff(rows.need_starts)[order]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    places = np.repeat(rows.need_starts[:-1][order] - starts[:-1], counts) + np.arange(starts[-1])
    return starts, rows.needs[places]


def _inverse(order: NDArray[Any]) -> Codes:
    inverse = np.empty(len(order), np.int32)
    inverse[order] = np.arange(len(order), dtype=np.int32)
    return inverse


def renumbered(rows: FilterRows, new_slot: Codes) -> tuple[FilterRows, Codes]:
    """The rows with their slots renamed, in the order of the new ones, and the new place of each row."""
    old_slot = _inverse(new_slot)
    first = rows.first_rows()
    counts = np.diff(first)[old_slot]
    order = np.repeat(first[old_slot] - np.cumsum(counts) + counts, counts) + np.arange(len(rows))
    made, place = _reordered(rows, order)
    firsts, subs = _members(rows, new_slot, rows.slot_count)
    renamed = replace(
        made,
        slots=new_slot[made.slots],
        firsts=firsts,
        subs=subs,
        shared=frozenset(int(new_slot[slot]) for slot in rows.shared),
        sources={int(new_slot[slot]): source for slot, source in rows.sources.items()},
    )
    return renamed, place


def _members(rows: FilterRows, to: Codes, slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The subscriptions when those of slot s become those of slot to[s], with the start of each slot."""
    firsts, subs = np.empty(slots + 1, np.int64), np.empty(len(rows.subs), np.int64)
    gather(rows.firsts, rows.subs, to, firsts, subs)
    return firsts, subs


def united(rows: FilterRows) -> FilterRows:
    """The rows with equal filters in one slot, if enough of them are equal. Cost: O(constraints).

    Where nearly all differ, each keeps its own: a slot that is a place is quicker to count and to write.
    """
    most = rows.slot_count - rows.slot_count // _FEW_EQUAL  # of groups that are worth it
    cuts = max((len(dimension.numbers) for dimension in rows.dimensions), default=0)
    if len(rows) == rows.slot_count and cuts > 2 * most:  # a row has at most two cuts of its own: too many differ
        return rows
    source = np.full(rows.slot_count, -1, np.int64)
    known: dict[bytes, int] = {}
    for slot, said in rows.sources.items():
        source[slot] = known.setdefault(said, len(known))
    group = np.empty(rows.slot_count, np.int32)
    constraints = rows.starts, rows.dims, rows.lows, rows.highs
    count = group_slots(rows.first_rows(), *constraints, source, group)
    if count >= most:
        return rows
    first = np.full(count, -1, np.int32)  # the slot whose rows a group keeps
    first[group[::-1]] = np.arange(rows.slot_count - 1, -1, -1, dtype=np.int32)
    kept = first[group] == np.arange(rows.slot_count)
    order = np.flatnonzero(kept[rows.slots])
    starts, dims, lows, highs = regroup(*constraints, order)
    new_row = dict(zip(order.tolist(), range(len(order)), strict=True)) if rows.boxes else {}
    firsts, subs = _members(rows, group, count)
    need_starts, needs = needs_of_some(rows, order)
    return replace(
        rows,
        starts=starts,
        dims=dims,
        lows=lows,
        highs=highs,
        slots=group[rows.slots[order]],
        firsts=firsts,
        subs=subs,
        boxes={new_row[row]: box for row, box in rows.boxes.items() if row in new_row},
        shared=frozenset(int(group[slot]) for slot in rows.shared if kept[slot]),
        sources={int(group[slot]): said for slot, said in rows.sources.items() if kept[slot]},
        need_starts=need_starts,
        needs=needs,
    )
