"""A node of the ring that stores subscriptions and delivers events, without sockets and clocks. Laws: an event that is
published after a subscription is `Subscribed` is delivered to it if it matches, once; joins and orderly leaves lose
nothing, and with `replicas` copies fewer failures at once than that lose nothing either.

A node serves a key only while it owns it and has all that is stored under it. Whoever asks another node is refused and
looks the key up again, so that while keys move, requests wait. A new node is handed its keys by its successor; a node
whose predecessor has died recalls the copies from its successors first (erratum 7: what moves is found by its key, not
by who was next). A request that is not answered is repeated; the subscriber's node drops what it has had before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from weft.algebra.profile import Meeting, Profile
from weft.errors import LocalProtocolError, RingError
from weft.index.base import AnyEvent
from weft.language.any_filter import as_filter
from weft.language.ast import Filter
from weft.language.format import format_filter
from weft.model.event import attributes_of
from weft.ring.chord import ANSWER, PERIOD, ChordNode
from weft.ring.group_client import GroupClient
from weft.ring.group_hosts import GroupHosts
from weft.ring.group_root import GroupRoots
from weft.ring.group_state import GroupState
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import KeysInHand
from weft.ring.messages import (
    Address,
    ChordEffect,
    Joined,
    JoinFailed,
    LookedUp,
    NodeRef,
    OwnershipChanged,
    SendTo,
    Token,
)
from weft.ring.own_subscriptions import OwnSubscriptions
from weft.ring.placement import DirectPlacement, RecordPlacement
from weft.ring.rendezvous_messages import (
    AskLoad,
    DeliverEvent,
    Done,
    EventId,
    JoinedRing,
    JoiningFailed,
    LeftRing,
    Publication,
    PublicationDone,
    Record,
    Request,
    Reshaped,
    RingAnswer,
    RingEffect,
    RingMessage,
    RingSend,
)
from weft.ring.request_answers import RequestAnswers
from weft.ring.requests import Answer, Silent, Then, UnansweredRequests, VisitCountdown
from weft.ring.ring_settings import RingSettings
from weft.ring.stored_records import StoredRecords
from weft.ring.visits import Visits

_LATER = PERIOD  # until a request that was refused is repeated


class RendezvousNode:
    """One node: `subscribe`, `publish` and `receive` return what is to be done."""

    def __init__(self, chord: ChordNode, settings: RingSettings, rng: np.random.Generator) -> None:
        if not chord.space == settings.mapping.space:
            raise RingError(
                f"the keys are on a circle of {settings.mapping.space.size}, the ring has {chord.space.size}"
            )
        self.chord = chord
        self.settings = settings
        self._requests = UnansweredRequests()
        self.stored = StoredRecords(self, settings)
        self.visits = Visits(self, settings)
        self.keys = KeysInHand(self, settings)
        self.hosts = GroupHosts(self)
        self.roots = GroupRoots(self, settings.group_rule, rng)
        self._answers = RequestAnswers(self)
        self.placement: RecordPlacement = (
            DirectPlacement(self) if settings.groups is None else GroupClient(self, settings.groups)
        )
        self._out_of_groups = False
        self.own = OwnSubscriptions(self, settings, rng)
        self._published = 0
        self.visited = 0  # events that came to be matched here
        self._lookups: dict[Token, Callable[[NodeRef | None, int], list[RingEffect]]] = {}
        self._later: list[tuple[int, Callable[[int], list[RingEffect]]]] = []
        self._unfinished = 0  # subscriptions and events on their way, and requests that are repeated until done

    @property
    def me(self) -> NodeRef:
        """This node as others know it."""
        return self.chord.me

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose groups this node is a member of."""
        return self.placement.topics

    # -- the application -------------------------------------------------------------------------------

    def subscribe(
        self,
        number: int,
        topic: str | Collection[str],
        filter: Filter | str,
        now: int,
        meeting: Meeting = Meeting.COVERING,
    ) -> list[RingEffect]:
        """Store a subscription to one topic or to several; `Subscribed` follows.

        Raises RingError if the filter cannot be placed.
        """
        return self.own.subscribe(number, self._leaves(topic), filter, now, meeting)

    def unsubscribe(self, number: int, now: int) -> list[RingEffect]:
        """Remove a subscription; nothing more is delivered to it, and `Unsubscribed` follows."""
        return self.own.unsubscribe(number, now)

    def _leaves(self, topic: str | Collection[str]) -> list[str]:
        topics = (topic,) if isinstance(topic, str) else topic
        return sorted({leaf for each in topics for leaf in self.settings.topics.leaves(each)})

    def publish(
        self,
        topic: str | Collection[str],
        event: AnyEvent | Profile,
        now: int,
        id: EventId | None = None,
        body: bytes = b"",
    ) -> tuple[EventId, list[RingEffect]]:
        """Deliver an event, or one with ranges, to all who want it of one topic or several; `Published` follows.

        An event that may be published again, after a restart for example, needs an `id` that stays the same. What is
        delivered names one of the leaf topics under which the event was found.
        """
        self._published += 1
        event_id = id or EventId(self.me.address, self._published)
        topics = self._leaves(topic)

        def published(silent: Silent, _: int) -> list[RingEffect]:
            self.end()
            return [PublicationDone(event_id, tuple(sorted(silent)))]

        self.begin()
        done = VisitCountdown(len(topics), published)
        effects: list[RingEffect] = []
        for each in topics:
            if isinstance(event, Profile):
                keys = self.settings.mapping.of_profile(each, event)
                made = Publication(event_id, each, region=format_filter(as_filter(event.region)), body=body)
            else:
                keys = self.settings.mapping.of_event(each, event)
                made = Publication(event_id, each, dict(attributes_of(event)), body=body)
            effects += self.placement.visit(made, keys, now, done)
        return event_id, [*effects, *done.start(now)]

    def offer(self, home: Address, event: Publication, now: int, then: Callable[[bool, int], None]) -> list[RingEffect]:
        """Offer an event to a node that was silent when it was published; `then` is told whether the node has it."""

        def offered(silent: Silent, now: int) -> list[RingEffect]:
            then(not silent, now)
            return []

        return self.visits.offer(home, lambda token: DeliverEvent(token, event), now, offered)

    def probe(self, home: Address, now: int, then: Callable[[bool, int], None]) -> list[RingEffect]:
        """Find out whether a node answers."""

        def answered(answer: Answer, now: int) -> list[RingEffect]:
            then(answer is not False, now)
            return []

        return self.ask(home, AskLoad, now, answered)

    def reshape(
        self, topic: str, now: int, *, depth: int | None = None, rotation: int | None = None
    ) -> list[RingEffect]:
        """Give a topic group's tree another depth or rotation distance; `Reshaped` follows once the root knows."""
        if not isinstance(self.placement, GroupClient):
            raise LocalProtocolError("this ring has no topic groups")
        tree = self.settings.group_rule.tree(self.chord.space, topic)
        replace(tree, depth=tree.depth if depth is None else depth, rotation=rotation or 0)  # raises RingError
        return self.placement.reshape(topic, depth, rotation, now, lambda _, __: [Reshaped(topic)])

    def confirm(self, id: EventId) -> list[RingEffect]:
        """The application has stored an event that was `Delivered`: answer whoever delivered it."""
        return self.own.confirm(id)

    def join(self, known: Address, now: int) -> list[RingEffect]:
        """Join the ring of a node that is known; `JoinedRing` or `JoiningFailed` follows."""
        effects = self.chord.join(known, now)
        self.keys.begin_to_join()
        return self._do(effects, now)

    def leave(self, now: int) -> list[RingEffect]:
        """Finish what was begun, hand the data over and leave; `LeftRing` follows.

        Its subscriptions stay until they expire: events for them are offered again when it is back. Remove those that
        are not wanted any more before.
        """
        if self._unfinished:
            self.later(now, self.leave)
            return []

        def left(_: bool, now: int) -> list[RingEffect]:
            self._out_of_groups = True
            return self.leave(now)

        return self.keys.leave(now) if self._out_of_groups else self.placement.leave(now, left)

    # -- driving ---------------------------------------------------------------------------------------

    def receive(self, sender: NodeRef, messages: Sequence[RingMessage], now: int) -> list[RingEffect]:
        """Messages of another node."""
        effects: list[RingEffect] = []
        self.visits.heard(sender.address)
        for message in messages:
            if self.chord.left:
                break
            if isinstance(message, Done):
                effects += self._requests.answered(message.token, message.ok, now)
            elif isinstance(message, RingAnswer):
                effects += self._requests.answered(message.token, message, now)
            elif isinstance(message, Request):
                effects += self._answers.asked(sender, message, now)
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
        effects += [*self.keys.tick(now), *self.roots.tick(now), *self.placement.tick(now), *self.stored.tick(now)]
        if self.settings.reissue is not None:
            effects += [*self.stored.expire(now), *self.own.reissue(now, self.settings.reissue)]
        return effects

    def _do(self, effects: list[ChordEffect], now: int) -> list[RingEffect]:
        """What Chord wants done."""
        done: list[RingEffect] = []
        for effect in effects:
            match effect:
                case SendTo(to, message):
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

    def begin(self) -> None:
        """Something has begun that is to be finished before the node leaves."""
        self._unfinished += 1

    def end(self) -> None:
        """It is finished."""
        self._unfinished -= 1

    # -- requests to others ----------------------------------------------------------------------------

    def ask(
        self, to: Address, message: Callable[[Token], Request], now: int, then: Then, patience: int = ANSWER
    ) -> list[RingEffect]:
        """Send a request to a node that is known, and wait for its answer."""
        return self._requests.ask(to, message, now + patience, then)

    def later(self, now: int, work: Callable[[int], list[RingEffect]]) -> None:
        """Do something in a while."""
        self._later.append((now + _LATER, work))

    def until_done(
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
            return self.until_done(key, message, then, now, wanted)

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

    # -- what is under keys ----------------------------------------------------------------------------

    def under(self, after: Key, upto: Key) -> tuple[tuple[Record, ...], tuple[GroupState, ...]]:
        """All that is stored under the keys in (after, upto]."""
        return tuple(self.stored.records.within(after, upto)), self.roots.within(after, upto)

    def take(self, records: Iterable[Record], groups: Iterable[GroupState], now: int) -> None:
        """Have these, as the owner of their keys or as copies."""
        self.stored.take(records, now)
        self.roots.take(groups)

    # -- what its parts tell -----------------------------------------------------------------------------

    def in_hand(self) -> list[RingEffect]:
        """The node has all that is stored under its keys, for the first time."""
        return [JoinedRing()]

    def gone(self) -> list[RingEffect]:
        """The node has handed everything over."""
        return [
            *(RingSend(each.to, each.message) for each in self.chord.leave() if isinstance(each, SendTo)),
            LeftRing(),
        ]
