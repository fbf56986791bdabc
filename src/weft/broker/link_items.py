"""Items by the hashes of their bytes, as links compare them. Law: equal items have equal hashes on every machine; sets
of items that differ have different digests, but for one chance in 2**64.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from weft.model.paged_dict import PagedDict

Hashes = PagedDict[int, int]  # of items, by wire id
_U64 = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def item_hash(body: bytes) -> int:
    """The hash of an item, 64 bits, by its bytes."""
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "little")


class ItemDigest:
    """One number for a changing set of items: the sum of a mix of each id and hash.

    >>> one, other = ItemDigest(), ItemDigest()
    >>> one.add(1, 77), one.add(2, 78), other.add_many(np.array([2], np.uint64), np.array([78], np.uint64))
    (None, None, None)
    >>> one.drop(1, 77), one.value == other.value
    (None, True)
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, wire: int, hashed: int) -> None:
        """An item is there."""
        self.value = (self.value + _mixed(wire, hashed)) & _MASK

    def drop(self, wire: int, hashed: int) -> None:
        """An item is gone."""
        self.value = (self.value - _mixed(wire, hashed)) & _MASK

    def add_many(self, wires: _U64, hashes: _U64) -> None:
        """Many items are there. Cost: some nanoseconds each."""
        mixed = hashes ^ (wires * np.uint64(_GOLDEN))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_FIRST)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_SECOND)
        mixed ^= mixed >> np.uint64(31)
        self.value = (self.value + int(mixed.sum(dtype=np.uint64))) & _MASK


def _mixed(wire: int, hashed: int) -> int:
    mixed = hashed ^ (wire * _GOLDEN & _MASK)
    mixed = (mixed ^ (mixed >> 30)) * _FIRST & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _SECOND & _MASK
    return mixed ^ (mixed >> 31)


class Unclaimed:
    """Items that a neighbour holds, and that nothing has claimed yet: wire ids by hash.

    >>> held = Unclaimed()
    >>> held.add_many([1, 2, 3], [70, 71, 70])
    >>> held.claim(70), held.claim(70), held.claim(70), held.take(10)
    (1, 3, None, [2])
    """

    __slots__ = ("_first", "_more")

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._more: dict[int, list[int]] = {}  # of hashes that occur more than once

    def add_many(self, wires: list[int], hashes: list[int]) -> None:
        """Some more are held. Cost: some ten nanoseconds each, where hashes differ."""
        new = dict(zip(hashes, wires, strict=True))
        known = self._first
        if len(new) == len(hashes) and (not known or known.keys().isdisjoint(new)):
            if known:
                known.update(new)
            else:
                self._first = new
            return
        for wire, hashed in zip(wires, hashes, strict=True):
            if hashed in known:
                self._more.setdefault(hashed, []).append(wire)
            else:
                known[hashed] = wire

    def claim(self, hashed: int) -> int | None:
        """The wire id of one that has this hash, which is then claimed."""
        wire = self._first.pop(hashed, None)
        if wire is not None and self._more:
            more = self._more.get(hashed)
            if more:
                self._first[hashed] = more.pop()
                if not more:
                    del self._more[hashed]
        return wire

    def take(self, most: int) -> list[int]:
        """Some of those that nothing has claimed; they are no longer in it."""
        taken: list[int] = []
        while self._first and len(taken) < most:
            hashed, wire = self._first.popitem()
            taken.append(wire)
            more = self._more.pop(hashed, [])
            if more:
                self.add_many(more, [hashed] * len(more))
        return taken
