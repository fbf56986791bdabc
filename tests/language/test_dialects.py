"""Filters as JSON, by example, and what malformed JSON says."""

from __future__ import annotations

import json
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from strategies import KINDS, PREDICATES
from weft import Event, F, Filter, covers, from_json, matches, normalize, overlaps, parse, to_json
from weft.errors import FilterSyntaxError
from weft.language.ast import TRUE, AttributeRef, Is, Like, Not
from weft.language.dialects import DIALECTS

NESTED = {"all": [{"any": [{"exact": {"type": "a"}}, {"sql": "x > 1"}]}, {"not": {"suffix": {"type": "z"}}}]}


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ({"exact": {"type": "order.new"}}, "type = 'order.new'"),
        ({"exact": {"type": "a", "source": "b"}}, "type = 'a' AND source = 'b'"),
        ({"exact": {"n": 5}}, "n = 5"),
        ({"exact": {"n": 5.0}}, "n = 5.0"),
        ({"exact": {"n": True}}, "n = TRUE"),
        ({"exact": {"odd name": "it's"}}, "\"odd name\" = 'it''s'"),
        ({"exact": {"a.b": "c"}}, "a.b = 'c'"),
        ({"prefix": {"type": "order."}}, "type LIKE 'order.%'"),
        ({"suffix": {"type": ".new"}}, "type LIKE '%.new'"),
        ({"prefix": {"type": "50%"}}, "type LIKE '50\\%%' ESCAPE '\\'"),
        ({"suffix": {"type": "a_b\\"}}, "type LIKE '%a\\_b\\\\' ESCAPE '\\'"),
        ({"prefix": {"a": "x", "b": "y"}}, "a LIKE 'x%' AND b LIKE 'y%'"),
        ({"sql": "price < 95 OR NOT active"}, "price < 95 OR NOT active"),
        ({"all": [{"sql": "a"}, {"sql": "b"}]}, "a AND b"),
        ({"any": [{"sql": "a"}, {"sql": "b"}]}, "a OR b"),
        ({"all": [{"sql": "a"}]}, "a"),
        ({"any": [{"all": [{"sql": "a"}, {"sql": "b"}]}, {"sql": "c"}]}, "a AND b OR c"),
        ({"all": [{"exact": {"a": 1, "b": 2}}, {"sql": "c"}]}, "a = 1 AND b = 2 AND c"),
        ({"not": {"sql": "a"}}, "a IS NOT TRUE"),
        ({"not": {"not": {"sql": "a"}}}, "(a IS NOT TRUE) IS NOT TRUE"),
        ([{"sql": "a"}, {"sql": "b"}], "a AND b"),
        ([{"sql": "a"}], "a"),
        (NESTED, "(type = 'a' OR x > 1) AND (type LIKE '%z') IS NOT TRUE"),
    ],
    ids=str,
)
def test_every_dialect(dialect: Any, text: str) -> None:
    assert from_json(dialect) == parse(text)
    assert from_json(json.dumps(dialect)) == parse(text)
    assert from_json(json.dumps(dialect, indent=3)) == parse(text)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("type = 'order.new'", {"exact": {"type": "order.new"}}),
        ("type LIKE 'order.%'", {"prefix": {"type": "order."}}),
        ("type LIKE '%.new'", {"suffix": {"type": ".new"}}),
        ("type LIKE 'a!%%' ESCAPE '!'", {"prefix": {"type": "a%"}}),
        ("type LIKE 'a%%%'", {"prefix": {"type": "a"}}),
        ("type LIKE '%a%'", {"sql": "type LIKE '%a%'"}),
        ("type LIKE '%'", {"sql": "type LIKE '%'"}),
        ("type LIKE 'abc'", {"sql": "type LIKE 'abc'"}),
        ("type LIKE 'a_%'", {"sql": "type LIKE 'a_%'"}),
        ("n = 5", {"sql": "n = 5"}),
        ("n != 'a'", {"sql": "n != 'a'"}),
        ("a AND b", {"all": [{"sql": "a"}, {"sql": "b"}]}),
        ("a OR b = 'c'", {"any": [{"sql": "a"}, {"exact": {"b": "c"}}]}),
        ("a IS NOT TRUE", {"not": {"sql": "a"}}),
        ("(a = 'b') IS NOT TRUE", {"not": {"exact": {"a": "b"}}}),
        ("NOT a = 'b'", {"sql": "NOT a = 'b'"}),
        ("NOT (a AND b)", {"sql": "NOT (a AND b)"}),
        ("(a OR b) IS NULL", {"sql": "(a OR b) IS NULL"}),
        ("TRUE", {"sql": "TRUE"}),
    ],
)
def test_a_filter_is_written_in_the_simplest_dialect_that_says_it(text: str, dialect: object) -> None:
    assert to_json(parse(text)) == dialect
    assert str(from_json(dialect)) == str(parse(text)) or isinstance(parse(text), Like)  # type: ignore[arg-type]


