"""A subscriber and publisher of topic groups. Law: after every round of stores or visits the root is asked whether the
views are still those that were used; if not, the round is repeated with the new ones. (003, 3.2)

A subscription is stored in all views that hold, an event visits the places of the first. If the root says afterwards
that nothing has changed, a subscription that was stored is part of every later change, and an event has met all that
was stored before it. So nobody else needs to know which view a message was sent for, and no node has to be told before
a view is used. The paper's publishers ask the root first; asking afterwards takes as many messages and is safe.

The member of a group that stores a key is named by its identifier, and a message for it goes to whoever owns that
identifier: the member itself, or after its death or leave the next node, which has been handed or has copies of what
was there. What holds for keys on a ring thus holds for groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weft.ring.group_messages import Deregister, FetchViews, Register, Renew, Reshape, Views
from weft.ring.group_placement import GroupView
from weft.ring.group_state import GroupRule, root_key
from weft.ring.identifiers import Key
from weft.ring.placement import Ended, Interest
from weft.ring.rendezvous_messages import AskLoad, LoadIs, Publication, RemoveRecord, RingEffect, Store, Visit
from weft.ring.requests import Answer, Countdown, Seen, Silent, Then, VisitCountdown

if TYPE_CHECKING:
    from weft.ring.rendezvous import RendezvousNode

Fetched = Callable[[tuple[GroupView, ...], int], list[RingEffect]]

_MOST_KNOWN = 10_000  # topics whose views are remembered


class GroupClient:
    """What a node stores in and publishes to topic groups."""

    def __init__(self, node: RendezvousNode, rule: GroupRule) -> None:
        self._node = node
        self._lease = rule.lease
        self._known: dict[str, tuple[tuple[GroupView, ...], bytes]] = {}
        self._fetches: dict[str, list[Fetched]] = {}  # who asked while an answer was awaited
        self._registered: dict[str, int] = {}  # topics, and when

    def views(self, topic: str) -> tuple[GroupView, ...]:
        """The views of a topic's group that were heard of last."""
        return self._known.get(topic, ((), b""))[0]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that this node is a member of."""
        return tuple(sorted(self._registered))

    # -- subscriptions ---------------------------------------------------------------------------------

    def store(self, interest: Interest, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        """Join the group, and store a subscription in it."""

        def registered(ok: bool, now: int) -> list[RingEffect]:
            if not ok:
                return then(False, now)
            return self._fetch(interest.topic, now, lambda views, now: self._store(interest, views, now, then, wanted))

        return self._register(interest.topic, now, registered, wanted)

    def _store(
        self, interest: Interest, views: tuple[GroupView, ...], now: int, then: Ended, wanted: Callable[[], bool]
    ) -> list[RingEffect]:
        if not wanted():
            return then(False, now)
        if not views:  # the root has died with all copies of its state: begin again
            self._registered.pop(interest.topic, None)
            self._node.later(now, lambda now: self.store(interest, now, then, wanted))
            return []
        places = _places(interest, views)
        interest.places.update(places)

        def checked(found: tuple[GroupView, ...], now: int) -> list[RingEffect]:
            if found == views:
                return then(True, now)
            effects = self._store(interest, found, now, then, wanted)
            for place in sorted(places.keys() - _places(interest, found).keys()):  # it may have come too late to move
                message = lambda token, at=place: RemoveRecord(token, interest.slot(at), views[-1].version)  # noqa: E731
                effects += self._node.until_done(place, message, lambda *_: [], now)
            return effects

        def stored(ok: bool, now: int) -> list[RingEffect]:
            return self._fetch(interest.topic, now, checked) if ok else then(False, now)

        done = Countdown(len(places), stored)
        effects: list[RingEffect] = []
        for place, version in sorted(places.items()):
            record = interest.record(place, version)
            effects += self._node.until_done(
                place,
                lambda token, record=record: Store(token, record.key, (record,)),  # type: ignore[misc]
                done,
                now,
                wanted,
            )
        return [*effects, *done.start(now)]

    def remove(self, interest: Interest, now: int, then: Ended) -> list[RingEffect]:
        """Remove a subscription from wherever it was stored; done once no change of views can bring it back."""

        def fetched(views: tuple[GroupView, ...], now: int) -> list[RingEffect]:
            places = interest.places | {view.place(cell).member for view in views for cell in interest.cells}

            def checked(found: tuple[GroupView, ...], now: int) -> list[RingEffect]:
                if found == views and len(views) < 2:
                    return then(True, now)
                self._node.later(now, lambda now: self.remove(interest, now, then))
                return []

            done = Countdown(len(places), lambda _, now: self._fetch(interest.topic, now, checked))
            effects: list[RingEffect] = []
            for place in sorted(places):
                effects += self._node.until_done(
                    place,
                    lambda token, place=place: RemoveRecord(token, interest.slot(place)),  # type: ignore[misc]
                    done,
                    now,
                )
            return [*effects, *done.start(now)]

        return self._fetch(interest.topic, now, fetched)

    # -- events ----------------------------------------------------------------------------------------

    def visit(self, event: Publication, cells: Collection[Key], now: int, then: Seen) -> list[RingEffect]:
        """Visit the members that store the event's keys."""
        known = self._known.get(event.topic)
        if known is not None:
            return self._visit(event, cells, known[0], now, then)
        return self._fetch(event.topic, now, lambda views, now: self._visit(event, cells, views, now, then))

    def _visit(
        self, event: Publication, cells: Collection[Key], views: tuple[GroupView, ...], now: int, then: Seen
    ) -> list[RingEffect]:
        places = {view.place(cell).member for view in views[:1] for cell in cells}

        def visited(silent: Silent, now: int) -> list[RingEffect]:
            def checked(found: tuple[GroupView, ...], now: int) -> list[RingEffect]:
                if found[:1] == views[:1]:
                    return then(silent, now)
                return self._visit(event, cells, found, now, lambda more, now: then(silent | more, now))

            return self._fetch(event.topic, now, checked)

        done = VisitCountdown(len(places), visited)
        effects: list[RingEffect] = []
        for place in sorted(places):
            effects += self._node.until_done(
                place,
                lambda token, place=place: Visit(token, place, event),  # type: ignore[misc]
                done.answered,
                now,
            )
        return [*effects, *done.start(now)]

    # -- the root --------------------------------------------------------------------------------------

    def _fetch(self, topic: str, now: int, then: Fetched) -> list[RingEffect]:
        """The views as they are after this call: who asks while an answer is awaited gets the next one."""
        if topic in self._fetches:
            self._fetches[topic].append(then)
            return []
        return self._ask_root(topic, now, [then])

    def _ask_root(self, topic: str, now: int, asking: list[Fetched]) -> list[RingEffect]:
        self._fetches[topic] = []
        views, digest = self._known.get(topic, ((), b""))

        def fetched(answer: Answer, now: int) -> list[RingEffect]:
            assert isinstance(answer, Views)
            found = views if answer.views is None else answer.views
            self._known.pop(topic, None)
            self._known[topic] = found, digest if answer.views is None else answer.digest
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            waiting = self._fetches.pop(topic)
            effects = self._ask_root(topic, now, waiting) if waiting else []
            for then in asking:
                effects += then(found, now)
            return effects

        return self._node.hosts.ask(
            topic, lambda token, key, host: FetchViews(token, key, host, topic, digest), fetched, now
        )

    def _register(self, topic: str, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        return then(True, now) if topic in self._registered else self._ask_to_register(topic, now, then, wanted)

    def _ask_to_register(self, topic: str, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        me = self._node.me.id

        def registered(answer: Answer, now: int) -> list[RingEffect]:
            if answer is not False:
                self._registered[topic] = now
            return then(answer is not False, now)

        return self._node.hosts.ask(
            topic, lambda token, key, host: Register(token, key, host, topic, me), registered, now, wanted
        )

    def ask_loads(self, now: int, then: Then) -> list[RingEffect]:
        """Ask the members that are registered at the same region server, once each."""
        effects: list[RingEffect] = []
        for peer in self.peers():

            def heard(answer: Answer, now: int, peer: Key = peer) -> list[RingEffect]:
                known = isinstance(answer, LoadIs) and answer.node.id == peer  # else it is dead, and another answers
                return then(answer if known else False, now)

            effects += self._node.until_done(peer, AskLoad, heard, now, lambda: False)
        return effects

    def peers(self) -> list[Key]:
        """Other members of this node's groups in the smallest region of each that has some."""
        me, found = self._node.me.id, set[Key]()
        for topic in self._registered:
            for view in self.views(topic)[:1]:
                found.update(view.peers(me))
        return sorted(found)

    def unused(self, topic: str, now: int) -> list[RingEffect]:
        """Leave a group."""
        if self._registered.pop(topic, None) is None:
            return []
        return self._deregister(topic, now, lambda *_: [], lambda: topic not in self._registered)

    def _deregister(self, topic: str, now: int, then: Ended, wanted: Callable[[], bool]) -> list[RingEffect]:
        me, done = self._node.me.id, Countdown(1, then)
        return self._node.hosts.ask(
            topic, lambda token, key, host: Deregister(token, key, host, topic, me), done, now, wanted
        )

    def reshape(self, topic: str, depth: int | None, rotation: int | None, now: int, then: Ended) -> list[RingEffect]:
        """Give a group's tree another depth or rotation distance. A group that does not exist stays away."""
        done = Countdown(1, then)
        return self._node.hosts.ask(
            topic, lambda token, key, host: Reshape(token, key, host, topic, depth, rotation), done, now
        )

    def tick(self, now: int) -> list[RingEffect]:
        """Register again before the lease is over, once for all topics of a host."""
        effects: list[RingEffect] = []
        if self._lease is None:
            return effects
        due: set[str] = set()
        for topic in [topic for topic, since in self._registered.items() if now - since >= self._lease // 3]:
            if self._node.own.uses(topic):
                due.add(self._node.hosts.host(topic))
            else:  # it was registered again while it was being left
                effects += self.unused(topic, now)
        for host in sorted(due):
            topics = tuple(topic for topic in self._registered if self._node.hosts.host(topic) == host)
            effects += self._renew(host, topics, now)
        return effects

    def _renew(self, host: str, topics: tuple[str, ...], now: int) -> list[RingEffect]:
        self._registered.update(dict.fromkeys(topics, now))
        key, me = root_key(self._node.chord.space, host), self._node.me.id

        def renewed(answer: Answer, now: int) -> list[RingEffect]:
            effects: list[RingEffect] = []
            for topic in topics if answer is False else ():
                wanted = lambda topic=topic: self._node.own.uses(topic)  # noqa: E731
                effects += self._ask_to_register(topic, now, lambda *_: [], wanted)
            return effects

        return self._node.until_done(
            key, lambda token: Renew(token, key, host, topics, me), renewed, now, lambda: False
        )

    def leave(self, now: int, then: Ended) -> list[RingEffect]:
        """Leave all groups; what this node stores for them is handed over like all of its keys."""
        topics, self._registered = list(self._registered), {}
        done = Countdown(len(topics), then)
        effects: list[RingEffect] = []
        for topic in topics:
            effects += self._deregister(topic, now, done, lambda: True)
        return [*effects, *done.start(now)]


def _places(interest: Interest, views: tuple[GroupView, ...]) -> dict[Key, int]:
    """The members that store a subscription, and the newest version of a view in which they do."""
    return {view.place(cell).member: view.version for view in views for cell in interest.cells}  # versions ascend
