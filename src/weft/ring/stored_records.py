"""What a node stores, for itself and for others. Law: a store is answered only when copies are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from weft.ring.chord import PERIOD
from weft.ring.identifiers import Key
from weft.ring.load_sharing import EXCHANGE, NeighbourLoads, SharedLoad, Sharing
from weft.ring.messages import Address, NodeRef
from weft.ring.record_store import RecordStore
from weft.ring.rendezvous_messages import (
    ANY_VERSION,
    CopyRecords,
    Hold,
    LoadIs,
    Record,
    Release,
    ReleaseAll,
    RingEffect,
    Slot,
)
from weft.ring.requests import Answer, Countdown, Then

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode
    from weft.ring.ring_settings import RingSettings


class StoredRecords:
    """The records of a node: its own, copies for others, and those that it holds for overloaded nodes."""

    def __init__(self, node: RendezvousNode, settings: RingSettings) -> None:
        self._node = node
        self._settings = settings
        self.records = self._new_store()  # its own and copies: which is which depends on the keys in hand
        self.shared = SharedLoad()
        self.held: dict[Address, tuple[int, RecordStore]] = {}  # by owner: its epoch, and its records
        self._renewed: dict[Slot, int] = {}
        self._neighbours = NeighbourLoads(settings.sharing.threshold)
        self._known_load: tuple[int | None, int] = (None, 0)
        self._asked_at: int | None = None  # when neighbours were asked for their load

    def _new_store(self) -> RecordStore:
        settings = self._settings
        return RecordStore(settings.mapping.space, settings.index, settings.mapping.semantics, settings.predicates)

    @property
    def load(self) -> int:
        """How many records it examines itself, for its own keys and for others."""
        own = sum(self._node.keys.serves(record.key) for record in self.records) - len(self.shared.away)
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

    # -- storing ---------------------------------------------------------------------------------------

    def store(self, records: tuple[Record, ...], now: int, answer: Then) -> list[RingEffect]:
        """Store records, copy them to the successors, and share new ones if there are too many."""
        fresh = [record for record in records if record not in self.records]
        self.take(records, now)
        targets = self._node.keys.copy_targets()
        done = Countdown(len(targets) + len(fresh), lambda _, now: answer(True, now))
        effects: list[RingEffect] = []
        for target in targets:
            effects += self._node.ask(target.address, lambda token: CopyRecords(token, records), now, done)
        for record in fresh:
            effects += self._share(record, now, done)
        return [*effects, *done.start(now)]

    def take(self, records: Iterable[Record], now: int) -> None:
        """Have these records, as own ones or copies."""
        for record in records:
            self.records.add(record)
            self._renewed[record.slot] = now

    def remove(self, slot: Slot, now: int, answer: Then, version: int = ANY_VERSION) -> list[RingEffect]:
        """Forget a record up to a version; whoever has a copy or holds it is told."""
        self._forget(slot, version)
        targets = dict.fromkeys((*self._node.keys.copy_targets(), *self.shared.holders))
        return self._release(targets, slot, version, now, answer)

    def _release(
        self, targets: Collection[NodeRef], slot: Slot, version: int, now: int, answer: Then
    ) -> list[RingEffect]:
        done = Countdown(len(targets), lambda _, now: answer(True, now))
        effects: list[RingEffect] = []
        for target in targets:
            effects += self._node.ask(target.address, lambda token: Release(token, slot, version), now, done)
        return [*effects, *done.start(now)]

    def gone(self, home: Address, numbers: Collection[int], now: int) -> list[RingEffect]:
        """Forget subscriptions of a node that it does not have any more. Cost: O(records)."""
        own = [record for record in self.records if self._node.keys.serves(record.key)]
        effects: list[RingEffect] = []
        for record in own:
            if record.sub.home == home and record.sub.number in numbers:
                effects += self.remove(record.slot, now, lambda *_: [])
        return effects

    def forget_within(self, after: Key, upto: Key) -> None:
        """Another node has these keys now, but for those that it has handed back already."""
        for record in self.records.within(after, upto):
            if self._node.keys.includes(record.key):
                continue
            self._forget(record.slot)

    def expire(self, now: int) -> list[RingEffect]:
        """Forget what has not been stored again for long: its subscriber is gone, or its keys are elsewhere."""
        assert self._settings.reissue is not None
        oldest = now - (self._settings.keep or 3 * self._settings.reissue)
        effects: list[RingEffect] = []
        for slot in [slot for slot, time in self._renewed.items() if time < oldest]:
            self._forget(slot)  # copies expire by themselves
            effects += self._release(self.shared.holders, slot, ANY_VERSION, now, lambda *_: [])
        return effects

    def _forget(self, slot: Slot, version: int = ANY_VERSION) -> None:
        self.records.discard(slot, version)
        if slot not in self.records:  # it may be of a later version
            self._renewed.pop(slot, None)
            self.shared.away.pop(slot, None)

    # -- sharing the load ------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Ask neighbours for their load now and then."""
        if self._settings.sharing.sharing is Sharing.NONE:
            return []
        if self._asked_at is not None and now - self._asked_at < EXCHANGE:
            return []
        self._asked_at = now
        return self._node.placement.ask_loads(now, self._heard_load)

    def _heard_load(self, answer: Answer, now: int) -> list[RingEffect]:
        if isinstance(answer, LoadIs):
            self._neighbours.heard(answer.node, answer.load, now)
            if answer.load <= self._settings.sharing.threshold:
                self.shared.refused.discard(answer.node)
        return []

    def _share(self, record: Record, now: int, done: Then) -> list[RingEffect]:
        """Give a new record to whoever shares the load; look for such nodes if there are too many records."""
        shared, sharing = self.shared, self._settings.sharing.sharing
        effects: list[RingEffect] = []
        if sharing is Sharing.NONE:
            return done(True, now)
        if len(shared.holders) + len(shared.offered) < self._settings.sharing.nodes - 1 and self.overloaded:
            effects += self._recruit(now)
        if sharing is Sharing.REPLICATION:
            every = Countdown(len(shared.holders), lambda _, now: done(True, now))
            for holder in list(shared.holders):
                effects += self._hold_at(holder, record, now, every)
            return [*effects, *every.start(now)]
        holder_in_turn = shared.next_turn(self._neighbours.fit(now)) if shared.holders else None
        if holder_in_turn is None:
            return [*effects, *done(True, now)]
        return effects + self._hold_at(holder_in_turn, record, now, done)

    def _hold_at(self, holder: NodeRef, record: Record, now: int, then: Then) -> list[RingEffect]:
        partitioned, shared = self._settings.sharing.sharing is Sharing.PARTITION, self.shared

        def held(answer: Answer, now: int) -> list[RingEffect]:
            if shared is not self.shared:
                pass  # the keys have changed since
            elif answer is False:
                self.shared.lost(holder)
            elif partitioned and holder in self.shared.holders and record in self.records:
                self.shared.away[record.slot] = holder
            return then(True, now)

        return self._node.ask(holder.address, lambda token: Hold(token, shared.epoch, (record,)), now, held)

    def _recruit(self, now: int) -> list[RingEffect]:
        """Ask neighbours to hold records: what was stored before comes first, in a replication."""
        shared, rule = self.shared, self._settings.sharing
        wanted = rule.nodes - 1 - len(shared.holders) - len(shared.offered)
        taken = {*shared.holders, *shared.offered, *shared.refused, self._node.me}
        effects: list[RingEffect] = []
        for node in [node for node in self._neighbours.fit(now) if node not in taken][: max(wanted, 0)]:
            shared.offered.add(node)
            effects += self._offer(node, frozenset(), now, shared)
        return effects

    def _offer(self, node: NodeRef, given: frozenset[Slot], now: int, shared: SharedLoad) -> list[RingEffect]:
        """Give a node all records that it does not have; once it has all, it holds them."""
        replicating = self._settings.sharing.sharing is Sharing.REPLICATION
        own = [record for record in self.records if replicating and self._node.keys.serves(record.key)]
        missing = tuple(record for record in own if record.slot not in given)
        now_given = given | {record.slot for record in missing}

        def offered(answer: Answer, now: int) -> list[RingEffect]:
            if shared is not self.shared:  # the keys have changed since
                return []
            if answer is False:
                shared.offered.discard(node)
                shared.refused.add(node)
                return self._recruit(now) if self.overloaded else []
            if replicating and any(r.slot not in now_given for r in self.records if self._node.keys.serves(r.key)):
                return self._offer(node, now_given, now, shared)
            shared.offered.discard(node)
            shared.holders.append(node)
            return []

        return self._node.ask(node.address, lambda token: Hold(token, shared.epoch, missing), now, offered)

    def range_changed(self) -> None:
        """Other keys are in hand: what is shared is examined here again, and holders may forget it."""
        before, self.shared = self.shared, SharedLoad(self.shared.epoch + 1)

        def release(now: int) -> list[RingEffect]:
            effects: list[RingEffect] = []
            for holder in before.holders:
                told = self._node.ask(holder.address, lambda t: ReleaseAll(t, before.epoch), now, lambda *_: [])
                effects += told
            return effects

        if before.holders:
            self._node.later(0, release)

    def hold(self, sender: NodeRef, epoch: int, records: Sequence[Record]) -> bool:
        """Hold records for another node, unless there are too many here, or they are out of date."""
        known, store = self.held.get(sender.address, (-1, None))
        if epoch < known or (store is None and self.overloaded):
            return False
        if store is None or epoch > known:
            store = self._new_store()
            self.held[sender.address] = epoch, store
        for record in records:
            store.add(record)
        return True

    def release(self, sender: NodeRef, message: Release) -> None:
        """Forget a copy, or what is held for another node."""
        slot, version = message.slot, message.version
        if not self._node.keys.serves(slot.key):
            self._forget(slot, version)
        if sender.address in self.held:
            self.held[sender.address][1].discard(slot, version)

    def release_all(self, sender: NodeRef, epoch: int) -> None:
        """Forget all that is held for another node, unless it is newer than this."""
        if sender.address in self.held and self.held[sender.address][0] <= epoch:
            del self.held[sender.address]

    def held_for(self, owner: NodeRef, epoch: int) -> RecordStore | None:
        """What is held for another node since its keys changed for the `epoch`-th time."""
        known, store = self.held.get(owner.address, (-1, None))
        return store if known == epoch else None
