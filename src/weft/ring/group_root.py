"""The roots of topic groups, which keep a group's settings and know its members (003, 3.2, 3.3).

A node is the root of the groups whose keys it answers for, and goes on with what its predecessor had begun. A root's
state is copied before any other node sees it. A group changes once at a time: requests during a change wait. With a
`lease`, a member that has not registered again within that time is considered dead; with a `period`, the root looks
that often for a rotation distance that spreads sample keys more evenly (003, 4.2.2).

A root that gives its topic to another host (`weft.ring.group_merging`) keeps the state as a reference, and repeats it
to the other host's root, which begins where that state ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from weft.errors import RingError
from weft.ring.chord import ChordNode
from weft.ring.group_merging import GroupMerging
from weft.ring.group_placement import GroupTree, GroupView, best_rotation
from weft.ring.group_state import (
    GroupId,
    GroupRule,
    GroupState,
    RegionState,
    StateId,
    StateStore,
    root_key,
)
from weft.ring.groups import Groups
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import NodeRef
from weft.ring.record_keeper import RingReply
from weft.ring.rendezvous_messages import (
    Deregister,
    Elsewhere,
    Entrust,
    Exit,
    FetchSettings,
    GrantCells,
    HostRequest,
    Probe,
    Register,
    Renew,
    Reshape,
    Review,
    RingEffect,
    RingSend,
    Settings,
    TopicRequest,
    WorkAnswer,
)
from weft.ring.topics import TopicTree
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_DISTANCES, _KEYS = 16, 256  # how many rotation distances are tried, with how many keys
_AGAIN = 10  # periods of merging after which the other root is told again: it may have died with all copies


class Granted(NamedTuple):
    """The first member has all cells."""


class LeaseOver(NamedTuple):
    """A member has not renewed its lease."""

    member: int


class Rotated(NamedTuple):
    """Another rotation distance spreads keys more evenly."""

    rotation: int


class GivenTo(NamedTuple):
    """The topic is given to another host."""

    host: str


Decision = Granted | LeaseOver | Rotated | GivenTo  # of the root itself
Request = Register | Deregister | Reshape | Entrust | Decision


@dataclass(slots=True, eq=False)
class Changing(RingWork):
    """A group's next state is being copied to the successors."""

    group: GroupId
    made: GroupState
    request: Request
    reply: RingReply | None
    ok: bool = True


@dataclass(slots=True, eq=False)
class Granting(RingWork):
    """The first member is given all cells."""

    group: GroupId


@dataclass(slots=True, eq=False)
class TellingMembers(RingWork):
    """Members and region servers are told of a change."""


@dataclass(slots=True, eq=False)
class Leading(RingWork):
    """A member leaves its region servers; then its cells are reviewed."""

    member: Key
    host: str


@dataclass(slots=True, eq=False)
class Entrusting(RingWork):
    """Another host's root is told that a topic is its own."""

    state_of: GroupState


