"""A counting filter at both ends of a link (DLS 4.4). Law: ends that took in the same updates are equal bit for bit.

The teller decides how large it is, for it knows how many labels there are before the other end does. A filter of
another size is announced with the update that asks for it: a *switch*, which has a number, and at which both ends make
their filter anew from all labels told. Links are FIFO and updates atomic, so there is no moment at which an update
meets a filter of another size. A switch to the same size frees a filter of counters that are full for ever.
"""

from __future__ import annotations

from weft.errors import LabelError
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.interest.label_set import Switch
from weft.kernels.arrays import Ints

MOST_COUNTERS = 1 << 28  # past it a filter grows no more: a neighbour cannot make us take up any memory it likes
_SLACK = 4  # a filter is made smaller when it is so many times too large, so that it does not swing


class TwinFilter:
    """One end's filter, that begins with a base shape; a neighbour has its twin.

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

    # -- the teller's end ----------------------------------------------------------------------------

    def due(self, labels: int) -> Switch | None:
        """The switch that an update must carry after which there are so many labels, if any."""
        least, size = self._base.size, self.held.shape.size
        while least < MOST_COUNTERS and self._base.resized(least).rate(labels) > self._rate:
            least *= 2
        return Switch(self.number + 1, least) if size < least or size >= _SLACK * least else None

    def renewal(self, labels: Ints) -> Switch | None:
        """A switch that frees counters which are full for ever, if there are any. Cost: O(size), or O(labels) more."""
        full = self.held.saturated
        if full and CountingFilter.of(self.held.shape, [labels]).saturated < full:
            return Switch(self.number + 1, self.held.shape.size)
        return None

    @property
    def state(self) -> tuple[Switch, ...]:
        """What an end that knows nothing must be told besides the labels."""
        return (Switch(self.number, self.held.shape.size),) if self.number else ()

    # -- both ends -----------------------------------------------------------------------------------

    def change(self, drop: Ints, add: Ints) -> None:
        """An update without a switch. Cost: O(1) a label."""
        self.held.remove(drop)
        self.held.add(add)

    def admit(self, switch: Switch, *, fresh: bool) -> None:
        """Raise LabelError for a switch that cannot be: out of turn, or to a size that is none."""
        if not (fresh or switch.number == self.number + 1):
            raise LabelError(f"switch {switch.number} of a filter cannot follow {self.number}")
        if not self._base.size <= switch.counters <= max(self._base.size, MOST_COUNTERS):
            raise LabelError(f"a filter of {self._base.size} counters cannot come to have {switch.counters}")
        self._base.resized(switch.counters)

    def switch(self, switch: Switch | None, labels: Ints) -> None:
        """Make the filter anew, of all labels, as a switch says; without one, as a link begins. Cost: O(labels)."""
        self.number, size = (switch.number, switch.counters) if switch else (0, self._base.size)
        self.held = CountingFilter.of(self._base.resized(size), [labels])

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless just these labels are held."""
        assert self.held.contains(labels).all(), "a label that was told is not found"
        assert len(self.held) == len(labels), "labels are miscounted"
