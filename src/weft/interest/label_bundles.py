"""The labels told to one neighbour, in bundles: one item for many labels. Law: each label is in just one bundle.

A bundle that loses a label is told anew without it, so bundles are small; new labels come in bundles of their own, and
`renew` makes few of many when somebody has time.
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
        """Take labels out and in: the bundles that went and that came. Cost: O(labels x most)."""
        gone = list(drop)
        touched = dict.fromkeys(self._where[label] for label in gone)
        lost = set(gone)
        old = [self._bundles.pop(number) for number in touched]
        left = [label for bundle in old for label in bundle.labels if label not in lost]
        for label in gone:
            del self._where[label]
        return Change(old, self._pack([*left, *add]))

    def renew(self) -> BundleChange:
        """The same labels in as few bundles as there can be."""
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
        """Whether half of the bundles could be spared."""
        return len(self._bundles) > 2 * -(-len(self._where) // self._most)

    def bundles(self) -> list[LabelSet]:
        """All bundles."""
        return [*self._bundles.values()]

    def __iter__(self) -> Iterator[int]:
        """The labels."""
        return iter(self._where)

    def __len__(self) -> int:
        """How many bundles there are."""
        return len(self._bundles)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        labels = [label for bundle in self._bundles.values() for label in bundle.labels]
        assert len(labels) == len(self._where), "a label is in two bundles"
        for number, bundle in self._bundles.items():
            assert 0 < len(bundle.labels) <= self._most, "an empty bundle, or one too large"
            assert all(self._where[label] == number for label in bundle.labels), "a label is elsewhere"
