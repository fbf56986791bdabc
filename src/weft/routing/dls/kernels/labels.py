"""Boxes of cells to labels, cells to labels, and back (DLS 3.2). The label of a cell is among the labels of every box
that contains the cell, whatever bits are dropped, as long as both drop the same ones.

A label has one field per dimension, `bits` (int64[dims]) long and starting at bit `places` (int64[dims]). Where bits
can be dropped, the field has one more bit, the mark: the highest bit set, above the remaining bits of the cell. `mark`
is then 1, else 0. Boxes are `lows` and `highs` (int64[n, dims], inclusive), dropped bits are `drops` (int64[n, dims]).
"""

from __future__ import annotations

import numpy as np

from weft.kernels.jit import jit


@jit
def _covered(low, high, granules, drop):
    """How many cells are covered from low to high with some bits dropped."""
    return min(granules, ((high >> drop) + 1) << drop) - ((low >> drop) << drop)


@jit
def choose(lows, highs, bits, granules, steps, room, drops, counts):
    """Write to `drops` how many bits each box drops, one step (int64[dims]) at a time, so that it has at most room[row]
    labels if possible. Write the resulting number of labels to `counts` (int64[n]).

    The next dimension to drop a step is the one that adds the least coverage for what it saves. A dimension without a
    predicate costs nothing.
    """
    dims = bits.size
    for row in range(lows.shape[0]):
        count = 1
        for dim in range(dims):
            drops[row, dim] = 0
            count *= int(highs[row, dim]) - int(lows[row, dim]) + 1
        while count > room[row]:
            best, best_drop, best_price, best_saved = -1, 0, 0.0, 0.0
            for dim in range(dims):
                low, high = int(lows[row, dim]), int(highs[row, dim])
                old = int(drops[row, dim])
                before = (high >> old) - (low >> old) + 1
                drop, after = old, before
                if low == 0 and high == granules[dim] - 1:  # unconstrained: drop it at once, to keep levels few
                    drop, after = int(bits[dim]), 1
                while drop < bits[dim] and after == before:
                    drop = min(drop + int(steps[dim]), int(bits[dim]))
                    after = (high >> drop) - (low >> drop) + 1
                if after == before:
                    continue
                saved = np.log(before / after)
                more = _covered(low, high, granules[dim], drop) / _covered(low, high, granules[dim], old)
                price = np.log(more) / saved
                if best < 0 or price < best_price or (price == best_price and saved > best_saved):
                    best, best_drop, best_price, best_saved = dim, drop, price, saved
            if best < 0:
                break
            drops[row, best] = best_drop
            count = 1
            for dim in range(dims):
                count *= (int(highs[row, dim]) >> drops[row, dim]) - (int(lows[row, dim]) >> drops[row, dim]) + 1
        counts[row] = count


@jit
def of_boxes(lows, highs, drops, bits, places, mark, base, offsets, out):
    """Write the labels of each box, ascending, to out[offsets[row]:offsets[row + 1]] (int64); `base` is above all of
    them.
    """
    dims = bits.size
    at = np.empty(dims, np.int64)
    for row in range(lows.shape[0]):
        label = base
        for dim in range(dims):
            at[dim] = lows[row, dim] >> drops[row, dim]
            label += ((mark << (bits[dim] - drops[row, dim])) + at[dim]) << places[dim]
        for i in range(offsets[row], offsets[row + 1]):
            out[i] = label
            dim = dims - 1
            while dim >= 0:
                first = lows[row, dim] >> drops[row, dim]
                if at[dim] < highs[row, dim] >> drops[row, dim]:
                    at[dim] += 1
                    label += 1 << places[dim]
                    break
                label -= (at[dim] - first) << places[dim]
                at[dim] = first
                dim -= 1


@jit
def of_cells(cells, drops, bits, places, mark, base, out):
    """Write to `out` (int64[n, levels]) the label of each cell (int64[n, dims]) at each level (one row of `drops`
    each).
    """
    for level in range(drops.shape[0]):
        empty = base
        for dim in range(bits.size):
            empty += (mark << (bits[dim] - drops[level, dim])) << places[dim]
        for row in range(cells.shape[0]):
            label = empty
            for dim in range(bits.size):
                label += (cells[row, dim] >> drops[level, dim]) << places[dim]
            out[row, level] = label


@jit
def levels(labels, bits, places, out):
    """Write only the marks of each marked label to `out` (int64[n]): equal for labels that drop the same bits."""
    for i in range(labels.size):
        marks = 0
        for dim in range(bits.size):
            field = (labels[i] >> places[dim]) & ((2 << bits[dim]) - 1)
            top = bits[dim]
            while top >= 0 and not (field >> top) & 1:
                top -= 1
            if top >= 0:
                marks += 1 << (places[dim] + top)
        out[i] = marks


@jit
def sound(labels, bits, places, granules, steps, out):
    """Write to `out` (bool[n]) whether marked labels name existing cells and drop whole steps."""
    for i in range(labels.size):
        good = True
        for dim in range(bits.size):
            field = (labels[i] >> places[dim]) & ((2 << bits[dim]) - 1)
            top = bits[dim]
            while top >= 0 and not (field >> top) & 1:
                top -= 1
            if top < 0:
                good = False
                break
            drop = bits[dim] - top
            if (drop % steps[dim] != 0 and drop != bits[dim]) or ((field - (1 << top)) << drop) >= granules[dim]:
                good = False
                break
        out[i] = good
