"""Stabbing queries: which of many ranges extend over a position. Results are exact and come in the order of the starts.

Ranges are sorted by `starts`; `ends` are in any order (int64[n] both). `peaks` (int64) holds the highest end of each 8
ranges, then of each 64, and so on up to one group; `bases` (int64[levels]) is where each level begins. Ranges that end
too early are thus skipped in groups, however wide the others are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.kernels.jit import jit

SHIFT = 3  # groups of 8


def peaks_of(ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The peaks of these ends and the bases of their levels."""
    levels, bases, size, level = [np.zeros(0, np.int64)], [], 0, ends
    while level.size > 1:
        level = np.maximum.reduceat(level, np.arange(0, level.size, 1 << SHIFT))
        levels.append(level)
        bases.append(size)
        size += level.size
    return np.concatenate(levels), np.array(bases, np.int64)


@jit
def _reaching(ends, peaks, bases, at, stop, high):
    """The first position from `at` on and before `stop` whose end is at least `high`; otherwise `stop` or more."""
    while at < stop:
        level = 0
        while level < bases.size and at & ((1 << SHIFT * (level + 1)) - 1) == 0:
            level += 1
        while level > 0 and peaks[bases[level - 1] + (at >> SHIFT * level)] >= high:
            level -= 1
        if level == 0 and ends[at] >= high:
            return at
        at += 1 << SHIFT * level
    return at


@jit
def reaching(starts, ends, peaks, bases, lows, highs, out, offsets):
    """Find, for each i, the ranges that start at or before lows[i] and end at or after highs[i].

    With (a, b) these are the ranges that cover [a, b]; with (b, a), the ranges that overlap it. The positions for i are
    written to `out` (int64) from offsets[i] (int64[n + 1]) on. Returns `out`, possibly reallocated.
    """
    found = 0
    offsets[0] = 0
    for i in range(lows.size):
        stop = np.searchsorted(starts, lows[i], "right")
        at = _reaching(ends, peaks, bases, 0, stop, highs[i])
        while at < stop:
            if found == out.size:
                longer = np.empty(2 * found + 64, np.int64)
                longer[:found] = out
                out = longer
            out[found] = at
            found += 1
            at = _reaching(ends, peaks, bases, at + 1, stop, highs[i])
        offsets[i + 1] = found
    return out
