"""EventBridge patterns mean what their published rules say: against an evaluator of the rules, written here."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from itertools import product
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import thorough
from weft import covers, from_eventbridge, matches, normalize, parse, to_filter
from weft.algebra.filter_texts import readable
from weft.errors import FilterError, FilterSyntaxError
from weft.index.tree import TreeIndex
from weft.language.any_filter import FilterForm, as_filter, form_of
from weft.language.cidr import Cidr
from weft.language.predicate import Predicates
from weft.model.event import Event
from weft.routing.item_codec import FilterItems

# -- the rules, evaluated on nested JSON --------------------------------------------------------------

MISSING = object()
COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


def looked_up(event: Any, key: str) -> Any:
    return event[key] if isinstance(event, dict) and key in event else MISSING


def rule_matches(pattern: dict[str, Any], event: Any) -> bool:
    """Every key must match; under a key there is a nested pattern or a list of which one must match."""
    for key, wanted in pattern.items():
        if key == "$or":
            if not any(rule_matches(each, event) for each in wanted):
                return False
        elif isinstance(wanted, dict):
            if not rule_matches(wanted, looked_up(event, key)):
                return False
        else:
            value = looked_up(event, key)
            leaf = MISSING if isinstance(value, dict) else value
            if not any(value_matches(each, leaf) for each in wanted):
                return False
    return True


def value_matches(wanted: Any, value: Any) -> bool:
    """One element of a list must match; an empty list is as if the key were missing."""
    if isinstance(value, list):
        return any(value_matches(wanted, each) for each in value or [MISSING])
    if isinstance(wanted, dict):
        ((name, body),) = wanted.items()
        if name == "exists":
            return (value is not MISSING) is body
        return value is not MISSING and named_test_matches(name, body, value)
    return value is not MISSING and same(wanted, value)


def same(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return isinstance(wanted, str) == isinstance(value, str) and wanted == value


def named_test_matches(name: str, body: Any, value: Any) -> bool:
    if name == "anything-but":
        if isinstance(body, dict):
            ((inner, texts),) = body.items()
            return not any(
                named_test_matches(inner, text, value) for text in (texts if isinstance(texts, list) else [texts])
            )
        return not any(same(each, value) for each in (body if isinstance(body, list) else [body]))
    if name == "numeric":
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return all(COMPARE[sign](value, number) for sign, number in zip(body[::2], body[1::2], strict=True))
    if not isinstance(value, str):
        return False
    if name == "cidr":
        try:
            return ip_address(value) in ip_network(body)
        except ValueError:
            return False
    if isinstance(body, dict):  # prefix and suffix that ignore case
        body, value = body["equals-ignore-case"].casefold(), value.casefold()
    if name == "prefix":
        return value.startswith(body)
    if name == "suffix":
        return value.endswith(body)
    if name == "equals-ignore-case":
        return value.casefold() == body.casefold()
    assert name == "wildcard"
    return wildcard_matches(body, value)


def wildcard_matches(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return wildcard_matches(pattern[1:], text) or (bool(text) and wildcard_matches(pattern, text[1:]))
    if pattern[0] == "\\":
        pattern = pattern[1:]
    return bool(text) and text[0] == pattern[0] and wildcard_matches(pattern[1:], text[1:])


# -- random patterns and events over few keys and values ----------------------------------------------

TEXTS = ("", "a", "A", "ab", "Ab", "b%_", "10.0.0.7", "10.1.0.7", "straße", "*", "\\")
NUMBERS = (0, 1, 1.0, 2.5, -3)
VALUES = (*TEXTS, *NUMBERS, True, False)
texts, numbers = st.sampled_from(TEXTS), st.sampled_from(NUMBERS)
wildcards = st.sampled_from(("*", "a*", "*b", "a*b", "*%*", "\\**", "\\\\", "*\\\\*", "", "A*\\*"))
named = {"prefix": texts.filter(bool), "suffix": texts.filter(bool), "equals-ignore-case": texts, "wildcard": wildcards}
tests = st.one_of(
    st.sampled_from(VALUES),
    st.booleans().map(lambda said: {"exists": said}),
    *(values.map(lambda text, name=name: {name: text}) for name, values in named.items()),  # type: ignore[misc]
    st.tuples(st.sampled_from(("prefix", "suffix")), texts.filter(bool)).map(
        lambda pair: {pair[0]: {"equals-ignore-case": pair[1]}}
    ),
    st.tuples(st.sampled_from(("=", "<", "<=", ">", ">=")), numbers).map(lambda pair: {"numeric": list(pair)}),
    st.tuples(st.sampled_from((">", ">=")), numbers, st.sampled_from(("<", "<=")), numbers)
    .filter(lambda bounds: bounds[1] < bounds[3])
    .map(lambda bounds: {"numeric": list(bounds)}),
    st.sampled_from(("10.0.0.0/24", "10.0.0.0/8", "2001:db8::/32")).map(lambda network: {"cidr": network}),
    st.one_of(texts, numbers, st.lists(texts, min_size=1, max_size=3), st.lists(numbers, min_size=1, max_size=3)).map(
        lambda values: {"anything-but": values}
    ),
    *(
        st.one_of(values, st.lists(values, min_size=1, max_size=2)).map(
            lambda some, name=name: {"anything-but": {name: some}}  # type: ignore[misc]
        )
        for name, values in named.items()
    ),
)
lists = st.lists(tests, min_size=1, max_size=3)
leaves = st.dictionaries(st.sampled_from("xyz"), lists, min_size=1, max_size=2)
patterns = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(("d", "e")), inner, min_size=1, max_size=2),
        st.tuples(leaves, st.lists(inner, min_size=2, max_size=3)).map(lambda both: {**both[0], "$or": both[1]}),
        st.tuples(leaves, inner).map(lambda both: {**both[0], "d": both[1]}),
    ),
    max_leaves=4,
)
flat_events = st.dictionaries(
    st.sampled_from("xyz"), st.sampled_from(VALUES) | st.lists(st.sampled_from(VALUES), max_size=3), max_size=3
)
events = st.tuples(flat_events, flat_events, flat_events).map(
    lambda parts: {**parts[0], "d": {**parts[1], "d": parts[2], "e": parts[0]}, "e": parts[2]}
)


def alternatives(pattern: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """The keys that are tested, for each way through the pattern's `$or`."""
    found: list[list[str]] = [[]]
    for key, value in pattern.items():
        if key == "$or":
            parts = [names for each in value for names in alternatives(each, prefix)]
        elif isinstance(value, dict):
            parts = alternatives(value, f"{prefix}{key}.")
        else:
            parts = [[prefix + key]]
        found = [[*names, *more] for names in found for more in parts]
    return found


