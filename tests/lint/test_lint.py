"""Lint says nothing that an event could contradict, and says it of parts as of the whole."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import datetime
from itertools import product

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measured_work import measured
from strategies import EVENTS, PREDICATES, filters, thorough
from weft import Schema, matches, parse
from weft.errors import EventError
from weft.language.ast import attributes
from weft.lint import LintKind, SeenAttributes, lint_filters
from weft.lint.lint_counts import LintCounts, lint_counts
from weft.lint.lint_report import report_of
from weft.lint.name_hint import KnownNames, edits, nearest_name
from weft.lint.tree_problems import tree_problems
from weft.model.limits import LIMITS
from weft.model.value import Type, type_of


def kinds(event) -> dict[str, Type]:
    return {name: kind for name, value in event.items() if (kind := type_of(value)) is not None}


def like_these(event, seen: SeenAttributes) -> bool:
    lists = {name: value for name, value in event.items() if isinstance(value, list)}
    values = kinds(event).items()
    return all(name in seen and name not in seen.lists and kind in seen[name] for name, kind in values) and all(
        name in seen and {*map(type_of, value)} <= seen[name] for name, value in lists.items()
    )


# -- laws --------------------------------------------------------------------------------------------


@given(st.lists(filters(), min_size=1, max_size=6), st.sets(st.sampled_from(range(len(EVENTS))), max_size=4))
@thorough(60)
def test_no_event_like_those_seen_contradicts_a_finding(given_filters, chosen):
    seen = SeenAttributes.of_events([EVENTS[at] for at in sorted(chosen)])
    report = lint_filters(enumerate(given_filters), events=seen)
    alike = [event for event in EVENTS if like_these(event, seen)]
    dead = 0
    for each in given_filters:
        found = tree_problems(each, seen)
        unknown = {problem.key.attribute for problem in found.problems if problem.key.kind == "unknown_attribute"}
        assert unknown == {name for name in attributes(each) if name not in seen}
        if found.dead:
            dead += 1
            assert not any(matches(each, event) for event in alike)
    assert report.dead >= dead
    for finding in report.of("never_true"):
        assert not any(matches(given_filters[at], event) for at in finding.ids for event in EVENTS)
    for finding in report.of("always_true"):
        assert all(matches(given_filters[at], event) for at in finding.ids for event in EVENTS)
    for finding in report.of("duplicate"):
        first, *others = finding.ids
        for event in EVENTS:
            assert len({matches(given_filters[at], event) for at in finding.ids}) == 1, (first, others)


@given(st.lists(filters(4), max_size=12), st.integers(0, 12))
@thorough(40)
def test_parts_merged_are_the_whole(given_filters, cut):
    seen = SeenAttributes.of_events(EVENTS[:3])
    ids = list(range(len(given_filters)))
    whole = lint_counts(ids, given_filters, seen, None, PREDICATES)
    parts = [
        lint_counts(ids[part], given_filters[part], seen, None, PREDICATES) for part in (slice(cut), slice(cut, None))
    ]
    merged = LintCounts.merged([pickle.loads(pickle.dumps(part)) for part in parts])
    assert report_of(merged, seen, PREDICATES) == report_of(whole, seen, PREDICATES)


@given(st.lists(filters(4), max_size=8))
@thorough(30)
def test_texts_and_trees_are_told_the_same(given_filters):
    seen = SeenAttributes.of_events(EVENTS[:3])
    trees = lint_filters(enumerate(given_filters), events=seen, predicates=PREDICATES)
    assert trees == lint_filters(enumerate(map(str, given_filters)), events=seen, predicates=PREDICATES)


@given(st.text("abc", max_size=5), st.text("abc", max_size=5), st.integers(0, 5))
@thorough(300)
def test_edits_are_a_bounded_distance(one, other, most):
    found = edits(one, other, most)
    assert found == edits(other, one, most)
    assert (found == 0) == (one == other)
    assert abs(len(one) - len(other)) <= found or found == most + 1
    assert found <= max(len(one), len(other)) or found == most + 1


def _all_edits(one, other):
    """The distance by the definition, without a bound."""
    rows = [[i + j for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, j in product(range(1, len(one) + 1), range(1, len(other) + 1)):
        rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (one[i - 1] != other[j - 1]))
        if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
            rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@given(st.text("abc", max_size=7), st.text("abc", max_size=7), st.integers(0, 5))
@thorough(300)
def test_edits_are_those_of_the_definition(one, other, most):
    assert edits(one, other, most) == min(_all_edits(one, other), most + 1)


@given(st.text("abA.", min_size=1, max_size=7), st.lists(st.text("abA.", min_size=1, max_size=7), max_size=8))
@thorough(300)
def test_hints_are_those_of_a_search_through_all_names(word, known):
    """Case first, then paths, then the fewest edits; of several names the first."""
    names, folded = sorted(known), word.casefold()
    most = min(max(1, len(word) // 4), len(word) - 1)
    same = [name for name in names if name.casefold() == folded]
    paths = [name for name in names if name.endswith(f".{word}") or word.endswith(f".{name}")]
    near = [(_all_edits(folded, name.casefold()), name) for name in names]
    close = [name for distance, name in sorted(near) if distance <= most]
    assert nearest_name(word, known) == next(iter([*same, *paths, *close]), None)


@pytest.mark.parametrize("length", [10, 250, 1_000])
def test_a_hint_costs_no_comparison_with_every_name(length):
    """Neither of names that differ in length or letters, nor of thousands that hardly differ."""
    apart = KnownNames(f"{chr(97 + n % 26) * length}.{n}" for n in range(3_000))
    alike = KnownNames(f"{'a' * (length - 6)}_{n:05d}" for n in range(3_000))
    for known in (apart, alike):
        _, _, lines = measured(lambda known=known: known.nearest("a" * (length - 8) + "_zzzzyyy"))
        assert lines < 600_000


# -- sentences ---------------------------------------------------------------------------------------

SEEN = [{"x": 1.5, "n": 3, "s": "a", "yes": True, "time": "2018-02-01", "at": {"place": "here"}}]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("xx > 5", "unknown_attribute", "no event has 'xx'; did you mean 'x'?"),
        ("place = 'a'", "unknown_attribute", "no event has 'place'; did you mean 'at.place'?"),
        ("Yes", "unknown_attribute", "no event has 'Yes'; did you mean 'yes'?"),
        ("altitude > 5", "unknown_attribute", "no event has 'altitude'"),
        ("missing IS NULL", "unknown_attribute", "no event has 'missing'"),
        ("s > 5", "unlike_types", "'s' is a string, but is compared with a number; write '5'"),
        ("x = '5.5'", "unlike_types", "'x' is a float, but is compared with a string; write 5.5"),
        ("n = 'five'", "unlike_types", "'n' is an int, but is compared with a string"),
        (
            "time > '2018-02-01'",
            "unlike_types",
            "'time' is a timestamp, but is compared with a string; write TIMESTAMP '2018-02-01'",
        ),
        ("time > 'soon'", "unlike_types", "'time' is a timestamp, but is compared with a string"),
        (
            "NOT time BETWEEN '2018-02-01' AND '2018-02-02'",
            "unlike_types",
            "'time' is a timestamp, but is compared with a string; write TIMESTAMP '2018-02-01'",
        ),
        ("yes = 'true'", "unlike_types", "'yes' is a bool, but is compared with a string; write TRUE"),
        ("n", "unlike_types", "'n' is an int, not a bool; compare it with a value"),
        ("n LIKE '1%'", "unlike_types", "'n' is an int, but is compared with a string"),
        ("n IN ('1', '2')", "unlike_types", "'n' is an int, but is compared with a string; write 1"),
        ("x > s", "unlike_types", "'x' is a float, but is compared with 's', which is a string"),
        ("x > 5 AND x < 3", "never_true", ""),
        ("x IS NULL OR x IS NOT NULL", "always_true", ""),
        ("n IN (1, '1')", None, ""),
        ("x > n AND s LIKE 'a%' AND yes", None, ""),
        ("x IS NULL AND s != 'b'", None, ""),
    ],
)
def test_each_mistake_has_its_sentence(text, kind, message):
    report = lint_filters([("rule", text)], events=SEEN)
    if kind is None:
        assert report.clean
        return
    (found,) = report.findings
    assert (found.kind, found.message, found.count, found.ids) == (kind, message, 1, ("rule",))
    assert found.texts == (text,)
    assert report.counts == {LintKind(kind): 1}


def test_text_that_is_not_a_filter_is_a_finding():
    report = lint_filters([(1, "x =>"), (2, "x > 1")])
    (found,) = report.findings
    assert (found.kind, found.ids, report.filters) == ("invalid", (1,), 2)
    assert "unknown operator" in found.texts[0]
    assert not report.clean


def test_no_filters_at_all_is_said():
    report = lint_filters([])
    assert not report.clean
    assert list(report.lines()) == ["there are no filters"]
    assert report.notes() == ["there are no subscriptions, so nothing can match"]


def test_mistakes_are_gathered_and_the_worst_come_first():
    pairs = [*((f"a{n}", f"xx > {n}") for n in range(5)), ("b", "xy = 1"), ("c", "FALSE"), ("d", "xx > 1 OR x > 1")]
    report = lint_filters(pairs, events=SEEN)
    assert [(found.kind, found.count) for found in report.findings] == [
        ("unknown_attribute", 6),
        ("unknown_attribute", 1),
        ("never_true", 1),
    ]
    assert report.counts == {LintKind.UNKNOWN_ATTRIBUTE: 7, LintKind.NEVER_TRUE: 1}
    assert report.dead == 7  # the last one can still match by its other half
    assert report.findings[0].ids == ("a0", "a1", "a2", "a3", "a4", "d")
    assert list(report.lines())[:5] == [
        "7 filters name attributes that no event has",
        "  no event has 'xx'; did you mean 'x'? (6 filters)",
        "    a0: xx > 0",
        "    a1: xx > 1",
        "    a2: xx > 2",
    ]
    assert report.notes()[0] == (
        "7 filters name attributes that no event has, such as a0: xx > 0 (no event has 'xx'; did you mean 'x'?)"
    )
    assert report.to_dict()["counts"] == {"unknown_attribute": 7, "never_true": 1}


def test_duplicates_are_those_of_equal_normal_form():
    texts = ["x > 5", "NOT x <= 5", "5 < x", "x > 5.0 AND x > 1", "x >= 5", "s IN ('a', 'b')", "s = 'b' OR s = 'a'"]
    report = lint_filters(enumerate(texts))
    assert [found.ids for found in report.of("duplicate")] == [(0, 1, 2, 3), (5, 6)]
    assert report.counts == {LintKind.DUPLICATE: 4}


def test_a_schema_knows_types_and_whole_numbers():
    schema = Schema.of(n="int", s="string")
    assert lint_filters([(1, "n > 4 AND n < 5")]).clean
    assert lint_filters([(1, "n > 4 AND n < 5")], schema).counts == {LintKind.NEVER_TRUE: 1}
    assert lint_filters([(1, "n > 4"), (2, "n >= 5")], schema).counts == {LintKind.DUPLICATE: 1}
    report = lint_filters([(1, "s > 5"), (2, "nn = 1"), (3, "time > TIMESTAMP '2018-01-01'")], schema)
    assert report.counts == {LintKind.UNKNOWN_ATTRIBUTE: 1, LintKind.UNLIKE_TYPES: 1}
    assert list(report.lines())[:2] == [
        "1 filter names attributes that are not in the schema",
        "  'nn' is not in the schema; did you mean 'n'?",
    ]


def test_events_may_be_a_table():
    table = pa.table({"x": [1.5, None], "nothing": pa.nulls(2), "tags": [["a"], []]})
    report = lint_filters([(1, "x > 1"), (2, "nothing = 1"), (3, "tags = 'a'")], events=table)
    assert Counter(found.attribute for found in report.findings) == {"nothing": 1, "tags": 1}


def test_events_may_be_a_frame_or_one_event():
    frame = pd.DataFrame({"x": [1.5, 2.5], "when": pd.to_datetime(["2018-01-01", "2018-01-02"])})
    for events in (
        frame,
        pl.DataFrame({"x": [1.5], "when": [datetime(2018, 1, 1)]}),
        {"x": 1, "when": datetime(2018, 1, 1)},
    ):
        report = lint_filters([(1, "x > 1"), (2, "y = 1"), (3, "when > TIMESTAMP '2018-01-01'")], events=events)
        assert [found.attribute for found in report.findings] == ["y"]


def test_events_of_which_none_can_be_read_are_an_error():
    assert lint_filters([(1, "x > 1")], events=[{"x": [1]}, {"x": 2}]).clean
    with pytest.raises(EventError):
        lint_filters([(1, "x > 1")], events=["x", "y"])


def test_a_tree_larger_than_a_text_may_be_is_looked_at_all_the_same():
    many = " OR ".join(f"s = '{'a' * 400}{n:04}'" for n in range(200))
    tree = parse(many[: many.index(" OR ")])
    for start in range(0, 200, 50):
        tree = tree | parse(" OR ".join(many.split(" OR ")[start : start + 50]))
    assert len(str(tree)) > LIMITS.text
    report = lint_filters([(1, tree), (2, tree)], events=[{"t": 1}])
    assert report.counts == {LintKind.UNKNOWN_ATTRIBUTE: 2, LintKind.DUPLICATE: 1}


def test_names_that_are_near():
    assert nearest_name("depht", ["depth", "death"]) == "depth"
    assert nearest_name("a", ["b", "ab"]) is None
    assert nearest_name("nothing", []) is None


def test_a_name_that_is_probably_a_string_is_said_to_be_one() -> None:
    """Double quotes are for names: `country = "us"` compares two attributes."""
    seen = SeenAttributes.of_events([{"country": "us"}])
    report = lint_filters([("1", 'country = "us"'), ("2", "country = zz"), ("3", 'country = "xx-yy"')], None, seen)
    said = {each.attribute: each.message for each in report.findings if each.attribute}
    assert said["us"] == "no event has 'us'; strings go in single quotes"
    assert said["zz"] == "no event has 'zz'"
    assert said["xx-yy"] == "no event has 'xx-yy'"


# -- lists -------------------------------------------------------------------------------------------

TAGGED = [
    {"tags": ["rock", "live"], "x": 1, "items": [{"price": 9}], "in": {"deep": [[1], [2]]}},
    {"tags": [], "x": [2], "items": [{"price": 9}, None]},
    {},
]
TABLE = pa.Table.from_pylist([{"tags": each.get("tags"), "items": each.get("items")} for each in TAGGED])
FORMS = {"mappings": TAGGED, "arrow": TABLE, "pandas": TABLE.to_pandas(), "polars": pl.DataFrame(TABLE)}


@pytest.mark.parametrize("form", FORMS)
def test_lists_of_mappings_are_ignored_counted_and_named(form):
    pairs = [(1, "items = 9"), (2, "items.price = 9"), (3, "tags HAS 'rock'")]
    report = lint_filters(pairs, events=FORMS[form])
    assert report.to_dict()["ignored_lists"] == {**({"in.deep": 1} if form == "mappings" else {}), "items": 2}
    said = "'items' is a list of mappings or of lists"
    assert [*report.lines()][-1] == report.notes()[-1] == f"{said} in 2 events, which is ignored: no filter can test it"
    assert [finding.message for finding in report.findings] == [f"{said}, which no filter can test"] * 2
    assert report.dead == 2


@pytest.mark.parametrize("form", ["mappings", "arrow"])
def test_ordinary_tests_of_lists_are_found_and_has_is_not(form):
    written = [
        "tags = 'rock'",
        "tags IN ('a', 'b')",
        "tags IS NOT NULL",
        "tags LIKE 'r%'",
        "tags HAS 'rock'",
        "tags HAS 5",
    ]
    report = lint_filters(enumerate(written), events=FORMS[form])
    said = "'tags' is a list, which only HAS can test; write tags HAS 'rock'"
    assert [(each.message, each.ids) for each in report.findings] == [
        (said, (0, 1, 2, 3)),
        ("'tags' is a string, but is compared with a number; write '5'", (5,)),
    ]
    assert report.dead == 5


def test_an_attribute_that_is_a_list_in_some_events_can_be_compared():
    assert lint_filters([(1, "x = 1"), (2, "x HAS 2")], events=TAGGED).clean
    both = SeenAttributes.of_events([{"x": 1}]).merged(SeenAttributes.of_events([{"x": [1], "y": [2]}]))
    assert both.lists == {"y"}
    assert SeenAttributes.of(Schema.of(y="int"), both).lists == {"y"}


def test_a_schema_is_inferred_from_the_elements_of_lists():
    found = Schema.infer(pa.table({"x": [[3, 1], None, [7]], "tags": [["a"], ["a", "b", "a"], []]}))
    assert found["x"].type is Type.INT
    assert (found["x"].low, found["x"].high) == (1, 7)
    assert found["tags"].categories == ("a", "b")
