"""A topic's group as a binary tree over the ring that nobody stores: every region server is computed. (003, 3.2)

Level 0 is the whole circle; level k has 2**k regions of equal size. Regions of level k begin at the topic's hash less
k times the rotation distance. A region (x, y] is served by the successor of y. Law: every key lies in exactly one
region of each level, and its region server lies at or after it, clockwise, within one region's size.

Where the paper's `get_RegionServer` and `ReMap` are off by one at the upper end of a region, and `ReMap` rotates the
wrong way, the errata are followed (003, errata 1 and 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import RingError
from weft.ring.identifiers import IdSpace, Key


@dataclass(frozen=True, slots=True)
class GroupTree:
    """The tree of one topic: where it begins on the circle, how deep it is, how far each level is rotated.

    >>> tree = GroupTree(IdSpace(8), start=0, depth=3)
    >>> [tree.region_server(level, 4) for level in range(4)]
    [0, 4, 4, 4]
    """

    space: IdSpace
    start: int  # the hash of the topic
    depth: int
    rotation: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= self.space.bits:
            raise RingError(f"the depth of a group tree is 0 to {self.space.bits}, not {self.depth}")
        if not 0 <= self.rotation <= self.space.size // self.space.bits:
            most = self.space.size // self.space.bits
            raise RingError(
                f"the rotation distance is at most the ring's size by its bits, 0 to {most}, not {self.rotation}"
            )

    def region_server(self, level: int, key: int) -> Key:
        """The upper end of the region of a level that a key lies in; its successor is the region's server."""
        size = self.space.size >> level
        start = self._start(level)
        return Key((((key - start - 1) % self.space.size) // size * size + size + start) % self.space.size)

    def path(self, key: int) -> list[Key]:
        """The region servers of a key from the leaf to the root."""
        return [self.region_server(level, key) for level in range(self.depth, -1, -1)]

    def remap(self, level: int, key: int) -> Key:
        """The key moved into the sibling of its region one level below: where the region's peers are registered.

        It is used when the region of `level` has peers and the key's own child region has none, so that what lies in
        the empty half is spread over the other half like what was there before.
        """
        size = self.space.size >> (level + 1)
        half = ((key - self._start(level + 1) - 1) % self.space.size) // size
        return Key((key + size if half % 2 == 0 else key - size) % self.space.size)

    def _start(self, level: int) -> int:
        return (self.start - level * self.rotation) % self.space.size
