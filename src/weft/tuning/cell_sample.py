"""Samples of subscriptions and events as cells of any grid. Values are mapped to the cells of a dimension once, however
many grids have that dimension. Subscriptions that a space cannot tell apart are measured once. Subscriptions are
ordered by a hash of their cells, so every first part of them is a sample of them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.errors import TuningError
from weft.index.base import AnyEvent
from weft.index.tree import TreeIndex
from weft.kernels.arrays import Ints, Mask
from weft.kernels.boxes import BOUNDED
from weft.space.dimension import GridDimension
from weft.space.grid import MOST_BOXES, CellBoxes, Grid

if TYPE_CHECKING:
    import pyarrow as pa

SamplePart = tuple[float, tuple[CellBoxes, ...]]  # the share of all so far, and the boxes of each grid

_MIXER = np.uint64(0x9E3779B97F4A7C15)
_FEW = 512  # different subscriptions that are measured in one part
_PARTS = (1 / 16, 1 / 4, 1)  # of the different subscriptions, if they are many


class _Spans(NamedTuple):
    """The cells of all rows in one dimension: the intervals of row i are those from offsets[i] to offsets[i + 1]."""

    offsets: Ints
    lows: Ints
    highs: Ints

    @property
    def counts(self) -> Ints:
        """The number of intervals of each row."""
        return np.diff(self.offsets)


class Unwanted(NamedTuple):
    """The different cells of unwanted events, in each grid, and the number of events in each."""

    cells: tuple[Ints, ...]
    weights: Ints


class CellSample:
    """Subscriptions, events, and which of these are unwanted. Raises TuningError if there is nothing to measure."""

    def __init__(self, columns: BoxColumns, events: pa.RecordBatch | Sequence[AnyEvent]) -> None:
        if len(columns) == 0:
            raise TuningError("tuning needs a sample of subscriptions; give some that can match")
        if len(events) == 0:
            raise TuningError("tuning needs a sample of events; give some that are published")
        self.columns, self.events = columns, events
        index = TreeIndex()
        index.add_forms(range(len(columns)), [NormalForm((box,)) for box in columns])
        self.strangers: Mask = ~index.any_batch(events)
        if not self.strangers.any():
            raise TuningError(
                "every event of the sample matches a subscription, so false positives cannot be measured; "
                "give more events or fewer subscriptions"
            )
        self._cells: dict[GridDimension, Ints] = {}
        self._spans: dict[GridDimension, _Spans] = {}

    # -- events ------------------------------------------------------------------------------------

    def cells(self, dimensions: Sequence[GridDimension]) -> Ints:
        """The cells of the events, one row each."""
        for dimension in dimensions:
            if dimension not in self._cells:
                self._cells[dimension] = Grid((dimension,)).cells(self.events)[:, 0]
        return np.stack([self._cells[dimension] for dimension in dimensions], axis=1)

    def unwanted(self, grids: Sequence[Grid]) -> Unwanted:
        """The cells of the unwanted events."""
        every = [self.cells(grid.dimensions)[self.strangers] for grid in grids]
        hashes = sum(_hashed(cells, at) for at, cells in enumerate(every))
        _, firsts, weights = np.unique(hashes, return_index=True, return_counts=True)
        return Unwanted(tuple(cells[firsts] for cells in every), weights)

    def share(self, passed: Mask) -> float:
        """The share of the unwanted events that pass."""
        return float(passed[self.strangers].mean())

    # -- subscriptions -----------------------------------------------------------------------------

    def boxes(self, grid: Grid) -> CellBoxes:
        """The boxes, as `grid.boxes_of_columns` returns them."""
        spans = [self._spans_of(dimension) for dimension in grid.dimensions]
        counts = np.stack([each.counts for each in spans])
        odd = (counts.prod(axis=0) > MOST_BOXES) | (counts.max(axis=0) == MOST_BOXES)  # gaps must be closed
        rows = (~odd).nonzero()[0]
        lows, highs = np.empty((len(rows), 0), np.int64), np.empty((len(rows), 0), np.int64)
        for each in spans:  # repeat each row once per interval
            times = each.counts[rows]
            again = np.repeat(np.arange(len(rows)), times)
            place = np.arange(len(again)) - np.repeat(np.cumsum(times) - times, times) + each.offsets[rows[again]]
            rows = rows[again]
            lows = np.concatenate([lows[again], each.lows[place][:, None]], axis=1)
            highs = np.concatenate([highs[again], each.highs[place][:, None]], axis=1)
        for row in odd.nonzero()[0].tolist():
            found = grid.boxes(self.columns.odd[row])
            lows, highs = np.concatenate([lows, found.lows]), np.concatenate([highs, found.highs])
            rows = np.append(rows, np.full(len(found.rows), row))
        order = np.argsort(rows, kind="stable")
        return CellBoxes(lows[order], highs[order], rows[order])

    def _spans_of(self, dimension: GridDimension) -> _Spans:
        if dimension not in self._spans:
            found = Grid((dimension,)).boxes_of_columns(self.columns)
            offsets = np.append(0, np.cumsum(np.bincount(found.rows, minlength=len(self.columns))))
            self._spans[dimension] = _Spans(offsets, found.lows[:, 0], found.highs[:, 0])
        return self._spans[dimension]

    def parts(self, boxes: Sequence[CellBoxes]) -> Iterator[SamplePart]:
        """The boxes of a first part of the different subscriptions, of the next part, and so on to the last.

        Each comes with the share of subscriptions so far, including this part.
        """
        owners, numbers = np.unique(self.columns.owners, return_inverse=True)
        holders = [numbers[mine.rows] for mine in boxes]
        hashes = np.zeros(len(owners), np.uint64)
        for at, (mine, whose) in enumerate(zip(boxes, holders, strict=True)):
            np.add.at(hashes, whose, _hashed(np.concatenate([mine.lows, mine.highs], axis=1), at))
        _, chosen = np.unique(hashes, return_index=True)
        place = np.full(len(owners), len(owners))
        place[chosen] = np.arange(len(chosen))
        done = 0
        for part in _PARTS if len(chosen) > _FEW else (1,):
            end = round(part * len(chosen))
            taken = [(place[whose] >= done) & (place[whose] < end) for whose in holders]
            yield part, tuple(CellBoxes(*(a[t] for a in mine)) for mine, t in zip(boxes, taken, strict=True))
            done = end

    def outside(self, dimension: GridDimension) -> float:
        """The mean share of the unwanted events that a subscription rules out by one dimension alone."""
        below = np.append(
            0, np.cumsum(np.bincount(self.cells([dimension])[self.strangers, 0], minlength=dimension.size))
        )
        spans = self._spans_of(dimension)
        inside = below[spans.highs + 1] - below[spans.lows]
        return float(1 - inside.sum() / below[-1] / len(self.columns))

    def asking(self, name: str) -> Mask:
        """Which boxes constrain an attribute."""
        asked = np.zeros(len(self.columns), np.bool_)
        for (each, _), column in self.columns.columns.items():
            if each == name:
                asked |= column.marks >= BOUNDED
        for row, box in self.columns.odd.items():
            asked[row] = name in box.sets
        return asked


def _hashed(rows: Ints, seed: int) -> NDArray[np.uint64]:
    """A hash of each row, the same on every machine."""
    rng = np.random.default_rng(seed)
    draws: Any = rng.integers(0, 1 << 63, rows.shape[1], np.int64)
    mixed: NDArray[np.uint64] = (rows * (2 * draws + 1)).sum(axis=1).view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXER
    return mixed ^ (mixed >> np.uint64(32))
