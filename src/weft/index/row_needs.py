"""The needs of special rows besides their anchors, as a kernel reads them (see `kernels/needs.py`). A row that is found
under its anchor matches if and only if these needs are met.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.index.axis import ANCHOR
from weft.index.rows import FilterRows
from weft.kernels.needs import RECORD


class RowNeeds(NamedTuple):
    """The records, and the needs that have no place in them."""

    records: NDArray[np.int32]
    others: NDArray[np.int32]

    @staticmethod
    def of(rows: FilterRows, special: NDArray[np.int32], odd: NDArray[np.bool_]) -> RowNeeds:
        """The needs of special rows; `odd` are those among them that keep their names. Cost: O(rows + needs)."""
        if not len(rows.needs):
            return RowNeeds(np.zeros(0, np.int32), np.zeros(0, np.int32))
        counts = rows.need_counts()[special]
        whose = np.repeat(np.arange(len(special)), counts)
        needs = rows.needs[np.repeat(rows.need_starts[special] - _starts(counts), counts) + np.arange(len(whose))]
        anchors = rows.lows[rows.dims == rows.axes[ANCHOR]][special].astype(np.int64) - 1
        rest = (needs < 0) | (needs != anchors[whose])
        whose, needs = whose[rest], needs[rest]
        counts = np.bincount(whose, minlength=len(special))
        rank = np.arange(len(whose)) - _starts(counts)[whose]
        records = np.full((len(special), RECORD), -1, np.int32)
        records[:, 0] = np.where(odd, -1, rows.slots[special])
        records[:, 1:3] = ~len(rows.pieces)  # a piece that no event has
        in_record = rank < 2
        records[whose[in_record], rank[in_record] + 1] = needs[in_record]
        more = counts > 2
        starts = _starts(np.where(more, counts - 1, 0))
        records[more, 3] = starts[more]
        others = np.zeros(int((counts[more] - 1).sum()), np.int32)
        others[starts[more]] = counts[more] - 2
        others[starts[whose[~in_record]] + rank[~in_record] - 1] = needs[~in_record]
        return RowNeeds(records.ravel(), others)

    @property
    def nbytes(self) -> int:
        """The bytes of both."""
        return self.records.nbytes + self.others.nbytes


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of several parts of these sizes begins."""
    return np.cumsum(counts) - counts
