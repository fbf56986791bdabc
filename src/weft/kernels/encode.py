"""Values to codes: the number of cuts of a sorted line below each value. Codes are exact for every float64 except NaN.

`values` (float64[k]) and `sides` (uint8[k]) are the cuts, sorted by value and then side. `table` (int32) gives, for
each bucket of the range of values, where the search starts (see `lookup`). The bucket of a cut and that of a value are
computed alike, and rounding keeps their order: so all cuts of the buckets before are below the value, and none of the
buckets after. Codes begin with FIRST; NaN is coded 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.kernels.addresses import lent
from weft.kernels.jit import elements, inlined, light
from weft.kernels.simd import prefetch

FIRST = 3  # the smaller codes are not numbers: absent, FALSE, TRUE
_AHEAD = 8  # values
_FEW, _MANY = 2, 16  # cuts in a bucket
_NEAR = 1 << 13  # buckets; the tables of fewer are in the cache anyway


@inlined
def count_below(values, sides, value):
    """How many cuts lie below a value."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    if low < values.size and values[low] == value and sides[low] == 0:
        low += 1
    return low


def lookup(values: NDArray[np.float64], buckets: int) -> NDArray[np.int32]:
    """The table for `encode_floats`: the number of values before each of `buckets` equal buckets between the first and
    the last value. The last entry is the number of all values.
    """
    scale = buckets / (values[-1] - values[0])
    places = np.minimum((values - values[0]) * scale, buckets).astype(np.int64)
    table = np.zeros(buckets + 1, np.int32)
    np.cumsum(np.bincount(places, minlength=buckets)[:buckets], out=table[1:])
    table[buckets] = len(values)
    return table


@inlined
def ends(values, table):
    """The first and the last value, and how many buckets the table has for each unit between them."""
    if table.size <= 1:
        return 0.0, -1.0, 0.0
    first, last = values[0], values[values.size - 1]
    return first, last, (table.size - 1) / (last - first)


@inlined
def bucket_of(table, first, scale, value):
    """The bucket of a value between the first and the last."""
    return min(np.int64((value - first) * scale), table.size - 2)


@inlined
def place_of(values, sides, table, first, last, scale, value):
    """The code of a value: FIRST + the number of cuts below it, or 0 for NaN; `first`, `last`, `scale` as in `ends`."""
    if value != value:  # noqa: PLR0124 - NaN
        return np.int32(0)
    if not first <= value <= last:
        return np.int32(FIRST + count_below(values, sides, value))
    bucket = bucket_of(table, first, scale, value)
    low, high = np.int64(table[bucket]), np.int64(table[bucket + 1])
    if high - low > _MANY:
        while low < high:
            middle = (low + high) >> 1
            if values[middle] < value:
                low = middle + 1
            else:
                high = middle
    for _ in range(_FEW):  # most buckets have no more cuts, and steps that always happen are quicker than a loop
        low += np.int64(values[low] < value)
    while values[low] < value:  # some cut is not below the value, which is at most the last
        low += 1
    return np.int32(FIRST + low + np.int64((values[low] == value) & (sides[low] == 0)))


@light(elements)
def encode_floats(values, sides, table, column, codes, dim):
    """Write the code of each value of `column` (float64[n]) to codes[:, dim]."""
    values, sides, table = lent(values), lent(sides), lent(table)
    first, last, scale = ends(values, table)
    far = column.size - 2 * _AHEAD if table.size > _NEAR else 0
    for row in range(column.size):
        if row < far:  # a bucket's entry, and then its values, are scattered in memory
            value = column[row + 2 * _AHEAD]
            if first <= value <= last:
                prefetch(table, bucket_of(table, first, scale, value))
            value = column[row + _AHEAD]
            if first <= value <= last:
                prefetch(values, np.int64(table[bucket_of(table, first, scale, value)]))
        codes[row, dim] = place_of(values, sides, table, first, last, scale, column[row])
