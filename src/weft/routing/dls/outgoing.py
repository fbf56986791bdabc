"""The labels that one link is told: those of all others' filters, by exact counts (errata, DLS 3 and 5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from weft.interest.label_bundles import BundleChange
from weft.interest.label_filter import FilterShape
from weft.interest.label_set import LabelSet, Note
from weft.interest.told_labels import ToldLabels
from weft.kernels.arrays import Ints
from weft.model.change import Change

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