def repeats_a_key(pattern: dict[str, Any]) -> bool:
    return any(len(set(names)) < len(names) for names in alternatives(pattern))


@given(patterns, st.lists(events, min_size=1, max_size=6))
@thorough(300)
def test_a_filter_matches_what_its_pattern_matches(pattern: dict[str, Any], happened: list[dict[str, Any]]) -> None:
    text = json.dumps(pattern)
    if repeats_a_key(pattern):
        with pytest.raises(FilterSyntaxError, match="is tested twice"):
            from_eventbridge(text)
        return
    wanted = from_eventbridge(text)
    assert wanted == from_eventbridge(pattern)
    assert parse(str(wanted)) == wanted
    form = to_filter(normalize(wanted))
    for event in happened:
        said = rule_matches(pattern, event)
        assert matches(wanted, Event.of(event)) is said, (pattern, event, str(wanted))
        assert matches(form, Event.of(event)) is said


def test_every_single_test_against_every_value() -> None:
    bodies: list[Any] = [*VALUES, {"exists": True}, {"exists": False}]
    bodies += [{name: text} for name in ("prefix", "suffix", "equals-ignore-case") for text in TEXTS if text]
    bodies += [
        {"anything-but": body} for body in ("a", 1, ["a", "ab"], [0, 1], {"prefix": "a"}, {"suffix": ["b", "a"]})
    ]
    bodies += [{"anything-but": {"equals-ignore-case": ["A", "AB"]}}, {"anything-but": {"wildcard": "*b"}}]
    bodies += [{"numeric": ["=", 1]}, {"numeric": [">", 0, "<=", 2.5]}, {"numeric": [">=", 0, "<=", 1]}]
    bodies += [{"cidr": "10.0.0.0/24"}, {"wildcard": "\\\\*"}, {"wildcard": "a*b*"}]
    several: list[Any] = [[], *([one, other] for one, other in product(VALUES, repeat=2))]
    for body, value in product(bodies, (*VALUES, MISSING, *several)):
        event = {} if value is MISSING else {"x": value}
        assert matches(from_eventbridge({"x": [body]}), event) is rule_matches({"x": [body]}, event), (body, value)


