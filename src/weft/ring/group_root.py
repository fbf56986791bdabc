"""The root of topic groups: who is in them, how deep their trees are, how far they are rotated. Laws: a state is copied
before anybody sees it; a view is replaced only when everything is stored for the next one.

One change of a group at a time: what is asked for during a change waits, and then becomes one change. A node is the
root of a group while it serves the host's key, and goes on with what its predecessor had begun. With a `lease`, a
member that has not registered again for so long is taken for dead; with a `period`, the root looks that often for a
rotation distance that spreads keys more evenly (003, 4.2.2). Topics of one host share their tree and their members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import RingError
from weft.ring.group_merging import GroupMerging
from weft.ring.group_messages import (
    Deregister,
    Elsewhere,
    Entrust,
    FetchViews,
    HostRequest,
    Probe,
    Register,
    Renew,
    Reshape,
    Settle,
    Shift,
    Views,
)
from weft.ring.group_placement import GroupView, best_rotation
from weft.ring.group_references import GroupReferences
from weft.ring.group_state import GroupId, GroupRule, GroupState, digest_of, members_together, root_key
from weft.ring.identifiers import Key
from weft.ring.messages import Address
from weft.ring.rendezvous_messages import CopyRecords, RingEffect, RingSend
from weft.ring.requests import Countdown, Then

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

_DISTANCES, _KEYS = 16, 256  # how many rotation distances are tried, with how many keys

Change = Callable[[GroupState | None], GroupState | None]


class _NotHereError(Exception):
    """The state was given away."""


class GroupRoots:
    """The groups that a node is the root of, references to others, and copies of others' states."""

    def __init__(self, node: RendezvousNode, rule: GroupRule, rng: np.random.Generator) -> None:
        self._node, self._rule = node, rule
        self._space = node.chord.space
        rule.tree(self._space, "")  # depth and rotation fit
        self.states: dict[GroupId, GroupState] = {}
        self.references = GroupReferences(node, self, rule)
        self._merging = None if rule.merging is None else GroupMerging(node, self, rule.merging, rng)
        self._queues: dict[GroupId, deque[tuple[Change, Then]]] = {}
        self._shifting: dict[GroupId, GroupView] = {}  # changes that this node drives
        self._refreshed: dict[GroupId, dict[int, int]] = {}
        self._due: dict[str, int] = {}

    def _serves(self, host: str) -> bool:
        return self._node.keys.serves(root_key(self._space, host))

    def parts(self, host: str) -> dict[str, GroupState]:
        """The topics that a host has, in ascending order, if this node is its root. Cost: O(states)."""
        found = [state for state in self.states.values() if state.host == host and state.entrusted is None]
        return {state.topic: state for state in sorted(found, key=lambda s: s.topic)} if self._serves(host) else {}

    # -- states move with their keys -------------------------------------------------------------------

    def within(self, after: int, upto: int) -> tuple[GroupState, ...]:
        """The states under the keys in (after, upto]."""
        between = self._space.between
        return tuple(state for state in self.states.values() if between(state.key, after, upto))

    def take(self, states: Iterable[GroupState]) -> None:
        """Have these states, unless there are newer ones."""
        for state in states:
            known = self.states.get(state.id)
            if known is None or known.serial < state.serial:
                self.states[state.id] = state

    def forget_within(self, after: int, upto: int) -> None:
        """Another node has these keys now, but for those that it has handed back already."""
        for state in self.within(after, upto):
            if not self._node.keys.includes(state.key):
                del self.states[state.id]

    # -- requests --------------------------------------------------------------------------------------

    def asked(self, sender: Address, message: HostRequest, now: int, answer: Then) -> list[RingEffect]:
        """A request to the root of a host, which this node is."""
        if isinstance(message, Entrust):
            return self.references.take(message, now, answer)
        if isinstance(message, Renew):
            return answer(self._renewed(message, now), now)
        group = GroupId(message.host, message.topic)
        state = self.states.get(group)
        if state is None and group.host != group.topic:
            return [RingSend(sender, Elsewhere(message.token, group.topic))]
        if state is not None and state.entrusted is not None:
            return [RingSend(sender, Elsewhere(message.token, state.entrusted))]
        match message:
            case Register(member=member):
                self._refreshed.setdefault(group, {})[member] = now
                return self.change(group, lambda state: self._registered(state, group.topic, member), now, answer)
            case Deregister(member=member):
                return self.change(group, lambda state: state and state.without_member(member), now, answer)
            case Reshape(depth=depth, rotation=rotation):
                topics = list(self.parts(group.host)) or [group.topic]
                done = Countdown(len(topics), answer)
                effects: list[RingEffect] = []
                for topic in topics:
                    part = GroupId(group.host, topic)
                    effects += self.change(part, lambda state: state and state.reshaped(depth, rotation), now, done)
                return effects
            case FetchViews(token=token, digest=digest):
                views = () if state is None else state.views
                ours = digest_of(views)
                return [RingSend(sender, Views(token, None) if ours == digest else Views(token, views, ours))]
            case Probe():
                return [] if self._merging is None else self._merging.probed(sender, message, now)
        raise AssertionError(message)

    def _renewed(self, message: Renew, now: int) -> bool:
        groups = [GroupId(message.host, topic) for topic in message.topics]
        for group in groups:
            state = self.states.get(group)
            if state is None or state.entrusted is not None or message.member not in state.members:
                return False
        for group in groups:
            self._refreshed.setdefault(group, {})[message.member] = now
        return True

    def _registered(self, state: GroupState | None, topic: str, member: int) -> GroupState:
        if state is None:
            return GroupState.begun(topic, self._rule.tree(self._space, topic), member, remap=self._rule.remap)
        return state.with_member(member)

    # -- changes ---------------------------------------------------------------------------------------

    def change(self, group: GroupId, change: Change, now: int, then: Then) -> list[RingEffect]:
        """Change a group's state, after earlier changes; not done if the state was given away."""

        def here(state: GroupState | None) -> GroupState | None:
            if group.host != group.topic if state is None else state.entrusted is not None:
                raise _NotHereError
            return change(state)

        return self.enqueue(group, here, now, then)

    def enqueue(self, group: GroupId, change: Change, now: int, then: Then) -> list[RingEffect]:
        """Change a group's state, after earlier changes, be it a reference or not known yet."""
        queue = self._queues.setdefault(group, deque())
        queue.append((change, then))
        return self._next_change(group, now) if len(queue) == 1 else []

    def _next_change(self, group: GroupId, now: int) -> list[RingEffect]:
        effects: list[RingEffect] = []
        queue = self._queues[group]
        while queue:
            change, then = queue[0]
            state = self.states.get(group)
            done = self._serves(group.host)
            made = state
            try:
                made = change(state) if done else state
            except RingError:
                pass  # what cannot be is not done
            except _NotHereError:
                done = False
            if done and made is not None and made != state:
                return effects + self._copy(made, now)
            queue.popleft()
            effects += then(done, now)
        del self._queues[group]
        return effects

    def _copy(self, made: GroupState, now: int) -> list[RingEffect]:
        """Copy a state to the successors; then it holds, if this node is still the root."""
        group = made.id

        def copied(_: bool, now: int) -> list[RingEffect]:
            serves = self._serves(group.host)
            if serves:
                self.take((made,))
            then = self._queues[group].popleft()[1]
            effects = then(serves, now)
            return [*effects, *self._next_change(group, now), *self._go_on(group, now)]

        targets = self._node.keys.copy_targets()
        done = Countdown(len(targets), copied)
        effects: list[RingEffect] = []
        for target in targets:
            effects += self._node.ask(target.address, lambda token: CopyRecords(token, (), (made,)), now, done)
        return [*effects, *done.start(now)]

    def _go_on(self, group: GroupId, now: int) -> list[RingEffect]:
        """Go on with what was begun here, or by the root before."""
        state = self.states.get(group)
        if state is None or not self._serves(group.host):
            return []
        return (
            self._drive(group, now) if state.entrusted is None else self.references.hand_on(state, state.entrusted, now)
        )

    def _drive(self, group: GroupId, now: int) -> list[RingEffect]:
        """Have everything stored for the next view, then make it hold alone, then have the rest dropped."""
        state = self.states.get(group)
        if state is None or state.following is None or self._shifting.get(group) == state.following:
            return []
        view, following, topic = state.view, state.following, group.topic

        def current() -> bool:
            known = self.states.get(group)
            here = known is not None and known.following == following and known.entrusted is None
            return here and self._serves(group.host)

        def commit(known: GroupState | None) -> GroupState | None:
            return known.committed() if known is not None and known.following == following else known

        def shifted(ok: bool, now: int) -> list[RingEffect]:
            if self._shifting.get(group) == following:
                del self._shifting[group]
            return self.change(group, commit, now, committed) if ok and current() else []

        def committed(answer: object, now: int) -> list[RingEffect]:
            effects: list[RingEffect] = []
            for place in view.members if answer is True else ():
                key = Key(place)
                message = lambda token, key=key: Settle(token, key, topic, following.version)  # noqa: E731
                effects += self._node.until_done(key, message, lambda *_: [], now, lambda: self._serves(group.host))
            return effects

        if not current():
            return []
        self._shifting[group] = following
        done = Countdown(len(view.members), shifted)
        effects: list[RingEffect] = []
        for place in view.members:
            key = Key(place)
            effects += self._node.until_done(
                key,
                lambda token, key=key: Shift(token, key, topic, view, following),  # type: ignore[misc]
                done,
                now,
                current,
            )
        return [*effects, *done.start(now)]

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes: changes go on, silent members are dropped, rotations and hosts are reconsidered."""
        effects: list[RingEffect] = []
        hosts: dict[str, list[GroupState]] = {}
        for group, state in list(self.states.items()):
            here = self._node.keys.serves(state.key)
            if here:
                effects += self._go_on(group, now)
            if not here or state.entrusted is not None:
                self._refreshed.pop(group, None)
                continue
            hosts.setdefault(group.host, []).append(state)
            if self._rule.lease is not None:
                effects += self._drop_silent(state, now, self._rule.lease)
        self._due = {host: due for host, due in self._due.items() if host in hosts}
        for parts in hosts.values():
            parts.sort(key=lambda part: part.topic)
            effects += [*self._share(parts, now), *self._rotate(parts[0], now)]
        return effects if self._merging is None else [*effects, *self._merging.tick(hosts, now)]

    def _share(self, parts: list[GroupState], now: int) -> list[RingEffect]:
        """Topics of one host store for each other, by the tree of the first."""
        effects: list[RingEffect] = []
        tree, everyone = parts[0].tree, members_together(parts)
        for part in parts:
            if (part.tree, part.together) != (tree, everyone) and part.id not in self._queues:
                effects += self.change(part.id, lambda state: state and state.sharing(tree, everyone), now, _nothing)
        return effects

    def _rotate(self, state: GroupState, now: int) -> list[RingEffect]:
        period = self._rule.period
        if period is None or not state.members or now < self._due.setdefault(state.host, now + period):
            return []
        self._due[state.host] = now + period
        distance = self._best_rotation(state)
        return self.change(state.id, lambda state: state and state.reshaped(rotation=distance), now, _nothing)

    def _drop_silent(self, state: GroupState, now: int, lease: int) -> list[RingEffect]:
        refreshed = self._refreshed.setdefault(state.id, {})
        effects: list[RingEffect] = []
        for member in state.members:
            if refreshed.setdefault(member, now) + lease < now:
                del refreshed[member]
                effects += self.change(
                    state.id,
                    lambda s, member=member: s and s.without_member(member),  # type: ignore[misc]
                    now,
                    _nothing,
                )
        return effects

    def _best_rotation(self, state: GroupState) -> int:
        most = self._space.size // self._space.bits
        distances = range(0, most + 1, max(1, most // _DISTANCES))
        keys = range(0, self._space.size, max(1, self._space.size // _KEYS))
        members = tuple({*state.members, *state.together})
        return best_rotation(replace(state.view, tree=state.tree, members=members), distances, keys)


def _nothing(*_: object) -> list[RingEffect]:
    return []
