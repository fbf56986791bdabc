"""A counting filter at both ends of a link (DLS 4.4). Ends that processed the same updates are equal bit for bit.

The sender decides the size, because it knows the number of labels before the other end does. A new size is announced
with the update that needs it: a *switch*, which is numbered, and at which both ends rebuild their filter from all
labels told. Links are FIFO and updates are atomic, so an update never meets a filter of another size. A switch to the
same size frees a filter of permanently full counters.
"""

from __future__ import annotations

from weft.errors import LabelError
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.interest.label_set import Switch
from weft.kernels.arrays import Ints

MOST_COUNTERS = 1 << 28  # a filter never grows beyond this: a neighbour must not control how much memory we allocate
_SLACK = 4  # a filter shrinks only when it is this many times too large, so that it does not oscillate


class TwinFilter:
    """One end's filter, which begins with a base shape; a neighbour has its twin.

    >>> import numpy as np
    >>> here, there = (TwinFilter(FilterShape(16), 0.1) for _ in range(2))
    >>> labels = np.arange(20)
    >>> switch = here.due(len(labels))
    >>> switch
    Switch(number=1, counters=128)
    >>> here.switch(switch, labels), there.switch(switch, labels), here.held == there.held
    (None, None, True)
    """

    def __init__(self, base: FilterShape, rate: float) -> None:
        self.held = CountingFilter(base)
        self.number = 0
        self._base = base
        self._rate = rate

    # -- the sending end -----------------------------------------------------------------------------

    def due(self, labels: int) -> Switch | None:
        """The switch that an update must carry if there are this many labels after it, or None."""
        least, size = self._base.size, self.held.shape.size
        while least < MOST_COUNTERS and self._base.resized(least).rate(labels) > self._rate:
            least *= 2
        return Switch(self.number + 1, least) if size < least or size >= _SLACK * least else None

    def renewal(self, labels: Ints) -> Switch | None:
        """A switch that frees permanently full counters, or None if there are none. Cost: O(size), or
        O(labels) more.
        """
        full = self.held.saturated
        if full and CountingFilter.of(self.held.shape, [labels]).saturated < full:
            return Switch(self.number + 1, self.held.shape.size)
        return None

    @property
    def state(self) -> tuple[Switch, ...]:
        """What an end without any state must be told in addition to the labels."""
        return (Switch(self.number, self.held.shape.size),) if self.number else ()

    # -- both ends -----------------------------------------------------------------------------------

    def change(self, drop: Ints, add: Ints) -> None:
        """Apply an update without a switch. Cost: O(1) per label."""
        self.held.remove(drop)
        self.held.add(add)

    def admit(self, switch: Switch, *, fresh: bool) -> None:
        """Raise LabelError for an impossible switch: one out of turn, or to an invalid size."""
        if not (fresh or switch.number == self.number + 1):
            raise LabelError(
                f"switch {switch.number} of a filter cannot follow {self.number}; send every switch in order"
            )
        if not self._base.size <= switch.counters <= max(self._base.size, MOST_COUNTERS):
            raise LabelError(
                f"a filter of {self._base.size} counters cannot switch to {switch.counters}; "
                f"use {self._base.size} to {MOST_COUNTERS}"
            )
        self._base.resized(switch.counters)

    def switch(self, switch: Switch | None, labels: Ints) -> None:
        """Rebuild the filter from all labels as a switch demands; without one, in the size with which a link begins.
        Cost: O(labels).
        """
        self.number, size = (switch.number, switch.counters) if switch else (0, self._base.size)
        self.held = CountingFilter.of(self._base.resized(size), [labels])

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless exactly these labels are held."""
        assert self.held.contains(labels).all(), "a label that was told is not found"
        assert len(self.held) == len(labels), "labels are miscounted"
