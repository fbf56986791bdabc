"""The turns of Hilbert's curve in any number of dimensions. Between neighbours on the curve, exactly one coordinate
changes, by one.

The curve visits the 2^d orthants of each level in Gray code order. Every orthant holds a copy of the curve, turned so
that it starts where the previous one ended (Skilling 2004). For each dimension in which a cell lies in the upper half,
the remaining bits of the first dimension are mirrored; for each other dimension, they are swapped with those of that
dimension.

There are two forms. A single cell is turned as a whole, level by level, and is then in Gray code order. A descent keeps
the turns: `axes` (int64[levels, d]) states for each level which dimension each bit of the Gray code halves, and
`mirrors` (int64[levels]) has a bit for each dimension that is traversed from the far end.
"""

from __future__ import annotations

from weft.kernels.jit import jit


@jit
def _turn_rest(cell, dim, level):
    """Mirror or swap the coordinates below a level, depending on the cell's half. This is its own inverse."""
    rest = (1 << level) - 1
    upper = -((cell[dim] >> level) & 1)  # all ones or all zeros, without an unpredictable branch
    cell[0] ^= rest & upper
    swapped = (cell[0] ^ cell[dim]) & rest & ~upper
    cell[0] ^= swapped
    cell[dim] ^= swapped


@jit
def turn_cell(cell, bits):
    """Turn a cell (int64[d], in place) from its position in space to its position in the Gray code."""
    for level in range(bits - 1, 0, -1):
        for dim in range(cell.size):
            _turn_rest(cell, dim, level)


@jit
def turn_back(cell, bits):
    """The inverse of `turn_cell`."""
    for level in range(1, bits):
        for dim in range(cell.size - 1, -1, -1):
            _turn_rest(cell, dim, level)


@jit
def turn(axes, mirrors, level, orthant):
    """Write the turn of the next level inside an orthant of this one. Bit j of `orthant` belongs to axis d - 1 - j."""
    dims = axes.shape[1]
    after = level + 1
    mirror = mirrors[level]
    for axis in range(dims):
        axes[after, axis] = axes[level, axis]
    for axis in range(dims):
        if (orthant >> (dims - 1 - axis)) & 1:
            mirror ^= 1
        elif axis > 0:
            axes[after, 0], axes[after, axis] = axes[after, axis], axes[after, 0]
            if (mirror ^ (mirror >> axis)) & 1:
                mirror ^= 1 | (1 << axis)
    mirrors[after] = mirror
