"""What filters ask for, against counting one by one; parts merged are the whole."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import KINDS, all_tests, filters, thorough
from weft import normalize, parse
from weft.algebra.columns import BoxColumns, ColumnPart
from weft.algebra.filter_texts import readable
from weft.algebra.residual import Called
from weft.algebra.valueset import PRESENT
from weft.demand.demand_counts import DemandCounts, DemandRanges, Fact
from weft.demand.event_sample import EventSample
from weft.demand.filter_demand import demand_of
from weft.demand.predicate_kinds import PredicateKind, kind_of
from weft.errors import FilterError
from weft.language.membership import is_membership
from weft.language.predicate import Predicates
from weft.workloads import WORKLOADS

KNOWN = Predicates([KINDS])
BAD = ["x >", "", "x => 5", None]
texts = st.lists(filters(4).map(str) | st.sampled_from(BAD), max_size=12)


def _residual_kind(subject: object) -> PredicateKind:
    return PredicateKind.PREDICATE if isinstance(subject, Called) else PredicateKind.COMPARISON


def kinds_one_by_one(forms: list[tuple]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for boxes in forms:
        mine = set()
        for box in boxes:
            compared = {(n, _residual_kind(s)) for s in box.residuals for n in s.names}
            names = {name for name, _ in compared}
            mine |= compared
            tested = {n: v for n, v in box.sets.items() if not is_membership(n)}  # those of lists have no kind
            mine |= {(n, kind_of(v)) for n, v in tested.items() if n not in names or v != PRESENT}
        found.update((Fact.KIND, name, str(kind)) for name, kind in mine)
    return found


@given(texts)
@thorough(200)
def test_facts_are_those_of_the_normal_forms(some: list[str | None]) -> None:
    found = demand_of(range(len(some)), some, predicates=KNOWN)
    forms = [normalize(parse(text, KNOWN)).boxes for text in some if text not in BAD]
    assert found.read == len(forms)
    assert found.refused == len(some) - len(forms)
    assert found.of(Fact.FILTERS).get("nothing", 0) == sum(not boxes for boxes in forms)
    assert found.of(Fact.FILTERS).get("everything", 0) == sum(any(not b.names for b in boxes) for boxes in forms)
    assert found.distinct(Fact.FORM) == len({frozenset(boxes) for boxes in forms if boxes})
    assert found.histogram(Fact.BOXES) == dict(sorted(Counter(map(len, forms)).items()))
    looked = [frozenset().union(*(box.names for box in boxes)) for boxes in forms]
    assert found.uses == Counter(name for names in looked for name in names)
    assert found.together == Counter((a, b) for names in looked for a, b in product(names, names) if a < b)
    assert found.histogram(Fact.ATTRIBUTES) == dict(
        sorted(Counter(len(names) for names, boxes in zip(looked, forms, strict=True) if boxes).items())
    )
    counted = {key: count for key, count in found.counts.items() if key[0] == Fact.KIND}
    assert counted == kinds_one_by_one(forms)


@given(texts, st.integers(0, 12), st.integers(0, 12), st.integers(1, 5))
@thorough(150)
def test_parts_merged_are_the_whole(some: list[str | None], one: int, other: int, most: int) -> None:
    ids = list(range(len(some)))
    first, second = sorted((one, other))
    sample = EventSample.of(pa.record_batch({"a": [0.0, 1.0, 2.5, None], "b": ["", "a", "ab", "b"]}))
    whole = demand_of(ids, some, sample, most)
    parts = [
        demand_of(ids[part], some[part], sample, most)
        for part in (slice(first), slice(first, second), slice(second, None))
    ]
    assert DemandCounts.merged(parts).sampled(most) == whole
    left, right = parts[0].merge(parts[1]).merge(parts[2]), parts[0].merge(parts[1].merge(parts[2]))
    assert left == right
    assert left.sampled(most) == whole


_keys = st.tuples(
    st.sampled_from([Fact.CONSTANT, Fact.FORM, Fact.USE]).map(str), st.sampled_from("ab"), st.sampled_from("uvwxyz")
)


@given(st.dictionaries(_keys, st.integers(1, 4)), st.sets(st.sampled_from("uvwxyz")), st.integers(1, 3))
@thorough(150)
def test_the_most_frequent_of_parts_without_common_keys_are_those_of_all(
    counts: dict[tuple[str, str, str], int], mine: set[str], most: int
) -> None:
    whole = DemandCounts(counts)
    parts = [DemandCounts({k: n for k, n in counts.items() if (k[2] in mine) is side}) for side in (True, False)]
    assert parts[0].topped(most).merge(parts[1].topped(most)).topped(most) == whole.topped(most)
    for name in "ab":
        assert whole.topped(most).distinct(Fact.CONSTANT, name) == whole.distinct(Fact.CONSTANT, name)


@given(texts)
@thorough(60)
def test_it_is_read_back(some: list[str | None]) -> None:
    for found in (demand_of(range(len(some)), some), demand_of(range(len(some)), some).topped(1)):
        assert DemandCounts.from_batch(found.to_batch()) == found
        assert DemandCounts.from_dict(found.to_dict()) == found


def test_filters_of_one_meaning_have_one_form_and_others_do_not() -> None:
    same = ["x > 1 AND y = 'a'", "y = 'a' AND NOT x <= 1", "(y = 'a' AND x > 1.0) OR (x > 1 AND y = 'a')"]
    unlike = [
        "x > 1",
        "x >= 1",
        "x < 1",
        "y > 1",
        "y = 'a'",
        "y = 'b'",
        "x = 1",
        "x LIKE '%a'",
        "y LIKE '%a'",
        "x < y",
        "x > y",
    ]
    assert demand_of(range(3), same).distinct(Fact.FORM) == 1
    assert demand_of(range(len(unlike)), unlike).distinct(Fact.FORM) == len(unlike)


def test_constants_are_counted_once_a_filter() -> None:
    found = demand_of(
        range(4), ["s = 'a' AND x > 1 OR s = 'a' AND x < 0", "s IN ('a', 'b')", "s = 'b' OR x = 5", "x = 5.0"]
    )
    assert found.of(Fact.CONSTANT, "s") == {"'a'": 2, "'b'": 2}
    assert found.of(Fact.CONSTANT, "x") == {"5": 2}


def test_a_sample_of_ranges_is_fair() -> None:
    market = WORKLOADS["W3"](4_000, 1)
    found = demand_of(range(4_000), market.texts(), ranges=500).ranges("price")[ColumnPart.NUMBERS]
    assert len(found.low) == 500
    assert abs(np.mean(found.low) - np.mean(market.bounds["price"][0])) < 2_500


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 3)), min_size=1))
@thorough(100)
def test_how_many_ranges_are_around_a_point(rows: list[tuple[int, int, int]]) -> None:
    low, high, weight = (
        np.array(column) for column in zip(*((min(a, b), max(a, b), w) for a, b, w in rows), strict=True)
    )
    points = np.arange(-1, 8) / 1.0
    found = DemandRanges(ColumnPart.NUMBERS, low * 1.0, high * 1.0, weight).around(points)
    brute = [sum(w for a, b, w in zip(low, high, weight, strict=True) if a <= p <= b) / weight.sum() for p in points]
    assert found.tolist() == pytest.approx(brute)


@pytest.mark.parametrize("test", all_tests(), ids=str)
def test_events_that_pass_are_those_in_the_set(test: object) -> None:
    from datetime import UTC, datetime

    columns = {
        "numbers": pa.array([0, 1, 1, 2.5, 3, None, -1.0, 100.0]),
        "strings": pa.array(["", "a", "ab", "b", None, "a", "abc", "zz"]),
        "bools": pa.array([True, False, None, True, True, True, False, None]),
        "times": pa.array([datetime(2020, 1, day, tzinfo=UTC) for day in range(1, 9)], pa.timestamp("us", "UTC")),
    }
    for column in columns.values():
        for box in normalize(test).boxes:  # type: ignore[arg-type]
            for name, values in box.sets.items():
                passing = EventSample.of(pa.record_batch({name: column}))
                brute = [value in values for value in column.to_pylist()]
                assert passing.count(name, values) == sum(brute)
                rows = BoxColumns.of([box])
                for (_, part), spans in rows.columns.items():
                    assert passing.spans(name, part, spans, rows.texts()).tolist() == [sum(brute)]


def test_an_invalid_or_too_large_filter_is_refused_alone() -> None:
    large = " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(12))
    with pytest.raises(FilterError):
        normalize(parse(large))
    some = [f"x > {n}" for n in range(100)]
    some[7], some[50], some[51] = large, "x >", large
    found = readable(some)
    assert sorted(found.refused) == [7, 50, 51]
    assert "steps" in found.refused[7]
    assert found.columns.owners.tolist() == [n for n in range(100) if n not in found.refused]
