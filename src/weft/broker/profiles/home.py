"""Profiles of a broker's own clients: publishing, replacing, withdrawing, and their end.

Nothing is told to anybody before it is stored, so that nothing has to be taken back. The version of a profile is the
time of the log, which never goes back: a profile that was withdrawn and is published again has a higher version. The
end is absolute: every broker knows it, and this one only cleans up.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from weft.algebra.relate import as_form
from weft.broker.after_commit import ProfileRemoved, ProfileStored
from weft.broker.effects import Now
from weft.broker.limits import RefusalError
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.profiles.profile_item import LivingProfile, check_region, profile_item
from weft.broker.sessions import Connection, Session, session_of
from weft.broker.subscriptions import ClientSubscriptions
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.log.base import NEVER, ProfileRow, Put, Remove, SeatId, SessionId, SetMeta, State, StateChange
from weft.protocol.link_messages import PROFILE_TABLE
from weft.protocol.messages import Accepted, ProfilePublished, PublishProfile, WithdrawProfile
from weft.protocol.move_messages import MovedProfile

if TYPE_CHECKING:
    from weft.broker.profiles.notices import ProfileNotices

_MOST_DURATION = 366 * 86_400 * 1_000_000  # microseconds
_HIGHEST = "profiles.version"  # in the log's description: the highest version of a session that came from elsewhere
HomeKey = tuple[SessionId, str]  # a session and its id of a profile


class _Home(NamedTuple):
    """A stored profile, and the id that the table knows it by."""

    row: ProfileRow
    item: SubId
    profile: LivingProfile


class HomeProfiles:
    """The profiles that sessions of this broker have published. `refusal` says why there can be none, if so."""

    def __init__(
        self,
        parts: BrokerParts,
        links: Links,
        subscriptions: ClientSubscriptions,
        notices: ProfileNotices,
        refusal: str,
    ) -> None:
        self._journal, self._sessions, self._access = parts.journal, parts.sessions, parts.access
        self._out, self._limits, self._parse, self._counts = parts.out, parts.limits, parts.parse, parts.counts
        self._table, self._predicates = parts.profile_table, parts.predicates
        self._links, self._subscriptions, self._notices, self._refusal = links, subscriptions, notices, refusal
        self._asked: dict[HomeKey, ProfileRow] = {}  # as they were requested last
        self._stored: dict[int, _Home] = {}  # by the ids of their rows
        self._ends: list[tuple[int, int, int]] = []  # a heap of expiries, with the ids and versions
        self._items = 0
        self._version = 0  # the highest that was given

    def __len__(self) -> int:
        return len(self._stored)

    # -- requests -------------------------------------------------------------------------------------

    def check_supported(self) -> None:
        """Raise RefusalError if this broker, or a neighbour, does not have profiles."""
        reason = self._refusal or self._links.without_profiles
        if reason:
            raise RefusalError("profiles", reason)

    def publish(self, connection: Connection, message: PublishProfile, _: Now) -> None:
        """Publish a profile, or another version of it. Raises what `REFUSALS` lists."""
        self.check_supported()
        session, journal = session_of(connection), self._journal
        key = session.id, message.id
        before = self._asked.get(key)
        if before is not None and message.token and before.token == message.token:
            again = ProfilePublished(message.number, before.version, before.expires)
            journal.write.require([], ProfileStored(connection, None, None, again))
            return
        region = self._check(connection, session, message)
        number = journal.new_consumer() if before is None else before.id
        version = self._version = max(journal.at, self._version + 1)
        expires = min(journal.at + message.duration, NEVER - 1)
        row = ProfileRow(
            int(number), session.id, message.id, str(region), version, expires, message.token, message.payload
        )
        profile_item(_living(session, row, region), self._predicates)  # raises FilterError
        self._asked[key] = row
        answer = ProfilePublished(message.number, version, expires)
        journal.write.require([Put(row)], ProfileStored(connection, row, before, answer))

    def _check(self, connection: Connection, session: Session, message: PublishProfile) -> Filter:
        limits = self._limits
        if not session.durable:
            raise RefusalError("durable", "a profile outlives its connection; give the session a name")
        if session.is_moving:
            raise RefusalError("moving", "the session is moving to another broker; publish the profile again then")
        if not message.id or len(message.id) > limits.name:
            raise RefusalError("profile", f"the id of a profile has 1 to {limits.name} characters")
        if not 0 < message.duration <= _MOST_DURATION:
            raise RefusalError("profile", "a profile lasts more than 0 seconds, and at most 366 days")
        mine = sum(1 for owner, _ in self._asked if owner == session.id) if len(self._asked) >= limits.profiles else 0
        if mine >= limits.profiles and (session.id, message.id) not in self._asked:
            raise RefusalError("limit", f"a session has at most {limits.profiles:,} profiles")
        region = self._parse(message.region)
        check_region(region)
        if not as_form(region, self._table.schema):
            raise RefusalError("filter", "the region of this profile is empty: no event can be in it")
        self._access.of(connection.principal).check_profile(region)
        return region

    def stored(self, value: ProfileStored | ProfileRemoved) -> None:
        """A profile is stored: everybody who wants it gets it. Or its end is."""
        if isinstance(value, ProfileRemoved):
            self._drop(value.row.id, value.row.version)
            if self._sessions.holds_session(value.connection):
                self._out.send(value.connection.id, value.accepted)
            return
        session = session_of(value.connection)
        if value.row is not None and self._sessions.by_id.get(session.id) is session:
            self._show(session, value.row)
        if self._sessions.holds_session(value.connection):
            self._out.send(value.connection.id, value.answer)

    def undo_publish(self, value: ProfileStored, reason: str) -> None:
        """A profile could not be stored."""
        row = value.row
        if row is not None and self._asked.get((row.session, row.name)) is row:
            if value.before is None:
                del self._asked[row.session, row.name]
            else:
                self._asked[row.session, row.name] = value.before
        self._subscriptions.fail(value.connection, "publish profile", value.answer.number, reason)

    def withdraw(self, connection: Connection, message: WithdrawProfile, _: Now) -> None:
        """Withdraw a profile. Raises RefusalError."""
        session = session_of(connection)
        row = self._asked.pop((session.id, message.id), None)
        if row is None:
            raise RefusalError("unknown", f"there is no profile {message.id!r} of this session")
        accepted = Accepted("withdraw profile", message.number, self._journal.next)
        self._journal.write.require(
            [Remove(ProfileRow, (row.id,))], ProfileRemoved(connection, row, message.number, accepted)
        )

    def undo_withdraw(self, value: ProfileRemoved, reason: str) -> None:
        """The end of a profile could not be stored."""
        self._asked.setdefault((value.row.session, value.row.name), value.row)
        self._subscriptions.fail(value.connection, "withdraw profile", value.number, reason)

    # -- sessions -------------------------------------------------------------------------------------

    def of(self, session: Session) -> list[LivingProfile]:
        """The profiles of a session that are stored, by id."""
        mine = (each.profile for each in self._stored.values() if each.row.session == session.id)
        return sorted(mine, key=lambda each: each.name)

    @property
    def highest(self) -> int:
        """The highest version that was given."""
        return self._version

    def rows(self, session: Session) -> list[ProfileRow]:
        """The profiles of a session, as they were requested last."""
        return [row for (owner, _), row in self._asked.items() if owner == session.id]

    def rows_of(self, session: Session) -> list[Remove]:
        """What the log forgets with a session."""
        return [Remove(ProfileRow, (row.id,)) for row in self.rows(session)]

    def drop_all(self, session: Session, *, moved: bool = False) -> None:
        """A session is gone, and its profiles end, or go on at another broker."""
        for row in self.rows(session):
            del self._asked[row.session, row.name]
            self._drop(row.id, row.version, moved=moved)

    def check_moved(self, owner: str, profiles: Sequence[MovedProfile]) -> None:
        """Raise what `REFUSALS` lists if a session with these profiles may not come here."""
        if len(profiles) > self._limits.profiles:
            raise RefusalError("limit", f"a session has at most {self._limits.profiles:,} profiles here")
        for each in profiles:
            region = self._parse(each.region)
            check_region(region)
            self._access.of(owner).check_profile(region)

    def install(self, session: Session, profiles: Sequence[MovedProfile], version: int) -> list[StateChange]:
        """Profiles of a session that comes from another broker: their rows. `show_all` must follow."""
        rows: list[StateChange] = []
        for each in profiles:
            number = int(self._journal.new_consumer())
            told = each.version, each.expires, each.token, each.payload
            row = self._asked[session.id, each.name] = ProfileRow(number, session.id, each.name, each.region, *told)
            rows.append(Put(row))
        if version > self._version:
            self._version = version
            rows.append(SetMeta(_HIGHEST, str(version).encode()))
        return rows

    def show_all(self, session: Session) -> None:
        """What `install` has returned is stored: everybody who wants the profiles gets them."""
        for row in self.rows(session):
            self._show(session, row)

    def restore(self, kept: State) -> dict[SubId, Filter]:
        """Take back what the log has; returns the items for the table."""
        found: dict[SubId, Filter] = {}
        self._version = int(kept.meta.get(_HIGHEST, b"0"))
        for row in kept.profiles.values():
            session = self._sessions.by_id.get(row.session)
            self._journal.next_consumer = SeatId(max(self._journal.next_consumer, row.id + 1))
            if session is None:
                self._notices.left_over.append(Remove(ProfileRow, (row.id,)))
                continue
            self._asked[row.session, row.name] = row
            self._version = max(self._version, row.version)
            home = self._keep(session, row)
            found[home.item] = profile_item(home.profile, self._predicates)
            self._notices.published(None, home.profile)
        return found

    # -- the table ------------------------------------------------------------------------------------

    def _keep(self, session: Session, row: ProfileRow) -> _Home:
        self._items += 1
        home = _Home(row, SubId(self._items), _living(session, row, self._parse(row.region)))
        self._stored[row.id] = home
        heappush(self._ends, (row.expires, row.id, row.version))
        return home

    def _show(self, session: Session, row: ProfileRow) -> None:
        before = self._stored.get(row.id)
        if before is not None and before.row.version >= row.version:
            return
        home = self._keep(session, row)
        self._links.use_profiles()
        item = profile_item(home.profile, self._predicates)
        drop = () if before is None else (before.item,)
        self._links.tell(self._table.change({home.item: item}, drop), PROFILE_TABLE)
        self._counts["profiles published"] += 1
        self._notices.published(None if before is None else before.profile, home.profile)

    def _drop(self, number: int, version: int, *, moved: bool = False) -> None:
        home = self._stored.get(number)
        if home is not None and home.row.version <= version:
            del self._stored[number]
            self._links.tell(self._table.change({}, (home.item,)), PROFILE_TABLE)
            self._notices.published(home.profile, None, moved=moved)

    # -- time -----------------------------------------------------------------------------------------

    @property
    def next_end(self) -> int:
        """When the next profile expires, by the time of the log."""
        return self._ends[0][0] if self._ends else NEVER

    def expire(self) -> None:
        """Clean up profiles that have expired. A withdrawal that is on its way has removed them already."""
        while self._ends and self._ends[0][0] <= self._journal.at:
            _, number, version = heappop(self._ends)
            home = self._stored.get(number)
            if home is not None and home.row.version == version:
                key = home.row.session, home.row.name
                if self._asked.get(key) is home.row:
                    del self._asked[key]
                    self._journal.write.changes.append(Remove(ProfileRow, (number,)))
                    self._counts["profiles expired"] += 1
                self._drop(number, version)


def _living(session: Session, row: ProfileRow, region: Filter) -> LivingProfile:
    return LivingProfile(session.name, row.name, row.version, row.expires, row.payload, region)
