"""Subscriptions of many attributes, found by a projection on a few.

Projections, for more attributes than a curve can carry (MICS 5, 8): the most selective attributes, or all of them in
groups. A projection, or groups that must all agree, lets through everything that the whole space does; only false
positives grow.

Everything is measured on samples: boxes of cells of some subscriptions, as `Grid.boxes_of_columns` returns them over
all attributes, and cells of some events. A dimension is identified by its position in the grid.

Subscriptions of many attributes, found by the few most selective ones (MICS 5). Answers are exact; the curve only
excludes subscriptions that need not be compared.

Attributes are chosen greedily by how many pairs of sample subscriptions and events they rule out. Candidates come from
one look-up on the curve over these attributes, and each is then compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns
from weft.algebra.relate import Region, as_form, covers
from weft.errors import FilterError, SchemaError
from weft.index.base import AnyEvent, SubId
from weft.kernels.arrays import Ints
from weft.model.schema import Schema
from weft.routing.mics.kernels import cells as kernel
from weft.routing.mics.subscription_index import SubscriptionIndex
from weft.space.content import ContentSpace
from weft.space.grid import CellBoxes, Grid

DimensionGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DimensionChoice:
    """Dimensions in the order in which they were chosen, and the share of pairs that pass all up to each."""

    dimensions: tuple[int, ...]
    passing: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ProjectedTraffic:
    """The number of events, how many of them are forwarded, and how many of those some subscription wants."""

    events: int
    forwarded: int
    wanted: int

    @property
    def false_positives(self) -> float:
        """The share of forwarded events that no subscription wants."""
        return (self.forwarded - self.wanted) / self.forwarded if self.forwarded else 0.0


def selectivity(boxes: CellBoxes, cells: Ints) -> NDArray[np.float64]:
    """For each dimension, the share of pairs (subscription, event) that pass it alone: the lower, the more
    selective.
    """
    boxes, cells = _checked(boxes, cells)
    out = np.empty(boxes.lows.shape[1], np.int64)
    everything = np.ones((len(boxes.lows), len(cells)), np.bool_)
    kernel.pass_rates(boxes.lows, boxes.highs, cells, everything, out)
    return out / everything.size


def choose(boxes: CellBoxes, cells: Ints, count: int) -> DimensionChoice:
    """Choose `count` dimensions greedily: each time the one that the fewest remaining pairs pass, the first of equal
    ones.

    The paper takes the most selective attributes one by one (`selectivity`), so it would choose both of two that always
    agree. Here the second adds nothing. Cost: O(count x boxes x cells x dims).
    """
    boxes, cells = _checked(boxes, cells)
    dims = boxes.lows.shape[1]
    if not 1 <= count <= dims:
        raise SchemaError(f"cannot choose {count} of {dims} attributes; give a number from 1 to {dims}")
    passing = np.ones((len(boxes.lows), len(cells)), np.bool_)
    rates = np.empty(dims, np.int64)
    chosen: list[int] = []
    shares: list[float] = []
    for _ in range(count):
        kernel.pass_rates(boxes.lows, boxes.highs, cells, passing, rates)
        best = min((dim for dim in range(dims) if dim not in chosen), key=lambda dim: (rates[dim], dim))
        kernel.keep_passing(boxes.lows, boxes.highs, cells, best, passing)
        chosen.append(best)
        shares.append(float(rates[best] / passing.size))
    return DimensionChoice(tuple(chosen), tuple(shares))


def group(boxes: CellBoxes, cells: Ints, size: int) -> DimensionGroups:
    """All dimensions in groups of at most `size`, one curve each: forward only if every group has a match (MICS 8).

    Dimensions are taken in order of selectivity. Each goes to the group with which the fewest events of the sample are
    forwarded; among equals, to the smallest group.
    """
    boxes, cells = _checked(boxes, cells)
    dims = boxes.lows.shape[1]
    if size < 1:
        raise SchemaError(f"a group of {size} attributes is empty; give a size of at least 1")
    groups: list[tuple[int, ...]] = [()] * -(-dims // size)
    admitted = [np.ones(len(cells), np.bool_) for _ in groups]
    for dim in choose(boxes, cells, dims).dimensions:
        trials = []
        for at, members in enumerate(groups):
            if len(members) < size:
                mine = _admitted(boxes, cells, (*members, dim))
                others = [admitted[other] for other in range(len(groups)) if other != at]
                trials.append((int(np.logical_and.reduce([mine, *others]).sum()), len(members), at, mine))
        _, _, at, mine = min(trials, key=lambda trial: trial[:3])
        groups[at] = (*groups[at], dim)
        admitted[at] = mine
    return tuple(groups)


def measure(
    boxes: CellBoxes, cells: Ints, groups: Iterable[Sequence[int]], wanted: NDArray[np.bool_] | None = None
) -> ProjectedTraffic:
    """What is forwarded with one table per group (a single group is a projection), compared with what is wanted.

    `wanted` states for each event whether a subscription truly matches it. By default, the cells in all dimensions
    decide.
    """
    boxes, cells = _checked(boxes, cells)
    forwarded = np.logical_and.reduce([_admitted(boxes, cells, tuple(members)) for members in groups])
    truly = _admitted(boxes, cells, tuple(range(boxes.lows.shape[1]))) if wanted is None else wanted
    return ProjectedTraffic(len(cells), int(forwarded.sum()), int((forwarded & truly).sum()))


def _admitted(boxes: CellBoxes, cells: Ints, dims: tuple[int, ...]) -> NDArray[np.bool_]:
    out = np.empty(len(cells), np.bool_)
    kernel.any_box(boxes.lows, boxes.highs, cells, np.array(dims, np.int64), out)
    return out


def _checked(boxes: CellBoxes, cells: Ints) -> tuple[CellBoxes, Ints]:
    if len(boxes.lows) == 0 or len(cells) == 0:
        raise SchemaError("choosing attributes needs a sample; give some subscriptions and some events")
    if boxes.lows.shape[1] != cells.shape[1]:
        raise SchemaError(
            f"the subscriptions have {boxes.lows.shape[1]} dimensions and the events {cells.shape[1]}; use one grid"
        )
    lows, highs = (np.ascontiguousarray(side, np.int64) for side in boxes[:2])
    return CellBoxes(lows, highs, boxes.rows), np.ascontiguousarray(cells, np.int64)


_SAMPLE = 1_000


class ProjectedIndex:
    """Subscriptions by a few attributes of a space.

    >>> from weft import parse
    >>> schema = Schema.from_dict({"attributes": {n: {"type": "float", "bounds": [0, 100]} for n in "abcd"}})
    >>> texts = ["a < 9 AND b > 1 AND c BETWEEN 5 AND 6", "c BETWEEN 50 AND 53 AND d > 2", "c > 98"]
    >>> filters = {SubId(number): parse(text) for number, text in enumerate(texts)}
    >>> index = ProjectedIndex.of(schema, filters, [{"a": n, "b": n, "c": n, "d": n} for n in range(100)], count=1)
    >>> index.space.grid.names, index.match({"a": 3, "b": 3, "c": 5.5}), index.covering(parse("c > 99 AND a = 1"))
    (('c',), [0], [2])
    """

    def __init__(self, space: ContentSpace) -> None:
        self.space = space
        self.asked = 0  # candidates that were compared
        self._forms: dict[SubId, NormalForm] = {}
        self._curve = SubscriptionIndex()

    @staticmethod
    def of(
        schema: Schema,
        subscriptions: Mapping[SubId, Region],
        events: Sequence[AnyEvent],
        *,
        count: int = 3,
        cells: int = 64,
    ) -> ProjectedIndex:
        """Choose `count` attributes of the schema by samples of both, and add the subscriptions."""
        forms = {sub: as_form(region) for sub, region in subscriptions.items()}
        names = chosen_names(schema, list(forms.values())[:_SAMPLE], events[:_SAMPLE], count, cells)
        index = ProjectedIndex(ContentSpace(Grid.uniform(schema, cells, names)))
        for sub, form in forms.items():
            index.add(sub, form)
        return index

    def __len__(self) -> int:
        return len(self._forms)

    def add(self, sub: SubId, region: Region) -> None:
        """Add a subscription. Raises FilterError if it never matches, DuplicateIdError if its id already exists."""
        form = as_form(region)
        self._curve.add(sub, self.space.ranges(form))
        self._forms[sub] = form

    def discard(self, sub: SubId) -> None:
        """Remove a subscription, if it exists."""
        self._curve.discard(sub)
        self._forms.pop(sub, None)

    def match(self, event: AnyEvent) -> list[SubId]:
        """The subscriptions that an event matches. Cost: O(log n + candidates)."""
        return self._exact(self._curve.at(self.space.index(event)).tolist(), lambda form: event in form)

    def covering(self, region: Region) -> list[SubId]:
        """The subscriptions that are proven to cover a filter."""
        form = as_form(region)
        return self._exact(self._curve.covering(self.space.ranges(form)).tolist(), lambda wide: covers(wide, form))

    def covered(self, region: Region) -> list[SubId]:
        """The subscriptions that a filter is proven to cover."""
        form = as_form(region)
        return self._exact(self._curve.within(self.space.ranges(form)).tolist(), lambda narrow: covers(form, narrow))

    def subsumes(self, region: Region) -> bool:
        """Whether the subscriptions together are proven to cover a filter. Only those that overlap it are compared."""
        form = as_form(region)
        near = self._curve.overlapping(self.space.ranges(form)).tolist()
        self.asked += len(near)
        boxes = tuple(box for sub in near for box in self._forms[SubId(sub)].boxes)
        return covers(NormalForm(boxes), form)

    def _exact(self, candidates: list[int], holds: Callable[[NormalForm], bool]) -> list[SubId]:
        self.asked += len(candidates)
        return sorted(SubId(sub) for sub in candidates if holds(self._forms[SubId(sub)]))


def chosen_names(
    schema: Schema, forms: Sequence[NormalForm], events: Sequence[AnyEvent], count: int, cells: int
) -> list[str]:
    """The attributes that rule out most pairs of sample subscriptions and events, the most selective first."""
    boxes = [box for form in forms for box in form.boxes]
    if not boxes:
        raise FilterError("attributes are chosen by a sample; give some subscriptions that can match")
    grid = Grid.uniform(schema, cells)
    found: DimensionChoice = choose(
        grid.boxes_of_columns(BoxColumns.of(boxes)), grid.cells(events), min(count, len(grid.names))
    )
    return [grid.names[place] for place in found.dimensions]
