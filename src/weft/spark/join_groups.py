"""Groups in which events and subscriptions meet. Every event is in one group. A subscription is in every group where an
event that it matches may be, and in each once. Where an event goes depends on itself alone, not on its neighbours in a
partition nor on their order.

A tree of cuts, each through one attribute between two cells, divides the space into regions with about the same work,
by a sample of both sides. Where a cut would not help, because events are equal or most subscriptions reach across it,
several groups share a region: each has a part of its events and all of its subscriptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns
from weft.algebra.form_hashes import Hashes
from weft.errors import SchemaError
from weft.kernels.arrays import Floats, Ints
from weft.kernels.boxes import BOUNDED
from weft.model.schema import Schema
from weft.space.dimension import GridDimension
from weft.space.grid import CellBoxes, Grid

_CELLS = 64  # of an attribute
_SEEN = 2_000  # events of the sample that decide where cells end
_EVENT = 3.0  # the work of an event, in that of a copy of a subscription: measured, for few matches
_WIDE = 8  # a subscription in more than an eighth of the groups is wide
_OFTEN = 8  # an event that fills an eighth of a group's share is spread by counting
MOST_TRIED = 32  # attributes


class Amounts(NamedTuple):
    """How many events and subscriptions there are in all."""

    events: int
    subscriptions: int


class GroupRegion(NamedTuple):
    """A leaf of the tree: its groups."""

    first: int
    groups: int


class GroupCut(NamedTuple):
    """Cells of a dimension below `cell` are on the low side."""

    dimension: int
    cell: int
    low: GroupCut | GroupRegion
    high: GroupCut | GroupRegion


@dataclass(frozen=True, slots=True)
class JoinGroups:
    """A tree of cuts through the cells of a grid; None is the grid of no attribute.

    `often` are the hashes, ascending, of events that are so frequent that equal ones must not stay together.

    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 7]}}})
    >>> groups = JoinGroups(2, Grid.uniform(schema, 10), GroupCut(0, 5, GroupRegion(0, 1), GroupRegion(1, 1)))
    >>> groups.of_events(pa.record_batch({"x": [0, 2, 5, None]}), np.arange(4)).tolist()
    [0, 0, 1, 0]
    """

    size: int
    grid: Grid | None
    tree: GroupCut | GroupRegion
    often: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))

    @staticmethod
    def of_nothing(groups: int) -> JoinGroups:
        """Groups of which every subscription is in each."""
        return JoinGroups(groups, None, GroupRegion(0, groups))

    def __len__(self) -> int:
        return self.size

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that say where an event goes."""
        return () if self.grid is None else self.grid.names

    def of_events(self, batch: pa.RecordBatch, salt: Ints, schema: Schema | None = None) -> Ints:
        """The group of each event, as it conforms to a schema; where a region has several, the salt chooses."""
        found = np.zeros(batch.num_rows, np.int64)
        cells = np.zeros((batch.num_rows, 0), np.int64) if self.grid is None else self.grid.cells(batch, schema)
        for region, rows in _in_regions(self.tree, cells, cells):
            found[rows] = region.first + salt[rows] % region.groups
        return found

    def of_boxes(self, columns: BoxColumns) -> tuple[Ints, Ints, Ints]:
        """Pairs of an owner and a group that it is in, each once and by group; and how many groups each owner is in."""
        if self.grid is None:
            nowhere = np.zeros((len(columns), 0), np.int64)
            boxes = CellBoxes(nowhere, nowhere, np.arange(len(columns)))
        else:
            boxes = self.grid.boxes_of_columns(columns)
        many = int(columns.owners.max(initial=-1)) + 1
        pairs = [np.zeros(0, np.int64)]
        for region, rows in _in_regions(self.tree, boxes.lows, boxes.highs):
            owners = np.unique(columns.owners[boxes.rows[rows]])
            pairs += [group * many + owners for group in range(region.first, region.first + region.groups)]
        every = np.concatenate(pairs)
        owners = every % max(many, 1)
        return owners, every // max(many, 1), np.bincount(owners, minlength=many)

    def is_wide(self, counts: Ints) -> NDArray[np.bool_]:
        """Which numbers of groups are too many for copies in each."""
        return counts > max(_WIDE, len(self) // _WIDE)


def _in_regions(tree: GroupCut | GroupRegion, lows: Ints, highs: Ints) -> Iterator[tuple[GroupRegion, Ints]]:
    """The regions in the order of their groups, and the rows that reach into each, from their low to their high cells.

    Cost: O(rows in each region, and depth).
    """
    stack: list[tuple[GroupCut | GroupRegion, Ints]] = [(tree, np.arange(len(lows)))]
    while stack:
        node, rows = stack.pop()
        if isinstance(node, GroupRegion):
            yield node, rows
            continue
        stack.append((node.high, rows[highs[rows, node.dimension] >= node.cell]))
        stack.append((node.low, rows[lows[rows, node.dimension] < node.cell]))


class Salting:
    """The salt of events by their hashes; frequent ones are dealt out in turn.

    Equal events are interchangeable, so counting them gives the same groups the same events in whatever order they
    come: a task that runs again places all as before.
    """

    def __init__(self, often: Hashes, start: int = 0) -> None:
        self._often = often
        self._seen = np.full(len(often), start, np.int64)

    def __call__(self, hashes: Hashes) -> Ints:
        """The salts of the next events."""
        salt = (hashes >> np.uint64(1)).astype(np.int64)
        if len(self._often):
            place = np.minimum(np.searchsorted(self._often, hashes), len(self._often) - 1)
            for number in np.unique(place[self._often[place] == hashes]).tolist():
                rows = np.flatnonzero(hashes == self._often[number])
                salt[rows] = self._seen[number] + np.arange(len(rows))
                self._seen[number] += len(rows)
        return salt


# -- the plan ------------------------------------------------------------------------------------------


def plan(  # noqa: PLR0913, PLR0917 - what both sides are, and what is wanted of them
    events: pa.RecordBatch,
    hashes: Hashes,
    boxes: BoxColumns,
    amounts: Amounts,
    groups: int,
    schema: Schema | None = None,
) -> JoinGroups:
    """A number of groups, by samples of both sides. Raises SchemaError if no attribute separates anything."""
    grid = _grid(events, boxes, schema)
    each = _EVENT * amounts.events / max(events.num_rows, 1)
    ends = grid.boxes_of_columns(boxes)
    cells, each_box = grid.cells(events, schema), amounts.subscriptions / max(len(boxes), 1)
    sample = _Sample(cells, ends.lows, ends.highs, each, each_box)
    tree, _ = sample.divided(0, groups)
    used = sorted({cut.dimension for cut in _cuts(tree)})
    chosen = None if not used else Grid(tuple(grid.dimensions[at] for at in used))
    share = (_EVENT * amounts.events + amounts.subscriptions) / groups
    common = Counter(hashes.tolist())
    often = sorted(value for value, count in common.items() if count > 1 and count * each * _OFTEN > share)
    return JoinGroups(groups, chosen, _renumbered(tree, used), np.array(often, np.uint64))


class _Sample(NamedTuple):
    """The cells of sampled events, the first and last cells of sampled boxes, and the work that each stands for."""

    cells: Ints
    lows: Ints
    highs: Ints
    each_event: float
    each_box: float

    def divided(self, first: int, groups: int) -> tuple[GroupCut | GroupRegion, float]:
        """The tree of so many groups, from this one on, and the work of the group that has most.

        Every time the cut is taken whose sides have the least work a group, unless sharing is better in the end.
        """
        events, boxes = self.each_event * len(self.cells), self.each_box * len(self.lows)
        shared = GroupRegion(first, groups), events / groups + boxes
        if groups == 1 or not len(self.cells):
            return shared
        low, high = self._work()
        below = np.clip(np.rint(groups * low / np.maximum(low + high, 1e-9)), 1, groups - 1)
        score = np.maximum(low / below, high / (groups - below))
        score[np.maximum(low, high) >= events + boxes] = np.inf  # one side is all
        dimension, cell = map(int, np.unravel_index(int(np.argmin(score)), score.shape))
        if score[dimension, cell] >= shared[1]:
            return shared
        some = int(below[dimension, cell])
        inside = self.cells[:, dimension] < cell
        small, small_work = self._part(inside, self.lows[:, dimension] < cell).divided(first, some)
        large, large_work = self._part(~inside, self.highs[:, dimension] >= cell).divided(first + some, groups - some)
        worst = max(small_work, large_work)
        return (GroupCut(dimension, cell, small, large), worst) if worst < shared[1] else shared

    def _part(self, events: NDArray[np.bool_], boxes: NDArray[np.bool_]) -> _Sample:
        return self._replace(cells=self.cells[events], lows=self.lows[boxes], highs=self.highs[boxes])

    def _work(self) -> tuple[Floats, Floats]:
        """The work below and above a cut before each cell of each dimension."""
        events, starts, ends = (_counted(each) for each in (self.cells, self.lows, self.highs))
        before = [np.cumsum(each, axis=1) - each for each in (events, starts, ends)]
        low = self.each_event * before[0] + self.each_box * before[1]
        high = self.each_event * (len(self.cells) - before[0]) + self.each_box * (len(self.lows) - before[2])
        return low, high


def _counted(cells: Ints) -> Floats:
    """How many rows have each cell of each dimension."""
    dims = cells.shape[1]
    flat = (cells + np.arange(dims) * _CELLS).ravel()
    counts: Floats = np.bincount(flat, minlength=dims * _CELLS).reshape(dims, _CELLS).astype(np.float64)
    return counts


def _cuts(tree: GroupCut | GroupRegion) -> Iterator[GroupCut]:
    if isinstance(tree, GroupCut):
        yield tree
        yield from _cuts(tree.low)
        yield from _cuts(tree.high)


def _renumbered(tree: GroupCut | GroupRegion, used: list[int]) -> GroupCut | GroupRegion:
    """The tree over the dimensions that it uses."""
    if isinstance(tree, GroupRegion):
        return tree
    sides = (_renumbered(side, used) for side in (tree.low, tree.high))
    return GroupCut(used.index(tree.dimension), tree.cell, *sides)


def _grid(events: pa.RecordBatch, boxes: BoxColumns, schema: Schema | None) -> Grid:
    """The attributes that most boxes constrain, in cells of equal depth."""
    dimensions: list[GridDimension] = []
    for name in constrained(boxes):
        if name not in events.schema.names:
            continue
        try:
            known = schema if schema is not None and name in schema else Schema.infer(events.select([name]))
            dimensions += Grid.equi_depth(known, _spread(events, name), _CELLS, [name]).dimensions
        except SchemaError:
            continue  # no event of the sample has it
        if len(dimensions) == MOST_TRIED:
            break
    return Grid(tuple(dimensions))


def _spread(events: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The values of an attribute, and the distinct ones as often again: a value that most events have leaves cells for
    the others, where subscriptions are.
    """
    column: Any = events.column(name).slice(0, _SEEN)
    distinct = column.unique()
    again = distinct.take(pa.array(np.arange(len(column)) % max(len(distinct), 1)))
    every = pa.concat_arrays([column, again])
    return pa.record_batch([every], names=[name]).replace_schema_metadata(events.schema.metadata)


def constrained(boxes: BoxColumns) -> list[str]:
    """The attributes that boxes constrain, the most frequent first."""
    counts = Counter[str]()
    for (name, _), column in boxes.columns.items():
        counts[name] += int(np.count_nonzero(column.marks >= BOUNDED))
    for box in boxes.odd.values():
        counts.update(dict.fromkeys(box.sets, 1))
    return sorted(counts, key=lambda name: (-counts[name], name))
