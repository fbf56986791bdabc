"""The labels that one link is told, counted and in bundles.

The labels told to one neighbour, in bundles: one item for many labels. Each label is in exactly one bundle.

A bundle that loses a label is sent again without it, so bundles are small. New labels come in new bundles, and `renew`
combines many into few when there is time.

The labels that one neighbour is told: those that all others want. Each label is in exactly one bundle. A label is
told when its count leaves 0, and withdrawn when it returns to 0.

If the neighbour looks events up in a filter, its twin is stored here, with everything that was told. Several changes
can become one update: `notes` closes it, and returns what must accompany it.

The labels that one link is told: those of all others' filters, by exact counts (errata, DLS 3 and 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import count

import numpy as np

from weft.kernels.arrays import Ints
from weft.model.change import Change
from weft.routing.dls.items import LabelSet, Note, Switch
from weft.routing.dls.structure import FilterShape, LabelCounts, TwinFilter

BundleChange = Change[list[LabelSet], list[LabelSet]]


class LabelBundles:
    """Bundles of at most `most` labels.

    >>> bundles = LabelBundles(most=2)
    >>> bundles.revise([], [3, 4, 7]).add
    [LabelSet(labels=(3, 4)), LabelSet(labels=(7,))]
    >>> bundles.revise([3], [])
    Change(drop=[LabelSet(labels=(3, 4))], add=[LabelSet(labels=(4,))])
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._next = count(1)
        self._bundles: dict[int, LabelSet] = {}
        self._where: dict[int, int] = {}

    def revise(self, drop: Iterable[int], add: Iterable[int]) -> BundleChange:
        """Remove and add labels; returns the removed and the new bundles. Cost: O(labels x most)."""
        gone = list(drop)
        touched = dict.fromkeys(self._where[label] for label in gone)
        lost = set(gone)
        old = [self._bundles.pop(number) for number in touched]
        left = [label for bundle in old for label in bundle.labels if label not in lost]
        for label in gone:
            del self._where[label]
        return Change(old, self._pack([*left, *add]))

    def renew(self) -> BundleChange:
        """Move the same labels into as few bundles as possible."""
        old, labels = [*self._bundles.values()], [*self._where]
        self._bundles.clear()
        return Change(old, self._pack(labels))

    def _pack(self, labels: list[int]) -> list[LabelSet]:
        labels.sort()
        new = {
            next(self._next): LabelSet(tuple(labels[start : start + self._most]))
            for start in range(0, len(labels), self._most)
        }
        self._bundles |= new
        self._where |= {label: number for number, bundle in new.items() for label in bundle.labels}
        return [*new.values()]

    @property
    def scattered(self) -> bool:
        """Whether half of the bundles could be saved."""
        return len(self._bundles) > 2 * -(-len(self._where) // self._most)

    def bundles(self) -> list[LabelSet]:
        """All bundles."""
        return [*self._bundles.values()]

    def __iter__(self) -> Iterator[int]:
        """The labels."""
        return iter(self._where)

    def __len__(self) -> int:
        """The number of bundles."""
        return len(self._bundles)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        labels = [label for bundle in self._bundles.values() for label in bundle.labels]
        assert len(labels) == len(self._where), "a label is in two bundles"
        for number, bundle in self._bundles.items():
            assert 0 < len(bundle.labels) <= self._most, "an empty bundle, or one too large"
            assert all(self._where[label] == number for label in bundle.labels), "a label is elsewhere"


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


_NONE: Ints = np.zeros(0, np.int64)


class LabelsTold:
    """The labels told to a link, with the interface that a table of cells expects. Notes come when an update
    is closed.
    """

    def __init__(self, bundle: int, shape: FilterShape | None, rate: float) -> None:
        self.labels = ToldLabels(bundle, shape, rate)

    def change(
        self, drop: Iterable[Ints], add: Iterable[Ints]
    ) -> tuple[Change[Collection[LabelSet], Collection[LabelSet]], tuple[Note, ...]]:
        """Remove and add labels; returns the bundles removed and added."""
        return _told(self.labels.change(joined(drop), joined(add)))

    def improve(self) -> tuple[Change[Collection[LabelSet], Collection[LabelSet]], tuple[Note, ...]]:
        """Combine small bundles if that saves half of them."""
        return _told(self.labels.improve())

    def __len__(self) -> int:
        return len(self.labels.bundles)


def _told(change: BundleChange) -> tuple[Change[Collection[LabelSet], Collection[LabelSet]], tuple[Note, ...]]:
    return Change(change.drop, change.add), ()


def joined(several: Iterable[Ints]) -> Ints:
    """The labels of several arrays as one."""
    return np.concatenate([_NONE, *several])
