"""The labels of an event's matches, each once: which connections want it, rather than which subscriptions. A label is
reported if and only if a subscription with this label matches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import SubscriptionError
from weft.index.base import Ids, Matches
from weft.kernels.groups import distinct_labels

_SPARSE, _SPARE = 4, 4096  # labels that a table may have room for: so many for each subscription, and some more


def labelled(found: Matches, by: Any) -> Matches:
    """The distinct labels of each event, in no order; subscription s has the label by[s]. Cost: O(matches + labels).

    >>> found = Matches.of([[0, 1, 2], [2]])
    >>> [labels.tolist() for labels in labelled(found, np.array([7, 7, 5]))]
    [[7, 5], [5]]
    """
    labels = np.asarray(by)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise SubscriptionError("labels must be an array of integers, one for each subscription")
    ids = found.ids
    if len(ids) and (ids.min() < 0 or ids.max() >= len(labels)):
        sub = int(ids.min()) if ids.min() < 0 else int(ids.max())
        raise SubscriptionError(f"subscription {sub} has no label: there are {len(labels)} labels, for 0 and up", sub)
    names: Ids | None = None
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
    if low < 0 or high >= _SPARSE * len(labels) + _SPARE:
        names, labels = np.unique(labels, return_inverse=True)
        high = len(names)
    met = np.full(high + 1, -1, np.int64)
    out, offsets = np.empty(len(ids), np.int64), np.zeros(len(found) + 1, np.int64)
    size = distinct_labels(ids, found.offsets, labels.astype(np.int64, copy=False), met, out, offsets)
    return Matches(offsets, out[:size] if names is None else names[out[:size]], found.errors)
