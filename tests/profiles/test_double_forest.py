"""Profiles and queries in two forests: who matches whom, whatever comes and goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from order.things import CASES, RANGES, TYPED, Case, Range, plain_ranges
from strategies import EVENTS, filters, thorough
from weft.algebra.profile import Meeting
from weft.algebra.relate import covers
from weft.algebra.relate import overlaps as regions_overlap
from weft.errors import FilterError, OptionError
from weft.language.meaning import matches
from weft.language.text import parse
from weft.order import Relation
from weft.profiles.double_forest import DoubleForest
from weft.profiles.pairs import SparsePairs
from weft.profiles.two_sets import TwoSets

BOTH = pytest.mark.parametrize("meeting", Meeting)
WAYS: dict[str, dict[str, Any]] = {
    "bounds": {},
    "bounds-always": {"sparse": 1, "few": 1000},
    "bounds-walking": {"sparse": 1000, "few": 0},
    "plain": {"bounds": False},
    "compact": {"compact": True, "few": 0},
    "compact-plain": {"compact": True, "bounds": False},
}


def meet(one: Range, other: Range) -> bool:
    return one.low <= other.high and other.low <= one.high


def halting_meet(one: Range, other: Range) -> bool:
    """Overlap that is disproved too seldom: it says True now and then where ranges are apart."""
    return meet(one, other) or (one.low + one.high + other.low + other.high) % 3 == 0


OVERLAPS: dict[str, Callable[[Any, Any], bool]] = {"ranges": meet, "sound-only": halting_meet}
EXACT: dict[str, Callable[[Any], bool]] = {"ranges": lambda _: True, "sound-only": lambda _: False}


def of_boxes(one: Any, other: Any) -> bool:
    return regions_overlap(one.form, other.form)


def build(name: str, meeting: Meeting, **way: Any) -> DoubleForest[Any]:
    exact = EXACT.get(name, lambda made: made.exact)
    way = {"room": 8, **way}
    return DoubleForest(
        CASES[name].relation(), overlaps=OVERLAPS.get(name, of_boxes), exact=exact, meeting=meeting, **way
    )


def oracle(name: str, meeting: Meeting) -> TwoSets[Any]:
    return TwoSets(CASES[name].relation(), overlaps=OVERLAPS.get(name, of_boxes), meeting=meeting)


def steps(case: Case) -> st.SearchStrategy[list[tuple[bool, int, int]]]:
    """A thing, by its number, for a query or a profile of an identity; an identity that is there goes."""
    return st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, len(case.things) - 1)), min_size=4, max_size=25
    )


def take(forest: DoubleForest[Any] | TwoSets[Any], there: set[Any], step: tuple[bool, int, Any]) -> None:
    query, identity, thing = step
    if (query, identity) in there:
        (forest.discard_query if query else forest.discard_profile)(identity)
    else:
        (forest.add_query if query else forest.add_profile)(thing, identity)


# -- the figure -------------------------------------------------------------------------------------

QUERIES = {"Q1": (0, 10), "Q2": (12, 20), "Q3": (2, 10), "Q4": (15, 22), "Q5": (12, 14)}
PROFILES = {"P1": (1, 5), "P2": (5, 10), "P3": (5, 25), "P4": (17, 20), "P5": (7, 9)}
FIGURE = {
    Meeting.COVERING: {"Q1": "P1 P2 P5", "Q2": "P4", "Q3": "P2 P5", "Q4": "P4", "Q5": ""},
    Meeting.OVERLAP: {"Q1": "P1 P2 P3 P5", "Q2": "P3 P4", "Q3": "P1 P2 P3 P5", "Q4": "P3 P4", "Q5": "P3"},
}
BACK = {"P1": {"Q1"}, "P2": {"Q1", "Q3"}, "P3": set(), "P4": {"Q2", "Q4"}, "P5": {"Q1", "Q3"}}


def figure(names: list[str], meeting: Meeting, **way: Any) -> DoubleForest[Any]:
    forest = build("ranges", meeting, **way)
    for name in names:
        if name in QUERIES:
            forest.add_query(Range(*QUERIES[name]), name)
        else:
            forest.add_profile(Range(*PROFILES[name]), name)
    return forest


@BOTH
@pytest.mark.parametrize("way", WAYS)
def test_figure_6_4(way: str, meeting: Meeting) -> None:
    if "compact" in WAYS[way] and meeting is Meeting.OVERLAP:
        return
    for seed in range(20):
        names = random.Random(seed).sample([*QUERIES, *PROFILES], 10)
        forest = figure(names, meeting, **WAYS[way])
        forest.check()
        assert {name: forest.profiles_of(name) for name in QUERIES} == {
            name: set(matched.split()) for name, matched in FIGURE[meeting].items()
        }
        if meeting is Meeting.COVERING:
            assert {name: forest.queries_of(name) for name in PROFILES} == BACK


def test_the_forests_of_figure_6_4_are_taxonomies() -> None:
    forest = build("boxes", Meeting.COVERING)
    for name, (low, high) in QUERIES.items():
        forest.add_query(parse(f"x BETWEEN {low} AND {high}"), name)
    for name, (low, high) in PROFILES.items():
        forest.add_profile(parse(f"x BETWEEN {low} AND {high}"), name)
    assert forest.queries.outline().splitlines() == [
        "x BETWEEN 0 AND 10  [Q1]",
        "  x BETWEEN 2 AND 10  [Q3]",
        "x BETWEEN 12 AND 20  [Q2]",
        "  x BETWEEN 12 AND 14  [Q5]",
        "x BETWEEN 15 AND 22  [Q4]",
    ]
    below = {"filter": "x BETWEEN 7 AND 9", "identities": ["P5"], "below": []}
    assert forest.profiles.taxonomy() == [
        {"filter": "x BETWEEN 1 AND 5", "identities": ["P1"], "below": []},
        {
            "filter": "x BETWEEN 5 AND 25",
            "identities": ["P3"],
            "below": [
                {"filter": "x BETWEEN 17 AND 20", "identities": ["P4"], "below": []},
                {"filter": "x BETWEEN 5 AND 10", "identities": ["P2"], "below": [below]},
            ],
        },
    ]


# -- the laws ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.complete])
@given(data=st.data())
@thorough(10)
def test_bounds_exclude_nothing(name: str, way: str, meeting: Meeting, data: st.DataObject) -> None:
    """Theorem 6.5: with bounds, without, and comparing each with each, the same, after any changes of either side."""
    if "compact" in WAYS[way] and meeting is Meeting.OVERLAP:
        return
    case = CASES[name]
    forest, sets = build(name, meeting, **WAYS[way]), oracle(name, meeting)
    there: set[Any] = set()
    for query, identity, number in data.draw(steps(case)):
        step = query, identity, case.things[number]
        take(forest, there, step)
        take(sets, there, step)
        there ^= {(query, identity)}
        assert forest.pairs() == sets.pairs()
        for profile in range(10):
            assert forest.queries_of(profile) == sets.queries_of(profile)
    forest.check()


@BOTH
@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
@thorough(40)
def test_what_comparing_does_not_decide_is_kept_on_the_safe_side(
    way: str, meeting: Meeting, data: st.DataObject
) -> None:
    if "compact" in WAYS[way] and meeting is Meeting.OVERLAP:
        return
    case = CASES["sound-only"]
    forest, sets = build("sound-only", meeting, **WAYS[way]), oracle("sound-only", meeting)
    there: dict[tuple[bool, int], Range] = {}
    for query, identity, number in data.draw(steps(case)):
        step = query, identity, case.things[number]
        take(forest, set(there), step)
        take(sets, set(there), step)
        if there.pop((query, identity), None) is None:
            there[query, identity] = case.things[number]
        forest.check()
        told = forest.pairs()
        queries = [(one, thing) for (its, one), thing in there.items() if its]
        profiles = [(one, thing) for (its, one), thing in there.items() if not its]
        if meeting is Meeting.COVERING:
            assert sets.pairs() <= told, "what is proven is there"
            assert told <= {(q, p) for q, wide in queries for p, narrow in profiles if wide.covers(narrow)}
        else:
            assert told <= sets.pairs(), "what is disproved is not there"
            assert {(q, p) for q, one in queries for p, other in profiles if meet(one, other)} <= told


@BOTH
@pytest.mark.parametrize("indexed", [True, False])
@given(some=st.lists(st.tuples(st.booleans(), filters()), min_size=2, max_size=10))
@thorough(25)
def test_no_event_tells_otherwise(indexed: bool, meeting: Meeting, some: list[tuple[bool, Any]]) -> None:
    """Filters of the whole language: what is covered has no event outside, what is apart has none in common."""
    forest = build("boxes" if indexed else "boxes-one-by-one", meeting, few=0)
    there: list[tuple[bool, int, Any]] = []
    for identity, (query, thing) in enumerate(some):
        try:
            (forest.add_query if query else forest.add_profile)(thing, identity)
        except FilterError:
            continue
        there.append((query, identity, thing))
    forest.check()
    told = forest.pairs()
    for _, query, wide in filter(lambda one: one[0], there):
        for _, profile, narrow in filter(lambda one: not one[0], there):
            if meeting is Meeting.COVERING:
                assert (query, profile) in told or not covers(wide, narrow)
                assert (query, profile) not in told or all(matches(wide, e) for e in EVENTS if matches(narrow, e))
            else:
                assert (query, profile) in told or not any(matches(wide, e) and matches(narrow, e) for e in EVENTS)
                assert (query, profile) not in told or regions_overlap(wide, narrow)


@given(
    queries=st.lists(st.sampled_from(RANGES), unique=True, max_size=8),
    profiles=st.lists(st.sampled_from(RANGES), unique=True, max_size=8),
)
@thorough(100)
def test_lemma_6_1(queries: list[Range], profiles: list[Range]) -> None:
    """What covers another matches no more queries by covering, and no fewer profiles, nor fewer by overlap."""
    covering, meeting = build("ranges", Meeting.COVERING), build("ranges", Meeting.OVERLAP)
    for forest in (covering, meeting):
        for query in queries:
            forest.add_query(query, query)
        for profile in profiles:
            forest.add_profile(profile, profile)
    for a, b in permutations(profiles, 2):
        if a.covers(b):
            assert covering.queries_of(a) <= covering.queries_of(b)
            assert meeting.queries_of(b) <= meeting.queries_of(a)
    for a, b in permutations(queries, 2):
        if a.covers(b):
            assert covering.profiles_of(b) <= covering.profiles_of(a)
            assert meeting.profiles_of(b) <= meeting.profiles_of(a)


@BOTH
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.complete])
@given(data=st.data())
@thorough(25)
def test_the_result_lies_between_the_bounds(name: str, meeting: Meeting, data: st.DataObject) -> None:
    """Theorems 6.3 and 6.4: what a new node is found to match without bounds is between what they would have been."""
    case = CASES[name]
    forest, plain = build(name, meeting), build(name, meeting, bounds=False)
    number = st.integers(0, len(case.things) - 1)
    for identity, (query, at) in enumerate(data.draw(st.lists(st.tuples(st.booleans(), number), max_size=16))):
        for one in (forest, plain):
            (one.add_query if query else one.add_profile)(case.things[at], identity)
        own, other = (forest.queries, forest.profiles) if query else (forest.profiles, forest.queries)
        upper, lower = forest._bounds(int(query), own.held[identity])  # of the node as it stands, children and all
        found = plain.profiles_of(identity) if query else plain.queries_of(identity)
        slots = {other.slots[other.held[one]] for one in found}
        assert set(np.flatnonzero(lower)) <= slots <= set(np.flatnonzero(upper))


def test_a_root_is_not_matched_with_everything() -> None:
    """The imaginary root is an upper bound only (erratum): a profile without parent has no lower bound."""
    forest = build("ranges", Meeting.COVERING)
    forest.add_query(Range(0, 2), "low")
    forest.add_query(Range(3, 5), "high")
    forest.add_profile(Range(4, 5), "p")
    forest.add_profile(Range(0, 1), "r")
    assert forest.queries_of("p") == {"high"}
    assert forest.queries_of("r") == {"low"}


def test_bounds_spare_comparisons() -> None:
    """Ranges over two attributes in random order (thesis 6.8.2): less than half of comparing each with each."""
    chance = random.Random(7)
    things = [(*sorted(chance.choices(range(101), k=2)), *sorted(chance.choices(range(101), k=2))) for _ in range(1400)]
    made: dict[str, int] = {}
    for way in ("bounds", "plain"):
        relation: Relation[Any] = Relation(lambda a, b: a[0] <= b[0] and b[1] <= a[1] and a[2] <= b[2] and b[3] <= a[3])
        forest = DoubleForest(relation, exact=lambda _: True, **WAYS[way])
        for identity, thing in enumerate(things):
            (forest.add_query if identity % 2 else forest.add_profile)(thing, identity)
        made[way] = forest.comparisons
    each_with_each = sum(number // 2 for number in range(1, 1401))
    assert made["bounds"] < each_with_each / 2 < made["plain"] < each_with_each


@BOTH
@pytest.mark.parametrize("indexed", [True, False])
def test_many_boxes(indexed: bool, meeting: Meeting) -> None:
    """Enough for the index to have runs, and for slots to be used again; against numpy."""
    rng = np.random.default_rng(3)
    ends = np.sort(rng.integers(0, 40, (900, 2, 2)), axis=2)
    forest = DoubleForest.of_filters(meeting=meeting, indexed=indexed)
    for round_ in range(2):
        for at in range(round_ * 450, round_ * 450 + 450):
            (a, b), (c, d) = ends[at].tolist()
            thing = parse(f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}")
            (forest.add_query if at % 2 else forest.add_profile)(thing, at)
        for at in range(300):
            (forest.discard_query if at % 2 else forest.discard_profile)(at)
    low, high = ends[:, :, 0], ends[:, :, 1]
    queries, profiles = np.arange(301, 900, 2), np.arange(300, 900, 2)
    if meeting is Meeting.COVERING:
        paired = (low[queries, None] <= low[None, profiles]) & (high[None, profiles] <= high[queries, None])
    else:
        paired = (low[queries, None] <= high[None, profiles]) & (low[None, profiles] <= high[queries, None])
    expected = {(2 * int(q) + 301, 2 * int(p) + 300) for q, p in zip(*paired.all(axis=2).nonzero(), strict=True)}
    assert forest.pairs() == expected


def test_a_number_and_a_string_never_meet() -> None:
    """They are on two axes of the index, each open to the other."""
    forest = build("boxes", Meeting.OVERLAP, few=0)
    for number in range(3):
        forest.add_query(parse(f"x > {number}"), number)
        forest.add_query(parse(f"x = 'text {number}'"), f"text {number}")
    forest.add_profile(parse("x = 'text 1'"), "text")
    forest.add_profile(parse("x = 2"), "two")
    forest.check()
    assert forest.queries_of("text") == {"text 1"}
    assert forest.queries_of("two") == {0, 1}


# -- who holds what ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_what_is_preloaded_comes_and_goes_without_comparisons(name: str, meeting: Meeting) -> None:
    """Theorem 7.1."""
    things = CASES[name].things
    forest, sets = build(name, meeting), oracle(name, meeting)
    forest.preload(things, things)
    forest.check()
    assert forest.pairs() == set()
    before, nodes = forest.comparisons, len(forest.profiles)
    for number, thing in enumerate(things):
        forest.add_profile(thing, number)
        forest.add_query(thing, number)
        sets.add_profile(thing, number)
        sets.add_query(thing, number)
    assert forest.comparisons == before
    if meeting is Meeting.COVERING:
        assert forest.pairs() >= sets.pairs()
    else:
        assert forest.pairs() <= sets.pairs()
    if CASES[name].complete:
        assert forest.pairs() == sets.pairs()
    for number in range(len(things)):
        forest.discard_profile(number)
        assert forest.queries_of(number) == set()
    assert forest.comparisons == before
    assert len(forest.profiles) == nodes
    forest.unload()
    forest.check()
    assert len(forest.profiles) == 0
    assert len(forest.queries.held) == len(things)


def test_what_was_not_preloaded_is_compared() -> None:
    forest = build("ranges", Meeting.COVERING)
    forest.preload([Range(0, 3)], [Range(0, 5)])
    forest.preload([Range(0, 3)])
    before = forest.comparisons
    forest.add_profile(Range(1, 2), "p")
    assert forest.comparisons > before
    forest.add_query(Range(0, 5), "q")
    assert forest.profiles_of("q") == {"p"}


@BOTH
def test_several_may_have_the_same_region(meeting: Meeting) -> None:
    forest = DoubleForest.of_filters(meeting=meeting)
    forest.add_query(parse("x > 5 AND y = 'a'"), "q")
    forest.add_query(parse("'a' = y AND 5 < x"), "r")
    before = forest.comparisons
    forest.add_query(parse("y = 'a' AND x > 5"), "s")
    assert forest.comparisons == before
    forest.add_profile(parse("x > 6 AND y = 'a'"), "p")
    assert forest.queries_of("p") == {"q", "r", "s"}
    forest.discard_query("r")
    forest.discard_query("q")
    forest.check()
    assert forest.queries_of("p") == {"s"}
    forest.discard_query("s")
    assert forest.queries_of("p") == set()
    assert len(forest.queries) == 0


@BOTH
def test_types_are_not_compared_with_each_other(meeting: Meeting) -> None:
    forest = DoubleForest.of_filters(meeting=meeting, indexed=False, bounds=False)
    for kind in "ABCDEFGHIJKLMNOPQRST":
        forest.add_query(parse(f"type = '{kind}' AND x > 0"), kind)
    before = forest.comparisons
    forest.add_profile(parse("type = 'C' AND x > 5"), "p")
    assert forest.comparisons - before == 1
    assert forest.queries_of("p") == {"C"}
    before = forest.comparisons
    forest.add_profile(parse("x > 5"), "any")
    assert forest.comparisons - before == 20 + 1  # and where it hangs
    assert forest.queries_of("any") == (set("ABCDEFGHIJKLMNOPQRST") if meeting is Meeting.OVERLAP else set())


@BOTH
@given(
    one=st.lists(st.tuples(st.booleans(), st.sampled_from(TYPED)), max_size=8),
    other=st.lists(st.tuples(st.booleans(), st.sampled_from(TYPED)), max_size=8),
)
@thorough(15)
def test_two_directories_merge_to_one(meeting: Meeting, one: list[Any], other: list[Any]) -> None:
    """Section 6.1: as if all had come to one."""
    parts = [DoubleForest.of_filters(meeting=meeting) for _ in range(2)]
    whole = DoubleForest.of_filters(meeting=meeting)
    for part, (forest, some) in enumerate(zip(parts, (one, other), strict=True)):
        for number, (query, thing) in enumerate(some):
            for into in (forest, whole):
                (into.add_query if query else into.add_profile)(thing, (part, number))
    parts[0].merge(parts[1])
    parts[0].merge(parts[1])
    parts[0].check()
    assert parts[0].pairs() == whole.pairs()
    assert set(parts[0].profiles.held) == set(whole.profiles.held)


def test_merging_refuses_a_name_of_two_things() -> None:
    one, other = DoubleForest.of_filters(), DoubleForest.of_filters()
    one.add_query(parse("x > 5"), "q")
    other.add_query(parse("y = 'a'"), "r")
    other.add_query(parse("x > 6"), "q")
    with pytest.raises(FilterError, match="'q' means two different things"):
        one.merge(other)
    assert set(one.queries.held) == {"q"}


def test_compact_keeps_only_the_topmost() -> None:
    forest = build("ranges", Meeting.COVERING, compact=True)
    for thing in RANGES:
        forest.add_profile(thing, thing)
    forest.add_query(Range(0, 5), "all")
    forest.add_query(Range(0, 4), "most")
    assert forest.profiles_of("all") == set(RANGES)
    assert forest.profiles_of("most") == {thing for thing in RANGES if thing.high <= 4}
    assert len(forest.profiles.tops) < 10  # type: ignore[arg-type]
    forest.discard_profile(Range(0, 5))
    forest.discard_profile(Range(0, 4))
    forest.check()
    assert forest.profiles_of("all") == set(RANGES) - {Range(0, 5), Range(0, 4)}


@pytest.mark.parametrize("compact", [False, True])
def test_what_could_not_be_compared_leaves_nothing(compact: bool) -> None:
    broken = True

    def compare(wide: Range, narrow: Range) -> bool:
        if broken and (wide.high == 5) != (narrow.high == 5):
            raise RuntimeError("no answer")
        return wide.covers(narrow)

    forest: DoubleForest[Range] = DoubleForest(Relation(compare), exact=lambda _: True, compact=compact)
    forest.add_query(Range(0, 5), "q")
    with pytest.raises(RuntimeError, match="no answer"):
        forest.add_profile(Range(1, 2), "p")
    assert len(forest.profiles) == 0
    with pytest.raises(RuntimeError, match="no answer"):
        forest.add_query(Range(1, 4), "r")  # where it hangs, this time
    assert len(forest.queries) == 1
    broken = False
    forest.add_profile(Range(1, 2), "p")
    forest.check()
    assert forest.queries_of("p") == {"q"}


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("forest", [build("ranges", Meeting.COVERING), oracle("ranges", Meeting.COVERING)])
def test_an_identity_has_one_thing(forest: DoubleForest[Any] | TwoSets[Any]) -> None:
    forest.add_query(Range(0, 1), "q")
    with pytest.raises(FilterError, match="discard it first"):
        forest.add_query(Range(0, 2), "q")
    forest.add_profile(Range(0, 1), "q")
    assert forest.pairs() == {("q", "q")}
    forest.discard_profile("nobody")
    assert forest.queries_of("nobody") == set()


def test_what_matches_nothing_is_refused() -> None:
    forest = DoubleForest.of_filters()
    with pytest.raises(FilterError, match="never matches"):
        forest.add_profile(parse("x > 5 AND x < 3"), "p")
    forest.check()
    assert not forest.profiles.held


@pytest.mark.parametrize("structure", [DoubleForest, TwoSets])
def test_overlap_must_be_told(structure: Any) -> None:
    with pytest.raises(OptionError, match="pass overlaps="):
        structure(plain_ranges(), meeting=Meeting.OVERLAP)


def test_overlap_is_not_compact() -> None:
    with pytest.raises(OptionError, match="covering only"):
        build("ranges", Meeting.OVERLAP, compact=True)


def test_room_is_positive() -> None:
    with pytest.raises(OptionError, match="positive"):
        SparsePairs(room=0)
