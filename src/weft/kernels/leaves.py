"""The leaves of a partition tree. A block holds its rows, each with every test that the path leaves open. No row of a
block leaves the bounds in the block's header.

Rows with tests on the same columns are sorted by two of these, so that the rows of a block are near each other and a
search can pass over the block after one look at its bounds.

The constraints of row r are `ranges[3 * starts[r] : 3 * starts[r + 1]]` (int32): dimension, low and high of each,
interleaved, so that reading a row costs one cache miss instead of three. The output arrays are those of `partition`.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import elements, inner, light
from weft.kernels.simd import prefetch

SPECIAL = 1 << 20
HEADER = 8  # numbers of a block's header
ANYWHERE = (1 << 31) - 1  # the upper bound of a block whose rows have no common column
BYTES, NARROW, WIDE = 0, 1, 2  # column kinds: how many bits distinguish the codes that the leaf's path leaves open
_SPECIAL_BIT = 62
_AHEAD = 8  # rows


@inner
def grown(array, size):
    """The array itself, or a copy of at least twice its length that holds `size` items."""
    if size <= array.size:
        return array
    longer = np.empty(max(size, 2 * array.size), array.dtype)
    for at in range(array.size):  # loops compile in a fraction of the time that assignments of slices take
        longer[at] = array[at]
    return longer


@inner
def _fill(array, first, last, value):
    """Write a value to array[first:last]."""
    for at in range(first, last):
        array[at] = value


@inner
def fetch(starts, ranges, rows, at):
    """Prefetch the constraints of rows a little ahead, since they are scattered in memory."""
    if at + 2 * _AHEAD < rows.size:
        prefetch(starts, np.int64(rows[at + 2 * _AHEAD]))
        place = 3 * starts[rows[at + _AHEAD]]
        prefetch(ranges, place)
        prefetch(ranges, place + 8)


@inner
def _descending(items, size, by):
    """Sort the first items by `by[item]`, largest first. The sort is stable."""
    for at in range(1, size):
        item, to = items[at], at
        while to > 0 and by[items[to - 1]] < by[item]:
            items[to] = items[to - 1]
            to -= 1
        items[to] = item


@inner
def _alike_together(starts, ranges, ids, rows, path_low, path_high, scratch):
    """The rows, grouped by the set of columns that they need, near ones together. Special rows are separated first,
    then rows are split by the rarest column.
    """
    count, touched, _, bit, _ = scratch
    n, found, special = rows.size, np.int64(0), np.int64(0)
    keys, order = np.empty(n, np.int64), np.empty(n, np.int32)
    for at in range(n):
        fetch(starts, ranges, rows, at)
        row, key = rows[at], np.int64(0)
        order[at] = row
        for place in range(3 * starts[row], 3 * starts[row + 1], 3):
            dim = ranges[place]
            if bit[dim] < 0:
                bit[dim] = found % _SPECIAL_BIT
                touched[found] = dim
                found += 1
            needed = np.int64((ranges[place + 1] > path_low[dim]) | (ranges[place + 2] < path_high[dim]))
            count[dim] += needed
            key |= needed << bit[dim]
        is_special = np.int64(ids[row] < 0)
        special += is_special
        keys[at] = key | is_special << _SPECIAL_BIT
    _descending(touched, found, count)
    later_keys, later = np.empty(n, np.int64), np.empty(n, np.int32)
    for column in range(found + 1):
        by, with_it = (bit[touched[column]], count[touched[column]]) if column < found else (_SPECIAL_BIT, special)
        if 0 < with_it < n:
            _without_first(keys, order, by, later_keys, later)
        if column < found:
            bit[touched[column]], count[touched[column]] = -1, 0
    first = 0
    for at in range(1, n + 1):
        if at == n or keys[at] != keys[first]:
            if at - first > 32:
                _near_together(starts, ranges, keys, order, first, at, path_low, path_high, scratch)
            first = at
    return order


@inner
def _near_together(starts, ranges, keys, order, first, last, path_low, path_high, scratch):
    """Sort the rows order[first:last] so that blocks of 32 are small: by the column that says most, and then, in as
    many slices as a slice has blocks, by the next. The keys become meaningless.
    """
    count, touched, score, _, _ = scratch
    found = np.int64(0)
    for at in range(first, last):
        row = order[at]
        for place in range(3 * starts[row], 3 * starts[row + 1], 3):
            dim = ranges[place]
            low, high = max(ranges[place + 1], path_low[dim]), min(ranges[place + 2], path_high[dim])
            if low > path_low[dim] or high < path_high[dim]:
                if count[dim] == 0:
                    touched[found], count[dim], score[dim] = dim, 1, 0.0
                    found += 1
                score[dim] += 1.0 - (high - low + 1) / (path_high[dim] - path_low[dim] + 1)
    _descending(touched, found, score)
    for at in range(found):
        count[touched[at]] = 0
    if found > 0:
        _by_low(starts, ranges, keys, order, first, last, touched[0])
    blocks, slices = (last - first + 31) // 32, 1
    while (slices + 1) * (slices + 1) <= blocks:
        slices += 1
    if found > 1 and slices > 1:
        step = 32 * ((blocks + slices - 1) // slices)
        for begin in range(first, last, step):
            _by_low(starts, ranges, keys, order, begin, min(begin + step, last), touched[1])


@inner
def _by_low(starts, ranges, keys, order, first, last, dim):
    """Sort the rows order[first:last] by their lower bounds on a dimension; the keys become these bounds."""
    for at in range(first, last):
        keys[at] = -1
        for place in range(3 * starts[order[at]], 3 * starts[order[at] + 1], 3):
            if ranges[place] == dim:
                keys[at] = ranges[place + 1]
    gap = 1
    while 3 * gap < last - first:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(first + gap, last):
            key, row, to = keys[at], order[at], at
            while to - gap >= first and keys[to - gap] > key:
                keys[to], order[to] = keys[to - gap], order[to - gap]
                to -= gap
            keys[to], order[to] = key, row
        gap //= 3


@inner
def _without_first(keys, order, bit, later_keys, later):
    """Sort both arrays by one bit of the keys. The sort is stable, and free of branches, which would be
    unpredictable.
    """
    to, with_it = 0, 0
    for at in range(keys.size):
        key, row = keys[at], order[at]
        keys[to], order[to] = key, row
        later_keys[with_it], later[with_it] = key, row
        has = key >> bit & 1
        with_it += has
        to += 1 - has
    for at in range(with_it):
        keys[to + at], order[to + at] = later_keys[at], later[at]


@inner
def _kind(low, high):
    """The kind of a column for the codes of a path: BYTES if they differ in their last eight bits only."""
    if low >> 8 == high >> 8:
        return BYTES
    return NARROW if low >> 16 == high >> 16 else WIDE


@inner
def write_leaf(starts, ranges, ids, rows, path_low, path_high, scratch, leaves, ends):
    """Append the blocks of a leaf; returns the grown arrays and the new ends."""
    count, touched, score, _, where = scratch
    columns, data, leaf_ids, live = leaves
    at_column, at_data, block = ends
    n = rows.size
    rows = _alike_together(starts, ranges, ids, rows, path_low, path_high, scratch)
    blocks = (n + 31) // 32
    least, greatest = np.empty(count.size, np.int64), np.empty(count.size, np.int64)
    leaf_ids = grown(leaf_ids, 32 * (block + blocks))
    live = grown(live, block + blocks)
    for first in range(0, n, 32):
        last = min(n, first + 32)
        live[block] = np.uint32((np.uint64(1) << np.uint64(last - first)) - np.uint64(1))
        special = 0
        found = np.int64(0)
        for at in range(first, last):
            row = rows[at]
            leaf_ids[32 * block + at - first] = ids[row]
            if ids[row] < 0:
                special = SPECIAL
            for place in range(3 * starts[row], 3 * starts[row + 1], 3):
                dim = ranges[place]
                low, high = max(ranges[place + 1], path_low[dim]), min(ranges[place + 2], path_high[dim])
                if low > path_low[dim] or high < path_high[dim]:
                    if count[dim] == 0:
                        touched[found] = dim
                        found += 1
                        score[dim], least[dim], greatest[dim] = 0.0, low, high
                    count[dim] += 1
                    score[dim] += 1.0 - (high - low + 1) / (path_high[dim] - path_low[dim] + 1)
                    least[dim], greatest[dim] = min(least[dim], low), max(greatest[dim], high)
        _fill(leaf_ids, 32 * block + last - first, 32 * block + 32, np.int32(0))
        _descending(touched, found, score)  # the most selective column first
        columns = grown(columns, at_column + HEADER + found)
        _write_bounds(columns, at_column, touched, found, last - first, count, least, greatest, path_low, path_high)
        data = grown(data, 32 * (at_data + 4 * found))
        octets = data.view(np.uint8)
        before = at_data
        for column in range(found):
            dim, to = touched[column], 32 * at_data
            kind = _kind(path_low[dim], path_high[dim])
            columns[at_column + HEADER + column] = 4 * dim + kind
            where[dim] = to
            count[dim] = kind  # the counts are no longer needed; from here on the array holds the kind
            if kind == BYTES:
                _fill(octets, 2 * to, 2 * to + 32, np.uint8(0))
                _fill(octets, 2 * to + 32, 2 * to + 64, np.uint8(255))
                at_data += 1
            elif kind == NARROW:
                _fill(data, to, to + 32, np.uint16(0))
                _fill(data, to + 32, to + 64, np.uint16(65535))
                at_data += 2
            else:
                _fill(data, to, to + 64, np.uint16(0))
                _fill(data, to + 64, to + 128, np.uint16(65535))
                at_data += 4
        columns[at_column] = found + special
        columns[at_column + 1] = at_data - before
        for lane in range(last - first):
            row = rows[first + lane]
            for place in range(3 * starts[row], 3 * starts[row + 1], 3):
                dim = ranges[place]
                to = where[dim]
                if to < 0:
                    continue
                low, high = max(ranges[place + 1], path_low[dim]), min(ranges[place + 2], path_high[dim])
                if count[dim] == BYTES:
                    octets[2 * to + lane], octets[2 * to + 32 + lane] = low & 255, high - low
                elif count[dim] == NARROW:
                    data[to + lane], data[to + 32 + lane] = low & 65535, high - low
                else:
                    data[to + lane], data[to + 32 + lane] = low >> 16, low & 65535
                    data[to + 64 + lane], data[to + 96 + lane] = high >> 16, high & 65535
        for at in range(found):
            count[touched[at]], where[touched[at]] = 0, -1
        at_column += HEADER + found
        block += 1
    return (columns, data, leaf_ids, live), (at_column, at_data, block)


@inner
def _write_bounds(columns, at, dims, found, rows, count, least, greatest, path_low, path_high):
    """Write the bounds of a block to its header: those of the two columns on which its rows are nearest."""
    best = -1
    for turn in range(2):
        chosen, share = -1, 1.0
        for place in range(found):
            dim = dims[place]
            part = (greatest[dim] - least[dim] + 1) / (path_high[dim] - path_low[dim] + 1)
            if count[dim] == rows and dim != best and part < share:
                chosen, share = dim, part
        best, place = chosen, at + 2 + 3 * turn
        columns[place], columns[place + 1], columns[place + 2] = 0, 0, ANYWHERE
        if chosen < 0:
            continue
        columns[place], columns[place + 1], columns[place + 2] = chosen, least[chosen], greatest[chosen]


@light(elements)
def rename(ids, live, new_slot):
    """Renumber the slots in the order in which the tree first mentions them, and rename its rows accordingly.

    `new_slot` (int32, one per slot) must be -1 everywhere. Slots that do not occur come last.
    """
    met = 0
    for block in range(live.size):
        for lane in range(32):
            slot = ids[32 * block + lane]
            if slot >= 0 and live[block] >> np.uint32(lane) & np.uint32(1):
                if new_slot[slot] < 0:
                    new_slot[slot] = met
                    met += 1
                ids[32 * block + lane] = new_slot[slot]
    for slot in range(new_slot.size):
        if new_slot[slot] < 0:
            new_slot[slot] = met
            met += 1
