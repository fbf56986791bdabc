"""Space-filling curves, followed one bit of the index at a time. Index and cell are inverses of each other. The ranges
of a box contain all its cells, and without a cap nothing else.

A curve visits the cells of `dims` dimensions of 2^bits cells each, with dims * bits <= 63. Each bit of the index halves
the remaining cells in one dimension. A curve only decides which dimension that is and which half comes first: Z-order
takes the dimensions in turn and the lower half first, the Gray code begins with the half in which it already is, and
Hilbert's curve is a Gray code whose axes turn from level to level. One loop therefore serves all three.

`kind` is HILBERT, Z_ORDER or GRAY. Cells are int64[n, dims], indexes int64[n]. Ranges are two int64 arrays of starts
and ends, both inclusive, sorted, and never adjacent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.hilbert import turn, turn_back, turn_cell
from weft.kernels.jit import jit

HILBERT, Z_ORDER, GRAY = 0, 1, 2


@jit
def index_cells(cells, bits, kind, out):
    """Write the index of each cell to `out` (int64[n])."""
    dims = cells.shape[1]
    cell = np.empty(dims, np.int64)
    for row in range(cells.shape[0]):
        for dim in range(dims):
            cell[dim] = cells[row, dim]
        if kind == HILBERT:
            turn_cell(cell, bits)
        index = 0
        for level in range(bits - 1, -1, -1):
            for dim in range(dims):
                index = (index << 1) | ((cell[dim] >> level) & 1)
        if kind != Z_ORDER:  # from a Gray code to its rank
            for shift in (1, 2, 4, 8, 16, 32):
                index ^= index >> shift
        out[row] = index


@jit
def cells_at(indexes, bits, kind, out):
    """Write the cell of each index to `out` (int64[n, dims])."""
    dims = out.shape[1]
    cell = np.empty(dims, np.int64)
    for row in range(indexes.size):
        index = indexes[row]
        if kind != Z_ORDER:
            index ^= index >> 1
        for dim in range(dims):
            cell[dim] = 0
        rest = dims * bits
        for _ in range(bits):
            for dim in range(dims):
                rest -= 1
                cell[dim] = (cell[dim] << 1) | ((index >> rest) & 1)
        if kind == HILBERT:
            turn_back(cell, bits)
        for dim in range(dims):
            out[row, dim] = cell[dim]


@jit
def _unturned(bits, dims):
    """The axes and mirrors of all levels before any turn."""
    axes = np.empty((bits + 1, dims), np.int64)
    for level in range(bits + 1):
        for dim in range(dims):
            axes[level, dim] = dim
    return axes, np.zeros(bits + 1, np.int64)


@jit
def _gaps_from(starts, ends, count, size):
    """How many gaps between the first `count` ranges have at least this size."""
    found = 0
    for at in range(1, count):
        found += starts[at] - ends[at - 1] >= size
    return found


@jit
def close_gaps(starts, ends, count, most):
    """Reduce the first `count` ranges to at most `most` by closing the smallest gaps, in place; the last of equal gaps
    go first.

    Returns how many ranges are left. Cost: O(count) per bit of a gap.
    """
    if count <= most:
        return count
    if most == 1:
        ends[0] = ends[count - 1]
        return 1
    limit, above = np.int64(1), ends[count - 1] - starts[0]  # binary search for the smallest gap that stays
    while above - limit > 1:
        middle = limit + ((above - limit) >> 1)
        if _gaps_from(starts, ends, count, middle) >= most - 1:
            limit = middle
        else:
            above = middle
    ties = most - 1 - _gaps_from(starts, ends, count, limit + 1)  # how many gaps of exactly this size stay
    left = 0
    for at in range(1, count):
        gap = starts[at] - ends[at - 1]
        if gap == limit and ties > 0:
            ties -= 1
        elif gap <= limit:
            ends[left] = ends[at]
            continue
        left += 1
        starts[left], ends[left] = starts[at], ends[at]
    return left + 1


class _Room(NamedTuple):
    """The buffers that a descent writes to, reused for every box."""

    starts: NDArray[np.int64]  # [2 * most]: with `ends`, the ranges found
    ends: NDArray[np.int64]
    axes: NDArray[np.int64]  # with `mirrors`, how the curve is turned at each level
    mirrors: NDArray[np.int64]
    stack: NDArray[np.int64]  # [dims * bits, 4]: the halves above the current one
    corner: NDArray[np.int64]  # [dims]: the first cell of the current half; `span` is its extent beyond that
    span: NDArray[np.int64]


@jit
def _descend(low, high, bits, kind, limit, patience, most, room):
    """Find the ranges of the box `low`..`high` (int64[dims], inclusive), halving at most `limit` times.

    The descent is depth first, along the curve, and enters only halves that are partly in the box. A half at the limit
    counts as inside. Ranges are written to `starts` and `ends` of the room. Returns how many there are, or -1 if more
    than `patience` halves were visited. Closing gaps whenever the room is full gives the same ranges as closing them at
    the end.
    """
    starts, ends, axes, mirrors = room.starts, room.ends, room.axes, room.mirrors
    stack, corner, span = room.stack, room.corner, room.span
    dims = low.size
    whole = dims * bits
    cut = 0  # dimensions in which the box does not contain the whole current half
    for dim in range(dims):
        corner[dim], span[dim] = 0, (((1 << (bits - 1)) - 1) << 1) | 1  # 2^63 - 1 without overflow
        if low[dim] > 0 or high[dim] < span[dim]:
            cut += 1
    if cut == 0 or limit == 0:
        starts[0], ends[0] = 0, (((1 << (whole - 1)) - 1) << 1) | 1
        return 1
    count, seen, depth, level, axis, index, bit = 0, 0, 0, 0, 0, 0, 0
    dim, flip = axes[0, 0], 0
    while True:
        if bit < 2:
            half = span[dim] >> 1
            first = corner[dim]
            base = first + half + 1 if bit ^ flip else first
            if base > high[dim] or base + half < low[dim]:
                bit += 1
                continue
            seen += 1
            if seen > patience:
                return -1
            still = cut
            if (first < low[dim] or first + span[dim] > high[dim]) and (base >= low[dim] and base + half <= high[dim]):
                still -= 1
            if still == 0 or depth + 1 == limit:
                rest = whole - depth - 1
                start = ((index << 1) | bit) << rest
                end = start + ((1 << rest) - 1)
                if count > 0 and ends[count - 1] + 1 == start:
                    ends[count - 1] = end
                else:
                    if count == starts.size:
                        count = close_gaps(starts, ends, count, most)
                    starts[count], ends[count] = start, end
                    count += 1
                bit += 1
                continue
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = dim, flip, first, cut
            corner[dim], span[dim] = base, half
            cut = still
            index = (index << 1) | bit
            depth += 1
            axis += 1
            if axis == dims:
                axis = 0
                if kind == HILBERT:
                    turn(axes, mirrors, level, index ^ (index >> 1))
                level += 1
            dim = axes[level, axis]
            flip = 0 if kind == Z_ORDER else bit ^ ((mirrors[level] >> axis) & 1)
            bit = 0
        elif depth == 0:
            return close_gaps(starts, ends, count, most)
        else:
            depth -= 1
            axis -= 1
            if axis < 0:
                axis = dims - 1
                level -= 1
            dim, flip, cut = stack[depth, 0], stack[depth, 1], stack[depth, 3]
            corner[dim] = stack[depth, 2]
            span[dim] = (span[dim] << 1) | 1
            bit = (index & 1) + 1
            index >>= 1


@jit
def cover_boxes(lows, highs, bits, kind, most, patience, row, offsets, starts, ends):
    """Write the ranges of the boxes (int64[n, dims] each, inclusive) from `row` on to offsets (int64[n + 1]), starts
    and ends.

    Each box gets at most `most` ranges, after visiting about `patience` (int64[n]) halves. If that does not suffice,
    the descent stops at the greatest depth for which it does, and a half that is partly in the box there counts as
    inside. Returns the row at which `starts` and `ends` ran full, or n if they did not.
    """
    dims = lows.shape[1]
    whole = dims * bits
    some_starts, some_ends = np.empty(2 * most, np.int64), np.empty(2 * most, np.int64)
    axes, mirrors = _unturned(bits, dims)
    stack = np.empty((whole, 4), np.int64)
    corner, span = np.empty(dims, np.int64), np.empty(dims, np.int64)
    room = _Room(some_starts, some_ends, axes, mirrors, stack, corner, span)
    depth = whole
    while row < lows.shape[0]:
        low, high = lows[row], highs[row]
        good, bad = 0, whole + 1  # a search by halves: a greater depth visits no fewer halves of the curve
        step = whole if depth == whole else 1  # from a guess, it begins with small steps down
        count = -1
        while count < 0 or bad - good > 1:
            count = _descend(low, high, bits, kind, depth, patience[row], most, room)
            if count < 0:
                bad = depth
            else:
                good = depth
            if bad > whole:
                depth = whole
            elif good == 0:
                depth = max(bad - step, bad >> 1)
                step *= 2
            else:
                depth = (good + bad) >> 1
        depth = min(bad, whole)  # the boxes of a filter are often alike: the next one begins where this one failed
        at = offsets[row]
        if at + count > starts.size:
            return row
        for place in range(count):
            starts[at + place], ends[at + place] = some_starts[place], some_ends[place]
        offsets[row + 1] = at + count
        row += 1
    return row
