"""Boxes around and within a box, among very many. Law: every row that answers is given, and each once.

Rows are boxes over `axes` (low, high float64[rows, axes], marks uint8[rows, axes] as in kernels.boxes), and `state`
(uint8[rows]): DEAD, HULL (the row is only a hull of what it stands for, so that equal ends decide nothing) or EXACT.
`order` (int64[n]) holds rows in runs: run r is order[runs[r]:runs[r + 1]]. Each run but the last, which is scanned, is
a tree: halves of halves down to `leaf` rows, its nodes numbered from FAN * runs[r] // leaf on. `left` (int64[nodes]) is
a node's first child, the second is next to it, and 0 says leaf; `bounds` (float64[nodes, 4, axes]) are the least and
greatest low end and the least and greatest high end below each node.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN
from weft.kernels.jit import jit

DEAD, HULL, EXACT = 0, 1, 2
AROUND, WITHIN, MEETING = 0, 1, 2  # what is asked: rows that cover, that are covered, that overlap
FAN = 4  # a leaf is at least half full, so there are fewer nodes than this for each full leaf
_DEPTH = 128


@jit
def around(low, high, marks, row, a, b, mark, strict):
    """Whether the row's interval holds the asked one on every axis."""
    for axis in range(a.shape[0]):
        its = marks[row, axis]
        if its & BOUNDED == 0:
            continue
        if mark[axis] & BOUNDED == 0 or low[row, axis] > a[axis] or high[row, axis] < b[axis]:
            return False
        if strict:
            if low[row, axis] == a[axis] and its & LOW_OPEN and not mark[axis] & LOW_OPEN:
                return False
            if high[row, axis] == b[axis] and its & HIGH_OPEN and not mark[axis] & HIGH_OPEN:
                return False
    return True


@jit
def within(low, high, marks, row, a, b, mark, strict):
    """Whether the asked interval holds the row's on every axis."""
    for axis in range(a.shape[0]):
        if mark[axis] & BOUNDED == 0:
            continue
        its = marks[row, axis]
        if its & BOUNDED == 0 or low[row, axis] < a[axis] or high[row, axis] > b[axis]:
            return False
        if strict:
            if low[row, axis] == a[axis] and mark[axis] & LOW_OPEN and not its & LOW_OPEN:
                return False
            if high[row, axis] == b[axis] and mark[axis] & HIGH_OPEN and not its & HIGH_OPEN:
                return False
    return True


@jit
def meeting(low, high, marks, row, a, b, mark, strict):
    """Whether the row's interval and the asked one share a point on every axis."""
    for axis in range(a.shape[0]):
        its = marks[row, axis]
        if its & BOUNDED == 0 or mark[axis] & BOUNDED == 0:
            continue
        if low[row, axis] > b[axis] or high[row, axis] < a[axis]:
            return False
        if strict:
            if low[row, axis] == b[axis] and (its & LOW_OPEN or mark[axis] & HIGH_OPEN):
                return False
            if high[row, axis] == a[axis] and (its & HIGH_OPEN or mark[axis] & LOW_OPEN):
                return False
    return True


@jit
def _holds(asked, low, high, marks, row, a, b, mark, strict):
    if asked == AROUND:
        return around(low, high, marks, row, a, b, mark, strict)
    if asked == WITHIN:
        return within(low, high, marks, row, a, b, mark, strict)
    return meeting(low, high, marks, row, a, b, mark, strict)


@jit
def _hopeless(asked, bounds, node, a, b, mark):
    """Whether no row below a node can answer."""
    for axis in range(a.shape[0]):
        if asked == AROUND:
            if bounds[node, 0, axis] > a[axis] or bounds[node, 3, axis] < b[axis]:
                return True
        elif mark[axis] & BOUNDED:
            if asked == WITHIN:
                if bounds[node, 1, axis] < a[axis] or bounds[node, 2, axis] > b[axis]:
                    return True
            elif bounds[node, 0, axis] > b[axis] or bounds[node, 3, axis] < a[axis]:
                return True
    return False


@jit
def search(asked, low, high, marks, state, tags, order, runs, left, bounds, leaf, a, b, mark, exact, tag, only, out):
    """Rows that answer, into `out` (int64[rows]); returns how many, how many were compared, and whether it was stopped.

    The asked box is a, b (float64[axes]) and mark (uint8[axes]); `exact` is False if it is only a hull. A row that
    answers and has one of the bits of `tag` in its `tags` (uint64[rows]) stops the search; with `only`, rows with none
    of the bits do not answer, and what stops a search AROUND is a row that has all of them and surely covers.
    """
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
                if _hopeless(asked, bounds, node, a, b, mark):
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
                if _holds(asked, low, high, marks, row, a, b, mark, sure):
                    out[found] = row
                    found += 1
                    if (its and not only) or (only and sure and its == tag and asked == AROUND):
                        return found, compared, True
    return found, compared, False


@jit
def build(low, high, order, start, end, left, bounds, leaf):
    """Make the tree of the run order[start:end], which is reordered. Cost: O(n log n)."""
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
    """An end's place on the axis, 0 to 1; infinite ones lie as far outside again."""
    if floor > ceiling:
        return 0.0
    if not np.isfinite(value):
        return -1.0 if value < 0 else 2.0
    return (value - floor) / (ceiling - floor) if ceiling > floor else 0.5


@jit
def _halve(keys, order, base, first, last, middle):
    """Reorder so that no key before the middle is greater than one after it (Hoare's selection)."""
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
