"""The counting algorithm over rows of ranges. Law: a row is found just if all its constraints hold.

For each dimension: `points` of equality tables (rows with low = high = code, by code), and rows sorted by low and by
high. An event counts, for each row, the lows at or below its code less the highs below it.
"""

from __future__ import annotations

from weft.kernels.jit import jit


@jit
def count_event(codes, needed, tables, table_starts, low_rows, low_codes, high_rows, high_codes, starts, counter, out):
    """Rows whose counter reaches `needed` (int32[n]); `counter` (int32[n]) is zero before and after.

    Dimension d has its equality table at table_starts[d] (offsets of its codes into `tables`' rows) and its sorted
    bounds at starts[d]:starts[d + 1]. Returns how many rows were written to `out` (int32[n]).
    """
    dims = codes.size
    for dim in range(dims):
        code = codes[dim]
        at = table_starts[dim] + code
        for place in range(tables[at], tables[at + 1]):
            counter[tables[place]] += 1
        for place in range(starts[dim], starts[dim + 1]):
            if low_codes[place] > code:
                break
            counter[low_rows[place]] += 1
        for place in range(starts[dim], starts[dim + 1]):
            if high_codes[place] >= code:
                break
            counter[high_rows[place]] -= 1
    found = 0
    for row in range(needed.size):
        if counter[row] == needed[row]:
            out[found] = row
            found += 1
        counter[row] = 0
    return found
