"""A balanced tree of disjoint boxes, as in `tiles`. Law: its leaves are the boxes, a node is around its children."""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit
from weft.kernels.tiles import FAN, FREE, FREE_LEAVES, GROUP, LEAVES, USED

_DEPTH = 128


@jit
def build(tree, low, high, owner, order):
    """Make a balanced tree of disjoint boxes, in an empty one with room for two nodes each.

    The boxes are low, high (int64[n, axes]), n > 0; `order` (int64[n]) is 0..n-1 and is reordered. Cost: O(n log^2 n).
    """
    nodes = np.empty(_DEPTH, np.int64)
    starts = np.empty(_DEPTH, np.int64)
    ends = np.empty(_DEPTH, np.int64)
    nodes[0], starts[0], ends[0] = 0, 0, order.shape[0]
    top, used, axes = 1, 1, low.shape[1]
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
        widest, best = -1.0, 0
        for axis in range(axes):
            least, most = low[order[start], axis], high[order[start], axis]
            left, right = _centre(low, high, order[start], axis), _centre(low, high, order[start], axis)
            for place in range(start + 1, end):
                row = order[place]
                least, most = min(least, low[row, axis]), max(most, high[row, axis])
                left, right = min(left, _centre(low, high, row, axis)), max(right, _centre(low, high, row, axis))
            tree.low[node, axis], tree.high[node, axis] = least, most
            if right - left > widest:
                widest, best = right - left, axis
        many = end - start
        if many > FAN:
            many = 2
            keys = np.empty(end - start, np.float64)
            for place in range(start, end):
                keys[place - start] = _centre(low, high, order[place], best)
            order[start:end] = order[start:end][np.argsort(keys)]
        tree.owner[node], tree.first[node], tree.many[node] = GROUP, used, many
        for child in range(many):
            tree.parent[used + child] = node
            nodes[top] = used + child
            starts[top] = start + (end - start) * child // many
            ends[top] = start + (end - start) * (child + 1) // many
            top += 1
        used += many
    tree.head[USED] = used
    for node in range(used - 1, 0, -1):
        if tree.live[node] > 0:
            tree.live[tree.parent[node]] += 1


@jit
def _centre(low, high, row, axis):
    return 0.5 * float(low[row, axis]) + 0.5 * float(high[row, axis])
