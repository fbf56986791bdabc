"""Memberships: one truth for each set of values, and what those of one attribute say about each other."""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations, product

import numpy as np
import pytest

from weft import (
    F,
    Index,
    Schema,
    TreeIndex,
    covers,
    equivalent,
    is_empty,
    matches,
    normalize,
    overlaps,
    parse,
    subtract,
    to_filter,
)
from weft.algebra.box import NormalForm
from weft.algebra.element_sets import is_member, possible_truths
from weft.index import ScanIndex
from weft.language.ast import AttributeRef, Filter, Has, HasElement, Is, Not, conjunction
from weft.language.constant import Constant
from weft.language.grammar import parse_element_test
from weft.language.membership import Membership, element_test_name, member_values, membership, membership_name

LISTS = [{}, *({"x": list(some)} for some in chain.from_iterable(combinations("abc", size) for size in range(4)))]
SETS = [some for size in (1, 2, 3) for some in combinations("abc", size)]
TESTS: list[Filter] = [
    Has(AttributeRef("x"), tuple(map(Constant.of, some)), every)
    for some in SETS
    for every in ((False,) if len(some) == 1 else (False, True))
]
ELEMENT_TESTS = (
    "LIKE 'a%'",
    "IN ('a', 'b')",
    "> 'a'",
    "BETWEEN 'a' AND 'b'",
    "!= 'b'",
    "IS NOT NULL",
    "> 'c'",
    "ILIKE 'A'",
)
TESTS += [HasElement(AttributeRef("x"), parse_element_test(text)) for text in ELEMENT_TESTS]
SIGNED: list[Filter] = [*TESTS, *map(Not, TESTS), *(Not(Is(each, True)) for each in TESTS), Is(TESTS[0], None)]


@cache
def where(wanted: Filter) -> frozenset[int]:
    return frozenset(at for at, event in enumerate(LISTS) if matches(wanted, event))


def test_a_name_says_what_was_tested() -> None:
    values = tuple(map(Constant.of, ("b", 1, True, 2.5, "a:7", "")))
    for every in (False, True):
        name = membership_name("odd:*name", values, every)
        assert membership(name).attribute == "odd:*name"
        assert {each.python for each in member_values(name)} == {each.python for each in values}
        assert membership_name("odd:*name", member_values(name), every) == name
    assert membership(membership_name("x", [Constant.of("*1:a")])) == Membership("x", frozenset({"s*1:a"}))


@pytest.mark.parametrize(
    "said", ["", "x", "1:x", "1:x*", "1:x*2:sa", "1:x*2:sb2:sa", "1:x*2:sa2:sa", "1:x*9:sa", "1:xq", "9:x"]
)
def test_what_is_not_a_name_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"membership|length|shorter|element"):
        membership("\ufdd0" + said)


def test_what_memberships_say_about_each_other_is_true() -> None:
    names = [membership_name("x", test.values, test.every) for test in TESTS if isinstance(test, Has)]
    names += [element_test_name("x", text) for text in ELEMENT_TESTS]
    truths = {name: [is_member(name, event) for event in LISTS] for name in names}
    some = [frozenset(each) for size in (1, 2) for each in combinations((True, False, None), size)]
    for name, other in product(names, repeat=2):
        for allowed in some:
            real = {truths[name][at] for at in range(len(LISTS)) if truths[other][at] in allowed}
            assert real <= possible_truths(name, {other: allowed})
    rng = np.random.default_rng(1)
    for _ in range(2_000):
        given = {names[at]: some[int(rng.integers(len(some)))] for at in rng.integers(len(names), size=3).tolist()}
        name = names[int(rng.integers(len(names)))]
        real = {
            truths[name][at]
            for at in range(len(LISTS))
            if all(truths[o][at] in allowed for o, allowed in given.items())
        }
        assert real <= possible_truths(name, given)


def test_covers_and_overlaps_are_sound_and_know_subsets() -> None:
    for one, other in product(SIGNED, repeat=2):
        inside = where(other) <= where(one)
        assert not covers(one, other) or inside, (str(one), str(other))
        assert overlaps(one, other) or not where(one) & where(other), (str(one), str(other))
        if isinstance(one, Has) and isinstance(other, Has):
            assert covers(one, other) == inside, (str(one), str(other))
            assert covers(Not(one), Not(other)) == (where(Not(other)) <= where(Not(one))), (str(one), str(other))


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("x HAS LIKE 'a%'", "x HAS 'ab'"),
        ("x HAS LIKE 'a%'", "x HAS ALL ('ab', 'c')"),
        ("x HAS LIKE 'a%'", "x HAS LIKE 'ab%' AND y > 5"),
        ("x HAS > 5", "x HAS (>= 6 AND < 7)"),
        ("x HAS (> 5 OR LIKE '%a')", "x HAS LIKE '%ba'"),
        ("x HAS IS NOT NULL", "x HAS != 'a'"),
        ("x NOT HAS > 7", "x NOT HAS > 5"),
        ("x NOT HAS ANY (8, 9)", "x NOT HAS > 5"),
        ("x NOT HAS ALL (8, 'a')", "x NOT HAS > 5"),
        ("x HAS ANY ('a', 'b')", "x HAS ANY ('a', 'b', 'c') AND x NOT HAS >= 'c'"),
        ("x HAS cidr('10.0.0.0/8')", "x HAS cidr('10.1.0.0/16')"),
    ],
)
def test_a_test_of_elements_covers_what_its_set_covers(wide: str, narrow: str) -> None:
    assert covers(wide, narrow)
    assert not covers(narrow, wide)


