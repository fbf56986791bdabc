"""Building a partition tree over boxes of codes. Law: a row lies in every leaf that an event inside it can reach.

Rows come as constraints, sorted by row: `starts` (int64[n+1]) into `dims`, `lows`, `highs` (int32, ends included).
`ids` (int32) names the rows; negative names are special, and are kept together at the end of a leaf.
`sizes` (int64[d]) has the number of codes of each dimension; those past 65,536 are wide.

A tree is four arrays:
- `nodes` (int32, eight a node). Inner: dimension, shift, child for rows too wide to cut or -1, first place in
  `children`, most cells of a row, cells. Leaf: -1, first block, blocks, start in `columns`, start in `data`
  (units of 32).
- `children` (int32): the node of each cell, or -1.
- `columns` (int32), for each block: number of columns, units of data, then the dimensions (2 * d + 1 if wide).
  The number has SPECIAL added if a row of the block is special.
- `data` (uint16): the bounds of each column, as in `simd`.
`ids` and `live` (uint32) have 32 rows and a mask for each block.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit

NODE = 8
SPECIAL = 1 << 20
NARROW = 65536
_SAMPLE = 2000
_WORTH = 0.15  # a cut must spare a node this share of its rows
_WIDE_RANGE = 0.6  # ranges wider than this share of a dimension are not worth cutting


@jit
def _grown(array, size):
    """The array, or a copy at least twice as long that holds `size` items."""
    if size <= array.size:
        return array
    longer = np.empty(max(size, 2 * array.size), array.dtype)
    longer[: array.size] = array
    return longer


@jit
def _find(starts, dims, row, dim):
    """The place of a row's constraint on a dimension, or -1."""
    for place in range(starts[row], starts[row + 1]):
        if dims[place] == dim:
            return place
    return -1


