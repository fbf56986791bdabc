"""The search of a partition tree (see `partition.PartitionTree`) for a whole batch. It finds what `search` finds, and
reads a leaf once, however many events reach it.

The batch goes down the tree together. At a leaf, the events that reach it are compared with one block after another,
and what matches is a hit: three numbers (uint32), an event, a block and the mask of the block's rows that match. A hit
is smaller than the names of its rows, which are written when they are asked for, each to its event's place at once.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call", no-check-untyped-defs

from __future__ import annotations

import numpy as np

from weft.kernels.addresses import lent
from weft.kernels.jit import inlined, jit
from weft.kernels.leaves import BYTES, HEADER, NARROW, SPECIAL, grown
from weft.kernels.partition import NODE
from weft.kernels.search import ANY, FIND, lent_tree
from weft.kernels.simd import byte_mask, compress_long, lowest, narrow_mask, ones, prefetch, take_four, wide_mask

HIT = 3  # numbers of a hit
_MANY_LEAVES = 4  # that an event reaches, on average
_SHARED, _SHARED_OF_MANY = 2.0, 1.4  # events at a leaf that make a joint search worth it, if they reach few, or many
_SAMPLE = 64  # events that are seen at least
_AHEAD = 16  # hits whose names are prefetched
_MANY = 3  # hits that follow in the same block, and make reading all of its subscriptions worth it
_FETCHED = 32  # units of data of a leaf, each a cache line, that are prefetched


@jit
def sharing(tree, codes):
    """Whether events (int32[events, d]) share leaves enough to be searched together, and whether they reach many. Stops
    as soon as the first is certain.
    """
    nodes = tree.nodes
    stack, met = np.empty(64, np.int64), np.zeros(nodes.size // NODE, np.bool_)
    visits, leaves, shared, many = 0, 0, False, False
    for event in range(codes.shape[0]):
        stack[0], depth = 0, 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            place = node * NODE
            dim = nodes[place]
            if dim < 0:
                visits += 1
                leaves += np.int64(not met[node])
                met[node] = True
                continue
            stack = grown(stack, depth + 2)
            if nodes[place + 2] >= 0:
                stack[depth] = nodes[place + 2]
                depth += 1
            child = tree.children[nodes[place + 3] + (codes[event, dim] >> nodes[place + 1])]
            if child >= 0:
                stack[depth] = child
                depth += 1
        many = visits > _MANY_LEAVES * (event + 1)
        shared = visits > (_SHARED_OF_MANY if many else _SHARED) * leaves
        if shared and event >= _SAMPLE:
            break
    return shared, many


@inlined
def _fetch(tree, node):
    """Prefetch what a scan of a leaf reads first."""
    place = node * NODE
    if tree.nodes[place] < 0:
        blocks = np.int64(tree.nodes[place + 2])
        column, unit = np.int64(tree.nodes[place + 3]), np.int64(tree.nodes[place + 4])
        for line in range(min(blocks, 8)):
            prefetch(tree.columns, column + 16 * line)
        prefetch(tree.live, np.int64(tree.nodes[place + 1]))
        for line in range(min(8 * blocks, _FETCHED)):
            prefetch(tree.data, 32 * (unit + line))


@inlined
def _within(columns, column, codes, events, pool, begin, end, some):
    """Write those of the events pool[begin:end] to `some` that are within the bounds of the block whose header is at
    `column`; returns how many.
    """
    first, low, high = events * np.int64(columns[column + 2]), columns[column + 3], columns[column + 4]
    second, least, most = events * np.int64(columns[column + 5]), columns[column + 6], columns[column + 7]
    size = 0
    for at in range(begin, end):  # without branches, which would be unpredictable
        event = np.int64(pool[at])
        one, other = codes[np.uint64(first + event)], codes[np.uint64(second + event)]
        some[size] = event
        size += np.int64((one >= low) & (one <= high) & (other >= least) & (other <= most))
    return size


@inlined
def _matching(tree, codes, events, block, column, base, some, masks, size):
    """The rows of a block that match the first `size` events of `some`, as masks. Only events with a match are left in
    `some`, in front; returns how many.
    """
    columns, data = tree.columns, tree.data
    alive = tree.live[block]
    for at in range(size):
        masks[at] = alive
    place = base
    for c in range(column + HEADER, column + HEADER + (np.int64(columns[column]) & (SPECIAL - 1))):
        kind = np.int64(columns[c])
        start, left = events * (kind >> 2), 0
        if kind & 3 == BYTES:
            for at in range(size):
                event = some[at]
                mask = masks[at] & byte_mask(data, place, np.uint8(codes[np.uint64(start + event)] & 255))
                some[left], masks[left] = event, mask
                left += np.int64(mask != 0)
            place += 32
        elif kind & 3 == NARROW:
            for at in range(size):
                event = some[at]
                mask = masks[at] & narrow_mask(data, place, np.uint16(codes[np.uint64(start + event)] & 65535))
                some[left], masks[left] = event, mask
                left += np.int64(mask != 0)
            place += 64
        else:
            for at in range(size):
                event = some[at]
                mask = masks[at] & wide_mask(data, place, np.uint32(codes[np.uint64(start + event)]))
                some[left], masks[left] = event, mask
                left += np.int64(mask != 0)
            place += 128
        size = left
        if size == 0:
            break
    return size if alive != 0 else 0


@inlined
def _special(ids, block, mask):
    """Those rows of a mask that are special."""
    special = np.uint32(0)
    while mask != 0:
        lane = lowest(mask)
        mask &= mask - np.uint32(1)
        if ids[32 * block + lane] < 0:
            special |= np.uint32(1) << np.uint32(lane)
    return special


@jit
def all_together(tree, codes, hits, offsets, counts, mode):
    """Search for all events at once. `codes` (int32) has the codes of all events for one dimension after another.
    Fills `offsets`, and `counts` unless the mode is FIND. Returns the hits, possibly reallocated, and how many there
    are; those of an event have as many rows as `offsets` tells.

    COUNT adds rows that are not special to `counts`, which must be zeros; ANY stops at the first. Both return special
    rows as hits.
    """
    tree = lent_tree(tree)
    nodes, children, columns, events = tree.nodes, tree.children, tree.columns, np.int64(offsets.size - 1)
    pool = np.empty(max(4 * events, 64), np.int32)
    for event in range(events):
        pool[event] = event
    stack, begins, sizes = np.zeros(64, np.int64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    sizes[0], depth = events, 1
    cells, touched = np.zeros(64, np.int64), np.empty(64, np.int64)
    some, masks = np.empty(events + 1, np.int64), np.empty(events + 1, np.uint32)
    found = np.int64(0)
    ends = np.zeros(events + 1, np.int64)
    while depth > 0:
        depth -= 1
        node, begin, size = stack[depth], begins[depth], sizes[depth]
        place = node * NODE
        dim = nodes[place]
        if depth > 0:
            _fetch(tree, stack[depth - 1])
        if mode == ANY:
            to = begin
            for at in range(begin, begin + size):
                event = pool[at]
                pool[to] = event
                to += np.int64(counts[event] == 0)
            size = to - begin
        if dim < 0:
            block, column, base = (
                np.int64(nodes[place + 1]),
                np.int64(nodes[place + 3]),
                32 * np.int64(nodes[place + 4]),
            )
            for b in range(block, block + np.int64(nodes[place + 2])):
                header = np.int64(columns[column])
                left = _within(columns, column, lent(codes), events, lent(pool), begin, begin + size, lent(some))
                left = _matching(tree, lent(codes), events, b, column, base, lent(some), lent(masks), left)
                base += 32 * np.int64(columns[column + 1])
                column += HEADER + (header & (SPECIAL - 1))
                if mode != FIND:
                    kept = 0
                    for at in range(left):
                        special = _special(tree.ids, b, masks[at]) if header >= SPECIAL else np.uint32(0)
                        counts[some[at]] += ones(masks[at]) - ones(special)
                        some[kept], masks[kept] = some[at], special
                        kept += np.int64(special != 0)
                    left = kept
                if HIT * (found + left) > hits.size:
                    hits = grown(hits, HIT * (found + left))
                for at in range(left):
                    to = HIT * (found + at)
                    hits[to], hits[to + 1], hits[to + 2] = some[at], b, masks[at]
                    ends[some[at] + 1] += ones(masks[at])
                found += left
            continue
        start, shift = np.int64(nodes[place + 3]), nodes[place + 1]
        n_cells, line = np.int64(nodes[place + 5]), events * np.int64(dim)
        if cells.size < n_cells:
            cells, touched = np.zeros(2 * n_cells, np.int64), np.empty(2 * n_cells, np.int64)
        top = begin + size
        if top + size > pool.size:
            pool = grown(pool, top + size)
        met = 0
        for at in range(begin, top):
            cell = np.int64(codes[line + pool[at]] >> shift)
            if cells[cell] == 0:
                touched[met] = cell
                met += 1
            cells[cell] += 1
        if depth + met + 1 > stack.size:
            stack = grown(stack, depth + met + 1)
            begins, sizes = grown(begins, stack.size), grown(sizes, stack.size)
        wide = np.int64(nodes[place + 2])
        if wide >= 0:  # the same events, below those of the other children, so they are visited last
            stack[depth], begins[depth], sizes[depth] = wide, begin, size
            depth += 1
        to = top
        for at in range(met):
            cell = touched[at]
            here = cells[cell]
            cells[cell] = to
            child = np.int64(children[start + cell])
            if child >= 0:
                stack[depth], begins[depth], sizes[depth] = child, to, here
                prefetch(nodes, child * NODE)
                depth += 1
            to += here
        for at in range(begin, top):
            event = pool[at]
            cell = np.int64(codes[line + event] >> shift)
            pool[cells[cell]] = event
            cells[cell] += 1
        for at in range(met):
            cells[touched[at]] = 0
    for event in range(events):
        ends[event + 1] += ends[event]
        offsets[event] = ends[event]
    offsets[events] = ends[events]
    return hits, found


@inlined
def _fetch_names(hits, ids, free, out, at):
    """Prefetch the names of a hit a little ahead, and the place that they are written to."""
    if at + HIT * _AHEAD < hits.size:
        block, to = np.int64(hits[at + HIT * _AHEAD + 1]), free[np.int64(hits[at + HIT * _AHEAD])]
        prefetch(ids, 32 * block)
        prefetch(ids, 32 * block + 16)
        prefetch(out, to)
        prefetch(out, to + 8)


@jit
def write_names(hits, ids, offsets, out):
    """Write the names (int32) of the rows of hits to `out`, those of an event from its offset on."""
    free = offsets[:-1].copy()
    for at in range(0, hits.size, HIT):
        _fetch_names(lent(hits), lent(ids), lent(free), lent(out), at)
        event, block, mask = np.int64(hits[at]), 32 * np.int64(hits[at + 1]), hits[at + 2]
        to = free[event]
        while mask != 0:
            out[to] = ids[block + lowest(mask)]
            to += 1
            mask &= mask - np.uint32(1)
        free[event] = to


@jit
def write_slots(hits, ids, firsts, offsets, out, counts):
    """Do what `write_names` does, where every name is a slot, and add the number of subscriptions of each event's slots
    to `counts`: slot s has firsts[s + 1] - firsts[s].
    """
    free = offsets[:-1].copy()
    for at in range(0, hits.size, HIT):
        _fetch_names(lent(hits), lent(ids), lent(free), lent(out), at)
        event, block, mask = np.int64(hits[at]), 32 * np.int64(hits[at + 1]), hits[at + 2]
        to, total = free[event], np.int64(0)
        while mask != 0:
            slot = ids[block + lowest(mask)]
            out[to] = slot
            total += np.int64(firsts[slot + 1]) - np.int64(firsts[slot])
            to += 1
            mask &= mask - np.uint32(1)
        free[event] = to
        counts[event] += total


@jit
def write_ids(hits, ids, subs, offsets, free, out):
    """Write the subscriptions of the rows of hits to `out`, those of an event from free[event] on, and move
    free[event]. `offsets` is as the search left it; every name is a slot with one subscription.

    The subscriptions of a block with many matches are read once, and then compressed for each hit.
    """
    ends, known, of_block = np.empty(free.size, np.int64), np.empty(32, np.int64), np.int64(-1)
    for event in range(free.size):
        ends[event] = free[event] + offsets[event + 1] - offsets[event]
    for at in range(0, hits.size, HIT):
        _fetch_names(lent(hits), lent(ids), lent(free), lent(out), at)
        event, block, mask = np.int64(hits[at]), np.int64(hits[at + 1]), hits[at + 2]
        to, size = free[event], ones(mask)
        free[event] = to + size
        if to + size + 8 <= ends[event]:  # what is written past the ids is written again
            later = at + HIT * _MANY + 1
            if block != of_block and (size > 8 or (later < hits.size and np.int64(hits[later]) == block)):
                for lane in range(0, 32, 4):
                    take_four(subs, ids, 32 * block + lane, known, lane)
                of_block = block
            if block == of_block:
                compress_long(known, out, to, mask)
                continue
        while mask != 0:
            out[to] = subs[ids[32 * block + lowest(mask)]]
            to += 1
            mask &= mask - np.uint32(1)
