"""What subscribers are shown of profiles: that one has appeared, has changed, or has ended.

Law: at rest, a subscription has been shown exactly the living profiles that it covers, or overlaps; each of them once
in each version.

A profile that two neighbours have sent is one, and of several versions the highest counts, even when it has ended:
older ones may be dropped later. Each broker ends a profile by the clock. Any other end is shown only while the query is
complete: a broker that restarts may not yet know what its neighbours have shown already.

A notice is an event of its own for one subscription. It is stored in one group with the row that says what was shown,
so that it is neither lost nor repeated.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple, cast

import msgspec
from msgspec import structs

from weft.algebra.profile import Meeting, Profile
from weft.algebra.relate import overlaps
from weft.broker.completion import Announcement
from weft.broker.effects import Now
from weft.broker.event_copies import CopiedEvent, write_copies
from weft.broker.ingest import Ingest
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.profiles.profile_item import (
    ATTRIBUTE,
    LivingProfile,
    ProfileIdentity,
    filter_hash,
    identity_hash,
    read_profile,
)
from weft.broker.sessions import ClientSubscription, Session
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.log.base import NEVER, Put, Remove, SeatId, ShownRow, State, StateChange
from weft.model.event import Event
from weft.profiles.directory import Directory
from weft.protocol.link_messages import PROFILE_TABLE
from weft.protocol.messages import Head, SubNumber
from weft.routing.table import ClientId, Item, Link

_TOGETHER = 256  # pairs that are compared in one turn
_RETRY = 1_000_000  # microseconds after which notices are written again when the log was full
QUERIES = ClientId("queries")
_SOON = 1_000  # microseconds between two looks at a clock that was set back, and runs slowly
_ENDED = 0  # in place of an expiry: the end was shown, and the version is remembered
HERE = Link("")  # this broker, among the sources of a profile

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True, eq=False)
class ProfileQuery:
    """A subscription that is shown profiles."""

    session: Session
    sub: ClientSubscription
    item: SubId  # by which the table knows it
    text: str
    filter: int  # a hash of the text
    complete: bool = False  # every living profile that it meets has arrived
    shown: dict[ProfileIdentity, ShownRow] = field(default_factory=dict)
    withheld: set[ProfileIdentity] = field(default_factory=set)  # whose end is shown when the query is complete

    @property
    def held(self) -> bool:
        """Whether nothing is shown: its session comes or goes."""
        return self.session.arrival is not None or self.session.cutting is not None


class QueryFacts(NamedTuple):
    """What a broker knows of a subscription that is shown profiles."""

    shown: int
    living: int  # profiles that the broker knows
    near: int  # some of them that overlap the filter
    complete: bool


class EndProof(Enum):
    """What is known of a profile that a subscription does not meet any more."""

    OPEN = "it may be missing for a moment only"
    CERTAIN = "its publisher is here, and has withdrawn it"


class NoticesWritten(NamedTuple):
    """Notices on their way into the log, in order, with what each subscription had been shown before."""

    changes: list[StateChange]
    before: list[tuple[ProfileQuery, ProfileIdentity, ShownRow | None, EndProof]]


class ProfileNotices:
    """The profiles that this broker knows, its queries, and what each was shown."""

    def __init__(self, parts: BrokerParts, ingest: Ingest, links: Links) -> None:
        self._journal, self._timers, self._counts = parts.journal, parts.timers, parts.counts
        self._sessions = parts.sessions
        self._table, self._completion, self._parse = parts.profile_table, parts.completion, parts.parse
        self._ingest, self._links = ingest, links
        self._schema = parts.profile_table.schema
        self._directory = Directory(self._schema)
        self._known: dict[ProfileIdentity, dict[int, _Sources]] = {}  # by identity and version
        self._highest: dict[ProfileIdentity, int] = {}  # versions that were known while some version was
        self._current: dict[ProfileIdentity, LivingProfile] = {}  # the highest versions, until they end
        self._remembered: dict[ProfileIdentity, set[SeatId]] = {}  # who has to remember a version that has ended
        self._ends: list[tuple[int, ProfileIdentity, int]] = []  # a heap of expiries, with the versions
        self.queries: dict[SeatId, ProfileQuery] = {}
        # pairs to be compared with what was shown
        self.due: dict[SeatId, dict[ProfileIdentity, EndProof]] = {}
        self.left_over: list[StateChange] = []  # rows of what is gone, to be removed in the first turn
        self._full_until = 0  # monotonic
        self._wake_at = 0  # the log's time for which a timer runs
        self._items = 0
        parts.profile_table.heard_profiles = self._heard
        parts.completion.queried = self._queried

    # -- profiles -------------------------------------------------------------------------------------

    def published(self, gone: LivingProfile | None, came: LivingProfile | None, *, moved: bool = False) -> None:
        """A client of this broker has published, replaced or withdrawn a profile, and that is stored.

        One that has `moved` goes on at another broker.
        """
        self._change(HERE, () if gone is None else (gone,), () if came is None else (came,), certain=not moved)

    def _heard(self, link: Link, gone: Iterable[Item], came: Iterable[Item]) -> None:
        """A neighbour has withdrawn and sent profiles."""
        self._change(link, map(read_profile, gone), map(read_profile, came))

    def _change(
        self, source: Link, gone: Iterable[LivingProfile], came: Iterable[LivingProfile], *, certain: bool = False
    ) -> None:
        changed: dict[ProfileIdentity, None] = {}
        for profile in came:
            versions = self._known.setdefault(profile.identity, {})
            self._highest[profile.identity] = max(profile.version, self._highest.get(profile.identity, 0))
            versions.setdefault(profile.version, _Sources(profile)).add(source)
            changed[profile.identity] = None
        for profile in gone:
            versions = self._known.get(profile.identity, {})
            sources = versions.get(profile.version)
            if sources is not None and sources.remove(source):
                del versions[profile.version]
                if not versions:
                    del self._known[profile.identity], self._highest[profile.identity]
                    for seat in self._remembered.get(profile.identity, ()):
                        self.due.setdefault(seat, {})[profile.identity] = EndProof.CERTAIN
            changed[profile.identity] = None
        for identity in changed:
            self._renew(identity, certain=certain)

    def _renew(self, identity: ProfileIdentity, certain: bool = False) -> None:
        """Find the version of a profile that counts, and whom that concerns."""
        versions = self._known.get(identity)
        latest = None if not versions else versions[max(versions)].profile
        if latest is not None and (latest.expires <= self._journal.at or latest.version < self._highest[identity]):
            latest = None
        before = self._current.get(identity)
        if before is latest or (before is not None and latest is not None and before.version == latest.version):
            return
        concerned = {*self._directory.queries_of(identity)}
        if latest is None:
            self._current.pop(identity, None)
            self._directory.discard_profile(identity)
        else:
            self._current[identity] = latest
            heappush(self._ends, (latest.expires, identity, latest.version))
            self._directory.add_profile(Profile(*identity, latest.region, schema=self._schema))
            concerned |= self._directory.queries_of(identity)
        for seat in concerned:
            due = self.due.setdefault(cast("SeatId", seat), {})
            if certain:
                due[identity] = EndProof.CERTAIN
            else:
                due.setdefault(identity, EndProof.OPEN)

    # -- queries --------------------------------------------------------------------------------------

    def stored(self, session: Session, sub: ClientSubscription, announcement: Announcement) -> None:
        """A subscription that is shown profiles is stored, with a new filter or the same one."""
        assert sub.consumer_id is not None
        query = self.queries.get(sub.consumer_id)
        if query is None or query.text != sub.text:
            self._links.use_profiles()
            query = self._put(session, sub)
        query.complete = False
        self._completion.query(announcement)

    def _put(self, session: Session, sub: ClientSubscription) -> ProfileQuery:
        """Add a query, or replace its filter: what it was shown stays, and the difference is shown."""
        seat = sub.consumer_id
        assert seat is not None
        before = self.queries.get(seat)
        wanted = self._parse(sub.text)
        query = self.queries[seat] = self._query(session, sub, before)
        drop = () if before is None else (before.item,)
        self._links.tell(self._table.advertise(QUERIES, {query.item: wanted}, drop), PROFILE_TABLE)
        self._ask(query, wanted)
        return query

    def _query(self, session: Session, sub: ClientSubscription, before: ProfileQuery | None) -> ProfileQuery:
        self._items += 1
        query = ProfileQuery(session, sub, SubId(self._items), sub.text, filter_hash(sub.text))
        if before is not None:
            query.shown, query.withheld = before.shown, before.withheld
        return query

    def _ask(self, query: ProfileQuery, wanted: Filter) -> None:
        seat = query.sub.consumer_id
        assert seat is not None
        self._directory.add_query(seat, wanted, Meeting(query.sub.profiles))
        self._compare(query)

    def _compare(self, query: ProfileQuery) -> None:
        """Compare everything that a query meets, or was shown."""
        seat = query.sub.consumer_id
        assert seat is not None
        for identity in sorted({*self._directory.profiles_of(seat), *query.shown}):
            self.due.setdefault(seat, {}).setdefault(identity, EndProof.OPEN)

    def ended(self, sub: ClientSubscription) -> None:
        """A subscription is gone, and that is stored."""
        query = None if sub.consumer_id is None else self.queries.get(sub.consumer_id)
        if query is None or query.sub is not sub:
            return
        self._remove(query)
        rows = query.shown.values()
        self._journal.write.changes += [Remove(ShownRow, (row.seat, row.profile)) for row in rows]

    def leave(self, sub: ClientSubscription) -> None:
        """A subscription goes on at another broker; what it was shown is still stored."""
        query = None if sub.consumer_id is None else self.queries.get(sub.consumer_id)
        if query is not None and query.sub is sub:
            self._remove(query)

    def _remove(self, query: ProfileQuery) -> None:
        seat = query.sub.consumer_id
        assert seat is not None
        del self.queries[seat]
        self.due.pop(seat, None)
        for seats in self._remembered.values():
            seats.discard(seat)
        self._directory.discard_query(seat)
        self._links.tell(self._table.advertise(QUERIES, {}, (query.item,)), PROFILE_TABLE)

    def come(self, session: Session) -> None:
        """A session has come from another broker: its queries are in the table, and are shown nothing yet."""
        for number, sub in sorted(session.subs.items()):
            if sub.profiles:
                self._links.use_profiles()
                self._put(session, sub)
                announcement = self._completion.announce(session, "subscribe", number)
                self._completion.query(announcement)
                self._completion.accepted(announcement)

    def compare(self, session: Session) -> None:
        """A session is at home, or stays: compare what it was shown with what there is."""
        for sub in session.subs.values():
            query = None if sub.consumer_id is None else self.queries.get(sub.consumer_id)
            if query is not None and query.sub is sub:
                self._compare(query)

    def shown_of(self, session: Session) -> list[tuple[SubNumber, ShownRow]]:
        """What the subscriptions of a session have been shown, in order."""
        found: list[tuple[SubNumber, ShownRow]] = []
        for number, sub in sorted(session.subs.items()):
            query = None if sub.consumer_id is None else self.queries.get(sub.consumer_id)
            if query is not None:
                found += [(number, query.shown[each]) for each in sorted(query.shown)]
        return found

    def inherit(self, row: ShownRow) -> None:
        """A subscription was shown a profile by the broker that had it before."""
        query = self.queries[row.seat]
        query.shown[row.source, row.name] = row
        self._remember(query, (row.source, row.name))

    def _queried(self, announcement: Announcement) -> None:
        """A query is complete, if it is still the same."""
        sub = announcement.session.subs.get(SubNumber(announcement.number))
        seat = None if sub is None else sub.consumer_id
        query = None if seat is None else self.queries.get(seat)
        if sub is None or seat is None or query is None or not announcement.is_current or query.text != sub.text:
            return
        query.complete = True
        if query.withheld:
            due = self.due.setdefault(seat, {})
            for identity in sorted(query.withheld):
                due.setdefault(identity, EndProof.OPEN)
            query.withheld.clear()

    # -- restart --------------------------------------------------------------------------------------

    def restore(self, kept: State, left: Container[int]) -> dict[SubId, Filter]:
        """Take back the queries of sessions, and what they were shown; returns the queries for the table.

        What subscriptions were shown that have `left` is for another broker.
        """
        found: dict[SubId, Filter] = {}
        for session in self._sessions.by_id.values():
            for sub in session.subs.values():
                if sub.profiles and sub.consumer_id is not None:
                    query = self.queries[sub.consumer_id] = self._query(session, sub, None)
                    found[query.item] = self._parse(sub.text)
        for row in kept.shown.values():
            known = self.queries.get(row.seat)
            if known is None and row.seat in left:
                continue
            if known is None:
                self.left_over.append(Remove(ShownRow, (row.seat, row.profile)))
            else:
                known.shown[row.source, row.name] = row
                self._remember(known, (row.source, row.name))
        return found

    def restored(self, wanted: dict[SubId, Filter]) -> None:
        """The table has everything back: compare what was shown with what is there."""
        for query in self.queries.values():
            self._ask(query, wanted[query.item])

    # -- notices --------------------------------------------------------------------------------------

    @property
    def next_end(self) -> int:
        """When the next profile expires, by the time of the log."""
        return self._ends[0][0] if self._ends else NEVER

    def expire(self) -> None:
        """End the profiles that have expired by now."""
        while self._ends and self._ends[0][0] <= self._journal.at:
            _, identity, version = heappop(self._ends)
            current = self._current.get(identity)
            if current is not None and current.version == version:
                self._renew(identity)

    def wake(self, at: int, now: Now) -> None:
        """Have a timer run when the log's time is `at`, as far as its clock runs evenly."""
        if at not in (self._wake_at, NEVER):
            self._wake_at = at
            self._timers.add(now.monotonic + max(_SOON, at - self._journal.at), self._woken)

    def _woken(self, _: Now) -> None:
        self._wake_at = 0  # the turn ends what has expired, and sets the next timer

    def behind(self, now: Now) -> bool:
        """Whether there are more notices to write at once."""
        return bool(self.due) and now.monotonic >= self._full_until

    def write(self, now: Now) -> None:
        """Write the notices that are due, some in each turn."""
        if now.monotonic < self._full_until:
            return
        self._ingest.match(now)
        written = NoticesWritten([], [])
        copies: list[CopiedEvent] = []
        pairs = _TOGETHER
        for seat in [*self.due]:
            query, due = self.queries.get(seat), self.due[seat]
            if query is None or query.held:
                del self.due[seat]  # everything is compared when the session is at home
                continue
            met = self._directory.profiles_of(seat)
            for identity in [*islice(due, pairs)]:
                pairs -= 1
                copies += self._notices(query, identity, identity in met, due.pop(identity), written)
            if not due:
                del self.due[seat]
            if not pairs:
                break
        if copies:
            write_copies(self._journal, copies)
        if written.changes:
            self._journal.write.notices.append(written)

    def _notices(
        self, query: ProfileQuery, identity: ProfileIdentity, meets: bool, proof: EndProof, written: NoticesWritten
    ) -> list[CopiedEvent]:
        """What a subscription has to be shown of one profile now.

        1. A profile that it meets, and has not been shown in this version or a higher one, appears or changes.
        2. One that it was shown and does not meet any more, ends: if it has expired, or its publisher is here, or this
           version or a higher one is known, or the query is complete. Otherwise that is withheld.
        3. A version that has ended is remembered until no version of the profile is known any more.
        4. A filter that was replaced since the subscription met a profile is the reason why it ends.
        """
        shown, current = query.shown.get(identity), self._current[identity] if meets else None
        query.withheld.discard(identity)
        ended = shown is not None and shown.expires == _ENDED
        if current is not None and (shown is None or shown.version < current.version):
            seat = query.sub.consumer_id
            assert seat is not None
            row = ShownRow(seat, identity_hash(identity), *identity, current.version, current.expires, query.filter)
            change = "appeared" if shown is None or ended else "changed"
            return [self._notice(query, identity, (change, "", proof), row, current, shown, written)]
        if shown is None:
            return []
        if current is not None and shown.version == current.version and not ended:
            if shown.filter != query.filter:
                self._keep(query, identity, structs.replace(shown, filter=query.filter), proof, written)
            return []
        if ended:
            if identity not in self._known:
                self._keep(query, identity, None, proof, written)
            return []
        expired = shown.expires <= self._journal.at
        latest = self._current.get(identity)
        known = proof is EndProof.CERTAIN or (latest is not None and latest.version >= shown.version)
        if not (expired or known or query.complete):
            query.withheld.add(identity)
            return []
        left = not expired and shown.filter not in (query.filter, 0)
        reason = "expired" if expired else "left" if left else "withdrawn"
        kept = structs.replace(shown, expires=_ENDED) if identity in self._known and not left else None
        return [self._notice(query, identity, ("ended", reason, proof), kept, None, shown, written)]

    def _keep(
        self,
        query: ProfileQuery,
        identity: ProfileIdentity,
        row: ShownRow | None,
        proof: EndProof,
        written: NoticesWritten,
    ) -> None:
        """Record what a subscription has been shown of a profile."""
        before = query.shown.get(identity)
        written.before.append((query, identity, before, proof))
        if row is not None:
            query.shown[identity] = row
            written.changes.append(Put(row))
        elif before is not None:
            del query.shown[identity]
            written.changes.append(Remove(ShownRow, (before.seat, before.profile)))
        self._remember(query, identity)

    def _remember(self, query: ProfileQuery, identity: ProfileIdentity) -> None:
        seat, row = query.sub.consumer_id, query.shown.get(identity)
        assert seat is not None
        if row is not None and row.expires == _ENDED:
            self._remembered.setdefault(identity, set()).add(seat)
        elif (seats := self._remembered.get(identity)) is not None:
            seats.discard(seat)
            if not seats:
                del self._remembered[identity]

    def _notice(  # noqa: PLR0913, PLR0917 - all that a notice says
        self,
        query: ProfileQuery,
        identity: ProfileIdentity,
        what: tuple[str, str, EndProof],
        row: ShownRow | None,
        profile: LivingProfile | None,
        before: ShownRow | None,
        written: NoticesWritten,
    ) -> CopiedEvent:
        change, reason, proof = what
        about = before if change == "ended" else row
        assert about is not None
        attributes: dict[str, object] = {
            f"{ATTRIBUTE}.change": change,
            f"{ATTRIBUTE}.source": about.source,
            f"{ATTRIBUTE}.id": about.name,
            f"{ATTRIBUTE}.version": about.version,
            f"{ATTRIBUTE}.expires": about.expires,
        }
        if reason:
            attributes[f"{ATTRIBUTE}.reason"] = reason
        if profile is not None:
            attributes[f"{ATTRIBUTE}.region"] = str(profile.region)
        self._keep(query, identity, row, proof, written)
        self._counts[f"profiles {change}"] += 1
        payload = b"" if profile is None else profile.payload
        return CopiedEvent((-query.session.id, 0, 0), (query.sub,), _encode(Head(attributes)), payload)

    def undo(self, written: NoticesWritten, now: Now) -> None:
        """The log is full: the same pairs are compared again later."""
        self._full_until = now.monotonic + _RETRY
        self._timers.add(self._full_until, lambda _: None)
        for query, identity, before, proof in reversed(written.before):
            if before is None:
                query.shown.pop(identity, None)
            else:
                query.shown[identity] = before
            seat = query.sub.consumer_id
            assert seat is not None
            if seat in self.queries:
                self._remember(query, identity)
                self.due.setdefault(seat, {})[identity] = proof

    # -- contents -------------------------------------------------------------------------------------

    @property
    def living(self) -> dict[ProfileIdentity, LivingProfile]:
        """The profiles that this broker knows, in the versions that count; only this class changes them."""
        return self._current

    def is_here(self, identity: ProfileIdentity) -> bool:
        """Whether a client of this broker has published a profile."""
        return any(each.has(HERE) for each in self._known.get(identity, {}).values())

    def preload(self, queries: Iterable[Filter], meeting: str) -> None:
        """Compare expected queries with the profiles, so that they cost nothing when they come (thesis 7.1)."""
        self._directory.preload((), queries, Meeting(meeting))

    @property
    def comparisons(self) -> int:
        """How often a profile and a query were compared."""
        return self._directory.comparisons

    def shown_to(self, identity: ProfileIdentity) -> int:
        """To how many subscriptions of this broker a profile is shown."""
        return len(self._directory.queries_of(identity))

    def facts(self, sub: ClientSubscription, most: int) -> QueryFacts | None:
        """What is known of a subscription that is shown profiles; at most so many profiles are looked at."""
        query = None if sub.consumer_id is None else self.queries.get(sub.consumer_id)
        if query is None or query.sub is not sub:
            return None
        shown = sum(1 for row in query.shown.values() if row.expires != _ENDED)
        wanted, some = self._parse(query.text), islice(self._current.values(), most)
        near = sum(1 for each in some if overlaps(each.region, wanted, self._schema))
        return QueryFacts(shown, len(self._current), near, query.complete)

    def including(self, attributes: dict[str, object], most: int) -> list[str]:
        """The living profiles whose region has an event, as far as they are among the first `most`."""
        event = Event(attributes)  # type: ignore[arg-type]
        some = islice(self._current.values(), most)
        return sorted(f"{each.source}/{each.name}" for each in some if matches(each.region, event))

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self._directory.check()
        for seat, query in self.queries.items():
            assert query.sub.consumer_id == seat
            if query.held:
                continue
            wanted = {each: self._current[each].version for each in self._directory.profiles_of(seat)}
            due = self.due.get(seat, {})
            shown = {each: row.version for each, row in query.shown.items() if row.expires != _ENDED}
            for identity in wanted.keys() | shown.keys():
                same = wanted.get(identity) == shown.get(identity)
                assert same or identity in due or identity in query.withheld, "a subscription was shown other profiles"


class _Sources:
    """One version of a profile, and who has it: this broker's clients, or neighbours, each as often as it was told."""

    __slots__ = ("_counts", "profile")

    def __init__(self, profile: LivingProfile) -> None:
        self.profile = profile
        self._counts: dict[Link, int] = {}

    def add(self, source: Link) -> None:
        self._counts[source] = self._counts.get(source, 0) + 1

    def has(self, source: Link) -> bool:
        return source in self._counts

    def remove(self, source: Link) -> bool:
        """Remove one of a source; returns whether none is left."""
        left = self._counts.pop(source, 1) - 1
        if left > 0:
            self._counts[source] = left
        return not self._counts
