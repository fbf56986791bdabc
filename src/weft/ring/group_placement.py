"""Where a topic group stores a key, given its members. Law: the place depends on tree, members and key alone, so that
subscriptions and events of one view of the group meet. (003, 3.2)

From the key's leaf region to the root, the first region with a member decides: the key, moved into the sibling region
if its own was empty, goes to its successor among the members of that region.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.errors import RingError
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import Key


class Place(NamedTuple):
    """A member, and the region servers that were asked to find it, from the leaf up."""

    member: Key
    servers: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its root describes it: the tree, the members' identifiers in ascending order, and a version.

    >>> from weft.ring.identifiers import IdSpace
    >>> view = GroupView(GroupTree(IdSpace(8), start=0, depth=3), (1, 2, 5, 6))
    >>> view.place(4).member, view.place(3).member
    (2, 1)
    """

    tree: GroupTree
    members: tuple[int, ...]
    version: int = 1
    remap: bool = True

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
                if self.remap and level != self.tree.depth:
                    key = self.tree.remap(level, key)
                at = bisect_left(peers, key)
                return Place(Key(peers[at if at < len(peers) else 0]), tuple(servers))
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

    >>> from weft.ring.identifiers import IdSpace
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
