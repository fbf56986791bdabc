"""A directory of profiles with a lifetime, and of continuous queries (thesis 6.7). Every change of either side, and of
the clock, reports exactly the pairs that it made appear, change and vanish. A profile is present from its start until
just before its end. Times are integer microseconds.

Regions that require different values of one attribute, such as `type = 'A'` and `type = 'B'`, are kept in forests of
their own and never compared (thesis 6.3). Regions that require no value of it are in every forest.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from weft.algebra.profile import Meeting, Profile
from weft.algebra.relate import Region
from weft.errors import EventError, FilterError, SchemaError
from weft.language.text import parse
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation, only_value
from weft.profiles.double_forest import DoubleForest
from weft.profiles.profile_forest import ProfileKey

ProfileId = tuple[str, str]  # source and id
Pair = tuple[ProfileKey, ProfileId]  # a query and a profile


@dataclass(frozen=True, slots=True)
class Notification:
    """Tells a query that a profile appeared or vanished, or that it has another version (`changed`).

    One that vanished has `expired`, or was withdrawn, or the query has another region.
    """

    query: ProfileKey
    profile: ProfileId
    appeared: bool
    version: int = 1
    changed: bool = False
    expired: bool = False


class Directory:
    """Profiles and queries. Each query states whether a profile must be covered or only needs to overlap.

    Time advances only through `expire`. Queries of each meeting have their own forests, created with the first of them;
    `partition` is the attribute by which these are split. `most` limits the profiles, and the queries.

    >>> from weft import parse
    >>> directory = Directory()
    >>> directory.add_query("storms", parse("wind > 20"))
    []
    >>> storm = Profile("station", "7", parse("wind BETWEEN 30 AND 50"), duration=600)
    >>> [(each.query, each.profile, each.appeared) for each in directory.add_profile(storm)]
    [('storms', ('station', '7'), True)]
    >>> directory.expire(599), [(each.appeared, each.expired) for each in directory.expire(600)]
    ([], [(False, True)])
    """

    def __init__(
        self,
        schema: Schema | None = None,
        clock: int = 0,
        *,
        indexed: bool = True,
        partition: str = "type",
        most: int = 1_000_000,
    ) -> None:
        self.schema = schema
        self.clock = _moment(clock)
        self._indexed, self._partition, self._most = indexed, partition, most
        self._filters = FilterRelation(schema)
        self._forests: dict[Meeting, dict[str | None, DoubleForest[Region]]] = {}  # by the value that regions require
        self._queries: dict[ProfileKey, tuple[Region, Meeting, str | None]] = {}
        self._kinds: dict[ProfileId, str | None] = {}  # of profiles that are present
        self._guesses: dict[Meeting, tuple[list[Region], list[Region]]] = {}  # preloaded regions without a value
        self._profiles: dict[ProfileId, Profile] = {}  # present now, or still to start
        self._moments: list[tuple[int, int, Profile]] = []  # a heap of future starts and ends
        self._sequence = count()

    def __len__(self) -> int:
        """The number of profiles that are present now."""
        return sum(profile.lasts_at(self.clock) for profile in self._profiles.values())

    # -- changes --------------------------------------------------------------------------------------

    def add_query(
        self, identity: ProfileKey, region: Region, meeting: Meeting = Meeting.COVERING
    ) -> list[Notification]:
        """Add a query. It replaces one with the same identity, and only the difference is reported."""
        kind = self._kind(region)  # raises before anything changes
        if identity not in self._queries and len(self._queries) >= self._most:
            raise FilterError(f"a directory has at most {self._most:,} queries; discard some first")
        before = self._seen_by(identity)
        self._drop_query(identity)
        forests = self._forests_of(meeting, kind)  # a new one has the queries that are there already
        self._queries[identity] = region, meeting, kind
        for forest in forests:
            forest.add_query(region, identity)
        after = self._seen_by(identity)
        return self._told(((identity, one) for one in before - after), ((identity, one) for one in after - before))

    def discard_query(self, identity: ProfileKey) -> list[Notification]:
        """Remove a query. A missing one changes nothing."""
        before = self._seen_by(identity)
        self._drop_query(identity)
        return self._told(((identity, profile) for profile in before), ())

    def add_profile(self, profile: Profile) -> list[Notification]:
        """Add a profile, or schedule it for its start. It replaces one with the same identity, unless that has a higher
        version: then nothing changes.
        """
        if profile.schema != self.schema:
            raise SchemaError("the profile and the directory have different schemas; create both with the same schema")
        self._kind(profile.form)  # raises before anything changes
        identity = profile.identity
        known = self._profiles.get(identity)
        if known is not None and known.version > profile.version:
            return []
        if known is None and len(self._profiles) >= self._most:
            raise FilterError(f"a directory has at most {self._most:,} profiles; discard some first")
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
        changed = before & after if known is not None and known.version != profile.version else set()
        gone, came = ((one, identity) for one in before - after), ((one, identity) for one in after - before)
        return self._told(gone, came, ((one, identity) for one in changed), version=profile.version)

    def discard_profile(self, identity: ProfileId, *, expired: bool = False) -> list[Notification]:
        """Remove a profile. A missing one changes nothing."""
        before, known = self._seers_of(identity), self._profiles.get(identity)
        self._drop_profile(identity)
        version = 1 if known is None else known.version
        return self._told(((query, identity) for query in before), (), version=version, expired=expired)

    def expire(self, clock: int) -> list[Notification]:
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
                seers = self._seers_of(profile.identity)
                changes += self._told((), ((query, profile.identity) for query in seers), version=profile.version)
            else:
                changes += self.discard_profile(profile.identity, expired=True)
        return changes

    def preload(self, profiles: Iterable[Region], queries: Iterable[Region], meeting: Meeting) -> None:
        """Match regions in advance, so that adding and discarding them later compares nothing (thesis 7.1)."""
        sides = [[(region, self._kind(region)) for region in some] for some in (profiles, queries)]
        for _, kind in (*sides[0], *sides[1]):
            self._forest(meeting, kind)
        guesses = self._guesses.setdefault(meeting, ([], []))
        for side, some in enumerate(sides):
            guesses[side].extend(region for region, kind in some if kind is None)  # for forests to come
            for region, kind in some:
                for forest in self._forests_of(meeting, kind):
                    forest.preload(*(((region,), ()) if side == 0 else ((), (region,))))

    def merge(self, other: Directory) -> list[Notification]:
        """Add everything in another directory, at this one's clock.

        An identity in both must stand for the same thing; otherwise FilterError is raised and nothing changes.
        """
        if other.schema != self.schema:
            raise SchemaError("the directories have different schemas; create both with the same schema")
        profiles = [one for one in other._profiles.values() if self._profiles.get(one.identity) != one]
        queries = [
            (identity, region, meeting)
            for identity, (region, meeting, _) in other._queries.items()
            if not self._asks(identity, region, meeting)
        ]
        known: list[ProfileKey] = [one.identity for one in profiles if one.identity in self._profiles]
        known += [identity for identity, *_ in queries if identity in self._queries]
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
        return {(query, profile) for query in self._queries for profile in self._seen_by(query)}

    def forest(self, meeting: Meeting) -> DoubleForest[Region]:
        """The profiles, and the queries of a meeting, in their order: those that require no value of the partition's
        attribute. Use it for taxonomies; do not change it.
        """
        return self._forest(meeting, None)

    @property
    def comparisons(self) -> int:
        """The total number of covering and overlap tests."""
        return sum(forest.comparisons for forests in self._forests.values() for forest in forests.values())

    # -- files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all profiles and queries to a file, one JSON object per line. The identities of queries are strings or
        numbers.
        """
        rows: list[dict[str, Any]] = [{"clock": self.clock}]
        for profile in self._profiles.values():
            row = {"source": profile.source, "id": profile.id, "region": str(profile.region), "start": profile.start}
            rows.append({"profile": row | {"duration": profile.duration, "version": profile.version}})
        for identity, (region, meeting, _) in self._queries.items():
            rows.append({"query": identity, "region": str(region), "meeting": meeting.value})
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    @staticmethod
    def load(path: str | Path, schema: Schema | None = None, **options: Any) -> Directory:
        """The directory that was saved to a file. Raises FilterError for what is not one."""
        directory = Directory(schema, **options)
        try:
            for line in Path(path).read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                if "clock" in row:
                    directory.expire(row["clock"])
                elif "profile" in row:
                    directory.add_profile(Profile(**row["profile"], schema=schema))
                else:
                    directory.add_query(row["query"], parse(row["region"]), Meeting(row["meeting"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FilterError(f"{path} is not a saved directory of profiles: {error}") from None
        return directory

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        there = {identity for identity, profile in self._profiles.items() if profile.lasts_at(self.clock)}
        assert self._kinds.keys() == there, "a profile that lasts has its kind"
        for meeting, forests in self._forests.items():
            for kind, forest in forests.items():
                forest.check()
                mine = {each for each, its in self._kinds.items() if its in (None, kind)}
                assert forest.profiles.held.keys() == mine, "a profile is in the forests of its value while it lasts"
                asked = {
                    query
                    for query, (_, its, value) in self._queries.items()
                    if its is meeting and value in (None, kind)
                }
                assert forest.queries.held.keys() == asked, "a query is in the forests of its meeting and value"
        waiting = {id(profile) for *_, profile in self._moments}
        for profile in self._profiles.values():
            assert profile.end is None or profile.end > self.clock, "what has ended is gone"
            assert profile.end is None or id(profile) in waiting, "what ends is waited for"

    # -- the forests ----------------------------------------------------------------------------------

    def _kind(self, region: Region) -> str | None:
        """The value of the partition's attribute that a region requires. Raises FilterError if it matches nothing."""
        boxes = self._filters.make(region).form.boxes
        values = {only_value(box, self._partition) for box in boxes}
        return values.pop() if len(values) == 1 else None

    def _forest(self, meeting: Meeting, kind: str | None) -> DoubleForest[Region]:
        forests = self._forests.setdefault(meeting, {})
        forest = forests.get(kind)
        if forest is None:
            forest = forests[kind] = DoubleForest.of_filters(self.schema, meeting, indexed=self._indexed)
            for identity, its in self._kinds.items():
                if its is None or its == kind:
                    forest.add_profile(self._profiles[identity].region, identity)
            for query, (region, how, value) in self._queries.items():
                if how is meeting and value is None:
                    forest.add_query(region, query)
            forest.preload(*self._guesses.get(meeting, ((), ())))
        return forest

    def _forests_of(self, meeting: Meeting, kind: str | None) -> list[DoubleForest[Region]]:
        """The forests in which something of this kind belongs: its own, or all."""
        first = self._forest(meeting, kind)
        if kind is not None:
            return [first]
        for value in {each for each in self._kinds.values() if each is not None}:
            self._forest(meeting, value)
        return [*self._forests[meeting].values()]

    def _show(self, profile: Profile) -> None:
        identity = profile.identity
        if profile.lasts_at(self.clock) and identity not in self._kinds:
            kind = self._kind(profile.form)
            for meeting in self._forests:
                if kind is not None:
                    self._forest(meeting, kind)
            self._kinds[identity] = kind
            for forests in self._forests.values():
                for value, forest in forests.items():
                    if (kind is None or value == kind) and identity not in forest.profiles.held:
                        forest.add_profile(profile.region, identity)

    def _drop_profile(self, identity: ProfileId) -> None:
        self._profiles.pop(identity, None)
        if identity in self._kinds:
            kind = self._kinds.pop(identity)
            for forests in self._forests.values():
                for value, forest in forests.items():
                    if kind is None or value == kind:
                        forest.discard_profile(identity)

    def _drop_query(self, identity: ProfileKey) -> None:
        known = self._queries.pop(identity, None)
        if known is not None:
            _, meeting, kind = known
            for value, forest in self._forests[meeting].items():
                if kind is None or value == kind:
                    forest.discard_query(identity)

    def _seen_by(self, query: ProfileKey) -> set[ProfileId]:
        known = self._queries.get(query)
        if known is None:
            return set()
        _, meeting, kind = known
        forests = self._forests[meeting]
        if kind is not None:
            return cast("set[ProfileId]", forests[kind].profiles_of(query))
        return {one for forest in forests.values() for one in cast("set[ProfileId]", forest.profiles_of(query))}

    def _seers_of(self, profile: ProfileId) -> set[ProfileKey]:
        kind = self._kinds.get(profile)
        if profile not in self._kinds:
            return set()
        some = [
            forest
            for forests in self._forests.values()
            for value, forest in forests.items()
            if kind is None or value == kind
        ]
        return {query for forest in some for query in forest.queries_of(profile)}

    def _asks(self, query: ProfileKey, region: Region, meeting: Meeting) -> bool:
        """Whether this query is already present, unchanged."""
        known = self._queries.get(query)
        if known is None or known[1] is not meeting:
            return False
        return self._filters.key(self._filters.make(region)) == self._filters.key(self._filters.make(known[0]))

    def _told(
        self,
        vanished: Iterable[Pair],
        appeared: Iterable[Pair],
        changed: Iterable[Pair] = (),
        *,
        version: int = 0,
        expired: bool = False,
    ) -> list[Notification]:
        """Changes in an order that does not depend on hashes: vanished pairs first, sorted by their text."""

        def of(profile: ProfileId) -> int:
            known = self._profiles.get(profile)
            return version or (1 if known is None else known.version)

        gone = [Notification(q, p, False, of(p), expired=expired) for q, p in sorted(vanished, key=str)]
        came = [Notification(q, p, True, of(p)) for q, p in sorted(appeared, key=str)]
        return gone + came + [Notification(q, p, True, of(p), changed=True) for q, p in sorted(changed, key=str)]


def _moment(clock: int) -> int:
    if isinstance(clock, bool) or not isinstance(clock, int):
        raise EventError(f"the clock is an integer number of microseconds, not {clock!r}")
    return clock
