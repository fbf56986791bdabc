"""A topic group as its root keeps it. Laws: a view is replaced by one with the next version, and never returns; while
it is being replaced, both are known. (003, 3.2)

The state is kept like a record under the topic's place on the circle: it moves with that key and is copied with it, so
that whoever owns the key goes on as the root. A group that has begun stays, if only as its last view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

import msgspec

from weft.errors import RingError
from weft.ring.group_placement import GroupView
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import IdSpace, Key

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How topic groups are stored, for all nodes of a ring alike. Times are in microseconds."""

    depth: int = 4  # of a new group's tree
    rotation: int = 0
    remap: bool = True
    lease: int | None = None  # after which a member that has not registered again is taken for dead
    period: int | None = None  # after which the root looks for a better rotation distance

    def __post_init__(self) -> None:
        if self.lease is not None and self.lease < 1:
            raise RingError(f"the lease of a group's members is 1 microsecond or more, not {self.lease}")
        if self.period is not None and self.period < 1:
            raise RingError(f"the period of a group's rotation is 1 microsecond or more, not {self.period}")

    def tree(self, space: IdSpace, topic: str) -> GroupTree:
        """The tree of a new group. Raises RingError if depth or rotation do not fit the circle."""
        return GroupTree(space, root_key(space, topic), self.depth, self.rotation)


def root_key(space: IdSpace, topic: str) -> Key:
    """The key whose owner is the root of a topic's group.

    >>> root_key(IdSpace(8), "tennis") == root_key(IdSpace(8), "chess")
    False
    """
    return space.hash(f"\x00group\x00{topic}")


def digest_of(views: tuple[GroupView, ...]) -> bytes:
    """Eight bytes that tell views apart."""
    return blake2b(_encode(views), digest_size=8).digest()


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """Who is in a group, and where it stores. Methods return the state that follows.

    >>> tree = GroupTree(IdSpace(8), start=0, depth=3)
    >>> joined = GroupState.begun("t", tree, 1).with_member(5)
    >>> [view.members for view in joined.views], [view.members for view in joined.committed().views]
    ([(1,), (1, 5)], [(1, 5)])
    """

    topic: str
    serial: int  # of the state: the highest is the newest
    view: GroupView
    following: GroupView | None
    members: tuple[int, ...]  # that are wanted, ascending
    tree: GroupTree  # that is wanted

    @classmethod
    def begun(cls, topic: str, tree: GroupTree, first: int, *, remap: bool = True) -> GroupState:
        """A group with one member."""
        return cls(topic, 1, GroupView(tree, (first,), remap=remap), None, (first,), tree)

    @property
    def views(self) -> tuple[GroupView, ...]:
        """What publishers and subscribers fetch: the view, and the one that is to replace it if there is any."""
        return (self.view,) if self.following is None else (self.view, self.following)

    def with_member(self, member: int) -> GroupState:
        """A node has joined the group."""
        if not 0 <= member < self.tree.space.size:
            raise RingError(f"member {member} is not on the circle of {self.tree.space.size}")
        return self._next(members=tuple(sorted({*self.members, member})))

    def without_member(self, member: int) -> GroupState:
        """A node has left the group; after the last one the view stays, until there is a member again."""
        return self._next(members=tuple(each for each in self.members if each != member))

    def reshaped(self, depth: int | None = None, rotation: int | None = None) -> GroupState:
        """Another depth or rotation distance. Raises RingError if it does not fit the circle."""
        tree = self.tree
        tree = replace(
            tree,
            depth=tree.depth if depth is None else depth,
            rotation=tree.rotation if rotation is None else rotation,
        )
        return self._next(tree=tree)

    def committed(self) -> GroupState:
        """The next view holds alone: all that is stored is where it belongs."""
        assert self.following is not None
        return self._next(view=self.following, following=None)

    def _next(
        self,
        members: tuple[int, ...] | None = None,
        tree: GroupTree | None = None,
        view: GroupView | None = None,
        following: GroupView | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> GroupState:
        made = GroupState(
            self.topic,
            self.serial,
            self.view if view is None else view,
            self.following if isinstance(following, msgspec.UnsetType) else following,
            self.members if members is None else members,
            self.tree if tree is None else tree,
        )
        now = made.view
        if made.following is None and made.members and (made.members, made.tree) != (now.members, now.tree):
            made = msgspec.structs.replace(
                made, following=GroupView(made.tree, made.members, now.version + 1, now.remap)
            )
        return made if made == self else msgspec.structs.replace(made, serial=self.serial + 1)
