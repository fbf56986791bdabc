"""The active subscriptions of a negative space, and the rows of their boxes.

The boxes of subscriptions as rows of labels. A search finds exactly the rows that meet a box, or that contain it.

Rows follow the labels of their axes, which may be spread again. Axes may be added.

Active subscriptions, and which of them may cover another one by themselves. Every active subscription that `covers`
another is among its candidates, or contains each of its rows.

A subscription cuts out of the negative space the boxes that rows can express, and it is found by a hull around all of
it. A filter with residuals or patterns cuts nothing, but its hull may be covered, and `covers` may prove what rows
cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.routing.negative.kernels import label_rows as kernel
from weft.routing.negative.space import FilterProducts, LabelAxes, Labels, SharedFilters, TileRows, relabel
from weft.routing.negative.tiles import Owner

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


_STEPS = 100  # steps that count as one comparison more


@dataclass(slots=True)
class ActiveSubscription:
    """A subscription, and the products of intervals that are around it or parts of it."""

    owner: Owner
    form: NormalForm
    products: FilterProducts

    @property
    def whole(self) -> bool:
        """The products are exactly the subscription, so it cuts out all of itself."""
        return self.products.whole

    def hull(self, axes: LabelAxes) -> TileRows:
        """The rows around the subscription."""
        return axes.rows(self.products.around)

    def cuts(self, axes: LabelAxes) -> TileRows:
        """The rows that it cuts out."""
        low, high = axes.rows(self.products.around)
        return low[: self.products.exact], high[: self.products.exact]


@dataclass(slots=True)
class Comparison:
    """The active subscriptions that one still has to be compared with, and all that it was ever to be compared with."""

    left: list[int]
    latest: int  # number of subscriptions that had ever been active
    seen: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = set(self.left)


class Coverers:
    """The active subscriptions of one space."""

    def __init__(self, axes: LabelAxes, shared: SharedFilters) -> None:
        self.comparisons = 0  # total
        self._shared = shared
        self._axes = axes
        self._latest = 0  # number of subscriptions that were ever active
        self._active: dict[int, ActiveSubscription] = {}
        self._rows, self._hulls = OwnedRows(axes), OwnedRows(axes)
        self._several: set[int] = set()  # those with several rows: together, rows may cover more than each alone
        self._odd: set[int] = set()  # those that are more than their rows

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._active

    def add(self, made: ActiveSubscription) -> None:
        """Store a subscription that is now active."""
        self._latest += 1
        self._active[made.owner] = made
        self._rows.add(made.owner, made.cuts(self._axes))
        low, high = made.hull(self._axes)
        self._hulls.add(made.owner, (low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True)))
        if not made.whole:
            self._odd.add(made.owner)
        if not made.whole or made.products.exact > 1:
            self._several.add(made.owner)

    def discard(self, owner: Owner) -> None:
        """Remove a subscription."""
        del self._active[owner]
        self._rows.discard(owner)
        self._hulls.discard(owner)
        self._odd.discard(owner)
        self._several.discard(owner)

    @property
    def scanned(self) -> int:
        """The total number of rows examined."""
        return self._rows.scanned + self._hulls.scanned

    # -- by rows ----------------------------------------------------------------------------------

    def cuts(self, owner: Owner) -> TileRows:
        """The rows that an active subscription cuts out."""
        return self._rows.of(owner)

    def meeting(self, low: Labels, high: Labels) -> Iterator[tuple[Owner, Labels, Labels]]:
        """The owners of the cuts that meet a row, and the intersections. Cost: O(rows)."""
        owners, lows, highs = self._rows.meeting(low, high)
        return zip(map(Owner, owners.tolist()), lows, highs, strict=True)

    def hold(self, lows: Labels, highs: Labels) -> bool:
        """Whether each row lies in a single cut. Cost: O(rows) each."""
        return all(map(self._rows.holds, lows, highs))

    # -- by comparing -----------------------------------------------------------------------------

    def comparison(self, made: ActiveSubscription, *, odd: bool = False) -> Comparison:
        """A subscription with the candidates that may cover it although they do not contain its rows; with `odd`, only
        candidates that are more than their cuts. Cost: O(active).
        """
        return Comparison(self._candidates(made, self._odd if odd else self._several), self._latest)

    def _candidates(self, made: ActiveSubscription, among: set[int]) -> list[int]:
        """The candidates whose hull contains everything that the subscription certainly has, in order."""
        if made.whole and not among:
            return []
        lows, highs = made.hull(self._axes)
        low, high = lows.min(axis=0), highs.max(axis=0)
        patterns = {name for box in made.form.boxes for name, values in box.sets.items() if values.strings.terms}
        for axis, name in enumerate(self._axes):
            if name in patterns:  # a pattern may match much less than its hull, so nothing need contain it
                high[axis], low[axis] = self._axes.ends(axis)
        owners: list[int] = self._hulls.surrounding(low, high).tolist()
        return [owner for owner in owners if owner in among] if made.whole else owners

    def compare(self, made: ActiveSubscription, comparison: Comparison, most: int, *, odd: bool = False) -> bool | None:
        """Whether one of them covers the subscription; None if `most` comparisons do not decide, so call it again."""
        while True:
            while comparison.left:
                if most <= 0:
                    return None
                other = self._active.get(comparison.left.pop())
                if other is not None:
                    covered, steps = self._shared.covers(other.form, made.form)
                    counted = 1 + steps // _STEPS
                    most -= counted
                    self.comparisons += counted
                    if covered:
                        return True
            if comparison.latest == self._latest:
                return False
            since = self.comparison(made, odd=odd)
            comparison.left = [owner for owner in since.left if owner not in comparison.seen]
            comparison.seen.update(comparison.left)
            comparison.latest = since.latest

    def check(self, made: ActiveSubscription) -> None:
        """Raise AssertionError if an active subscription is not stored correctly."""
        for mine, theirs in zip(self._rows.of(made.owner), made.cuts(self._axes), strict=True):
            assert (mine == theirs).all(), "the rows follow the labels"
        assert self._active[made.owner] is made
        assert (made.owner in self._odd) is not made.whole
