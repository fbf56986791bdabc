"""One interval compared with a column of intervals. Results are exact on the real line, including open and closed ends.

A column is `low`, `high` (float64[n]) and `marks` (uint8[n]): bit 0 means that the low end is open, bit 1 that the high
end is open, bit 2 that the row has an interval at all. A row without an interval is (-inf, inf, 0). The query interval
is given as the same three values, as scalars. Nothing is mutated; each function returns bool[n].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.kernels.arrays import Floats, Mask

LOW_OPEN, HIGH_OPEN, BOUNDED = 1, 2, 4

Marks = NDArray[np.uint8]


def within(low: Floats, high: Floats, marks: Marks, a: float, b: float, mark: int) -> Mask:
    """Rows whose interval lies within the query interval."""
    starts = low >= a
    if mark & LOW_OPEN:
        starts &= (low != a) | (marks & LOW_OPEN).astype(bool)
    ends = high <= b
    if mark & HIGH_OPEN:
        ends &= (high != b) | (marks & HIGH_OPEN).astype(bool)
    starts &= ends
    starts &= marks >= BOUNDED
    return starts


def around(low: Floats, high: Floats, marks: Marks, a: float, b: float, mark: int) -> Mask:
    """Rows without an interval, or whose interval contains the query interval."""
    if not mark & BOUNDED:
        return unbounded(marks)
    starts = low <= a
    if not mark & LOW_OPEN:
        starts &= (low != a) | ~(marks & LOW_OPEN).astype(bool)
    ends = high >= b
    if not mark & HIGH_OPEN:
        ends &= (high != b) | ~(marks & HIGH_OPEN).astype(bool)
    starts &= ends
    starts |= unbounded(marks)
    return starts


def meeting(low: Floats, high: Floats, marks: Marks, a: float, b: float, mark: int) -> Mask:
    """Rows without an interval, or whose interval shares a point with the query interval."""
    starts = low <= b
    touching = low == b
    if touching.any():
        starts &= ~touching | (not mark & HIGH_OPEN) & ~(marks & LOW_OPEN).astype(bool)
    ends = high >= a
    touching = high == a
    if touching.any():
        ends &= ~touching | (not mark & LOW_OPEN) & ~(marks & HIGH_OPEN).astype(bool)
    starts &= ends
    starts |= unbounded(marks)
    return starts


def unbounded(marks: Marks) -> Mask:
    """Rows without an interval."""
    return marks < BOUNDED
