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
    matches,
    normalize,
    overlaps,
    parse,
    subtract,
    to_filter,
)
from weft.algebra.box import NormalForm
from weft.index import ScanIndex
from weft.language.ast import AttributeRef, Filter, Has, Is, Not, conjunction
from weft.language.constant import Constant
from weft.language.membership import Membership, member_values, membership, membership_name, possible_truths

LISTS = [{}, *({"x": list(some)} for some in chain.from_iterable(combinations("abc", size) for size in range(4)))]
SETS = [some for size in (1, 2, 3) for some in combinations("abc", size)]
TESTS: list[Filter] = [
    Has(AttributeRef("x"), tuple(map(Constant.of, some)), every)
    for some in SETS
    for every in ((False,) if len(some) == 1 else (False, True))
]
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
    names = {name: membership(name) for test in TESTS for name in [membership_name("x", test.values, test.every)]}  # type: ignore[attr-defined]
    truths = {
        name: [
            None if "x" not in e else (said.keys <= keys(e) if said.every else bool(said.keys & keys(e))) for e in LISTS
        ]
        for name, said in names.items()
    }
    some = [frozenset(each) for size in (1, 2) for each in combinations((True, False, None), size)]
    for name, other in product(names, repeat=2):
        for allowed in some:
            real = {truths[name][at] for at in range(len(LISTS)) if truths[other][at] in allowed}
            assert real <= possible_truths(name, {other: allowed})
    rng = np.random.default_rng(1)
    every = [*names]
    for _ in range(2_000):
        given = {every[at]: some[int(rng.integers(len(some)))] for at in rng.integers(len(every), size=3).tolist()}
        name = every[int(rng.integers(len(every)))]
        real = {
            truths[name][at]
            for at in range(len(LISTS))
            if all(truths[o][at] in allowed for o, allowed in given.items())
        }
        assert real <= possible_truths(name, given)


def keys(event: dict[str, list[str]]) -> set[str]:
    return {"s" + each for each in event["x"]}


def test_covers_and_overlaps_are_sound_and_know_subsets() -> None:
    for one, other in product(SIGNED, repeat=2):
        inside = where(other) <= where(one)
        assert not covers(one, other) or inside, (str(one), str(other))
        assert overlaps(one, other) or not where(one) & where(other), (str(one), str(other))
        if isinstance(one, Has) and isinstance(other, Has):
            assert covers(one, other) == inside, (str(one), str(other))
            assert covers(Not(one), Not(other)) == (where(Not(other)) <= where(Not(one))), (str(one), str(other))


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