def test_an_empty_string_is_no_value_of_exact() -> None:
    # The specification: the attribute name and value MUST NOT be empty strings.
    assert to_json(parse("type = ''")) == {"sql": "type = ''"}


@pytest.mark.parametrize("dialect", ["exact", "prefix", "suffix"])
def test_an_empty_string_is_refused_as_the_specification_says(dialect: str) -> None:
    with pytest.raises(FilterSyntaxError, match=f"'{dialect}' takes a string of one character or more"):
        from_json({dialect: {"type": ""}})


TIMES = (
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z"),
    *("2018-01-31T23:59:59Z", "2018-02-01T00:00:00Z", "2018-02-01T09:30:00Z", "2018-02-01T09:30:00.000001Z"),
    *("2018-02-01T09:30:00.250000Z", "2018-02-01T09:30:00.259999Z", "2018-02-01T09:30:01Z", "2018-12-31T00:00:00Z"),
)


@pytest.mark.parametrize("dialect", ["prefix", "suffix"])
def test_time_is_compared_with_its_text(dialect: str) -> None:
    """Every start and every end of the texts, and some strings that are neither."""
    pieces = {time[:size] if dialect == "prefix" else time[-size:] for time in TIMES for size in range(1, len(time))}
    pieces |= {"2018-1", "2018-02-3", "2018-13", "20180", "2", "x", "é", "2018-02-01T09:30:00.0000000", ":", "00:00Z"}
    for piece in sorted(pieces):
        wanted = from_json({dialect: {"time": piece}})
        assert parse(str(wanted)) == wanted
        form = normalize(wanted)
        for time in TIMES:
            said = time.startswith(piece) if dialect == "prefix" else time.endswith(piece)
            assert matches(wanted, Event.of(time=time)) is said, (piece, time)
            assert (Event.of(time=time) in form) is said
        assert not matches(wanted, {})


@pytest.mark.parametrize("dialect", ["exact", "prefix", "suffix"])
def test_a_whole_timestamp_is_compared_as_an_instant(dialect: str) -> None:
    for text in ("2018-02-01T09:30:00.250000Z", "2018-02-01T09:30:00.25Z", "2018-02-01t10:30:00.250+01:00"):
        assert from_json({dialect: {"time": text}}) == parse("time = TIMESTAMP '2018-02-01T09:30:00.25Z'")
    with pytest.raises(FilterSyntaxError, match="is not a timestamp"):
        from_json({dialect: {"time": "2018-02-30T09:30:00Z"}})


def test_exact_takes_no_part_of_a_timestamp() -> None:
    with pytest.raises(FilterSyntaxError, match="'2018-02-01' is not an RFC 3339 timestamp"):
        from_json({"exact": {"time": "2018-02-01"}})
    assert str(from_json({"exact": {"sometime": "2018-02-01"}})) == "sometime = '2018-02-01'"


