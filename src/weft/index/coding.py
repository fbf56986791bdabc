"""Boxes to rows of code ranges. An event is in a box if and only if its codes are in all ranges of one of the box's
rows and, for a row that requires it, the box itself has the event.

What no range expresses is left to the box (see `alternatives`): such rows are checked with it at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns, Column, ColumnPart
from weft.algebra.interval import NUMBERS, STRINGS, Cut
from weft.algebra.residual import Outcomes, Subject
from weft.algebra.valueset import ValueSet
from weft.index.alternatives import MOST_TESTS, Alternative, Tests, alternatives, fits, room
from weft.index.axis import Axis, outcomes
from weft.index.box_codec import encode_boxes
from weft.index.dimension import FALSE, FIRST_NUMBER, CodeDimension, CodeRange, Codes, distinct, unique_cuts
from weft.index.pieces import Need, Pieces
from weft.index.rows import Checked, FilterRows, by_slot
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN

MOST_SUBJECTS = 64  # axes of residuals; the rarer ones are left to the boxes

_FEW = 64  # cuts, for which arrays are not worth it

Choice = tuple[int, CodeRange]  # a dimension and a range of its codes


def rows_of_columns(columns: BoxColumns, subs: NDArray[np.int64]) -> FilterRows:
    """The rows of boxes whose owner o is the subscription subs[o]."""
    boxes_each = np.bincount(columns.owners, minlength=len(subs))
    columns = _without_wide(columns, boxes_each)
    subjects = _common_subjects(columns.odd.values())
    holders = columns.owners[list(columns.odd)] if columns.odd else columns.owners[:0]
    each, firsts = boxes_each[holders].tolist(), columns.owners.searchsorted(holders).tolist()
    odd = {
        row: list(alternatives(box, subjects, many)) for (row, box), many in zip(columns.odd.items(), each, strict=True)
    }
    cuts = _Cuts()
    for part in (part for parts in odd.values() for part in parts):
        cuts.take(part.tests)
    axes, dimensions, spans = _dimensions(columns, cuts)
    gather = _Gathered()
    plain = np.ones(len(columns), bool)
    plain[list(odd)] = False
    gather.take_columns(spans, columns.owners, plain)
    for (row, parts), owner, first in zip(odd.items(), holders.tolist(), firsts, strict=True):
        asked = Checked(columns.odd[row], row - first)
        for chosen, needs, check in rows_of_box(parts, axes, dimensions):
            gather.take_row(chosen, needs, owner, asked if check else None)
    split = {int(columns.owners[row]) for row, parts in odd.items() if len(parts) > 1}
    shared = frozenset(np.flatnonzero(boxes_each > 1).tolist()) | split
    sources = _sources(columns)
    return replace(gather.rows(axes, dimensions, subs, shared), sources=sources)


def rows_of_box(
    parts: Iterable[Alternative], axes: dict[Axis, int], dimensions: Sequence[CodeDimension]
) -> Iterator[tuple[list[Choice], frozenset[Need], bool]]:
    """The rows of a box: their ranges and needs, and whether the box itself is evaluated.

    Raises ValueError for a cut that is in no axis. An axis that no row tests may be missing.
    """
    for tests, wide, needs, check in parts:
        ranges = [
            _ranges(axis, axes[axis], dimensions, values, axis in wide)
            for axis, values in tests.items()
            if axis in axes or not _admits_all(values)
        ]
        for chosen in product(*ranges):
            yield [(dim, each) for dim, each in chosen if each != (0, dimensions[dim].size - 1)], needs, check


def _without_wide(columns: BoxColumns, boxes_each: NDArray[np.int64]) -> BoxColumns:
    """The columns without the rows of too many tests, which become boxes beside them."""
    if len(columns.columns) <= min(MOST_TESTS, room(int(boxes_each.max(initial=1)))):
        return columns
    tests = np.zeros(len(columns), np.int64)
    for column in columns.columns.values():
        tests += column.marks >= BOUNDED
    each = boxes_each[columns.owners]
    many = [row for row in np.flatnonzero(tests > 1).tolist() if not fits(int(tests[row]), int(each[row]))]
    if not many:
        return columns
    odd = dict(sorted((columns.odd | {row: columns.box(row) for row in many}).items()))
    kept: dict[Any, Column] = {}
    for key, column in columns.columns.items():
        marks = column.marks.copy()
        marks[many] = 0
        if (marks >= BOUNDED).any():
            kept[key] = Column(column.low, column.high, marks)
    return replace(columns, columns=kept, odd=odd)


def _sources(columns: BoxColumns) -> dict[int, bytes]:
    """The boxes, as bytes, of the owners whose ranges do not tell them."""
    owners = sorted({int(columns.owners[row]) for row in columns.odd})
    firsts, lasts = (columns.owners.searchsorted(owners, side) for side in ("left", "right"))
    return {
        owner: encode_boxes(columns.box(row) for row in range(first, last))
        for owner, first, last in zip(owners, firsts.tolist(), lasts.tolist(), strict=True)
    }


def _common_subjects(boxes: Iterable[Box]) -> frozenset[Subject]:
    counted = Counter(subject for box in boxes for subject in box.residuals)
    return frozenset(subject for subject, _ in counted.most_common(MOST_SUBJECTS))


# -- dimensions --------------------------------------------------------------------------------------


class _Cuts:
    """The cuts that tests make on each axis."""

    def __init__(self) -> None:
        self.numbers: dict[Axis, set[Cut]] = {}
        self.moments: dict[Axis, set[int]] = {}
        self.strings: dict[Axis, set[Cut]] = {}
        self.subjects: dict[Axis, None] = {}

    def take(self, tests: Tests) -> None:
        for axis, values in tests.items():
            if not isinstance(values, ValueSet):
                self.subjects[axis] = None
                continue
            self.numbers.setdefault(axis, set()).update([cut for cut in values.numbers if cut != NUMBERS[0]])
            if values.timestamps:
                moments = [cut[0] for cut in values.timestamps if cut != NUMBERS[0]]
                self.moments.setdefault(axis, set()).update(moments)
            if line := values.strings.line:
                self.strings.setdefault(axis, set()).update([cut for cut in line if cut != STRINGS[0]])


Spans = list[tuple[int, NDArray[np.int64], Codes, Codes]]  # dimension, rows, lows and highs


def _dimensions(columns: BoxColumns, cuts: _Cuts) -> tuple[dict[Axis, int], list[CodeDimension], Spans]:
    """The axes, their dimensions, and the columns as code ranges in them."""
    by_name: dict[str, list[ColumnPart]] = {}
    for name, part in columns.columns:
        by_name.setdefault(name, []).append(part)
    axes: dict[Axis, int] = {}
    dimensions: list[CodeDimension] = []
    spans: Spans = []
    texts = columns.texts()
    for axis in dict.fromkeys([*map(Axis, by_name), *cuts.numbers]):
        numbers, moments = cuts.numbers.get(axis, set()), cuts.moments.get(axis, set())
        strings = set(cuts.strings.get(axis, ()))
        parts = by_name.get(axis.name, []) if axis.is_plain else []
        if not parts and len(numbers) + len(moments) + len(strings) < _FEW:
            axes[axis] = len(dimensions)
            dimensions.append(CodeDimension.of(sorted(numbers), sorted(moments), sorted(strings)))
            continue
        held = {part: columns.columns[axis.name, part] for part in parts}
        ends: list[tuple[NDArray[np.float64], NDArray[np.uint8]]] = []
        stamps = [np.array(sorted(moments), np.int64)]
        if ColumnPart.NUMBERS in held:
            column = held[ColumnPart.NUMBERS]
            bounded = column.marks >= BOUNDED
            low, high = bounded & (column.low > -np.inf), bounded & (column.high < np.inf)
            ends.append((column.low[low], (column.marks[low] & LOW_OPEN).astype(np.uint8)))
            ends.append((column.high[high], (column.marks[high] & HIGH_OPEN == 0).astype(np.uint8)))
        if ColumnPart.TIMESTAMPS in held:
            column = held[ColumnPart.TIMESTAMPS]
            stamps.append(column.low[np.isfinite(column.low)].astype(np.int64))
            stamps.append(column.high[np.isfinite(column.high)].astype(np.int64) + 1)
        if ColumnPart.STRINGS in held:
            used = np.unique(held[ColumnPart.STRINGS].low[np.isfinite(held[ColumnPart.STRINGS].low)]).astype(np.int64)
            strings |= {(texts[number], side) for number in used.tolist() for side in (0, 1)} - {STRINGS[0]}
        moments_of_all = distinct(np.concatenate(stamps))
        if any(float(value) != value for value, _ in numbers):
            exact = numbers | {
                (v, int(s)) for values, sides in ends for v, s in zip(values.tolist(), sides.tolist(), strict=True)
            }
            dimension = CodeDimension.of(sorted(exact), moments_of_all.tolist(), sorted(strings))
        else:
            ends.append((np.array([c[0] for c in numbers], np.float64), np.array([c[1] for c in numbers], np.uint8)))
            values, sides = np.concatenate([e[0] for e in ends]), np.concatenate([e[1] for e in ends])
            dimension = CodeDimension(*unique_cuts(values, sides), moments_of_all, sorted(strings))
        axes[axis] = len(dimensions)
        dimensions.append(dimension)
        for part, column in held.items():
            rows = np.flatnonzero(column.marks >= BOUNDED)
            kept = Column(column.low[rows], column.high[rows], column.marks[rows])
            spans.append((axes[axis], rows, *_span_codes(part, dimension, kept, texts)))
    for axis in cuts.subjects:
        axes[axis] = len(dimensions)
        dimensions.append(CodeDimension.of([], [], []))  # it has codes enough for the outcomes
    return axes, dimensions, spans


def _span_codes(part: ColumnPart, dimension: CodeDimension, column: Column, texts: list[str]) -> tuple[Codes, Codes]:
    """The low and high codes of a column's intervals."""
    low, high, marks = column.low, column.high, column.marks
    lows: NDArray[Any]
    highs: NDArray[Any]
    match part:
        case ColumnPart.NUMBERS:
            first, last = FIRST_NUMBER, dimension.first_moment - 1
            codes = np.zeros((len(low), 2), np.int32)  # of the ends as values; an open end is one cell further in
            dimension.write_numbers(low, codes, 0)
            dimension.write_numbers(high, codes, 1)
            lows = codes[:, 0] + (marks & LOW_OPEN != 0)
            highs = codes[:, 1] - (marks & HIGH_OPEN != 0)
            lows, highs = np.where(low == -np.inf, first, lows), np.where(high == np.inf, last, highs)
        case ColumnPart.TIMESTAMPS:
            first, last = dimension.first_moment, dimension.first_string - 1
            start = np.where(np.isfinite(low), low, 0).astype(np.int64)
            end = np.where(np.isfinite(high), high, 0).astype(np.int64) + 1
            lows = np.where(low == -np.inf, first, first + np.searchsorted(dimension.moments, start) + 1)
            highs = np.where(high == np.inf, last, first + np.searchsorted(dimension.moments, end))
        case ColumnPart.BOOLS:
            lows, highs = FALSE + low, FALSE + high
        case _:
            whole = low == -np.inf
            used, which = np.unique(np.where(whole, -1, low).astype(np.int64), return_inverse=True)
            point = np.array([-1 if n < 0 else dimension.place_of_string(texts[n]) for n in used.tolist()], np.int64)[
                which
            ]
            lows, highs = np.where(whole, dimension.first_string, point), np.where(whole, dimension.size - 1, point)
    return lows.astype(np.int32), highs.astype(np.int32)


