"""Complete copies of keys: those that a node has of others' keys, and those that its successors have of its own.

A copy is complete only if its owner has said so, with the range of keys: an empty answer proves nothing. Whoever had a
copy is kept up to date until the next successors have one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from weft.ring.chord import ChordNode
from weft.ring.group_state import Arc, StateStore, cut
from weft.ring.identifiers import Key
from weft.ring.messages import NodeRef
from weft.ring.rendezvous_messages import CopyRecords, Recall, Recalled, Record, RingEffect, WorkAnswer
from weft.ring.stored_records import RecordStore
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

BATCH = 500  # records in a message


@dataclass(slots=True, eq=False)
class CopyingAll(RingWork):
    """A copy of everything, for a successor that has none."""

    node: NodeRef
    keys: Arc
    parts: deque[tuple[Record, ...]]


class KeyCopies:
    """What a node has of others, and what others have of it. `includes` says whether a key is the node's own."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node that it copies
        self,
        chord: ChordNode,
        table: WorkTable,
        records: RecordStore,
        states: StateStore,
        replicas: int,
        includes: Callable[[int], bool],
    ) -> None:
        self._chord, self._table, self._records, self._states = chord, table, records, states
        self._replicas, self._includes = replicas, includes
        self.held: dict[Key, Key] = {}  # ranges of others of which everything is here, too: their starts by their ends
        self._given: set[NodeRef] = set()  # successors that have a copy of everything
        self._former: set[NodeRef] = set()  # others that had one: kept up to date until the successors have one
        self._more = 0  # targets, besides the usual ones
        table.handle(CopyingAll, self._sent_part)

    # -- what others have ------------------------------------------------------------------------------

    @property
    def targets(self) -> list[NodeRef]:
        """The nodes that are to have a copy."""
        return self._chord.successors[: self._replicas - 1 + self._more]

    def about_to_leave(self) -> None:
        """The first successor will own the keys: those after it must have as many copies as before."""
        self._more = int(self._replicas > 1)

    @property
    def spread_out(self) -> bool:
        """Whether all targets have a complete copy."""
        return self._given.issuperset(self.targets)

    def former_holders(self) -> list[NodeRef]:
        """Others that have a complete copy, as long as the successors have none."""
        return sorted(self._former.difference(self.targets))

    def also_held_by(self, nodes: set[NodeRef]) -> None:
        """These nodes were asked for copies of keys that were taken over."""
        self._former |= nodes

    @property
    def given(self) -> tuple[NodeRef, ...]:
        """The nodes that have a copy of everything."""
        return tuple(sorted(self._given))

    def changed(self, given: Collection[NodeRef] = ()) -> None:
        """Other keys are in hand. These nodes have been given those that are new here; nobody else has all of them."""
        self._former |= self._given
        self._given.intersection_update(given)
        for work in self._table.of(CopyingAll):
            self._table.end(work)

    def spread(self, keys: Arc, edge: NodeRef | None, now: int) -> list[RingEffect]:
        """Copy everything to successors that have no copy; release those that are not needed any more."""
        targets = self.targets
        self._former |= self._given.difference(targets)
        self._given.intersection_update(targets)
        effects: list[RingEffect] = []
        if self._former and self.spread_out:
            for node in sorted(self._former.difference(targets)):
                effects += self._table.tell(node.address, CopyRecords(NO_TOKEN, (), (), keys, None, void=True))
            self._former.clear()
        copying = {work.node for work in self._table.of(CopyingAll)}
        for target in targets:
            if target not in self._given and target not in copying:
                records = self._records.within(*keys)
                parts = [tuple(records[at : at + BATCH]) for at in range(0, len(records), BATCH)] or [()]
                work = CopyingAll(target, keys, deque(parts))
                self._table.begin(work, WorkState.SENDING)
                effects += self._send(work, edge, now)
        return effects

    def _send(self, work: CopyingAll, edge: NodeRef | None, now: int) -> list[RingEffect]:
        message = CopyRecords(NO_TOKEN, work.parts[0])
        if len(work.parts) == 1:
            message = CopyRecords(NO_TOKEN, work.parts[0], self._states.within(*work.keys), work.keys, edge)
        return self._table.ask(work, edge, work.node.address, message, now)

    def _sent_part(self, work: CopyingAll, edge: NodeRef | None, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if answer is False or work.node not in self.targets:
            self._table.end(work)  # the next tick begins again
            return []
        work.parts.popleft()
        if work.parts:
            return self._send(work, edge, now)
        self._table.end(work)
        self._given.add(work.node)
        return []

    # -- what is here ----------------------------------------------------------------------------------

    def take(self, message: CopyRecords, now: int) -> None:
        """Keep copies of another node's records, or forget them."""
        if message.void and message.whole is not None:
            self._uncopy(Arc(*message.whole))
            self.forget(Arc(*message.whole))
            return
        self._records.take((record for record in message.records if not self._includes(record.key)), now)
        self._states.take(state for state in message.groups if not self._includes(state.key))
        if message.whole is not None:
            after, upto = message.whole
            self._uncopy(Arc(after, upto))
            self.held[upto] = after

    def covers(self, after: Key, upto: Key) -> bool:
        """Whether complete copies of all keys in (after, upto] are here."""
        left = [Arc(after, upto)]
        for end, start in self.held.items():
            left = [piece for arc in left for piece in cut(self._chord.space, arc, Arc(start, end))]
        return not left

    def _uncopy(self, keys: Arc) -> None:
        """The copy of some keys is not complete any more."""
        arcs = [Arc(after, upto) for upto, after in self.held.items()]
        self.held = {left.upto: left.after for arc in arcs for left in cut(self._chord.space, arc, keys)}

    def recalled(self, message: Recall, complete: bool) -> Recalled:
        """The copies under keys whose owner is dead, as many as fit in a message."""
        after, upto = message.after, message.upto
        found = self._records.within(after, upto)
        reached = upto
        if len(found) > BATCH:
            space = self._chord.space
            found.sort(key=lambda record: space.distance(after, record.key) or space.size)
            reached = found[BATCH].key
            found = [r for r in found if space.between(r.key, after, reached)]
        complete = complete and self.covers(after, upto)
        return Recalled(NO_TOKEN, tuple(found), self._states.within(after, reached), complete, reached)

    def forget(self, keys: Arc) -> None:
        """Forget what is stored under keys that others have, unless it is a complete copy of them."""
        kept = [Arc(after, upto) for upto, after in self.held.items()]
        between = self._chord.space.between

        def needed(key: Key) -> bool:
            return self._includes(key) or any(between(key, *arc) for arc in kept)

        for record in self._records.within(*keys):
            if not needed(record.key):
                self._records.forget(record.slot)
        for state in self._states.within(*keys):
            if not needed(state.key):
                self._states.discard(state)
