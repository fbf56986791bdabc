"""Extents of filters: what is read from the syntax tree is what the normal form says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import parse
from weft.algebra.normalize import normalize
from weft.routing.covering.space import Extents

names = st.sampled_from("xy")
numbers = st.integers(0, 4)
comparisons = st.builds("{} {} {}".format, names, st.sampled_from(("<", "<=", ">", ">=", "=")), numbers)
ranges = st.builds("{} BETWEEN {} AND {}".format, names, numbers, numbers)
strings = st.builds("{} = '{}'".format, names, st.sampled_from("ab"))
conjunctions = st.lists(comparisons | ranges | strings, min_size=1, max_size=4).map(" AND ".join)


@given(conjunctions)
def test_a_conjunction_has_the_extent_of_its_normal_form(text: str) -> None:
    extents = Extents()
    read, made = extents.of(parse(text)), extents.of(normalize(text))
    assert (read is None) == (made is None)
    if read is not None and made is not None:
        assert (read.key, [*read.spans], read.exact) == (made.key, [*made.spans], made.exact)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x >= 1 AND x < 5", "NOT (x < 1 OR x >= 5)"),
        ("x > 1 AND x >= 1", "x > 1"),
        ("x >= 2 AND x <= 2 AND y = 'a'", "y = 'a' AND x = 2"),
        ("x BETWEEN 0 AND 9 AND x > 3", "x > 3 AND x <= 9"),
    ],
)
def test_equal_conjunctions_have_equal_keys(text: str, same: str) -> None:
    extents = Extents()
    one, other = extents.of(parse(text)), extents.of(parse(same))
    assert one is not None
    assert other is not None
    assert one.key == other.key


@pytest.mark.parametrize("text", ["x > 5 AND x < 5", "x >= 5 AND x < 5", "x = 'a' AND x > 5", "x = 'a' AND x = 'b'"])
def test_a_conjunction_that_never_matches_has_no_extent(text: str) -> None:
    assert Extents().of(parse(text)) is None
