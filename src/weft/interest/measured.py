"""What a grid costs on samples of subscriptions and events, for each model. Laws: an event that somebody wants passes;
figures that are measured are those of a table that was filled and asked; no loop in Python runs over events.

A link is measured that wants all of the sample's subscriptions and is offered all of its events.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.errors import TuningError
from weft.index.base import AnyEvent
from weft.index.tree import TreeIndex
from weft.interest.budget import Budget, Figures
from weft.interest.label_counts import LabelCounts
from weft.interest.label_filter import CountingFilter, FilterShape
from weft.interest.range_table import RangeTable
from weft.space.content import ContentSpace
from weft.space.dimension import Dimension, Ints
from weft.space.grid import Grid
from weft.space.label_space import LabelSpace
from weft.space.range_set import RangeSet
from weft.space.range_sets import RangeSets

if TYPE_CHECKING:
    import pyarrow as pa

Space = TypeVar("Space", ContentSpace, LabelSpace)
Mask = NDArray[np.bool_]

_FULL = 15  # what a counter of 4 bits holds
_UNSEEN = 0.5  # false positives of a sample that are as good as none
_MOST_COUNTERS, _MOST_HASHES = 32, 16  # the power of two, and the hashes that are tried


class Sample:
    """Subscriptions, events, and which of these nobody wants. Raises TuningError if there is nothing to measure."""

    def __init__(self, columns: BoxColumns, events: pa.RecordBatch | Sequence[AnyEvent]) -> None:
        if len(columns) == 0:
            raise TuningError("tuning needs a sample of subscriptions: give some that match something")
        if len(events) == 0:
            raise TuningError("tuning needs a sample of events: give some that are published")
        self.columns, self.events = columns, events
        index = TreeIndex()
        index.add_forms(range(len(columns)), [NormalForm((box,)) for box in columns])
        self.strangers: Mask = ~index.any_batch(events)
        if not self.strangers.any():
            raise TuningError(
                "somebody wants every event of the sample, so no choice can let too many pass: "
                "give more events, or fewer subscriptions"
            )
        self._cells: dict[Dimension, Ints] = {}

    def cells(self, dimensions: Sequence[Dimension]) -> Ints:
        """The cells of the events, a row each; those of one dimension are computed once."""
        for dimension in dimensions:
            if dimension not in self._cells:
                self._cells[dimension] = Grid((dimension,)).cells(self.events)[:, 0]
        return np.stack([self._cells[dimension] for dimension in dimensions], axis=1)

    def share(self, passed: Mask) -> float:
        """The part of the events that nobody wants which pass."""
        return float(passed[self.strangers].mean())


class Made(NamedTuple):
    """What a model makes of a grid and a cap."""

    space: ContentSpace | LabelSpace
    shape: FilterShape | None
    figures: Figures


class Model(Protocol):
    """A model that can be tuned."""

    name: str

    def make(self, sample: Sample, dimensions: Sequence[Dimension], cap: int, budget: Budget) -> Made:
        """The space over these dimensions, and what it costs."""
        ...


class Mics:
    """Curve ranges: what is told is the union of all ranges, and looked up in a range table."""

    name = "mics"

    def make(self, sample: Sample, dimensions: Sequence[Dimension], cap: int, budget: Budget) -> Made:  # noqa: ARG002
        """As `Model`."""
        space = ContentSpace(Grid(tuple(dimensions)), most=cap)
        told = self.told(space, sample)
        passed = told.contains(space.of_cells(sample.cells(dimensions)))
        return Made(space, None, Figures(sample.share(passed), len(told), _table(RangeSets.of([told])).nbytes))

    @staticmethod
    def told(space: ContentSpace, sample: Sample) -> RangeSet:
        """The ranges that a neighbour has to know."""
        return space.range_sets(sample.columns)[1].union()

    @staticmethod
    def counted(space: ContentSpace, sample: Sample) -> int:
        """The bytes in which the teller counts who needs what."""
        return _table(space.range_sets(sample.columns)[1]).nbytes


class Dls:
    """Labels: what is told is the set of all labels, and looked up in a counting filter."""

    name = "dls"

    def make(self, sample: Sample, dimensions: Sequence[Dimension], cap: int, budget: Budget) -> Made:
        """As `Model`. The filter's own false positives are those of equation 1, at each level in use."""
        space = LabelSpace([Grid(tuple(dimensions))], most=cap)
        told = self.told(space, sample)
        asked = self.asked(space, sample, told)
        passed: Mask = np.asarray(np.isin(asked, told).any(axis=1))
        strangers = int(sample.strangers.sum())
        by_cells = sample.share(passed)
        rest = round((1 - by_cells) * strangers)

        def figures(shape: FilterShape) -> Figures:
            by_filter = _chance(shape.rate(len(told)), asked.shape[1]) * rest / strangers
            return Figures(by_cells + by_filter, len(told), shape.nbytes)

        shapes = shapes_for(len(told), _UNSEEN / max(rest, 1) / asked.shape[1])
        return min((Made(space, shape, figures(shape)) for shape in shapes), key=lambda made: budget.rank(made.figures))

    @staticmethod
    def told(space: LabelSpace, sample: Sample) -> Ints:
        """The labels that a neighbour has to know."""
        return np.unique(space.label_sets(sample.columns)[1].labels)

    @staticmethod
    def asked(space: LabelSpace, sample: Sample, told: Ints) -> Ints:
        """The labels of the events, a row each, at the levels in use."""
        code = space.codes[0]
        drops = [code.drops(level) for level in space.levels(told).tolist()]
        return code.of_cells(sample.cells(space.grids[0].dimensions), drops)

    @staticmethod
    def counted(space: LabelSpace, sample: Sample) -> int:
        """The bytes in which the teller counts who wants what."""
        counts = LabelCounts()
        counts.add(space.label_sets(sample.columns)[1].labels)
        return counts.nbytes


