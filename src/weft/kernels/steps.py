"""A step function over the curve, in sorted blocks: how many ranges need each point. Counts are exact, and neighbouring
steps differ.

A step begins at its key and lasts to the next key, the last one to LAST. The first key is always 0. Because neighbours
differ, a run of points that nothing needs is one step, so its extent is known wherever it is found. Steps lie in blocks
of `SIZE`, in slots of one pool; `firsts` and `order` give their order (a B+-tree of two levels, MICS 4.1). A block
stores an amount to be added to all its counts, and its lowest count, so a wide range costs one addition and one
comparison per block. A split shifts the directory: n / SIZE entries for each SIZE / 2 new steps, which is cheap up to
many millions of steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import jit
from weft.kernels.simd import prefetch

LAST = 2**63 - 1  # the last point of any curve
USED, STEPS, FREE, SIZE = 0, 1, 2, 3  # positions in `head`


class Blocks(NamedTuple):
    """The arrays of one table. Only the kernels change them."""

    keys: NDArray[np.int64]  # SIZE per slot: where steps begin
    counts: NDArray[np.int32]  # SIZE per slot: the step's count, less `pending`
    sizes: NDArray[np.int32]  # per slot: number of steps
    pending: NDArray[np.int32]  # per slot: amount to be added to each count
    lowest: NDArray[np.int32]  # per slot: the lowest count
    order: NDArray[np.int32]  # the slots in use, in the order of their keys
    firsts: NDArray[np.int64]  # the first key of each, in the same order
    free: NDArray[np.int32]  # a stack of slots not in use
    head: NDArray[np.int64]  # slots in use, steps, free slots, steps per block


def empty(size: int, slots: int) -> Blocks:
    """Blocks with a single step: no point is needed."""
    keys, counts = np.zeros(slots * size, np.int64), np.zeros(slots * size, np.int32)
    sizes, pending, lowest, order = (np.zeros(slots, np.int32) for _ in range(4))
    sizes[0] = 1
    free = np.arange(slots, dtype=np.int32)[::-1].copy()
    head = np.array([1, 1, slots - 1, size], np.int64)
    return Blocks(keys, counts, sizes, pending, lowest, order, np.zeros(slots, np.int64), free, head)


def resized(blocks: Blocks, slots: int) -> Blocks:
    """The same steps in another number of slots, at least as many as are in use; blocks are stored in order."""
    used, size = int(blocks.head[USED]), int(blocks.head[SIZE])
    order = blocks.order[:used]
    new = empty(size, slots)
    for to, had in ((new.keys, blocks.keys), (new.counts, blocks.counts)):
        to[: used * size].reshape(used, size)[:] = had.reshape(-1, size)[order]
    for to, had in ((new.sizes, blocks.sizes), (new.pending, blocks.pending), (new.lowest, blocks.lowest)):
        to[:used] = had[order]
    new.order[:used] = np.arange(used)
    new.firsts[:used] = blocks.firsts[:used]
    new.head[:] = used, blocks.head[STEPS], slots - used, size
    return new


@jit
def floor(values, begin, size, x):
    """The last of `size` positions from `begin` on whose value is at most x. The first one always qualifies."""
    while size > 1:
        half = size >> 1
        if values[begin + half] <= x:
            begin += half
        size -= half
    return begin


@jit
def locate(t, x):
    """The block of the step that contains a point (its position in the order), and the position of the step."""
    at = floor(t.firsts, 0, t.head[USED], x)
    slot = np.int64(t.order[at])
    return at, floor(t.keys, slot * t.head[SIZE], np.int64(t.sizes[slot]), x)


@jit
def fetch(t, x):
    """Prefetch the block that contains a point; returns its slot."""
    slot = np.int64(t.order[floor(t.firsts, 0, t.head[USED], x)])
    base, size = slot * t.head[SIZE], np.int64(t.sizes[slot])
    for at in range(base, base + size, 8):
        prefetch(t.keys, at)
    for at in range(base, base + size, 16):
        prefetch(t.counts, at)
    return slot


@jit
def count_of(t, at, place):
    """How many ranges need the points of a step."""
    return t.counts[place] + t.pending[t.order[at]]


@jit
def last_of(t, at, place):
    """The last point of a step."""
    slot = np.int64(t.order[at])
    if place + 1 < slot * t.head[SIZE] + t.sizes[slot]:
        return t.keys[place + 1] - 1
    if at + 1 < t.head[USED]:
        return t.firsts[at + 1] - 1
    return np.int64(LAST)


@jit
def following(t, at, place):
    """The step after this one, which must not be the last."""
    slot = np.int64(t.order[at])
    if place + 1 < slot * t.head[SIZE] + t.sizes[slot]:
        return at, place + 1
    return at + 1, np.int64(t.order[at + 1]) * t.head[SIZE]


@jit
def bare(t, at, place, b):
    """The first step from here on that nothing needs and that begins at or before b; its position is -1 if there is
    none.

    Blocks in which every point is needed are skipped.
    """
    size = t.head[SIZE]
    while True:
        slot = np.int64(t.order[at])
        stop = slot * size + t.sizes[slot]
        if t.lowest[slot] == 0:
            pending = t.pending[slot]
            while place < stop and t.keys[place] <= b:
                if t.counts[place] + pending == 0:
                    return at, place
                place += 1
            if place < stop:
                return at, np.int64(-1)
        at += 1
        if at == t.head[USED] or t.firsts[at] > b:
            return at, np.int64(-1)
        place = np.int64(t.order[at]) * size


@jit
def settle(t, slot):
    """Recompute the lowest count of a block."""
    base = slot * t.head[SIZE]
    low = t.counts[base]
    for place in range(base + 1, base + t.sizes[slot]):
        low = min(low, t.counts[place])
    t.lowest[slot] = low + t.pending[slot]


@jit
def _split(t, at):
    """Move the upper half of a full block to a new block behind it."""
    size, used = t.head[SIZE], t.head[USED]
    slot = np.int64(t.order[at])
    t.head[FREE] -= 1
    new = np.int64(t.free[t.head[FREE]])
    half = size >> 1
    for i in range(size - half):
        t.keys[new * size + i] = t.keys[slot * size + half + i]
        t.counts[new * size + i] = t.counts[slot * size + half + i]
    t.sizes[slot], t.sizes[new] = half, size - half
    t.pending[new] = t.pending[slot]
    for i in range(used, at + 1, -1):
        t.order[i] = t.order[i - 1]
        t.firsts[i] = t.firsts[i - 1]
    t.order[at + 1], t.firsts[at + 1] = new, t.keys[new * size]
    t.head[USED] += 1
    settle(t, slot)
    settle(t, new)


@jit
def _join(t, at):
    """Move the steps of the next block into this one and free its slot. There must be room."""
    size = t.head[SIZE]
    slot, old = np.int64(t.order[at]), np.int64(t.order[at + 1])
    end, more = slot * size + t.sizes[slot], t.pending[old] - t.pending[slot]
    for i in range(t.sizes[old]):
        t.keys[end + i] = t.keys[old * size + i]
        t.counts[end + i] = t.counts[old * size + i] + more
    if t.sizes[slot] == 0:
        t.lowest[slot], t.firsts[at] = t.lowest[old], t.firsts[at + 1]
    elif t.sizes[old] > 0:
        t.lowest[slot] = min(t.lowest[slot], t.lowest[old])
    t.sizes[slot] += t.sizes[old]
    t.free[t.head[FREE]] = old
    t.head[FREE] += 1
    t.head[USED] -= 1
    for i in range(at + 1, t.head[USED]):
        t.order[i] = t.order[i + 1]
        t.firsts[i] = t.firsts[i + 1]


@jit
def put(t, at, place, key, count):
    """Begin a new step within the one at `place`; returns whether blocks were moved."""
    size = t.head[SIZE]
    slot = np.int64(t.order[at])
    moved = t.sizes[slot] == size
    if moved:
        _split(t, at)
        above = place - slot * size - t.sizes[slot]
        if above >= 0:
            slot = np.int64(t.order[at + 1])
            place = slot * size + above
    for i in range(slot * size + t.sizes[slot], place + 1, -1):
        t.keys[i] = t.keys[i - 1]
        t.counts[i] = t.counts[i - 1]
    t.keys[place + 1], t.counts[place + 1] = key, count - t.pending[slot]
    t.sizes[slot] += 1
    t.head[STEPS] += 1
    t.lowest[slot] = min(t.lowest[slot], count)
    return moved


@jit
def take(t, at, place):
    """Remove this step, which must not be the first, by extending the one before; returns whether blocks were moved."""
    size = t.head[SIZE]
    slot = np.int64(t.order[at])
    base = slot * size
    gone = t.counts[place] + t.pending[slot]
    t.sizes[slot] -= 1
    t.head[STEPS] -= 1
    left = t.sizes[slot]
    for i in range(place, base + left):
        t.keys[i] = t.keys[i + 1]
        t.counts[i] = t.counts[i + 1]
    if left > 0:
        if place == base:
            t.firsts[at] = t.keys[base]
        if gone == t.lowest[slot]:
            settle(t, slot)
    if left > size >> 1:
        return False
    most = size - (size >> 2)
    if at + 1 < t.head[USED] and left + t.sizes[t.order[at + 1]] <= most:
        _join(t, at)
        return True
    if at > 0 and (left == 0 or left + t.sizes[t.order[at - 1]] <= most):
        _join(t, at - 1)
        return True
    return False


@jit
def write(t, keys, counts):
    """Write all steps, in order, to `keys` (int64) and `counts` (int64), which have one entry per step."""
    to = 0
    for at in range(t.head[USED]):
        slot = np.int64(t.order[at])
        for place in range(slot * t.head[SIZE], slot * t.head[SIZE] + t.sizes[slot]):
            keys[to], counts[to] = t.keys[place], count_of(t, at, place)
            to += 1
