"""Events that visit a node to be matched and delivered. Law: a visit is answered when every subscriber's node has
acknowledged the event, and names those that did not answer.

A node that does not answer several attempts is silent. Until it is heard of again, or the next attempt is due, events
for it are not sent but reported at once: whoever published them offers them again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weft.ring.chord import ANSWER
from weft.ring.identifiers import Key
from weft.ring.load_sharing import Sharing
from weft.ring.messages import Address, NodeRef, Token
from weft.ring.record_store import RecordStore
from weft.ring.rendezvous_messages import DeliverEvent, Examine, Gone, Publication, RingEffect, Slot, Visited
from weft.ring.requests import Answer, Seen, VisitCountdown

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode
    from weft.ring.ring_settings import RingSettings

Message = Callable[[Token], DeliverEvent]

_TRIES = 3  # of a delivery, before the subscriber's node is silent
_AGAIN = 2 * ANSWER  # until a silent node is tried again
_EXAMINE = (_TRIES + 1) * ANSWER  # that a holder has: it may have to wait for a subscriber's node


class Visits:
    """What a node examines and delivers, of its own records and of those that it holds for others."""

    def __init__(self, node: RendezvousNode, settings: RingSettings) -> None:
        self._node = node
        self._sharing = settings.sharing.sharing
        self._silent: dict[Address, int] = {}  # and when it is tried again

    def visit(self, key: Key, event: Publication, now: int, then: Seen) -> list[RingEffect]:
        """Deliver an event to all who want it of those under a key."""
        stored = self._node.stored
        shared = stored.shared
        if self._sharing is Sharing.REPLICATION and shared.holders:
            holder = shared.next_turn()
            return (
                self._examine(stored.records, key, event, now, then)
                if holder is None
                else self._redirect(holder, key, event, now, then)
            )
        holders = list(dict.fromkeys(held for slot, held in shared.away.items() if slot.key == key))
        done = VisitCountdown(len(holders) + 1, then)
        effects: list[RingEffect] = []
        for holder in holders:
            effects += self._redirect(holder, key, event, now, done)
        return effects + self._examine(stored.records, key, event, now, done, shared.away if shared.away else ())

    def examine_for(self, owner: NodeRef, message: Examine, now: int, then: Seen) -> list[RingEffect] | None:
        """Examine what is held for another node; None if nothing is."""
        store = self._node.stored.held_for(owner, message.epoch)
        return None if store is None else self._examine(store, message.key, message.event, now, then)

    def heard(self, node: Address) -> None:
        """A node is not silent any more."""
        self._silent.pop(node, None)

    def _redirect(self, holder: NodeRef, key: Key, event: Publication, now: int, then: Seen) -> list[RingEffect]:
        """Have a holder examine an event; if it does not answer, examine everything here."""
        stored = self._node.stored

        def examined(answer: Answer, now: int) -> list[RingEffect]:
            if isinstance(answer, Visited):
                return then(frozenset(answer.silent), now)
            stored.shared.lost(holder)
            return self._examine(stored.records, key, event, now, then)

        epoch = stored.shared.epoch
        return self._node.ask(holder.address, lambda token: Examine(token, epoch, key, event), now, examined, _EXAMINE)

    def _examine(  # noqa: PLR0913, PLR0917 - which records, which event, and what follows
        self,
        records: RecordStore,
        key: Key,
        event: Publication,
        now: int,
        then: Seen,
        without: Collection[Slot] = (),
    ) -> list[RingEffect]:
        by_home: dict[Address, list[int]] = defaultdict(list)
        for record in records.match(key, event, without):
            by_home[record.sub.home].append(record.sub.number)
        done = VisitCountdown(len(by_home), then)
        effects: list[RingEffect] = []
        for home, numbers in by_home.items():
            subs = tuple(sorted(numbers))
            effects += self._deliver(home, lambda token, subs=subs: DeliverEvent(token, event, subs), now, done)  # type: ignore[misc]
        return [*effects, *done.start(now)]

    def _deliver(self, home: Address, message: Message, now: int, then: Seen) -> list[RingEffect]:
        due = self._silent.get(home)
        if due is None:
            return self.offer(home, message, now, then, _TRIES)
        if now < due:
            return then(frozenset((home,)), now)
        self._silent[home] = now + _AGAIN  # one event finds out; others do not wait for it
        return self.offer(home, message, now, then)

    def offer(self, home: Address, message: Message, now: int, then: Seen, tries: int = 1) -> list[RingEffect]:
        """Deliver an event, with so many attempts."""

        def acknowledged(answer: Answer, now: int) -> list[RingEffect]:
            if answer is not False:
                gone = self._node.stored.gone(home, answer.subs, now) if isinstance(answer, Gone) else []
                return [*gone, *then(frozenset(), now)]
            if tries > 1:
                return self.offer(home, message, now, then, tries - 1)
            self._silent[home] = now + _AGAIN
            return then(frozenset((home,)), now)

        return self._node.ask(home, message, now, acknowledged)
