"""The labels that one neighbour is told: those that all others want. Each label is in exactly one bundle. A label is
told when its count leaves 0, and withdrawn when it returns to 0.

If the neighbour looks events up in a filter, its twin is stored here, with everything that was told. Several changes
can become one update: `notes` closes it, and returns what must accompany it.
"""

from __future__ import annotations

import numpy as np

from weft.interest.label_bundles import BundleChange, LabelBundles
from weft.interest.label_counts import LabelCounts
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import Switch
from weft.interest.label_twin import TwinFilter
from weft.kernels.arrays import Ints
from weft.model.change import Change


class ToldLabels:
    """Counts, bundles of at most `bundle` labels and, with a shape, the filter that the neighbour has.

    >>> told = ToldLabels(2)
    >>> told.change(np.array([], int), np.array([3, 5, 8, 8])).add
    [LabelSet(labels=(3, 5)), LabelSet(labels=(8,))]
    >>> told.change(np.array([8]), np.array([], int)).drop, told.change(np.array([8]), np.array([], int)).drop
    ([], [LabelSet(labels=(8,))])
    """

    def __init__(self, bundle: int, shape: FilterShape | None = None, rate: float = 1.0) -> None:
        self.needs = LabelCounts()
        self.bundles = LabelBundles(bundle)
        self.twin = None if shape is None else TwinFilter(shape, rate)
        self._lost: set[int] = set()  # since the last update
        self._gained: set[int] = set()
        self.renewing = False  # whether the filter is rebuilt with the next update

    def change(self, drop: Ints, add: Ints) -> BundleChange:
        """Remove and add labels that others want; returns the removed and the new bundles."""
        lost, gained = (some.tolist() for some in self.needs.change(drop, add))
        if self.twin is not None:
            for label in lost:
                self._gained.discard(label) if label in self._gained else self._lost.add(label)
            for label in gained:
                self._lost.discard(label) if label in self._lost else self._gained.add(label)
        return self.bundles.revise(lost, gained)

    def improve(self) -> BundleChange:
        """Replace many small bundles with few, and rid the filter of permanently full counters."""
        self.renewing = self.twin is not None and self.twin.renewal(self.labels()) is not None
        return self.bundles.renew() if self.bundles.scattered else Change([], [])

    def notes(self, *, fresh: bool = False) -> tuple[Switch, ...]:
        """What must accompany an update of all changes since the last one. The twin becomes what the other end will be.

        With a fresh update, the other end rebuilds its filter, and so does this one.
        """
        if self.twin is None:
            return ()
        lost, gained = _array(self._lost), _array(self._gained)
        self._lost, self._gained = set(), set()
        switch = self.twin.due(len(self.needs))
        if switch is None and self.renewing:
            switch = self.twin.renewal(self.labels())
        self.renewing = False
        if fresh and switch is None:
            switch = next(iter(self.twin.state), None)
        if fresh or switch is not None:
            self.twin.switch(switch, self.labels())
        else:
            # The neighbour also removes and adds labels that moved to another bundle; the counters end up the same.
            self.twin.change(lost, gained)
        return () if switch is None else (switch,)

    def labels(self) -> Ints:
        """Everything that is told, in no order."""
        return np.array([*self.bundles], np.int64)

    @property
    def nbytes(self) -> int:
        """The memory of counts and filter."""
        return self.needs.nbytes + (0 if self.twin is None else self.twin.held.nbytes)

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless others want exactly these labels, each as often as it is given."""
        wanted, counts = np.unique(labels, return_counts=True)
        self.needs.check()
        assert np.array_equal(self.needs.labels(), wanted), "others need something else"
        assert np.array_equal(self.needs.counts(wanted), counts), "others need something more or less often"
        self.bundles.check()
        assert sorted(self.bundles) == wanted.tolist(), "other labels are told than are needed"
        if self.twin is not None:
            self.twin.check(wanted)


def _array(labels: set[int]) -> Ints:
    return np.array(sorted(labels), np.int64)
