"""Where a node stores its subscriptions and looks for those of others. Law: what is stored before an event is published
is found by it.

Without topic groups a subscription is stored at the owners of its keys, and an event visits the owners of its own
(003, 3.1). With them, `weft.ring.group_client` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from weft.algebra.profile import Meeting
from weft.ring.identifiers import Key
from weft.ring.rendezvous_messages import (
    AskLoad,
    Publication,
    Record,
    RemoveRecord,
    RingEffect,
    RingSub,
    Slot,
    Store,
    Visit,
)
from weft.ring.requests import Countdown, Seen, Then, VisitCountdown

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

Ended = Callable[[bool, int], list[RingEffect]]  # whether it was done, or was not wanted any more; and when


@dataclass(slots=True)
class Interest:
    """A subscription of this node to one topic, and where it may be stored."""

    sub: RingSub
    topic: str
    filter: str
    meeting: Meeting
    cells: tuple[Key, ...]  # the keys that it is placed by
    places: set[Key] = field(default_factory=set)  # members of its group

    def slot(self, key: Key) -> Slot:
        """Where its record under a key is."""
        return Slot(key, self.sub, self.topic)

    def record(self, key: Key, version: int = 0) -> Record:
        """As it is stored under a key."""
        cells = self.cells if version else ()
        return Record(key, self.sub, self.topic, self.filter, self.meeting, cells, version)


class RecordPlacement(Protocol):
    """What a node needs to have stored and found. Whatever is begun ends once, with `then`."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose groups this node is a member of."""

    def store(self, interest: Interest, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        """Store a subscription, unless it is not wanted any more."""

    def remove(self, interest: Interest, now: int, then: Ended) -> list[RingEffect]:
        """Remove a subscription."""

    def visit(self, event: Publication, cells: Collection[Key], now: int, then: Seen) -> list[RingEffect]:
        """Have an event matched and delivered wherever somebody may want it."""

    def ask_loads(self, now: int, then: Then) -> list[RingEffect]:
        """Ask the nodes that may share this node's load how much they have to do."""

    def unused(self, topic: str, now: int) -> list[RingEffect]:
        """The node has no subscription to a topic any more."""

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes."""

    def leave(self, now: int, then: Ended) -> list[RingEffect]:
        """The node is about to leave."""


class DirectPlacement:
    """Every key is stored at its owner."""

    def __init__(self, node: RendezvousNode) -> None:
        self._node = node

    @property
    def topics(self) -> tuple[str, ...]:
        """There are no groups."""
        return ()

    def store(self, interest: Interest, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        """Store a record under each key."""
        done = Countdown(len(interest.cells), then)
        effects: list[RingEffect] = []
        for key in interest.cells:
            effects += self._node.until_done(
                key,
                lambda token, key=key: Store(token, key, (interest.record(key),)),  # type: ignore[misc]
                done,
                now,
                wanted,
            )
        return [*effects, *done.start(now)]

    def remove(self, interest: Interest, now: int, then: Ended) -> list[RingEffect]:
        """Remove the record under each key."""
        done = Countdown(len(interest.cells), then)
        effects: list[RingEffect] = []
        for key in interest.cells:
            effects += self._node.until_done(
                key,
                lambda token, key=key: RemoveRecord(token, interest.slot(key)),  # type: ignore[misc]
                done,
                now,
            )
        return [*effects, *done.start(now)]

    def visit(self, event: Publication, cells: Collection[Key], now: int, then: Seen) -> list[RingEffect]:
        """Visit each key."""
        done = VisitCountdown(len(cells), then)
        effects: list[RingEffect] = []
        for key in sorted(cells):
            effects += self._node.until_done(
                key,
                lambda token, key=key: Visit(token, key, event),  # type: ignore[misc]
                done.answered,
                now,
            )
        return [*effects, *done.start(now)]

    def ask_loads(self, now: int, then: Then) -> list[RingEffect]:
        """Ask the neighbours from the finger table."""
        effects: list[RingEffect] = []
        for node in self._node.chord.neighbours():
            effects += self._node.ask(node.address, AskLoad, now, then)
        return effects

    def unused(self, topic: str, now: int) -> list[RingEffect]:  # noqa: ARG002 - topics are not kept
        """Nothing is to be done."""
        return []

    def tick(self, now: int) -> list[RingEffect]:  # noqa: ARG002 - nothing is due
        """Nothing is to be done."""
        return []

    def leave(self, now: int, then: Ended) -> list[RingEffect]:
        """Nothing is to be done first."""
        return then(True, now)
