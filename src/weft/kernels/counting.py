"""The counting algorithm over rows of ranges. A row is found if and only if all its constraints hold.

Each dimension has an equality table (rows with low = high = code, by code) and its remaining rows sorted by low and by
high. For each row, an event counts the lows at or below its code, minus the highs below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import jit


class Tables(NamedTuple):
    """The arrays for n rows.

    The equality table of dimension d begins at table_starts[d] (offsets of its codes into the rows of `tables`); its
    sorted bounds are at starts[d]:starts[d + 1].
    """

    needed: NDArray[np.int32]  # number of constraints of each row
    tables: NDArray[np.int64]
    table_starts: NDArray[np.int64]
    low_rows: NDArray[np.int32]
    low_codes: NDArray[np.int32]
    high_rows: NDArray[np.int32]
    high_codes: NDArray[np.int32]
    starts: NDArray[np.int64]


@jit
def count_event(t, codes, counter, out):
    """Write the rows whose constraints all hold for `codes` (int32[d]) to `out` (int32[n]); returns how many there are.

    `counter` (int32[n]) is zero before and after the call.
    """
    dims, tables, starts, needed = codes.size, t.tables, t.starts, t.needed
    for dim in range(dims):
        code = codes[dim]
        at = t.table_starts[dim] + code
        for place in range(tables[at], tables[at + 1]):
            counter[tables[place]] += 1
        for place in range(starts[dim], starts[dim + 1]):
            if t.low_codes[place] > code:
                break
            counter[t.low_rows[place]] += 1
        for place in range(starts[dim], starts[dim + 1]):
            if t.high_codes[place] >= code:
                break
            counter[t.high_rows[place]] -= 1
    found = 0
    for row in range(needed.size):
        if counter[row] == needed[row]:
            out[found] = row
            found += 1
        counter[row] = 0
    return found
