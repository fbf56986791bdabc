"""Values to codes: the number of cuts of a sorted line below each value. Law: exact for every float64 except NaN.

`values` (float64[k]) and `sides` (uint8[k]) are the cuts, sorted by value and then side. `table` (int32) gives, for
each bucket of the range of values, where the search starts (see `lookup`). Codes begin with FIRST; NaN is coded 0.
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit

FIRST = 3  # the smaller codes are not numbers: absent, FALSE, TRUE


@jit
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


@jit
def lookup(values, buckets):
    """The table for `encode_floats`: the number of values before each of `buckets` equal buckets between the first and
    the last value. The last entry is the number of all values.
    """
    table = np.empty(buckets + 1, np.int32)
    first, scale = values[0], buckets / (values[-1] - values[0])
    at = 0
    for bucket in range(buckets + 1):
        while at < values.size and (values[at] - first) * scale < bucket:
            at += 1
        table[bucket] = at
    table[buckets] = values.size
    return table


@jit
def place_of(values, sides, table, value):
    """The code of a value: FIRST + the number of cuts below it, or 0 for NaN."""
    if value != value:  # noqa: PLR0124 - NaN
        return np.int32(0)
    k, buckets = values.size, table.size - 1
    if buckets <= 0 or not values[0] <= value <= values[k - 1]:
        return np.int32(FIRST + count_below(values, sides, value))
    scale = buckets / (values[k - 1] - values[0])
    bucket = min(np.int64((value - values[0]) * scale), buckets - 1)
    low, high = np.int64(table[bucket]), np.int64(table[bucket + 1])
    if high - low > 16:
        while low < high:
            middle = (low + high) >> 1
            if values[middle] < value:
                low = middle + 1
            else:
                high = middle
    while low > 0 and values[low - 1] >= value:  # rounding may be one bucket off
        low -= 1
    while low < k and values[low] < value:
        low += 1
    if low < k and values[low] == value and sides[low] == 0:
        low += 1
    return np.int32(FIRST + low)


@jit
def encode_floats(values, sides, table, column, codes, dim):
    """Write the code of each value of `column` (float64[n]) to codes[:, dim]."""
    for row in range(column.size):
        codes[row, dim] = place_of(values, sides, table, column[row])
