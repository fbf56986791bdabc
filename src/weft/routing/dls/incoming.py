"""The labels that all links told, for looking up events. An event that a link wants has one of its labels.

The labels of an event are computed once, at all levels that any link uses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.index.base import AnyEvent
from weft.interest.heard_labels import HeardLabels
from weft.kernels.arrays import Ints
from weft.routing.table import Link, Places, Routes
from weft.space.label_sides import LabelSides


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
