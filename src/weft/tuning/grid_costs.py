"""The costs of a cell space on samples of subscriptions and events, for each model. Every wanted event passes. Measured
figures are those of a table that was filled and queried. No Python loop runs over events.

The measured link wants all of the sample's subscriptions and is offered all of its events. More subscriptions let no
fewer events pass, so a space is rejected as soon as a part of them lets too many pass; `Seen.part` records that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.kernels.arrays import Ints, Mask
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import CountingFilter, FilterShape, LabelCounts
from weft.routing.mics.structure import RangeTable
from weft.space.cell_space import CellSpace
from weft.space.content import ContentSpace
from weft.space.curve import PATIENCE
from weft.space.curve_groups import CurveGroups
from weft.space.dimension import GridDimension
from weft.space.grid import CellBoxes, Grid
from weft.space.range_sets import RangeSets
from weft.tuning.budget import CostBudget, LinkFigures
from weft.tuning.cell_sample import CellSample, SamplePart

_FULL = 15  # the maximum of a 4-bit counter
_UNSEEN = 0.5  # false positives of a sample that are as good as none
_MOST_COUNTERS, _MOST_HASHES = 32, 16  # the power of two, and the numbers of hashes that are tried
_DESCENTS = 5  # of a box with a large surface, to find how deep it can be followed


class HeardItems(Protocol):
    """A table of a neighbour's items, in which events are looked up."""

    @property
    def nbytes(self) -> int:
        """Its memory in bytes."""
        ...

    def admits(self, cells: Sequence[Ints]) -> Mask:
        """Which events pass. `cells` holds the cells of all events, for each grid."""
        ...


class Seen(NamedTuple):
    """What a space does on a sample, or on a part of its subscriptions."""

    space: CellSpace
    items: int
    passed: float  # share of the unwanted events, by their cells
    looks: int  # per event
    nbytes: int  # of a table of the items, without a filter
    strangers: int
    part: float

    @property
    def whole(self) -> bool:
        """Whether all subscriptions were measured."""
        return self.part == 1


class Made(NamedTuple):
    """A space, a filter if its model has one, and what they cost within a budget."""

    space: CellSpace
    shape: FilterShape | None
    figures: LinkFigures


class TunableModel(Protocol):
    """A model that can be tuned."""

    name: str

    def space(self, groups: Sequence[Sequence[GridDimension]], cap: int) -> CellSpace:
        """The space over these dimensions."""
        ...

    def work(self, boxes: CellBoxes, cap: int, grid: Grid) -> float:
        """Approximately how many elementary steps it takes to compute the items of the boxes."""
        ...

    def looks(self, space: CellSpace, items: Ints) -> int:
        """The number of look-ups per event."""
        ...

    def made(self, seen: Seen, budget: CostBudget) -> Made:
        """A measured space, with the best filter for a budget."""
        ...

    def fitted(self, shape: FilterShape | None, rate: float, items: int) -> FilterShape | None:
        """The filter of a table with this many items, if it grows whenever more than the rate would pass."""
        ...

    def held(self, space: Any, items: Ints, shape: FilterShape | None) -> HeardItems:
        """A table of the items."""
        ...

    def counted(self, space: Any, items: Ints) -> int:
        """The bytes in which the sender counts who needs which of the items."""
        ...


class _Ranges:
    def __init__(self, space: ContentSpace | CurveGroups, items: Ints) -> None:
        self._groups, self._tables = space.groups, [_counting(each) for each in space.by_group(items)]
        self.nbytes = sum(table.nbytes for table in self._tables)

    def admits(self, cells: Sequence[Ints]) -> Mask:
        admitted = np.ones(len(cells[0]), np.bool_)
        for group, table, mine in zip(self._groups, self._tables, cells, strict=True):
            admitted &= table.match_batch(group.of_cells(mine))
        return admitted


class _Labels:
    def __init__(self, space: LabelSpace, items: Ints, shape: FilterShape | None) -> None:
        self._space, self._levels = space, space.levels(items[:, 0])
        self._held: LabelCounts | CountingFilter = LabelCounts() if shape is None else CountingFilter(shape)
        self._held.add(items[:, 0])
        self.nbytes = self._held.nbytes

    def admits(self, cells: Sequence[Ints]) -> Mask:
        asked = self._space.of_cells(cells, self._levels)
        return np.asarray(self._held.contains(asked).reshape(asked.shape).any(axis=1))


class Mics:
    """Curve ranges: the union of all ranges is told, and looked up in range tables."""

    name = "mics"

    def space(self, groups: Sequence[Sequence[GridDimension]], cap: int) -> CellSpace:
        """A curve for each group."""
        spaces = [ContentSpace(Grid(tuple(group)), most=cap) for group in groups]
        return spaces[0] if len(spaces) == 1 else CurveGroups(spaces)

    def work(self, boxes: CellBoxes, cap: int, grid: Grid) -> float:
        """The surfaces of the boxes, which a descent follows; a large surface only as far as patience allows."""
        sides = (boxes.highs - boxes.lows + 1).astype(np.float64)
        volume = sides.prod(axis=1)
        cut = (boxes.lows > 0) | (boxes.highs < np.array(grid.shape) - 1)
        surface = np.minimum((2 * volume[:, None] / sides * cut).sum(axis=1), volume)
        steps = 2 * surface * sides.shape[1] + 16 * sides.shape[1]
        return float(np.minimum(steps, _DESCENTS * cap * PATIENCE).sum())

    def looks(self, space: CellSpace, items: Ints) -> int:  # noqa: ARG002
        """One per group."""
        return len(space.grids)

    def made(self, seen: Seen, budget: CostBudget) -> Made:  # noqa: ARG002
        """Mics has no filter."""
        return Made(seen.space, None, LinkFigures(seen.passed, seen.items, seen.nbytes))

    def fitted(self, shape: FilterShape | None, rate: float, items: int) -> FilterShape | None:  # noqa: ARG002
        """Always None."""
        return None

    def held(self, space: ContentSpace | CurveGroups, items: Ints, shape: FilterShape | None) -> HeardItems:  # noqa: ARG002
        """A range table for each group."""
        return _Ranges(space, items)

    def counted(self, space: ContentSpace | CurveGroups, items: Ints) -> int:
        """Range tables with counts."""
        return _Ranges(space, items).nbytes


