"""The counting algorithm over rows of ranges. Law: a row is found just if all its constraints hold.

For each dimension there is an equality table (rows with low = high = code, by code), and rows sorted by low and by
high. An event counts, for each row, the lows at or below its code less the highs below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import jit


class Tables(NamedTuple):
    """The arrays of n rows.

    Dimension d has its equality table at table_starts[d] (offsets of its codes into `tables`' rows) and its sorted
    bounds at starts[d]:starts[d + 1].
    """

    needed: NDArray[np.int32]  # constraints of each row
    tables: NDArray[np.int64]
    table_starts: NDArray[np.int64]
    low_rows: NDArray[np.int32]
    low_codes: NDArray[np.int32]
    high_rows: NDArray[np.int32]
    high_codes: NDArray[np.int32]
    starts: NDArray[np.int64]


@jit
def count_event(t, codes, counter, out):
    """Rows of whose constraints all hold for the codes (int32[d]), into `out` (int32[n]); returns how many.

    `counter` (int32[n]) is zero before and after.
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
