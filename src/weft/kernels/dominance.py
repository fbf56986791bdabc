"""Boxes that contain, lie within or meet a box, among very many. Every row that qualifies is returned exactly once.

Rows are boxes over `axes` (low, high float64[rows, axes], marks uint8[rows, axes] as in kernels.boxes) with a `state`
(uint8[rows]): DEAD, EXACT, or HULL. A HULL row only encloses what it stands for, so equal ends prove nothing. `tags`
(uint64[rows]) are bits that can stop a search. `order` (int64[n]) holds the rows in runs: run r is order[runs[r]:runs[r
+ 1]] (`runs` is int64). The last run is scanned. Every other run is a tree that is halved down to `leaf` rows, with
nodes numbered from FAN * runs[r] // leaf on. `left` (int64[nodes]) is the first child of a node, the second child
follows it, and 0 marks a leaf. `bounds` (float64[nodes, 4, axes]) are the least and greatest low end and the least and
greatest high end below each node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.kernels.jit import jit

DEAD, HULL, EXACT = 0, 1, 2
AROUND, WITHIN, MEETING = 0, 1, 2  # the query: rows that cover, are covered, or overlap
FAN = 4  # a leaf is at least half full, so there are fewer than this many nodes per full leaf
_DEPTH = 128


class Rows(NamedTuple):
    """The arrays of the rows and of the trees over them."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    marks: NDArray[np.uint8]
    state: NDArray[np.uint8]
    tags: NDArray[np.uint64]
    order: NDArray[np.int64]
    left: NDArray[np.int64]
    bounds: NDArray[np.float64]


class Sides(NamedTuple):
    """The query box: its ends and marks on every axis (float64[axes] and uint8[axes])."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    marks: NDArray[np.uint8]


def empty(rows: int, axes: int, leaf: int) -> Rows:
    """Room for this many rows, dead and in no run. `clear` them before their first use: nothing of them is written
    here, so that the room takes no time and no memory until it is used.
    """
    nodes = FAN * (rows // leaf + 1)
    return Rows(
        np.empty((rows, axes)),
        np.empty((rows, axes)),
        np.zeros((rows, axes), np.uint8),
        np.zeros(rows, np.uint8),
        np.zeros(rows, np.uint64),
        np.zeros(rows, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros((nodes, 4, axes)),
    )


def clear(rows: Rows, some: slice | NDArray[np.int64]) -> None:
    """Make some rows unbounded on every axis."""
    rows.low[some], rows.high[some], rows.marks[some] = -np.inf, np.inf, 0


def tree_over(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    marks: NDArray[np.uint8],
    state: NDArray[np.uint8],
    tags: NDArray[np.uint64],
    leaf: int,
) -> Rows:
    """Rows that form a single run, with the tree over it."""
    size, axes = low.shape
    nodes = FAN * (size // leaf + 1)
    left, bounds = np.zeros(nodes, np.int64), np.zeros((nodes, 4, axes))
    rows = Rows(low, high, marks, state, tags, np.arange(size), left, bounds)
    build(rows, 0, size, leaf)
    return rows


def resized(rows: Rows, used: int, size: int, axes: int, leaf: int) -> Rows:
    """The same rows and trees, with room for more rows or axes. Cost: O(rows in use)."""
    new = empty(size, axes, leaf)
    width, nodes = rows.low.shape[1], min(len(rows.left), FAN * (used // leaf + 1))
    if axes > width:
        clear(new, slice(used))
    for name in ("low", "high", "marks"):
        getattr(new, name)[:used, :width] = getattr(rows, name)[:used]
    for name in ("state", "tags", "order"):
        getattr(new, name)[:used] = getattr(rows, name)[:used]
    new.left[:nodes] = rows.left[:nodes]
    new.bounds[:nodes, :, :width] = rows.bounds[:nodes]
    # an axis that the trees do not have yet is unbounded on all their rows
    new.bounds[:nodes, :2, width:], new.bounds[:nodes, 2:, width:] = -np.inf, np.inf
    return new


@jit
def _around(rows, row, box, strict):
    """Whether the row's interval contains the query interval on every axis."""
    for axis in range(box.low.shape[0]):
        its, mark = rows.marks[row, axis], box.marks[axis]
        if its & BOUNDED == 0:
            continue
        low, high = rows.low[row, axis], rows.high[row, axis]
        if mark & BOUNDED == 0 or low > box.low[axis] or high < box.high[axis]:
            return False
        if strict:
            if low == box.low[axis] and its & LOW_OPEN and not mark & LOW_OPEN:
                return False
            if high == box.high[axis] and its & HIGH_OPEN and not mark & HIGH_OPEN:
                return False
    return True