PUBLISHED = [  # the rules that are easily got wrong: a pattern, events that match it, and events that do not
    ({"x": [{"anything-but": "a"}]}, [{"x": "b"}, {"x": ""}, {"x": 5}, {"x": True}], [{"x": "a"}, {}, {"y": "b"}]),
    ({"x": [{"anything-but": ["a", "b"]}]}, [{"x": "c"}, {"x": 0}], [{"x": "a"}, {"x": "b"}, {}]),
    ({"x": [{"anything-but": 0}]}, [{"x": 1}, {"x": "0"}, {"x": False}], [{"x": 0}, {"x": 0.0}, {}]),
    ({"x": [{"anything-but": [1, 2]}]}, [{"x": 3}, {"x": "1"}], [{"x": 1.0}, {"x": 2}, {}]),
    ({"x": [{"anything-but": {"prefix": "a"}}]}, [{"x": "ba"}, {"x": ""}, {"x": 12}], [{"x": "ab"}, {}]),
    ({"x": [{"anything-but": {"suffix": ["a", "b"]}}]}, [{"x": "ac"}, {"x": 12}], [{"x": "ca"}, {"x": "b"}, {}]),
    ({"x": [{"anything-but": {"equals-ignore-case": ["a"]}}]}, [{"x": "b"}, {"x": 1}], [{"x": "A"}, {"x": "a"}, {}]),
    ({"x": [{"anything-but": {"wildcard": "a*"}}]}, [{"x": "b"}, {"x": 1}], [{"x": "a"}, {"x": "ab"}, {}]),
    ({"x": [{"anything-but": {"wildcard": ""}}]}, [{"x": "a"}, {"x": 1}], [{"x": ""}, {}]),
    ({"x": [{"prefix": {"equals-ignore-case": "A"}}]}, [{"x": "ab"}, {"x": "AB"}], [{"x": "ba"}, {}]),
    ({"x": [{"equals-ignore-case": ""}]}, [{"x": ""}], [{"x": "a"}, {}]),
    ({"x": [""]}, [{"x": ""}], [{"x": " "}, {"x": 0}, {}]),
    ({"x": [{"wildcard": "*"}]}, [{"x": ""}, {"x": "a"}], [{"x": 1}, {}]),
    ({"x": [{"wildcard": "a\\*b"}]}, [{"x": "a*b"}], [{"x": "axb"}, {"x": "a\\b"}]),
    ({"x": [{"wildcard": "a\\\\*"}]}, [{"x": "a\\"}, {"x": "a\\b"}], [{"x": "a*"}]),
    ({"x": [5]}, [{"x": 5}, {"x": 5.0}], [{"x": "5"}, {"x": 5.1}, {}]),
    ({"x": ["5"]}, [{"x": "5"}], [{"x": 5}]),
    ({"x": [True]}, [{"x": True}], [{"x": 1}, {"x": "true"}, {"x": False}]),
    ({"x": [{"numeric": ["=", 3.018e2]}]}, [{"x": 301.8}], [{"x": "301.8"}, {"x": 301}]),
    ({"x": [{"numeric": [">", 0, "<=", 5]}]}, [{"x": 5}, {"x": 0.1}], [{"x": 0}, {"x": 5.1}, {"x": True}, {}]),
    ({"x": [{"exists": True}]}, [{"x": ""}, {"x": False}], [{}, {"x": {"y": 1}}]),
    ({"x": [{"exists": False}]}, [{}, {"x": {"y": 1}}, {"y": 1}], [{"x": ""}, {"x": 0}]),
    ({"x": [{"exists": False}, "a"]}, [{}, {"x": "a"}], [{"x": "b"}]),
    ({"d": {"x": [{"exists": False}]}}, [{}, {"d": 5}, {"d": {"y": 1}}], [{"d": {"x": 1}}]),
    ({"d": {"x": ["a"]}}, [{"d": {"x": "a"}}, {"d.x": "a"}], [{"x": "a"}, {"d": "a"}, {"D": {"x": "a"}}]),
    ({"x": [{"cidr": "10.0.0.0/24"}]}, [{"x": "10.0.0.0"}, {"x": "10.0.0.255"}], [{"x": "10.0.1.0"}, {"x": 10}, {}]),
    ({"x": [{"cidr": "2001:db8::/32"}]}, [{"x": "2001:db8::1"}], [{"x": "2001:db9::1"}, {"x": "10.0.0.1"}]),
    (
        {"a": [1], "$or": [{"b": [1]}, {"c": [1], "d": {"$or": [{"e": [1]}, {"f": [{"exists": False}]}]}}]},
        [{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": 1, "c": 1, "d": {"e": 1, "f": 1}}],
        [{"b": 1}, {"a": 1}, {"a": 1, "c": 1, "d": {"f": 1}}],
    ),
    ({"$or": [{"a": [1]}, {"a": [2]}]}, [{"a": 1}, {"a": 2}], [{"a": 3}, {}]),
    ({"x": [{"prefix": "a"}]}, [{"x": ["b", "ab"]}], [{"x": ["ba"]}, {"x": []}]),
    ({"x": [{"suffix": "a"}]}, [{"x": ["b", "ba"]}], [{"x": ["ab"]}, {"x": []}]),
    ({"x": [{"wildcard": "a*c"}]}, [{"x": ["b", "abc"]}], [{"x": ["a", "c"]}]),
    ({"x": [{"equals-ignore-case": "A"}]}, [{"x": ["b", "a"]}], [{"x": ["ab"]}]),
    ({"x": [{"numeric": [">", 0, "<=", 5]}]}, [{"x": [9, 5]}], [{"x": [0, 6]}, {"x": []}]),
    ({"x": [{"cidr": "10.0.0.0/24"}]}, [{"x": ["a", "10.0.0.7"]}], [{"x": ["10.0.1.7", 10]}]),
    ({"x": [{"anything-but": "a"}]}, [{"x": ["a", "b"]}, {"x": ["a", 1]}], [{"x": ["a"]}, {"x": []}]),
    ({"x": [{"anything-but": {"prefix": ["a", "b"]}}]}, [{"x": ["ab", "c"]}], [{"x": ["ab", "ba"]}, {"x": []}]),
    ({"x": [{"exists": True}]}, [{"x": [""]}], [{"x": []}]),
    ({"x": [{"exists": False}]}, [{"x": []}], [{"x": [""]}, {"x": ["a", 1]}]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), PUBLISHED)
def test_the_published_rules(pattern: dict[str, Any], good: list[dict[str, Any]], bad: list[dict[str, Any]]) -> None:
    wanted = from_eventbridge(pattern)
    assert all(matches(wanted, event) and rule_matches(pattern, event) for event in good if "d.x" not in event)
    assert all(matches(wanted, event) for event in good)
    assert not any(matches(wanted, event) or rule_matches(pattern, event) for event in bad)


def test_null_in_an_event_is_as_if_the_key_were_missing() -> None:
    """What differs from EventBridge, as the guide says."""
    assert not matches(from_eventbridge({"x": [{"anything-but": "a"}]}), {"x": None})
    assert matches(from_eventbridge({"x": [{"exists": False}]}), {"x": None})


# -- what it becomes, and what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"source": ["aws.ec2"]}, "source = 'aws.ec2'"),
        ({"source": ["a", "b"], "detail": {"n": [5]}}, "source IN ('a', 'b') AND detail.n HAS 5"),
        ({"x": [{"prefix": "a"}, {"suffix": "b"}]}, "x HAS LIKE 'a%' OR x HAS LIKE '%b'"),
        ({"x": [{"prefix": {"equals-ignore-case": "a"}}]}, "x HAS ILIKE 'a%'"),
        ({"x": [{"equals-ignore-case": "Straße"}]}, "x HAS ILIKE 'Straße'"),
        ({"x": [{"numeric": [">=", 0, "<=", 5]}]}, "x HAS BETWEEN 0 AND 5"),
        ({"x": [{"exists": False}]}, "(x HAS IS NOT NULL) IS NOT TRUE"),
        ({"x": [{"anything-but": "a"}]}, "x HAS ((= 'a') IS NOT TRUE)"),
        ({"ip": [{"cidr": "10.0.0.0/8"}]}, "ip HAS cidr('10.0.0.0/8')"),
        ({"$or": [{"a": [1]}, {"b": [2]}]}, "a HAS 1 OR b HAS 2"),
        ({"d": {"$or": [{"a": [1]}, {"b": [2]}], "c": [3]}}, "(d.a HAS 1 OR d.b HAS 2) AND d.c HAS 3"),
        ({"x": [{"wildcard": "a*%"}]}, "x HAS LIKE 'a%\\%' ESCAPE '\\'"),
        (
            {"time": [{"prefix": "2017-10-02"}]},
            "time BETWEEN TIMESTAMP '2017-10-02T00:00:00Z' AND TIMESTAMP '2017-10-02T23:59:59.999999Z'",
        ),
        ({"time": ["2017-10-02T01:00:00+01:00"]}, "time = TIMESTAMP '2017-10-02T00:00:00Z'"),
        ({"time": [{"wildcard": "*:00Z"}]}, "time_like(time, '%:00Z')"),
        (
            {"time": [{"anything-but": "2017-10-02T00:00:00Z"}]},
            "time IS NOT NULL AND (time = TIMESTAMP '2017-10-02T00:00:00Z') IS NOT TRUE",
        ),
    ],
)
def test_patterns_as_text(pattern: dict[str, Any], text: str) -> None:
    assert str(from_eventbridge(pattern)) == text
    assert parse(text) == from_eventbridge(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[]", "an event pattern must be an object"),
        ("{}", "an object in an event pattern must not be empty"),
        ('{"a": {}}', "an object in an event pattern must not be empty"),
        ('{"a": []}', "a list of values must not be empty"),
        ('{"a": "b"}', "a key takes a list of values or an object"),
        ('{"": ["b"]}', "the name of an attribute must be a string of one character or more"),
        ('{"a": [null]}', "null cannot be distinguished from an absent attribute"),
        ('{"a": [["b"]]}', "a value must be a string, a number, true or false"),
        ('{"a": [{"prefix": "b", "suffix": "c"}]}', "a test has one name, not 2"),
        ('{"a": [{"contains": "b"}]}', "unknown test 'contains'"),
        ('{"a": [{"exists": "yes"}]}', "'exists' takes true or false"),
        ('{"a": [{"prefix": 5}]}', "'prefix' takes a string"),
        ('{"a": [{"prefix": {"suffix": "x"}}]}', "'prefix' takes a string, or an object with 'equals-ignore-case'"),
        ('{"a": [{"cidr": "10.0.0.0/40"}]}', "'10.0.0.0/40' is not a network"),
        ('{"a": [{"anything-but": []}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": [1, "b"]}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": {"numeric": ["=", 1]}}]}', "'anything-but' does not take 'numeric'"),
        ('{"a": [{"anything-but": {"prefix": []}}]}', "a list of values must not be empty"),
        ('{"a": [{"numeric": ["="]}]}', "'numeric' takes a list of one or two operators, each with a number"),
        ('{"a": [{"numeric": ["=", "5"]}]}', "'numeric' compares with numbers"),
        ('{"a": [{"numeric": ["<", 5, ">", 0]}]}', "'numeric' takes =, <, <=, > or >=, or a lower"),
        ('{"a": [{"numeric": [">", 5, "<", 5]}]}', "the lower bound of 'numeric' must be less than the upper one"),
        ('{"a": [{"wildcard": "a**"}]}', "'wildcard' does not take two '*' in a row"),
        ('{"a": [{"wildcard": "a\\\\"}]}', "in 'wildcard', a backslash can only escape '*' and itself"),
        ('{"a": [{"anything-but": null}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": ["b", null]}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": true}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": [[1]]}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"prefix": ""}]}', "'prefix' takes a string of one character or more"),
        ('{"a": [{"suffix": ""}]}', "'suffix' takes a string of one character or more"),
        ('{"a": [{"prefix": {"equals-ignore-case": ""}}]}', "'prefix' takes a string of one character or more"),
        ('{"a": [{"anything-but": {"prefix": ""}}]}', "'prefix' in 'anything-but' takes strings of one character"),
        (
            '{"a": [{"anything-but": {"suffix": ["b", ""]}}]}',
            "'suffix' in 'anything-but' takes strings of one character",
        ),
        (
            '{"a": [{"anything-but": {"prefix": {"equals-ignore-case": "b"}}}]}',
            "'prefix' in 'anything-but' takes strings",
        ),
        (
            '{"a": [{"anything-but": {"suffix": {"equals-ignore-case": "b"}}}]}',
            "'suffix' in 'anything-but' takes strings",
        ),
        ('{"a": [{"anything-but": {"prefix": 5}}]}', "'prefix' in 'anything-but' takes strings"),
        (
            '{"a": [{"anything-but": {"equals-ignore-case": null}}]}',
            "'equals-ignore-case' in 'anything-but' takes strings",
        ),
        (
            '{"a": [{"anything-but": {"equals-ignore-case": [5]}}]}',
            "'equals-ignore-case' in 'anything-but' takes strings",
        ),
        ('{"a": [{"anything-but": {"wildcard": [["b*"]]}}]}', "'wildcard' in 'anything-but' takes strings"),
        ('{"a": [{"anything-but": {"wildcard": "b**"}}]}', "'wildcard' does not take two '*' in a row"),
        ('{"a": [{"anything-but": [{"wildcard": "b*"}]}]}', "'anything-but' takes strings or numbers, and not both"),
        ('{"a": [{"anything-but": {"exists": true}}]}', "'anything-but' does not take 'exists'"),
        ('{"a": [{"anything-but": {}}]}', "a test has one name, not 0"),
        ('{"a": [{"equals-ignore-case": ["b"]}]}', "'equals-ignore-case' takes a string"),
        ('{"a": [{"prefix": ["b"]}]}', "'prefix' takes a string"),
        ('{"a": [{"suffix": {"wildcard": "b"}}]}', "'suffix' takes a string, or an object with 'equals-ignore-case'"),
        ('{"a": [{"Prefix": "b"}]}', "unknown test 'Prefix'"),
        ('{"a": [{"numeric": [">", 0, "<", 5, "<", 7]}]}', "'numeric' takes a list of one or two operators"),
        ('{"a": [{"numeric": ["=", 0, "<", 5]}]}', "'numeric' takes =, <, <=, > or >=, or a lower"),
        ('{"a": [{"numeric": ["!=", 0]}]}', "'numeric' takes =, <, <=, > or >=, or a lower"),
        ('{"a": [{"numeric": ["=", true]}]}', "'numeric' compares with numbers"),
        ('{"a": [{"cidr": "10.0.0.0"}]}', "'cidr' takes an address, a slash and fewer bits"),
        ('{"a": [{"cidr": "10.0.0.7/32"}]}', "'cidr' takes an address, a slash and fewer bits"),
        ('{"a": [{"cidr": "::1/128"}]}', "'cidr' takes an address, a slash and fewer bits"),
        ('{"a": [{"cidr": "10.0.0.0/255.0.0.0"}]}', "'cidr' takes an address, a slash and fewer bits"),
        ('{"a": [{"cidr": "10.0.0.7/24"}]}', "the address of the network '10.0.0.7/24' must be its first"),
        ('{"a": [{"cidr": "bad-/64filter"}]}', "'bad-/64filter' is not a network"),
        ('{"a": 5}', "a key takes a list of values or an object"),
        ('{"a": [1], "$or": [{"a": [2]}, {"b": [3]}]}', "'a' is tested twice"),
        ('{"$or": [{"a": [2]}, {"b": [3]}], "a": [1]}', "'a' is tested twice"),
        ('{"a": {"b": [1]}, "a.b": [2]}', "'a.b' is tested twice"),
        ('{"$or": [{"prefix": ["a"]}, {"b": [1]}]}', "'prefix' cannot be the name of an attribute inside '$or'"),
        ('{"$or": [{"a": {"numeric": [1]}}, {"b": [1]}]}', "'numeric' cannot be the name of an attribute inside '$or'"),
        ('{"$or": [{"a": [1]}]}', "'$or' takes a list of two or more objects"),
        ('{"$or": {"a": [1]}}', "'$or' takes a list of two or more objects"),
        ('{"a": [1], "a": [2]}', "an object repeats the key 'a'"),
        ('{"time": ["yesterday"]}', "'yesterday' is not an RFC 3339 timestamp"),
        ('{"a": [1e999]}', "the numbers of a filter must be finite"),
    ],
)
def test_what_the_language_cannot_say_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        from_eventbridge(pattern)
    assert message in caught.value.message
    assert caught.value.text == pattern


