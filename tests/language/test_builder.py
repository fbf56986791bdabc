"""Filters from Python expressions, by example."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import datetime
from itertools import count

import pytest

from strategies import AMONG, KINDS, PREDICATES
from weft import F, Filter, covers, normalize, parse
from weft.errors import FilterError, FilterTooComplexError
from weft.language.builder import Field


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (F.price < 95, "price < 95"),
        (F.price <= 95.5, "price <= 95.5"),
        (F.price > -95, "price > -95"),
        (F.price >= 95, "price >= 95"),
        (F.price == 95, "price = 95"),
        (F.price != 95, "price != 95"),
        (95 < F.price, "price > 95"),  # noqa: SIM300
        ("X" == F.symbol, "symbol = 'X'"),  # noqa: SIM300
        (F.open > F.close, "open > close"),
        (F.x == True, "x = TRUE"),  # noqa: E712
        (F.t < datetime(2018, 2, 1), "t < TIMESTAMP '2018-02-01'"),
        (F.place.country == "Chile", "place.country = 'Chile'"),
        (F["place.country"] == "Chile", "place.country = 'Chile'"),
        (F["two words"] == 1, '"two words" = 1'),
        (F["place"].country == 1, "place.country = 1"),
        (F.symbol.isin("X", "Y"), "symbol IN ('X', 'Y')"),
        (F.symbol.isin(["X", "Y"]), "symbol IN ('X', 'Y')"),
        (F.symbol.isin("XY"), "symbol IN ('XY')"),
        (F.n.isin(range(3)), "n IN (0, 1, 2)"),
        (F.n.isin(n for n in (1, 2.0)), "n IN (1, 2.0)"),
        (F.n.isin(), "FALSE"),
        (F.n.isin([]), "FALSE"),
        (F.n.between(1, 5), "n BETWEEN 1 AND 5"),
        (F.n.like("a%"), "n LIKE 'a%'"),
        (F.n.like("a!%", "!"), "n LIKE 'a!%' ESCAPE '!'"),
        (F.n.like("a!%", escape="!"), "n LIKE 'a!%' ESCAPE '!'"),
        (F.n.ilike("A%"), "n ILIKE 'A%'"),
        (F.n.ilike("a!%", "!"), "n ILIKE 'a!%' ESCAPE '!'"),
        (F.n.startswith("ab"), "n LIKE 'ab%'"),
        (F.n.endswith("ab"), "n LIKE '%ab'"),
        (F.n.contains("ab"), "n LIKE '%ab%'"),
        (F.n.startswith("50%"), "n LIKE '50\\%%' ESCAPE '\\'"),
        (F.n.endswith("a_b\\"), "n LIKE '%a\\_b\\\\' ESCAPE '\\'"),
        (F.n.contains("\\"), "n LIKE '%\\%'"),
        (F.n.startswith(""), "n LIKE '%'"),
        (F.n.is_null(), "n IS NULL"),
        (F.n.is_not_null(), "n IS NOT NULL"),
        (F.n.is_true(), "n IS TRUE"),
        (F.n.is_false(), "n IS FALSE"),
        (~F.n, "NOT n"),
        (~(F.n == 1), "NOT n = 1"),
        (F.a & F.b, "a AND b"),
        (F.a | F.b, "a OR b"),
        (F.a & F.b & F.c, "a AND b AND c"),
        (F.a & (F.b & F.c), "a AND b AND c"),
        ((F.a == 1) & F.b, "a = 1 AND b"),
        (F.a & (F.b == 1), "a AND b = 1"),
        ((F.a == 1) | (F.b == 2) & (F.c == 3), "a = 1 OR b = 2 AND c = 3"),
        (((F.a == 1) | (F.b == 2)) & ~F.c, "(a = 1 OR b = 2) AND NOT c"),
        (F.a & True, "a AND TRUE"),
        (True & F.a, "TRUE AND a"),
        (False | F.a, "FALSE OR a"),
        ((F.a == 1) & True, "a = 1 AND TRUE"),
        ((F.a == 1) | False, "a = 1 OR FALSE"),
        (F.kind.satisfies(KINDS, "vehicle"), "is_a(kind, 'vehicle')"),
        (F.kind.satisfies(AMONG, 1, "a", True), "among(kind, 1, 'a', TRUE)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_expression_is_its_text(built: Filter, text: str) -> None:
    assert built == parse(text, PREDICATES)


def test_a_bool_may_stand_before_a_filter_as_well_as_after_it() -> None:
    assert (True & (F.a == 1)) == parse("TRUE AND a = 1")
    assert (False | (F.a == 1)) == parse("FALSE OR a = 1")


def test_a_filter_taken_for_a_bool_raises_with_the_way_out() -> None:
    hint = r"a filter is not a bool; combine filters with & \| ~"
    with pytest.raises(TypeError, match=hint):
        bool(F.a == 1)
    with pytest.raises(TypeError, match=hint):
        bool(F.a)
    with pytest.raises(TypeError, match=hint):
        _ = (F.a == 1) and F.b
    with pytest.raises(TypeError, match=hint):
        _ = F.a or F.b
    with pytest.raises(TypeError, match=hint):
        _ = not F.a
    with pytest.raises(TypeError, match=hint):
        assert parse("TRUE")


def test_a_chained_comparison_raises_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"F\.x\.between\(low, high\) for low <= x <= high"):
        1 <= F.x <= 5  # noqa: B015
    with pytest.raises(TypeError, match="1 is not a filter"):
        F.x == 1 & F.y == 2  # noqa: B015


def test_in_and_iteration_raise_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"`in` cannot build a filter; use F\.x\.isin"):
        "a" in F.x  # noqa: B015
    with pytest.raises(TypeError, match="not a bool"):
        F.x in ["a", "b"]  # noqa: B015
    with pytest.raises(TypeError, match="attribute x is not iterable"):
        list(F.x)
    with pytest.raises(TypeError, match="not iterable"):
        F.y.isin(F.x)
    with pytest.raises(TypeError, match=r"attribute x has no method 'startwith'"):
        F.x.startwith("a")
    with pytest.raises(TypeError, match=r"attribute x has no method 'x'"):
        F.x(1)


def test_an_attribute_is_no_key_of_a_dict() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(F.x)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, 2**63, -(2**63) - 1, "\ud800", b"a", [1], 1j])
def test_what_is_no_constant_raises(value: object) -> None:
    for build in (
        lambda: F.x == value,
        lambda: F.x < value,
        lambda: F.x.between(0, value),
        lambda: F.x.isin(1, value),
        lambda: F.x.satisfies(AMONG, value),
    ):
        with pytest.raises(FilterError):
            build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: F.x == None, "a comparison with None is never true; use is_null() or is_not_null()"),  # noqa: E711
        (lambda: F.x == (F.y == 1), "a condition cannot be compared; use & | ~, and parentheses around comparisons"),
        (
            lambda: F.x.isin(math.nan),
            "NaN equals nothing; use a bool, int, float, str or datetime, or test with IS NULL",
        ),
        (lambda: F.x < math.inf, "the numbers of a filter must be finite; leave the bound out, or test with IS NULL"),
        (lambda: F.x == [1], "[1] cannot be a constant; use a bool, int, float, str or datetime, or test with IS NULL"),
        (lambda: F[""], "'' cannot name an attribute"),
        (lambda: F.x.like("a", "ab"), "the ESCAPE of LIKE must be a single character"),
        (lambda: F.x.like("a!", "!"), "in a pattern of LIKE, '!' can only escape '%', '_' and itself"),
        (lambda: F.x.satisfies(KINDS), "is_a takes an attribute and one concept, as in is_a(kind, 'vehicle')"),
        (lambda: F.x.satisfies(KINDS, 5), "is_a takes an attribute and one concept, as in is_a(kind, 'vehicle')"),
    ],
)
def test_errors_say_what_to_do(build: object, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        build()  # type: ignore[operator]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "build",
    [
        lambda: F[5],
        lambda: F.x.like(5),
        lambda: F.x.startswith(5),
        lambda: F.x == (1, 2),
        lambda: F.x & 5,
        lambda: F.x | "y = 1",
        lambda: (F.x == 1) & "y = 1",
    ],
)
def test_wrong_arguments_are_a_filter_error_or_a_type_error(build: object) -> None:
    with pytest.raises((FilterError, TypeError)):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "build", [lambda: F.x.between(F.y, 5), lambda: F.x.isin(F.y, 5), lambda: F.x.satisfies(AMONG, F.y)]
)
def test_an_attribute_where_only_constants_go_is_named_as_such(build: object) -> None:
    # F.y != F.y is a filter: whoever asks so for NaN would be told that a filter has no truth.
    with pytest.raises((FilterError, TypeError)) as caught:
        build()  # type: ignore[operator]
    assert "not a bool" not in str(caught.value)


def test_bytes_are_no_list_of_numbers() -> None:
    # They are iterable, and their items are ints.
    with pytest.raises(FilterError):
        F.x.isin(b"ab")


def test_attributes_copy_and_pickle_and_show_themselves() -> None:
    for again in (copy.copy(F.a.b), copy.deepcopy(F.a.b), pickle.loads(pickle.dumps(F.a.b))):
        assert (again == 1) == (F["a.b"] == 1)
    assert repr(F.a.b) == "F['a.b']"
    assert repr(F) == "F"
    assert isinstance(F.a, Field)
    with pytest.raises(AttributeError):
        _ = F.__weird__
    with pytest.raises(AttributeError):
        _ = F.a.__weird__


def test_a_bare_attribute_is_a_filter_where_filters_are_taken() -> None:
    assert covers(F.a, F.a & (F.b == 1))
    assert not covers(F.a & (F.b == 1), F.a)


def test_more_values_than_a_filter_admits_are_refused_before_they_are_read() -> None:
    """However many there are, and if they never end."""
    with pytest.raises(FilterTooComplexError, match="at most 40,000 values"):
        F.x.isin(count())
    with pytest.raises(FilterTooComplexError, match="at most 40,000 values"):
        F.x.isin(*range(40_001))
    assert len(normalize(F.x.isin(range(30_000))).boxes) == 1
