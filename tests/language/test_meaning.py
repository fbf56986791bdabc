"""What filters mean, by example: SQL's three-valued logic, five types, and nothing that surprises."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import numpy as np
import pytest

from strategies import PREDICATES, SMILE
from weft import Event, matches, parse
from weft.errors import EventError
from weft.language.ast import AttributeRef, Compare, Operator
from weft.language.meaning import all_of, any_of, compare, negation, truth
from weft.language.pattern import Pattern
from weft.language.trace import trace
from weft.model.value import Type, type_of

T, F, N = True, False, None
TRUTHS = (T, F, N)
DAY = datetime(2018, 2, 1, tzinfo=UTC)

# -- logic ------------------------------------------------------------------------------------------

AND = {(T, T): T, (T, F): F, (T, N): N, (F, T): F, (F, F): F, (F, N): F, (N, T): N, (N, F): F, (N, N): N}
OR = {(T, T): T, (T, F): T, (T, N): T, (F, T): T, (F, F): F, (F, N): N, (N, T): T, (N, F): N, (N, N): N}


@pytest.mark.parametrize("pair", AND, ids=str)
def test_and_and_or_follow_the_tables_of_sql(pair: tuple[bool | None, bool | None]) -> None:
    event = dict(zip(("x", "y"), pair, strict=True))
    assert truth(parse("x AND y"), event) is AND[pair] is all_of(*pair)
    assert truth(parse("x OR y"), event) is OR[pair] is any_of(*pair)


@pytest.mark.parametrize("value", TRUTHS, ids=str)
def test_not_and_is_follow_the_tables_of_sql(value: bool | None) -> None:
    event = {"x": value}
    assert truth(parse("NOT x"), event) is {T: F, F: T, N: N}[value] is negation(value)
    for word, wanted in (("NULL", N), ("TRUE", T), ("FALSE", F)):
        assert truth(parse(f"x IS {word}"), event) is (value is wanted)
        assert truth(parse(f"x IS NOT {word}"), event) is (value is not wanted)
        assert truth(parse(f"(NOT NOT x) IS {word}"), event) is (value is wanted)


def test_longer_chains_are_what_their_parts_say() -> None:
    for values in product(TRUTHS, repeat=3):
        event = dict(zip("xyz", values, strict=True))
        assert truth(parse("x AND y AND z"), event) is AND[AND[values[:2]], values[2]]
        assert truth(parse("x OR y OR z"), event) is OR[OR[values[:2]], values[2]]
    assert (all_of(), any_of()) == (True, False)


def test_a_filter_matches_only_if_it_is_true() -> None:
    assert matches(parse("x = 1"), {"x": 1}) is True
    assert matches(parse("x = 1"), {"x": 2}) is False
    assert matches(parse("x = 1"), {}) is False
    assert matches(parse("NOT x = 1"), {}) is False
    assert matches(parse("x = 1 OR NOT x = 1"), {}) is False
    assert matches(parse("x = 1 OR x IS NULL"), {}) is True


@pytest.mark.parametrize(
    "text", ["x = 1", "x != 1", "x < 1", "x = y", "x", "x LIKE '%'", "x IN (1)", "x BETWEEN 1 AND 2"]
)
def test_every_test_of_an_absent_attribute_is_null(text: str) -> None:
    for event in ({}, {"x": None}, {"x": math.nan}):
        assert truth(parse(text), event) is None
        assert truth(parse(f"NOT ({text})"), event) is None


def test_constant_truths_need_no_event() -> None:
    assert [truth(parse(text), {}) for text in ("TRUE", "FALSE", "NULL", "1 = 1", "1 = 2", "1 = 'a'")] == [
        *(True, False, None, True, False, None)
    ]


# -- types ------------------------------------------------------------------------------------------

KINDS = {"number": 1, "float": 1.5, "string": "1", "bool": True, "timestamp": DAY}


@pytest.mark.parametrize("operator", Operator)
@pytest.mark.parametrize(("one", "other"), list(product(KINDS, repeat=2)))
def test_unlike_types_compare_to_null_and_never_raise(one: str, other: str, operator: Operator) -> None:
    numbers = {"number", "float"}
    alike = one == other or {one, other} <= numbers
    assert (compare(operator, KINDS[one], KINDS[other]) is not None) == alike
    related = Compare(AttributeRef("x"), operator, AttributeRef("y"))
    assert truth(related, {"x": KINDS[one], "y": KINDS[other]}) is compare(operator, KINDS[one], KINDS[other])


@pytest.mark.parametrize("value", [True, False])
def test_a_bool_is_no_number(value: bool) -> None:
    assert truth(parse(f"x = {int(value)}"), {"x": value}) is None
    assert truth(parse(f"x = {float(value)}"), {"x": value}) is None
    assert truth(parse("x IN (0, 1)"), {"x": value}) is None
    assert truth(parse("x BETWEEN -1 AND 2"), {"x": value}) is None
    assert truth(parse(f"x = {value}"), {"x": int(value)}) is None
    assert truth(parse(f"x = {value}"), {"x": value}) is True
    assert truth(parse("x = y"), {"x": value, "y": int(value)}) is None


def test_a_bare_attribute_is_its_bool_and_null_for_anything_else() -> None:
    assert [truth(parse("x"), {"x": value}) for value in (True, False, 1, 0, "", "true", DAY, None)] == [
        *(True, False, None, None, None, None, None, None)
    ]


def test_is_null_of_an_attribute_asks_if_it_is_absent_whatever_its_type() -> None:
    for value in (0, 0.0, "", False, DAY, math.inf):
        assert truth(parse("x IS NULL"), {"x": value}) is False
    for event in ({}, {"x": None}, {"x": math.nan}):
        assert truth(parse("x IS NULL"), event) is True
    assert truth(parse("(NOT x) IS NULL"), {"x": 5}) is True  # a condition that is NULL, not an absent attribute
    assert truth(parse("x IS TRUE"), {"x": 5}) is False
    assert truth(parse("x IS NOT TRUE"), {"x": 5}) is True


def test_bools_are_ordered_false_before_true() -> None:
    assert truth(parse("x < TRUE"), {"x": False}) is True
    assert truth(parse("x > FALSE"), {"x": False}) is False
    assert truth(parse("x BETWEEN FALSE AND TRUE"), {"x": True}) is True


# -- numbers ----------------------------------------------------------------------------------------


def test_int_against_float_compares_exactly() -> None:
    exact, rounded = 2**53 + 1, float(2**53)
    assert truth(parse(f"x > {rounded!r}"), {"x": exact}) is True
    assert truth(parse(f"x = {rounded!r}"), {"x": exact}) is False
    assert truth(parse(f"x = {rounded!r}"), {"x": exact - 1}) is True
    assert truth(parse(f"x < {exact}"), {"x": rounded}) is True
    assert truth(parse(f"x IN ({rounded!r})"), {"x": exact}) is False
    assert truth(parse(f"x BETWEEN {rounded!r} AND {rounded!r}"), {"x": exact}) is False
    assert truth(parse("x < y"), {"x": rounded, "y": exact}) is True
    assert truth(parse("x = 9223372036854775808.0"), {"x": 2**63 - 1}) is False
    assert truth(parse("x < 9223372036854775808.0"), {"x": 2**63 - 1}) is True


def test_one_and_one_point_zero_are_the_same_number() -> None:
    assert truth(parse("x = 1"), {"x": 1.0}) is True
    assert truth(parse("x = 1.0"), {"x": 1}) is True
    assert truth(parse("x IN (1.0)"), {"x": 1}) is True


def test_minus_zero_equals_zero() -> None:
    for text in ("x = 0", "x = 0.0", "x = -0.0", "x = -0", "x >= 0", "x <= -0.0", "x BETWEEN 0 AND 0", "x IN (0)"):
        for zero in (0, 0.0, -0.0):
            assert truth(parse(text), {"x": zero}) is True, (text, zero)
    assert truth(parse("x < 0"), {"x": -0.0}) is False
    assert parse("x = -0.0") == parse("x = 0.0")


def test_nan_in_an_event_is_null() -> None:
    event = {"x": math.nan, "y": math.nan}
    for text in ("x = x", "x != x", "x = y", "x < 1", "x >= 1", "NOT x = 1", "x IN (1)"):
        assert truth(parse(text), event) is None, text
    assert truth(parse("x IS NULL"), event) is True
    assert truth(parse("x != x"), {"x": 1}) is False


def test_infinities_in_an_event_are_past_all_numbers() -> None:
    assert truth(parse("x > 1.7976931348623157e308"), {"x": math.inf}) is True
    assert truth(parse("x < -9223372036854775808"), {"x": -math.inf}) is True
    assert truth(parse("x = y"), {"x": math.inf, "y": math.inf}) is True
    assert truth(parse("x BETWEEN 1 AND 2"), {"x": math.inf}) is False


def test_between_is_empty_if_its_ends_are_out_of_order() -> None:
    assert [truth(parse("x BETWEEN 5 AND 1"), {"x": x}) for x in (0, 1, 3, 5, 9)] == [False] * 5
    assert [truth(parse("x BETWEEN 1 AND 5"), {"x": x}) for x in (0, 1, 3, 5, 9)] == [False, True, True, True, False]


def test_between_of_unlike_ends_is_false_or_null() -> None:
    assert truth(parse("x BETWEEN 5 AND 'a'"), {"x": 1}) is False  # FALSE AND NULL
    assert truth(parse("x BETWEEN 5 AND 'a'"), {"x": 9}) is None  # TRUE AND NULL


def test_in_of_unlike_types_is_true_or_null() -> None:
    assert truth(parse("x IN (1, 'a')"), {"x": 1}) is True
    assert truth(parse("x IN (1, 'a')"), {"x": 2}) is None  # FALSE OR NULL
    assert truth(parse("x NOT IN (1, 'a')"), {"x": 2}) is None
    assert truth(parse("x NOT IN (1, 2)"), {"x": 3}) is True


# -- strings ----------------------------------------------------------------------------------------


def test_strings_compare_by_code_point() -> None:
    ordered = ["", "\0", " ", "A", "B", "Z", "a", "aa", "ab", "b", "\u00e9", "\ufffd", "\U00010000", SMILE]
    for at, low in enumerate(ordered):
        for high in ordered[at + 1 :]:
            assert truth(parse("x < y"), {"x": low, "y": high}) is True, (low, high)


def test_strings_are_neither_folded_nor_normalised_nor_trimmed() -> None:
    assert truth(parse("x = 'a'"), {"x": "A"}) is False
    assert truth(parse("x = '\u00e9'"), {"x": "e\u0301"}) is False
    assert truth(parse("x LIKE '\u00e9'"), {"x": "e\u0301"}) is False
    assert truth(parse("x = 'a'"), {"x": "a "}) is False
    assert truth(parse("x = '1'"), {"x": 1}) is None


@pytest.mark.parametrize(
    ("pattern", "value", "found"),
    [
        ("'a%'", "abc", True),
        ("'a%'", "Abc", False),
        ("'%c'", "abc", True),
        ("'%b%'", "abc", True),
        ("'a_c'", "abc", True),
        ("'a_c'", "ac", False),
        ("'_'", SMILE, True),
        ("'__'", SMILE, False),
        ("'_'", "e\u0301", False),
        ("'__'", "e\u0301", True),
        ("'_'", "\n", True),
        ("'%'", "", True),
        ("''", "", True),
        ("''", "a", False),
        ("'_'", "", False),
        ("'a\\%'", "a\\bc", True),
        ("'a\\%'", "a%", False),
        ("'a\\%' ESCAPE '\\'", "a%", True),
        ("'a\\%' ESCAPE '\\'", "a\\b", False),
        ("'[a-z]'", "b", False),
        ("'.*'", "abc", False),
    ],
)
def test_like_minds_the_case_counts_code_points_and_has_no_escape_of_its_own(
    pattern: str, value: str, found: bool
) -> None:
    assert truth(parse(f"x LIKE {pattern}"), {"x": value}) is found
    assert truth(parse(f"x NOT LIKE {pattern}"), {"x": value}) is (not found)


def test_like_of_anything_but_a_string_is_null() -> None:
    for value in (1, 1.5, True, DAY, None):
        assert truth(parse("x LIKE '%'"), {"x": value}) is None


# -- timestamps -------------------------------------------------------------------------------------


def test_timestamps_are_instants_and_naive_ones_are_utc() -> None:
    filter = parse("x = TIMESTAMP '2018-02-01T12:00:00Z'")  # noqa: A001
    for value in (
        datetime(2018, 2, 1, 12),
        datetime(2018, 2, 1, 12, tzinfo=UTC),
        datetime(2018, 2, 1, 13, tzinfo=timezone(timedelta(hours=1))),
        datetime(2018, 1, 31, 23, tzinfo=timezone(-timedelta(hours=13))),
    ):
        assert truth(filter, {"x": value}) is True
    assert truth(filter, {"x": datetime(2018, 2, 1, 12, 0, 0, 1)}) is False
    assert truth(parse("x > TIMESTAMP '2018-02-01T12:00:00'"), {"x": datetime(2018, 2, 1, 12, 0, 0, 1)}) is True


def test_a_timestamp_is_neither_a_number_nor_text() -> None:
    assert truth(parse("x > 0"), {"x": DAY}) is None
    assert truth(parse("x > '2018-01-01'"), {"x": DAY}) is None
    assert truth(parse("x > TIMESTAMP '2018-01-01'"), {"x": "2018-02-01"}) is None


# -- events -----------------------------------------------------------------------------------------


def test_events_and_mappings_mean_the_same() -> None:
    event = Event.of(magnitude=5.2, place={"country": "Chile"}, payload=b"opaque")
    filter = parse("magnitude > 5 AND place.country = 'Chile' AND payload IS NULL AND place IS NULL")  # noqa: A001
    assert matches(filter, event) is matches(filter, event.attributes) is True


def test_subclasses_of_the_types_are_of_the_types() -> None:
    class Word(str):
        __slots__ = ()

    assert truth(parse("x = 'a'"), {"x": Word("a")}) is True
    assert type_of(Word("a")) is Type.STRING
    assert type_of(Operator.EQ) is Type.STRING
    assert type_of(object()) is None


def test_what_cannot_be_a_value_is_refused_as_everywhere() -> None:
    # Of an array, value != value is no bool.
    for odd in (b"a", [b"a"], object(), 1j, np.array([b"a"])):
        with pytest.raises(EventError, match="attribute 'x' is of type") as caught:
            truth("x = 1", {"x": odd})
        assert caught.value.attribute == "x"
    assert truth("x = 1", {"x": {"a": 1}}) is None
    assert truth("x.a = 1", {"x": {"a": 1}}) is True


def test_a_predicate_is_null_for_values_of_another_type() -> None:
    called = parse("is_a(x, 'vehicle')", PREDICATES)
    assert [truth(called, {"x": value}) for value in ("car", "vehicle", "thing", "boat", 5, None)] == [
        *(True, True, False, False, None, None)
    ]


# -- traces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["NOT x", "x IS NULL", "NOT x OR y", "(x AND NOT y) IS NULL", "(x OR y) IS NOT FALSE"])
@pytest.mark.parametrize("pair", AND, ids=str)
def test_a_trace_has_the_truth_of_every_part(text: str, pair: tuple[bool | None, bool | None]) -> None:
    event = Event.of(dict(zip(("x", "y"), pair, strict=True)))
    parts = [trace(parse(text), event)]
    while parts:
        part = parts.pop()
        assert part.truth is truth(part.filter, event)
        parts += part.parts


def test_a_trace_evaluates_a_test_once_however_deep_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = Pattern.matches
    monkeypatch.setattr(Pattern, "matches", lambda self, text: asked.append(text) or real(self, text))
    assert trace(parse(f"{'NOT (' * 48}s LIKE '%a_b%'{')' * 48}"), {"s": "acb"}).truth is True
    assert asked == ["acb"]
