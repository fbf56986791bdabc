"""Identifiers on a circle. The keys of a node are those after its predecessor, up to and including its own.

The hash of a text is the first eight bytes of BLAKE2b, read as a big-endian number, modulo the size of the circle: the
same on every machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NewType

from weft.errors import RingError

Key = NewType("Key", int)  # a point on the circle, where a node or data is

_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class IdSpace:
    """A circle of identifiers 0 .. size - 1, size being a power of two.

    >>> circle = IdSpace(8)
    >>> circle.distance(6, 1), circle.between(0, 6, 1), circle.between(6, 6, 1)
    (3, True, False)
    """

    size: int = 1 << 32

    def __post_init__(self) -> None:
        if not 2 <= self.size <= _LARGEST or self.size & (self.size - 1):
            raise RingError(f"the size of a ring is a power of two from 2 to 2**62, not {self.size}")

    @property
    def bits(self) -> int:
        """How many bits an identifier has; also the number of fingers of a node."""
        return self.size.bit_length() - 1

    def hash(self, text: str) -> Key:
        """Where a text is on the circle."""
        return Key(int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % self.size)

    def distance(self, start: int, end: int) -> int:
        """How far `end` is from `start`, clockwise."""
        return (end - start) % self.size

    def between(self, key: int, after: int, upto: int) -> bool:
        """Whether a key lies in (after, upto], clockwise. (x, x] is the whole circle."""
        return 0 < self.distance(after, key) <= (self.distance(after, upto) or self.size) or key == after == upto


def successor(key: int, ascending: Sequence[int]) -> Key:
    """The first of some identifiers at or after a key (erratum 3: `>=`, not `>`). Cost: O(log n).

    >>> successor(4, [1, 2, 5, 6]), successor(5, [1, 2, 5, 6]), successor(7, [1, 2, 5, 6])
    (5, 5, 1)
    """
    if not ascending:
        raise RingError("an empty ring has no successor of a key")
    place = bisect_left(ascending, key)
    return Key(ascending[place if place < len(ascending) else 0])
