"""The labels that links told, for looking up events.

The labels that a neighbour wants, for looking up events. Every event that it wants is found. With exact labels
nothing else is, with a filter slightly more. An event is looked up at a bounded number of levels.

The neighbour chooses the size of the filter and switches it with the update that announces it (`label_twin`). The owner
of this object keeps the exact labels, from which a filter is rebuilt.

The labels that all links told, for looking up events. An event that a link wants has one of its labels.

The labels of an event are computed once, at all levels that any link uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.index.base import AnyEvent
from weft.kernels.arrays import Ints
from weft.routing.dls.items import Switch
from weft.routing.dls.label_sides import LabelSides
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts, TwinFilter
from weft.routing.table import Link, Places, Routes

MOST_LEVELS = 1_024  # at which an event is looked up for one neighbour


class HeardLabels:
    """Labels by exact counts or, with a shape, by a counting filter that the neighbour has as well.

    >>> from weft import Schema
    >>> space = LabelSpace.of(Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 9]}}}))
    >>> heard = HeardLabels(space, FilterShape(64))
    >>> heard.change(np.zeros(0, np.int64), space.labels("x > 7"))
    >>> heard.matches({"x": 9}), heard.matches({"x": 3}), heard.saturated
    (True, False, 0)
    """

    def __init__(self, space: LabelSpace | LabelSides, shape: FilterShape | None = None, rate: float = 1.0) -> None:
        self.space = space
        self.twin = None if shape is None else TwinFilter(shape, rate)
        self._exact = LabelCounts()
        self._levels: Counter[int] = Counter()
        self.levels: Ints = np.zeros(0, np.int64)  # levels in use, ascending; none if there are too many

    @property
    def held(self) -> LabelCounts | CountingFilter:
        """The structure in which events are looked up."""
        return self._exact if self.twin is None else self.twin.held

    def change(self, drop: Ints, add: Ints) -> None:
        """Remove and add labels. Cost: O(1) per label."""
        self.held.remove(drop)
        self.held.add(add)
        for labels, sign in ((drop, -1), (add, 1)):
            for level, count in zip(*np.unique(self.space.level_of(labels), return_counts=True), strict=True):
                self._levels[int(level)] += sign * int(count)
                if not self._levels[int(level)]:
                    del self._levels[int(level)]
        self.levels = np.array([] if self.everything else sorted(self._levels), np.int64)

    @property
    def everything(self) -> bool:
        """Whether every event counts as wanted, because looking up all levels would cost more."""
        return len(self._levels) > MOST_LEVELS

    def switch(self, switch: Switch | None, labels: Ints) -> None:
        """Rebuild the filter from all labels, including those of the update that carries the switch."""
        if self.twin is not None:
            self.twin.switch(switch, labels)

    @property
    def saturated(self) -> int:
        """The number of counters that are permanently full; exact counts have none."""
        return 0 if self.twin is None else self.twin.held.saturated

    def matches(self, event: AnyEvent) -> bool:
        """Whether the neighbour wants an event. Cost: one look-up per level in use."""
        if self.everything:
            return True
        return len(self.levels) > 0 and bool(self.held.contains(self.space.of_event(event, self.levels)).any())

    def match_batch(self, events: Sequence[AnyEvent]) -> NDArray[np.bool_]:
        """Whether the neighbour wants each event."""
        return self.match_labels(self.space.of_events(events, self.levels))

    def match_labels(self, labels: Ints) -> NDArray[np.bool_]:
        """Whether the neighbour wants each row of labels, with one column per level in use."""
        if self.everything:
            return np.ones(len(labels), np.bool_)
        return np.asarray(self.held.contains(labels).reshape(labels.shape).any(axis=1))

    def check(self, labels: Ints) -> None:
        """Raise AssertionError unless exactly these labels are held."""
        if self.twin is None:
            self._exact.check()
            assert np.array_equal(self._exact.labels(), np.unique(labels)), "other labels than were heard"
        else:
            self.twin.check(labels)
        levels = self.space.levels(labels)
        assert self.everything == (len(levels) > MOST_LEVELS)
        assert self.everything or np.array_equal(self.levels, levels), "other levels than are in use"


class LabelsHeard(dict[Link, HeardLabels]):
    """What each link told."""

    def wanting(self, event: AnyEvent, sides: LabelSides) -> set[Link]:
        """The links that want an event. Cost: O(1) per link and level in use."""
        levels = self._levels()
        labels = np.array(sides.of_event(event, levels), np.int64)[None]
        return {link for link, heard in self.items() if self._matches(heard, labels, levels)[0]}

    def wanting_batch(self, events: Sequence[AnyEvent], sides: LabelSides, places: Places | None) -> Routes:
        """The positions of the events that each link wants. Cost: below a microsecond per event, link and level."""
        levels = self._levels()
        labels = sides.of_events(events, levels) if places is None else sides.of_cells(places.keys, levels)
        found = {link: self._matches(heard, labels, levels).nonzero()[0] for link, heard in self.items()}
        return {link: at for link, at in found.items() if len(at)}

    def _levels(self) -> Ints:
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(heard.levels for heard in self.values())]))

    @staticmethod
    def _matches(heard: HeardLabels, labels: Ints, levels: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if not heard.levels.size and not heard.everything:
            return np.zeros(len(labels), np.bool_)
        return heard.match_labels(labels[:, np.searchsorted(levels, heard.levels)])
