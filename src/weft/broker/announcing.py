"""Telling clients when what they asked for is complete. Law: `Complete` comes after `Accepted`, and never early; while
a link that is waited for is cut, the client knows which one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.broker.completion import PendingChange
from weft.broker.effects import Now
from weft.broker.messages import Complete, Incomplete, SubNumber
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.broker.state import BrokerState
from weft.routing.table import About

Still = Callable[[], bool]  # whether the client still has what it asked for


class Announcement:
    """A request that was granted, until its client knows that it is complete."""

    __slots__ = ("about", "change", "complete", "missing", "number", "session", "still", "stored")

    def __init__(self, session: Session, about: str, number: int, still: Still) -> None:
        self.session = session
        self.about = about
        self.number = number
        self.still = still
        self.change: PendingChange | None = None  # until it is complete
        self.stored = False
        self.complete = False
        self.missing: tuple[str, ...] = ()


class Announcing:
    """What the clients of a broker are waiting for."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._linked = False  # there are neighbours, or were
        self._waiting: dict[Announcement, None] = {}  # stored, and not complete
        self._untold: dict[Session, dict[Announcement, None]] = {}  # complete, while the client was not there

    def begin(self, session: Session, about: str, number: int, still: Still) -> Announcement:
        """A request has changed the table, and is on its way into the log."""
        announcement = Announcement(session, about, number, still)
        kind = About.ADVERTISEMENTS if about == "advertise" else About.SUBSCRIPTIONS
        self._linked = self._linked or bool(self._state.neighbours)
        announcement.change = self._state.completion.begin(None, kind, lambda _: self._completed(announcement))
        announcement.complete = announcement.change.complete
        return announcement

    def renew(self, session: Session, about: str, number: int, still: Still) -> None:
        """A request could not be stored, and what it ended is in the table again: it has to spread anew.

        Without neighbours there is nothing to say: the client knows already that it is complete, or is told soon that
        it was never stored.
        """
        if self._state.neighbours:
            self.accepted(self.begin(session, about, number, still))

    def restored(self) -> None:
        """After a restart nobody knows what is complete: all subscriptions wait together, and all advertisements."""
        self._linked = True
        subs, adverts = [], []
        for session in self._state.sessions.values():
            for number, sub in session.subs.items():
                subs.append(Announcement(session, "subscribe", number, still_subscribed(session, sub)))
            adverts += [Announcement(session, "advertise", n, still_advertised(session, n)) for n in session.adverts]
        self._wait(subs, About.SUBSCRIPTIONS)
        self._wait(adverts, About.ADVERTISEMENTS)

    def _wait(self, announcements: Sequence[Announcement], about: About) -> None:
        def completed(_: Now) -> None:
            for announcement in announcements:
                self._completed(announcement)

        change = self._state.completion.begin(None, about, completed)
        for announcement in announcements:
            announcement.change = change
            announcement.stored = True
            self._waiting[announcement] = None

    def accepted(self, announcement: Announcement) -> None:
        """The request is stored."""
        announcement.stored = True
        if announcement.complete:
            self._announce(announcement)
        else:
            self._waiting[announcement] = None
            self._tell_missing(announcement)

    def _completed(self, announcement: Announcement) -> None:
        announcement.change = None  # each refers to the other, which only the garbage collector would find
        if announcement.complete:
            return
        announcement.complete = True
        if announcement.stored:
            self._waiting.pop(announcement, None)
            self._announce(announcement)

    def _announce(self, announcement: Announcement) -> None:
        if not announcement.still():
            return
        connection = self._there(announcement.session)
        if connection is not None:
            done = Complete(SubNumber(announcement.number), announcement.about)
            self._state.out.send(connection.id, done)
        elif self._linked and announcement.session.durable:
            self._untold.setdefault(announcement.session, {})[announcement] = None

    def _there(self, session: Session) -> Connection | None:
        connection = self._state.connection_of(session)
        return connection if connection is not None and connection.welcomed else None

    def _tell_missing(self, announcement: Announcement) -> None:
        """Say which neighbours are missing, if the client does not know."""
        change, neighbours = announcement.change, self._state.neighbours
        assert change is not None
        waited = change.left if change.marked else neighbours.keys()
        missing = tuple(sorted(link for link in waited if link in neighbours and neighbours[link].connection is None))
        connection = self._there(announcement.session)
        if missing != announcement.missing and connection is not None and announcement.still():
            announcement.missing = missing
            self._state.out.send(connection.id, Incomplete(announcement.number, announcement.about, missing))

    def links_changed(self) -> None:
        """A neighbour has come or gone. Cost: O(requests that wait)."""
        for announcement in [each for each in self._waiting if not each.still()]:
            del self._waiting[announcement]
        for announcement in self._waiting:
            self._tell_missing(announcement)

    def welcomed(self, session: Session) -> None:
        """A client has come back: tell it what it has missed."""
        for announcement in self._untold.pop(session, {}):
            self._announce(announcement)
        for announcement in self._waiting:
            if announcement.session is session:
                announcement.missing = ()
                self._tell_missing(announcement)

    def forget(self, session: Session) -> None:
        """A session is gone."""
        self._untold.pop(session, None)


def still_subscribed(session: Session, sub: ClientSubscription) -> Still:
    """Whether a session has a subscription, as it is in the table now.

    The same filter is not enough: while the subscription had another, brokers may have forgotten the first one.
    """
    version, number = sub.version, sub.number
    return lambda: session.subs.get(number) is sub and sub.version == version


def still_advertised(session: Session, number: int) -> Still:
    """Whether a session has an advertisement, as it is in the table now: the entry itself, not one like it."""
    entry = session.adverts[number]
    return lambda: session.adverts.get(number) is entry
