"""Every construct of the language, from text to tree."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strategies import AMONG, KINDS, PREDICATES, SMILE
from weft import parse, parse_many
from weft.errors import FilterSyntaxError
from weft.language.ast import (
    FALSE,
    NULL,
    TRUE,
    And,
    AttributeRef,
    Between,
    Call,
    Compare,
    Filter,
    In,
    Is,
    Like,
    Not,
    Operator,
    Or,
)
from weft.language.constant import Constant
from weft.model.value import Type, Value

X, Y, Z = map(AttributeRef, "xyz")


def c(value: Value) -> Constant:
    return Constant.of(value)


def eq(left: AttributeRef, value: Value) -> Compare:
    return Compare(left, Operator.EQ, c(value))


def reads(*cases: tuple[str, Filter]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("text", "tree"), cases, ids=[text for text, _ in cases])


@reads(
    ("x = 5", Compare(X, Operator.EQ, c(5))),
    ("x != 5", Compare(X, Operator.NE, c(5))),
    ("x <> 5", Compare(X, Operator.NE, c(5))),
    ("x < 5", Compare(X, Operator.LT, c(5))),
    ("x <= 5", Compare(X, Operator.LE, c(5))),
    ("x > 5", Compare(X, Operator.GT, c(5))),
    ("x >= 5", Compare(X, Operator.GE, c(5))),
    ("x = y", Compare(X, Operator.EQ, Y)),
    ("x > y", Compare(X, Operator.GT, Y)),
    ("x=5", Compare(X, Operator.EQ, c(5))),
    ("x<-5", Compare(X, Operator.LT, c(-5))),
    ("(x) = (5)", Compare(X, Operator.EQ, c(5))),
)
def test_comparisons(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("5 = x", Compare(X, Operator.EQ, c(5))),
    ("5 != x", Compare(X, Operator.NE, c(5))),
    ("5 <> x", Compare(X, Operator.NE, c(5))),
    ("5 < x", Compare(X, Operator.GT, c(5))),
    ("5 <= x", Compare(X, Operator.GE, c(5))),
    ("5 > x", Compare(X, Operator.LT, c(5))),
    ("5 >= x", Compare(X, Operator.LE, c(5))),
    ("'a' < x", Compare(X, Operator.GT, c("a"))),
    ("TRUE = x", Compare(X, Operator.EQ, c(True))),
)
def test_a_constant_may_stand_on_either_side(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x = 5", eq(X, 5)),
    ("x = +5", eq(X, 5)),
    ("x = -5", eq(X, -5)),
    ("x = - 5", eq(X, -5)),
    ("x = 007", eq(X, 7)),
    ("x = -0", eq(X, 0)),
    ("x = 9223372036854775807", eq(X, 2**63 - 1)),
    ("x = -9223372036854775808", eq(X, -(2**63))),
    ("x = 00000000000000000000000000009", eq(X, 9)),
    ("x = 5.0", eq(X, 5.0)),
    ("x = 5.", eq(X, 5.0)),
    ("x = .5", eq(X, 0.5)),
    ("x = -.5", eq(X, -0.5)),
    ("x = 5e3", eq(X, 5000.0)),
    ("x = 5E+3", eq(X, 5000.0)),
    ("x = 5.5e-3", eq(X, 0.0055)),
    ("x = -0.0", eq(X, 0.0)),
    ("x = 0e999", eq(X, 0.0)),
    ("x = 5e-324", eq(X, 5e-324)),
    ("x = 1.7976931348623157e308", eq(X, 1.7976931348623157e308)),
    ("x = 9223372036854775808.0", eq(X, 2.0**63)),
    ("x = 0.1000000000000000055511151231257827", eq(X, 0.1)),
)
def test_numbers(text: str, tree: Filter) -> None:
    assert parse(text) == tree


def test_whole_numbers_are_ints_and_a_point_or_exponent_makes_a_float() -> None:
    assert [parse(f"x = {number}").right.type for number in ("5", "5.0", "5e0", "5.")] == [  # type: ignore[attr-defined]
        *(Type.INT, Type.FLOAT, Type.FLOAT, Type.FLOAT)
    ]
    assert parse("x = 5") != parse("x = 5.0")


@reads(
    ("x = ''", eq(X, "")),
    ("x = 'it''s'", eq(X, "it's")),
    ("x = ''''", eq(X, "'")),
    ("x = ''''''", eq(X, "''")),
    ("x = '\"'", eq(X, '"')),
    ("x = '\\n'", eq(X, "\\n")),
    ("x = 'a\nb'", eq(X, "a\nb")),
    ("x = '-- no comment'", eq(X, "-- no comment")),
    ("x = ' AND y = '", eq(X, " AND y = ")),
    (f"x = '{SMILE}'", eq(X, SMILE)),
    ("x = 'a\0b'", eq(X, "a\0b")),
    ("x='a'AND y='b'", And((eq(X, "a"), eq(Y, "b")))),
)
def test_strings_stand_in_single_quotes_and_double_their_own(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x = TIMESTAMP '2018-02-01'", eq(X, datetime(2018, 2, 1))),
    ("x = timestamp '2018-02-01'", eq(X, datetime(2018, 2, 1))),
    ("x = TIMESTAMP'2018-02-01'", eq(X, datetime(2018, 2, 1))),
    ("x = TIMESTAMP '2018-02-01T12:30'", eq(X, datetime(2018, 2, 1, 12, 30))),
    ("x = TIMESTAMP '2018-02-01 12:30:15'", eq(X, datetime(2018, 2, 1, 12, 30, 15))),
    ("x = TIMESTAMP '2018-02-01T12:30:15Z'", eq(X, datetime(2018, 2, 1, 12, 30, 15))),
    ("x = TIMESTAMP '2018-02-01T12:30:15.5'", eq(X, datetime(2018, 2, 1, 12, 30, 15, 500000))),
    ("x = TIMESTAMP '2018-02-01T12:30:15.123456789Z'", eq(X, datetime(2018, 2, 1, 12, 30, 15, 123456))),
    ("x = TIMESTAMP '2018-02-01T12:30:15+02:00'", eq(X, datetime(2018, 2, 1, 10, 30, 15))),
    ("x = TIMESTAMP '2018-02-01T12:30:15-0530'", eq(X, datetime(2018, 2, 1, 18, 0, 15))),
    ("x = TIMESTAMP '0001-01-01'", eq(X, datetime(1, 1, 1))),
    ("x = TIMESTAMP '9999-12-31T23:59:59.999999Z'", eq(X, datetime.max)),
    ("TIMESTAMP '2018-02-01' < x", Compare(X, Operator.GT, c(datetime(2018, 2, 1, tzinfo=UTC)))),
)
def test_timestamps_are_utc_unless_they_name_a_zone_and_are_cut_to_microseconds(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x BETWEEN 1 AND 5", Between(X, c(1), c(5))),
    ("x NOT BETWEEN 1 AND 5", Not(Between(X, c(1), c(5)))),
    ("x BETWEEN 5 AND 1", Between(X, c(5), c(1))),
    ("x BETWEEN 'a' AND 'b' AND y", And((Between(X, c("a"), c("b")), Y))),
    ("x BETWEEN y AND 5", And((Compare(X, Operator.GE, Y), Compare(X, Operator.LE, c(5))))),
    ("x NOT BETWEEN y AND z", Not(And((Compare(X, Operator.GE, Y), Compare(X, Operator.LE, Z))))),
    ("5 BETWEEN x AND y", And((Compare(X, Operator.LE, c(5)), Compare(Y, Operator.GE, c(5))))),
    ("z AND x BETWEEN y AND 5", And((Z, Compare(X, Operator.GE, Y), Compare(X, Operator.LE, c(5))))),
    ("x BETWEEN -1 AND +1", Between(X, c(-1), c(1))),
)
def test_between_includes_both_ends_and_takes_attributes_too(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x IN (1)", In(X, (c(1),))),
    ("x IN (1, 2.0, 'a', TRUE)", In(X, (c(1), c(2.0), c("a"), c(True)))),
    ("x IN (1, 1)", In(X, (c(1), c(1)))),
    ("x NOT IN (1,2)", Not(In(X, (c(1), c(2))))),
    ("x IN (y, 1)", Or((Compare(X, Operator.EQ, Y), eq(X, 1)))),
    ("x IN (y)", Compare(X, Operator.EQ, Y)),
    ("5 IN (x, y)", Or((eq(X, 5), eq(Y, 5)))),
    ("x IN (-1, TIMESTAMP '2018-02-01')", In(X, (c(-1), c(datetime(2018, 2, 1))))),
)
def test_in_lists_constants_and_attributes(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x LIKE 'a%'", Like(X, "a%")),
    ("x NOT LIKE 'a%'", Not(Like(X, "a%"))),
    ("x LIKE 'a!%' ESCAPE '!'", Like(X, "a!%", "!")),
    ("x LIKE 'a\\%' escape '\\'", Like(X, "a\\%", "\\")),
    ("x LIKE '''%' ESCAPE ''''", Like(X, "'%", "'")),
    ("x LIKE 'a\\%'", Like(X, "a\\%")),
    ("x LIKE ''", Like(X, "")),
    ("escape LIKE 'a' AND timestamp = 1", And((Like(AttributeRef("escape"), "a"), eq(AttributeRef("timestamp"), 1)))),
)
def test_like_takes_a_pattern_and_perhaps_an_escape(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x IS NULL", Is(X, None)),
    ("x IS NOT NULL", Not(Is(X, None))),
    ("x IS TRUE", Is(X, True)),
    ("x IS NOT TRUE", Not(Is(X, True))),
    ("x IS FALSE", Is(X, False)),
    ("x IS NOT FALSE", Not(Is(X, False))),
    ("x = 1 IS NULL", Is(eq(X, 1), None)),
    ("(x = 1 OR y) IS NOT TRUE", Not(Is(Or((eq(X, 1), Y)), True))),
    ("x IS NULL IS FALSE", Is(Is(X, None), False)),
    ("NOT x IS NULL", Not(Is(X, None))),
    ("(NOT x) IS NULL", Is(Not(X), None)),
    ("x IN (1) IS NULL", Is(In(X, (c(1),)), None)),
    ("x BETWEEN 1 AND 2 IS TRUE", Is(Between(X, c(1), c(2)), True)),
    ("NULL IS NULL", Is(NULL, None)),
    ("5 IS NULL", FALSE),
    ("'a' IS NOT NULL", Not(FALSE)),
)
def test_is_asks_for_one_of_three_truths(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("x", X),
    ("NOT x", Not(X)),
    ("NOT NOT x", Not(Not(X))),
    ("x AND y", And((X, Y))),
    ("x OR y", Or((X, Y))),
    ("x AND y AND z", And((X, Y, Z))),
    ("x AND (y AND z)", And((X, Y, Z))),
    ("(x OR y) OR z", Or((X, Y, Z))),
    ("x OR y AND z", Or((X, And((Y, Z))))),
    ("(x OR y) AND z", And((Or((X, Y)), Z))),
    ("NOT x AND y", And((Not(X), Y))),
    ("NOT (x AND y)", Not(And((X, Y)))),
    ("NOT x = 1", Not(eq(X, 1))),
    ("x AND NOT y OR z", Or((And((X, Not(Y))), Z))),
    ("((((x))))", X),
)
def test_not_binds_tighter_than_and_and_and_tighter_than_or(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("TRUE", TRUE),
    ("FALSE", FALSE),
    ("NULL", NULL),
    ("(TRUE)", TRUE),
    ("TRUE AND x", And((TRUE, X))),
    ("NOT FALSE", Not(FALSE)),
    ("1 = 1", TRUE),
    ("1 = 1.0", TRUE),
    ("2 < 1", FALSE),
    ("1 = 'a'", NULL),
    ("TRUE = 1", NULL),
    ("TRUE = TRUE", TRUE),
    ("FALSE < TRUE", TRUE),
    ("9007199254740993 = 9007199254740992.0", FALSE),
    ("5 BETWEEN 1 AND 10", And((TRUE, TRUE))),
    ("5 IN (1, 5)", Or((FALSE, TRUE))),
    ("'abc' LIKE 'a%'", TRUE),
    ("'abc' NOT LIKE 'a%'", Not(TRUE)),
    ("'a%' LIKE 'a!%' ESCAPE '!'", TRUE),
    ("5 LIKE 'a%'", NULL),
    ("TIMESTAMP '2018-02-01' < TIMESTAMP '2018-02-02'", TRUE),
    ("TRUE IS TRUE", Is(TRUE, True)),
)
def test_constant_expressions_are_allowed(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@reads(
    ("place.country = 'Chile'", eq(AttributeRef("place.country"), "Chile")),
    ('"place.country" = 1', eq(AttributeRef("place.country"), 1)),
    ('"place"', AttributeRef("place")),
    ('"two words" = 1', eq(AttributeRef("two words"), 1)),
    ('"say ""hi""" = 1', eq(AttributeRef('say "hi"'), 1)),
    ('"and" = 1 AND "NULL" IS NULL', And((eq(AttributeRef("and"), 1), Is(AttributeRef("NULL"), None)))),
    ('"1" = 1', eq(AttributeRef("1"), 1)),
    ("größe > 1", Compare(AttributeRef("größe"), Operator.GT, c(1))),
    ("名前 = '名'", eq(AttributeRef("名前"), "名")),
    ("_x = 1", eq(AttributeRef("_x"), 1)),
    ("x1.y2 = 1", eq(AttributeRef("x1.y2"), 1)),
    ("timestamp > TIMESTAMP '2018-02-01'", Compare(AttributeRef("timestamp"), Operator.GT, c(datetime(2018, 2, 1)))),
    ("escape = 'escape'", eq(AttributeRef("escape"), "escape")),
    ("e5 = 5e5", eq(AttributeRef("e5"), 5e5)),
)
def test_names_are_flat_and_odd_ones_quoted(text: str, tree: Filter) -> None:
    assert parse(text) == tree


