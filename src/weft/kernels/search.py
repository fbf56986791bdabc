"""The search of a partition tree (see `partition.PartitionTree`), one event after another. A row is found if and only
if all codes of the event are in its ranges.

`codes` (int32[events, d]) has one row per event. Results are in CSR form: `offsets` (int64[events+1]) into the found
ids. This is best when events reach different leaves; for those that share leaves, see `batch_search`.

The loops lend arrays to each other (see `addresses.lent`), and grow them only where they own them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import lent
from weft.kernels.jit import elements, inlined, jit, light
from weft.kernels.leaves import BYTES, HEADER, NARROW, SPECIAL, grown
from weft.kernels.partition import NODE, PartitionTree
from weft.kernels.simd import byte_mask, compress, lowest, narrow_mask, ones, prefetch, take_four, wide_mask

FIND, COUNT, ANY = 0, 1, 2
_TOGETHER = 16  # events; while one of them is searched for, the leaves of the others are fetched
_FETCHED = 8  # units of data of a block, each a cache line; what follows is seldom read


@inlined
def lent_tree(tree):
    """The tree with arrays that are lent."""
    return PartitionTree(
        lent(tree.nodes), lent(tree.children), lent(tree.columns), lent(tree.data), lent(tree.ids), lent(tree.live)
    )


@inlined
def most_in(tree, leaf):
    """The largest number of rows of a leaf that match; `scan_leaf` needs room for them."""
    return 32 * np.int64(tree.nodes[leaf * NODE + 2])


@inlined
def _may_match(columns, column, codes, event):
    """Whether an event is within the bounds of the block whose header is at `column`."""
    first, second = codes[event, columns[column + 2]], codes[event, columns[column + 5]]
    above = (first >= columns[column + 3]) & (second >= columns[column + 6])
    return above & (first <= columns[column + 4]) & (second <= columns[column + 7])


@inlined
def _mask_of(tree, codes, event, block, column, base):
    """The rows of a block that match, as a mask; its header is at `column`, and its data at `base`."""
    columns, data = tree.columns, tree.data
    mask, at = tree.live[block], base
    for c in range(column + HEADER, column + HEADER + (np.int64(columns[column]) & (SPECIAL - 1))):
        kind = np.int64(columns[c])
        code = codes[event, kind >> 2]
        if kind & 3 == BYTES:  # testing is cheaper than deciding whether to test
            mask &= byte_mask(data, at, np.uint8(code & 255))
            at += 32
        elif mask == 0:
            break
        elif kind & 3 == NARROW:
            mask &= narrow_mask(data, at, np.uint16(code & 65535))
            at += 64
        else:
            mask &= wide_mask(data, at, np.uint32(code))
            at += 128
    return mask


@inlined
def _write(ids, block, mask, found, out):
    """Append the names of a block's rows to `out`, which has room for 32; returns the new end."""
    if ones(mask) <= 4:
        while mask != 0:
            out[found] = ids[32 * block + lowest(mask)]
            found += 1
            mask &= mask - np.uint32(1)
    else:
        compress(ids, 32 * block, out, found, np.uint16(mask & np.uint32(65535)))
        found += ones(mask & np.uint32(65535))
        compress(ids, 32 * block + 16, out, found, np.uint16(mask >> np.uint32(16)))
        found += ones(mask >> np.uint32(16))
    return found


@inlined
def _write_special(ids, block, mask, found, out):
    """Append the names of special rows to `out`; returns the new end, and how many rows are not special."""
    counted = 0
    while mask != 0:
        row = ids[32 * block + lowest(mask)]
        mask &= mask - np.uint32(1)
        if row < 0:
            out[found] = row
            found += 1
        else:
            counted += 1
    return found, counted


