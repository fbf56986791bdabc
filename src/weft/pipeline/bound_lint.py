"""Lint of subscriptions that are bounds. The counts are those of `lint_counts` over the same filters as texts.

Bounds of the same attributes have the same mistakes, so that few of them become texts: the first of each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from weft.algebra.form_hashes import Hashes, forms_of
from weft.algebra.normalize import simplify
from weft.algebra.to_filter import to_filter
from weft.kernels.arrays import Ints
from weft.kernels.boxes import BOUNDED
from weft.lint import SeenAttributes
from weft.lint.lint_counts import EXAMPLES, LintCounts, LintedId, Tally, lint_counts
from weft.model.schema import Schema
from weft.pipeline.boxes import Boxes


def box_text(boxes: Boxes, owner: int, schema: Schema | None) -> str:
    """The filter of a subscription as text."""
    first, last = boxes.columns.owners.searchsorted((owner, owner + 1))
    return str(to_filter(simplify((boxes.columns.box(row) for row in range(first, last)), schema)))


def lint_bounds(boxes: Boxes, refused: int, seen: SeenAttributes, schema: Schema | None) -> LintCounts:
    """Count the mistakes of bounds. Cost: O(rows) for each column, and one text for each set of attributes."""
    counts = LintCounts(filters=len(boxes) + refused)
    examples: dict[object, list[tuple[int, LintedId, str]]] = {}
    for alike in _alike(boxes):
        first = alike[:EXAMPLES].tolist()
        ids: list[LintedId] = boxes.ids.take(first).to_pylist()
        texts = [box_text(boxes, owner, schema) for owner in first]
        found = lint_counts(ids, texts, seen, schema, most=EXAMPLES, duplicates=False)
        counts.dead += len(alike) if found.dead else 0
        for kind in found.kinds:
            counts.kinds[kind] += len(alike)
        for key in found.tallies:
            counts.tallies.setdefault(key, Tally()).count += len(alike)
            examples.setdefault(key, []).extend(zip(first, ids, texts, strict=True))
    for key, tally in counts.tallies.items():
        rows = sorted(examples[key])[:EXAMPLES]
        tally.ids, tally.texts = [its for _, its, _ in rows], [text for _, _, text in rows]
    owners, counts.hashes = forms_of(boxes.columns)
    counts.owners = _Owners(boxes, owners, counts.hashes, schema)
    return counts


def _alike(boxes: Boxes) -> list[Ints]:
    """Subscriptions with the same mistakes, by their first: those that bound the same attributes."""
    columns = boxes.columns
    many = np.bincount(columns.owners, minlength=len(boxes))
    single = many == 1
    if columns.odd:
        single[columns.owners[list(columns.odd)]] = False
    bounded = [np.flatnonzero(column.marks & BOUNDED) for column in columns.columns.values()]
    codes = np.zeros((len(boxes), len(bounded) + 1), bool)
    for place, rows in enumerate(bounded):
        codes[columns.owners[rows], place] = True
    codes[many == 0, -1] = True  # nothing matches them
    plain = np.flatnonzero(single | (many == 0))
    found: list[Ints] = []
    if len(plain):
        _, which = np.unique(np.packbits(codes[plain], axis=1), axis=0, return_inverse=True)
        order = np.argsort(which.reshape(-1), kind="stable")
        ends = np.flatnonzero(np.diff(which.reshape(-1)[order])) + 1
        found = np.split(plain[order], ends)
    others = np.flatnonzero(~single & (many > 0))
    return sorted([*found, *others.reshape(-1, 1)], key=lambda alike: int(alike[0]))


class _Owners(Sequence[tuple[LintedId, str]]):
    """The ids and texts of forms, made when they are needed; equal forms have one text."""

    def __init__(self, boxes: Boxes, owners: Ints, hashes: Hashes, schema: Schema | None) -> None:
        self._boxes, self._owners, self._hashes, self._schema = boxes, owners, hashes, schema
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    @overload
    def __getitem__(self, at: int) -> tuple[LintedId, str]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[LintedId, str]]: ...
    def __getitem__(self, at: int | slice) -> tuple[LintedId, str] | list[tuple[LintedId, str]]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        owner, form = int(self._owners[at]), int(self._hashes[at])
        if form not in self._texts:
            self._texts[form] = box_text(self._boxes, owner, self._schema)
        return self._boxes.ids[owner].as_py(), self._texts[form]
