"""Hashes and digests of items, by which the two sides of a link compare what they hold.

Equal items have equal hashes on every machine. Different sets of items have different digests, but for one chance in
2**64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.model.paged_dict import PagedDict

ItemHashes = PagedDict[int, int]  # of items, by wire id

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def item_hash(body: bytes) -> int:
    """The hash of an item, 64 bits, by its bytes."""
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "little")


@dataclass(slots=True, eq=False)
class ItemDigest:
    """One number for a changing set of items: the sum of a mix of each id and hash.

    >>> one, other = ItemDigest(), ItemDigest()
    >>> one.add(1, 77), one.add(2, 78), other.add_many(np.array([2], np.uint64), np.array([78], np.uint64))
    (None, None, None)
    >>> one.drop(1, 77), one.value == other.value
    (None, True)
    """

    value: int = 0

    def add(self, wire: int, hashed: int) -> None:
        """Add an item."""
        self.value = (self.value + _mixed(wire, hashed)) & _MASK

    def drop(self, wire: int, hashed: int) -> None:
        """Remove an item."""
        self.value = (self.value - _mixed(wire, hashed)) & _MASK

    def add_many(self, wires: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
        """Add many items. Cost: some nanoseconds each."""
        self.value = (self.value + int(_mixed(wires, hashes).sum(dtype=np.uint64))) & _MASK


def _mixed(wire: Any, hashed: Any) -> Any:
    """Of one item, or of arrays of uint64, whose arithmetic is modulo 2**64 already."""
    mixed = hashed ^ (wire * _GOLDEN & _MASK)
    mixed = (mixed ^ (mixed >> 30)) * _FIRST & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _SECOND & _MASK
    return mixed ^ (mixed >> 31)


@dataclass(slots=True, eq=False)
class Unclaimed:
    """Items that a neighbour holds, and that nothing has claimed yet: wire ids by hash.

    >>> held = Unclaimed()
    >>> held.add_many([1, 2, 3], [70, 71, 70])
    >>> held.claim(70), held.claim(70), held.claim(70), held.take(10)
    (1, 3, None, [2])
    """

    _first: dict[int, int] = field(default_factory=dict)
    _more: dict[int, list[int]] = field(default_factory=dict)  # of hashes that occur more than once

    def add_many(self, wires: list[int], hashes: list[int]) -> None:
        """Add items. Cost: some ten nanoseconds each, where hashes differ."""
        new, known = dict(zip(hashes, wires, strict=True)), self._first
        if len(new) == len(hashes) and known.keys().isdisjoint(new.keys()):
            known.update(new)
            return
        for wire, hashed in zip(wires, hashes, strict=True):
            if hashed in known:
                self._more.setdefault(hashed, []).append(wire)
            else:
                known[hashed] = wire

    def claim(self, hashed: int) -> int | None:
        """Claim an item with this hash; returns its wire id, or None if there is none."""
        wire = self._first.pop(hashed, None)
        if wire is not None and self._more and (more := self._more.get(hashed)):
            self._first[hashed] = more.pop()
            if not more:
                del self._more[hashed]
        return wire

    def take(self, most: int) -> list[int]:
        """Remove and return some items that nothing has claimed."""
        taken: list[int] = []
        while self._first and len(taken) < most:
            hashed, wire = self._first.popitem()
            taken.append(wire)
            more = self._more.pop(hashed, [])
            if more:
                self.add_many(more, [hashed] * len(more))
        return taken