def test_patterns_of_timestamps_cover_and_overlap_soundly() -> None:
    filters = [parse(f"time_like(time, '{pattern}')") for pattern in ("%Z", "%:00Z", "2018-%", "%-02-%", "%", "%.%")]
    hits = [{time for time in TIMES if matches(each, Event.of(time=time))} for each in filters]
    for (one, mine), (other, theirs) in product(zip(filters, hits, strict=True), repeat=2):
        assert not covers(one, other) or mine >= theirs
        assert overlaps(one, other) or not mine & theirs
    assert covers(filters[4], filters[1])


def test_an_empty_list_of_filters_lets_everything_through() -> None:
    # The specification: absence of a filter or empty array implies true; only `all` and `any` need one or more.
    assert from_json("[]") == from_json([]) == TRUE


def test_not_is_two_valued_as_the_specification_has_it() -> None:
    absent = from_json({"not": {"exact": {"type": "a"}}})
    assert absent == Not(Is(F.type == "a", True))
    assert matches(absent, {}) is True
    assert matches(from_json({"not": {"exact": {"kind": "a"}}}), {"kind": 5}) is True
    assert matches(absent, {"type": "a"}) is False
    assert matches(from_json({"sql": "NOT type = 'a'"}), {}) is False


def test_any_mapping_will_do() -> None:
    assert from_json(MappingProxyType({"exact": MappingProxyType({"a": "b"})})) == (F.a == "b")


def test_sql_knows_the_predicates() -> None:
    kind = parse("is_a(kind, 'vehicle')", PREDICATES)
    assert from_json({"sql": "is_a(kind, 'vehicle')"}, PREDICATES) == kind == F.kind.satisfies(KINDS, "vehicle")
    assert from_json(to_json(kind), PREDICATES) == kind
    with pytest.raises(FilterSyntaxError, match="unknown predicate 'is_a'"):
        from_json({"sql": "is_a(kind, 'vehicle')"})


