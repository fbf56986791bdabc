"""Profiles and queries in two forests, and who matches whom (thesis, chapter 6). Laws, for `covers` that says True
only when proven and `overlaps` that says False only when disproved:

by covering, every pair that `covers` proves is there, and each that is there is truly contained, being proven or
following from proven ones; by overlap, every pair that truly overlaps is there, and none that `overlaps` disproves. So
nobody misses a notification. Where both decide, the pairs are exactly those of comparing each with each (`two_sets`).

What is known of a new thing's parent and children bounds what it can match (Lemma 6.1, Table 6.1). Of the bounds some
only add what follows, or leave out what is disproved; they always hold. The others need that comparisons decide: as
long as one thing is there that is not `exact` they are not used, nor does a walk stop where covering is not proven.
The imaginary root matches everything as an upper bound, and bounds nothing from below (erratum); of several children
each is an upper bound by itself, so what they share is one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from weft.algebra.profile import Meeting
from weft.algebra.relate import Region
from weft.algebra.relate import overlaps as regions_overlap
from weft.errors import FilterError
from weft.model.schema import Schema
from weft.order.filter_relation import FilterRelation
from weft.order.node import Node
from weft.order.relation import Relation
from weft.profiles.pairs import PROFILES, QUERIES, BitPairs, Flags, ProfilePairs, TopPairs, slots_of
from weft.profiles.profile_forest import PLACEHOLDER, Asks, Follow, Identity, Side, identities

T = TypeVar("T")


class DoubleForest(Generic[T]):
    """Who matches whom, kept up to date as profiles and queries come and go.

    `overlaps` compares two things as the relation makes them; it is needed for Meeting.OVERLAP. `exact` tells of one
    whether both comparisons decide between it and any other such; without it nothing is taken to be. `bounds` False
    leaves the bounds out, `compact` keeps only the topmost covered profiles of a query (Meeting.COVERING). What is
    between the bounds is gone through if it is at most a `sparse`th part of the other side, else the forest is walked;
    where there is an index, it is asked about more than `few`.

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
            raise ValueError("to match by overlap, say how two things overlap")
        if compact and meeting is Meeting.OVERLAP:
            raise ValueError("what overlaps a thing need not overlap what is below it: compact is for covering only")
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
            self._pairs = BitPairs(room)
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
        """For filters; with `indexed` an index of boxes answers where the bounds leave much open."""
        return DoubleForest(
            FilterRelation(schema, indexed),
            overlaps=lambda one, other: regions_overlap(one.form, other.form, schema),
            exact=lambda made: made.exact,
            meeting=meeting,
            bounds=bounds,
            compact=compact,
        )

    # -- changes --------------------------------------------------------------------------------------

    def add_profile(self, thing: T, identity: Identity) -> None:
        """Take in a profile; an identity that is there already raises FilterError."""
        self._add(PROFILES, thing, identity)

    def add_query(self, thing: T, identity: Identity) -> None:
        """Take in a query; an identity that is there already raises FilterError."""
        self._add(QUERIES, thing, identity)

    def discard_profile(self, identity: Identity) -> None:
        """Let a profile go; one that is not there is no error."""
        self._discard(PROFILES, identity)

    def discard_query(self, identity: Identity) -> None:
        """Let a query go; one that is not there is no error."""
        self._discard(QUERIES, identity)

    def preload(self, profiles: Iterable[T] = (), queries: Iterable[T] = ()) -> None:
        """Match things before anyone adds them: then adding and discarding them compares nothing (Theorem 7.1)."""
        for side, things in ((PROFILES, profiles), (QUERIES, queries)):
            for thing in things:
                self._take(side, thing, PLACEHOLDER)

    def unload(self) -> None:
        """Let go what was preloaded and nobody holds. Cost: O(nodes)."""
        for side, forest in enumerate(self._sides):
            for node in [node for node in forest if PLACEHOLDER in node.interfaces]:
                forest.release(node, PLACEHOLDER, self._pairs, side)

    def merge(self, other: DoubleForest[T]) -> None:
        """Take in all of another (thesis 6.1). Who is in both must stand for the same: else FilterError, no change."""
        for mine, theirs in zip(self._sides, other._sides, strict=True):
            for identity in mine.held.keys() & theirs.held.keys():
                if self._key(mine.held[identity].thing) != self._key(theirs.held[identity].thing):
                    raise FilterError(f"{identity!r} stands for two things: rename it in one of the two before merging")
        for side, theirs in enumerate(other._sides):
            for node in theirs.top_down():
                assert node.thing is not None
                for identity in identities(node):
                    if identity not in self._sides[side].held:
                        self._add(side, node.thing, identity)

    # -- questions ------------------------------------------------------------------------------------

    def queries_of(self, profile: Identity) -> set[Identity]:
        """The queries that a profile matches; none if it is not there. Cost: O(queries / 8 + answer)."""
        return self._answer(PROFILES, profile)

    def profiles_of(self, query: Identity) -> set[Identity]:
        """The profiles that match a query; none if it is not there. Cost: O(profiles / 8 + answer)."""
        return self._answer(QUERIES, query)

    def pairs(self) -> set[tuple[Identity, Identity]]:
        """Every query with every profile that matches it."""
        return {(query, profile) for query in self.queries.held for profile in self.profiles_of(query)}

    @property
    def comparisons(self) -> int:
        """The coverings and overlaps that were asked, in all: to hang things in their forests, and to match them."""
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

    def _add(self, side: int, thing: T, identity: Identity) -> None:
        forest = self._sides[side]
        if identity in forest.held:
            raise FilterError(f"{identity!r} is there already: discard it first")
        forest.held[identity] = self._take(side, thing, identity)

    def _take(self, side: int, thing: T, identity: Identity) -> Node[T]:
        forest = self._sides[side]
        node, new = forest.take(thing, identity)
        if new:
            self._pairs.reserve(side, len(forest.nodes))
            try:
                matched = self._result(side, node)
            except BaseException:  # a node without its pairs would keep silent for whoever has the same region
                forest.release(node, identity, self._pairs, side)
                raise
            self._pairs.put(side, forest.slots[node], matched)
        return node

    def _discard(self, side: int, identity: Identity) -> None:
        forest = self._sides[side]
        node = forest.held.pop(identity, None)
        if node is not None:
            forest.release(node, identity, self._pairs, side)

    def _answer(self, side: int, identity: Identity) -> set[Identity]:
        forest, other = self._sides[side], self._sides[1 - side]
        node = forest.held.get(identity)
        if node is None:
            return set()
        nodes = (other.nodes[slot] for slot in slots_of(self._pairs.matched(side, forest.slots[node])))
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
        down = covering and side == QUERIES  # what hangs below a match is one
        on = covering and not down and not self._decided  # what hangs below no match may be one
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
        """The slots that a new node can match at most, and those that it surely matches (Table 6.1)."""
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
        """Compares a node with one of the other side, as the meeting has it."""
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
        """Whether comparisons decide between all that is there."""
        return not self.profiles.inexact and not self.queries.inexact

    def _key(self, thing: T | None) -> Hashable:
        """What finds a duplicate among things of this relation, whoever made them."""
        assert thing is not None
        return self.relation.key(self.relation.make(thing))


def _never(made: Any) -> bool:  # noqa: ARG001 - whatever it is
    return False
