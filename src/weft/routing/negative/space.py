"""Filters as rows of integer labels, computed once for the spaces of all neighbours.

Boxes as rows of integer labels, one axis per attribute. `spans` are exactly the box. `hull` is all of it and
possibly more. On every axis, rows have the order of the values.

An attribute becomes an axis when a box first restricts it. On all other attributes a box is everything, including
absence.

Results about one filter that the spaces of all neighbours share. The answer is the one that each space would compute
by itself.

Only the newest filter is remembered: neighbours get the same filter one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.algebra import interval
from weft.algebra.box import Box, NormalForm
from weft.algebra.budget import Budget
from weft.algebra.relate import covers
from weft.algebra.strings import Strings
from weft.algebra.valueset import ValueSet
from weft.model.limits import LIMITS
from weft.model.schema import Schema
from weft.routing.negative.cuts import REACH, CutInterval, CutLine, intervals_at_least, intervals_at_most

Labels = NDArray[np.int64]
TileRows = tuple[Labels, Labels]  # boxes: low and high, int64[boxes, axes]
TileSpans = dict[str, CutInterval]  # a product of intervals; a missing attribute is unrestricted

MOST_AXES, MOST_ROWS = 32, 128
_COARSE = 16  # rows around a box that is not exactly rows


class LabelAxes:
    """The axes of one space. There are at most `most_axes`; a filter should have at most `most_rows` rows.

    >>> axes = LabelAxes()
    >>> box = Box({"x": ValueSet(numbers=((0, 0), (5, 0), (7, 0), (9, 0)))})
    >>> axes.widen(box.sets)
    >>> low, high = axes.rows(axes.spans(box))
    >>> low.shape, bool(high[0] < low[1])
    ((2, 1), True)
    """

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        most_axes: int = MOST_AXES,
        most_rows: int = MOST_ROWS,
        reach: int = REACH,
    ) -> None:
        self.schema = schema
        self.most_rows = most_rows
        self._most_axes, self._reach = most_axes, reach
        self._relabelled: list[Callable[[int, Labels, Labels], None]] = []
        self._widened: list[Callable[[], None]] = []
        self._lines: dict[str, CutLine] = {}
        self._lowest, self._highest = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64)
        self._latest: tuple[Sequence[TileSpans], TileRows] | None = None  # valid until labels or axes change

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def ends(self, axis: int) -> tuple[int, int]:
        """The lowest and the highest label of an axis."""
        return int(self._lowest[0, axis]), int(self._highest[0, axis])

    # -- boxes as products of intervals -----------------------------------------------------------

    def widen(self, names: Iterable[str]) -> None:
        """Make axes of attributes, as long as there is room."""
        for name in names:
            if len(self._lines) >= self._most_axes:
                return
            self._line(name)

    def known(self, names: Iterable[str]) -> frozenset[str]:
        """The attributes that are axes."""
        return frozenset(name for name in names if name in self._lines)

    def spans(self, box: Box, *, most: int = MOST_ROWS) -> list[TileSpans] | None:
        """The box as disjoint products of intervals; None if it has patterns or residuals, or attributes that are not
        axes, or more than `most` products.
        """
        if box.residuals or not all(name in self._lines for name in box.sets):
            return None
        if any(values.strings.terms for values in box.sets.values()):
            return None
        if math.prod(map(intervals_at_least, box.sets.values())) > most:
            return None  # a long list is not even listed
        sides = self._sides(box.sets)
        if math.prod(map(len, sides.values())) > most:
            return None
        return _products(sides)

    def hull(self, box: Box, *, most: int = MOST_ROWS) -> list[TileSpans]:
        """At least one and at most `most` products of intervals around the box, ignoring residuals and patterns; few,
        because they are more than the box anyway.
        """
        most = min(most, _COARSE)
        sides = self._sides({name: _without_patterns(values) for name, values in box.sets.items()}, most)
        rows = math.prod(map(len, sides.values()))
        for name in sorted(sides, key=lambda name: len(sides[name]), reverse=True):
            if rows <= max(1, most):
                break
            rows //= len(sides[name])
            sides[name] = [(sides[name][0][0], sides[name][-1][1])]
        return _products(sides)

    def around(self, boxes: Sequence[Box]) -> TileSpans:
        """One product of intervals around all boxes, restricted where all of them are and where there is an axis."""
        first, *others = (box.sets for box in boxes)
        found: TileSpans = {}
        for name in first:
            line = self._lines.get(name)
            if line is not None and all(name in sets for sets in others):
                ends = [line.around(_without_patterns(sets[name])) for sets in (first, *others)]
                found[name] = min(low for low, _ in ends), max(high for _, high in ends)
        return found

    def _sides(self, sets: Mapping[str, ValueSet], most: float = math.inf) -> dict[str, list[CutInterval]]:
        """The intervals of each set whose attribute is an axis, or one around all of them if there are more than
        `most`.
        """
        sides: dict[str, list[CutInterval]] = {}
        for name, values in sets.items():
            line = self._lines.get(name)
            if line is not None:
                few = values if intervals_at_most(values) <= most else _hull_of_lines(values)
                found = line.intervals(few)
                assert found is not None, "there are no patterns"
                sides[name] = found
        return sides

    def _line(self, name: str) -> CutLine:
        line = self._lines.get(name)
        if line is None:
            declared = None if self.schema is None else self.schema.get(name)
            line = self._lines[name] = CutLine(declared, self._reach)
            self._lowest = np.append(self._lowest, [[line.lowest]], axis=1)
            self._highest = np.append(self._highest, [[line.highest]], axis=1)
            self._latest = None
            for tell in self._widened:
                tell()
        return line

    # -- products of intervals as rows ------------------------------------------------------------

    def rows(self, spans: Sequence[TileSpans]) -> TileRows:
        """Products of intervals as rows of labels. Cost: O(axes log cuts) per row; less for the same object again."""
        while self._latest is None or self._latest[0] is not spans:
            low, high = self.whole(len(spans))
            if self._write(low, high, spans):
                self._latest = spans, (low, high)
        low, high = self._latest[1]
        return low.copy(), high.copy()

    def _write(self, low: Labels, high: Labels, spans: Sequence[TileSpans]) -> bool:
        """Write the labels of all products; False if labels were spread meanwhile, so that they must be written again.

        Products share their intervals, so that each is looked up once.
        """
        axes = {
            name: (axis, line, dict[int, tuple[int, int]]()) for axis, (name, line) in enumerate(self._lines.items())
        }
        for row, each in enumerate(spans):
            for name, ends in each.items():
                axis, line, known = axes[name]
                labels = known.get(id(ends))
                if labels is None:
                    first, last = line.label(ends[0]), line.label(ends[1])
                    if first is None or last is None:
                        old, new = line.spread()
                        self._latest = None
                        for tell in self._relabelled:
                            tell(axis, old, new)
                        return False
                    labels = known[id(ends)] = first, last
                low[row, axis], high[row, axis] = labels
        return True

    def whole(self, size: int) -> TileRows:
        """Rows that contain everything."""
        return self._lowest.repeat(size, axis=0), self._highest.repeat(size, axis=0)

    def box(self, low: Labels, high: Labels) -> Box:
        """The box of a row."""
        sets = {}
        for axis, (name, line) in enumerate(self._lines.items()):
            if low[axis] > line.lowest or high[axis] < line.highest:
                sets[name] = line.values(line.cut(int(low[axis])), line.cut(int(high[axis])))
        return Box(sets)

    def follow(self, relabelled: Callable[[int, Labels, Labels], None], widened: Callable[[], None]) -> None:
        """Register callbacks for an axis whose labels changed, and for a new axis."""
        self._relabelled.append(relabelled)
        self._widened.append(widened)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert len(self._lines) <= self._most_axes
        for line in self._lines.values():
            line.check()


def relabel(labels: Labels, old: Labels, new: Labels) -> None:
    """Replace old labels with new ones (both in order) in an array; labels outside of them stay."""
    moved = (labels >= old[0]) & (labels <= old[-1])
    labels[moved] = new[np.searchsorted(old, labels[moved])]


def _products(sides: dict[str, list[CutInterval]]) -> list[TileSpans]:
    return [dict(zip(sides, each, strict=True)) for each in product(*sides.values())]


def _hull_of_lines(values: ValueSet) -> ValueSet:
    """The set with everything between the least and the greatest value of each type."""
    strings = Strings(interval.hull(values.strings.line))
    return replace(
        values, numbers=interval.hull(values.numbers), strings=strings, timestamps=interval.hull(values.timestamps)
    )


def _without_patterns(values: ValueSet) -> ValueSet:
    """The set with every string that a pattern may match."""
    if not values.strings.terms:
        return values
    lines = (term.line for term in values.strings.terms)
    return replace(values, strings=Strings(reduce(interval.union, lines, values.strings.line)))


_SHARE = 20  # one comparison gets this part of the steps of an operation


class FilterProducts(NamedTuple):
    """A filter as products of intervals around all of it; the first `exact` ones are parts of it."""

    around: list[TileSpans]
    exact: int
    whole: bool  # all are parts of it, so together they are the filter


class SharedFilters:
    """The products and comparisons of the newest filter.

    >>> from weft import normalize, parse
    >>> shared, wide, narrow = SharedFilters(), normalize(parse("x > 1")), normalize(parse("x > 2 OR x = 5 AND y = 1"))
    >>> shared.products(narrow, LabelAxes()).exact, shared.covers(wide, narrow)[0]
    (1, True)
    """

    def __init__(self) -> None:
        self._form: NormalForm | None = None
        self._products: dict[tuple[frozenset[str], int], FilterProducts] = {}  # by the axes that the filter has
        self._compared: dict[int, tuple[NormalForm, bool, int]] = {}

    def _renew(self, form: NormalForm) -> None:
        if form is not self._form:
            self._form, self._products, self._compared = form, {}, {}

    def products(self, form: NormalForm, axes: LabelAxes, *, widen: bool = True) -> FilterProducts:
        """A filter by the axes of a space. Its attributes become axes if they may `widen` the space."""
        self._renew(form)
        names = dict.fromkeys([name for box in form.boxes for name in box.sets])
        if widen:
            axes.widen(names)
        key = axes.known(names), axes.most_rows
        found = self._products.get(key)
        if found is None:
            found = self._products[key] = _filter_products(form, axes)
        return found

    def covers(self, other: NormalForm, form: NormalForm) -> tuple[bool, int]:
        """Whether another filter covers this one, and the steps that this took; False when they are used up."""
        self._renew(form)
        known = self._compared.get(id(other))
        if known is None:
            budget = Budget(LIMITS.steps // _SHARE)
            covered = covers(other, form, form.schema, budget)
            known = self._compared[id(other)] = other, covered, budget.used  # keeps `other`, so that its id stays its
        return known[1:]


def _filter_products(form: NormalForm, axes: LabelAxes) -> FilterProducts:
    """There are at most `most_rows` exact ones; beyond that, the remaining boxes get one around them together."""
    exact: list[TileSpans] = []
    others: list[TileSpans] = []
    for number, box in enumerate(form.boxes):
        most = axes.most_rows - len(exact) - len(others)
        if most < 1:
            others.append(axes.around(form.boxes[number:]))
            break
        parts = axes.spans(box, most=most)
        if parts is None:
            others += axes.hull(box, most=most)
        else:
            exact += parts
    return FilterProducts(exact + others, len(exact), not others)
