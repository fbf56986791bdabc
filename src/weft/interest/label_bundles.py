"""The labels told to one neighbour, in bundles: one item for many labels. Each label is in exactly one bundle.

A bundle that loses a label is sent again without it, so bundles are small. New labels come in new bundles, and `renew`
combines many into few when there is time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from weft.interest.label_set import LabelSet
from weft.model.change import Change

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