def _ranges(
    axis: Axis, dim: int, dimensions: Sequence[CodeDimension], values: ValueSet | Outcomes, wide: bool
) -> list[Choice]:
    """The ranges of a test on its axis; a wide one has a single range around them."""
    if isinstance(values, ValueSet):
        dimension = dimensions[dim]
        return [(dim, dimension.hull(values))] if wide else [(dim, each) for each in dimension.ranges(values)]
    assert axis.subject is not None
    return [(dim, (place, place)) for place, outcome in enumerate(outcomes(axis.subject)) if outcome in values]


def _admits_all(values: ValueSet | Outcomes) -> bool:
    """Whether the range around a test is its whole axis, so that no row tests it."""
    if not isinstance(values, ValueSet):
        return False
    line = values.strings.line
    return values.absent and bool(line) and len(line) % 2 == 1


# -- gathering ---------------------------------------------------------------------------------------


class _Gathered:
    """Rows while they are gathered: those of columns first, then single ones."""

    def __init__(self) -> None:
        self.slots: NDArray[np.int64] = np.zeros(0, np.int64)
        self.parts: Spans = []
        self.single_slots: list[int] = []
        self.single: list[list[Choice]] = []
        self.single_needs: list[frozenset[Need]] = []
        self.boxes: dict[int, Checked] = {}

    def take_columns(self, spans: Spans, owners: NDArray[np.int64], plain: NDArray[np.bool_]) -> None:
        place = np.cumsum(plain) - 1  # a box's row, without the odd ones
        self.slots = owners[plain]
        self.parts = [(dim, place[rows], lows, highs) for dim, rows, lows, highs in spans]

    def take_row(self, chosen: list[Choice], needs: frozenset[Need], slot: int, asked: Checked | None) -> None:
        """A row of its own, checked with a box if there is one."""
        if asked is not None:
            self.boxes[len(self.slots) + len(self.single)] = asked
        self.single.append(chosen)
        self.single_needs.append(needs)
        self.single_slots.append(slot)

    def rows(
        self, axes: dict[Axis, int], dimensions: list[CodeDimension], subs: NDArray[np.int64], shared: frozenset[int]
    ) -> FilterRows:
        """All rows, their constraints side by side."""
        first, count = len(self.slots), len(self.slots) + len(self.single)
        counts = np.zeros(count + 1, np.int64)
        for _, rows, _, _ in self.parts:
            counts[rows + 1] += 1
        counts[first + 1 :] = [len(chosen) for chosen in self.single]
        starts = np.cumsum(counts)
        dims, lows, highs = (np.zeros(int(starts[-1]), np.int32) for _ in range(3))
        free = starts[:-1].copy()
        for dim, rows, low, high in self.parts:
            at = free[rows]
            dims[at], lows[at], highs[at] = dim, low, high
            free[rows] += 1
        if self.single:
            flat = [(dim, low, high) for chosen in self.single for dim, (low, high) in chosen]
            if flat:
                dims[starts[first] :], lows[starts[first] :], highs[starts[first] :] = np.array(flat, np.int32).T
        slots = np.concatenate([self.slots, np.array(self.single_slots, np.int64)]).astype(np.int32)
        firsts = np.arange(len(subs) + 1, dtype=np.int64)
        made = FilterRows(axes, dimensions, starts, dims, lows, highs, slots, firsts, subs, self.boxes, shared)
        return by_slot(self._with_needs(made) if any(self.single_needs) else made)

    def _with_needs(self, rows: FilterRows) -> FilterRows:
        """The rows with the pieces that they need, numbered in order."""
        pieces = Pieces(sorted({need.piece for needs in self.single_needs for need in needs}))
        numbers = pieces.numbers
        flat = [
            sorted(numbers[piece] if wanted else ~numbers[piece] for piece, wanted in needs)
            for needs in self.single_needs
        ]
        counts = np.concatenate([np.zeros(1 + len(self.slots), np.int64), np.array([len(each) for each in flat])])
        needs = np.array([need for each in flat for need in each], np.int32)
        return replace(rows, pieces=pieces, need_starts=np.cumsum(counts), needs=needs)
