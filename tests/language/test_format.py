"""Trees as text: one spelling, few parentheses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from strategies import AMONG, PREDICATES
from weft import F, parse
from weft.errors import FilterError
from weft.language.ast import FALSE, NULL, TRUE, And, AttributeRef, Filter, Is, Like, Not, Or, conjunction, disjunction
from weft.language.constant import Constant
from weft.language.format import format_constant, format_filter, format_name

X, Y, Z = map(AttributeRef, "xyz")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("x=1", "x = 1"),
        ("x<>1", "x != 1"),
        ("5<x", "x > 5"),
        ("x between 1 and 5", "x BETWEEN 1 AND 5"),
        ("not x between 1 and 5", "x NOT BETWEEN 1 AND 5"),
        ("not x in (1,2)", "x NOT IN (1, 2)"),
        ("not x like 'a'", "x NOT LIKE 'a'"),
        ("not x is null", "x IS NOT NULL"),
        ("not x = 1", "NOT x = 1"),
        ("not not x is null", "NOT x IS NOT NULL"),
        ("x like 'a!%' escape '!'", "x LIKE 'a!%' ESCAPE '!'"),
        ("((x)and(y))or((z))", "x AND y OR z"),
        ("x and (y or z)", "x AND (y OR z)"),
        ("not (x and y)", "NOT (x AND y)"),
        ("not (not (x or y))", "NOT NOT (x OR y)"),
        ("(x = 1) is null", "(x = 1) IS NULL"),
        ("x = 1 is null", "(x = 1) IS NULL"),
        ("(x is null) is true", "(x IS NULL) IS TRUE"),
        ("(not x) is null", "(NOT x) IS NULL"),
        ("(x and y) is not false", "(x AND y) IS NOT FALSE"),
        ("x between y and 5", "x >= y AND x <= 5"),
        ("x in (y, 1)", "x = y OR x = 1"),
        ("1 = 1 or x", "TRUE OR x"),
        ("x = 1e3", "x = 1000.0"),
        ("x = 1e300", "x = 1e+300"),
        ("x = -.5", "x = -0.5"),
        ("x = +5", "x = 5"),
        ("x = -0.0", "x = 0.0"),
        ("x = 'it''s'", "x = 'it''s'"),
        ("x = true", "x = TRUE"),
        ("x = timestamp '2018-02-01'", "x = TIMESTAMP '2018-02-01T00:00:00Z'"),
        ("x = timestamp '2018-02-01T02:00:00.5+02:00'", "x = TIMESTAMP '2018-02-01T00:00:00.500000Z'"),
        ('"x" = 1', "x = 1"),
        ('"and" = 1', '"and" = 1'),
        ('"Is" = "a b"', '"Is" = "a b"'),
        ('"a""b" IS NULL', '"a""b" IS NULL'),
        ("among ( x , 1 , 'a' ) is not null", "among(x, 1, 'a') IS NOT NULL"),
    ],
)
def test_the_one_spelling_of_a_filter(text: str, spelled: str) -> None:
    tree = parse(text, PREDICATES)
    assert str(tree) == format_filter(tree) == spelled
    assert parse(spelled, PREDICATES) == tree


@pytest.mark.parametrize("tree", [TRUE, FALSE, NULL], ids=str)
@pytest.mark.parametrize("value", [True, False, None], ids=str)
def test_is_of_a_constant_truth_reads_back(tree: Filter, value: bool | None) -> None:
    # `5 IS NULL` is FALSE at once, but `TRUE IS NULL` is how Is(TRUE, None) is written.
    assert parse(str(Is(tree, value))) == Is(tree, value)
    assert parse(str(Not(Is(tree, value)))) == Not(Is(tree, value))


def test_repr_shows_the_tree_and_str_the_text() -> None:
    assert repr(parse("x")) == "AttributeRef(name='x')"
    assert f"{parse('x AND y')}" == "x AND y"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (-5, "-5"),
        (5.0, "5.0"),
        (1e16, "1e+16"),
        (True, "TRUE"),
        ("", "''"),
        ("'", "''''"),
        (datetime(1, 1, 1), "TIMESTAMP '0001-01-01T00:00:00Z'"),
        (datetime.max.replace(tzinfo=UTC), "TIMESTAMP '9999-12-31T23:59:59.999999Z'"),
        (datetime(2018, 2, 1, 1, tzinfo=timezone(timedelta(hours=1))), "TIMESTAMP '2018-02-01T00:00:00Z'"),
    ],
)
def test_constants(value: object, text: str) -> None:
    assert format_constant(Constant.of(value)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.float64(1.5), np.float64(0.0), np.str_("a"), np.float64(1e300)])
def test_numpy_scalars_that_are_python_values_are_written_as_such(value: object) -> None:
    # np.float64 is a float, but its repr is np.float64(1.5).
    tree = F.x == value  # type: ignore[arg-type]
    assert parse(str(tree)) == tree


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "x"),
        ("a.b", "a.b"),
        ("größe", "größe"),
        ("a.", '"a."'),
        ("a..b", '"a..b"'),
        ("a.1", '"a.1"'),
        ("1a", '"1a"'),
        ("a b", '"a b"'),
        ('"', '""""'),
        ("null", '"null"'),
        ("a.null", "a.null"),
        ("escape", "escape"),
        ("timestamp", "timestamp"),
        ("x\n", '"x\n"'),
    ],
)
def test_names_are_quoted_only_where_they_must_be(name: str, text: str) -> None:
    assert format_name(name) == text
    assert parse(text) == AttributeRef(name)


def test_a_filter_deep_to_the_limit_reads_back() -> None:
    for wrap in (Not, lambda f: Is(f, None), lambda f: And((f, X)) if not isinstance(f, And) else Or((f, Y))):
        tree: Filter = Z
        while tree.depth < 100:
            tree = wrap(tree)
        assert parse(str(tree)) == tree


def test_what_cannot_be_written_cannot_be_built() -> None:
    with pytest.raises(FilterError, match="surrogate"):
        Constant.of("\ud800")
    with pytest.raises(FilterError, match="cannot name an attribute"):
        AttributeRef("\ud800")
    with pytest.raises(FilterError, match="cannot name an attribute"):
        AttributeRef("")
    with pytest.raises(FilterError, match="surrogate"):
        Like(X, "\ud800%")
    with pytest.raises(FilterError, match="surrogate"):
        Like(X, "a%", "\ud800")


def test_and_and_or_are_flat_from_birth() -> None:
    assert conjunction(X, And((Y, Z))) == And((X, Y, Z))
    assert disjunction(Or((X, Y)), Z) == Or((X, Y, Z))
    assert conjunction(X) == disjunction(X) == X
    assert (conjunction(), disjunction()) == (TRUE, FALSE)
    for kind in (And, Or):
        with pytest.raises(FilterError):
            kind((X,))
        with pytest.raises(FilterError):
            kind(())
        with pytest.raises(FilterError):
            kind((X, kind((Y, Z))))
    assert AMONG.name in str(F.x.satisfies(AMONG, 1))
