"""The place of a key in a topic group, given its members (003, 3.2). It depends on the tree, the members and the key
alone, so that subscriptions and events of one view of the group meet.

The tree is a binary one over the ring and is not stored: every region server is computed. Level 0 is the whole circle;
level k has 2**k regions of equal size, which begin at the topic's hash less k times the rotation distance. A region (x,
y] is served by the successor of y. Every key lies in exactly one region of each level, and its region server lies at or
after it, clockwise, within one region's size. From the key's leaf region to the root, the first region with a member
decides: the key, moved into the sibling region if its own was empty, goes to its successor among the members of that
region.

Where the paper's `get_RegionServer` and `ReMap` are off by one at the upper end of a region, and `ReMap` rotates the
wrong way, the errata are followed (003, errata 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
    remaps: bool = True  # keys of an empty region are spread over its sibling like those that were there before

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= self.space.bits:
            raise RingError(f"the depth of a group tree is 0 to {self.space.bits}, not {self.depth}")
        most = self.space.size // self.space.bits
        if not 0 <= self.rotation <= most:
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

    def place_among(self, level: int, key: int, peers: Sequence[int]) -> tuple[Key, Key, Key]:
        """The member of a region that stores a key, and the keys (after, upto] around it that it stores as well.

        `peers` are the members of the key's region of this level, ascending, which has some; below it the key's own
        region has none. Cost: O(log n).
        """
        size, leaf = self.space.size, level == self.depth
        moved = self.remap(level, key) if self.remaps and not leaf else Key(key)
        at = bisect_left(peers, moved)
        member, before = peers[at if at < len(peers) else 0], peers[at - 1]
        back, ahead = (moved - before) % size or size, (member - moved) % size
        for each in range(level, self.depth + 1):  # rotated regions do not nest: all of them must be the key's
            end = self.region_server(each, key)
            back = min(back, (key - end + (size >> each)) % size or size)
            ahead = min(ahead, (end - key) % size)
        return Key(member), Key((key - back) % size), Key((key + ahead) % size)


class Place(NamedTuple):
    """A member, and the region servers that were asked to find it, from the leaf up."""

    member: Key
    servers: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as all of its region servers together describe it: the tree, and the members, ascending.

    >>> view = GroupView(GroupTree(IdSpace(8), start=0, depth=3), (1, 2, 5, 6))
    >>> view.place(4).member, view.place(3).member
    (2, 1)
    """

    tree: GroupTree
    members: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise RingError("a group needs at least one member")
        object.__setattr__(self, "members", tuple(sorted(self.members)))

    def registered(self, level: int, server: int) -> tuple[int, ...]:
        """The members of the region that ends with a region server, in ascending order. Cost: O(log n + members)."""
        size = self.tree.space.size
        start = (server - (size >> level)) % size
        members = self.members
        if start < server:
            return members[bisect_right(members, start) : bisect_right(members, server)]
        return members[: bisect_right(members, server)] + members[bisect_right(members, start) :]

    def place(self, key: int) -> Place:
        """Where a key is stored. Cost: O(depth log n)."""
        servers: list[Key] = []
        for level in range(self.tree.depth, -1, -1):
            server = self.tree.region_server(level, key)
            servers.append(server)
            peers = self.registered(level, server)
            if peers:
                return Place(self.tree.place_among(level, key, peers)[0], tuple(servers))
        raise AssertionError("the root's region is the whole circle")

    def peers(self, member: int) -> list[Key]:
        """The other members of the smallest region of a member's that has some. Cost: O(depth log n + peers)."""
        for level in range(self.tree.depth, -1, -1):
            near = self.registered(level, self.tree.region_server(level, member))
            if any(peer != member for peer in near):
                return [Key(peer) for peer in near if peer != member]
        return []

    def largest_share(self, keys: Iterable[int]) -> int:
        """How many of some keys the member with most of them stores. Cost: O(keys depth log n)."""
        return max(Counter(self.place(key).member for key in keys).values())

    def registrations(self, member: int) -> list[Key]:
        """The region servers at which a member registers, from the root down."""
        return self.tree.path(member)[::-1]


def best_rotation(view: GroupView, distances: Iterable[int], keys: Sequence[int]) -> int:
    """The rotation distance with which the fullest member stores fewest of some keys; the present one unless beaten.

    >>> view = GroupView(GroupTree(IdSpace(16), start=0, depth=3), (1, 2, 3, 11))
    >>> best_rotation(view, range(5), range(16))
    1
    """
    best = view.tree.rotation
    least = view.largest_share(keys)
    for distance in distances:
        share = replace(view, tree=replace(view.tree, rotation=distance)).largest_share(keys)
        if share < least:
            best, least = distance, share
    return best