@jit
def _within(rows, row, box, strict):
    """Whether the query interval contains the row's on every axis."""
    for axis in range(box.low.shape[0]):
        its, mark = rows.marks[row, axis], box.marks[axis]
        if mark & BOUNDED == 0:
            continue
        low, high = rows.low[row, axis], rows.high[row, axis]
        if its & BOUNDED == 0 or low < box.low[axis] or high > box.high[axis]:
            return False
        if strict:
            if low == box.low[axis] and mark & LOW_OPEN and not its & LOW_OPEN:
                return False
            if high == box.high[axis] and mark & HIGH_OPEN and not its & HIGH_OPEN:
                return False
    return True


@jit
def _meeting(rows, row, box, strict):
    """Whether the row's interval and the query interval share a point on every axis."""
    for axis in range(box.low.shape[0]):
        its, mark = rows.marks[row, axis], box.marks[axis]
        if its & BOUNDED == 0 or mark & BOUNDED == 0:
            continue
        low, high = rows.low[row, axis], rows.high[row, axis]
        if low > box.high[axis] or high < box.low[axis]:
            return False
        if strict:
            if low == box.high[axis] and (its & LOW_OPEN or mark & HIGH_OPEN):
                return False
            if high == box.low[axis] and (its & HIGH_OPEN or mark & LOW_OPEN):
                return False
    return True


@jit
def _holds(asked, rows, row, box, strict):
    if asked == AROUND:
        return _around(rows, row, box, strict)
    if asked == WITHIN:
        return _within(rows, row, box, strict)
    return _meeting(rows, row, box, strict)


@jit
def _hopeless(asked, bounds, node, box):
    """Whether no row below a node can qualify."""
    for axis in range(box.low.shape[0]):
        a, b = box.low[axis], box.high[axis]
        if asked == AROUND:
            if bounds[node, 0, axis] > a or bounds[node, 3, axis] < b:
                return True
        elif box.marks[axis] & BOUNDED:
            if asked == WITHIN:
                if bounds[node, 1, axis] < a or bounds[node, 2, axis] > b:
                    return True
            elif bounds[node, 0, axis] > b or bounds[node, 3, axis] < a:
                return True
    return False


@jit
def search(low, high, marks, state, tags, order, left, bounds, a, b, mark, runs, leaf, asked, exact, tag, only, out):
    """Write the qualifying rows to `out` (int64[rows]); returns how many, how many were compared, and whether it was
    stopped.

    Called as search(*rows, *box, ...): passing named tuples of eleven arrays would cost numba some microseconds per
    call, as much as a search among a few rows. `asked` is AROUND, WITHIN or MEETING. `exact` is False if the box is
    only a hull. A qualifying row with one of the bits of `tag` (uint64) stops the search. With `only`, rows with none
    of the bits do not qualify, and a search AROUND is stopped by a row that has all of the bits and certainly covers
    the box.
    """
    rows, box = Sides(low, high, marks), Sides(a, b, mark)
    found = compared = 0
    nodes = np.empty(_DEPTH, np.int64)
    starts = np.empty(_DEPTH, np.int64)
    ends = np.empty(_DEPTH, np.int64)
    for run in range(runs.shape[0] - 1):
        top = 1
        nodes[0], starts[0], ends[0] = FAN * runs[run] // leaf, runs[run], runs[run + 1]
        scanned = run == runs.shape[0] - 2
        while top > 0:
            top -= 1
            node, start, end = nodes[top], starts[top], ends[top]
            if not scanned:
                if _hopeless(asked, bounds, node, box):
                    continue
                if left[node]:
                    middle = (start + end) // 2
                    nodes[top], starts[top], ends[top] = left[node], start, middle
                    nodes[top + 1], starts[top + 1], ends[top + 1] = left[node] + 1, middle, end
                    top += 2
                    continue
            for place in range(start, end):
                row = order[place]
                if state[row] == DEAD:
                    continue
                its = tags[row] & tag
                if only and not its:
                    continue
                compared += 1
                sure = exact and state[row] == EXACT
                if _holds(asked, rows, row, box, sure):
                    out[found] = row
                    found += 1
                    if (its and not only) or (only and sure and its == tag and asked == AROUND):
                        return found, compared, True
    return found, compared, False


