"""The counting index: the classic algorithm, for comparison. It answers as `base` says.

Equality tables and sorted bounds for each dimension, and a counter for each row: a row whose counter reaches the number
of its constraints matches. Built anew at the first match after a change: it is for sets that rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.algebra.box import Box
from weft.algebra.normalize import normalize
from weft.index.base import Ids
from weft.index.coding import rows_of_columns
from weft.index.filter_columns import columns_of_filters
from weft.index.plain_index import PlainIndex
from weft.index.rows import FilterRows
from weft.index.weight import check_weight
from weft.kernels.counting import Tables, count_event
from weft.language.ast import Filter


class _Built(NamedTuple):
    rows: FilterRows
    tables: Tables
    counter: Any
    out: Any


class CountingIndex(PlainIndex[tuple[Box, ...]]):
    """The counting algorithm over the same rows as the tree's.

    >>> index = CountingIndex()
    >>> index.add(1, "x > 5 AND y = 'a'")
    >>> index.match({"x": 7, "y": "a"}).tolist()
    [1]
    """

    _built: _Built | None = None

    def hold(self, filter: Filter) -> tuple[Box, ...]:
        """Its boxes. Raises FilterTooComplexError if they are too large."""
        boxes = normalize(filter, self.schema).boxes
        check_weight(boxes)
        return boxes

    def changed(self) -> None:
        """The tables are old."""
        self._built = None

    def names(self) -> set[str]:
        """The attributes that any filter looks at."""
        return {name for boxes in self.held.values() for box in boxes for name in box.names}

    def find(self, values: Mapping[str, Any]) -> Ids:
        """The subscriptions that an event with these attributes matches. Cost: O(n), with a small constant."""
        built = self._built = self._built or self._build()
        held = built.rows
        found = count_event(built.tables, held.encode_one(values)[0], built.counter, built.out)
        pieces = set(held.pieces.find_one(values).numbers.tolist()) if len(held.pieces) else set()
        rows = [
            row
            for row in built.out[:found].tolist()
            if all((need in pieces) if need >= 0 else (~need not in pieces) for need in held.needs_of(row))
            and (row not in held.boxes or held.boxes[row].box.admits(values))
        ]
        return held.subs[np.unique(held.slots[rows])] if rows else np.zeros(0, np.int64)

    def _build(self) -> _Built:
        rows = rows_of_columns(columns_of_filters(self.held.values()), np.fromiter(self.held, np.int64))
        of_row = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.starts))
        tables: list[Any] = []
        table_starts, starts = [], [0]
        low_rows, low_codes, high_rows, high_codes = [], [], [], []
        sizes = [dimension.size for dimension in rows.dimensions] or [1]
        free = sum(sizes) + len(sizes)  # offsets of all tables come first, then their rows
        offsets: list[Any] = []
        place = 0
        for dim, size in enumerate(sizes):
            here = rows.dims == dim
            equal = here & (rows.lows == rows.highs)
            ranged = here & ~equal
            order = np.argsort(rows.lows[equal], kind="stable")
            counts = np.bincount(rows.lows[equal], minlength=size)
            offsets.append(free + np.concatenate([[0], np.cumsum(counts)]))
            tables.append(of_row[equal][order])
            free += int(equal.sum())
            table_starts.append(place)
            place += size + 1
            by_low, by_high = (
                np.argsort(rows.lows[ranged], kind="stable"),
                np.argsort(rows.highs[ranged], kind="stable"),
            )
            low_rows.append(of_row[ranged][by_low])
            low_codes.append(rows.lows[ranged][by_low])
            high_rows.append(of_row[ranged][by_high])
            high_codes.append(rows.highs[ranged][by_high])
            starts.append(starts[-1] + int(ranged.sum()))
        made = Tables(
            needed=np.diff(rows.starts).astype(np.int32),
            tables=np.concatenate([*offsets, *tables]).astype(np.int64),
            table_starts=np.array(table_starts, np.int64),
            low_rows=np.concatenate(low_rows).astype(np.int32),
            low_codes=np.concatenate(low_codes).astype(np.int32),
            high_rows=np.concatenate(high_rows).astype(np.int32),
            high_codes=np.concatenate(high_codes).astype(np.int32),
            starts=np.array(starts, np.int64),
        )
        return _Built(rows, made, np.zeros(len(rows), np.int32), np.empty(len(rows), np.int32))