class GroupRoots:
    """The groups that a node is the root of, references to others, and regions that it is the server of."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it uses
        self,
        chord: ChordNode,
        table: WorkTable,
        keys: KeysInHand,
        states: StateStore,
        groups: Groups,
        rule: GroupRule,
        topics: TopicTree,
        rng: np.random.Generator,
    ) -> None:
        self._chord, self._table, self._keys, self._states = chord, table, keys, states
        self._rule = rule
        self._space = chord.space
        rule.tree(self._space, "")  # depth and rotation fit
        self._queues: dict[GroupId, deque[tuple[Request, RingReply | None]]] = {}
        self._refreshed: dict[GroupId, dict[int, int]] = {}
        self._due: dict[str, int] = {}
        self._even: dict[str, GroupView] = {}  # groups whose rotation distance was the best when that was looked at
        self._told: dict[GroupId, tuple[int, int]] = {}  # serials of references that were taken, and when
        for kind, step in (
            (Changing, self._copied),
            (Granting, self._granted),
            (TellingMembers, self._told_one),
            (Leading, self._led),
            (Entrusting, self._entrusted),
        ):
            table.handle(kind, step)
        self._merging = (
            None
            if rule.merging is None
            else GroupMerging(chord.space, table, groups, rule.merging, topics, rng, self.parts, self._give)
        )

    def _serves(self, host: str) -> bool:
        return self._keys.serves(root_key(self._space, host))

    def state(self, group: GroupId) -> GroupState | None:
        """The state of a group, or the reference to another host."""
        found = self._states.get(StateId("root", root_key(self._space, group.host), (group.host, group.topic)))
        return found if isinstance(found, GroupState) else None

    def parts(self, host: str) -> dict[str, GroupState]:
        """The topics that a host has, in ascending order, if this node is its root. Cost: O(states)."""
        if not self._serves(host):
            return {}
        found = [s for s in self._states if isinstance(s, GroupState) and s.host == host and s.entrusted is None]
        return {state.topic: state for state in sorted(found, key=lambda s: s.topic)}

    def _registered(self, host: str) -> set[int]:
        """Whoever is to be known at the region servers of a host."""
        found: set[int] = set()
        for part in self.parts(host).values():
            found.update(part.members or (() if part.ghost is None else (part.ghost,)))
        return found

    # -- requests to a root ----------------------------------------------------------------------------

    def asked(self, message: HostRequest, now: int, reply: RingReply) -> list[RingEffect]:
        """A request to the root of a host, which this node is."""
        if isinstance(message, Renew):
            return reply.done(ok=self._renewed(message, now))
        if isinstance(message, Entrust):
            if message.state.entrusted != message.host:
                return reply.done(ok=False)
            return self._request(GroupId(message.host, message.state.topic), message, now, reply)
        assert isinstance(message, TopicRequest)
        group = GroupId(message.host, message.topic)
        elsewhere = self._elsewhere(group)
        if elsewhere is not None:
            return [RingSend(reply.to, Elsewhere(reply.token, elsewhere))]
        match message:
            case FetchSettings():
                return self._settings(group, now, reply)
            case Probe():
                return reply.done(ok=False) if self._merging is None else self._merging.compare(message, now, reply)
            case Register() | Deregister() | Reshape():
                if isinstance(message, Register):
                    self._refreshed.setdefault(group, {})[message.member] = now
                return self._request(group, message, now, reply)
        raise AssertionError(message)

    def _elsewhere(self, group: GroupId) -> str | None:
        """The host to ask instead, if the topic is not here."""
        state = self.state(group)
        if state is None:
            return None if group.host == group.topic else group.topic
        return state.entrusted

    def _settings(self, group: GroupId, now: int, reply: RingReply) -> list[RingEffect]:
        state = self.state(group)
        tree = None if state is None else state.tree
        if tree is None:  # a super topic's own tree is that of its topics
            tree = next((part.tree for part in self.parts(group.host).values()), None)
        silent = tuple(self._keys.missing(now)) if tree is None else ()
        if tree is None and self._keys.learning(root_key(self._space, group.host), now):
            return reply.done(ok=False)
        return [RingSend(reply.to, Settings(reply.token, group.host, tree, silent))]

    def _renewed(self, message: Renew, now: int) -> bool:
        groups = [GroupId(message.host, topic) for topic in message.topics]
        for group in groups:
            state = self.state(group)
            if state is None or state.entrusted is not None or message.member not in state.members:
                return False
        for group in groups:
            self._refreshed.setdefault(group, {})[message.member] = now
        return True

    # -- changes ---------------------------------------------------------------------------------------

    def _request(self, group: GroupId, request: Request, now: int, reply: RingReply | None) -> list[RingEffect]:
        """Change a group's state, after earlier changes."""
        queue = self._queues.setdefault(group, deque())
        queue.append((request, reply))
        return self._next_change(group, now) if len(queue) == 1 else []

    def _next_change(self, group: GroupId, now: int) -> list[RingEffect]:
        effects: list[RingEffect] = []
        queue = self._queues[group]
        while queue:
            request, reply = queue[0]
            state = self.state(group)
            if self._serves(group.host):
                made = self._made(group, state, request)
                if made is not None and made != state:
                    work = Changing(group, made, request, reply)
                    self._table.begin(work, WorkState.COPYING)
                    effects += self._keys.copy_state(work, made, now)
                    return effects if work.open else [*effects, *self._changed(work, now)]
                effects += self._answer(group, request, reply, ok=True)
            else:
                effects += self._answer(group, request, reply, ok=False)
            queue.popleft()
        del self._queues[group]
        return effects

    def _made(self, group: GroupId, state: GroupState | None, request: Request) -> GroupState | None:
        """The next state; None or the present one if nothing changes."""
        if isinstance(request, Entrust):
            given = request.state
            if state is not None and state.serial > given.serial:
                return state
            peers = [part for topic, part in self.parts(group.host).items() if topic != given.topic]
            tree = peers[0].tree if peers else self._rule.tree(self._space, group.host)
            return given.taken_by(group.host, tree)
        if isinstance(request, Register) and state is None:
            return GroupState.begun(group.topic, self._rule.tree(self._space, group.topic), request.member)
        if state is None or state.entrusted is not None:
            return state
        try:
            match request:
                case Register(member=member):
                    return state.with_member(member)
                case Deregister(member=member) | LeaseOver(member):
                    return state.without_member(member)
                case Reshape(depth=depth, rotation=rotation):
                    return state.reshaped(depth, rotation)
                case Rotated(rotation):
                    return state.reshaped(rotation=rotation)
                case Granted():
                    return state.granted_first()
                case GivenTo(host):
                    return state.given_to(host)
        except RingError:
            return state  # what cannot be is not done
        raise AssertionError(request)

    def _give(self, group: GroupId, host: str, now: int) -> list[RingEffect]:
        """Give a topic to another host, and keep a reference."""
        return [] if group.host == host else self._request(group, GivenTo(host), now, None)

    def _answer(self, group: GroupId, request: Request, reply: RingReply | None, ok: bool) -> list[RingEffect]:
        if reply is None:
            return []
        state = self.state(group)
        if ok and isinstance(request, Register) and state is not None and state.entrusted is None:
            return [RingSend(reply.to, Settings(reply.token, group.host, state.tree))]
        if ok and state is not None and state.entrusted is not None and not isinstance(request, Entrust):
            return [RingSend(reply.to, Elsewhere(reply.token, state.entrusted))]
        return reply.done(ok)

    def _copied(self, work: Changing, part: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if part is None:  # it has paused
            work.to(WorkState.COPYING)
            work.ok = True
            effects = self._keys.copy_state(work, work.made, now)
            return effects if work.open else [*effects, *self._changed(work, now)]
        work.ok &= answer is not False
        return [] if work.open else self._changed(work, now)

    def _changed(self, work: Changing, now: int) -> list[RingEffect]:
        """The next state is copied; it holds, if this node is still the root."""
        group, serves = work.group, self._serves(work.group.host)
        if not work.ok and serves:
            self._table.pause(work, now)
            return []
        self._table.end(work)
        self._queues[group].popleft()
        effects: list[RingEffect] = []
        if serves:
            before, known = self.state(group), self._registered(group.host)
            self._states.take((work.made,))
            effects += self._answer(group, work.request, work.reply, ok=True)
            effects += self._follow(group, before, known, now)
        else:
            effects += self._answer(group, work.request, work.reply, ok=False)
        return [*effects, *self._next_change(group, now)]

    def _follow(self, group: GroupId, before: GroupState | None, known: set[int], now: int) -> list[RingEffect]:
        """What follows a change: the first member is granted all cells, others are told, or leave their regions."""
        effects: list[RingEffect] = []
        state = self.state(group)
        assert state is not None
        effects += self._go_on(state, now)
        registered = self._registered(group.host)
        for member in sorted(known - registered) if registered or state.entrusted is not None else ():
            effects += self._lead_out(group.host, state.tree, Key(member), now)
        if state.entrusted is not None:
            return effects
        if (before is None or before.entrusted is not None) and state.serial > 1:  # the topic was given to this host
            effects += self._tell(group.host, state, None, now)
        elif before is not None and before.tree != state.tree:
            effects += self._tell(group.host, state, before.tree, now)
            for topic, part in self.parts(group.host).items():  # topics of one host share its tree
                if part.tree != state.tree:
                    request = Reshape(NO_TOKEN, state.key, group.host, topic, state.tree.depth, state.tree.rotation)
                    effects += self._request(part.group, request, now, None)
        return effects

    def _tell(self, host: str, state: GroupState, former: GroupTree | None, now: int) -> list[RingEffect]:
        """Have the members registered in another tree, and their cells reviewed."""
        work = TellingMembers()
        self._table.begin(work, WorkState.ALERTING)
        effects: list[RingEffect] = []
        members = state.members or (() if state.ghost is None else (state.ghost,))
        for member in members:
            message = Review(NO_TOKEN, Key(member), host, enter=True, former=former)
            effects += self._table.errand(work, member, Key(member), message, now, repeat=True)
        return effects if work.open else self._told_one(work, None, True, now)

    def _told_one(self, work: TellingMembers, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if not work.open:
            self._table.end(work)
        return []

    def _lead_out(self, host: str, tree: GroupTree, member: Key, now: int) -> list[RingEffect]:
        """A member has left: region servers are told, and then its cells are reviewed."""
        work = Leading(member, host)
        self._table.begin(work, WorkState.ENTERING)
        effects: list[RingEffect] = []
        for level in range(tree.depth, -1, -1):
            key = tree.region_server(level, member)
            message = Exit(NO_TOKEN, key, host, tree, level, member)
            effects += self._table.errand(work, level, key, message, now, repeat=True)
        return effects

    def _led(self, work: Leading, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if work.open:
            return []
        if work.state is WorkState.ENTERING:
            work.to(WorkState.ALERTING)
            message = Review(NO_TOKEN, work.member, work.host)
            return self._table.errand(work, "review", work.member, message, now, repeat=True)
        self._table.end(work)
        return []

    # -- what was begun --------------------------------------------------------------------------------

    def _go_on(self, state: GroupState, now: int) -> list[RingEffect]:
        """Go on with what was begun here, or by the root before."""
        group = state.group
        if state.entrusted is not None:
            return self._entrust(state, now)
        if not state.granted and state.ghost is not None:
            if any(work.group == group for work in self._table.of(Granting)):
                return []
            work = Granting(group)
            self._table.begin(work, WorkState.GRANTING)
            first = Key(state.ghost)
            learning = self._keys.learning(state.key, now)
            return self._table.errand(work, first, first, GrantCells(NO_TOKEN, first, group.topic, learning), now)
        return []

    def _granted(self, work: Granting, part: Key, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        self._table.end(work)
        if answer is False:
            return []  # the next tick tries again
        return self._request(work.group, Granted(), now, None)

    def _entrust(self, state: GroupState, now: int) -> list[RingEffect]:
        """Tell the root of the host that a topic was given to, unless it knows."""
        assert state.entrusted is not None
        serial, since = self._told.get(state.group, (0, 0))
        merging = self._rule.merging
        again = merging is not None and state.host == state.topic and now - since >= _AGAIN * merging.period
        running = any(work.state_of is state for work in self._table.of(Entrusting))
        if running or (serial == state.serial and not again):
            return []
        work = Entrusting(state)
        self._table.begin(work, WorkState.GRANTING)
        key = root_key(self._space, state.entrusted)
        return self._table.errand(work, key, key, Entrust(NO_TOKEN, key, state.entrusted, state), now)

    def _entrusted(self, work: Entrusting, part: Key, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        self._table.end(work)
        if answer is not False:
            self._told[work.state_of.group] = work.state_of.serial, now
        return []

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes: changes go on, silent members are dropped, rotations and hosts are reconsidered."""
        effects: list[RingEffect] = []
        hosts: dict[str, list[GroupState]] = {}
        for state in self._states:
            if not isinstance(state, GroupState):
                continue
            if not self._keys.serves(state.key):
                self._refreshed.pop(state.group, None)
                continue
            effects += self._go_on(state, now)
            if state.entrusted is None:
                hosts.setdefault(state.host, []).append(state)
                if self._rule.lease is not None:
                    effects += self._drop_silent(state, now, self._rule.lease)
        for host, parts in hosts.items():
            parts.sort(key=lambda part: part.topic)
            effects += self._rotate(host, parts, now)
        if self._merging is not None:
            effects += self._merging.tick(hosts, now)
        return effects

    def _drop_silent(self, state: GroupState, now: int, lease: int) -> list[RingEffect]:
        refreshed = self._refreshed.setdefault(state.group, {})
        silent = [member for member in state.members if refreshed.setdefault(member, now) + lease < now]
        effects: list[RingEffect] = []
        for member in silent:
            del refreshed[member]
            effects += self._request(state.group, LeaseOver(member), now, None)
        for member in self._strangers(state):
            effects += self._lead_out(state.host, state.tree, Key(member), now)
        return effects

    def _strangers(self, state: GroupState) -> list[int]:
        """Members that the root's region still knows, though they have left: a root died before it was done."""
        if state.group in self._queues or self._table.count(Leading, TellingMembers):
            return []
        tree = state.tree
        region = self._states.get(
            StateId("region", tree.region_server(0, 0), (state.host, tree.depth, tree.rotation, 0))
        )
        known = set(region.members) if isinstance(region, RegionState) else set()
        registered = self._registered(state.host)
        return sorted(known - registered) if registered else []

    def _rotate(self, host: str, parts: Sequence[GroupState], now: int) -> list[RingEffect]:
        period = self._rule.period
        members = tuple({member for part in parts for member in part.members})
        if period is None or not members or now < self._due.setdefault(host, now + period):
            return []
        self._due[host] = now + period
        view = GroupView(parts[0].tree, members)
        if self._even.get(host) == view:
            return []
        most = self._space.size // self._space.bits
        distances = range(0, most + 1, max(1, most // _DISTANCES))
        keys = range(0, self._space.size, max(1, self._space.size // _KEYS))
        distance = best_rotation(view, distances, keys)
        if distance == parts[0].tree.rotation:
            self._even[host] = view
            return []
        return self._request(parts[0].group, Rotated(distance), now, None)