@jit
def build(rows, start, end, leaf):
    """Build the tree of the run order[start:end], which is reordered. Cost: O(n log n)."""
    low, high, order, left, bounds = rows.low, rows.high, rows.order, rows.left, rows.bounds
    axes = low.shape[1]
    keys = np.empty(end - start, np.float64)
    floor, ceiling = _extremes(low, high, order, start, end)
    nodes = np.empty(_DEPTH, np.int64)
    starts = np.empty(_DEPTH, np.int64)
    ends = np.empty(_DEPTH, np.int64)
    nodes[0], starts[0], ends[0] = FAN * start // leaf, start, end
    new, top = nodes[0] + 1, 1
    while top > 0:
        top -= 1
        node, first, last = nodes[top], starts[top], ends[top]
        bounds[node, 0, :], bounds[node, 1, :] = np.inf, -np.inf
        bounds[node, 2, :], bounds[node, 3, :] = np.inf, -np.inf
        for place in range(first, last):
            row = order[place]
            for axis in range(axes):
                bounds[node, 0, axis] = min(bounds[node, 0, axis], low[row, axis])
                bounds[node, 1, axis] = max(bounds[node, 1, axis], low[row, axis])
                bounds[node, 2, axis] = min(bounds[node, 2, axis], high[row, axis])
                bounds[node, 3, axis] = max(bounds[node, 3, axis], high[row, axis])
        left[node] = 0
        if last - first <= leaf:
            continue
        best, side, widest = 0, 0, -1.0
        for axis in range(axes):
            for end_of in range(2):
                least, most = bounds[node, 2 * end_of, axis], bounds[node, 2 * end_of + 1, axis]
                spread = _near(most, floor[axis], ceiling[axis]) - _near(least, floor[axis], ceiling[axis])
                if spread > widest:
                    best, side, widest = axis, end_of, spread
        for place in range(first, last):
            row = order[place]
            keys[place - start] = high[row, best] if side else low[row, best]
        middle = (first + last) // 2
        _halve(keys, order, start, first, last, middle)
        left[node] = new
        nodes[top], starts[top], ends[top] = new, first, middle
        nodes[top + 1], starts[top + 1], ends[top + 1] = new + 1, middle, last
        new += 2
        top += 2


@jit
def _extremes(low, high, order, start, end):
    """The least and greatest finite end on each axis."""
    axes = low.shape[1]
    floor, ceiling = np.full(axes, np.inf), np.full(axes, -np.inf)
    for place in range(start, end):
        row = order[place]
        for axis in range(axes):
            for value in (low[row, axis], high[row, axis]):
                if np.isfinite(value):
                    floor[axis] = min(floor[axis], value)
                    ceiling[axis] = max(ceiling[axis], value)
    return floor, ceiling


@jit
def _near(value, floor, ceiling):
    """The position of an end on its axis, from 0 to 1. Infinite ends lie equally far outside."""
    if floor > ceiling:
        return 0.0
    if not np.isfinite(value):
        return -1.0 if value < 0 else 2.0
    return (value - floor) / (ceiling - floor) if ceiling > floor else 0.5


@jit
def _halve(keys, order, base, first, last, middle):
    """Reorder so that no key before the middle is greater than a key after it (Hoare's selection)."""
    low, high = first, last - 1
    while low < high:
        pivot = keys[(low + high) // 2 - base]
        i, j = low, high
        while i <= j:
            while keys[i - base] < pivot:
                i += 1
            while keys[j - base] > pivot:
                j -= 1
            if i <= j:
                keys[i - base], keys[j - base] = keys[j - base], keys[i - base]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return
