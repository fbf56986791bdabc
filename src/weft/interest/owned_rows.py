"""The boxes of subscriptions as rows of labels. A search finds exactly the rows that meet a box, or that contain it.

Rows follow the labels of their axes, which may be spread again. Axes may be added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.interest.label_axes import LabelAxes, Labels, TileRows, relabel
from weft.interest.tiles import Owner
from weft.kernels import label_rows as kernel

RowPlaces = NDArray[np.int64]


class OwnedRows:
    """Rows by owner."""

    def __init__(self, axes: LabelAxes) -> None:
        self._axes = axes
        self.scanned = 0  # total number of rows
        self._used = 0
        self._places: dict[Owner, RowPlaces] = {}
        self._low, self._high = axes.whole(8)
        self._owners = np.zeros(8, np.int64)
        axes.follow(self._relabel, lambda: self._resize(len(self._owners)))

    def add(self, owner: Owner, rows: TileRows) -> None:
        """Store the rows of an owner."""
        places = [self._place() for _ in rows[0]]
        self._low[places], self._high[places] = rows
        self._owners[places] = owner
        self._places[owner] = np.array(places, np.int64)

    def discard(self, owner: Owner) -> None:
        """Remove the rows of an owner. Cost: O(its rows)."""
        for place in sorted(self._places.pop(owner).tolist(), reverse=True):
            self._used -= 1
            last, moved = self._used, int(self._owners[self._used])
            if place != last:  # the last row moves to the free position
                self._low[place], self._high[place], self._owners[place] = self._low[last], self._high[last], moved
                places = self._places[Owner(moved)]
                places[places == last] = place

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._places

    def of(self, owner: Owner) -> TileRows:
        """The rows of an owner."""
        places = self._places[owner]
        return self._low[places], self._high[places]

    def meeting(self, low: Labels, high: Labels) -> tuple[NDArray[np.int64], Labels, Labels]:
        """The owners of the rows that meet the box, and the intersections. Cost: O(rows)."""
        out = np.empty(self._used, np.int64)
        self.scanned += self._used
        found = out[: kernel.touching(self._low, self._high, self._used, low, high, out)]
        return self._owners[found], np.maximum(self._low[found], low), np.minimum(self._high[found], high)

    def surrounding(self, low: Labels, high: Labels) -> NDArray[np.int64]:
        """The owners of the rows that contain the whole box, in order. Cost: O(rows)."""
        out = np.empty(self._used, np.int64)
        self.scanned += self._used
        found = out[: kernel.surrounding(self._low, self._high, self._used, low, high, out)]
        owners = self._owners[found]
        owners.sort()
        return owners

    def holds(self, low: Labels, high: Labels) -> bool:
        """Whether a row contains the whole box. Cost: O(rows)."""
        self.scanned += self._used
        return bool(kernel.around(self._low, self._high, self._used, low, high) >= 0)

    def _place(self) -> int:
        if self._used == len(self._owners):
            self._resize(2 * self._used)
        self._used += 1
        return self._used - 1

    def _relabel(self, axis: int, old: Labels, new: Labels) -> None:
        for side in (self._low, self._high):
            relabel(side[: self._used, axis], old, new)

    def _resize(self, size: int) -> None:
        low, high, owners = self._low, self._high, self._owners
        self._low, self._high = self._axes.whole(size)
        self._low[: len(owners), : low.shape[1]], self._high[: len(owners), : high.shape[1]] = low, high
        self._owners = np.zeros(size, np.int64)
        self._owners[: len(owners)] = owners
