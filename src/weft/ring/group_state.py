"""A topic group as its root keeps it. Laws: a view is replaced by one with the next version, and never returns; while
it is being replaced, both are known; one root at most may change a group or say where it stores. (003, 3.2, 3.3)

The state is kept like a record under its host's place on the circle: it moves with that key and is copied with it, so
that whoever owns the key goes on as the root. A topic is its own host, or is entrusted to a super topic; whoever gives
a state away keeps it as a reference. A group that has begun stays, if only as its last view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from weft.errors import RingError
from weft.ring.group_placement import GroupView
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import IdSpace, Key
from weft.ring.topics import SuperTopics

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How topic groups are stored, for all nodes of a ring alike. Times are in microseconds."""

    depth: int = 4  # of a new group's tree
    rotation: int = 0
    remap: bool = True
    lease: int | None = None  # after which a member that has not registered again is taken for dead
    period: int | None = None  # after which the root looks for a better rotation distance
    merging: SuperTopics | None = None  # which groups are merged, and how often the root looks for them

    def __post_init__(self) -> None:
        if self.lease is not None and self.lease < 1:
            raise RingError(f"the lease of a group's members is 1 microsecond or more, not {self.lease}")
        if self.period is not None and self.period < 1:
            raise RingError(f"the period of a group's rotation is 1 microsecond or more, not {self.period}")

    def tree(self, space: IdSpace, host: str) -> GroupTree:
        """The tree of a new group. Raises RingError if depth or rotation do not fit the circle."""
        return GroupTree(space, root_key(space, host), self.depth, self.rotation)


@lru_cache(maxsize=10_000)
def root_key(space: IdSpace, host: str) -> Key:
    """The key whose owner is the root of the group of a topic or super topic.

    >>> root_key(IdSpace(8), "tennis") == root_key(IdSpace(8), "chess")
    False
    """
    return space.hash(f"\x00group\x00{host}")


def digest_of(views: tuple[GroupView, ...]) -> bytes:
    """Eight bytes that tell views apart."""
    return blake2b(_encode(views), digest_size=8).digest()


def members_together(parts: Sequence[GroupState]) -> tuple[int, ...]:
    """The members that the topics of a host have together, ascending; none for a topic on its own."""
    return tuple(sorted({member for part in parts for member in part.members})) if len(parts) > 1 else ()


class GroupId(NamedTuple):
    """A topic at one of its hosts: itself, or a super topic."""

    host: str
    topic: str


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """Who is in a group, and where it stores. Methods return the state that follows.

    >>> tree = GroupTree(IdSpace(8), start=0, depth=3)
    >>> joined = GroupState.begun("t", tree, 1).with_member(5)
    >>> [view.members for view in joined.views], [view.members for view in joined.committed().views]
    ([(1,), (1, 5)], [(1, 5)])
    """

    host: str
    topic: str
    serial: int  # of the state: the highest is the newest
    view: GroupView
    following: GroupView | None
    members: tuple[int, ...]  # that are wanted, ascending
    tree: GroupTree  # that is wanted
    together: tuple[int, ...] = ()  # members of all topics of the super topic, which store this one, too
    entrusted: str | None = None  # the host that the state was given to: this is a reference

    @classmethod
    def begun(cls, topic: str, tree: GroupTree, first: int, *, remap: bool = True) -> GroupState:
        """A group with one member."""
        return cls(topic, topic, 1, GroupView(tree, (first,), remap=remap), None, (first,), tree)

    @property
    def id(self) -> GroupId:
        """The topic and its host."""
        return GroupId(self.host, self.topic)

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return root_key(self.tree.space, self.host)

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

    def sharing(self, tree: GroupTree, together: tuple[int, ...]) -> GroupState:
        """Use one tree for all topics of the host, and the members of each."""
        return self._next(tree=tree, together=together)

    def committed(self) -> GroupState:
        """The next view holds alone: all that is stored is where it belongs."""
        assert self.following is not None
        return self._next(view=self.following, following=None)

    def given_to(self, host: str) -> GroupState:
        """The reference that stays when the state is given to another host."""
        return self._next(entrusted=host)

    def taken_by(self, host: str, tree: GroupTree, together: tuple[int, ...]) -> GroupState:
        """The state at the host that it was given to. What is stored moves afterwards."""
        return self._next(host=host, tree=tree, together=together, entrusted=None)

    def _next(self, **changes: object) -> GroupState:
        made = msgspec.structs.replace(self, **changes)
        now, members = made.view, tuple(sorted({*made.members, *made.together}))
        wanted = made.entrusted is None and made.following is None and members
        if wanted and (members, made.tree) != (now.members, now.tree):
            made = msgspec.structs.replace(made, following=GroupView(made.tree, members, now.version + 1, now.remap))
        return made if made == self else msgspec.structs.replace(made, serial=self.serial + 1)
