"""Events that visit a node to be matched and delivered. A visit is answered when every subscriber's node has
acknowledged the event; the answer names those that did not, and members that may know subscriptions this node does not.

A node that does not answer several attempts is silent. Until it is heard of again, or the next attempt is due, events
for it are not sent but reported at once, and their publishers publish them again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from weft.ring.chord import ANSWER, ChordNode
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.load_sharing import Sharing
from weft.ring.messages import NodeAddress, NodeRef
from weft.ring.record_keeper import RecordKeeper, RingReply
from weft.ring.rendezvous_messages import (
    DeliverEvent,
    Examine,
    Gone,
    Publication,
    RecordSlot,
    RingEffect,
    RingSend,
    Visited,
    WorkAnswer,
)
from weft.ring.stored_records import RecordStore
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_TRIES = 3  # of a delivery, before the subscriber's node is silent
_AGAIN = 2 * ANSWER  # until a silent node is tried again
_EXAMINE = (_TRIES + 1) * ANSWER  # that a holder has: it may have to wait for a subscriber's node


@dataclass(slots=True, eq=False)
class Visiting(RingWork):
    """An event at a node."""

    reply: RingReply
    key: Key
    event: Publication
    owner: bool  # this node answers for the key; else it holds records for the owner
    silent: set[NodeAddress] = field(default_factory=set)
    subs: dict[NodeAddress, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # by home
    tries: dict[NodeAddress, int] = field(default_factory=dict)
    refused: bool = False


class Visits:
    """What a node examines and delivers, of its own records and of those that it holds for others."""

    def __init__(
        self, chord: ChordNode, table: WorkTable, keys: KeysInHand, keeper: RecordKeeper, sharing: Sharing
    ) -> None:
        self._chord, self._table, self._keys, self._keeper, self._sharing = chord, table, keys, keeper, sharing
        self._silent: dict[NodeAddress, int] = {}  # and when it is tried again
        self.count = 0  # events that came to be matched here
        table.handle(Visiting, self._answered)

    def heard(self, node: NodeAddress) -> None:
        """A node is not silent any more."""
        self._silent.pop(node, None)

    def visit(self, key: Key, event: Publication, now: int, reply: RingReply) -> list[RingEffect]:
        """Deliver an event to all who want it of those under a key."""
        self.count += 1
        work = Visiting(reply, key, event, owner=True)
        self._table.begin(work, WorkState.DELIVERING)
        shared = self._keeper.shared
        holders: list[NodeRef | None]  # None is this node
        if self._sharing is Sharing.REPLICATION and shared.holders:
            holders = [shared.next_turn()]
        else:
            holders = [*dict.fromkeys(held for slot, held in shared.away.items() if slot.key == key), None]
        effects: list[RingEffect] = []
        for holder in holders:
            if holder is None:
                effects += self._examine(work, self._keeper.records, shared.away, now)
            else:
                message = Examine(NO_TOKEN, shared.epoch, key, event)
                effects += self._table.ask(work, holder, holder.address, message, now, _EXAMINE)
        return effects if work.open else [*effects, *self._finish(work, now)]

    def examine_for(self, owner: NodeRef, message: Examine, now: int, reply: RingReply) -> list[RingEffect]:
        """Examine what is held for another node; refused if nothing is."""
        store = self._keeper.held_for(owner, message.epoch)
        if store is None:
            return reply.done(ok=False)
        work = Visiting(reply, message.key, message.event, owner=False)
        self._table.begin(work, WorkState.DELIVERING)
        effects = self._examine(work, store, (), now)
        return effects if work.open else [*effects, *self._finish(work, now)]

    def _examine(self, work: Visiting, store: RecordStore, away: Collection[RecordSlot], now: int) -> list[RingEffect]:
        by_home: dict[NodeAddress, list[tuple[int, int]]] = {}
        for record in store.match(work.key, work.event, away):
            by_home.setdefault(record.sub.home, []).append((record.sub.number, record.stamp))
        effects: list[RingEffect] = []
        for home, subs in by_home.items():
            work.subs[home] = tuple(sorted(subs))
            effects += self._deliver(work, home, now)
        return effects

    def _deliver(self, work: Visiting, home: NodeAddress, now: int) -> list[RingEffect]:
        due = self._silent.get(home)
        work.tries[home] = _TRIES
        if due is not None:
            if now < due:
                work.silent.add(home)
                return []
            self._silent[home] = now + _AGAIN  # one event finds out; others do not wait for it
            work.tries[home] = 1
        return self._offer(work, home, now)

    def _offer(self, work: Visiting, home: NodeAddress, now: int) -> list[RingEffect]:
        work.tries[home] -= 1
        return self._table.ask(work, home, home, DeliverEvent(NO_TOKEN, work.event, work.subs[home]), now)

    def _answered(self, work: Visiting, part: NodeRef | NodeAddress, answer: WorkAnswer, now: int) -> list[RingEffect]:
        effects: list[RingEffect] = []
        if isinstance(part, NodeRef):
            effects += self._examined(work, part, answer, now)
        elif answer is False and work.tries[part]:
            effects += self._offer(work, part, now)
        elif answer is False:
            self._silent[part] = now + _AGAIN
            work.silent.add(part)
        elif isinstance(answer, Gone):
            effects += self._keeper.gone(part, answer.subs, now)
        return effects if work.open else [*effects, *self._finish(work, now)]

    def _examined(self, work: Visiting, holder: NodeRef, answer: WorkAnswer, now: int) -> list[RingEffect]:
        """A holder has examined an event. If it does not answer, everything is examined here, if it is still here."""
        if isinstance(answer, Visited):
            work.silent.update(answer.silent)
            return []
        self._keeper.shared.lost(holder)
        if not self._keys.serves(work.key):
            work.refused = True
            return []
        return self._examine(work, self._keeper.records, (), now)

    def _finish(self, work: Visiting, now: int) -> list[RingEffect]:
        self._table.end(work)
        if work.refused or (work.owner and not self._keys.serves(work.key)):
            return work.reply.done(ok=False)  # the keys have moved: their owner may know more
        missing = self._keys.missing(now) if work.owner else ()
        silent = tuple(sorted(work.silent.union(missing)))
        return [RingSend(work.reply.to, Visited(work.reply.token, silent))]
