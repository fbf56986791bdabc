"""Keys by intervals: a value and every range that holds it share an interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RingError
from weft.model.schema import Attribute
from weft.model.value import Type, to_micros
from weft.ring.identifiers import IdSpace
from weft.ring.intervals import Intervals

NUMBERS = st.floats(-50, 150) | st.integers(-50, 150).map(float)


def test_the_range_of_the_paper_is_stored_under_keys_0_and_5() -> None:
    cut = Intervals("price", 0, 500, 100)
    assert [cut.start(number) for number in cut.of_range(2, 8)] == [0, 5]


def test_0_to_99_in_six_intervals_is_stated() -> None:
    cut = Intervals("x", 0, 99, 6)
    assert [sum(cut.of(value) == number for value in range(100)) for number in range(6)] == [17, 16, 17, 16, 17, 17]


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 12))
def test_a_value_in_a_range_lies_in_one_of_its_intervals(low: float, value: float, high: float, count: int) -> None:
    low, value, high = sorted((low, value, high))
    cut = Intervals("x", 0, 99, count)
    assert cut.of(value) in cut.of_range(low, high)
    inside = min(max(value, 0), 99)
    assert cut.start(cut.of(inside)) <= inside


@given(st.floats(-1e300, 1e300), st.integers(1, 1000))
def test_intervals_ascend(value: float, count: int) -> None:
    cut = Intervals("x", -1e9, 1e9, count)
    assert cut.of(value) <= cut.of(value + abs(value) / 7 + 1)


def test_keys_of_an_attribute_are_apart_and_depend_on_topic_and_attribute() -> None:
    space = IdSpace(4096)
    keys = [Intervals(name, 0, 99, 6).key(i, space, topic) for name in "ab" for topic in ("t", "u") for i in range(6)]
    assert len(set(keys)) == 24


def test_a_schema_gives_the_bounds_of_numbers_and_timestamps() -> None:
    assert Intervals.of_attribute(Attribute("x", Type.INT, low=0, high=99), 6) == Intervals("x", 0, 99, 6)
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 11, tzinfo=UTC)
    days = Intervals.of_attribute(Attribute("time", Type.TIMESTAMP, low=first, high=last), 10)
    assert days.timestamps
    at = [days.of(to_micros(first + timedelta(days=n))) for n in (-3, 0, 0.999, 1, 9.5, 10, 40)]
    assert at == [0, 0, 0, 1, 9, 9, 9]
    assert days.bounds == ("2026-01-01T00:00:00Z", "2026-01-11T00:00:00Z")
    assert Intervals("x", 0.1, 12345678, 3).bounds == ("0.1", "12345678.0")


@pytest.mark.parametrize("given", [{}, {"low": 1}, {"high": 1}])
def test_an_attribute_without_bounds_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(RingError, match="'x' has no bounds; give it low and high"):
        Intervals.of_attribute(Attribute("x", Type.INT, **given), 6)


@pytest.mark.parametrize(("low", "high", "count"), [(0, 1, 0), (1, 1, 3), (0, float("inf"), 3), (float("nan"), 1, 3)])
def test_a_domain_without_bounds_or_intervals_is_refused(low: float, high: float, count: int) -> None:
    with pytest.raises(RingError, match="'x' needs"):
        Intervals("x", low, high, count)