def test_an_error_in_a_decoded_pattern_names_the_path() -> None:
    with pytest.raises(FilterSyntaxError, match=r"in \$\.detail\.\$or\[1\]\.state\[0\]\.prefix"):
        from_eventbridge({"detail": {"$or": [{"a": [1]}, {"state": [{"prefix": 5}]}]}})


def test_a_pattern_is_limited_as_other_filters_are() -> None:
    with pytest.raises(FilterError, match="longer than"):
        from_eventbridge({"a": ["x" * 70_000]})
    with pytest.raises(FilterError, match="longer than"):
        from_eventbridge({"a": [{"anything-but": ["x" * 70_000]}]})
    deep: dict[str, Any] = {"a": [1]}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(FilterError, match="nested at most"):
        from_eventbridge(deep)


@pytest.mark.parametrize(
    ("source", "form"),
    [
        ("x > 5", FilterForm.TEXT),
        ("-- a comment\nx > 5", FilterForm.TEXT),
        ('{"exact": {"type": "a"}}', FilterForm.JSON),
        ('[{"exact": {"type": "a"}}]', FilterForm.JSON),
        ('{"all": [{"sql": "x"}]}', FilterForm.JSON),
        ('{"exat": {"type": "a"}}', FilterForm.JSON),
        ('{"type": ["a"]}', FilterForm.EVENTBRIDGE),
        ('{"source": "wrong", "detail": {"x": [1]}}', FilterForm.EVENTBRIDGE),
        ('{"$or": [{"a": [1]}, {"b": [1]}]}', FilterForm.EVENTBRIDGE),
        ({"detail": {"deep": {"x": [1]}}}, FilterForm.EVENTBRIDGE),
        ('{"type": [', FilterForm.JSON),
    ],
)
def test_the_form_of_a_filter_is_told_from_the_filter(source: Any, form: FilterForm) -> None:
    assert form_of(source) is form


