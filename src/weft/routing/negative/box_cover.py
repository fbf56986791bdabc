"""The cover of the active subscriptions, together as tiles and each by itself, and the passive subscriptions. `tiled`
and `compare` are True only for what the active ones cover. A filter that cannot be subtracted subtracts nothing.

This module determines what is covered. `negative_space` decides which subscriptions become active, and when.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.algebra.box import Box, NormalForm
from weft.errors import OptionError
from weft.routing.negative.coverers import ActiveSubscription, Comparison, Coverers, OwnedRows
from weft.routing.negative.kernels.tiles import FREE, NO_LIMIT
from weft.routing.negative.space import SharedFilters, TileRows
from weft.routing.negative.tiles import Owner, SplitChoice, Tiles

_NOBODY = Owner(FREE)
_FEW = 8  # rows of a removed subscription, each of which is searched for separately
_TOGETHER = 1024  # passive subscriptions that are compared together
_MOST_LOOKED, _MOST_SPLIT = 65_536, 256  # nodes and new tiles, before the next box of a union is left out
_NODES, _ROWS, _COMPARISONS = 2048, 8192, 8  # how many of them cost as much as one subscription


@dataclass(frozen=True, slots=True)
class Limit:
    """How many additional negative boxes a subscription may create (section 4).

    With `dynamic`, it may also create those that earlier subscriptions did not use: zeta(i) = k i - m(i - 1).
    """

    k: int
    dynamic: bool = False
    choice: SplitChoice = SplitChoice.RATIO

    def __post_init__(self) -> None:
        if self.k < 0:
            raise OptionError(f"the limit is {self.k} boxes; give 0 or more")

    def most(self, active: int, boxes: int) -> int:
        """The limit of a subscription that becomes active after `active` others, when there are `boxes` boxes."""
        return max(0, self.k * (active + 1) - boxes) if self.dynamic else self.k


class BoxCover:
    """The tiles, the active and the passive subscriptions of one space."""

    def __init__(self, tiles: Tiles, limit: Limit | None, shared: SharedFilters) -> None:
        self.tiles, self.limit, self._shared = tiles, limit, shared
        self.axes = tiles.axes
        self.active, self.passive = Coverers(self.axes, shared), OwnedRows(self.axes)
        self.exact = True  # as far as rows can express it, the free tiles are exactly what no active one covers

    @property
    def work(self) -> int:
        """The total work so far, in units of subscriptions."""
        scanned = self.active.scanned + self.passive.scanned
        return self.tiles.looked // _NODES + scanned // _ROWS + self.active.comparisons // _COMPARISONS

    # -- changes ----------------------------------------------------------------------------------

    def make(self, form: NormalForm, owner: Owner = _NOBODY, *, widen: bool = True) -> ActiveSubscription:
        """A normal form as a subscription of this space."""
        return ActiveSubscription(owner, form, self._shared.products(form, self.axes, widen=widen))

    def activate(self, made: ActiveSubscription) -> None:
        """Subtract a subscription from the negative space, as far as the limit and the bound allow."""
        choice, left = SplitChoice.RATIO, NO_LIMIT
        if self.limit is not None:
            choice, left = self.limit.choice, self.limit.most(len(self.active), self.tiles.free)
        looked, tiles = self.tiles.looked + _MOST_LOOKED, len(self.tiles) + _MOST_SPLIT
        for low, high in zip(*made.cuts(self.axes), strict=True):
            if self.tiles.looked > looked or len(self.tiles) > tiles:  # the rest of a large union stays negative
                self.exact = False
                break
            took = self.tiles.take(low, high, made.owner, left, choice)
            left = left if self.limit is None else left - took.made
            self.exact = self.exact and took.whole
        self.active.add(made)

    def subsume(self, made: ActiveSubscription) -> None:
        """Store a subscription that is now passive."""
        self.passive.add(made.owner, made.hull(self.axes))

    def release(self, made: ActiveSubscription) -> None:
        """Remove an active subscription: what it took becomes negative."""
        self.active.discard(made.owner)
        self.tiles.release(made.owner)

    def retake(self, gone: ActiveSubscription) -> None:
        """Figure 7, lines 6 to 20: assign to other active subscriptions what they cover of the removed one.

        With a limit, it stays negative (figure 9). Beyond the bound, it may.
        """
        for low, high in zip(*gone.cuts(self.axes), strict=True):
            for owner, start, end in self.active.meeting(low, high) if self.exact else ():
                self.exact = self.exact and self.limit is None and self.tiles.take(start, end, owner).whole

    def met(self, gone: ActiveSubscription) -> list[Owner]:
        """The passive subscriptions that may no longer be covered after one was removed."""
        lows, highs = gone.hull(self.axes)
        if len(lows) > _FEW:  # one search around all of them
            lows, highs = lows.min(axis=0, keepdims=True), highs.max(axis=0, keepdims=True)
        found: list[Owner] = []
        for low, high in zip(lows, highs, strict=True):
            owners, starts, ends = self.passive.meeting(low, high)
            free = self.tiles.are_free(starts[:_TOGETHER], ends[:_TOGETHER])
            found += owners[:_TOGETHER][free].tolist() + owners[_TOGETHER:].tolist()
        return found

    # -- questions --------------------------------------------------------------------------------

    def tiled(self, made: ActiveSubscription) -> bool:
        """Whether no negative box meets a subscription, or an active one contains each row that is met. The latter is
        pairwise covering, which the paper uses in addition (section 5) and which finds more where the negative space is
        too large.
        """
        lows, highs = made.hull(self.axes)
        free = self.tiles.are_free(lows, highs)
        return not free.any() or (not self.exact and self.active.hold(lows[free], highs[free]))

    def comparison(self, made: ActiveSubscription) -> Comparison:
        """A subscription that is not `tiled`, with the active ones that may cover it nevertheless."""
        return self.active.comparison(made, odd=self.exact)

    def compare(self, made: ActiveSubscription, comparison: Comparison, budget: int) -> bool | None:
        """Whether an active subscription covers this one by itself; None if the budget ends before that is known."""
        return self.active.compare(made, comparison, budget * _COMPARISONS, odd=self.exact)

    def redundant(self, made: ActiveSubscription) -> bool:
        """Whether an active subscription is covered by another active one by itself."""
        self.active.discard(made.owner)
        covered = self.active.hold(*made.hull(self.axes))
        covered = covered or self.active.compare(made, self.active.comparison(made), sys.maxsize) is True
        self.active.add(made)
        return covered

    def boxes(self, owner: int) -> list[Box]:
        """The tiles of an owner, or the free tiles for FREE. Cost: O(tiles)."""
        low, high, owners = self.tiles.tiles()
        return [self.axes.box(low[at], high[at]) for at in np.flatnonzero(owners == owner).tolist()]

    def size(self, form: NormalForm) -> float:
        """The volume of a form's hull, measured by labels."""
        low, high = self.make(form).hull(self.axes)
        whole_low, whole_high = self.axes.whole(1)
        shares = (high.astype(float) - low) / (whole_high.astype(float) - whole_low)
        return float(shares.prod(axis=1).sum())

    def check(self, is_active: Callable[[int], bool]) -> None:
        """Raise AssertionError if an invariant of the tiles is broken. Cost: O(boxes^2)."""
        self.tiles.check(self.active.cuts)
        owners = set(self.tiles.tiles()[2].tolist()) - {FREE}
        assert all(map(is_active, owners)), "only active ones cover anything"

    def check_active(self, made: ActiveSubscription) -> None:
        """Raise AssertionError if an active subscription is not subtracted as it should be."""
        self.active.check(made)
        rows: TileRows = self.active.cuts(made.owner)
        assert not (self.exact and self.tiles.are_free(*rows).any()), "exact: what is forwarded is not negative"
