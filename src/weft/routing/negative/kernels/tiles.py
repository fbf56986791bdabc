"""Disjoint boxes in a tree, each free or owned. The leaves tile the root, whatever is taken or released. A node
contains everything below it.

Boxes are half-open on every axis: `low`, `high` (int64[nodes, axes]). Node 0 is the root. The children of a node are
`many` (int16[nodes]) nodes from `first` (int32[nodes]) on, 0 at a leaf; `parent` is int32[nodes]. `owner`
(int32[nodes]) is FREE or an owner's number at a leaf, SPLIT at a node that is exactly the union of its children, and
GROUP at a node that only encloses them. `live` (int16[nodes]) is 1 at a free leaf, else the number of live children; a
search skips nodes that are not live. `chain` (int32[nodes]) leads from a leaf to the next one of its owner, NONE at the
last. `head` (int64[HEAD + largest block]) has the counters below, then the first unused block of each size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import jit

FREE, SPLIT, GROUP = -1, -2, -3
NONE = -1
USED, FREE_LEAVES, LEAVES, SPARE, HEAD = 0, 1, 2, 3, 4  # nodes allocated; free leaves; leaves; nodes in unused blocks
RATIO, BENEFIT, COST = 0, 1, 2  # what makes a box worth splitting
GIVEN, LEAST, MOST = 0, 1, 2  # which axis is cut first: the first, or where least or most lies outside
NO_LIMIT = 1 << 62
FAN = 8  # maximal number of leaves in a group


class TileTree(NamedTuple):
    """The arrays of a tree."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    parent: NDArray[np.int32]
    first: NDArray[np.int32]
    many: NDArray[np.int16]
    owner: NDArray[np.int32]
    live: NDArray[np.int16]
    chain: NDArray[np.int32]
    head: NDArray[np.int64]


def empty(nodes: int, axes: int) -> TileTree:
    """Room for this many nodes; the root has yet to be made."""
    return TileTree(
        np.zeros((nodes, axes), np.int64),
        np.zeros((nodes, axes), np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int16),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int16),
        np.zeros(nodes, np.int32),
        np.zeros(HEAD + max(2 * axes + 1, FAN) + 1, np.int64),
    )


def resized(tree: TileTree, nodes: int, axes: int, lowest: int, highest: int) -> TileTree:
    """The same tree with a different capacity; on an axis that it does not have yet, every box is [lowest, highest)."""
    new = empty(nodes, axes)
    used, width = int(tree.head[USED]), tree.low.shape[1]
    new.low[:used, :width], new.high[:used, :width] = tree.low[:used], tree.high[:used]
    new.low[:used, width:], new.high[:used, width:] = lowest, highest
    for name in ("parent", "first", "many", "owner", "live", "chain"):
        getattr(new, name)[:used] = getattr(tree, name)[:used]
    new.head[: len(tree.head)] = tree.head
    return new


# -- searching ---------------------------------------------------------------------------------------


@jit
def _next(tree, node):
    """The next node in depth-first order that is not below this one; 0 at the end."""
    while node != 0:
        parent = tree.parent[node]
        if node + 1 < tree.first[parent] + tree.many[parent]:
            return node + 1
        node = parent
    return 0


@jit
def meeting(tree, a, b, out):
    """Write the free leaves that meet the box [a, b) (int64[axes]) to `out` (int32[wanted]) until it is full.

    Returns how many there are and how many nodes were visited.
    """
    found, node, axes, looked = 0, 0, a.shape[0], 0
    while True:
        looked += 1
        meets = tree.live[node] > 0
        axis = 0
        while meets and axis < axes:
            meets = tree.low[node, axis] < b[axis] and tree.high[node, axis] > a[axis]
            axis += 1
        if meets and tree.first[node] != 0:
            node = tree.first[node]
            continue
        if meets:
            out[found] = node
            found += 1
            if found == out.shape[0]:
                return found, looked
        node = _next(tree, node)
        if node == 0:
            return found, looked


@jit
def each_meeting(tree, lows, highs, out):
    """Write to `out` (bool[n]) whether a free leaf meets each of the boxes (int64[n, axes]); returns the
    nodes visited.
    """
    one, looked = np.empty(1, np.int32), 0
    for row in range(lows.shape[0]):
        found, some = meeting(tree, lows[row], highs[row], one)
        out[row] = found > 0
        looked += some
    return looked