@inlined
def scan_leaf(tree, codes, event, leaf, found, out, mode):
    """Append a leaf's matches to `out`, which has room for them, from `found` on; returns the new end, and how many
    were only counted.
    """
    nodes, columns, ids = tree.nodes, tree.columns, tree.ids
    place = leaf * NODE
    block, column, base = np.int64(nodes[place + 1]), np.int64(nodes[place + 3]), 32 * np.int64(nodes[place + 4])
    counted = 0
    for b in range(block, block + np.int64(nodes[place + 2])):
        header, here, start = np.int64(columns[column]), column, base
        base += 32 * np.int64(columns[column + 1])
        column += HEADER + (header & (SPECIAL - 1))
        if not _may_match(columns, here, codes, event):
            continue
        mask = _mask_of(tree, codes, event, b, here, start)
        if mask == 0:
            continue
        if mode == FIND:
            found = _write(ids, b, mask, found, out)
        elif header >= SPECIAL:
            found, others = _write_special(ids, b, mask, found, out)
            counted += others
        else:
            counted += ones(mask)
        if mode == ANY and counted > 0:
            break
    return found, counted


@inlined
def walk(tree, codes, event, stack, leaves, reached):
    """Append the leaves that an event reaches to `leaves` (int64) from `reached` on, and prefetch them; returns the new
    end, or -1 if `leaves` or `stack` (int64) is too small.
    """
    nodes, children = tree.nodes, tree.children
    depth = 1
    stack[0] = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        place = node * NODE
        dim = nodes[place]
        if dim >= 0:
            if depth + 2 > stack.size:
                return np.int64(-1)
            wide = np.int64(nodes[place + 2])
            if wide >= 0:
                stack[depth] = wide
                depth += 1
                prefetch(nodes, wide * NODE)
            cell = np.int64(nodes[place + 3]) + (codes[event, dim] >> nodes[place + 1])
            child = np.int64(children[cell])
            if child >= 0:
                stack[depth] = child
                depth += 1
                prefetch(nodes, child * NODE)
        else:
            if reached == leaves.size:
                return np.int64(-1)
            leaves[reached] = node
            reached += 1
            prefetch(tree.columns, np.int64(nodes[place + 3]))
            prefetch(tree.columns, np.int64(nodes[place + 3]) + 16)
            prefetch(tree.live, np.int64(nodes[place + 1]))
    return reached


@inlined
def _choose(tree, codes, event, leaf, chosen, size):
    """Append block, header and data of the blocks of a leaf that may match to `chosen` (int32, three numbers each), and
    prefetch them; returns the new size.
    """
    nodes, columns = tree.nodes, tree.columns
    place = leaf * NODE
    block, column, unit = np.int64(nodes[place + 1]), np.int64(nodes[place + 3]), np.int64(nodes[place + 4])
    for b in range(block, block + np.int64(nodes[place + 2])):
        units = np.int64(columns[column + 1])
        chosen[3 * size], chosen[3 * size + 1], chosen[3 * size + 2] = b, column, unit
        if _may_match(columns, column, codes, event):
            size += 1
            for ahead in range(min(units, _FETCHED)):
                prefetch(tree.data, 32 * (unit + ahead))
        column += HEADER + (np.int64(columns[column]) & (SPECIAL - 1))
        unit += units
    return size


def _work(tree: PartitionTree, codes: NDArray[np.int32], *_: object) -> int:
    """How many rows there are to be searched, for all events."""
    return int(codes.shape[0] * tree.ids.size)


