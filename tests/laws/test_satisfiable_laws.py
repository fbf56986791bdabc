"""What is plainly satisfiable has a normal form that is not empty; the usual filters are."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given

from strategies import A, B, all_tests, filters
from weft.algebra.normalize import normalize
from weft.algebra.satisfiable import plainly_satisfiable
from weft.language.ast import Filter, conjunction
from weft.language.text import parse


@given(filters())
def test_what_is_plainly_satisfiable_matches_something(wanted: Filter) -> None:
    assert not plainly_satisfiable(wanted) or normalize(wanted)


def test_every_pair_of_tests_of_one_attribute() -> None:
    plain = 0
    for one, other in product(all_tests(A), repeat=2):
        both = conjunction(one, other)
        if plainly_satisfiable(both):
            plain += 1
            assert normalize(both), both
    assert plain > 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol = 'S1' AND price >= 3.5 AND price < 8.5", True),
        ("x BETWEEN 1 AND 1 AND y = 0", True),
        ("x > 1 AND x < 1.0000000000000002", True),
        ("x >= 2 AND x <= 2", False),  # some event matches, but it takes a closer look
        ("x BETWEEN 2 AND 1", False),
        ("s = 'a' AND s = 'b'", False),
        ("s < ''", False),
        ("x != 1", False),
        ("x > y", False),
        ("x > 1 OR x < 0", False),
    ],
)
def test_which_filters_are_plainly_satisfiable(text: str, expected: bool) -> None:
    assert plainly_satisfiable(parse(text)) is expected


def test_a_long_conjunction_is_not_plain() -> None:
    assert not plainly_satisfiable(conjunction(*[parse(f"x{n} > 1") for n in range(17)], parse(f"{B.name} > 1")))
