"""Text, tree, JSON and builder say the same: by random trees at the edges of the language, and by enumeration."""

from __future__ import annotations

import copy
import json
import pickle
import re
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strategies import (
    AMONG,
    EVENTS,
    EXTREME_FLOATS,
    EXTREME_INTS,
    KINDS,
    ODD_NAMES,
    ODD_STRINGS,
    PREDICATES,
    SMILE,
    filters,
    names,
    thorough,
    trees,
    typed_constants,
    words,
)
from weft import F, from_json, parse, parse_many, to_json
from weft.errors import FilterError, FilterSyntaxError
from weft.language import text as cached
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
    Truth,
    attributes,
    walk,
)
from weft.language.constant import Constant
from weft.language.format import format_filter
from weft.language.grammar import parse_text
from weft.language.lexer import tokenize
from weft.language.meaning import truth
from weft.language.pattern import Pattern
from weft.model.value import Type

A = AttributeRef("a")

# -- tree and text ----------------------------------------------------------------------------------


@given(trees())
@example(Is(TRUE, None))
@example(Is(FALSE, None))
@example(Is(NULL, None))
@example(Not(Is(Not(Is(TRUE, True)), None)))
@example(Compare(A, Operator.EQ, Constant(Type.INT, -(2**63))))
@thorough(800)
def test_reading_what_is_written_gives_the_same_tree(tree: Filter) -> None:
    text = format_filter(tree)
    again = parse(text, PREDICATES)
    assert again == tree
    assert hash(again) == hash(tree)
    assert format_filter(again) == text
    assert str(tree) == text


