"""Stores and removals at the owner of a key, and the sharing of an overloaded node's load (003, 3.1).

A store counts when every node that must have a copy has it; the nodes that share the load get it afterwards. What they
hold is out of date as soon as the owner's keys change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft.ring.chord import PERIOD, ChordNode
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.load_sharing import EXCHANGE, NeighbourLoads, SharedLoad, Sharing
from weft.ring.messages import NodeAddress, NodeRef, RequestToken
from weft.ring.rendezvous_messages import (
    AskLoad,
    CopyRecords,
    Done,
    Hold,
    LoadIs,
    Record,
    RecordSlot,
    Release,
    ReleaseAll,
    RingEffect,
    RingSend,
    WorkAnswer,
)
from weft.ring.ring_settings import RingSettings
from weft.ring.stored_records import RecordStore
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable


class RingReply(NamedTuple):
    """Whom to answer."""

    to: NodeAddress
    token: RequestToken

    def done(self, ok: bool = True) -> list[RingEffect]:
        """The answer: it is done, or is not."""
        return [RingSend(self.to, Done(self.token, ok))]


@dataclass(slots=True, eq=False)
class Storing(RingWork):
    """Records that are being copied, and then shared."""

    reply: RingReply
    fresh: list[Record]  # those that were not here before, or have another stamp
    ok: bool  # every copy is made, and every visit comes to them


@dataclass(slots=True, eq=False)
class Releasing(RingWork):
    """A record that is being removed from copies and holders."""

    reply: RingReply | None


@dataclass(slots=True, eq=False)
class Recruiting(RingWork):
    """A neighbour that is being given records to examine."""

    node: NodeRef
    shared: SharedLoad
    given: frozenset[tuple[RecordSlot, int]] = frozenset()  # with their stamps
    begun: bool = False


@dataclass(slots=True, eq=False)
class AskingLoads(RingWork):
    """Neighbours that were asked for their load."""


class RecordKeeper:
    """The records that a node answers for, and those that it holds for overloaded nodes."""

    def __init__(
        self,
        chord: ChordNode,
        table: WorkTable,
        keys: KeysInHand,
        records: RecordStore,
        settings: RingSettings,
    ) -> None:
        self._chord, self._table, self._keys, self._settings = chord, table, keys, settings
        self.records = records  # its own and copies: which is which depends on the keys in hand
        self._shared = SharedLoad(chord.me.life << 20)  # no epoch of an earlier life is used again
        self._changes = keys.changes  # those that the shared load is for
        self.held: dict[NodeAddress, tuple[int, RecordStore]] = {}  # by owner: its epoch, and its records
        self._neighbours = NeighbourLoads(settings.sharing.threshold)
        self._known_load: tuple[int | None, int] = (None, 0)
        self._asked_at: int | None = None
        self.region_peers: Callable[[], Collection[Key]] | None = None  # members who may share the load, in groups
        for kind, step in (
            (Storing, self._stored),
            (Releasing, self._released),
            (Recruiting, self._recruited),
            (AskingLoads, self._heard_load),
        ):
            table.handle(kind, step)

    @property
    def load(self) -> int:
        """How many records it examines itself, for its own keys and for others."""
        own = sum(self._keys.serves(record.key) for record in self.records) - len(self.shared.away)
        return own + sum(len(records) for _, records in self.held.values())

    def known_load(self, now: int) -> int:
        """The load of a moment ago: all neighbours ask for it."""
        since, load = self._known_load
        if since is None or now - since >= PERIOD:
            load = self.load
            self._known_load = now, load
        return load

    @property
    def overloaded(self) -> bool:
        """Whether it wants others to share its load."""
        rule = self._settings.sharing
        return rule.sharing is not Sharing.NONE and self.load > rule.threshold

    @property
    def shared(self) -> SharedLoad:
        """What others examine for this node: nothing, once other keys are in hand."""
        if self._changes != self._keys.changes:
            self._changes = self._keys.changes
            self.unshare()
        return self._shared

    @property
    def _partitions(self) -> bool:
        return self._settings.sharing.sharing is Sharing.PARTITION

    def unshare(self) -> None:
        """Examine everything here again: other records are stored here."""
        before = self._shared
        self._shared = SharedLoad(before.epoch + 1, outdated=[*before.outdated, *before.holders])

    # -- storing ---------------------------------------------------------------------------------------

    def store(self, records: Sequence[Record], now: int, reply: RingReply, complete: bool = True) -> list[RingEffect]:
        """Store records, copy them, and share new ones if there are too many. Unless that is `complete`, the answer is
        that it is not done.
        """
        unknown = [record for record in records if not self.records.has(record)]
        self.records.take(records, now)
        fresh = [record for record in unknown if self.records.has(record)]
        for record in fresh:  # whoever examines an earlier one in the same slot does not know this one
            self.shared.away.pop(record.slot, None)
        work = Storing(reply, fresh, complete)
        self._table.begin(work, WorkState.COPYING)
        effects: list[RingEffect] = []
        by_target: dict[NodeRef, list[Record]] = {}
        for record in records:
            for target in self._keys.copy_targets(record.key):
                by_target.setdefault(target, []).append(record)
        for target, some in by_target.items():
            effects += self._table.ask(work, target, target.address, CopyRecords(NO_TOKEN, tuple(some)), now)
        for former in self._keys.copies.former_holders():
            if former not in by_target:
                effects += self._table.tell(former.address, CopyRecords(NO_TOKEN, tuple(records)))
        return effects if work.open else [*effects, *self._share(work, now)]

    def _stored(self, work: Storing, part: NodeRef, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if work.state is WorkState.SHARING:
            return self._held(work, part, answer)
        work.ok &= answer is not False
        if work.open:
            return []
        return self._share(work, now)

    def _share(self, work: Storing, now: int) -> list[RingEffect]:
        """Give new records to the nodes that share the load; look for such nodes if there are too many records.

        Also if a copy is missing: the subscriber's node tries again, and then the record is not new any more.
        """
        work.to(WorkState.SHARING)
        effects: list[RingEffect] = []
        rule, shared = self._settings.sharing, self.shared
        if rule.sharing is not Sharing.NONE:
            for record in work.fresh:
                if len(shared.holders) + len(shared.offered) < rule.nodes - 1 and self.overloaded:
                    effects += self._recruit(now)
                holders = list(shared.holders)
                if holders and rule.sharing is Sharing.PARTITION:
                    in_turn = shared.next_turn(self._neighbours.fit(now))
                    holders = [] if in_turn is None else [in_turn]
                for holder in holders:
                    message = Hold(NO_TOKEN, shared.epoch, (record,))
                    effects += self._table.ask(work, (holder, record, shared.epoch), holder.address, message, now)
        if work.open:
            return effects
        self._table.end(work)
        return [*effects, *work.reply.done(work.ok)]

    def _held(self, work: Storing, part: object, answer: WorkAnswer) -> list[RingEffect]:
        assert isinstance(part, tuple)
        holder, record, epoch = part
        shared = self.shared
        if epoch == shared.epoch:  # else the keys have changed since
            if answer is False:
                shared.lost(holder)
            elif self._partitions and holder in shared.holders and self.records.has(record):
                shared.away[record.slot] = holder
        if work.open:
            return []
        self._table.end(work)
        return work.reply.done(work.ok)

    # -- removing --------------------------------------------------------------------------------------

    def remove(self, slot: RecordSlot, stamp: int, now: int, reply: RingReply | None = None) -> list[RingEffect]:
        """Forget a record up to a stamp; whoever has a copy or holds it is told."""
        self.records.remove(slot, stamp, now)
        self._not_shared(slot)
        work = Releasing(reply)
        self._table.begin(work, WorkState.COPYING)
        effects: list[RingEffect] = []
        targets = (*self._keys.copy_targets(slot.key), *self._keys.copies.former_holders(), *self.shared.holders)
        for target in dict.fromkeys(targets):
            effects += self._table.ask(work, target, target.address, Release(NO_TOKEN, slot, stamp), now)
        return effects if work.open else [*effects, *self._released(work, None, True, now)]

    def _released(self, work: Releasing, part: object, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        if work.open:
            return []
        self._table.end(work)
        return [] if work.reply is None else work.reply.done()

    def _not_shared(self, slot: RecordSlot) -> None:
        if slot not in self.records:
            self.shared.away.pop(slot, None)

    def gone(self, home: NodeAddress, subs: Collection[tuple[int, int]], now: int) -> list[RingEffect]:
        """Forget subscriptions that a node does not have any more: their numbers and stamps. Cost: O(records)."""
        stale = set(subs)
        found = [
            record
            for record in self.records
            if record.sub.home == home and (record.sub.number, record.stamp) in stale and self._keys.serves(record.key)
        ]
        return [effect for record in found for effect in self.remove(record.slot, record.stamp, now)]

    def expire(self, now: int) -> list[RingEffect]:
        """Forget what has not been stored again for long, unless its home has been silent for less."""
        if self._settings.reissue is None:
            return []
        oldest = now - (self._settings.keep or 3 * self._settings.reissue)
        members = self._chord.members
        effects: list[RingEffect] = []
        for slot in [slot for slot, time in self.records.renewed.items() if time < oldest]:
            home = members.get(slot.sub.home)
            if home is not None and home.silent_since is not None and home.silent_since >= oldest:
                continue
            self.records.forget(slot)  # copies expire by themselves
            self._not_shared(slot)
            for holder in self.shared.holders:
                effects += self._table.tell(holder.address, Release(NO_TOKEN, slot))
        return effects

    # -- sharing the load ------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Drop what is too old, ask neighbours for their load, and release holders that are not needed any more."""
        effects = self.expire(now)
        if self._settings.sharing.sharing is Sharing.NONE:
            return effects
        shared = self.shared
        for holder in shared.outdated:
            effects += self._table.tell(holder.address, ReleaseAll(NO_TOKEN, shared.epoch - 1))
        shared.outdated.clear()
        if self._asked_at is not None and now - self._asked_at < EXCHANGE:
            return effects
        self._asked_at = now
        work = AskingLoads()
        self._table.begin(work, WorkState.SHARING)
        if self.region_peers is None:
            for node in self._chord.neighbours():
                effects += self._table.ask(work, node.id, node.address, AskLoad(NO_TOKEN), now)
        else:
            for peer in self.region_peers():
                effects += self._table.errand(work, peer, peer, AskLoad(NO_TOKEN), now)
        if not work.open:
            self._table.end(work)
        return effects

    def _heard_load(self, work: AskingLoads, part: Key, answer: WorkAnswer, now: int) -> list[RingEffect]:
        if isinstance(answer, LoadIs) and answer.node.id == part:  # else it is dead, and another one answers
            self._neighbours.heard(answer.node, answer.load, now)
            if answer.load <= self._settings.sharing.threshold:
                self.shared.refused.discard(answer.node)
        if not work.open:
            self._table.end(work)
        return []

    def _recruit(self, now: int) -> list[RingEffect]:
        """Ask neighbours to hold records: what was stored before comes first, in a replication."""
        shared, rule = self.shared, self._settings.sharing
        wanted = rule.nodes - 1 - len(shared.holders) - len(shared.offered)
        taken = {*shared.holders, *shared.offered, *shared.refused, self._chord.me}
        effects: list[RingEffect] = []
        for node in [node for node in self._neighbours.fit(now) if node not in taken][: max(wanted, 0)]:
            shared.offered.add(node)
            work = Recruiting(node, shared)
            self._table.begin(work, WorkState.SHARING)
            effects += self._offer(work, now)
        return effects

    def _offer(self, work: Recruiting, now: int) -> list[RingEffect]:
        """Give a node all records that it does not have; once it has all, it holds them."""
        missing = self._not_given(work)
        first, work.begun = not work.begun, True
        work.given |= {(record.slot, record.stamp) for record in missing}
        message = Hold(NO_TOKEN, work.shared.epoch, missing, first)
        return self._table.ask(work, work.node, work.node.address, message, now)

    def _not_given(self, work: Recruiting) -> tuple[Record, ...]:
        if self._settings.sharing.sharing is not Sharing.REPLICATION:
            return ()
        served = (record for record in self.records if self._keys.serves(record.key))
        return tuple(record for record in served if (record.slot, record.stamp) not in work.given)

    def _recruited(self, work: Recruiting, part: NodeRef, answer: WorkAnswer, now: int) -> list[RingEffect]:  # noqa: ARG002
        shared, node = work.shared, work.node
        if shared is self.shared and answer is not False and self._not_given(work):
            return self._offer(work, now)
        self._table.end(work)
        if shared is not self.shared:  # the keys have changed since
            return []
        shared.offered.discard(node)
        if answer is False:
            shared.refused.add(node)
            return self._recruit(now) if self.overloaded else []
        shared.holders.append(node)
        return []

    # -- for others ------------------------------------------------------------------------------------

    def hold(self, sender: NodeRef, message: Hold) -> bool:
        """Hold records for another node, unless there are too many here, or they are out of date."""
        known, store = self.held.get(sender.address, (-1, None))
        if message.epoch < known or (store is None and self.overloaded):
            return False
        if message.first:
            store = RecordStore(self._settings)
            self.held[sender.address] = message.epoch, store
        elif store is None or message.epoch > known:
            return False  # this node was started again, and does not have what was held before
        for record in message.records:
            store.add(record)
        return True

    def release(self, sender: NodeRef, message: Release, now: int) -> None:
        """Forget a copy, or what is held for another node."""
        if not self._keys.serves(message.slot.key):
            self.records.remove(message.slot, message.stamp, now)
        if sender.address in self.held:
            self.held[sender.address][1].forget(message.slot, message.stamp)

    def release_all(self, sender: NodeRef, epoch: int) -> None:
        """Forget all that is held for another node, unless it is newer than this."""
        if sender.address in self.held and self.held[sender.address][0] <= epoch:
            del self.held[sender.address]

    def held_for(self, owner: NodeRef, epoch: int) -> RecordStore | None:
        """What is held for another node since its keys changed for the `epoch`-th time."""
        known, store = self.held.get(owner.address, (-1, None))
        return store if known == epoch else None
