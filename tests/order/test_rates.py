"""Rate control: each filter counts for itself."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.errors import FilterError
from weft.language.text import parse
from weft.order.rates import Meter, Rate, RateControl, Rated


def test_a_larger_rate_covers_a_smaller_one() -> None:
    """20 notifications a second cover 10 (acceptance)."""
    assert Rate(20).covers(Rate(10))
    assert not Rate(10).covers(Rate(20))
    assert Rate(60, period=60).covers(Rate(1))


def test_an_exhausted_filter_does_not_hide_those_below_it() -> None:
    """Erratum 9: F1 = (x > 0, 20/s), F2 = (x > 100, 10/s); twenty events with x = 1, then one with x = 101."""
    control = RateControl()
    control.add(Rated(parse("x > 0"), Rate(20)), "one", now=0.0)
    control.add(Rated(parse("x > 100"), Rate(10)), "two", now=0.0)
    assert [str(node.thing.filter) for node in control.forest.roots if node.thing] == ["x > 0"]
    for _ in range(20):
        assert control.deliver({"x": 1}, 0.5) == {"one"}
    assert control.deliver({"x": 1}, 0.5) == set()
    for _ in range(10):
        assert control.deliver({"x": 101}, 0.6) == {"two"}
    assert control.deliver({"x": 101}, 0.7) == set()
    assert control.deliver({"x": 101}, 1.0) == {"one", "two"}


def test_a_filter_hangs_below_the_closest_rate() -> None:
    control = RateControl()
    for bound, rate in ((0, 100), (1, 30), (2, 50)):
        control.add(Rated(parse(f"x > {bound} AND y = {bound}"), Rate(rate)), bound, now=0.0)
    control.add(Rated(parse("x > 0"), Rate(100)), "wide", now=0.0)
    control.add(Rated(parse("x > 0"), Rate(40)), "slow", now=0.0)
    control.add(Rated(parse("x > 5"), Rate(10)), "new", now=0.0)
    node = control.forest.find(Rated(parse("x > 5"), Rate(10)))
    assert node is not None
    assert node.parent.thing == Rated(parse("x > 0"), Rate(40))


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from((1, 5, 9))), max_size=40))
@thorough(100)
def test_each_filter_gets_its_rate_and_no_more(stream: list[tuple[int, int]]) -> None:
    """Against counters kept apart for each filter."""
    rated = {
        "a": Rated(parse("x > 0"), Rate(3, 2.0)),
        "b": Rated(parse("x > 4"), Rate(2)),
        "c": Rated(parse("x > 8"), Rate(1, 3.0)),
        "d": Rated(parse("x > 4"), Rate(1)),
    }
    bounds = {"a": 0, "b": 4, "c": 8, "d": 4}
    control = RateControl()
    counts: dict[tuple[str, int], int] = {}
    for name, each in rated.items():
        control.add(each, name, now=0.0)
    now = 0.0
    for step, x in stream:
        now += step / 4
        expected = set()
        for name, each in rated.items():
            window = (name, int(now // each.rate.period))
            if x > bounds[name] and counts.get(window, 0) < each.rate.events:
                counts[window] = counts.get(window, 0) + 1
                expected.add(name)
        assert control.deliver({"x": x}, now) == expected


def test_the_moving_average_follows_the_load() -> None:
    control = RateControl()
    each = Rated(parse("x > 0"), Rate(100))
    control.add(each, "a", now=0.0)
    for second in range(20):
        for _ in range(8):
            control.deliver({"x": 1}, second + 0.5)
    assert control.load(19.9)[each] == pytest.approx(8, rel=0.05)
    assert control.load(79.9)[each] == pytest.approx(8 * (exp(-1) - exp(-4 / 3)) / (1 - exp(-4 / 3)), rel=0.05)
    assert control.load(620.0)[each] < 0.01


def test_a_filter_that_goes_takes_its_counter_along() -> None:
    control = RateControl()
    each = Rated(parse("x > 0"), Rate(1))
    control.add(each, "a", now=0.0)
    control.deliver({"x": 1}, 0.1)
    control.discard(each, "a")
    assert control.load(0.2) == {}
    control.add(each, "a", now=0.3)
    assert control.deliver({"x": 1}, 0.4) == {"a"}


def test_a_clock_that_goes_back_changes_nothing() -> None:
    meter = Meter(Rate(1), since=10.0)
    assert meter.admits(10.5)
    assert not meter.admits(3.0)
    assert meter.since == 10.0


@pytest.mark.parametrize(("events", "period"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, float("nan"))])
def test_a_rate_is_valid_from_birth(events: int, period: float) -> None:
    with pytest.raises(FilterError, match="is not a rate"):
        Rate(events, period)
