"""Exact counts of the subscriptions that want each label. A label is new if its count was 0 before, and gone if it is 0
after. A failed change changes nothing.

The paper lets a counting Bloom filter decide what is forwarded and withdrawn. A label that was held back because of a
collision is then lost when the other label is removed (errata, DLS 3). Here exact counts decide, with one table per
neighbour that excludes what came from it (errata, DLS 5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import LabelError
from weft.kernels import label_counts as kernel
from weft.kernels.arrays import Ints
from weft.space.labels import as_labels


class LabelCounts:
    """Reference counts of labels, initially in `slots` slots.

    >>> wanted = LabelCounts()
    >>> wanted.add([3, 5]).tolist(), wanted.add([5, 7]).tolist(), wanted.remove([3, 5]).tolist()
    ([3, 5], [7], [3])
    """

    def __init__(self, *, slots: int = 16) -> None:
        if slots < 2 or slots & (slots - 1):
            raise LabelError(f"the number of slots is {slots}; give a power of two")
        self._least = slots
        self._head = np.zeros(1, np.int64)
        self._keys: Ints = np.full(slots, kernel.EMPTY, np.int64)
        self._counts: NDArray[np.int32] = np.zeros(slots, np.int32)

    # -- changes -----------------------------------------------------------------------------------

    def add(self, labels: ArrayLike) -> Ints:
        """Add labels; returns those that were not present before, in their order. Cost: O(1) per label."""
        some = as_labels(labels)
        new = np.empty(some.size, np.int64)
        done, found = 0, 0
        while done < some.size:
            done, found = kernel.add(self._keys, self._counts, self._head, some, done, new, found)
            if done < some.size:
                self._resize(2 * self._keys.size)
        return new[:found]

    def remove(self, labels: ArrayLike) -> Ints:
        """Remove labels, all or none; returns those that are no longer present. Cost: O(1) per label.

        Raises LabelError if a label is not present: only what was added can be removed (errata, DLS 2).
        """
        some = as_labels(labels)
        gone = np.empty(some.size, np.int64)
        done, found = kernel.remove(self._keys, self._counts, self._head, some, gone)
        if done < some.size:
            self.add(some[:done])
            raise LabelError(f"label {some[done]} is not present; remove only what was added, and only once")
        if self._keys.size > self._least and 8 * len(self) < self._keys.size:
            self._resize(max(self._least, self._keys.size // 4))
        return gone[:found]

    def change(self, drop: ArrayLike, add: ArrayLike) -> tuple[Ints, Ints]:
        """Remove and add as one change, all or none; returns the labels removed and added in total, ascending."""
        lost = self.remove(drop)
        gained = self.add(add)
        return np.setdiff1d(lost, gained), np.setdiff1d(gained, lost)

    def _resize(self, slots: int) -> None:
        keys, counts = np.full(slots, kernel.EMPTY, np.int64), np.zeros(slots, np.int32)
        kernel.moved(self._keys, self._counts, keys, counts)
        self._keys, self._counts = keys, counts

    # -- queries -----------------------------------------------------------------------------------

    def contains(self, labels: ArrayLike) -> NDArray[np.bool_]:
        """Whether each label is wanted. Cost: one look-up each."""
        return self.counts(labels) > 0

    def counts(self, labels: ArrayLike) -> NDArray[np.int32]:
        """How many subscriptions want each label."""
        some = as_labels(labels)
        out = np.zeros(some.size, np.int32)
        kernel.held(self._keys, self._counts, some, out)
        return out

    def labels(self) -> Ints:
        """All labels that are wanted, ascending. Cost: O(n log n)."""
        return np.sort(self._keys[self._keys != kernel.EMPTY])

    def __len__(self) -> int:
        """The number of different labels."""
        return int(self._head[0])

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        return self._keys.nbytes + self._counts.nbytes

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        taken = self._keys != kernel.EMPTY
        assert int(taken.sum()) == len(self), "labels are miscounted"
        assert 2 * len(self) <= self._keys.size, "too few slots"
        assert ((self._counts > 0) == taken).all(), "a label that nobody wants, or a count without a label"
        for at in taken.nonzero()[0].tolist():
            assert kernel.find(self._keys, self._keys[at]) == at, "a label cannot be found where it is"
