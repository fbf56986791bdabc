"""A node of the ring that stores subscriptions and delivers events, without sockets and clocks. Laws: an event that is
published after a subscription is `Subscribed` is delivered to it if it matches, once; joins and orderly leaves lose
nothing, and with `replicas` copies fewer failures at once than that lose nothing either.

A node serves a key only while it owns it and has all that is stored under it. Whoever asks another node is refused and
looks the key up again, so that while keys move, requests wait. A new node is handed its keys by its successor; a node
whose predecessor has died recalls the copies from its successors first (erratum 7: what moves is found by its key, not
by who was next). A request that is not answered is repeated; the subscriber's node drops what it has had before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.algebra.normalize import normalize
from weft.algebra.profile import Meeting, Profile
from weft.errors import LocalProtocolError, RingError
from weft.index.base import AnyEvent, MatchIndex
from weft.index.tree import TreeIndex
from weft.language.any_filter import as_filter
from weft.language.ast import Filter
from weft.language.format import format_filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.event import attributes_of
from weft.ring.chord import ANSWER, PERIOD, ChordNode
from weft.ring.identifiers import Key
from weft.ring.key_mapping import KeyMapping
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.load_sharing import SharingRule
from weft.ring.messages import (
    Address,
    ChordEffect,
    Joined,
    JoinFailed,
    LookedUp,
    NodeRef,
    OwnershipChanged,
    Send,
    Token,
)
from weft.ring.rendezvous_messages import (
    Copy,
    Deliver,
    Delivered,
    Done,
    EventId,
    Examine,
    Handover,
    Hold,
    JoinedRing,
    JoiningFailed,
    LeftRing,
    Publication,
    Published,
    Recall,
    Recalled,
    Record,
    Release,
    ReleaseAll,
    Remove,
    Request,
    RingEffect,
    RingMessage,
    RingSend,
    RingSub,
    Store,
    Subscribed,
    Unsubscribed,
    Visit,
)
from weft.ring.requests import Answer, Countdown, Requests, Then
from weft.ring.stored_records import StoredRecords

_LATER = PERIOD  # until a request that was refused is repeated
_REMEMBERED = 100_000  # events whose deliveries are told apart


@dataclass(frozen=True, slots=True)
class RingSettings:
    """What all nodes of a ring agree on."""

    mapping: KeyMapping
    replicas: int = 1  # nodes that have a record: the owner and its next successors
    sharing: SharingRule = field(default_factory=SharingRule)
    reissue: int | None = None  # microseconds after which a subscription is stored again; it is dropped after three
    confirmed: bool = False  # a delivery is answered only when the application has called `confirm`
    index: Callable[[], MatchIndex] = TreeIndex
    predicates: Predicates = NO_PREDICATES

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise RingError(f"a record needs at least one node, not {self.replicas} replicas")


@dataclass(slots=True)
class _Subscription:
    records: tuple[Record, ...]
    due: int = 0


class RendezvousNode:
    """One node: `subscribe`, `publish` and `receive` return what is to be done."""

    def __init__(self, chord: ChordNode, settings: RingSettings, rng: np.random.Generator) -> None:
        if not chord.space == settings.mapping.space:
            raise RingError(
                f"the keys are on a circle of {settings.mapping.space.size}, the ring has {chord.space.size}"
            )
        self.chord = chord
        self.settings = settings
        self._rng = rng
        self._requests = Requests()
        self.stored = StoredRecords(self, settings)
        self.keys = KeysInHand(self, settings)
        self._subscriptions: dict[int, _Subscription] = {}
        self._removing: set[int] = set()
        self._seen: dict[EventId, set[int]] = {}
        self._unconfirmed: dict[EventId, list[tuple[Address, Token]]] = {}
        self._published = 0
        self.visited = 0  # events that came to be matched here
        self._lookups: dict[Token, Callable[[NodeRef | None, int], list[RingEffect]]] = {}
        self._later: list[tuple[int, Callable[[int], list[RingEffect]]]] = []
        self._unfinished = 0  # records to be stored or removed, keys to be visited

    @property
    def me(self) -> NodeRef:
        """This node as others know it."""
        return self.chord.me

    # -- the application -------------------------------------------------------------------------------

    def subscribe(
        self, number: int, topic: str, filter: Filter | str, now: int, meeting: Meeting = Meeting.COVERING
    ) -> list[RingEffect]:
        """Store a subscription; `Subscribed` follows. Raises RingError if the filter cannot be placed."""
        if number in self._subscriptions:
            raise LocalProtocolError(f"subscription {number} already exists; remove it first")
        if number in self._removing:
            raise LocalProtocolError(f"subscription {number} is still being removed; wait until it is unsubscribed")
        wanted = parse(filter, self.settings.predicates) if isinstance(filter, str) else filter
        text, sub = format_filter(wanted), RingSub(self.me.address, number)
        keys = self.settings.mapping.of_subscription(topic, normalize(wanted), self._rng, meeting)
        records = tuple(Record(key, sub, topic, text, meeting) for key in sorted(keys))
        self._subscriptions[number] = _Subscription(records, now + (self.settings.reissue or 0))
        return self._store(number, records, now, told=True)

    def _store(self, number: int, records: Sequence[Record], now: int, *, told: bool) -> list[RingEffect]:
        done = Countdown(len(records), lambda _, __: [Subscribed(number)] if told else [])
        effects: list[RingEffect] = []
        for record in records:
            effects += self._until_done(
                record.key,
                lambda token, record=record: Store(token, record),  # type: ignore[misc]
                done,
                now,
                wanted=lambda: number in self._subscriptions,
            )
        return [*effects, *done.start(now)]

    def unsubscribe(self, number: int, now: int) -> list[RingEffect]:
        """Remove a subscription; nothing more is delivered to it, and `Unsubscribed` follows."""
        gone = self._subscriptions.pop(number, None)
        if gone is None:
            raise LocalProtocolError(f"there is no subscription {number}")

        def removed(_: bool, __: int) -> list[RingEffect]:
            self._removing.discard(number)
            return [Unsubscribed(number)]

        self._removing.add(number)
        done = Countdown(len(gone.records), removed)
        effects: list[RingEffect] = []
        for record in gone.records:
            effects += self._until_done(
                record.key,
                lambda token, record=record: Remove(token, record.key, record.sub),  # type: ignore[misc]
                done,
                now,
            )
        return [*effects, *done.start(now)]

    def publish(
        self, topic: str, event: AnyEvent | Profile, now: int, id: EventId | None = None, body: bytes = b""
    ) -> tuple[EventId, list[RingEffect]]:
        """Deliver an event, or one with ranges, to all who want it; `Published` follows.

        An event that may be published again, after a restart for example, needs an `id` that stays the same.
        """
        self._published += 1
        event_id = id or EventId(self.me.address, self._published)
        if isinstance(event, Profile):
            keys = self.settings.mapping.of_profile(topic, event)
            made = Publication(event_id, topic, region=format_filter(as_filter(event.region)), body=body)
        else:
            keys = self.settings.mapping.of_event(topic, event)
            made = Publication(event_id, topic, dict(attributes_of(event)), body=body)
        done = Countdown(len(keys), lambda _, __: [Published(event_id)])
        effects: list[RingEffect] = []
        for key in sorted(keys):
            effects += self._until_done(
                key,
                lambda token, key=key: Visit(token, key, made),  # type: ignore[misc]
                done,
                now,
            )
        return event_id, [*effects, *done.start(now)]

    def confirm(self, id: EventId) -> list[RingEffect]:
        """The application has stored an event that was `Delivered`: answer whoever delivered it."""
        return [RingSend(sender, Done(token)) for sender, token in self._unconfirmed.pop(id, ())]

    def join(self, known: Address, now: int) -> list[RingEffect]:
        """Join the ring of a node that is known; `JoinedRing` or `JoiningFailed` follows."""
        effects = self.chord.join(known, now)
        self.keys.begin_to_join()
        return self._do(effects, now)

    def leave(self, now: int) -> list[RingEffect]:
        """Finish what was begun, hand the data over and leave; `LeftRing` follows.

        Subscriptions of this node should be removed before: nobody can deliver to them afterwards.
        """
        if self._unfinished:
            self.later(now, self.leave)
            return []
        return self.keys.leave(now)

    # -- driving ---------------------------------------------------------------------------------------

    def receive(self, sender: NodeRef, messages: Sequence[RingMessage], now: int) -> list[RingEffect]:
        """Messages of another node."""
        effects: list[RingEffect] = []
        for message in messages:
            if self.chord.left:
                break
            if isinstance(message, Done):
                effects += self._requests.answered(message.token, message.ok, now)
            elif isinstance(message, Recalled):
                effects += self._requests.answered(message.token, message.records, now)
            elif isinstance(message, Request):
                effects += self._asked(sender, message, now)
            else:
                effects += self._do(self.chord.receive(sender, [message], now), now)
        return effects

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes. To be called several times within `PERIOD`."""
        if self.chord.left:
            return []
        effects = [*self._do(self.chord.tick(now), now), *self._requests.expire(now)]
        due = [work for time, work in self._later if time <= now]
        self._later = [(time, work) for time, work in self._later if time > now]
        for work in due:
            effects += work(now)
        effects += self.keys.tick(now)
        if self.settings.reissue is not None:
            effects += self.stored.expire(now)
            for number, subscription in self._subscriptions.items():
                if subscription.due <= now:
                    subscription.due = now + self.settings.reissue
                    effects += self._store(number, subscription.records, now, told=False)
        return effects

    def _do(self, effects: list[ChordEffect], now: int) -> list[RingEffect]:
        """What Chord wants done."""
        done: list[RingEffect] = []
        for effect in effects:
            match effect:
                case Send(to, message):
                    done.append(RingSend(to, message))
                case LookedUp(token, _, owner):
                    then = self._lookups.pop(token, None)
                    done += [] if then is None else then(owner, now)
                case OwnershipChanged():
                    done += self.keys.reconcile(now)
                case JoinFailed(reason):
                    done.append(JoiningFailed(reason))
                case Joined():
                    pass  # `JoinedRing` follows when the keys are in hand
        return done

    # -- requests to others ----------------------------------------------------------------------------

    def ask(self, to: Address, message: Callable[[Token], Request], now: int, then: Then) -> list[RingEffect]:
        """Send a request to a node that is known, and wait for its answer."""
        return self._requests.ask(to, message, now + ANSWER, then)

    def later(self, now: int, work: Callable[[int], list[RingEffect]]) -> None:
        """Do something in a while."""
        self._later.append((now + _LATER, work))

    def _until_done(
        self,
        key: Key,
        message: Callable[[Token], Request],
        then: Then,
        now: int,
        wanted: Callable[[], bool] = lambda: True,
    ) -> list[RingEffect]:
        """Ask the owner of a key, again and again until it is done or not wanted any more."""
        self._unfinished += 1

        def again(now: int) -> list[RingEffect]:
            self._unfinished -= 1
            return self._until_done(key, message, then, now, wanted)

        def answered(answer: Answer, now: int) -> list[RingEffect]:
            if answer is not False or not wanted():
                self._unfinished -= 1
                return then(answer, now)
            self.later(now, again)
            return []

        def found(owner: NodeRef | None, now: int) -> list[RingEffect]:
            if owner is None:
                return answered(False, now)
            return self._requests.ask(owner.address, message, now + 4 * ANSWER, answered)

        token, effects = self.chord.lookup(key, now)
        self._lookups[token] = found
        return self._do(effects, now)

    # -- requests of others ----------------------------------------------------------------------------

    def _asked(self, sender: NodeRef, message: Request, now: int) -> list[RingEffect]:
        def answer(ok: Answer, _: int) -> list[RingEffect]:
            return [RingSend(sender.address, Done(message.token, ok is not False))]

        match message:
            case Deliver(token, event, subs):
                delivered = self._deliver(event, subs)
                waiting = self._unconfirmed.get(event.id)
                if waiting is None and not (delivered and self.settings.confirmed):
                    return [*delivered, *answer(True, now)]
                self._unconfirmed.setdefault(event.id, []).append((sender.address, token))
                return delivered
            case Store(_, record) if self.keys.serves(record.key):
                return self.stored.store(record, now, answer)
            case Remove(_, key, sub) if self.keys.serves(key):
                return self.stored.remove(key, sub, now, answer)
            case Visit(_, key, event) if self.keys.serves(key):
                self.visited += 1
                return self.stored.visit(key, event, now, answer)
            case Store() | Remove() | Visit():
                return answer(False, now)
            case Handover():
                accepted, effects = self.keys.handed(sender, message, now)
                return [*effects, *answer(accepted, now)]
            case Copy(_, records):
                self.stored.take(records, now)
                return answer(True, now)
            case Recall(token, after, upto):
                if self.keys.serves(upto):  # nobody has told this node of the sender yet
                    return [RingSend(sender.address, Recalled(token, None))]
                return [RingSend(sender.address, Recalled(token, tuple(self.stored.records.within(after, upto))))]
            case Hold(_, epoch, records):
                return answer(self.stored.hold(sender, epoch, records), now)
            case ReleaseAll(_, epoch):
                self.stored.release_all(sender, epoch)
                return answer(True, now)
            case Release(_, key, sub):
                self.stored.release(sender, key, sub)
                return answer(True, now)
            case Examine():
                return self.stored.examine_for(sender, message, now, answer)
        raise AssertionError(message)

    def _deliver(self, event: Publication, subs: Sequence[int]) -> list[RingEffect]:
        seen = self._seen.setdefault(event.id, set())
        new = [number for number in subs if number in self._subscriptions and number not in seen]
        seen.update(new)
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return [Delivered(number, event) for number in new]

    # -- what its parts tell -----------------------------------------------------------------------------

    def in_hand(self) -> list[RingEffect]:
        """The node has all that is stored under its keys, for the first time."""
        return [JoinedRing()]

    def gone(self) -> list[RingEffect]:
        """The node has handed everything over."""
        return [*(RingSend(each.to, each.message) for each in self.chord.leave() if isinstance(each, Send)), LeftRing()]