def test_names_mind_their_case_and_key_words_do_not() -> None:
    assert parse("X = 1") != parse("x = 1")
    assert parse("x Between 1 aNd 2 oR nOt y iS nULL") == parse("x BETWEEN 1 AND 2 OR NOT y IS NULL")
    assert parse("x in (true, False) and y like 'a' Escape '!'") == parse(
        "x IN (TRUE, FALSE) AND y LIKE 'a' ESCAPE '!'"
    )


@pytest.mark.parametrize("name", ["\u0131s", "\u0131n", "fal\u017fe", "l\u0131ke", "nul\u0140", "\u017f"])
def test_only_ascii_letters_spell_key_words(name: str) -> None:
    # The upper case of a dotless i is I, and of a long s is S.
    assert parse(f"{name} = 1") == eq(AttributeRef(name), 1)
    assert str(AttributeRef(name)) == name


def test_only_ascii_letters_spell_timestamp_and_escape() -> None:
    with pytest.raises(FilterSyntaxError):
        parse("x = t\u0131mestamp '2018-02-01'")
    with pytest.raises(FilterSyntaxError):
        parse("x LIKE 'a' e\u017fcape '!'")


@pytest.mark.parametrize("space", ["  ", "\t", "\n", "\r\n", "\f", "\v", "\u00a0", "\u2003", "\u2028", "\u3000"])
def test_any_white_space_separates(space: str) -> None:
    spaced = space.join(("", "x", "BETWEEN", "-", "1", "AND", "5", "AND", "y", "IN", "(", "'a'", ",", "'b'", ")", ""))
    assert parse(spaced) == parse("x BETWEEN -1 AND 5 AND y IN ('a','b')")


