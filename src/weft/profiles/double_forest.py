"""Profiles and queries in two forests, and which match (thesis, chapter 6). If `covers` is True only when proven and
`overlaps` is False only when disproved, the following holds:

by covering, every pair that `covers` proves is present, and every pair present is truly contained, because it is proven
or follows from proven pairs; by overlap, every pair that truly overlaps is present, and none that `overlaps` disproves.
No notification is therefore missed. Where both comparisons decide, the pairs are exactly those of comparing each with
each (`two_sets`).

The parent and children of a new thing bound what it can match (Lemma 6.1, Table 6.1). Some of these bounds only add
what follows, or leave out what is disproved; these always hold. The others require that comparisons decide. While
something is present that is not `exact`, they are not used, and a walk does not stop where covering is not proven. As
an upper bound, the imaginary root matches everything; from below, it bounds nothing (erratum). Each of several children
is an upper bound by itself, so their intersection is one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from weft.algebra.profile import Meeting
from weft.algebra.relate import Region
from weft.algebra.relate import overlaps as regions_overlap
from weft.errors import FilterError, OptionError
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation
from weft.order.node import Node
from weft.order.relation import Relation
from weft.profiles.pairs import PROFILES, QUERIES, Flags, ProfilePairs, SparsePairs, TopPairs, slots_of
from weft.profiles.profile_forest import PLACEHOLDER, Asks, Follow, ProfileKey, Side, identities

T = TypeVar("T")


class DoubleForest(Generic[T]):
    """Which profiles and queries match, kept up to date as both come and go.

    `overlaps` compares two things as the relation makes them; it is required for Meeting.OVERLAP. `exact` states
    whether both comparisons decide between a thing and any other exact one; by default nothing is exact. `bounds` False
    disables the bounds. `compact` stores only the topmost covered profiles of a query (Meeting.COVERING). The
    candidates between the bounds are visited one by one if they are at most one `sparse`th of the other side; otherwise
    the forest is walked. Where there is an index, it is used for more than `few` candidates.

    >>> from weft import parse
    >>> forest = DoubleForest.of_filters()
    >>> forest.add_query(parse("x BETWEEN 0 AND 10"), "Q1")
    >>> forest.add_profile(parse("x BETWEEN 1 AND 5"), "P1")
    >>> forest.add_query(parse("x BETWEEN 2 AND 10"), "Q3")
    >>> forest.queries_of("P1"), forest.profiles_of("Q3")
    ({'Q1'}, set())
    """

    def __init__(  # noqa: PLR0913 - each an independent choice
        self,
        relation: Relation[T],
        *,
        overlaps: Callable[[Any, Any], bool] | None = None,
        exact: Callable[[Any], bool] | None = None,
        meeting: Meeting = Meeting.COVERING,
        bounds: bool = True,
        compact: bool = False,
        few: int = 8,
        sparse: int = 4,
        room: int = 64,
    ) -> None:
        if meeting is Meeting.OVERLAP and overlaps is None:
            raise OptionError("matching by overlap needs to know how two things overlap; pass overlaps=")
        if compact and meeting is Meeting.OVERLAP:
            raise OptionError(
                "compact=True is for covering only: what overlaps a thing need not overlap what is below it; "
                "leave it out for overlap"
            )
        self.relation = relation
        self.meeting = meeting
        self.bounds = bounds
        self._overlap = overlaps
        sides = [Side(relation, exact or _never) for _ in (PROFILES, QUERIES)]
        self.profiles, self.queries = self._sides = sides
        self._pairs: ProfilePairs
        if compact:
            self._pairs = self.profiles.tops = TopPairs(self.profiles, room)
        else:
            self._pairs = SparsePairs(room)
        self._few = few
        self._sparse = sparse

    @staticmethod
    def of_filters(
        schema: Schema | None = None,
        meeting: Meeting = Meeting.COVERING,
        *,
        bounds: bool = True,
        compact: bool = False,
        indexed: bool = True,
    ) -> DoubleForest[Region]:
        """For filters. With `indexed`, an index of boxes answers where the bounds leave many candidates."""
        return DoubleForest(
            FilterRelation(schema, indexed),
            overlaps=lambda one, other: regions_overlap(one.form, other.form, schema),
            exact=lambda made: made.exact,
            meeting=meeting,
            bounds=bounds,
            compact=compact,
        )

    # -- changes --------------------------------------------------------------------------------------

    def add_profile(self, thing: T, identity: ProfileKey) -> None:
        """Add a profile. Raises FilterError if the identity already exists."""
        self._add(PROFILES, thing, identity)

    def add_query(self, thing: T, identity: ProfileKey) -> None:
        """Add a query. Raises FilterError if the identity already exists."""
        self._add(QUERIES, thing, identity)

    def discard_profile(self, identity: ProfileKey) -> None:
        """Remove a profile. A missing one is not an error."""
        self._discard(PROFILES, identity)

    def discard_query(self, identity: ProfileKey) -> None:
        """Remove a query. A missing one is not an error."""
        self._discard(QUERIES, identity)

    def preload(self, profiles: Iterable[T] = (), queries: Iterable[T] = ()) -> None:
        """Match things in advance, so that adding and discarding them later compares nothing (Theorem 7.1)."""
        for side, things in ((PROFILES, profiles), (QUERIES, queries)):
            for thing in things:
                self._take(side, thing, PLACEHOLDER)

    def unload(self) -> None:
        """Remove preloaded things that no identity uses. Cost: O(nodes)."""
        for side, forest in enumerate(self._sides):
            for node in [node for node in forest if PLACEHOLDER in node.interfaces]:
                forest.release(node, PLACEHOLDER, self._pairs, side)

    def merge(self, other: DoubleForest[T]) -> None:
        """Add everything in another forest (thesis 6.1). An identity in both must stand for the same thing; otherwise
        FilterError is raised and nothing changes.
        """
        for mine, theirs in zip(self._sides, other._sides, strict=True):
            for identity in mine.held.keys() & theirs.held.keys():
                if self._key(mine.held[identity].thing) != self._key(theirs.held[identity].thing):
                    raise FilterError(f"{identity!r} means two different things; rename it in one of them first")
        for side, theirs in enumerate(other._sides):
            for node in theirs.top_down():
                assert node.thing is not None
                for identity in identities(node):
                    if identity not in self._sides[side].held:
                        self._add(side, node.thing, identity)

    # -- queries --------------------------------------------------------------------------------------

    def queries_of(self, profile: ProfileKey) -> set[ProfileKey]:
        """The queries that a profile matches; empty if it is missing. Cost: O(answer)."""
        return self._answer(PROFILES, profile)

    def profiles_of(self, query: ProfileKey) -> set[ProfileKey]:
        """The profiles that match a query; empty if it is missing. Cost: O(answer)."""
        return self._answer(QUERIES, query)

    def pairs(self) -> set[tuple[ProfileKey, ProfileKey]]:
        """Every query with every profile that matches it."""
        return {(query, profile) for query in self.queries.held for profile in self.profiles_of(query)}

    @property
    def comparisons(self) -> int:
        """The total number of covering and overlap tests, both for placing things in their forests and for matching
        them.
        """
        return self.relation.comparisons

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken. Compares each with each, without counting."""
        before = self.relation.comparisons
        for forest in self._sides:
            forest.check()
            assert forest.slots.keys() == set(forest), "every node has a slot"
            assert all(forest.nodes[slot] is node for node, slot in forest.slots.items()), "a slot has its node"
            held = [(identity, node) for node in forest for identity in identities(node)]
            assert dict(held) == forest.held, "identities know their nodes"
            assert len(held) == len(forest.held), "an identity has one node"
        decided = self._decided
        matched = {slot: self._pairs.matched(PROFILES, slot) for slot in self.profiles.slots.values()}
        for query, at in self.queries.slots.items():
            back, asks = self._pairs.matched(QUERIES, at), self._asks(QUERIES, query)
            assert set(slots_of(back)) <= matched.keys(), "only what is there is matched"
            for profile, slot in self.profiles.slots.items():
                paired = matched[slot][at]
                assert paired == back[slot], "both directions say the same"
                shown = asks(profile)
                covering = self.meeting is Meeting.COVERING
                assert paired == shown or (not decided and paired == covering), f"{query} and {profile}"
        self.relation.comparisons = before

    # -- matching -------------------------------------------------------------------------------------

    def _add(self, side: int, thing: T, identity: ProfileKey) -> None:
        forest = self._sides[side]
        if identity in forest.held:
            raise FilterError(f"{identity!r} already exists; discard it first")
        forest.held[identity] = self._take(side, thing, identity)

    def _take(self, side: int, thing: T, identity: ProfileKey) -> Node[T]:
        forest = self._sides[side]
        node, new = forest.take(thing, identity)
        if new:
            self._pairs.reserve(side, len(forest.nodes))
            try:
                matched = self._result(side, node)
            except BaseException:  # a node without its pairs would hide matches from later things with the same region
                forest.release(node, identity, self._pairs, side)
                raise
            self._pairs.put(side, forest.slots[node], matched)
        return node

    def _discard(self, side: int, identity: ProfileKey) -> None:
        forest = self._sides[side]
        node = forest.held.pop(identity, None)
        if node is not None:
            forest.release(node, identity, self._pairs, side)

    def _answer(self, side: int, identity: ProfileKey) -> set[ProfileKey]:
        forest, other = self._sides[side], self._sides[1 - side]
        node = forest.held.get(identity)
        if node is None:
            return set()
        nodes = (other.nodes[slot] for slot in self._pairs.partners(side, forest.slots[node]))
        return {one for node in nodes if node is not None for one in identities(node)}

    def _result(self, side: int, node: Node[T]) -> Flags:
        """What a new node matches on the other side."""
        other = self._sides[1 - side]
        upper, lower = self._bounds(side, node)
        between = upper & ~lower
        left = int(np.count_nonzero(between)) if other else 0
        if not left:
            return lower
        covering, asks = self.meeting is Meeting.COVERING, self._asks(side, node)
        down = covering and side == QUERIES  # what is below a match also matches
        on = covering and not down and not self._decided  # what is below a mismatch may match
        if other.index is not None and left > self._few:
            found = [other.slots[there] for there in self._looked_up(side, node)]
        elif down or left * self._sparse <= len(other):
            follow = Follow.IN if down else Follow.NEVER if on else Follow.OUT
            found = other.go_through(slots_of(between), node.kind, asks, lower.tobytes(), follow)
        else:
            found = other.walk(node.kind, asks, upper.tobytes(), lower.tobytes(), on)
        lower[found] = True
        return lower

    def _bounds(self, side: int, node: Node[T]) -> tuple[Flags, Flags]:
        """The slots that a new node can match at most, and those that it certainly matches (Table 6.1)."""
        forest, other = self._sides[side], self._sides[1 - side]
        upper, lower = self._pairs.nothing(side), self._pairs.nothing(side)
        upper[: len(other.nodes)] = True
        if not self.bounds:
            return upper, lower
        children = [forest.slots[child] for child in node.children]
        parent = None if node.parent is forest.top else forest.slots[node.parent]
        covering = self.meeting is Meeting.COVERING
        if covering and side == PROFILES:
            if parent is not None:
                lower = self._pairs.matched(side, parent)
            if children and self._decided:
                upper = self._pairs.shared(side, children)
            return upper, lower
        if parent is not None and (self._decided or not covering):
            upper = self._pairs.matched(side, parent)
        if children and (self._decided or covering):
            lower = self._pairs.joined(side, children)
        return upper, lower

    def _looked_up(self, side: int, node: Node[T]) -> Iterable[Node[Any]]:
        index = self._sides[1 - side].index
        assert index is not None
        if self.meeting is Meeting.OVERLAP:
            return index.meeting(node.made, self._overlaps)
        return index.below(node.made) if side == QUERIES else index.above(node.made) or ()

    def _asks(self, side: int, node: Node[T]) -> Asks:
        """A function that compares a node with one of the other side, according to the meeting."""
        made, covers = node.made, self.relation.covers
        if self.meeting is Meeting.OVERLAP:
            return lambda there: self._overlaps(made, there.made)
        if side == QUERIES:
            return lambda there: covers(made, there.made)
        return lambda there: covers(there.made, made)

    def _overlaps(self, one: Any, other: Any) -> bool:
        assert self._overlap is not None
        self.relation.comparisons += 1
        return self._overlap(one, other)

    @property
    def _decided(self) -> bool:
        """Whether comparisons decide between all things present."""
        return not self.profiles.inexact and not self.queries.inexact

    def _key(self, thing: T | None) -> Hashable:
        """The identity of a thing under this relation, whichever forest made it."""
        assert thing is not None
        return self.relation.key(self.relation.make(thing))


def _never(made: Any) -> bool:  # noqa: ARG001 - the same for everything
    return False
