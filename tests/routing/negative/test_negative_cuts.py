"""Lines of cuts: sets are intervals and back, and labels keep the order of cuts, however they come."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import VALUES, all_tests, one_of, thorough
from weft.algebra.normalize import normalize
from weft.algebra.valueset import ANYTHING, ValueSet
from weft.language.ast import Filter, Not
from weft.model.schema import Attribute, Schema
from weft.model.value import Type
from weft.routing.negative.cuts import CutLine, SortedRows, intervals_at_most
from weft.routing.negative.space import LabelAxes

tests = one_of(all_tests())


def sets_of(wanted: Filter, schema: Schema | None = None) -> list[ValueSet]:
    return [box.sets.get("a", ANYTHING) for box in normalize(wanted, schema).boxes if not box.residuals]


@given(tests, tests, st.booleans())
@thorough(200)
def test_a_set_is_its_intervals(one: Filter, other: Filter, negated: bool) -> None:
    line = CutLine()
    for values in sets_of(Not(one) if negated else one) + sets_of(other):
        intervals = line.intervals(values)
        if intervals is None:
            assert values.strings.terms
            continue
        parts = [line.values(low, high) for low, high in intervals]
        for value in VALUES:
            assert sum(value in part for part in parts) == (value in values)
        assert all(a[1] < b[0] for a, b in pairwise(intervals)), "they do not touch"
        assert len(intervals) <= intervals_at_most(values)
        ends = [line.label(cut) for pair in intervals for cut in pair]
        assert ends == sorted(set(ends))  # type: ignore[type-var]
        assert [line.cut(label) for label in ends if label is not None] == [c for pair in intervals for c in pair]
    line.check()


@pytest.mark.parametrize("kind", Type)
@given(tests)
@thorough(30)
def test_under_a_schema_there_is_only_the_type(kind: Type, wanted: Filter) -> None:
    attribute = Attribute("a", kind)
    line = CutLine(attribute)
    for values in sets_of(wanted, Schema.of(attribute)):
        for value in VALUES if (intervals := line.intervals(values)) is not None else ():
            kept = attribute.conform(value) if value is not None else None
            assert any(kept in line.values(low, high) for low, high in intervals or ()) == (kept in values)


@given(st.lists(st.integers(-50, 50) | st.floats(-50, 50), max_size=60), st.booleans())
@thorough(100)
def test_labels_follow_the_order_of_cuts_with_little_room(numbers: list[Any], bounded: bool) -> None:
    attribute = Attribute("a", Type.FLOAT, low=-40, high=40) if bounded else None
    line = CutLine(attribute, reach=1 << 9)
    seen: dict[Any, int] = {}
    for number in numbers:
        (low, high), *_ = line.intervals(ValueSet(numbers=((number, 0), (number, 1)))) or []
        for cut in (low, high):
            label = line.label(cut)
            if label is None:
                old, new = line.spread()
                moved = dict(zip(old.tolist(), new.tolist(), strict=True))
                seen = {each: moved[at] for each, at in seen.items()}
                label = line.label(cut)
            assert label is not None
            seen[cut] = label
            assert label == line.label(cut)
    assert sorted(seen, key=seen.__getitem__) == sorted(seen)
    line.check()


def test_a_full_line_raises() -> None:
    line = CutLine(reach=4)
    with pytest.raises(OverflowError, match="more cuts than labels"):
        line.spread()


def test_only_the_labels_around_a_place_without_room_are_spread() -> None:
    line = CutLine()
    for number in range(2_000):
        line.label((1, number, 0))
    low, high, spread = 1000.0, 1001.0, 0
    for at in range(400):
        middle = (low + high) / 2 if high - low > 1e-9 else None
        if middle is None:  # the next crowded place
            low, high = 1100.0 + at, 1101.0 + at
            continue
        if line.label((1, middle, 0)) is None:
            old, new = line.spread()
            spread += 1
            assert 2 < len(old) == len(new) < 500
            assert (old[0], old[-1]) == (new[0], new[-1])
            assert (np.diff(new) > 1 << 20).all()
            assert line.label((1, middle, 0)) is not None
        low, high = (low, middle) if at % 2 else (middle, high)
    assert spread
    line.check()


def test_cuts_in_a_row_leave_room() -> None:
    line = CutLine()
    assert all(line.label((1, number, 0)) is not None for number in range(5_000))
    assert all(line.label((1, -number, 0)) is not None for number in range(5_000))


@pytest.mark.parametrize(
    ("attribute", "low", "high"),
    [
        (Attribute("a", Type.FLOAT, low=0, high=1000), (1, 250.0, 0), (1, 750.0, 0)),
        (Attribute("a", Type.INT, low=0, high=99), (1, 25, 0), (1, 75, 0)),
        (Attribute("a", Type.STRING, categories=("d", "b", "c", "a")), (2, "b", 0), (2, "d", 0)),
        (
            Attribute("a", Type.TIMESTAMP, low=datetime(1970, 1, 1, tzinfo=UTC), high=datetime(1970, 1, 5, tzinfo=UTC)),
            (4, 86_400_000_000, 0),
            (4, 3 * 86_400_000_000, 0),
        ),
    ],
)
def test_within_bounds_labels_measure(attribute: Attribute, low: Any, high: Any) -> None:
    line = CutLine(attribute)
    start, end = line.label(low), line.label(high)
    assert start is not None
    assert end is not None
    assert (end - start) / (1 << 62) == pytest.approx(0.5, abs=1e-6)


@given(st.lists(st.integers(1, 60), unique=True), st.integers(1, 4))
def test_rows_are_one_sorted_list(items: list[int], row: int) -> None:
    rows, plain = SortedRows([0, 100], row=row), [0, 100]
    for item in items:
        at = bisect_left(plain, item)
        assert rows.around(item) == (plain[at - 1], plain[at])
        for around in (1, 3, 50):
            assert rows.near(item, around) == plain[max(0, at - around) : at + around + 1]
        rows.insert(item)
        plain.insert(at, item)
        rows.check()
    assert list(rows) == plain
    for value in range(-3, 201, 5):
        assert rows.first_from(value, lambda item: 2 * item) == plain[bisect_left(plain, value / 2)]


def test_a_long_list_is_not_listed_but_surrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    real = CutLine.intervals

    def counted(self: CutLine, values: ValueSet) -> Any:
        found = real(self, values)
        listed.append(len(found or ()))
        return found

    monkeypatch.setattr(CutLine, "intervals", counted)
    axes = LabelAxes()
    (box,) = normalize(f"x IN ({','.join(map(str, range(0, 20_000, 2)))}, 'a', 'c')").boxes
    axes.widen(box.sets)
    assert axes.spans(box) is None
    around = axes.hull(box, most=4)
    assert 1 <= len(around) <= 4
    low, high = axes.rows(around)
    parts = [axes.box(*ends) for ends in zip(low, high, strict=True)]
    assert all(any({"x": value} in part for part in parts) for value in (0, 19_998, "a", "c"))
    assert sum(listed) <= 4
