"""The validation of a partition tree for some rows. After FINE, no search of the tree reads outside its arrays or fails
to terminate, and it finds a row if and only if all codes of the event are in the row's ranges. The check itself reads
nothing outside its arrays, whatever their contents, and its work is linear in their sizes.

The arrays are those of `partition` and may all hold anything. Rows are given as `starts` (int64[n+1]), `dims`, `lows`
and `highs` (int32), which must be valid: see `rows_fault`.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import inner, jit
from weft.kernels.leaves import BYTES, HEADER, NARROW, SPECIAL, WIDE
from weft.kernels.partition import NODE

FINE = 0
FAULTS = (
    "",
    "a node has an impossible dimension, shift or number of cells",
    "a node's children are outside the tree, or have two parents",
    "a node is cut by a dimension twice, or lies too deep",
    "a leaf's blocks are outside their arrays",
    "a block's columns are not those of its leaf",
    "a block names a row that does not exist",
    "a row's bounds in a leaf are not its own",
    "a row is in a leaf where it does not belong, or twice in one",
    "a row is missing in a leaf",
)
_NODE, _CHILD, _DEPTH, _BLOCKS, _COLUMNS, _NAME, _BOUNDS, _PLACE, _MISSING = range(1, 10)
_DEEPEST = 4096
_CELLS = 64  # that a row may lie in
_MOST_ROWS = 64  # per slot under one name


@jit
def rows_fault(starts, dims, lows, highs, sizes):
    """Whether a row's constraints are out of order, outside their dimensions, repeat a dimension, or test nothing."""
    seen = np.full(sizes.size, -1, np.int64)
    if starts[0] != 0 or starts[starts.size - 1] != dims.size:
        return True
    for row in range(starts.size - 1):
        if starts[row + 1] < starts[row] or starts[row + 1] > dims.size:
            return True
        for place in range(starts[row], starts[row + 1]):
            dim, low, high = dims[place], lows[place], highs[place]
            if dim < 0 or dim >= sizes.size or seen[dim] == row or low < 0 or low > high or high >= sizes[dim]:
                return True
            if low == 0 and high == sizes[dim] - 1:
                return True
            seen[dim] = row
    return False


@inner
def _nodes_fault(nodes, children, blocks, sizes, parent, cell):
    """Fill `parent` and `cell` (int32, one per node; -1 for a child for wide rows); returns what is wrong."""
    n = parent.size
    total_cells, total_blocks = np.int64(0), np.int64(0)
    for node in range(1, n):
        parent[node] = -1
    parent[0], cell[0] = -1, -1
    for node in range(n):
        if node > 0 and parent[node] < 0:
            return _CHILD
        place = node * NODE
        dim = np.int64(nodes[place])
        if dim < 0:
            block, count = np.int64(nodes[place + 1]), np.int64(nodes[place + 2])
            if dim != -1 or block < 0 or count < 0 or block + count > blocks or (count == 0 and node > 0):
                return _BLOCKS
            total_blocks += count
            continue
        shift, first = np.int64(nodes[place + 1]), np.int64(nodes[place + 3])
        most, n_cells = np.int64(nodes[place + 4]), np.int64(nodes[place + 5])
        if dim >= sizes.size or shift < 0 or shift > 31 or most < 0 or most > _CELLS:
            return _NODE
        if n_cells != ((sizes[dim] - 1) >> shift) + 1:
            return _NODE
        if first < 0 or first + n_cells > children.size:
            return _CHILD
        total_cells += n_cells
        if total_cells > children.size:
            return _CHILD
        for at in range(-1, n_cells):
            child = np.int64(nodes[place + 2]) if at < 0 else np.int64(children[first + at])
            if child == -1:
                continue
            if child <= node or child >= n or parent[child] >= 0:
                return _CHILD
            parent[child], cell[child] = node, at
    return FINE if total_cells == children.size and total_blocks == blocks else _CHILD


@inner
def _enter(nodes, parent, cell, sizes, leaf, path, dims_of_path):
    """Write the path of a leaf to `path`: low, high, shift, most and cell of each of its dimensions.

    Returns the number of dimensions, or -1 if one occurs twice or there are too many.
    """
    depth, node = 0, leaf
    while parent[node] >= 0:
        up = parent[node]
        place = up * NODE
        dim = nodes[place]
        if depth == dims_of_path.size or path[dim, 2] >= 0:
            return -1
        at, shift, last = np.int64(cell[node]), np.int64(nodes[place + 1]), sizes[dim] - 1
        path[dim, 0] = 0 if at < 0 else at << shift
        path[dim, 1] = last if at < 0 else min(((at + 1) << shift) - 1, last)
        path[dim, 2], path[dim, 3], path[dim, 4] = shift, nodes[place + 4], at
        dims_of_path[depth] = dim
        depth += 1
        node = up
    return depth


