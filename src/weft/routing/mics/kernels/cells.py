"""Cells compared with boxes of cells. Results are exact; only `out` and `passing` are changed.

Boxes are `lows` and `highs` (int64[n, dims], inclusive), cells are int64[m, dims].
"""

from __future__ import annotations

from weft.kernels.jit import jit


@jit
def pass_rates(lows, highs, cells, passing, out):
    """Count, for each dimension, the pairs (box, cell) of `passing` (bool[n, m]) that pass it, into `out`
    (int64[dims]).
    """
    for dim in range(lows.shape[1]):
        count = 0
        for row in range(lows.shape[0]):
            low, high = lows[row, dim], highs[row, dim]
            for at in range(cells.shape[0]):
                if passing[row, at] and low <= cells[at, dim] <= high:
                    count += 1
        out[dim] = count


@jit
def keep_passing(lows, highs, cells, dim, passing):
    """Clear the pairs of `passing` (bool[n, m]) that fail one dimension."""
    for row in range(lows.shape[0]):
        low, high = lows[row, dim], highs[row, dim]
        for at in range(cells.shape[0]):
            if not low <= cells[at, dim] <= high:
                passing[row, at] = False


@jit
def any_box(lows, highs, cells, dims, out):
    """Write to `out` (bool[m]) whether some box contains each cell in all of the dimensions `dims` (int64[k])."""
    for at in range(cells.shape[0]):
        found = False
        for row in range(lows.shape[0]):
            inside = True
            for dim in dims:
                if not lows[row, dim] <= cells[at, dim] <= highs[row, dim]:
                    inside = False
                    break
            if inside:
                found = True
                break
        out[at] = found
