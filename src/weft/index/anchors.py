"""Anchors: one piece of each row, by which the tree is cut. An event finds a row under its anchor if and only if it
would find it without the anchor and has the anchor's piece.

An event contains many pieces, and a place in a tree has one code on each axis. So an event is searched once for each of
its pieces that is an anchor, and once for the rows without: on the anchor axis a row has the code of its piece + 1, or
0. Each row has one code there, and is found at most once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import ANCHOR
from weft.index.dimension import AnchorDimension
from weft.index.rows import FilterRows


def anchored(rows: FilterRows) -> FilterRows:
    """The rows with an anchor each, if any of them needs a piece. Cost: O(constraints + needs log needs)."""
    if not len(rows.needs):
        return rows
    count, dim = len(rows), len(rows.dimensions)
    starts = rows.starts.astype(np.int64)
    held = np.ones(len(rows.dims) + count, bool)
    last = starts[1:] + np.arange(count)  # the anchor comes after the other constraints of its row
    held[last] = False
    dims, lows, highs = (np.empty(len(held), np.int32) for _ in range(3))
    dims[held], lows[held], highs[held] = rows.dims, rows.lows, rows.highs
    dims[last] = dim
    lows[last] = highs[last] = _rarest(rows) + 1
    axes = {**rows.axes, ANCHOR: dim}
    dimensions = [*rows.dimensions, AnchorDimension(len(rows.pieces))]
    starts = starts + np.arange(count + 1)
    return replace(rows, axes=axes, dimensions=dimensions, starts=starts, dims=dims, lows=lows, highs=highs)


def _rarest(rows: FilterRows) -> NDArray[np.int32]:
    """Of each row, the piece that it needs and the fewest rows need, the longest of several; -1 if it needs none."""
    found = np.full(len(rows), -1, np.int32)
    wanted = rows.needs >= 0
    whose = np.repeat(np.arange(len(rows)), rows.need_counts())[wanted]
    pieces = rows.needs[wanted]
    users = np.bincount(pieces, minlength=len(rows.pieces))
    lengths = np.array([len(piece.data) for piece in rows.pieces.pieces], np.int64)
    order = np.lexsort((pieces, -lengths[pieces], users[pieces], whose))[::-1]  # the first of a row is written last
    found[whose[order]] = pieces[order]
    return found


def anchors_of(rows: FilterRows) -> NDArray[np.bool_]:
    """Which pieces are anchors."""
    found = np.zeros(len(rows.pieces) + 1, bool)
    if ANCHOR in rows.axes:
        found[rows.lows[rows.dims == rows.axes[ANCHOR]]] = True
    return found[1:]
