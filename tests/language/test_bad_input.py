"""Whatever comes in, an answer or a FilterError comes out, soon. Work is counted in lines of Python, not in seconds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strategies import PREDICATES, SMILE, thorough, trees
from weft import covers, from_json, normalize, parse, to_filter, to_json
from weft.errors import FilterError, FilterSyntaxError, FilterTooComplexError
from weft.language.ast import And, AttributeRef, Filter, Is, Not, Or
from weft.language.lexer import MAX_TEXT
from weft.language.meaning import matches, truth
from weft.language.pattern import Pattern
from weft.language.text import shape_of
from weft.model.limits import LIMITS


class OverBudget(Exception):  # noqa: N818
    """More lines of Python were run than allowed."""


def lines(work: Callable[[], object], budget: int = 10_000_000) -> int:
    """How many lines of Python it takes: the same on every machine. Ten million are a third of a second or so."""
    used, raised = 0, False
    before = sys.gettrace()

    def within(_: FrameType, __: str, ___: object) -> Any:
        nonlocal used
        used += 1
        return within

    def calls(_: FrameType, __: str, ___: object) -> Any:
        nonlocal raised
        if used > budget and not raised:  # once: generators that are closed on the way out are calls, too
            raised = True
            raise OverBudget(f"more than {budget} lines")
        return within

    sys.settrace(calls)
    try:
        work()
    except FilterError:
        pass
    finally:
        sys.settrace(before)
    return used


def fill(pieces: Iterator[str], between: str, limit: int = MAX_TEXT) -> str:
    """As many pieces as a text may have."""
    text = next(pieces)
    most = LIMITS.likes if "LIKE" in text else LIMITS.tests
    own = 0 if "LIKE" in text else len(set(re.findall("[a-z]0", text)))  # attributes that no other piece has
    most = LIMITS.names // own if own else most
    for number, piece in enumerate(pieces, 2):
        if len(text) + len(between) + len(piece) > limit or number * max(1, piece.count("=")) > most:
            return text
        text += between + piece
    raise AssertionError


def answers(text: str) -> Filter | None:
    """The filter of a text, or None if there is an error that points into it."""
    try:
        tree = parse(text, PREDICATES)
    except FilterSyntaxError as error:
        said = error
    else:
        return obeys(tree)
    assert 0 <= said.start <= len(text)
    assert str(said).encode().startswith(said.message.encode())
    return None


def obeys(tree: Filter) -> Filter:
    """The tree, if it obeys the laws."""
    spelled = str(tree)
    if len(spelled.encode()) <= MAX_TEXT:
        assert parse(spelled, PREDICATES) == tree
    assert tree.depth <= 100
    assert truth(tree, {}) in (True, False, None)
    try:
        form = normalize(tree)
    except FilterTooComplexError:
        return tree
    assert ({} in form) == matches(tree, {})
    return tree


# -- size and depth ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "(" * 30_000,
        "(" * 30_000 + "x" + ")" * 30_000,
        "(" * 100_000 + "x" + ")" * 100_000,
        ")" * 60_000,
        "NOT " * 16_000 + "x",
        "NOT " * 30_000 + "x",
        "NOT(" * 16_000,
        "x IN (" * 10_000,
        "is_a(" * 10_000,
        "x = " + "(" * 30_000 + "1" + ")" * 30_000,
        "x" + " IS NULL" * 8_000,
        "x" + " IS NOT NULL" * 5_000,
        "(" * 8_000 + "x" + " IS NULL)" * 6_000,
        "x BETWEEN " * 6_000 + "1",
        "x AND " * 10_000,
        "x = " * 16_000,
        "-" * 60_000,
        "x = " + "-" * 60_000 + "1",
        "x = 1 OR " * 200_000,
        " " * 60_000,
        " " * 2_000_000,
        "\n" * 60_000 + "x ==",
        "x" * 60_000,
        "x." * 30_000,
        "x." * 30_000 + "x",
        "." * 60_000,
        "'" * 60_000,
        "'" * 60_001,
        '"' * 60_000,
        '"' * 60_001,
        "x = '" + "'" * 60_000,
        "x IN (" + "'a'," * 15_000 + "'a')",
        "x IN (" + "1," * 30_000 + "1)",
        "x = '" + "\ud800" * 100 + "'",
        "x = " + "9" * 60_000,
        "x = " + "0" * 60_000,
        "x = " + "0" * 60_000 + "1",
        "x = 0." + "0" * 60_000 + "1",
        "x = ." + "9" * 60_000,
        "x = " + "9" * 60_000 + ".0",
        "x = 1e" + "9" * 60_000,
        "x = 1e-" + "9" * 60_000,
        "x = 0e" + "9" * 60_000,
        "x = 1" + "e1" * 30_000,
        "x = TIMESTAMP '2018-01-01T00:00:00." + "9" * 60_000 + "Z'",
        "x = TIMESTAMP '" + "9" * 60_000 + "'",
        "x LIKE '" + "%_" * 200 + "' ESCAPE '" + "!" * 60_000 + "'",
        '"' + '""' * 30_000 + '" = 1',
        SMILE * 16_000,
        "\u0300" * 30_000,
        "x\u0300" * 20_000,
    ],
    ids=lambda text: f"{text[:12]}...{text[-8:]} ({len(text)})".encode("ascii", "replace").decode(),
)
def test_a_huge_text_gives_an_answer_or_an_error_that_points(text: str) -> None:
    answers(text)
    with pytest.raises(FilterSyntaxError):
        from_json(text)


@pytest.mark.parametrize("depth", [98, 99, 100, 101, 150])
def test_nesting_is_allowed_to_a_hundred_levels(depth: int) -> None:
    nested = "x = 1"
    for level in range(depth - 1):
        nested = f"({nested}) {('AND', 'OR')[level % 2]} y{level}"
    negated = "x = 1"
    for level in range(depth // 2):
        negated = f"NOT ({negated} AND y{level})"
    cases = {
        "NOT " * (depth - 1) + "x": depth,
        "x" + " IS NULL" * (depth - 1): depth,
        "(" * (depth - 1) + "x" + " IS NULL)" * (depth - 1): depth,
        nested: depth,
        negated: 1 + depth // 2 * 2,
    }
    for text, expected in cases.items():
        if expected <= 100:
            assert parse(text).depth == expected
        else:
            with pytest.raises(FilterSyntaxError, match="a filter can be nested at most 100 levels deep"):
                parse(text)
    assert parse("(" * min(depth, 100) + "x" + ")" * min(depth, 100)) == AttributeRef("x")


@pytest.mark.parametrize(
    "part", ["NOT x", "(x)", "NOT (x)", "x IS NULL", "(x IS NULL) IS NULL", "x = (1)", "(NOT x) IS NULL"]
)
def test_depth_is_not_length(part: str) -> None:
    tree = parse(" OR ".join([part] * 500))
    assert isinstance(tree, Or)
    assert len(tree.operands) == 500
    assert tree.depth <= 4


def test_a_filter_of_full_depth_goes_through_everything() -> None:
    x = AttributeRef("x")
    wraps: list[Callable[[Filter, int], Filter]] = [
        lambda f, n: Not(f),
        lambda f, n: Is(f, (None, True, False)[n % 3]),
        lambda f, n: (And, Or)[n % 2]((f, parse(f"y{n % 3} = {n % 5}"))),
        lambda f, n: Not(And((f, x))),
        lambda f, n: Is(Or((f, x)), None),
        lambda f, n: Not(Is(f, None)),
    ]
    for wrap in wraps:
        tree: Filter = parse("x = 1")
        try:
            for number in count():
                tree = wrap(tree, number)
        except FilterTooComplexError:
            assert tree.depth >= 99
        assert answers(str(tree)) == tree
        assert hash(tree) == hash(parse(str(tree)))
        assert len(repr(tree)) > 100
        again = from_json(json.dumps(to_json(tree)))
        assert truth(again, {"x": 1}) is truth(tree, {"x": 1})


@pytest.mark.parametrize("frames", [300, 400, 500, 600, 700])
def test_a_deep_filter_is_read_from_a_deep_stack_or_refused(frames: int) -> None:
    # A level of nesting takes several frames: where the caller has used half of the stack, a hundred are too many.
    def deeper(left: int, work: Callable[[], Filter]) -> Filter:
        return deeper(left - 1, work) if left else work()

    deep = "(" * 100 + f"deep_stack{frames}" + ")" * 100
    lists = "[" * 190 + '{"sql": "deep_stack"}' + "]" * 190
    nots = '{"not":' * 45 + '{"sql": "deep_stack"}' + "}" * 45
    for work in (lambda: parse(deep), lambda: from_json(lists), lambda: from_json(nots)):
        try:
            found = deeper(frames, work)
        except FilterError:
            continue
        assert found == work()


def test_the_limit_of_size_is_of_bytes() -> None:
    room = MAX_TEXT - len("x = ''")
    assert parse("x = '" + "a" * room + "'").right.value == "a" * room  # type: ignore[attr-defined]
    assert parse("x = '" + SMILE * (room // 4) + "'") is not None
    for text in ("x = '" + "a" * (room + 5) + "'", "x = '" + SMILE * (room // 4 + 2) + "'"):  # even without spaces
        with pytest.raises(FilterSyntaxError, match=f"longer than {MAX_TEXT} bytes"):
            parse(text)
        with pytest.raises(FilterSyntaxError, match=f"longer than {MAX_TEXT} bytes"):
            shape_of(text)
        with pytest.raises(FilterSyntaxError, match=f"longer than {MAX_TEXT} bytes"):
            from_json(json.dumps({"sql": text}, ensure_ascii=False))


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_the_longest_chain_of_one_test_is_that_test(word: str) -> None:
    tree = answers(fill((f"x = {1}" for _ in count()), f" {word} "))
    assert isinstance(tree, And | Or)
    assert len(tree.operands) == LIMITS.tests
    assert to_filter(normalize(tree)) == parse("x = 1")
    assert covers(tree, parse("x = 1"))
    assert covers(parse("x = 1"), tree)


@pytest.mark.parametrize(
    ("piece", "word", "boxes"),
    [
        ("x={}", " OR ", 1),
        ("x<>{}", " AND ", 1),
        ("x={}", " AND ", 0),
        ("x{}=1", " AND ", 1),
        ("x{}=1", " OR ", None),
        ("(a={0} AND b={0})", " OR ", None),
        ("(a{0}=1 OR b{0}=1)", " AND ", None),
        ("(a=1 OR b={})", " AND ", None),
        ("x LIKE 'a{}%'", " OR ", 1),
    ],
)
def test_the_longest_chains_normalize_or_say_that_they_do_not(piece: str, word: str, boxes: int | None) -> None:
    tree = parse(fill((piece.format(number) for number in count()), word))
    if boxes is None:
        with pytest.raises(FilterTooComplexError):
            normalize(tree)
    else:
        assert len(normalize(tree).boxes) == boxes
        assert covers(tree, tree)


# -- odd characters, numbers and timestamps ---------------------------------------------------------


ODD = ("\0", "\ufeff", "\u202e", "\u2066", "\x7f", "\x1b", "\u200b", "\ud800", "\udfff", "\U000e0001")


@pytest.mark.parametrize("odd", ODD)
def test_odd_characters_are_text_in_quotes_and_an_error_elsewhere(odd: str) -> None:
    surrogate = "\ud800" <= odd <= "\udfff"
    for text in (odd, f"x{odd} = 1", f"x {odd}= 1", f"x = {odd}1", f"{odd}x = 1", f"x = 1{odd}"):
        with pytest.raises(FilterSyntaxError) as caught:
            parse(text)
        assert text[caught.value.start : caught.value.end] in (odd, f"1{odd}")
    for text in (f"x = '{odd}'", f'"{odd}" = 1', f"x LIKE '{odd}%'", f"x LIKE 'a' ESCAPE '{odd}'"):
        if surrogate:
            with pytest.raises(FilterSyntaxError, match="a lone surrogate is not text"):
                parse(text)
        else:
            assert answers(text) is not None


NO_MOMENTS = (
    *("2018-13-01", "2018-00-01", "2018-02-30", "2018-02-29", "2018-01-32", "2018-01-00", "0000-01-01", "10000-01-01"),
    *("2018-01-01T24:00", "2018-01-01T23:60", "2018-01-01T23:59:60", "2018-01-01T23:59:61", "2018-01-01T1:00"),
    *("2018-01-01T00:00+24:00", "2018-01-01T00:00+00:60", "2018-01-01T00:00+1", "2018-01-01T00:00Europe/Berlin"),
    *("0001-01-01T00:00+00:01", "9999-12-31T23:59-00:01", "2018-01-01Z", "2018-01-01+01:00", "2018-W01-1"),
    *("20180101", "2018-1-1", "18-01-01", "-2018-01-01", "+2018-01-01", "2018/01/01", "01.01.2018", "1517443200"),
    *("", " ", "now", "infinity", "2018-01-01T", "2018-01-01 ", " 2018-01-01", "2018-01-01T00:00:00.", "2018-001"),
    *("\uff12018-01-01", "2018-01-01T00:00:00,5", "2018-01-01T00:00:00.-1", "2018-01-01T00:00ZZ", "2018-01-01''"),
    *("2018-01-01\n", "2018-01-01T00:00\N{ARABIC-INDIC DIGIT ONE}", "2018-02-01T00:00:00 +01:00 "),
)
EDGE_MOMENTS = {
    "2016-02-29": datetime(2016, 2, 29, tzinfo=UTC),
    "2000-02-29": datetime(2000, 2, 29, tzinfo=UTC),
    "0004-02-29": datetime(4, 2, 29, tzinfo=UTC),
    "0001-01-01T00:00-23:59": datetime(1, 1, 1, 23, 59, tzinfo=UTC),
    "9999-12-31T23:59+23:59": datetime(9999, 12, 31, tzinfo=UTC),
}


@pytest.mark.parametrize("moment", NO_MOMENTS)
def test_what_is_no_timestamp_is_pointed_at(moment: str) -> None:
    text = f"x = TIMESTAMP '{moment}'"
    with pytest.raises(FilterSyntaxError, match="invalid timestamp: ") as caught:
        parse(text)
    assert text[caught.value.start : caught.value.end] == f"'{moment}'"


@pytest.mark.parametrize("moment", EDGE_MOMENTS)
def test_edge_timestamps_that_exist_are_read(moment: str) -> None:
    tree = answers(f"x = TIMESTAMP '{moment}'")
    assert tree is not None
    assert matches(tree, {"x": EDGE_MOMENTS[moment]})
    assert not matches(tree, {"x": EDGE_MOMENTS[moment] + timedelta(microseconds=1)})


PAST_64_BITS = ("9" * 20, str(2**63), "1e309", "1e-325", "9" * 400 + ".0", "9" * 5_000, "1e" + "9" * 20)


@pytest.mark.parametrize("number", PAST_64_BITS, ids=lambda number: f"{number[:20]}")
def test_a_number_that_does_not_fit_is_pointed_at(number: str) -> None:
    for sign in ("", "-", "+"):
        if number == str(2**63) and sign == "-":
            tree = answers(f"x = {sign}{number}")
            assert tree is not None
            assert matches(tree, {"x": -(2**63)})
            assert not matches(tree, {"x": 1 - 2**63})
            continue
        with pytest.raises(FilterSyntaxError, match="does not fit in") as caught:
            parse(f"x = {sign}{number}")
        assert caught.value.start == len(f"x = {sign}")


# -- patterns: linear, whatever the pattern ---------------------------------------------------------

LONG = "a" * 100_000 + "b"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("%a" * 30_000, False),
        ("%a" * 30_000 + "%b", True),
        ("%a" * 30_000 + "%c%", False),
        ("%" + "a_" * 30_000 + "%", True),
        ("%" + "a_" * 30_000 + "c%", False),
        ("%" + "_a" * 30_000 + "_c", False),
        ("%a_" * 20_000 + "%", True),
        ("%aa_aa" * 10_000 + "%b", True),
        ("%a_b" * 15_000, False),
        ("%" + "a" * 60_000 + "%", True),
        ("%" + "a" * 60_000 + "c%", False),
        ("%" + "a" * 30_000 + "_" + "a" * 30_000 + "c%", False),
        ("%" * 60_000 + "b", True),
        ("_" * 60_000, False),
        ("%" + "_" * 60_000, True),
        ("_%" * 1_000, True),
        ("%_" * 1_000 + "b", True),
        ("a%" * 30_000 + "b%b", False),
    ],
    ids=lambda value: f"{value[:10]}..." if isinstance(value, str) else None,
)
def test_pattern_bombs_do_not_explode(pattern: str, found: bool) -> None:
    tree = parse(f"x LIKE '{pattern}'")
    assert matches(tree, {"x": LONG}) is found
    assert matches(tree, {"x": ""}) is False
    assert covers(tree, tree)
    assert parse(str(tree)) == tree


@pytest.mark.parametrize(
    "unit", ["%_", "_%", "%__", "%a", "%a_", "_", "%", "a_", "%%_", "%_a", "!%", "!_%_"], ids=lambda unit: unit
)
def test_compiling_a_pattern_takes_work_in_proportion_to_its_length(unit: str) -> None:
    # In a run of `%_` every hole moves to the front: one segment at a time, that would be quadratic.
    few, many = (lines(lambda size=size: Pattern.of(unit * size + "b", "!")) for size in (200, 800))
    assert many < 6 * few + 1000


@pytest.mark.parametrize("unit", ["%a", "%a_", "%aa_b", "%ab", "_%", "%_a"])
def test_matching_takes_work_in_proportion_to_the_text(unit: str) -> None:
    few, many = (lines(lambda size=size: Pattern.of(unit * 20).matches("a" * size + "b")) for size in (2_000, 8_000))
    assert many < 6 * few + 1000


@pytest.mark.parametrize(
    "unit",
    [
        "(",
        "((x) ",
        "NOT ",
        "x = 1 AND ",
        "x = 1 OR ",
        "x IS NULL AND ",
        "'",
        '"',
        " ",
        "1",
        "x.",
        "x IN (1",
        "x LIKE '%' OR ",
    ],
)
def test_parsing_takes_work_in_proportion_to_the_text(unit: str) -> None:
    few, many = (lines(lambda size=size: parse(f"a{size} = 1 AND " + unit * size)) for size in (200, 800))
    assert many < 6 * few + 1000


# -- the algebra: small but hostile filters ---------------------------------------------------------


def _words(number: int, size: int) -> list[str]:
    """So many texts of one length, alike for most of it: the hardest to tell apart."""
    return ["a" * (size - 8) + format(n, "08b").replace("0", "a").replace("1", "b") for n in range(number)]


HOSTILE = {
    "products of 30": " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(30)),
    "products of 8": " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(8)),
    "NULL of products": "(" + " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(8)) + ") IS NULL",
    "NULL of many": "(" + " AND ".join(f"a{n} = 1" for n in range(60)) + ") IS NULL",
    "NULLs of NULLs": "(" * 40 + "x" + "".join(f" OR y{n} = 1) IS NULL" for n in range(40)),
    "stairs": " OR ".join(f"(a > {n} AND b < {n})" for n in range(250)),
    "no stairs": "NOT (" + " OR ".join(f"(a > {n} AND b < {n})" for n in range(250)) + ")",
    "relations": " AND ".join(f"(a{n} < a{n + 1} OR b{n} = 1)" for n in range(8)),
    "many relations": fill((f"a{n}<b{n}" for n in count()), " AND ", 16_000),
    "250 likes or": " OR ".join(f"x LIKE '%{word}%'" for word in _words(250, 20)),
    "250 likes and": " AND ".join(f"x LIKE '%{word}%'" for word in _words(250, 20)),
    "1000 likes or": " OR ".join(f"x LIKE '%a{n}%'" for n in range(1000)),
    "likes of products": " AND ".join(f"(x LIKE '%a{n}%' OR x LIKE '%b{n}%')" for n in range(7)),
    "likes of 30 products": " AND ".join(f"(x LIKE '%a{n}%' OR x NOT LIKE '%b{n}%')" for n in range(30)),
    "likes of two": " AND ".join(f"(x LIKE '%{word}%' OR y NOT LIKE '%{word}%')" for word in _words(7, 40)),
    "likes and points": " OR ".join(f"x LIKE '%a{n}%'" for n in range(100))
    + f" OR x IN ({', '.join(repr(f'b{n}') for n in range(1000))})",
    "likes without points": "("
    + " OR ".join(f"x LIKE '%a{n}%'" for n in range(100))
    + f") AND x NOT IN ({', '.join(repr(f'b{n}') for n in range(1000))})",
    "stars of products": " AND ".join(
        f"(x LIKE '%{'%'.join(one)}%' OR x LIKE '%{'%'.join(two)}%')"
        for one, two in zip(_words(14, 12)[::2], _words(14, 12)[1::2], strict=True)
    ),
    "many stars": " OR ".join(f"x LIKE '%{'%'.join(word)}%'" for word in _words(60, 12)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_filter_is_normalized_or_refused_within_the_budget(name: str) -> None:
    tree = parse(HOSTILE[name])
    lines(lambda: normalize(tree))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_filter_covers_itself_within_the_budget(name: str) -> None:
    try:
        form = normalize(parse(HOSTILE[name]))
    except FilterTooComplexError:
        return
    said = []
    lines(lambda: said.append(covers(form, form)))
    assert said == [True]


# -- random garbage ---------------------------------------------------------------------------------

_words_and_signs = (*"xy01.eE'\"()=<>!,+-%_\\ \n", SMILE, " AND ", " OR ", " NOT ", " IS ", " NULL", " LIKE ", " IN ")
_signs = st.lists(st.sampled_from(_words_and_signs), max_size=20).map("".join)


@given(st.text())
@thorough(300)
def test_any_text_gives_a_filter_or_a_syntax_error(text: str) -> None:
    answers(text)


@given(_signs)
@example("'''")
@example("x IS NULL IS")
@example('"')
@thorough(500)
def test_any_signs_of_the_language_give_a_filter_or_a_syntax_error(text: str) -> None:
    answers(text)


@given(trees(4).map(str), st.data())
@thorough(500)
def test_a_text_with_a_piece_lost_doubled_or_moved_gives_a_filter_or_a_syntax_error(
    text: str, data: st.DataObject
) -> None:
    places = st.integers(0, len(text))
    for _ in range(data.draw(st.integers(1, 3))):
        one, two, three = sorted((data.draw(places), data.draw(places), data.draw(places)))
        a, b, c, d = text[:one], text[one:two], text[two:three], text[three:]
        changed = (a + c + d, a + b + b + c + d, a + c + b + d, a + data.draw(_signs) + b + c + d)
        text = data.draw(st.sampled_from(changed))
    answers(text)


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_keys = st.sampled_from(("exact", "prefix", "suffix", "all", "any", "not", "sql", "al", "a", "")) | st.text(max_size=3)
_json = st.recursive(
    _scalars | st.sampled_from(("x = 1", "a.", "x ==")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_keys, inner, max_size=2),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: {"all": items}),
        inner.map(lambda item: {"not": item}),
        inner.map(lambda item: {"exact": {"a": item}}),
        inner.map(lambda item: {"sql": item}),
    ),
    max_leaves=8,
)


@given(_json)
@thorough(500)
def test_any_json_value_gives_a_filter_or_a_syntax_error(value: Any) -> None:
    decoded, text = _from_json(value), _from_json(json.dumps(value))
    if isinstance(value, str):  # is taken for JSON text itself, and no string is a filter
        assert not isinstance(text, Filter)
        return
    assert isinstance(decoded, Filter) == isinstance(text, Filter)
    for found in (decoded, text):
        if isinstance(found, Filter):
            assert from_json(to_json(found)) is not None


def _from_json(source: Any) -> Filter | FilterSyntaxError:
    try:
        return from_json(source)
    except FilterSyntaxError as error:
        str(error).encode()
        return error


@given(_json, st.data())
@thorough(200)
def test_broken_json_gives_a_filter_or_a_syntax_error(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    at, to = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    for broken in (
        text[:at] + text[to:],
        text[:to] + text[at:],
        text[at:],
        text[:at] + data.draw(st.text(max_size=3)) + text[at:],
    ):
        found = _from_json(broken)
        assert isinstance(found, Filter) or 0 <= found.start <= len(found.text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 30_000,
        "[" * 100_000,
        "[" * 30_000 + "]" * 30_000,
        '{"all":[' * 8_000,
        '{"not":' * 9_000,
        '{"not":' * 5_000 + '{"sql":"x"}' + "}" * 5_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        '{"exact":{"a":' + "[" * 30_000 + "]" * 30_000 + "}}",
        '{"exact":{"a":' + "9" * 60_000 + "}}",
        '{"exact":{"a":1e' + "9" * 60_000 + "}}",
        '{"exact":{"a":-' + "9" * 4_000 + "}}",
        '{"sql":"' + "(" * 60_000 + '"}',
        '{"sql":"' + "\\u0028" * 10_000 + '"}',
        '{"exact":{' + ",".join(f'"a{n}":{n}' for n in range(5_000)) + "}}",
        '{"all":[' + ",".join('{"sql":"x"}' for _ in range(5_000)) + ",5]}",
        '"' + "a" * 100_000,
        '{"' + "a" * 60_000 + '":1}',
        "\ufeff{}",
        "\0",
        "{}\0",
        '{"sql": "x"}{"sql": "x"}',
        "\ud800",
        '{"exact": {"\ud800": 1}}',
        "nul",
        "1e400",
    ],
    ids=lambda text: f"{text[:16]}... ({len(text)})".encode("ascii", "replace").decode(),
)
def test_hostile_json_gives_a_filter_or_a_syntax_error(text: str) -> None:
    found = _from_json(text)
    assert isinstance(found, FilterSyntaxError) != text.startswith('{"exact":{"a0":0')
