"""The construction of a partition tree over boxes of codes. A row lies in every leaf that an event inside it can reach.

Rows are given as constraints, sorted by row: `starts` (int64[n+1]) into `dims`, `lows`, `highs` (int32, ends included).
`ids` (int32) names the rows. Negative names are special and are grouped at the end of a leaf.
`sizes` (int64[d]) is the number of codes of each dimension.

A `PartitionTree` is six arrays:
- `nodes` (int32, eight per node). Inner: dimension, shift, child for rows too wide to cut or -1, first position in
  `children`, most cells of a row, cells. Leaf: -1, first block, blocks, start in `columns`, start in `data`
  (units of 32).
- `children` (int32): the node of each cell, or -1.
- `columns` (int32), for each block: number of columns, units of data; twice a dimension and the least and the greatest
  code of the block's rows there; then 4 * dimension + kind (see `leaves`) of each column. SPECIAL is added to the
  number if a row of the block is special.
- `data` (uint16): the bounds of each column, as in `simd`.
- `ids` (int32) and `live` (uint32): the names of the 32 rows of each block, and a mask of the live ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import elements, inner, light
from weft.kernels.leaves import fetch, grown, write_leaf

NODE = 8
_SAMPLE = 2000
_WORTH = 0.15  # a cut must save a node this share of its rows
_WIDE_RANGE = 0.6  # ranges wider than this share of a dimension are not worth cutting
_LANES = np.arange(32, dtype=np.uint32)


class PartitionTree(NamedTuple):
    """The arrays of a tree."""

    nodes: NDArray[np.int32]
    children: NDArray[np.int32]
    columns: NDArray[np.int32]
    data: NDArray[np.uint16]
    ids: NDArray[np.int32]
    live: NDArray[np.uint32]

    def places(self) -> NDArray[np.int64]:
        """The positions in `ids` of rows that are not special; the last lanes of a block may be empty."""
        filled = np.repeat(self.live, 32) >> np.tile(_LANES, len(self.live)) & 1 == 1
        return np.flatnonzero((self.ids >= 0) & filled)


@inner
def _side_by_side(dims, lows, highs):
    """The constraints as dimension, low, high, interleaved as `leaves` expects them."""
    ranges = np.empty(3 * dims.size, np.int32)
    for place in range(dims.size):
        ranges[3 * place] = dims[place]
        ranges[3 * place + 1] = lows[place]
        ranges[3 * place + 2] = highs[place]
    return ranges


@inner
def _best_dimension(starts, ranges, sizes, rows, used, scratch):
    """The unused dimension that saves most, judged by a sample of the rows, and the mean width there; -1 if none saves
    enough.
    """
    count, touched, benefit, width = scratch
    seen = 0
    step = max(1, rows.size // _SAMPLE)
    found = 0
    for at in range(0, rows.size, step):
        seen += 1
        row = rows[at]
        for place in range(3 * starts[row], 3 * starts[row + 1], 3):
            dim = ranges[place]
            if used[dim]:
                continue
            wide = ranges[place + 2] - ranges[place + 1] + 1
            share = wide / sizes[dim]
            if share < _WIDE_RANGE:
                if count[dim] == 0:
                    touched[found] = dim
                    found += 1
                count[dim] += 1
                benefit[dim] += 1.0 - share
                width[dim] += wide
    best, most, mean = -1, _WORTH * seen, 0.0
    for at in range(found):
        dim = touched[at]
        if benefit[dim] > most or (benefit[dim] == most and best >= 0 and dim < best):
            best, most, mean = dim, benefit[dim], width[dim] / count[dim]
    for at in range(found):
        count[touched[at]] = 0
        benefit[touched[at]] = 0.0
        width[touched[at]] = 0.0
    return best, mean


@inner
def _cut(starts, ranges, rows, dim, shift, most, cells, from_cell, to_cell):
    """Write the first and last cell that each row meets on a dimension to `from_cell` and `to_cell`; count in `cells`.

    The first cell is -1 for a row that is too wide. Returns the number of such rows and the total of `cells`.
    """
    wide, total = 0, 0
    for at in range(rows.size):
        fetch(starts, ranges, rows, at)
        row = rows[at]
        first, last = np.int32(-1), np.int32(-1)
        for place in range(3 * starts[row], 3 * starts[row + 1], 3):
            if ranges[place] == dim:
                first, last = ranges[place + 1] >> shift, ranges[place + 2] >> shift
                break
        if first < 0 or last - first + 1 > most:
            first = np.int32(-1)
            wide += 1
        else:
            for cell in range(first, last + 1):
                cells[cell] += 1
            total += last - first + 1
        from_cell[at], to_cell[at] = first, last
    return wide, total


@inner
def _first(array, size):
    """A copy of the first items."""
    made = np.empty(size, array.dtype)
    for at in range(size):
        made[at] = array[at]
    return made


@light(elements)
def build(starts, dims, lows, highs, ids, sizes, leaf, alpha, most_cells):
    """The tree over all rows.

    `leaf`: number of rows that need no further cut. `alpha`: width of a cell, in mean ranges. `most_cells`: a row that
    touches more cells than this, and more than a third of all, goes to the node's child for wide rows.
    """
    n, d = starts.size - 1, sizes.size
    ranges = _side_by_side(dims, lows, highs)
    pool = np.empty(2 * n + 1024, np.int32)
    for row in range(n):
        pool[row] = row
    nodes = np.full(NODE * 64, -1, np.int32)
    parent, path_dim = np.full(64, -1, np.int32), np.full(64, -1, np.int32)
    cell_low, cell_high = np.zeros(64, np.int64), np.zeros(64, np.int64)
    first, size = np.zeros(64, np.int64), np.zeros(64, np.int64)
    stack = np.zeros(64, np.int32)
    size[0], depth, made = n, 1, 1
    children, child_count = np.empty(64, np.int32), 0
    leaves = np.empty(64, np.int32), np.empty(64 * 32, np.uint16), np.empty(32 * 64, np.int32), np.empty(64, np.uint32)
    ends = np.int64(0), np.int64(0), np.int64(0)  # of columns, of data (in units) and of blocks
    used = np.zeros(d, np.bool_)
    count, touched = np.zeros(d, np.int64), np.empty(d + 1, np.int32)
    benefit, width, score = np.zeros(d), np.zeros(d), np.zeros(d)
    bit, where = np.full(d, -1), np.full(d, -1)
    path_low, path_high = np.zeros(d, np.int64), sizes - 1
    cells = np.empty(2, np.int64)
    from_cell, to_cell = np.empty(n, np.int32), np.empty(n, np.int32)
    while depth > 0:
        depth -= 1
        node = stack[depth]
        start, c = first[node], size[node]
        up = node
        while up >= 0 and path_dim[up] >= 0:
            dim = path_dim[up]
            used[dim] = True
            path_low[dim], path_high[dim] = cell_low[up], cell_high[up]
            up = parent[up]
        best = -1
        if c > leaf:
            rows = pool[start : start + c]
            best, mean = _best_dimension(starts, ranges, sizes, rows, used, (count, touched, benefit, width))
        wide = c
        if best >= 0:
            shift = 0
            while mean > 1 and (2 << shift) <= mean * alpha:  # equalities lie in one cell each, however small it is
                shift += 1
            while (sizes[best] >> shift) > 4 and (sizes[best] >> shift) * (leaf // 4) > c * 2:
                shift += 1
            n_cells = ((sizes[best] - 1) >> shift) + 1
            most = min(max(most_cells, n_cells * 3 // 10), 64, n_cells - 1)
            if cells.size < n_cells + 1:
                cells = np.empty(2 * n_cells + 1, np.int64)
            for cell in range(n_cells + 1):
                cells[cell] = 0
            wide, total = _cut(starts, ranges, pool[start : start + c], best, shift, most, cells, from_cell, to_cell)
        if best >= 0 and wide < c:
            # The rows of the node stay in place until its children are done; the children's rows go on top of the pool.
            top = start + c
            pool = grown(pool, top + wide + total)
            to_wide, to_next = top, top + wide
            for cell in range(n_cells):
                here = cells[cell]
                cells[cell] = to_next
                to_next += here
            for at in range(c):
                row = pool[start + at]
                if from_cell[at] < 0:
                    pool[to_wide] = row
                    to_wide += 1
                else:
                    for cell in range(from_cell[at], to_cell[at] + 1):
                        pool[cells[cell]] = row
                        cells[cell] += 1
            nodes = grown(nodes, NODE * (made + n_cells + 1))
            for at in range(NODE * made, NODE * (made + n_cells + 1)):
                nodes[at] = -1
            parent, path_dim = grown(parent, made + n_cells + 1), grown(path_dim, made + n_cells + 1)
            cell_low, cell_high = grown(cell_low, made + n_cells + 1), grown(cell_high, made + n_cells + 1)
            first, size = grown(first, made + n_cells + 1), grown(size, made + n_cells + 1)
            stack = grown(stack, depth + n_cells + 1)
            children = grown(children, child_count + n_cells)
            nodes[NODE * node] = best
            nodes[NODE * node + 1] = shift
            nodes[NODE * node + 2] = -1
            nodes[NODE * node + 3] = child_count
            nodes[NODE * node + 4] = most
            nodes[NODE * node + 5] = n_cells
            begin = top
            for cell in range(-1, n_cells):  # -1: the rows too wide to cut
                end = top + wide if cell < 0 else cells[cell]
                if end > begin:
                    parent[made], path_dim[made] = node, best
                    cell_low[made] = 0 if cell < 0 else cell << shift
                    cell_high[made] = sizes[best] - 1 if cell < 0 else min(((cell + 1) << shift) - 1, sizes[best] - 1)
                    first[made], size[made] = begin, end - begin
                    stack[depth] = made
                    depth += 1
                if cell < 0:
                    nodes[NODE * node + 2] = made if end > begin else -1
                else:
                    children[child_count + cell] = made if end > begin else -1
                if end > begin:
                    made += 1
                begin = end
            child_count += n_cells
        else:
            nodes[NODE * node] = -1
            nodes[NODE * node + 1] = ends[2]
            nodes[NODE * node + 2] = (c + 31) // 32
            nodes[NODE * node + 3] = ends[0]
            nodes[NODE * node + 4] = ends[1]
            rows, scratch = pool[start : start + c], (count, touched, score, bit, where)
            leaves, ends = write_leaf(starts, ranges, ids, rows, path_low, path_high, scratch, leaves, ends)
        up = node
        while up >= 0 and path_dim[up] >= 0:
            dim = path_dim[up]
            used[dim] = False
            path_low[dim], path_high[dim] = 0, sizes[dim] - 1
            up = parent[up]
    columns, data, leaf_ids, live = leaves
    return PartitionTree(
        _first(nodes, NODE * made),
        _first(children, child_count),
        _first(columns, ends[0]),
        _first(data, 32 * ends[1]),
        _first(leaf_ids, 32 * ends[2]),
        _first(live, ends[2]),
    )


@light(elements)
def regroup(starts, dims, lows, highs, order):
    """The constraints of some rows, or of all, in another order: starts, dims, lows, highs."""
    new_starts = np.empty(order.size + 1, np.int64)
    to = 0
    for at in range(order.size):
        to += starts[order[at] + 1] - starts[order[at]]
    new_dims, new_lows, new_highs = np.empty(to, dims.dtype), np.empty(to, lows.dtype), np.empty(to, highs.dtype)
    to = 0
    for at in range(order.size):
        new_starts[at] = to
        row = order[at]
        for place in range(starts[row], starts[row + 1]):
            new_dims[to], new_lows[to], new_highs[to] = dims[place], lows[place], highs[place]
            to += 1
    new_starts[order.size] = to
    return new_starts, new_dims, new_lows, new_highs
