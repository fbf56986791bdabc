"""Projections, for more attributes than a curve can carry (MICS 5, 8): the most selective attributes, or all of them in
groups. A projection, or groups that must all agree, lets through everything that the whole space does; only false
positives grow.

Everything is measured on samples: boxes of cells of some subscriptions, as `Grid.boxes_of_columns` returns them over
all attributes, and cells of some events. A dimension is identified by its position in the grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import SchemaError
from weft.kernels import cells as kernel
from weft.kernels.arrays import Ints
from weft.space.grid import CellBoxes

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
