"""Some seats, looked for in the columns of many groups. Law: every place that has one of them is found, and no other.

>>> SeatSet(np.array([8, 5], np.uint32)).places(np.array([4, 5, 6, 8, 9, 5], np.uint32)).tolist()
[1, 3, 5]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TABLE = 1 << 22  # from the lowest to the highest seat: up to here there is a table, beyond it a sorted list


class SeatSet:
    """Seats, in any order. Cost: O(seats), and O(highest - lowest) bytes where that is little."""

    __slots__ = ("_lowest", "_sorted", "_table")

    def __init__(self, seats: NDArray[np.uint32], table: int = _TABLE) -> None:
        self._lowest = seats.min(initial=2**32 - 1)
        span = int(seats.max(initial=0)) - int(self._lowest) + 1
        self._table: NDArray[np.bool_] | None = None
        if span <= table:
            self._table = np.zeros(max(0, span) + 1, bool)  # the last place is for all seats beyond
            self._table[seats - self._lowest] = True
        else:
            self._sorted = np.sort(seats)

    def places(self, column: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Where a column has one of the seats, in order. Cost: some nanoseconds for each row of the column."""
        if self._table is not None:
            beyond = np.uint32(len(self._table) - 1)
            return np.flatnonzero(self._table[np.minimum(column - self._lowest, beyond)])  # lower seats wrap around
        found = np.minimum(np.searchsorted(self._sorted, column), len(self._sorted) - 1)
        return np.flatnonzero(self._sorted[found] == column)
