"""The placement of a filter among very many, so that similar filters are close. Equal placements give equal keys on
every machine; they affect only speed.

The attributes that most filters test become the dimensions of a curve, and each is divided into cells with about the
same number of filters of a sample. No schema is needed, because the filters show where they lie.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns, Column, ColumnKey, ColumnPart
from weft.kernels.arrays import Ints
from weft.kernels.boxes import BOUNDED
from weft.space.curve import Curve

_BITS = 8  # per dimension
_CELLS = (1 << _BITS) - 1  # without the cell of filters that do not test it


@dataclass(frozen=True, slots=True)
class Placement:
    """The axes that place filters, each with the cuts between its cells. Strings have no cuts; they are hashed.

    >>> from weft.algebra.bulk import columns_of_texts
    >>> columns = columns_of_texts([f"x BETWEEN {n} AND {n + 1}" for n in (50, 0, 51, 1)])
    >>> np.argsort(Placement.learnt(columns).keys(columns, 4)).tolist()
    [1, 3, 0, 2]
    """

    axes: tuple[tuple[ColumnKey, tuple[float, ...]], ...] = ()

    @staticmethod
    def learnt(sample: BoxColumns, dimensions: int = 3) -> Placement:
        """A placement by the attributes that most filters of a sample test."""
        used = Counter({key: int((column.marks >= BOUNDED).sum()) for key, column in sample.columns.items()})
        return Placement(tuple((key, _cuts(key, sample.columns[key])) for key, _ in used.most_common(dimensions)))

    def keys(self, columns: BoxColumns, filters: int, middle: bool = True) -> Ints:
        """The key of each filter, by the middle of its first box or by its lowest corner."""
        out = np.zeros(filters, np.int64)
        owners, rows = np.unique(columns.owners, return_index=True)
        if self.axes and len(owners):
            cells = np.zeros((len(owners), len(self.axes)), np.int64)
            for at, (key, cuts) in enumerate(self.axes):
                column = columns.columns.get(key)
                if column is not None:
                    cells[:, at] = _cells(key, cuts, _taken(column, rows), columns.texts(), middle)
            out[owners] = Curve(len(self.axes), _BITS).index(cells)
        return out


def _taken(column: Column, rows: NDArray[np.intp]) -> Column:
    return Column(column.low[rows], column.high[rows], column.marks[rows])


def _points(column: Column, middle: bool) -> NDArray[np.float64]:
    """One point of each interval; if one side is unbounded, the other end."""
    low = np.where(np.isfinite(column.low), column.low, column.high)
    high = np.where(np.isfinite(column.high), column.high, low)
    return np.nan_to_num(low / 2 + high / 2 if middle else low)


def _cuts(key: ColumnKey, column: Column) -> tuple[float, ...]:
    if key[1] is ColumnPart.STRINGS:
        return ()
    points = _points(column, middle=True)[column.marks >= BOUNDED]
    return tuple(np.unique(np.quantile(points, np.linspace(0, 1, _CELLS)[1:-1])).tolist()) if len(points) else ()


def _cells(key: ColumnKey, cuts: tuple[float, ...], column: Column, texts: list[str], middle: bool) -> Ints:
    points = _points(column, middle)
    if key[1] is ColumnPart.STRINGS:  # the numbers of strings differ from one set of columns to another
        hashes = np.array([zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in texts] or [0], np.int64)
        cells = hashes[np.clip(points, 0, len(hashes) - 1).astype(np.int64)] % _CELLS
    else:
        cells = np.searchsorted(np.array(cuts), points, "right").astype(np.int64)
    return np.where(column.marks >= BOUNDED, cells + 1, 0)