@given(trees(3), trees(3))
@thorough(300)
def test_only_equal_trees_have_equal_texts(one: Filter, other: Filter) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(names)
@thorough(500)
def test_any_name_can_be_written_in_quotes(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert parse(quoted) == AttributeRef(name)
    assert parse(f"({quoted}) IS NULL") == Is(AttributeRef(name), None)


@given(trees(4))
@thorough(200)
def test_trees_survive_pickling_and_copying(tree: Filter) -> None:
    plain = not any(isinstance(node, Call) for node in walk(tree))  # AMONG is equal to itself only
    again = pickle.loads(pickle.dumps(tree))
    assert format_filter(again) == format_filter(tree)
    assert again.depth == tree.depth
    if plain:
        assert again == tree
        assert copy.deepcopy(tree) == tree
    assert copy.copy(tree) == tree


# -- random texts -----------------------------------------------------------------------------------
#
# A text is a list of (kind, piece). Pieces of the kinds in POOLS are constants: drawn again, they give another text of
# the same shape, which the parser serves from its cache.

Pieces = list[tuple[str, str]]

_stamps = ("2018-02-01", "0001-01-01", "9999-12-31T23:59:59.999999Z", "2018-02-01 01:02", "2018-02-01T01:02:03.5+05:30")
_bad_stamps = ("2018-13-01", "0000-01-01", "now", "", "2018-02-01T24:00", "0001-01-01T00:00+01:00")
_floats = (
    *(repr(abs(value)) for value in EXTREME_FLOATS),
    "5.",
    ".5",
    "1E5",
    "1e+2",
    "00.50",
    "1e-400",
    "9e999",
    "0e999",
)
_ints = (*(str(abs(value)) for value in EXTREME_INTS), "00", "007", str(2**63), str(2**64), "9" * 30, "0" * 30 + "1")
POOLS = {
    "int": st.sampled_from(_ints) | st.integers(0, 2**63).map(str),
    "float": st.sampled_from(_floats) | st.floats(0, allow_infinity=False).map(repr).filter(lambda text: "." in text),
    "string": (st.sampled_from(ODD_STRINGS) | words).map(lambda text: "'" + text.replace("'", "''") + "'"),
    "pattern": st.sampled_from(("'a%'", "'%'", "''", "'!%'", "'a!'", "'!!'", "'!a'", "'%a_'", f"'{SMILE}_'")),
    "stamp": st.sampled_from([f"'{stamp}'" for stamp in (*_stamps, *_bad_stamps)]),
}


def _word(*texts: str) -> st.SearchStrategy[Pieces]:
    return st.just([("word", text) for text in texts])


def _join(*parts: st.SearchStrategy[Pieces]) -> st.SearchStrategy[Pieces]:
    return st.tuples(*parts).map(lambda some: [piece for part in some for piece in part])


def _one(kind: str) -> st.SearchStrategy[Pieces]:
    return POOLS[kind].map(lambda text: [(kind, text)])


_sign = st.sampled_from(([], [("mark", "-")], [("mark", "+")]))
_constant = st.one_of(
    _join(_sign, _one("int") | _one("float")),
    _one("string"),
    _join(_word("TIMESTAMP"), _one("stamp")),
    _word("TRUE") | _word("FALSE"),
)
_name = st.sampled_from(("a", "b.c", "escape", "timestamp", "x1", '"5"', '"it\'s"', '"a ""b"""', "größe")).map(
    lambda name: [("name", name)]
)
_operand = st.one_of(_name, _name, _constant, _join(_word("("), _name | _constant, _word(")")))
_operator = st.sampled_from(("=", "!=", "<>", "<", "<=", ">", ">=")).map(lambda op: [("op", op)])
_not = _word() | _word("NOT")
_escape = _word() | _join(_word("ESCAPE"), st.just([("string", "'!'")]))


def _listed(items: st.SearchStrategy[Pieces]) -> st.SearchStrategy[Pieces]:
    return st.lists(items, min_size=1, max_size=4).map(
        lambda some: [piece for item in some for piece in [("mark", ","), *item]][1:]
    )


_list, _constants_list = _listed(_operand), _listed(_constant)
_test = st.one_of(
    _name,
    _word("TRUE") | _word("FALSE") | _word("NULL"),
    _join(_operand, _operator, _operand),
    _join(_name, _operator, _constant),
    _join(_name, _not, _word("BETWEEN"), _constant, _word("AND"), _constant),
    _join(_name, _not, _word("IN", "("), _constants_list, _word(")")),
    _join(_operand, _not, _word("BETWEEN"), _operand, _word("AND"), _operand),
    _join(_operand, _not, _word("IN", "("), _list, _word(")")),
    _join(_operand, _not, _word("LIKE"), _one("pattern") | _one("string"), _escape),
    _join(_operand, _word("IS"), _not, _word("NULL")),
    _join(_word("is_a"), _word("("), _name, st.just([("mark", ",")]), _one("string"), _word(")")),
)
_text = st.recursive(
    _test,
    lambda inner: st.one_of(
        _join(_word("("), inner, _word(")")),
        _join(_word("NOT"), inner),
        _join(inner, _word("AND") | _word("OR"), inner),
        _join(_word("("), inner, _word(")", "IS"), _not, _word("NULL") | _word("TRUE") | _word("FALSE")),
    ),
    max_leaves=5,
)


@st.composite
def spelled(draw: st.DrawFn) -> Pieces:
    """A text with some white space, and its key words in some case."""
    result: Pieces = []
    random = Random(draw(st.integers(0, 2**32)))
    for kind, piece in draw(_text):
        before = result[-1][1][-1:] if result else ""
        apart = re.match(r"[\w.]{2}|''|\"\"", before + piece[:1])  # else two pieces would be one
        spaces = (" ", "  ", "\n", "\t", "\r\n", "\u00a0")
        result.append(("space", random.choice(spaces if apart else (*spaces, *("",) * 6))))
        shown = piece if kind != "word" or piece == "is_a" else "".join(random.choice((c, c.lower())) for c in piece)
        result.append((kind, shown))
    return result


def _shown(pieces: Pieces) -> str:
    return "".join(piece for _, piece in pieces)


def _outcome(text: str, grammar: bool, limit: int | None = None) -> object:
    try:
        return parse_text(text, PREDICATES, limit is not None).tree if grammar else parse(text, PREDICATES, limit=limit)
    except FilterSyntaxError as error:
        return error.message, error.start, error.end, error.line, error.column, error.hint, str(error)


@given(st.data())
@thorough(700)
def test_a_cached_shape_never_changes_a_tree_or_an_error(data: st.DataObject) -> None:
    pieces = data.draw(spelled())
    for _ in range(4):
        text = _shown(pieces)
        assert _outcome(text, grammar=False) == _outcome(text, grammar=True), text
        pieces = [(kind, data.draw(POOLS[kind]) if kind in POOLS else piece) for kind, piece in pieces]


def test_random_texts_are_mostly_filters_and_reach_every_node() -> None:
    """The law above would be empty if its texts were all malformed."""
    kinds: set[type[Filter]] = set()
    good = bad = 0

    @given(spelled())
    @settings(thorough(500, routine=300), derandomize=True)  # a count, not a law: it may not fail by chance
    def count(pieces: Pieces) -> None:
        nonlocal good, bad
        found = _outcome(_shown(pieces), grammar=True)
        if isinstance(found, Filter):
            good += 1
            kinds.update(map(type, walk(found)))
        else:
            bad += 1

    count()
    assert good > bad > 0
    assert kinds == {And, AttributeRef, Between, Call, Compare, In, Is, Like, Not, Or, Truth}


SHAPES = (
    "x = {}",
    "x = -{}",
    "{} < x AND y = {}",
    "{} = {}",
    "{} IN (x, {}, {})",
    "x IN ({}, {})",
    "x BETWEEN {} AND {} OR {} BETWEEN y AND {}",
    "x BETWEEN -{} AND +{}",
    "({} IS NULL) OR NOT x >= {}",
)
STRING_SHAPES = ("x LIKE {}", "x NOT LIKE {} AND y = {}", "x = {} AND y LIKE {}", "{} LIKE {}", "x LIKE {} ESCAPE '!'")


def test_thousands_of_shapes_do_not_disturb_one_another() -> None:
    random = Random(7)
    strings = ("'a'", "'%'", "'a%'", "'_'", "''", "'!%'", "'it''s'", "'1'")
    texts = [shape.format(*random.choices(range(6), k=4)) for shape in SHAPES for _ in range(8)]
    texts += [shape.format(*random.choices((1.5, "2e3", ".5", 0.0), k=4)) for shape in SHAPES for _ in range(8)]
    texts += [shape.format(*random.choices(strings, k=4)) for shape in STRING_SHAPES for _ in range(16)]
    texts += [f"t > TIMESTAMP '{year:04}-01-01'" for year in range(1, 40)]
    expected = [_outcome(text, grammar=True) for text in texts]
    assert sum(isinstance(tree, Filter) for tree in expected) > len(texts) * 0.9
    for first in range(0, 12_000, 3_000):  # three times as many shapes as the cache holds
        for number in range(first, first + 3_000):
            text = f"a{number} = {number} AND b LIKE '%{number}'"
            assert parse(text) == And((F[f"a{number}"] == number, F.b.like(f"%{number}")))
        assert [_outcome(text, grammar=False) for text in texts] == expected


def test_a_known_shape_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the laws of the cache would test nothing."""
    parse("known_shape = 1 AND b LIKE 'a%' AND c BETWEEN -1.5 AND 2.5 AND t < TIMESTAMP '2018-02-01'")

    def refuse(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(cached, "parse_text", refuse)
    again = parse("known_shape = 7 AND b LIKE 'a%' AND c BETWEEN -.5 AND 1e3 AND t < TIMESTAMP '2019-03-02'")
    moment = datetime(2019, 3, 2, tzinfo=UTC)
    assert again == And((F.known_shape == 7, F.b.like("a%"), F.c.between(-0.5, 1000.0), F.t < moment))
    with pytest.raises(AssertionError, match="parsed again"):
        parse("known_shape = 7 AND b LIKE 'b%' AND c BETWEEN -.5 AND 1e3 AND t < TIMESTAMP '2019-03-02'")


@given(st.lists(spelled().map(_shown), max_size=4))
@thorough(100)
def test_parsing_many_is_parsing_each(texts: list[str]) -> None:
    outcomes = [_outcome(text, grammar=True) for text in texts]
    wrong = next((number for number, found in enumerate(outcomes) if not isinstance(found, Filter)), None)
    if wrong is None:
        assert parse_many(texts, PREDICATES) == outcomes
    else:
        with pytest.raises(FilterSyntaxError) as caught:
            parse_many(texts, PREDICATES)
        assert caught.value.position == wrong


# -- builder and text -------------------------------------------------------------------------------


def _literal(constant: Constant) -> str:
    """A constant in text, written without Weft."""
    if constant.type is Type.STRING:
        return "'" + str(constant.value).replace("'", "''") + "'"
    if constant.type is Type.TIMESTAMP:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(constant.value))
        return f"TIMESTAMP '{moment.isoformat()}'"
    return repr(constant.value).upper()


@given(names, typed_constants, typed_constants, names)
@thorough(400)
def test_builder_expressions_are_their_texts(name: str, one: Constant, other: Constant, second: str) -> None:
    field, x, y = F[name], '"' + name.replace('"', '""') + '"', '"' + second.replace('"', '""') + '"'
    low, high, value = _literal(one), _literal(other), one.python
    assert (field < value) == parse(f"{x} < {low}") == parse(f"{low} > {x}")
    assert (field <= value) == parse(f"{x} <= {low}") == parse(f"{low} >= {x}")
    assert (field > value) == parse(f"{x} > {low}") == parse(f"{low} < {x}")
    assert (field >= value) == parse(f"{x} >= {low}") == parse(f"{low} <= {x}")
    assert (field == value) == parse(f"{x} = {low}") == parse(f"{low} = {x}")
    assert (field != value) == parse(f"{x} <> {low}") == parse(f"{low} != {x}")
    assert (value < field) == parse(f"{low} < {x}")
    assert (field < F[second]) == parse(f"{x} < {y}")
    assert field.between(value, other.python) == parse(f"{x} BETWEEN {low} AND {high}")
    assert field.isin(value, other.python) == parse(f"{x} IN ({low}, {high})")
    assert ~field.isin([value]) == parse(f"{x} NOT IN ({low})")
    assert field.satisfies(AMONG, value, other.python) == parse(f"among({x}, {low}, {high})", PREDICATES)
    assert (field & (F[second] == value) | ~field) == parse(f"{x} AND {y} = {low} OR NOT {x}")


@given(words, words)
@thorough(300)
def test_starts_ends_and_contains_take_the_text_literally(text: str, value: str) -> None:
    event = {"x": value, "y": f"{value}{text}{value}", "z": text + value, "w": value + text}
    for name, held in event.items():
        assert truth(F[name].startswith(text), event) is held.startswith(text)
        assert truth(F[name].endswith(text), event) is held.endswith(text)
        assert truth(F[name].contains(text), event) is (text in held)


# -- JSON -------------------------------------------------------------------------------------------


@given(filters(8))
@thorough(150)
def test_json_keeps_the_truth_of_every_event(tree: Filter) -> None:
    dialect = to_json(tree)
    again = from_json(dialect, PREDICATES)
    assert [truth(again, event) for event in EVENTS] == [truth(tree, event) for event in EVENTS]
    assert from_json(json.dumps(dialect), PREDICATES) == again


@given(trees(), st.randoms(use_true_random=False))
@thorough(250)
def test_json_keeps_odd_names_and_constants(tree: Filter, random: Random) -> None:
    again = from_json(json.dumps(to_json(tree)), PREDICATES)
    held = [None, True, 1, "a%", *(c.python for c in _constants(tree))]
    for _ in range(10):
        event = {name: random.choice(held) for name in sorted(attributes(tree))}
        assert truth(again, event) is truth(tree, event)


def _constants(tree: Filter) -> list[Constant]:
    found: list[Constant] = []
    for node in walk(tree):
        match node:
            case Compare(_, _, Constant() as right):
                found.append(right)
            case Between(_, low, high):
                found += [low, high]
            case In(_, values) | Call(_, _, values):
                found += values
            case Like(_, pattern):
                found.append(Constant.of(pattern))
    return found


# -- patterns ---------------------------------------------------------------------------------------


def _regex(pattern: str, escape: str | None) -> re.Pattern[str] | None:
    """The pattern as a regular expression; None if an escape stands before anything but `%`, `_` and itself."""
    said, signs = "", iter(pattern)
    for sign in signs:
        if sign == escape:
            escaped = next(signs, None)
            if escaped not in ("%", "_", escape):
                return None
            said += re.escape(escaped)
        else:
            said += {"%": ".*", "_": "."}.get(sign) or re.escape(sign)
    return re.compile(said, re.DOTALL)


@given(
    st.text("ab%_\\", max_size=8),
    st.sampled_from((None, "\\", "%", "_", "a")),
    st.lists(st.text("ab%_\\\n", max_size=10), max_size=8),
)
@thorough(1000)
def test_like_is_a_regular_expression(pattern: str, escape: str | None, texts: list[str]) -> None:
    regex = _regex(pattern, escape)
    if regex is None:
        with pytest.raises(FilterError):
            Pattern.of(pattern, escape)
        return
    compiled = Pattern.of(pattern, escape)
    for text in texts:
        assert compiled.matches(text) == (regex.fullmatch(text) is not None), text


def _all(alphabet: str, longest: int) -> list[str]:
    return ["".join(signs) for size in range(longest + 1) for signs in product(alphabet, repeat=size)]


TEXTS = _all("abc", 5)
PATTERNS = [*_all("ab%_", 4), *(f"%{inner}%" for inner in _all("ab%_", 3) if len(inner) == 3)]
HITS = {
    pattern: frozenset(n for n, text in enumerate(TEXTS) if Pattern.of(pattern).matches(text)) for pattern in PATTERNS
}


def test_every_short_pattern_matches_every_short_text_as_a_regular_expression() -> None:
    for pattern in PATTERNS:
        regex = _regex(pattern, None)
        assert regex is not None
        assert HITS[pattern] == {n for n, text in enumerate(TEXTS) if regex.fullmatch(text)}, pattern


def test_patterns_are_equal_when_they_match_the_same() -> None:
    for one, other in product(PATTERNS, repeat=2):
        assert (Pattern.of(one) == Pattern.of(other)) == (HITS[one] == HITS[other]), (one, other)


def test_covering_of_every_two_short_patterns_is_sound() -> None:
    proven = true = 0
    for wide, narrow in product(PATTERNS, repeat=2):
        said = Pattern.of(wide).covers(Pattern.of(narrow))
        assert not said or HITS[wide] >= HITS[narrow], (wide, narrow)
        proven += said
        true += HITS[wide] >= HITS[narrow]
    assert proven > 0.8 * true  # sound, and not by always saying False


def test_disjointness_of_every_two_short_patterns_is_sound_and_symmetric() -> None:
    proven = true = 0
    for one, other in product(PATTERNS, repeat=2):
        said = Pattern.of(one).disjoint(Pattern.of(other))
        assert not said or not HITS[one] & HITS[other], (one, other)
        assert said == Pattern.of(other).disjoint(Pattern.of(one)), (one, other)
        proven += said
        true += not HITS[one] & HITS[other]
    assert proven > 0.8 * true


@given(st.text("ab%_", max_size=10), st.text("ab%_", max_size=10))
@thorough(700)
def test_relations_of_longer_patterns_are_sound(one: str, other: str) -> None:
    wide, narrow = Pattern.of(one), Pattern.of(other)
    assert wide.covers(wide)
    assert not wide.disjoint(wide)
    if wide.covers(narrow) or wide.disjoint(narrow):
        hits = [(wide.matches(text), narrow.matches(text)) for text in TEXTS]
        assert not wide.covers(narrow) or all(w or not n for w, n in hits)
        assert not wide.disjoint(narrow) or not any(w and n for w, n in hits)


@given(st.text("ab%_", max_size=8), st.text("ab%_", max_size=8), st.integers(0, 2**32))
@thorough(500)
def test_what_a_pattern_covers_or_excludes_holds_for_its_own_matches(one: str, other: str, seed: int) -> None:
    """Texts made to match: longer than can be enumerated."""
    random = Random(seed)
    wide, narrow = Pattern.of(one), Pattern.of(other)
    for _ in range(10):
        fill = {"%": lambda: "".join(random.choices("abc", k=random.randrange(4))), "_": lambda: random.choice("abc")}
        text = "".join(fill[sign]() if sign in fill else sign for sign in other)
        assert narrow.matches(text)
        assert wide.matches(text) or not wide.covers(narrow)
        assert not (wide.matches(text) and wide.disjoint(narrow))


def test_odd_names_are_all_different_attributes() -> None:
    assert len({str(AttributeRef(name)) for name in ODD_NAMES}) == len(ODD_NAMES)
    assert parse(" AND ".join(map(str, map(AttributeRef, ODD_NAMES)))) == And(tuple(map(AttributeRef, ODD_NAMES)))
    assert PREDICATES["is_a"] is KINDS


COMMENTS = (" ", "\n", "-- it's 5\n", "/* 'a' AND 5 */", "/**/", ' /* "x" */ ', "--\n", "/* -- */", "--/*\n", "/*\n*/")


@given(trees(4), st.lists(st.sampled_from(COMMENTS), min_size=1, max_size=4))
@thorough(300)
def test_comments_between_words_change_nothing(tree: Filter, comments: list[str]) -> None:
    """Neither for the grammar nor for the cache of shapes, which looks for constants without it."""
    tokens = tokenize(str(tree), stored=True)
    text = "".join(token.text + " " + comments[at % len(comments)] + " " for at, token in enumerate(tokens))
    assert parse(text, PREDICATES, limit=4 * 1024 * 1024) == tree
    assert parse(text, PREDICATES, limit=4 * 1024 * 1024) == tree  # of a shape that may be known now
    other = text.replace("'a'", "'b'").replace(" 5 ", " 6 ")  # 'b' may escape nothing
    assert _outcome(other, False, 10**7) == _outcome(other, True, 10**7)