@jit
def leaves(tree, out):
    """Write all leaves, depth first, to `out` (int32[leaves]); returns how many."""
    found, node = 0, 0
    while True:
        if tree.first[node] != 0:
            node = tree.first[node]
            continue
        out[found] = node
        found += 1
        node = _next(tree, node)
        if node == 0:
            return found


# -- taking and releasing ----------------------------------------------------------------------------


@jit
def _pieces(tree, leaf, a, b):
    """The number of boxes that the rest of a leaf falls into when [a, b) is cut out: one per face that cuts it."""
    found = 0
    for axis in range(a.shape[0]):
        if tree.low[leaf, axis] < a[axis]:
            found += 1
        if tree.high[leaf, axis] > b[axis]:
            found += 1
    return found


@jit
def _benefit(tree, leaf, a, b):
    """The volume of the intersection of a leaf and [a, b)."""
    volume = 1.0
    for axis in range(a.shape[0]):
        low, high = max(tree.low[leaf, axis], a[axis]), min(tree.high[leaf, axis], b[axis])
        volume *= (float(high) - float(low)) * 2.0**-62
    return volume


@jit
def _block(tree, size):
    head = tree.head
    start = head[HEAD + size]
    if start != 0:
        head[HEAD + size] = tree.first[start]
        head[SPARE] -= size
    else:
        start = head[USED]
        head[USED] += size
    return start


@jit
def _fade(tree, node):
    """Mark a leaf as no longer free."""
    tree.live[node] = 0
    while node != 0:
        node = tree.parent[node]
        tree.live[node] -= 1
        if tree.live[node] > 0:
            return


@jit
def _sorted_axes(tree, leaf, a, b, by, axes, outside):
    """Write the axes to `axes` (int64) in the order in which they are cut; `outside` is scratch space for as many
    floats.
    """
    for axis in range(a.shape[0]):
        low, high = tree.low[leaf, axis], tree.high[leaf, axis]
        inside = float(min(high, b[axis])) - float(max(low, a[axis]))
        share = 1.0 - inside / (float(high) - float(low))
        weight = 0.0 if by == GIVEN else share if by == LEAST else -share
        place = axis
        while place > 0 and outside[place - 1] > weight:
            axes[place], outside[place] = axes[place - 1], outside[place - 1]
            place -= 1
        axes[place], outside[place] = axis, weight


@jit
def _take(tree, leaf, pieces, a, b, owner, by, axes, outside):
    """Give an owner the intersection of a free leaf and [a, b); returns the leaf that it becomes."""
    head = tree.head
    if pieces == 0:
        tree.owner[leaf] = owner
        head[FREE_LEAVES] -= 1
        _fade(tree, leaf)
        return leaf
    taken = _block(tree, pieces + 1)
    for node in range(taken, taken + pieces + 1):
        tree.parent[node], tree.first[node], tree.many[node] = leaf, 0, 0
        tree.owner[node], tree.live[node] = FREE, 1
    tree.owner[taken], tree.live[taken] = owner, 0
    tree.low[taken], tree.high[taken] = tree.low[leaf], tree.high[leaf]
    _sorted_axes(tree, leaf, a, b, by, axes, outside)
    piece = taken
    for place in range(a.shape[0]):
        axis = axes[place]
        if tree.low[taken, axis] < a[axis]:
            piece += 1
            tree.low[piece], tree.high[piece] = tree.low[taken], tree.high[taken]
            tree.high[piece, axis] = a[axis]
            tree.low[taken, axis] = a[axis]
        if tree.high[taken, axis] > b[axis]:
            piece += 1
            tree.low[piece], tree.high[piece] = tree.low[taken], tree.high[taken]
            tree.low[piece, axis] = b[axis]
            tree.high[taken, axis] = b[axis]
    tree.owner[leaf], tree.first[leaf], tree.many[leaf], tree.live[leaf] = SPLIT, taken, pieces + 1, pieces
    head[FREE_LEAVES] += pieces - 1
    head[LEAVES] += pieces
    return taken


