"""Profiles and queries in two plain sets: every addition is compared with all of the other side (thesis 6.8.1). The
pairs are those that `covers` proves, or that `overlaps` does not disprove. This is the baseline for DoubleForest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from weft.algebra.profile import Meeting
from weft.errors import FilterError, OptionError
from weft.order.relation import Relation
from weft.profiles.pairs import PROFILES, QUERIES
from weft.profiles.profile_forest import ProfileKey

T = TypeVar("T")


class TwoSets(Generic[T]):
    """Which profiles and queries match, with the interface of DoubleForest but without any order.

    >>> ranges = Relation(lambda wide, narrow: wide[0] <= narrow[0] and narrow[1] <= wide[1])
    >>> sets = TwoSets(ranges)
    >>> sets.add_query((0, 10), "Q1")
    >>> sets.add_profile((1, 5), "P1")
    >>> sets.queries_of("P1"), sets.comparisons
    ({'Q1'}, 1)
    """

    def __init__(
        self,
        relation: Relation[T],
        *,
        overlaps: Callable[[Any, Any], bool] | None = None,
        meeting: Meeting = Meeting.COVERING,
    ) -> None:
        if meeting is Meeting.OVERLAP and overlaps is None:
            raise OptionError("matching by overlap needs to know how two things overlap; pass overlaps=")
        self.relation = relation
        self.meeting = meeting
        self._overlap = overlaps
        self._made: tuple[dict[ProfileKey, Any], dict[ProfileKey, Any]] = ({}, {})
        self._matched: tuple[dict[ProfileKey, set[ProfileKey]], dict[ProfileKey, set[ProfileKey]]] = ({}, {})

    def add_profile(self, thing: T, identity: ProfileKey) -> None:
        """Add a profile. Raises FilterError if the identity already exists. Cost: O(queries)."""
        self._add(PROFILES, thing, identity)

    def add_query(self, thing: T, identity: ProfileKey) -> None:
        """Add a query. Raises FilterError if the identity already exists. Cost: O(profiles)."""
        self._add(QUERIES, thing, identity)

    def discard_profile(self, identity: ProfileKey) -> None:
        """Remove a profile. A missing one is not an error."""
        self._discard(PROFILES, identity)

    def discard_query(self, identity: ProfileKey) -> None:
        """Remove a query. A missing one is not an error."""
        self._discard(QUERIES, identity)

    def queries_of(self, profile: ProfileKey) -> set[ProfileKey]:
        """The queries that a profile matches; empty if it is missing."""
        return set(self._matched[PROFILES].get(profile, ()))

    def profiles_of(self, query: ProfileKey) -> set[ProfileKey]:
        """The profiles that match a query; empty if it is missing."""
        return set(self._matched[QUERIES].get(query, ()))

    def pairs(self) -> set[tuple[ProfileKey, ProfileKey]]:
        """Every query with every profile that matches it."""
        return {(query, profile) for query, matched in self._matched[QUERIES].items() for profile in matched}

    @property
    def comparisons(self) -> int:
        """The total number of covering and overlap tests."""
        return self.relation.comparisons

    def _add(self, side: int, thing: T, identity: ProfileKey) -> None:
        if identity in self._made[side]:
            raise FilterError(f"{identity!r} already exists; discard it first")
        made = self.relation.make(thing)
        found = {other for other, there in self._made[1 - side].items() if self._matches(side, made, there)}
        self._made[side][identity] = made
        self._matched[side][identity] = found
        for other in found:
            self._matched[1 - side][other].add(identity)

    def _discard(self, side: int, identity: ProfileKey) -> None:
        if self._made[side].pop(identity, None) is not None:
            for other in self._matched[side].pop(identity):
                self._matched[1 - side][other].discard(identity)

    def _matches(self, side: int, made: Any, there: Any) -> bool:
        if self.meeting is Meeting.OVERLAP:
            assert self._overlap is not None
            self.relation.comparisons += 1
            return self._overlap(made, there)
        return self.relation.covers(made, there) if side == QUERIES else self.relation.covers(there, made)
