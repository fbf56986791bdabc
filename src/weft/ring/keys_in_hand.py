"""The keys that a node may answer for, and how they move. Law: no two nodes serve a key at once, and who serves it has
all that is stored under it, as long as nobody is taken for dead who is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ring.chord import ANSWER
from weft.ring.group_state import GroupState
from weft.ring.identifiers import Key
from weft.ring.messages import Address, NodeRef, Token
from weft.ring.rendezvous_messages import CopyRecords, Handover, Recall, Recalled, Record, RingEffect
from weft.ring.requests import Answer

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode
    from weft.ring.ring_settings import RingSettings

_PATIENCE = 3 * ANSWER  # a new node waits for its keys before it asks for copies of them


class KeysInHand:
    """The keys in (after, me], of which everything is here; None before a new node has been handed its keys."""

    def __init__(self, node: RendezvousNode, settings: RingSettings) -> None:
        chord = node.chord
        self.after: Key | None = chord.me.id if chord.predecessor is None else chord.predecessor.id
        self._node = node
        self._chord = chord
        self._replicas = settings.replicas
        self._leaving = False
        self._leaver: Address | None = None  # the predecessor has handed its keys over and is about to leave
        self._handing = 0  # handovers that are not acknowledged yet
        self._recalling = False
        self._waiting_since: int | None = None
        self._copied: set[NodeRef] = set()  # successors that have a copy of everything
        self._copying: set[NodeRef] = set()

    def serves(self, key: int) -> bool:
        """Whether this node answers for a key."""
        return not self._leaving and self.includes(key) and self._chord.owns(key)

    def includes(self, key: int) -> bool:
        """Whether all that is stored under a key is here, though another node may own it."""
        return self.after is not None and self._chord.space.between(key, self.after, self._chord.me.id)

    def begin_to_join(self) -> None:
        """No key is in hand until the successor hands some over."""
        self.after = None

    def copy_targets(self) -> list[NodeRef]:
        """The successors that keep copies."""
        return self._chord.successors[: self._replicas - 1]

    # -- the range follows the predecessor -------------------------------------------------------------

    def reconcile(self, now: int) -> list[RingEffect]:
        """Hand over the keys of a new predecessor; take over those of one that has gone."""
        before, me = self._chord.predecessor, self._chord.me
        if self._leaving or self.after is None or self._chord.joining:
            return []
        if before is None:
            if not self._chord.successors:
                self.after = me.id  # nobody else is left
            return []
        if before.address == self._leaver or before.id == self.after:
            return []
        self._leaver = None
        if self._chord.space.between(before.id, self.after, me.id):
            after, self.after = self.after, before.id
            self._range_changed()
            return self._hand_over(before, after, now)
        return self._take_over(before, before.id, self.after, now)

    def _hand_over(self, to: NodeRef, after: Key, now: int) -> list[RingEffect]:
        records, groups = self._node.under(after, to.id)
        self._handing += 1

        def again(now: int) -> list[RingEffect]:
            self._handing -= 1
            return self._hand_over(to, after, now)

        def acknowledged(answer: Answer, now: int) -> list[RingEffect]:
            self._handing -= 1
            if answer is not False:
                if self._replicas == 1:
                    self._node.stored.forget_within(after, to.id)
                    self._node.roots.forget_within(after, to.id)
            elif self._chord.predecessor == to and not self._chord.left:
                self._handing += 1
                self._node.later(now, again)
            return []  # it is taken for dead: its keys will be taken over, and are still here

        return self._node.ask(
            to.address, lambda token: Handover(token, after, to.id, records, groups), now, acknowledged
        )

    def _take_over(self, before: NodeRef, after: Key, upto: Key, now: int) -> list[RingEffect]:
        """Recall copies of (after, upto] from the successors; then the keys after `before` are in hand."""
        asked = self._chord.successors[: max(self._replicas - 1, 1 if self.after is None else 0)]
        if self._recalling:
            return []
        self._recalling = True
        left, refused = len(asked), False

        def finish() -> list[RingEffect]:
            self._recalling = False
            if refused or self._chord.predecessor != before:
                return []  # the next tick tries again
            first = self.after is None
            self.after = before.id
            self._range_changed()
            return self._node.in_hand() if first else []

        def recalled(answer: Answer, now: int) -> list[RingEffect]:
            nonlocal left, refused
            left -= 1
            if isinstance(answer, Recalled):
                refused |= answer.records is None
                self._node.take(answer.records or (), answer.groups, now)
            return finish() if left == 0 else []

        effects: list[RingEffect] = []
        for node in asked:
            effects += self._node.ask(node.address, lambda token: Recall(token, after, upto), now, recalled)
        return effects if asked else finish()

    def handed(self, sender: NodeRef, message: Handover, now: int) -> tuple[bool, list[RingEffect]]:
        """Another node hands keys over: the successor of a new node, or a predecessor that leaves.

        A predecessor that does not know of a new node in between is refused, and so is everyone while this node is
        leaving itself; they try again with their next successor.
        """
        before_me, for_me = message.upto == self.after, message.upto == self._chord.me.id
        if self._leaving or not (before_me or for_me):
            return False, []
        self._node.take(message.records, message.groups, now)
        if self.after is None:
            self.after = message.after
            return True, [*self._node.in_hand(), *self.reconcile(now)]
        if before_me:
            self.after, self._leaver = message.after, sender.address
            self._range_changed()
        return True, []

    def _range_changed(self) -> None:
        self._copied.clear()
        self._node.stored.range_changed()

    # -- leaving ---------------------------------------------------------------------------------------

    def leave(self, now: int) -> list[RingEffect]:
        """Hand everything to the successor, then go."""
        self._leaving = True
        to, after, me = self._chord.successor, self.after, self._chord.me
        if to == me or after is None:
            return self._node.gone()
        if self._handing:  # a new predecessor waits for its keys
            self._node.later(now, self.leave)
            return []
        records, groups = self._node.under(after, me.id)

        def acknowledged(answer: Answer, now: int) -> list[RingEffect]:
            if answer is not False:
                return self._node.gone()
            self._node.later(now, self.leave)
            return []

        return self._node.ask(
            to.address, lambda token: Handover(token, after, me.id, records, groups), now, acknowledged
        )

    # -- copies ----------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[RingEffect]:
        """Mend what has changed, and copy everything to successors that have no copy yet."""
        if self._leaving or self._chord.joining:
            return []
        effects = self.reconcile(now)
        if self.after is None:
            return effects + self._ask_for_keys(now)
        targets = self.copy_targets()
        self._copied.intersection_update(targets)
        after, me = self.after, self._chord.me.id
        for target in targets:
            if target in self._copied or target in self._copying:
                continue
            stored = self._node.under(after, me)
            self._copying.add(target)

            def copied(answer: Answer, _: int, target: NodeRef = target) -> list[RingEffect]:
                self._copying.discard(target)
                if answer is not False and self.after == after:
                    self._copied.add(target)
                return []

            def copy(token: Token, stored: tuple[tuple[Record, ...], tuple[GroupState, ...]] = stored) -> CopyRecords:
                return CopyRecords(token, *stored)

            effects += self._node.ask(target.address, copy, now, copied)
        return effects

    def _ask_for_keys(self, now: int) -> list[RingEffect]:
        """The node that should have handed keys over may have died: others have copies."""
        before = self._chord.predecessor
        if self._waiting_since is None:
            self._waiting_since = now
        if before is None or now - self._waiting_since < _PATIENCE:
            return []
        self._waiting_since = now
        return self._take_over(before, before.id, self._chord.me.id, now)