@light(_work)
def event_by_event(tree, codes, out, offsets, counts, mode):
    """Search for a few events at a time, in steps that fetch what the next one reads: leaves, blocks that may match,
    masks, ids. Fills `offsets`, and `counts` unless the mode is FIND. Returns `out`, possibly reallocated, and the
    number of ids in it.

    COUNT adds rows that are not special to `counts`; ANY stops at the first. Both return special rows as found.
    """
    tree = lent_tree(tree)
    stack, leaves, ends = np.empty(64, np.int64), np.empty(256, np.int64), np.zeros(_TOGETHER + 1, np.int64)
    chosen, masks, last = np.empty(3 * 256, np.int32), np.empty(256, np.uint32), np.zeros(_TOGETHER + 1, np.int64)
    events, found = codes.shape[0], np.int64(0)
    offsets[0] = 0
    for start in range(0, events, _TOGETHER):
        few = min(_TOGETHER, events - start)
        for one in range(few):
            while True:
                ends[one + 1] = walk(tree, codes, start + one, stack, leaves, ends[one])
                if ends[one + 1] >= 0:
                    break
                stack, leaves = grown(stack, 2 * stack.size), grown(leaves, 2 * leaves.size)
        size = np.int64(0)
        for one in range(few):
            for at in range(ends[one], ends[one + 1]):
                room = size + np.int64(tree.nodes[leaves[at] * NODE + 2]) + 1
                if 3 * room > chosen.size:
                    chosen = grown(chosen, 3 * room)
                    masks = grown(masks, chosen.size)
                size = _choose(tree, codes, start + one, leaves[at], chosen, size)
            last[one + 1] = size
        for one in range(few):
            for at in range(last[one], last[one + 1]):
                block, column = np.int64(chosen[3 * at]), np.int64(chosen[3 * at + 1])
                masks[at] = _mask_of(tree, codes, start + one, block, column, 32 * np.int64(chosen[3 * at + 2]))
                if masks[at] != 0 and mode == FIND:
                    prefetch(tree.ids, 32 * block)
                    prefetch(tree.ids, 32 * block + 16)
        needed = found + 32 * size
        if needed > out.size:
            out = grown(out, needed)
        for one in range(few):
            total = 0
            for at in range(last[one], last[one + 1]):
                mask, block = masks[at], np.int64(chosen[3 * at])
                if mode == FIND:
                    found = _write(tree.ids, block, mask, found, out)
                elif tree.columns[chosen[3 * at + 1]] >= SPECIAL:
                    found, counted = _write_special(tree.ids, block, mask, found, out)
                    total += counted
                else:
                    total += ones(mask)
                if mode == ANY and total > 0:
                    break
            offsets[start + one + 1] = found
            if mode != FIND:
                counts[start + one] = total
    return out, found


@light(elements)
def take(values, places, out):
    """Write values[places] to `out`."""
    fours = places.size - places.size % 4
    for at in range(0, fours, 4):
        take_four(values, places, at, out, at)
    for at in range(fours, places.size):
        out[at] = values[places[at]]


@jit
def kill(tree, dims, lows, highs, name):
    """Clear the live bits of the row with these constraints and this name in all leaves that hold it; returns how many.

    Walks the cells of the row in the way the tree was built.
    """
    nodes, live = tree.nodes, tree.live
    stack = np.empty(64, np.int64)
    stack[0], depth, cleared = 0, 1, 0
    while depth > 0:
        depth -= 1
        place = stack[depth] * NODE
        dim = nodes[place]
        if dim < 0:
            for b in range(nodes[place + 1], nodes[place + 1] + nodes[place + 2]):
                for lane in range(32):
                    bit = np.uint32(1) << np.uint32(lane)
                    if tree.ids[32 * b + lane] == name and live[b] & bit:
                        live[b] &= ~bit
                        cleared += 1
            continue
        low, high = -1, -1
        for at in range(dims.size):
            if dims[at] == dim:
                low, high = lows[at] >> nodes[place + 1], highs[at] >> nodes[place + 1]
        if low < 0 or high - low + 1 > nodes[place + 4]:
            if nodes[place + 2] >= 0:
                stack = grown(stack, depth + 1)
                stack[depth] = nodes[place + 2]
                depth += 1
            continue
        stack = grown(stack, depth + high - low + 1)
        for cell in range(low, high + 1):
            child = tree.children[nodes[place + 3] + cell]
            if child >= 0:
                stack[depth] = child
                depth += 1
    return cleared
