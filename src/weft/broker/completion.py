"""When a change is complete, which is when every broker on every path knows it, and telling clients so.

Law: `Complete` comes after `Accepted`, and never early.

A change comes from a client or from a neighbour. When all its consequences are sent, every other link has been sent
certain control frames; the change is complete when each of these links has completed all of them. It does not matter
which frames the change itself has caused: it may be covered by an item that is still on its way, and cause none.

- A change of subscriptions waits for the frames about subscriptions on every link but its source.
- A change of advertisements waits for the frames about advertisements there, and for those about subscriptions to its
  source, because the source is sent the subscriptions that its new advertisements meet.

So subscriptions wait for subscriptions, away from their source, and advertisements for advertisements, away from their
source, and for subscriptions: on a tree nothing waits for itself. If both kinds were counted together, two brokers that
exchange advertisements would wait for each other for ever.

A link that is cut is waited for until it is there again and has what it should have, or is detached. Meanwhile the
client learns which neighbour is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from weft.broker.effects import Outbox
from weft.broker.sessions import Connection, Session, Sessions
from weft.protocol.link_messages import PROFILE_TABLE
from weft.protocol.messages import Complete, Incomplete, SubNumber
from weft.routing.table import About, Link, RoutingTable, Source

if TYPE_CHECKING:
    from weft.broker.links.interest_in import InterestReceiver, ReceivedFrame
    from weft.broker.links.neighbour import Neighbour

_MOST_SEARCHED = 50_000  # requests that are not complete


class Announcement:
    """A request that was granted, until its client knows that it is complete.

    It concerns one version of a subscription, or one entry of an advertisement: while a subscription had another
    filter, brokers may have forgotten the first one, so the same filter is not enough.
    """

    __slots__ = (
        "_advert",
        "_sub",
        "_version",
        "about",
        "changes",
        "complete",
        "missing",
        "number",
        "session",
        "stored",
    )

    def __init__(self, session: Session, about: str, number: int) -> None:
        self.session, self.about, self.number = session, about, number
        advertised = about == "advertise"
        self._advert = session.adverts[number] if advertised else None
        self._sub = None if advertised else session.subs[SubNumber(number)]
        self._version = 0 if self._sub is None else self._sub.version
        # in each table that its filter is in: None until it is made, which a query waits for the log with
        self.changes: list[PendingChange | None] = [None] * (2 if self._sub is not None and self._sub.profiles else 1)
        self.stored = self.complete = False
        self.missing: tuple[str, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether the client still has what it asked for, as it was in the table then."""
        if self._sub is None:
            return self.session.adverts.get(self.number) is self._advert
        return self.session.subs.get(SubNumber(self.number)) is self._sub and self._sub.version == self._version


class LearntFrame(NamedTuple):
    """A neighbour's control frame, which is complete when its consequences are known everywhere else."""

    receiver: InterestReceiver
    frame: ReceivedFrame


@dataclass(slots=True, eq=False, repr=False)
class PendingChange:
    """A change, and the links that have not completed it."""

    _completion: Completion
    source: Source
    about: About
    subject: Sequence[Announcement] | LearntFrame
    table: int = 0
    left: set[Link] = field(init=False, default_factory=set)
    marked: bool = field(init=False, default=False)  # False: some of its consequences may not have been sent yet

    @property
    def complete(self) -> bool:
        """Whether it waits for no link."""
        return self.marked and not self.left

    def awaits(self, link: Link) -> About:
        """Which frames of a link it waits for."""
        return About.SUBSCRIPTIONS if link == self.source else self.about

    def completed(self, link: Link) -> None:
        """A link has completed what it was sent before the mark, or is gone."""
        self.left.discard(link)
        if not self.left:
            self._completion.finished.append(self)


