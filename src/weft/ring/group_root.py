"""The root of a topic group: who is in it, how deep its tree is, how far it is rotated. Law: while a view is being
replaced, subscriptions are stored in both views and events visit the old one, which stays complete until all members
have moved their records; only then the new view holds alone, and it is complete.

One change at a time: what is asked for during a change waits, and then becomes one change. With a `lease`, a member
that has not refreshed its registration for so long is taken for dead; with a `period`, the root looks that often for a
rotation distance that spreads keys more evenly (003, 4.2.2). Times are in microseconds, and are given by the caller.
"""

from __future__ import annotations

from dataclasses import replace

from weft.errors import RingError
from weft.ring.group_messages import Commit, Move, SendTo
from weft.ring.group_placement import GroupView, best_rotation
from weft.ring.group_tree import GroupTree
from weft.ring.identifiers import Key

_DISTANCES, _KEYS = 16, 256  # how many rotation distances are tried, with how many keys


class GroupRoot:
    """Registrations and settings of one group; methods return what is to be sent.

    >>> from weft.ring.identifiers import IdSpace
    >>> root = GroupRoot(GroupTree(IdSpace(8), start=0, depth=3), first=1)
    >>> root.register(5)
    [SendTo(to=1, message=Move(...))]
    >>> len(root.views), root.moved(1, 2)[0].message.view.members, len(root.views)
    (2, (1, 5), 1)
    """

    def __init__(
        self, tree: GroupTree, first: int, *, remap: bool = True, lease: int | None = None, period: int | None = None
    ) -> None:
        self.view = GroupView(tree, (first,), remap=remap)
        self.following: GroupView | None = None
        self._members = {first}
        self._tree = tree
        self._moving: set[int] = set()
        self._lease, self._period = lease, period
        self._refreshed = {first: 0}
        self._due = period or 0

    @property
    def views(self) -> tuple[GroupView, ...]:
        """What a publisher or subscriber fetches: the view, and the one that is to replace it if there is any."""
        return (self.view,) if self.following is None else (self.view, self.following)

    def register(self, member: int, now: int = 0) -> list[SendTo]:
        """A node joins the group, or refreshes its registration."""
        if not 0 <= member < self._tree.space.size:
            raise RingError(f"member {member} is not on the circle of {self._tree.space.size}")
        self._members.add(member)
        self._refreshed[member] = now
        return self._change()

    def tick(self, now: int) -> list[SendTo]:
        """Time passes: members that are silent are dropped, and the rotation is reconsidered."""
        effects: list[SendTo] = []
        if self._lease is not None:
            silent = [member for member in self._members if self._refreshed[member] + self._lease < now]
            for member in sorted(silent, key=self._refreshed.__getitem__)[: len(self._members) - 1]:
                effects += self.failed(member)
        if self._period is not None and now >= self._due:
            self._due = now + self._period
            size, bits = self._tree.space.size, self._tree.space.bits
            distances = range(0, size // bits + 1, max(1, size // bits // _DISTANCES))
            keys = range(0, size, max(1, size // _KEYS))
            wanted = replace(self.view, tree=self._tree, members=tuple(sorted(self._members)))
            effects += self.rotate(best_rotation(wanted, distances, keys))
        return effects

    def deregister(self, member: int) -> list[SendTo]:
        """A node leaves the group: it may stop after the `Commit` without it. The last one stays."""
        if self._members == {member}:
            raise RingError(f"member {member} is the last of its group; end the group instead")
        self._members.discard(member)
        return self._change()

    def rotate(self, distance: int) -> list[SendTo]:
        """Another rotation distance; subscriptions move."""
        self._tree = replace(self._tree, rotation=distance)
        return self._change()

    def deepen(self, depth: int) -> list[SendTo]:
        """Another depth of the tree; subscriptions move."""
        self._tree = replace(self._tree, depth=depth)
        return self._change()

    def failed(self, member: int) -> list[SendTo]:
        """A member is dead: nobody waits for it. What only it stored comes back when it is issued again."""
        self._members.discard(member)
        if not self._members:
            raise RingError(f"member {member} was the last of its group; end the group instead")
        self._moving.discard(member)
        return self._finish() if self.following is not None and not self._moving else self._change()

    def moved(self, member: int, version: int) -> list[SendTo]:
        """A member has moved its records."""
        if self.following is None or version != self.following.version:
            return []
        self._moving.discard(member)
        return [] if self._moving else self._finish()

    def _change(self) -> list[SendTo]:
        wanted = tuple(sorted(self._members))
        if self.following is not None or (wanted, self._tree) == (self.view.members, self.view.tree):
            return []
        self.following = GroupView(self._tree, wanted, self.view.version + 1, self.view.remap)
        self._moving = set(self.view.members)
        return [SendTo(Key(member), Move(self.view, self.following)) for member in self.view.members]

    def _finish(self) -> list[SendTo]:
        assert self.following is not None
        told = sorted({*self.view.members, *self.following.members})
        self.view, self.following = self.following, None
        return [*(SendTo(Key(member), Commit(self.view)) for member in told), *self._change()]
