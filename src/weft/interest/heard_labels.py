"""The labels that a neighbour wants, to look events up in. Laws: an event that it wants is found; with exact labels
nothing else is, with a filter a little more.

A filter grows by itself, from the exact labels, which its owner keeps: what is told does not depend on it, so no two
ends must switch together. The same labels make it lose the counters that are full for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.index.base import AnyEvent
from weft.interest.label_counts import LabelCounts
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.space.dimension import Ints
from weft.space.label_space import LabelSpace


class HeardLabels:
    """Labels by exact counts or, with a shape, by a counting filter that grows past a rate of false positives."""

    def __init__(self, space: LabelSpace, shape: FilterShape | None = None, rate: float = 1.0) -> None:
        self.space = space
        self._rate = rate
        self.held: LabelCounts | CountingFilter = LabelCounts() if shape is None else CountingFilter(shape)
        self._levels: Counter[int] = Counter()
        self.levels: Ints = np.zeros(0, np.int64)  # those in use, ascending

    def change(self, drop: Ints, add: Ints) -> None:
        """Take labels out and in. Cost: O(1) a label."""
        self.held.remove(drop)
        self.held.add(add)
        for labels, sign in ((drop, -1), (add, 1)):
            for level, count in zip(*np.unique(self.space.level_of(labels), return_counts=True), strict=True):
                self._levels[int(level)] += sign * int(count)
        self._levels = +self._levels
        self.levels = np.array(sorted(self._levels), np.int64)

    @property
    def crowded(self) -> bool:
        """Whether a filter has more labels than its size is good for."""
        held = self.held
        return isinstance(held, CountingFilter) and held.shape.rate(len(held)) > self._rate

    def renew(self, labels: Ints) -> None:
        """Make a filter anew from all its labels, as large as they need. Cost: O(labels)."""
        if isinstance(self.held, CountingFilter):
            shape = self.held.shape
            while shape.rate(len(labels)) > self._rate:
                shape = shape.doubled()
            self.held = CountingFilter.of(shape, [labels])

    @property
    def saturated(self) -> int:
        """How many counters are full for ever; exact counts have none."""
        return self.held.saturated if isinstance(self.held, CountingFilter) else 0

    def matches(self, event: AnyEvent) -> bool:
        """Whether the neighbour wants an event. Cost: a look-up for each level in use."""
        return len(self.levels) > 0 and bool(self.held.contains(self.space.of_event(event, self.levels)).any())

    def match_batch(self, events: Sequence[AnyEvent]) -> NDArray[np.bool_]:
        """Whether it wants each event."""
        return self.match_labels(self.space.of_events(events, self.levels))

    def match_labels(self, labels: Ints) -> NDArray[np.bool_]:
        """Whether it wants each row of labels, a column for each level in use."""
        return np.asarray(self.held.contains(labels).reshape(labels.shape).any(axis=1))

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless just these labels are held."""
        if isinstance(self.held, LabelCounts):
            self.held.check()
            assert np.array_equal(self.held.labels(), np.unique(labels)), "other labels than were heard"
        else:
            assert self.held.contains(labels).all(), "a label that was heard is not found"
            assert len(self.held) == len(labels), "labels are miscounted"
        assert np.array_equal(self.levels, self.space.levels(labels)), "other levels than are in use"