@reads(
    ("is_a(kind, 'vehicle')", Call(KINDS, AttributeRef("kind"), (c("vehicle"),))),
    ("is_a ( kind , 'vehicle' )", Call(KINDS, AttributeRef("kind"), (c("vehicle"),))),
    ("is_a(\"the kind\", 'vehicle')", Call(KINDS, AttributeRef("the kind"), (c("vehicle"),))),
    ("NOT is_a(kind, 'vehicle')", Not(Call(KINDS, AttributeRef("kind"), (c("vehicle"),)))),
    ("is_a(x, 'car') IS NULL", Is(Call(KINDS, X, (c("car"),)), None)),
    ("among(x, -1, 2.5, TRUE, 'a')", Call(AMONG, X, (c(-1), c(2.5), c(True), c("a")))),
    ("is_a = 1", eq(AttributeRef("is_a"), 1)),
)
def test_registered_predicates_are_called_by_name(text: str, tree: Filter) -> None:
    assert parse(text, PREDICATES) == tree


def test_a_text_with_a_predicate_depends_on_the_registry_and_not_on_the_cache() -> None:
    for _ in range(2):
        assert parse("is_a(x, 'car') OR y = 1", PREDICATES) == Or((Call(KINDS, X, (c("car"),)), eq(Y, 1)))
        with pytest.raises(FilterSyntaxError, match="unknown predicate 'is_a'"):
            parse("is_a(x, 'car') OR y = 1")


def test_parsing_many_says_which_text_is_wrong() -> None:
    assert parse_many(["x = 1", "y"]) == [eq(X, 1), Y]
    assert parse_many(iter([])) == []
    with pytest.raises(FilterSyntaxError, match="expected") as caught:
        parse_many(["x = 1", "y", "z ="])
    assert caught.value.position == 2
    assert str(caught.value).startswith("filter 2: ")


def test_only_a_str_is_text() -> None:
    for wrong in (None, 5, b"x = 1", ["x = 1"]):
        with pytest.raises(TypeError, match="the text of a filter must be a str, not"):
            parse(wrong)  # type: ignore[arg-type]
