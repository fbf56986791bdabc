"""What is kept for topic groups under keys of the ring (003, 3.2, 3.3). It moves with its key and is copied with it.

The root of a group has a `GroupState`, under the key of the group's host: the settings, and who is a member. The server
of a region has a `RegionState`, under the region's upper end: the members in it. Under a member's identifier is a
`CellHold` for each topic: the cells that are stored there. A topic is its own host, or is entrusted to a super topic; a
root that gives a topic away keeps its state as a reference.

Every state has a serial number: of two copies the higher is the newer. Where two rings meet, states are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from weft.errors import RingError
from weft.ring.group_placement import GroupTree
from weft.ring.identifiers import IdSpace, Key
from weft.ring.topics import SuperTopics

_GIFTS = 16  # that are remembered


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
        return GroupTree(space, root_key(space, host), self.depth, self.rotation, self.remap)


@lru_cache(maxsize=10_000)
def root_key(space: IdSpace, host: str) -> Key:
    """The key whose owner is the root of the group of a topic or super topic.

    >>> root_key(IdSpace(8), "tennis") == root_key(IdSpace(8), "chess")
    False
    """
    return space.hash(f"\x00group\x00{host}")


class StateId(NamedTuple):
    """What a state is of: a root's topic, a region, or a member's cells."""

    kind: str
    key: Key
    of: tuple[str | int, ...]


class GroupId(NamedTuple):
    """A topic at one of its hosts: itself, or a super topic."""

    host: str
    topic: str


class GroupState(msgspec.Struct, frozen=True, array_like=True, tag="root"):
    """A group as its root keeps it. Methods return the state that follows.

    >>> tree = GroupTree(IdSpace(8), start=0, depth=3)
    >>> GroupState.begun("t", tree, 1).with_member(5).members
    (1, 5)
    """

    host: str
    topic: str
    serial: int  # of the state: the highest is the newest
    members: tuple[int, ...]  # ascending
    tree: GroupTree
    granted: bool = False  # the first member has been given all cells
    ghost: int | None = None  # the last member: it stays at its region servers until there is another one
    entrusted: str | None = None  # the host that the topic was given to: this is a reference

    @classmethod
    def begun(cls, topic: str, tree: GroupTree, first: int) -> GroupState:
        """A group with one member."""
        return cls(topic, topic, 1, (first,), tree, ghost=first)

    @property
    def group(self) -> GroupId:
        """The topic and its host."""
        return GroupId(self.host, self.topic)

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return root_key(self.tree.space, self.host)

    @property
    def id(self) -> StateId:
        """What the state is of."""
        return StateId("root", self.key, (self.host, self.topic))

    def with_member(self, member: int) -> GroupState:
        """A node has joined the group."""
        if not 0 <= member < self.tree.space.size:
            raise RingError(f"member {member} is not on the circle of {self.tree.space.size}")
        members = tuple(sorted({*self.members, member}))
        return self._next(members=members, ghost=member if not self.members else self.ghost)

    def without_member(self, member: int) -> GroupState:
        """A node has left the group; the last one stays at its region servers, until there is a member again."""
        left = tuple(each for each in self.members if each != member)
        return self._next(members=left, ghost=member if not left and self.members else self.ghost)

    def reshaped(self, depth: int | None = None, rotation: int | None = None) -> GroupState:
        """Another depth or rotation distance. Raises RingError if it does not fit the circle."""
        depth = self.tree.depth if depth is None else depth
        rotation = self.tree.rotation if rotation is None else rotation
        return self._next(tree=replace(self.tree, depth=depth, rotation=rotation))

    def granted_first(self) -> GroupState:
        """The first member has all cells."""
        return self._next(granted=True)

    def given_to(self, host: str) -> GroupState:
        """The reference that stays when the topic is given to another host."""
        return self._next(entrusted=host)

    def taken_by(self, host: str, tree: GroupTree) -> GroupState:
        """The state at the host that the topic was given to. Its cells move afterwards."""
        return self._next(host=host, tree=tree, entrusted=None)

    def merged(self, other: GroupState) -> GroupState:
        """The states of two rings that have met: the settings of the newer one, and the members of both."""
        newer = self if (self.serial, self.members) >= (other.serial, other.members) else other
        members = tuple(sorted({*self.members, *other.members}))
        return msgspec.structs.replace(newer, members=members, serial=max(self.serial, other.serial) + 1)

    def _next(self, **changes: object) -> GroupState:
        made = msgspec.structs.replace(self, **changes)
        return made if made == self else msgspec.structs.replace(made, serial=self.serial + 1)


class RegionState(msgspec.Struct, frozen=True, array_like=True, tag="region"):
    """The members of a region of a tree, as its server knows them."""

    host: str
    tree: GroupTree
    level: int
    end: Key
    serial: int = 0
    members: tuple[int, ...] = ()  # ascending

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return self.end

    @property
    def id(self) -> StateId:
        """What the state is of."""
        return StateId("region", self.end, (self.host, self.tree.depth, self.tree.rotation, self.level))

    def entered(self, member: int) -> RegionState:
        """With a member."""
        return self._with({*self.members, member})

    def without(self, member: int) -> RegionState:
        """Without a member."""
        return self._with(set(self.members) - {member})

    def affected_by(self, member: int) -> tuple[Key, ...]:
        """The members that may have cells of a new one: its successor here, and all if it is alone in its half."""
        others = [each for each in self.members if each != member]
        if not others:
            return ()
        space, tree = self.tree.space, self.tree
        if self.level < tree.depth:
            half = tree.region_server(self.level + 1, member)
            if all(tree.region_server(self.level + 1, each) != half for each in others):
                return tuple(Key(each) for each in others)
        return (Key(min(others, key=lambda each: space.distance(member, each))),)

    def merged(self, other: RegionState) -> RegionState:
        """The members of both."""
        made = msgspec.structs.replace(self, members=tuple(sorted({*self.members, *other.members})))
        return msgspec.structs.replace(made, serial=max(self.serial, other.serial) + 1)

    def _with(self, members: Iterable[int]) -> RegionState:
        found = tuple(sorted(members))
        if found == self.members:
            return self
        return msgspec.structs.replace(self, members=found, serial=self.serial + 1)


class Arc(NamedTuple):
    """Cells in (after, upto], clockwise; (x, x] is the whole circle."""

    after: Key
    upto: Key


class CellHold(msgspec.Struct, frozen=True, array_like=True, tag="cells"):
    """The cells of a topic that are stored under a member. Of every cell, at most one member has it.

    >>> space = IdSpace(16)
    >>> hold = CellHold("t", 3, 1, (Arc(9, 9),))
    >>> hold.has(space, 2), hold.giving_away(space, Arc(1, 4), 7).has(space, 2)
    (True, False)
    >>> hold.giving_away(space, Arc(1, 4), 7).arcs
    (Arc(after=4, upto=1),)
    """

    topic: str
    member: Key
    serial: int = 0
    arcs: tuple[Arc, ...] = ()
    giving: tuple[Arc, Key] | None = None  # on their way to another member: nobody answers for them
    gifts: tuple[tuple[Key, int], ...] = ()  # the last ones that were taken: the giver, and its serial

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return self.member

    @property
    def id(self) -> StateId:
        """What the state is of."""
        return StateId("cells", self.member, (self.topic,))

    def has(self, space: IdSpace, cell: int) -> bool:
        """Whether a cell is stored here."""
        return any(space.between(cell, *arc) for arc in self.arcs)

    def with_arc(self, space: IdSpace, arc: Arc) -> CellHold:
        """With the cells of an arc."""
        arcs = [*_without(space, self.arcs, arc), arc]
        return msgspec.structs.replace(self, arcs=_joined(arcs), serial=self.serial + 1)

    def giving_away(self, space: IdSpace, arc: Arc, to: Key) -> CellHold:
        """Some cells are on their way to another member."""
        arcs = _without(space, self.arcs, arc)
        return msgspec.structs.replace(self, arcs=_joined(arcs), giving=(arc, to), serial=self.serial + 1)

    def taking(self, space: IdSpace, arc: Arc, gift: tuple[Key, int]) -> CellHold:
        """With cells of another member, unless they were taken before."""
        if gift in self.gifts:
            return self
        return msgspec.structs.replace(self.with_arc(space, arc), gifts=(*self.gifts[-_GIFTS + 1 :], gift))

    def given(self) -> CellHold:
        """They have arrived."""
        return msgspec.structs.replace(self, giving=None, serial=self.serial + 1)

    def merged(self, space: IdSpace, other: CellHold) -> CellHold:
        """The cells of both, those that were on their way as well: whoever has them twice gives them on."""
        made = self
        for arc in (*other.arcs, *(each.giving[0] for each in (self, other) if each.giving is not None)):
            made = made.with_arc(space, arc)
        return msgspec.structs.replace(made, giving=None, serial=max(made.serial, other.serial) + 1)


KeyState = GroupState | RegionState | CellHold  # what is kept under a key


def cut(space: IdSpace, arc: Arc, taken: Arc) -> list[Arc]:
    """What is left of an arc without another one."""
    if taken.after == taken.upto:
        return []
    if arc.after == arc.upto:  # the whole circle
        return [Arc(taken.upto, taken.after)]
    length = space.distance(arc.after, arc.upto)
    pieces = []
    start = space.distance(arc.after, taken.after)
    end = start + space.distance(taken.after, taken.upto)
    for shift in (0, -space.size):
        low, high = max(0, start + shift), min(length, end + shift)
        if low < high:
            pieces.append((low, high))
    left, at = [], 0
    for low, high in sorted(pieces):
        if at < low:
            left.append(Arc(Key((arc.after + at) % space.size), Key((arc.after + low) % space.size)))
        at = max(at, high)
    if at < length:
        left.append(Arc(Key((arc.after + at) % space.size), arc.upto))
    return left


def _without(space: IdSpace, arcs: Iterable[Arc], taken: Arc) -> list[Arc]:
    return [piece for arc in arcs for piece in cut(space, arc, taken)]


def _joined(arcs: Iterable[Arc]) -> tuple[Arc, ...]:
    """Arcs that touch become one."""
    waiting = sorted(set(arcs))
    changed = True
    while changed and len(waiting) > 1:
        changed = False
        for one in waiting:
            other = next((each for each in waiting if each is not one and each.after == one.upto), None)
            if other is not None:
                waiting = sorted(each for each in waiting if each not in (one, other))
                waiting.append(Arc(one.after, other.upto))
                changed = True
                break
    return tuple(sorted(waiting))


class StateStore:
    """The states that a node keeps, its own and copies."""

    def __init__(self, space: IdSpace) -> None:
        self._space = space
        self._states: dict[StateId, KeyState] = {}

    def __iter__(self) -> Iterator[KeyState]:
        return iter(list(self._states.values()))

    def get(self, id: StateId) -> KeyState | None:
        """A state, if it is here."""
        return self._states.get(id)

    def within(self, after: int, upto: int) -> tuple[KeyState, ...]:
        """The states under the keys in (after, upto]."""
        between = self._space.between
        return tuple(state for state in self._states.values() if between(state.key, after, upto))

    def take(self, states: Iterable[KeyState]) -> None:
        """Have these states, unless there are newer ones."""
        for state in states:
            known = self._states.get(state.id)
            if known is None or known.serial <= state.serial:
                self._states[state.id] = state

    def merge(self, states: Iterable[KeyState]) -> list[KeyState]:
        """Have what these states and those here have together: two rings have met. Returns what has changed."""
        changed: list[KeyState] = []
        for state in states:
            known = self._states.get(state.id)
            if known == state:
                continue
            made: KeyState = state
            if isinstance(known, GroupState) and isinstance(state, GroupState):  # noqa: SIM114 - mypy tells them apart
                made = known.merged(state)
            elif isinstance(known, RegionState) and isinstance(state, RegionState):
                made = known.merged(state)
            elif isinstance(known, CellHold) and isinstance(state, CellHold):
                made = known.merged(self._space, state)
            self._states[state.id] = made
            changed.append(made)
        return changed

    def discard(self, state: KeyState) -> None:
        """Forget a state."""
        self._states.pop(state.id, None)
