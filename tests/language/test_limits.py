"""Limits of filter texts: they count for what users write, not for what Weft wrote; what is remembered is bounded."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from strategies import PREDICATES, thorough, trees
from weft import F, from_json, matches, parse, to_json
from weft.cli import display
from weft.errors import FilterError, FilterSyntaxError, FilterTooComplexError
from weft.language import cidr
from weft.language import text as text_module
from weft.language.ast import Filter
from weft.language.format import least_written, most_written
from weft.language.grammar import parse_text
from weft.language.long_text import parse_long
from weft.language.trace import trace
from weft.model.limits import LIMITS

WORDS = (
    *("x", "y.z", "and", "AND", " OR ", "or", "NOT ", "not", " in ", "IN", "(", ")", "1", "-2", ".5", "1e3", "'a'"),
    *("'it''s'", "LIKE", " BETWEEN ", " AND ", "IS", " NULL", "=", "<", ">=", "<>", ",", "TIMESTAMP", "'2018-01-01'"),
    *(" ", "TRUE", "not.a", "or.b", "1.", "ESCAPE", "and.x", "is", '"q"', "\n", "x IN (1, 'a')", "y LIKE 'a%'"),
)


def agrees(text: str) -> bool:
    """Whether the one pass reads a text; if so, as the grammar does."""
    found = parse_long(text, stored=True)
    try:
        assert found is None or found == parse_text(text, PREDICATES).tree
    except FilterError as error:
        raise AssertionError(f"{text!r} is read though it is not a filter") from error
    return found is not None


@pytest.mark.parametrize("values", ["-1, 9007199254740993", "- 9007199254740993,5", "'a' ,  9007199254740993 , -.5"])
def test_a_list_of_values_keeps_whole_numbers_whole(values: str) -> None:
    assert agrees(f"x IN ({values}) AND y > 1")


@given(trees(8))
@thorough(80)
def test_the_one_pass_reads_what_the_grammar_reads(tree: Filter) -> None:
    for written in (str(tree), str(tree).replace(" ", ""), str(tree).lower()):
        agrees(written)


@given(st.lists(st.sampled_from(WORDS), max_size=9), st.sampled_from(("", " ")))
@thorough(300)
def test_the_one_pass_reads_nothing_else(pieces: list[str], between: str) -> None:
    agrees(between.join(pieces))


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND b <> -2.5 OR NOT (c IN (1, 'it''s', TIMESTAMP '2018-01-01') AND d NOT LIKE 'a%')",
        "NOT NOT a AND ((b)) OR ((c = 1 OR d) AND e IS NOT NULL) AND f BETWEEN - 1 AND 5 AND g NOT BETWEEN 1 AND 2",
        "a.b=1 and c.d<e.f or not(g in(1,2))",
        "x NOT IN (-1, +2, .5) AND x IS NULL",
        "NOT (a = 1 OR b) IS NOT NULL AND ((c) is false IS NOT TRUE OR NOT (d AND e) IS NULL)",
    ],
)
def test_the_one_pass_reads_plain_tests_and_groups(text: str) -> None:
    assert agrees(text)


def test_the_number_of_words_and_signs_is_limited() -> None:
    assert parse(" OR ".join(["a"] * LIMITS.tests)) is not None
    for text in (" OR ".join(["((((((a))))))"] * LIMITS.tests), "x IN (y" + ",1" * 5_000 + ")"):
        with pytest.raises(FilterSyntaxError, match=f"more than {LIMITS.tokens:,} tokens"):
            parse(text)
        assert parse(text, limit=LIMITS.stored_text) is not None


@pytest.mark.parametrize("test", ["a{} > 1", "a{}", "a{} IS NULL", "(a{})", "NOT a{}"])
@pytest.mark.parametrize("call", ["", "among(s, 'a') OR "])  # the grammar reads a text with a call
def test_the_number_of_tests_is_limited(test: str, call: str) -> None:
    def text(number: int) -> str:
        return call + " OR ".join([test.format(n % 10) for n in range(number)])

    most = LIMITS.tests
    assert parse(text(most // 2), PREDICATES) is not None
    with pytest.raises(FilterError, match=rf"more than {most:,} tests|more than {LIMITS.tokens:,} tokens"):
        parse(text(most + 1), PREDICATES)
    assert parse(text(most + 1), PREDICATES, limit=LIMITS.stored_text) is not None


def test_a_list_with_attributes_does_not_become_a_long_text() -> None:
    """The left side is repeated for each value."""
    for left, value in (("n" * 1_000, "b"), ("'" + "n" * 1_000 + "'", "b")):
        assert parse(f"{left} IN ({', '.join([value] * 60)})") is not None
        with pytest.raises(FilterSyntaxError, match="too long for one that has attributes"):
            parse(f"{left} IN ({', '.join([value] * 100)})")


LISTS = ("x IN ({})", "NOT x IN ({})", "(x IN ({})) IS NULL", "x IN ({}) AND s LIKE '%{{}}'")
LISTED = ("1", ".5", "1e15", "-1", "'a'", "TIMESTAMP'2018-01-01'", "9007199254740993")


@pytest.mark.parametrize(
    ("text", "value"),
    [  # every list and every value; with one another in longer runs
        pytest.param(text, value, marks=[] if text == LISTS[0] or value == LISTED[0] else pytest.mark.slow)
        for text, value in product(LISTS, LISTED)
    ],
)
def test_whatever_is_read_can_be_written_and_read_again(text: str, value: str) -> None:
    number = (LIMITS.text - 200) // (len(value) + 1)
    tree = parse(text.format(",".join([value] * number)))
    assert least_written(tree) <= LIMITS.text
    assert len(str(tree)) > LIMITS.text
    assert parse(str(tree)) == tree


@pytest.mark.parametrize("value", ["1, ", "'a', ", ".5, "])
def test_a_text_that_no_user_can_write_is_too_long(value: str) -> None:
    with pytest.raises(FilterSyntaxError, match="longer than 65536 bytes"):
        parse(f"x IN ({(value * (7 * LIMITS.text // len(value)))[:-2]})")
    with pytest.raises(FilterSyntaxError, match="longer than 65536 bytes"):
        parse(f"s = '{'a' * LIMITS.text}'")


def test_a_name_is_limited_as_an_event_has_it() -> None:
    assert parse("n" * 1024 + " = 1") is not None
    with pytest.raises(FilterSyntaxError, match="can have at most 1024 characters"):
        parse("n" * 1025 + " = 1")
    with pytest.raises(FilterTooComplexError):
        F["n" * 1025]
    with pytest.raises(FilterSyntaxError, match="can have at most 1024 characters"):
        from_json({"exact": {"n" * 1025: 1}})


def test_what_weft_wrote_may_be_longer_than_what_a_user_writes() -> None:
    tree = parse(f"x IN ({','.join(['1e15'] * 12_000)})")
    written = str(tree)
    assert len(written) > LIMITS.text
    assert parse(written) == parse(written, limit=LIMITS.stored_text) == tree
    for changed in (written.replace("(", "( "), written.lower(), written[:-1]):  # not as Weft writes
        with pytest.raises(FilterSyntaxError, match="longer than 65536 bytes"):
            parse(changed)
    with pytest.raises(FilterSyntaxError, match="longer than 65536 bytes"):
        from_json(to_json(tree))
    assert from_json(to_json(tree), limit=LIMITS.stored_text) == tree
    with pytest.raises(FilterSyntaxError, match="longer than 1000 bytes"):
        parse(written, limit=1000)


def test_a_decoded_filter_is_limited_as_its_text_would_be() -> None:
    many = [{"exact": {"a": "b" * 50}}] * 2_000
    with pytest.raises(FilterSyntaxError, match="the filter is longer than 65536 bytes"):
        from_json({"any": many})
    assert from_json({"any": many}, limit=LIMITS.stored_text) is not None
    assert from_json({"any": many[:500]}) is not None


@given(trees(8))
@thorough(80)
def test_no_text_is_longer_than_the_bound(tree: Filter) -> None:
    assert len(str(tree).encode()) <= most_written(tree)


@pytest.fixture
def few_shapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(LIMITS, "shapes", 100_000)
    yield
    assert text_module._held == sum(text_module._sizes.values())


@pytest.mark.usefixtures("few_shapes")
def test_remembered_shapes_are_bounded_in_bytes() -> None:
    rng = random.Random(1)
    for number in range(300):
        size = rng.randrange(1, 40)
        like = " AND s LIKE '%x'" * (number % 3)
        text = " AND ".join(f"unseen{number}_{test} > 5" for test in range(size)) + like
        assert str(parse(text)) == text
        assert str(parse(text)) == text
        assert text_module._held <= 100_000 or len(text_module._sizes) == 1
        assert set(text_module._shapes) | set(text_module._pins) == set(text_module._sizes)


# -- predicates --------------------------------------------------------------------------------------


def test_calls_of_predicates_are_counted_in_what_users_write() -> None:
    text = " OR ".join(f"cidr(ip, '10.0.{n % 256}.{n // 256}/32')" for n in range(LIMITS.calls + 1))
    with pytest.raises(FilterSyntaxError, match="calls predicates more than 512 times"):
        parse(text)
    assert parse(text, limit=LIMITS.stored_text) is not None
    assert parse(text.rpartition(" OR ")[0]) is not None


@pytest.mark.parametrize("end", ["", " ESCAPE '!'"])  # which the grammar reads
def test_tests_with_patterns_are_counted_in_what_users_write(end: str) -> None:
    text = " OR ".join(f"s LIKE 'w{n}%'{end}" for n in range(LIMITS.likes + 1))
    with pytest.raises(FilterSyntaxError, match="more than 1,024 LIKE tests"):
        parse(text)
    assert parse(text, limit=LIMITS.stored_text) is not None
    assert parse(text.rpartition(" OR ")[0]) is not None


def test_a_predicate_looks_at_no_more_than_an_address_or_a_timestamp() -> None:
    with pytest.raises(FilterError, match="at most 64 characters"):
        parse(f"time_like(t, '%{'1_%' * 600}')")
    with pytest.raises(FilterError, match="at most 128 characters"):
        parse(f"cidr(ip, 'fe80::%{'a' * 1_000}/64')")
    before = cidr._address.cache_info()
    for long in ("1." * 500_000, ":" * 1_000_000, f"fe80::1%{'a' * 1_000}"):
        assert not matches(parse("cidr(ip, '::/0')"), {"ip": long})
    assert cidr._address.cache_info() == before
    for n in range(100):  # an address is read once, whatever it is tested with
        assert matches(parse(f"cidr(ip, '10.{n}.0.0/8')"), {"ip": "10.200.0.1"})
    assert cidr._address.cache_info().misses <= before.misses + 1


def test_a_trace_does_not_repeat_a_long_string_for_every_test() -> None:
    tree = parse(" OR ".join(f"s LIKE '%{n}_z%'" for n in range(100)))
    found = trace(tree, {"s": "x" * 500_000, "t": 1})
    told = found.to_dict()
    assert len(str(told)) < 100 * 2_000
    assert told["parts"][0]["values"] == {"s": "x" * 998 + ".."}
    assert found.parts[0].values["s"] == "x" * 500_000
    console = Console(width=100, file=io.StringIO())
    console.print(display.tree(found))
    assert len(console.file.getvalue()) < 100 * 2_000  # type: ignore[attr-defined]
