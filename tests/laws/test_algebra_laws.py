"""The algebra keeps meaning: by enumeration over tiny domains, and by random filters."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given

from strategies import (
    EVENTS,
    VALUES,
    A,
    all_tests,
    filters,
    list_filters,
    list_tests,
    number_filters,
    number_tests,
    related_tests,
    thorough,
)
from weft.algebra.measure import disjoint
from weft.algebra.merge import merge, merge_attributes, merge_bounding, merge_perfect
from weft.algebra.normalize import normalize
from weft.algebra.relate import covers, equivalent, intersect, is_empty, overlaps
from weft.algebra.subtract import subtract
from weft.algebra.to_filter import to_filter
from weft.language.ast import Filter, Is, Not
from weft.language.meaning import matches, truth
from weft.language.text import parse

TESTS = [*all_tests(A), *(Not(test) for test in all_tests(A))]
FORMS = [normalize(test) for test in TESTS]
HITS = [frozenset(n for n, value in enumerate(VALUES) if matches(test, {"a": value})) for test in TESTS]
NUMERIC = [
    n for n, test in enumerate(TESTS) if (test.operand if isinstance(test, Not) else test) in set(number_tests(A))
]


def hits(filter: Filter) -> list[bool]:
    return [matches(filter, event) for event in EVENTS]


@pytest.mark.parametrize("test", [*all_tests(A), *related_tests(), *list_tests(A)], ids=str)
def test_every_truth_of_every_test_is_a_region(test: Filter) -> None:
    for wanted in (True, False, None):
        form = normalize(Is(test, wanted))
        for event in EVENTS:
            said = truth(test, event) is wanted if test != A or wanted is not None else event.get("a") is None
            if test == A and wanted is None:
                said = matches(Is(A, None), event)
            assert (event in form) == said, (wanted, event)


def test_covering_of_every_two_tests_is_sound_and_complete_for_numbers() -> None:
    numeric = set(NUMERIC)
    for one, other in product(range(len(TESTS)), repeat=2):
        said, true = covers(FORMS[one], FORMS[other]), HITS[one] >= HITS[other]
        assert not said or true, f"{TESTS[one]} does not cover {TESTS[other]}"
        if one in numeric and other in numeric:
            assert said == true, f"{TESTS[one]} covers {TESTS[other]}"


def test_overlap_of_every_two_tests_is_sound_symmetric_and_exact_for_numbers() -> None:
    numeric = set(NUMERIC)
    for one, other in product(range(len(TESTS)), repeat=2):
        said, true = overlaps(FORMS[one], FORMS[other]), bool(HITS[one] & HITS[other])
        assert said or not true, f"{TESTS[one]} overlaps {TESTS[other]}"
        assert said == overlaps(FORMS[other], FORMS[one])
        if one in numeric and other in numeric:
            assert said == true, f"{TESTS[one]} does not overlap {TESTS[other]}"


def test_every_two_tests_merge_perfectly_into_their_union() -> None:
    """One attribute: the union is always a disjunctive attribute filter, but for residuals."""
    hits = cache(lambda form: frozenset(n for n, value in enumerate(VALUES) if {"a": value} in form))
    for one, other in combinations_with_replacement(range(len(TESTS)), 2):
        merger = merge_perfect([FORMS[one], FORMS[other]])
        if merger is None:
            assert any(box.residuals for box in (*FORMS[one].boxes, *FORMS[other].boxes))
        else:
            assert hits(merger.form) == HITS[one] | HITS[other], f"{TESTS[one]} or {TESTS[other]}"


@given(filters(8))
@thorough(600)
def test_normal_form_keeps_meaning(filter: Filter) -> None:
    form = normalize(filter)
    assert [event in form for event in EVENTS] == hits(filter)


@given(filters(6))
@thorough()
def test_an_expressed_form_means_the_same(filter: Filter) -> None:
    form = normalize(filter)
    again = to_filter(form)
    assert hits(again) == hits(filter)
    assert equivalent(form, normalize(again))


@given(filters(), filters())
@thorough(600)
def test_covering_never_loses_an_event(wide: Filter, narrow: Filter) -> None:
    if covers(wide, narrow):
        assert all(w or not n for w, n in zip(hits(wide), hits(narrow), strict=True))


@given(filters())
@thorough()
def test_covering_is_reflexive(filter: Filter) -> None:
    assert covers(filter, filter)
    assert equivalent(filter, filter)


@given(number_filters(), number_filters())
@thorough(800)
def test_covering_is_complete_for_numbers_with_disjunctions(wide: Filter, narrow: Filter) -> None:
    grid = [{"a": a, "b": b} for a, b in product(_NUMERIC_GRID, repeat=2)]
    true = all(matches(wide, event) or not matches(narrow, event) for event in grid)
    assert covers(wide, narrow) == true


_NUMERIC_GRID = (None, "other", -1, 0, 0.5, 1, 1.25, 1.5, 1.75, 2, 3)


@given(number_filters(4), number_filters(4), number_filters(4))
@thorough()
def test_covering_is_transitive_for_numbers(one: Filter, two: Filter, three: Filter) -> None:
    if covers(one, two) and covers(two, three):
        assert covers(one, three)


@given(filters(), filters())
@thorough()
def test_overlap_is_symmetric_and_never_denies_a_common_event(one: Filter, other: Filter) -> None:
    said = overlaps(one, other)
    assert said == overlaps(other, one)
    if not said:
        assert not any(a and b for a, b in zip(hits(one), hits(other), strict=True))


@given(filters(), filters())
@thorough()
def test_intersection_is_what_matches_both(one: Filter, other: Filter) -> None:
    both = intersect(one, other)
    assert [event in both for event in EVENTS] == [a and b for a, b in zip(hits(one), hits(other), strict=True)]


@given(filters())
@thorough()
def test_only_what_matches_nothing_is_empty(filter: Filter) -> None:
    if is_empty(filter):
        assert not any(hits(filter))


@given(filters(4), filters(4))
@thorough()
def test_a_merger_covers_its_parts_and_a_perfect_one_nothing_else(one: Filter, other: Filter) -> None:
    forms = [normalize(one), normalize(other)]
    either = [a or b for a, b in zip(hits(one), hits(other), strict=True)]
    for merger in (merge(forms), merge_perfect(forms), merge_attributes(forms), merge_bounding(forms)):
        if merger is not None:
            merged = [event in merger.form for event in EVENTS]
            assert all(m or not e for m, e in zip(merged, either, strict=True))
            assert all(covers(merger.form, form) for form in forms)
            if merger.perfect:
                assert merged == either


@given(filters(4), filters(4))
@thorough()
def test_subtraction_partitions(one: Filter, other: Filter) -> None:
    cutters = normalize(other).boxes
    plain = [box for box in cutters if not box.residuals]
    for box in normalize(one).boxes:
        pieces = subtract(box, plain)
        for event in EVENTS:
            inside = sum(event in piece for piece in pieces)
            assert inside == (event in box and not any(event in cutter for cutter in plain))
        kept = subtract(box, cutters)  # residuals of the cutters take nothing, unless the box has them too
        for event in EVENTS:
            if event in box and not any(event in cutter for cutter in cutters):
                assert sum(event in piece for piece in kept) == 1


@given(filters(6))
@thorough(150)
def test_disjoint_boxes_are_disjoint_and_the_same_set(filter: Filter) -> None:
    form = normalize(filter)
    if not any(box.residuals for box in form.boxes):
        pieces = disjoint(form)
        for event in EVENTS:
            assert sum(event in piece for piece in pieces) == (event in form)


@pytest.mark.parametrize("text", ["b", "ba", "ab", "a", "c", "abb", "aab", ""])
def test_a_line_without_an_end_is_no_prefix(text: str) -> None:
    """Strings from 'ab' to 'ac' and all from 'b' on start with nothing in common."""
    odd = parse("(s LIKE 'ab%' OR s >= 'b') AND s NOT LIKE '%a%'")
    assert ({"s": text} in normalize(odd)) == matches(odd, {"s": text})
    assert not covers(parse("s NOT LIKE 'ab%' AND s < 'b'"), parse("s NOT LIKE '%a%'"))


@thorough(200)
@given(list_filters(), list_filters())
def test_lists_keep_their_meaning_in_every_operation(one: Filter, other: Filter) -> None:
    first, second = normalize(one), normalize(other)
    here, there = hits(one), hits(other)
    assert [event in first for event in EVENTS] == here
    assert hits(to_filter(first)) == here
    assert covers(first, first)
    if covers(first, second):
        assert all(said for said, needed in zip(here, there, strict=True) if needed)
    if not overlaps(first, second):
        assert not any(a and b for a, b in zip(here, there, strict=True))
    assert [event in merge([first, second]).form for event in EVENTS if event in first or event in second].count(
        False
    ) == 0
    left = subtract(first, [second])
    assert [any(event in box for box in left) for event in EVENTS] == [
        a and not b if not any(box.residuals for box in second.boxes) else any(event in box for box in left)
        for a, b, event in zip(here, there, EVENTS, strict=True)
    ]


def test_memberships_are_booleans_of_their_own() -> None:
    assert covers("t HAS 'a'", "t HAS 'a' AND x > 5")
    assert covers("t HAS ANY ('a', 'b')", "t HAS 'b'")
    assert covers("t HAS 'a'", "t HAS ALL ('a', 'b')")
    assert covers("t HAS 1", "t HAS 1.0")
    assert not covers("t HAS 'a'", "t HAS 'b'")
    assert overlaps("t HAS 'a'", "t HAS 'b'")
    assert not overlaps("t HAS 'a'", "t NOT HAS 'a'")
    assert is_empty("t HAS 'a' AND NOT t HAS 'a'")
    assert str(to_filter(normalize("NOT (t HAS 'a' AND NOT t HAS 2)"))) == "t NOT HAS 'a' OR t HAS 2"
    assert merge(["t HAS 'a' AND x > 1", "t HAS 'a' AND x < 3"]).form == normalize("t HAS 'a' AND (x > 1 OR x < 3)")
