"""The subscriptions of a node's application, and what has been delivered to them. Laws: an event is delivered to a
subscription once; it is answered when the application has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting
from weft.errors import LocalProtocolError
from weft.language.ast import Filter
from weft.language.format import format_filter
from weft.language.text import parse
from weft.ring.messages import Address
from weft.ring.placement import Interest
from weft.ring.rendezvous_messages import (
    Delivered,
    DeliverEvent,
    Done,
    EventId,
    Gone,
    Offered,
    RingEffect,
    RingSend,
    RingSub,
    Subscribed,
    Unsubscribed,
)
from weft.ring.requests import Countdown

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode
    from weft.ring.ring_settings import RingSettings

_REMEMBERED = 100_000  # events whose deliveries are told apart


@dataclass(slots=True)
class _Subscription:
    interests: tuple[Interest, ...]
    due: int = 0


class OwnSubscriptions:
    """What the application of a node has subscribed to."""

    def __init__(self, node: RendezvousNode, settings: RingSettings, rng: np.random.Generator) -> None:
        self._node, self._settings, self._rng = node, settings, rng
        self._subscriptions: dict[int, _Subscription] = {}
        self._topics: Counter[str] = Counter()  # of subscriptions
        self._removing: set[int] = set()
        self._seen: dict[EventId, set[int]] = {}
        self._unconfirmed: dict[EventId, list[tuple[Address, DeliverEvent]]] = {}
        self.all_known = False  # the application has said all that it wants, and the ring has it

    def interests(self) -> list[Interest]:
        """All of them, by topic."""
        return [interest for subscription in self._subscriptions.values() for interest in subscription.interests]

    def uses(self, topic: str) -> bool:
        """Whether there is a subscription to a leaf topic."""
        return self._topics[topic] > 0

    def subscribe(
        self, number: int, topics: Sequence[str], filter: Filter | str, now: int, meeting: Meeting
    ) -> list[RingEffect]:
        """Store a subscription to leaf topics; `Subscribed` follows."""
        if number in self._subscriptions:
            raise LocalProtocolError(f"subscription {number} already exists; remove it first")
        if number in self._removing:
            raise LocalProtocolError(f"subscription {number} is still being removed; wait until it is unsubscribed")
        wanted = parse(filter, self._settings.predicates) if isinstance(filter, str) else filter
        text, sub, form = format_filter(wanted), RingSub(self._node.me.address, number), normalize(wanted)
        interests = []
        for topic in topics:
            cells = self._settings.mapping.of_subscription(topic, form, self._rng, meeting)
            interests.append(Interest(sub, topic, text, meeting, tuple(sorted(cells))))
        self._subscriptions[number] = _Subscription(tuple(interests), now + (self._settings.reissue or 0))
        self._topics.update(topics)
        return self._store(number, now, told=True)

    def _store(self, number: int, now: int, *, told: bool) -> list[RingEffect]:
        subscription = self._subscriptions[number]

        def wanted() -> bool:
            return self._subscriptions.get(number) is subscription

        def stored(_: bool, __: int) -> list[RingEffect]:
            self._node.end()
            return [Subscribed(number)] if told else []

        self._node.begin()
        done = Countdown(len(subscription.interests), stored)
        effects: list[RingEffect] = []
        for interest in subscription.interests:
            effects += self._node.placement.store(interest, now, done, wanted)
        return [*effects, *done.start(now)]

    def unsubscribe(self, number: int, now: int) -> list[RingEffect]:
        """Remove a subscription; `Unsubscribed` follows."""
        gone = self._subscriptions.pop(number, None)
        if gone is None:
            raise LocalProtocolError(f"there is no subscription {number}")
        for interest in gone.interests:
            self._topics[interest.topic] -= 1
            if not self._topics[interest.topic]:
                del self._topics[interest.topic]

        def removed(_: bool, now: int) -> list[RingEffect]:
            self._node.end()
            self._removing.discard(number)
            effects: list[RingEffect] = [Unsubscribed(number)]
            for interest in gone.interests:
                if not self.uses(interest.topic):
                    effects += self._node.placement.unused(interest.topic, now)
            return effects

        self._node.begin()
        self._removing.add(number)
        done = Countdown(len(gone.interests), removed)
        effects: list[RingEffect] = []
        for interest in gone.interests:
            effects += self._node.placement.remove(interest, now, done)
        return [*effects, *done.start(now)]

    def reissue(self, now: int, period: int) -> list[RingEffect]:
        """Store again what has not been stored for so long."""
        effects: list[RingEffect] = []
        for number, subscription in list(self._subscriptions.items()):
            if subscription.due <= now:
                subscription.due = now + period
                effects += self._store(number, now, told=False)
        return effects

    # -- deliveries ------------------------------------------------------------------------------------

    def deliver(self, sender: Address, message: DeliverEvent) -> list[RingEffect]:
        """An event for some subscriptions: those that have had it, or are gone, do not get it.

        An application that confirms finds out itself: the numbers may be of its life before a restart.
        """
        event = message.event
        if self._settings.confirmed:
            first = event.id not in self._unconfirmed
            self._unconfirmed.setdefault(event.id, []).append((sender, message))
            return [Offered(event)] if first else []
        seen = self._seen.setdefault(event.id, set())
        new = [number for number in message.subs if number in self._subscriptions and number not in seen]
        seen.update(new)
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return [*(Delivered(number, event) for number in new), RingSend(sender, Done(message.token))]

    def confirm(self, id: EventId) -> list[RingEffect]:
        """The application has stored an event: answer whoever delivered it."""
        return [RingSend(sender, self._receipt(message)) for sender, message in self._unconfirmed.pop(id, ())]

    def _receipt(self, message: DeliverEvent) -> Done | Gone:
        """Subscriptions of a former life are replaced by new ones: they may go, but not before those are stored."""
        gone = tuple(number for number in message.subs if number not in self._subscriptions) if self.all_known else ()
        return Gone(message.token, gone) if gone else Done(message.token)
