"""Boxes by covering: those around, within and meeting a box, among very many. An answer contains every box that truly
qualifies. If both sides are exact, it contains no other.

A box is a row of ends on axes, with one axis per attribute and type. Rows are stored in runs, each a balanced tree over
all ends (the logarithmic method): a full buffer and every run that is not larger are combined into a new run. No call
builds a tree over more than `run` rows. After a packing, all rows are in the buffer, and each change builds one tree.
Room for rows grows in few large steps, and takes no memory until it is used, so that rows are seldom copied: with the
sizes below, never more than 12,288 together among 196,608.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from weft.errors import OptionError
from weft.kernels import dominance as kernel

CoverAxis = Hashable  # an attribute and a type, or anything else by which the caller names axes
CoverSpan = tuple[CoverAxis, float, float, int]  # the axis, low, high and marks, as in kernels.boxes
CoverRow = int

_MAX_AXES = 64
_FIRST = 3  # buffers for which there is room at first
_GROWTH = 16


class CoverIndex:
    """Rows by their spans. A row is unbounded on every axis that it does not name.

    >>> from weft.kernels.boxes import BOUNDED
    >>> index, x = CoverIndex(), "x"
    >>> wide, narrow = index.add([(x, 0.0, 9.0, BOUNDED)], exact=True), index.add([(x, 3.0, 4.0, BOUNDED)], exact=True)
    >>> index.around([(x, 3.5, 4.0, BOUNDED)], exact=True) == [wide, narrow]
    True
    >>> index.within([(x, 1.0, 9.0, BOUNDED)], exact=True) == [narrow]
    True
    """

    def __init__(self, buffer: int = 256, leaf: int = 16, run: int = 1 << 14) -> None:
        if not 1 <= leaf <= buffer <= run:
            raise OptionError(f"leaf is {leaf}, buffer {buffer} and run {run}; give 1 <= leaf <= buffer <= run")
        self.compared = 0  # total number of rows compared
        self.moved = 0  # total number of rows copied or put into trees
        self.hulls: set[CoverRow] = set()  # rows that only enclose what they stand for
        self._buffer = buffer
        self._leaf = leaf
        self._run = run
        self._axes: dict[CoverAxis, int] = {}
        self._used = 0  # rows allocated since the last packing
        self._live = 0
        self._free: list[CoverRow] = []  # rows in no run
        self._runs = [0, 0]
        self._ends: NDArray[np.int64] | None = None  # the runs, as the kernel expects them
        self._count = 0  # rows that the last search found
        self._asked_axes: list[int] = []  # axes that it set
        self._rows = kernel.empty(_FIRST * buffer, 4, leaf)
        self._make_room()

    def __len__(self) -> int:
        return self._live

    def add(self, spans: Iterable[CoverSpan], exact: bool) -> CoverRow:
        """Add a box, or with `exact` False the hull of something; returns its row. Amortised cost: O(log^2 n)."""
        places = [(self._axis(axis), low, high, marks) for axis, low, high, marks in spans]
        exact = exact and all(place >= 0 for place, *_ in places)
        row = self._free.pop() if self._free else self._new_row()
        rows = self._rows
        for place, low, high, marks in places:
            if place >= 0:
                rows.low[row, place], rows.high[row, place], rows.marks[row, place] = low, high, marks
        rows.state[row] = kernel.EXACT if exact else kernel.HULL
        if not exact:
            self.hulls.add(row)
        rows.order[self._runs[-1]] = row
        self._runs[-1] += 1
        self._live += 1
        self._settle()
        self._ends = None
        return row

    def discard(self, row: CoverRow) -> None:
        """Remove a row. Amortised cost: O(1)."""
        self._rows.state[row] = kernel.DEAD
        self.hulls.discard(row)
        self._live -= 1
        if self._runs[-1] > max(self._buffer, 2 * self._live):
            self._pack()
        else:
            self._settle()

    def around(self, spans: Iterable[CoverSpan], exact: bool) -> list[CoverRow]:
        """Rows that cover the box. Cost: O(log^2 n + found) if few rows extend across the ends of the box."""
        return self._search(kernel.AROUND, spans, exact) or []

    def around_until(self, spans: Iterable[CoverSpan], exact: bool, tag: int) -> list[CoverRow] | None:
        """Rows that cover the box, or None as soon as one of them has one of the bits of the tag."""
        return self._search(kernel.AROUND, spans, exact, tag)

    def tag(self, row: CoverRow, tag: int) -> None:
        """Set the 64-bit tag of a row."""
        self._rows.tags[row] = tag

    def around_tagged(self, spans: Iterable[CoverSpan], exact: bool, tag: int) -> list[CoverRow]:
        """Rows that cover the box and have one of the bits of the tag. If a row certainly covers the box and has all
        bits, it comes last, and some others may be missing.
        """
        self._search(kernel.AROUND, spans, exact, tag, only=True)
        return self._found()

    def within_tagged(self, spans: Iterable[CoverSpan], exact: bool, tag: int) -> list[CoverRow]:
        """Rows that the box covers and that have one of the bits of the tag. Cost: as `around`."""
        return self._search(kernel.WITHIN, spans, exact, tag, only=True) or []

    def within(self, spans: Iterable[CoverSpan], exact: bool) -> list[CoverRow]:
        """Rows that the box covers. Cost: as `around`."""
        return self._search(kernel.WITHIN, spans, exact) or []

    def meeting(self, spans: Iterable[CoverSpan], exact: bool) -> list[CoverRow]:
        """Rows that overlap the box on every axis on which both are bounded. Cost: as `around`.

        A number and a string of the same attribute lie on two axes, so such rows are included.
        """
        return self._search(kernel.MEETING, spans, exact) or []

    def knows(self, axes: Iterable[CoverAxis]) -> bool:
        """Whether all of these axes are in use."""
        return all(axis in self._axes for axis in axes)

    @property
    def full(self) -> bool:
        """Whether further axes are ignored. Constraints on those do not affect the answers."""
        return len(self._axes) == _MAX_AXES

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        order = self._rows.order[: self._runs[-1]].tolist()
        assert len(set(order)) == len(order), "each row is in one run, once"
        assert set(order).isdisjoint(self._free), "a free row is in no run"
        assert sum(self._rows.state[row] != kernel.DEAD for row in order) == self._live, "live rows are counted"
        assert all(a <= b for a, b in zip(self._runs, self._runs[1:], strict=False)), "runs follow each other"
        trees = zip(self._runs[:-2], self._runs[1:-1], strict=True)
        assert all(end - start <= self._run for start, end in trees), "a tree is built in one call"
        assert self.hulls == {row for row in order if self._rows.state[row] == kernel.HULL}, "hulls are known"

    def _search(
        self, asked: int, spans: Iterable[CoverSpan], exact: bool, tag: int = 0, only: bool = False
    ) -> list[CoverRow] | None:
        low, high, marks = self._asked
        for place in self._asked_axes:
            low[place], high[place], marks[place] = -np.inf, np.inf, 0
        asked_axes: list[int] = []
        self._asked_axes = asked_axes
        for axis, start, end, mark in spans:
            place = self._axes.get(axis, -1)
            if place >= 0:
                asked_axes.append(place)
                low[place], high[place], marks[place] = start, end, mark
            elif asked == kernel.WITHIN and not self.full:
                self._count = 0
                return []  # no row is bounded there
        if self._ends is None:
            self._ends = np.array(self._runs, np.int64)
        found, compared, stopped = kernel.search(
            *self._rows, low, high, marks, self._ends, self._leaf, asked, exact, np.uint64(tag), only, self._out
        )
        self.compared += compared
        self._count = found
        return None if stopped else self._found()

    def _found(self) -> list[CoverRow]:
        rows: list[CoverRow] = self._out[: self._count].tolist()
        return rows

    def _axis(self, axis: CoverAxis) -> int:
        place = self._axes.get(axis, -1)
        if place < 0 and len(self._axes) < _MAX_AXES:
            place = self._axes[axis] = len(self._axes)
            if place >= self._rows.low.shape[1]:
                self._resize(len(self._rows.low), 2 * self._rows.low.shape[1])
        return place

    def _new_row(self) -> CoverRow:
        if self._used == len(self._rows.low):
            self._resize(_GROWTH * self._used, self._rows.low.shape[1])
        row = self._used
        kernel.clear(self._rows, slice(row, row + 1))
        self._used += 1
        return row

    def _settle(self) -> None:
        """Combine a full buffer and every run that is not larger into one run, unless that would be too large."""
        runs, (start, end) = self._runs, self._runs[-2:]
        if end - start < self._buffer:
            return
        stop = min(end, start + self._run)  # after a packing, more rows wait
        del runs[-2:]
        while runs and start - runs[-1] <= stop - start and stop - runs[-1] <= self._run:
            start = runs.pop()
        kernel.build(self._rows, start, stop, self._leaf)
        self.moved += stop - start
        runs += [start, stop, end]
        self._ends = None

    def _pack(self) -> None:
        """Reclaim dead rows for reuse. Cost: O(n), some ten nanoseconds per row; trees are built by later changes."""
        rows = self._rows
        order = rows.order[: self._runs[-1]]
        alive = order[rows.state[order] != kernel.DEAD]
        self._free += order[rows.state[order] == kernel.DEAD].tolist()
        dead = np.array(self._free, np.int64)
        kernel.clear(rows, dead)
        rows.order[: len(alive)] = alive
        self._runs = [0, len(alive)]
        self._settle()
        self._ends = None

    def _resize(self, rows: int, axes: int) -> None:
        self._rows = kernel.resized(self._rows, self._used, rows, axes, self._leaf)
        self.moved += self._used
        self._make_room()

    def _make_room(self) -> None:
        """Resize the search buffers to the number of rows."""
        rows, axes = self._rows.low.shape
        self._out = np.zeros(rows, np.int64)
        self._asked = kernel.Sides(np.full(axes, -np.inf), np.full(axes, np.inf), np.zeros(axes, np.uint8))
        self._asked_axes = []