def test_any_form_is_read() -> None:
    assert as_filter("x = 'a'") == as_filter('{"exact": {"x": "a"}}') == parse("x = 'a'")
    assert as_filter('{"x": ["a"]}') == parse("x HAS 'a'")


# -- the predicates that come with it -----------------------------------------------------------------


def test_networks_cover_and_overlap_as_sets_of_addresses() -> None:
    networks = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "11.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32")
    addresses = ("10.0.0.1", "10.1.2.3", "10.1.9.9", "11.0.0.1", "::1", "2001:db8::7", "not an address")
    found = {n: {a for a in addresses if matches(parse(f"cidr(x, '{n}')"), {"x": a})} for n in networks}
    assert found["0.0.0.0/0"] == set(addresses[:4])
    for one, other in product(networks, repeat=2):
        wide, narrow = parse(f"cidr(x, '{one}')"), parse(f"cidr(x, '{other}')")
        assert covers(wide, narrow) is (found[one] >= found[other])


def test_a_network_is_checked_at_birth_and_a_value_is_not() -> None:
    with pytest.raises(FilterSyntaxError, match=r"'10\.0\.0\.0/33' is not a network"):
        parse("cidr(x, '10.0.0.0/33')")
    with pytest.raises(FilterSyntaxError, match="cidr takes an attribute and one network"):
        parse("cidr(x, 5)")
    assert not matches(parse("cidr(x, '10.0.0.0/8')"), {"x": "10.0.0.300"})
    assert not matches(parse("NOT cidr(x, '10.0.0.0/8')"), {"x": 5})


