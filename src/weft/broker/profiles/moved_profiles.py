"""Profiles and queries of sessions that move between brokers.

Law: nobody sees a profile end, or appear again, because a session moves.

The new broker stores the profiles with its copy of the session, and sends them to its neighbours before the marker. So
wherever they are known, they are known from both brokers when the old one gives the session up: the same version from
two sides is one profile. What subscriptions were shown is pulled as of the cut. Nothing is shown at either broker until
the session is at home; then the difference is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft.broker.journal import Journal
from weft.broker.limits import RefusalError
from weft.broker.profiles.home import HomeProfiles
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.profiles.profile_item import identity_hash
from weft.broker.sessions import Session
from weft.log.base import ProfileRow, Put, Remove, ShownRow, StateChange
from weft.protocol.messages import SubNumber
from weft.protocol.move_messages import MovedProfile, MovedSession, MovedSessionWithProfiles, ShownProfile


class LeftProfile(NamedTuple):
    """What a subscription of a session that has left was shown."""

    number: SubNumber
    row: ShownRow

    @property
    def told(self) -> ShownProfile:
        """What the new broker is sent."""
        row = self.row
        return ShownProfile(self.number, row.source, row.name, row.version, row.expires, row.filter)


class MovedProfiles:
    """Describes, installs and gives up what sessions have of profiles."""

    def __init__(self, homes: HomeProfiles, notices: ProfileNotices, journal: Journal) -> None:
        self._homes, self._notices, self._journal = homes, notices, journal

    # -- the old broker -------------------------------------------------------------------------------

    def described(self, session: Session) -> tuple[dict[SubNumber, str], list[MovedProfile]]:
        """How its subscriptions meet profiles, and the profiles that it has published."""
        meetings = {number: sub.profiles for number, sub in sorted(session.subs.items()) if sub.profiles}
        rows = sorted(self._homes.rows(session), key=lambda row: row.name)
        return meetings, [
            MovedProfile(row.name, row.region, row.version, row.expires, row.token, row.payload) for row in rows
        ]

    @property
    def highest(self) -> int:
        """A version above which the new broker goes on."""
        return max(self._homes.highest, self._journal.at)

    def shown(self, session: Session) -> list[LeftProfile]:
        """What its subscriptions have been shown."""
        return [LeftProfile(*each) for each in self._notices.shown_of(session)]

    def rows(self, session: Session) -> list[StateChange]:
        """What the log forgets of its profiles when it leaves, or does not come after all."""
        return [Remove(ProfileRow, (row.id,)) for row in self._homes.rows(session)]

    def leave(self, session: Session) -> None:
        """It is not here any more, and that is stored."""
        self._homes.drop_all(session, moved=True)
        for sub in session.subs.values():
            self._notices.leave(sub)

    def go_on(self, session: Session) -> None:
        """It is at home, or stays: show what is due."""
        self._notices.compare(session)

    # -- the new broker -------------------------------------------------------------------------------

    def check(self, parts: Sequence[MovedSession]) -> None:
        """Raise what `REFUSALS` lists if this broker may not have the profiles of a session."""
        some = [part for part in parts if isinstance(part, MovedSessionWithProfiles)]
        if not some:
            return
        self._homes.check_supported()
        numbers = {sub.number for part in parts for sub in part.subscriptions}
        for part in some:
            if not {number for number, _ in part.meetings} <= numbers:
                raise RefusalError("profiles", "a query of the session is not among its subscriptions")
        self._homes.check_moved(parts[0].owner, [each for part in some for each in part.profiles])

    def install(self, session: Session, parts: Sequence[MovedSession]) -> list[StateChange]:
        """The rows of its profiles; they are sent to nobody before that is stored."""
        some = [part for part in parts if isinstance(part, MovedSessionWithProfiles)]
        version = max((part.profile_version for part in some), default=0)
        return self._homes.install(session, [each for part in some for each in part.profiles], version)

    def installed(self, session: Session) -> None:
        """It is stored: others get its profiles, and its queries are in the table."""
        self._homes.show_all(session)
        self._notices.come(session)

    def inherit(self, session: Session, shown: Iterable[ShownProfile]) -> list[StateChange]:
        """Record what its subscriptions were shown at the old broker; returns the rows."""
        rows: list[StateChange] = []
        for each in shown:
            sub = session.subs.get(SubNumber(each.number))
            if sub is not None and sub.consumer_id is not None:
                identity = each.source, each.name
                told = each.version, each.expires, each.filter
                row = ShownRow(sub.consumer_id, identity_hash(identity), *identity, *told)
                self._notices.inherit(row)
                rows.append(Put(row))
        return rows


def meetings_of(parts: Iterable[MovedSession]) -> dict[SubNumber, str]:
    """How the subscriptions of a session meet profiles."""
    some = [part for part in parts if isinstance(part, MovedSessionWithProfiles)]
    return {SubNumber(number): meeting for part in some for number, meeting in part.meetings}
