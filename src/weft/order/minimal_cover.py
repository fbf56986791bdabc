"""The minimal cover of very many filters at once. Every filter that is left out is proven to be covered by one that is
kept. Among filters that are boxes, none is kept that another one covers.

Rows are partitioned by the axes that they bound: a box covers only rows that bound all of its own axes. Each part is
one tree of `kernels.dominance`, searched for each row in turn. A covered row is removed at once, so that nothing is
ever covered by a row removed earlier. Covering itself is transitive, so the chain of coverers ends in a row that is
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.algebra.box import NormalForm
from weft.algebra.columns import BoxColumns, ColumnKey
from weft.algebra.relate import covers
from weft.kernels import boxes as row_kernel
from weft.kernels import dominance as kernel
from weft.kernels.arrays import Floats, Ints
from weft.kernels.boxes import BOUNDED, HIGH_OPEN, LOW_OPEN, Marks
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation

Masks = NDArray[np.uint64]

NOTHING = -1  # in place of a coverer: the filter never matches
EVERY = np.uint64(0)  # the mask of a part whose rows may bound any axes

_OPEN = np.uint8(BOUNDED | LOW_OPEN | HIGH_OPEN)
_SURE, _ALL = np.uint64(1), np.uint64(0)  # stop at a row that needs no further check; never stop


@dataclass(frozen=True, slots=True)
class Cover:
    """For each filter, the one that stands for it: itself if it is kept, or NOTHING if it never matches.

    `unsure` is the number of filters with more candidates than were compared: a kept filter may be covered by another.
    """

    coverers: Ints
    unsure: int = 0

    @property
    def kept(self) -> Ints:
        """The filters that are kept, in order."""
        return np.flatnonzero(self.coverers == np.arange(len(self.coverers)))


def forms_of(columns: BoxColumns, filters: Ints, schema: Schema | None = None) -> list[NormalForm]:
    """The normal forms of these filters; one that never matches has no box."""
    starts = np.searchsorted(columns.owners, filters).tolist()
    ends = np.searchsorted(columns.owners, filters, "right").tolist()
    return [
        NormalForm(tuple(map(columns.box, range(start, end))), schema) for start, end in zip(starts, ends, strict=True)
    ]


def minimal_cover(  # noqa: PLR0913 - structural constants
    columns: BoxColumns,
    filters: int,
    schema: Schema | None = None,
    *,
    tries: int = 64,
    most_parts: int = 16_384,
    most_axes: int = 64,
    small: int = 8,
    leaf: int = 16,
) -> Cover:
    """The filters that together cover all, where `columns` holds the boxes of all filters; the first of equal filters
    is kept.

    A filter that is not a box is represented by its hull and compared with at most `tries` candidates. Cost: a few
    microseconds per box and part that may cover it; parts are few unless there are many attributes.

    >>> from weft.algebra.bulk import columns_of_texts
    >>> texts = ["x > 5", "x > 7 AND y = 1", "x > 1 AND x < 0", "x > 5", "x > 9 OR y > 2"]
    >>> minimal_cover(columns_of_texts(texts), len(texts)).coverers.tolist()
    [0, 0, -1, 0, 4]
    """
    reduction = _Reduction(_Rows.of(columns, filters, schema, most_axes), tries, small, leaf)
    for mask, members in _parts(reduction.rows, most_parts):
        reduction.reduce(mask, members)
    return Cover(_followed(reduction.coverers), len(reduction.unsure))


@dataclass(frozen=True, slots=True)
class _Rows:
    """One row per filter: a box, or the hull of a filter that is not one, with the axes that it bounds as bits."""

    columns: BoxColumns
    schema: Schema | None
    low: Floats
    high: Floats
    marks: Marks
    state: NDArray[np.uint8]
    masks: Masks

    @staticmethod
    def of(columns: BoxColumns, filters: int, schema: Schema | None, most_axes: int) -> _Rows:
        owners = columns.owners
        boxes = np.bincount(owners, minlength=filters)
        odd = np.union1d(owners[list(columns.odd)], np.flatnonzero(boxes > 1))
        relation = FilterRelation(schema, numbers=columns.strings)  # type: ignore[arg-type]  # an int is a float
        made = dict(zip(odd.tolist(), map(relation.make, forms_of(columns, odd, schema)), strict=True))
        bounded = {key: column.marks & BOUNDED > 0 for key, column in columns.columns.items()}
        used = Counter({key: int(rows.sum()) for key, rows in bounded.items()})
        used.update(axis for each in made.values() for axis, *_ in each.spans)
        axes: dict[ColumnKey, int] = {key: at for at, (key, _) in enumerate(used.most_common(most_axes))}
        low, high = np.full((filters, len(axes)), -np.inf), np.full((filters, len(axes)), np.inf)
        marks = np.zeros((filters, len(axes)), np.uint8)
        state = np.where(boxes > 0, np.uint8(kernel.EXACT), np.uint8(kernel.DEAD))
        for key, column in columns.columns.items():
            if key in axes:
                at = axes[key]
                low[owners, at], high[owners, at], marks[owners, at] = column.low, column.high, column.marks
            else:
                state[owners[bounded[key]]] = kernel.HULL  # ignoring an axis makes the row larger than the filter
        for each, boxed in made.items():
            low[each], high[each], marks[each], state[each] = -np.inf, np.inf, 0, kernel.HULL
            for axis, start, end, mark in boxed.spans:
                if axis in axes:
                    low[each, axes[axis]], high[each, axes[axis]], marks[each, axes[axis]] = start, end, mark
        bits = np.uint64(1) << np.arange(len(axes), dtype=np.uint64)
        masks = np.where(marks & BOUNDED, bits, np.uint64(0)).sum(axis=1, dtype=np.uint64)
        return _Rows(columns, schema, low, high, marks, state, masks)

    def form(self, row: int) -> NormalForm:
        return forms_of(self.columns, np.array([row]), self.schema)[0]


def _parts(rows: _Rows, most: int) -> Iterator[tuple[np.uint64, Ints]]:
    """Rows that bound the same axes, with the mask of those; beyond `most` parts, the smallest ones are combined."""
    alive = np.flatnonzero(rows.state != kernel.DEAD)
    masks, part, counts = np.unique(rows.masks[alive], return_inverse=True, return_counts=True)
    order = np.argsort(part, kind="stable")
    members = np.split(alive[order], np.cumsum(counts)[:-1]) if len(alive) else []
    if len(members) > most:
        smallest = np.argsort(counts, kind="stable")[: len(members) - most + 1].tolist()
        yield EVERY, np.sort(np.concatenate([members[at] for at in smallest]))
        gone = set(smallest)
        masks, members = (
            masks[[at not in gone for at in range(len(members))]],
            [some for at, some in enumerate(members) if at not in gone],
        )
    yield from zip(masks, members, strict=True)


class _Reduction:
    """Rows that are removed one by one, each with the row that covers it."""

    def __init__(self, rows: _Rows, tries: int, small: int, leaf: int) -> None:
        self.rows = rows
        self.coverers = np.arange(len(rows.state))
        self.coverers[rows.state == kernel.DEAD] = NOTHING
        self.unsure: set[int] = set()
        self._tries, self._small, self._leaf = tries, small, leaf
        self._forms: dict[int, NormalForm] = {}

    def reduce(self, mask: np.uint64, members: Ints) -> None:
        """Remove every row that one of these rows covers; the rows of a mask bound exactly its axes."""
        rows = self.rows
        members = members[rows.state[members] != kernel.DEAD]
        asked = np.flatnonzero((rows.masks & mask == mask) & (rows.state != kernel.DEAD))
        if not len(members) or len(asked) < 2:
            return
        shared = np.bitwise_or.reduce(rows.masks[members])
        axes = np.array([at for at in range(rows.low.shape[1]) if int(shared) >> at & 1], np.int64)
        if len(members) > self._small or (rows.state[members] == kernel.HULL).any():
            self._search(members, asked, axes)
            return
        for wide in members.tolist():
            if rows.state[wide] != kernel.DEAD:
                self._spread(wide, asked, axes)

    def _spread(self, wide: int, asked: Ints, axes: Ints) -> None:
        """Remove all rows that one box covers; hulls are compared individually."""
        rows = self.rows
        inside = asked[(rows.state[asked] != kernel.DEAD) & (asked != wide)]
        for at in axes.tolist():
            if not rows.marks[wide, at] & BOUNDED:
                continue
            span = float(rows.low[wide, at]), float(rows.high[wide, at]), int(rows.marks[wide, at])
            hulls = rows.state[inside] == kernel.HULL  # whose ends may be open although the filter's are not
            marks = np.where(hulls & (rows.marks[inside, at] > 0), _OPEN, rows.marks[inside, at])
            inside = inside[row_kernel.within(rows.low[inside, at], rows.high[inside, at], marks, *span)]
        for row in inside.tolist():
            if rows.state[row] == kernel.EXACT or self._proven(wide, row):
                self._die(row, wide)

    def _search(self, members: Ints, asked: Ints, axes: Ints) -> None:
        """Search each row in a tree of the members, the last row first, so that the first of equal rows is kept."""
        rows, leaf = self.rows, self._leaf
        size = len(members)
        here = np.ix_(members, axes)
        low, high = (np.ascontiguousarray(side[here]) for side in (rows.low, rows.high))
        marks = np.ascontiguousarray(rows.marks[here])
        state = rows.state[members]
        sure = (state == kernel.EXACT).astype(np.uint64)
        tags = sure.copy()
        tree = kernel.tree_over(low, high, marks, state, tags, leaf)
        runs, out = np.array([0, size, size]), np.empty(size, np.int64)
        places = np.full(len(rows.state), -1)
        places[members] = np.arange(size)
        lows, highs, marked = (
            np.ascontiguousarray(side[np.ix_(asked, axes)]) for side in (rows.low, rows.high, rows.marks)
        )
        for number in range(len(asked) - 1, -1, -1):
            row = int(asked[number])
            place = int(places[row])
            if rows.state[row] == kernel.DEAD:
                continue
            exact = bool(rows.state[row] == kernel.EXACT)
            if place >= 0:
                tags[place] = 0
            box = lows[number], highs[number], marked[number]
            tag = _SURE if exact else _ALL
            found, _, stopped = kernel.search(*tree, *box, runs, leaf, kernel.AROUND, exact, tag, False, out)
            if place >= 0:
                tags[place] = sure[place]
            wide = int(members[out[found - 1]]) if stopped else self._first(members[out[:found]], row)
            if wide >= 0:
                self._die(row, wide)
                if place >= 0:
                    state[place] = kernel.DEAD

    def _first(self, candidates: Ints, row: int) -> int:
        """The first candidate that is proven to cover a row; -1 if there is none."""
        others = [wide for wide in candidates.tolist() if wide != row]
        if len(others) > self._tries:
            self.unsure.add(row)
        return next((wide for wide in others[: self._tries] if self._proven(wide, row)), -1)

    def _proven(self, wide: int, narrow: int) -> bool:
        return covers(self._form(wide), self._form(narrow), self.rows.schema)

    def _form(self, row: int) -> NormalForm:
        form = self._forms.get(row)
        if form is None:
            form = self._forms[row] = self.rows.form(row)
        return form

    def _die(self, row: int, wide: int) -> None:
        self.coverers[row] = wide
        self.rows.state[row] = kernel.DEAD
        self.unsure.discard(row)


def _followed(coverers: Ints) -> Ints:
    """The filter at the end of each chain of coverers."""
    while True:
        further = np.where(coverers >= 0, coverers[coverers], coverers)
        if np.array_equal(further, coverers):
            return coverers
        coverers = further
