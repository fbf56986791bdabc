"""The keys that a node answers for, and how they move: joins, deaths, leaves, copies, and rings that meet.

A node answers for the keys in (after, me] and for nothing else. `after` moves in three ways: another node hands keys
over; this one hands some over; or every owner between is dead and a complete copy of their keys was found. What Chord
says of predecessors begins such a move and never grants a key. So at any time a key has one node that answers for it,
or nobody does and requests wait, unless a living node is considered dead: then the nodes that may know more are
reported with every event (`missing`), and the event is published again when they are back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from weft.ring.chord import ANSWER, PERIOD, ChordNode
from weft.ring.group_state import Arc, KeyState, StateStore
from weft.ring.identifiers import Key
from weft.ring.key_copies import BATCH, KeyCopies
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.rendezvous_messages import (
    AskRange,
    CopyRecords,
    Handover,
    HandoverPart,
    JoinedRing,
    NeedKeys,
    PassStates,
    RangeIs,
    Recall,
    Recalled,
    Record,
    RingEffect,
    Store,
    WorkAnswer,
)
from weft.ring.stored_records import RecordStore
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_ASKED = 8  # living members that are asked for their keys at once
_SILENT_ASKED = 256  # and members that were silent before
_TRIES = 3  # of a request that must not be mistaken for a death
_AGAIN = PERIOD // 5  # until what was refused is sent again
_QUIET = 3 * ANSWER  # for which a member that did not answer is not asked again
_PREPARE = 3 * ANSWER  # for which a node that leaves waits until others have copies
_LONELY = 3 * ANSWER  # after which a node without keys asks whether anybody has some
SETTLE = 10 * ANSWER  # after which a node that is back has been handed what is its own


class Life(StrEnum):
    """What a node is doing in the ring."""

    JOINING = "looking for its place"
    WAITING = "without keys: its successor will hand them over"
    SERVING = "answering for its keys"
    FINISHING = "about to leave: it takes no new work"
    LEAVING = "handing over: it answers for nothing"
    LEFT = "gone"


NEXT_LIFE: dict[Life, frozenset[Life]] = {
    Life.JOINING: frozenset({Life.WAITING, Life.SERVING, Life.LEFT}),
    Life.WAITING: frozenset({Life.SERVING, Life.LEFT, Life.FINISHING}),
    Life.SERVING: frozenset({Life.FINISHING}),
    Life.FINISHING: frozenset({Life.LEAVING, Life.LEFT}),
    Life.LEAVING: frozenset({Life.FINISHING, Life.LEFT}),
    Life.LEFT: frozenset(),
}


@dataclass(slots=True, eq=False)
class Handing(RingWork):
    """Keys on their way to another node: a new predecessor, or the successor of a node that leaves."""

    node: NodeRef
    keys: Arc
    leaving: bool
    parts: deque[tuple[Record, ...]]
    last: bool = False  # the last part has been sent


@dataclass(slots=True, eq=False)
class GapSearch(RingWork):
    """The search for the owner of the keys before those in hand, and for copies if all owners are dead."""

    upto: Key  # where the keys in hand began
    gap: list[NodeRef]  # members that were not asked yet, the nearest first
    known: int  # how many members there were
    batch: list[NodeRef] = field(default_factory=list)
    living: dict[NodeRef, RangeIs] = field(default_factory=dict)
    tries: dict[NodeRef, int] = field(default_factory=dict)
    bound: NodeRef | None = None
    complete: bool = False
    refused: bool = False


@dataclass(slots=True, eq=False)
class PassingOn(RingWork):
    """Records and states of another ring, on their way to their owners."""


@dataclass(slots=True, eq=False)
class RingQuestion(RingWork):
    """A question whose answer is not needed to go on."""


class KeysInHand:
    """The keys in (after, me], of which everything is here; None before a new node has been handed its keys."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it moves
        self,
        chord: ChordNode,
        table: WorkTable,
        records: RecordStore,
        states: StateStore,
        replicas: int,
        abandon: int,
        learn: int,
        settle: int = SETTLE,
    ) -> None:
        self._chord, self._table, self._records, self._states = chord, table, records, states
        self._replicas, self.abandon, self._learn, self._settle = replicas, abandon, learn, settle
        self.after: Key | None = chord.me.id if chord.predecessor is None else chord.predecessor.id
        self.life = Life.SERVING
        self.changes = 0  # how often the keys in hand have changed
        self.incomplete = 0  # ranges that were taken over though no complete copy was found
        self.copies = KeyCopies(chord, table, records, states, replicas, self.includes)
        self.restore: Callable[[list[Record], int], list[RingEffect]] | None = None  # records of topic groups
        self._handing: Handing | None = None
        self._search: GapSearch | None = None
        self._search_at = 0  # when the next search may begin
        self._gap_since: int | None = None
        self._needy: NodeRef | None = None  # it is where the keys in hand begin, and has none itself
        self._learning: list[tuple[Arc, int]] = []  # keys under which subscriptions may be missing, and until when
        self._watched: dict[NodeAddress, int] = {}  # nodes that may have keys, too, and when they were last silent
        self._waiting_since: int | None = None
        self._leaving_since: int | None = None
        self._asked_at: int | None = None
        for kind, step in (
            (Handing, self._handed_part),
            (GapSearch, self._searched),
            (PassingOn, self._passed),
            (RingQuestion, self._asked),
        ):
            table.handle(kind, step)

    def to(self, life: Life) -> None:
        """Go on to another state."""
        assert life in NEXT_LIFE[self.life], f"a node goes from {self.life.name} to {life.name}"
        self.life = life

    # -- who answers -----------------------------------------------------------------------------------

    def serves(self, key: int) -> bool:
        """Whether this node answers for a key."""
        return self.life in (Life.SERVING, Life.FINISHING) and self.includes(key)

    def includes(self, key: int) -> bool:
        """Whether a key is in hand."""
        return self.after is not None and self._chord.space.between(key, self.after, self._chord.me.id)

    def learning(self, key: int, now: int) -> bool:
        """Whether subscriptions under a key may be missing: their subscribers will store them again."""
        if not self._learning:
            return False
        self._learning = [each for each in self._learning if each[1] > now]
        return any(self._chord.space.between(key, *arc) for arc, _ in self._learning)

    def learning_left(self, key: int, now: int) -> int:
        """For how many microseconds that is so."""
        between = self._chord.space.between
        return max((until - now for arc, until in self._learning if until > now and between(key, *arc)), default=0)

    def learn(self, key: Key, now: int, learning: int | None = None) -> None:
        """What is stored under a key may be incomplete for a while: for `learning` microseconds, or the usual time."""
        left = self._learn if learning is None else learning
        if left > self.learning_left(key, now):
            self._learn_until(Arc(Key((key - 1) % self._chord.space.size), key), left, now)

    def watch_silent(self) -> None:
        """Members that do not answer may know more than this node, from now on."""
        for address, member in self._chord.members.items():
            if member.silent_since is not None:
                self._watched.setdefault(address, -self._settle)

    def missing(self, now: int) -> list[NodeAddress]:
        """Members that may know subscriptions under keys in hand that this node does not know."""
        members = self._chord.members
        busy = self._handing is not None
        return [
            address
            for address, time in self._watched.items()
            if address in members and (now - time < self._settle or (busy and time > 0))
        ]

    def missing_since(self, now: int) -> tuple[tuple[NodeRef, int], ...]:
        """The same members, for a node that is given keys or cells: they did not answer so many microseconds ago."""
        members = self._chord.members
        return tuple((members[each].node, max(0, now - self._watched[each])) for each in self.missing(now))

    def was_cut_off(self, now: int) -> None:
        """This node could not run for a while: others may have taken its keys over."""
        for node in (*self._chord.successors, *(each.node for each in self._chord.members.values())):
            self._watched[node.address] = now

    def copy_targets(self, key: Key) -> list[NodeRef]:
        """The nodes that must have a copy before a change under a key counts."""
        targets = self.copies.targets
        moving = self._handing
        if moving is not None and moving.node not in targets and self._chord.space.between(key, *moving.keys):
            return [*targets, moving.node]
        return targets

    def copy_state(
        self, work: RingWork, state: KeyState, now: int, records: tuple[Record, ...] = ()
    ) -> list[RingEffect]:
        """Have a state copied, with records under the same key; the step of the work gets the answers."""
        effects: list[RingEffect] = []
        message = CopyRecords(NO_TOKEN, records, (state,))
        for target in self.copy_targets(state.key):
            effects += self._table.ask(work, target, target.address, message, now)
        for former in self.copies.former_holders():
            effects += self._table.tell(former.address, message)
        return effects

    def range_is(self) -> RangeIs:
        """What this node answers for, for one that looks for the owner of keys."""
        chord = self._chord
        if self.life in (Life.JOINING, Life.LEFT):
            return RangeIs(NO_TOKEN, None)
        near = (chord.predecessor, *chord.successors[:2])
        return RangeIs(NO_TOKEN, self.after, tuple(node for node in near if node is not None))

    # -- beginning -------------------------------------------------------------------------------------

    def begin_to_join(self) -> None:
        """No key is in hand until the successor hands some over."""
        self.after, self.life, self._chord.joining = None, Life.JOINING, True

    def joined(self) -> None:
        """Chord has found this node's place."""
        if self.life is Life.JOINING:
            self.to(Life.WAITING)

    def tick(self, now: int) -> list[RingEffect]:
        """Mend what has changed, and copy everything to successors that have no copy yet."""
        if self.life in (Life.JOINING, Life.WAITING):
            return self._wait(now)
        if self.life not in (Life.SERVING, Life.FINISHING):
            return []
        self._watch(now)
        effects = self.reconcile(now)
        if self.after is None:
            return effects
        return [*effects, *self.copies.spread(Arc(self.after, self._chord.me.id), self._edge(self.after), now)]

    def _wait(self, now: int) -> list[RingEffect]:
        """Ask the successor for keys, now and then. If nobody has any, the lowest identifier begins."""
        if self._waiting_since is None:
            self._waiting_since = now
        if self._asked_at is not None and now - self._asked_at < ANSWER:
            return []
        self._asked_at = now
        effects: list[RingEffect] = []
        if self.life is Life.WAITING and self._chord.successors:
            effects += self._ask(self._chord.successor, NeedKeys(NO_TOKEN), now)
        if self._chord.members and now - self._waiting_since >= _LONELY and self._search is None:
            effects += self._begin_search(self._chord.me.id, now)
        return effects

    def _ask(self, node: NodeRef, message: NeedKeys, now: int) -> list[RingEffect]:
        work = RingQuestion()
        self._table.begin(work, WorkState.ASKING)
        return self._table.ask(work, node, node.address, message, now)

    def _asked(self, work: RingQuestion, part: NodeRef, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        self._table.end(work)
        return []

    def needed(self, sender: NodeRef) -> None:
        """A node before this one has no keys."""
        if sender.id == self.after and sender.id != self._chord.me.id and self._handing is None:
            self._needy = sender

    def _watch(self, now: int) -> None:
        members, watched = self._chord.members, self._watched
        for node in self._chord.successors:
            watched.setdefault(node.address, -self._settle)
        for address in watched:
            member = members.get(address)
            if member is not None and member.silent_since is not None:
                watched[address] = now

    # -- new predecessors ------------------------------------------------------------------------------

    def reconcile(self, now: int) -> list[RingEffect]:
        """Hand over the keys of a new predecessor; look for the owner of those before a predecessor that has gone."""
        before, me, after = self._chord.predecessor, self._chord.me, self.after
        if self.life not in (Life.SERVING, Life.FINISHING) or after is None or self._handing is not None:
            return []
        if before is not None and before.id != after and self._chord.space.between(before.id, after, me.id):
            self._gap_since = None
            return self._hand_over(before, Arc(after, before.id), now, leaving=False)
        if after == me.id or (before is not None and before.id == after and before != self._needy):
            self._gap_since = None
            return []
        if self._gap_since is None:
            self._gap_since = now
        if self._search is not None or now - self._gap_since < PERIOD or now < self._search_at:
            return []
        return self._begin_search(after, now)

    def _hand_over(self, to: NodeRef, keys: Arc, now: int, leaving: bool) -> list[RingEffect]:
        given = self._records.within(*keys)
        if leaving and self._replicas > 1:
            given = list(self._records)  # copies of others' keys, too
        parts = [tuple(given[at : at + BATCH]) for at in range(0, len(given), BATCH)]
        self._handing = work = Handing(to, keys, leaving, deque(parts))
        self._table.begin(work, WorkState.SENDING)
        return self._send_part(work, now)

    def _send_part(self, work: Handing, now: int) -> list[RingEffect]:
        """Send a part. The last one ends this node's answers for the keys: it is repeated until it has arrived."""
        if len(work.parts) > 1:
            return self._table.ask(work, "part", work.node.address, HandoverPart(NO_TOKEN, work.parts[0]), now)
        work.to(WorkState.MOVING)
        work.last = True
        if work.leaving:
            self.to(Life.LEAVING)
            self._chord.leaving = True
        else:
            self.after = work.keys.upto
            self.copies.held[work.keys.upto] = work.keys.after
            self._changed()
        return self._send_last(work, now)

    def _send_last(self, work: Handing, now: int) -> list[RingEffect]:
        records = work.parts[0] if work.parts else ()
        me, whole = self._chord.me.id, work.leaving and self._replicas > 1
        learning = max((until - now for _, until in self._learning), default=0)
        message = Handover(
            NO_TOKEN,
            *work.keys,
            records,
            self._states.within(me, me) if whole else self._states.within(*work.keys),
            self._edge(work.keys.after),
            work.leaving,
            tuple((after, upto) for upto, after in self.copies.held.items()) if whole else (),
            max(0, learning),
            self.missing_since(now),
            self.copies.given if work.leaving else (),
        )
        return self._table.ask(work, "last", work.node.address, message, now)

    def _handed_part(self, work: Handing, part: str | None, answer: WorkAnswer, now: int) -> list[RingEffect]:
        """The other node has a part, or the whole, or does not answer."""
        if not self._is_there(work.node) or (not work.last and not self._still_next(work)):
            return self._stop_handing(work)
        if part is None:  # it has paused
            work.to(WorkState.MOVING if work.last else WorkState.SENDING)
            return self._send_last(work, now) if work.last else self._send_part(work, now)
        if answer is False:
            if work.leaving and work.last and self._chord.successor != work.node:
                return self._stop_handing(work)
            self._table.pause(work, now, _AGAIN)
            return []
        if part == "last":
            return self._handed_over(work)
        work.parts.popleft()
        return self._send_part(work, now)

    def _is_there(self, node: NodeRef) -> bool:
        member = self._chord.members.get(node.address)
        return member is not None and member.node == node and member.silent_since is None

    def _still_next(self, work: Handing) -> bool:
        if work.leaving:
            return self._chord.successor == work.node and self.life is Life.FINISHING
        return self._chord.predecessor == work.node and self.life in (Life.SERVING, Life.FINISHING)

    def _stop_handing(self, work: Handing) -> list[RingEffect]:
        """The other node is gone. What was its own by then is taken over like the keys of any dead node."""
        self._table.end(work)
        self._handing = None
        if self.life is Life.LEAVING:
            self.to(Life.FINISHING)
            self._chord.leaving = False
        return []

    def _handed_over(self, work: Handing) -> list[RingEffect]:
        self._table.end(work)
        self._handing = None
        if work.leaving:
            self.to(Life.LEFT)
        elif self._replicas == 1:
            self.copies.held.pop(work.keys.upto, None)
            self.copies.forget(work.keys)
        return []

    def _edge(self, after: Key) -> NodeRef | None:
        """The node whose keys end at `after`."""
        before = self._chord.predecessor
        if before is not None and before.id == after:
            return before
        return next((each.node for each in self._chord.members.values() if each.node.id == after), None)

    # -- what others hand over -------------------------------------------------------------------------

    def take_part(self, message: HandoverPart, now: int) -> bool:
        """Records that will be handed over, or copied."""
        if self.life in (Life.JOINING, Life.LEAVING, Life.LEFT):
            return False
        self._records.take((record for record in message.records if not self.includes(record.key)), now)
        return True

    def handed(self, sender: NodeRef, message: Handover, now: int) -> tuple[bool, list[RingEffect]]:
        """Another node hands keys over: the successor of a new node, one of another ring, or one that leaves.

        A predecessor that does not know of a new node in between is refused, and so is everyone while this node is
        leaving itself; they try again with their next successor.
        """
        if self.life in (Life.JOINING, Life.LEAVING, Life.LEFT):
            return False, []
        self._chord.remember(message.edge)
        self.watch_also(message.missing, now)
        if message.leaving:
            return self._handed_by_leaver(sender, message, now), []
        if message.upto != self._chord.me.id:
            return False, []
        if self.after is None:
            self._records.take(message.records, now)
            self._states.take(message.groups)
            self._set_after(message.after)
            self._learn_until(Arc(message.after, message.upto), message.learning, now)
            self._waiting_since = self._asked_at = None
            self.to(Life.SERVING)
            return True, [JoinedRing()]
        return True, self._meet(message, now)

    def watch_also(self, nodes: Iterable[tuple[NodeRef, int]], now: int) -> None:
        """The giver could not reach these nodes: if they are not known here, they are silent until they answer."""
        for node, ago in nodes:
            if node.address not in self._chord.members:
                self._chord.remember(node)
                self._chord.silent(node, now)
            self._watched[node.address] = max(now - ago, self._watched.get(node.address, -self._settle))

    def _handed_by_leaver(self, sender: NodeRef, message: Handover, now: int) -> bool:
        if self.after is None or not (message.upto == self.after or self.includes(message.upto)):
            return False
        self._records.take((record for record in message.records if not self.includes(record.key)), now)
        self._states.take(state for state in message.groups if not self.includes(state.key))
        for after, upto in message.copies:
            self.copies.held.setdefault(upto, after)
        if message.upto == self.after:
            self._set_after(message.after, message.given)
            self._learn_until(Arc(message.after, message.upto), message.learning, now)
        self._chord.has_left(sender)
        if self._chord.predecessor is None and message.edge not in (None, self._chord.me):
            self._chord.predecessor = message.edge
        return True

    def _meet(self, message: Handover, now: int) -> list[RingEffect]:
        """Keys that this node answers for are handed to it: two rings become one. What each has is united."""
        assert self.after is not None
        alone = self.after == self._chord.me.id
        self._records.take(message.records, now)
        changed = self._states.merge(message.groups)
        records: Sequence[Record] = message.records
        if alone:
            changed, records = list(self._states), list(self._records)
            self._set_after(message.after)
        elif not self.includes(message.after):
            self.copies.held[self.after] = message.after  # all of the other ring's keys up to here
        self._changed()
        return self._pass_on(records, changed, now)

    def merge_states(self, states: Iterable[KeyState]) -> bool:
        """Take group states of another ring."""
        self._states.merge(states)
        self._changed()
        return True

    def _pass_on(self, records: Iterable[Record], states: Iterable[KeyState], now: int) -> list[RingEffect]:
        work = PassingOn()
        effects: list[RingEffect] = []
        by_key: dict[Key, list[Record]] = {}
        elsewhere = [record for record in records if not self.includes(record.key)]
        for record in elsewhere:
            if not record.cells:
                by_key.setdefault(record.key, []).append(record)
        if self.restore is not None:
            effects += self.restore([record for record in elsewhere if record.cells], now)
        under: dict[Key, list[KeyState]] = {}
        for state in states:
            if not self.includes(state.key):
                under.setdefault(state.key, []).append(state)
        if not by_key and not under:
            return effects
        self._table.begin(work, WorkState.STORING)
        for key, some in under.items():
            effects += self._table.errand(work, key, key, PassStates(NO_TOKEN, key, tuple(some)), now, repeat=True)
        for key, stored in by_key.items():
            for at in range(0, len(stored), BATCH):
                message = Store(NO_TOKEN, key, tuple(stored[at : at + BATCH]))
                effects += self._table.errand(work, (key, at), key, message, now, repeat=True)
        return effects

    def _passed(self, work: PassingOn, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if not work.open:
            self._table.end(work)
        return []

    def _set_after(self, after: Key, given: Collection[NodeRef] = ()) -> None:
        self.after = after
        self._needy = self._gap_since = None
        self._changed(given)

    def _learn_until(self, keys: Arc, learning: int, now: int) -> None:
        if learning > 0:
            self._learning.append((keys, now + learning))

    def _changed(self, given: Collection[NodeRef] = ()) -> None:
        self.changes += 1
        self.copies.changed(given)

    # -- deaths ----------------------------------------------------------------------------------------

    def _begin_search(self, upto: Key, now: int) -> list[RingEffect]:
        """Find the nearest living node that has keys: between it and this one all owners are dead."""
        space, me = self._chord.space, self._chord.me
        nodes = [member.node for member in self._chord.members.values()]
        gap = [node for node in nodes if node.id != me.id and space.between(node.id, me.id, upto)]
        gap.sort(key=lambda node: space.distance(node.id, upto))
        self._search = work = GapSearch(upto, gap, len(nodes))
        self._table.begin(work, WorkState.ASKING)
        return self._ask_batch(work, now)

    def _ask_batch(self, work: GapSearch, now: int) -> list[RingEffect]:
        living = silent = 0
        work.batch = []
        while work.gap and living < _ASKED and silent < _SILENT_ASKED:
            node = work.gap.pop(0)
            member = self._chord.members.get(node.address)
            was_silent = member is not None and member.silent_since is not None
            if was_silent and member is not None and now - member.silent_at < _QUIET:
                continue
            work.batch.append(node)
            living, silent = living + (not was_silent), silent + was_silent
        effects: list[RingEffect] = []
        for node in work.batch:
            effects += self._table.ask(work, node, node.address, AskRange(NO_TOKEN), now)
        return effects if work.batch else self._asked_all(work, now)

    def _searched(self, work: GapSearch, node: NodeRef, answer: WorkAnswer, now: int) -> list[RingEffect]:
        none = self.life in (Life.JOINING, Life.WAITING)
        if self.after != (None if none else work.upto) or self.life is Life.LEAVING:
            return self._stop_search(work, now)
        tries = work.tries[node] = work.tries.get(node, 0) + 1
        if work.state is WorkState.RECALLING:
            return self._recalled(work, node, answer, tries, now)
        if isinstance(answer, RangeIs):
            work.living[node] = answer
            self._chord.remember(*answer.near)
        elif tries < _TRIES and not self._chord.is_silent(node):
            return self._table.ask(work, node, node.address, AskRange(NO_TOKEN), now)
        else:
            self._chord.silent(node, now)
        return [] if work.open else self._asked_all(work, now)

    def _asked_all(self, work: GapSearch, now: int) -> list[RingEffect]:
        if len(self._chord.members) > work.known:
            return self._stop_search(work, now)  # there are more members: the next tick asks them, too
        owner = next((node for node in work.batch if node in work.living and work.living[node].after is not None), None)
        if owner is None and work.gap:
            work.to(WorkState.ASKING)
            return self._ask_batch(work, now)
        if self.life in (Life.JOINING, Life.WAITING):
            return self._begin_alone(work, owner, now)
        work.bound = owner or self._chord.me
        if work.bound.id == work.upto:  # it is alive: Chord does not know it yet
            if self._chord.is_nearer(work.bound):
                self._chord.predecessor = work.bound
            self._needy = None
            return self._stop_search(work, now)
        return self._recall(work, now)

    def _begin_alone(self, work: GapSearch, owner: NodeRef | None, now: int) -> list[RingEffect]:
        """Nobody has keys: whoever knew something is dead. The lowest of the living begins, and learns."""
        self._stop_search(work, now)
        everybody = len(work.living) == len(self._chord.members)
        waited = self._waiting_since is not None and now - self._waiting_since >= self.abandon
        me = self._chord.me
        if owner is not None or not (everybody or waited) or any(node.id < me.id for node in work.living):
            return []
        self.incomplete += 1
        self._chord.begin()
        self._set_after(me.id)
        self._learn_until(Arc(me.id, me.id), self._learn, now)
        self.to(Life.SERVING)
        return [JoinedRing()]

    def _recall(self, work: GapSearch, now: int) -> list[RingEffect]:
        """Recall copies from all successors, also if they are here: others may have newer ones."""
        assert work.bound is not None
        work.to(WorkState.RECALLING)
        work.tries.clear()
        work.complete = self.copies.covers(work.bound.id, work.upto)
        effects: list[RingEffect] = []
        for node in self._chord.successors:
            message = Recall(NO_TOKEN, work.bound.id, work.upto)
            effects += self._table.ask(work, node, node.address, message, now)
        return effects or self._recalled_all(work, now)

    def _recalled(self, work: GapSearch, node: NodeRef, answer: WorkAnswer, tries: int, now: int) -> list[RingEffect]:
        assert work.bound is not None
        if isinstance(answer, Recalled) and answer.records is not None:
            self._records.take(answer.records, now)
            self._states.take(answer.groups)
            if answer.reached != work.upto:
                work.tries[node] = 0
                message = Recall(NO_TOKEN, answer.reached, work.upto)
                return self._table.ask(work, node, node.address, message, now)
            work.complete |= answer.complete
        elif isinstance(answer, Recalled):
            work.refused = True
        elif tries < _TRIES and node in self._chord.successors:
            message = Recall(NO_TOKEN, work.bound.id, work.upto)
            return self._table.ask(work, node, node.address, message, now)
        return [] if work.open else self._recalled_all(work, now)

    def _recalled_all(self, work: GapSearch, now: int) -> list[RingEffect]:
        """Take the keys over if everything is here; without a complete copy nobody answers for them for a while."""
        assert work.bound is not None
        since = now if self._gap_since is None else self._gap_since
        self._stop_search(work, now)
        if work.refused or (not work.complete and now - since < self.abandon):
            self._gap_since = since
            return []
        taken = Arc(work.bound.id, work.upto)
        if not work.complete:
            self.incomplete += 1
            self._learn_until(taken, self._learn, now)
        for member in self._chord.members.values():  # whoever answered for these keys may be alive and unreachable
            if self._chord.space.between(member.node.id, *taken):
                self._watched.setdefault(member.node.address, -self._settle)
        self._set_after(taken.after)
        self.copies.also_held_by({node for node in work.tries if node in self._chord.successors})
        return []

    def _stop_search(self, work: GapSearch, now: int) -> list[RingEffect]:
        self._table.end(work)
        self._search, self._search_at = None, now + PERIOD
        return []

    # -- copies ----------------------------------------------------------------------------------------

    def recall(self, message: Recall) -> Recalled:
        """The copies under keys whose owner is dead."""
        if self.serves(message.upto):  # nobody has told this node of the sender yet
            return Recalled(NO_TOKEN, None)
        return self.copies.recalled(message, complete=self.life is not Life.LEAVING)

    def copied(self, message: CopyRecords, now: int) -> bool:
        """Keep copies of another node's records, unless this node is about to go."""
        if self.life in (Life.JOINING, Life.LEAVING, Life.LEFT):
            return False
        self._chord.remember(message.edge)
        self.copies.take(message, now)
        return True

    # -- leaving ---------------------------------------------------------------------------------------

    def leave(self, now: int) -> list[RingEffect]:
        """Hand everything to the successor, when no other move is under way. To be called until it has left."""
        if self.life is not Life.FINISHING or self._handing is not None or self._search is not None:
            return []
        if self._leaving_since is None:
            self._leaving_since = now
            self.copies.about_to_leave()
        if not self.copies.spread_out and now - self._leaving_since < _PREPARE:
            return []
        if not self._chord.successors or self.after is None:
            self.to(Life.LEFT)
            return []
        return self._hand_over(self._chord.successor, Arc(self.after, self._chord.me.id), now, leaving=True)

    def forgotten(self, address: NodeAddress) -> None:
        """A member will not come back."""
        self._watched.pop(address, None)
