"""What a node stores for topic groups, and how it moves. Law: a shift is answered when all that was stored for the view
is stored for the next one, too.

Nothing is taken away by a shift: the old view stays complete until the root has made the next one hold alone. Then
what was stored for earlier views only is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from weft.ring.group_messages import Settle, Shift
from weft.ring.group_placement import GroupView
from weft.ring.identifiers import Key
from weft.ring.rendezvous_messages import Record, RingEffect, Store
from weft.ring.requests import Countdown, Then

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

_BATCH = 1_000  # records in a message


class GroupMember:
    """The part of a node that stores for groups."""

    def __init__(self, node: RendezvousNode) -> None:
        self._node = node
        self._shifting: dict[tuple[Key, str, GroupView], list[Then]] = {}  # who waits

    def shift(self, message: Shift, now: int, answer: Then) -> list[RingEffect]:
        """Store each record where it belongs in the next view; that may be here."""
        key, following = message.key, message.following
        work = key, message.topic, following
        if work in self._shifting:  # the root has lost patience
            self._shifting[work].append(answer)
            return []
        self._shifting[work] = [answer]
        moving: dict[Key, list[Record]] = defaultdict(list)
        for record in self._node.stored.records.under(key, message.topic):
            mine = [cell for cell in record.cells if message.view.place(cell).member == key]
            for place in dict.fromkeys(following.place(cell).member for cell in mine):
                moving[place].append(msgspec.structs.replace(record, key=place, version=following.version))
        batches = [
            tuple(records[at : at + _BATCH])
            for _, records in sorted(moving.items())
            for at in range(0, len(records), _BATCH)
        ]

        def moved(_: bool, now: int) -> list[RingEffect]:
            return [effect for then in self._shifting.pop(work) for effect in then(True, now)]

        done = Countdown(len(batches), moved)
        effects: list[RingEffect] = []
        for batch in batches:
            effects += self._node.until_done(
                batch[0].key,
                lambda token, batch=batch: Store(token, batch[0].key, batch),  # type: ignore[misc]
                done,
                now,
            )
        return [*effects, *done.start(now)]

    def settle(self, message: Settle, now: int, answer: Then) -> list[RingEffect]:
        """Forget what was stored for earlier views only."""
        stored, version = self._node.stored, message.version
        old = [record for record in stored.records.under(message.key, message.topic) if record.version < version]
        done = Countdown(len(old), lambda _, now: answer(True, now))
        effects: list[RingEffect] = []
        for record in old:
            effects += stored.remove(record.slot, now, done, version - 1)
        return [*effects, *done.start(now)]
