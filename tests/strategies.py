"""Tiny domains, so that coincidences are common: every value, every event, every test, and random filters of them."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from itertools import product
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from weft.language.ast import (
    ELEMENT,
    AttributeRef,
    Between,
    Call,
    Compare,
    Filter,
    Has,
    HasElement,
    In,
    Is,
    Like,
    Not,
    Operator,
    Truth,
    conjunction,
    disjunction,
)
from weft.language.cidr import CIDR
from weft.language.constant import Constant
from weft.language.grammar import parse_element_test
from weft.language.predicate import Predicates
from weft.language.taxonomy import IsA, Taxonomy
from weft.model.value import MICROS_MAX, MICROS_MIN, Type, Value

EXAMPLES = int(os.environ.get("WEFT_EXAMPLES", "1"))


def thorough(examples: int = 300, routine: int | None = None) -> settings:
    """Settings of a law: many examples, more with WEFT_EXAMPLES; slow draws are no failure.

    A routine run draws a quarter of them, or `routine`, and the same ones every time, so that it fails for what
    changed; longer runs draw anew. It never draws one alone: the first is always the simplest there is.
    """
    number = examples * EXAMPLES if EXAMPLES > 1 else routine or max(2, examples // 4)
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=number, deadline=None, suppress_health_check=quiet, derandomize=EXAMPLES == 1)


DAY = datetime(2018, 2, 1, tzinfo=UTC)
NEXT = datetime(2018, 2, 1, 0, 0, 0, 1, tzinfo=UTC)

# Constants of the tests, and the values of events: each constant, something between, below and above, of every type.
NUMBERS: tuple[Value, ...] = (0, 1, 1.5, 2)
STRINGS: tuple[Value, ...] = ("a", "ab", "b")
MOMENTS: tuple[Value, ...] = (DAY, NEXT)
NUMERIC_VALUES: tuple[Value, ...] = (-math.inf, -1, 0, 0.5, 1, 1.25, 1.5, 1.75, 2, 3.5, math.inf)
STRING_VALUES: tuple[Value, ...] = ("", "a", "a\0", "aa", "ab", "abc", "b", "ba", "c", "car", "thing", "z")
MOMENT_VALUES: tuple[Value, ...] = (
    datetime(2018, 1, 31, tzinfo=UTC),
    DAY,
    NEXT,
    datetime(2018, 2, 2, tzinfo=UTC),
)
VALUES: tuple[Value | None, ...] = (
    None,
    math.nan,
    True,
    False,
    *NUMERIC_VALUES,
    *STRING_VALUES,
    *MOMENT_VALUES,
)
PATTERNS = ("a", "a%", "%b", "%a%", "_", "a_", "_%", "%a_", "a%b", "%", "", "%_b%")

KINDS = IsA(Taxonomy({"car": ["vehicle"], "truck": ["vehicle"], "vehicle": ["thing"], "ab": ["car"]}))

A, B = AttributeRef("a"), AttributeRef("b")


def constants(*values: Value) -> tuple[Constant, ...]:
    return tuple(map(Constant.of, values))


def number_tests(left: AttributeRef = A) -> list[Filter]:
    """Every comparison, range and list with the numbers."""
    numbers = constants(*NUMBERS)
    tests: list[Filter] = [Compare(left, op, n) for op in Operator for n in numbers]
    tests += [Between(left, low, high) for low, high in product(numbers, repeat=2)]
    tests += [In(left, pair) for pair in product(numbers, repeat=2)]
    return tests


def all_tests(left: AttributeRef = A) -> list[Filter]:
    """Every test of one attribute, of every type; and mixtures of types."""
    tests = number_tests(left)
    for value in (*STRINGS, *MOMENTS, True, False):
        tests += [Compare(left, op, Constant.of(value)) for op in Operator]
    tests += [
        Between(left, *constants(*ends)) for ends in (("a", "b"), ("b", "a"), (DAY, NEXT), (False, True), (1, "a"))
    ]
    tests += [In(left, constants(*some)) for some in (("a", "b"), (1, "a", True), (DAY,), (DAY, NEXT), (True, False))]
    tests += [Like(left, pattern) for pattern in PATTERNS]
    tests += [Call(KINDS, left, constants(concept)) for concept in ("vehicle", "car", "thing", "boat")]
    tests += [left, Is(left, None), Is(left, True), Is(left, False), Truth(True), Truth(False), Truth(None)]
    return tests


# Letters whose case is not a matter of A and a: sharp s, long s, the Kelvin sign, a dotted I, a sigma at the end.
FOLDED_STRINGS = (
    "",
    "s",
    "S",
    "\u017f",
    "ß",
    "ẞ",
    "SS",
    "s\u017f",
    "k",
    "K",
    "\u212a",
    "I",
    "i\u0307",
    "İ",
    "Σ",
    "ς",
    "1",
    "1k",
    "sk",
    "ßk",
)
FOLDED_PATTERNS = (
    "s",
    "S%",
    "%ß",
    "ss",
    "_",
    "__",
    "%K%",
    "\u212a",
    "s_",
    "i\u0307",
    "İ%",
    "%\u03c3",
    "1%",
    "1_",
    "%_k",
    "",
    "%",
)


def folded_tests(left: AttributeRef = A) -> list[Filter]:
    """LIKE and ILIKE with letters that fold in unusual ways, and comparisons with the strings themselves."""
    tests: list[Filter] = [
        Like(left, pattern, None, ignore_case) for pattern in FOLDED_PATTERNS for ignore_case in (False, True)
    ]
    tests += [Compare(left, Operator.EQ, Constant.of(text)) for text in FOLDED_STRINGS]
    tests += [
        Compare(left, Operator.GE, Constant.of("S")),
        Compare(left, Operator.LT, Constant.of("s")),
        In(left, constants("s", "S", "\u017f")),
        In(left, constants("k", "K", "\u212a", "x")),
    ]
    return tests


def related_tests() -> list[Filter]:
    """Comparisons between attributes."""
    pairs = ((A, B), (B, A), (A, A))
    return [Compare(left, op, right) for op in Operator for left, right in pairs]


LISTS: tuple[Any, ...] = ([], ["a"], ["ab", "a"], [1], [1.0, 2, "a"], [True, 1.5], [DAY, "b"], ["a", "b", "ab", 1])


def list_tests(left: AttributeRef = A) -> list[Filter]:
    """HAS of every type, ANY and ALL; some of the values are in the lists together."""
    tests: list[Filter] = [Has(left, constants(value)) for value in ("a", "ab", "b", 1, 1.5, True, DAY)]
    some = (("a", "b"), ("a", 1), (1, 2, "zz"), ("a", "ab", "b"))
    tests += [Has(left, constants(*values), every) for values in some for every in (False, True)]
    return tests + [HasElement(left, parse_element_test(text)) for text in ELEMENT_TESTS]


ELEMENT_TESTS = (
    *("LIKE 'a%'", "LIKE '%b'", "NOT LIKE 'a%'", "LIKE '%a%' AND NOT LIKE '%b'", "ILIKE 'A%'", "LIKE '_b'"),
    *("> 1", "BETWEEN 1 AND 1.5", ">= 1 AND < 2", "< 1 OR >= 2", "> 1 AND < 1", "IN (1, 'a')", "!= 'a'"),
    *("(IN ('a', 'ab')) IS NOT TRUE", "IS NOT NULL", "= TRUE OR LIKE 'ab%'", "NOT > 1", "cidr('10.0.0.0/8')"),
    *("> TIMESTAMP '2000-01-01'", "(LIKE 'a%') IS NULL", "LIKE 'a%' OR LIKE '%b' OR > 1"),
)


def events() -> list[dict[str, Any]]:
    """A representative set of events over two attributes, absent and NULL ones included."""
    few = (None, True, -1, 0, 1, 1.5, 2, "", "a", "ab", "car", DAY, NEXT)
    return [{}, *({"a": a, "b": b} for a, b in product(few, repeat=2)), *({"a": a} for a in VALUES), *LIST_EVENTS]


LIST_EVENTS: list[dict[str, Any]] = [{"a": a, "b": b} for a in LISTS for b in (None, 1, "a", *LISTS)]
EVENTS = events()
SCALAR_EVENTS = EVENTS[: -len(LIST_EVENTS)]


def one_of(choices: list[Any]) -> st.SearchStrategy[Any]:
    """One of many choices, without their long text in every message."""
    return st.integers(0, len(choices) - 1).map(lambda at: choices[at])


_ilikes = [Like(left, pattern, None, True) for left in (A, B) for pattern in ("A", "AB%", "%B", "%A%", "_", "A_", "%")]
_tests = one_of([*all_tests(A), *all_tests(B), *related_tests(), *_ilikes, *list_tests(A), *list_tests(B)])
_numbers = one_of([*number_tests(A), *number_tests(B), Is(A, None), Is(B, None)])


def _grow(leaves: st.SearchStrategy[Filter], size: int) -> st.SearchStrategy[Filter]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(Not),
            st.builds(Is, inner, st.sampled_from((True, False, None))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: conjunction(*parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: disjunction(*parts)),
        ),
        max_leaves=size,
    )


def filters(size: int = 6) -> st.SearchStrategy[Filter]:
    """Random filters from the whole language, over the attributes a and b."""
    return _grow(_tests, size)


def folded_filters(size: int = 6) -> st.SearchStrategy[Filter]:
    """Random filters of tests in which case matters, or does not."""
    return _grow(one_of(folded_tests()), size)


def list_filters(size: int = 6) -> st.SearchStrategy[Filter]:
    """Random filters in which most tests are HAS."""
    return _grow(one_of([*list_tests(A), *list_tests(B), *all_tests(A)[::9], Is(A, None)]), size)


def number_filters(size: int = 6) -> st.SearchStrategy[Filter]:
    """Random filters over numbers only: here covering must be complete."""
    return _grow(_numbers, size)


values = st.one_of(
    st.sampled_from(VALUES),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5).filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text),
)


# -- the whole language: every node, odd names, extreme constants ----------------------------------


class Among:
    """A user predicate that takes any constants, to carry them through texts: `among(x, 1, 'a', TRUE)`."""

    name = "among"
    type = Type.STRING

    def check(self, arguments: tuple[Value, ...]) -> None:
        if not arguments:
            raise ValueError("among takes an attribute and one constant or more")

    def matches(self, value: Value, arguments: tuple[Value, ...]) -> bool:
        return value in arguments

    def covers(self, wide: tuple[Value, ...], narrow: tuple[Value, ...]) -> bool:
        return all(value in wide for value in narrow)

    def overlaps(self, one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
        return any(value in one for value in other)


AMONG = Among()
PREDICATES = Predicates([KINDS, AMONG])

SMILE = "\N{GRINNING FACE}"  # one code point, two units of UTF-16, four bytes of UTF-8

ODD_NAMES = (
    *("a", "b", "magnitude", "place.country", "_", "x1", "größe", "名前", "²", "timestamp", "escape", "Timestamp"),
    *(
        "and",
        "OR",
        "Not",
        "in",
        "like",
        "between",
        "is",
        "null",
        "TRUE",
        "false",
        "iS",
        "is_a",
        "among",
        "has",
        "HAS",
        "any",
        "all",
    ),
    *("\u0131s", "fal\u017fe", "\u0131n", "\u017f"),  # their upper case looks like a reserved word
    *(" ", "two words", "it's", 'say "x"', '"', "'", "''", '""', "a.", ".a", "a..b", "1", "1a", "a.1", "-", "a-b"),
    *("a\nb", "\t", "\0", "e\N{COMBINING ACUTE ACCENT}", "\N{ZERO WIDTH SPACE}", SMILE, "--", "\\", "%", "x\r"),
)
ODD_STRINGS = ("", "'", "''", "'" * 3, "--", "%", "\\", '"', "1", "TRUE", "a\nb", "\0", SMILE)

EXTREME_INTS = (0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63 - 2, 10**18)
EXTREME_FLOATS = (
    *(0.0, -0.0, 0.1, 1.0, -1.5, 1e15, 1e16, 1e17, 1e22, 1e23, 1e-5, 1e-4, 5e-324, -5e-324, 2.2250738585072014e-308),
    *(1.7976931348623157e308, -1.7976931348623157e308, float(2**53), float(2**63), 9223372036854774784.0, math.pi),
)
EXTREME_MICROS = (MICROS_MIN, MICROS_MIN + 1, -1, 0, 1, MICROS_MAX - 1, MICROS_MAX)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = st.sampled_from(ODD_NAMES) | words.filter(bool)
typed_constants = st.one_of(
    (st.sampled_from(EXTREME_INTS) | st.integers(-(2**63), 2**63 - 1)).map(Constant.of),
    (st.sampled_from(EXTREME_FLOATS) | st.floats(allow_nan=False, allow_infinity=False)).map(Constant.of),
    (st.sampled_from(ODD_STRINGS) | words).map(Constant.of),
    st.booleans().map(Constant.of),
    (st.sampled_from(EXTREME_MICROS) | st.integers(MICROS_MIN, MICROS_MAX)).map(
        lambda micros: Constant(Type.TIMESTAMP, micros)
    ),
)


@st.composite
def likes(draw: st.DrawFn) -> Like:
    """LIKE or ILIKE with a valid pattern: what the escape stands before is `%`, `_` or itself."""
    escape = draw(st.sampled_from((None, "\\", "!", "%", "_", "'", "a", SMILE)))
    signs = draw(st.lists(st.sampled_from((*"ab%_'\\!\n", SMILE)) | words.filter(bool), max_size=8))
    if escape is not None:
        signs = ["".join(sign for sign in some if sign != escape) for some in signs]
        signs += [escape + sign for sign in draw(st.lists(st.sampled_from(("%", "_", escape)), max_size=3))]
        signs = draw(st.permutations(signs))
    return Like(AttributeRef(draw(names)), "".join(signs), escape, draw(st.booleans()))


def element_trees() -> st.SearchStrategy[Filter]:
    """Random tests of elements, with constants at the edges of the language."""
    element = st.just(ELEMENT)
    several = st.lists(typed_constants, min_size=1, max_size=4).map(tuple)
    leaves = st.one_of(
        st.builds(Compare, element, st.sampled_from(Operator), typed_constants),
        st.builds(Between, element, typed_constants, typed_constants),
        st.builds(In, element, several),
        st.just(Is(ELEMENT, None)),
        likes().map(lambda like: Like(ELEMENT, like.pattern, like.escape, like.ignore_case)),
        st.just(Call(CIDR, ELEMENT, (Constant.of("10.0.0.0/8"),))),
    )
    return _grow(leaves, 3)


def trees(size: int = 8) -> st.SearchStrategy[Filter]:
    """Random trees of every node type, with names and constants at the edges of the language."""
    left = names.map(AttributeRef)
    several = st.lists(typed_constants, min_size=1, max_size=4).map(tuple)
    concepts = st.sampled_from(("vehicle", "it's")).map(lambda concept: (Constant.of(concept),))
    leaves = st.one_of(
        st.sampled_from((True, False, None)).map(Truth),
        left,
        st.builds(Compare, left, st.sampled_from(Operator), st.one_of(typed_constants, left)),
        st.builds(Between, left, typed_constants, typed_constants),
        st.builds(In, left, several),
        st.builds(Has, left, several, st.booleans()),
        st.builds(HasElement, left, element_trees()),
        likes(),
        st.builds(Call, st.just(AMONG), left, several),
        st.builds(Call, st.just(KINDS), left, concepts),
    )
    return _grow(leaves, size)
