"""Boxes on their way between machines. Unpacking gives the boxes that were packed. The size is that of the intervals
that exist, however many attributes other boxes constrain.

Rows are side by side, each with its own intervals: `starts` into `which` (the number of the column), `low`, `high` and
`marks`. One value holds the boxes of thousands, so that Spark moves few large rows. It is pickled: both ends are one
program.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.algebra.box import Box
from weft.algebra.columns import BoxColumns, Column, ColumnKey, ColumnPart
from weft.algebra.sparse_column import SparseColumn
from weft.kernels.arrays import Floats, Ints
from weft.kernels.boxes import BOUNDED
from weft.pipeline.boxes import Boxes

_DENSE = 1 << 21  # cells of a table that is written out whole, however few are filled
_FILLED = 4  # a table of which a quarter is filled is written out as well


@dataclass(frozen=True, slots=True)
class PackedBoxes:
    """The boxes of some subscriptions, row by row; the owners of rows ascend.

    >>> from weft.pipeline.boxes import Reading
    >>> rows = pa.record_batch({"id": [7, 8], "filter": ["x > 5", "y = 'a' OR x < 1"]})
    >>> packed = PackedBoxes.of(Reading("id", "filter").read(rows)[0])
    >>> only = PackedBoxes.from_bytes(packed.of_owners(np.array([1])).to_bytes())
    >>> only.boxes().ids.to_pylist(), len(only.boxes().columns)
    ([8], 2)
    """

    ids: Any  # an Arrow array of integers or strings
    owners: Ints
    keys: tuple[ColumnKey, ...]
    starts: Ints
    which: Ints
    low: Floats
    high: Floats
    marks: NDArray[np.uint8]
    odd: dict[int, Box]
    texts: tuple[str, ...]  # the strings by their numbers in the columns

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def of(boxes: Boxes) -> PackedBoxes:
        """Packed boxes. Cost: O(rows) for each column."""
        columns = boxes.columns
        rows: list[Ints] = []
        parts: list[Column] = []
        for column in columns.columns.values():
            if isinstance(column, SparseColumn):
                rows.append(column.rows)
                parts.append(column.held)
                continue
            marks = column.marks
            rows.append(np.flatnonzero(marks >= BOUNDED))
            parts.append(Column(column.low[rows[-1]], column.high[rows[-1]], marks[rows[-1]]))
        where = _concatenated(rows, np.int64)
        order = np.argsort(where, kind="stable")
        which = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        return PackedBoxes(
            boxes.ids,
            columns.owners,
            tuple(columns.columns),
            np.append(0, np.cumsum(np.bincount(where, minlength=len(columns)))).astype(np.int64),
            which[order],
            _concatenated([part.low for part in parts], np.float64)[order],
            _concatenated([part.high for part in parts], np.float64)[order],
            _concatenated([part.marks for part in parts], np.uint8)[order],
            columns.odd,
            tuple(columns.texts()),
        )

    def of_owners(self, owners: Ints) -> PackedBoxes:
        """Those of some, in ascending order, with the columns and strings that they use. Cost: O(their size)."""
        first, last = (np.searchsorted(self.owners, owners, side) for side in ("left", "right"))
        rows = _ranges(first, last - first)
        cells = _ranges(self.starts[rows], self.starts[rows + 1] - self.starts[rows])
        used, which = np.unique(self.which[cells], return_inverse=True)
        keys = tuple(self.keys[key] for key in used.tolist())
        low, high = self.low[cells], self.high[cells]
        words = _words(keys)[which] & np.isfinite(low)
        numbers, renumbered = np.unique(low[words].astype(np.int64), return_inverse=True)
        low[words] = high[words] = renumbered
        odd = {}
        if self.odd:
            odd = {at: self.odd[row] for at, row in enumerate(rows.tolist()) if row in self.odd}
        return PackedBoxes(
            self.ids.take(pa.array(owners)),
            np.repeat(np.arange(len(owners)), last - first),
            keys,
            np.append(0, np.cumsum(self.starts[rows + 1] - self.starts[rows])),
            which.astype(np.int64),
            low,
            high,
            self.marks[cells],
            odd,
            tuple(self.texts[number] for number in numbers.tolist()),
        )

    @staticmethod
    def joined(parts: Iterable[PackedBoxes]) -> PackedBoxes:
        """The boxes of several, one after another; there is one at least. Cost: O(their size)."""
        some = list(parts)
        keys: dict[ColumnKey, int] = {}
        texts: dict[str, int] = {}
        which: list[Ints] = []
        ends: tuple[list[Floats], list[Floats]] = ([], [])
        odd: dict[int, Box] = {}
        rows = owners = 0
        holders: list[Ints] = []
        for part in some:
            renamed = np.array([keys.setdefault(key, len(keys)) for key in part.keys], np.int64)
            which.append(renamed[part.which])
            numbers = np.array([texts.setdefault(text, len(texts)) for text in part.texts], np.float64)
            words = _words(part.keys)[part.which] & np.isfinite(part.low) if part.texts else None
            for side, into in zip((part.low, part.high), ends, strict=True):
                moved = side
                if words is not None:
                    moved = side.copy()
                    moved[words] = numbers[side[words].astype(np.int64)]
                into.append(moved)
            odd |= {rows + row: box for row, box in part.odd.items()}
            holders.append(part.owners + owners)
            rows, owners = rows + len(part.owners), owners + len(part)
        counts = _concatenated([np.diff(part.starts) for part in some], np.int64)
        return PackedBoxes(
            pa.concat_arrays([part.ids for part in some]),
            _concatenated(holders, np.int64),
            tuple(keys),
            np.append(0, np.cumsum(counts)),
            _concatenated(which, np.int64),
            _concatenated(ends[0], np.float64),
            _concatenated(ends[1], np.float64),
            _concatenated([part.marks for part in some], np.uint8),
            odd,
            tuple(texts),
        )

    def boxes(self) -> Boxes:
        """The boxes as columns, which hold little more than the intervals if few rows have one in each."""
        size = len(self.owners)
        order = np.argsort(_small(self.which), kind="stable")  # quicker on few bytes
        rows = np.repeat(np.arange(size), np.diff(self.starts))[order]
        low, high, marks = self.low[order], self.high[order], self.marks[order]
        ends = np.searchsorted(self.which[order], np.arange(len(self.keys) + 1))
        cells = size * len(self.keys)
        sparse = cells > _DENSE and _FILLED * len(order) < cells
        columns: dict[ColumnKey, Column] = {}
        for number, key in enumerate(self.keys):
            mine = slice(ends[number], ends[number + 1])
            held = Column(low[mine], high[mine], marks[mine])
            if sparse:
                columns[key] = SparseColumn(size, rows[mine], held)
                continue
            column = columns[key] = Column.blank(size)
            column.low[rows[mine]], column.high[rows[mine]], column.marks[rows[mine]] = held.low, held.high, held.marks
        strings = {text: number for number, text in enumerate(self.texts)}
        return Boxes(self.ids, BoxColumns(columns, self.owners, dict(self.odd), strings))

    def to_bytes(self) -> bytes:
        """The value as it travels: every number in as few bytes as all of its kind need."""
        plain = len(self.owners) == len(self) and bool((self.owners == np.arange(len(self))).all())
        ids = self.ids.to_numpy() if pa.types.is_integer(self.ids.type) else self.ids
        owners = None if plain else _small(self.owners)
        counts, which = _small(np.diff(self.starts)), _small(self.which)
        high = None if (self.low == self.high).all() else self.high
        parts = (ids, owners, self.keys, counts, which, self.low, high, self.marks, self.odd, self.texts)
        return pickle.dumps(parts, protocol=5)

    @staticmethod
    def from_bytes(data: bytes) -> PackedBoxes:
        """The value that travelled."""
        ids, owners, keys, counts, which, low, high, marks, odd, texts = pickle.loads(data)
        return PackedBoxes(
            pa.array(ids) if isinstance(ids, np.ndarray) else ids,
            np.arange(len(ids)) if owners is None else owners.astype(np.int64),
            keys,
            np.append(0, np.cumsum(counts, dtype=np.int64)),
            which.astype(np.int64),
            low,
            low if high is None else high,
            marks,
            odd,
            texts,
        )


def _words(keys: tuple[ColumnKey, ...]) -> NDArray[np.bool_]:
    """Which columns hold numbers of strings."""
    return np.array([part is ColumnPart.STRINGS for _, part in keys], bool)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers of all ranges, one range after another."""
    before = np.cumsum(sizes) - sizes
    every: Ints = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
    return every


def _concatenated(parts: list[Any], kind: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def _small(numbers: Ints) -> NDArray[Any]:
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