@jit
def take(tree, found, a, b, owner, chain, most, room, choice, by):
    """Give an owner the intersection of the free leaves `found` (int32) and [a, b).

    Creates at most `most` more free leaves and `room` more leaves. Pieces that cost nothing are taken first, then those
    worth most by `choice`. `chain` is the owner's first leaf so far, or NONE. Returns the first leaf now, how many more
    free leaves were created, and how many of the found leaves were taken. There must be memory for `room` more leaves
    and their parents.
    """
    size = a.shape[0]
    axes, outside = np.zeros(size, np.int64), np.zeros(size, np.float64)
    given, made, waiting = 0, 0, 0
    heap = np.empty(found.shape[0], np.int32)
    worth = np.empty(found.shape[0], np.float64)
    for leaf in found:
        pieces = _pieces(tree, leaf, a, b)
        if pieces <= room and (pieces <= 1 or most == NO_LIMIT):
            taken = _take(tree, leaf, pieces, a, b, owner, by, axes, outside)
            tree.chain[taken] = chain
            chain = taken
            given += 1
            room -= pieces
            made += max(0, pieces - 1)
            continue
        value = 1.0 / max(1, pieces - 1)
        if choice == RATIO:
            value *= _benefit(tree, leaf, a, b)
        elif choice == BENEFIT:
            value = _benefit(tree, leaf, a, b)
        _push(heap, worth, waiting, leaf, value)
        waiting += 1
    while waiting > 0 and made < most and room > 0:
        leaf = heap[0]
        waiting -= 1
        _pop(heap, worth, waiting)
        pieces = _pieces(tree, leaf, a, b)
        if pieces <= room and made + pieces - 1 <= most:
            taken = _take(tree, leaf, pieces, a, b, owner, by, axes, outside)
            tree.chain[taken] = chain
            chain = taken
            given += 1
            room -= pieces
            made += pieces - 1
    return chain, made, given


@jit
def _push(heap, worth, size, leaf, value):
    at = size
    while at > 0 and worth[(at - 1) // 2] < value:
        heap[at], worth[at] = heap[(at - 1) // 2], worth[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at], worth[at] = leaf, value


@jit
def _pop(heap, worth, size):
    """Remove the best entry; `size` is the number that remains."""
    leaf, value = heap[size], worth[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and worth[child + 1] > worth[child]:
            child += 1
        if worth[child] <= value:
            break
        heap[at], worth[at] = heap[child], worth[child]
        at = child
    heap[at], worth[at] = leaf, value


@jit
def release(tree, leaf):
    """Free a leaf and all leaves chained to it. A split whose parts are all free is undone.

    Cost: O(depth) per leaf.
    """
    while leaf != NONE:
        after = tree.chain[leaf]
        tree.owner[leaf], tree.live[leaf] = FREE, 1
        tree.head[FREE_LEAVES] += 1
        node = leaf
        while node != 0:
            node = tree.parent[node]
            tree.live[node] += 1
            if tree.live[node] > 1:
                break
        node = leaf
        while node != 0:
            node = tree.parent[node]
            if not _undone(tree, node):
                break
        leaf = after


@jit
def linked(tree, nodes, heads):
    """Chain leaves (int32) that are sorted by owner; writes the first of each owner to `heads` (int32), returns how
    many.

    None of the leaves may be free.
    """
    found = 0
    for place in range(nodes.shape[0]):
        node = nodes[place]
        if place == 0 or tree.owner[nodes[place - 1]] != tree.owner[node]:
            heads[found] = node
            found += 1
        last = place + 1 == nodes.shape[0] or tree.owner[nodes[place + 1]] != tree.owner[node]
        tree.chain[node] = NONE if last else nodes[place + 1]
    return found


@jit
def _undone(tree, node):
    """Make a node a free leaf if all its children are free leaves and it is their union."""
    first, many = tree.first[node], tree.many[node]
    if tree.owner[node] != SPLIT or tree.live[node] != many:
        return False
    for child in range(first, first + many):
        if tree.first[child] != 0:
            return False
    tree.head[FREE_LEAVES] -= many - 1
    tree.head[LEAVES] -= many - 1
    tree.head[SPARE] += many
    tree.first[first] = tree.head[HEAD + many]
    tree.head[HEAD + many] = first
    tree.first[node], tree.many[node], tree.owner[node], tree.live[node] = 0, 0, FREE, 1
    return True