@jit
def _best_dimension(starts, dims, lows, highs, sizes, rows, used, benefit, width, count, touched):
    """The unused dimension that spares most, by a sample of the rows, and the mean width there; -1 if none does."""
    seen = 0
    step = max(1, rows.size // _SAMPLE)
    found = 0
    for at in range(0, rows.size, step):
        seen += 1
        row = rows[at]
        for place in range(starts[row], starts[row + 1]):
            dim = dims[place]
            if used[dim]:
                continue
            wide = highs[place] - lows[place] + 1
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
        count[dim] = 0
    for at in range(found):
        benefit[touched[at]] = 0.0
        width[touched[at]] = 0.0
    return best, mean


@jit
def _write_leaf(
    starts,
    dims,
    lows,
    highs,
    ids,
    sizes,
    rows,
    path_low,
    path_high,
    scratch,
    columns,
    data,
    at_column,
    at_data,
    leaf_ids,
    live,
    block,
):
    """Append a leaf's blocks; returns the grown arrays and the new ends."""
    count, score, needs = scratch
    n = rows.size
    touched = np.empty(64, np.int32)
    found = 0
    for at in range(n):
        row = rows[at]
        for place in range(starts[row], starts[row + 1]):
            dim = dims[place]
            if lows[place] > path_low[dim] or highs[place] < path_high[dim]:
                if count[dim] == 0:
                    touched = _grown(touched, found + 1)
                    touched[found] = dim
                    found += 1
                count[dim] += 1
    # Rows with the same set of needed columns side by side; the rarest column decides first.
    order = np.argsort(count[touched[:found]])[::-1]
    rank = needs
    for at in range(found):
        rank[touched[order[at]]] = at
    keys = np.zeros(n, np.uint64)
    for at in range(n):
        row = rows[at]
        key = np.uint64(0)
        for place in range(starts[row], starts[row + 1]):
            dim = dims[place]
            if lows[place] > path_low[dim] or highs[place] < path_high[dim]:
                key |= np.uint64(1) << np.uint64(rank[dim] % 63)
        if ids[row] < 0:
            key |= np.uint64(1) << np.uint64(63)
        keys[at] = key
    for at in range(found):
        count[touched[at]] = 0
    sorted_rows = rows[np.argsort(keys, kind="mergesort")]
    blocks = (n + 31) // 32
    leaf_ids = _grown(leaf_ids, 32 * (block + blocks))
    live = _grown(live, block + blocks)
    for b in range(blocks):
        first, last = 32 * b, min(n, 32 * b + 32)
        live[block] = np.uint32((np.uint64(1) << np.uint64(last - first)) - np.uint64(1))
        special = 0
        found = 0
        for at in range(first, last):
            row = sorted_rows[at]
            leaf_ids[32 * block + at - first] = ids[row]
            if ids[row] < 0:
                special = SPECIAL
            for place in range(starts[row], starts[row + 1]):
                dim = dims[place]
                low, high = max(lows[place], path_low[dim]), min(highs[place], path_high[dim])
                if low > path_low[dim] or high < path_high[dim]:
                    if count[dim] == 0:
                        touched = _grown(touched, found + 1)
                        touched[found] = dim
                        found += 1
                        score[dim] = 0.0
                    count[dim] += 1
                    score[dim] += 1.0 - (high - low + 1) / (path_high[dim] - path_low[dim] + 1)
        for at in range(last - first, 32):
            leaf_ids[32 * block + at] = 0
        columns = _grown(columns, at_column + 2 + found)
        units = 0
        chosen = touched[:found]
        most_selective = np.argsort(-score[chosen], kind="mergesort")
        for column in range(found):
            dim = chosen[most_selective[column]]
            wide = sizes[dim] > NARROW
            columns[at_column + 2 + column] = 2 * dim + (1 if wide else 0)
            size = 4 if wide else 2
            data = _grown(data, 32 * (at_data + size))
            base = 32 * at_data
            for lane in range(32):
                low, high = np.int64(0), sizes[dim] - 1
                if first + lane < last:
                    place = _find(starts, dims, sorted_rows[first + lane], dim)
                    if place >= 0:
                        low, high = np.int64(lows[place]), np.int64(highs[place])
                if wide:
                    data[base + lane] = low >> 16
                    data[base + 32 + lane] = low & 65535
                    data[base + 64 + lane] = high >> 16
                    data[base + 96 + lane] = high & 65535
                else:
                    data[base + lane] = low
                    data[base + 32 + lane] = high
            at_data += size
            units += size
        for at in range(found):
            count[touched[at]] = 0
        columns[at_column] = found + special
        columns[at_column + 1] = units
        at_column += 2 + found
        block += 1
    return columns, data, at_column, at_data, leaf_ids, live, block


@jit
def build(starts, dims, lows, highs, ids, sizes, leaf, alpha, most_cells):
    """The tree of all rows: nodes, children, columns, data, ids, live.

    `leaf`: rows that need no further cut. `alpha`: a cell is about so many mean ranges wide. `most_cells`: a row that
    touches more cells than this, and than a third of them, goes to the node's child for wide rows.
    """
    n, d = starts.size - 1, sizes.size
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
    columns, at_column = np.empty(64, np.int32), 0
    data, at_data = np.empty(64 * 32, np.uint16), 0
    leaf_ids, live, block = np.empty(32 * 64, np.int32), np.empty(64, np.uint32), 0
    used = np.zeros(d, np.bool_)
    benefit, width, count = np.zeros(d), np.zeros(d), np.zeros(d, np.int64)
    touched = np.empty(d + 1, np.int32)
    score, rank = np.zeros(d), np.zeros(d, np.int64)
    path_low, path_high = np.zeros(d, np.int64), sizes - 1
    cells = np.empty(2, np.int64)
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
            best, mean = _best_dimension(
                starts, dims, lows, highs, sizes, pool[start : start + c], used, benefit, width, count, touched
            )
        wide = c
        if best >= 0:
            shift = 0
            while (2 << shift) <= mean * alpha:
                shift += 1
            while (sizes[best] >> shift) > 4 and (sizes[best] >> shift) * (leaf // 4) > c * 2:
                shift += 1
            n_cells = ((sizes[best] - 1) >> shift) + 1
            most = min(max(most_cells, n_cells * 3 // 10), 64)
            if cells.size < n_cells + 1:
                cells = np.empty(2 * n_cells + 1, np.int64)
            cells[: n_cells + 1] = 0
            wide = 0
            total = 0
            for at in range(start, start + c):
                place = _find(starts, dims, pool[at], best)
                if place < 0 or (highs[place] >> shift) - (lows[place] >> shift) + 1 > min(most, n_cells - 1):
                    wide += 1
                else:
                    for cell in range(lows[place] >> shift, (highs[place] >> shift) + 1):
                        cells[cell] += 1
                        total += 1
        if best >= 0 and wide < c:
            # The node's rows stay where they are until its children are done: these go on top of the pool.
            top = start + c
            pool = _grown(pool, top + wide + total)
            to_wide, to_cell = top, top + wide
            for cell in range(n_cells):
                here = cells[cell]
                cells[cell] = to_cell
                to_cell += here
            for at in range(start, start + c):
                row = pool[at]
                place = _find(starts, dims, row, best)
                if place < 0 or (highs[place] >> shift) - (lows[place] >> shift) + 1 > min(most, n_cells - 1):
                    pool[to_wide] = row
                    to_wide += 1
                else:
                    for cell in range(lows[place] >> shift, (highs[place] >> shift) + 1):
                        pool[cells[cell]] = row
                        cells[cell] += 1
            nodes = _grown(nodes, NODE * (made + n_cells + 1))
            parent, path_dim = _grown(parent, made + n_cells + 1), _grown(path_dim, made + n_cells + 1)
            cell_low, cell_high = _grown(cell_low, made + n_cells + 1), _grown(cell_high, made + n_cells + 1)
            first, size = _grown(first, made + n_cells + 1), _grown(size, made + n_cells + 1)
            stack = _grown(stack, depth + n_cells + 1)
            children = _grown(children, child_count + n_cells)
            nodes[NODE * node] = best
            nodes[NODE * node + 1] = shift
            nodes[NODE * node + 2] = -1
            nodes[NODE * node + 3] = child_count
            nodes[NODE * node + 4] = min(most, n_cells - 1)
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
            nodes[NODE * node + 1] = block
            nodes[NODE * node + 2] = (c + 31) // 32
            nodes[NODE * node + 3] = at_column
            nodes[NODE * node + 4] = at_data
            columns, data, at_column, at_data, leaf_ids, live, block = _write_leaf(
                starts, dims, lows, highs, ids, sizes, pool[start : start + c], path_low, path_high,
                (count, score, rank), columns, data, at_column, at_data, leaf_ids, live, block,
            )  # fmt: skip
        up = node
        while up >= 0 and path_dim[up] >= 0:
            dim = path_dim[up]
            used[dim] = False
            path_low[dim], path_high[dim] = 0, sizes[dim] - 1
            up = parent[up]
    return (
        nodes[: NODE * made].copy(),
        children[:child_count].copy(),
        columns[:at_column].copy(),
        data[: 32 * at_data].copy(),
        leaf_ids[: 32 * block].copy(),
        live[:block].copy(),
    )
