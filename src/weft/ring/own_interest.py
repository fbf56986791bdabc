"""The subscriptions and publications of a node's application. An event is delivered to a subscription once, and is
answered when the application has received it.

A subscription is stored, and an event visits, cell by cell: a cell is a key of the mapping. Without topic groups its
place is the key itself; with them, `weft.ring.groups` finds the member that stores it. What a node refuses, because it
does not answer for the place, is tried again after a while, until all cells are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting
from weft.errors import LocalProtocolError
from weft.language.ast import Filter
from weft.language.format import format_filter
from weft.language.text import parse
from weft.ring.chord import PERIOD, ChordNode
from weft.ring.groups import SOON, Groups
from weft.ring.identifiers import Key
from weft.ring.messages import NodeAddress
from weft.ring.rendezvous_messages import (
    Delivered,
    DeliverEvent,
    Done,
    EventId,
    Gone,
    Offered,
    Publication,
    PublicationDone,
    Record,
    RecordSlot,
    RemoveRecord,
    RingEffect,
    RingSend,
    RingSub,
    Store,
    Subscribed,
    Unsubscribed,
    Visit,
    Visited,
    WorkAnswer,
    first_stamp,
)
from weft.ring.ring_settings import RingSettings
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

_REMEMBERED = 100_000  # events whose deliveries are told apart


class Cell(NamedTuple):
    """A key of a topic, by which subscriptions and events are placed."""

    topic: str
    key: Key


@dataclass(slots=True)
class _Subscription:
    number: int
    stamp: int
    filter: str
    meeting: Meeting
    cells: tuple[Cell, ...]
    due: int = 0
    ready: bool = False  # the ring has it
    storing: Subscribing | None = None  # what was begun last

    @property
    def topics(self) -> list[str]:
        """Its leaf topics."""
        return sorted({cell.topic for cell in self.cells})


@dataclass(slots=True, eq=False)
class CellWork(RingWork):
    """Something that is to be done for the cells that are left, wherever they are."""

    left: set[Cell]
    refused: bool = field(default=False, kw_only=True)


@dataclass(slots=True, eq=False)
class Subscribing(CellWork):
    """A subscription that is being stored."""

    subscription: _Subscription


@dataclass(slots=True, eq=False)
class Unsubscribing(CellWork):
    """A subscription that is being removed from wherever it may be."""

    subscription: _Subscription


@dataclass(slots=True, eq=False)
class Publishing(CellWork):
    """An event that has not visited these cells yet."""

    events: dict[str, Publication]  # by topic
    since: int
    silent: set[NodeAddress] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Restoring(CellWork):
    """A record of another ring, whose cells may be with other members by now."""

    record: Record
    since: int


_DOING: dict[type[CellWork], WorkState] = {
    Subscribing: WorkState.STORING,
    Restoring: WorkState.STORING,
    Unsubscribing: WorkState.REMOVING,
    Publishing: WorkState.VISITING,
}


class OwnInterest:
    """What the application of a node has subscribed to, and what it publishes."""

    def __init__(
        self,
        chord: ChordNode,
        table: WorkTable,
        settings: RingSettings,
        groups: Groups | None,
        rng: np.random.Generator,
    ) -> None:
        self._chord, self._table, self._settings, self._groups, self._rng = chord, table, settings, groups, rng
        self._subscriptions: dict[int, _Subscription] = {}
        self._topics: Counter[str] = Counter()  # of subscriptions
        self._removing: set[int] = set()
        self._seen: dict[EventId, set[int]] = {}
        self._unconfirmed: dict[EventId, list[tuple[NodeAddress, DeliverEvent]]] = {}
        self._stamp = first_stamp(chord.me.life)
        self.all_known = False  # the application has said all that it wants, and the ring has it
        for kind in (Subscribing, Unsubscribing, Publishing, Restoring):
            table.handle(kind, self._answered)

    def uses(self, topic: str) -> bool:
        """Whether there is a subscription to a leaf topic."""
        return self._topics[topic] > 0

    def __len__(self) -> int:
        return len(self._subscriptions)

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(
        self, number: int, topics: Sequence[str], filter: Filter | str, now: int, meeting: Meeting
    ) -> list[RingEffect]:
        """Store a subscription to leaf topics; `Subscribed` follows."""
        if number in self._subscriptions:
            raise LocalProtocolError(f"subscription {number} already exists; remove it first")
        if number in self._removing:
            raise LocalProtocolError(f"subscription {number} is still being removed; wait until it is unsubscribed")
        wanted = parse(filter, self._settings.predicates) if isinstance(filter, str) else filter
        form, mapping = normalize(wanted), self._settings.mapping
        cells = [
            Cell(topic, key)
            for topic in topics
            for key in sorted(mapping.of_subscription(topic, form, self._rng, meeting))
        ]
        self._stamp += 1
        made = _Subscription(number, self._stamp, format_filter(wanted), meeting, tuple(cells))
        made.due = now + (self._settings.reissue or 0)
        self._subscriptions[number] = made
        self._topics.update(made.topics)
        return self._store(made, now)

    def _store(self, subscription: _Subscription, now: int) -> list[RingEffect]:
        if subscription.storing is not None:
            self._table.end(subscription.storing)
        subscription.storing = work = Subscribing(set(subscription.cells), subscription)
        if self._groups is None:
            self._table.begin(work, WorkState.LOCATING)
            return self._do_left(work, now)
        self._table.begin(work, WorkState.REGISTERING)
        return self._register(work, now)

    def _register(self, work: Subscribing, now: int) -> list[RingEffect]:
        """Become a member of the groups of all topics first."""
        assert self._groups is not None
        effects: list[RingEffect] = []
        for topic in work.subscription.topics:
            effects += self._groups.register(topic, now)
        if all(self._groups.is_member(topic) for topic in work.subscription.topics):
            work.to(WorkState.PAUSED)
            work.to(WorkState.LOCATING)
            return [*effects, *self._do_left(work, now)]
        self._table.pause(work, now, SOON)
        return effects

    def unsubscribe(self, number: int, now: int) -> list[RingEffect]:
        """Remove a subscription; `Unsubscribed` follows."""
        gone = self._subscriptions.pop(number, None)
        if gone is None:
            raise LocalProtocolError(f"there is no subscription {number}")
        self._topics -= Counter(gone.topics)
        if gone.storing is not None:
            self._table.end(gone.storing)
        self._removing.add(number)
        unsubscribing = Unsubscribing(set(gone.cells), gone)
        self._table.begin(unsubscribing, WorkState.LOCATING)
        return self._do_left(unsubscribing, now)

    def tick(self, now: int) -> list[RingEffect]:
        """Store again what has not been stored for long."""
        period = self._settings.reissue
        effects: list[RingEffect] = []
        if period is None:
            return effects
        for subscription in list(self._subscriptions.values()):
            if subscription.due <= now:
                subscription.due = now + period
                effects += self._store(subscription, now)
        return effects

    def restore(self, records: Iterable[Record], now: int) -> list[RingEffect]:
        """Store records of members of another ring wherever their cells are now."""
        effects: list[RingEffect] = []
        for record in records:
            work = Restoring({Cell(record.topic, cell) for cell in record.cells}, record, now)
            self._table.begin(work, WorkState.LOCATING)
            effects += self._do_left(work, now)
        return effects

    # -- cells -----------------------------------------------------------------------------------------

    def _do_left(self, work: CellWork, now: int) -> list[RingEffect]:
        """Send a request for the cells that are left to their places; those whose place is not known are looked for."""
        if isinstance(work, Publishing | Restoring) and self._groups is not None:  # some topics have no group
            silent = work.silent if isinstance(work, Publishing) else set()
            for cell in [cell for cell in work.left if self._groups.nobody(cell.topic, work.since, silent)]:
                work.left.discard(cell)
        places, effects = self._places(work.left, now)
        work.to(_DOING[type(work)])
        for (place, topic), cells in places.items():
            effects += self._table.errand(work, cells, place, self._request(work, place, topic, cells), now)
        return [*effects, *self._go_on(work, now)]

    def _request(self, work: CellWork, place: Key, topic: str, cells: tuple[Cell, ...]) -> Store | RemoveRecord | Visit:
        """What is asked of the owner of a place. Only the member of a group must have these cells."""
        grouped = tuple(cell.key for cell in cells) if self._groups is not None else ()
        if isinstance(work, Publishing):
            return Visit(NO_TOKEN, place, work.events[topic], grouped)
        if isinstance(work, Restoring):
            return Store(NO_TOKEN, place, (msgspec.structs.replace(work.record, key=place, cells=grouped),))
        assert isinstance(work, Subscribing | Unsubscribing)
        made = work.subscription
        sub = RingSub(self._chord.me.address, made.number)
        if isinstance(work, Unsubscribing):
            return RemoveRecord(NO_TOKEN, RecordSlot(place, sub, topic), made.stamp, grouped)
        record = Record(place, sub, topic, made.filter, made.meeting, grouped, made.stamp)
        return Store(NO_TOKEN, place, (record,))

    def _answered(
        self, work: CellWork, cells: tuple[Cell, ...] | None, answer: WorkAnswer, now: int
    ) -> list[RingEffect]:
        """A node has done something for some cells, or refuses: then they may be elsewhere."""
        if isinstance(work, Subscribing):
            if self._subscriptions.get(work.subscription.number) is not work.subscription:
                self._table.end(work)
                return []
            known = self._groups is None or all(map(self._groups.is_member, work.subscription.topics))
            if cells is None and not known:
                work.to(WorkState.REGISTERING)
                return self._register(work, now)
        if cells is None:  # it has paused
            work.to(WorkState.LOCATING)
            return self._do_left(work, now)
        if isinstance(work, Publishing) and isinstance(answer, Visited):
            work.silent.update(answer.silent)
        if answer is not False:
            work.left.difference_update(cells)
        else:
            work.refused = True
            if self._groups is not None:
                for cell in cells:
                    self._groups.not_at(*cell)
        return self._go_on(work, now)

    def _go_on(self, work: CellWork, now: int) -> list[RingEffect]:
        """Wait, try again after a while, or end. What was refused takes longer than a place that is looked for."""
        if work.open:
            return []
        if work.left:
            refused, work.refused = work.refused, False
            self._table.pause(work, now, PERIOD if refused or self._groups is None else SOON)
            return []
        self._table.end(work)
        if isinstance(work, Publishing):
            event_id = next(iter(work.events.values())).id
            return [PublicationDone(event_id, tuple(sorted(work.silent)))]
        if isinstance(work, Restoring):
            return []
        assert isinstance(work, Subscribing | Unsubscribing)
        made = work.subscription
        if isinstance(work, Subscribing):
            first, made.ready = not made.ready, True
            return [Subscribed(made.number)] if first else []
        self._removing.discard(made.number)
        effects: list[RingEffect] = [Unsubscribed(made.number)]
        if self._groups is not None:
            for topic in made.topics:
                effects += [] if self.uses(topic) else self._groups.unused(topic, now)
        return effects

    def _places(
        self, cells: Iterable[Cell], now: int
    ) -> tuple[dict[tuple[Key, str], tuple[Cell, ...]], list[RingEffect]]:
        """Cells by their places, as far as these are known; others are looked for."""
        found: dict[tuple[Key, str], tuple[Cell, ...]] = {}
        effects: list[RingEffect] = []
        for cell in sorted(cells):
            place: Key | None = cell.key
            if self._groups is not None:
                place = self._groups.place(*cell)
                if place is None:
                    effects += self._groups.locate(*cell, now)
            if place is not None:
                found[place, cell.topic] = (*found.get((place, cell.topic), ()), cell)
        return found, effects

    # -- publications ----------------------------------------------------------------------------------

    def publish(self, events: dict[str, Publication], cells: Iterable[Cell], now: int) -> list[RingEffect]:
        """Have an event matched and delivered wherever somebody may want it; `PublicationDone` follows."""
        work = Publishing(set(cells), events, now)
        self._table.begin(work, WorkState.LOCATING)
        return self._do_left(work, now)

    @property
    def publishing(self) -> int:
        """Events that have not visited all of their cells yet."""
        return self._table.count(Publishing)

    # -- deliveries ------------------------------------------------------------------------------------

    def deliver(self, sender: NodeAddress, message: DeliverEvent) -> list[RingEffect]:
        """An event for some subscriptions: those that have had it, or are gone, do not get it.

        An application that confirms finds out itself: the numbers may be of its life before a restart.
        """
        event = message.event
        if self._settings.confirmed:
            first = event.id not in self._unconfirmed
            self._unconfirmed.setdefault(event.id, []).append((sender, message))
            return [Offered(event)] if first else []
        seen = self._seen.setdefault(event.id, set())
        new = [number for number, stamp in message.subs if self._is_mine(number, stamp) and number not in seen]
        seen.update(new)
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        gone = tuple((number, stamp) for number, stamp in message.subs if not self._is_mine(number, stamp))
        receipt = Gone(message.token, gone) if gone else Done(message.token)
        return [*(Delivered(number, event) for number in new), RingSend(sender, receipt)]

    def _is_mine(self, number: int, stamp: int) -> bool:
        mine = self._subscriptions.get(number)
        return mine is not None and mine.stamp == stamp

    def confirm(self, id: EventId) -> list[RingEffect]:
        """The application has stored an event: answer the node that delivered it."""
        return [RingSend(sender, self._receipt(message)) for sender, message in self._unconfirmed.pop(id, ())]

    def _receipt(self, message: DeliverEvent) -> Done | Gone:
        """Subscriptions of a former life are replaced by new ones: they may go, but not before those are stored."""
        gone = tuple(sub for sub in message.subs if not self._is_mine(*sub)) if self.all_known else ()
        return Gone(message.token, gone) if gone else Done(message.token)
