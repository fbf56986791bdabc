"""The oracle: every filter is asked. Law: it is `meaning`, nothing else."""

from __future__ import annotations

import numpy as np

from weft.index.base import AnyEvent, Ids
from weft.index.events import conformed
from weft.index.plain_index import PlainIndex
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.model.event import attributes_of


class ScanIndex(PlainIndex[Filter]):
    """The index for tests, and for a handful of filters.

    >>> index = ScanIndex()
    >>> index.add(1, "x > 5")
    >>> index.match({"x": 7}).tolist()
    [1]
    """

    def hold(self, filter: Filter) -> Filter:
        """The filter itself."""
        return filter

    def match(self, event: AnyEvent) -> Ids:
        """The subscriptions that the event matches. Cost: O(n)."""
        values = attributes_of(event if self.schema is None else conformed(event, self.schema))
        return np.array([sub for sub, wanted in self.held.items() if matches(wanted, values)], np.int64)
