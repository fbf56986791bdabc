"""Events that disprove covering."""

from __future__ import annotations

from hypothesis import given

from strategies import filters, number_filters, thorough
from weft.algebra.example import counterexample
from weft.algebra.relate import covers
from weft.language.meaning import matches


@thorough(100)
@given(filters(), filters())
def test_an_example_matches_one_filter_and_not_the_other(wide, narrow):
    event = counterexample(wide, narrow)
    if event is not None:
        assert matches(narrow, event)
        assert not matches(wide, event)
        assert not covers(wide, narrow)


@thorough(100)
@given(number_filters(), number_filters())
def test_what_is_not_covered_has_an_example_where_all_are_numbers(wide, narrow):
    assert covers(wide, narrow) == (counterexample(wide, narrow) is None)
