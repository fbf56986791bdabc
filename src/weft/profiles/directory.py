"""A directory of profiles with a lifetime, and of continuous queries (thesis 6.7). Every change of either side, and of
the clock, reports exactly the pairs that it made appear and vanish. A profile is present from its start until just
before its end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import cast

from weft.algebra.profile import Meeting, Profile
from weft.algebra.relate import Region
from weft.errors import EventError, FilterError, SchemaError
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation
from weft.profiles.double_forest import DoubleForest
from weft.profiles.profile_forest import ProfileKey

ProfileId = tuple[str, str]  # source and id
Pair = tuple[ProfileKey, ProfileId]  # a query and a profile


@dataclass(frozen=True, slots=True)
class Notification:
    """Tells a query that a profile appeared or vanished."""

    query: ProfileKey
    profile: ProfileId
    appeared: bool


class Directory:
    """Profiles and queries. Each query states whether a profile must be covered or only needs to overlap.

    Time advances only through `expire`. Queries of each meeting have their own DoubleForest, created with the first of
    them.

    >>> from weft import parse
    >>> directory = Directory()
    >>> directory.add_query("storms", parse("wind > 20"))
    []
    >>> storm = Profile("station", "7", parse("wind BETWEEN 30 AND 50"), duration=600.0)
    >>> directory.add_profile(storm)
    [Notification(query='storms', profile=('station', '7'), appeared=True)]
    >>> directory.expire(599.0), directory.expire(600.0)
    ([], [Notification(query='storms', profile=('station', '7'), appeared=False)])
    """

    def __init__(self, schema: Schema | None = None, clock: float = 0.0, *, indexed: bool = True) -> None:
        self.schema = schema
        self.clock = _moment(clock)
        self._indexed = indexed
        self._filters = FilterRelation(schema)
        self._forests: dict[Meeting, DoubleForest[Region]] = {}
        self._meetings: dict[ProfileKey, Meeting] = {}  # of queries
        self._profiles: dict[ProfileId, Profile] = {}  # present now, or still to start
        self._moments: list[tuple[float, int, Profile]] = []  # a heap of future starts and ends
        self._sequence = count()

    def __len__(self) -> int:
        """The number of profiles that are present now."""
        return sum(profile.lasts_at(self.clock) for profile in self._profiles.values())

    # -- changes --------------------------------------------------------------------------------------

    def add_query(
        self, identity: ProfileKey, region: Region, meeting: Meeting = Meeting.COVERING
    ) -> list[Notification]:
        """Add a query. It replaces one with the same identity, and only the difference is reported."""
        self._filters.make(region)  # raises before anything changes
        before = self._seen_by(identity)
        self._drop_query(identity)
        self._forest(meeting).add_query(region, identity)
        self._meetings[identity] = meeting
        after = self._seen_by(identity)
        return _told(((identity, one) for one in before - after), ((identity, one) for one in after - before))

    def discard_query(self, identity: ProfileKey) -> list[Notification]:
        """Remove a query. A missing one changes nothing."""
        before = self._seen_by(identity)
        self._drop_query(identity)
        return _told(((identity, profile) for profile in before), ())

    def add_profile(self, profile: Profile) -> list[Notification]:
        """Add a profile, or schedule it for its start. It replaces one with the same identity."""
        if profile.schema != self.schema:
            raise SchemaError("the profile and the directory have different schemas; create both with the same schema")
        self._filters.make(profile.form)  # raises before anything changes
        identity = profile.identity
        before = self._seers_of(identity)
        self._drop_profile(identity)
        if profile.end is None or profile.end > self.clock:
            self._profiles[identity] = profile
            for moment in (profile.start, profile.end):
                if moment is not None and moment > self.clock:
                    heapq.heappush(self._moments, (moment, next(self._sequence), profile))
            if len(self._moments) > max(64, 4 * len(self._profiles)):  # most belong to replaced profiles
                self._moments = [each for each in self._moments if self._profiles.get(each[2].identity) is each[2]]
                heapq.heapify(self._moments)
            self._show(profile)
        after = self._seers_of(identity)
        return _told(((one, identity) for one in before - after), ((one, identity) for one in after - before))

    def discard_profile(self, identity: ProfileId) -> list[Notification]:
        """Remove a profile. A missing one changes nothing."""
        before = self._seers_of(identity)
        self._drop_profile(identity)
        return _told(((query, identity) for query in before), ())

    def expire(self, clock: float) -> list[Notification]:
        """Advance the clock: profiles that have started by then appear, profiles that have ended by then vanish.

        A profile that started and ended in between is not reported. Cost: O(log n) for each start and end, and the
        changes.
        """
        if _moment(clock) < self.clock:
            raise EventError(f"the clock is at {self.clock} and cannot go back to {clock}; pass a later time")
        self.clock = clock
        due: dict[ProfileId, Profile] = {}
        while self._moments and self._moments[0][0] <= clock:
            profile = heapq.heappop(self._moments)[2]
            if self._profiles.get(profile.identity) is profile:
                due[profile.identity] = profile
        changes = []
        for profile in due.values():
            if profile.lasts_at(clock):
                self._show(profile)
                changes += _told((), ((query, profile.identity) for query in self._seers_of(profile.identity)))
            else:
                changes += self.discard_profile(profile.identity)
        return changes

    def preload(self, profiles: Iterable[Region], queries: Iterable[Region], meeting: Meeting) -> None:
        """Match regions in advance, so that adding and discarding them later compares nothing (thesis 7.1)."""
        self._forest(meeting).preload(profiles, queries)

    def merge(self, other: Directory) -> list[Notification]:
        """Add everything in another directory, at this one's clock.

        An identity in both must stand for the same thing; otherwise FilterError is raised and nothing changes.
        """
        if other.schema != self.schema:
            raise SchemaError("the directories have different schemas; create both with the same schema")
        profiles = [one for one in other._profiles.values() if self._profiles.get(one.identity) != one]
        queries = [
            (identity, node.thing, meeting)
            for meeting, forest in other._forests.items()
            for identity, node in forest.queries.held.items()
            if node.thing is not None and not self._asks(identity, node.thing, meeting)
        ]
        known: list[ProfileKey] = [one.identity for one in profiles if one.identity in self._profiles]
        known += [identity for identity, *_ in queries if identity in self._meetings]
        if known:
            raise FilterError(f"{known[0]!r} means two different things; rename it in one directory before merging")
        changes = [change for profile in profiles for change in self.add_profile(profile)]
        return changes + [change for query in queries for change in self.add_query(*query)]

    # -- queries --------------------------------------------------------------------------------------

    def profiles_of(self, query: ProfileKey) -> set[ProfileId]:
        """The profiles that match a query now."""
        return self._seen_by(query)

    def queries_of(self, profile: ProfileId) -> set[ProfileKey]:
        """The queries that a profile matches now."""
        return self._seers_of(profile)

    def pairs(self) -> set[Pair]:
        """Every query with every profile that matches it now."""
        return {(query, profile) for query in self._meetings for profile in self._seen_by(query)}

    def forest(self, meeting: Meeting) -> DoubleForest[Region]:
        """The profiles, and the queries of a meeting, in their order. Use it for taxonomies and preloading; do not
        change it.
        """
        return self._forest(meeting)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        there = {identity for identity, profile in self._profiles.items() if profile.lasts_at(self.clock)}
        for meeting, forest in self._forests.items():
            forest.check()
            assert forest.profiles.held.keys() == there, "a profile is in every forest while it lasts"
            asked = {query for query, its in self._meetings.items() if its is meeting}
            assert forest.queries.held.keys() == asked, "a query is in the forest of its meeting"
        waiting = {id(profile) for *_, profile in self._moments}
        for profile in self._profiles.values():
            assert profile.end is None or profile.end > self.clock, "what has ended is gone"
            assert profile.end is None or id(profile) in waiting, "what ends is waited for"

    # -- the forests ----------------------------------------------------------------------------------

    def _forest(self, meeting: Meeting) -> DoubleForest[Region]:
        forest = self._forests.get(meeting)
        if forest is None:
            forest = DoubleForest.of_filters(self.schema, meeting, indexed=self._indexed)
            for identity, profile in self._profiles.items():
                if profile.lasts_at(self.clock):
                    forest.add_profile(profile.region, identity)
            self._forests[meeting] = forest
        return forest

    def _show(self, profile: Profile) -> None:
        if profile.lasts_at(self.clock):
            for forest in self._forests.values():
                if profile.identity not in forest.profiles.held:
                    forest.add_profile(profile.region, profile.identity)

    def _drop_profile(self, identity: ProfileId) -> None:
        self._profiles.pop(identity, None)
        for forest in self._forests.values():
            forest.discard_profile(identity)

    def _drop_query(self, identity: ProfileKey) -> None:
        meeting = self._meetings.pop(identity, None)
        if meeting is not None:
            self._forests[meeting].discard_query(identity)

    def _seen_by(self, query: ProfileKey) -> set[ProfileId]:
        meeting = self._meetings.get(query)
        return set() if meeting is None else cast("set[ProfileId]", self._forests[meeting].profiles_of(query))

    def _seers_of(self, profile: ProfileId) -> set[ProfileKey]:
        return {query for forest in self._forests.values() for query in forest.queries_of(profile)}

    def _asks(self, query: ProfileKey, region: Region, meeting: Meeting) -> bool:
        """Whether this query is already present, unchanged."""
        if self._meetings.get(query) is not meeting:
            return False
        known = self._forests[meeting].queries.held[query].thing
        assert known is not None
        return self._filters.key(self._filters.make(region)) == self._filters.key(self._filters.make(known))


def _told(vanished: Iterable[Pair], appeared: Iterable[Pair]) -> list[Notification]:
    """Changes in an order that does not depend on hashes: vanished pairs first, sorted by their text."""
    gone = [Notification(query, profile, appeared=False) for query, profile in sorted(vanished, key=str)]
    return gone + [Notification(query, profile, appeared=True) for query, profile in sorted(appeared, key=str)]


def _moment(clock: float) -> float:
    if math.isnan(clock):
        raise EventError("the clock is NaN; pass a number of seconds")
    return clock
