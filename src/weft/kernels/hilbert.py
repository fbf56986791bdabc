"""The turns of Hilbert's curve in any number of dimensions. Law: between two neighbours on the curve just one
coordinate changes, by one.

The curve visits the 2^d orthants of each level in the order of the Gray code, and every orthant holds a copy of the
curve that is turned so that it starts where the one before ended (Skilling 2004): for each dimension in which a cell is
in the upper half, what is left of the first one is mirrored, and for each other it is exchanged with that one's.

There are two forms of it. A single cell is turned as a whole, level by level; it is then in the order of the Gray
code. A descent keeps the turns: `axes` (int64[levels, d]) says for each level which dimension each bit of the Gray code
halves, `mirrors` (int64[levels]) has a bit for each that is seen from the far end.
"""

from __future__ import annotations

from weft.kernels.jit import jit


@jit
def _turn_rest(cell, dim, level):
    """Mirror or exchange the coordinates below a level, by the side on which the cell is; its own inverse."""
    rest = (1 << level) - 1
    upper = -((cell[dim] >> level) & 1)  # all ones, or none: a branch would be a coin's throw
    cell[0] ^= rest & upper
    swapped = (cell[0] ^ cell[dim]) & rest & ~upper
    cell[0] ^= swapped
    cell[dim] ^= swapped


@jit
def turn_cell(cell, bits):
    """Turn a cell (int64[d], in place) from its place in space to its place in the Gray code."""
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
    """Write the turn of the next level inside an orthant of this one; bit j of `orthant` belongs to axis d - 1 - j."""
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