@pytest.mark.parametrize(
    "sql",
    [
        "UPPER(type) = 'A'",
        "LENGTH(type) > 5",
        "CAST(n AS STRING) = 'a'",
        "n + 1 > 5",
        "n * 2 > 5",
        "n % 2 = 0",
        "EXISTS type",
        "a XOR b",
        "INT(n) = 5",
        "ABS(-1) = 1",
        "-n > 5",
    ],
)
def test_functions_casts_and_arithmetic_of_cesql_are_refused_with_a_hint(sql: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json({"sql": sql})
    error = caught.value
    assert error.hint or error.message == "expected a number after the sign"


# Each case: the JSON, a line of dashes, what str(error) says. Cases are separated by an empty line.
GOLDEN = r"""
5
---
a filter must be an object or a list of objects at column 1
  5
  ^

"x"
---
a filter must be an object or a list of objects at column 1
  "x"
  ^

null
---
a filter must be an object or a list of objects at column 1
  null
  ^

{}
---
a filter object has one dialect, not 0 at column 1
  {}
  ^
combine them: {"all": [...]}

{"exact": {"a": 1}, "prefix": {"b": "c"}}
---
a filter object has one dialect, not 2 at column 1
  {"exact": {"a": 1}, "prefix": {"b": "c"}}
  ^
combine them: {"all": [...]}

{"exakt": {"a": 1}}
---
unknown dialect 'exakt' at column 2
  {"exakt": {"a": 1}}
   ^^^^^^^
did you mean 'exact'?

{"foo": 1}
---
unknown dialect 'foo' at column 2
  {"foo": 1}
   ^^^^^
known dialects: exact, prefix, suffix, all, any, not, has, has-any, has-all, sql

{"All": []}
---
unknown dialect 'All' at column 2
  {"All": []}
   ^^^^^
did you mean 'all'?

{"all": []}
---
a list of filters must not be empty at column 2
  {"all": []}
   ^^^^^

{"any": {}}
---
'any' takes a list of filters at column 2
  {"any": {}}
   ^^^^^

{"all": [5]}
---
a filter must be an object or a list of objects at column 10
  {"all": [5]}
           ^

{"all": [{"sql": "x"}, {"exact": {}}]}
---
'exact' takes an object of attributes and values at column 25
  {"all": [{"sql": "x"}, {"exact": {}}]}
                          ^^^^^^^

{"not": []}
---
a list of filters must not be empty at column 2
  {"not": []}
   ^^^^^

{"not": 5}
---
a filter must be an object or a list of objects at column 2
  {"not": 5}
   ^^^^^

{"sql": 5}
---
'sql' takes the text of a filter at column 2
  {"sql": 5}
   ^^^^^

{"exact": []}
---
'exact' takes an object of attributes and values at column 2
  {"exact": []}
   ^^^^^^^

{"exact": {}}
---
'exact' takes an object of attributes and values at column 2
  {"exact": {}}
   ^^^^^^^

{"exact": {"a": null}}
---
'exact' compares with a string, a number or a bool at column 12
  {"exact": {"a": null}}
             ^^^

{"exact": {"a": [1]}}
---
'exact' compares with a string, a number or a bool at column 12
  {"exact": {"a": [1]}}
             ^^^

{"exact": {"a": {"b": 1}}}
---
'exact' compares with a string, a number or a bool at column 12
  {"exact": {"a": {"b": 1}}}
             ^^^

{"exact": {"": 1}}
---
'' cannot name an attribute at column 12
  {"exact": {"": 1}}
             ^^

{"prefix": {"a": ""}}
---
'prefix' takes a string of one character or more at column 13
  {"prefix": {"a": ""}}
              ^^^

{"prefix": {"a": 5}}
---
'prefix' takes a string of one character or more at column 13
  {"prefix": {"a": 5}}
              ^^^

{"suffix": {"a": null}}
---
'suffix' takes a string of one character or more at column 13
  {"suffix": {"a": null}}
              ^^^

{"exact": {"a": 1e999}}
---
the numbers of a filter must be finite; leave the bound out, or test with IS NULL at column 12
  {"exact": {"a": 1e999}}
             ^^^

{"exact": {"a": 9223372036854775808}}
---
9223372036854775808 does not fit in 64 bits; write it as a float, with a decimal point or an exponent at column 12
  {"exact": {"a": 9223372036854775808}}
             ^^^

{"exact": {"a": 1
---
malformed JSON: Expecting ',' delimiter at column 18
  {"exact": {"a": 1
                   ^

{"exact": {"a": 1}} x
---
malformed JSON: Extra data at column 21
  {"exact": {"a": 1}} x
                      ^

{'exact': 1}
---
malformed JSON: Expecting property name enclosed in double quotes at column 2
  {'exact': 1}
   ^

{"exact": {"a": 1},}
---
malformed JSON: Expecting property name enclosed in double quotes at column 20
  {"exact": {"a": 1},}
                     ^

{
  "any": [
    {"exact": {"a": 1}},
    {"prefix": {"b": "x", "c": 5}}
  ]
}
---
'prefix' takes a string of one character or more at line 4, column 27
      {"prefix": {"b": "x", "c": 5}}
                            ^^^

[{"exact": {"a": 1}}, {"sufix": {"a": "b"}}]
---
unknown dialect 'sufix' at column 24
  [{"exact": {"a": 1}}, {"sufix": {"a": "b"}}]
                         ^^^^^^^
did you mean 'suffix'?

{"all": [{"exact": {"a": "]},{"}}, {"exact": {"b": [1]}}]}
---
'exact' compares with a string, a number or a bool at column 47
  …"exact": {"a": "]},{"}}, {"exact": {"b": [1]}}]}
                                       ^^^

{"exact": {"a": "\ud800"}}
---
a string must not contain lone surrogates at column 12
  {"exact": {"a": "\ud800"}}
             ^^^

{"exact": {"\u0061": null}}
---
'exact' compares with a string, a number or a bool at column 12
  {"exact": {"\u0061": null}}
             ^^^^^^^^

{"sql": "x ==", "exact": 1}
---
a filter object has one dialect, not 2 at column 1
  {"sql": "x ==", "exact": 1}
  ^
combine them: {"all": [...]}

{"exact": {"a": 01}}
---
malformed JSON: Expecting ',' delimiter at column 18
  {"exact": {"a": 01}}
                   ^
"""

CASES = [tuple(case.split("\n---\n")) for case in GOLDEN.strip().split("\n\n")]


@pytest.mark.parametrize(("text", "said"), CASES, ids=[text for text, _ in CASES])
def test_malformed_json_says_what_and_where_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(text)
    assert str(caught.value) == said
    assert caught.value.text == text
    assert said.startswith(caught.value.message)


def test_an_error_in_sql_points_into_the_sql_and_says_where_that_is() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json('{"all": [{"sql": "x = 1"}, {"any": [{"sql": "y = 2 AND\\n z =="}]}]}')
    error = caught.value
    assert str(error) == "unknown operator '==' at line 2, column 4\n   z ==\n     ^^\ndid you mean '='?"
    assert error.text == "y = 2 AND\n z =="
    assert error.__notes__ == ["in $.all[1].any[0].sql"]


@pytest.mark.parametrize(
    ("tree", "message", "hint"),
    [
        (5, "a filter must be an object or a list of objects", ""),
        (None, "a filter must be an object or a list of objects", ""),
        (b"{}", "a filter must be an object or a list of objects", ""),
        (({"sql": "x"},), "a filter must be an object or a list of objects", ""),
        ({"all": [{"sql": "x"}, 5]}, "a filter must be an object or a list of objects (in $.all[1])", ""),
        ({"sufix": {}}, "unknown dialect 'sufix' (in $.sufix)", "did you mean 'suffix'?"),
        ({5: 1}, "unknown dialect 5 (in $[5])", f"known dialects: {', '.join(DIALECTS)}"),
        ({"exact": {5: 1}}, "the name of an attribute must be a string (in $.exact[5])", ""),
        ({"exact": {"a": None}}, "'exact' compares with a string, a number or a bool (in $.exact.a)", ""),
        ({"not": {"any": [[{"exact": {"a": b"x"}}]]}},
            "'exact' compares with a string, a number or a bool (in $.not.any[0][0].exact.a)", ""),
        ({"exact": {"a": float("nan")}},
            "NaN equals nothing; use a bool, int, float, str or datetime, or test with IS NULL (in $.exact.a)", ""),
        ({"all": "x"}, "'all' takes a list of filters (in $.all)", ""),
        ({"all": ({"sql": "x"},)}, "'all' takes a list of filters (in $.all)", ""),
    ],
)  # fmt: skip
def test_what_was_decoded_elsewhere_gets_a_path_instead_of_a_place(tree: Any, message: str, hint: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(tree)
    assert (caught.value.message, caught.value.hint, caught.value.text) == (message, hint, "")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"exact": {"a": 1,\n "a": 2}}', (2, 2)),
        ('{"exact": {"a":\n NaN}}', (2, 2)),
        ('[{"sql": "x"},\n {"exact": {"a": Infinity}}]', (2, 18)),
        ('{"exact": {"a":\n ' + "1" * 5000 + "}}", (2, 2)),
    ],
    ids=["repeated key", "NaN", "Infinity", "digits"],
)
def test_what_the_json_decoder_refuses_is_pointed_at(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(text)
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize(
    ("text", "named"),
    [('{"a": 1, "a": 2, "b": NaN}', "NaN"), ('{"a": 1, "a": {"b": 1, "b": 2}}', '"b"')],
)
def test_of_two_faults_the_one_that_is_named_is_pointed_at(text: str, named: str) -> None:
    # The decoder meets an inner fault, and NaN, before it knows that an outer key is repeated.
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(text)
    assert text[caught.value.start : caught.value.end] == named
    assert named.strip('"') in caught.value.message


def test_a_repeated_key_is_refused_at_any_depth() -> None:
    for text in ('{"sql": "x", "sql": "y"}', '{"exact": {"a": 1, "a": 1}}', '[{"all": [{"sql": "x", "sql": "x"}]}]'):
        with pytest.raises(FilterSyntaxError, match=r"an object repeats the key '(sql|a)'"):
            from_json(text)


def test_the_place_is_right_among_tricky_texts() -> None:
    text = '{ "all" : [ {"sql":"x = \'\\"]}\'"} ,\n\t{"exact":{"\\u0061\\"]":"}{][","b,:":[1]} } ] }'
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(text)
    error = caught.value
    assert error.message == "'exact' compares with a string, a number or a bool"
    assert text[error.start : error.end] == '"b,:"'
    assert error.line == 2


def test_depth_is_limited_as_for_texts() -> None:
    def wrapped(times: int, kind: str) -> dict[str, Any]:
        tree: dict[str, Any] = {"sql": "x"}
        for number in range(times):
            other = "any" if kind == "all" and number % 2 else kind
            tree = {other: [tree, {"sql": "y"}]} if kind == "all" else {other: tree}
        return tree

    for kind, most in (("all", 99), ("not", 49)):  # `not` is two levels: IS TRUE and NOT
        deep = from_json(json.dumps(wrapped(most, kind)))
        assert deep.depth == 1 + most * (2 if kind == "not" else 1)
        assert from_json(to_json(deep)) == deep
        for tree in (wrapped(most + 1, kind), wrapped(400, kind), json.dumps(wrapped(150, kind))):
            with pytest.raises(FilterSyntaxError, match="a filter can be nested at most 100 levels deep"):
                from_json(tree)


def test_names_and_values_are_kept_to_the_letter() -> None:
    odd = "\u0000\u202e'\"\\%_\N{GRINNING FACE}"
    for build in (F[odd] == odd, F[odd].startswith(odd), F[odd].endswith(odd)):
        tree: Filter = build
        again = from_json(json.dumps(to_json(tree)))
        for value in (odd, odd + "a", "a" + odd, "a"):
            assert matches(again, {odd: value}) is matches(tree, {odd: value})
    assert to_json(AttributeRef(odd) & (F.x == "a"))["all"][1] == {"exact": {"x": "a"}}


# -- lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"has": {"tags": "rock"}}, "tags HAS 'rock'"),
        ({"has": {"tags": "rock", "x": 5}}, "tags HAS 'rock' AND x HAS 5"),
        ({"has": {"tags": ""}}, "tags HAS ''"),
        ({"has-any": {"tags": ["rock", 1.5, True]}}, "tags HAS ANY ('rock', 1.5, TRUE)"),
        ({"has-all": {"tags": ["rock", "live"]}}, "tags HAS ALL ('rock', 'live')"),
        ({"not": {"has": {"time": "2018"}}}, "(time HAS '2018') IS NOT TRUE"),
    ],
)
def test_lists_have_dialects_of_their_own(tree, text) -> None:
    assert str(from_json(tree)) == text
    assert from_json(to_json(from_json(tree))) == from_json(tree)
    assert "sql" not in json.dumps(to_json(from_json(tree)))


def test_a_timestamp_in_a_list_is_tested_in_sql() -> None:
    wanted = parse("at HAS TIMESTAMP '2018-01-31'")
    assert to_json(wanted) == {"sql": str(wanted)}
    assert from_json(to_json(wanted)) == wanted


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"has": {}}, "'has' takes an object of attributes and values"),
        ({"has": {"tags": ["rock"]}}, "'has' takes strings, numbers and bools"),
        ({"has": {"tags": None}}, "'has' takes strings, numbers and bools"),
        ({"has-any": {"tags": "rock"}}, "'has-any' takes a list of values"),
        ({"has-all": {"tags": []}}, "'has-all' needs at least one value"),
        ({"has": {"": 5}}, "'' cannot name an attribute"),
        ({"hasany": {"tags": ["a"]}}, "unknown dialect 'hasany'"),
    ],
)
def test_dialects_of_lists_that_are_wrong(tree, why) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_json(tree)
    assert str(caught.value).startswith(why)
