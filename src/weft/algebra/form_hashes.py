"""Hashes of normal forms. Equal forms have equal hashes on every machine, whatever the order of their boxes and
attributes. Among fewer than some billions, different forms hardly ever collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from weft.algebra.columns import BoxColumns, Column, ColumnKey, ColumnPart
from weft.algebra.to_filter import values_to_filter
from weft.kernels.arrays import Floats, Ints
from weft.kernels.boxes import BOUNDED

Hashes = NDArray[np.uint64]

_ALL = 0xFFFFFFFFFFFFFFFF


def forms_of(rows: BoxColumns) -> tuple[Ints, Hashes]:
    """The filters that can match, and the hash of each one's normal form, independent of the order of its boxes."""
    boxes = np.zeros(len(rows), np.uint64)
    texts = np.array([hash_of(text) for text in rows.texts()] + [0], np.uint64)
    for key, column in rows.columns.items():
        at = np.flatnonzero(column.marks & BOUNDED)
        boxes[at] += _mixed(_ends(key, column, at, texts) + np.uint64(hash_of(f"{key[1]} {key[0]}")))
    for row, box in rows.odd.items():
        said = [str(values_to_filter(name, values)) for name, values in box.sets.items()]
        said += [str(subject.to_filter(allowed)) for subject, allowed in box.residuals.items()]
        boxes[row] = sum(hash_of(each) for each in said) & _ALL
    owners, firsts = np.unique(rows.owners, return_index=True)
    return owners, np.add.reduceat(_mixed(boxes), firsts) if len(owners) else np.zeros(0, np.uint64)


def _ends(key: ColumnKey, column: Column, at: Ints, texts: Hashes) -> Hashes:
    low, high = column.low[at], column.high[at]
    if key[1] is ColumnPart.STRINGS:
        return texts[np.where(np.isneginf(low), len(texts) - 1, low).astype(np.int64)]
    ends = _mixed(_bits(low)) + np.uint64(3) * _mixed(_bits(high))
    return _mixed(ends + column.marks[at].astype(np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """A mix of 64 bits: every output bit depends on all input bits (splitmix64)."""
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def ranks_of(ids: Sequence[int | str | None]) -> Hashes:
    """Pseudo-random numbers, one per id and always the same for it."""
    if all(isinstance(each, int) for each in ids):
        return _mixed(np.array([int(each or 0) & _ALL for each in ids], np.uint64))
    return _mixed(np.array([hash_of(str(each)) for each in ids], np.uint64))


def _bits(values: Floats) -> Hashes:
    bits: Hashes = (values + 0.0).view(np.uint64)
    return bits


def hash_of(text: str) -> int:
    """A 64-bit hash of a text, the same on every machine."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