def measure(space: ContentSpace | LabelSpace, shape: FilterShape | None, sample: Sample) -> Figures:
    """What a space, and a filter, cost on a sample: a table is filled and asked, and nothing is estimated."""
    if isinstance(space, ContentSpace):
        ranges = Mics.told(space, sample)
        table = _table(RangeSets.of([ranges]))
        passed = table.match_batch(space.of_cells(sample.cells(space.grid.dimensions)))
        return Figures(sample.share(passed), len(ranges), table.nbytes)
    labels = Dls.told(space, sample)
    held = LabelCounts() if shape is None else CountingFilter(shape)
    held.add(labels)
    asked = Dls.asked(space, sample, labels)
    passed = np.asarray(held.contains(asked).reshape(asked.shape).any(axis=1))
    return Figures(sample.share(passed), len(labels), held.nbytes)


def shapes_for(labels: int, rate: float) -> Iterator[FilterShape]:
    """The shapes worth trying for so many labels: each size with its best hashes, up to one with such a rate.

    A larger one would save false positives that nobody can see. Counters have 4 bits, or 8 where one of 4 would
    probably be full: a full one never empties.

    >>> [(shape.size, shape.hashes, shape.bits) for shape in shapes_for(1000, 0.1)]
    [(64, 1, 8), (128, 1, 8), (256, 1, 4), (512, 1, 4), (1024, 1, 4), (2048, 1, 4), (4096, 3, 4), (8192, 6, 4)]
    """
    power = max(3, (labels // 16).bit_length())  # below, a filter is so full that it lets everything pass
    for size in (1 << each for each in range(power, _MOST_COUNTERS + 1)):
        shape = min(
            (FilterShape(size, hashes) for hashes in range(1, min(size, _MOST_HASHES) + 1)),
            key=lambda shape: shape.rate(labels),
        )
        load = shape.hashes * labels / size
        full = size * sum(math.exp(n * math.log(load) - load - math.lgamma(n + 1)) for n in range(_FULL, 8 * _FULL))
        yield FilterShape(size, shape.hashes, 8) if full >= 1 else shape
        if shape.rate(labels) <= rate:
            return


def _chance(rate: float, looks: int) -> float:
    """That one of some look-ups is a false positive."""
    return -math.expm1(looks * math.log1p(-rate)) if rate < 1 else 1.0


def _table(sets: RangeSets) -> RangeTable:
    table = RangeTable()
    table.insert_batch(sets)
    return table