class Dls:
    """Labels: the set of all labels is told, and looked up in a counting filter."""

    name = "dls"

    def space(self, groups: Sequence[Sequence[GridDimension]], cap: int) -> CellSpace:
        """An application for each group."""
        return LabelSpace([Grid(tuple(group)) for group in groups], most=cap)

    def work(self, boxes: CellBoxes, cap: int, grid: Grid) -> float:  # noqa: ARG002
        """The labels of the boxes, each of which is sorted and counted."""
        volume = (boxes.highs - boxes.lows + 1).astype(np.float64).prod(axis=1)
        return float((4 * np.minimum(volume, cap) + 64).sum())

    def looks(self, space: Any, items: Ints) -> int:
        """One per level in use."""
        return len(space.levels(items[:, 0]))

    def made(self, seen: Seen, budget: CostBudget) -> Made:
        """The filter's own false positives are those of equation 1, at each level in use."""
        rest = round((1 - seen.passed) * seen.strangers)

        def figures(shape: FilterShape) -> LinkFigures:
            by_filter = _chance(shape.rate(seen.items), seen.looks) * rest / seen.strangers
            return LinkFigures(seen.passed + by_filter, seen.items, shape.nbytes)

        shapes = shapes_for(seen.items, _UNSEEN / max(rest, 1) / max(seen.looks, 1))
        every = (Made(seen.space, shape, figures(shape)) for shape in shapes)
        return min(every, key=lambda made: budget.rank(made.figures))

    def fitted(self, shape: FilterShape | None, rate: float, items: int) -> FilterShape | None:
        """A filter that keeps the rate."""
        fitting = shape or FilterShape.fitting(items)
        while fitting.rate(items) > rate:
            fitting = fitting.resized(2 * fitting.size)
        return fitting

    def held(self, space: LabelSpace, items: Ints, shape: FilterShape | None) -> HeardItems:
        """A counting filter, or exact counts where there is no shape."""
        return _Labels(space, items, shape)

    def counted(self, space: LabelSpace, items: Ints) -> int:
        """Exact counts."""
        return _Labels(space, items, None).nbytes


MODELS: dict[str, TunableModel] = {model.name: model for model in (Mics(), Dls())}


def look(space: CellSpace, parts: Iterable[SamplePart], sample: CellSample, hopeless: Callable[[float], bool]) -> Seen:
    """Measure a space on the parts of a sample's subscriptions: all of them, or the first ones.

    The space is rejected when a part of the subscriptions lets too many events pass.
    """
    model, unwanted = MODELS[space.model], sample.unwanted(space.grids)
    items = np.zeros((0, len(space.fields)), np.int64)
    total = int(unwanted.weights.sum())
    part, passed = 0.0, 0.0
    for part, some in parts:
        items = space.united(np.concatenate([items, space.items(some, sample.columns.owners)]))
        passed = float(unwanted.weights[space.admits(items, unwanted.cells)].sum() / total)
        if part < 1 and hopeless(passed):
            break
    if part < 1:
        return Seen(space, len(items), passed, 0, 0, total, part)
    looks, held = model.looks(space, items), model.held(space, items, None)
    return Seen(space, len(items), passed, looks, held.nbytes, total, part)


def measure(space: CellSpace, shape: FilterShape | None, sample: CellSample) -> LinkFigures:
    """What a space and a filter cost on a sample: a table is filled and queried, and nothing is estimated."""
    boxes = [sample.boxes(grid) for grid in space.grids]
    told = space.united(space.items(boxes, sample.columns.owners))
    held = MODELS[space.model].held(space, told, shape)
    passed = held.admits([sample.cells(grid.dimensions) for grid in space.grids])
    return LinkFigures(sample.share(passed), len(told), held.nbytes)


def shapes_for(labels: int, rate: float) -> Iterator[FilterShape]:
    """The shapes worth trying for this many labels: each size with its best number of hashes, up to one with the given
    rate.

    A larger shape would save false positives that the sample cannot show. Counters have 4 bits, or 8 where a 4-bit
    counter would probably be full, because a full one never empties.

    >>> [(shape.size, shape.hashes, shape.bits) for shape in shapes_for(1000, 0.1)]
    [(64, 1, 8), (128, 1, 8), (256, 1, 4), (512, 1, 4), (1024, 1, 4), (2048, 1, 4), (4096, 3, 4), (8192, 6, 4)]
    """
    power = max(3, (labels // 16).bit_length())  # a smaller filter is so full that everything passes
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
    """The probability that one of the look-ups is a false positive."""
    return -math.expm1(looks * math.log1p(-rate)) if rate < 1 else 1.0


def _counting(ranges: Ints) -> RangeTable:
    """A table of ranges, each counted separately."""
    table = RangeTable()
    table.insert_batch(RangeSets(np.arange(len(ranges) + 1), ranges[:, 0], ranges[:, 1]))
    return table