def test_the_built_in_predicates_are_known_wherever_filters_are_read(tmp_path: Path) -> None:
    texts = [
        "cidr(x, '10.0.0.0/8')",
        '{"x": [{"cidr": "10.1.0.0/16"}]}',
        "NOT cidr(x, '10.0.0.0/8')",
        "time_like(t, '%Z')",
    ]
    found = readable(texts)
    assert not found.refused
    index = TreeIndex(tail=0)
    index.add_boxes(np.arange(len(texts)), found.columns)
    index.snapshot(tmp_path / "index")
    for each in (index, TreeIndex.open(tmp_path / "index")):
        assert sorted(each.match({"x": "10.1.2.3"}).tolist()) == [0, 1]
        assert sorted(each.match({"x": "11.1.2.3"}).tolist()) == [2]
        assert sorted(each.match({"t": datetime(2018, 2, 1, tzinfo=UTC)}).tolist()) == [3]
    codec = FilterItems()
    assert codec.decode(codec.encode(parse(texts[0]))) == parse(texts[0])
    assert pickle.loads(pickle.dumps(parse(texts[0]))) == parse(texts[0])


def test_a_predicate_of_the_user_comes_before_a_built_in_one() -> None:
    class Own(Cidr):
        def matches(self, value: object, arguments: tuple[object, ...]) -> bool:
            return True

    assert matches(parse("cidr(x, '10.0.0.0/8')", Predicates([Own()])), {"x": "anything"})


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ({"resources": ["arn:1"]}, True),
        ({"resources": ["arn:3", "arn:2"]}, True),
        ({"resources": ["arn:3"]}, False),
        ({"detail": {"codes": [2]}}, True),
        ({"detail": {"codes": ["2"]}}, False),
        ({"resources": [{"exists": True}], "source": ["aws.ec2"]}, True),
        ({"resources": [{"exists": False}]}, False),
        ({"detail": {"state": ["running"], "codes": [1, 5]}}, True),
    ],
)
def test_a_genuine_event_with_lists_is_matched_as_in_eventbridge(pattern, matched):
    event = {
        "version": "0",
        "id": "6a7e8feb",
        "detail-type": "EC2 Instance State-change Notification",
        "source": "aws.ec2",
        "account": "111122223333",
        "time": "2017-12-22T18:43:48Z",
        "region": "us-west-1",
        "resources": ["arn:1", "arn:2"],
        "detail": {"state": "running", "codes": [1, 2.0]},
    }
    assert matches(from_eventbridge(pattern), event) is matched