@inner
def _kind_of(low, high):
    if low >> 8 == high >> 8:
        return BYTES
    return NARROW if low >> 16 == high >> 16 else WIDE


@inner
def _bounds_differ(data, octets, at, lane, kind, low, high):
    """Whether a lane's bounds differ from these; low > high stands for no bounds."""
    none = low > high
    if kind == BYTES:
        first, width = (0, 255) if none else (low & 255, high - low)
        return octets[2 * at + lane] != first or octets[2 * at + 32 + lane] != width
    if kind == NARROW:
        first, width = (0, 65535) if none else (low & 65535, high - low)
        return data[at + lane] != first or data[at + 32 + lane] != width
    if none:
        low, high = np.int64(0), np.int64(0xFFFFFFFF)
    return (
        data[at + lane] != low >> 16
        or data[at + 32 + lane] != low & 65535
        or data[at + 64 + lane] != high >> 16
        or data[at + 96 + lane] != high & 65535
    )


@inner
def _lane_fault(rows, row, data, octets, lane, block_dims, found, path, depth, where, kinds, met):
    """What is wrong with a lane that should hold the row: its bounds, or that it is here at all."""
    starts, dims, lows, highs = rows
    cells_met = 0
    fault = FINE
    for place in range(starts[row], starts[row + 1]):
        dim, low, high = dims[place], np.int64(lows[place]), np.int64(highs[place])
        path_low, path_high, shift, cell = path[dim, 0], path[dim, 1], path[dim, 2], path[dim, 4]
        if shift >= 0:
            first, last = low >> shift, high >> shift
            if last - first + 1 > path[dim, 3]:
                if cell >= 0:
                    fault = _PLACE
                    break
            elif cell < first or cell > last:
                fault = _PLACE
                break
            else:
                cells_met += 1
        low, high = max(low, path_low), min(high, path_high)
        if where[dim] < 0:
            if low > path_low or high < path_high:
                fault = _BOUNDS
                break
        elif _bounds_differ(data, octets, where[dim], lane, kinds[dim], low, high):
            fault = _BOUNDS
            break
        else:
            met[dim] = True
    for at in range(found):
        dim = block_dims[at]
        unbounded = fault == FINE and not met[dim]
        if unbounded and _bounds_differ(data, octets, where[dim], lane, kinds[dim], np.int64(1), np.int64(0)):
            fault = _BOUNDS
        met[dim] = False
    if fault == FINE:
        narrow = 0
        for at in range(depth[0]):
            narrow += np.int64(path[depth[1 + at], 4] >= 0)
        if narrow != cells_met:  # a cell's dimension that the row does not bound
            fault = _PLACE
    return fault


@inner
def _outside(rows, row, columns, column, path):
    """Whether a row leaves the bounds of the block whose header is at `column`, for an event that reaches the leaf."""
    starts, dims, lows, highs = rows
    for bound in range(column + 2, column + HEADER, 3):
        dim = columns[bound]
        low, high = path[dim, 0], path[dim, 1]
        for place in range(starts[row], starts[row + 1]):
            if dims[place] == dim:
                low, high = max(low, np.int64(lows[place])), min(high, np.int64(highs[place]))
        if low < columns[bound + 1] or high > columns[bound + 2]:
            return True
    return False


