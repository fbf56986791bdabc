"""Groups in which events and subscriptions meet. Laws: every event is in one group; a subscription is in every group
where an event that it matches may be, and in each once; where an event goes depends on itself alone, not on its
neighbours in a partition nor on their order.

A group is one or more ranges of a curve through the attributes that tell most, in cells of equal depth by a sample of
both sides. All groups have about the same work. A place with more events than a group should have is shared by several
groups: each has a part of its events and all of its subscriptions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns
from weft.errors import SchemaError
from weft.kernels.arrays import Floats, Ints
from weft.kernels.boxes import BOUNDED
from weft.model.schema import Schema
from weft.space.content import ContentSpace
from weft.space.dimension import GridDimension
from weft.space.grid import Grid
from weft.space.projection import choose
from weft.space.range_sets import RangeSets

_TRIED = 2_000  # rows of each sample that choose the attributes
_CELLS = 64  # of an attribute
_DIMENSIONS = 3
_RANGES = 32  # of a subscription: more would only name more groups
_WIDE = 8  # a subscription in more than an eighth of the groups is wide
_HOT = 0.25  # of a group's share: a place with more events is shared on purpose
_OFTEN = 8  # an event that fills an eighth of a group's share is spread by counting
MOST_TRIED = 32  # attributes

Hashes = NDArray[np.uint64]


class Amounts(NamedTuple):
    """How many events and subscriptions there are in all."""

    events: int
    subscriptions: int


@dataclass(frozen=True, slots=True)
class JoinGroups:
    """Ranges of a curve, cut before `cuts`; range r has `shares[r]` groups, from group `first[r]` on.

    `often` are the hashes, ascending, of events that are so frequent that equal ones must not stay together.

    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "int", "bounds": [0, 7]}}})
    >>> groups = JoinGroups(ContentSpace(Grid.uniform(schema, 10)), np.array([5]), np.array([0, 1]), np.array([1, 1]))
    >>> groups.of_events(pa.record_batch({"x": [0, 2, 5, None]}), np.arange(4)).tolist()
    [0, 0, 1, 0]
    """

    space: ContentSpace | None  # None: one range, which is everything
    cuts: Ints
    first: Ints
    shares: Ints
    often: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))

    @staticmethod
    def of_nothing(groups: int) -> JoinGroups:
        """Groups of which every subscription is in each."""
        return JoinGroups(None, np.zeros(0, np.int64), np.zeros(1, np.int64), np.array([groups]))

    def __len__(self) -> int:
        return int((self.first + self.shares).max())

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes that say where an event goes."""
        return () if self.space is None else self.space.grid.names

    def of_events(self, batch: pa.RecordBatch, salt: Ints, schema: Schema | None = None) -> Ints:
        """The group of each event, as it conforms to a schema; where a range has several, the salt chooses."""
        ranges = np.zeros(batch.num_rows, np.int64)
        if self.space is not None:
            ranges = np.searchsorted(self.cuts, self.space.indexes(batch, schema), "right")
        return self.first[ranges] + salt % self.shares[ranges]

    def of_boxes(self, columns: BoxColumns) -> tuple[Ints, Ints, Ints]:
        """Pairs of an owner and a group that it is in, each once and by group; and how many groups each owner is in."""
        if self.space is None:
            owners = np.unique(columns.owners)
            holders, ranges = np.arange(len(owners)), np.zeros(len(owners), np.int64)
        else:
            owners, sets = self.space.range_sets(columns)
            holders = np.repeat(np.arange(len(owners)), np.diff(sets.offsets))
            low, high = (np.searchsorted(self.cuts, ends, "right") for ends in (sets.starts, sets.ends))
            holders, ranges = _listed(holders, low, high - low + 1)
        holders, groups = _listed(holders, self.first[ranges], self.shares[ranges])
        pairs = np.unique(groups * max(len(owners), 1) + holders)
        groups, holders = pairs // max(len(owners), 1), pairs % max(len(owners), 1)
        counts = np.zeros(int(columns.owners.max(initial=-1)) + 1, np.int64)
        counts[owners] = np.bincount(holders, minlength=len(owners))
        return owners[holders], groups, counts

    def is_wide(self, counts: Ints) -> NDArray[np.bool_]:
        """Which numbers of groups are too many for copies in each."""
        return counts > max(_WIDE, len(self) // _WIDE)


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


def plan(  # noqa: PLR0913, PLR0917 - what both sides are, and what is wanted of them
    events: pa.RecordBatch,
    hashes: Hashes,
    boxes: BoxColumns,
    amounts: Amounts,
    groups: int,
    schema: Schema | None = None,
) -> JoinGroups:
    """So many groups, by samples of both sides. Raises SchemaError if no attribute tells anything."""
    space = _space(events, boxes, schema)
    where = space.indexes(events, schema)
    _, sets = space.range_sets(boxes)
    each_event = amounts.events / max(len(where), 1)
    each_box = amounts.subscriptions / max(len(sets.offsets) - 1, 1)
    share = (amounts.events + amounts.subscriptions) / groups
    places, counts = np.unique(where, return_counts=True)
    work: Floats = counts * np.float64(each_event)
    hot = np.flatnonzero(work > _HOT * share)
    loads = np.zeros(groups)
    first, shares = [], []
    for place, events_here in zip(places[hot].tolist(), work[hot].tolist(), strict=True):
        boxes_here = each_box * np.count_nonzero((sets.starts <= place) & (place <= sets.ends))
        some = min(groups, int(np.ceil(events_here / max(share - boxes_here, share / 4))))
        at = _emptiest(loads, some)
        loads[at : at + some] += events_here / some + boxes_here
        first.append(at)
        shares.append(some)
    cold = _ColdPlaces.of(np.delete(places, hot), np.delete(work, hot), sets, each_box, places[hot])
    cuts, ranges = _ranges(cold.places, cold.poured(loads), places[hot], np.array(first, int), np.array(shares, int))
    common = Counter(hashes.tolist())
    often = [each for each, count in common.items() if count > 1 and count * each_event * _OFTEN > share]
    return JoinGroups(space, cuts, ranges[:, 0], ranges[:, 1], np.array(sorted(often), np.uint64))


class _ColdPlaces(NamedTuple):
    """Places that no group needs to share, in order, and the work at each."""

    places: Ints
    work: Floats

    @staticmethod
    def of(places: Ints, work: Floats, sets: RangeSets, each_box: float, hot: Ints) -> _ColdPlaces:
        """Those of events, and the middles of subscriptions, of which each counts once."""
        sizes = np.diff(sets.offsets)
        middles = sets.starts + (sets.ends - sets.starts) // 2
        weights = np.repeat(each_box / np.maximum(sizes, 1), sizes)
        away = ~np.isin(middles, hot)  # those are counted there
        every = np.concatenate([places, middles[away]])
        found, which = np.unique(every, return_inverse=True)
        every_work: Floats = np.zeros(len(found))
        np.add.at(every_work, which, np.concatenate([work, weights[away]]))
        return _ColdPlaces(found, every_work)

    def poured(self, loads: Floats) -> Ints:
        """The group of each place: one group after another is filled up, to a level that takes in all."""
        total = float(self.work.sum())
        level = (total + loads.sum()) / len(loads)
        room = np.maximum(level - loads, 0.0)
        ends = np.cumsum(room) * (total / max(room.sum(), 1e-9))
        middles = np.cumsum(self.work) - self.work / 2
        return np.minimum(np.searchsorted(ends, middles), len(loads) - 1)


def _emptiest(loads: Floats, some: int) -> int:
    """The first of so many groups in a row that have the least to do together."""
    sums = np.convolve(loads, np.ones(some), "valid")
    return int(np.argmin(sums))


def _ranges(places: Ints, groups: Ints, hot: Ints, first: Ints, shares: Ints) -> tuple[Ints, Ints]:
    """The cuts between ranges, and the first group of each range and how many it has."""
    every = np.concatenate([places, hot])
    order = np.argsort(every, kind="stable")
    rows = np.concatenate([np.stack([groups, np.ones_like(groups)], 1), np.stack([first, shares], 1)])[order]
    every, is_hot = every[order], np.repeat([False, True], [len(places), len(hot)])[order]
    if not len(every):
        return np.zeros(0, np.int64), np.array([[0, 1]])
    new = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1) | is_hot[1:] | is_hot[:-1]) + 1
    cuts = np.where(is_hot[new], every[new], every[new - 1] + 1)  # a hot place is alone in its range
    return cuts, rows[np.append(0, new)]


def _space(events: pa.RecordBatch, boxes: BoxColumns, schema: Schema | None) -> ContentSpace:
    """The attributes by which most pairs of the samples part, in cells of equal depth."""
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
    grid = Grid(tuple(dimensions))
    tried = boxes.of_owners(np.unique(boxes.owners)[:_TRIED])
    cells = grid.cells(events.slice(0, _TRIED), schema)
    best = choose(grid.boxes_of_columns(tried), cells, min(_DIMENSIONS, len(dimensions)))
    return ContentSpace(Grid(tuple(dimensions[at] for at in best.dimensions)), most=_RANGES)


def _spread(events: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The values of an attribute, and the distinct ones as often again: a value that most events have leaves cells for
    the others, where subscriptions are.
    """
    column: Any = events.column(name)
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


def _listed(owners: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Owners and the numbers of their ranges, one range after another."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(owners, sizes), np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
