"""The cells that the boxes of a filter meet. No cell that a box meets is left out. The work is bounded, whatever the
filter: value sets that boxes share are looked up once, and what takes too many tests of categories is widened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product

from weft.algebra.box import Box
from weft.algebra.valueset import ValueSet
from weft.space.categories import Categories
from weft.space.dimension import CellInterval, GridDimension

MOST_TESTS = 16_384  # of categories with patterns and predicates, for one filter and dimension
_FREE = 4  # tests of each category that are always possible


class CellsMet:
    """The cells that the boxes of a filter meet, at most `most` boxes of cells for each."""

    def __init__(self, dimensions: Sequence[GridDimension], most: int) -> None:
        self._dimensions = dimensions
        self._most = most
        self._whole = [[(0, dimension.size - 1)] for dimension in dimensions]
        self._known: list[dict[int, tuple[ValueSet, list[CellInterval]]]] = [{} for _ in dimensions]
        self._made: dict[tuple[int, ...], tuple[list[list[CellInterval]], list[tuple[CellInterval, ...]]]] = {}
        self._left = [MOST_TESTS + _FREE * dimension.size for dimension in dimensions]

    def boxes(self, box: Box) -> list[tuple[CellInterval, ...]]:
        """The boxes of cells that hold a box of values."""
        every = [self._intervals(at, box) for at in range(len(self._dimensions))]
        if all(len(some) == 1 for some in every):  # the commonest
            return [tuple([some[0] for some in every])]
        key = tuple(map(id, every))
        if key not in self._made:
            self._made[key] = every, list(product(*fewer(every, self._most)))  # holds the lists, as below
        return self._made[key][1]

    def _intervals(self, at: int, box: Box) -> list[CellInterval]:
        dimension = self._dimensions[at]
        values = box.sets.get(dimension.name)
        if values is None:
            return self._whole[at]
        alone = not box.residuals  # else the intervals depend on more than the values
        known = self._known[at].get(id(values)) if alone else None
        if known is None:
            known = values, self._found(at, dimension, values, box)
            if alone:
                self._known[at][id(values)] = known  # holds the values, so that their id stays theirs
        return known[1]

    def _found(self, at: int, dimension: GridDimension, values: ValueSet, box: Box) -> list[CellInterval]:
        if isinstance(dimension, Categories):
            tests = dimension.tests(values, box.residuals)
            if tests > self._left[at]:
                return dimension.around(values)
            self._left[at] -= tests
        return dimension.intervals(values, box.residuals)


def fewer(every: Sequence[list[CellInterval]], most: int) -> list[list[CellInterval]]:
    """Intervals in each dimension with the smallest gaps closed, until their product is at most `most`, or one.

    Cost: O(n log n).

    >>> fewer([[(0, 1), (3, 4), (9, 9)], [(5, 5)]], 2)
    [[(0, 4), (9, 9)], [(5, 5)]]
    """
    counts = [len(some) for some in every]
    boxes = math.prod(counts)
    if boxes <= max(most, 1):
        return list(every)
    gaps = sorted(
        (after[0] - before[1], at, place)
        for at, some in enumerate(every)
        for place, (before, after) in enumerate(pairwise(some))
    )
    closed: list[set[int]] = [set() for _ in every]
    for _, at, place in gaps:  # closing a gap changes no other
        closed[at].add(place)
        boxes = boxes // counts[at] * (counts[at] - 1)
        counts[at] -= 1
        if boxes <= max(most, 1):
            break
    return [_without_gaps(some, places) for some, places in zip(every, closed, strict=True)]


def _without_gaps(some: list[CellInterval], closed: set[int]) -> list[CellInterval]:
    """Intervals with the gaps after some places closed."""
    found = some[:1]
    for place, (first, last) in enumerate(some[1:]):
        if place in closed:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found