def test_a_test_that_no_element_passes_matches_nothing() -> None:
    assert is_empty("x HAS (> 5 AND < 3)")
    assert not is_empty("x NOT HAS (> 5 AND < 3)")
    assert equivalent("x HAS (> 5 AND < 9)", "x HAS (< 9 AND NOT <= 5)")
    assert equivalent("x HAS IN ('a', 'b')", "x HAS ANY ('b', 'a')")
    assert not equivalent("x HAS > 5 AND x HAS < 9", "x HAS (> 5 AND < 9)")


def test_what_is_subtracted_or_written_again_is_right() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        one, other = (conjunction(*(SIGNED[at] for at in rng.integers(len(SIGNED), size=2).tolist())) for _ in range(2))
        assert where(to_filter(normalize(one))) == where(one)
        left = NormalForm(tuple(subtract(one, [other])))
        assert where(to_filter(left)) == where(one) - where(other)


def test_alternatives_are_one_membership() -> None:
    apart = parse("x HAS 'a' OR y = 1 OR x HAS ANY ('c', 'b') OR x HAS 'a'")
    assert len(normalize(apart).boxes) == 2
    assert equivalent(apart, "y = 1 OR x HAS ANY ('a', 'b', 'c')")
    assert not equivalent(apart, "y = 1 OR x HAS ANY ('a', 'b')")


@pytest.mark.parametrize("schema", [None, {"n": "int"}])
def test_very_many_values_are_one_box_and_are_found_by_their_rows(schema) -> None:
    declared = None if schema is None else Schema.of(**schema)
    many, others = [f"tag {n}" for n in range(300)], [f"tag {n}" for n in range(250, 600)]
    filters = [
        F.tags.has_any(many),
        F.tags.has_any(many) & F.others.has_any(others),
        F.tags.has_any(others) & (F.n > 5),
        ~F.tags.has_any(many),
        ~F.tags.has_all(many),
        F.tags.has_all(many[:20]),
        F.tags.has_any(many) & ((F.n == 1) | (F.n == 3) | (F.m == 5)),
    ]
    assert [len(normalize(each, declared).boxes) for each in filters[:6]] == [1] * 6
    indexes = [TreeIndex(declared), TreeIndex(declared, tail=0), ScanIndex(declared)]
    for index in indexes:
        for sub, each in enumerate(filters):
            index.add(sub, parse(str(each)))
    rng = np.random.default_rng(3)
    events = [
        {
            name: [f"tag {n}" for n in rng.integers(0, 700, size=int(rng.integers(4))).tolist()],
            "n": int(rng.integers(9)),
        }
        for name in ("tags", "others", "tags", "tags", "none") * 8
    ]
    events += [{"tags": many[:20], "others": others[:3], "n": 3}, {"tags": many, "n": 7}, {"tags": "tag 299", "n": 7}]
    for event in events:
        wanted = [sub for sub, each in enumerate(filters) if matches(each, event)]
        for index in indexes:
            assert sorted(index.match(event).tolist()) == wanted
    for index in indexes:
        found = index.match_batch(events)
        assert [sorted(ids.tolist()) for ids in found] == [
            [sub for sub, each in enumerate(filters) if matches(each, event)] for event in events
        ]
    assert covers(filters[0], F.tags.has_any(many[5:50]))
    assert not covers(F.tags.has_any(many[5:50]), filters[0])


def test_a_tree_of_long_lists_is_stored_and_opened(tmp_path) -> None:
    index = Index()
    index.add(1, F.tags.has_any(f"tag {n}" for n in range(300)))
    index.add(2, ~F.tags.has_all("a", "b"))
    index.save(tmp_path / "snapshot")
    opened = Index.open(tmp_path / "snapshot")
    for event in ({"tags": ["tag 299", "a"]}, {"tags": ["a", "b"]}, {"tags": []}, {}):
        assert sorted(opened.match(event)) == sorted(index.match(event))
