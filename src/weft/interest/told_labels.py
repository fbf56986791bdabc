"""The labels that one neighbour is told: those that all others want. Laws: each label is in just one bundle; a label is
told when its count leaves 0, and withdrawn when it comes back to it.

Where the neighbour looks events up in a filter, there is its twin here, which has taken in all that was told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.interest.label_bundles import LabelBundles, Numbered
from weft.interest.label_counts import LabelCounts
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import Switch
from weft.interest.label_twin import TwinFilter
from weft.space.dimension import Ints


class Change(NamedTuple):
    """One update: the bundles that go and come, and the switch of the filter that goes with them."""

    drop: list[int]
    add: Numbered
    notes: tuple[Switch, ...] = ()


class ToldLabels:
    """Counts, bundles of at most `bundle` labels and, with a shape, the filter that the neighbour has.

    >>> told = ToldLabels(2)
    >>> told.change(np.array([], int), np.array([3, 5, 8, 8])).add
    {1: LabelSet(labels=(3, 5)), 2: LabelSet(labels=(8,))}
    >>> told.change(np.array([8]), np.array([], int)).drop, told.change(np.array([8]), np.array([], int)).drop
    ([], [2])
    """

    def __init__(self, bundle: int, shape: FilterShape | None = None, rate: float = 1.0) -> None:
        self.needs = LabelCounts()
        self.bundles = LabelBundles(bundle)
        self.twin = None if shape is None else TwinFilter(shape, rate)

    def change(self, drop: Ints, add: Ints) -> Change:
        """Others want some labels no more, and others now; the filter here changes as the one there will."""
        lost, gained = self.needs.change(drop, add)
        bundles = self.bundles.revise(lost.tolist(), gained.tolist())
        if self.twin is None:
            return Change(*bundles)
        switch = self.twin.due(len(self.needs))
        if switch is None:
            # The neighbour also takes out and in what moved to another bundle: the counters end up the same.
            self.twin.change(lost, gained)
            return Change(*bundles)
        self.twin.switch(switch, self.labels())
        return Change(*bundles, (switch,))

    def tidied(self) -> Change:
        """Few bundles in the place of many small ones, and a filter rid of counters that are full for ever."""
        bundles = self.bundles.renew() if self.bundles.scattered else ([], {})
        switch = None if self.twin is None else self.twin.renewal(self.labels())
        if self.twin is None or switch is None:
            return Change(*bundles)
        self.twin.switch(switch, self.labels())
        return Change(*bundles, (switch,))

    def afresh(self) -> tuple[Switch, ...]:
        """What must go with a fresh update; the filter is made anew, as the other end will make it."""
        if self.twin is None:
            return ()
        notes = self.twin.state
        self.twin.switch(notes[0] if notes else None, self.labels())
        return notes

    def labels(self) -> Ints:
        """All that is told, in no order."""
        return np.array([*self.bundles], np.int64)

    @property
    def nbytes(self) -> int:
        """The memory of counts and filter."""
        return self.needs.nbytes + (0 if self.twin is None else self.twin.held.nbytes)

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless it is these labels that others want, each as often as it is here."""
        wanted, counts = np.unique(labels, return_counts=True)
        self.needs.check()
        assert np.array_equal(self.needs.labels(), wanted), "others need something else"
        assert np.array_equal(self.needs.counts(wanted), counts), "others need something more or less often"
        self.bundles.check()
        assert sorted(self.bundles) == wanted.tolist(), "other labels are told than are needed"
        if self.twin is not None:
            self.twin.check(wanted)
