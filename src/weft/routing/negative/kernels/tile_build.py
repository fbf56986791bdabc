"""A balanced tree of disjoint boxes, as in `tiles`. Its leaves are the boxes; every node encloses its children."""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit
from weft.routing.negative.kernels.tiles import FAN, FREE, FREE_LEAVES, GROUP, LEAVES, USED

_DEPTH = 128
_SAMPLE = 24  # boxes that are examined to choose an axis


@jit
def build(tree, low, high, owner, order):
    """Build a balanced tree of disjoint boxes in an empty tree with room for two nodes per box.

    The boxes are low, high (int64[n, axes]), n > 0; `order` (int64[n]) is 0..n-1 and is reordered. Cost: O(n log n).
    """
    nodes = np.empty(_DEPTH, np.int64)
    starts = np.empty(_DEPTH, np.int64)
    ends = np.empty(_DEPTH, np.int64)
    keys = np.empty(order.shape[0], np.float64)
    nodes[0], starts[0], ends[0] = 0, 0, order.shape[0]
    top, used = 1, 1
    while top > 0:
        top -= 1
        node, start, end = nodes[top], starts[top], ends[top]
        if end - start == 1:
            row = order[start]
            tree.low[node], tree.high[node], tree.owner[node] = low[row], high[row], owner[row]
            tree.live[node] = 1 if owner[row] == FREE else 0
            tree.head[FREE_LEAVES] += tree.live[node]
            tree.head[LEAVES] += 1
            continue
        many = end - start
        if many > FAN:
            many = 2
            axis = _widest(low, high, order, start, end)
            for place in range(start, end):
                keys[place] = _centre(low, high, order[place], axis)
            _halve(keys, order, start, end, start + (end - start) // 2)
        tree.owner[node], tree.first[node], tree.many[node] = GROUP, used, many
        for child in range(many):
            tree.parent[used + child] = node
            nodes[top] = used + child
            starts[top] = start + (end - start) * child // many
            ends[top] = start + (end - start) * (child + 1) // many
            top += 1
        used += many
    tree.head[USED] = used
    for node in range(used - 1, -1, -1):  # a child comes after its parent
        _surround(tree, node)
        if node > 0 and tree.live[node] > 0:
            tree.live[tree.parent[node]] += 1


@jit
def _surround(tree, node):
    """Make a node the hull of its children."""
    first = tree.first[node]
    if first == 0:
        return
    tree.low[node], tree.high[node] = tree.low[first], tree.high[first]
    for child in range(first + 1, first + tree.many[node]):
        for axis in range(tree.low.shape[1]):
            tree.low[node, axis] = min(tree.low[node, axis], tree.low[child, axis])
            tree.high[node, axis] = max(tree.high[node, axis], tree.high[child, axis])


@jit
def _widest(low, high, order, start, end):
    """The axis on which the centres of a sample of the boxes lie farthest apart."""
    step = max(1, (end - start) // _SAMPLE)
    widest, best = -1.0, 0
    for axis in range(low.shape[1]):
        left = right = _centre(low, high, order[start], axis)
        for place in range(start + step, end, step):
            centre = _centre(low, high, order[place], axis)
            left, right = min(left, centre), max(right, centre)
        if right - left > widest:
            widest, best = right - left, axis
    return best


@jit
def _centre(low, high, row, axis):
    return 0.5 * float(low[row, axis]) + 0.5 * float(high[row, axis])


@jit
def _halve(keys, order, first, last, middle):
    """Reorder so that no key before the middle is greater than a key after it (Hoare's selection)."""
    low, high = first, last - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return
