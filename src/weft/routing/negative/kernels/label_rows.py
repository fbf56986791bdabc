"""One box compared with rows of boxes, all half-open on integer axes. Results are exact; the rows are scanned in order.

Rows are low, high (int64[rows, axes]), of which the first `used` are valid. The query box is [a, b) (int64[axes]).
"""

from __future__ import annotations

from weft.kernels.jit import jit


@jit
def touching(low, high, used, a, b, out):
    """Write the rows that meet the box to `out` (int64[used]); returns how many."""
    found = 0
    for row in range(used):
        meets = True
        for axis in range(a.shape[0]):
            if low[row, axis] >= b[axis] or high[row, axis] <= a[axis]:
                meets = False
                break
        if meets:
            out[found] = row
            found += 1
    return found


@jit
def around(low, high, used, a, b):
    """The first row that contains the whole box, or -1."""
    for row in range(used):
        holds = True
        for axis in range(a.shape[0]):
            if low[row, axis] > a[axis] or high[row, axis] < b[axis]:
                holds = False
                break
        if holds:
            return row
    return -1


@jit
def surrounding(low, high, used, a, b, out):
    """Write all rows that contain the whole box to `out` (int64[used]); returns how many."""
    found = 0
    for row in range(used):
        holds = True
        for axis in range(a.shape[0]):
            if low[row, axis] > a[axis] or high[row, axis] < b[axis]:
                holds = False
                break
        if holds:
            out[found] = row
            found += 1
    return found