class Completion:
    """The changes of one broker that are not complete, and the clients that wait for them."""

    def __init__(
        self,
        tables: Sequence[RoutingTable],
        neighbours: Mapping[Link, Neighbour],
        due: dict[Link, None],
        sessions: Sessions,
        out: Outbox,
    ) -> None:
        self._tables, self._neighbours, self._due = tables, neighbours, due
        self.queried: Callable[[Announcement], None] = lambda _: None  # called when a query is complete
        self._sessions, self._out = sessions, out
        self.unmarked: list[PendingChange] = []  # some of whose consequences may not have been sent yet
        self.finished: list[PendingChange] = []  # to be passed to `finish`
        self._linked = False  # there are neighbours, or were
        self._waiting: dict[Announcement, None] = {}  # stored, and not complete
        self._unsent: dict[Session, dict[Announcement, None]] = {}  # complete, while the client was not there

    # -- changes --------------------------------------------------------------------------------------

    def begin(
        self, source: Source, about: About, subject: Sequence[Announcement] | LearntFrame, table: int = 0
    ) -> PendingChange:
        """A change was made in a table, and its first consequences were sent."""
        change = PendingChange(self, source, about, subject, table)
        if self._tables[table].pending:
            self.unmarked.append(change)
        else:
            self._put_marks(change)
        return change

    def mark_sent(self) -> None:
        """Put the marks of changes whose consequences are all sent by now."""
        unmarked, self.unmarked = self.unmarked, []
        for change in unmarked:
            if self._tables[change.table].pending:
                self.unmarked.append(change)
            else:
                self._put_marks(change)

    def _put_marks(self, change: PendingChange) -> None:
        change.marked = True
        advertised = change.about is About.ADVERTISEMENTS
        change.left = {link for link in self._neighbours if link != change.source or advertised}
        if not change.left:
            self.finished.append(change)
            return
        for link in sorted(change.left):
            self._neighbours[link].exchanges[change.table].sender.mark(change)
            self._due[link] = None

    def finish(self, change: PendingChange) -> None:
        """A change is complete."""
        subject = change.subject
        if isinstance(subject, LearntFrame):
            subject.frame.complete = True
            subject.receiver.advance()
            self._due[subject.receiver.link] = None
            return
        for announcement in subject:
            # each refers to the other, which only the garbage collector would find
            announcement.changes = [each for each in announcement.changes if each is not change]
            if change.table:
                self.queried(announcement)
            if not announcement.complete and not announcement.changes:
                announcement.complete = True
                if announcement.stored:
                    self._waiting.pop(announcement, None)
                    self._send_complete(announcement)

    # -- clients --------------------------------------------------------------------------------------

    def announce(self, session: Session, about: str, number: int) -> Announcement:
        """A request of a client has changed the table; `accepted` must follow when it is stored."""
        announcement = Announcement(session, about, number)
        kind = About.ADVERTISEMENTS if about == "advertise" else About.SUBSCRIPTIONS
        self._linked = self._linked or bool(self._neighbours)
        change = announcement.changes[0] = self.begin(None, kind, (announcement,))
        announcement.complete = change.complete and len(announcement.changes) == 1
        return announcement

    def query(self, announcement: Announcement) -> None:
        """The query of a subscription is in the table of profiles."""
        announcement.changes.remove(None)
        announcement.changes.append(self.begin(None, About.ADVERTISEMENTS, (announcement,), PROFILE_TABLE))

    def renew(self, session: Session, about: str, number: int) -> None:
        """A request could not be stored, and what it ended is in the table again: it has to spread again.

        Without neighbours there is nothing to send: the client knows already that it is complete, or learns soon that
        it was never stored.
        """
        if self._neighbours:
            announcement = self.announce(session, about, number)
            if len(announcement.changes) > 1:
                self.query(announcement)
            self.accepted(announcement)

    def restored(self) -> None:
        """After a restart nobody knows what is complete: all subscriptions wait together, and all advertisements."""
        self._linked = True
        sessions = self._sessions.by_id.values()
        subs = [Announcement(session, "subscribe", number) for session in sessions for number in session.subs]
        adverts = [Announcement(session, "advertise", number) for session in sessions for number in session.adverts]
        for about, announcements in ((About.SUBSCRIPTIONS, subs), (About.ADVERTISEMENTS, adverts)):
            change = self.begin(None, about, announcements)
            for announcement in announcements:
                announcement.changes[0] = change
                announcement.stored = True
                self._waiting[announcement] = None
        if queries := [each for each in subs if len(each.changes) > 1]:
            change = self.begin(None, About.ADVERTISEMENTS, queries, PROFILE_TABLE)
            for announcement in queries:
                announcement.changes[1] = change

    def accepted(self, announcement: Announcement) -> None:
        """The request is stored."""
        announcement.stored = True
        if announcement.complete:
            self._send_complete(announcement)
        else:
            self._waiting[announcement] = None
            self._send_missing(announcement)

    def _send_complete(self, announcement: Announcement) -> None:
        if not announcement.is_current:
            return
        connection = self._welcomed_connection(announcement.session)
        if connection is not None:
            self._out.send(connection.id, Complete(SubNumber(announcement.number), announcement.about))
        elif self._linked and announcement.session.durable:
            self._unsent.setdefault(announcement.session, {})[announcement] = None

    def _welcomed_connection(self, session: Session) -> Connection | None:
        connection = self._sessions.connection_of(session)
        return connection if connection is not None and connection.welcomed else None

    def _send_missing(self, announcement: Announcement) -> None:
        """Tell a client which neighbours are missing, if it does not know."""
        neighbours, awaited = self._neighbours, self._awaited(announcement)
        missing = tuple(sorted(link for link in awaited if link in neighbours and neighbours[link].connection is None))
        connection = self._welcomed_connection(announcement.session)
        if missing != announcement.missing and connection is not None and announcement.is_current:
            announcement.missing = missing
            self._out.send(connection.id, Incomplete(announcement.number, announcement.about, missing))

    def _awaited(self, announcement: Announcement) -> set[Link]:
        """The neighbours that a request waits for, in any table."""
        marked = (each.left if each is not None and each.marked else self._neighbours for each in announcement.changes)
        return {link for links in marked for link in links}

    @property
    def is_waiting(self) -> bool:
        """Whether anything is not complete."""
        return bool(self._waiting)

    def awaited(self, session: Session, number: SubNumber) -> tuple[str, ...]:
        """The neighbours for which a subscription is not complete; empty if it is, as far as a bounded search finds."""
        for announcement in islice(self._waiting, _MOST_SEARCHED):
            same = announcement.session is session and announcement.number == number and announcement.is_current
            if same and announcement.about != "advertise":
                return tuple(sorted(self._awaited(announcement)))
        return ()

    def links_changed(self) -> None:
        """A neighbour has come or gone. Cost: O(requests that wait)."""
        self._waiting = {each: None for each in self._waiting if each.is_current}
        for announcement in self._waiting:
            self._send_missing(announcement)

    def welcomed(self, session: Session) -> None:
        """A client has come back: tell it what it has missed."""
        for announcement in self._unsent.pop(session, {}):
            self._send_complete(announcement)
        for announcement in self._waiting:
            if announcement.session is session:
                announcement.missing = ()
                self._send_missing(announcement)

    def forget(self, session: Session) -> None:
        """A session is gone."""
        self._unsent.pop(session, None)
