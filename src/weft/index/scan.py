"""The oracle: every filter is evaluated. It is `meaning`, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.index.base import Ids
from weft.index.plain_index import PlainIndex
from weft.language.ast import Filter, attributes
from weft.language.meaning import evaluate


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

    def names(self) -> set[str]:
        """The attributes that any filter looks at."""
        return {name for wanted in self.held.values() for name in attributes(wanted)}

    def find(self, values: Mapping[str, Any]) -> Ids:
        """The subscriptions that an event with these attributes matches. Cost: O(n)."""
        return np.array([sub for sub, wanted in self.held.items() if evaluate(wanted, values) is True], np.int64)
