"""The root of topic groups: who is in them, how deep their trees are, how far they are rotated. Laws: a state is copied
before anybody sees it; a view is replaced only when everything is stored for the next one.

One change of a group at a time: what is asked for during a change waits, and then becomes one change. A node is the
root of a group while it serves the topic's key, and goes on with what its predecessor had begun. With a `lease`, a
member that has not registered again for so long is taken for dead; with a `period`, the root looks that often for a
rotation distance that spreads keys more evenly (003, 4.2.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.errors import RingError
from weft.ring.group_messages import Deregister, FetchViews, Register, Reshape, Settle, Shift, Views
from weft.ring.group_placement import GroupView, best_rotation
from weft.ring.group_state import GroupRule, GroupState, digest_of, root_key
from weft.ring.identifiers import Key
from weft.ring.messages import Address
from weft.ring.rendezvous_messages import Copy, RingEffect, RingSend
from weft.ring.requests import Countdown, Then

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

_DISTANCES, _KEYS = 16, 256  # how many rotation distances are tried, with how many keys

Change = Callable[[GroupState | None], GroupState | None]


class GroupRoots:
    """The groups that a node is the root of, and copies of others' states."""

    def __init__(self, node: RendezvousNode, rule: GroupRule) -> None:
        self._node, self._rule = node, rule
        self._space = node.chord.space
        rule.tree(self._space, "")  # depth and rotation fit
        self.states: dict[str, GroupState] = {}
        self._queues: dict[str, deque[tuple[Change, Then]]] = {}
        self._shifting: dict[str, GroupView] = {}  # changes that this node drives
        self._refreshed: dict[str, dict[int, int]] = {}
        self._due: dict[str, int] = {}

    def _serves(self, topic: str) -> bool:
        return self._node.keys.serves(root_key(self._space, topic))

    # -- states move with their keys -------------------------------------------------------------------

    def within(self, after: int, upto: int) -> tuple[GroupState, ...]:
        """The states under the keys in (after, upto]."""
        between = self._space.between
        return tuple(state for state in self.states.values() if between(state.tree.start, after, upto))

    def take(self, states: Iterable[GroupState]) -> None:
        """Have these states, unless there are newer ones."""
        for state in states:
            known = self.states.get(state.topic)
            if known is None or known.serial < state.serial:
                self.states[state.topic] = state

    def forget_within(self, after: int, upto: int) -> None:
        """Another node has these keys now, but for those that it has handed back already."""
        for state in self.within(after, upto):
            if not self._node.keys.includes(state.tree.start):
                del self.states[state.topic]

    # -- requests --------------------------------------------------------------------------------------

    def asked(
        self, sender: Address, message: Register | Deregister | Reshape | FetchViews, now: int, answer: Then
    ) -> list[RingEffect]:
        """A request to the root of a group, which this node is."""
        topic = message.topic
        match message:
            case Register(_, _, _, member):
                self._refreshed.setdefault(topic, {})[member] = now
                return self._change(topic, lambda state: self._registered(state, topic, member), now, answer)
            case Deregister(_, _, _, member):
                return self._change(topic, lambda state: state and state.without_member(member), now, answer)
            case Reshape(_, _, _, depth, rotation):
                return self._change(topic, lambda state: state and state.reshaped(depth, rotation), now, answer)
            case FetchViews(token, _, _, digest):
                state = self.states.get(topic)
                views = () if state is None else state.views
                ours = digest_of(views)
                return [RingSend(sender, Views(token, None) if ours == digest else Views(token, views, ours))]
        raise AssertionError(message)

    def _registered(self, state: GroupState | None, topic: str, member: int) -> GroupState:
        if state is None:
            return GroupState.begun(topic, self._rule.tree(self._space, topic), member, remap=self._rule.remap)
        return state.with_member(member)

    # -- changes ---------------------------------------------------------------------------------------

    def _change(self, topic: str, change: Change, now: int, then: Then) -> list[RingEffect]:
        """Change a group's state, after the changes that were asked for before."""
        queue = self._queues.setdefault(topic, deque())
        queue.append((change, then))
        return self._next_change(topic, now) if len(queue) == 1 else []

    def _next_change(self, topic: str, now: int) -> list[RingEffect]:
        effects: list[RingEffect] = []
        queue = self._queues[topic]
        while queue:
            change, then = queue[0]
            state = self.states.get(topic)
            try:
                made = change(state) if self._serves(topic) else None
            except RingError:
                made = state  # what cannot be is not done
            if not self._serves(topic):
                queue.popleft()
                effects += then(False, now)
            elif made is None or made == state:
                queue.popleft()
                effects += then(True, now)
            else:
                return effects + self._copy(made, now)
        del self._queues[topic]
        return effects

    def _copy(self, made: GroupState, now: int) -> list[RingEffect]:
        """Copy a state to the successors; then it holds, if this node is still the root."""
        topic = made.topic

        def copied(_: bool, now: int) -> list[RingEffect]:
            serves = self._serves(topic)
            if serves:
                self.take((made,))
            then = self._queues[topic].popleft()[1]
            effects = then(serves, now)
            return [*effects, *self._next_change(topic, now), *self._drive(topic, now)]

        targets = self._node.keys.copy_targets()
        done = Countdown(len(targets), copied)
        effects: list[RingEffect] = []
        for target in targets:
            effects += self._node.ask(target.address, lambda token: Copy(token, (), (made,)), now, done)
        return [*effects, *done.start(now)]

    def _drive(self, topic: str, now: int) -> list[RingEffect]:
        """Have everything stored for the next view, then make it hold alone, then have the rest dropped."""
        state = self.states.get(topic)
        if state is None or state.following is None or self._shifting.get(topic) == state.following:
            return []
        view, following = state.view, state.following

        def current() -> bool:
            known = self.states.get(topic)
            return self._serves(topic) and known is not None and known.following == following

        def commit(known: GroupState | None) -> GroupState | None:
            return known.committed() if known is not None and known.following == following else known

        def shifted(ok: bool, now: int) -> list[RingEffect]:
            if self._shifting.get(topic) == following:
                del self._shifting[topic]
            return self._change(topic, commit, now, committed) if ok and current() else []

        def committed(answer: object, now: int) -> list[RingEffect]:
            effects: list[RingEffect] = []
            for place in view.members if answer is True else ():
                key = Key(place)
                message = lambda token, key=key: Settle(token, key, topic, following.version)  # noqa: E731
                effects += self._node.until_done(key, message, lambda *_: [], now, lambda: self._serves(topic))
            return effects

        if not current():
            return []
        self._shifting[topic] = following
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
        """Time passes: changes go on, silent members are dropped, and the rotation is reconsidered."""
        effects: list[RingEffect] = []
        for topic, state in list(self.states.items()):
            if not self._node.keys.serves(state.tree.start):
                self._refreshed.pop(topic, None)
                self._due.pop(topic, None)
                continue
            effects += self._drive(topic, now)
            if self._rule.lease is not None:
                effects += self._drop_silent(state, now, self._rule.lease)
            if (
                self._rule.period is not None
                and state.members
                and now >= self._due.setdefault(topic, now + self._rule.period)
            ):
                self._due[topic] = now + self._rule.period
                distance = self._best_rotation(state)
                effects += self._change(topic, lambda s, d=distance: s and s.reshaped(rotation=d), now, _nothing)  # type: ignore[misc]
        return effects

    def _drop_silent(self, state: GroupState, now: int, lease: int) -> list[RingEffect]:
        refreshed = self._refreshed.setdefault(state.topic, {})
        effects: list[RingEffect] = []
        for member in state.members:
            if refreshed.setdefault(member, now) + lease < now:
                del refreshed[member]
                effects += self._change(
                    state.topic,
                    lambda s, member=member: s and s.without_member(member),  # type: ignore[misc]
                    now,
                    _nothing,
                )
        return effects

    def _best_rotation(self, state: GroupState) -> int:
        most = self._space.size // self._space.bits
        distances = range(0, most + 1, max(1, most // _DISTANCES))
        keys = range(0, self._space.size, max(1, self._space.size // _KEYS))
        return best_rotation(replace(state.view, tree=state.tree, members=state.members), distances, keys)


def _nothing(*_: object) -> list[RingEffect]:
    return []