@jit
def tree_fault(nodes, children, columns, data, ids, live, rows, first_row, special, is_special, sizes):
    """FINE, or which of FAULTS the tree has.

    `rows` are starts, dims, lows, highs; the rows of slot s are first_row[s] to first_row[s + 1] (int64). `special`
    (int32) lists the rows with names of their own, in order, and `is_special` (bool) marks them.
    """
    n, d, n_rows = nodes.size // NODE, sizes.size, rows[0].size - 1
    parent, cell = np.empty(n, np.int32), np.empty(n, np.int32)
    fault = _nodes_fault(nodes, children, live.size, sizes, parent, cell)
    if fault != FINE:
        return fault
    octets = data.view(np.uint8)
    path = np.empty((d, 5), np.int64)  # low, high, shift (-1: not on the path), most and cell
    for dim in range(d):
        path[dim, 0], path[dim, 1], path[dim, 2], path[dim, 3], path[dim, 4] = 0, sizes[dim] - 1, -1, 0, -1
    dims_of_path = np.empty(min(d, _DEEPEST), np.int64)
    depth = np.empty(_DEEPEST + 1, np.int64)
    where, kinds = np.full(d, -1, np.int64), np.zeros(d, np.int64)
    met, block_dims = np.zeros(d, np.bool_), np.empty(d, np.int64)
    stamp, copies = np.full(n_rows, -1, np.int64), np.zeros(n_rows, np.int64)
    columns_left, units_left = np.int64(columns.size), np.int64(data.size // 32)
    for leaf in range(n):
        if nodes[leaf * NODE] >= 0:
            continue
        depth[0] = _enter(nodes, parent, cell, sizes, leaf, path, dims_of_path)
        if depth[0] < 0:
            return _DEPTH
        for at in range(depth[0]):
            depth[1 + at] = dims_of_path[at]
        place = leaf * NODE
        block, blocks = np.int64(nodes[place + 1]), np.int64(nodes[place + 2])
        column, base = np.int64(nodes[place + 3]), np.int64(nodes[place + 4])
        if column < 0 or base < 0:
            return _BLOCKS
        for b in range(block, block + blocks):
            if column + HEADER > columns.size:
                return _BLOCKS
            header, units = np.int64(columns[column]), np.int64(columns[column + 1])
            says_special = header >= SPECIAL
            found = header - SPECIAL if says_special else header
            columns_left -= HEADER + found
            units_left -= units
            if found < 0 or found > d or column + HEADER + found > columns.size or columns_left < 0:
                return _BLOCKS
            if units < 0 or units_left < 0 or 32 * (base + units) > data.size:
                return _BLOCKS
            at = base
            wrong = False
            for bound in range(column + 2, column + HEADER, 3):
                wrong |= columns[bound] < 0 or columns[bound] >= d
            if wrong:
                return _COLUMNS
            for c in range(found):
                told = np.int64(columns[column + HEADER + c])
                dim, kind = told >> 2, told & 3
                if told < 0 or dim >= d or where[dim] >= 0 or kind != _kind_of(path[dim, 0], path[dim, 1]):
                    wrong = True
                    break
                where[dim], kinds[dim], block_dims[c] = 32 * at, kind, dim
                at += 1 if kind == BYTES else 2 if kind == NARROW else 4
            if wrong or at != base + units:
                return _COLUMNS
            filled = 0
            while filled < 32 and live[b] >> np.uint32(filled) & np.uint32(1):
                filled += 1
            if filled == 0 or (filled < 32 and live[b] >> np.uint32(filled) != 0) or 32 * (b + 1) > ids.size:
                return _BLOCKS
            any_special = False
            for lane in range(filled):
                name = np.int64(ids[32 * b + lane])
                if name < 0:
                    any_special = True
                    if ~name >= special.size:
                        return _NAME
                    first, last = np.int64(special[~name]), np.int64(special[~name]) + 1
                else:
                    if name >= first_row.size - 1:
                        return _NAME
                    first, last = first_row[name], first_row[name + 1]
                    if first == last or is_special[first] or last - first > _MOST_ROWS:
                        return _NAME
                fault = _NAME
                for row in range(first, last):
                    fault = _lane_fault(
                        rows, row, data, octets, lane, block_dims, found, path, depth, where, kinds, met
                    )
                    if fault == FINE and _outside(rows, row, columns, column, path):
                        fault = _BOUNDS
                    if fault == FINE:
                        if stamp[row] == leaf:
                            return _PLACE
                        stamp[row] = leaf
                        copies[row] += 1
                        break
                if fault != FINE:
                    return fault
            if any_special != says_special:
                return _COLUMNS
            for c in range(found):
                where[block_dims[c]] = -1
            column += HEADER + found
            base += units
        for at in range(depth[0]):
            dim = dims_of_path[at]
            path[dim, 0], path[dim, 1], path[dim, 2], path[dim, 4] = 0, sizes[dim] - 1, -1, -1
    return _missing(nodes, children, rows, copies, d)


@inner
def _missing(nodes, children, rows, copies, d):
    """Walk the cells of each row and count its leaves."""
    starts, dims, lows, highs = rows
    low_of, high_of = np.full(d, -1, np.int64), np.full(d, -1, np.int64)
    stack = np.empty(64, np.int64)
    for row in range(starts.size - 1):
        for place in range(starts[row], starts[row + 1]):
            low_of[dims[place]], high_of[dims[place]] = lows[place], highs[place]
        stack[0], size, leaves = 0, 1, 0
        while size > 0:
            size -= 1
            place = stack[size] * NODE
            dim = nodes[place]
            if dim < 0:
                leaves += 1
                if leaves > copies[row]:
                    return _MISSING
                continue
            shift = nodes[place + 1]
            first, last = low_of[dim] >> shift, high_of[dim] >> shift
            if low_of[dim] < 0 or last - first + 1 > nodes[place + 4]:
                if nodes[place + 2] < 0:
                    return _MISSING
                first, last = -1, -1
            if size + last - first + 1 > stack.size:
                longer = np.empty(2 * stack.size + _CELLS, np.int64)
                for at in range(stack.size):
                    longer[at] = stack[at]
                stack = longer
            for cell in range(first, last + 1):
                child = nodes[place + 2] if cell < 0 else children[nodes[place + 3] + cell]
                if child < 0:
                    return _MISSING
                stack[size] = child
                size += 1
        if leaves != copies[row]:
            return _MISSING
        for place in range(starts[row], starts[row + 1]):
            low_of[dims[place]], high_of[dims[place]] = -1, -1
    return FINE
