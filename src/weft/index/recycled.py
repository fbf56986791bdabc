"""Memory that is used again. No array is given out while a part of it is still in use. What is kept for later has a
bounded size.

On a virtual machine the first touch of new memory costs many times the write itself, and results of megabytes come from
new memory each time. Here an array that nobody refers to any more is given out again. Python's count of references
says so: every view of an array, and every buffer exported from it, refers to its owner.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SMALL = 1 << 16  # bytes; the allocator is quick to find fewer
_WASTE = 4  # an array is not given out for less than one part in so many of it
_UNUSED = 2  # references to an owner that only this module knows: a variable, and the argument of the question


class Recycler:
    """Arrays to write results to; it keeps at most `most` bytes of them.

    >>> memory = Recycler(1 << 24)
    >>> place = memory.array(100_000, np.int64).ctypes.data  # nobody holds the array any more
    >>> one = memory.array(100_000, np.int64)
    >>> one.ctypes.data == place, memory.array(100_000, np.int64).ctypes.data == place
    (True, False)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._owners: list[NDArray[np.uint8]] = []  # adding to a list and taking from it are atomic

    def array(self, size: int, kind: Any) -> NDArray[Any]:
        """An array of a given length with arbitrary contents."""
        kind = np.dtype(kind)
        wanted = size * kind.itemsize
        if wanted < _SMALL:
            return np.empty(size, kind)
        others: list[NDArray[np.uint8]] = []  # the newest first
        chosen: NDArray[np.uint8] | None = None
        while True:
            try:
                owner = self._owners.pop()
            except IndexError:
                break
            best = _WASTE * wanted if chosen is None else len(chosen) - 1
            if wanted <= len(owner) <= best and sys.getrefcount(owner) == _UNUSED:
                chosen, owner = owner, chosen
            if owner is not None:
                others.append(owner)
            del owner
        if chosen is None:
            chosen = np.empty(wanted + wanted // 4, np.uint8)
        self._keep([chosen, *others])
        return chosen[:wanted].view(kind)

    def _keep(self, owners: list[NDArray[np.uint8]]) -> None:
        """Keep arrays, of which the newest come first, as far as there is room."""
        room = self._most - sum(len(owner) for owner in list(self._owners))
        fitting: list[NDArray[np.uint8]] = []
        for owner in owners:
            if len(owner) <= room:
                room -= len(owner)
                fitting.append(owner)
        self._owners.extend(reversed(fitting))

    @property
    def kept(self) -> int:
        """The bytes that are kept."""
        return sum(len(owner) for owner in list(self._owners))


RESULTS = Recycler(1 << 29)  # for all indexes of the process
