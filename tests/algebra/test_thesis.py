"""The thesis's chapter 2 and Appendix A: worked examples, the covering and merging tables, and each erratum."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from weft import Schema, covers, equivalent, is_empty, matches, normalize, overlaps, parse, to_filter
from weft.algebra.merge import merge_perfect
from weft.algebra.valueset import of_type
from weft.language.ast import Filter
from weft.model.value import Type

INTEGERS = Schema.of(x="int")
TEXTS = ["".join(signs) for size in range(5) for signs in product("ab", repeat=size)]
WORDS = ["a", "b", "ab", "ba", "aba", "bb"]

Condition = Callable[[str, str], bool]
never: Condition = lambda one, two: False
always: Condition = lambda one, two: True


def test_example_2_1() -> None:
    f1, f2, f3 = parse("x < 10"), parse("x BETWEEN 5 AND 9"), parse("x BETWEEN 8 AND 15")
    for schema in (None, INTEGERS):
        assert covers(f1, f2, schema)
        assert not covers(f1, f3, schema)
        assert not covers(f2, f3, schema)
        assert not covers(f3, f2, schema)
        assert all(overlaps(one, other, schema) for one, other in product((f1, f2, f3), repeat=2))


# -- strings: predicate -> the filter with a word --------------------------------------------------

STRING_TESTS = {
    "equ": "x = '{}'",
    "neq": "x != '{}'",
    "in": "x LIKE '%{}%'",
    "nin": "x NOT LIKE '%{}%'",
    "stw": "x LIKE '{}%'",
    "end": "x LIKE '%{}'",
    "exists": "x IS NOT NULL",
}
# The printed table: F1 (row) covers F2 (column) under the condition on their words, one and two.
# The four cells of "nin" that the erratum calls unsound are "never"; missing cells are "never" too.
STRING_COVERING: dict[tuple[str, str], Condition] = {
    ("equ", "equ"): lambda one, two: two == one,
    ("neq", "equ"): lambda one, two: two != one,
    ("neq", "neq"): lambda one, two: two == one,
    ("neq", "in"): lambda one, two: two not in one,
    ("neq", "nin"): lambda one, two: two in one,
    ("neq", "stw"): lambda one, two: not one.startswith(two),
    ("neq", "end"): lambda one, two: not one.endswith(two),
    ("in", "equ"): lambda one, two: one in two,
    ("in", "in"): lambda one, two: one in two,
    ("in", "stw"): lambda one, two: one in two,
    ("in", "end"): lambda one, two: one in two,
    ("nin", "equ"): lambda one, two: one not in two,
    ("nin", "nin"): lambda one, two: two in one,
    ("stw", "equ"): lambda one, two: two.startswith(one),
    ("stw", "stw"): lambda one, two: two.startswith(one),
    ("end", "equ"): lambda one, two: two.endswith(one),
    ("end", "end"): lambda one, two: two.endswith(one),
    **{("exists", other): always for other in STRING_TESTS},
}


@pytest.mark.parametrize(("row", "column"), list(product(STRING_TESTS, repeat=2)))
def test_covering_table_of_strings(row: str, column: str) -> None:
    condition = STRING_COVERING.get((row, column), never)
    for one, two in product(WORDS, repeat=2):
        wide, narrow = parse(STRING_TESTS[row].format(one)), parse(STRING_TESTS[column].format(two))
        assert covers(wide, narrow) == condition(one, two), f"{wide} covers {narrow}"
        if covers(wide, narrow):
            assert all(matches(wide, {"x": text}) for text in TEXTS if matches(narrow, {"x": text}))


@pytest.mark.parametrize(
    ("narrow", "witness"),
    [("x != 'c'", "zb"), ("x LIKE '%a%'", "ab"), ("x LIKE 'a%'", "ab"), ("x LIKE '%a'", "ba")],
)
def test_erratum_5_not_contains_covers_no_open_set(narrow: str, witness: str) -> None:
    """As printed, "x does not contain b" would cover these: the witness would be lost."""
    wide = parse("x NOT LIKE '%b%'")
    assert matches(parse(narrow), {"x": witness})
    assert not matches(wide, {"x": witness})
    assert not covers(wide, parse(narrow))


# -- integers --------------------------------------------------------------------------------------

NUMBER_TESTS = {
    "equ": "x = {0}",
    "neq": "x != {0}",
    "gr": "x > {0}",
    "lt": "x < {0}",
    "gre": "x >= {0}",
    "lte": "x <= {0}",
    "rng": "x BETWEEN {0} AND {1}",
    "exists": "x IS NOT NULL",
}
Ends = tuple[int, int]
NUMBER_COVERING: dict[tuple[str, str], Callable[[Ends, Ends], bool]] = {
    ("equ", "equ"): lambda one, two: one[0] == two[0],
    ("neq", "equ"): lambda one, two: one[0] != two[0],
    ("neq", "neq"): lambda one, two: one[0] == two[0],
    ("neq", "gr"): lambda one, two: one[0] <= two[0],
    ("neq", "lt"): lambda one, two: one[0] >= two[0],
    ("neq", "gre"): lambda one, two: one[0] < two[0],
    ("neq", "lte"): lambda one, two: one[0] > two[0],
    ("neq", "rng"): lambda one, two: not two[0] <= one[0] <= two[1],
    ("gr", "equ"): lambda one, two: one[0] < two[0],
    ("gr", "gr"): lambda one, two: one[0] <= two[0],
    ("gr", "gre"): lambda one, two: one[0] < two[0],
    ("gr", "rng"): lambda one, two: one[0] < two[0],
    ("lt", "equ"): lambda one, two: one[0] > two[0],
    ("lt", "lt"): lambda one, two: one[0] >= two[0],
    ("lt", "lte"): lambda one, two: one[0] > two[0],
    ("lt", "rng"): lambda one, two: one[0] > two[1],
    ("gre", "equ"): lambda one, two: one[0] <= two[0],
    ("gre", "gr"): lambda one, two: one[0] <= two[0],
    ("gre", "gre"): lambda one, two: one[0] <= two[0],
    ("gre", "rng"): lambda one, two: one[0] <= two[0],
    ("lte", "equ"): lambda one, two: one[0] >= two[0],
    ("lte", "lt"): lambda one, two: one[0] >= two[0],
    ("lte", "lte"): lambda one, two: one[0] >= two[0],
    ("lte", "rng"): lambda one, two: one[0] >= two[1],
    ("rng", "equ"): lambda one, two: one[0] <= two[0] <= one[1],
    ("rng", "rng"): lambda one, two: two[0] >= one[0] and two[1] <= one[1],
    **{("exists", other): lambda one, two: True for other in NUMBER_TESTS},
}


def integer_hits(test: Filter) -> set[int]:
    return {value for value in range(-3, 9) if matches(test, {"x": value})}


@pytest.mark.parametrize(("row", "column"), list(product(NUMBER_TESTS, repeat=2)))
def test_covering_table_of_integers(row: str, column: str) -> None:
    """What the table says holds, with a schema or without; with one, ours is exact, the table not (erratum 4)."""
    condition = NUMBER_COVERING.get((row, column), lambda one, two: False)
    ends = [(0, 3), (1, 2), (2, 2), (3, 5)]
    for one, two in product(ends, repeat=2):
        wide, narrow = parse(NUMBER_TESTS[row].format(*one)), parse(NUMBER_TESTS[column].format(*two))
        if condition(one, two):
            assert covers(wide, narrow)
            assert covers(wide, narrow, INTEGERS)
        if "exists" not in (row, column):
            assert covers(wide, narrow, INTEGERS) == (integer_hits(wide) >= integer_hits(narrow))


@pytest.mark.parametrize(
    ("wide", "narrow", "on_reals"),
    [
        ("x = 4", "x BETWEEN 4 AND 4", True),
        ("x >= 4", "x > 3", False),
        ("x <= 4", "x < 5", False),
        ("x < 5", "x <= 4.5", True),
    ],
)
def test_erratum_4_integers_have_neighbours(wide: str, narrow: str, on_reals: bool) -> None:
    assert covers(parse(wide), parse(narrow), INTEGERS)
    assert covers(parse(wide), parse(narrow)) == on_reals


def test_erratum_7_constraints_of_one_name_meet_first() -> None:
    assert covers(parse("x BETWEEN 0 AND 9"), parse("x > 2 AND x < 5"))
    assert covers(parse("x > 100"), parse("x > 5 AND x < 3")), "an unsatisfiable filter is covered by everything"
    assert is_empty(parse("x = 1 AND x = 2"))
    assert is_empty(parse("x = 1 AND x = 'a'"))


def test_erratum_7_theorem_a1_is_one_way() -> None:
    split, whole = parse("x BETWEEN 0 AND 5 OR x BETWEEN 6 AND 10"), parse("x BETWEEN 0 AND 10")
    assert covers(split, whole, INTEGERS)
    assert equivalent(split, whole, INTEGERS)
    assert not covers(split, whole)
    assert covers(whole, split)
    assert covers(parse("x < 7 AND y > 0 OR x >= 5 AND y > 0"), parse("x BETWEEN 2 AND 9 AND y > 1"))


# -- Table A.2 -------------------------------------------------------------------------------------

EXISTENCE: list[tuple[str, str, Callable[[int, int], bool]]] = [
    ("x = {}", "x != {}", lambda a, b: a == b),
    ("x < {}", "x > {}", lambda a, b: a > b),
    ("x < {}", "x >= {}", lambda a, b: a >= b),
    ("x <= {}", "x > {}", lambda a, b: a >= b),
    ("x <= {}", "x >= {}", lambda a, b: a >= b),
    ("x != {}", "x != {}", lambda a, b: a != b),
    ("x != {}", "x > {}", lambda a, b: a > b),
    ("x != {}", "x >= {}", lambda a, b: a >= b),
    ("x != {}", "x <= {}", lambda a, b: a <= b),
    ("x != {}", "x < {}", lambda a, b: a < b),
    ("x != {}", "x BETWEEN 1 AND {}", lambda a, b: 1 <= a <= b),
]


@pytest.mark.parametrize(("one", "other", "condition"), EXISTENCE, ids=lambda value: str(value)[:24])
def test_number_existence_tests(one: str, other: str, condition: Callable[[int, int], bool]) -> None:
    for a, b in product(range(4), repeat=2):
        for pair in ((one.format(a), other.format(b)), (other.format(b), one.format(a))):
            merger = merge_perfect([parse(text) for text in pair])
            assert merger is not None
            (box,) = merger.form.boxes or (None,)
            every_number = box is not None and box.sets["x"] == of_type(Type.INT)
            assert every_number == condition(a, b), pair


def test_erratum_6_integers_merge_across_the_gap() -> None:
    merger = merge_perfect([parse("x <= 4"), parse("x >= 5")], INTEGERS)
    assert merger is not None
    assert str(to_filter(merger.form)) == "x IS NOT NULL"
    apart = merge_perfect([parse("x <= 4"), parse("x >= 5")])
    assert apart is not None
    assert {"x": 4.5} not in apart.form


def test_erratum_10_the_existence_test_is_typed() -> None:
    merger = merge_perfect([parse("x < 10"), parse("x != 7")])
    assert merger is not None
    assert {"x": 7} in merger.form
    assert {"x": "seven"} not in merger.form
    assert not covers(merger.form, parse("x IS NOT NULL"))
    assert not covers(parse("x < 10 OR x != 7"), parse("x IS NOT NULL"))
    assert covers(parse("x < 10 OR x != 7"), parse("x IS NOT NULL"), INTEGERS)


# -- A.5 and A.6 -----------------------------------------------------------------------------------


def test_filters_that_differ_in_one_attribute_merge_perfectly() -> None:
    merger = merge_perfect([parse("t = 'A' AND x BETWEEN 0 AND 20"), parse("t = 'A' AND x BETWEEN 30 AND 40")])
    assert merger is not None
    assert len(merger.form.boxes) == 1, "[0,20] or [30,40] is one disjunctive attribute filter (A.7)"
    assert equivalent(merger.form, parse("t = 'A' AND (x BETWEEN 0 AND 20 OR x BETWEEN 30 AND 40)"))


def test_filters_that_differ_in_two_attributes_do_not_merge_perfectly() -> None:
    assert merge_perfect([parse("x = 1 AND y = 1"), parse("x = 2 AND y = 2")]) is None
    assert merge_perfect([parse("x = 1"), parse("y = 1")]) is None


def test_covering_of_placeholders_is_by_identity() -> None:
    """The thesis's $name is an attribute on the right: the value is unknown until an event comes."""
    assert covers(parse("x > y"), parse("y < x AND z = 1"))
    assert covers(parse("x >= y"), parse("x > y"))
    assert not covers(parse("x > y"), parse("x > z"))
    assert not overlaps(parse("x > y"), parse("x < y"))
    assert normalize(parse("x > y AND x < y")).boxes == ()
