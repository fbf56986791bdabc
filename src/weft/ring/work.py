"""The work in progress of a node: a table of named states. Every piece of work waits for something that has a name, and
every request ends once, with an answer or when its time is up.

A node that asks others begins a piece of work, and keeps what it needs for the next step in it. `WorkTable` knows
which request belongs to which work, and calls the work's part of the node when there is an answer. Work that has ended
gets no answers any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from weft.ring.chord import ANSWER, PERIOD, ChordNode
from weft.ring.identifiers import Key
from weft.ring.messages import ChordEffect, NodeAddress, NodeRef, RequestToken
from weft.ring.rendezvous_messages import RingEffect, RingRequest, RingSend, WorkAnswer

PATIENCE = 4 * ANSWER  # for the owner of a key: it may have to wait for others
_MOST_OWNERS = 10_000
NO_TOKEN = RequestToken(0)  # of a request that has not been sent


class WorkState(StrEnum):
    """What a piece of work waits for."""

    NEW = "nothing"
    PAUSED = "a while, to try again"
    LOOKING_UP = "the owner of a key to be found"
    ASKED = "the owner's answer"
    REGISTERING = "the root of a group to know the member"
    ENTERING = "the region servers to know the member"
    ALERTING = "members to see whether they have cells of the new one"
    LOCATING = "region servers to say where cells are"
    STORING = "the owners to store the records"
    REMOVING = "the owners to remove the records"
    VISITING = "the owners to match and deliver an event"
    DELIVERING = "the subscribers' nodes, and those that share the load"
    COPYING = "the successors to have copies"
    SHARING = "the nodes that share the load"
    SENDING = "a part of what is moved to arrive"
    MOVING = "the last part to arrive: nobody answers for the keys"
    ASKING = "members to say which keys they answer for"
    RECALLING = "the copies of a dead node's keys"
    GIVING = "the other member to have the cells: nobody answers for them"
    GRANTING = "the first member to have all cells"
    PROBING = "another root to compare members"


NEXT: dict[WorkState, frozenset[WorkState]] = {  # what may follow; every state may be the last
    WorkState.NEW: frozenset(WorkState) - {WorkState.NEW},
    WorkState.PAUSED: frozenset(
        {
            WorkState.LOOKING_UP,
            WorkState.LOCATING,
            WorkState.SENDING,
            WorkState.MOVING,
            WorkState.COPYING,
            WorkState.REGISTERING,
        }
    ),
    WorkState.LOOKING_UP: frozenset({WorkState.ASKED, WorkState.PAUSED}),
    WorkState.ASKED: frozenset({WorkState.PAUSED}),
    WorkState.REGISTERING: frozenset({WorkState.ENTERING, WorkState.PAUSED}),
    WorkState.ENTERING: frozenset({WorkState.ALERTING}),
    WorkState.ALERTING: frozenset({WorkState.LOCATING}),
    WorkState.LOCATING: frozenset(
        {
            WorkState.STORING,
            WorkState.REMOVING,
            WorkState.VISITING,
            WorkState.COPYING,
            WorkState.PAUSED,
            WorkState.LOCATING,
        }
    ),
    WorkState.STORING: frozenset({WorkState.PAUSED}),
    WorkState.REMOVING: frozenset({WorkState.PAUSED}),
    WorkState.VISITING: frozenset({WorkState.PAUSED}),
    WorkState.DELIVERING: frozenset(),
    WorkState.COPYING: frozenset(
        {WorkState.SHARING, WorkState.GIVING, WorkState.LOCATING, WorkState.GRANTING, WorkState.PAUSED}
    ),
    WorkState.SHARING: frozenset(),
    WorkState.SENDING: frozenset({WorkState.MOVING, WorkState.PAUSED}),
    WorkState.MOVING: frozenset({WorkState.PAUSED}),
    WorkState.ASKING: frozenset({WorkState.ASKING, WorkState.RECALLING}),
    WorkState.RECALLING: frozenset({WorkState.RECALLING}),
    WorkState.GIVING: frozenset({WorkState.COPYING}),
    WorkState.GRANTING: frozenset({WorkState.COPYING}),
    WorkState.PROBING: frozenset(),
}


@dataclass(slots=True, eq=False)
class RingWork:
    """Something that was begun. `open` answers are awaited."""

    state: WorkState = field(default=WorkState.NEW, kw_only=True)
    open: int = field(default=0, kw_only=True)

    def to(self, state: WorkState) -> None:
        """Go on to another state."""
        assert state in NEXT[self.state], f"{type(self).__name__} goes from {self.state.name} to {state.name}"
        self.state = state


Part = Hashable  # which of several answers
WorkStep = Callable[[Any, Any, WorkAnswer, int], list[RingEffect]]  # the work, the part, the answer, and the time


@dataclass(slots=True, eq=False)
class _Errand(RingWork):
    """A request to whoever owns a key."""

    key: Key
    request: RingRequest
    work: RingWork
    part: Part
    repeat: bool  # until it is done


@dataclass(slots=True)
class _Request:
    work: RingWork
    part: Part
    deadline: int
    to: NodeAddress


class WorkTable:
    """The work of a node, and the requests that belong to it."""

    def __init__(self, chord: ChordNode, do: Callable[[list[ChordEffect], int], list[RingEffect]]) -> None:
        self._chord, self._do = chord, do
        self._steps: dict[type[RingWork], WorkStep] = {_Errand: self._errand_answered}
        self._work: dict[type[RingWork], dict[RingWork, None]] = {}  # by kind
        self._requests: dict[RequestToken, _Request] = {}
        self._lookups: dict[RequestToken, _Errand] = {}
        self._paused: list[tuple[int, RingWork]] = []
        self._owners: dict[Key, NodeRef] = {}  # of keys that were looked up; one that refuses is removed
        self._next = 0

    def __contains__(self, work: RingWork) -> bool:
        return work in self._work.get(type(work), ())

    @property
    def busy(self) -> bool:
        """Whether anything is in progress."""
        return any(self._work.values())

    def count(self, *kinds: type[RingWork]) -> int:
        """How many pieces of work of some kinds are in progress."""
        return sum(len(self._work.get(kind, ())) for kind in kinds)

    def of(self, kind: type[RingWork]) -> list[Any]:
        """The work of a kind."""
        return list(self._work.get(kind, ()))

    def states(self) -> dict[str, int]:
        """How much work is in which state."""
        found: dict[str, int] = {}
        for work in [work for some in self._work.values() for work in some]:
            name = f"{type(work).__name__.strip('_').lower()}: {work.state.value}"
            found[name] = found.get(name, 0) + 1
        return found

    def handle(self, kind: type[RingWork], step: WorkStep) -> None:
        """A part of the node takes the answers for a kind of work."""
        self._steps[kind] = step

    # -- beginning and ending --------------------------------------------------------------------------

    def begin(self, work: RingWork, state: WorkState) -> None:
        """Begin a piece of work."""
        self._add(work)
        work.to(state)

    def _add(self, work: RingWork) -> None:
        self._work.setdefault(type(work), {})[work] = None

    def end(self, work: RingWork) -> None:
        """Nothing more is to come for a piece of work; what it has asked for is not awaited any more."""
        self._work.get(type(work), {}).pop(work, None)

    def pause(self, work: RingWork, now: int, pause: int = PERIOD) -> None:
        """Call the work's step again in a while, with the part None."""
        work.to(WorkState.PAUSED)
        self._paused.append((now + pause, work))

    # -- requests --------------------------------------------------------------------------------------

    def ask(  # noqa: PLR0913, PLR0917 - what is asked, for what, and until when
        self, work: RingWork, part: Part, to: NodeAddress, request: RingRequest, now: int, patience: int = ANSWER
    ) -> list[RingEffect]:
        """Send a request to a node; the step gets the answer, or False when its time is up."""
        self._next += 1
        token = RequestToken(self._next)
        self._requests[token] = _Request(work, part, now + patience, to)
        work.open += 1
        return [RingSend(to, msgspec.structs.replace(request, token=token))]

    def tell(self, to: NodeAddress, request: RingRequest) -> list[RingEffect]:
        """Send a request whose answer nobody waits for."""
        self._next += 1
        return [RingSend(to, msgspec.structs.replace(request, token=RequestToken(self._next)))]

    def errand(  # noqa: PLR0913 - what is asked, and for what
        self, work: RingWork, part: Part, key: Key, request: RingRequest, now: int, *, repeat: bool = False
    ) -> list[RingEffect]:
        """Send a request to the owner of a key; with `repeat`, again and again until it is done."""
        errand = _Errand(key, request, work, part, repeat)
        work.open += 1
        self._add(errand)
        return self._look_up(errand, now)

    def _look_up(self, errand: _Errand, now: int) -> list[RingEffect]:
        errand.to(WorkState.LOOKING_UP)
        owner = self._owners.get(errand.key)
        if owner is not None and not self._chord.is_silent(owner):
            errand.to(WorkState.ASKED)
            return self.ask(errand, owner, owner.address, errand.request, now, PATIENCE)
        token, effects = self._chord.lookup(errand.key, now)
        self._lookups[token] = errand
        return self._do(effects, now)

    def looked_up(self, token: RequestToken, owner: NodeRef | None, now: int) -> list[RingEffect]:
        """Chord has found the owner of a key, or nobody."""
        errand = self._lookups.pop(token, None)
        if errand is None or errand not in self:
            return []
        if owner is None:
            return self._failed(errand, now)
        self._owners[errand.key] = owner
        while len(self._owners) > _MOST_OWNERS:
            del self._owners[next(iter(self._owners))]
        errand.to(WorkState.ASKED)
        return self.ask(errand, owner, owner.address, errand.request, now, PATIENCE)

    def _errand_answered(self, errand: _Errand, part: Part, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if errand.work not in self:
            self.end(errand)
            return []
        if part is None:  # it has paused
            return self._look_up(errand, now)
        if answer is False:
            self._owners.pop(errand.key, None)
            return self._failed(errand, now)
        self.end(errand)
        return self._answer(errand.work, errand.part, answer, now)

    def _failed(self, errand: _Errand, now: int) -> list[RingEffect]:
        if errand.repeat and errand.work in self:
            self.pause(errand, now)
            return []
        self.end(errand)
        return self._answer(errand.work, errand.part, False, now)

    # -- answers ---------------------------------------------------------------------------------------

    def answered(self, token: RequestToken, answer: WorkAnswer, now: int) -> list[RingEffect]:
        """An answer has come. One that came too late does nothing."""
        request = self._requests.pop(token, None)
        return [] if request is None else self._answer(request.work, request.part, answer, now)

    def _answer(self, work: RingWork, part: Part, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if work not in self:
            return []
        work.open -= 1
        return self._steps[type(work)](work, part, answer, now)

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes: requests whose time is up end, and what has paused goes on."""
        effects: list[RingEffect] = []
        for token in [token for token, request in self._requests.items() if request.deadline <= now]:
            effects += self.answered(token, False, now)
        due = [work for time, work in self._paused if time <= now]
        if due:
            self._paused = [(time, work) for time, work in self._paused if time > now]
        for work in due:
            if work in self:
                effects += self._steps[type(work)](work, None, True, now)
        return effects
