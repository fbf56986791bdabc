"""Lines of cuts against an independent interval library, and by enumeration."""

from __future__ import annotations

import math
from itertools import product

import portion
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft.algebra import interval
from weft.algebra.interval import NUMBERS, Line

cuts = st.tuples(st.one_of(st.integers(-3, 3), st.sampled_from([-1.5, 0.5, 2.5])), st.integers(0, 1))
lines = st.tuples(st.sets(cuts, max_size=6), st.booleans()).map(
    lambda drawn: (NUMBERS if drawn[1] else ()) + tuple(sorted(drawn[0]))
)
PROBES = [-math.inf, *(n / 4 for n in range(-16, 17)), math.inf]


def as_portion(line: Line) -> portion.Interval:
    found = portion.empty()
    for low, high in interval.intervals(line):
        bottom = (portion.OPEN, -portion.inf) if low == NUMBERS[0] else (not low[1], low[0])
        top = (portion.OPEN, portion.inf) if high is None else (bool(high[1]), high[0])
        left = portion.CLOSED if bottom[0] is True else portion.OPEN
        right = portion.CLOSED if top[0] is True else portion.OPEN
        found |= portion.Interval.from_atomic(left, bottom[1], top[1], right)
    return found


@given(lines, lines)
@thorough(1500)
def test_operations_agree_with_portion(one: Line, other: Line) -> None:
    p, q = as_portion(one), as_portion(other)
    assert as_portion(interval.union(one, other)) == p | q
    assert as_portion(interval.intersect(one, other)) == p & q
    assert as_portion(interval.minus(one, other)) == p - q
    assert as_portion(interval.complement(one, NUMBERS)) == ~p
    assert interval.covers(one, other) == (q in p)
    assert interval.meets(one, other) == bool(interval.intersect(one, other)) == (not (p & q).empty)
    assert as_portion(interval.hull(one)) == p.enclosure


@given(lines, lines)
@thorough(500)
def test_one_form_for_each_set(one: Line, other: Line) -> None:
    same = [interval.contains(one, probe) for probe in PROBES] == [interval.contains(other, probe) for probe in PROBES]
    assert same == (one == other)
    assert interval.complement(interval.complement(one, NUMBERS), NUMBERS) == one
    assert interval.union(one, other) == interval.union(other, one)
    assert list(interval.union(one, other)) == sorted(set(interval.union(one, other)))


@given(lines)
@thorough(800)
def test_whole_numbers_keeps_just_the_integers(line: Line) -> None:
    whole = interval.whole_numbers(line)
    assert [interval.contains(whole, n) for n in range(-9, 9)] == [interval.contains(line, n) for n in range(-9, 9)]
    assert all(side == 0 for _, side in whole)
    assert interval.whole_numbers(whole) == whole
    assert list(whole) == sorted(set(whole))


def test_whole_numbers_end_with_64_bits() -> None:
    low, high = -(2**63), 2**63 - 1
    assert interval.whole_numbers(((low, 0),)) == NUMBERS
    assert interval.whole_numbers(((low, 1),)) == ((low + 1, 0),)
    assert interval.whole_numbers(((0, 0), (high, 1))) == ((0, 0),)
    assert interval.whole_numbers(((high, 1),)) == ()
    assert interval.whole_numbers(((1e300, 0),)) == ()
    assert interval.whole_numbers(((-1e300, 0), (0, 0))) == (NUMBERS[0], (0, 0))


def test_points_are_the_values_of_finite_sets() -> None:
    assert interval.points(()) == []
    assert interval.points(((1, 0), (1, 1), (3, 0), (3, 1))) == [1, 3]
    assert interval.points(((1, 0), (2, 0))) is None
    assert interval.points(((1, 0),)) is None


def test_int_and_float_are_exact_neighbours() -> None:
    big = 2**53
    for value, side in product((big, big + 1, big + 2), (0, 1)):
        line: Line = ((value, side),)
        assert interval.contains(line, big + 1) == (big + 1 > value or (big + 1 == value and side == 0))
        assert interval.contains(line, float(big)) == (big > value or (big == value and side == 0))
